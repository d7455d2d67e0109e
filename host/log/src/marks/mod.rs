//! Which requests were accepted before, so that sending one again appends nothing: the last step of
//! each producer, and idempotency keys. Pure; a mark is part of the frame of what it stands for.
//!
//! Both are bounded in bytes and in time, by the log's own time. A key is kept for its window, counted
//! from its first acceptance; when there is no room for another one it is refused, for a key that was
//! forgotten too early would let a request through twice. A producer is kept as long as there is room;
//! then those that were silent longest go, if they were silent long enough.

mod shelf;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use wire::{decode, encode};

use crate::sequencer::Sequenced;
use crate::{Settings, Written};
use shelf::Shelf;
use std::cmp::Ordering;
use std::sync::Arc;
use tidemill_types::{CommitSeq, Error, ErrorKind, Result, TopicId};

/// Makes an append take effect once, however often it is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Once {
    /// One of the requests that a producer counts, from 0 in each epoch.
    Producer {
        /// The producer's name; its marks are per topic.
        id: String,
        /// Counts the producer's starts: a higher one fences those before it.
        epoch: u64,
        /// Which request it is.
        seq: u64,
    },
    /// A request that its sender gave a key of its own.
    Key {
        /// Digest of the key.
        key: u128,
        /// Digest of what is asked, so that a key that is used for something else is noticed.
        digest: u128,
    },
}

/// What is kept of a request that was accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark<N, S> {
    pub(crate) topic: TopicId,
    pub(crate) name: N,
    pub(crate) says: S,
    pub(crate) commit: u64,
    pub(crate) time: i64,
    pub(crate) written: Box<[Written]>,
}

/// The last step of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

/// A producer's mark.
pub(crate) type Producer = Mark<Arc<str>, Step>;
/// An idempotency key's mark; it says the digest of the request.
pub(crate) type Key = Mark<u128, u128>;

/// What a request was answered when it was accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Earlier {
    /// The commit of the request; for one before a producer's last, of the last.
    pub(crate) commit: u64,
    pub(crate) time: i64,
    /// Empty for one before a producer's last: where that landed is no longer known.
    pub(crate) written: Vec<Written>,
}

/// Bounds of the marks; times in µs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) producer_bytes: u64,
    pub(crate) producer_idle: i64,
    pub(crate) key_bytes: u64,
    pub(crate) key_window: i64,
}

impl Limits {
    pub(crate) fn of(settings: &Settings) -> Self {
        let micros = |time: std::time::Duration| i64::try_from(time.as_micros());
        Self {
            producer_bytes: settings.producer_bytes.0,
            producer_idle: micros(settings.producer_idle).unwrap_or(i64::MAX),
            key_bytes: settings.idempotency_bytes.0,
            key_window: micros(settings.idempotency_window).unwrap_or(i64::MAX),
        }
    }
}

/// All marks.
#[derive(Clone)]
pub(crate) struct Marks {
    limits: Limits,
    producers: Shelf<Arc<str>, Step>,
    keys: Shelf<u128, u128>,
    known_to: u64,
}

/// The marks at one commit, as they are kept with a manifest.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Saved {
    /// All marks up to it are in here.
    pub(crate) commit: CommitSeq,
    /// In the order of their last use.
    pub(crate) producers: Vec<Arc<Producer>>,
    /// In the order of acceptance.
    pub(crate) keys: Vec<Arc<Key>>,
}

impl Saved {
    /// Drops the marks of other topics.
    pub(crate) fn keep_topics(&mut self, keep: impl Fn(TopicId) -> bool) {
        self.producers.retain(|mark| keep(mark.topic));
        self.keys.retain(|mark| keep(mark.topic));
    }
}

impl Marks {
    pub(crate) fn new(limits: Limits, saved: Saved) -> Self {
        let mut marks = Self {
            limits,
            producers: Shelf::default(),
            keys: Shelf::default(),
            known_to: saved.commit.0,
        };
        saved
            .producers
            .into_iter()
            .for_each(|mark| marks.producers.put(mark));
        saved.keys.into_iter().for_each(|mark| marks.keys.put(mark));
        marks
    }

