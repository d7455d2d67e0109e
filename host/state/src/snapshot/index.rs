//! The index of a snapshot: which objects it consists of.
//!
//! ```text
//! little endian:
//!   8 bytes  magic "tmsindex"
//!   u16  version = 1, u16 0, u32 runs, u64 commit
//!   run, repeated, the oldest first: u32 objects, then for each: u64 bytes, u16 path_len, path
//!   u32 crc32c of everything before it
//! ```
//!
//! The first run has everything as of its own commit, each of the others what changed since the one before.

use super::{checksum, u32_at, u64_at, wrong};
use std::collections::BTreeSet;
use tidemill_types::{CommitSeq, Result};

const MAGIC: &[u8; 8] = b"tmsindex";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;

/// One object of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

/// What a snapshot consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Index {
    pub(crate) commit: CommitSeq,
    pub(crate) runs: Vec<Vec<Part>>,
}

impl Index {
    /// Whether these are the bytes of an index; else they are those of a snapshot that is one object.
    pub(crate) fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// All objects, in the order in which they are taken.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.runs.iter().flatten()
    }

    /// The paths of all objects, and that of the index itself.
    pub(crate) fn objects(&self, index: &str) -> BTreeSet<String> {
        let parts = self.parts().map(|part| part.path.clone());
        parts.chain([index.to_owned()]).collect()
    }

    /// Bytes of the first run, and of those behind it.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let bytes = |run: &Vec<Part>| run.iter().map(|part| part.bytes).sum::<u64>();
        let mut runs = self.runs.iter().map(bytes);
        (runs.next().unwrap_or_default(), runs.sum())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend([0, 0]);
        out.extend(count(self.runs.len()));
        out.extend(self.commit.0.to_le_bytes());
        for run in &self.runs {
            out.extend(count(run.len()));
            for part in run {
                out.extend(part.bytes.to_le_bytes());
                out.extend(
                    u16::try_from(part.path.len())
                        .unwrap_or(u16::MAX)
                        .to_le_bytes(),
                );
                out.extend(part.path.as_bytes());
            }
        }
        out.extend(checksum(&[&out]).to_le_bytes());
        out
    }

    /// # Errors
    /// `Corrupt` with the byte position.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let end = bytes.len().saturating_sub(4);
        if !Self::is_one(bytes) || end < HEADER_BYTES {
            return Err(wrong(0, "it isn't the index of a snapshot"));
        }
        if checksum(&[&bytes[..end]]) != u32_at(bytes, end) {
            return Err(wrong(end, "the index's checksum is wrong"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            let reason = format!("version {version} of the index is not one this program can read");
            return Err(wrong(8, reason));
        }
        let mut rest = &bytes[HEADER_BYTES..end];
        let mut runs = Vec::new();
        for _ in 0..u32_at(bytes, 12) {
            let run = run(&mut rest);
            runs.push(run.ok_or_else(|| wrong(end - rest.len(), "the index ends inside a run"))?);
        }
        match rest {
            [] => Ok(Self {
                commit: CommitSeq(u64_at(bytes, 16)),
                runs,
            }),
            more => Err(wrong(
                end - more.len(),
                "there are bytes behind the last run",
            )),
        }
    }
}

fn run(rest: &mut &[u8]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for _ in 0..u32_at(take(rest, 4)?, 0) {
        let bytes = u64_at(take(rest, 8)?, 0);
        let len = take(rest, 2)?;
        let path = take(rest, usize::from(u16::from_le_bytes([len[0], len[1]])))?;
        let path = std::str::from_utf8(path).ok()?.to_owned();
        parts.push(Part { path, bytes });
    }
    Some(parts)
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_have_golden_bytes_and_nothing_wrong_passes() {
        let part = |path: &str, bytes| Part {
            path: path.to_owned(),
            bytes,
        };
        let index = Index {
            commit: CommitSeq(0x0102),
            runs: vec![vec![part("a", 3), part("bc", 4)], vec![]],
        };
        let bytes = index.encode();
        #[rustfmt::skip]
        let golden = [
            b't', b'm', b's', b'i', b'n', b'd', b'e', b'x',  1, 0, 0, 0,  2, 0, 0, 0,
            2, 1, 0, 0, 0, 0, 0, 0,
            2, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,  1, 0, b'a',  4, 0, 0, 0, 0, 0, 0, 0,  2, 0, b'b', b'c',
            0, 0, 0, 0,
        ];
        assert_eq!(bytes[..bytes.len() - 4], golden);
        assert_eq!(Index::decode(&bytes).expect("good"), index);
        assert_eq!(index.bytes(), (7, 0));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Index::decode(&bad).is_err(), "byte {at}");
            assert!(Index::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
