//! How outcomes of calls lie in the state store, from when they are known until their event has its fate.
//!
//! ```text
//! scope: that of the task's parked events; slot 32765
//! key: u8 kind (0 event, 1 put back, 2 timer), u32 topic, u64 number, u16 number of the call, big endian
//! value, little endian:
//!   0  u8   version = 1
//!   1  u8   0 answered, 1 denied, 2 connect, 3 timeout, 4 too large, 5 broken
//!   2  u16  status of the answer; otherwise 0
//!   4  u32  version of the function that asked
//!   8  u32  how often the event had failed then
//!  12  u32  bytes of the headers
//!  16       SHA-256 of the request: of method, address, each header's name and value, body, each with its
//!           length (u64) in front
//!  48       headers as in a row, then the body; where there is no answer, why, in words
//! ```

use super::{Kind, Outcome, Subject};
use bytes::Bytes;
use tidemill_env::outside::{Answer, CallError, CallErrorKind};
use tidemill_types::{Error, Headers, Result, encode_header};

/// The slot.
pub(crate) const SLOT: u16 = 32_765;
const VERSION: u8 = 1;
const HEAD: usize = 48;

/// What is on record of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Recorded {
    /// Version of the function that asked.
    pub(crate) version: u32,
    /// How often the event had failed then.
    pub(crate) failures: u32,
    /// What tells the request from others.
    pub(crate) digest: [u8; 32],
    /// What it came to.
    pub(crate) outcome: Outcome,
}

/// The key of a call's record.
pub(crate) fn key_of(subject: Subject, call: u16) -> [u8; 15] {
    let mut key = [0; 15];
    key[0] = subject.kind as u8;
    key[1..5].copy_from_slice(&subject.topic.to_be_bytes());
    key[5..13].copy_from_slice(&subject.number.to_be_bytes());
    key[13..].copy_from_slice(&call.to_be_bytes());
    key
}

/// What a record is of, by its key.
///
/// # Errors
/// `Corrupt` when it is no key of a record.
pub(crate) fn from_key(key: &[u8]) -> Result<Subject> {
    let parse = || {
        let (kind, rest) = key.split_first()?;
        let (topic, rest) = rest.split_first_chunk::<4>()?;
        let (number, call) = rest.split_first_chunk::<8>()?;
        let kind = match kind {
            0 => Kind::Event,
            1 => Kind::Redriven,
            2 => Kind::Timer,
            _ => return None,
        };
        (call.len() == 2).then_some(Subject {
            kind,
            topic: u32::from_be_bytes(*topic),
            number: u64::from_be_bytes(*number),
        })
    };
    parse().ok_or_else(|| Error::corrupt("the key of a call's record can't be read by this host"))
}

fn number_of(kind: CallErrorKind) -> u8 {
    match kind {
        CallErrorKind::Denied => 1,
        CallErrorKind::Connect => 2,
        CallErrorKind::Timeout => 3,
        CallErrorKind::TooLarge => 4,
        CallErrorKind::Broken => 5,
    }
}

pub(crate) fn write(
    outcome: &Outcome,
    (digest, failures, version): ([u8; 32], u32, u32),
) -> Result<Vec<u8>> {
    let mut headers = Vec::new();
    let (code, status, rest) = match outcome {
        Ok(answer) => {
            for (name, value) in &answer.headers {
                encode_header(&mut headers, name, value)?;
            }
            (0, answer.status, &answer.body[..])
        }
        Err(error) => (number_of(error.kind), 0, error.message.as_bytes()),
    };
    let mut out = Vec::with_capacity(HEAD + headers.len() + rest.len());
    out.extend([VERSION, code]);
    out.extend(status.to_le_bytes());
    out.extend(version.to_le_bytes());
    out.extend(failures.to_le_bytes());
    // An answer is far smaller than a frame, which holds 48 MiB.
    let length = u32::try_from(headers.len()).unwrap_or(u32::MAX);
    out.extend(length.to_le_bytes());
    out.extend(digest);
    out.extend(headers);
    out.extend(rest);
    Ok(out)
}

pub(super) fn read(stored: &[u8]) -> Result<Recorded> {
    parse(stored).ok_or_else(|| Error::corrupt("the record of a call can't be read by this host"))
}

fn parse(stored: &[u8]) -> Option<Recorded> {
    let (head, rest) = stored.split_first_chunk::<HEAD>()?;
    let [VERSION, code, s0, s1, ..] = *head else {
        return None;
    };
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        u32::from_le_bytes(bytes)
    };
    let (headers, rest) = rest.split_at_checked(number(12) as usize)?;
    let outcome = if code == 0 {
        let headers = Headers(headers);
        if !headers.are_valid() {
            return None;
        }
        let owned = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
        Ok(Answer {
            status: u16::from_le_bytes([s0, s1]),
            headers: headers.map(owned).collect(),
            body: Bytes::copy_from_slice(rest),
        })
    } else {
        let kind = CallErrorKind::ALL
            .into_iter()
            .find(|kind| number_of(*kind) == code)?;
        if !headers.is_empty() || (s0, s1) != (0, 0) {
            return None;
        }
        let message = std::str::from_utf8(rest).ok()?.to_owned();
        Err(CallError { kind, message })
    };
    Some(Recorded {
        version: number(4),
        failures: number(8),
        digest: head[16..].try_into().ok()?,
        outcome,
    })
}
