//! Gathering a page: a fair share of each partition, waiting when there is nothing yet.

use super::cursor::Cursor;
use super::position::out_of_range;
use crate::app::App;
use crate::budget::Hold;
use crate::problem::Answer;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::time::Duration;
use tidemill_log::{Read, ReadLimit, Topic};
use tidemill_types::{Batch, ErrorKind, Event, PartitionId};

/// How much is wanted and how long it may be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Want {
    pub(super) limit: ReadLimit,
    pub(super) wait: Duration,
}

/// What an event's text has beside its key, value and headers: names of members, place, times.
const EVENT_TEXT_BYTES: usize = 160;

/// Events of some partitions.
pub(super) struct Page {
    batches: Vec<(u32, Batch)>,
    /// Events.
    pub(super) count: usize,
    /// Their key, value and header bytes.
    pub(super) bytes: usize,
    /// Where to go on.
    pub(super) next: Cursor,
    /// Committed ends, in the order of `next`.
    ends: Vec<Option<u64>>,
}

impl Page {
    /// All events with their partition, in the order they are shown.
    pub(super) fn events(&self) -> impl Iterator<Item = (u32, Event<'_>)> {
        self.batches
            .iter()
            .flat_map(|(partition, batch)| batch.iter().map(|event| (*partition, event)))
    }

    /// The same as they came.
    pub(super) fn batches(&self) -> &[(u32, Batch)] {
        &self.batches
    }

    /// About what they come to as text.
    pub(super) fn text_bytes(&self) -> usize {
        self.bytes + self.bytes / 8 + self.count * EVENT_TEXT_BYTES
    }

    /// Committed ends by partition.
    pub(super) fn ends(&self) -> impl Iterator<Item = (u32, u64)> {
        self.next
            .0
            .iter()
            .zip(&self.ends)
            .map(|((partition, next), end)| (*partition, end.unwrap_or(*next)))
    }

    /// Some events by themselves.
    #[cfg(test)]
    pub(super) fn of(batches: Vec<(u32, Batch)>, next: Cursor) -> Self {
        Self {
            count: batches.iter().map(|(_, batch)| batch.len()).sum(),
            bytes: batches.iter().map(|(_, batch)| batch.event_bytes()).sum(),
            ends: vec![None; next.0.len()],
            batches,
            next,
        }
    }

    fn take(&mut self, place: usize, read: Read) {
        let (partition, next) = &mut self.next.0[place];
        *next = read.next;
        self.ends[place] = Some(read.end);
        for batch in read.batches {
            self.count += batch.len();
            self.bytes += batch.event_bytes();
            self.batches.push((*partition, batch));
        }
    }
}

/// Reads a page; if there is nothing, waits for the first events.
/// What it takes is counted, but not while it waits.
pub(super) async fn page(
    app: &App,
    topic: &Topic,
    cursor: Cursor,
    want: Want,
    hold: &mut Hold,
) -> Answer<Page> {
    let page = counted(app, topic, cursor, want.limit, hold).await?;
    if page.count > 0 || want.wait.is_zero() {
        return Ok(page);
    }
    let came = tokio::select! {
        biased;
        came = arrival(app, topic, &page.next) => came?,
        () = app.stopping.cancelled() => false,
        () = app.clock.sleep(want.wait) => false,
    };
    if came {
        counted(app, topic, page.next, want.limit, hold).await
    } else {
        Ok(page)
    }
}

/// The events, and the text they become.
async fn counted(
    app: &App,
    topic: &Topic,
    cursor: Cursor,
    limit: ReadLimit,
    hold: &mut Hold,
) -> Answer<Page> {
    hold.grow(limit.bytes).await?;
    let page = once(app, topic, cursor, limit).await?;
    hold.shrink(page.bytes);
    hold.grow(page.text_bytes()).await?;
    Ok(page)
}

