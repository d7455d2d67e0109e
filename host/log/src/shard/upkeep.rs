//! Space, files, figures, the end: what isn't on an event's way.

use super::{Condition, Inbox, Shard, stopped};
use crate::draft::Draft;
use crate::journal::Queued;
use crate::marks::Earlier;
use crate::{Ticket, frame};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_types::{CommitSeq, Result};
use tokio::sync::watch;

/// Chunks of a partition that are settled at once, while nothing can be appended to it.
const SETTLED_AT_ONCE: usize = 16 << 10;

/// Partitions that are so many times over due to get what was published for them get it at once.
const OVERDUE: usize = 8;

impl Shard {
    /// The answer to a request that was appended before; it goes out when that is durable.
    pub(super) fn again(&self, earlier: Earlier, from_memory: bool) -> Ticket {
        self.meters.replays.inc();
        Ticket::again(earlier, (!from_memory).then(|| self.durable()))
    }

    /// Makes the next file ready, so that switching doesn't wait.
    pub(crate) fn prepare_file(&self) {
        if let Err(error) = self.pool.prepare(self.filling()) {
            tracing::warn!(%error, "the next journal file isn't ready ahead");
        }
    }

    /// Whether it is time that partitions get what was published for them; where that is long overdue it is done now.
    pub(crate) fn has_to_deliver(&self) -> bool {
        if !self.crowded.swap(false, Ordering::Relaxed) {
            return false;
        }
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let mut overdue = Vec::new();
        let mut due = false;
        for topic in topics.values() {
            match topic.undelivered.fullness() {
                0 => {}
                times if times < OVERDUE => due = true,
                _ => overdue.push(topic.clone()),
            }
        }
        drop(topics);
        overdue.iter().for_each(|topic| topic.deliver());
        due
    }

    /// Brings partitions what was published for them.
    pub(crate) fn deliver(&self) {
        self.all_topics().iter().for_each(|topic| topic.deliver());
    }

    /// Looks how much disk is free and how long the journal has grown, and refuses or admits commits
    /// accordingly.
    pub(crate) fn check_space(&self) {
        self.check_journal();
        let free = match self.files.free_bytes(self.pool.dir()) {
            Ok(free) if free < self.settings.reserve_bytes.0 && self.pool.drop_spares() > 0 => {
                self.files.free_bytes(self.pool.dir())
            }
            free => free,
        };
        match free {
            Ok(free) => {
                let full = free < self.settings.reserve_bytes.0;
                let before = std::mem::replace(&mut self.inbox().storage_full, full);
                if full != before {
                    tracing::warn!(free, full, "free disk space passed the reserve");
                }
            }
            Err(error) => tracing::warn!(%error, "free disk space can't be told"),
        }
    }

    fn check_journal(&self) {
        let (bytes, most) = (self.journal_bytes(), self.settings.journal_bytes.0);
        let full = most > 0 && bytes >= most;
        let before = std::mem::replace(&mut self.inbox().journal_full, full);
        if full && !before {
            tracing::error!(
                bytes,
                most,
                "the journal is full; commits are refused until it can be cut"
            );
        } else if before && !full {
            tracing::info!(bytes, most, "the journal has room again");
        }
    }

