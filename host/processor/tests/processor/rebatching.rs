//! Where batches end, when instances go, when a function stands and how often it is deployed makes no
//! difference to any byte: functions that read the same events with other batches come to the same outputs
//! and the same state, and a replay finds all of it again.

use crate::host::{Host, Seen, usual};
use crate::kept::{self, asks, nothing_left};
use crate::replays::verified;
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Duration;
use tidemill_env::{Clock, Random};
use tidemill_log::Format;
use tidemill_processor::{KeepState, Settings};
use tidemill_types::ByteSize;

/// Events of a batch for each of the functions that are compared.
const LANES: [u32; 4] = [1, 3, 17, 256];

type Events = Vec<(String, i64, String)>;

/// How many events and what they say.
struct Load {
    guest: Vec<u8>,
    slots: &'static [&'static str],
    events: Events,
    seed: u64,
    /// Whether it draws random numbers: those go by the function's name, so that only its replay draws the same.
    draws: bool,
}

/// An output without what was drawn for it.
fn undrawn(seen: Seen) -> Seen {
    let mut saw: Value = serde_json::from_slice(&seen.value).expect("what it saw");
    saw["hashed"] = json!(0);
    let words = saw["words"].as_array_mut().expect("words");
    words.sort_by_key(Value::to_string);
    Seen {
        value: saw.to_string().into_bytes(),
        ..seen
    }
}

fn lane(events: u32) -> String {
    format!("f-{events}")
}

fn output(events: u32) -> String {
    format!("out-{events}")
}

async fn deploy(host: &Host, guest: &[u8], lane_events: u32, batch: u64) {
    let mut manifest = kept::manifest("in", &output(lane_events), lane_events);
    manifest["batch"]["events"] = json!(batch);
    host.deploy_guest(
        &lane(lane_events),
        guest.to_vec(),
        manifest,
        KeepState::Keep,
    )
    .await
    .expect("it deploys");
}

/// Does something to one of the functions.
async fn disturb(host: &Host, load: &Load, random: &Random) {
    let at = usize::try_from(random.below(LANES.len() as u64)).expect("small");
    let events = LANES[at];
    match random.below(4) {
        0 => {
            host.processor.pause(&lane(events)).await.expect("pauses");
            for _ in 0..random.below(3) {
                tokio::task::yield_now().await;
            }
            host.processor.resume(&lane(events)).await.expect("resumes");
        }
        // The first stays at one event, so that there is something to compare with.
        1 if at > 0 => deploy(host, &load.guest, events, 1 + random.below(40)).await,
        // Idle instances go meanwhile.
        2 => Clock::system().sleep(Duration::from_millis(5)).await,
        _ => {}
    }
}

async fn makes_no_difference(load: Load) -> Vec<Seen> {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        idle: Duration::from_millis(1),
        ..usual()
    };
    let host = Host::open_as(dir.path(), ByteSize::mib(16), settings, |_| {})
        .await
        .expect("the host opens");
    host.topic("in", 1, Format::Json).await;
    for events in LANES {
        deploy(&host, &load.guest, events, events.into()).await;
    }
    let random = Random::seeded(load.seed);
    let mut left = load.events.as_slice();
    while !left.is_empty() {
        let count = usize::try_from(1 + random.below(30)).expect("small");
        let (some, rest) = left.split_at(count.min(left.len()));
        let some: Vec<_> = some
            .iter()
            .map(|(key, time, value)| (key.as_str(), *time, value.clone()))
            .collect();
        host.send_at("in", 0, &some).await;
        disturb(&host, &load, &random).await;
        left = rest;
    }
    let mut first: Option<(Vec<Seen>, String)> = None;
    for events in LANES {
        let name = lane(events);
        let report = host.until(&name, nothing_left).await;
        let mut outputs = host.read(&output(events)).await;
        if load.draws {
            outputs = outputs.into_iter().map(undrawn).collect();
        }
        let mut state = format!("{:?}", report.counts);
        for slot in load.slots {
            let listed = host
                .processor
                .state_list(&name, slot, None, b"", None, 10_000);
            let listed = listed.await.expect("lists").entries;
            state += &format!("\n{slot}: {listed:?}");
        }
        match &first {
            None => first = Some((outputs, state)),
            Some((wanted, kept)) => {
                let differs = outputs.iter().zip(wanted).find(|(one, other)| one != other);
                assert_eq!(differs, None, "seed {}, batches of {events}", load.seed);
                assert_eq!(outputs.len(), wanted.len(), "batches of {events}");
                assert_eq!(&state, kept, "seed {}, batches of {events}", load.seed);
            }
        }
        let found = verified(&host, &name).await;
        assert!(found.is_same(), "batches of {events}: {found:?}");
    }
    host.close().await;
    first.expect("there are functions").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_every_kind_and_timers_do_not_go_by_batches() {
    for seed in [3, 4] {
        let random = Random::seeded(seed);
        let mut events: Events = (0..150_i64)
            .map(|number| {
                let time = number * 3 - i64::try_from(random.below(20)).expect("small");
                let asks = asks(&random, time, 2);
                let key = format!("k{}", random.below(5));
                (key, time * 1000, json!(asks).to_string())
            })
            .collect();
        events.push(("k0".into(), 10_000_000_000, "[]".into()));
        makes_no_difference(Load {
            guest: kept::component(),
            slots: &["value", "brief", "count", "list", "map", "briefs"],
            events,
            seed,
            draws: false,
        })
        .await;
    }
}

fn words(random: &Random) -> Events {
    const WORDS: [&str; 8] = ["a", "b", "cc", "dd", "eee", "fff", "gggg", "hhhh"];
    let mut events: Events = (0..60_i64)
        .map(|number| {
            let text: Vec<_> = (0..1 + random.below(12))
                .map(|_| WORDS[usize::try_from(random.below(8)).expect("small")])
                .collect();
            let key = format!("k{}", random.below(4));
            (key, number * 2000, json!(text.join(" ")).to_string())
        })
        .collect();
    events.push(("k0".into(), 10_000_000_000, json!("end").to_string()));
    events
}

/// What a standard library takes from outside, for both targets.
fn standard(target: &str) -> Vec<u8> {
    static WASI: OnceLock<Vec<u8>> = OnceLock::new();
    match target {
        "wasm32-wasip2" => WASI
            .get_or_init(|| crate::built::built("standard", target))
            .clone(),
        _ => crate::built::component("standard"),
    }
}

async fn standard_library(target: &str) {
    let outputs = makes_no_difference(Load {
        guest: standard(target),
        slots: &["count"],
        events: words(&Random::seeded(5)),
        seed: 5,
        draws: target == "wasm32-wasip2",
    })
    .await;
    assert!(outputs.len() > 61, "timers had their turn");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hash_maps_of_the_standard_library_do_not_go_by_batches() {
    standard_library("wasm32-unknown-unknown").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_and_randomness_of_wasi_do_not_go_by_batches() {
    standard_library("wasm32-wasip2").await;
}
