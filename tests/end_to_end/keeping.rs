//! SIGKILL at random moments while events are sealed, retained and compacted: what is left is what was
//! written, at the offsets that were acknowledged; starts never go back; each key keeps its last event;
//! what a function missed is counted.

use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use tidemill_tests::{Host, Moments, Writer, component, kill_under_load};

const CARRIERS: [&str; 5] = ["UA", "B6", "AA", "DL", "EV"];
const WRITERS: u64 = 2;

/// Everything happens often.
const BUSY: [(&str, &str); 7] = [
    ("TIDEMILL_LOG__JOURNAL_FILE_BYTES", "1MiB"),
    ("TIDEMILL_LOG__SEGMENT_AGE", "100ms"),
    ("TIDEMILL_LOG__SEGMENT_BYTES", "64KiB"),
    ("TIDEMILL_LOG__SNAPSHOT_BYTES", "1MiB"),
    ("TIDEMILL_LOG__TAIL_BYTES", "16KiB"),
    ("TIDEMILL_LOG__COMPACTION_INTERVAL", "50ms"),
    ("TIDEMILL_LOG__COMPACTION_PERCENT", "10"),
];

/// Where acknowledged events are: by partition and offset, the writer and its count.
type Acknowledged = HashMap<(u64, u64), (u64, u64)>;

#[test]
fn killed_while_it_takes_away_it_takes_nothing_else() {
    let rounds: u64 = std::env::var("TIDEMILL_TEST_KILLS")
        .ok()
        .map_or(10, |n| n.parse().expect("a number of rounds"));
    let carrier_delays = component("functions/carrier-delays");
    let dir = tempfile::tempdir().unwrap();
    let mut host = Host::start(dir.path(), &BUSY);
    let retention = json!({"age": "1s", "bytes": "64KiB", "hold_for": "1s"});
    host.topic(
        "flights",
        &json!({"partitions": 2, "key": "/carrier", "retention": retention}),
    );
    host.topic(
        "carrier-delays",
        &json!({"partitions": 2, "cleanup": "compact"}),
    );
    let (status, answer) = host.deploy("carrier-delays", &carrier_delays, "?start=earliest");
    assert_eq!(status, 201, "{answer}");

    let (mut acknowledged, mut starts) = (Acknowledged::new(), BTreeMap::new());
    let mut moments = Moments::of(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        let until_kill = moments.next(400, 1200);
        let wrote = kill_under_load(host, "flights", WRITERS, until_kill, |writer| {
            write(writer, round * WRITERS + writer.number)
        });
        acknowledged.extend(wrote.into_iter().flatten());
        host = Host::start(dir.path(), &BUSY);
        check(&host, &acknowledged, &mut starts);
    }
    assert!(starts.values().all(|start| *start > 0), "{starts:?}");
    host.until("outputs are compacted", || {
        let left = host.events("carrier-delays").len();
        left as u64 * 4 < ends(&host, "carrier-delays")
    });
    check(&host, &acknowledged, &mut starts);
    assert!(host.terminate().success(), "a graceful stop");
}

/// Appends batches of one key each; gives where acknowledged events are.
fn write(writer: &Writer<'_>, number: u64) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let mut next = 0;
    loop {
        let carrier = CARRIERS[usize::try_from((next / 20 + number) % 5).unwrap()];
        let event = |n| json!({"carrier": carrier, "dep_delay": n % 60, "writer": number, "n": n});
        let events = (next..next + 20).map(|n| format!("{}\n", event(n)));
        let Some(answer) = writer.append(&events.collect::<String>()) else {
            return acknowledged;
        };
        let written = &answer["partitions"][0];
        let (partition, first) = (
            self::number(written, "partition"),
            self::number(written, "first"),
        );
        for n in 0..20 {
            acknowledged.insert((partition, first + n), (number, next + n));
        }
        next += 20;
    }
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {of}"))
}

fn ranges(host: &Host, topic: &str) -> Vec<Value> {
    let (status, answer) = host.get(&format!("/v1/topics/{topic}"));
    assert_eq!(status, 200, "{answer}");
    answer["ranges"].as_array().unwrap().clone()
}

fn ends(host: &Host, topic: &str) -> u64 {
    let ranges = ranges(host, topic);
    ranges.iter().map(|range| number(range, "end")).sum()
}

/// What is left of a partition of flights; begins again when its start moves meanwhile.
fn left(host: &Host, partition: u64, end: u64) -> Vec<Value> {
    'again: loop {
        let mut next = number(
            &ranges(host, "flights")[usize::try_from(partition).unwrap()],
            "start",
        );
        let mut events = Vec::new();
        while next < end {
            let (status, page) = host.get(&format!(
                "/v1/topics/flights/events?partition={partition}&offset={next}&limit=10000"
            ));
            if status == 416 {
                assert!(number(&page, "start") > next, "{page}");
                continue 'again;
            }
            assert_eq!(status, 200, "{page}");
            let some = page["events"].as_array().unwrap();
            assert!(!some.is_empty(), "nothing from {next} to {end}");
            next = number(some.last().unwrap(), "offset") + 1;
            events.extend(some.iter().cloned());
        }
        return events;
    }
}

fn check(host: &Host, acknowledged: &Acknowledged, starts: &mut BTreeMap<u64, u64>) {
    let report = host.caught_up("carrier-delays");
    for range in ranges(host, "flights") {
        let (partition, start) = (number(&range, "partition"), number(&range, "start"));
        let before = starts.insert(partition, start).unwrap_or(0);
        assert!(
            before <= start,
            "the start of {partition} went back from {before} to {start}"
        );
        let end = number(&range, "end");
        let lost = acknowledged
            .keys()
            .find(|at| at.0 == partition && at.1 >= end);
        assert_eq!(lost, None, "acknowledged, and {partition} ends at {end}");
        let mut next = None;
        for event in left(host, partition, end) {
            let offset = number(&event, "offset");
            assert!(
                next.is_none_or(|next| next == offset),
                "a gap before {event}"
            );
            next = Some(offset + 1);
            let value = &event["value"];
            if let Some(written) = acknowledged.get(&(partition, offset)) {
                let read = (number(value, "writer"), number(value, "n"));
                assert_eq!(read, *written, "{event}");
            }
        }
    }
    // Every offset was read once by the function, or counted as missed.
    let counts = &report["counts"];
    let seen = number(counts, "in") + number(counts, "cut_off");
    assert_eq!(seen, ends(host, "flights"), "{report}");

    let (mut last, mut before) = (BTreeMap::new(), BTreeMap::new());
    let mut outputs = host.events("carrier-delays");
    outputs.sort_by_key(|event| (number(event, "partition"), number(event, "offset")));
    for output in outputs {
        let key = output["key"].as_str().unwrap().to_owned();
        let flights = number(&output["value"], "flights");
        let earlier = before.insert(key.clone(), flights);
        assert!(
            earlier.is_none_or(|earlier| earlier < flights),
            "order of {key}: {output}"
        );
        last.insert(key, output["value"].clone());
    }
    for carrier in CARRIERS {
        let (status, state) = host.get(&format!(
            "/v1/functions/carrier-delays/state?slot=total&key={carrier}"
        ));
        let state = (status == 200).then(|| state["value"].clone());
        assert_eq!(
            last.get(carrier),
            state.as_ref(),
            "the last output of {carrier}"
        );
    }
}
