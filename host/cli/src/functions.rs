//! `tidemill functions`: what runs in a host and how it is doing.

mod invoke;
mod shadow;
mod versions;

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print::{self, Table, cell, count};
use clap::{Args, Subcommand};
use futures::StreamExt;
use reqwest::Method;
use serde_json::Value;
use std::io::Write;

/// List, describe, ask, pause, resume, roll back and delete functions, and read their logs.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:\n  tidemill functions list")]
pub(crate) enum Functions {
    List(List),
    Describe(Describe),
    Logs(Logs),
    Pause(Pause),
    Resume(Resume),
    Invoke(invoke::Invoke),
    Shadow(shadow::Shadow),
    Versions(versions::Versions),
    Rollback(versions::Rollback),
    Delete(Delete),
}

/// List the functions.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions list -o json")]
pub(crate) struct List {
    #[command(flatten)]
    show: Show,
}

/// Show a function: version, status and why, position and lag of every task, counts.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions describe carrier-delays")]
pub(crate) struct Describe {
    /// Name of the function.
    name: String,
    #[command(flatten)]
    show: Show,
}

/// Print what a function logged.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  tidemill functions logs carrier-delays -f --level warn --since 1h"
)]
pub(crate) struct Logs {
    /// Name of the function.
    name: String,
    /// Go on with lines as they come.
    #[arg(long, short)]
    follow: bool,
    /// Only the last lines; 1,000 by default.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Only lines of this level or a more severe one: trace, debug, info, warn, error.
    #[arg(long)]
    level: Option<String>,
    /// Only lines of this version.
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// Only lines about events of this topic, of a function that reads several.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only lines about events of this partition.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Only lines about events with this key.
    #[arg(long)]
    key: Option<String>,
    /// Only lines from this time on: RFC 3339, or how long ago.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    #[command(flatten)]
    show: Show,
}

/// Pause a function between two transactions.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions pause carrier-delays")]
pub(crate) struct Pause {
    /// Name of the function.
    name: String,
}

/// Let a paused or stopped function go on where it was.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions resume carrier-delays")]
pub(crate) struct Resume {
    /// Name of the function.
    name: String,
}

/// Delete a function, and its state unless it is to be kept.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions delete carrier-delays --state keep")]
pub(crate) struct Delete {
    /// Name of the function.
    name: String,
    /// What becomes of its state; the host's default if not said.
    #[arg(long, value_parser = ["keep", "drop"])]
    state: Option<String>,
}

pub(crate) async fn perform(host: &str, command: Functions) -> Result<()> {
    let client = Client::new(host)?;
    match command {
        Functions::List(args) => {
            let answer = client.get(&["v1", "functions"], &[]).await?;
            print::answer(args.show.output, &answer, Some("functions"), |answer| {
                table(answer["functions"].as_array().map_or(&[], Vec::as_slice))
            })
        }
        Functions::Describe(args) => describe(&client, &args).await,
        Functions::Logs(args) => logs(&client, &args).await,
        Functions::Pause(args) => act(&client, &args.name, "pause").await,
        Functions::Resume(args) => act(&client, &args.name, "resume").await,
        Functions::Invoke(args) => invoke::invoke(&client, &args).await,
        Functions::Shadow(args) => shadow::perform(&client, &args).await,
        Functions::Versions(args) => versions::list(&client, &args).await,
        Functions::Rollback(args) => versions::rollback(&client, &args).await,
        Functions::Delete(args) => {
            let query: Vec<(&str, &str)> = args
                .state
                .iter()
                .map(|state| ("state", state.as_str()))
                .collect();
            client
                .send(client.request(Method::DELETE, &["v1", "functions", &args.name], &query))
                .await?;
            print::note(&format!("function {} deleted", args.name));
            Ok(())
        }
    }
}

async fn act(client: &Client, name: &str, verb: &str) -> Result<()> {
    client
        .send(client.request(Method::POST, &["v1", "functions", name, verb], &[]))
        .await?;
    print::note(&format!("function {name}: {verb} done"));
    Ok(())
}

fn table(functions: &[Value]) -> Table {
    let mut table = Table::new(&[
        "name",
        "version",
        "status",
        "in",
        "emitted",
        "filtered",
        "skipped",
        "dead letters",
        "lag",
    ]);
    for function in functions {
        let counts = &function["counts"];
        let number = |name: &str| counts[name].as_u64().map_or_else(|| "-".into(), count);
        table.row(vec![
            cell(&function["name"]),
            cell(&function["version"]),
            cell(&function["status"]),
            number("in"),
            number("emitted"),
            number("filtered"),
            number("skipped"),
            number("dead_lettered"),
            count(lag(function)),
        ]);
    }
    table
}