    /// Waits until there is room for another commit, or the log has stopped.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let inbox = self.inbox();
                let roomy = inbox.in_flight < self.settings.in_flight_bytes.as_usize();
                if roomy || inbox.condition != Condition::Open {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Refuses new commits from now on. A last frame says that all before it was written, so that a
    /// later start can tell damage from a torn tail, if the close is `orderly`.
    pub(crate) fn begin_close(&self, orderly: bool) {
        let mut last = Draft::new();
        last.closed();
        let laid_out = last.lay_out(frame::frame_bytes(0, 1 << 10)).is_ok();
        let mut inbox = self.inbox();
        if inbox.condition == Condition::Open {
            inbox.condition = Condition::Closing;
            if orderly && laid_out {
                let sequenced = inbox.sequencer.next(self.clock.now());
                let bytes = last.bytes();
                let (body, mut facts) = last.into_parts();
                inbox.sequencer.apply(sequenced, &mut facts);
                inbox.in_flight += bytes;
                inbox.queue.push_back(Queued {
                    sequenced,
                    body,
                    bytes,
                    has_state: false,
                    truncations: Vec::new(),
                    waiting: None,
                });
            }
        }
        drop(inbox);
        self.work.notify_all();
        self.closing.notify_all();
        self.room.notify_waiters();
    }

    /// Nothing more will be written; everybody who waits is told so.
    pub(crate) fn stop(&self) {
        let mut flusher = self.flusher();
        self.fail(&mut flusher, &stopped());
    }

    /// Number of the current file once half of it is used: a new one is needed soon.
    pub(crate) fn half_used_file(&self) -> Option<u64> {
        let flusher = self.flusher();
        let is_half_used = flusher.writer.used() > self.pool.room() / 2;
        is_half_used.then(|| flusher.writer.file().number)
    }

    /// Waits a while, or until the log is closing; then what has no space is given up.
    pub(crate) fn wait_for_space(&self, most: Duration) {
        let inbox = self.inbox();
        let open = |inbox: &mut Inbox| inbox.condition == Condition::Open;
        let waited = self.closing.wait_timeout_while(inbox, most, open);
        let (inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let closing = inbox.condition == Condition::Closing;
        drop(inbox);
        if closing {
            self.stop();
        } else {
            self.check_space();
        }
    }

    /// Counts what there is, and lets partitions that nothing comes to take note of what is gone.
    pub(crate) fn meter(&self) {
        self.meters
            .journal_bytes
            .set(self.journal_bytes().cast_signed());
        self.meters.tail_bytes.set(self.tail_bytes().cast_signed());
        let (producers, keys) = self.with_sequencer(|s| s.marks().counts());
        self.meters.marks(producers, keys);
        let in_flight = self.inbox().in_flight;
        let now = self.clock.elapsed();
        let (mut segments, mut segment_bytes, mut unsealed) = (0, 0, 0);
        for partition in self.all_topics().iter().flat_map(|topic| topic.all()) {
            let mut partition = partition.lock();
            partition.flow.tick(now);
            partition.settle_some(SETTLED_AT_ONCE);
            segments += partition.segments().len() as u64;
            segment_bytes += partition.segments().iter().map(|it| it.bytes).sum::<u64>();
            unsealed += partition.unsealed_bytes();
        }
        self.meters
            .kept(in_flight as u64, segments, segment_bytes, unsealed);
    }

    /// Whether a sync or write failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.inbox().condition == Condition::Failed
    }

    pub(crate) fn durable(&self) -> watch::Receiver<CommitSeq> {
        let mut durable = self.durable.clone();
        durable.mark_unchanged();
        durable
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal().values().map(|used| used.bytes).sum()
    }

    pub(crate) fn tail_bytes(&self) -> u64 {
        self.tail_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of journal written since the newest snapshot that was known at the start.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The last durable frame with changes of state, as far as its file isn't cut.
    pub(crate) fn last_state(&self) -> u64 {
        self.journal()
            .values()
            .map(|used| used.last_state)
            .max()
            .unwrap_or(0)
    }

    /// Takes off the journal what nobody needs: files whose frames are in the manifest, whose state is
    /// in the snapshot, whose events are in segments and which end before the first frame whose mark is
    /// nowhere else (`marks`). The newest file with frames stays: it says
    /// where the sequence stands.
    ///
    /// # Errors
    /// Whatever the disk says; the file is no longer part of this log, and a later start finds it again.
    pub(crate) fn cut(
        &self,
        manifest: CommitSeq,
        snapshot: CommitSeq,
        marks: Option<u64>,
    ) -> Result<()> {
        let mut needed = u64::MAX;
        for topic in self.all_topics() {
            for partition in topic.all() {
                needed = needed.min(partition.lock().oldest_file().unwrap_or(u64::MAX));
            }
        }
        loop {
            let mut journal = self.journal();
            let newest = journal.last_key_value().map(|(number, _)| *number);
            let Some(oldest) = journal.first_entry() else {
                return Ok(());
            };
            let used = oldest.get();
            let unneeded = *oldest.key() < needed
                && used.last_seq <= manifest.0
                && marks.is_none_or(|first| used.last_seq < first)
                && used.last_state <= snapshot.0;
            if !unneeded || Some(*oldest.key()) == newest {
                return Ok(());
            }
            let used = oldest.remove();
            drop(journal);
            self.pool.put_back(used.file)?;
        }
    }
}
