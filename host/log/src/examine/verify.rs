//! Whether journal, manifest and objects are whole and fit together.

use super::{Directory, Known, known};
use crate::journal::{HeadState, Survey};
use crate::manifest::{Manifest, TopicManifest};
use crate::open::rehearse;
use crate::segment::{SegmentMeta, Segments};
use crate::{ReadLimit, paths};
use crc_fast::{CrcAlgorithm, Digest};
use futures::StreamExt;
use std::collections::HashSet;
use tidemill_env::objects::Objects;
use tidemill_types::{Error, ErrorKind, Result};

/// Objects that are asked for at a time.
const AT_ONCE: usize = 8;
/// How often a running host's journal is looked at before what was found is believed: it may have been
/// cut or written to meanwhile.
const LOOKS: usize = 3;
/// Events of a segment read at a time.
const READ: ReadLimit = ReadLimit {
    events: 1 << 16,
    bytes: 4 << 20,
};

/// Memory for what is read of one segment.
const MEMORY: u64 = 16 << 20;
/// Bytes of an object fetched at a time.
const STRETCH: u64 = 8 << 20;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Weight {
    /// Worth knowing; nothing is wrong.
    Note,
    /// It couldn't be found out.
    Unknown,
    /// Something isn't what was written, or doesn't fit together.
    Wrong,
}

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub weight: Weight,
    /// File or object.
    pub place: String,
    /// What is the matter.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// What was looked at, and what was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verified {
    /// Whether a host had the directory meanwhile.
    pub running: bool,
    /// Journal files.
    pub files: u64,
    /// Frames whose checksums are right and that continue the sequence.
    pub frames: u64,
    /// Number of the newest manifest.
    pub manifest: Option<u64>,
    /// The last commit it reflects.
    pub manifest_commit: u64,
    /// The last frame of the journal.
    pub last: Option<u64>,
    /// Segments whose object is there with the right size.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Events read from segments, if that was asked for.
    pub events: u64,
    /// Everything worth telling.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Whether nothing is wrong and everything could be looked at.
    pub fn is_good(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.all(|finding| finding.weight == Weight::Note)
    }

    fn find(&mut self, weight: Weight, place: impl Into<String>, what: String, remedy: &str) {
        self.findings.push(Finding {
            weight,
            place: place.into(),
            what,
            remedy: remedy.to_owned(),
        });
    }
}

impl Directory {
    /// Checks every frame of the journal, the newest manifest, that both fit together, and that what
    /// the manifest names is there; if `deep`, every manifest, and every event of every segment too.
    /// Changes nothing.
    ///
    /// # Errors
    /// When the journal's folder can't be read at all; everything else is a finding.
    pub async fn verify(&self, objects: &Objects, deep: bool) -> Result<Verified> {
        let mut verified = Verified {
            running: self.running,
            ..Verified::default()
        };
        let known = match known(objects).await {
            Ok(known) => Some(known),
            Err(error) => {
                verified.find(
                    weight_of(&error),
                    "manifest",
                    error.to_string(),
                    match error.kind {
                        ErrorKind::Corrupt => "restore the object from a version or copy of the storage",
                        _ => "see that the storage can be reached with these settings, and verify again",
                    },
                );
                None
            }
        };
        self.verify_journal(known.as_ref(), &mut verified)?;
        if let Some(manifest) = known.and_then(|known| known.manifest) {
            verified.manifest = Some(manifest.number);
            verified.manifest_commit = manifest.commit.0;
            verify_objects(objects, &manifest, deep, &mut verified).await;
        }
        verified
            .findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.weight));
        Ok(verified)
    }

    fn verify_journal(&self, known: Option<&Known>, verified: &mut Verified) -> Result<()> {
        let (mut looks, mut before) = (0, None);
        let (looked, refused) = loop {
            let (looked, refused) = match known {
                Some(known) => rehearse(
                    &*self.files,
                    &self.journal(),
                    known.manifest.as_ref(),
                    known.marks.clone(),
                )?,
                None => (self.survey(None)?, None),
            };
            looks += 1;
            let wrong = looked.damage.is_some() || refused.is_some();
            let again = looked.damage.is_some() && looked.damage == before;
            if !self.running || !wrong || again || looks >= LOOKS {
                break (looked, refused);
            }
            before = looked.damage;
        };
        verified.files = looked.files.len() as u64;
        verified.frames = looked.files.iter().map(|file| file.frames).sum();
        verified.last = looked.recovered.last_seq;
        self.tell_of_files(&looked, verified);
        if let Some(error) = refused {
            let place = self.journal().display().to_string();
            // A running host has written a newer manifest meanwhile.
            let weight = match self.running {
                true => Weight::Unknown,
                false => Weight::Wrong,
            };
            verified.find(weight, place, error.detail, REPAIR);
        }
        if known.is_some_and(|known| {
            let base = known.manifest.as_ref().map_or(0, |it| it.commit.0);
            base > 0 && looked.files.iter().all(|file| file.frames == 0)
        }) && looked.damage.is_none()
        {
            verified.find(
                Weight::Wrong,
                self.journal().display().to_string(),
                "the journal has no frames although the manifest knows of some: a start would go on from object storage alone and lose what was only in the journal".to_owned(),
                "restore the journal from a copy of the disk, if there is one, before the host is started",
            );
        }
        Ok(())
    }

    fn tell_of_files(&self, looked: &Survey, verified: &mut Verified) {
        for (nth, seen) in looked.files.iter().enumerate() {
            let place = seen.file.path.display().to_string();
            if seen.torn.0 > 0 && !self.running {
                let (frames, bytes) = seen.torn;
                verified.find(
                    Weight::Note,
                    place.clone(),
                    format!("a torn tail of {frames} frames ({bytes} bytes) at byte {}: nobody was told of them", seen.end),
                    "nothing: the next start drops it",
                );
            }
            if seen.head == HeadState::Proven {
                verified.find(
                    Weight::Wrong,
                    place.clone(),
                    "the file's head is damaged; its frames prove what it said".to_owned(),
                    "`tidemill log repair` writes it again and loses nothing",
                );
            }
            if let Some(damage) = looked.damage.as_ref().filter(|damage| damage.nth == nth) {
                let behind = damage.behind;
                let what = format!(
                    "{}; behind it {} frames with {} events can still be read",
                    damage.what, behind.frames, behind.events
                );
                verified.find(Weight::Wrong, place, what, REPAIR);
            }
        }
    }
}

