//! `tidemill topic`: the topics of a host.

mod columns;
mod keep;
mod stats;

use crate::args::Show;
use crate::client::Client;
use crate::failure::Result;
use crate::print::{self, Table, cell};
use clap::{Args, Subcommand};
use columns::Columns;
use keep::Keep;
use reqwest::Method;
use serde_json::{Map, Value, json};

/// Create, list, describe, measure, change, truncate and delete topics.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:\n  tidemill topic create flights --partitions 4 --key /carrier")]
pub(crate) enum Topic {
    Create(Box<Create>),
    List(List),
    Describe(Describe),
    Stats(stats::Stats),
    Alter(keep::Alter),
    Truncate(keep::Truncate),
    Delete(Delete),
}

/// Create a topic.
///
/// What is not said has the host's default. Creating it again with the same settings changes nothing.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  tidemill topic create flights --partitions 4 --key /carrier --time-pointer /time_hour --time-unit rfc3339"
)]
pub(crate) struct Create {
    /// Name of the topic.
    name: String,
    /// Number of partitions.
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// What values are: `json` (checked when they come in) or `bytes`.
    #[arg(long, value_parser = ["json", "bytes"])]
    format: Option<String>,
    /// JSON pointer to the key in each value.
    #[arg(long, value_name = "POINTER")]
    key: Option<String>,
    /// JSON pointer to the event time in each value.
    #[arg(long, value_name = "POINTER", conflicts_with = "time_header")]
    time_pointer: Option<String>,
    /// Header that has the event time.
    #[arg(long, value_name = "NAME")]
    time_header: Option<String>,
    /// How the event time is written.
    #[arg(long, value_parser = ["rfc3339", "s", "ms", "us", "ns"])]
    time_unit: Option<String>,
    #[command(flatten)]
    keep: Keep,
    /// What makes room: `delete` takes old events, `compact` keeps the latest of each key.
    #[arg(long, value_parser = ["delete", "compact", "compact+delete"])]
    cleanup: Option<String>,
    /// When an event counts as written.
    #[arg(long, value_parser = ["fsync", "object", "memory"])]
    ack: Option<String>,
    #[command(flatten)]
    columns: Columns,
    /// Give segments a bloom filter on keys, for readers who look for one.
    #[arg(long)]
    bloom: bool,
    #[command(flatten)]
    show: Show,
}

/// List the topics.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill topic list -o ndjson")]
pub(crate) struct List {
    #[command(flatten)]
    show: Show,
}

/// Show a topic's settings and the offsets of its partitions.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill topic describe flights")]
pub(crate) struct Describe {
    /// Name of the topic.
    name: String,
    #[command(flatten)]
    show: Show,
}

/// Delete a topic and all its events.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill topic delete flights")]
pub(crate) struct Delete {
    /// Name of the topic.
    name: String,
    /// Also if functions read it.
    #[arg(long)]
    force: bool,
}

pub(crate) async fn perform(host: &str, command: Topic) -> Result<()> {
    let client = Client::new(host)?;
    match command {
        Topic::Create(args) => {
            let request = client
                .request(Method::PUT, &["v1", "topics", &args.name], &[])
                .json(&settings(&args)?);
            let answer = client.json(request).await?;
            print::answer(args.show.output, &answer, None, |answer| {
                topics(std::slice::from_ref(answer))
            })
        }
        Topic::List(args) => {
            let answer = client.get(&["v1", "topics"], &[]).await?;
            print::answer(args.show.output, &answer, Some("topics"), |answer| {
                topics(answer["topics"].as_array().map_or(&[], Vec::as_slice))
            })
        }
        Topic::Describe(args) => describe(&client, &args).await,
        Topic::Stats(args) => stats::perform(&client, &args).await,
        Topic::Alter(args) => keep::alter(&client, &args).await,
        Topic::Truncate(args) => keep::truncate(&client, &args).await,
        Topic::Delete(args) => {
            let query: &[(&str, &str)] = if args.force {
                &[("force", "true")]
            } else {
                &[]
            };
            let request = client.request(Method::DELETE, &["v1", "topics", &args.name], query);
            client.send(request).await?;
            print::note(&format!("topic {} deleted", args.name));
            Ok(())
        }
    }
}

