//! Events that wait to be tried again while other keys go on: order, restarts, versions, bounds, counts.

use crate::crash::{reopen, some_time};
use crate::host::{Host, conserved, counting, manifest, process};
use serde_json::{Value, json};
use tidemill_log::Format;
use tidemill_processor::{FunctionReport, FunctionStatus, KeepState};

/// A manifest whose function parks by key.
fn parking(backoff: &str, exhausted: &str) -> Value {
    counting(json!({"retry": {
        "attempts": 3, "backoff": backoff, "order": "key", "exhausted": exhausted,
    }}))
}

async fn settled(host: &Host, events: u64) -> FunctionReport {
    let report = host
        .until("f", |report| {
            report.counts.events_in == events && report.counts.retrying == 0
        })
        .await;
    assert!(conserved(&report), "{report:?}");
    report
}

fn of_key<'a>(out: &'a [crate::host::Seen], key: &str) -> Vec<&'a [u8]> {
    let of = out.iter().filter(|seen| seen.key.as_deref() == Some(key));
    of.map(|seen| seen.value.as_slice()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_keys_go_on_and_the_parked_key_keeps_its_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", parking("1h..1h", "dead-letter")).await;
    let events = [
        (Some("a"), "2 first"),
        (Some("a"), "R second"),
        (Some("b"), "2 other"),
        (Some("a"), "2 third"),
        (None, "2 keyless"),
        (Some("c"), "t"),
        (Some("b"), "2 other again"),
    ];
    host.send("in", 0, &events).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        report.counts.events_in, 7,
        "the position is past all of them"
    );
    assert_eq!((report.counts.retrying, report.counts.effective), (3, 3));
    let text = host.metrics.render();
    for line in [
        "tidemill_function_events_total{function=\"f\",version=\"1\",outcome=\"in\"} 7",
        "tidemill_function_events_total{function=\"f\",version=\"1\",outcome=\"effective\"} 3",
        "tidemill_function_events_total{function=\"f\",version=\"1\",outcome=\"skipped\"} 1",
        "tidemill_function_events_retrying{function=\"f\",version=\"1\"} 3",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert_eq!(report.tasks[0].retrying, 3);
    assert_eq!(report.status, FunctionStatus::Retrying);
    let why = report.status_reason.expect("it says why");
    assert!(why.contains("3 events wait"), "{why}");
    assert_eq!(
        host.values("out").await,
        ["2 first", "2 other", "2 other again"]
    );
    host.close().await;

    // What is parked lies with the state: a restart changes nothing.
    let host = reopen(dir.path()).await;
    host.send("in", 0, &[(Some("a"), "2 fourth"), (Some("b"), "f")])
        .await;
    let report = host.until("f", |report| report.counts.events_in == 9).await;
    assert!(conserved(&report));
    assert_eq!((report.counts.retrying, report.counts.filtered), (4, 1));

    // Another version takes over what is parked and tries at once; the state may be reset, it stays.
    let again = host
        .try_deploy("f", parking("1ms..2ms", "dead-letter"), KeepState::Reset)
        .await;
    assert_eq!(again.expect("it deploys").version, 2);
    let report = settled(&host, 9).await;
    let counts = report.version_counts;
    assert_eq!(
        (counts.events_in, counts.effective, counts.dead_lettered),
        (4, 3, 1)
    );
    let out = host.read("out").await;
    let expected: [&[u8]; 4] = [b"2 first", b"R second", b"2 third", b"2 fourth"];
    assert_eq!(of_key(&out, "a"), expected);
    assert_eq!(host.count("f", "a").await, Some(2), "of the emptied state");
    let letters = host.read("f.dead-letters").await;
    assert_eq!(letters.len(), 1);
    let header = |name: &str| letters[0].headers[name].as_str();
    assert_eq!(
        (header("tidemill-offset"), header("tidemill-attempts")),
        ("5", "3")
    );
    assert_eq!(
        (header("tidemill-reason"), header("tidemill-version")),
        ("trap", "2")
    );
    assert!(header("tidemill-first-failure") <= header("tidemill-last-failure"));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_key_goes_on_behind_its_dead_letter_or_stops_the_function() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", parking("1ms..2ms", "skip")).await;
    let mut events = vec![(Some("a"), "r"), (Some("a"), "t"), (Some("a"), "c")];
    events.extend([(Some("b"), "c"); 40]);
    events.push((Some("a"), "c"));
    host.send("in", 0, &events).await;
    let report = settled(&host, 44).await;
    assert_eq!(
        (report.counts.skipped, report.counts.effective),
        (2, 42),
        "{report:?}"
    );
    assert_eq!(host.count("f", "a").await, Some(2));
    host.deploy("f", parking("1ms..2ms", "stop")).await;
    host.send(
        "in",
        0,
        &[(Some("a"), "r"), (Some("b"), "c"), (Some("a"), "c")],
    )
    .await;
    let stopped = host
        .until("f", |report| report.status == FunctionStatus::Stopped)
        .await;
    let why = stopped.status_reason.expect("it says why");
    assert!(why.contains("in 0:44") && why.contains("3 times"), "{why}");
    host.close().await;
    // Nothing of it is lost by stopping.
    let host = reopen(dir.path()).await;
    host.deploy("f", parking("1ms..2ms", "skip")).await;
    host.processor.resume("f").await.expect("it resumes");
    let report = settled(&host, 47).await;
    assert_eq!((report.counts.skipped, report.counts.effective), (3, 44));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_keyed_by_a_pointer_are_parked_with_where_they_came_from() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    let changes = json!({"input": [{"topic": "in", "start": "earliest", "key": "/0"}],
        "retry": {"attempts": 2, "backoff": "1ms..2ms", "order": "key"}});
    host.deploy("f", manifest(changes)).await;
    for partition in 0..2 {
        host.send(
            "in",
            partition,
            &[(Some("own"), "[\"a\"]"), (Some("own"), "trap")],
        )
        .await;
    }
    let report = settled(&host, 4).await;
    assert_eq!(
        (report.counts.effective, report.counts.dead_lettered),
        (2, 2)
    );
    let mut letters = host.read("f.dead-letters").await;
    letters.sort_by_key(|letter| letter.headers["tidemill-partition"].clone());
    for (letter, partition) in letters.iter().zip(["0", "1"]) {
        assert_eq!(letter.key.as_deref(), Some("own"));
        assert_eq!(letter.headers["tidemill-partition"], partition);
        assert_eq!(letter.headers["tidemill-offset"], "1");
        assert!(!letter.headers.contains_key("tidemill-origin"));
    }
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_in_place_go_on_counting_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let retry = json!({"retry": {"attempts": 3, "backoff": "1h..1h"}});
    host.deploy("f", manifest(retry)).await;
    host.send("in", 0, &[(None, "e"), (None, "r")]).await;
    let retrying = |report: &FunctionReport| report.status == FunctionStatus::Retrying;
    let report = host.until("f", retrying).await;
    assert_eq!((report.counts.events_in, report.counts.retrying), (2, 1));
    assert!(conserved(&report));
    host.close().await;
    let host = reopen(dir.path()).await;
    let report = host.until("f", retrying).await;
    assert!(conserved(&report));
    let why = report.status_reason.expect("it says why");
    assert!(
        why.contains("try 1 failed: before the host was started"),
        "{why}"
    );
    assert_eq!(report.tasks[0].position, 1);
    let text = host.metrics.render();
    assert!(
        !text.contains("tidemill_function_errors_total{function=\"f\""),
        "it wasn't tried sooner: {text}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_parked_any_more_holds_its_partition_until_there_is_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", parking("1h..1h", "skip")).await;
    let most = tidemill_types::limits::PARKED_EVENTS;
    let events: Vec<_> = (0..most + 5).map(|_| (Some("a"), "r")).collect();
    for part in events.chunks(2_000) {
        host.send("in", 0, part).await;
    }
    host.send("in", 0, &[(Some("b"), "c")]).await;
    let full = |report: &FunctionReport| {
        let why = report.status_reason.as_deref().unwrap_or_default();
        why.contains("PARKED_EVENTS")
    };
    let report = host.until("f", full).await;
    assert!(conserved(&report));
    assert_eq!(report.counts.retrying, most as u64);
    assert_eq!(report.tasks[0].lag, 6);
    let skipping = json!({"retry": {"attempts": 1, "exhausted": "skip", "order": "key"}});
    host.deploy("f", counting(skipping)).await;
    let report = settled(&host, most as u64 + 6).await;
    assert_eq!(
        (report.counts.skipped, report.counts.effective),
        (most as u64 + 5, 1)
    );
    host.close().await;
}

