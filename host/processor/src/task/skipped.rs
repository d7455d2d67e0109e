//! Offsets at which there is nothing for the task: compaction left a gap, or the events were taken
//! away before it read them. It goes on behind them, and its position says so.

use super::Task;
use super::transaction::{Prepared, Then};
use crate::note::Note;
use crate::record::reader;
use tidemill_log::{Advance, Draft};

impl Task {
    /// Moves the position without an event; committed in the next step.
    pub(super) fn pass_over(&mut self, to: u64, note: Note) {
        let mut draft = Draft::new();
        draft.advance(self.advance(to, &note));
        self.prepared = Some(Prepared {
            draft,
            sections: Vec::new(),
            note,
            kept: None,
            timers: Vec::new(),
            parked: Vec::new(),
            position: to,
            rows: 0,
            then: Then::Go,
        });
    }

    /// The step of this task's reader.
    pub(super) fn advance(&self, to: u64, note: &Note) -> Advance {
        Advance {
            reader: reader(self.deployment.function, self.role),
            topic: self.at.topic,
            partition: self.at.partition,
            from: self.position,
            to,
            note: note.encode().into(),
        }
    }

    /// The events before `start` were taken away, by retention or by somebody, and this task hasn't
    /// read all of them: what it missed is counted and said.
    pub(crate) fn cut_off(&mut self, start: u64) {
        let missed = start.saturating_sub(self.position);
        let mut note = self.note;
        note.counts.cut_off += missed;
        note.front = note.front.filter(|front| front.is_timer);
        let (name, topic) = (&self.deployment.name, &self.deployment.input.name);
        tracing::warn!(
            function = %name,
            topic = %topic,
            partition = self.at.partition,
            position = self.position,
            start,
            missed,
            "events were taken away before a function read them; it goes on behind them"
        );
        self.warn(format!(
            "cut off: {missed} events from offset {} on were taken away before they were read; going on at {start}",
            self.position
        ));
        self.meter.cut_off(missed);
        self.pass_over(start, note);
    }
}
