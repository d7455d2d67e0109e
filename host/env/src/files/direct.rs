//! A file past the page cache (`O_DIRECT`): whole blocks between the disk and buffers that are used
//! again. Pages of a cache that grows are fresh memory, which costs many times what is copied into it
//! where a hypervisor has to provide it; and what the journal writes is read at most once or twice.

use bytes::Bytes;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Positions, lengths and buffers are multiples of it.
pub(super) const BLOCK: usize = 4096;
/// Read at a time.
const READ: usize = 1 << 20;
/// Larger buffers for writing aren't kept.
const KEPT: usize = 8 << 20;

/// An open file.
pub(super) struct Direct {
    file: File,
    writing: Mutex<Writing>,
    reading: Mutex<Option<Blocks>>,
}

struct Writing {
    blocks: Blocks,
    /// The block that was written last, if more will be written into it: where it lies, and its bytes.
    last: Option<(u64, Vec<u8>)>,
}

impl Direct {
    /// Opens an existing file; `None` where files can't be used in this way, or this one can't: its size
    /// has to be a multiple of [`BLOCK`].
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if is_unsupported(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let size = file.metadata()?.len();
        if !size.is_multiple_of(BLOCK as u64) {
            return Ok(None);
        }
        let mut blocks = Blocks::new(BLOCK);
        match file.read_at(blocks.get(BLOCK), 0) {
            Ok(_) => {}
            Err(error) if is_unsupported(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        let writing = Writing { blocks, last: None };
        Ok(Some(Self {
            file,
            writing: Mutex::new(writing),
            reading: Mutex::new(None),
        }))
    }

    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    pub(super) fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let kept = self.reading().take();
        let mut blocks = kept.unwrap_or_else(|| Blocks::new(READ + BLOCK));
        let mut done = 0;
        while done < out.len() {
            let from = at + done as u64;
            let before = offset_in_block(from);
            let wanted = (before + out.len() - done).min(READ);
            let whole = wanted.next_multiple_of(BLOCK);
            let read = blocks.get(whole);
            let got = read_blocks(&self.file, from - before as u64, read)?;
            let bytes = got.min(wanted).saturating_sub(before);
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out[done..done + bytes].copy_from_slice(&read[before..before + bytes]);
            done += bytes;
        }
        *self.reading() = Some(blocks);
        Ok(())
    }

    /// Reads whole blocks straight into what is given out, without a copy.
    pub(super) fn read(&self, at: u64, len: usize) -> io::Result<Bytes> {
        let before = offset_in_block(at);
        let whole = (before + len).next_multiple_of(BLOCK);
        let mut blocks = Lent::new(whole);
        let got = read_blocks(&self.file, at - before as u64, blocks.0.get(whole))?;
        if got < before + len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = blocks.0.start + before;
        Ok(Bytes::from_owner(blocks).slice(from..from + len))
    }

    pub(super) fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return Ok(());
        }
        let mut writing = self.writing();
        let Writing { blocks, last } = &mut *writing;
        let before = offset_in_block(at);
        let whole = (before + len).next_multiple_of(BLOCK);
        if blocks.room() < whole || blocks.room() > KEPT {
            *blocks = Blocks::new(whole.next_power_of_two());
        }
        let out = blocks.get(whole);
        let first = at - before as u64;
        if before > 0 {
            match last.take() {
                Some((known, bytes)) if known == first => out[..BLOCK].copy_from_slice(&bytes),
                _ => {
                    let got = read_blocks(&self.file, first, &mut out[..BLOCK])?;
                    out[got..BLOCK].fill(0);
                }
            }
        }
        let mut to = before;
        for part in parts {
            out[to..to + part.len()].copy_from_slice(part);
            to += part.len();
        }
        out[to..].fill(0);
        *last = None;
        self.file.write_all_at(out, first)?;
        if to < whole {
            let at = first + (whole - BLOCK) as u64;
            *last = Some((at, out[whole - BLOCK..].to_vec()));
        }
        Ok(())
    }

    fn reading(&self) -> MutexGuard<'_, Option<Blocks>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads until the buffer is full or the file ends.
fn read_blocks(file: &File, at: u64, out: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // A read that ends inside a block has met the end of the file.
        if !done.is_multiple_of(BLOCK) {
            break;
        }
    }
    Ok(done)
}

