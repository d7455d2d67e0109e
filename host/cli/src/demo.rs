//! `tidemill demo`: the whole way once, on real data. Builds the four functions, starts a host in this
//! process, streams flights in over HTTP, waits until everything has settled, and reports.

mod report;
pub(crate) mod settle;

use crate::args::{Shape, Show};
use crate::build::{self, Built};
use crate::client::Client;
use crate::deploy::Package;
use crate::failure::{Failure, Result};
use crate::print;
use crate::produce::{self, Order};
use crate::progress::Stopwatch;
use crate::serve::{Running, Settings};
use clap::Args;
use report::{Figures, Report};
use reqwest::Method;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The topic the raw rows go to.
pub(crate) const RAW: &str = "flights-raw";
/// The functions, each after those it reads from.
pub(crate) const FUNCTIONS: [&str; 4] = [
    "parse-flights",
    "delayed-flights",
    "carrier-delays",
    "route-alerts",
];
/// Every topic that is expected to be archived at the end.
const TOPICS: [&str; 5] = [
    RAW,
    "flights",
    "delayed-flights",
    "carrier-delays",
    "route-alerts",
];

/// Run four functions over a month of real flights, and report.
///
/// Builds the functions of this repository and runs them in a host in this process, on a fresh
/// directory.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill demo\n  tidemill demo --keep-running --dir ./demo\n  tidemill demo --year"
)]
pub(crate) struct Demo {
    /// Directory for the data: must be empty or not there; a temporary one if not said.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Leave the host running after the report, until Ctrl-C.
    #[arg(long)]
    keep_running: bool,
    /// Stream the whole year (336,776 flights), fetched once, instead of January.
    #[arg(long)]
    year: bool,
    /// Partitions of the raw rows, and with them of all that follows. With several, alerts depend on
    /// how they are interleaved: the same route is flown by airlines of different partitions.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    partitions: u32,
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    #[command(flatten)]
    show: Show,
}

pub(crate) async fn perform(args: &Demo) -> Result<()> {
    let functions = functions_dir()?;
    let dir = data_dir(args.dir.as_deref())?;
    let flights = if args.year {
        year(&functions)?
    } else {
        functions.join("data/flights-2013-01.csv.gz")
    };
    print::note("building the functions");
    let built = build::build(&functions)?;
    let host = start(&dir, &args.listen).await?;
    let result = run(&host.address(), &built, &flights, args.partitions).await;
    let figures = match result {
        Ok(figures) => figures,
        Err(failure) => {
            // The failure of the demo says more than one of stopping after it.
            let _ = host.stop().await;
            return Err(failure);
        }
    };
    let report = Report {
        host: host.address(),
        dir,
        figures,
    };
    match args.show.output {
        Shape::Table => report.print(args.keep_running)?,
        Shape::Json | Shape::Ndjson => print::line(&report.json().to_string())?,
    }
    if args.keep_running {
        print::note(&format!(
            "the host goes on at {}; Ctrl-C stops it",
            host.address()
        ));
        return host.until_asked().await;
    }
    host.stop().await
}

/// A host as the demo wants it: segments appear within seconds, and only trouble is logged.
async fn start(dir: &Path, listen: &str) -> Result<Running> {
    let settings = Settings {
        dir: Some(dir.to_path_buf()),
        listen: Some(listen.to_owned()),
        config: None,
        settings: vec![
            ("log.segment_age".into(), "1s".into()),
            ("telemetry.level".into(), "warn".into()),
        ],
    };
    Running::start(&settings).await
}

/// Deploys, streams, waits.
async fn run(host: &str, built: &[Built], flights: &Path, partitions: u32) -> Result<Figures> {
    let client = Client::new(host)?;
    deploy(&client, built, &FUNCTIONS, partitions).await?;
    print::note("streaming flights");
    let watch = Stopwatch::start();
    let order = Order {
        topic: RAW.into(),
        in_flight: 1,
        ..Order::default()
    };
    let written = produce::file(&client, flights, &order).await?;
    let streamed = watch.elapsed();
    let functions = settle::functions(&client, &FUNCTIONS).await?;
    let settled = watch.elapsed();
    print::note("archiving");
    settle::archive(&client, &TOPICS).await?;
    let carriers = report::carriers(&client).await?;
    Ok(Figures {
        events: written,
        streamed,
        settled,
        functions,
        carriers,
    })
}

