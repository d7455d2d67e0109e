//! Keeps the manifest: seals, records snapshots, retains, compacts, merges, cuts the journal. One step at
//! a time.

mod compact;
mod merge;
mod next;
mod retain;
mod rewrite;

use crate::manifest::{self, Manifest, ManifestStore, TopicManifest};
use crate::marks;
use crate::sealer::{self, Job, PartitionFacts, SealOrder, SealSettings};
use crate::segment::{SegmentMeta, Segments};
use crate::sequencer::Sequencer;
use crate::shard::Shard;
use crate::{ReadLimit, SnapshotRef};
use next::{Bounds, Replacement};
use retain::{names_too_much, starts_behind};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidemill_env::files::BlockCache;
use tidemill_env::objects::Objects;
use tidemill_env::{Random, Urgency};
use tidemill_types::{
    ByteSize, CommitSeq, Error, ErrorKind, PartitionId, Result, Timestamp, TopicId,
};
use tokio::sync::{Mutex, watch};

/// The only shard there is so far.
pub(crate) const SHARD: &str = "0";

/// Events a sealer reads at a time: little, so that the segments that grow together find theirs in the
/// same stretches of the journal, and those in the processor's cache.
const READ: ReadLimit = ReadLimit {
    events: 1 << 16,
    bytes: 64 << 10,
};

/// With this much journal sealing is behind, and nothing is merged until it has caught up.
const BEHIND: u64 = 1 << 30;
/// With this many times `log.tail_bytes` of notes of where unsealed events lie, sealing neither waits nor rests.
const NOTES: u64 = 4;

/// What was found in storage.
pub(crate) struct FoundManifest {
    objects: Objects,
    store: ManifestStore,
    pub(crate) manifest: Option<Manifest>,
    /// What the object holds that the manifest names.
    pub(crate) marks: marks::Saved,
}

/// The owner of the manifest.
pub(crate) struct Keeper {
    objects: Objects,
    segments: Segments,
    random: Random,
    kept: Mutex<Kept>,
    /// Held while segments are written again.
    rewriting: Mutex<()>,
    snapshot_due: watch::Sender<bool>,
}

struct Kept {
    store: ManifestStore,
    /// As it was last committed.
    manifest: Manifest,
    /// Uploaded and not yet named by a committed manifest.
    unnamed: Vec<SegmentMeta>,
    /// Written again, and not yet part of a committed manifest.
    replacements: Vec<Replacement>,
    /// Objects that no committed manifest names any more, and that are still there.
    gone: Vec<String>,
    /// Bytes that the journal had grown to when the newest snapshot was recorded.
    written_at_snapshot: u64,
    /// The same of the marks.
    written_at_marks: u64,
    /// Bytes of journal that were found at the start and aren't counted as written.
    found_bytes: u64,
}

impl Keeper {
    /// Looks what storage knows; fences nobody yet.
    ///
    /// # Errors
    /// `Corrupt`; `Unavailable`.
    pub(crate) async fn find(objects: Objects, random: &Random) -> Result<FoundManifest> {
        let (store, manifest) =
            ManifestStore::open(objects.clone(), SHARD, &random.nonce()).await?;
        let named = manifest.as_ref().and_then(|known| known.marks.as_ref());
        let marks = match named {
            Some(named) => manifest::read_marks(&objects, named).await?,
            None => marks::Saved::default(),
        };
        Ok(FoundManifest {
            objects,
            store,
            manifest,
            marks,
        })
    }