/// Events of several keys, some of which fail once; what each key's outputs must be.
fn mixed(round: u64) -> Vec<(Option<&'static str>, &'static str)> {
    let keys = ["a", "b", "c", "d"];
    (0..40)
        .map(|n: u64| {
            let fails = (n * 7 + round).is_multiple_of(11);
            let key = keys[usize::try_from((n + round) % 4).expect("small")];
            (Some(key), if fails { "R" } else { "c" })
        })
        .collect()
}

#[test]
fn nothing_parked_is_lost_or_done_twice_over_crashes() {
    let dir = tempfile::tempdir().expect("a folder");
    const ROUNDS: u64 = 10;
    for round in 0..ROUNDS {
        process(|runtime| {
            runtime.block_on(async {
                let host = reopen(dir.path()).await;
                if round == 0 {
                    host.topic("in", 1, Format::Bytes).await;
                    host.deploy("f", parking("1ms..5ms", "dead-letter")).await;
                }
                host.send("in", 0, &mixed(round)).await;
                let report = host.processor.describe("f").await.expect("it is there");
                assert!(conserved(&report), "{report:?}");
                some_time(&host, round % 4).await;
            });
        });
    }
    process(|runtime| {
        runtime.block_on(async {
            let host = reopen(dir.path()).await;
            let report = settled(&host, ROUNDS * 40).await;
            assert_eq!(report.counts.effective, ROUNDS * 40);
            let out = host.read("out").await;
            for key in ["a", "b", "c", "d"] {
                let sent: Vec<&str> = (0..ROUNDS)
                    .flat_map(mixed)
                    .filter(|(of, _)| *of == Some(key))
                    .map(|(_, value)| value)
                    .collect();
                let mut count = 0_u64;
                let expected: Vec<Vec<u8>> = sent
                    .iter()
                    .map(|value| match *value {
                        "c" => {
                            count += 1;
                            count.to_le_bytes().to_vec()
                        }
                        other => other.as_bytes().to_vec(),
                    })
                    .collect();
                assert_eq!(of_key(&out, key), expected, "key {key}");
                assert_eq!(host.count("f", key).await, Some(count));
            }
            host.close().await;
        });
    });
}