    /// Whether a request that would be appended at `time` is new; if it isn't, what it was answered.
    ///
    /// # Errors
    /// `producer-fenced`, `invalid-producer-epoch`, `out-of-order-sequence`, `idempotency-key-reused`;
    /// `producers-full` and `idempotency-keys-full` when there is no room for another mark.
    pub(crate) fn check(
        &mut self,
        topic: TopicId,
        once: &Once,
        time: i64,
    ) -> Result<Option<Earlier>> {
        match once {
            Once::Producer { id, epoch, seq } => {
                let step = Step {
                    epoch: *epoch,
                    seq: *seq,
                };
                self.check_producer(topic, id, step, time)
            }
            Once::Key { key, digest } => self.check_key(topic, *key, *digest, time),
        }
    }

    fn check_producer(
        &self,
        topic: TopicId,
        id: &str,
        step: Step,
        time: i64,
    ) -> Result<Option<Earlier>> {
        let Some(known) = self.producers.get(topic, id) else {
            if step.seq > 0 {
                return Err(gap(id, 0, step.seq));
            }
            return self.room_for_producer(time).map(|()| None);
        };
        let Step { epoch, seq } = known.says;
        match step.epoch.cmp(&epoch) {
            Ordering::Less => Err(fenced(id, step.epoch, epoch)),
            Ordering::Greater if step.seq == 0 => Ok(None),
            Ordering::Greater => Err(late_epoch(id, step)),
            Ordering::Equal if step.seq == seq => Ok(Some(known.answer())),
            Ordering::Equal if step.seq < seq => Ok(Some(Earlier {
                written: Vec::new(),
                ..known.answer()
            })),
            Ordering::Equal if step.seq - seq == 1 => Ok(None),
            Ordering::Equal => Err(gap(id, seq + 1, step.seq)),
        }
    }

