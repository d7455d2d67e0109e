//! Timers by the clock, over restarts, and what fails in them; what has expired is taken away.

use crate::host::{Host, conserved};
use crate::kept::{deploy, manifest, said};
use serde_json::{Value, json};
use std::time::Duration;
use tidemill_env::Clock;
use tidemill_log::Format;
use tidemill_processor::KeepState;

async fn host(dir: &std::path::Path) -> Host {
    let host = Host::open(dir).await;
    host.topic("in", 1, Format::Json).await;
    deploy(&host, "f", manifest("in", "out", 256)).await;
    host
}

async fn send(host: &Host, key: &str, ms: i64, asks: Value) {
    host.send_at("in", 0, &[(key, ms * 1000, asks.to_string())])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_events_the_clock_makes_timers_due_once_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = host(dir.path()).await;
    let count = json!([{"count": 1}]);
    send(
        &host,
        "A",
        1,
        json!([{"timer-in": ["soon", 20, count]}, {"timer-in": ["later", 400, count]}]),
    )
    .await;
    send(
        &host,
        "B",
        1,
        json!([{"timer-in": ["never", 10_000_000, []]}, {"timer": ["waits", 10, count]}]),
    )
    .await;
    let report = host.until("f", |report| report.counts.timers == 1).await;
    assert_eq!(report.tasks[0].timers, Some(3));
    host.close().await;
    let host = crate::crash::reopen(dir.path()).await;
    host.until("f", |report| report.counts.timers == 2).await;
    send(&host, "C", 100, json!([])).await;
    let report = host.until("f", |report| report.counts.timers == 3).await;
    assert!(conserved(&report));
    assert_eq!(
        (report.counts.events_in, report.tasks[0].timers),
        (3, Some(1))
    );
    let tags: Vec<_> = said(&host, "out")
        .await
        .into_iter()
        .map(|(key, of, _)| (key, of))
        .collect();
    let expected = [
        ("A", "soon"),
        ("A", "count"),
        ("A", "later"),
        ("A", "count"),
        ("B", "waits"),
        ("B", "count"),
    ];
    assert_eq!(
        tags,
        expected.map(|(key, of)| (key.to_owned(), of.to_owned()))
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_in_event_time_sees_the_processing_time_of_its_turn_not_of_the_event_behind_it() {
    for events in [1, 256] {
        let dir = tempfile::tempdir().expect("a folder");
        let host = Host::open(dir.path()).await;
        host.topic("in", 1, Format::Json).await;
        deploy(&host, "f", manifest("in", "out", events)).await;
        host.processor.pause("f").await.expect("pauses");
        let asks = json!([{"timer": ["t", 10, [{"timer-in": ["p", 40, []]}]]}]);
        send(&host, "A", 1, asks).await;
        send(&host, "~", 20, json!([])).await;
        let reached = received(&host, 1).await;
        let clock = Clock::system();
        while clock.now().micros() < reached + 30_000 {
            tokio::task::yield_now().await;
        }
        send(&host, "~", 21, json!([])).await;
        assert!(received(&host, 2).await >= reached + 30_000);
        host.processor.resume("f").await.expect("resumes");
        host.until("f", |report| report.counts.timers == 2).await;
        let said = said(&host, "out").await;
        let due = said.iter().find(|(_, of, _)| of == "p").expect("its turn");
        assert_eq!(due.2, json!((reached + 40_000) / 1000), "{events}");
        host.close().await;
    }
}

/// When an event was received, in microseconds.
async fn received(host: &Host, offset: u64) -> i64 {
    let at = tidemill_types::PartitionId {
        topic: host.log.topic("in").expect("there").id,
        partition: 0,
    };
    let limit = tidemill_log::ReadLimit {
        events: 1,
        bytes: 1,
    };
    let read = host.log.read(at, offset, limit).await.expect("it is read");
    read.batches[0].ingest_time(0).micros()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_processing_time_state_ends_by_when_events_are_received() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = host(dir.path()).await;
    let get = json!([{"get": "fleeting"}]);
    let asks =
        json!([{"set": ["fleeting", 1]}, {"get": "fleeting"}, {"timer-in": ["end", 60, get]}]);
    send(&host, "A", 1, asks).await;
    host.until("f", |report| report.counts.timers == 1).await;
    send(&host, "A", 1, get).await;
    host.caught_up("f").await;
    let seen: Vec<_> = said(&host, "out")
        .await
        .into_iter()
        .map(|(_, of, is)| (of, is))
        .collect();
    let fleeting = |is: Value| ("fleeting".to_owned(), is);
    assert_eq!(
        (&seen[0], &seen[2], &seen[3]),
        (
            &fleeting(json!(1)),
            &fleeting(json!(null)),
            &fleeting(json!(null))
        )
    );
    let page = host
        .processor
        .state_list("f", "fleeting", None, b"", None, 10)
        .await;
    assert!(page.expect("lists").entries.is_empty());
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_fails_is_tried_again_and_then_a_dead_letter_of_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = host(dir.path()).await;
    for (key, then) in [("A", "retry"), ("B", "trap"), ("C", "dead"), ("D", "skip")] {
        let asks = json!([{"timer": ["t", 10, [{"count": 1}, {"then": then}]]}, {"timer": ["u", 11, [{"count": 1}]]}]);
        send(&host, key, 1, asks).await;
    }
    send(&host, "~", 20, json!([])).await;
    let report = host.until("f", |report| report.counts.timers == 8).await;
    assert!(conserved(&report), "{:?}", report.counts);
    let counts = report.counts;
    assert_eq!(
        (
            counts.events_in,
            counts.dead_lettered,
            counts.timers_dead_lettered
        ),
        (5, 0, 3)
    );
    let letters = host.read("f.dead-letters").await;
    let seen: Vec<_> = letters
        .iter()
        .map(|letter| {
            let header = |name: &str| letter.headers[name].as_str();
            (
                letter.key.as_deref(),
                header("tidemill-timer"),
                header("tidemill-reason"),
                header("tidemill-attempts"),
                letter.time,
            )
        })
        .collect();
    let expected = [
        (Some("A"), "t", "guest", "5", 10_000),
        (Some("B"), "t", "trap", "5", 10_000),
        (Some("C"), "t", "guest", "1", 10_000),
    ];
    assert_eq!(seen, expected);
    let tags: Vec<_> = said(&host, "out")
        .await
        .into_iter()
        .map(|(_, of, is)| (of, is))
        .collect();
    let u = [("u".to_owned(), json!(11)), ("count".to_owned(), json!(1))];
    assert_eq!(
        tags,
        [u.clone(), u.clone(), u.clone(), u].concat(),
        "what failed left nothing"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_without_the_handler_keeps_timers_and_a_later_one_has_them_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = host(dir.path()).await;
    send(&host, "A", 1, json!([{"timer": ["t", 10, []]}])).await;
    host.caught_up("f").await;
    let mut without = manifest("in", "out", 256);
    without["function"] = json!({"timers": false});
    deploy(&host, "f", without).await;
    send(&host, "~", 20, json!([{"count": 1}])).await;
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.timers, said(&host, "out").await.len()),
        (0, 1)
    );
    deploy(&host, "f", manifest("in", "out", 256)).await;
    host.until("f", |report| report.counts.timers == 1).await;
    host.deploy_guest(
        "f",
        crate::kept::component(),
        manifest("in", "out", 256),
        KeepState::Reset,
    )
    .await
    .expect("it deploys");
    let report = host
        .until("f", |report| report.tasks[0].timers == Some(0))
        .await;
    assert_eq!(report.counts.timers, 1);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_is_taken_away_in_memory_and_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = host(dir.path()).await;
    let keys: Vec<String> = (0..500).map(|key| format!("k{key}")).collect();
    let asks =
        json!([{"set": ["brief", 1]}, {"put": ["briefs", "a", 1]}, {"count": 1}]).to_string();
    let events: Vec<_> = keys
        .iter()
        .map(|key| (key.as_str(), 1_000, asks.clone()))
        .collect();
    host.send_at("in", 0, &events).await;
    host.caught_up("f").await;
    let before = host.state.stats().live;
    assert!(before >= 1_500);
    let listed = async |slot: &str| {
        let page = host
            .processor
            .state_list("f", slot, None, b"", None, 10_000)
            .await;
        page.expect("lists").entries.len()
    };
    assert_eq!((listed("brief").await, listed("briefs").await), (500, 500));
    send(&host, "~", 62, json!([{"set": ["brief", 1]}])).await;
    host.caught_up("f").await;
    assert_eq!(
        (listed("brief").await, listed("briefs").await),
        (1, 0),
        "not seen from outside either"
    );
    let clock = Clock::system();
    // The counters, the last value of `brief`, and the account of what is kept.
    while host.state.stats().live > 502 {
        clock.sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(listed("count").await, 500);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_slot_holds_can_not_change_under_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = host(dir.path()).await;
    for (state, says) in [
        (
            json!({"count": {"kind": "map"}}),
            "holds a counter, which can't become a map",
        ),
        (
            json!({"brief": {"ttl_time": "processing"}}),
            "state.brief.ttl_time",
        ),
    ] {
        let mut changed = manifest("in", "out", 256);
        changed["state"] = state;
        let refused = host
            .deploy_guest("f", crate::kept::component(), changed, KeepState::Keep)
            .await
            .expect_err("refused");
        assert!(
            refused.detail.contains(says) && refused.detail.contains("state=reset"),
            "{refused}"
        );
    }
    let mut longer = manifest("in", "out", 256);
    longer["state"] = json!({"brief": {"ttl": "1h"}, "value": {"ttl": "1h"}});
    deploy(&host, "f", longer).await;
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_that_bring_more_along_than_a_frame_holds_take_turns_in_batches() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = host(dir.path()).await;
    let long = "x".repeat(1_000_000);
    let asks = json!([{"timer": ["t", 10, [{"clear": long}]]}]).to_string();
    for key in 0..60 {
        host.send_at("in", 0, &[(&format!("k{key}"), 1_000, asks.clone())])
            .await;
    }
    send(&host, "~", 20, json!([])).await;
    let report = host.until("f", |report| report.counts.timers == 60).await;
    assert_eq!(report.counts.timers_dead_lettered, 0);
    assert_eq!(said(&host, "out").await.len(), 60);
    host.close().await;
}
