//! What to do next with a batch of events: run some rows, wait, or give one up. Pure; the task acts.
//!
//! A run over several rows that fails as a whole holds at least one culprit. It is halved until the
//! culprit stands alone: each half that passes is committed at once, so its rows are never run again,
//! and each culprit costs at most log2(rows) + 1 runs beyond its own tries. Order is kept: the rows
//! behind a culprit wait for its fate.

use std::ops::Range;

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Call the function on these rows; the first of them was tried so often before.
    Run {
        /// Rows of the batch.
        rows: Range<usize>,
        /// Earlier failures of the first row.
        attempt: u32,
    },
    /// Wait before the next try; so many tries failed.
    Wait {
        /// Failures of the row at the front, from 1.
        failures: u32,
    },
    /// Nothing helped: the row at the front gets its last fate.
    GiveUp {
        /// The row.
        row: usize,
        /// How often it was tried.
        attempts: u32,
    },
    /// Every row has its fate.
    Done,
}

/// The state of one batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attempts {
    rows: usize,
    most: u32,
    done: usize,
    /// A culprit is among `done..suspect`, where that is not empty.
    suspect: usize,
    /// A row known to be a culprit: those before it are run without it.
    known: Option<usize>,
    failures: u32,
    waiting: bool,
}

impl Attempts {
    /// A fresh batch; an event is tried `most` times in all.
    pub(crate) fn new(rows: usize, most: u32) -> Self {
        Self {
            rows,
            most,
            done: 0,
            suspect: 0,
            known: None,
            failures: 0,
            waiting: false,
        }
    }

    /// The row at the front failed so often before; a pause is due before its next try.
    pub(crate) fn resume(&mut self, failures: u32) {
        debug_assert_eq!(self.done, 0);
        (self.failures, self.waiting) = (failures, failures > 0);
    }

    /// Rows that have their fate: the first so many.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// What to do next.
    pub(crate) fn next(&self) -> Next {
        if self.done == self.rows {
            return Next::Done;
        }
        if self.failures >= self.most {
            return Next::GiveUp {
                row: self.done,
                attempts: self.failures,
            };
        }
        if self.waiting {
            return Next::Wait {
                failures: self.failures,
            };
        }
        let end = match self.known {
            Some(row) if row == self.done => row + 1,
            Some(row) => row,
            None => match self.suspect.saturating_sub(self.done) {
                0 => self.rows,
                1 => self.suspect,
                several => self.done + several / 2,
            },
        };
        Next::Run {
            rows: self.done..end,
            attempt: self.failures,
        }
    }

    /// The next `rows` rows have got their fate, committed.
    pub(crate) fn passed(&mut self, rows: usize) {
        debug_assert!(self.done + rows <= self.rows);
        if rows == 0 {
            return;
        }
        self.done += rows;
        self.known = self.known.filter(|row| *row >= self.done);
        (self.failures, self.waiting) = (0, false);
    }

    /// The row at the front asked to be tried again.
    pub(crate) fn retry(&mut self) {
        self.failures += 1;
        self.waiting = true;
    }

    /// A run failed as a whole, leaving no trace.
    pub(crate) fn failed(&mut self, run: Range<usize>) {
        debug_assert_eq!(run.start, self.done);
        if run.len() <= 1 {
            self.suspect = run.end;
            self.retry();
        } else {
            self.suspect = run.end;
            self.known = None;
        }
    }

    /// What a row wants can't be done, and the run left no trace for its sake: the rows before it are
    /// run without it, then it is run alone, where its effects can be told from others'.
    pub(crate) fn set_apart(&mut self, run: Range<usize>, row: usize) {
        debug_assert!(run.contains(&row) && run.start == self.done && run.len() > 1);
        self.known = Some(row);
    }

    /// The pause is over.
    pub(crate) fn waited(&mut self) {
        self.waiting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How an event of the made-up function behaves.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        Good,
        /// Traps so many times, then passes.
        Traps(u32),
        /// Asks to be tried again so many times, then passes.
        Retries(u32),
        /// Wants what can't be done; alone it becomes a dead letter at once.
        Refused,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Passed,
        GivenUp { attempts: u32 },
    }

    /// Plays a batch to its end: the fates in order, runs over the function, and pauses.
    fn play(kinds: &[Kind], most: u32) -> (Vec<Fate>, usize, usize) {
        let mut left: Vec<u32> = kinds
            .iter()
            .map(|kind| match kind {
                Kind::Traps(n) | Kind::Retries(n) => *n,
                _ => 0,
            })
            .collect();
        let mut machine = Attempts::new(kinds.len(), most);
        let (mut fates, mut runs, mut pauses) = (Vec::new(), 0, 0);
        loop {
            assert_eq!(
                machine.done(),
                fates.len(),
                "each row gets one fate, in order"
            );
            match machine.next() {
                Next::Done => return (fates, runs, pauses),
                Next::Wait { failures } => {
                    assert!(failures >= 1 && failures < most);
                    pauses += 1;
                    machine.waited();
                }
                Next::GiveUp { row, attempts } => {
                    assert_eq!(row, fates.len());
                    assert!(attempts <= most);
                    fates.push(Fate::GivenUp { attempts });
                    machine.passed(1);
                }
                Next::Run { rows, .. } => {
                    assert!(!rows.is_empty() && rows.start == fates.len());
                    runs += 1;
                    assert!(runs < 100_000, "it ends");
                    run(&mut machine, &mut left, &mut fates, kinds, rows);
                }
            }
        }
    }