async fn describe(client: &Client, args: &Describe) -> Result<()> {
    let answer = client.get(&["v1", "topics", &args.name], &[]).await?;
    if args.show.output == crate::args::Shape::Table {
        print::answer(args.show.output, &answer, None, |answer| {
            topics(std::slice::from_ref(answer))
        })?;
        print::line("")?;
    }
    print::answer(args.show.output, &answer, Some("ranges"), |answer| {
        let mut table = Table::new(&["partition", "start", "end", "archived end", "bytes"]);
        for range in answer["ranges"].as_array().into_iter().flatten() {
            table.row(
                ["partition", "start", "end", "archived_end", "bytes"]
                    .map(|field| cell(&range[field]))
                    .into(),
            );
        }
        table
    })
}

/// The settings that were given, as the host takes them.
fn settings(args: &Create) -> Result<Value> {
    let mut settings = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(name.into(), value);
        }
    };
    set("partitions", args.partitions.map(Value::from));
    set("format", args.format.clone().map(Value::from));
    set("key", args.key.clone().map(Value::from));
    set("cleanup", args.cleanup.clone().map(Value::from));
    set("ack", args.ack.clone().map(Value::from));
    set("time", time(args));
    set("retention", args.keep.retention());
    set("schema", args.columns.schema()?);
    set("bloom", args.bloom.then_some(Value::Bool(true)));
    Ok(settings.into())
}

fn time(args: &Create) -> Option<Value> {
    let mut time = match (&args.time_pointer, &args.time_header) {
        (Some(pointer), _) => json!({"from": "value", "pointer": pointer}),
        (None, Some(name)) => json!({"from": "header", "name": name}),
        (None, None) => return None,
    };
    if let Some(unit) = &args.time_unit {
        time["unit"] = unit.clone().into();
    }
    Some(time)
}

fn topics(topics: &[Value]) -> Table {
    let mut table = Table::new(&[
        "name",
        "partitions",
        "format",
        "key",
        "time",
        "cleanup",
        "kept",
        "ack",
    ]);
    for topic in topics {
        let time = &topic["time"];
        let place = [&time["pointer"], &time["name"]]
            .into_iter()
            .find_map(Value::as_str);
        let time = [
            time["from"].as_str(),
            place,
            time["unit"].as_str().filter(|_| place.is_some()),
        ];
        table.row(vec![
            cell(&topic["name"]),
            cell(&topic["partitions"]),
            cell(&topic["format"]),
            cell(&topic["key"]),
            cell(
                &time
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .into(),
            ),
            cell(&topic["cleanup"]),
            keep::kept(&topic["retention"]),
            cell(&topic["ack"]),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn body(line: &str) -> Value {
        match Cli::parse_from(line.split(' ')).command {
            Command::Topic(Topic::Create(args)) => settings(&args).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_was_said_is_sent() {
        assert_eq!(body("tidemill topic create t"), json!({}));
        assert_eq!(
            body(
                "tidemill topic create t --partitions 4 --key /k --time-pointer /t --time-unit ms --retention-age 7d --tombstone-age none --cleanup compact+delete --ack fsync"
            ),
            json!({"partitions": 4, "key": "/k", "ack": "fsync", "cleanup": "compact+delete",
                   "retention": {"age": "7d", "tombstone_age": null},
                   "time": {"from": "value", "pointer": "/t", "unit": "ms"}})
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("schema.json");
        std::fs::write(&file, r#"{"type": "object"}"#).unwrap();
        let line = format!(
            "tidemill topic create t --bloom --on-mismatch null --schema {}",
            file.display()
        );
        assert_eq!(
            body(&line),
            json!({"bloom": true, "schema": {"json": {"type": "object"}, "on_mismatch": "null"}})
        );
        assert_eq!(
            body("tidemill topic create t --time-header when")["time"],
            json!({"from": "header", "name": "when"})
        );
    }
}
