//! A file past the page cache (`O_DIRECT`): whole blocks between the disk and buffers that are used
//! again. Pages of a cache that grows are fresh memory, which costs many times what is copied into it
//! where a hypervisor has to provide it; and what the journal writes is read at most once or twice.

use super::aligned::{BLOCK, Blocks, Kept};
use bytes::Bytes;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Read at a time.
const READ: usize = 1 << 20;

/// An open file. It has no buffers of its own, so that many can be open.
pub(super) struct Direct {
    file: File,
    /// The block that was written last, if more will be written into it: where it lies, and its bytes.
    last: Mutex<Option<(u64, Vec<u8>)>>,
    kept: Arc<Kept>,
}

impl Direct {
    /// Opens an existing file; `None` where files can't be used in this way, or this one can't: its size
    /// has to be a multiple of [`BLOCK`].
    pub(super) fn open(path: &Path, kept: &Arc<Kept>) -> io::Result<Option<Self>> {
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
        Ok(Some(Self {
            file,
            last: Mutex::new(None),
            kept: kept.clone(),
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
        // No more than is asked for, by any block that it begins and ends in.
        let mut blocks = self
            .kept
            .lend(READ.min(out.len().next_multiple_of(BLOCK) + BLOCK));
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
        Ok(())
    }

    /// Reads whole blocks straight into what is given out, without a copy.
    pub(super) fn read(&self, at: u64, len: usize) -> io::Result<Bytes> {
        let before = offset_in_block(at);
        let whole = (before + len).next_multiple_of(BLOCK);
        let mut blocks = self.kept.lend(whole);
        let got = read_blocks(&self.file, at - before as u64, blocks.get(whole))?;
        if got < before + len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = blocks.start() + before;
        Ok(Bytes::from_owner(blocks).slice(from..from + len))
    }

    pub(super) fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == 0 {
            return Ok(());
        }
        let mut last = self.last();
        let before = offset_in_block(at);
        let whole = (before + len).next_multiple_of(BLOCK);
        let mut blocks = self.kept.take_to_write(whole);
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
        self.kept.keep_to_write(blocks);
        Ok(())
    }

    /// Writes whole blocks, which lie and begin at a multiple of [`BLOCK`], from where they are.
    pub(super) fn write_blocks(&self, at: u64, blocks: &[u8]) -> io::Result<()> {
        *self.last() = None;
        self.file.write_all_at(blocks, at)
    }

    fn last(&self) -> MutexGuard<'_, Option<(u64, Vec<u8>)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Whether an error says that a file can't be used past the page cache.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn file(dir: &Path, size: usize) -> (Direct, std::path::PathBuf) {
        let path = dir.join("file");
        std::fs::write(&path, vec![7; size]).expect("written");
        let direct = Direct::open(&path, &Kept::most(1 << 20)).expect("opens");
        (direct.expect("this file system can do it"), path)
    }

    #[test]
    fn a_file_of_odd_size_is_left_to_the_cache() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("odd");
        std::fs::write(&path, [1; BLOCK + 1]).expect("written");
        let opened = Direct::open(&path, &Kept::most(1 << 20));
        assert!(opened.expect("opens").is_none());
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