    fn run(
        machine: &mut Attempts,
        left: &mut [u32],
        fates: &mut Vec<Fate>,
        kinds: &[Kind],
        rows: Range<usize>,
    ) {
        let alone = rows.len() == 1;
        for row in rows.clone() {
            match kinds[row] {
                Kind::Traps(_) if left[row] > 0 => {
                    // In company a trap says nothing about whose it was.
                    left[row] -= u32::from(alone);
                    return machine.failed(rows);
                }
                Kind::Retries(_) if left[row] > 0 => {
                    left[row] -= 1;
                    let passed = row - rows.start;
                    fates.extend(vec![Fate::Passed; passed]);
                    machine.passed(passed);
                    return machine.retry();
                }
                _ => {}
            }
        }
        if let Some(row) = rows.clone().find(|row| kinds[*row] == Kind::Refused)
            && !alone
        {
            return machine.set_apart(rows, row);
        }
        fates.extend(vec![Fate::Passed; rows.len()]);
        machine.passed(rows.len());
    }

    #[test]
    fn a_clean_batch_is_one_run() {
        assert_eq!(play(&[Kind::Good; 256], 5), (vec![Fate::Passed; 256], 1, 0));
        assert_eq!(play(&[], 5), (vec![], 0, 0));
    }

    #[test]
    fn one_culprit_is_found_by_halving() {
        for culprit in [0, 1, 100, 254, 255] {
            let mut kinds = [Kind::Good; 256];
            kinds[culprit] = Kind::Traps(u32::MAX);
            let (fates, runs, pauses) = play(&kinds, 3);
            assert_eq!(fates[culprit], Fate::GivenUp { attempts: 3 });
            assert_eq!(
                fates.iter().filter(|fate| **fate == Fate::Passed).count(),
                255
            );
            assert!(
                runs <= 1 + 8 + 3 + 1,
                "{runs} runs for the culprit at {culprit}"
            );
            assert_eq!(pauses, 2, "between three tries");
        }
    }

    #[test]
    fn what_recovers_passes() {
        let kinds = [Kind::Good, Kind::Retries(2), Kind::Traps(1), Kind::Good];
        let (fates, _, pauses) = play(&kinds, 5);
        assert_eq!((fates, pauses), (vec![Fate::Passed; 4], 3));
    }

    #[test]
    fn what_failed_before_is_not_tried_more_often() {
        let mut machine = Attempts::new(3, 4);
        machine.resume(2);
        assert_eq!(machine.next(), Next::Wait { failures: 2 });
        machine.waited();
        let all = Next::Run {
            rows: 0..3,
            attempt: 2,
        };
        assert_eq!(machine.next(), all);
        machine.retry();
        assert_eq!(machine.next(), Next::Wait { failures: 3 });
        machine.waited();
        machine.retry();
        let given_up = Next::GiveUp {
            row: 0,
            attempts: 4,
        };
        assert_eq!(machine.next(), given_up);
    }

    #[test]
    fn what_is_set_apart_costs_no_pause() {
        let (fates, runs, pauses) = play(&[Kind::Good, Kind::Refused, Kind::Good], 5);
        assert_eq!(fates, [Fate::Passed; 3]);
        assert_eq!(
            (runs, pauses),
            (4, 0),
            "together, before it, alone, behind it"
        );
    }

    fn kinds() -> impl Strategy<Value = Vec<Kind>> {
        let kind = prop_oneof![
            20 => Just(Kind::Good),
            1 => (1..8_u32).prop_map(Kind::Traps),
            1 => (1..8_u32).prop_map(Kind::Retries),
            1 => Just(Kind::Refused),
        ];
        prop::collection::vec(kind, 0..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn every_event_gets_its_one_fate(kinds in kinds(), most in 1..6_u32) {
            let (fates, runs, _) = play(&kinds, most);
            prop_assert_eq!(fates.len(), kinds.len());
            let mut bound = 1;
            let halvings = kinds.len().max(1).ilog2() as usize + 2;
            for (kind, fate) in kinds.iter().zip(&fates) {
                let expected = match kind {
                    Kind::Good | Kind::Refused => Fate::Passed,
                    Kind::Traps(n) | Kind::Retries(n) if *n < most => Fate::Passed,
                    Kind::Traps(_) | Kind::Retries(_) => Fate::GivenUp { attempts: most },
                };
                prop_assert_eq!(*fate, expected);
                if *kind != Kind::Good {
                    bound += halvings + most as usize + 1;
                }
            }
            prop_assert!(runs <= bound, "{} runs, at most {}", runs, bound);
        }
    }
}
