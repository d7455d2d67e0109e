//! What a request's headers say about its terms, and what is said of those that can't be.

use crate::problem::{Answer, Problem};
use crate::read::Cursor;
use axum::http::{HeaderMap, HeaderValue, request::Parts};
use sha2::{Digest, Sha256};
use tidemill_log::{Once, TimeFrom, Topic};

/// The headers that are terms.
pub(crate) const HEADERS: &[&str] = &[ID, EPOCH, SEQ, KEY, TAILS];

const ID: &str = "Producer-Id";
const EPOCH: &str = "Producer-Epoch";
const SEQ: &str = "Producer-Seq";
const KEY: &str = "Idempotency-Key";
const TAILS: &str = "If-Match";

/// Largest epoch and sequence number: what every JSON parser reads exactly.
const MOST: u64 = (1 << 53) - 1;
/// Longest producer id.
const ID_BYTES: usize = 200;
/// Longest idempotency key.
const KEY_BYTES: usize = 256;

/// The producer's step, if the headers say one.
pub(super) fn producer(headers: &HeaderMap) -> Answer<Option<Once>> {
    let [id, epoch, seq] = [one(headers, ID)?, one(headers, EPOCH)?, one(headers, SEQ)?];
    let (id, epoch, seq) = match (id, epoch, seq) {
        (None, None, None) => return Ok(None),
        (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
        _ => {
            return Err(invalid(
                "Producer-Id, Producer-Epoch and Producer-Seq are needed together, as in Producer-Id: sensor-7, Producer-Epoch: 0, Producer-Seq: 0",
            ));
        }
    };
    let visible =
        id.len() <= ID_BYTES && !id.is_empty() && id.bytes().all(|b| b.is_ascii_graphic());
    if !visible {
        return Err(invalid(&format!(
            "Producer-Id {id:?} is not 1 to {ID_BYTES} visible ASCII characters, as in sensor-7"
        )));
    }
    Ok(Some(Once::Producer {
        id: id.to_owned(),
        epoch: number(EPOCH, epoch)?,
        seq: number(SEQ, seq)?,
    }))
}

fn number(name: &str, text: &str) -> Answer<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.filter(|number| *number <= MOST).ok_or_else(|| {
        invalid(&format!(
            "{name} {text:?} is not a whole number from 0 to {MOST}, as in 0"
        ))
    })
}

/// The request's key, if it has one; its digest follows.
pub(super) fn key(headers: &HeaderMap) -> Answer<Option<Once>> {
    let Some(key) = one(headers, KEY)? else {
        return Ok(None);
    };
    if key.is_empty() || key.len() > KEY_BYTES {
        return Err(invalid(&format!(
            "an Idempotency-Key has 1 to {KEY_BYTES} ASCII characters, as in 8e03978e-40d5-43dd-bc93-6894a57f9324; this one has {}",
            key.len()
        )));
    }
    let (key, digest) = (first_half(Sha256::new_with_prefix(key)), 0);
    Ok(Some(Once::Key { key, digest }))
}

/// The tails that `If-Match` names; any tail will do for `*`.
pub(super) fn tails(headers: &HeaderMap) -> Answer<Option<Cursor>> {
    let Some(text) = one(headers, TAILS)? else {
        return Ok(None);
    };
    if text == "*" {
        return Ok(None);
    }
    let quoted = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let read = quoted.and_then(|inside| Cursor::read(inside).ok());
    read.map(Some).ok_or_else(|| {
        invalid(&format!(
            "If-Match {text:?} is not a list of partition:end pairs in quotes, as in \"0:13,1:5\": GET of the topic says where partitions end"
        ))
    })
}

/// The value of a header that may come once, as text.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Answer<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(invalid(&format!("{name} comes twice: send it once")));
    }
    match value.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(invalid(&format!(
            "{name} has characters that are not visible ASCII"
        ))),
    }
}

/// All of the head that decides which events the body is.
pub(super) fn digest_of_head(topic: &Topic, parts: &Parts) -> Sha256 {
    let mut digest = Sha256::new();
    let mut take = |part: Option<&[u8]>| {
        let part = part.unwrap_or_default();
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    take(parts.uri.query().map(str::as_bytes));
    let header = |name: &str| parts.headers.get(name).map(HeaderValue::as_bytes);
    take(header("content-type"));
    take(header("event-time"));
    if let TimeFrom::Header { name, .. } = &topic.settings.time {
        take(header(name));
    }
    digest
}

pub(super) fn first_half(digest: Sha256) -> u128 {
    let bytes = digest.finalize();
    bytes
        .iter()
        .take(16)
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

pub(super) fn invalid(detail: &str) -> Box<Problem> {
    Problem::because("invalid-header", detail)
}
