//! `tidemill state`: what functions remember.

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print::{self, Table, cell};
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::Write;

/// Look into the state of functions.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:\n  tidemill state get carrier-delays total UA")]
pub(crate) enum State {
    Get(Get),
    List(List),
    Export(Export),
}

/// Print what a function remembers of a key.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill state get carrier-delays total UA")]
pub(crate) struct Get {
    /// Name of the function.
    function: String,
    /// The slot, by its parameter's name.
    slot: String,
    /// The key.
    key: String,
    /// The entry, in a map.
    entry: Option<String>,
    #[command(flatten)]
    show: Show,
}

/// List what a function remembers, key by key.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill state list carrier-delays total --limit 20 -o ndjson")]
pub(crate) struct List {
    /// Name of the function.
    function: String,
    /// The slot, by its parameter's name.
    slot: String,
    /// Only the entries of this key, in a map.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Only keys that begin so; with --key, only entries that do.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Most keys to list.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    show: Show,
}

/// Write everything that a function remembers, one JSON document a line.
///
/// Slot by slot, partition by partition, in order of the keys; each value as it was when its turn came.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill state export carrier-delays -o ndjson > state.ndjson")]
pub(crate) struct Export {
    /// Name of the function.
    function: String,
    /// Only this slot.
    #[arg(long, value_name = "NAME")]
    slot: Option<String>,
    /// How to write it.
    #[arg(short, long, value_enum, default_value_t = Form::Ndjson, value_name = "SHAPE")]
    output: Form,
}

/// Shapes of an export.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// One JSON document a line.
    Ndjson,
}

/// Entries asked for at once.
const PAGE: &str = "1000";

pub(crate) async fn perform(host: &str, command: State) -> Result<()> {
    let client = Client::new(host)?;
    match command {
        State::Get(args) => get(&client, &args).await,
        State::List(args) => {
            let limit = args.limit.to_string();
            let query = [
                ("slot", Some(args.slot.as_str())),
                ("key", args.key.as_deref()),
                ("prefix", args.prefix.as_deref()),
                ("limit", Some(&limit)),
            ];
            let answer = list(&client, &args.function, &query).await?;
            print::answer(args.show.output, &answer, Some("entries"), table)?;
            if !answer["next"].is_null() {
                print::note("there are more: raise --limit");
            }
            Ok(())
        }
        State::Export(args) => export(&client, &args, &mut print::stdout()).await,
    }
}

