//! A whole month through all four functions, against figures computed from the raw file alone.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use carrier_delays::{Delays, carrier_delays};
use delayed_flights::{Delayed, delayed_flights};
use flate2::read::GzDecoder;
use parse_flights::{Flight, parse_flights};
use route_alerts::{Alert, Change, route_alerts};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use tidemill::prelude::*;

fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "data", name]
        .iter()
        .collect()
}

/// The rows as `tidemill produce` sends a CSV file: objects of texts.
fn raw_rows() -> Vec<BTreeMap<String, String>> {
    let mut text = String::new();
    let file = File::open(data("flights-2013-01.csv.gz")).expect("shipped data");
    GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("gzip");
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().expect("header").split(',').collect();
    let row = |line: &str| {
        names
            .iter()
            .zip(line.split(','))
            .map(|(name, field)| ((*name).to_owned(), field.to_owned()))
            .collect()
    };
    lines.map(row).collect()
}

#[test]
fn january_adds_up() {
    let expected: Value = figures_of("expected-2013-01.json");
    let mut parse = Driver::of(parse_flights);
    let rows = raw_rows();
    assert_eq!(expected["rows"], rows.len());
    for row in &rows {
        parse.send_event(Given::json(row));
    }
    let flights = parse.output::<Flight>("flights");
    assert_eq!((flights.len(), parse.dead_letters().len()), (rows.len(), 0));

    let (mut delayed, mut carriers, mut routes) = (
        Driver::of(delayed_flights),
        Driver::of(carrier_delays),
        Driver::of(route_alerts),
    );
    for flight in &flights {
        for driver in [&mut delayed, &mut carriers, &mut routes] {
            driver.send(flight.key.as_deref().expect("key"), &flight.value);
        }
    }
    assert_eq!(
        expected["delayed"],
        delayed.output::<Delayed>("delayed-flights").len()
    );
    assert_eq!(expected["without_departure_delay"], carriers.skipped());
    for (carrier, figures) in expected["carriers"].as_object().expect("carriers") {
        let Some(total) = carriers.state::<Delays>("total", carrier) else {
            panic!("nothing of {carrier}")
        };
        let same = figures["flights"] == total.flights
            && figures["minutes"].as_f64() == Some(total.minutes);
        assert!(
            same && figures["worst"].as_f64() == Some(total.worst),
            "{carrier}: {total:?} instead of {figures}"
        );
    }
    let alerts = routes.output::<Alert>("route-alerts");
    assert_eq!(expected["route_alerts"], alerts.len());
    let count = |change: Change| {
        alerts
            .iter()
            .filter(|alert| alert.value.alert == change)
            .count()
    };
    assert_eq!(expected["route_alerts_of"]["raised"], count(Change::Raised));
    assert_eq!(
        expected["route_alerts_of"]["cleared"],
        count(Change::Cleared)
    );
}

fn figures_of(name: &str) -> Value {
    std::fs::read_to_string(data(name))
        .expect("shipped figures")
        .parse()
        .expect("JSON")
}
