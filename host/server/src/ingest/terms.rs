//! On which terms a request is appended: once, as a producer's next one (`Producer-Id`,
//! `Producer-Epoch`, `Producer-Seq`) or under a key (`Idempotency-Key`), and only if partitions end
//! where the sender believes (`If-Match`). What they say is decided by the log.

mod head;

pub(crate) use head::HEADERS;

use super::answer::Landed;
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::read::Cursor;
use axum::body::Body;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, request::Parts,
};
use head::{digest_of_head, first_half, invalid, key, producer, tails};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use tidemill_log::{Draft, Once, Topic};
use tidemill_types::PartitionId;

const PRODUCER_EPOCH: HeaderName = HeaderName::from_static("producer-epoch");
const PRODUCER_SEQ: HeaderName = HeaderName::from_static("producer-seq");
/// Marks the answer to a request that had been appended before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Where a producer's repeated request had landed, as in `0:10-12,1:5-5`.
const WRITTEN: HeaderName = HeaderName::from_static("tidemill-written");

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
