//! Memory that a disk reads into and writes from past the page cache, used again: in fresh memory the kernel's work
//! costs more than reading does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Positions, lengths and buffers are multiples of it.
pub(super) const BLOCK: usize = 4096;

/// Memory that begins at a multiple of [`BLOCK`].
pub(super) struct Blocks {
    bytes: Vec<u8>,
    start: usize,
}

impl Blocks {
    /// With room for so many bytes, a multiple of [`BLOCK`].
    pub(super) fn new(room: usize) -> Self {
        let bytes = vec![0; room + BLOCK];
        // Never more than a block: there is no such address only where pointers aren't addresses.
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { bytes, start }
    }

    fn room(&self) -> usize {
        self.bytes.len().saturating_sub(BLOCK)
    }

    pub(super) fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

/// Blocks that nobody needs at the moment, of all files of a disk.
#[derive(Debug)]
pub(super) struct Kept {
    free: Mutex<Free>,
    /// Bytes of those to be read into; those to be written from may take as much.
    most: usize,
}

#[derive(Default)]
struct Free {
    /// The one let go last at the end.
    reading: Vec<Blocks>,
    /// One thread writes the journal.
    writing: Option<Blocks>,
}

impl std::fmt::Debug for Free {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes())
    }
}

impl Free {
    fn bytes(&self) -> usize {
        self.reading.iter().map(Blocks::room).sum()
    }
}

impl Kept {
    /// None yet, and never more than so many bytes to be read into and as many to be written from.
    pub(super) fn most(most: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::default(),
            most,
        })
    }

    /// Room for so many bytes to be read into.
    pub(super) fn lend(self: &Arc<Self>, room: usize) -> Lent {
        let mut free = self.free();
        let fits = |blocks: &Blocks| (room..=room.saturating_mul(2)).contains(&blocks.room());
        let known = free.reading.iter().rposition(fits);
        let known = known.map(|nth| free.reading.remove(nth));
        drop(free);
        Lent {
            blocks: known.unwrap_or_else(|| Blocks::new(room)),
            home: self.clone(),
        }
    }

    /// Room for so many bytes to be written from.
    pub(super) fn take_to_write(&self, room: usize) -> Blocks {
        let known = self.free().writing.take();
        let known = known.filter(|blocks| blocks.room() >= room);
        known.unwrap_or_else(|| Blocks::new(room.next_power_of_two()))
    }

    /// Those were written.
    pub(super) fn keep_to_write(&self, blocks: Blocks) {
        if blocks.room() <= self.most {
            self.free().writing = Some(blocks);
        }
    }

    /// Those were read.
    fn keep(&self, blocks: Blocks) {
        let mut free = self.free();
        if free.bytes() + blocks.room() <= self.most {
            free.reading.push(blocks);
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks that are read into by whoever comes next once their last reader is gone.
pub(super) struct Lent {
    blocks: Blocks,
    home: Arc<Kept>,
}

impl Lent {
    pub(super) fn get(&mut self, len: usize) -> &mut [u8] {
        self.blocks.get(len)
    }

    /// Where they begin in what is borrowed from them.
    pub(super) fn start(&self) -> usize {
        self.blocks.start
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.blocks.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let empty = Blocks {
            bytes: Vec::new(),
            start: 0,
        };
        self.home.keep(std::mem::replace(&mut self.blocks, empty));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_is_used_again_and_has_a_bound() {
        let kept = Kept::most(16 * BLOCK);
        let first = kept.lend(2 * BLOCK);
        let at = first.as_ref().as_ptr();
        assert_ne!(kept.lend(2 * BLOCK).as_ref().as_ptr(), at, "it is read");
        drop(first);
        assert_eq!(kept.lend(2 * BLOCK).as_ref().as_ptr(), at);
        assert_ne!(kept.lend(BLOCK / 2).as_ref().as_ptr(), at, "too large");
        let many: Vec<_> = (0..40).map(|_| kept.lend(BLOCK)).collect();
        drop(many);
        assert!(kept.free().bytes() <= 16 * BLOCK);
        drop(kept.lend(17 * BLOCK));
        assert!(kept.free().bytes() <= 16 * BLOCK);
    }

    #[test]
    fn who_writes_has_the_same_memory_each_time_unless_it_is_too_much() {
        let kept = Kept::most(16 * BLOCK);
        let mut blocks = kept.take_to_write(5 * BLOCK);
        let at = blocks.get(BLOCK).as_ptr();
        kept.keep_to_write(blocks);
        let mut blocks = kept.take_to_write(8 * BLOCK);
        assert_eq!(blocks.get(8 * BLOCK).as_ptr(), at);
        kept.keep_to_write(blocks);
        let large = kept.take_to_write(17 * BLOCK);
        kept.keep_to_write(large);
        assert!(kept.free().writing.is_none(), "it isn't kept");
    }
}
