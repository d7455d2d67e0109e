//! The real program from outside.
