//! The store behind: what an ordered store must offer to be one. Nothing else of a store is used.

mod lsm;
#[cfg(test)]
mod map;

pub(crate) use lsm::open;
#[cfg(test)]
pub(crate) use map::{Fault, Map};

use std::borrow::Cow;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use tidemill_types::CommitSeq;

/// An ordered store with atomic batches. Every method blocks.
pub(crate) trait Behind: Send + Sync {
    /// What it says of itself.
    fn marker(&self) -> Result<Marker, Failure>;
    /// Looks keys up, best in rising order; calls back with the place in `keys`.
    fn get_many(
        &self,
        keys: &[Vec<u8>],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure>;
    /// Writes all or nothing. With `None` the marker stays.
    fn write(&self, batch: &[Write<'_>], marker: Option<Marker>) -> Result<(), Failure>;
    /// Takes very many keys at once. None of it is there before [`Fill::finish`]; the marker stays.
    fn fill(&self) -> Result<Box<dyn Fill + '_>, Failure>;
    /// What is in it now, whatever is written later. As long as it is kept, so is in memory what is written meanwhile.
    fn view(&self) -> Result<Box<dyn View>, Failure>;
    /// The same, to be gone through once; it keeps nothing of what is written meanwhile.
    fn pass(&self) -> Result<Pass, Failure>;
    /// How many keys there are, about.
    fn count(&self) -> u64;
    /// Removes everything, the marker too.
    fn clear(&self) -> Result<(), Failure>;
    /// Makes everything written so far survive a power cut.
    fn persist(&self) -> Result<(), Failure>;
}

/// A store that is filled.
pub(crate) trait Fill {
    /// Takes a key, above the one before, and its value, or `None` where it was removed, in place of what it had.
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Failure>;
    /// Everything is there now, and survives a power cut.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// A store as it was at one moment.
pub(crate) trait View: Send {
    /// The value of a key.
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;
    /// Keys from one on and before another (`None`: to the end), in order, until told to stop.
    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Option<&[u8]>,
        each: &mut Each<'_>,
    ) -> Result<(), Failure>;
}

/// Goes through a store as it was at one moment, in order, until told to stop.
pub(crate) type Pass = Box<dyn FnOnce(&mut Each<'_>) -> Result<(), Failure> + Send>;

/// Takes a key and its value and says whether to go on.
pub(crate) type Each<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A key and its value, or `None` to remove it.
pub(crate) struct Write<'a> {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Cow<'a, [u8]>>,
}

/// What a store says of itself; in the same batch as what it speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marker {
    /// It is empty.
    Empty,
    /// Exactly the state as of this commit.
    Exact(CommitSeq),
    /// In the middle of something that took more than one batch.
    Torn,
}

impl Marker {
    const VERSION: u8 = 1;

    fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Empty => vec![],
            Self::Exact(commit) => [&[Self::VERSION], &commit.0.to_be_bytes()[..]].concat(),
            Self::Torn => vec![Self::VERSION],
        }
    }

    fn read(bytes: &[u8]) -> Self {
        match bytes {
            [Self::VERSION, commit @ ..] => commit.try_into().map_or(Self::Torn, |commit| {
                Self::Exact(CommitSeq(u64::from_be_bytes(commit)))
            }),
            _ => Self::Torn,
        }
    }
}

/// Why a store didn't do what it was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// Somebody else holds it, or we still do.
    InUse,
    /// Its files can't be written at the moment, for want of space for instance. It did nothing, and what it has can
    /// be read.
    Unwritable(String),
    /// Anything else, in words.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("it is in use"),
            Self::Unwritable(reason) | Self::Broken(reason) => f.write_str(reason),
        }
    }
}
