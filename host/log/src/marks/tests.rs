use super::*;
use crate::frame::Slice;
use crate::sequencer::{Facts, Sequencer, TopicEnds};
use crate::{Topic, TopicSettings};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use tidemill_types::{PartitionId, Timestamp};

const SECOND: i64 = 1_000_000;

const LIMITS: Limits = Limits {
    producer_bytes: 1 << 20,
    producer_idle: 100 * SECOND,
    key_bytes: 1 << 20,
    key_window: 10 * SECOND,
};

fn producer(id: &str, epoch: u64, seq: u64) -> Once {
    let id = id.to_owned();
    Once::Producer { id, epoch, seq }
}

fn landed(topic: TopicId, offset: u64) -> Vec<Written> {
    let at = PartitionId {
        topic,
        partition: 0,
    };
    let (first, last) = (offset, offset);
    vec![Written { at, first, last }]
}

/// A sequencer over two topics of one partition.
fn sequencer(limits: Limits) -> Sequencer {
    let topic = |id: u32| TopicEnds {
        topic: Arc::new(Topic {
            id: TopicId(id),
            name: format!("T{id}").parse().expect("name"),
            settings: TopicSettings::default(),
        }),
        starts: vec![0],
        ends: vec![0],
    };
    let marks = Marks::new(limits, Saved::default());
    let topics = vec![topic(1), topic(2)];
    Sequencer::new(0, 3, topics, Vec::new(), BTreeMap::new(), marks)
}

/// Appends one event as a step of a case says; gives what became of it.
fn perform(sequencer: &mut Sequencer, step: &Value) -> Result<(bool, Vec<Written>)> {
    let topic = match step["topic"].as_str() {
        Some("T2") => TopicId(2),
        _ => TopicId(1),
    };
    let number = |name: &str| step[name].as_u64().unwrap_or_default();
    let once = match step["producer"].as_str() {
        Some(id) => producer(id, number("epoch"), number("seq")),
        None => Once::Key {
            key: step["key"]
                .as_str()
                .expect("a producer or a key")
                .bytes()
                .fold(0, |key, byte| key << 8 | u128::from(byte)),
            digest: number("body").into(),
        },
    };
    let at = PartitionId {
        topic,
        partition: 0,
    };
    let mut facts = Facts {
        slices: vec![Slice {
            section: 0,
            topic: topic.0,
            partition: 0,
            first_row: 0,
            rows: 1,
            bytes: 1,
            base: 0,
        }],
        once: Some(Box::new((topic, once))),
        ends: step["end"]
            .as_u64()
            .map(|end| (at, end))
            .into_iter()
            .collect(),
        ..Facts::default()
    };
    let now = Timestamp::from_micros(step["t"].as_i64().unwrap_or_default() * SECOND);
    if let Some(earlier) = sequencer.check(&facts, now)? {
        return Ok((true, earlier.written));
    }
    let sequenced = sequencer.next(now);
    sequencer.apply(sequenced, &mut facts);
    Ok((false, landed(topic, facts.slices[0].base)))
}

#[test]
fn cases() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases.json")).expect("cases");
    assert!(cases.len() >= 7);
    for case in &cases {
        let window = case["window_s"].as_i64().unwrap_or(24 * 3600);
        let mut sequencer = sequencer(Limits {
            key_window: window * SECOND,
            ..LIMITS
        });
        for (nth, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
            let place = format!("{} step {nth}: {step}", case["id"]);
            let offset = |written: &[Written]| written.first().map(|written| written.first);
            match perform(&mut sequencer, step) {
                Ok((true, written)) => {
                    assert!(
                        step.get("again").is_some(),
                        "{place} was taken for a repetition"
                    );
                    assert_eq!(offset(&written), step["again"].as_u64(), "{place}");
                }
                Ok((false, written)) => {
                    assert!(step.get("offset").is_some(), "{place} was accepted");
                    assert_eq!(offset(&written), step["offset"].as_u64(), "{place}");
                }
                Err(error) => {
                    assert_eq!(
                        Some(error.code),
                        step["refused"].as_str(),
                        "{place}: {error}"
                    );
                    for (name, number) in &error.numbers {
                        assert_eq!(step["numbers"][name], *number, "{place}");
                    }
                    let told = step["numbers"].as_object().map_or(0, serde_json::Map::len);
                    assert_eq!(error.numbers.len(), told, "{place}");
                }
            }
        }
        for (topic, end) in case["log"].as_object().expect("log") {
            let topic = sequencer.topic_named(&topic.parse().expect("name"));
            let topic = topic.expect("topic").id;
            let at = PartitionId {
                topic,
                partition: 0,
            };
            assert_eq!(sequencer.end(at), end.as_u64(), "{}", case["id"]);
        }
    }
}

/// Everything that was accepted, and the rules in the plainest way.
#[derive(Default)]
struct Plain(Vec<(TopicId, Once, i64, u64)>);