    /// Commits a first manifest, which fences an earlier owner, and removes what a crash left in storage.
    ///
    /// # Errors
    /// `Fenced`; `Unavailable`.
    pub(crate) async fn begin(
        found: FoundManifest,
        manifest: Manifest,
        shard: &Arc<Shard>,
        random: Random,
    ) -> Result<Self> {
        let kept = Kept {
            store: found.store,
            manifest,
            unnamed: Vec::new(),
            replacements: Vec::new(),
            gone: Vec::new(),
            written_at_snapshot: 0,
            written_at_marks: 0,
            found_bytes: shard.journal_bytes().saturating_sub(shard.written()),
        };
        let settings = &shard.settings;
        let cache = match settings.cache_bytes.0 {
            0 => None,
            most => Some(BlockCache::open(
                &settings.dir.join("cache/segments"),
                most,
            )?),
        };
        let keeper = Self {
            segments: Segments::new(found.objects.clone(), settings.reading_bytes.0, cache),
            objects: found.objects,
            random,
            kept: Mutex::new(kept),
            rewriting: Mutex::default(),
            snapshot_due: watch::Sender::new(false),
        };
        let mut kept = keeper.kept.lock().await;
        let snapshot = kept.manifest.snapshot.clone();
        keeper.commit(shard, &mut kept, snapshot).await?;
        keeper.remove_orphans(&kept).await;
        manifest::keep_only_marks(&keeper.objects, SHARD, kept.manifest.marks.as_ref()).await;
        drop(kept);
        Ok(keeper)
    }

    /// Reads segments.
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    pub(crate) fn snapshot_due(&self) -> watch::Receiver<bool> {
        self.snapshot_due.subscribe()
    }

    /// See [`crate::Log::snapshot`].
    pub(crate) async fn snapshot(&self) -> Option<SnapshotRef> {
        self.kept.lock().await.manifest.snapshot.clone()
    }

    /// See [`crate::Log::snapshot_taken`].
    pub(crate) async fn snapshot_taken(
        &self,
        shard: &Arc<Shard>,
        snapshot: SnapshotRef,
    ) -> Result<()> {
        let mut kept = self.kept.lock().await;
        let older = |known: &SnapshotRef| known.commit > snapshot.commit;
        if kept.manifest.snapshot.as_ref().is_some_and(older) {
            return Ok(());
        }
        self.commit(shard, &mut kept, Some(snapshot)).await?;
        kept.written_at_snapshot = shard.written();
        self.ask_for_snapshot(shard, &kept);
        Ok(())
    }

    /// See [`crate::Log::seal`].
    pub(crate) async fn seal_all(&self, shard: &Arc<Shard>) -> Result<()> {
        let mut kept = self.kept.lock().await;
        let settings = seal_settings(shard);
        let targets: HashMap<PartitionId, u64> = facts(shard, &kept)
            .iter()
            .map(|facts| (facts.at, facts.end))
            .collect();
        loop {
            let all = facts(shard, &kept);
            let unsealed = |facts: &&PartitionFacts| {
                targets
                    .get(&facts.at)
                    .is_some_and(|target| facts.archived_end < *target)
            };
            let orders: Vec<SealOrder> = all
                .iter()
                .filter(unsealed)
                .map(|facts| sealer::order(facts, settings))
                .collect();
            if orders.is_empty() {
                break;
            }
            self.write(shard, &mut kept, orders).await?;
        }
        let snapshot = kept.manifest.snapshot.clone();
        self.commit(shard, &mut kept, snapshot).await
    }

    /// Seals what is due, a segment of each partition, lets go of what deleted topics had, cuts the journal. Failures
    /// are tried again the next time. Whether some partition has enough for another segment already.
    pub(crate) async fn keep(&self, shard: &Arc<Shard>) -> bool {
        let mut kept = self.kept.lock().await;
        let more = self.keep_once(shard, &mut kept).await;
        if let Err(error) = &more {
            shard.meters.sealing_failures.inc();
            tracing::warn!(%error, "sealing failed and will be tried again");
        }
        self.ask_for_snapshot(shard, &kept);
        more.unwrap_or(false)
    }

    async fn keep_once(&self, shard: &Arc<Shard>, kept: &mut Kept) -> Result<bool> {
        let settings = seal_settings(shard);
        let orders = sealer::due(&facts(shard, kept), shard.clock.now(), settings);
        let pending = !kept.unnamed.is_empty() || !kept.replacements.is_empty();
        if orders.is_empty() && !pending && !names_too_much(shard, &kept.manifest) {
            self.delete_gone(kept).await;
            return Ok(false);
        }
        let (started, seals) = (shard.clock.elapsed(), !orders.is_empty());
        self.write(shard, kept, orders).await?;
        let snapshot = kept.manifest.snapshot.clone();
        self.commit(shard, kept, snapshot).await?;
        if seals {
            let took = shard.clock.elapsed().saturating_sub(started);
            shard.meters.sealing(took);
        }
        let is_full = |facts: &PartitionFacts| facts.bytes >= settings.bytes.0;
        Ok(seals && facts(shard, kept).iter().any(is_full))
    }

