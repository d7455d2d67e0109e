//! Frames, manifests and marks of any bytes at all: read or refused, and what is read is written back
//! as the same bytes where there is one way to write it.

use crate::frame::{self, HEAD_BYTES, Head, Kind, SLICE_BYTES, Stamp};
use crate::{manifest, marks, open, wire};
use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use tidemill_fuzz::fuzz;

const NONCE: u64 = 0x1122_3344_5566_7788;

/// Bytes of a golden file: hexadecimal digits, lines that begin with `#` are comments.
fn golden(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: Vec<u8> = lines
        .flat_map(str::bytes)
        .filter(u8::is_ascii_hexdigit)
        .collect();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).expect("ASCII"), 16);
    digits
        .chunks_exact(2)
        .map(|two| byte(two).expect("hexadecimal"))
        .collect()
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize
}

/// Checksums as they would be, and lengths that fit, so that what lies behind them is reached.
fn mend_frame(bytes: &mut Vec<u8>) {
    if bytes.len() < HEAD_BYTES {
        bytes.resize(HEAD_BYTES, 0);
    }
    bytes[..4].copy_from_slice(b"TMFR");
    bytes[8] = 1;
    let room = (bytes.len() - HEAD_BYTES) / SLICE_BYTES;
    if u32_at(bytes, 16) > room {
        put(bytes, 16, u32::try_from(room).expect("small"));
    }
    let body_at = HEAD_BYTES + u32_at(bytes, 16) * SLICE_BYTES;
    if u32_at(bytes, 20) > bytes.len() - body_at {
        let left = u32::try_from(bytes.len() - body_at).expect("small");
        put(bytes, 20, left);
    }
    let body = crc32_iscsi(&bytes[body_at..body_at + u32_at(bytes, 20)]);
    put(bytes, 24, body);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&NONCE.to_le_bytes());
    digest.update(&bytes[8..body_at]);
    put(bytes, 4, u32::try_from(digest.finalize()).expect("32 bits"));
}

#[test]
fn frames() {
    let seeds = [
        golden(include_str!("frame/golden.hex")),
        golden(include_str!("frame/golden_once.hex")),
    ];
    fuzz("frame", &seeds, mend_frame, |bytes| {
        let Some(head) = Head::read(bytes, NONCE) else {
            return "no head".into();
        };
        assert!(head.frame_bytes() >= HEAD_BYTES);
        if !head.body_is_whole(bytes) {
            return "no body".into();
        }
        let body = bytes::Bytes::copy_from_slice(&bytes[head.body()]);
        let sections = match head.sections(&body) {
            Ok(sections) => sections,
            Err(error) => return error.detail,
        };
        for slice in &head.slices {
            let section = &sections[slice.section as usize];
            assert_eq!(section.kind, Kind::Append);
            let Stamp { seq, time, .. } = head.stamp;
            let batch = crate::shard::batch_of(&body, section, slice, seq, time);
            assert_eq!(batch.len(), slice.rows as usize);
        }
        match open::facts_of(&head, &body) {
            Ok((facts, states)) => {
                let kinds = sections.iter().map(|section| section.kind.name());
                let kinds: Vec<_> = kinds.take(3).collect();
                assert_eq!(facts.has_state, !states.is_empty());
                format!("{kinds:?}")
            }
            Err(error) => error.detail,
        }
    });
}

#[test]
fn sections() {
    let seeds = [vec![0; 28], vec![1, 1, 0, 0, 0, b'k', b'v'], vec![7; 40]];
    fuzz(
        "section",
        &seeds,
        |_| {},
        |bytes| {
            let mut read = Vec::new();
            if let Some(advance) = wire::read_advance(bytes) {
                assert_eq!(wire::advance_bytes(&advance), bytes);
                read.push("advance");
            }
            if let Some(truncation) = wire::read_truncation(bytes) {
                assert_eq!(wire::truncation_bytes(truncation), bytes);
                read.push("truncation");
            }
            if let Some((key, value)) = wire::read_entry(bytes) {
                assert_eq!(wire::entry_bytes(&key, value.as_deref()), bytes);
                read.push(if value.is_some() { "set" } else { "removed" });
            }
            if let Some(once) = wire::read_producer(bytes) {
                assert_eq!(wire::once_bytes(&once), bytes);
                read.push("producer");
            }
            if let Some(once) = wire::read_key(bytes) {
                assert_eq!(wire::once_bytes(&once), bytes);
                read.push("key");
            }
            if let Ok(topic) = wire::read_topic(bytes) {
                let again = wire::read_topic(&wire::topic_bytes(&topic));
                assert_eq!(again.expect("what was written"), topic);
                read.push("topic");
            }
            read.join(" ")
        },
    );
}

/// The envelope with the checksum of what is in it.
fn mend_manifest(bytes: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let inner = text.split_once("\"manifest\":").map(|(_, inner)| inner);
    let Some(inner) = inner.and_then(|inner| inner.strip_suffix('}')) else {
        return;
    };
    let inner = inner.trim();
    let crc = crc32_iscsi(inner.as_bytes());
    *bytes = format!("{{\"format\":1,\"crc32c\":\"{crc:08x}\",\"manifest\":{inner}}}").into();
}

#[test]
fn manifests() {
    fuzz(
        "manifest",
        &[],
        mend_manifest,
        |bytes| match manifest::decode(bytes) {
            Ok(read) => {
                let written = manifest::encode(&read).expect("what was read");
                assert_eq!(manifest::decode(&written).expect("what was written"), read);
                format!("{} topics", "x".repeat(read.topics.len().min(3)))
            }
            Err(error) => error.detail,
        },
    );
}

fn mend_marks(bytes: &mut Vec<u8>) {
    if bytes.len() < 28 {
        bytes.resize(28, 0);
    }
    bytes[..8].copy_from_slice(b"TMMK\x01\0\0\0");
    let end = bytes.len() - 4;
    let crc = crc32_iscsi(&bytes[..end]);
    put(bytes, end, crc);
}

#[test]
fn marks_of_producers_and_keys() {
    let seeds = [golden(include_str!("marks/golden.hex"))];
    fuzz("marks", &seeds, mend_marks, |bytes| {
        match marks::decode(bytes) {
            Ok(saved) => {
                assert_eq!(marks::encode(&saved)[8..], bytes[8..]);
                let (producers, keys) = (saved.producers.len().min(3), saved.keys.len().min(3));
                format!("{} {}", "p".repeat(producers), "k".repeat(keys))
            }
            Err(error) => error.detail,
        }
    });
}

#[test]
fn the_golden_frame_is_one() {
    let bytes = golden(include_str!("frame/golden.hex"));
    let head = Head::read(&bytes, NONCE).expect("a head");
    assert_eq!(
        frame::frame_bytes(head.slices.len(), head.body().len()),
        bytes.len()
    );
    let mut mended = bytes.clone();
    mend_frame(&mut mended);
    assert_eq!(mended, bytes, "what is whole needs no mending");
}