const REPAIR: &str = "restore it from a copy of the disk; `tidemill log repair --dry-run` says what could be saved without one";

fn weight_of(error: &Error) -> Weight {
    match error.kind {
        ErrorKind::Unavailable => Weight::Unknown,
        _ => Weight::Wrong,
    }
}

async fn verify_objects(
    objects: &Objects,
    manifest: &Manifest,
    deep: bool,
    verified: &mut Verified,
) {
    verify_slots(objects, manifest, deep, verified).await;
    if let Some(snapshot) = &manifest.snapshot {
        match objects.size(&snapshot.path).await {
            Ok(Some(_)) => {}
            Ok(None) => verified.find(
                Weight::Wrong,
                snapshot.path.clone(),
                "the snapshot of functions' state that the manifest names is not there".to_owned(),
                "restore the object; as long as the folder \"state\" is whole, the host starts without it",
            ),
            Err(error) => verified.find(weight_of(&error), snapshot.path.clone(), error.detail, RETRY),
        }
    }
    let segments: Vec<(&TopicManifest, &SegmentMeta)> = manifest
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |it| (topic, it)))
        .flat_map(|(topic, partition)| partition.segments.iter().map(move |it| (topic, it)))
        .collect();
    let checked = futures::stream::iter(&segments).map(|(topic, segment)| async move {
        let name = topic.topic.name.as_str();
        (name, *segment, verify_segment(objects, segment, deep).await)
    });
    let checked: Vec<_> = checked.buffered(AT_ONCE).collect().await;
    for (topic, segment, outcome) in checked {
        match outcome {
            Ok(events) => {
                verified.segments += 1;
                verified.segment_bytes += segment.bytes;
                verified.events += events;
            }
            Err(error) => verified.find(
                weight_of(&error),
                segment.path.clone(),
                format!(
                    "offsets {} to {} of topic {topic:?}, partition {}: {}",
                    segment.first,
                    segment.end - 1,
                    segment.partition,
                    error.detail
                ),
                match error.kind {
                    ErrorKind::Unavailable => RETRY,
                    _ => "restore the object from a version or copy of the storage",
                },
            ),
        }
    }
    let named: HashSet<&str> = segments.iter().map(|(_, it)| it.path.as_str()).collect();
    match objects.list(paths::TOPICS).await {
        Ok(all) => {
            let strangers = all.iter().filter(|path| {
                paths::parse_segment(path).is_some() && !named.contains(path.as_str())
            });
            let strangers = strangers.count();
            if strangers > 0 && !verified.running {
                verified.find(
                    Weight::Note,
                    paths::TOPICS,
                    format!("{strangers} objects that no manifest names"),
                    "nothing: the next start removes them",
                );
            }
        }
        Err(error) => verified.find(weight_of(&error), paths::TOPICS, error.detail, RETRY),
    }
}

