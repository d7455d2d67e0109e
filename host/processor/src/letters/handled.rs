//! Which dead letters were dealt with: stretches of offsets, kept in the registry entry
//! `letters/<function>/<partition>` as JSON: the number of the topic, and for each stretch its first offset, the one
//! behind its last, and what was done (`r` put back, `d` discarded).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use tidemill_types::{Error, ErrorKind, FunctionName, Result, TopicId};

/// Prefix of the entries.
const PREFIX: &str = "letters/";
/// Most stretches of one partition: an entry is written as a whole.
const STRETCHES: usize = 10_000;

/// What was done with a dead letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// It was put back.
    Redriven,
    /// It was discarded.
    Discarded,
}

/// What was done with the letters of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Handled(BTreeMap<u64, (u64, Done)>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    topic: u32,
    done: Vec<(u64, u64, char)>,
}

impl Handled {
    /// Key of a partition's entry.
    pub(crate) fn key(function: &FunctionName, partition: u32) -> String {
        format!("{PREFIX}{function}/{partition}")
    }

    /// Reads an entry; that of an earlier topic of the name says nothing.
    ///
    /// # Errors
    /// `Corrupt` when it isn't one of this host's.
    pub(crate) fn decode(entry: &[u8], topic: TopicId) -> Result<Self> {
        let wrong = |why: &str| Error::corrupt(format!("an entry of handled dead letters: {why}"));
        let stored: Stored =
            serde_json::from_slice(entry).map_err(|error| wrong(&error.to_string()))?;
        if stored.topic != topic.0 {
            return Ok(Self::default());
        }
        let mut handled = BTreeMap::new();
        for (first, end, done) in stored.done {
            let done = match done {
                'r' => Done::Redriven,
                'd' => Done::Discarded,
                _ => return Err(wrong("nothing known was done")),
            };
            handled.insert(first, (end, done));
        }
        Ok(Self(handled))
    }

    /// The entry's bytes, without what lies before the partition's start.
    ///
    /// # Errors
    /// `too-scattered` when there are too many stretches.
    pub(crate) fn encode(&self, topic: TopicId, start: u64) -> Result<Vec<u8>> {
        let kept = self.0.iter().filter(|(_, (end, _))| *end > start);
        let done: Vec<_> = kept
            .map(|(first, (end, done))| match done {
                Done::Redriven => (*first, *end, 'r'),
                Done::Discarded => (*first, *end, 'd'),
            })
            .collect();
        if done.len() > STRETCHES {
            let detail = format!(
                "what was done with the dead letters of one partition would be more than {STRETCHES} stretches; deal with older ones first, for neighbours become one stretch"
            );
            return Err(Error::new(ErrorKind::Conflict, "too-scattered", detail));
        }
        let stored = Stored {
            topic: topic.0,
            done,
        };
        serde_json::to_vec(&stored).map_err(|wrong| Error::internal(wrong.to_string()))
    }

    /// What was done with a letter, and the end of its stretch.
    pub(crate) fn of(&self, offset: u64) -> Option<(Done, u64)> {
        let (_, (end, done)) = self.0.range(..=offset).next_back()?;
        (offset < *end).then_some((*done, *end))
    }

    /// Says that letters are of no more use with which nothing was done before.
    pub(crate) fn discard(&mut self, letters: Range<u64>) {
        if !letters.is_empty() {
            self.add_all(letters, Done::Discarded);
        }
    }

    /// Says that something was done with a letter with which nothing was done before.
    pub(crate) fn add(&mut self, offset: u64, done: Done) {
        debug_assert!(self.of(offset).is_none());
        self.add_all(offset..offset + 1, done);
    }

    fn add_all(&mut self, letters: Range<u64>, done: Done) {
        let Range { start, mut end } = letters;
        let mut first = start;
        if let Some((before, (until, as_before))) = self.0.range(..start).next_back()
            && (*until, *as_before) == (start, done)
        {
            first = *before;
        }
        if let Some((until, as_after)) = self.0.get(&end).copied()
            && as_after == done
        {
            self.0.remove(&end);
            end = until;
        }
        self.0.insert(first, (end, done));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_have_golden_bytes() {
        let mut handled = Handled::default();
        for offset in [3, 5, 4] {
            handled.add(offset, Done::Redriven);
        }
        handled.add(6, Done::Discarded);
        let golden = br#"{"topic":7,"done":[[3,6,"r"],[6,7,"d"]]}"#;
        assert_eq!(handled.encode(TopicId(7), 0).expect("few"), golden);
        let read = |topic| Handled::decode(golden, TopicId(topic)).expect("its own");
        assert_eq!((read(7), read(8)), (handled.clone(), Handled::default()));
        let later = handled.encode(TopicId(7), 6).expect("few");
        assert_eq!(later, br#"{"topic":7,"done":[[6,7,"d"]]}"#);
        assert!(Handled::decode(b"{}", TopicId(7)).is_err());
        assert_eq!(handled.of(4), Some((Done::Redriven, 6)));
        assert_eq!((handled.of(2), handled.of(7)), (None, None));
        let mut more = handled.clone();
        more.discard(9..9);
        assert_eq!(more, handled);
        more.discard(7..9);
        assert_eq!((more.of(8), more.of(9)), (Some((Done::Discarded, 9)), None));
        let name = "f".parse().expect("a name");
        assert_eq!(Handled::key(&name, 3), "letters/f/3");
    }

    #[test]
    fn too_many_stretches_are_refused() {
        let mut handled = Handled::default();
        for offset in 0..=STRETCHES as u64 {
            handled.add(offset * 2, Done::Discarded);
        }
        let refused = handled.encode(TopicId(1), 0).expect_err("too many");
        assert_eq!(refused.code, "too-scattered");
        assert!(handled.encode(TopicId(1), 1).is_ok(), "one has gone");
    }

    proptest! {
        #[test]
        fn every_letter_is_told_as_it_was_dealt_with(
            done in prop::collection::btree_map(0..60_u64, any::<bool>(), 0..60),
            order in any::<prop::sample::Index>(),
        ) {
            let mut all: Vec<_> = done.iter().collect();
            let middle = order.index(all.len() + 1);
            all.rotate_left(middle);
            let mut handled = Handled::default();
            let what = |redriven: bool| if redriven { Done::Redriven } else { Done::Discarded };
            for (offset, redriven) in all {
                handled.add(*offset, what(*redriven));
            }
            for offset in 0..61 {
                let told = handled.of(offset).map(|(done, _)| done);
                prop_assert_eq!(told, done.get(&offset).map(|redriven| what(*redriven)));
            }
        }
    }
}
