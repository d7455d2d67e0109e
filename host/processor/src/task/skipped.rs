//! Offsets at which there is nothing for the task: compaction left a gap, or the events were taken
//! away before it read them. It goes on behind them, and its position says so.

use super::Task;
use super::transaction::{Prepared, Then};
use crate::merge::Positions;
use crate::note::Note;
use crate::record::reader;
use crate::sources::Tale;
use bytes::Bytes;
use tidemill_log::{Advance, Draft};

impl Task {
    /// Moves the position without an event; committed in the next step.
    pub(super) fn pass_over(&mut self, to: Positions, note: Note) {
        let mut draft = Draft::new();
        self.advance(&to, &note, &mut draft);
        self.prepared = Some(Prepared {
            draft,
            sections: Vec::new(),
            note,
            kept: None,
            timers: Vec::new(),
            parked: Vec::new(),
            position: to,
            tale: Tale::default(),
            future: 0,
            rows: 0,
            then: Then::Go,
        });
    }

    /// The steps of this task's reader: in each input that moves, and in the one that has the note.
    pub(super) fn advance(&self, to: &Positions, note: &Note, draft: &mut Draft) {
        let steps = self.position.iter().zip(to.iter());
        for (input, (at, (from, to))) in self.inputs.iter().zip(steps).enumerate() {
            let has_note = input == self.noted;
            if from == to && !has_note {
                continue;
            }
            draft.advance(Advance {
                reader: reader(self.deployment.function, self.role),
                topic: at.topic,
                partition: at.partition,
                from,
                to,
                note: match has_note {
                    true => note.encode().into(),
                    false => Bytes::new(),
                },
            });
        }
    }

    /// The events of the wanted input before `start` were taken away, by retention or by somebody, and this
    /// task hasn't read all of them: what it missed is counted and said.
    pub(crate) fn cut_off(&mut self, start: u64) {
        let (input, at, position) = self.wanted();
        let missed = start.saturating_sub(position);
        let mut note = self.note;
        note.counts.cut_off += missed;
        note.front = note.front.filter(|front| front.is_timer);
        let own = self.parts.log.topic_by_id(at.topic);
        let topic = own.map_or_else(String::new, |topic| topic.name.to_string());
        let name = &self.deployment.name;
        tracing::warn!(
            function = %name,
            topic = %topic,
            partition = at.partition,
            position,
            start,
            missed,
            "events were taken away before a function read them; it goes on behind them"
        );
        self.warn(input, format!(
            "cut off: {missed} events of topic {topic:?} from offset {position} on were taken away before they were read; going on at {start}"
        ));
        self.meter.cut_off(missed);
        if let Some(merge) = &mut self.merge {
            merge.skip(start);
        }
        self.pass_over(self.position.with(input, start), note);
    }
}
