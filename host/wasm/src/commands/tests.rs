//! Answers against golden bytes, wrong in every way, and of any bytes at all.

use super::*;
use crate::golden;
use proptest::prelude::*;

/// Everything an answer says, in a form that can be compared.
fn said(commands: &Commands<'_>) -> Vec<String> {
    let outcomes = (0..commands.processed()).map(|event| {
        format!(
            "{event} {:?} {:?}",
            commands.outcome(event),
            commands.reason(event)
        )
    });
    let effects = commands.iter().map(|(event, command)| match command {
        Command::Emit(emit) => format!(
            "{event} emit {} {:?} {:?} {:?} {:?}",
            emit.output,
            emit.key.map(String::from_utf8_lossy),
            emit.value.map(String::from_utf8_lossy),
            emit.headers.collect::<Vec<_>>(),
            emit.time,
        ),
        Command::Set { slot, value } => format!("{event} set {slot} {value:?}"),
        Command::Delete { slot } => format!("{event} delete {slot}"),
        other => format!("{event} {other:?}"),
    });
    outcomes.chain(effects).collect()
}

#[test]
fn answers_have_golden_bytes() {
    let bytes = golden::bytes("answer.hex");
    let commands = Commands::parse(&bytes, 3, 1, 1).expect("the worked example");
    assert_eq!(
        said(&commands),
        [
            r#"0 Effect """#,
            r#"1 Effect """#,
            r#"2 Skip "no value""#,
            r#"0 emit 0 Some("UA") Some("{\"n\":8}") [("source", [103, 97, 116, 101, 45, 51])] Some(Timestamp(1357035300500000))"#,
            "1 set 0 [57]",
        ]
    );
    assert_eq!(commands.stopped(), None);
}

/// One command of an answer in the making.
#[derive(Clone, Copy, Default)]
struct Row {
    op: u8,
    flags: u8,
    port: u16,
    event: u32,
    time: i64,
    lens: [u32; 3],
}

/// Lays out an answer whose commands share the payload from byte 0 on.
fn answer(stop: u8, outcomes: &[u8], rows: &[Row], payload: &[u8]) -> Vec<u8> {
    let size = |n: usize| u32::try_from(n).expect("small").to_le_bytes();
    let commands_at = 32 + outcomes.len().next_multiple_of(8);
    let payload_at = commands_at + 32 * rows.len();
    let mut out = vec![1, stop, 0, 0];
    for n in [
        outcomes.len(),
        rows.len(),
        32,
        commands_at,
        payload_at,
        payload.len(),
        0,
    ] {
        out.extend(size(n));
    }
    out.extend(outcomes);
    out.resize(commands_at, 0);
    for row in rows {
        out.extend([row.op, row.flags]);
        out.extend(row.port.to_le_bytes());
        out.extend(row.event.to_le_bytes());
        out.extend(row.time.to_le_bytes());
        for n in [0, row.lens[0], row.lens[1], row.lens[2]] {
            out.extend(n.to_le_bytes());
        }
    }
    out.extend(payload);
    out
}

const EMIT: Row = Row {
    op: 1,
    flags: 0,
    port: 0,
    event: 0,
    time: 0,
    lens: [0; 3],
};
const SET: Row = Row { op: 2, ..EMIT };
const DELETE: Row = Row { op: 3, ..EMIT };
const ADD: Row = Row { op: 4, ..EMIT };
const PUT: Row = Row { op: 5, ..EMIT };
const TIMER: Row = Row { op: 7, ..EMIT };
const REASON: Row = Row { op: 16, ..EMIT };
const STOP: Row = Row {
    op: 17,
    event: 1,
    ..EMIT
};

