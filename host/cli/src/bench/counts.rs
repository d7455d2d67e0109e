//! The keyed count by others beside the functions: Kafka Streams, exactly once, and Flink. `tests/peers` fetches and
//! runs them.

use super::events;
use super::peers::{FLUSHES, Scripts, serve};
use super::process::Process;
use super::reader::per_second;
use crate::failure::{Failure, Result};
use crate::print;
use crate::progress::Stopwatch;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

/// Their scripts.
pub(super) const NAMES: [&str; 2] = ["streams", "flink"];
const BROKER: &str = "kafka";
/// Where Flink keeps its state: in files, and on its heap.
const STATES: [&str; 2] = ["rocksdb", "hashmap"];
/// Events for each second that a measurement may take; as many before, to warm up.
const EVENTS: u64 = 100_000;

/// Who counts, and with what.
struct Counter {
    script: &'static str,
    /// As it is called in results.
    name: &'static str,
    /// The broker's flush, or where state is kept.
    with: &'static str,
}

/// Kafka Streams on a broker of either kind, Flink with state of either kind.
fn counters() -> Vec<Counter> {
    let streams = FLUSHES.map(|with| Counter {
        script: NAMES[0],
        name: "kafka streams, exactly_once_v2",
        with,
    });
    let flink = STATES.map(|with| Counter {
        script: NAMES[1],
        name: "flink, outputs thrown away",
        with,
    });
    streams.into_iter().chain(flink).collect()
}

/// Each of them. One that doesn't get through is a row too.
pub(super) async fn measure(
    scripts: &Scripts,
    dir: &Path,
    time: Duration,
    size: u32,
) -> Result<Value> {
    let mut rows = Vec::new();
    for counter in counters() {
        let (script, with) = (counter.script, counter.with);
        print::note(&format!("  {}, {with}", counter.name));
        let dir = dir.join(format!("{script}-{with}"));
        std::fs::create_dir(&dir)?;
        let mut row = count(scripts, &counter, &dir, time, size)
            .await
            .unwrap_or_else(|failure| {
                print::warning(&format!("{}, {with}: {}", counter.name, failure.message));
                json!({"failed": failure.message})
            });
        std::fs::remove_dir_all(dir)?;
        row["peer"] = counter.name.into();
        row["with"] = with.into();
        rows.push(row);
    }
    Ok(rows.into())
}

async fn count(
    scripts: &Scripts,
    counter: &Counter,
    dir: &Path,
    time: Duration,
    size: u32,
) -> Result<Value> {
    let (broker, first) = if counter.script == NAMES[0] {
        let (broker, port) = serve(scripts, BROKER, counter.with, dir).await?;
        (Some(broker), port)
    } else {
        (None, counter.with.to_owned())
    };
    let events = EVENTS * time.as_secs().max(1) * 2;
    let mut command = scripts.command(counter.script);
    command.arg("count").arg(first).arg(dir.join("state"));
    command.args([events, events::KEYS.into(), size.into()].map(|number: u64| number.to_string()));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut engine = Process::spawn(&mut command)?;
    let said = engine.0.stdout.take();
    let said = said.ok_or_else(|| Failure::failed("load", "the program has no output"))?;
    let mut said = BufReader::new(said);
    wait_for(&mut said, "filled")?;
    let half = wait_for(&mut said, "half")?;
    let used = || {
        (
            engine.cpu_seconds(),
            broker.as_ref().map_or(0.0, Process::cpu_seconds),
        )
    };
    let (watch, before) = (Stopwatch::start(), used());
    let all = wait_for(&mut said, "done")?;
    let (seconds, after) = (watch.elapsed().as_secs_f64(), used());
    let (engine_seconds, broker_seconds) = (after.0 - before.0, after.1 - before.1);
    let memory = engine.memory();
    wait_for(&mut said, "checked")?;
    let counted = all.saturating_sub(half);
    Ok(json!({
        "events": counted, "size": size, "events_per_second": per_second(counted, seconds),
        "events_per_cpu_second": per_second(counted, (engine_seconds + broker_seconds).max(0.01)),
        "events_per_engine_second": per_second(counted, engine_seconds.max(0.01)),
        "memory": memory, "broker_memory": broker.as_ref().map(Process::memory),
    }))
}

/// Reads on until the program says so; the number behind it. Blocks: nothing else happens meanwhile.
fn wait_for(said: &mut BufReader<ChildStdout>, what: &str) -> Result<u64> {
    let mut line = String::new();
    said.read_line(&mut line)?;
    number(&line, what).ok_or_else(|| {
        let detail = format!("the peer's program did not get as far as \"{what}\"");
        Failure::failed("load", detail).hint("it has said above why")
    })
}

fn number(line: &str, what: &str) -> Option<u64> {
    let said: Value = serde_json::from_str(line).ok()?;
    said.get(what)?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counts_with_either() {
        let all = counters();
        let of = |script: &str| all.iter().filter(|it| it.script == script).count();
        assert_eq!(NAMES.map(of), [2, 2]);
    }

    #[test]
    fn a_line_says_one_thing() {
        assert_eq!(number("{\"half\":12}\n", "half"), Some(12));
        assert_eq!(
            (number("{\"half\":12}", "done"), number("", "done")),
            (None, None)
        );
    }
}
