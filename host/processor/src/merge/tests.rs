use super::*;
use proptest::prelude::*;
use tidemill_types::{Commits, IngestTimes, Offsets, PackedRows, Timestamp, TopicId};

/// A frame: how many events it has for each input.
type Frame = Vec<usize>;

fn at(input: usize) -> PartitionId {
    PartitionId {
        topic: TopicId(u32::try_from(input).expect("few") + 1),
        partition: 3,
    }
}

fn events(first: u64, count: usize, commit: u64) -> Batch {
    let mut rows = PackedRows::default();
    for _ in 0..count {
        rows.push(Timestamp::from_micros(0), Some(b"key"), Some(b"value"), [])
            .expect("it fits");
    }
    let heads: Vec<u8> = rows.heads.iter().flat_map(|head| head.to_bytes()).collect();
    Batch::new(
        heads.into(),
        rows.payload.into(),
        Offsets::From(first),
        IngestTimes::Same(Timestamp::from_micros(0)),
        Commits::Same(CommitSeq(commit)),
    )
}

/// What was committed so far: of each input, the commit of each offset.
#[derive(Default)]
struct Committed {
    inputs: Vec<Vec<u64>>,
    last: u64,
}

impl Committed {
    fn of(inputs: usize) -> Self {
        Self {
            inputs: vec![Vec::new(); inputs],
            last: 0,
        }
    }

    fn append(&mut self, frame: &Frame) {
        self.last += 1;
        for (input, count) in self.inputs.iter_mut().zip(frame) {
            input.extend(std::iter::repeat_n(self.last, *count));
        }
    }

    /// Events from an offset on, a run for each commit, at most so many.
    fn read(&self, input: usize, from: u64, most: usize) -> Read {
        let commits = &self.inputs[input];
        let mut next = usize::try_from(from).expect("small");
        let end = (next + most).min(commits.len());
        let mut batches = Vec::new();
        while next < end {
            let commit = commits[next];
            let count = commits[next..end]
                .iter()
                .take_while(|c| **c == commit)
                .count();
            batches.push(events(next as u64, count, commit));
            next += count;
        }
        Read {
            batches,
            next: next as u64,
            end: commits.len() as u64,
        }
    }

    /// The order in which the events have to come.
    fn order(&self) -> Vec<(u64, usize, u64)> {
        let of = |(input, commits): (usize, &Vec<u64>)| {
            let events = (0..).zip(commits.clone());
            events
                .map(move |(offset, commit)| (commit, input, offset))
                .collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.inputs.iter().enumerate().flat_map(of).collect();
        all.sort_unstable();
        all
    }
}

fn taken(gathered: &Gathered) -> Vec<(u64, usize, u64)> {
    let runs = gathered.batches.iter().zip(&gathered.inputs);
    runs.flat_map(|(batch, input)| {
        (0..batch.len()).map(|row| (batch.commit(row).0, *input, batch.offset(row)))
    })
    .collect()
}

/// What happens to a task.
#[derive(Clone, Debug)]
enum Step {
    Append(Frame),
    /// It gathers, and sees at most so many events of an input at once.
    Gather {
        events: usize,
        look: usize,
    },
    /// The same, but what it wants isn't in memory.
    Fetch {
        events: usize,
        look: usize,
    },
    /// Only so many of the events it gathered last are committed.
    Restart {
        lost: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop::collection::vec(0..4_usize, 3).prop_map(Step::Append),
        3 => (1..9_usize, 1..9_usize).prop_map(|(events, look)| Step::Gather { events, look }),
        2 => (1..9_usize, 1..9_usize).prop_map(|(events, look)| Step::Fetch { events, look }),
        1 => (0..9_usize).prop_map(|lost| Step::Restart { lost }),
    ];
    prop::collection::vec(step, 0..60)
}

struct Task {
    merge: Merge,
    seen: Vec<(u64, usize, u64)>,
}

impl Task {
    fn begin(seen: Vec<(u64, usize, u64)>, inputs: usize) -> Self {
        let stands = |input: usize| seen.iter().filter(|(_, of, _)| *of == input).count() as u64;
        Self {
            merge: Merge::new((0..inputs).map(|input| (at(input), stands(input)))),
            seen,
        }
    }

