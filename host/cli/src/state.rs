//! `tidemill state`: what functions remember.

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print::{self, Table, cell};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Look into the state of functions.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:\n  tidemill state get carrier-delays total UA")]
pub(crate) enum State {
    Get(Get),
    List(List),
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
    /// Only keys that begin so.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Most keys to list.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    show: Show,
}

pub(crate) async fn perform(host: &str, command: State) -> Result<()> {
    let client = Client::new(host)?;
    match command {
        State::Get(args) => get(&client, &args).await,
        State::List(args) => {
            let answer = list(
                &client,
                &args.function,
                &args.slot,
                args.prefix.as_deref(),
                args.limit,
            )
            .await?;
            print::answer(args.show.output, &answer, Some("entries"), table)?;
            if !answer["next"].is_null() {
                print::note("there are more: raise --limit");
            }
            Ok(())
        }
    }
}

/// The value alone is printed byte for byte as it is stored.
async fn get(client: &Client, args: &Get) -> Result<()> {
    let query = [("slot", args.slot.as_str()), ("key", args.key.as_str())];
    let path = ["v1", "functions", args.function.as_str(), "state"];
    let answer = client
        .send(client.request(Method::GET, &path, &query))
        .await?;
    let body = client.body(answer).await?;
    let strange = |error| {
        Failure::failed(
            "strange-answer",
            format!("the host answers no entry: {error}"),
        )
    };
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
    slot: &str,
    prefix: Option<&str>,
    limit: u64,
) -> Result<Value> {
    let limit = limit.to_string();
    let query: Vec<(&str, &str)> = [
        ("slot", Some(slot)),
        ("prefix", prefix),
        ("limit", Some(&limit)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
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
    let mut table = Table::new(&["partition", "key", "value"]);
    for entry in entries(answer) {
        let key = entry
            .get("key")
            .or_else(|| entry.get("key_base64"))
            .unwrap_or(&Value::Null);
        table.row(vec![cell(&entry["partition"]), cell(key), value(entry)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
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