impl Plain {
    /// The commit that a request repeats, `None` for a new one, or a code.
    fn check(
        &self,
        topic: TopicId,
        once: &Once,
        time: i64,
    ) -> std::result::Result<Option<u64>, &'static str> {
        let mine = self.0.iter().rev().filter(|(of, ..)| *of == topic);
        match once {
            Once::Producer { id, epoch, seq } => {
                let mut steps = mine.filter_map(|(_, once, _, commit)| match once {
                    Once::Producer {
                        id: other,
                        epoch,
                        seq,
                    } if other == id => Some((*epoch, *seq, *commit)),
                    _ => None,
                });
                match steps.next() {
                    None if *seq == 0 => Ok(None),
                    None => Err("out-of-order-sequence"),
                    Some((current, ..)) if *epoch < current => Err("producer-fenced"),
                    Some((current, ..)) if *epoch > current && *seq == 0 => Ok(None),
                    Some((current, ..)) if *epoch > current => Err("invalid-producer-epoch"),
                    Some((_, last, commit)) if *seq <= last => Ok(Some(commit)),
                    Some((_, last, _)) if *seq == last + 1 => Ok(None),
                    Some(_) => Err("out-of-order-sequence"),
                }
            }
            Once::Key { key, digest } => {
                let mut keys = mine.filter_map(|(_, once, accepted, commit)| match once {
                    Once::Key { key: other, digest } if other == key => {
                        Some((*digest, *accepted, *commit))
                    }
                    _ => None,
                });
                match keys.next() {
                    Some((_, accepted, _)) if accepted + LIMITS.key_window <= time => Ok(None),
                    Some((before, _, commit)) if before == *digest => Ok(Some(commit)),
                    Some(_) => Err("idempotency-key-reused"),
                    None => Ok(None),
                }
            }
        }
    }
}

