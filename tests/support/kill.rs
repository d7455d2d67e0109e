//! SIGKILL at moments that differ from round to round and are the same in every run.

use crate::Host;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Moments, drawn by xorshift.
pub struct Moments(u64);

impl Moments {
    /// A row of moments of its own.
    pub fn of(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next one, from `least` on and below `least + span` milliseconds.
    pub fn next(&mut self, least: u64, span: u64) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(least + self.0 % span)
    }
}

/// One of several who write to a host that is about to be killed.
pub struct Writer<'h> {
    /// Its number among the writers of this round, from 0.
    pub number: u64,
    url: &'h str,
    client: reqwest::blocking::Client,
    killed: &'h AtomicBool,
}

impl Writer<'_> {
    /// Appends lines of NDJSON. `None` once the host is gone: then nobody knows what came of it; a host
    /// that refuses may do so only because it has too much to do, or stops, and is asked again.
    pub fn append(&self, body: &str) -> Option<serde_json::Value> {
        while !self.killed.load(Ordering::Acquire) {
            let request = self.client.post(self.url);
            let request = request.header("content-type", "application/x-ndjson");
            let answer = request.body(body.to_owned()).send().ok()?;
            let status = answer.status();
            if status == 200 {
                // It may be cut off by the kill.
                return answer.json().ok();
            }
            assert!(status.is_server_error() || status == 429, "{answer:?}");
        }
        None
    }
}

/// Lets so many writers append to a topic, kills the host under them, and gives what they gave.
pub fn kill_under_load<T: Send>(
    host: Host,
    topic: &str,
    writers: u64,
    until_kill: Duration,
    write: impl Fn(&Writer<'_>) -> T + Sync,
) -> Vec<T> {
    let killed = AtomicBool::new(false);
    let url = host.url(&format!("/v1/topics/{topic}/events"));
    std::thread::scope(|scope| {
        let (write, url, killed) = (&write, &url, &killed);
        let writer = |number| {
            let client = host.client().clone();
            scope.spawn(move || {
                write(&Writer {
                    number,
                    url,
                    client,
                    killed,
                })
            })
        };
        let writers: Vec<_> = (0..writers).map(writer).collect();
        wait(until_kill);
        host.kill();
        killed.store(true, Ordering::Release);
        let wrote = writers.into_iter().map(|writer| writer.join());
        wrote.map(|wrote| wrote.expect("a writer")).collect()
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the moment of the kill; what is asserted doesn't depend on it"
)]
fn wait(time: Duration) {
    let start = Instant::now();
    while let Some(left) = time.checked_sub(start.elapsed()) {
        std::thread::sleep(left);
    }
}