/// Waits until one of the partitions has events behind the cursor; false if that can't happen any more.
pub(super) async fn arrival(app: &App, topic: &Topic, cursor: &Cursor) -> Answer<bool> {
    let mut ends = FuturesUnordered::new();
    for (partition, offset) in &cursor.0 {
        let mut end = app.log.watch(PartitionId {
            topic: topic.id,
            partition: *partition,
        })?;
        ends.push(async move { end.wait_for(|end| end > offset).await.is_ok() });
    }
    while let Some(came) = ends.next().await {
        if came {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads what is there now.
async fn once(app: &App, topic: &Topic, cursor: Cursor, limit: ReadLimit) -> Answer<Page> {
    let partitions = cursor.0.len();
    let mut page = Page {
        batches: Vec::new(),
        count: 0,
        bytes: 0,
        ends: vec![None; partitions],
        next: cursor,
    };
    let first = turn(&page.next);
    // First a fair share for each, then whatever is left for whoever has more.
    for fair in [true, false] {
        for nth in 0..partitions {
            let place = (first + nth) % partitions;
            let left = ReadLimit {
                events: limit.events.saturating_sub(page.count),
                bytes: limit.bytes.saturating_sub(page.bytes),
            };
            if left.events == 0 || (page.count > 0 && left.bytes == 0) {
                break;
            }
            let (partition, offset) = page.next.0[place];
            if !fair && page.ends[place].is_some_and(|end| end <= offset) {
                continue;
            }
            let share = if fair {
                share_of(left, partitions - nth)
            } else {
                left
            };
            let read = read(
                app,
                PartitionId {
                    topic: topic.id,
                    partition,
                },
                offset,
                share,
            )
            .await?;
            page.take(place, read);
        }
    }
    complete_ends(app, topic, &mut page)?;
    Ok(page)
}

/// Whose turn it is to be read first: rotates as the cursor moves, so that a small limit starves nobody.
fn turn(cursor: &Cursor) -> usize {
    let sum = cursor
        .0
        .iter()
        .fold(0_u64, |sum, (_, offset)| sum.wrapping_add(*offset));
    usize::try_from(sum % (cursor.0.len() as u64).max(1)).unwrap_or(0)
}

fn share_of(left: ReadLimit, among: usize) -> ReadLimit {
    ReadLimit {
        events: left.events.div_ceil(among),
        bytes: left.bytes.div_ceil(among),
    }
}

async fn read(app: &App, at: PartitionId, from: u64, limit: ReadLimit) -> Answer<Read> {
    match app.log.read_tail(at, from, limit) {
        Some(read) => Ok(read),
        None => match app.log.read(at, from, limit).await {
            // Its events went between two looks at it.
            Err(error) if error.kind == ErrorKind::OutOfRange => {
                Err(out_of_range(at.partition, from, &app.log.range(at)?))
            }
            read => Ok(read?),
        },
    }
}

/// Ends of partitions that weren't read because the page was full.
fn complete_ends(app: &App, topic: &Topic, page: &mut Page) -> Answer<()> {
    if page.ends.iter().all(Option::is_some) {
        return Ok(());
    }
    let ranges = super::bounds(app, topic)?;
    for ((partition, _), end) in page.next.0.iter().zip(&mut page.ends) {
        if end.is_none() {
            *end = ranges
                .iter()
                .find(|range| range.partition == *partition)
                .map(|range| range.end);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fair_and_turns_rotate() {
        let limit = ReadLimit {
            events: 10,
            bytes: 100,
        };
        assert_eq!(
            share_of(limit, 3),
            ReadLimit {
                events: 4,
                bytes: 34
            }
        );
        assert_eq!(share_of(limit, 1), limit);
        let turns: Vec<_> = (0..4)
            .map(|offset| turn(&Cursor(vec![(0, offset), (1, 5), (2, 1)])))
            .collect();
        assert_eq!(turns, [0, 1, 2, 0]);
        assert_eq!(turn(&Cursor(vec![])), 0);
    }
}