fn offset_in_block(at: u64) -> usize {
    usize::try_from(at % BLOCK as u64).unwrap_or_default()
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

/// Memory that begins at a multiple of [`BLOCK`].
struct Blocks {
    bytes: Vec<u8>,
    start: usize,
}

impl Blocks {
    /// With room for so many bytes, a multiple of [`BLOCK`].
    fn new(room: usize) -> Self {
        let bytes = vec![0; room + BLOCK];
        // Never more than a block: there is no such address only where pointers aren't addresses.
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { bytes, start }
    }

    fn room(&self) -> usize {
        self.bytes.len() - BLOCK
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

/// Bytes of blocks that were read into and let go, kept for later readers of any file.
const LENT: usize = 16 << 20;

static LET_GO: Mutex<Vec<Blocks>> = Mutex::new(Vec::new());

/// Blocks that are read into by whoever comes next once their last reader is gone: in fresh memory the kernel's
/// work costs more than reading does.
struct Lent(Blocks);

impl Lent {
    fn new(room: usize) -> Self {
        let mut kept = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |blocks: &Blocks| (room..=room.saturating_mul(2)).contains(&blocks.room());
        let known = kept.iter().rposition(fits);
        let known = known.map(|nth| kept.swap_remove(nth));
        drop(kept);
        Self(known.unwrap_or_else(|| Blocks::new(room)))
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let empty = Blocks {
            bytes: Vec::new(),
            start: 0,
        };
        let blocks = std::mem::replace(&mut self.0, empty);
        let mut kept = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: usize = kept.iter().map(Blocks::room).sum();
        if bytes + blocks.room() <= LENT {
            kept.push(blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn file(dir: &Path, size: usize) -> (Direct, std::path::PathBuf) {
        let path = dir.join("file");
        std::fs::write(&path, vec![7; size]).expect("written");
        let direct = Direct::open(&path).expect("opens");
        (direct.expect("this file system can do it"), path)
    }

    #[test]
    fn a_file_of_odd_size_is_left_to_the_cache() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("odd");
        std::fs::write(&path, [1; BLOCK + 1]).expect("written");
        assert!(Direct::open(&path).expect("opens").is_none());
    }

    #[test]
    fn writes_at_any_place_are_as_written_and_only_the_rest_of_the_block_is_zeroed() {
        let dir = tempfile::tempdir().expect("dir");
        let size = 64 * BLOCK;
        let (direct, path) = file(dir.path(), size);
        let mut expected = vec![7; size];
        let random = Random::seeded(3);
        let mut held: Vec<(Bytes, Vec<u8>)> = Vec::new();
        let mut at = 0;
        for nth in 0..200_u8 {
            let below = |n: usize| usize::try_from(random.below(n as u64)).expect("small");
            // Mostly one behind the other, as a journal; now and then somewhere else.
            if nth % 10 == 0 || at + 3 * BLOCK > size {
                at = below(size - 3 * BLOCK);
            }
            let len = below(2 * BLOCK);
            let bytes = vec![nth; len];
            let (one, two) = bytes.split_at(len / 3);
            direct
                .write_at(at as u64, &[one, b"", two])
                .expect("written");
            expected[at..at + len].copy_from_slice(&bytes);
            if len > 0 {
                let end = (at + len).next_multiple_of(BLOCK);
                expected[at + len..end].fill(0);
            }
            at += len;
            let from = below(size - 10);
            let mut seen = vec![0; below(size - from)];
            direct.read_at(from as u64, &mut seen).expect("read");
            assert_eq!(seen, expected[from..from + seen.len()]);
            let read = direct.read(from as u64, seen.len()).expect("read");
            assert_eq!(read, seen);
            held.push((read, seen));
            assert!(held.iter().all(|(read, were)| read == were));
            held.retain(|_| random.below(3) > 0);
        }
        direct.sync_data().expect("synced");
        assert_eq!(std::fs::read(path).expect("read"), expected);
        let mut beyond = [0; 2];
        let end = direct
            .read_at(size as u64 - 1, &mut beyond)
            .expect_err("the end");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        let end = direct.read(size as u64 - 1, 2).expect_err("the end");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
