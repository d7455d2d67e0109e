//! What the next manifest says of a partition, and which objects go once it is committed.

use crate::manifest::{Cleaned, Manifest, PartitionManifest};
use crate::segment::SegmentMeta;
use std::collections::HashSet;
use tidemill_types::PartitionId;

/// Segments of a partition that were written again, as fewer or with fewer events.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// The partition.
    pub(crate) at: PartitionId,
    /// Paths of the segments that are replaced.
    pub(crate) replaced: Vec<String>,
    /// What replaces them, uploaded and not yet named.
    pub(crate) segments: Vec<SegmentMeta>,
    /// How far the partition is compacted then, if that changes.
    pub(crate) cleaned: Option<Vec<Cleaned>>,
}

impl Replacement {
    fn apply(&self, partition: &mut PartitionManifest) {
        partition
            .segments
            .retain(|segment| !self.replaced.contains(&segment.path));
        partition.segments.extend(self.segments.iter().cloned());
        partition.segments.sort_by_key(|segment| segment.first);
        if let Some(cleaned) = &self.cleaned {
            partition.cleaned.clone_from(cleaned);
        }
    }
}

/// Start and committed end of a partition.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A partition as the next manifest has it: what was, with what was written again and sealed since, and
/// without what lies below its start.
pub(super) fn partition<'k>(
    before: Option<&PartitionManifest>,
    bounds: Bounds,
    replacements: impl Iterator<Item = &'k Replacement>,
    sealed: impl Iterator<Item = &'k SegmentMeta>,
) -> PartitionManifest {
    let mut partition = before.cloned().unwrap_or_default();
    for replacement in replacements {
        replacement.apply(&mut partition);
    }
    for segment in sealed {
        partition.archived_end = partition.archived_end.max(segment.end);
        partition.segments.push(segment.clone());
    }
    let Bounds { start, end } = bounds;
    partition.start = start;
    partition.end = end;
    partition.archived_end = partition.archived_end.max(start);
    partition.segments.retain(|segment| segment.end > start);
    partition.cleaned.retain(|cleaned| cleaned.end > start);
    partition
}

/// Objects that were named before, or were about to be, and that a committed manifest doesn't name.
pub(super) fn dropped<'k>(
    before: &'k Manifest,
    about_to_be: impl Iterator<Item = &'k SegmentMeta>,
    now: &Manifest,
) -> Vec<String> {
    let named: HashSet<&str> = segments(now).map(|segment| segment.path.as_str()).collect();
    let all = segments(before).chain(about_to_be);
    all.map(|segment| &segment.path)
        .filter(|path| !named.contains(path.as_str()))
        .cloned()
        .collect()
}

fn segments(manifest: &Manifest) -> impl Iterator<Item = &SegmentMeta> {
    let partitions = manifest.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.flat_map(|partition| &partition.segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::TopicManifest;
    use crate::{Topic, TopicSettings};
    use std::collections::BTreeMap;
    use tidemill_types::{CommitSeq, TopicId};

    const AT: PartitionId = PartitionId {
        topic: TopicId(1),
        partition: 0,
    };

    fn segment(first: u64, end: u64, path: &str) -> SegmentMeta {
        SegmentMeta {
            topic: AT.topic,
            partition: AT.partition,
            first,
            end,
            events: end - first,
            bytes: 100,
            path: path.to_owned(),
            min_time: 0,
            max_time: 0,
            min_ingest: 0,
            max_ingest: 0,
        }
    }

    fn manifest(partition: PartitionManifest) -> Manifest {
        let topic = Topic {
            id: AT.topic,
            name: "t".parse().expect("name"),
            settings: TopicSettings::default(),
        };
        Manifest {
            number: 1,
            owner: String::new(),
            data_id: String::new(),
            commit: CommitSeq(1),
            next_topic: 2,
            topics: vec![TopicManifest {
                topic,
                partitions: vec![partition],
            }],
            positions: Vec::new(),
            entries: BTreeMap::new(),
            snapshot: None,
            marks: None,
            marked: CommitSeq(0),
        }
    }

    fn paths(partition: &PartitionManifest) -> Vec<&str> {
        let segments = partition.segments.iter();
        segments.map(|segment| segment.path.as_str()).collect()
    }

    #[test]
    fn what_is_compacted_sealed_and_cut_goes_into_one_manifest() {
        let before = PartitionManifest {
            start: 0,
            archived_end: 30,
            end: 30,
            cleaned: Vec::new(),
            segments: vec![
                segment(0, 10, "a"),
                segment(10, 20, "b"),
                segment(20, 30, "c"),
            ],
        };
        let cleaned = |end| Cleaned { end, since: None };
        let compacted = Replacement {
            at: AT,
            replaced: vec!["a".into(), "b".into()],
            segments: vec![segment(3, 18, "ab")],
            cleaned: Some(vec![cleaned(5), cleaned(20)]),
        };
        let sealed = [segment(30, 40, "d")];
        let next = |start| {
            let bounds = Bounds { start, end: 45 };
            partition(
                Some(&before),
                bounds,
                [&compacted].into_iter(),
                sealed.iter(),
            )
        };
        let now = next(0);
        assert_eq!(paths(&now), ["ab", "c", "d"]);
        assert_eq!((now.archived_end, now.end), (40, 45));
        assert_eq!(Some(&now.cleaned), compacted.cleaned.as_ref());
        let about_to_be = compacted.segments.iter().chain(&sealed);
        let (old, new) = (manifest(before.clone()), manifest(now));
        assert_eq!(dropped(&old, about_to_be.clone(), &new), ["a", "b"]);

        let now = next(18);
        assert_eq!((paths(&now), now.start), (vec!["c", "d"], 18));
        assert_eq!(now.cleaned, [cleaned(20)]);
        let new = manifest(now);
        let gone = dropped(&old, about_to_be.clone(), &new);
        assert_eq!(gone, ["a", "b", "ab"], "what was about to be named too");

        let now = next(42);
        assert_eq!((paths(&now), now.archived_end), (vec![], 42));
        assert_eq!(dropped(&old, about_to_be, &manifest(now)).len(), 5);
    }
}
