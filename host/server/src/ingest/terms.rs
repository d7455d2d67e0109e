//! On which terms a request is appended: once, as a producer's next one (`Producer-Id`,
//! `Producer-Epoch`, `Producer-Seq`) or under a key (`Idempotency-Key`), and only if partitions end
//! where the sender believes (`If-Match`). What they say is decided by the log.

use super::answer::Landed;
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::read::Cursor;
use axum::body::Body;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, request::Parts,
};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use tidemill_log::{Draft, Once, TimeFrom, Topic};
use tidemill_types::PartitionId;

/// The headers that say so.
pub(crate) const HEADERS: &[&str] = &[
    "Producer-Id",
    "Producer-Epoch",
    "Producer-Seq",
    "Idempotency-Key",
    "If-Match",
];

const PRODUCER_EPOCH: HeaderName = HeaderName::from_static("producer-epoch");
const PRODUCER_SEQ: HeaderName = HeaderName::from_static("producer-seq");
/// Marks the answer to a request that had been appended before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Where a producer's repeated request had landed, as in `0:10-12,1:5-5`.
const WRITTEN: HeaderName = HeaderName::from_static("tidemill-written");

/// Largest epoch and sequence number: what every JSON parser reads exactly.
const MOST: u64 = (1 << 53) - 1;
/// Longest producer id.
const ID_BYTES: usize = 200;
/// Longest idempotency key.
const KEY_BYTES: usize = 256;
/// Most partitions that a header lists.
const LISTED: usize = 64;

/// The terms of one request.
pub(super) struct Terms {
    once: Option<Once>,
    /// What a key's request is, as far as its head says it.
    head: Option<Sha256>,
    /// Where partitions must end.
    tails: Option<Cursor>,
}

impl Terms {
    /// Reads the request's head; nothing for a request that is appended as it comes.
    pub(super) fn of(topic: &Topic, parts: &Parts) -> Answer<Option<Box<Self>>> {
        let ours = |name: &HeaderName| {
            HEADERS
                .iter()
                .any(|ours| name.as_str().eq_ignore_ascii_case(ours))
        };
        if !parts.headers.keys().any(ours) {
            return Ok(None);
        }
        let once = match (producer(&parts.headers)?, key(&parts.headers)?) {
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "Idempotency-Key and Producer-Id both make a request safe to repeat: send one of them",
                ));
            }
            (producer, key) => producer.or(key),
        };
        let head = matches!(once, Some(Once::Key { .. })).then(|| digest_of_head(topic, parts));
        let tails = tails(&parts.headers)?;
        Ok(Some(Box::new(Self { once, head, tails })))
    }

    /// Completes the digest of a key's request with its body, as it is when it is no longer compressed.
    pub(super) fn take_body(&mut self, parts: &[&[u8]]) {
        if let (Some(mut head), Some(Once::Key { digest, .. })) = (self.head.take(), &mut self.once)
        {
            parts.iter().for_each(|part| head.update(part));
            *digest = first_half(head);
        }
    }

    /// Whether a body has to be digested.
    pub(super) fn wants_body(&self) -> bool {
        self.head.is_some()
    }

    /// Where events without key go: to the partition whose tail the sender knows, if it is one.
    pub(super) fn partition(&self) -> Option<u32> {
        match self.tails.as_ref()?.0[..] {
            [(partition, _)] => Some(partition),
            _ => None,
        }
    }

    /// Puts the terms into a draft that holds the events.
    pub(super) fn add_to(
        &self,
        draft: &mut Draft,
        topic: &Topic,
        partitions: &[u32],
    ) -> Answer<()> {
        if let Some(once) = &self.once {
            draft.once(topic.id, once);
        }
        let Some(Cursor(tails)) = &self.tails else {
            return Ok(());
        };
        let named = |partition: &u32| tails.binary_search_by_key(partition, |tail| tail.0).is_ok();
        if let Some(other) = partitions.iter().find(|partition| !named(partition)) {
            return Err(invalid(&format!(
                "If-Match doesn't say where partition {other} ends, and an event goes there: name every partition that the events go to, as in \"0:13,{other}:5\""
            )));
        }
        for (partition, end) in tails {
            let (topic, partition) = (topic.id, *partition);
            draft.expect_end(PartitionId { topic, partition }, *end);
        }
        Ok(())
    }

    /// The answer to what was appended now or before.
    pub(super) fn answer(
        &self,
        landed: &Landed,
        replayed: bool,
        mut answer: Response<Body>,
    ) -> Response<Body> {
        if let (true, Some(Once::Producer { epoch, seq, .. })) = (replayed, &self.once) {
            answer = Response::new(Body::empty());
            *answer.status_mut() = StatusCode::NO_CONTENT;
            let headers = answer.headers_mut();
            headers.insert(PRODUCER_EPOCH, HeaderValue::from(*epoch));
            headers.insert(PRODUCER_SEQ, HeaderValue::from(*seq));
            if let Some(written) = shown(landed) {
                headers.insert(WRITTEN, written);
            }
        }
        if replayed {
            let headers = answer.headers_mut();
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(Cursor(tails)) = self
            .tails
            .as_ref()
            .filter(|_| !landed.partitions().is_empty())
        {
            let mut after = tails.clone();
            for written in landed.partitions() {
                let known = after.binary_search_by_key(&written.at.partition, |tail| tail.0);
                if let Some(tail) = known.ok().and_then(|known| after.get_mut(known)) {
                    tail.1 = written.last + 1;
                }
            }
            tag(answer.headers_mut(), &Cursor(after));
        }
        answer
    }

    /// Completes a refusal that tells what others did, once that is durable.
    pub(super) async fn refusal(
        &self,
        app: &App,
        topic: &Topic,
        mut problem: Box<Problem>,
    ) -> Box<Problem> {
        const TELLING: [&str; 5] = [
            "producer-fenced",
            "invalid-producer-epoch",
            "out-of-order-sequence",
            "idempotency-key-reused",
            "tail-moved",
        ];
        if !TELLING.contains(&problem.code) {
            return problem;
        }
        if let Err(error) = app.log.settled().await {
            return error.into();
        }
        if let ("producer-fenced", Some(epoch)) = (problem.code, problem.number("current_epoch")) {
            problem = Box::new(problem.header(PRODUCER_EPOCH, HeaderValue::from(epoch)));
        }
        if let ("tail-moved", Some(Cursor(tails))) = (problem.code, &self.tails) {
            let ranges = match app.log.ranges(topic.id) {
                Ok(ranges) => ranges,
                Err(error) => return error.into(),
            };
            let end = |(partition, _): &(u32, u64)| {
                let range = ranges.get(usize::try_from(*partition).ok()?)?;
                Some((range.partition, range.end))
            };
            let now = Cursor(tails.iter().filter_map(end).collect());
            let detail = format!("{} (now \"{now}\")", problem.detail);
            problem.detail = detail;
            let mut headers = HeaderMap::new();
            tag(&mut headers, &now);
            let mut told = problem.member("tail", now.to_string());
            if let Some(tag) = headers.remove(header::ETAG) {
                told = told.header(header::ETAG, tag);
            }
            problem = Box::new(told);
        }
        problem
    }
}

