//! The index of a snapshot: which objects it consists of.
//!
//! ```text
//! little endian:
//!   8 bytes  magic "tmsindex"
//!   u16  version = 2 (1: no run clears anything), u16 0, u32 runs, u64 commit
//!   run, repeated, the oldest first:
//!     u32 prefixes, then for each: u16 len, prefix    (not in version 1)
//!     u32 objects, then for each: u64 bytes, u16 path_len, path
//!   u32 crc32c of everything before it
//! ```
//!
//! The first run has everything as of its own commit, each of the others what changed since the one before: what
//! begins with one of its prefixes is gone, and then its objects are written over what there is.

use super::{checksum, u32_at, u64_at, wrong};
use std::collections::BTreeSet;
use tidemill_types::{CommitSeq, Result};

const MAGIC: &[u8; 8] = b"tmsindex";
const VERSION: u16 = 2;
const HEADER_BYTES: usize = 24;

/// One object of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

/// Everything, or what changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    /// Beginnings of keys of which all that runs before have is gone.
    pub(crate) cleared: Vec<Box<[u8]>>,
    pub(crate) parts: Vec<Part>,
}

impl Run {
    /// Bytes of its objects.
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    fn decode(rest: &mut &[u8], version: u16) -> Option<Self> {
        let mut run = Self::default();
        if version > 1 {
            for _ in 0..u32_at(take(rest, 4)?, 0) {
                run.cleared.push(short(rest)?.into());
            }
        }
        for _ in 0..u32_at(take(rest, 4)?, 0) {
            let bytes = u64_at(take(rest, 8)?, 0);
            let path = std::str::from_utf8(short(rest)?).ok()?.to_owned();
            run.parts.push(Part { path, bytes });
        }
        Some(run)
    }
}

/// What a snapshot consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Index {
    pub(crate) commit: CommitSeq,
    pub(crate) runs: Vec<Run>,
}

impl Index {
    /// Whether these are the bytes of an index; else they are those of a snapshot that is one object.
    pub(crate) fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// All objects, in the order in which they are taken.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.runs.iter().flat_map(|run| &run.parts)
    }

    /// The paths of all objects, and that of the index itself.
    pub(crate) fn objects(&self, index: &str) -> BTreeSet<String> {
        let parts = self.parts().map(|part| part.path.clone());
        parts.chain([index.to_owned()]).collect()
    }

    /// Bytes of the first run, and of those behind it.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let mut runs = self.runs.iter().map(Run::bytes);
        (runs.next().unwrap_or_default(), runs.sum())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend([0, 0]);
        out.extend(count(self.runs.len()));
        out.extend(self.commit.0.to_le_bytes());
        let short = |out: &mut Vec<u8>, bytes: &[u8]| {
            let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            out.extend(len.to_le_bytes());
            out.extend(bytes);
        };
        for run in &self.runs {
            out.extend(count(run.cleared.len()));
            run.cleared
                .iter()
                .for_each(|prefix| short(&mut out, prefix));
            out.extend(count(run.parts.len()));
            for part in &run.parts {
                out.extend(part.bytes.to_le_bytes());
                short(&mut out, part.path.as_bytes());
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
        if !(1..=VERSION).contains(&version) {
            let reason = format!("version {version} of the index is not one this program can read");
            return Err(wrong(8, reason));
        }
        let mut rest = &bytes[HEADER_BYTES..end];
        let mut runs = Vec::new();
        for _ in 0..u32_at(bytes, 12) {
            let run = Run::decode(&mut rest, version);
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

/// Bytes behind their length.
fn short<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take(rest, 2)?;
    take(rest, usize::from(u16::from_le_bytes([len[0], len[1]])))
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
        let run = |cleared: &[&[u8]], parts: Vec<Part>| Run {
            cleared: cleared.iter().map(|prefix| (*prefix).into()).collect(),
            parts,
        };
        let index = Index {
            commit: CommitSeq(0x0102),
            runs: vec![
                run(&[], vec![part("a", 3), part("bc", 4)]),
                run(&[&[0, 9]], vec![]),
            ],
        };
        let bytes = index.encode();
        #[rustfmt::skip]
        let golden = [
            b't', b'm', b's', b'i', b'n', b'd', b'e', b'x',  2, 0, 0, 0,  2, 0, 0, 0,
            2, 1, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0,
            2, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,  1, 0, b'a',  4, 0, 0, 0, 0, 0, 0, 0,  2, 0, b'b', b'c',
            1, 0, 0, 0,  2, 0, 0, 9,
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

    #[test]
    fn indexes_of_version_1_are_read() {
        #[rustfmt::skip]
        let mut golden = vec![
            b't', b'm', b's', b'i', b'n', b'd', b'e', b'x',  1, 0, 0, 0,  2, 0, 0, 0,
            2, 1, 0, 0, 0, 0, 0, 0,
            1, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0,  1, 0, b'a',
            0, 0, 0, 0,
        ];
        golden.extend(checksum(&[&golden]).to_le_bytes());
        let whole = Run {
            cleared: vec![],
            parts: vec![Part {
                path: "a".to_owned(),
                bytes: 3,
            }],
        };
        let expected = Index {
            commit: CommitSeq(0x0102),
            runs: vec![whole, Run::default()],
        };
        assert_eq!(Index::decode(&golden).expect("good"), expected);
    }
}
