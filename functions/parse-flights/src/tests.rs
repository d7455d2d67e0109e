//! Rows as they were published, and rows as they should not be.

use super::{Flight, parse_flights};
use tidemill::prelude::*;

fn row() -> Value {
    json!({
        "year": "2013", "month": "1", "day": "1", "dep_time": "517", "sched_dep_time": "515", "dep_delay": "2",
        "arr_time": "830", "sched_arr_time": "819", "arr_delay": "11", "carrier": "UA", "flight": "1545",
        "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "air_time": "227", "distance": "1400", "hour": "5",
        "minute": "15", "time_hour": "2013-01-01T10:00:00Z"
    })
}

fn with(changes: Value) -> Value {
    let mut row = row();
    for (name, value) in changes.as_object().expect("object") {
        row[name] = value.clone();
    }
    row
}

#[test]
fn a_good_row_becomes_a_flight() {
    let mut t = Driver::of(parse_flights);
    t.send_event(Given::json(row()));
    let flights = t.output::<Flight>("flights");
    let [flight] = flights.as_slice() else {
        panic!("{flights:?}")
    };
    assert_eq!(flight.key_str(), Some("UA"));
    assert_eq!(flight.time.to_string(), "2013-01-01T10:00:00Z");
    assert_eq!(
        (flight.value.route.as_str(), flight.value.date.as_str()),
        ("EWR-IAH", "2013-01-01")
    );
    assert_eq!(
        (
            flight.value.dep_delay,
            flight.value.flight,
            flight.value.distance
        ),
        (Some(2), 1545, 1400)
    );
}

#[test]
fn missing_values_become_null() {
    let mut t = Driver::of(parse_flights);
    t.send_event(Given::json(with(json!({
        "dep_time": "NA", "dep_delay": "NA", "arr_time": "NA", "arr_delay": "NA", "air_time": "NA", "tailnum": "NA"
    }))));
    let flight = t.output::<Value>("flights").remove(0).value;
    for field in [
        "dep_time",
        "dep_delay",
        "arr_time",
        "arr_delay",
        "air_time",
        "tailnum",
    ] {
        assert_eq!(flight.get(field), Some(&Value::Null), "{field}");
    }
}

#[test]
fn bad_rows_are_dead_letters_that_say_why() {
    let bad = [
        (json!({"dep_delay": "two"}), "dep_delay is no number"),
        (json!({"flight": "-1"}), "flight is no number"),
        (json!({"distance": "99999999999"}), "distance is no number"),
        (json!({"carrier": "NA"}), "carrier is missing"),
        (json!({"origin": ""}), "origin is missing"),
        (json!({"month": "13"}), "there is no day 2013-13-1"),
        (
            json!({"month": "2", "day": "29"}),
            "there is no day 2013-2-29",
        ),
        (json!({"dep_time": "2460"}), "dep_time is no time of day"),
        (
            json!({"time_hour": "soon"}),
            "time_hour: \"soon\" is not an RFC 3339 time",
        ),
    ];
    let mut t = Driver::of(parse_flights);
    for (changes, _) in &bad {
        t.send_event(Given::json(with(changes.clone())));
    }
    t.send_event(Given::json(row()));
    let letters = t.dead_letters();
    assert_eq!(letters.len(), bad.len());
    for (letter, (_, why)) in letters.iter().zip(&bad) {
        assert!(
            letter.error.starts_with(why),
            "{} instead of {why}",
            letter.error
        );
        assert_eq!(letter.reason, "guest");
    }
    assert_eq!(t.output::<Flight>("flights").len(), 1);
}

#[test]
fn what_is_no_row_is_undecodable() {
    let mut t = Driver::of(parse_flights);
    t.send_event(Given::raw("{\"year\": 2013}"));
    t.send_event(Given::raw("year,month"));
    let letters = t.dead_letters();
    assert_eq!(
        letters
            .iter()
            .map(|letter| letter.reason)
            .collect::<Vec<_>>(),
        ["decode", "decode"]
    );
    assert!(
        letters[0].error.contains("line 1 column"),
        "{}",
        letters[0].error
    );
}
