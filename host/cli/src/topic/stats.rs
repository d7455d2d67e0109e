//! Figures about a topic.

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::Result;
use crate::print::{self, Table, bytes, cell};
use clap::Args;
use serde_json::Value;

/// Show how much a topic holds and where, what comes in, how well it is compressed.
///
/// Hot is what only the journal has, cold what lies in segments. Rates are of the last minute or so.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill topic stats flights")]
pub(crate) struct Stats {
    /// Name of the topic.
    name: String,
    #[command(flatten)]
    show: Show,
}

pub(super) async fn perform(client: &Client, args: &Stats) -> Result<()> {
    let answer = client
        .get(&["v1", "topics", &args.name, "stats"], &[])
        .await?;
    if args.show.output == Shape::Table {
        print::answer(Shape::Table, &answer, None, whole)?;
        print::line("")?;
    }
    print::answer(args.show.output, &answer, Some("partitions"), partitions)
}

fn whole(answer: &Value) -> Table {
    let mut table = Table::new(&[
        "topic",
        "offsets",
        "hot",
        "cold",
        "segments",
        "compression",
        "events/s",
        "bytes/s",
    ]);
    table.row(vec![
        cell(&answer["topic"]),
        cell(&answer["offsets"]),
        size(&answer["hot"]["journal_bytes"]),
        size(&answer["cold"]["bytes"]),
        cell(&answer["cold"]["segments"]),
        cell(&answer["compression"]["ratio"]),
        cell(&answer["rates"]["events_per_second"]),
        cell(&answer["rates"]["bytes_per_second"]),
    ]);
    table
}

fn partitions(answer: &Value) -> Table {
    let mut table = Table::new(&[
        "partition",
        "start",
        "archived end",
        "end",
        "hot",
        "cold",
        "segments",
        "events/s",
        "earliest",
        "latest",
    ]);
    for partition in answer["partitions"].as_array().into_iter().flatten() {
        table.row(vec![
            cell(&partition["partition"]),
            cell(&partition["start"]),
            cell(&partition["archived_end"]),
            cell(&partition["end"]),
            size(&partition["hot"]["journal_bytes"]),
            size(&partition["cold"]["bytes"]),
            cell(&partition["cold"]["segments"]),
            cell(&partition["rates"]["events_per_second"]),
            cell(&partition["earliest"]["ingest_time"]),
            cell(&partition["latest"]["ingest_time"]),
        ]);
    }
    table
}

fn size(value: &Value) -> String {
    value.as_u64().map_or_else(|| cell(value), bytes)
}
