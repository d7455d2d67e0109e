//! Buffers that nobody reads any more, filled again: in fresh memory the kernel's work costs more than what is
//! copied into it.

use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Smaller buffers cost little wherever they come from.
const LEAST: usize = 8 << 10;
/// Larger ones would keep too much from those that need less.
const MOST: usize = 2 << 20;
/// How many of the kept buffers are looked at for one that fits.
const LOOK: usize = 32;

/// The buffers kept. Clones are the same.
#[derive(Clone)]
pub struct Buffers(Arc<Mutex<Kept>>);

struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    most: usize,
}

impl Buffers {
    /// None yet, and at most so many bytes.
    pub fn keeping(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept {
            buffers: Vec::new(),
            bytes: 0,
            most,
        })))
    }

    /// An empty buffer with at least this room.
    pub fn take(&self, room: usize) -> Vec<u8> {
        let kept = if (LEAST..=MOST).contains(&room) {
            self.kept().take(room)
        } else {
            None
        };
        kept.unwrap_or_else(|| Vec::with_capacity(room))
    }

    /// The bytes of a buffer, which comes back when the last reader lets them go.
    pub fn lend(&self, buffer: Vec<u8>) -> Bytes {
        if !(LEAST..=MOST).contains(&buffer.capacity()) {
            return buffer.into();
        }
        let home = self.clone();
        Bytes::from_owner(Lent { buffer, home })
    }

    /// A buffer that nobody else has read, back again.
    pub fn give_back(&self, buffer: Vec<u8>) {
        if (LEAST..=MOST).contains(&buffer.capacity()) {
            self.kept().put(buffer);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn put(&mut self, mut buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= self.most {
            buffer.clear();
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }

    fn take(&mut self, room: usize) -> Option<Vec<u8>> {
        let fits = |buffer: &Vec<u8>| (room..=room.saturating_mul(4)).contains(&buffer.capacity());
        let back = self.buffers.iter().rev().take(LOOK).position(fits)?;
        let buffer = self.buffers.swap_remove(self.buffers.len() - 1 - back);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }
}

struct Lent {
    buffer: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.home.kept().put(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_reader_is_gone() {
        let buffers = Buffers::keeping(MOST);
        let mut first = buffers.take(LEAST);
        first.extend_from_slice(b"abc");
        let at = first.as_ptr();
        let bytes = buffers.lend(first);
        let reader = bytes.slice(1..);
        drop(bytes);
        let other = buffers.take(LEAST);
        assert_ne!(other.as_ptr(), at, "still read");
        assert_eq!(reader, b"bc"[..]);
        drop(reader);
        let larger = buffers.take(5 * LEAST);
        assert_ne!(larger.as_ptr(), at, "too small");
        let again = buffers.take(LEAST);
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        assert_eq!(buffers.kept().bytes, 0);
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        const KEPT: usize = 32 << 20;
        let buffers = Buffers::keeping(KEPT);
        let lent: Vec<Bytes> = (0..40).map(|_| buffers.lend(vec![0; 1 << 20])).collect();
        drop(lent);
        assert!(buffers.kept().bytes <= KEPT);
        assert!(buffers.kept().buffers.len() >= 30);
        drop(buffers.lend(vec![0; MOST + 1]));
        assert!(buffers.kept().bytes <= KEPT);
    }
}