    /// Writes and uploads segments; nothing names them yet.
    async fn write(
        &self,
        shard: &Arc<Shard>,
        kept: &mut Kept,
        orders: Vec<SealOrder>,
    ) -> Result<()> {
        let dir = shard.settings.dir.join("sealing");
        let many_notes = has_many_notes(shard);
        let memory = shard.settings.sealing_bytes;
        let at_once = sealer::at_once(memory);
        let each = ByteSize(memory.0 / at_once as u64);
        let mut rest = orders.into_iter();
        loop {
            // A topic deleted meanwhile needs no segment.
            let jobs = rest.by_ref().filter_map(|order| self.job(shard, order));
            let jobs: Vec<Job> = jobs.take(at_once).collect();
            if jobs.is_empty() {
                return Ok(());
            }
            let urgency = match many_notes {
                true => Urgency::Normal,
                false => shard.urgency(),
            };
            let (reader, mut stint) = (shard.clone(), shard.begin_stint());
            let next = move |at, from| {
                if urgency == Urgency::Low {
                    reader.rest(&mut stint);
                }
                Ok(reader.read_local(at, from, READ)?.batches)
            };
            let jobs = (jobs, each);
            let written = sealer::write_segments(&self.objects, &dir, jobs, urgency, next).await;
            let mut failed = Ok(());
            for (order, segment) in written {
                match segment {
                    Ok(segment) => kept.unnamed.push(segment),
                    Err(_) if shard.topic(order.at.topic).is_err() => {}
                    // All of it was taken away meanwhile.
                    Err(_) if starts_behind(shard, order) => {}
                    Err(error) => failed = Err(error),
                }
            }
            failed?;
        }
    }

    fn job(&self, shard: &Shard, order: SealOrder) -> Option<Job> {
        let topic = shard.topic(order.at.topic).ok()?;
        Some(Job {
            topic: topic.topic.clone(),
            order,
            nonce: self.random.nonce(),
        })
    }

    /// Commits a manifest of what is true now, and acts on it.
    async fn commit(
        &self,
        shard: &Arc<Shard>,
        kept: &mut Kept,
        snapshot: Option<SnapshotRef>,
    ) -> Result<()> {
        let written = shard.written() + kept.found_bytes;
        let (mut manifest, marks) = self.manifest(shard, kept, snapshot);
        // What a manifest says must not be lost by a crash of this machine.
        let durable = shard
            .durable()
            .wait_for(|durable| *durable >= manifest.commit)
            .await
            .is_ok();
        if !durable {
            return Err(Error::unavailable("stopping", "the log has stopped"));
        }
        let (marks_needed, marks_written) = match marks {
            Unnamed::None => (None, kept.written_at_marks),
            Unnamed::From(first) => (Some(first), kept.written_at_marks),
            Unnamed::Write(marks) => {
                let nonce = self.random.nonce();
                let named = manifest::write_marks(&self.objects, SHARD, &nonce, marks).await?;
                manifest.marks = Some(named);
                (None, written)
            }
        };
        let started = shard.clock.elapsed();
        if let Err(error) = kept.store.commit(manifest.clone()).await {
            shard.meters.manifest_failures.inc();
            if error.kind == ErrorKind::Fenced {
                tracing::error!(%error, "this host is fenced; the log stops");
                shard.stop();
            }
            return Err(error);
        }
        let took = shard.clock.elapsed().saturating_sub(started);
        shard.meters.manifest(took);
        let named = std::mem::take(&mut kept.unnamed);
        let replacements = std::mem::take(&mut kept.replacements);
        let about_to_be = replacements
            .iter()
            .flat_map(|it| &it.segments)
            .chain(&named);
        let dropped = next::dropped(&kept.manifest, about_to_be, &manifest);
        kept.gone.extend(dropped);
        let before = std::mem::replace(&mut kept.manifest, manifest);
        kept.manifest.number = kept.store.number();
        kept.written_at_marks = marks_written;
        if let Some(old) = before
            .marks
            .filter(|old| kept.manifest.marks.as_ref() != Some(old))
        {
            manifest::delete_marks(&self.objects, &old.path).await;
        }
        shard.meters.sealed(&named);
        for segment in named {
            let at = PartitionId {
                topic: segment.topic,
                partition: segment.partition,
            };
            if let Ok(partition) = shard.partition(at) {
                partition.lock().archive(segment);
            }
        }
        publish_replacements(shard, &kept.manifest, &replacements);
        let snapshot = kept
            .manifest
            .snapshot
            .as_ref()
            .map_or(CommitSeq(0), |s| s.commit);
        if let Err(error) = shard.cut(kept.manifest.commit, snapshot, marks_needed) {
            tracing::warn!(%error, "a journal file can't be cut off");
        }
        self.delete_gone(kept).await;
        Ok(())
    }

