//! The real program from outside: started, fed, killed, filled, abused, and asked what it knows.

mod archive;
mod crash;
mod demo;
mod full_disk;
mod guests;
mod program;
