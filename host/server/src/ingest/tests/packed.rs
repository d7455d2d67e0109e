//! Packed batches.

use super::super::intake::{KeyFrom, TimeSource};
use super::super::packed::Front;
use super::super::rows::Rows;
use super::intake;
use proptest::prelude::*;
use tidemill_types::{PackedRows, RowView, Timestamp, partition_of_key};

pub(super) fn packed(rows: &PackedRows) -> Vec<u8> {
    let mut body = Vec::new();
    for field in [
        1,
        u32::try_from(rows.len()).unwrap(),
        u32::try_from(rows.payload.len()).unwrap(),
        0,
    ] {
        body.extend(field.to_le_bytes());
    }
    body.extend(rows.heads.iter().flat_map(|head| head.to_bytes()));
    body.extend(&rows.payload);
    body
}

/// Takes a packed body that arrives in parts of this length.
fn unpack(body: &[u8], part: usize) -> Result<(Rows, Vec<u8>), String> {
    let plan = intake(KeyFrom::Null, TimeSource::Given(1));
    let (mut front, mut payload) = (Front::default(), Vec::new());
    body.chunks(part)
        .for_each(|bytes| front.take(bytes, &mut payload));
    let mut rows = Rows::over(payload.len());
    front
        .finish(&plan, &mut rows, &payload)
        .map_err(|problem| problem.detail)?;
    Ok((rows, payload))
}

#[test]
fn packed_batches_are_taken_as_they_are() {
    let mut rows = PackedRows::default();
    rows.push(
        Timestamp::from_micros(5),
        Some(b"UA"),
        Some(b"anything"),
        [("h", b"v".as_slice())],
    )
    .unwrap();
    rows.push(Timestamp::from_micros(i64::MIN), None, None, [])
        .unwrap();
    let body = packed(&rows);
    for part in [1, 7, 16, 40, 1000] {
        let (taken, payload) = unpack(&body, part).unwrap();
        assert_eq!(payload, rows.payload);
        assert_eq!(taken.heads[0], rows.heads[0]);
        assert_eq!(taken.heads[1].time, 7, "the time of acceptance");
        assert_eq!(taken.partitions, [partition_of_key(b"UA", 4), 3]);
    }
    let broken = |at: usize, byte: u8| {
        let mut body = body.clone();
        body[at] = byte;
        unpack(&body, 64).map(|_| ()).unwrap_err()
    };
    assert!(broken(0, 2).contains("version 2"));
    assert!(broken(4, 9).contains("announces 9 rows"));
    assert!(broken(8, 0).contains("bytes of payload"));
    assert!(broken(16 + 15, 0xff).contains("row 0 points outside"));
    assert!(broken(16 + 28, 0xff).contains("row 0 points outside"));
    assert!(broken(16 + 64 + 10, 0xff).contains("headers of row 0"));
    assert!(unpack(&body[..10], 64).is_err_and(|why| why.contains("10 bytes")));
    assert!(unpack(&body[..body.len() - 1], 64).is_err_and(|why| why.contains("the body has")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_packed_body_breaks_anything(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), part in 1_usize..50) {
        let mut rows = PackedRows::default();
        rows.push(Timestamp::from_micros(5), Some(b"UA"), Some(b"anything"), [("h", b"v".as_slice())]).unwrap();
        let mut body = packed(&rows);
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok((rows, payload)) = unpack(&body, part) {
            for head in &rows.heads {
                prop_assert!(RowView::new(*head, &payload).headers.are_valid());
            }
        }
    }
}
