//! Functions with little to do, each between topics of its own, and an event for one of them at a time.

use super::connection::{Connection, post};
use super::host::Host;
use super::latency::next;
use super::load::Times;
use super::reader::apart;
use super::{events, ingest};
use crate::build::Built;
use crate::client::Client;
use crate::deploy::Package;
use crate::failure::{Failure, Result};
use crate::progress::Stopwatch;
use futures::{TryStreamExt, stream};
use serde_json::{Value, json};
use std::time::Duration;

/// What the functions are made of, in turn: each says a count for every event.
pub(super) const COMPONENTS: [&str; 2] = ["bench-count", "bench-keys"];
/// Of instances that there are.
pub(super) const INSTANCES: &str = "tidemill_function_instances";
/// Deployments at a time.
const AT_ONCE: usize = 4;
/// Events are for functions this far apart, so that no two in a row are neighbours; a prime number.
const STRIDE: usize = 7919;
const SIZE: u32 = 200;

/// Topics and functions, some at a time.
pub(super) async fn deploy(client: &Client, built: &[Built], functions: u32) -> Result<()> {
    stream::iter((0..functions).map(Ok))
        .try_for_each_concurrent(AT_ONCE, |nth| async move {
            ingest::create(client, &topic(nth), 1).await?;
            let which = COMPONENTS[nth as usize % COMPONENTS.len()];
            let name = format!("sparse-{nth:05}");
            package(built, which, &name, &topic(nth))?
                .deploy(client, &[])
                .await
                .map(drop)
                .map_err(|failure| failure.at(&name))
        })
        .await
}

/// A component of those built, under another name and between topics of its own.
pub(super) fn package(built: &[Built], which: &str, name: &str, input: &str) -> Result<Package> {
    let component = std::fs::read(&one(built, which)?.path)?;
    Ok(Package::of(name, component, manifest(input)))
}

/// The one of that name.
pub(super) fn one<'b>(built: &'b [Built], which: &str) -> Result<&'b Built> {
    let found = built.iter().find(|built| built.name == which);
    found.ok_or_else(|| Failure::failed("no-function", format!("{which} was not built")))
}

/// What a function reads, and that its output goes where [`output`] says.
pub(super) fn manifest(input: &str) -> String {
    let output = output(input);
    format!(
        "[[input]]\ntopic = \"{input}\"\nstart = \"earliest\"\n[output.out]\ntopic = \"{output}\"\n"
    )
}

fn topic(nth: u32) -> String {
    format!("sparse-{nth:05}")
}

/// Where what a function says of its input goes.
pub(super) fn output(input: &str) -> String {
    format!("{input}.out")
}

/// One sender and one reader, and how many events each function was sent: as many outputs it has made, in
/// one partition.
pub(super) struct Sparse {
    sent: Vec<u64>,
    at: usize,
}

impl Sparse {
    pub(super) fn new(functions: u32) -> Self {
        Self {
            sent: vec![0; functions as usize],
            at: 0,
        }
    }

    /// An event for every function, and how long the first one's output took, in microseconds.
    pub(super) async fn round(self, host: &Host) -> Result<(Self, u32)> {
        let address = host.address.clone();
        apart(move || async move {
            let mut sparse = self;
            let mut pair = Pair::open(&address).await?;
            let mut first = None;
            for nth in 0..sparse.sent.len() {
                let (_, seen) = pair.one(nth, &mut sparse.sent[nth]).await?;
                first = first.or(Some(seen));
            }
            let first = first.unwrap_or_default().as_micros();
            Ok((sparse, u32::try_from(first).unwrap_or(u32::MAX)))
        })
        .await
    }

    /// Events for one function after the other, for a while.
    pub(super) async fn measure(self, host: &Host, time: Duration) -> Result<(Self, Value)> {
        let address = host.address.clone();
        let (sparse, acknowledged, visible) = apart(move || async move {
            let mut sparse = self;
            let mut pair = Pair::open(&address).await?;
            let (mut acknowledged, mut visible) = (Times::default(), Times::default());
            let watch = Stopwatch::start();
            while watch.elapsed() < time {
                sparse.at = (sparse.at + STRIDE) % sparse.sent.len();
                let (acked, seen) = pair.one(sparse.at, &mut sparse.sent[sparse.at]).await?;
                acknowledged.add(acked);
                visible.add(seen);
            }
            Ok((sparse, acknowledged, visible))
        })
        .await?;
        let row = json!({
            "events": visible.count(),
            "ack_p50_us": acknowledged.percentile(50.0), "ack_p99_us": acknowledged.percentile(99.0),
            "visible_p50_us": visible.percentile(50.0), "visible_p99_us": visible.percentile(99.0),
            "visible_most_us": visible.percentile(100.0),
            "instances": host.gauge(INSTANCES).await?, "memory": host.memory(),
        });
        Ok((sparse, row))
    }
}

/// A connection that posts and one that waits.
struct Pair {
    writer: Connection,
    reader: Connection,
    event: Vec<u8>,
}

impl Pair {
    async fn open(address: &str) -> Result<Self> {
        Ok(Self {
            writer: Connection::open(address).await?,
            reader: Connection::open(address).await?,
            event: events::line(SIZE).into_bytes(),
        })
    }

    /// Posts an event to a function that was sent so many; how long until it was acknowledged, and until the
    /// output was there.
    async fn one(&mut self, nth: usize, sent: &mut u64) -> Result<(Duration, Duration)> {
        let input = topic(u32::try_from(nth).unwrap_or(u32::MAX));
        let request = post(
            &format!("/v1/topics/{input}/events"),
            "application/json",
            &self.event,
        );
        let cursor = format!("0:{sent}");
        let path = format!(
            "/v1/topics/{}/events?cursor={cursor}&wait=20s",
            output(&input)
        );
        let one = Stopwatch::start();
        let read = async {
            let after = next(&mut self.reader, &path).await?;
            Ok::<_, Failure>((after, one.elapsed()))
        };
        let write = async { Ok((self.writer.call(&request).await?, one.elapsed())) };
        let ((after, seen), (status, acked)) = tokio::try_join!(read, write)?;
        *sent += 1;
        if status != 200 || after != format!("0:{sent}") {
            let detail = format!(
                "{input} was sent {sent} events, the last is answered with {status}, and there are outputs up to {after}"
            );
            return Err(Failure::failed("no-output", detail));
        }
        Ok((acked, seen))
    }
}
