//! The journal: files written once with zeros, overwritten by frames in order, recycled by rename.
//!
//! ```text
//! <dir>/journal/<number, 20 digits>.journal    part of the journal, oldest first
//! <dir>/journal/<number, 20 digits>.spare      cut off; its bytes mean nothing any more
//! file head, 36 bytes in a block of 4096
//!   0  8  "TMJOURNL"
//!   8  u32  version   1
//!  12  u64  number    the one in the file's name
//!  20  u64  nonce     drawn anew for each use of the file; enters the crc of every frame's head
//!  28  u32  zero
//!  32  u32  crc32c of the 32 bytes before
//! frames from byte 4096 on, see `frame`
//! ```
//!
//! A group of frames (what one sync makes durable) lies in one file, and a file gets its first frame
//! only after everything before is durable. After every start a new file is begun: behind a torn tail
//! there may be frames that nobody was told of, and they must not be taken for new ones.

mod pool;
mod scan;
mod writer;

pub(crate) use pool::{Pool, check_size};
pub(crate) use scan::{Found, Recovered, recover};
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
const HEAD_LEN: usize = 36;

/// One file that is part of the journal.
pub(crate) struct JournalFile {
    pub(crate) number: u64,
    pub(crate) nonce: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

fn head_bytes(number: u64, nonce: u64) -> [u8; HEAD_LEN] {
    let mut out = [0; HEAD_LEN];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..20].copy_from_slice(&number.to_le_bytes());
    out[20..28].copy_from_slice(&nonce.to_le_bytes());
    let crc = crc32_iscsi(&out[..32]);
    out[32..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Number and nonce of a file's head.
fn read_head(head: &[u8; HEAD_LEN]) -> Option<(u64, u64)> {
    let (number, nonce) = (number_at(head, 12), number_at(head, 20));
    (*head == head_bytes(number, nonce)).then_some((number, nonce))
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
