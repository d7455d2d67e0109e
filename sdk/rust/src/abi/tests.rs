//! The layouts against the golden bytes of `wit/golden`, and against themselves.

use super::*;
use crate::abi::answer::HasValue;
use proptest::prelude::*;

fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/../../wit/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    text.lines()
        .flat_map(|line| {
            line.split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace()
        })
        .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"))
        .collect()
}

fn headers(headers: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in headers {
        encode_header(&mut out, name, value).expect("short");
    }
    out
}

fn golden_events() -> Vec<PackedEvent> {
    let view = golden("batch");
    BatchView::parse(&view).expect("golden batch").events()
}

#[test]
fn the_golden_batch_is_read() {
    let bytes = golden("batch");
    let view = BatchView::parse(&bytes).expect("golden batch");
    assert_eq!((view.count(), view.slots(), view.keys()), (3, 1, 2));
    let row = view.row(0).expect("row");
    assert_eq!(
        (row.key, row.value, row.offset),
        (Some(b"UA".as_slice()), Some(b"{\"n\":1}".as_slice()), 12)
    );
    assert_eq!(
        row.headers.collect::<Vec<_>>(),
        [("source", b"gate-3".as_slice())]
    );
    let row = view.row(2).expect("row");
    assert_eq!((row.key, row.value, row.offset), (None, None, 15));
    assert_eq!(
        [0, 1, 2].map(|event| view.key_number(event)),
        [Some(0), Some(0), Some(1)]
    );
    assert_eq!(
        (view.state(0), view.state(1)),
        (Some(b"7".as_slice()), None)
    );
}

#[test]
fn the_golden_batch_is_written() {
    let packed = pack(&golden_events(), 1, |key, _| key.map(|_| b"7".as_slice()));
    assert_eq!(packed, golden("batch"));
}

#[test]
fn the_golden_answer_is_written() {
    let mut answer = Answer::default();
    let headers = headers(&[("source", b"gate-3")]);
    let expected = golden("answer");
    let own_time = i64::from_le_bytes(expected[48..56].try_into().expect("eight bytes"));
    let emit = Emit {
        event: 0,
        output: 0,
        key: Some(b"UA"),
        headers: &headers,
        time: Some(own_time),
    };
    let written = answer.emit(&emit, |out| {
        out.extend_from_slice(b"{\"n\":8}");
        Ok::<_, String>(HasValue::Yes)
    });
    assert_eq!(written, Ok(()));
    answer.outcome(0, outcome::EFFECT, "");
    answer.outcome(1, outcome::EFFECT, "");
    answer.outcome(2, outcome::SKIP, "no value");
    let set = answer.set(1, 0, |out| {
        out.push(b'9');
        Ok::<_, String>(())
    });
    assert_eq!(set, Ok(()));
    assert_eq!(answer.finish(), Ok(expected));
}

/// 2013-01-01T10:15:00Z.
const TIME: i64 = 1_357_035_300_000_000;

fn ua(time: i64, value: &[u8], offset: u64, ingest_time: i64) -> PackedEvent {
    PackedEvent {
        time,
        key: Some(b"UA".to_vec()),
        value: Some(value.to_vec()),
        headers: Vec::new(),
        offset,
        ingest_time,
    }
}

#[test]
fn the_golden_batches_with_ends_clocks_and_timers_are_read_and_written() {
    let bytes = golden("batch-state");
    let view = BatchView::parse(&bytes).expect("golden batch");
    let ttl = Ttl {
        clock: Clock::Event,
        micros: 60_000_000,
    };
    assert_eq!((view.ttl(0), view.ttl(1)), (Some(ttl), None));
    assert_eq!(
        (view.watermark(0), view.watermark(1)),
        (Some(i64::MIN), Some(TIME - 1))
    );
    assert_eq!(
        (view.state(0), view.expires(0)),
        (Some(b"7".as_slice()), Some(TIME + 60_000_000))
    );
    assert_eq!(
        (view.state(1), view.expires(1), view.timer(0)),
        (None, None, None)
    );
    let events = [
        ua(TIME, b"1", 12, TIME + 5_000_000),
        ua(TIME + 1_000_000, b"2", 13, TIME + 5_000_000),
    ];
    let extras = Extras {
        clock: vec![i64::MIN, TIME - 1],
        ttls: &[Some(ttl), None],
        timers: None,
    };
    let stored =
        |_: Option<&[u8]>, slot| (slot == 0).then_some((TIME + 60_000_000, b"7".as_slice()));
    assert_eq!(pack_with(&events, 2, stored, &extras), bytes);

    let bytes = golden("batch-timer");
    let view = BatchView::parse(&bytes).expect("golden batch");
    assert_eq!(
        (view.timer(0), view.watermark(0)),
        (Some(Clock::Processing), Some(TIME - 1))
    );
    let timer = PackedEvent {
        headers: headers(&[("tag", b"late")]),
        ..ua(TIME, b"[1]", 3, TIME + 7)
    };
    let extras = Extras {
        clock: vec![TIME - 1],
        timers: Some(Clock::Processing),
        ..Extras::default()
    };
    assert_eq!(view.events(), std::slice::from_ref(&timer));
    assert_eq!(pack_with(&[timer], 0, |_, _| None, &extras), bytes);
}

