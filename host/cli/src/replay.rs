//! `tidemill replay`: a function over stored events once more.

mod file;

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print::{self, cell};
use crate::progress;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// How often a replay is asked how far it is.
const PACE: Duration = Duration::from_millis(100);

/// Run a function over stored events once more, with state of its own.
///
/// What it emits goes into a side topic or a file, is compared with what another version emits, or with what was
/// committed. The function itself goes on as it is. Exits with 1 where something differs.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill replay carrier-delays --verify\n  tidemill replay carrier-delays@3 --diff 2 --from earliest\n  tidemill replay carrier-delays --into what-if\n  tidemill replay carrier-delays@2 --file outputs.ndjson --from 2013-01-01T00:00:00Z"
)]
pub(crate) struct ReplayArgs {
    /// Name of the function, perhaps with a version: `carrier-delays@2`.
    #[arg(value_name = "FUNCTION[@VERSION]")]
    function: String,
    /// Where to begin: `earliest`, an offset or a time.
    #[arg(long, value_name = "WHERE")]
    from: Option<String>,
    /// Where to end: `latest`, an offset or a time.
    #[arg(long, value_name = "WHERE")]
    to: Option<String>,
    /// Put what it emits into this topic.
    #[arg(long, value_name = "TOPIC", group = "mode")]
    into: Option<String>,
    /// Write what it emits to this file, one event a line with the topic it is for; `-` is standard output.
    #[arg(long, value_name = "FILE", group = "mode")]
    file: Option<PathBuf>,
    /// Compare with this version, which is the left one.
    #[arg(long, value_name = "VERSION", group = "mode")]
    diff: Option<u32>,
    /// Execute again what was committed, and compare.
    #[arg(long, group = "mode", conflicts_with_all = ["from", "to"])]
    verify: bool,
    #[command(flatten)]
    show: Show,
}

pub(crate) async fn perform(host: &str, args: &ReplayArgs) -> Result<()> {
    let client = Client::new(host)?;
    let (name, version) = split(&args.function)?;
    let mut asked = serde_json::Map::new();
    let places = [("from", &args.from), ("to", &args.to)];
    for (member, place) in places {
        if let Some(place) = place {
            let offset = place.parse::<u64>().map(Value::from);
            asked.insert(member.into(), offset.unwrap_or_else(|_| json!(place)));
        }
    }
    let members = [
        ("version", version.map(Value::from)),
        ("into", args.into.as_ref().map(|topic| json!(topic))),
        ("diff", args.diff.map(Value::from)),
        ("verify", args.verify.then_some(Value::Bool(true))),
        ("stream", args.file.as_ref().map(|_| Value::Bool(true))),
    ];
    asked.extend(
        members
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?))),
    );
    let path = ["v1", "functions", name, "replay"];
    let request = client.request(Method::POST, &path, &[]);
    if let Some(file) = &args.file {
        return file::write(&client, request.json(&Value::from(asked)), file).await;
    }
    let report = client.json(request.json(&Value::from(asked))).await?;
    follow(&client, name, report, args.show.output).await
}

/// Waits for the end of a replay, given by the report of its beginning, and prints what it came to.
pub(crate) async fn follow(
    client: &Client,
    name: &str,
    mut report: Value,
    shape: Shape,
) -> Result<()> {
    let id = cell(&report["id"]);
    while report["status"] == "running" {
        progress::pause(PACE).await;
        let path = ["v1", "functions", name, "replay", &id];
        report = client.get(&path, &[]).await?;
    }
    if report["status"] == "failed" {
        let (code, detail) = (&report["result"]["code"], &report["result"]["detail"]);
        let code = code.as_str().unwrap_or("replay-failed").to_owned();
        return Err(Failure::failed(&code, cell(detail)));
    }
    match shape {
        Shape::Table => print::line(&words(&report))?,
        shape => print::answer(shape, &report, None, |_| print::Table::new(&[]))?,
    }
    if report["result"]["equal"] == false {
        return Err(Failure::failed(
            "replay-differs",
            "the replay found differences",
        ));
    }
    Ok(())
}

/// A function's name, and the version behind it.
pub(crate) fn split(text: &str) -> Result<(&str, Option<u32>)> {
    let Some((name, version)) = text.rsplit_once('@') else {
        return Ok((text, None));
    };
    let number = version.parse().map_err(|_| {
        Failure::usage(
            "invalid-version",
            format!("{version:?} is not a version's number"),
        )
    })?;
    Ok((name, Some(number)))
}