/// Creates the topic of raw rows and deploys functions, each reading from the beginning.
pub(crate) async fn deploy(
    client: &Client,
    built: &[Built],
    names: &[&str],
    partitions: u32,
) -> Result<()> {
    let settings = json!({"partitions": partitions, "key": "/carrier"});
    client
        .json(
            client
                .request(Method::PUT, &["v1", "topics", RAW], &[])
                .json(&settings),
        )
        .await?;
    deploy_built(client, built, names).await
}

/// Deploys some of what was built, each from the topic's beginning on.
pub(crate) async fn deploy_built(client: &Client, built: &[Built], names: &[&str]) -> Result<()> {
    for &name in names {
        let built = built.iter().find(|built| built.name == name);
        let built =
            built.ok_or_else(|| Failure::failed("no-function", format!("{name} was not built")))?;
        let package = Package::built(built, Some(name))?;
        package
            .deploy(client, &[("start", "earliest")])
            .await
            .map_err(|failure| failure.at(name))?;
    }
    Ok(())
}

/// The functions of this repository.
pub(crate) fn functions_dir() -> Result<PathBuf> {
    let candidates = [
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions"),
        PathBuf::from("functions"),
    ];
    let found = candidates
        .into_iter()
        .find(|dir| dir.join("Cargo.toml").is_file());
    found
        .and_then(|dir| dir.canonicalize().ok())
        .ok_or_else(|| {
            Failure::not_found("no-functions", "the demo's functions are not here").hint(
                "run the demo from a checkout of the repository, whose folder functions/ it builds",
            )
        })
}

/// A fresh directory. A temporary one stays after the demo, so that its files can be looked at.
fn data_dir(given: Option<&Path>) -> Result<PathBuf> {
    let Some(dir) = given else {
        return Ok(tempfile::Builder::new()
            .prefix("tidemill-demo-")
            .tempdir()?
            .keep());
    };
    std::fs::create_dir_all(dir)?;
    if std::fs::read_dir(dir)?.next().is_some() {
        return Err(
            Failure::conflict("not-empty", format!("{} is not empty", dir.display())).hint(
                "the demo wants a fresh directory: name another, or none for a temporary one",
            ),
        );
    }
    Ok(dir.canonicalize()?)
}

/// The whole year, fetched by the script beside the data unless it is there already.
fn year(functions: &Path) -> Result<PathBuf> {
    let file = functions.join("data/flights-2013.csv.gz");
    if !file.is_file() {
        print::note("fetching the year");
        let script = functions.join("data/fetch.sh");
        let fetched = Command::new("sh")
            .arg(&script)
            .current_dir(functions.join("data"))
            .stdout(Stdio::null())
            .status()?;
        if !fetched.success() || !file.is_file() {
            return Err(Failure::failed(
                "not-fetched",
                format!("{} did not bring the year", script.display()),
            )
            .hint("it needs Python 3 with pip and the network, once"));
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn the_directory_has_to_be_fresh() {
        let dir = tempfile::tempdir().expect("directory");
        assert!(
            data_dir(Some(&dir.path().join("a/b")))
                .expect("made")
                .is_dir()
        );
        assert_eq!(
            data_dir(Some(dir.path())).expect_err("not empty").exit,
            Exit::Conflict
        );
    }

    #[test]
    fn the_functions_stand_in_the_order_of_the_stream() {
        assert_eq!(FUNCTIONS[0], "parse-flights");
        assert!(
            FUNCTIONS[1..].iter().all(|name| TOPICS.contains(name)),
            "each writes a topic of its name"
        );
    }
}
