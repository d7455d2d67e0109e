//! A new file, written once from its beginning to its end, past the page cache where that is wanted and possible. What
//! lies in the cache reaches the disk in bursts, and a journal that is synced at that moment waits behind them; and to copy
//! into pages of a cache that grows costs more than to copy into memory that is used again.

use super::aligned::{BLOCK, Blocks};
use super::direct::is_unsupported;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Written at a time: enough for the disk to be quick, and no more than a sync beside it can wait for.
const STEP: usize = 512 << 10;

/// A file that grows; nothing of it is safe before it is synced, nor whole before [`FreshFile::finish`].
pub struct FreshFile {
    file: File,
    past_cache: bool,
    blocks: Blocks,
    /// Bytes that wait in `blocks`.
    filled: usize,
    /// Bytes before them.
    at: u64,
}

impl FreshFile {
    /// Begins one, in the place of another that has this name; the other stays what it is if it has more names.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn create(path: &Path, past_cache: bool) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let open = |flags: rustix::fs::OFlags| {
            let mut options = OpenOptions::new();
            let flags = i32::try_from(flags.bits()).unwrap_or_default();
            options.write(true).create_new(true).custom_flags(flags);
            options.open(path)
        };
        let none = rustix::fs::OFlags::empty();
        let (file, past_cache) = match past_cache {
            true => match open(rustix::fs::OFlags::DIRECT) {
                Ok(file) => (file, true),
                // Some file systems have made it by then.
                Err(error) if is_unsupported(&error) => {
                    let _ = std::fs::remove_file(path);
                    (open(none)?, false)
                }
                Err(error) => return Err(error),
            },
            false => (open(none)?, false),
        };
        Ok(Self {
            file,
            past_cache,
            blocks: Blocks::new(STEP),
            filled: 0,
            at: 0,
        })
    }

    /// Ends it; how many bytes it has. They are safe once they were synced.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn finish(mut self) -> io::Result<u64> {
        let size = self.at + self.filled as u64;
        if self.past_cache && !self.filled.is_multiple_of(BLOCK) {
            let whole = self.filled.next_multiple_of(BLOCK);
            let filled = self.filled;
            self.blocks.get(whole)[filled..].fill(0);
            self.filled = whole;
            self.put()?;
            self.file.set_len(size)?;
        } else {
            self.put()?;
        }
        Ok(size)
    }

    /// Writes what waits.
    fn put(&mut self) -> io::Result<()> {
        let bytes = self.blocks.get(self.filled);
        if let Err(error) = self.file.write_all_at(bytes, self.at) {
            if !self.past_cache || !is_unsupported(&error) {
                return Err(error);
            }
            // Told only now: everything goes through the cache from here on.
            let flags = rustix::fs::fcntl_getfl(&self.file)?;
            rustix::fs::fcntl_setfl(&self.file, flags - rustix::fs::OFlags::DIRECT)?;
            self.past_cache = false;
            self.file.write_all_at(bytes, self.at)?;
        }
        self.at += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Write for FreshFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(STEP - self.filled);
        let to = self.filled + taken;
        self.blocks.get(STEP)[self.filled..to].copy_from_slice(&bytes[..taken]);
        self.filled = to;
        if to == STEP {
            self.put()?;
        }
        Ok(taken)
    }

    /// Does nothing: what isn't a whole step waits for more, or for the end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_what_was_written_and_not_a_byte_more() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("file");
        for past_cache in [true, false] {
            for size in [
                0,
                1,
                BLOCK,
                STEP - 1,
                STEP,
                STEP + 1,
                3 * STEP + 5 * BLOCK + 7,
            ] {
                let bytes: Vec<u8> = (0..251_u8).cycle().take(size).collect();
                let mut file = FreshFile::create(&path, past_cache).expect("created");
                for some in bytes.chunks(100_003) {
                    file.write_all(some).expect("written");
                }
                file.flush().expect("nothing to do");
                assert_eq!(file.finish().expect("finished"), size as u64);
                assert_eq!(std::fs::read(&path).expect("read"), bytes, "{past_cache}");
            }
        }
    }

    #[test]
    fn another_name_of_a_file_before_it_keeps_its_bytes() {
        let dir = tempfile::tempdir().expect("dir");
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        let mut file = FreshFile::create(&path, true).expect("created");
        file.write_all(b"first").expect("written");
        file.finish().expect("finished");
        std::fs::hard_link(&path, &other).expect("linked");
        let mut file = FreshFile::create(&path, true).expect("created");
        file.write_all(b"2").expect("written");
        file.finish().expect("finished");
        assert_eq!(std::fs::read(&path).expect("read"), b"2");
        assert_eq!(std::fs::read(&other).expect("read"), b"first");
    }
}
