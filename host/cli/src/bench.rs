//! `tidemill bench`: what a host does on this machine, measured from outside in another process, with
//! the disk measured by itself in the same run, and with other systems beside it if wanted.

mod archive;
mod columns;
mod connection;
mod counts;
mod deploys;
mod disk;
mod events;
mod functions;
mod host;
mod ingest;
mod keyed;
mod latency;
mod load;
mod many;
mod peers;
mod plan;
mod process;
mod ratios;
mod reader;
mod restarts;
mod snapshots;
mod sparse;
mod starts;
mod states;
mod summary;
mod tail;

use crate::args::{Shape, Show};
use crate::failure::{Failure, Result};
use crate::print;
use clap::{Args, ValueEnum};
use events::Form;
use plan::Plan;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Measure a host on this machine.
///
/// Durable ingest, single events, readers at the tail and of the history, sealing, starts, the way from
/// ingest to output, functions, many of them, their deployment, replay and state; and beside them the disk by itself. Starts a host of its own in another
/// process, on a fresh directory and on loopback. Use a release build, and nothing else on the machine.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill bench\n  tidemill bench ingest single --seconds 10 -o json\n  tidemill bench ingest --form packed --batch 500 --size 200,1024 --connections 8\n  tidemill bench disk ingest single --full --peers\n  tidemill bench functions --peers\n  tidemill bench state --state 10GiB --limit 512MiB"
)]
pub(crate) struct Bench {
    /// What to measure; everything if not said.
    #[arg(value_enum, value_name = "WHAT")]
    what: Vec<What>,
    /// How long each measurement may take.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Events of a request, in `ingest`.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    batch: u32,
    /// Bytes of an event's value, one measurement each [default: 200, in `catch-up` 200 and 1024].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(100..=500_000))]
    size: Vec<u32>,
    /// Connections, one measurement each, in `ingest` and `single` [default: 1,8,64].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: Vec<u16>,
    /// How events are sent in `ingest`, one measurement each [default: ndjson,packed].
    #[arg(long, value_enum, value_name = "FORM,…", value_delimiter = ',')]
    form: Vec<Form>,
    /// How many functions, in `many`.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=9000))]
    functions: u32,
    /// How much state there is, in `state`, as in `10GiB` [default: 1GiB, with --full 10GiB]. The disk has to
    /// have room for about four times as much.
    #[arg(long, value_name = "SIZE", value_parser = states::size)]
    state: Option<u64>,
    /// What the host's memory is limited to, in `state`.
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = states::size)]
    limit: u64,
    /// How many keys of state there are, in `restart`.
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1000..=200_000_000))]
    keys: u64,
    /// Sizes of 100, 200, 1024 and 10240 bytes where `--size` doesn't say otherwise, and as much state as is
    /// promised to work.
    #[arg(long)]
    full: bool,
    /// Send Kafka and NATS the same loads as `ingest` and `single`, have Kafka Streams and Flink count beside
    /// `functions`, and say how they compare. Fetches and builds them with tests/peers, for which Java, Maven and Go are needed.
    #[arg(long)]
    peers: bool,
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
    /// One event a request, and requests that do nothing.
    Single,
    /// Ten readers at the end of a topic.
    Tail,
    /// Reading the history from segments.
    CatchUp,
    /// Ingest with sealing beside it and without; sealing by itself.
    Sealing,
    /// Very many partitions: start, memory, ingest over all of them.
    Partitions,
    /// The first acknowledgement after SIGKILL with a journal of 1 GiB, and a function's first step with millions
    /// of keys, with the disk kept and from object storage alone.
    Restart,
    /// From posting an event to reading what a function made of it.
    Latency,
    /// A filter, counts per key and the demo's functions over events that lie ready.
    Functions,
    /// Very many functions with little to do: start, memory, metrics, latency beside a busy one.
    Many,
    /// From a deployment to the first output, instances, replay, and what snapshots cost.
    Deploy,
    /// A count over far more state than memory, with another function beside it.
    State,
}

impl What {
    /// As it is called on the command line and in results.
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
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
    let plan = Plan::of(args);
    // Before anything is measured: building takes the machine's time, and may fail.
    let loads = plan.beside_peers();
    let functions = plan.what.contains(&What::Functions);
    let peers = args
        .peers
        .then(|| peers::prepare(!loads.is_empty(), functions))
        .transpose()?;
    let mut answer = Map::new();
    answer.insert(
        "machine".into(),
        json!({"cores": std::thread::available_parallelism().map_or(0, usize::from),
        "release": !cfg!(debug_assertions), "seconds": args.seconds}),
    );
    for what in &plan.what {
        print::note(&format!("measuring {}", what.name()));
        answer.insert(what.name(), measure(*what, &plan, dir.path()).await?);
    }
    if let Some(scripts) = peers {
        if !loads.is_empty() {
            let measured = peers::measure(&scripts, dir.path(), plan.time, &loads).await?;
            answer.insert("peers".into(), measured);
        }
        if functions {
            let measured = counts::measure(&scripts, dir.path(), plan.time, plan.sizes[0]).await?;
            answer.insert("peer-functions".into(), measured);
        }
    }
    ratios::add(&mut answer);
    match args.show.output {
        Shape::Table => summary::print(&answer),
        Shape::Json => {
            print::line(&serde_json::to_string_pretty(&answer).map_err(std::io::Error::from)?)
        }
        Shape::Ndjson => print::line(&Value::from(answer).to_string()),
    }
}

/// Each measurement has a host of its own, so that none leaves the next one anything.
async fn measure(what: What, plan: &Plan, dir: &Path) -> Result<Value> {
    let (time, size) = (plan.time, plan.sizes[0]);
    let dir = dir.join(what.name());
    std::fs::create_dir(&dir)?;
    let measured = match what {
        What::Disk => disk::measure(&dir, time),
        What::Ingest => ingest::measure(&dir, time, &plan.batches()).await,
        What::Single => ingest::single(&dir, time, &plan.singles()).await,
        What::Tail => tail::measure(&dir, time, size).await,
        What::CatchUp => archive::catch_up(&dir, time, &plan.history_sizes).await,
        What::Sealing => archive::sealing(&dir, time, size).await,
        What::Partitions => starts::partitions(&dir, time).await,
        What::Restart => starts::restart(&dir, plan.keys).await,
        What::Latency => latency::measure(&dir, time).await,
        What::Functions => functions::measure(&dir, time, size).await,
        What::Deploy => deploys::measure(&dir, time).await,
        What::State => states::measure(&dir, time, plan.state).await,
        What::Many => many::measure(&dir, time, plan.functions).await,
    };
    std::fs::remove_dir_all(&dir)?;
    measured
}
