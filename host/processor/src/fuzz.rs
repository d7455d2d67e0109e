//! What the processor reads back from the journal, the state store and its internal topics, of any bytes at all:
//! read or refused in words, and what is read is written back as the same bytes where there is one way to write it.

use crate::calls::{self, Recorded};
use crate::note::Note;
use crate::origin::{self, HEADER, Origin};
use crate::parked::{self, ParkedEvent};
use crate::record::Record;
use crate::stored::{StoredTimer, entry_key, split_entry};
use tidemill_fuzz::fuzz;
use tidemill_state::{Change, Changes, Scope};
use tidemill_types::{CommitSeq, Error, Event, FunctionId, PackedRows, Timestamp};

/// What a refusal is told by.
fn told(error: &Error) -> String {
    assert!(!error.detail.is_empty());
    error.code.to_string()
}

/// The bytes that a target's corpus begins with, of some lengths.
fn begins(head: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
    let of = |length: &usize| {
        let mut bytes = head.to_vec();
        bytes.resize(*length, 0);
        bytes
    };
    lengths.iter().map(of).collect()
}

/// Sets the version to one of those there are, so that what lies behind it is reached.
fn of_version(most: u8) -> impl Fn(&mut Vec<u8>) {
    move |bytes| {
        if let Some(first) = bytes.first_mut() {
            *first = *first % most + 1;
        }
    }
}

#[test]
fn call_records() {
    let mut answered = vec![1, 0, 200, 0, 3, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0];
    answered.extend([7; 32]);
    answered.extend(b"\x01\0\x01\0\0\0a1yes");
    let mut failed = vec![1, 3, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    failed.extend([7; 32]);
    failed.extend(b"no answer in time");
    fuzz(
        "call-record",
        &[answered, failed],
        of_version(1),
        |bytes| match Recorded::of(bytes) {
            Err(error) => told(&error),
            Ok(read) => {
                let told = (read.digest, read.failures, read.version);
                let written = calls::write(&read.outcome, told).expect("it was read");
                assert_eq!(written, bytes);
                match read.outcome {
                    Ok(answer) => format!("{} headers", "x".repeat(answer.headers.len().min(3))),
                    Err(error) => format!("{:?}", error.kind),
                }
            }
        },
    );
}

#[test]
fn call_keys() {
    let seed = vec![0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3];
    fuzz(
        "call-key",
        &[seed],
        |_| {},
        |bytes| match calls::from_key(bytes) {
            Err(error) => told(&error),
            Ok(subject) => {
                let call = u16::from_be_bytes([bytes[13], bytes[14]]);
                assert_eq!(calls::key_of(subject, call), bytes);
                format!("{:?}", subject.kind)
            }
        },
    );
}

#[test]
fn notes() {
    let several = Note::default().reading(2).encode();
    let mut seeds = begins(&[3, 1, 0, 0, 2], &[168, 264]);
    seeds.extend(begins(&[1], &[88]));
    seeds.extend(begins(&[2], &[112]));
    seeds.extend([Note::default().encode(), several]);
    fuzz("note", &seeds, of_version(4), |bytes| {
        match Note::decode(bytes) {
            Err(error) => told(&error),
            Ok(note) => {
                let written = note.encode();
                assert_eq!(Note::decode(&written).expect("its own bytes"), note);
                format!(
                    "{:?} of {}",
                    note.front.is_some(),
                    "x".repeat(written.len() % 7)
                )
            }
        }
    });
}

#[test]
fn origins() {
    let seeds = [
        vec![1, 1, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'U', b'A'],
        vec![
            2, 6, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
        ],
    ];
    fuzz("origin", &seeds, of_version(2), |bytes| {
        let mut rows = PackedRows::default();
        let headers = [(HEADER, bytes), ("a", b"1".as_slice())];
        rows.push(Timestamp::from_micros(0), None, None, headers)
            .expect("it fits");
        let event = Event {
            offset: 9,
            ingest_time: Timestamp::from_micros(0),
            commit: CommitSeq(1),
            row: rows.event(0),
        };
        let is_mark = origin::is_mark(&event);
        match origin::take(event) {
            Err(error) => {
                assert!(!is_mark);
                told(&error)
            }
            Ok((event, origin)) => {
                assert_eq!(event.row.headers.count(), 1, "the sender's own stay");
                let mut written = Vec::new();
                origin.encode(&mut written);
                assert_eq!(written, bytes);
                let Origin { moved, reached, .. } = origin;
                assert!(!is_mark || reached.is_some());
                format!("{moved:?} {}", reached.is_some())
            }
        }
    });
}

#[test]
fn parked_events() {
    let mut whole = vec![2, 3, 1, 0];
    whole.resize(88, 0);
    (whole[64], whole[68], whole[72], whole[76]) = (1, 2, 8, 3);
    whole.extend(b"kvv\x01\0\x01\0\0\0a1why");
    let mut seeds = begins(&[2], &[88]);
    seeds.extend(begins(&[1], &[80]));
    seeds.push(whole);
    let scope = Scope {
        function: FunctionId(1),
        partition: 1 << 31,
    };
    fuzz(
        "parked",
        &seeds,
        of_version(2),
        |bytes| match ParkedEvent::read(bytes) {
            Err(error) => told(&error),
            Ok(event) => {
                let mut changes = Changes::new(scope);
                event.write(7, &mut changes);
                let section = changes.into_bytes();
                let mut written = tidemill_state::ChangesReader::new(&section).expect("its own");
                let Some(Change::Set { key, value, .. }) = written.next() else {
                    panic!("it is set");
                };
                assert_eq!(parked::from_key(key).expect("its own"), 7);
                assert_eq!(
                    ParkedEvent::read(value).expect("its own").place(),
                    event.place()
                );
                assert_eq!(event.bytes(), value.len() as u64);
                let cause = event.cause.map(|(reason, _)| reason);
                format!(
                    "{cause:?} {} {}",
                    event.key.is_some(),
                    event.topic.is_some()
                )
            }
        },
    );
}

#[test]
fn timers_and_entries() {
    let seeds = [
        begins(&[1, 1, 1], &[20]).remove(0),
        entry_key(b"a\0key", b"tag"),
    ];
    fuzz(
        "timer",
        &seeds,
        |_| {},
        |bytes| {
            let entry = split_entry(bytes).map(|(key, entry)| {
                assert_eq!(entry_key(&key, entry), bytes);
                !entry.is_empty()
            });
            match StoredTimer::read(bytes) {
                Err(error) => format!("{} {entry:?}", told(&error)),
                Ok(timer) => {
                    let written = [&timer.head(), timer.payload.unwrap_or_default()].concat();
                    assert_eq!(written, &bytes[..written.len()]);
                    format!("{:?} {} {entry:?}", timer.clock, timer.payload.is_some())
                }
            }
        },
    );
}

#[test]
fn registry_entries() {
    let seed = br#"{"id":3,"version":2,"digest":"sha256:ab","bytes":9,"imports":[],"manifest":{"input":[{"topic":"a"}]},"standing":"stopped","reason":"why","since":17,"started":[4],"slots":{"total":1},"stamped":true}"#;
    fuzz(
        "registry",
        &[seed.to_vec()],
        |_| {},
        |bytes| match Record::decode("function/f", bytes) {
            Err(error) => told(&error),
            Ok((name, record)) => {
                let written = record.encode().expect("it was read");
                let again = Record::decode("function/f", &written).expect("its own bytes");
                assert_eq!(again, (name, record.clone()));
                format!("{:?}", record.standing)
            }
        },
    );
}