#[test]
fn answers_with_every_command_have_golden_bytes() {
    let bytes = golden::bytes("answer-state.hex");
    let commands = Commands::parse(&bytes, 3, 2, 0).expect("the worked example");
    assert_eq!(commands.stopped(), Some(Stop::Timers));
    let time = 1_357_035_300_000_000_i64;
    let said: Vec<_> = commands
        .iter()
        .map(|(event, command)| format!("{event} {command:?}"))
        .collect();
    let shown = |commands: [(usize, Command<'_>); 6]| {
        commands.map(|(event, command)| format!("{event} {command:?}"))
    };
    let expected = shown([
        (
            0,
            Command::Put {
                slot: 1,
                entry: b"a",
                value: b"1",
            },
        ),
        (0, Command::CancelTimer { tag: b"old" }),
        (1, Command::Add { slot: 0, by: -2 }),
        (
            1,
            Command::Remove {
                slot: 1,
                entry: b"b",
            },
        ),
        (
            1,
            Command::SetTimer {
                clock: Clock::Processing,
                due: time,
                tag: b"late",
                payload: Some(b"[1]"),
            },
        ),
        (
            1,
            Command::SetTimer {
                clock: Clock::Event,
                due: time - 1,
                tag: b"soon",
                payload: None,
            },
        ),
    ]);
    assert_eq!(said, expected);
}

#[test]
fn a_stop_leaves_the_events_before_it() {
    let reason = Row {
        lens: [0, 4, 0],
        ..STOP
    };
    let bytes = answer(1, &[1], &[EMIT, DELETE, reason], b"wait");
    let commands = Commands::parse(&bytes, 5, 1, 1).expect("a stop");
    assert_eq!(commands.processed(), 1);
    assert_eq!(commands.stopped(), Some(Stop::Retry("wait")));
    assert_eq!(
        said(&commands),
        [
            r#"0 Effect """#,
            r#"0 emit 0 None Some("") [] None"#,
            "0 delete 0"
        ]
    );

    let bytes = answer(2, &[], &[Row { event: 0, ..STOP }], b"");
    let commands = Commands::parse(&bytes, 1, 0, 0).expect("a stop by the first event");
    assert_eq!(
        (commands.processed(), commands.stopped()),
        (0, Some(Stop::Fatal("")))
    );

    let bytes = answer(2, &[0], &[], b"");
    let commands = Commands::parse(&bytes, 2, 0, 0).expect("a stop without words");
    assert_eq!(commands.stopped(), Some(Stop::Fatal("")));
}

#[test]
fn null_and_empty_differ() {
    let rows = [
        Row {
            flags: 1 | 2,
            ..EMIT
        },
        Row { port: 1, ..EMIT },
    ];
    let bytes = answer(0, &[1], &rows, b"");
    let commands = Commands::parse(&bytes, 1, 0, 2).expect("two outputs");
    let emits: Vec<_> = commands
        .iter()
        .map(|(_, command)| match command {
            Command::Emit(emit) => (emit.key, emit.value),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        emits,
        [(Some(b"".as_slice()), None), (None, Some(b"".as_slice()))]
    );
}

#[test]
fn wrong_answers_are_refused_with_their_place() {
    let one = |outcome: u8, rows: &[Row]| answer(0, &[outcome], rows, b"\x01\0\0\0\0\0\xff");
    let good = |rows: &[Row]| one(1, rows);
    let poke = |at: usize, byte: u8| {
        let mut bytes = good(&[EMIT]);
        bytes[at] = byte;
        bytes
    };
    let cases: &[(Vec<u8>, &str)] = &[
        (vec![1; 31], "byte 31: the answer ends inside its header"),
        (poke(0, 2), "byte 0: version 2"),
        (poke(1, 4), "byte 1: stop is 4"),
        (answer(3, &[], &[], b""), "byte 4: no event set a timer"),
        (poke(2, 1), "byte 2: an unused byte"),
        (poke(31, 1), "byte 31: an unused byte"),
        (poke(4, 0), "byte 4: 0 of 1 events"),
        (poke(4, 2), "byte 4: 2 of 1 events"),
        (
            poke(1, 1),
            "byte 4: 1 of 1 events have an outcome, none is left",
        ),
        (poke(12, 33), "byte 12: a block starts at 33"),
        (poke(12, 24), "byte 12: a block starts at 24"),
        (poke(15, 0x80), "byte 12: a block reaches from 2147483680"),
        (poke(11, 0xff), "byte 16: a block reaches from 40"),
        (poke(27, 0xff), "byte 20: a block reaches from 72"),
        (poke(32, 5), "byte 32: event 0 has the unknown outcome 5"),
        (poke(40, 9), "byte 40: command 0: unknown operation 9"),
        (
            poke(59, 0xff),
            "byte 40: command 0: its bytes reach to 4278190080",
        ),
        (
            good(&[Row {
                lens: [u32::MAX; 3],
                ..EMIT
            }]),
            "reach to 12884901885",
        ),
        (good(&[Row { event: 1, ..EMIT }]), "event 1 has no outcome"),
        (
            good(&[EMIT, Row { port: 2, ..EMIT }]),
            "byte 72: command 1: output 2 of 1",
        ),
        (good(&[Row { flags: 8, ..EMIT }]), "unknown flags 8"),
        (
            good(&[Row {
                lens: [1, 0, 0],
                ..EMIT
            }]),
            "a null key with bytes",
        ),
        (
            good(&[Row {
                flags: 2,
                lens: [0, 1, 0],
                ..EMIT
            }]),
            "a tombstone with a value",
        ),
        (good(&[Row { time: 1, ..EMIT }]), "a time without its flag"),
        (
            good(&[Row {
                lens: [0, 0, 5],
                ..EMIT
            }]),
            "headers that are cut off",
        ),
        (
            good(&[Row {
                lens: [0, 0, 7],
                ..EMIT
            }]),
            "names are not UTF-8",
        ),
        (good(&[Row { port: 1, ..SET }]), "slot 1 of 1"),
        (good(&[Row { flags: 1, ..SET }]), "where there are none"),
        (
            good(&[Row {
                lens: [1, 0, 0],
                ..SET
            }]),
            "where there are none",
        ),
        (
            good(&[Row {
                lens: [0, 1, 0],
                ..DELETE
            }]),
            "a deletion with a value",
        ),
        (
            good(&[SET, DELETE]),
            "byte 72: command 1: a second change of slot 0 by event 0",
        ),
        (one(0, &[EMIT]), "whose outcome 0 has none"),
        (one(2, &[SET]), "whose outcome 2 has none"),
        (one(1, &[REASON]), "whose outcome 1 needs none"),
        (one(3, &[REASON, REASON]), "a second reason for event 0"),
        (
            one(4, &[Row { port: 1, ..REASON }]),
            "port 1 where there is none",
        ),
        (
            one(
                4,
                &[Row {
                    lens: [0, 7, 0],
                    ..REASON
                }],
            ),
            "a reason that is not UTF-8",
        ),
        (good(&[STOP]), "nothing stopped the batch"),
        (good(&[ADD]), "an addition of 0 bytes, not 8"),
        (
            good(&[
                SET,
                Row {
                    lens: [0, 8, 0],
                    ..ADD
                },
            ]),
            "its bytes reach to 8",
        ),
        (good(&[Row { port: 1, ..PUT }]), "slot 1 of 1"),
        (good(&[Row { time: 1, ..PUT }]), "where there are none"),
        (
            good(&[Row {
                op: 6,
                lens: [0, 1, 0],
                ..PUT
            }]),
            "a removal with a value",
        ),
        (good(&[Row { port: 2, ..TIMER }]), "the unknown time 2"),
        (
            good(&[Row {
                lens: [0, 1, 0],
                ..TIMER
            }]),
            "a timer's payload without its flag",
        ),
        (
            good(&[Row { flags: 2, ..TIMER }]),
            "unknown flags or headers of a timer",
        ),
        (
            good(&[Row {
                op: 8,
                time: 1,
                ..TIMER
            }]),
            "of a timer that is cancelled",
        ),
    ];
    for (bytes, expected) in cases {
        let error = Commands::parse(bytes, 1, 1, 1).expect_err(expected);
        assert!(error.contains(expected), "{error:?} is not {expected:?}");
    }
    let more: &[(Vec<u8>, &str)] = &[
        (
            answer(0, &[1, 1], &[Row { event: 1, ..EMIT }, EMIT], b""),
            "event 0 behind event 1",
        ),
        (
            answer(1, &[1], &[Row { event: 0, ..STOP }], b""),
            "event 1 stopped the batch, not event 0",
        ),
        (
            answer(1, &[1], &[STOP, STOP], b""),
            "a second reason of the stop",
        ),
        (
            answer(1, &[1], &[Row { event: 1, ..EMIT }], b""),
            "event 1 has no outcome",
        ),
    ];
    for (bytes, expected) in more {
        let error = Commands::parse(bytes, 2, 1, 1).expect_err(expected);
        assert!(error.contains(expected), "{error:?} is not {expected:?}");
    }
}

#[test]
fn one_event_may_touch_each_slot_once_and_the_next_event_again() {
    let rows = [SET, Row { port: 63, ..DELETE }, Row { event: 1, ..SET }];
    let bytes = answer(0, &[1, 1], &rows, b"");
    let commands = Commands::parse(&bytes, 2, 64, 0).expect("three slots touched");
    assert_eq!(commands.iter().count(), 3);
}

/// Walks everything; what was believed must not panic.
fn walk(bytes: &[u8], events: usize) -> bool {
    let Ok(commands) = Commands::parse(bytes, events, 2, 2) else {
        return false;
    };
    said(&commands);
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), fix in any::<bool>()) {
        if fix && bytes.len() >= 32 {
            bytes[..32].copy_from_slice(&golden::bytes("answer.hex")[..32]);
        }
        walk(&bytes, 3);
    }

    #[test]
    fn damaged_answers_are_read_or_refused(at in 0usize..172, byte in any::<u8>(), cut in 0usize..=172) {
        let mut bytes = golden::bytes("answer.hex");
        bytes[at] = byte;
        bytes.truncate(cut);
        let read = walk(&bytes, 3);
        prop_assert!(!read || cut == 172, "an answer that is cut off was believed");
    }

    #[test]
    fn sound_answers_say_what_was_packed(
        outcomes in proptest::collection::vec(0u8..5, 1..8),
        outputs in proptest::collection::vec(0u16..2, 0..4),
        values in proptest::collection::vec("\\PC{0,9}", 1..4),
    ) {
        let payload = values.concat();
        let len = u32::try_from(payload.len()).expect("small");
        let mut rows = Vec::new();
        let mut expected = Vec::new();
        for (event, outcome) in (0u32..).zip(&outcomes) {
            if *outcome == 1 {
                for port in &outputs {
                    rows.push(Row { port: *port, event, lens: [0, len, 0], ..EMIT });
                    expected.push(format!("{event} emit {port} None Some({payload:?}) [] None"));
                }
            } else if *outcome > 1 {
                rows.push(Row { event, lens: [0, len, 0], ..REASON });
            }
        }
        let bytes = answer(0, &outcomes, &rows, payload.as_bytes());
        let commands = Commands::parse(&bytes, outcomes.len(), 0, 2).expect("a sound answer");
        prop_assert_eq!(&said(&commands)[outcomes.len()..], expected);
        for (event, outcome) in outcomes.iter().enumerate() {
            prop_assert_eq!(commands.reason(event), if *outcome > 1 { payload.as_str() } else { "" });
        }
    }
}
