//! Asking a function what it would do.

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print::{self, cell};
use crate::replay::split;
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Hand events to a function and see what it would do; nothing is written.
///
/// Takes one JSON value a line. What the events would lead to is printed: outputs with the topics they are
/// for, dead letters, changes of state.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill functions invoke carrier-delays flights.ndjson\n  tidemill functions invoke carrier-delays@2 --state empty -o json < flights.ndjson"
)]
pub(crate) struct Invoke {
    /// Name of the function, perhaps with a version: `carrier-delays@2`.
    #[arg(value_name = "FUNCTION[@VERSION]")]
    function: String,
    /// The file; `-` is standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Whether it sees the state there is.
    #[arg(long, value_parser = ["present", "empty"], default_value = "present")]
    state: String,
    /// The topic whose events they are, of a function that reads several.
    #[arg(long)]
    topic: Option<String>,
    /// Each line is an event with key, value, headers and time, not a value alone.
    #[arg(long)]
    events: bool,
    /// JSON pointer to the key in each value, instead of the topic's.
    #[arg(long, value_name = "POINTER", conflicts_with = "key")]
    key_pointer: Option<String>,
    /// One key for all events.
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    show: Show,
}

pub(super) async fn invoke(client: &Client, args: &Invoke) -> Result<()> {
    let (name, version) = split(&args.function)?;
    let version = version.map(|version| version.to_string());
    let query: Vec<(&str, &str)> = [
        ("version", version.as_deref()),
        ("state", Some(args.state.as_str())),
        ("topic", args.topic.as_deref()),
        ("key", args.key.as_deref()),
        ("key_pointer", args.key_pointer.as_deref()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    let kind = match args.events {
        true => "application/vnd.tidemill.events+ndjson",
        false => "application/x-ndjson",
    };
    let path = ["v1", "functions", name, "invoke"];
    let request = client.request(Method::POST, &path, &query);
    let request = request.header("content-type", kind).body(read(&args.file)?);
    let answer = client.json(request).await?;
    match args.show.output {
        Shape::Table => print::line(&words(&answer)),
        shape => print::answer(shape, &answer, Some("events"), |_| print::Table::new(&[])),
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut all = Vec::new();
        std::io::stdin().lock().read_to_end(&mut all)?;
        return Ok(all);
    }
    std::fs::read(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::not_found("no-file", format!("there is no file {}", file.display()))
        }
        _ => Failure::failed("io", format!("cannot read {}: {error}", file.display())),
    })
}

/// What the events came to, in words.
fn words(answer: &Value) -> String {
    let mut lines = Vec::new();
    for (nth, event) in (1..).zip(answer["events"].as_array().into_iter().flatten()) {
        let outcome = event["outcome"].as_str().unwrap_or("not handled");
        lines.push(format!("event {nth}: {outcome}"));
        for emitted in event["emitted"].as_array().into_iter().flatten() {
            lines.push(format!("  {}", emitted_words(emitted)));
        }
    }
    let changed = answer["changed"].as_u64().unwrap_or(0);
    let (version, state) = (cell(&answer["version"]), cell(&answer["state"]));
    lines.push(format!(
        "version {version} on {state} state: {} values of state would change; nothing was written",
        print::count(changed)
    ));
    for change in answer["changes"].as_array().into_iter().flatten() {
        let entry = match change["entry"].as_str() {
            Some(entry) => format!("/{entry}"),
            None => String::new(),
        };
        lines.push(format!(
            "  {} {}{entry}: {} -> {}",
            cell(&change["slot"]),
            cell(&change["key"]),
            cell(&change["before"]),
            cell(&change["after"])
        ));
    }
    if let Some(why) = answer["stopped"].as_str() {
        lines.push(format!("the function would stop: {why}"));
    }
    lines.join("\n")
}

/// An event emitted, in words.
fn emitted_words(event: &Value) -> String {
    let key = match &event["key_base64"] {
        Value::Null => cell(&event["key"]),
        base64 => format!("base64 {}", cell(base64)),
    };
    let value = match &event["value_base64"] {
        Value::Null => event["value"].to_string(),
        base64 => format!("base64 {}", cell(base64)),
    };
    let mut text = format!(
        "{} {} {key} {value}",
        cell(&event["topic"]),
        cell(&event["partition"])
    );
    let headers = event["headers"].as_array().into_iter().flatten();
    let error = headers
        .filter(|header| header[0] == "tidemill-error")
        .find_map(|header| header[1].as_str());
    if let Some(error) = error {
        text.push_str(&format!(" ({error})"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_would_happen_is_told() {
        let answer = json!({"version": 2, "state": "present", "changed": 1, "stopped": "enough",
            "events": [
                {"outcome": "effective", "emitted": [{"topic": "out", "partition": 1, "key": "UA", "value": {"n": 1}, "headers": []}]},
                {"outcome": "dead-lettered", "emitted": [{"topic": "f.dead-letters", "partition": 0, "key": null, "value_base64": "/w==", "headers": [["tidemill-error", "not JSON"]]}]},
                {"outcome": null, "emitted": []},
            ],
            "changes": [{"slot": "map", "partition": 1, "key": "UA", "entry": "e", "before": null, "after": 7}]});
        let told = words(&answer);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines,
            [
                "event 1: effective",
                "  out 1 UA {\"n\":1}",
                "event 2: dead-lettered",
                "  f.dead-letters 0 - base64 /w== (not JSON)",
                "event 3: not handled",
                "version 2 on present state: 1 values of state would change; nothing was written",
                "  map UA/e: - -> 7",
                "the function would stop: enough",
            ]
        );
    }
}
