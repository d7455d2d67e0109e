//! Reading a few members of an event of about 400 bytes, beside serde_json.
//!
//! `cargo bench -p tidemill-json`

use divan::{Bencher, black_box};
use serde::Deserialize;
use serde::de::IgnoredAny;

const FLIGHT: &str = r#"{"date":"2013-01-01","dep_time":517,"sched_dep_time":515,"dep_delay":2,"arr_time":830,"sched_arr_time":819,"arr_delay":11,"carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR","dest":"IAH","route":"EWR-IAH","air_time":227,"distance":1400,"time_hour":"2013-01-01T10:00:00Z"}"#;

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Flight {
    carrier: String,
    flight: u32,
    route: String,
    dep_delay: Option<i32>,
    time_hour: String,
}

fn main() {
    divan::main();
}

#[divan::bench]
fn members(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| tidemill_json::from_str::<Flight>(black_box(FLIGHT)));
}

#[divan::bench]
fn members_serde_json(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| serde_json::from_str::<Flight>(black_box(FLIGHT)).ok());
}

#[divan::bench]
fn skipped(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| tidemill_json::Cursor::new(black_box(FLIGHT)).value());
}

#[divan::bench]
fn skipped_serde_json(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| serde_json::from_str::<IgnoredAny>(black_box(FLIGHT)).ok());
}
