//! `tidemill produce`: events from a file or pipe into a topic.

mod input;
mod send;

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print;
use crate::progress::{self, Stopwatch};
use clap::Args;
use input::{Batches, Source};
use send::{Sender, Written};
use serde_json::json;
use std::path::PathBuf;

pub(crate) use input::Format;

/// Most events of a request.
const BATCH_EVENTS: u64 = 500;
/// Batches read ahead of the network.
const READ_AHEAD: usize = 4;

/// Write events to a topic, from a file or standard input.
///
/// Takes one JSON value a line, a JSON document (an array is taken apart), or CSV with a header (each
/// row becomes an object of texts); compressed by gzip or not. Requests go one after the other, so that
/// events keep their order; what was not acknowledged is sent again under the same number
/// (Producer-Id, Producer-Seq), so that the host writes it once.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill produce flights flights.csv.gz --key-pointer /carrier\n  tidemill produce clicks --rate 100 < clicks.ndjson"
)]
pub(crate) struct Produce {
    /// The topic.
    topic: String,
    /// The file; `-` is standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// What the file is; told by its name if not said, lines of JSON otherwise.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// JSON pointer to the key in each value, instead of the topic's.
    #[arg(long, value_name = "POINTER", conflicts_with = "key")]
    key_pointer: Option<String>,
    /// One key for all events.
    #[arg(long)]
    key: Option<String>,
    /// Most events a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Requests in flight at once. More than one is faster and lets events overtake each other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    in_flight: u16,
    #[command(flatten)]
    show: Show,
}

pub(crate) async fn perform(host: &str, args: &Produce) -> Result<()> {
    let order = Order {
        topic: args.topic.clone(),
        key: args.key.clone(),
        key_pointer: args.key_pointer.clone(),
        rate: args.rate,
        in_flight: args.in_flight.into(),
    };
    let watch = Stopwatch::start();
    let written = write(
        &Client::new(host)?,
        Source::new(&args.file, args.format)?,
        &order,
    )
    .await?;
    let seconds = watch.elapsed().as_secs_f64();
    match args.show.output {
        Shape::Table => print::line(&format!(
            "{} events written to {} in {seconds:.2} s ({} events/s)",
            print::count(written.events),
            args.topic,
            print::whole(watch.rate(written.events))
        )),
        Shape::Json | Shape::Ndjson => print::line(
            &json!({"topic": args.topic, "events": written.events, "bytes": written.bytes, "requests": written.requests,
                    "retries": written.retries, "seconds": seconds})
            .to_string(),
        ),
    }
}

/// How events are to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub(crate) topic: String,
    pub(crate) key: Option<String>,
    pub(crate) key_pointer: Option<String>,
    pub(crate) rate: Option<u64>,
    pub(crate) in_flight: usize,
}

/// Writes a file to a topic with a progress bar; for other commands too.
pub(crate) async fn file(client: &Client, file: &std::path::Path, order: &Order) -> Result<u64> {
    Ok(write(client, Source::new(file, None)?, order).await?.events)
}

/// Reads on a thread of its own, so that reading and parsing overlap with the network.
async fn write(client: &Client, source: Source, order: &Order) -> Result<Written> {
    let bar = progress::bar(source.length());
    let (give, take) = tokio::sync::mpsc::channel(READ_AHEAD);
    let most = order
        .rate
        .map_or(BATCH_EVENTS, |rate| (rate / 20).clamp(1, BATCH_EVENTS));
    let reader = tokio::task::spawn_blocking({
        let bar = bar.clone();
        move || source.read(&bar, &mut Batches::new(most, give))
    });
    let sent = Sender::new(client, order, bar.clone()).run(take).await;
    bar.finish_and_clear();
    // A failure to send also stops the reader, whose own failure then only says that nobody listens.
    let written = sent?;
    reader
        .await
        .map_err(|error| Failure::failed("reader", error.to_string()))??;
    Ok(written)
}
