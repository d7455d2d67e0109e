//! What is kept of a topic: how long and how much, and taking events away at once.

use super::columns::Columns;
use super::topics;
use crate::args::Show;
use crate::client::Client;
use crate::failure::Result;
use crate::print::{self, Table, cell};
use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value, json};

/// How long and how much is kept. `none` takes a bound away.
#[derive(Args, Debug, Default)]
pub(super) struct Keep {
    /// How long events are kept.
    #[arg(long, value_name = "DURATION")]
    retention_age: Option<String>,
    /// How many bytes of a partition are kept at least.
    #[arg(long, value_name = "SIZE")]
    retention_bytes: Option<String>,
    /// How much longer events stay that a function has not read yet.
    #[arg(long, value_name = "DURATION")]
    hold_for: Option<String>,
    /// How long compaction keeps tombstones.
    #[arg(long, value_name = "DURATION")]
    tombstone_age: Option<String>,
}

impl Keep {
    /// As the host takes it; nothing if nothing was said.
    pub(super) fn retention(&self) -> Option<Value> {
        let given = [
            ("age", &self.retention_age),
            ("bytes", &self.retention_bytes),
            ("hold_for", &self.hold_for),
            ("tombstone_age", &self.tombstone_age),
        ];
        let retention: Map<String, Value> = given
            .into_iter()
            .filter_map(|(name, value)| {
                let value = value.as_deref()?;
                let bound = (value != "none").then_some(value);
                Some((name.into(), bound.into()))
            })
            .collect();
        (!retention.is_empty()).then_some(retention.into())
    }
}

/// Change how long and how much of a topic is kept, or add columns.
///
/// What is not said stays as it is. A schema may only gain properties that may be absent.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  tidemill topic alter flights --retention-age 30d --retention-bytes none"
)]
pub(crate) struct Alter {
    /// Name of the topic.
    name: String,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    show: Show,
}

/// Take away a partition's events below an offset.
///
/// They can't be brought back. A function that had not read them goes on behind them and counts what
/// it missed.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill topic truncate flights --partition 0 --before 123")]
pub(crate) struct Truncate {
    /// Name of the topic.
    name: String,
    /// Number of the partition.
    #[arg(long, value_name = "N")]
    partition: u32,
    /// Offset of the first event that stays.
    #[arg(long, value_name = "OFFSET")]
    before: u64,
    #[command(flatten)]
    show: Show,
}

/// What a topic keeps, in a few words.
pub(super) fn kept(retention: &Value) -> String {
    let bounds = [&retention["age"], &retention["bytes"]];
    let bounds: Vec<&str> = bounds.into_iter().filter_map(Value::as_str).collect();
    match bounds.is_empty() {
        true => "all".to_owned(),
        false => bounds.join(" or "),
    }
}

pub(super) async fn alter(client: &Client, args: &Alter) -> Result<()> {
    let retention = args.keep.retention().unwrap_or_else(|| json!({}));
    let mut change = json!({ "retention": retention });
    if let Some(schema) = args.columns.schema()? {
        change["schema"] = schema;
    }
    let request = client
        .request(Method::PATCH, &["v1", "topics", &args.name], &[])
        .json(&change);
    let answer = client.json(request).await?;
    print::answer(args.show.output, &answer, None, |answer| {
        topics(std::slice::from_ref(answer))
    })
}

pub(super) async fn truncate(client: &Client, args: &Truncate) -> Result<()> {
    let (partition, before) = (args.partition.to_string(), args.before.to_string());
    let query = [
        ("partition", partition.as_str()),
        ("before", before.as_str()),
    ];
    let path = ["v1", "topics", &args.name, "events"];
    let answer = client
        .json(client.request(Method::DELETE, &path, &query))
        .await?;
    print::answer(args.show.output, &answer, None, |answer| {
        let fields = ["partition", "start", "end"];
        let mut table = Table::new(&fields);
        table.row(fields.map(|field| cell(&answer[field])).into());
        table
    })
}
