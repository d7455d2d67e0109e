//! Bytes bent at random, for every decoder that meets bytes from outside: a bounded run in each test
//! suite, a long one on demand (`tests/run --fuzz 600 fuzz`).
//!
//! Inputs grow out of a corpus (`tests/fuzz/corpora/<target>/`, one file an input, and what the test
//! gives). An input that the decoder answers in a way not seen before joins them, so that what it
//! takes several steps to reach is reached. The same corpus gives the same run. What breaks a decoder
//! is written below `target/fuzz/` and belongs into the corpus once it is mended.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test's helper fails the test"
)]

mod bend;

use bend::{Chance, bend};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Inputs of one run of a suite.
const INPUTS: u64 = 20_000;
/// Most inputs kept to grow others from.
const KEPT: usize = 4096;
/// No input gets longer.
const LONGEST: usize = 64 << 10;

/// Bends the inputs of a target's corpus and `seeds`, mends most of them by `mend` (checksums, so that
/// what lies behind them is reached), and hands them to `check`. It panics where the decoder is wrong,
/// and otherwise says how the decoder answered, in few different ways.
pub fn fuzz(
    target: &str,
    seeds: &[Vec<u8>],
    mend: impl Fn(&mut Vec<u8>),
    check: impl Fn(&[u8]) -> String,
) {
    let mut pool = corpus(target);
    pool.extend(seeds.iter().cloned());
    assert!(!pool.is_empty(), "{target} has nothing to begin with");
    let mut seen = HashSet::new();
    for input in &pool {
        seen.insert(shape(&tried(target, input, &check)));
    }
    let mut chance = Chance::of(target);
    let enough = enough();
    let mut inputs = 0;
    while !enough(inputs) {
        inputs += 1;
        let mut input = bend(&pool, &mut chance);
        input.truncate(LONGEST);
        if chance.below(8) > 0 {
            mend(&mut input);
        }
        let answer = shape(&tried(target, &input, &check));
        if pool.len() < KEPT && seen.insert(answer) {
            pool.push(input);
        }
    }
    eprintln!("{target}: {inputs} inputs, {} ways to answer", seen.len());
}

/// When a run is over: after so many inputs, or after the seconds that were asked for.
#[expect(
    clippy::disallowed_methods,
    reason = "how long somebody is ready to wait; nothing is asserted of it"
)]
fn enough() -> impl Fn(u64) -> bool {
    let seconds = std::env::var("TIDEMILL_TEST_FUZZ_SECONDS").ok();
    let seconds = seconds.map(|n| Duration::from_secs(n.parse().expect("a number of seconds")));
    let start = Instant::now();
    move |inputs| match seconds {
        Some(seconds) => start.elapsed() >= seconds,
        None => inputs >= INPUTS,
    }
}

fn tried(target: &str, input: &[u8], check: impl Fn(&[u8]) -> String) -> String {
    match catch_unwind(AssertUnwindSafe(|| check(input))) {
        Ok(answer) => answer,
        Err(panic) => {
            let place = write_down(target, input);
            eprintln!("{target} breaks on {}", place.display());
            resume_unwind(panic)
        }
    }
}

/// An answer without its numbers and quotes, which would make every answer a new one.
fn shape(answer: &str) -> String {
    let mut quoted = false;
    let kept = answer.chars().filter(|c| {
        if *c == '"' {
            quoted = !quoted;
        }
        !quoted && !c.is_ascii_digit()
    });
    kept.take(120).collect()
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(target);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    let read = |file: &PathBuf| std::fs::read(file).expect("an input");
    files.iter().map(read).collect()
}

fn write_down(target: &str, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/fuzz")
        .join(target);
    std::fs::create_dir_all(&folder).expect("target/fuzz");
    let hash = bend::hash(input);
    let place = folder.join(format!("{hash:016x}"));
    std::fs::write(&place, input).expect("written");
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn what_takes_several_steps_is_reached_and_the_run_repeats() {
        let run = || {
            let all = RefCell::new(Vec::new());
            let deepest = Cell::new(0);
            fuzz(
                "steps",
                &[b"aaaa".to_vec()],
                |_| {},
                |input| {
                    all.borrow_mut().push(input.to_vec());
                    let steps = input.iter().zip(b"be").take_while(|(a, b)| a == b).count();
                    deepest.set(deepest.get().max(steps));
                    "x".repeat(steps)
                },
            );
            (all.into_inner(), deepest.get())
        };
        let (one, other) = (run(), run());
        assert_eq!(one, other);
        assert_eq!(one.1, 2);
    }

    #[test]
    fn what_breaks_is_written_down() {
        let broken = catch_unwind(|| {
            let check = |input: &[u8]| {
                assert!(input.len() < 10, "too long");
                String::new()
            };
            fuzz("breaks", &[vec![0; 4]], |_| {}, check);
        });
        assert!(broken.is_err());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz/breaks");
        let file = std::fs::read_dir(&folder).expect("there").next();
        let bytes = std::fs::read(file.expect("one").expect("entry").path()).expect("read");
        assert!(bytes.len() >= 10);
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
