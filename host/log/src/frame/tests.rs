use super::*;
use crate::Once;
use crate::draft::Draft;
use proptest::prelude::*;
use tidemill_types::{PackedRows, ROW_HEAD_BYTES, RowHead, Timestamp, TopicId};

/// A frame with one event and one state section, byte for byte: version 1 stays readable for ever.
const GOLDEN: &str = include_str!("golden.hex");

fn golden_frame() -> Vec<u8> {
    let mut rows = PackedRows::default();
    rows.push(
        Timestamp::from_micros(-1),
        Some(b"k"),
        Some(b"v"),
        [("h", b"x".as_slice())],
    )
    .expect("fits");
    let mut draft = Draft::new();
    draft.append(TopicId(3), &rows, &[2]).expect("fits");
    draft.state(b"state");
    frame(
        draft,
        0x1122_3344_5566_7788,
        Stamp {
            seq: 7,
            durable: 5,
            time: -2,
        },
    )
}

fn frame(mut draft: Draft, nonce: u64, stamp: Stamp) -> Vec<u8> {
    draft.lay_out(1 << 26).expect("fits");
    let size = draft.bytes();
    let (body, mut facts) = draft.into_parts();
    for (nth, slice) in (0..).zip(&mut facts.slices) {
        slice.base = 9 + nth;
    }
    let mut out = Vec::new();
    let sections = u32::try_from(body.sections.len()).expect("few");
    let len = u32::try_from(body.bytes.as_slice().len()).expect("small");
    write_head(
        &mut out,
        nonce,
        stamp,
        sections,
        &facts.slices,
        len,
        body.crc,
    );
    out.extend_from_slice(body.bytes.as_slice());
    out.resize(size, 0);
    out
}

#[test]
fn what_takes_away_has_golden_bytes() {
    let mut draft = Draft::new();
    draft.truncate(crate::sequencer::Truncation {
        at: tidemill_types::PartitionId {
            topic: TopicId(3),
            partition: 2,
        },
        before: 0x0102_0304,
    });
    draft.forget(9);
    draft.lay_out(1 << 26).expect("fits");
    let (body, _) = draft.into_parts();
    let golden = [
        &[3, 0, 0, 0, 2, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0][..],
        &[9, 0, 0, 0],
        // Kind 12 at 0, 16 bytes; kind 13 at 16, 4 bytes.
        &[12, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0],
        &[0; 12],
        &[13, 0, 0, 0, 16, 0, 0, 0, 4, 0, 0, 0],
        &[0; 12],
    ];
    assert_eq!(body.bytes.as_slice(), golden.concat());
}

#[test]
fn a_frame_has_golden_bytes() {
    assert_eq!(hex(&golden_frame()), GOLDEN.trim_end());
}

/// The same of a frame that is a producer's step, and of one with an idempotency key.
#[test]
fn frames_that_must_take_effect_once_have_golden_bytes() {
    let once = |once: &Once| {
        let mut draft = Draft::new();
        draft.once(TopicId(3), once);
        let stamp = Stamp {
            seq: 7,
            durable: 5,
            time: -2,
        };
        hex(&frame(draft, 0x1122_3344_5566_7788, stamp))
    };
    let producer = Once::Producer {
        id: "sensor".into(),
        epoch: 2,
        seq: 9,
    };
    let key = Once::Key {
        key: 0x0102,
        digest: 0x0304,
    };
    let shown = format!("{}\n\n{}", once(&producer), once(&key));
    assert_eq!(shown, include_str!("golden_once.hex").trim_end());
}

fn hex(bytes: &[u8]) -> String {
    let lines: Vec<String> = bytes
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    lines.join("\n")
}

#[test]
fn a_frame_is_read_only_under_its_nonce() {
    let bytes = golden_frame();
    assert!(Head::read(&bytes, 1).is_none());
    let head = Head::read(&bytes, 0x1122_3344_5566_7788).expect("ours");
    assert_eq!(head.frame_bytes(), bytes.len());
    assert!(head.body_is_whole(&bytes));
    let sections = head.sections(&bytes[head.body()]).expect("sections");
    let kinds: Vec<Kind> = sections.iter().map(|section| section.kind).collect();
    assert_eq!(kinds, [Kind::Append, Kind::State]);
    assert_eq!((head.slices[0].base, head.slices[0].bytes), (9, 10));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn rows_come_out_sorted_by_partition_and_otherwise_as_they_went_in(
        events in prop::collection::vec((0_u32..5, prop::collection::vec(any::<u8>(), 0..20)), 1..60),
        in_place in any::<bool>(),
    ) {
        let mut rows = PackedRows::default();
        for (_, value) in &events {
            rows.push(Timestamp::from_micros(3), None, Some(value), []).expect("fits");
        }
        let partitions: Vec<u32> = events.iter().map(|(partition, _)| *partition).collect();
        let mut draft = Draft::new();
        if in_place {
            draft.payload(10).extend_from_slice(&rows.payload);
            draft.append_in_place(TopicId(1), &rows.heads, &partitions).expect("fits");
        } else {
            draft.state(b"before");
            draft.append(TopicId(1), &rows, &partitions).expect("fits");
        }
        let stamp = Stamp { seq: 1, durable: 0, time: 0 };
        let bytes = frame(draft, 4, stamp);
        let head = Head::read(&bytes, 4).expect("ours");
        prop_assert!(head.body_is_whole(&bytes));
        let body = &bytes[head.body()];
        let sections = head.sections(body).expect("sections");
        let mut seen = 0;
        for slice in &head.slices {
            let section = sections[slice.section as usize];
            let payload = &body[section.at as usize..(section.at + section.payload) as usize];
            let heads = &body[(section.at + section.payload) as usize..(section.at + section.len) as usize];
            let expected = events.iter().filter(|(partition, _)| *partition == slice.partition);
            let mut rows = 0;
            for (row, (_, value)) in (slice.first_row..).zip(expected) {
                let head = RowHead::read(&heads[row as usize * ROW_HEAD_BYTES..], 0);
                prop_assert_eq!(&payload[head.value_at as usize..][..head.value_len as usize], value.as_slice());
                rows += 1;
            }
            prop_assert_eq!(rows, slice.rows);
            seen += rows;
        }
        prop_assert_eq!(seen as usize, events.len());
    }
}
