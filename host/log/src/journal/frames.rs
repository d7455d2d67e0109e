//! Reading frames back: stretches of journal files, checked once and kept for a while.
//!
//! Who is behind reads a stretch in many small batches, and every partition of a topic finds its events
//! in the same frames. What is read here is durable, and a file's number is never used again, so the
//! bytes can't change.

use super::{JournalFile, disk_error};
use crate::frame::{Head, Section, Slice, Stamp};
use crate::meters::Stretches;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_types::{Error, Result};

/// Read at a time.
const STRETCH: u64 = 1 << 20;

/// Stretches that may be read side by side.
const LANES: usize = 8;

/// A frame that was read and checked.
pub(crate) struct Frame {
    /// Where it starts in its file.
    pub(crate) at: u64,
    /// What the sequencer decided.
    pub(crate) stamp: Stamp,
    /// Which rows went where.
    pub(crate) slices: Vec<Slice>,
    /// Its section directory.
    pub(crate) sections: Vec<Section>,
    /// Its body.
    pub(crate) body: Bytes,
}

/// Frames that follow each other in a file, at least one.
pub(crate) struct Stretch {
    /// In order.
    pub(crate) frames: Vec<Frame>,
    /// Where the last one ends.
    pub(crate) end: u64,
}

impl Stretch {
    /// The frames from position `at` on.
    pub(crate) fn from(&self, at: u64) -> &[Frame] {
        let first = self.frames.partition_point(|frame| frame.at < at);
        &self.frames[first..]
    }
}

/// The stretches that were read last.
pub(crate) struct Frames {
    kept: Mutex<Kept>,
    /// Held while something is read: by where it lies.
    reading: [Mutex<()>; LANES],
    counted: Stretches,
}

struct Kept {
    /// By file number and start.
    stretches: BTreeMap<(u64, u64), Known>,
    bytes: u64,
    most: u64,
    uses: u64,
}

struct Known {
    stretch: Arc<Stretch>,
    last_use: u64,
}

impl Frames {
    /// None yet; so many bytes of journal are kept, or the stretch that was read last.
    pub(crate) fn new(most: u64, counted: Stretches) -> Self {
        let kept = Kept {
            stretches: BTreeMap::new(),
            bytes: 0,
            most,
            uses: 0,
        };
        Self {
            kept: Mutex::new(kept),
            reading: Default::default(),
            counted,
        }
    }

