//! Printing: tables, JSON, failures.

use crate::args::Shape;
use crate::failure::{Exit, Failure, Result};
use serde_json::Value;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output, buffered; flush it at the end.
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, std::io::stdout().lock())
}

/// One line on standard output, at once.
pub(crate) fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// A line on standard error for whoever watches; nothing if nobody does.
pub(crate) fn note(text: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let _ = writeln!(err, "{text}");
    }
}

/// A line on standard error that whoever reads the output has to know of, terminal or not.
pub(crate) fn warning(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "warning: {text}");
}

/// A failure: the line, the hint, the code.
pub(crate) fn failure(failure: &Failure) {
    if failure.exit == Exit::Done {
        return;
    }
    let mut err = std::io::stderr().lock();
    let coloured =
        err.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let word = if coloured {
        "\x1b[1;31merror\x1b[0m"
    } else {
        "error"
    };
    let message = failure
        .message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    let _ = writeln!(err, "{word}: {message} [{}]", failure.code);
    if let Some(hint) = &failure.hint {
        let _ = writeln!(err, "hint: {hint}");
    }
}

/// Columns of text under their heads.
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Columns of numbers stand to the right; the last column is not padded.
    pub(crate) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|column| {
                cells(column)
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(self.heads[column].len())
            })
            .collect();
        let right: Vec<bool> = (0..self.heads.len())
            .map(|column| cells(column).all(|cell| is_number(cell)))
            .collect();
        let heads: Vec<String> = self.heads.iter().map(|head| loud(head)).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let line: Vec<String> = (row.iter().zip(&widths).zip(&right))
                .map(|((cell, &width), &right)| {
                    if right {
                        format!("{cell:>width$}")
                    } else {
                        format!("{cell:<width$}")
                    }
                })
                .collect();
            writeln!(out, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A head in capitals, but for units, which would mean something else.
fn loud(head: &str) -> String {
    let word = |word: &str| match word.contains(['/', 'µ']) {
        true => word.to_owned(),
        false => word.to_uppercase(),
    };
    head.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn is_number(cell: &str) -> bool {
    !cell.is_empty()
        && cell
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, ',' | '.' | '-'))
}

/// Prints an answer: as it is, its items one a line, or as the table that `table` makes of it.
pub(crate) fn answer(
    shape: Shape,
    answer: &Value,
    items: Option<&str>,
    table: impl FnOnce(&Value) -> Table,
) -> Result<()> {
    let mut out = stdout();
    match shape {
        Shape::Table => table(answer).write(&mut out)?,
        Shape::Json => {
            let text = serde_json::to_string_pretty(answer).map_err(std::io::Error::from)?;
            writeln!(out, "{text}")?;
        }
        Shape::Ndjson => match items.and_then(|items| answer[items].as_array()) {
            Some(items) => {
                for item in items {
                    writeln!(out, "{item}")?;
                }
            }
            None => writeln!(out, "{answer}")?,
        },
    }
    Ok(out.flush()?)
}

/// A value of an answer as a cell: text without quotes, nothing as a dash.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A whole number with thousands apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A measured number, rounded, with thousands apart.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and what is measured is not negative"
)]
pub(crate) fn whole(number: f64) -> String {
    count(number.round() as u64)
}

/// A number of bytes for people.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| number >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", number / unit, number % unit * 10 / unit),
        None => format!("{number} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(&["name", "events", "last"]);
        table.row(vec!["flights".into(), "12".into(), "x".into()]);
        table.row(vec!["a".into(), "1,234".into(), String::new()]);
        let mut out = Vec::new();
        table.write(&mut out).expect("writes");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "NAME     EVENTS  LAST\nflights      12  x\na         1,234\n"
        );
    }

    #[test]
    fn units_keep_their_case() {
        assert_eq!(loud("ack p50 µs"), "ACK P50 µs");
        assert_eq!(loud("MB/s"), "MB/s");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0, 1023, 1024, 1_600_000].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 MiB"]
        );
    }
}
