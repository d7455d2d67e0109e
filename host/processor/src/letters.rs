//! Dead letters of a function, seen from outside: which there are, what was done with them, putting them
//! back and discarding them.

mod handled;
mod redrive;

pub use handled::Done;
pub(crate) use handled::Handled;
pub use redrive::{Chosen, Dealt};
pub(crate) use redrive::{discard, redrive};

use crate::function::Function;
use crate::parts::Parts;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_log::{ReadLimit, Topic};
use tidemill_types::{
    Batch, Error, Event, FunctionName, Headers, PartitionId, Result, Timestamp, encode_header,
};

/// Letters looked at in one request, whether they are wanted or not.
const LOOKED_AT: usize = 20_000;
/// Bytes of letters that end a page, whatever was asked for.
const PAGE_BYTES: usize = 4 << 20;
/// How many are read at once.
const READ: ReadLimit = ReadLimit {
    events: 1000,
    bytes: 1 << 20,
};

/// A place in the topic of dead letters: partition and offset.
pub type LetterPlace = (u32, u64);

/// Which dead letters are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LetterQuery {
    /// Only of this reason.
    pub reason: Option<String>,
    /// Only of events of this topic.
    pub topic: Option<String>,
    /// Only those that became dead letters at this time or later.
    pub since: Option<Timestamp>,
    /// Only those that became dead letters before this time.
    pub before: Option<Timestamp>,
    /// Those that were dealt with, too.
    pub all: bool,
    /// From this place on, as an earlier page's `next`.
    pub from: LetterPlace,
    /// Only below these offsets; by default, those there are now.
    pub ends: Option<Vec<LetterPlace>>,
    /// Most letters.
    pub limit: usize,
}

/// A dead letter.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Where it lies.
    pub place: LetterPlace,
    /// When it became one.
    pub since: Timestamp,
    /// What was done with it.
    pub done: Option<Done>,
    /// The event's key.
    pub key: Option<Bytes>,
    /// The event's value.
    pub value: Option<Bytes>,
    /// The event's time.
    pub time: Timestamp,
    /// The event's own headers, packed as in a row.
    pub headers: Bytes,
    /// What the host says of it, by header without `tidemill-`: `reason`, `error`, `topic`, `offset` and so on.
    pub story: BTreeMap<String, String>,
}

/// Some dead letters in order.
#[derive(Clone, Debug, Default)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<DeadLetter>,
    /// Where to go on, if there may be more.
    pub next: Option<LetterPlace>,
    /// Up to where was looked, by partition.
    pub ends: Vec<LetterPlace>,
}

impl DeadLetter {
    /// Takes an event of the topic apart; `None` when it is no letter of this function.
    fn of(partition: u32, event: &Event<'_>, function: &str) -> Option<Self> {
        let headers: Vec<_> = event.row.headers.collect();
        let begin = headers.iter().rposition(|(name, value)| {
            *name == "tidemill-function" && *value == function.as_bytes()
        })?;
        let (own, story) = headers.split_at(begin);
        let mut packed = Vec::new();
        for (name, value) in own {
            encode_header(&mut packed, name, value).ok()?;
        }
        let story = story.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("tidemill-")?;
            Some((name.to_owned(), String::from_utf8_lossy(value).into_owned()))
        });
        Some(Self {
            place: (partition, event.offset),
            since: event.ingest_time,
            done: None,
            key: event.row.key.map(Bytes::copy_from_slice),
            value: event.row.value.map(Bytes::copy_from_slice),
            time: event.row.time,
            headers: packed.into(),
            story: story.collect(),
        })
    }

    /// The event's own headers.
    pub fn headers(&self) -> Headers<'_> {
        Headers(&self.headers)
    }

    /// A number of its story.
    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.story.get(name)?.parse().ok()
    }

    fn bytes(&self) -> usize {
        let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        length(&self.key) + length(&self.value) + self.headers.len() + 256
    }

    fn is_wanted(&self, query: &LetterQuery) -> bool {
        let is = |wanted: &Option<String>, name: &str| match wanted {
            Some(wanted) => self.story.get(name) == Some(wanted),
            None => true,
        };
        (query.all || self.done.is_none())
            && is(&query.reason, "reason")
            && is(&query.topic, "topic")
            && query.since.is_none_or(|since| self.since >= since)
            && query.before.is_none_or(|before| self.since < before)
    }
}

/// The dead letters of one function.
#[derive(Clone)]
pub(crate) struct Letters {
    parts: Arc<Parts>,
    function: FunctionName,
    topic: Arc<Topic>,
}

