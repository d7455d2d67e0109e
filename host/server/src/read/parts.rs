//! The body of an answer in parts: what lies in memory already, and what is written to memory that earlier
//! answers were in.

use bytes::Bytes;
use tidemill_env::Buffers;

/// Bytes that are written together. A part is a little longer, for an event isn't cut.
const PART: usize = 1 << 20;
/// Room for the event that ends a part.
const MORE: usize = PART / 16;

/// A body in the making.
pub(super) struct Parts {
    buffers: Buffers,
    done: Vec<Bytes>,
    /// Bytes of `done`.
    settled: usize,
    /// What comes behind them.
    open: Vec<u8>,
    /// About how many bytes are still to be written.
    expected: usize,
}

impl Parts {
    /// Nothing yet; about so many bytes will be written, beside what is shared.
    pub(super) fn new(buffers: &Buffers, expected: usize) -> Self {
        Self {
            buffers: buffers.clone(),
            done: Vec::new(),
            settled: 0,
            open: Vec::new(),
            expected,
        }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.settled + self.open.len()
    }

    /// Where the next event is written to.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        if self.open.len() >= PART {
            self.settle();
        }
        if self.open.capacity() == 0 {
            self.open = self.buffers.take(self.expected.min(PART + MORE));
        }
        &mut self.open
    }

    /// Sends bytes from where they are.
    pub(super) fn share(&mut self, bytes: Bytes) {
        self.settle();
        self.settled += bytes.len();
        self.done.push(bytes);
    }

    fn settle(&mut self) {
        if !self.open.is_empty() {
            let written = std::mem::take(&mut self.open);
            self.settled += written.len();
            self.expected = self.expected.saturating_sub(written.len());
            self.done.push(self.buffers.lend(written));
        }
    }

    /// All of them in order.
    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.settle();
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_in_order_and_their_memory_comes_back() {
        let buffers = Buffers::keeping(8 * PART);
        let event = [7; 1000];
        let body = |buffers: &Buffers| {
            let mut parts = Parts::new(buffers, 3 * PART);
            let mut events = 0;
            while parts.len() < 2 * PART + 5 {
                parts.out().extend_from_slice(&event);
                events += 1;
            }
            parts.share(Bytes::from_static(b"shared"));
            parts.out().push(b'!');
            (parts.finish(), events)
        };
        let (first, events) = body(&buffers);
        let lengths: Vec<_> = first.iter().map(Bytes::len).collect();
        assert_eq!(first.len(), 4, "{lengths:?}");
        let whole = first.concat();
        assert_eq!(whole.len(), events * event.len() + 7);
        assert!(whole.ends_with(b"\x07shared!"));
        let places = |parts: &[Bytes]| -> Vec<_> { parts.iter().map(|it| it.as_ptr()).collect() };
        let before = places(&first);
        drop(first);
        let (again, _) = body(&buffers);
        let after = places(&again);
        assert!(before.contains(&after[0]) && before.contains(&after[1]));
        assert!(Parts::new(&buffers, 10).finish().is_empty());
    }
}
