//! Measurements as tables.

use crate::failure::Result;
use crate::print::{self, Table, whole};
use serde_json::{Map, Value};
use std::io::Write;

/// Columns of a measurement: its field, its head, how it is shown.
type Columns = &'static [(&'static str, &'static str, Look)];

#[derive(Clone, Copy)]
enum Look {
    Text,
    Whole,
    Hundredths,
    Bytes,
}

const DISK: Columns = &[
    ("bytes", "raw write of", Look::Bytes),
    ("syncs_per_second", "syncs/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("p50_us", "p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("p999_us", "p99.9 µs", Look::Whole),
];
const INGEST: Columns = &[
    ("form", "form", Look::Text),
    ("size", "bytes", Look::Whole),
    ("batch", "events/request", Look::Whole),
    ("connections", "connections", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("of_disk", "of the disk's", Look::Hundredths),
    ("p50_us", "ack p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("p999_us", "p99.9 µs", Look::Whole),
    ("refused", "refused", Look::Whole),
    (
        "cpu_seconds_per_million",
        "CPU s/M events",
        Look::Hundredths,
    ),
    ("memory", "memory", Look::Bytes),
];
const SINGLE: Columns = &[
    ("size", "bytes", Look::Whole),
    ("connections", "connections", Look::Whole),
    ("requests_per_second", "requests/s", Look::Whole),
    ("p50_us", "ack p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("p999_us", "p99.9 µs", Look::Whole),
    ("bare_requests_per_second", "bare requests/s", Look::Whole),
    ("bare_p99_us", "bare p99 µs", Look::Whole),
    (
        "p99_of_allowed",
        "p99 / (1.5 disk + bare)",
        Look::Hundredths,
    ),
    (
        "cpu_seconds_per_million",
        "CPU s/M events",
        Look::Hundredths,
    ),
    ("memory", "memory", Look::Bytes),
];
const TAIL: Columns = &[
    ("load", "load", Look::Text),
    ("readers", "readers", Look::Whole),
    ("events_per_second", "events/s in", Look::Whole),
    ("delivered_per_second", "events/s out", Look::Whole),
    ("delivered_per_cpu_second", "out/CPU s", Look::Whole),
    ("behind_ms", "behind ms", Look::Whole),
    ("ack_p50_us", "ack p50 µs", Look::Whole),
    ("all_p50_us", "seen by all p50 µs", Look::Whole),
    ("all_p99_us", "p99 µs", Look::Whole),
    ("all_p999_us", "p99.9 µs", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const CATCH_UP: Columns = &[
    ("form", "form", Look::Text),
    ("size", "bytes", Look::Whole),
    ("readers", "readers", Look::Whole),
    ("events", "events", Look::Whole),
    ("in_segments", "in segments", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("mb_per_cpu_second", "MB/CPU s", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const SEALING: Columns = &[
    ("what", "what", Look::Text),
    ("events", "events", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("lost_percent", "lost %", Look::Hundredths),
];
const PARTITIONS: Columns = &[
    ("partitions", "partitions", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("rate_percent", "% of one's", Look::Whole),
    ("p99_us", "ack p99 µs", Look::Whole),
    ("start_ms", "start ms", Look::Whole),
    ("first_ack_ms", "first ack ms", Look::Whole),
    ("idle_memory", "idle memory", Look::Bytes),
];
const RESTART: Columns = &[
    ("journal_bytes", "journal", Look::Bytes),
    ("answer_ms", "start ms", Look::Whole),
    ("first_ack_ms", "first ack ms", Look::Whole),
    ("cpu_seconds", "CPU s", Look::Hundredths),
    ("memory", "memory", Look::Bytes),
];
const LATENCY: Columns = &[
    ("functions", "functions", Look::Whole),
    ("events", "events", Look::Whole),
    ("ack_p50_us", "ack p50 µs", Look::Whole),
    ("ack_p99_us", "p99 µs", Look::Whole),
    ("visible_p50_us", "output visible p50 µs", Look::Whole),
    ("visible_p99_us", "p99 µs", Look::Whole),
];
const FUNCTIONS: Columns = &[
    ("function", "function", Look::Text),
    ("events", "events", Look::Whole),
    ("emitted", "emitted", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("events_per_engine_second", "/engine CPU s", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const PEERS: Columns = &[
    ("peer", "peer", Look::Text),
    ("flush", "flush", Look::Text),
    ("way", "way", Look::Text),
    ("size", "bytes", Look::Whole),
    ("batch", "events/batch", Look::Whole),
    ("connections", "connections", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("p50_us", "ack p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("times", "here: times", Look::Hundredths),
    ("times_per_cpu", "per CPU s", Look::Hundredths),
    ("times_ndjson", "as NDJSON: times", Look::Hundredths),
    ("times_ndjson_per_cpu", "per CPU s", Look::Hundredths),
    ("memory", "memory", Look::Bytes),
    ("failed", "failed", Look::Text),
];

/// Prints each measurement that was made.
pub(super) fn print(answer: &Map<String, Value>) -> Result<()> {
    let mut out = print::stdout();
    let kinds = [
        ("disk", DISK),
        ("ingest", INGEST),
        ("single", SINGLE),
        ("tail", TAIL),
        ("catch-up", CATCH_UP),
        ("sealing", SEALING),
        ("partitions", PARTITIONS),
        ("restart", RESTART),
        ("latency", LATENCY),
        ("functions", FUNCTIONS),
        ("peers", PEERS),
    ];
    for (name, columns) in kinds {
        let Some(rows) = answer.get(name).and_then(Value::as_array) else {
            continue;
        };
        writeln!(out, "{name}")?;
        table(columns, rows).write(&mut out)?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

fn table(columns: Columns, rows: &[Value]) -> Table {
    let heads: Vec<&'static str> = columns.iter().map(|(_, head, _)| *head).collect();
    let mut table = Table::new(&heads);
    for row in rows {
        table.row(
            columns
                .iter()
                .map(|(field, _, look)| shown(&row[*field], *look))
                .collect(),
        );
    }
    table
}

fn shown(value: &Value, look: Look) -> String {
    // Memory is told as the most there was.
    let value = value.get("most").unwrap_or(value);
    match (look, value.as_f64()) {
        (Look::Whole, Some(number)) => whole(number),
        (Look::Hundredths, Some(number)) => format!("{number:.2}"),
        (Look::Bytes, Some(_)) => print::bytes(value.as_u64().unwrap_or(0)),
        _ => print::cell(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_shown_for_people() {
        let row = json!({"function": "f", "events": 270_040, "events_per_second": 1_234_567.8, "memory": {"now": 1, "most": 52_428_800}});
        let mut out = Vec::new();
        table(FUNCTIONS, &[row]).write(&mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        for part in ["270,040", "1,234,568", "50.0 MiB"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
