//! Merging decided: which neighbouring segments of a partition become one. Pure; [`crate::keeper`] acts.
//!
//! A reader asks for each segment, so few large ones are cheaper than many small ones; but every merge
//! writes bytes again that are there already. So neighbours of one UTC day of ingest are merged only
//!
//! - when they are as much as a full segment, and at least twice as much as the largest of them,
//! - when they are at least [`GROWTH`] times as much as the largest of them,
//! - or when their day is over, into what it has beside full segments.
//!
//! Full ones are never touched again. Each time a byte is written again the segment it lies in grows to
//! [`GROWTH`] times its size, but for the step to a full one and the one at the day's end: a byte that was
//! sealed into a segment of `s` bytes is written again at most `log4(full / s) + 2` times.

use crate::Retention;
use crate::segment::SegmentMeta;
use std::ops::Range;
use std::time::Duration;
use tidemill_types::Timestamp;

/// How much larger than its largest part a segment becomes that isn't full.
const GROWTH: u64 = 4;
/// Retention takes whole segments: one is never more than this part of what is kept.
const KEPT_PARTS: u32 = 4;

/// How far merging goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// Bytes from which on a segment is full.
    pub(crate) full: u64,
    /// Most time between the ingest of its first and of its last event.
    pub(crate) span: Option<Duration>,
}

impl Bounds {
    /// Of a topic: as the setting says, and so that retention stays about as fine as it was.
    pub(crate) fn of(merge_bytes: u64, retention: &Retention) -> Self {
        let kept = retention
            .bytes
            .map_or(u64::MAX, |bytes| bytes.0 / u64::from(KEPT_PARTS));
        Self {
            full: merge_bytes.min(kept),
            span: retention.age.map(|age| age / KEPT_PARTS),
        }
    }

    fn spans(&self, first: &SegmentMeta, last: &SegmentMeta) -> bool {
        let between = last.max_ingest.saturating_sub(first.min_ingest);
        self.span.is_none_or(|span| {
            u128::try_from(between).map_or(0, |between| between) <= span.as_micros()
        })
    }
}

/// The next segments that become one, if any are due: places in `segments`, at least two. All events of
/// UTC days before `day` are in segments.
pub(crate) fn due(segments: &[SegmentMeta], bounds: Bounds, day: i64) -> Option<Range<usize>> {
    runs(segments, bounds.full).find_map(|run| {
        let part = &segments[run.clone()];
        let found = full(part, bounds)
            .or_else(|| {
                (day_of(&part[0]) < day)
                    .then(|| rest(part, bounds))
                    .flatten()
            })
            .or_else(|| grown(part, bounds));
        found.map(|it| run.start + it.start..run.start + it.end)
    })
}

/// Neighbours of one day none of which is full.
fn runs(segments: &[SegmentMeta], full: u64) -> impl Iterator<Item = Range<usize>> {
    let small = move |segment: &SegmentMeta| segment.bytes < full;
    let mut at = 0;
    std::iter::from_fn(move || {
        at += segments[at..].iter().take_while(|it| !small(it)).count();
        let first = segments.get(at)?;
        let same_day = |it: &&SegmentMeta| small(it) && one_day(first, it);
        // A segment of several days stands alone.
        let end = at + segments[at..].iter().take_while(same_day).count().max(1);
        let run = at..end;
        at = end;
        Some(run)
    })
}

fn full(run: &[SegmentMeta], bounds: Bounds) -> Option<Range<usize>> {
    let (mut from, mut bytes) = (0, 0);
    for (nth, segment) in run.iter().enumerate() {
        bytes += segment.bytes;
        while from < nth && !bounds.spans(&run[from], segment) {
            bytes -= run[from].bytes;
            from += 1;
        }
        // What is too large beside the others waits for more of them, or for the end of the day.
        if bytes >= bounds.full && bytes >= largest(&run[from..=nth]).saturating_mul(2) {
            return Some(from..nth + 1);
        }
    }
    None
}

fn grown(run: &[SegmentMeta], bounds: Bounds) -> Option<Range<usize>> {
    let last = run.last()?;
    let grows = |from: &usize| {
        let part = &run[*from..];
        let bytes: u64 = part.iter().map(|it| it.bytes).sum();
        bounds.spans(&part[0], last) && bytes >= largest(part).saturating_mul(GROWTH)
    };
    (0..run.len() - 1).find(grows).map(|from| from..run.len())
}

/// The first part of a day that is over which isn't one segment yet.
fn rest(run: &[SegmentMeta], bounds: Bounds) -> Option<Range<usize>> {
    let mut from = 0;
    let joins = |part: &[SegmentMeta], next: &SegmentMeta| {
        let bytes: u64 = part.iter().map(|it| it.bytes).sum();
        bytes < bounds.full && part.first().is_some_and(|first| bounds.spans(first, next))
    };
    chunks(run, joins).into_iter().find_map(|chunk| {
        let here = from..from + chunk.len();
        from = here.end;
        (here.len() > 1).then_some(here)
    })
}

fn largest(segments: &[SegmentMeta]) -> u64 {
    segments.iter().map(|it| it.bytes).max().unwrap_or(0)
}

/// Segments cut into runs of neighbours: each takes the next one for as long as it `joins`.
pub(crate) fn chunks(
    segments: &[SegmentMeta],
    joins: impl Fn(&[SegmentMeta], &SegmentMeta) -> bool,
) -> Vec<&[SegmentMeta]> {
    let (mut chunks, mut from) = (Vec::new(), 0);
    for (nth, segment) in segments.iter().enumerate() {
        if nth > from && !joins(&segments[from..nth], segment) {
            chunks.push(&segments[from..nth]);
            from = nth;
        }
    }
    if from < segments.len() {
        chunks.push(&segments[from..]);
    }
    chunks
}

/// Whether all from the first event of one to the last of the other were committed on one UTC day.
pub(crate) fn one_day(first: &SegmentMeta, last: &SegmentMeta) -> bool {
    day_of(first) == Timestamp::from_micros(last.max_ingest).utc_day()
}

fn day_of(segment: &SegmentMeta) -> i64 {
    Timestamp::from_micros(segment.min_ingest).utc_day()
}

#[cfg(test)]
mod tests;