    /// Answers whether there was anything.
    fn gather(&mut self, log: &Committed, events: usize, look: usize, in_memory: bool) -> bool {
        let limit = ReadLimit {
            events,
            bytes: 1 << 20,
        };
        loop {
            let mut looks = |of: PartitionId, from: u64| {
                let input = of.topic.0 as usize - 1;
                // What lies at the end is always in memory.
                let is_end = from == log.inputs[input].len() as u64;
                (in_memory || is_end).then(|| (CommitSeq(log.last), log.read(input, from, look)))
            };
            match self.merge.gather(limit, &mut looks) {
                Next::Events(gathered) => {
                    assert!(gathered.len() <= events);
                    self.seen.extend(taken(&gathered));
                    let stands = Positions::of((0..log.inputs.len()).map(|input| {
                        self.seen.iter().filter(|(_, of, _)| *of == input).count() as u64
                    }));
                    assert_eq!(gathered.next, stands);
                    return true;
                }
                Next::Nothing(_) => return false,
                Next::Fetch => {
                    let (input, _, from) = self.merge.wanted();
                    self.merge.fetched(log.read(input, from, look));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn events_come_in_commit_order_whenever_they_are_looked_for(steps in steps(), inputs in 2..4_usize) {
        let mut log = Committed::of(inputs);
        let mut task = Task::begin(Vec::new(), inputs);
        for step in steps {
            match step {
                Step::Append(frame) => log.append(&frame),
                Step::Gather { events, look } => {
                    task.gather(&log, events, look, true);
                }
                Step::Fetch { events, look } => {
                    task.gather(&log, events, look, false);
                }
                Step::Restart { lost } => {
                    let mut seen = std::mem::take(&mut task.seen);
                    seen.truncate(seen.len().saturating_sub(lost));
                    task = Task::begin(seen, inputs);
                }
            }
            prop_assert!(log.order().starts_with(&task.seen));
        }
        while task.gather(&log, 7, 5, true) {}
        prop_assert_eq!(task.seen, log.order());
    }
}

#[test]
fn an_event_waits_for_what_may_come_before_it() {
    let mut merge = Merge::new([(at(0), 0), (at(1), 0)]);
    let limit = ReadLimit {
        events: 10,
        bytes: 1 << 20,
    };
    // The first input shows an event of commit 7, the second isn't known beyond commit 5.
    let mut early = |of: PartitionId, from: u64| {
        let batches = match (of.topic.0, from) {
            (1, 0) => vec![events(0, 1, 7)],
            _ => Vec::new(),
        };
        let next = from + batches.len() as u64;
        let read = Read {
            batches,
            next,
            end: next,
        };
        (of.topic.0 == 1).then_some((CommitSeq(7), read))
    };
    assert!(matches!(merge.gather(limit, &mut early), Next::Fetch));
    assert_eq!(merge.wanted(), (1, at(1), 0));
    // What was fetched lies before it.
    merge.fetched(Read {
        batches: vec![events(0, 2, 6)],
        next: 2,
        end: 2,
    });
    let mut rest = |_: PartitionId, from: u64| {
        let read = Read {
            batches: Vec::new(),
            next: from,
            end: from,
        };
        Some((CommitSeq(7), read))
    };
    let Next::Events(gathered) = merge.gather(limit, &mut rest) else {
        panic!("there are events");
    };
    assert_eq!(taken(&gathered), [(6, 1, 0), (6, 1, 1), (7, 0, 0)]);
    assert_eq!(gathered.next, Positions::of([1, 2]));
    assert!(matches!(merge.gather(limit, &mut rest), Next::Nothing(next) if next == gathered.next));
}

#[test]
fn gaps_are_passed_over_and_what_is_over_brings_nothing() {
    let mut merge = Merge::new([(at(0), 0), (at(1), 4)]);
    let limit = ReadLimit {
        events: 10,
        bytes: 1 << 20,
    };
    assert!(matches!(merge.gather(limit, &mut |_, _| None), Next::Fetch));
    merge.fetched(Read {
        batches: Vec::new(),
        next: 9,
        end: 9,
    });
    assert!(matches!(merge.gather(limit, &mut |_, _| None), Next::Fetch));
    assert_eq!(merge.wanted(), (0, at(0), 9));
    merge.skip(12);
    for expected in [(0, at(0), 12), (1, at(1), 4)] {
        assert!(matches!(merge.gather(limit, &mut |_, _| None), Next::Fetch));
        assert_eq!(merge.wanted(), expected);
        merge.end();
    }
    let Next::Nothing(next) = merge.gather(limit, &mut |_, _| None) else {
        panic!("both are over");
    };
    assert_eq!(next, Positions::of([12, 4]));
    assert_eq!(next.with(1, 5), Positions::of([12, 5]));
    assert_eq!((next.first(), next.get(1), next.get(2)), (12, 4, 0));
}