    /// A stretch with the frame that starts at `at`; `end` is how far the file is durable.
    ///
    /// # Errors
    /// `Unavailable` when the file can't be read, `Corrupt` when it isn't what was written.
    pub(crate) fn read(&self, file: &JournalFile, at: u64, end: u64) -> Result<Arc<Stretch>> {
        if let Ok(known) = self.kept().find(file.number, at) {
            self.counted.hits.inc();
            return Ok(known);
        }
        // Who comes for the same while it is read waits for it.
        let lane = usize::try_from(at / STRETCH).unwrap_or_default() % LANES;
        let _lane = lock(&self.reading[lane]);
        let until = match self.kept().find(file.number, at) {
            Ok(known) => {
                self.counted.hits.inc();
                return Ok(known);
            }
            Err(next) => next.unwrap_or(end).min(end),
        };
        self.counted.misses.inc();
        let stretch = Arc::new(read_stretch(file, at, until)?);
        self.kept().keep(file.number, at, &stretch);
        Ok(stretch)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// The stretch that has `at`, or else where the next one starts in the file.
    fn find(&mut self, file: u64, at: u64) -> Result<Arc<Stretch>, Option<u64>> {
        self.uses += 1;
        if let Some((_, known)) = self.stretches.range_mut((file, 0)..=(file, at)).next_back()
            && known.stretch.end > at
            && known.stretch.from(at).first().is_some_and(|f| f.at == at)
        {
            known.last_use = self.uses;
            return Ok(known.stretch.clone());
        }
        let next = self.stretches.range((file, at + 1)..(file + 1, 0)).next();
        Err(next.map(|((_, start), _)| *start))
    }

    fn keep(&mut self, file: u64, at: u64, stretch: &Arc<Stretch>) {
        let last_use = self.uses;
        let stretch = stretch.clone();
        self.bytes += stretch.end - at;
        let known = Known { stretch, last_use };
        if let Some(other) = self.stretches.insert((file, at), known) {
            self.bytes -= other.stretch.end - at;
        }
        while self.bytes > self.most && self.stretches.len() > 1 {
            let oldest = self.stretches.iter().min_by_key(|(_, k)| k.last_use);
            let Some(place) = oldest.map(|(place, _)| *place) else {
                return;
            };
            if let Some(known) = self.stretches.remove(&place) {
                self.bytes -= known.stretch.end - place.1;
            }
        }
    }
}

/// Reads frames from `at` on, not beyond `until`, about as many as a stretch has bytes; at least one.
fn read_stretch(file: &JournalFile, at: u64, until: u64) -> Result<Stretch> {
    let damaged = |at: u64| {
        Error::corrupt(format!(
            "{}: the frame at byte {at} is damaged: restore the file from a copy of the disk",
            file.path.display()
        ))
    };
    let mut wanted = STRETCH.min(until.saturating_sub(at));
    loop {
        let bytes = read_bytes(file, at, wanted)?;
        let mut stretch = Stretch {
            frames: Vec::new(),
            end: at,
        };
        let mut start = 0;
        while start < bytes.len() {
            let rest = &bytes[start..];
            let frame_at = at + start as u64;
            let Some(head) = Head::read(rest, file.nonce) else {
                // The head may have been cut off by the end of what was read.
                if wanted == until - at || start == 0 && wanted >= STRETCH {
                    return Err(damaged(frame_at));
                }
                break;
            };
            if head.frame_bytes() > rest.len() {
                break;
            }
            if !head.body_is_whole(rest) {
                return Err(damaged(frame_at));
            }
            let body = bytes.slice(start + head.body().start..start + head.body().end);
            let sections = head.sections(&body)?;
            start += head.frame_bytes();
            stretch.frames.push(Frame {
                at: frame_at,
                stamp: head.stamp,
                slices: head.slices,
                sections,
                body,
            });
            stretch.end = at + start as u64;
        }
        if !stretch.frames.is_empty() {
            return Ok(stretch);
        }
        // The first frame alone is longer.
        let head = Head::read(&bytes, file.nonce).ok_or_else(|| damaged(at))?;
        if head.frame_bytes() as u64 > until - at {
            return Err(damaged(at));
        }
        wanted = head.frame_bytes() as u64;
    }
}

fn read_bytes(file: &JournalFile, at: u64, len: u64) -> Result<Bytes> {
    let len = usize::try_from(len).map_err(|_| Error::internal("stretch above address space"))?;
    file.file
        .read(at, len)
        .map_err(|e| disk_error(&file.path, "can't be read", &e))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{disk, end_of, fill, journal_files};
    use super::super::{FILE_HEAD, FileHead, HEAD_LEN};
    use super::*;
    use crate::frame::ALIGN;
    use std::sync::Barrier;
    use tidemill_env::files::Files;
    use tidemill_env::metrics::Counter;

    #[test]
    fn those_who_come_for_the_same_at_once_read_it_once() {
        const READERS: usize = 8;
        let disk = disk();
        drop(fill(&disk, 40, 2));
        let path = journal_files(&disk).swap_remove(0);
        let file = disk.open(&path).expect("opened");
        let mut head = [0; HEAD_LEN];
        file.read_at(0, &mut head).expect("read");
        let FileHead { number, nonce, .. } = FileHead::read(&head).expect("whole");
        let bytes = file.read(0, 16 << 10).expect("read");
        let end = end_of(&bytes).next_multiple_of(ALIGN) as u64;
        let file = JournalFile {
            number,
            nonce,
            path,
            file,
        };
        for _ in 0..200 {
            let counted = Stretches {
                hits: Counter::default(),
                misses: Counter::default(),
            };
            let frames = Frames::new(12 << 20, counted.clone());
            let begin = Barrier::new(READERS);
            std::thread::scope(|scope| {
                for _ in 0..READERS {
                    scope.spawn(|| {
                        begin.wait();
                        frames.read(&file, FILE_HEAD, end).expect("read");
                    });
                }
            });
            let again = (counted.misses.get(), counted.hits.get());
            assert_eq!(again, (1, READERS as u64 - 1));
        }
    }
}
