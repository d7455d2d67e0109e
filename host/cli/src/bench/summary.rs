//! Measurements as tables.

use super::columns::{Columns, KINDS, Look};
use crate::failure::Result;
use crate::print::{self, Table, whole};
use serde_json::{Map, Value};
use std::io::Write;

/// Prints each measurement that was made.
pub(super) fn print(answer: &Map<String, Value>) -> Result<()> {
    let mut out = print::stdout();
    for (name, columns) in KINDS {
        let Some(rows) = rows(answer, name) else {
            continue;
        };
        writeln!(out, "{name}")?;
        table(columns, rows).write(&mut out)?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// The rows of a measurement, or of a part of one (`many/latency`).
fn rows<'a>(answer: &'a Map<String, Value>, name: &str) -> Option<&'a Vec<Value>> {
    let rows = match name.split_once('/') {
        None => answer.get(name),
        Some((what, part)) => answer.get(what)?.get(part),
    };
    rows?.as_array()
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
    // Memory is told as the most there was, and whether that is within its limit.
    if let (Some(most), Some(limit)) = (value["most"].as_u64(), value["limit"].as_u64()) {
        let over = if most > limit { ", OVER" } else { "" };
        return format!("{} of {}{over}", print::bytes(most), print::bytes(limit));
    }
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
    use super::super::columns::FUNCTIONS;
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_found_also_in_parts() {
        let answer = json!({"disk": [1], "many": {"host": [2, 3]}});
        let Value::Object(answer) = answer else {
            panic!("an object");
        };
        let some = |name| rows(&answer, name).map(Vec::len);
        assert_eq!((some("disk"), some("many/host")), (Some(1), Some(2)));
        assert_eq!(
            (some("many"), some("many/x"), some("x/y")),
            (None, None, None)
        );
    }

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
