//! What lies in the journal, file by file and frame by frame.

use super::Directory;
use crate::frame::Head;
use crate::journal::{Found, HeadState, Survey, survey};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tidemill_types::{Result, Timestamp};

/// A journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalView {
    /// Whether a host had the directory while it was read.
    pub running: bool,
    /// Its files, oldest first.
    pub files: Vec<FileView>,
    /// Files that wait to be used again.
    pub spares: usize,
    /// The first frame that counts.
    pub first: Option<u64>,
    /// The last frame that counts.
    pub last: Option<u64>,
    /// What the sections of all frames that count come to, by kind.
    pub kinds: BTreeMap<&'static str, KindTotal>,
    /// Why a start would refuse it.
    pub damage: Option<String>,
}

/// One file of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileView {
    /// The number in its name.
    pub number: u64,
    /// Where it lies.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Frames that count.
    pub frames: u64,
    /// The first of them.
    pub first: Option<u64>,
    /// The last of them.
    pub last: Option<u64>,
    /// Byte behind the last of them.
    pub end: u64,
    /// Frames of a torn tail, which a start drops: nobody was told of them.
    pub torn_frames: u64,
    /// Their bytes.
    pub torn_bytes: u64,
    /// What is wrong with it, if something is.
    pub damage: Option<String>,
}

/// Sections of one kind together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindTotal {
    /// How many.
    pub sections: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their rows, if they are events.
    pub rows: u64,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameView {
    /// Number of its file.
    pub file: u64,
    /// Where it starts there.
    pub at: u64,
    /// Its length with padding.
    pub bytes: u64,
    /// Its commit sequence number.
    pub sequence: u64,
    /// The last frame that was durable when this one was handed to the disk.
    pub durable: u64,
    /// When it was committed.
    pub time: Timestamp,
    /// What it consists of.
    pub sections: Vec<SectionView>,
    /// Which events went where.
    pub slices: Vec<SliceView>,
}

/// One section of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionView {
    /// What it is.
    pub kind: &'static str,
    /// Its length.
    pub bytes: u64,
    /// The topic's number, where it belongs to one.
    pub topic: Option<u32>,
    /// Its rows, if it is events.
    pub rows: u32,
}

/// Events of a frame that went to one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceView {
    /// The topic's number.
    pub topic: u32,
    /// The partition.
    pub partition: u32,
    /// Offset of the first.
    pub first: u64,
    /// How many.
    pub rows: u32,
    /// Bytes of keys, values and headers.
    pub bytes: u32,
}

impl Directory {
    /// Reads the whole journal and hands on every frame that counts, in order, until `each` says
    /// `false`; the rest is counted all the same.
    ///
    /// # Errors
    /// What the disk says. Damage is no error: it is told in the answer.
    pub fn inspect(&self, mut each: impl FnMut(FrameView) -> bool) -> Result<JournalView> {
        let mut kinds: BTreeMap<&'static str, KindTotal> = BTreeMap::new();
        let mut more = true;
        let looked = survey(&*self.files, &self.journal(), None, |found| {
            let frame = frame_view(&found)?;
            for section in &frame.sections {
                let total = kinds.entry(section.kind).or_default();
                total.sections += 1;
                total.bytes += section.bytes;
                total.rows += u64::from(section.rows);
            }
            more = more && each(frame);
            Ok(())
        })?;
        Ok(view(self.running, &looked, kinds))
    }
}

fn view(running: bool, looked: &Survey, kinds: BTreeMap<&'static str, KindTotal>) -> JournalView {
    let file = |(nth, seen): (usize, &crate::journal::Surveyed)| {
        let damage = looked.damage.as_ref().filter(|damage| damage.nth == nth);
        let head = (seen.head == HeadState::Proven)
            .then(|| "the file's head is damaged; its frames prove what it said".to_owned());
        FileView {
            number: seen.file.number,
            path: seen.file.path.clone(),
            bytes: seen.size,
            frames: seen.frames,
            first: seen.first,
            last: seen.last,
            end: seen.end,
            torn_frames: seen.torn.0,
            torn_bytes: seen.torn.1,
            damage: damage.map(|damage| damage.what.clone()).or(head),
        }
    };
    let files: Vec<FileView> = looked.files.iter().enumerate().map(file).collect();
    let damaged = files.iter().find_map(|file| {
        let what = file.damage.as_ref()?;
        Some(format!("{}: {what}", file.path.display()))
    });
    JournalView {
        running,
        spares: looked.spares,
        first: looked.recovered.first_seq,
        last: looked.recovered.last_seq,
        kinds,
        damage: damaged,
        files,
    }
}

fn frame_view(found: &Found<'_>) -> Result<FrameView> {
    let Head { stamp, slices, .. } = &found.head;
    let section = |section: crate::frame::Section| SectionView {
        kind: section.kind.name(),
        bytes: u64::from(section.len),
        topic: (section.topic > 0).then_some(section.topic),
        rows: section.rows,
    };
    let slice = |slice: &crate::frame::Slice| SliceView {
        topic: slice.topic,
        partition: slice.partition,
        first: slice.base,
        rows: slice.rows,
        bytes: slice.bytes,
    };
    let sections = found.head.sections(found.body)?;
    Ok(FrameView {
        file: found.file.number,
        at: found.at,
        bytes: found.head.frame_bytes() as u64,
        sequence: stamp.seq,
        durable: stamp.durable,
        time: Timestamp::from_micros(stamp.time),
        sections: sections.into_iter().map(section).collect(),
        slices: slices.iter().map(slice).collect(),
    })
}