    /// Deletes objects that no committed manifest names; readers that still want one find out that
    /// something else has taken its place. What can't be deleted now is tried again, and at the next
    /// start at the latest.
    async fn delete_gone(&self, kept: &mut Kept) {
        let mut left = Vec::new();
        for path in std::mem::take(&mut kept.gone) {
            self.segments.forget(&path).await;
            if let Err(error) = self.objects.delete(&path).await {
                tracing::warn!(%error, path, "an object that isn't needed any more can't be deleted");
                left.push(path);
            }
        }
        kept.gone = left;
    }

    /// What is true now, and what is to be done about the marks.
    fn manifest(
        &self,
        shard: &Arc<Shard>,
        kept: &Kept,
        snapshot: Option<SnapshotRef>,
    ) -> (Manifest, Unnamed) {
        let mut known: HashMap<TopicId, &TopicManifest> = kept
            .manifest
            .topics
            .iter()
            .map(|topic| (topic.topic.id, topic))
            .collect();
        let named = kept.manifest.marks.clone();
        let marks_at = named.as_ref().map_or(CommitSeq(0), |named| named.commit);
        let written = shard.written() + kept.found_bytes;
        let grown = written.saturating_sub(kept.written_at_marks);
        let captured = shard.with_sequencer(|sequencer| Captured::of(sequencer, marks_at, grown));
        let topics = captured.topics.into_iter().map(|(topic, bounds)| {
            let before = known.remove(&topic.id);
            let partition = |(number, bounds): (u32, Bounds)| {
                let before = before.and_then(|topic| topic.partitions.get(number as usize));
                let at = PartitionId {
                    topic: topic.id,
                    partition: number,
                };
                let again = kept.replacements.iter().filter(|it| it.at == at);
                let sealed = kept.unnamed.iter().filter(|it| place_of(it) == at);
                next::partition(before, bounds, again, sealed)
            };
            let partitions = (0..).zip(bounds).map(partition).collect();
            TopicManifest {
                topic: (*topic).clone(),
                partitions,
            }
        });
        let manifest = Manifest {
            number: kept.manifest.number,
            owner: String::new(),
            data_id: kept.manifest.data_id.clone(),
            commit: captured.commit,
            next_topic: captured.next_topic,
            topics: topics.collect(),
            positions: captured.positions,
            entries: captured.entries,
            snapshot,
            marks: named,
            marked: captured.marked,
        };
        (manifest, captured.marks)
    }

    /// Only before anything is uploaded: what isn't named yet looks like an orphan.
    async fn remove_orphans(&self, kept: &Kept) {
        match sealer::remove_orphans(&self.objects, &kept.manifest).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed objects that no manifest names"),
            Err(error) => tracing::warn!(%error, "objects that no manifest names can't be removed"),
        }
    }

    fn ask_for_snapshot(&self, shard: &Arc<Shard>, kept: &Kept) {
        let snapshot = kept
            .manifest
            .snapshot
            .as_ref()
            .map_or(CommitSeq(0), |s| s.commit);
        let grown = shard.written().saturating_sub(kept.written_at_snapshot);
        let due = grown > shard.settings.snapshot_bytes.0 && shard.last_state() > snapshot.0;
        self.snapshot_due
            .send_if_modified(|now| std::mem::replace(now, due) != due);
    }
}