const RETRY: &str = "see that the storage can be reached with these settings, and verify again";

/// Slots are never deleted, so every number up to the newest must be there.
async fn verify_slots(objects: &Objects, manifest: &Manifest, deep: bool, verified: &mut Verified) {
    let folder = paths::manifest_folder(crate::keeper::SHARD);
    let listed = match objects.list(&folder).await {
        Ok(listed) => listed,
        Err(error) => return verified.find(weight_of(&error), folder, error.detail, RETRY),
    };
    let there: HashSet<u64> = listed
        .iter()
        .filter_map(|path| paths::manifest_number(path))
        .collect();
    let missing: Vec<u64> = (1..manifest.number)
        .filter(|number| !there.contains(number))
        .collect();
    if let Some(first) = missing.first() {
        verified.find(
            Weight::Wrong,
            folder.clone(),
            format!("{} manifests are missing, the first is number {first}: a slot that is free again no longer fences", missing.len()),
            "take care that nothing (no lifecycle rule either) deletes below this folder",
        );
    }
    if !deep {
        return;
    }
    let mut numbers: Vec<u64> = there.into_iter().collect();
    numbers.sort_unstable();
    for number in numbers {
        let path = paths::manifest(crate::keeper::SHARD, number);
        let read = objects.get(&path).await;
        let read = read.and_then(|body| crate::manifest::decode(&body));
        if let Err(error) = read {
            let remedy = "it is history: only the newest is needed for a start";
            verified.find(weight_of(&error), path, error.detail, remedy);
        }
    }
}

/// Whether the object is there as the manifest says; answers how many events were read.
async fn verify_segment(objects: &Objects, segment: &SegmentMeta, deep: bool) -> Result<u64> {
    match objects.size(&segment.path).await? {
        None => return Err(Error::corrupt("the object is not there")),
        Some(bytes) if bytes != segment.bytes => {
            return Err(Error::corrupt(format!(
                "the object has {bytes} bytes and not {}",
                segment.bytes
            )));
        }
        Some(_) => {}
    }
    if !deep {
        return Ok(0);
    }
    verify_checksum(objects, segment).await?;
    verify_events(objects, segment).await
}

/// Whether every byte is as it was uploaded; an old segment's path may not tell.
async fn verify_checksum(objects: &Objects, segment: &SegmentMeta) -> Result<()> {
    let Some(told) = paths::checksum(&segment.path) else {
        return Ok(());
    };
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut at = 0;
    while at < segment.bytes {
        let end = (at + STRETCH).min(segment.bytes);
        digest.update(&objects.get_range(&segment.path, at..end).await?);
        at = end;
    }
    match digest.finalize() == u64::from(told) {
        true => Ok(()),
        false => Err(Error::corrupt(
            "the object's bytes are not those that were uploaded: their checksum isn't the one in its name",
        )),
    }
}

async fn verify_events(objects: &Objects, segment: &SegmentMeta) -> Result<u64> {
    let segments = Segments::new(objects.clone(), MEMORY, None);
    let (mut next, mut events) = (segment.first, 0);
    let mut first = None;
    loop {
        let batches = segments.read(segment, next, READ).await?;
        let mut read = false;
        for batch in batches.iter().filter(|batch| !batch.is_empty()) {
            for row in 0..batch.len() {
                let offset = batch.offset(row);
                if offset < next || offset >= segment.end {
                    return Err(Error::corrupt(format!(
                        "offset {offset} comes where {next} or a later one below {} should",
                        segment.end
                    )));
                }
                first.get_or_insert(offset);
                next = offset + 1;
                events += 1;
                read = true;
            }
        }
        if !read || next >= segment.end {
            break;
        }
    }
    match (first, next, events) {
        (Some(first), next, events)
            if (first, next, events) == (segment.first, segment.end, segment.events) =>
        {
            Ok(events)
        }
        _ => Err(Error::corrupt(format!(
            "it has {events} events from {first:?} to {} and should have {}",
            next.saturating_sub(1),
            segment.events
        ))),
    }
}
