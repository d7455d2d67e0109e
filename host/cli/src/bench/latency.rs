//! From posting an event to reading what functions made of it, one event at a time.

use super::connection::{Connection, get, post};
use super::functions::deployed;
use super::load::Times;
use crate::client::Client;
use crate::demo::{self, RAW};
use crate::failure::{Failure, Result};
use crate::produce::{self, Order};
use crate::progress::Stopwatch;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// After one function, and after the one that follows it.
const CHAIN: [(&str, &str); 2] = [
    ("parse-flights", "flights"),
    ("carrier-delays", "carrier-delays"),
];

/// The way through one function, and through a chain of two.
pub(super) async fn measure(dir: &Path, time: Duration) -> Result<Value> {
    let host = deployed(dir, &CHAIN.map(|(function, _)| function)).await?;
    let january = demo::functions_dir()?.join("data/flights-2013-01.csv.gz");
    produce::file(
        &host.client,
        &january,
        &Order {
            topic: RAW.into(),
            in_flight: 1,
            ..Order::default()
        },
    )
    .await?;
    demo::settle::functions(&host.client, &CHAIN.map(|(function, _)| function)).await?;
    let posts = samples(&host.client).await?;
    let mut rows = Vec::new();
    for (nth, (_, topic)) in CHAIN.into_iter().enumerate() {
        let (acknowledged, visible) = watch(&host.address, topic, &posts, time).await?;
        rows.push(json!({
            "functions": nth + 1, "events": visible.count(),
            "ack_p50_us": acknowledged.percentile(50.0), "ack_p99_us": acknowledged.percentile(99.0),
            "visible_p50_us": visible.percentile(50.0), "visible_p99_us": visible.percentile(99.0),
        }));
    }
    Ok(rows.into())
}

/// Raw rows of flights that departed, as requests.
async fn samples(client: &Client) -> Result<Vec<Vec<u8>>> {
    let page = client
        .get(
            &["v1", "topics", RAW, "events"],
            &[("from", "earliest"), ("limit", "200")],
        )
        .await?;
    let values = page["events"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|event| &event["value"]);
    let departed = values.filter(|value| {
        value["dep_delay"]
            .as_str()
            .is_some_and(|delay| delay.parse::<f64>().is_ok())
    });
    let path = format!("/v1/topics/{RAW}/events");
    let posts: Vec<_> = departed
        .map(|value| post(&path, "application/json", value.to_string().as_bytes()))
        .collect();
    if posts.is_empty() {
        return Err(Failure::failed(
            "no-samples",
            "the data has no flight that departed",
        ));
    }
    Ok(posts)
}

/// Posts on one connection and waits on another for what comes out. Both on one thread.
async fn watch(
    address: &str,
    topic: &'static str,
    posts: &[Vec<u8>],
    time: Duration,
) -> Result<(Times, Times)> {
    let (address, posts) = (address.to_owned(), posts.to_vec());
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(one_by_one(&address, topic, &posts, time))
    });
    thread
        .await
        .map_err(|error| Failure::failed("load", error.to_string()))?
}

async fn one_by_one(
    address: &str,
    topic: &str,
    posts: &[Vec<u8>],
    time: Duration,
) -> Result<(Times, Times)> {
    let (mut writer, mut reader) = (
        Connection::open(address).await?,
        Connection::open(address).await?,
    );
    let mut cursor = next(
        &mut reader,
        &format!("/v1/topics/{topic}/events?from=latest"),
    )
    .await?;
    let (mut acknowledged, mut visible) = (Times::default(), Times::default());
    let watch = Stopwatch::start();
    for request in posts.iter().cycle() {
        if watch.elapsed() > time {
            break;
        }
        let one = Stopwatch::start();
        let path = format!("/v1/topics/{topic}/events?cursor={cursor}&wait=20s");
        let read = async {
            next(&mut reader, &path)
                .await
                .map(|cursor| (cursor, one.elapsed()))
        };
        let write = async {
            writer
                .call(request)
                .await
                .map(|status| (status, one.elapsed()))
        };
        let ((after, seen), (status, acked)) = tokio::try_join!(read, write)?;
        if status != 200 || after == cursor {
            return Err(Failure::failed(
                "no-output",
                format!("an event made no output: status {status}"),
            ));
        }
        cursor = after;
        acknowledged.add(acked);
        visible.add(seen);
    }
    Ok((acknowledged, visible))
}

/// Reads a page and gives back where to go on.
pub(super) async fn next(reader: &mut Connection, path: &str) -> Result<String> {
    let status = reader.call(&get(path)).await?;
    reader.header("tidemill-next").ok_or_else(|| {
        Failure::failed(
            "strange-answer",
            format!("{path} answers {status} and no cursor"),
        )
    })
}
