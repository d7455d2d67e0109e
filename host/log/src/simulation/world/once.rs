//! Requests that must take effect once, in and out of turn.

use super::{Commit, Fact, World, placed};
use crate::Once;
use crate::draft::Draft;
use tidemill_types::PartitionId;

impl World {
    /// A request that must take effect once comes: a new one, one that was sent before, whether it was
    /// acknowledged, lost in a crash or is on its way, or one out of turn.
    pub(super) fn once(&mut self) -> Result<(), String> {
        let Some(topic) = self.topic else {
            return self.begin_topic();
        };
        let once = match self.random.below(3) {
            0 => Once::Key {
                key: self.random.below(3).into(),
                digest: u128::from(self.random.below(8) / 7),
            },
            _ => Once::Producer {
                id: format!("producer {}", self.random.below(2)),
                epoch: self.random.below(12) / 11 + self.counter / 60,
                seq: self.random.below(6),
            },
        };
        let mut draft = Draft::new();
        let mut values: Vec<(u32, Fact)> = Vec::new();
        let (rows, partitions) = self.rows(&mut values);
        draft
            .append(topic, &rows, &partitions)
            .map_err(|e| e.to_string())?;
        draft.once(topic, &once);
        // The log's own time never goes back.
        let now = self.clock.now();
        let time = self.shard().with_sequencer(|s| s.next(now).time);
        let expected = self.model.expected(topic, &once, time);
        let (said, decided) = match self.shard().commit(draft) {
            Ok(ticket) if ticket.replayed => {
                let again = ticket.commit.0;
                let landed = self.model.events(again);
                let known = |(at, offset, _): &(PartitionId, u64, Fact)| {
                    let mut written = ticket.written.iter();
                    written.any(|w| w.at == *at && w.first <= *offset && *offset <= w.last)
                };
                if !ticket.written.is_empty() && !landed.iter().all(known) {
                    return Err(format!(
                        "{once:?} landed at {landed:?}, not {:?}",
                        ticket.written
                    ));
                }
                match ticket.earlier {
                    Some(_) => self.tickets.push(ticket),
                    // It is told right away, so nothing may take it back.
                    None => self.model.acknowledged(again),
                }
                (format!("again {again}"), Ok(Some(again)))
            }
            Ok(ticket) => {
                let seq = ticket.commit.0;
                self.model.committed(Commit {
                    seq,
                    events: placed(&ticket, values)?,
                    once: Some((once.clone(), time)),
                    ..Commit::default()
                });
                self.tickets.push(ticket);
                (format!("once {seq}"), Ok(None))
            }
            Err((error, _)) => (format!("refused: {}", error.code), Err(error.code)),
        };
        self.trace.push(said);
        let unable = ["busy", "storage-full", "journal-failed"];
        match decided == expected || decided.is_err_and(|code| unable.contains(&code)) {
            true => Ok(()),
            false => Err(format!(
                "{once:?} at {time}: {decided:?} instead of {expected:?}"
            )),
        }
    }
}
