//! How far event time is where a function reads several topics: as far as in the one furthest behind, unless
//! nothing came of that for a minute.

/// What a host waits by default for a topic that is silent.
const IDLE: i64 = 60_000_000;
/// Nothing yet.
const NONE: i64 = i64::MIN;

/// Times by topic.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    /// Watermark, and when the last event was received; of one without any, when the first of all was.
    times: Vec<(i64, i64)>,
}

impl Inputs {
    pub(super) fn new(count: usize) -> Self {
        Self {
            times: vec![(NONE, NONE); count],
        }
    }

    /// An event whose own watermark is this was received.
    pub(super) fn observe(&mut self, input: usize, watermark: i64, received: i64) {
        for (_, last) in &mut self.times {
            if *last == NONE {
                *last = received;
            }
        }
        if let Some((known, last)) = self.times.get_mut(input) {
            *known = (*known).max(watermark);
            *last = (*last).max(received);
        }
    }

    /// How far time is at a moment; the least i64: not known.
    pub(super) fn reached(&self, now: i64) -> i64 {
        let one = self.times.len() == 1;
        let awaited =
            |(_, last): &&(i64, i64)| one || *last == NONE || now < last.saturating_add(IDLE);
        let least = self
            .times
            .iter()
            .filter(awaited)
            .map(|(known, _)| *known)
            .min();
        let most = self.times.iter().map(|(known, _)| *known).max();
        least.or(most).unwrap_or(NONE)
    }
}
