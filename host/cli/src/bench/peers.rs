//! Other systems under the same loads, each with a client of its own: `tests/peers` fetches and runs them.

use super::counts;
use super::events::fitting;
use super::ingest::Load;
use super::process::Process;
use super::reader::{figure, per_second};
use crate::demo;
use crate::failure::{Failure, Result};
use crate::print;
use crate::progress::{Stopwatch, pause};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(20);

/// A system and the ways in which its client sends.
struct Peer {
    name: &'static str,
    /// Many events at a time.
    batches: &'static [&'static str],
    /// One event at a time, on every connection.
    singles: &'static [&'static str],
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "kafka",
        batches: &["batch"],
        singles: &["single", "shared"],
    },
    Peer {
        name: "nats",
        batches: &["atomic", "async"],
        singles: &["single"],
    },
];

/// Whether what is acknowledged is on the disk, and then as the system comes.
pub(super) const FLUSHES: [&str; 2] = ["synced", "default"];

/// Where the scripts are.
pub(super) struct Scripts(PathBuf);

/// Fetches and builds what a run needs of peers: for loads, and beside functions.
pub(super) fn prepare(loads: bool, functions: bool) -> Result<Scripts> {
    let scripts = Scripts(demo::functions_dir()?.join("../tests/peers"));
    for name in needed(loads, functions) {
        print::note(&format!("preparing {name}"));
        let status = scripts.command(name).arg("prepare").status()?;
        if !status.success() {
            let detail = format!("tests/peers/{name}.sh prepare ended with {status}");
            return Err(Failure::failed("no-peer", detail).hint("it has said above what it lacks"));
        }
    }
    Ok(scripts)
}

/// Whose scripts are run.
fn needed(loads: bool, functions: bool) -> Vec<&'static str> {
    let all = [("kafka", loads || functions), ("nats", loads)];
    let counts = counts::NAMES.map(|name| (name, functions));
    let all = all.into_iter().chain(counts);
    all.filter_map(|(name, needed)| needed.then_some(name))
        .collect()
}

impl Scripts {
    /// A peer's script.
    pub(super) fn command(&self, name: &str) -> Command {
        Command::new(self.0.join(format!("{name}.sh")))
    }
}

/// Every load on every peer, synced and as it comes. One that doesn't get through is a row too: there is no
/// reason to throw away what was measured before.
pub(super) async fn measure(
    scripts: &Scripts,
    dir: &Path,
    time: Duration,
    loads: &[Load],
) -> Result<Value> {
    let mut rows = Vec::new();
    for peer in &PEERS {
        for flush in FLUSHES {
            let dir = dir.join(format!("{}-{flush}", peer.name));
            std::fs::create_dir(&dir)?;
            let measured = one(scripts, peer, flush, &dir, time, loads, &mut rows).await;
            if let Err(failure) = measured {
                print::warning(&failure.message);
                rows.push(json!({"peer": peer.name, "flush": flush, "failed": failure.message}));
            }
            std::fs::remove_dir_all(dir)?;
        }
    }
    Ok(rows.into())
}

/// Every load on one server; it has ended afterwards.
async fn one(
    scripts: &Scripts,
    peer: &Peer,
    flush: &str,
    dir: &Path,
    time: Duration,
    loads: &[Load],
    rows: &mut Vec<Value>,
) -> Result<()> {
    let mut running = Running::start(scripts, peer, flush, dir).await?;
    for load in loads {
        for way in ways(peer, *load) {
            let told = load.describe();
            print::note(&format!("  {} {flush}, {way}: {told}", peer.name));
            let mut row = running.once(way, *load, time)?;
            row["peer"] = peer.name.into();
            row["flush"] = flush.into();
            rows.push(row);
        }
    }
    Ok(())
}

/// Who sends on one connection shares it with nobody.
fn ways(peer: &Peer, load: Load) -> impl Iterator<Item = &'static str> {
    let ways = if load.batch > 1 {
        peer.batches
    } else {
        peer.singles
    };
    let few = load.connections == 1;
    ways.iter()
        .copied()
        .filter(move |way| !(few && *way == "shared"))
}

/// A server, and the program that sends to it.
struct Running {
    server: Process,
    /// Killed with the server.
    _load: Process,
    jobs: ChildStdin,
    answers: BufReader<ChildStdout>,
    topics: u32,
}

