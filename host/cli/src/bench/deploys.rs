//! Changing functions and running them again: from a deployment to the first output, with and without
//! compiling; what an instance costs that has to be made; replay against the function by itself.

use super::connection::{Connection, post};
use super::functions::{act, guests, one, with_flights};
use super::host::Host;
use super::latency::next;
use super::load::Times;
use super::reader::{figure, per_second};
use super::sparse::{self, Sparse};
use super::{events, ingest, snapshots};
use crate::build::Built;
use crate::demo::{self, FUNCTIONS};
use crate::deploy::Package;
use crate::failure::{Failure, Result};
use crate::print;
use crate::progress::{Stopwatch, pause};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// What is deployed over and over: the smallest of the bench's functions with state and an output.
const SMALL: &str = "bench-keys";
/// What is replayed: one that parses, keeps and says as little as can be, and one with some work of its own.
const COUNTING: &str = "bench-count";
const PARSING: &str = FUNCTIONS[0];
const INPUT: &str = "deploys";
const SIZE: u32 = 200;
/// Deployments of each kind at most.
const ROUNDS: u32 = 40;
/// Functions among which no instance is kept, for there is room for one.
const CROWD: u32 = 16;
/// Room for one instance.
const ROOM_FOR_ONE: [&str; 1] = ["functions.memory_bytes=2MiB"];
const POLL: Duration = Duration::from_millis(2);
/// A function or replay that takes this much longer than it was given is stuck.
const PATIENCE: u32 = 40;

/// All of it, each on a host of its own.
pub(super) async fn measure(dir: &Path, time: Duration) -> Result<Value> {
    let built = guests()?;
    print::note("  from a deployment to the first output");
    let deployments = deployments(&dir.join("deployments"), time, &built).await?;
    print::note("  instances that are kept, and that are made for each event");
    let mut instances = Vec::new();
    for (what, functions) in [("kept", 1), ("made for each event", CROWD)] {
        let dir = dir.join(format!("instances-{functions}"));
        let mut row = answers(&dir, time, &built, functions).await?;
        row["instance"] = what.into();
        instances.push(row);
    }
    print::note("  replay");
    let replays = replays(&dir.join("replay"), time, &built).await?;
    let snapshots = snapshots::measure(&dir.join("snapshots"), time, &built).await?;
    Ok(json!({
        "first-output": deployments, "instances": instances, "replay": replays, "snapshots": snapshots,
    }))
}

/// Deploys components that the host hasn't seen, and ones that it has compiled.
async fn deployments(dir: &Path, time: Duration, built: &[Built]) -> Result<Vec<Value>> {
    std::fs::create_dir(dir)?;
    let host = Host::start(dir)?;
    ingest::create(&host.client, INPUT, 1).await?;
    let mut connection = Connection::open(&host.address).await?;
    let event = post(
        &format!("/v1/topics/{INPUT}/events"),
        "application/json",
        events::line(SIZE).as_bytes(),
    );
    let status = connection.call(&event).await?;
    if status != 200 {
        let detail = format!("the host answers {status} to a single event");
        return Err(Failure::failed("refused", detail));
    }
    let component = std::fs::read(&sparse::one(built, SMALL)?.path)?;
    let mut rows = Vec::new();
    for what in ["new", "compiled before"] {
        let (mut answered, mut visible) = (Times::default(), Times::default());
        let watch = Stopwatch::start();
        for round in 0..ROUNDS {
            if round > 0 && watch.elapsed() > time / 2 {
                break;
            }
            let name = format!("{}-{round}", what.replace(' ', "-"));
            let bytes = match what {
                "new" => stamped(&component, &name),
                _ => stamped(&component, "new-0"),
            };
            let (answer, seen) = first_output(&host, &mut connection, &name, bytes).await?;
            answered.add(answer);
            visible.add(seen);
        }
        let ms = |times: &Times, percent| f64::from(times.percentile(percent)) / 1e3;
        rows.push(json!({
            "component": what, "bytes": component.len(), "deployments": visible.count(),
            "answer_p50_ms": ms(&answered, 50.0), "first_output_p50_ms": ms(&visible, 50.0),
            "first_output_most_ms": ms(&visible, 100.0),
        }));
    }
    Ok(rows)
}

/// Deploys a function whose input waits for it; how long until the host answered, and until its first output
/// could be read.
async fn first_output(
    host: &Host,
    connection: &mut Connection,
    name: &str,
    component: Vec<u8>,
) -> Result<(Duration, Duration)> {
    let out = format!("{name}.out");
    let manifest = format!(
        "[[input]]\ntopic = \"{INPUT}\"\nstart = \"earliest\"\n[output.out]\ntopic = \"{out}\"\n"
    );
    let package = Package::of(name, component, manifest);
    let watch = Stopwatch::start();
    package.deploy(&host.client, &[]).await?;
    let answered = watch.elapsed();
    let path = format!("/v1/topics/{out}/events?cursor=0:0&wait=20s");
    let after = next(connection, &path).await?;
    if after != "0:1" {
        let detail = format!("{name} made no output: {out} ends at {after}");
        return Err(Failure::failed("no-output", detail));
    }
    Ok((answered, watch.elapsed()))
}