/// What the sequencer knows at one commit.
struct Captured {
    commit: CommitSeq,
    next_topic: u32,
    topics: Vec<(Arc<crate::Topic>, Vec<Bounds>)>,
    positions: Vec<crate::Position>,
    entries: BTreeMap<String, bytes::Bytes>,
    marked: CommitSeq,
    marks: Unnamed,
}

/// Marks that are behind those that the last manifest names.
enum Unnamed {
    None,
    /// They stay in the journal, from this commit on.
    From(u64),
    /// With those before them they make up this.
    Write(marks::Saved),
}

impl Captured {
    /// Marks are written again when the journal has grown by as much as they may take: so they cost no
    /// more than that, and neither does it.
    fn of(sequencer: &Sequencer, marks_at: CommitSeq, grown: u64) -> Self {
        let marks = sequencer.marks();
        let unnamed = match marks.first_after(marks_at) {
            None => Unnamed::None,
            Some(first) if grown < marks.bytes() => Unnamed::From(first),
            Some(_) => Unnamed::Write(marks.saved(sequencer.last())),
        };
        let bounds = |known: &crate::sequencer::TopicEnds| {
            let both = known.starts.iter().zip(&known.ends);
            let bounds = both.map(|(start, end)| Bounds {
                start: *start,
                end: *end,
            });
            (known.topic.clone(), bounds.collect())
        };
        Self {
            commit: sequencer.last(),
            next_topic: sequencer.next_topic(),
            topics: sequencer.topics().map(bounds).collect(),
            positions: sequencer.positions(),
            entries: sequencer.entries().clone(),
            marked: marks.last(),
            marks: unnamed,
        }
    }
}

/// Readers find events where they are now.
fn publish_replacements(shard: &Shard, manifest: &Manifest, replacements: &[Replacement]) {
    for done in replacements {
        let mut topics = manifest.topics.iter();
        let topic = topics.find(|topic| topic.topic.id == done.at.topic);
        let now = topic.and_then(|topic| topic.partitions.get(done.at.partition as usize));
        if let (Some(now), Ok(partition)) = (now, shard.partition(done.at)) {
            partition.lock().replace_segments(&now.segments);
        }
    }
}

fn place_of(segment: &SegmentMeta) -> PartitionId {
    PartitionId {
        topic: segment.topic,
        partition: segment.partition,
    }
}

/// Whether what is noted of where unsealed events lie takes several times the memory that is for events at the tail.
/// With thousands of partitions each event has a note of its own, so that this, too, is bounded by sealing.
fn has_many_notes(shard: &Shard) -> bool {
    let topics = shard.all_topics();
    let partitions = topics.iter().flat_map(|topic| topic.all());
    let notes: usize = partitions.map(|it| it.lock().notes_bytes()).sum();
    notes as u64 > NOTES * shard.settings.tail_bytes.0
}

fn seal_settings(shard: &Arc<Shard>) -> SealSettings {
    SealSettings {
        bytes: shard.settings.segment_bytes,
        age: shard.settings.segment_age,
    }
}

/// What is known of the partitions that have unsealed events.
fn facts(shard: &Arc<Shard>, kept: &Kept) -> Vec<PartitionFacts> {
    let mut all = Vec::new();
    for topic in shard.all_topics() {
        for (number, partition) in (0..).zip(topic.all()) {
            let at = PartitionId {
                topic: topic.topic.id,
                partition: number,
            };
            let partition = partition.lock();
            let unnamed = kept.unnamed.iter().rfind(|segment| place_of(segment) == at);
            let archived_end = partition.archived_end();
            let archived_end = unnamed.map_or(archived_end, |it| archived_end.max(it.end));
            let (bytes, oldest) = partition.unsealed_from(archived_end);
            if let Some(oldest) = oldest {
                let (end, oldest) = (partition.end(), Timestamp::from_micros(oldest));
                all.push(PartitionFacts {
                    at,
                    archived_end,
                    end,
                    bytes,
                    oldest,
                });
            }
        }
    }
    all
}