/// The producer's step, if the headers say one.
fn producer(headers: &HeaderMap) -> Answer<Option<Once>> {
    let [id, epoch, seq] = [
        one(headers, HEADERS[0])?,
        one(headers, HEADERS[1])?,
        one(headers, HEADERS[2])?,
    ];
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
        epoch: number(HEADERS[1], epoch)?,
        seq: number(HEADERS[2], seq)?,
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
fn key(headers: &HeaderMap) -> Answer<Option<Once>> {
    let Some(key) = one(headers, HEADERS[3])? else {
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
fn tails(headers: &HeaderMap) -> Answer<Option<Cursor>> {
    let Some(text) = one(headers, HEADERS[4])? else {
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
fn digest_of_head(topic: &Topic, parts: &Parts) -> Sha256 {
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

fn first_half(digest: Sha256) -> u128 {
    let bytes = digest.finalize();
    bytes
        .iter()
        .take(16)
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn invalid(detail: &str) -> Box<Problem> {
    Problem::because("invalid-header", detail)
}

/// `0:10-12,1:5-5`, unless it is too long for a header.
fn shown(landed: &Landed) -> Option<HeaderValue> {
    let all = landed.partitions();
    if all.is_empty() || all.len() > LISTED {
        return None;
    }
    let mut text = String::new();
    for (nth, written) in all.iter().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        let (partition, first, last) = (written.at.partition, written.first, written.last);
        let _ = write!(text, "{comma}{partition}:{first}-{last}");
    }
    HeaderValue::try_from(text).ok()
}

/// The tails as an entity tag, unless they are too many for a header.
fn tag(headers: &mut HeaderMap, tails: &Cursor) {
    if tails.0.len() <= LISTED
        && let Ok(value) = HeaderValue::try_from(format!("\"{tails}\""))
    {
        headers.insert(header::ETAG, value);
    }
}