impl Running {
    async fn start(scripts: &Scripts, peer: &Peer, flush: &str, dir: &Path) -> Result<Self> {
        let (server, port) = serve(scripts, peer.name, flush, dir).await?;
        let mut load = scripts.command(peer.name);
        load.args(["load", &port])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut load = Process::spawn(&mut load)?;
        let (Some(jobs), Some(answers)) = (load.0.stdin.take(), load.0.stdout.take()) else {
            return Err(Failure::failed(
                "load",
                "the peer's client has no standard input",
            ));
        };
        Ok(Self {
            server,
            _load: load,
            jobs,
            answers: BufReader::new(answers),
            topics: 0,
        })
    }

    /// Sends for a while into a topic of its own, after as long a time to warm up: a virtual machine compiles
    /// what it has run often.
    fn once(&mut self, way: &str, load: Load, time: Duration) -> Result<Value> {
        self.topics += 1;
        let (size, connections) = (load.size, load.connections);
        let batch = fitting(load.batch, size);
        let topic = format!("bench-{}", self.topics);
        let job = |time: Duration| {
            let millis = time.as_millis();
            format!("{way} {size} {batch} {connections} {millis} {topic}")
        };
        self.answer(&job(time))?;
        let before = self.server.cpu_seconds();
        let answer = self.answer(&job(time))?;
        let cpu_seconds = self.server.cpu_seconds() - before;
        if let Some(why) = answer["failed"].as_str() {
            // Not getting through with a load is a result too, and no reason to throw the others away.
            print::warning(&format!("{way}, {}: {why}", load.describe()));
        }
        let (events, seconds) = (answer["events"].as_u64(), figure(&answer, "seconds"));
        let events = events.unwrap_or(0);
        Ok(json!({
            "way": way, "connections": connections, "batch": batch, "size": size,
            "events_per_second": per_second(events, seconds),
            "mb_per_second": per_second(events * u64::from(size), seconds) / 1e6,
            "p50_us": answer["p50_us"], "p99_us": answer["p99_us"], "p999_us": answer["p999_us"],
            "events_per_cpu_second": per_second(events, cpu_seconds.max(0.01)),
            "memory": self.server.memory(), "failed": answer["failed"],
        }))
    }

    /// Blocks: nothing else happens while a peer is measured.
    fn answer(&mut self, job: &str) -> Result<Value> {
        writeln!(self.jobs, "{job}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|_| {
            let detail = format!("the peer's client did not get through with \"{job}\"");
            Failure::failed("load", detail).hint("it has said above why")
        })
    }
}

/// Starts a peer's server on a fresh directory, and gives the port on which it listens.
pub(super) async fn serve(
    scripts: &Scripts,
    name: &str,
    flush: &str,
    dir: &Path,
) -> Result<(Process, String)> {
    let [port, other] = free_ports()?;
    let log = std::fs::File::create(dir.join("log"))?;
    let mut serve = scripts.command(name);
    serve
        .arg("serve")
        .arg(dir.join("data"))
        .args([&port, &other, flush]);
    serve
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut server = Process::spawn(&mut serve)?;
    listens(&mut server, name, &port, &dir.join("log")).await?;
    Ok((server, port))
}

/// Ports that nobody has at the moment.
fn free_ports() -> Result<[String; 2]> {
    let listeners = [
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    ];
    let ports = [listeners[0].local_addr()?, listeners[1].local_addr()?];
    Ok(ports.map(|address| address.port().to_string()))
}

async fn listens(server: &mut Process, name: &str, port: &str, log: &Path) -> Result<()> {
    let watch = Stopwatch::start();
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        let ended = server.0.try_wait()?;
        if ended.is_some() || watch.elapsed() > PATIENCE {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let detail = format!("{name} does not listen after {:?}: {said}", watch.elapsed());
            return Err(Failure::failed("no-peer", detail));
        }
        pause(POLL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::events::Form;
    use super::*;

    #[test]
    fn a_connection_is_shared_only_by_several() {
        let load = |batch, connections| Load {
            form: Form::Packed,
            batch,
            size: 200,
            connections,
        };
        let of = |load| ways(&PEERS[0], load).collect::<Vec<_>>();
        assert_eq!(of(load(500, 64)), ["batch"]);
        assert_eq!(of(load(1, 64)), ["single", "shared"]);
        assert_eq!(of(load(1, 1)), ["single"]);
    }

    #[test]
    fn only_what_is_needed_is_fetched() {
        assert_eq!(needed(true, false), ["kafka", "nats"]);
        assert_eq!(needed(false, true), ["kafka", "streams", "flink"]);
        assert_eq!(needed(true, true).len(), 4);
        assert!(needed(false, false).is_empty());
    }

    #[test]
    fn free_ports_differ() {
        let [one, other] = free_ports().expect("ports");
        assert_ne!(one, other);
    }
}
