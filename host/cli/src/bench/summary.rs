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
    Tenths,
    Bytes,
}

const DISK: Columns = &[
    ("bytes", "raw write of", Look::Bytes),
    ("syncs_per_second", "syncs/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("p50_us", "p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
];
const INGEST: Columns = &[
    ("connections", "connections", Look::Whole),
    ("batch", "events/request", Look::Whole),
    ("size", "bytes", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("requests_per_second", "requests/s", Look::Whole),
    ("p50_us", "ack p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("refused", "refused", Look::Whole),
    ("cpu_seconds_per_million", "CPU s/M events", Look::Tenths),
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

/// Prints each measurement that was made.
pub(super) fn print(answer: &Map<String, Value>) -> Result<()> {
    let mut out = print::stdout();
    let kinds = [
        ("disk", DISK),
        ("ingest", INGEST),
        ("single", INGEST),
        ("latency", LATENCY),
        ("functions", FUNCTIONS),
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
        (Look::Tenths, Some(number)) => format!("{number:.2}"),
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