#[test]
fn the_golden_answer_with_every_command_is_written_and_read() {
    let mut answer = Answer::default();
    answer.outcome(0, outcome::EFFECT, "");
    answer.outcome(1, outcome::EFFECT, "");
    answer.stop_for_timers();
    let tag = str::as_bytes;
    let changes = [
        (
            0,
            Change::Put {
                slot: 1,
                entry: tag("a"),
                value: tag("1"),
            },
        ),
        (0, Change::CancelTimer { tag: tag("old") }),
        (
            1,
            Change::Add {
                slot: 0,
                by: (-2_i64).to_le_bytes(),
            },
        ),
        (
            1,
            Change::Remove {
                slot: 1,
                entry: tag("b"),
            },
        ),
        (
            1,
            Change::SetTimer {
                clock: Clock::Processing,
                due: TIME,
                tag: tag("late"),
                payload: Some(tag("[1]")),
            },
        ),
        (
            1,
            Change::SetTimer {
                clock: Clock::Event,
                due: TIME - 1,
                tag: tag("soon"),
                payload: None,
            },
        ),
    ];
    for (event, change) in &changes {
        answer.change(*event, change);
    }
    let bytes = answer.finish().expect("small");
    assert_eq!(bytes, golden("answer-state"));
    let reply = Reply::parse(&bytes, 3).expect("golden answer");
    assert_eq!(
        (reply.stop, reply.commands.len()),
        (Some(ReplyStop::Timers), 6)
    );
    assert_eq!(
        reply.commands[2],
        (1, ReplyCommand::Add { slot: 0, by: -2 })
    );
}

#[test]
fn a_batch_of_another_version_is_refused() {
    let mut bytes = golden("batch");
    bytes[0] = 2;
    assert!(BatchView::parse(&bytes).is_err_and(|why| why.contains("version 2")));
    assert!(BatchView::parse(&[]).is_err());
}

fn any_event() -> impl Strategy<Value = PackedEvent> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
    let header_list = proptest::collection::vec(("[a-z]{0,5}", bytes()), 0..3);
    (
        any::<i64>(),
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        header_list,
        any::<u64>(),
        any::<i64>(),
    )
        .prop_map(|(time, key, value, list, offset, ingest_time)| {
            let list: Vec<_> = list
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_slice()))
                .collect();
            PackedEvent {
                time,
                key,
                value,
                headers: headers(&list),
                offset,
                ingest_time,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_batch_reads_back(events in proptest::collection::vec(any_event(), 0..12), slots in 0_usize..3) {
        let packed = pack(&events, slots, |key, slot| if slot == 1 { None } else { key.map(|_| b"x".as_slice()) });
        let view = BatchView::parse(&packed).expect("own batch");
        prop_assert_eq!(view.events(), events);
    }

    #[test]
    fn damaged_batches_never_panic(
        name in prop::sample::select(vec!["batch", "batch-state", "batch-timer"]),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = golden(name);
        let len = bytes.len();
        bytes[at.index(len)] = value;
        bytes.truncate(cut.index(len + 1));
        if let Ok(view) = BatchView::parse(&bytes) {
            for event in 0..view.count().min(10) {
                if let Ok(row) = view.row(event) {
                    let _ = row.headers.count();
                }
                let _ = (view.key_number(event), view.watermark(event), view.timer(event));
            }
            for cell in 0..4 {
                let _ = (view.state(cell), view.expires(cell), view.ttl(cell));
            }
        }
    }
}
