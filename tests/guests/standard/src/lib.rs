//! A function that uses what a standard library takes from its surroundings: hash maps, clocks, random
//! numbers, standard error, the environment. It says all that could differ between two runs.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tidemill::prelude::*;

/// What one event saw.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Saw {
    /// Words of the value in the order in which a hash map lists them.
    pub words: Vec<String>,
    /// A number that hashing gives without keys of one's own.
    pub hashed: u64,
    /// Events of the key so far.
    pub count: i64,
    /// What it saw outside, where the target has any.
    pub outside: Option<Outside>,
}

/// What the standard library says of what surrounds the process.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Outside {
    /// The system's time in µs.
    pub clock: u64,
    /// Time that passes while it sleeps for a minute, in ns.
    pub passed: u64,
    /// Variables and arguments of the process.
    pub surroundings: usize,
    /// What reading a file says.
    pub file: String,
}

/// Says what it sees.
#[tidemill::function(input = "in", start = "earliest", output = "out", on_timer = due)]
pub fn standard(
    text: Event<String>,
    count: Counter,
    timers: Timers,
    out: Output<Saw>,
) -> Result<()> {
    if text.value == "exit" {
        std::process::exit(3);
    }
    let seen = saw(&text.value, count.add(1)?);
    if text.value != "end" {
        timers.set("again", text.time + Duration::from_millis(5))?;
    }
    out.emit(text.key, seen)
}

/// Says it once more.
#[tidemill::on_timer]
fn due(timer: Timer, count: Counter, out: Output<Saw>) -> Result<()> {
    out.emit(timer.key, saw("one two three four five", count.get()?))
}

fn saw(text: &str, count: i64) -> Saw {
    let mut words: HashMap<&str, usize> = HashMap::new();
    for word in text.split(' ') {
        *words.entry(word).or_default() += 1;
    }
    let mut more: HashSet<String> = words.keys().map(|word| format!("{word}!")).collect();
    more.extend(words.into_keys().map(String::from));
    Saw {
        words: more.into_iter().collect(),
        hashed: RandomState::new().hash_one(text),
        count,
        outside: outside(text),
    }
}

#[cfg(not(target_os = "wasi"))]
fn outside(_text: &str) -> Option<Outside> {
    None
}

#[cfg(target_os = "wasi")]
fn outside(text: &str) -> Option<Outside> {
    use std::time::{Instant, SystemTime, UNIX_EPOCH};
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(60));
    eprintln!("saw {text}");
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    Some(Outside {
        clock: u64::try_from(clock.unwrap_or_default().as_micros()).unwrap_or_default(),
        passed: u64::try_from(began.elapsed().as_nanos()).unwrap_or_default(),
        surroundings: std::env::vars().count() + std::env::args().count(),
        file: match std::fs::read("/etc/hostname") {
            Ok(_) => "read".to_owned(),
            Err(error) => error.to_string(),
        },
    })
}