/// What a replay came to, in words.
fn words(report: &Value) -> String {
    let result = &report["result"];
    let number = |value: &Value| print::count(value.as_u64().unwrap_or(0));
    let state = &result["state"];
    let state = format!(
        "state: {} the same, {} different, {} only left, {} only right",
        number(&state["same"]),
        number(&state["different"]),
        number(&state["only_left"]),
        number(&state["only_right"])
    );
    let mut lines = Vec::new();
    if result["into"].is_string() {
        lines.push(format!(
            "{} events emitted into {}",
            number(&result["emitted"]),
            cell(&result["into"])
        ));
    } else if result["found"].is_u64() {
        lines.push(format!(
            "{} events executed again; of what they emitted {} found, {} missing, {} not looked for",
            number(&result["events"]),
            number(&result["found"]),
            number(&result["missing"]),
            number(&result["unsought"])
        ));
        lines.push(format!("{state} (left: as it is, right: the replay's)"));
        for total in result["totals"].as_array().into_iter().flatten() {
            lines.push(format!(
                "partition {}: the totals differ",
                cell(&total["partition"])
            ));
        }
        for (topic, events) in result["gone"].as_object().into_iter().flatten() {
            lines.push(format!(
                "{topic}: {} events not compared, for the topic no longer has everything",
                number(events)
            ));
        }
        lines.push(
            if result["equal"] == true {
                "everything is as it was committed"
            } else {
                "it is not as it was committed"
            }
            .into(),
        );
    } else {
        lines.push(format!(
            "{} events: {} the same, {} different (left: version {}, right: version {})",
            number(&result["events"]),
            number(&result["same"]),
            number(&result["different"]),
            cell(&result["left"]["version"]),
            cell(&result["right"]["version"])
        ));
        lines.push(state);
    }
    lines.extend(examples(result));
    lines.join("\n")
}

/// What differs, for people: the event, and what each side emits for it.
fn examples(result: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for example in result["examples"].as_array().into_iter().flatten() {
        if example["left"].is_null() {
            lines.push(format!("  missing: {}", emitted(example)));
            continue;
        }
        let (partition, offset) = (cell(&example["partition"]), cell(&example["offset"]));
        let (key, value) = (cell(&example["key"]), cell(&example["value"]));
        lines.push(format!("  event {partition}:{offset}  {key}  {value}"));
        for (side, sign) in [("left", '-'), ("right", '+')] {
            let events = example[side].as_array().into_iter().flatten();
            lines.extend(events.map(|event| format!("    {sign} {}", emitted(event))));
        }
    }
    let states = result["state"]["examples"].as_array().into_iter().flatten();
    for example in states {
        let entry = match example["entry"].is_null() {
            true => String::new(),
            false => format!("/{}", cell(&example["entry"])),
        };
        let (slot, key) = (cell(&example["slot"]), cell(&example["key"]));
        let (left, right) = (cell(&example["left"]), cell(&example["right"]));
        lines.push(format!("  state {slot} {key}{entry}: {left} -> {right}"));
    }
    lines
}

fn emitted(event: &Value) -> String {
    let headers = event["headers"].as_array().into_iter().flatten();
    let headers: String = headers
        .map(|header| format!(" {}={}", cell(&header[0]), cell(&header[1])))
        .collect();
    format!(
        "{} {}  {}  {}{headers}",
        cell(&event["topic"]),
        cell(&event["partition"]),
        cell(&event["key"]),
        cell(&event["value"])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_may_stand_behind_the_name() {
        assert_eq!(split("f").expect("a name"), ("f", None));
        assert_eq!(split("f@2").expect("both"), ("f", Some(2)));
        assert!(split("f@two").is_err());
    }

    #[test]
    fn what_differs_is_told_side_by_side() {
        let emitted = |value: &str| json!({"topic": "out", "partition": 1, "key": "UA", "value": value, "headers": [["h", "x"]]});
        let result = json!({"equal": false, "events": 3, "same": 2, "different": 1,
            "left": {"version": 1}, "right": {"version": 2},
            "examples": [{"partition": 0, "offset": 7, "key": "UA", "value": "{}", "left": [emitted("1")], "right": [emitted("2"), emitted("3")]}],
            "state": {"same": 4, "different": 1, "only_left": 0, "only_right": 0,
                "examples": [{"slot": "total", "key": "UA", "entry": null, "left": "1", "right": "5"}]}});
        let told = words(&json!({"result": result}));
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines,
            [
                "3 events: 2 the same, 1 different (left: version 1, right: version 2)",
                "state: 4 the same, 1 different, 0 only left, 0 only right",
                "  event 0:7  UA  {}",
                "    - out 1  UA  1 h=x",
                "    + out 1  UA  2 h=x",
                "    + out 1  UA  3 h=x",
                "  state total UA: 1 -> 5",
            ]
        );
    }
}
