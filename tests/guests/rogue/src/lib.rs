//! A function that does the harm its events ask for, to test that nobody else notices.
//!
//! | the value contains | what happens | what the host sees |
//! |---|---|---|
//! | `trap` | a panic | `trap` |
//! | `loop` | never returns | `deadline` |
//! | `hog` | allocates until it gets no more | `memory` |
//! | `deep` | recurses without end | `trap` |
//! | `flood` | emits 2 MiB | `output-limit`, if the limit is lower |
//! | `million` | emits a million events of nothing | `output-limit`, if the limit is lower |
//! | `skip`, `dead`, `fatal` | the outcome of that name | that outcome |
//! | anything else | nothing bad | the event again, in `out` |
//!
//! The event is emitted before the harm is done: what a failed call emitted must not be seen either.

use std::hint::black_box;
use tidemill::prelude::*;

/// Does harm on demand.
#[tidemill::function(input = "in", output = "out")]
pub fn rogue(event: Event<Bytes>, out: Output<Bytes>) -> Result<()> {
    let value = event.value;
    let asks = |word: &str| {
        value
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    };
    out.emit(event.key, value)?;
    if asks("trap") {
        panic!("trapped on demand");
    }
    if asks("loop") {
        spin();
    }
    if asks("hog") {
        hoard();
    }
    if asks("deep") {
        black_box(descend(0));
    }
    if asks("flood") {
        let kilobyte = [b'x'; 1024];
        for _ in 0..2048 {
            out.emit(event.key, Bytes(&kilobyte))?;
        }
    }
    if asks("million") {
        for _ in 0..1_000_000 {
            out.emit(event.key, Bytes(b""))?;
        }
    }
    if asks("skip") {
        return skip("skipped on demand");
    }
    if asks("dead") {
        return dead_letter("given up on demand");
    }
    if asks("fatal") {
        return fatal("stopped on demand");
    }
    Ok(())
}

fn spin() {
    loop {
        black_box(());
    }
}

fn hoard() {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1u8; 1 << 20]));
    }
}

#[expect(unconditional_recursion, reason = "that is the harm")]
fn descend(depth: u64) -> u64 {
    black_box(depth) + descend(black_box(depth + 1))
}