impl Letters {
    /// Finds their topic.
    ///
    /// # Errors
    /// `function-broken` when the function can't be taken up.
    pub(crate) fn find(parts: &Arc<Parts>, function: &Function) -> Result<Self> {
        let name = &function.manifest.name;
        let Some(deployment) = &function.deployment else {
            let why = function.broken.as_deref().unwrap_or_default();
            let detail = format!("the function {name:?} can't be taken up: {why}");
            return Err(Error::unavailable("function-broken", detail));
        };
        Ok(Self {
            parts: Arc::clone(parts),
            function: name.clone(),
            topic: Arc::clone(&deployment.dead_letters),
        })
    }

    /// What was done with the letters of a partition.
    fn handled(&self, partition: u32) -> Result<Handled> {
        let key = Handled::key(&self.function, partition);
        let entries = self.parts.log.entries(&key);
        match entries.iter().find(|(known, _)| *known == key) {
            Some((_, entry)) => Handled::decode(entry, self.topic.id),
            None => Ok(Handled::default()),
        }
    }

    /// Letters as wanted.
    ///
    /// # Errors
    /// As [`tidemill_log::Log::read`].
    pub(crate) async fn page(&self, query: &LetterQuery) -> Result<LetterPage> {
        let ranges = self.parts.log.ranges(self.topic.id)?;
        let mut page = LetterPage::default();
        for range in &ranges {
            let given = query.ends.iter().flatten();
            let given = given.clone().find(|(at, _)| *at == range.partition);
            let end = match &query.ends {
                Some(_) => given.map_or(0, |(_, end)| *end).min(range.end),
                None => range.end,
            };
            page.ends.push((range.partition, end));
        }
        let (mut looked_at, mut bytes) = (0, 0);
        for (range, (partition, end)) in ranges.iter().zip(page.ends.clone()) {
            let from = match query.from {
                (first, _) if partition < first => continue,
                (first, offset) if partition == first => offset.max(range.start),
                _ => range.start,
            };
            let handled = self.handled(partition)?;
            let mut next = from;
            while next < end {
                // Whole stretches that were dealt with needn't be read.
                if let Some((_, behind)) = handled.of(next).filter(|_| !query.all) {
                    next = behind;
                    continue;
                }
                let read = self.read(partition, next).await?;
                for event in read.batches.iter().flat_map(Batch::iter) {
                    if event.offset >= end {
                        break;
                    }
                    if page.letters.len() == query.limit
                        || looked_at >= LOOKED_AT
                        || bytes >= PAGE_BYTES
                    {
                        page.next = Some((partition, event.offset));
                        return Ok(page);
                    }
                    looked_at += 1;
                    let letter = DeadLetter::of(partition, &event, self.function.as_str());
                    let Some(mut letter) = letter else { continue };
                    letter.done = handled.of(event.offset).map(|(done, _)| done);
                    if letter.is_wanted(query) {
                        bytes += letter.bytes();
                        page.letters.push(letter);
                    }
                }
                next = read.next.max(next + 1);
            }
        }
        Ok(page)
    }

    async fn read(&self, partition: u32, from: u64) -> Result<tidemill_log::Read> {
        let at = PartitionId {
            topic: self.topic.id,
            partition,
        };
        self.parts.log.read(at, from, READ).await
    }

    /// One letter.
    ///
    /// # Errors
    /// `dead-letter-not-found`.
    pub(crate) async fn one(&self, (partition, offset): LetterPlace) -> Result<DeadLetter> {
        let missing = || {
            let name = &self.function;
            let detail = format!("{partition}:{offset} is no dead letter of the function {name:?}");
            Error::not_found("dead-letter-not-found", detail)
        };
        let ranges = self.parts.log.ranges(self.topic.id)?;
        let mut ranges = ranges.iter();
        let range = ranges.find(|range| range.partition == partition);
        range
            .filter(|range| (range.start..range.end).contains(&offset))
            .ok_or_else(missing)?;
        let read = self.read(partition, offset).await?;
        let mut events = read.batches.iter().flat_map(Batch::iter);
        let event = events.next().filter(|event| event.offset == offset);
        let letter =
            event.and_then(|event| DeadLetter::of(partition, &event, self.function.as_str()));
        let mut letter = letter.ok_or_else(missing)?;
        letter.done = self.handled(partition)?.of(offset).map(|(done, _)| done);
        Ok(letter)
    }
}