fn any_once() -> impl Strategy<Value = Once> {
    prop_oneof![
        (0..3_u8, 0..3_u64, 0..4_u64).prop_map(|(id, epoch, seq)| producer(
            &format!("p{id}"),
            epoch,
            seq
        )),
        (0..4_u128, 0..2_u128).prop_map(|(key, digest)| Once::Key { key, digest }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn marks_decide_as_a_list_of_everything_would_also_when_they_are_saved_and_read_back(
        requests in prop::collection::vec((1..3_u32, any_once(), 0..4 * SECOND, any::<bool>()), 1..120),
    ) {
        let (mut marks, mut plain, mut time) = (Marks::new(LIMITS, Saved::default()), Plain::default(), 0);
        for (commit, (topic, once, later, restart)) in (1..).zip(requests) {
            time += later;
            let topic = TopicId(topic);
            let decided = marks.check(topic, &once, time);
            let expected = plain.check(topic, &once, time);
            prop_assert_eq!(
                decided.as_ref().map(|earlier| earlier.as_ref().map(|e| e.commit)).map_err(|e| e.code),
                expected
            );
            if let Ok(Some(earlier)) = &decided {
                let last = plain.0.iter().any(|(_, known, _, commit)| *known == once && *commit == earlier.commit);
                let written = if last { landed(topic, earlier.commit) } else { Vec::new() };
                prop_assert_eq!(&earlier.written, &written);
            }
            if let Ok(None) = decided {
                let sequenced = Sequenced { seq: commit, time };
                marks.note(topic, once.clone(), sequenced, landed(topic, commit));
                plain.0.push((topic, once, time, commit));
            }
            if restart {
                let saved = marks.saved(CommitSeq(commit));
                let read = decode(&encode(&saved)).expect("what was written");
                prop_assert_eq!(&read, &saved);
                marks = Marks::new(LIMITS, read);
            }
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..200_usize) {
        let _ = decode(&bytes);
        let mut changed = encode(&sample());
        let at = at % changed.len();
        changed[at] ^= bytes.first().copied().unwrap_or(1) | 1;
        prop_assert!(decode(&changed).is_err());
    }
}

fn sample() -> Saved {
    let mut marks = Marks::new(LIMITS, Saved::default());
    let at = |seq, time| Sequenced { seq, time };
    marks.note(
        TopicId(3),
        producer("p", 5, 0),
        at(7, -1),
        landed(TopicId(3), 9),
    );
    let (key, digest) = (0x0102, 0x0304);
    marks.note(TopicId(4), Once::Key { key, digest }, at(8, 2), Vec::new());
    marks.saved(CommitSeq(9))
}

/// Byte for byte: version 1 stays readable for ever.
#[test]
fn saved_marks_have_golden_bytes() {
    let hex: Vec<String> = encode(&sample())
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    assert_eq!(hex.join("\n"), include_str!("golden.hex").trim_end());
}

#[test]
fn marks_of_a_later_version_are_refused_as_such() {
    let mut bytes = encode(&sample());
    bytes.truncate(bytes.len() - 4);
    bytes[4] = 2;
    let crc = crc_fast::crc32_iscsi(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    assert_eq!(decode(&bytes).expect_err("newer").code, "format-too-new");
}

fn accept(marks: &mut Marks, once: &Once, commit: u64, time: i64) -> Result<()> {
    match marks.check(TopicId(1), once, time)? {
        None => marks.note(
            TopicId(1),
            once.clone(),
            Sequenced { seq: commit, time },
            Vec::new(),
        ),
        Some(_) => panic!("{once:?} isn't new"),
    }
    Ok(())
}

#[test]
fn keys_are_never_forgotten_early_and_go_when_their_window_is_over() {
    let limits = Limits {
        key_bytes: 1000,
        ..LIMITS
    };
    let mut marks = Marks::new(limits, Saved::default());
    let key = |key| Once::Key { key, digest: 1 };
    for nth in 0..4_u64 {
        let time = i64::try_from(nth).expect("small");
        accept(&mut marks, &key(nth.into()), nth + 1, time).expect("room");
    }
    let full = accept(&mut marks, &key(4), 5, 2 * SECOND).expect_err("full");
    assert_eq!(
        (full.code, full.kind),
        ("idempotency-keys-full", ErrorKind::Busy)
    );
    assert_eq!(full.numbers, [("retry_after", 8)]);
    assert!(
        marks
            .check(TopicId(1), &key(0), 2 * SECOND)
            .expect("known")
            .is_some()
    );
    accept(&mut marks, &key(4), 5, 10 * SECOND).expect("the oldest one's window is over");
    assert_eq!(marks.counts(), (0, 4));
    assert!(
        marks
            .check(TopicId(1), &key(0), 10 * SECOND)
            .expect_err("full")
            .code
            .ends_with("-full")
    );
}

#[test]
fn the_producer_that_was_silent_longest_goes_and_none_too_early() {
    let limits = Limits {
        producer_bytes: 1000,
        ..LIMITS
    };
    let mut marks = Marks::new(limits, Saved::default());
    for (commit, id) in (1..).zip(["a", "b", "c", "d"]) {
        accept(&mut marks, &producer(id, 0, 0), commit, 0).expect("room");
    }
    accept(&mut marks, &producer("a", 0, 1), 5, 50 * SECOND).expect("known ones need no room");
    let full = accept(&mut marks, &producer("e", 0, 0), 6, 60 * SECOND).expect_err("full");
    assert_eq!(
        (full.code, full.numbers),
        ("producers-full", vec![("retry_after", 40)])
    );
    accept(&mut marks, &producer("e", 0, 0), 6, 100 * SECOND).expect("b was silent long enough");
    assert_eq!(marks.counts(), (4, 0));
    for (id, known) in [
        ("a", true),
        ("b", false),
        ("c", true),
        ("d", true),
        ("e", true),
    ] {
        let again = marks.check(TopicId(1), &producer(id, 0, 0), 100 * SECOND);
        assert_eq!(matches!(again, Ok(Some(_))), known, "{id}");
    }
}

#[test]
fn a_deleted_topics_marks_go_with_it() {
    let mut marks = Marks::new(LIMITS, Saved::default());
    let key = Once::Key { key: 1, digest: 1 };
    accept(&mut marks, &key, 1, 0).expect("new");
    accept(&mut marks, &producer("a", 0, 0), 2, 0).expect("new");
    marks.note(TopicId(2), key, Sequenced { seq: 3, time: 0 }, Vec::new());
    marks.forget_topic(TopicId(1));
    assert_eq!((marks.counts(), marks.last()), ((0, 1), CommitSeq(3)));
    let mut saved = marks.saved(CommitSeq(4));
    assert_eq!(marks.bytes(), Marks::new(LIMITS, saved.clone()).bytes());
    saved.keep_topics(|topic| topic == TopicId(1));
    assert_eq!(Marks::new(LIMITS, saved).counts(), (0, 0));
}

#[test]
fn the_journal_is_needed_from_the_first_mark_that_is_nowhere_else() {
    let mut marks = Marks::new(LIMITS, Saved::default());
    assert_eq!(marks.first_after(CommitSeq(0)), None);
    for commit in 1..=4 {
        accept(&mut marks, &producer("a", 0, commit - 1), commit, 0).expect("new");
    }
    assert_eq!(
        marks.first_after(CommitSeq(0)),
        Some(4),
        "the last step alone counts"
    );
    accept(&mut marks, &Once::Key { key: 1, digest: 1 }, 5, 0).expect("new");
    accept(&mut marks, &producer("a", 0, 4), 6, 0).expect("new");
    assert_eq!(marks.first_after(CommitSeq(4)), Some(5));
    assert_eq!(marks.first_after(CommitSeq(5)), Some(6));
    assert_eq!(marks.first_after(CommitSeq(6)), None);
    assert_eq!(
        (marks.last(), marks.known_to()),
        (CommitSeq(6), CommitSeq(6))
    );
}
