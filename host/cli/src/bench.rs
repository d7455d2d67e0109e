//! `tidemill bench`: what a host does on this machine, measured from outside in another process, with
//! the disk measured by itself in the same run.

mod connection;
mod disk;
mod functions;
mod host;
mod ingest;
mod latency;
mod load;
mod summary;

use crate::args::{Shape, Show};
use crate::failure::{Failure, Result};
use crate::print;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measure a host on this machine.
///
/// Durable ingest, single events, the way from ingest to output, functions; and beside them the disk by
/// itself. Starts a host of its own in another process, on a fresh directory and on loopback. Use a
/// release build, and nothing else on the machine.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill bench\n  tidemill bench ingest single --seconds 10 -o json\n  tidemill bench ingest --batch 500 --size 1024 --connections 8"
)]
pub(crate) struct Bench {
    /// What to measure; everything if not said.
    #[arg(value_enum, value_name = "WHAT")]
    what: Vec<What>,
    /// How long each measurement may take.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Events of a request, in `ingest`.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Bytes of an event's value.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(100..=500_000))]
    size: u32,
    /// Connections, one measurement each, in `ingest`.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 64])]
    connections: Vec<u16>,
    /// Directory on the disk to measure; a fresh one is made in it.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
}

/// A measurement.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// The disk by itself: write and fdatasync in a loop.
    Disk,
    /// Batches of events over several connections.
    Ingest,
    /// One event a request over 64 connections.
    Single,
    /// From posting an event to reading what a function made of it.
    Latency,
    /// A filter, a count per key and the demo's functions over events that lie ready.
    Functions,
}

pub(crate) async fn perform(args: &Bench) -> Result<()> {
    if cfg!(debug_assertions) {
        print::note(
            "this is a development build: figures of a release build are several times better",
        );
    }
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new()
        .prefix("tidemill-bench-")
        .tempdir_in(&parent)
        .map_err(|error| {
            Failure::failed(
                "io",
                format!("cannot make a directory in {}: {error}", parent.display()),
            )
        })?;
    let everything = [
        What::Disk,
        What::Ingest,
        What::Single,
        What::Latency,
        What::Functions,
    ];
    let wanted: &[What] = if args.what.is_empty() {
        &everything
    } else {
        &args.what
    };
    let mut answer = Map::new();
    answer.insert(
        "machine".into(),
        json!({"cores": std::thread::available_parallelism().map_or(0, usize::from),
        "release": !cfg!(debug_assertions), "seconds": args.seconds}),
    );
    for what in wanted {
        print::note(&format!("measuring {what:?}"));
        answer.insert(
            format!("{what:?}").to_lowercase(),
            measure(*what, args, dir.path()).await?,
        );
    }
    match args.show.output {
        Shape::Table => summary::print(&answer),
        Shape::Json => {
            print::line(&serde_json::to_string_pretty(&answer).map_err(std::io::Error::from)?)
        }
        Shape::Ndjson => print::line(&Value::from(answer).to_string()),
    }
}

/// Each measurement has a host of its own, so that none leaves the next one anything.
async fn measure(what: What, args: &Bench, dir: &Path) -> Result<Value> {
    let time = Duration::from_secs(args.seconds);
    let dir = dir.join(format!("{what:?}"));
    std::fs::create_dir(&dir)?;
    let measured = match what {
        What::Disk => disk::measure(&dir, time),
        What::Ingest => ingest::batches(&dir, time, args.batch, args.size, &args.connections).await,
        What::Single => ingest::single(&dir, time, args.size).await,
        What::Latency => latency::measure(&dir, time).await,
        What::Functions => functions::measure(&dir, time, args.size).await,
    };
    std::fs::remove_dir_all(&dir)?;
    measured
}