/// Events that a function has not read yet, over all its tasks.
pub(crate) fn lag(function: &Value) -> u64 {
    function["tasks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|task| task["lag"].as_u64())
        .sum()
}

async fn describe(client: &Client, args: &Describe) -> Result<()> {
    let answer = client.get(&["v1", "functions", &args.name], &[]).await?;
    described(args.show.output, &answer)
}

/// Prints a function with its tasks.
fn described(shape: Shape, answer: &Value) -> Result<()> {
    if shape == Shape::Table {
        print::answer(shape, answer, None, |answer| {
            table(std::slice::from_ref(answer))
        })?;
        print::line("")?;
        if let Some(beside) = beside(answer) {
            print::line(&format!("{beside}\n"))?;
        }
        if let Some(reason) = answer["status_reason"].as_str() {
            print::line(&format!("{}: {reason}\n", cell(&answer["status"])))?;
        }
    }
    print::answer(shape, answer, None, |answer| {
        let fields = [
            "topic",
            "partition",
            "status",
            "position",
            "end",
            "lag",
            "lag_seconds",
            "cut_off",
            "watermark",
            "timers",
            "status_reason",
        ];
        let mut table = Table::new(&[
            "topic",
            "partition",
            "status",
            "position",
            "end",
            "lag",
            "lag seconds",
            "cut off",
            "watermark",
            "timers",
            "why",
        ]);
        for task in answer["tasks"].as_array().into_iter().flatten() {
            table.row(fields.map(|field| cell(&task[field])).into());
        }
        table
    })
}

/// What runs beside a function, or beside what it runs.
fn beside(function: &Value) -> Option<String> {
    if let Some(shadow) = function["shadow"].as_str() {
        return Some(format!("{shadow} runs beside it"));
    }
    let of = function["shadow_of"].as_object()?;
    let text = |name: &str| of.get(name).map(cell).unwrap_or_default();
    let state = match text("state").as_str() {
        "empty" => "without state",
        _ => "with a copy of its state",
    };
    Some(format!(
        "runs beside {}, since {}, begun {state}",
        text("function"),
        text("began")
    ))
}

/// Lines are passed on as they arrive.
async fn logs(client: &Client, args: &Logs) -> Result<()> {
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let given = [
        ("follow", args.follow.then(|| "true".to_owned())),
        ("limit", args.limit.map(|limit| limit.to_string())),
        ("level", args.level.clone()),
        ("version", number(args.version)),
        ("topic", args.topic.clone()),
        ("partition", number(args.partition)),
        ("key", args.key.clone()),
        ("since", args.since.clone()),
    ];
    let given = given.iter();
    let query: Vec<(&str, &str)> = given
        .filter_map(|(name, value)| Some((*name, value.as_deref()?)))
        .collect();
    let request = client
        .request(
            Method::GET,
            &["v1", "functions", &args.name, "logs"],
            &query,
        )
        .header("accept", "application/x-ndjson");
    let mut parts = client.send(request).await?.bytes_stream();
    let mut gathered = Vec::new();
    while let Some(part) = parts.next().await {
        gathered.extend_from_slice(&part.map_err(|error| {
            Failure::failed("connection-lost", format!("the host stopped: {error}"))
        })?);
        if args.follow {
            let whole = gathered
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            log_lines(&gathered[..whole], args.show.output)?;
            gathered.drain(..whole);
        }
    }
    log_lines(&gathered, args.show.output)
}

/// Prints log lines, which come one a line.
fn log_lines(text: &[u8], shape: Shape) -> Result<()> {
    let mut out = print::stdout();
    for line in serde_json::Deserializer::from_slice(text).into_iter::<Value>() {
        let line = line.map_err(|error| {
            Failure::failed("strange-answer", format!("a log line is wrong: {error}"))
        })?;
        if shape == Shape::Table {
            writeln!(out, "{}", log_line(&line))?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out.flush()?)
}

/// A line for people.
fn log_line(line: &Value) -> String {
    let field = |name: &str| cell(&line[name]);
    let key = ["key", "key_base64"].map(|name| line[name].as_str());
    let key = key.iter().flatten().next();
    let topic = line["topic"].as_str();
    format!(
        "{} {:5} v{} {}{}/{} {}{}",
        field("time"),
        field("level"),
        field("version"),
        topic.map_or_else(String::new, |topic| format!("{topic} ")),
        field("partition"),
        field("offset"),
        key.map_or_else(String::new, |key| format!("[{key}] ")),
        field("message")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lag_is_counted_over_all_tasks() {
        assert_eq!(lag(&json!({"tasks": [{"lag": 3}, {"lag": 4}]})), 7);
        assert_eq!(lag(&json!({})), 0);
    }

    #[test]
    fn log_lines_say_where_they_come_from() {
        let line = json!({"time": "2026-01-01T00:00:00Z", "level": "warn", "version": 1, "partition": 2, "offset": 7, "message": "odd"});
        assert_eq!(log_line(&line), "2026-01-01T00:00:00Z warn  v1 2/7 odd");
        let mut keyed = line;
        keyed["key"] = "UA".into();
        assert_eq!(
            log_line(&keyed),
            "2026-01-01T00:00:00Z warn  v1 2/7 [UA] odd"
        );
        keyed["topic"] = "payments".into();
        assert_eq!(
            log_line(&keyed),
            "2026-01-01T00:00:00Z warn  v1 payments 2/7 [UA] odd"
        );
    }

    #[test]
    fn functions_stand_in_rows() {
        let mut out = Vec::new();
        table(&[json!({"name": "f", "version": 1, "status": "running", "counts": {"in": 1200, "emitted": 3}, "tasks": [{"lag": 5}]})])
            .write(&mut out)
            .expect("writes");
        let text = String::from_utf8(out).expect("text");
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("row")
            .split_whitespace()
            .collect();
        assert_eq!(row, ["f", "1", "running", "1,200", "3", "-", "-", "-", "5"]);
        assert_eq!(beside(&json!({"shadow": null, "shadow_of": null})), None);
        let with = json!({"shadow": "f.shadow"});
        assert_eq!(beside(&with).as_deref(), Some("f.shadow runs beside it"));
        let of = json!({"shadow_of": {"function": "f", "state": "copy", "began": "then"}});
        assert_eq!(
            beside(&of).as_deref(),
            Some("runs beside f, since then, begun with a copy of its state")
        );
    }
}