async fn export(client: &Client, args: &Export, out: &mut impl Write) -> Result<()> {
    let path = ["v1", "functions", args.function.as_str()];
    let function = client.get(&path, &[]).await?;
    let known = function["state"].as_object().into_iter().flatten();
    let slots: Vec<&str> = match &args.slot {
        Some(slot) => vec![slot],
        None => known.map(|(slot, _)| slot.as_str()).collect(),
    };
    for slot in slots {
        let mut cursor: Option<String> = None;
        loop {
            let mut query = vec![("slot", slot), ("limit", PAGE)];
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let path = [&path[..], &["state"]].concat();
            let request = client.request(Method::GET, &path, &query);
            let body = client.body(client.send(request).await?).await?;
            let page: Page<'_> = serde_json::from_slice(&body).map_err(strange)?;
            for entry in page.entries {
                writeln!(out, "{}", entry.get())?;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(out.flush()?)
}

/// Some entries, each as the host writes it.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    entries: Vec<&'a RawValue>,
    next: Option<String>,
}

fn strange(error: serde_json::Error) -> Failure {
    Failure::failed(
        "strange-answer",
        format!("the host answers no entry: {error}"),
    )
}

/// The value alone is printed byte for byte as it is stored.
async fn get(client: &Client, args: &Get) -> Result<()> {
    let mut query = vec![("slot", args.slot.as_str()), ("key", args.key.as_str())];
    query.extend(args.entry.as_deref().map(|entry| ("entry", entry)));
    let path = ["v1", "functions", args.function.as_str(), "state"];
    let answer = client
        .send(client.request(Method::GET, &path, &query))
        .await?;
    let body = client.body(answer).await?;
    if args.show.output != Shape::Table {
        let entry: Value = serde_json::from_slice(&body).map_err(strange)?;
        return print::answer(args.show.output, &entry, None, table);
    }
    let entry: Entry<'_> = serde_json::from_slice(&body).map_err(strange)?;
    print::line(
        entry
            .value
            .map_or_else(|| entry.value_base64.unwrap_or("null"), RawValue::get),
    )
}

/// An entry as the host writes it.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    value_base64: Option<&'a str>,
}

/// Entries of a function's state, as the host gives them.
pub(crate) async fn list(
    client: &Client,
    function: &str,
    query: &[(&str, Option<&str>)],
) -> Result<Value> {
    let query: Vec<(&str, &str)> = query
        .iter()
        .filter_map(|(name, value)| Some((*name, (*value)?)))
        .collect();
    client
        .get(&["v1", "functions", function, "state"], &query)
        .await
}

/// The entries in a host's answer.
pub(crate) fn entries(answer: &Value) -> &[Value] {
    answer["entries"].as_array().map_or(&[], Vec::as_slice)
}

fn value(entry: &Value) -> String {
    match entry.get("value").or_else(|| entry.get("value_base64")) {
        Some(value) => value.to_string(),
        None => "null".into(),
    }
}

fn table(answer: &Value) -> Table {
    let part = |entry: &Value, name: &str| {
        let found = entry
            .get(name)
            .or_else(|| entry.get(format!("{name}_base64")));
        found.map(cell)
    };
    let is_map = entries(answer)
        .iter()
        .any(|entry| part(entry, "entry").is_some());
    let mut table = match is_map {
        true => Table::new(&["partition", "key", "entry", "value"]),
        false => Table::new(&["partition", "key", "value"]),
    };
    for entry in entries(answer) {
        let mut row = vec![
            cell(&entry["partition"]),
            part(entry, "key").unwrap_or_default(),
        ];
        if is_map {
            row.push(part(entry, "entry").unwrap_or_default());
        }
        row.push(value(entry));
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;
    use serde_json::json;

    #[test]
    fn entries_stand_in_rows() {
        let answer = json!({"entries": [{"partition": 1, "key": "UA", "value": {"flights": 3}}]});
        let mut out = Vec::new();
        table(&answer).write(&mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text.lines().nth(1).expect("row").trim(),
            "1  UA   {\"flights\":3}"
        );
    }

    #[test]
    fn entries_of_maps_have_a_column_more() {
        let answer =
            json!({"entries": [{"partition": 1, "key": "UA", "entry": "JFK", "value": 3}]});
        let mut out = Vec::new();
        table(&answer).write(&mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        let row = text.lines().nth(1).expect("row").split_whitespace();
        assert_eq!(row.collect::<Vec<_>>(), ["1", "UA", "JFK", "3"]);
    }

    #[tokio::test]
    async fn an_export_goes_through_all_pages_of_all_slots() {
        let json = |body: &str| stub::answer("200 OK", "content-type: application/json\r\n", body);
        let answers = vec![
            json(r#"{"name": "f", "state": {"a": "value", "b": "map"}}"#),
            json(r#"{"entries": [{"slot":"a","value":{"x": 1.50}}], "next": "0:VUE"}"#),
            json(r#"{"entries": [{"slot":"a","value":2}], "next": null}"#),
            json(r#"{"entries": [], "next": null}"#),
        ];
        let (address, requests) = stub::host(answers).await;
        let args = Export {
            function: "f".into(),
            slot: None,
            output: Form::Ndjson,
        };
        let mut out = Vec::new();
        let client = Client::new(&address).expect("client");
        export(&client, &args, &mut out).await.expect("exports");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text,
            "{\"slot\":\"a\",\"value\":{\"x\": 1.50}}\n{\"slot\":\"a\",\"value\":2}\n"
        );
        let requests = requests.await.expect("requests");
        assert!(
            requests[2].contains("slot=a&limit=1000&cursor=0%3AVUE"),
            "{}",
            requests[2]
        );
        assert!(
            requests[3].contains("slot=b&limit=1000 "),
            "{}",
            requests[3]
        );
    }

    #[test]
    fn a_value_keeps_its_bytes() {
        let entry: Entry<'_> = serde_json::from_str(
            r#"{"slot": "s", "partition": 0, "key": "k", "value": {"b": 1.50,  "a": 2}}"#,
        )
        .expect("entry");
        assert_eq!(
            entry.value.map(RawValue::get),
            Some(r#"{"b": 1.50,  "a": 2}"#)
        );
    }
}
