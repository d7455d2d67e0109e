//! SIGKILL at random moments under load: what was acknowledged is there once, state equals a recount,
//! outputs have neither duplicates nor gaps, order is kept.

use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use tidemill_tests::{Host, Moments, Writer, component, kill_under_load};

const CARRIERS: [&str; 5] = ["UA", "B6", "AA", "DL", "EV"];

/// Everything happens often: files change, segments are sealed, snapshots taken, the journal cut.
pub(crate) const BUSY: [(&str, &str); 5] = [
    ("TIDEMILL_LOG__JOURNAL_FILE_BYTES", "1MiB"),
    ("TIDEMILL_LOG__SEGMENT_AGE", "300ms"),
    ("TIDEMILL_LOG__SEGMENT_BYTES", "256KiB"),
    ("TIDEMILL_LOG__SNAPSHOT_BYTES", "1MiB"),
    ("TIDEMILL_LOG__TAIL_BYTES", "512KiB"),
];

const WRITERS: u64 = 3;

#[derive(Default)]
struct Sent {
    /// Numbers of acknowledged events by writer: all below this.
    acknowledged: Vec<(u64, u64)>,
}

#[test]
fn killed_at_random_moments_nothing_is_lost_and_nothing_is_twice() {
    let rounds: u64 = std::env::var("TIDEMILL_TEST_KILLS")
        .ok()
        .map_or(50, |n| n.parse().expect("a number of rounds"));
    let carrier_delays = component("functions/carrier-delays");
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &BUSY);
    host.topic("flights", &json!({"partitions": 3, "key": "/carrier"}));
    let (status, answer) = host.deploy("carrier-delays", &carrier_delays, "?start=earliest");
    assert_eq!(status, 201, "{answer}");

    let mut sent = Sent::default();
    let mut moments = Moments::of(0x2545_f491_4f6c_dd1d);
    for round in 0..rounds {
        let until_kill = moments.next(20, 250);
        let wrote = kill_under_load(host, "flights", WRITERS, until_kill, |writer| {
            write(writer, round * WRITERS + writer.number)
        });
        sent.acknowledged.extend(wrote);
        host = Host::start(dir.path(), &BUSY);
        if round % 10 == 9 || round + 1 == rounds {
            check(&host, &sent);
        }
    }
    assert!(host.terminate().success(), "a graceful stop");
    let host = Host::start(dir.path(), &BUSY);
    check(&host, &sent);
}

/// Appends batches; gives the writer's number and how many of its events were acknowledged.
fn write(writer: &Writer<'_>, number: u64) -> (u64, u64) {
    let mut next = 0;
    loop {
        let event = |n| {
            let carrier = CARRIERS[usize::try_from((n + number) % 5).unwrap()];
            json!({"carrier": carrier, "dep_delay": n % 60, "writer": number, "n": n})
        };
        let events = (next..next + 20).map(|n| format!("{}\n", event(n)));
        match writer.append(&events.collect::<String>()) {
            Some(_) => next += 20,
            None => return (number, next),
        }
    }
}

fn check(host: &Host, sent: &Sent) {
    host.caught_up("carrier-delays");
    let flights = host.events("flights");
    let mut by_writer: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut once = HashSet::new();
    let mut order: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for event in &flights {
        let number = |field: &str| event["value"][field].as_u64().unwrap();
        let (writer, n) = (number("writer"), number("n"));
        assert!(
            once.insert((writer, n)),
            "event {n} of writer {writer} is there twice"
        );
        by_writer.entry(writer).or_default().push(n);
        let before = order.insert((writer, event["partition"].as_u64().unwrap()), n);
        assert!(
            before.is_none_or(|before| before < n),
            "order of writer {writer}"
        );
    }
    for (writer, acknowledged) in &sent.acknowledged {
        for n in 0..*acknowledged {
            assert!(
                once.contains(&(*writer, n)),
                "acknowledged event {n} of writer {writer} is lost"
            );
        }
    }

    let mut recount: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    for event in &flights {
        let entry = recount.entry(event["key"].as_str().unwrap()).or_default();
        entry.0 += 1;
        entry.1 += event["value"]["dep_delay"].as_f64().unwrap();
    }
    let mut outputs: BTreeMap<String, u64> = BTreeMap::new();
    for output in host.events("carrier-delays") {
        let count = outputs
            .entry(output["key"].as_str().unwrap().to_owned())
            .or_default();
        *count += 1;
        assert_eq!(
            output["value"]["flights"], *count,
            "outputs of a carrier count up by one: {output}"
        );
    }
    for (carrier, (count, minutes)) in recount {
        assert_eq!(outputs.get(carrier), Some(&count), "outputs of {carrier}");
        let (status, state) = host.get(&format!(
            "/v1/functions/carrier-delays/state?slot=total&key={carrier}"
        ));
        assert_eq!(status, 200, "{state}");
        let state: &Value = &state["value"];
        assert_eq!(
            (state["flights"].as_u64(), state["minutes"].as_f64()),
            (Some(count), Some(minutes)),
            "state of {carrier}"
        );
    }
    let (_, report) = host.get("/v1/functions/carrier-delays");
    let counts = &report["counts"];
    assert_eq!(counts["in"], flights.len(), "{report}");
    assert_eq!(counts["emitted"], flights.len(), "{report}");
}
