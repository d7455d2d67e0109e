//! Bodies of any bytes at all, in every form: taken or refused, and what is taken lies within the body.

use super::super::intake::{KeyFrom, TimeSource};
use super::super::packed::Front;
use super::super::rows::Rows;
use super::{Each, intake, pointer, take_document, take_lines};
use crate::ingest::intake::Intake;
use serde_json::value::RawValue;
use tidemill_fuzz::fuzz;
use tidemill_log::TimeUnit;
use tidemill_types::{PackedRows, RowView, Timestamp};

fn plan() -> Intake {
    let time = TimeSource::Pointer(pointer("/t"), TimeUnit::Rfc3339);
    intake(KeyFrom::Pointer(pointer("/k")), time)
}

/// What came of a body: whether all was taken, or why not.
fn came(rows: &mut Rows, body: &[u8]) -> String {
    if let Some(refusal) = rows.refusals.first() {
        assert!(rows.refused > 0);
        return format!("refused {} {}", refusal.pointer, refusal.reason);
    }
    let mut payload = body.to_vec();
    rows.finish(&mut payload);
    assert_eq!(rows.heads.len(), rows.partitions.len());
    for (head, partition) in rows.heads.iter().zip(&rows.partitions) {
        assert!(head.fits(payload.len()));
        let row = RowView::new(*head, &payload);
        assert!(row.headers.are_valid());
        assert!(*partition < 4);
        if let Some(value) = row.value {
            let value = std::str::from_utf8(value).expect("UTF-8");
            let parsed = serde_json::from_str::<&RawValue>(value);
            assert!(parsed.is_ok(), "{value:?} was taken for JSON");
        }
    }
    format!("taken {}", "x".repeat(rows.heads.len().min(4)))
}

fn of_text(target: &str, take: impl Fn(&Intake, &mut Rows, &[u8]) -> String) {
    let plan = plan();
    fuzz(
        target,
        &[],
        |_| {},
        |body| {
            // Bodies are checked for UTF-8 as a whole before they are looked into.
            if simdutf8::basic::from_utf8(body).is_err() {
                return "not UTF-8".into();
            }
            let mut rows = Rows::over(body.len());
            let said = take(&plan, &mut rows, body);
            format!("{said} {}", came(&mut rows, body))
        },
    );
}

#[test]
fn documents() {
    for each in [Each::Value, Each::Typed] {
        of_text("json", |plan, rows, body| {
            match take_document(plan, rows, body, each) {
                Ok(_) => String::new(),
                Err(problem) => {
                    // Nothing of a body that can't be read is taken.
                    *rows = Rows::over(body.len());
                    problem.detail
                }
            }
        });
    }
}

#[test]
fn lines() {
    for each in [Each::Value, Each::Typed] {
        of_text("ndjson", |plan, rows, body| {
            match take_lines(plan, rows, body, each, 1) {
                Ok(_) => String::new(),
                Err(problem) => {
                    *rows = Rows::over(body.len());
                    problem.detail
                }
            }
        });
    }
}

/// Lengths in the head as they are, so that rows are reached.
fn mend_packed(body: &mut Vec<u8>) {
    if body.len() < 16 {
        body.resize(16, 0);
    }
    let field = |body: &mut [u8], at: usize, number: usize| {
        let number = u32::try_from(number).expect("small");
        body[at..at + 4].copy_from_slice(&number.to_le_bytes());
    };
    field(body, 0, 1);
    field(body, 12, 0);
    let rows = u32::from_le_bytes(body[4..8].try_into().expect("four")) as usize;
    let rows = rows.min((body.len() - 16) / 32);
    field(body, 4, rows);
    let payload = body.len() - 16 - rows * 32;
    field(body, 8, payload);
}

#[test]
fn packed_batches() {
    let plan = plan();
    let mut rows = PackedRows::default();
    let header = [("h", b"v".as_slice())];
    for (key, value) in [
        (Some(b"UA".as_slice()), Some(b"{}".as_slice())),
        (None, None),
    ] {
        let time = Timestamp::from_micros(5);
        rows.push(time, key, value, header).expect("fits");
    }
    let seeds = [super::packed::packed(&rows)];
    fuzz("packed", &seeds, mend_packed, |body| {
        let part = body.len() % 61 + 1;
        let (mut front, mut payload) = (Front::default(), Vec::new());
        body.chunks(part)
            .for_each(|bytes| front.take(bytes, &mut payload));
        let mut rows = Rows::over(payload.len());
        if let Err(problem) = front.finish(&plan, &mut rows, &payload) {
            return problem.detail;
        }
        for head in &rows.heads {
            assert!(head.fits(payload.len()));
            assert!(RowView::new(*head, &payload).headers.are_valid());
        }
        format!("taken {}", "x".repeat(rows.heads.len().min(4)))
    });
}
