//! What waits to be written back: sections by scope and commit, beside the newest values.

use super::{Live, Part, lock};
use crate::{Change, ChangesReader, Scope};
use bytes::Bytes;
use std::sync::atomic::Ordering;
use tidemill_types::CommitSeq;

/// Most bytes of sections in one write-back, so that it ends soon and is small beside the store's own log.
const WRITE_BACK_BYTES: u64 = 8 << 20;
/// Of what may wait, one write-back takes this part: what it writes is in memory once more until it is written.
const WRITE_BACK_PART: u64 = 4;

/// A section that waits.
pub(super) struct Waiting {
    commit: CommitSeq,
    section: Bytes,
    changes: u32,
}

/// Sections to be written back as one batch, and the commit the store shows afterwards.
pub(crate) struct WriteBack {
    pub(crate) upto: CommitSeq,
    /// By scope, in commit order.
    pub(crate) sections: Vec<(Scope, Vec<Bytes>)>,
}

impl WriteBack {
    /// Bytes of its sections.
    pub(crate) fn bytes(&self) -> u64 {
        let sections = self.sections.iter().flat_map(|(_, sections)| sections);
        sections.map(|section| section.len() as u64).sum()
    }
}

impl Live {
    /// About how much is written back at once.
    pub(crate) fn write_back_bytes(&self) -> u64 {
        WRITE_BACK_BYTES.min(self.dirty / WRITE_BACK_PART)
    }

    /// What to write back next, about `most` bytes of it; without sections when nothing waits that may
    /// be written: then everything up to its commit is in the store behind already.
    pub(crate) fn take_batch(&self, most: u64) -> WriteBack {
        // In this order: whatever becomes writable later may come from a scope not listed here.
        let writable = self.writable();
        let parts = self.parts();
        let mut sizes = Vec::new();
        for (_, part) in &parts {
            sizes.extend(
                lock(part)
                    .upto(writable)
                    .map(|waiting| (waiting.commit, waiting.section.len() as u64)),
            );
        }
        let upto = cut(&mut sizes, most, writable);
        let sections = parts.iter().filter_map(|(scope, part)| {
            let sections: Vec<_> = lock(part)
                .upto(upto)
                .map(|waiting| waiting.section.clone())
                .collect();
            (!sections.is_empty()).then_some((*scope, sections))
        });
        WriteBack {
            upto,
            sections: sections.collect(),
        }
    }

    /// Takes note that the store behind shows a commit: what waited for it is done.
    pub(crate) fn set_written(&self, commit: CommitSeq) {
        self.written.fetch_max(commit.0, Ordering::AcqRel);
        for (scope, _) in self.parts() {
            self.change(scope, |part| {
                while let Some(done) = part
                    .waiting
                    .pop_front_if(|waiting| waiting.commit <= commit)
                {
                    self.done_waiting(&done);
                    for change in ChangesReader::unchecked(&done.section)
                        .into_iter()
                        .flatten()
                    {
                        if let Change::Delete { slot, key } = change {
                            part.cells.drop_absence(slot, key, commit);
                        }
                    }
                }
            });
        }
        self.relieve();
        self.room.notify_waiters();
    }

    /// There is no store behind any more: values stay in memory and nothing waits.
    pub(crate) fn stand_alone(&self) {
        self.alone.store(true, Ordering::Release);
        for (_, part) in self.parts() {
            let waiting = std::mem::take(&mut lock(&part).waiting);
            for dropped in waiting {
                self.done_waiting(&dropped);
            }
        }
        self.room.notify_waiters();
    }

    /// Keeps a section until it is written back.
    pub(super) fn let_wait(
        &self,
        part: &mut Part,
        commit: CommitSeq,
        section: Bytes,
        changes: u32,
    ) {
        self.waiting_bytes
            .fetch_add(section.len() as u64, Ordering::AcqRel);
        self.waiting_changes
            .fetch_add(changes.into(), Ordering::AcqRel);
        part.waiting.push_back(Waiting {
            commit,
            section,
            changes,
        });
    }

    /// A section doesn't wait any more.
    pub(super) fn done_waiting(&self, done: &Waiting) {
        self.waiting_bytes
            .fetch_sub(done.section.len() as u64, Ordering::AcqRel);
        self.waiting_changes
            .fetch_sub(done.changes.into(), Ordering::AcqRel);
    }
}

impl Part {
    fn upto(&self, commit: CommitSeq) -> impl Iterator<Item = &Waiting> {
        self.waiting
            .iter()
            .take_while(move |waiting| waiting.commit <= commit)
    }
}

/// The last commit of a batch of about `most` bytes: whole commits, at least one.
fn cut(sizes: &mut [(CommitSeq, u64)], most: u64, writable: CommitSeq) -> CommitSeq {
    sizes.sort_unstable();
    let mut bytes = 0;
    let mut upto = None;
    for (commit, size) in sizes {
        bytes += *size;
        if bytes > most && upto.is_some_and(|upto| upto < *commit) {
            return upto.unwrap_or(writable);
        }
        upto = Some(*commit);
    }
    writable
}