/// The same component with a word of its own in it, so that it is another one: a custom section at its end.
fn stamped(component: &[u8], stamp: &str) -> Vec<u8> {
    const NAME: &[u8] = b"stamp";
    let length = |bytes: usize| u8::try_from(bytes).ok().filter(|it| *it < 0x80);
    let (Some(name), Some(section)) = (length(NAME.len()), length(1 + NAME.len() + stamp.len()))
    else {
        return component.to_vec();
    };
    [component, &[0, section, name], NAME, stamp.as_bytes()].concat()
}

/// One event at a time through functions in turn.
async fn answers(dir: &Path, time: Duration, built: &[Built], functions: u32) -> Result<Value> {
    std::fs::create_dir(dir)?;
    let host = Host::start_with(dir, &ROOM_FOR_ONE)?;
    sparse::deploy(&host.client, built, functions).await?;
    let (sparse, _) = Sparse::new(functions).round(&host).await?;
    let (_, mut row) = sparse.measure(&host, time / 2).await?;
    row["functions"] = functions.into();
    Ok(row)
}

/// Functions over events that lie ready, and the same in replays.
async fn replays(dir: &Path, time: Duration, built: &[Built]) -> Result<Vec<Value>> {
    let counting = dir.join("counting");
    std::fs::create_dir_all(&counting)?;
    let host = Host::start(&counting)?;
    ingest::create_topic(&host.client).await?;
    demo::deploy_built(&host.client, built, &[COUNTING]).await?;
    act(&host.client, COUNTING, "pause").await?;
    ingest::fill(&host, time / 2, SIZE).await?;
    let mut rows = replays_of(&host, COUNTING, time).await?;
    drop(host);
    let parsing = dir.join("parsing");
    std::fs::create_dir(&parsing)?;
    let host = with_flights(&parsing, time / 2, &[PARSING]).await?;
    rows.extend(replays_of(&host, PARSING, time).await?);
    Ok(rows)
}

async fn replays_of(host: &Host, function: &str, time: Duration) -> Result<Vec<Value>> {
    let run = one(host, function, time * PATIENCE).await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let events = run["events"].as_u64().unwrap_or(0);
    let inside = seconds_inside(&host.metrics().await?, function);
    let alone = per_second(events, inside) * f64::from(u32::try_from(cores).unwrap_or(1));
    let mut rows = vec![json!({
        "function": function, "what": "in the sandbox alone, on all cores", "events": events,
        "events_per_second": alone,
    })];
    let mut add = |what: &str, rate: f64, more: Value| {
        let percent = rate / alone.max(1.0) * 100.0;
        rows.push(json!({
            "function": function, "what": what, "events": events, "events_per_second": rate,
            "of_alone_percent": percent, "equal": more,
        }));
    };
    add(
        "live, what lay ready",
        figure(&run, "events_per_second"),
        Value::Null,
    );
    for (what, asked) in [
        ("replay, into a topic", json!({"into": "replayed"})),
        ("replay, verified", json!({"verify": true})),
    ] {
        let (seconds, report) = replay(host, function, &asked, time * PATIENCE).await?;
        let rate = per_second(report["events"].as_u64().unwrap_or(0), seconds);
        add(what, rate, report["result"]["equal"].clone());
    }
    Ok(rows)
}

/// Runs a replay to its end.
async fn replay(
    host: &Host,
    function: &str,
    asked: &Value,
    patience: Duration,
) -> Result<(f64, Value)> {
    let path = ["v1", "functions", function, "replay"];
    let watch = Stopwatch::start();
    let request = host.client.request(Method::POST, &path, &[]);
    let mut report = host.client.json(request.json(asked)).await?;
    let id = print::cell(&report["id"]);
    while report["status"] == "running" && watch.elapsed() < patience {
        pause(POLL).await;
        let path = [&path[..], &[id.as_str()]].concat();
        report = host.client.get(&path, &[]).await?;
    }
    let seconds = watch.elapsed().as_secs_f64();
    if report["status"] == "done" {
        return Ok((seconds, report));
    }
    let detail = format!("the replay did not get through: {report}");
    Err(Failure::failed("replay-failed", detail))
}

/// How long the calls of a function took, in a text of metrics.
fn seconds_inside(metrics: &str, function: &str) -> f64 {
    let line = format!("tidemill_function_invocation_seconds_sum{{function=\"{function}\"}} ");
    let value = metrics
        .lines()
        .find_map(|shown| shown.strip_prefix(line.as_str()));
    value.and_then(|it| it.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_a_custom_section_and_makes_another_component() {
        let stamped_ones = ["a", "bc"].map(|stamp| stamped(b"\0asm", stamp));
        assert_eq!(stamped_ones[0], b"\0asm\0\x07\x05stampa");
        assert_eq!(stamped_ones[1], b"\0asm\0\x08\x05stampbc");
    }

    #[test]
    fn time_inside_is_that_of_the_function() {
        let text = "tidemill_function_invocation_seconds_sum{function=\"f-2\"} 7\n\
            tidemill_function_invocation_seconds_sum{function=\"f\"} 2.5\n";
        assert!((seconds_inside(text, "f") - 2.5).abs() < 1e-9);
        assert!(seconds_inside(text, "g").abs() < 1e-9);
    }
}