    fn room_for_producer(&self, time: i64) -> Result<()> {
        let oldest = self.producers.oldest();
        match oldest.filter(|_| self.producers.bytes() >= self.limits.producer_bytes) {
            Some(oldest) if !self.may_go(oldest, time) => {
                let free_at = oldest.time.saturating_add(self.limits.producer_idle);
                Err(full(
                    "producers-full",
                    "producers",
                    free_at.saturating_sub(time),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether a producer was silent long enough to be forgotten.
    fn may_go(&self, producer: &Producer, time: i64) -> bool {
        producer.time.saturating_add(self.limits.producer_idle) <= time
    }

    fn check_key(
        &mut self,
        topic: TopicId,
        key: u128,
        digest: u128,
        time: i64,
    ) -> Result<Option<Earlier>> {
        self.expire(time);
        if let Some(known) = self.keys.get(topic, &key) {
            return match known.says == digest {
                true => Ok(Some(known.answer())),
                false => Err(Error::conflict(
                    "idempotency-key-reused",
                    "the Idempotency-Key belongs to an earlier request with another body or address: give each request a key of its own",
                )),
            };
        }
        match self.keys.oldest() {
            Some(oldest) if self.keys.bytes() >= self.limits.key_bytes => {
                let free_at = oldest.time.saturating_add(self.limits.key_window);
                let kept = "idempotency keys";
                Err(full(
                    "idempotency-keys-full",
                    kept,
                    free_at.saturating_sub(time),
                ))
            }
            _ => Ok(None),
        }
    }

    /// Lets go of keys whose window is over.
    fn expire(&mut self, time: i64) {
        while let Some(oldest) = self.keys.oldest()
            && oldest.time.saturating_add(self.limits.key_window) <= time
        {
            self.keys.remove_oldest();
        }
    }

    /// Marks a request that is appended.
    pub(crate) fn note(
        &mut self,
        topic: TopicId,
        once: Once,
        sequenced: Sequenced,
        written: Vec<Written>,
    ) {
        let Sequenced { seq: commit, time } = sequenced;
        self.known_to = commit;
        let written = written.into_boxed_slice();
        match once {
            Once::Producer { id, epoch, seq } => {
                self.producers.remove(topic, &*id);
                while self.producers.bytes() >= self.limits.producer_bytes
                    && self
                        .producers
                        .oldest()
                        .is_some_and(|oldest| self.may_go(oldest, time))
                {
                    self.producers.remove_oldest();
                }
                self.producers.put(Arc::new(Mark {
                    topic,
                    name: id.into(),
                    says: Step { epoch, seq },
                    commit,
                    time,
                    written,
                }));
            }
            Once::Key { key, digest } => {
                self.expire(time);
                // One whose window was over when it came again.
                self.keys.remove(topic, &key);
                self.keys.put(Arc::new(Mark {
                    topic,
                    name: key,
                    says: digest,
                    commit,
                    time,
                    written,
                }));
            }
        }
    }

    /// A topic is deleted.
    pub(crate) fn forget_topic(&mut self, topic: TopicId) {
        self.producers.remove_topic(topic);
        self.keys.remove_topic(topic);
    }

    /// The last commit with a mark that was noted or read.
    pub(crate) fn known_to(&self) -> CommitSeq {
        CommitSeq(self.known_to)
    }

    /// The last commit with a mark that counts; 0 = none.
    pub(crate) fn last(&self) -> CommitSeq {
        let producer = self.producers.newest().map_or(0, |mark| mark.commit);
        CommitSeq(producer.max(self.keys.newest().map_or(0, |mark| mark.commit)))
    }

    /// The first commit behind this one with a mark that counts.
    pub(crate) fn first_after(&self, commit: CommitSeq) -> Option<u64> {
        let (producer, key) = (
            self.producers.first_after(commit.0),
            self.keys.first_after(commit.0),
        );
        producer.into_iter().chain(key).min()
    }

    /// About how much memory they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.producers.bytes() + self.keys.bytes()
    }

    /// All of them, as of a commit.
    pub(crate) fn saved(&self, commit: CommitSeq) -> Saved {
        Saved {
            commit,
            producers: self.producers.all(),
            keys: self.keys.all(),
        }
    }

    /// The latest time in a mark.
    pub(crate) fn latest(&self) -> i64 {
        let producer = self.producers.newest().map_or(i64::MIN, |mark| mark.time);
        let key = self.keys.newest().map_or(i64::MIN, |mark| mark.time);
        producer.max(key)
    }

    /// Producers and keys, in numbers.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.producers.len(), self.keys.len())
    }
}

impl<N, S> Mark<N, S> {
    fn answer(&self) -> Earlier {
        Earlier {
            commit: self.commit,
            time: self.time,
            written: self.written.to_vec(),
        }
    }
}

fn fenced(id: &str, epoch: u64, current: u64) -> Error {
    let detail = format!(
        "producer {id:?} has begun epoch {current} and epoch {epoch} is over: stop, or begin epoch {} if this is the one that should go on",
        current.saturating_add(1)
    );
    Error::conflict("producer-fenced", detail).with("current_epoch", current)
}

fn late_epoch(id: &str, step: Step) -> Error {
    let Step { epoch, seq } = step;
    let detail = format!(
        "producer {id:?} begins epoch {epoch} with Producer-Seq {seq}: an epoch begins at 0"
    );
    Error::invalid("invalid-producer-epoch", detail)
}

fn gap(id: &str, expected: u64, received: u64) -> Error {
    let known = match expected {
        0 => "is not known (any more) here, so it begins at 0".to_owned(),
        _ => format!(
            "has sent up to {} so far, so {expected} comes next",
            expected - 1
        ),
    };
    let detail = format!(
        "producer {id:?} {known}, and Producer-Seq is {received}: send what is missing first, or begin a new epoch at 0"
    );
    Error::conflict("out-of-order-sequence", detail)
        .with("expected", expected)
        .with("received", received)
}

fn full(code: &'static str, kept: &str, wait_micros: i64) -> Error {
    let seconds = u64::try_from(wait_micros).map_or(1, |micros| micros.div_ceil(1_000_000).max(1));
    let detail = format!(
        "the {kept} that this host remembers take all the memory they may; the oldest can be forgotten in {seconds} s"
    );
    Error::new(ErrorKind::Busy, code, detail).with("retry_after", seconds)
}
