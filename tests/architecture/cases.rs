//! Every behaviour that was agreed on is tested somewhere: `tests/cases/index.json` says where.

use crate::repository;
use serde_json::Value;

/// The agreed cases of the log's and the functions' areas: area, what ids begin with, the numbers of the first order, those
/// of the second.
const AGREED: [(&str, &str, &[u8], &[u8]); 16] = [
    ("log", "S-LOG-", &[1, 3], &[2]),
    ("producer", "S-PRD-", &[1, 3, 4], &[2]),
    ("compaction", "S-CMP-", &[1, 2, 3, 4], &[]),
    ("lag", "S-LAG-", &[2], &[1]),
    ("data", "S-DAT-", &[1, 2, 3, 4, 6], &[5]),
    ("storage", "SX-", &[21, 22], &[]),
    ("crash", "SX-", &[23, 24], &[]),
    ("admin", "SX-", &[20], &[]),
    ("transactions", "S-TXN-", &[1, 2], &[3]),
    ("determinism", "S-DET-", &[1], &[]),
    ("watermark", "S-WMK-", &[1, 2, 3], &[]),
    ("timers", "S-TMR-", &[1, 2, 3], &[]),
    ("state_ttl", "S-TMR-", &[4], &[]),
    ("event_sourcing", "S-EVS-", &[1], &[2]),
    ("sandbox", "SX-", &[12, 13, 14, 15, 17, 18], &[]),
    ("deploy", "SX-", &[9, 10, 11, 19], &[16]),
];

#[test]
fn every_agreed_case_is_tested() {
    let text = |file: &str| {
        let path = repository().join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let index: Vec<Value> = serde_json::from_str(&text("tests/cases/index.json")).expect("JSON");
    for (area, prefix, first, second) in AGREED {
        let numbers = first
            .iter()
            .map(|n| (n, 1))
            .chain(second.iter().map(|n| (n, 2)));
        for (number, prio) in numbers {
            let id = format!("{prefix}{number:02}");
            let entry = index.iter().find(|entry| entry["id"] == *id);
            let entry = entry.unwrap_or_else(|| panic!("{id} is not in tests/cases/index.json"));
            assert_eq!(
                (&entry["area"], &entry["prio"]),
                (&area.into(), &prio.into()),
                "{id}"
            );
        }
    }
    for entry in &index {
        let id = entry["id"].as_str().expect("id");
        let tested = entry["tested"].as_array().expect("tested");
        assert!(!tested.is_empty(), "{id} is tested nowhere");
        for place in tested {
            let place = place.as_str().expect("a place");
            let (file, what) = match place.split_once(": ") {
                Some((file, test)) => (file, format!("fn {test}(")),
                None => (place, format!("\"id\": \"{id}")),
            };
            assert!(text(file).contains(&what), "{id}: {file} has no {what}");
        }
    }
}
