//! The journal: files written once with zeros, overwritten by frames in order, recycled by rename.
//!
//! ```text
//! <dir>/journal/<number, 20 digits>.journal    part of the journal, oldest first
//! <dir>/journal/<number, 20 digits>.spare      cut off; its bytes mean nothing any more
//! file head, 44 bytes in a block of 4096
//!   0  8  "TMJOURNL"
//!   8  u32  version   1
//!  12  u64  number    the one in the file's name
//!  20  u64  nonce     drawn anew for each use of the file; enters the crc of every frame's head
//!  28  u64  data id   the one in the manifest: ties a journal to its storage
//!  36  u32  zero
//!  40  u32  crc32c of the 40 bytes before
//! frames from byte 4096 on, see `frame`
//! ```
//!
//! A group of frames (what one sync makes durable) lies in one file, and a file gets its first frame
//! only after everything before is durable. After every start a new file is begun: behind a torn tail
//! there may be frames that nobody was told of, and they must not be taken for new ones.

mod frames;
mod pool;
mod scan;
mod survey;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

pub(crate) use frames::{Frame, Frames};
pub(crate) use pool::{Filling, Pool, check_size};
pub(crate) use scan::{Found, Recovered, recover};
pub(crate) use survey::{HeadState, Survey, Surveyed, copy, cut_tail, survey, write_head};
pub(crate) use writer::{Placed, Queued, Writer};

use crc_fast::crc32_iscsi;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_env::files::File;
use tidemill_types::{Error, ErrorKind};

/// Where the first frame of a file lies; sectors of the head and of frames are never the same.
pub(crate) const FILE_HEAD: u64 = 4096;
const MAGIC: [u8; 8] = *b"TMJOURNL";
const VERSION: u32 = 1;
const HEAD_LEN: usize = 44;

/// One file that is part of the journal.
pub(crate) struct JournalFile {
    pub(crate) number: u64,
    pub(crate) nonce: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

/// What a file's head says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileHead {
    number: u64,
    nonce: u64,
    data_id: u64,
}

impl FileHead {
    fn to_bytes(self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..20].copy_from_slice(&self.number.to_le_bytes());
        out[20..28].copy_from_slice(&self.nonce.to_le_bytes());
        out[28..36].copy_from_slice(&self.data_id.to_le_bytes());
        let crc = crc32_iscsi(&out[..40]);
        out[40..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn read(bytes: &[u8; HEAD_LEN]) -> Option<Self> {
        let head = Self {
            number: number_at(bytes, 12),
            nonce: number_at(bytes, 20),
            data_id: number_at(bytes, 28),
        };
        (head.to_bytes() == *bytes).then_some(head)
    }
}

fn number_at(head: &[u8; HEAD_LEN], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn journal_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.journal"))
}

fn spare_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:020}.spare"))
}

/// The number in a file's name, if it has that ending.
fn number_of(path: &Path, ending: &str) -> Option<u64> {
    let fits = path.extension().is_some_and(|e| e == ending);
    path.file_stem().filter(|_| fits)?.to_str()?.parse().ok()
}

/// A failure of the disk, told with the file it happened to.
pub(crate) fn disk_error(path: &Path, what: &str, error: &std::io::Error) -> Error {
    let (kind, code) = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            (ErrorKind::StorageFull, "storage-full")
        }
        _ => (ErrorKind::Unavailable, "disk-failed"),
    };
    Error::new(kind, code, format!("{}: {what}: {error}", path.display()))
}
