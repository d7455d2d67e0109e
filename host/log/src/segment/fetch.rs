//! Ranges of segments, from object storage or from what is kept of it on the local disk.

use super::file::corrupt;
use super::{ABSENT, SegmentMeta};
use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;
use std::collections::BTreeMap;
use std::ops::Range;
use tidemill_env::files::BlockCache;
use tidemill_env::objects::Objects;
use tidemill_types::{Error, ErrorKind, Result};

/// Ranges closer than this are fetched as one: a request costs more than these bytes.
const GAP_BYTES: u64 = 256 << 10;
/// What is kept on the local disk is kept in blocks of this size.
const BLOCK_BYTES: u64 = 1 << 20;
/// Blocks that are fetched in one request when those before them were read already.
const AHEAD: u64 = 8;

/// Where the bytes of segments come from.
pub(super) struct Fetch {
    pub(super) objects: Objects,
    pub(super) cache: Option<BlockCache>,
}

impl Fetch {
    /// Some ranges of a segment, in the order they are asked for.
    ///
    /// # Errors
    /// `Corrupt` when the object is shorter; the same with code [`ABSENT`] when it isn't there;
    /// `Unavailable`.
    pub(super) async fn ranges(
        &self,
        meta: &SegmentMeta,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let merged = match &self.cache {
            Some(cache) => self.by_blocks(cache, meta, ranges).await?,
            None => self.fetch(meta, merge(ranges, GAP_BYTES)).await?,
        };
        let cut = |wanted: &Range<u64>| {
            let holds = |(range, _): &&(Range<u64>, Bytes)| {
                range.start <= wanted.start && wanted.end <= range.end
            };
            let (range, bytes) = merged.iter().find(holds)?;
            let start = usize::try_from(wanted.start - range.start).ok()?;
            let end = usize::try_from(wanted.end - range.start).ok()?;
            bytes.get(start..end)?;
            Some(bytes.slice(start..end))
        };
        let whole: Option<Vec<Bytes>> = ranges.iter().map(cut).collect();
        whole.ok_or_else(|| corrupt(meta, "its page index points outside of it"))
    }

    async fn fetch(
        &self,
        meta: &SegmentMeta,
        ranges: Vec<Range<u64>>,
    ) -> Result<Vec<(Range<u64>, Bytes)>> {
        let one = async |range: Range<u64>| {
            let bytes = self.objects.get_range(&meta.path, range.clone()).await?;
            Ok::<_, Error>((range, bytes))
        };
        let fetched = try_join_all(ranges.into_iter().map(one)).await;
        fetched.map_err(|error| match error.kind {
            ErrorKind::NotFound => {
                let mut error = corrupt(meta, "the manifest names it, but the object is not there");
                error.code = ABSENT;
                error
            }
            _ => error,
        })
    }

    /// The same in whole blocks, each from the cache or, with its neighbours, from storage.
    async fn by_blocks(
        &self,
        cache: &BlockCache,
        meta: &SegmentMeta,
        ranges: &[Range<u64>],
    ) -> Result<Vec<(Range<u64>, Bytes)>> {
        let wanted = blocks(ranges, meta.bytes)
            .ok_or_else(|| corrupt(meta, "its page index points outside of it"))?;
        let mut found: BTreeMap<u64, Bytes> = BTreeMap::new();
        for block in wanted.iter().flat_map(Clone::clone) {
            if let Some(bytes) = cache.get(&meta.path, block).await {
                found.insert(block, bytes);
            }
        }
        let missing = wanted.iter().flat_map(Clone::clone);
        let missing: Vec<u64> = missing.filter(|it| !found.contains_key(it)).collect();
        let last = meta.bytes.div_ceil(BLOCK_BYTES);
        let requests = requests(&missing, last, |block| cache.has(&meta.path, block));
        let bytes_of = |blocks: Range<u64>| {
            blocks.start * BLOCK_BYTES..(blocks.end * BLOCK_BYTES).min(meta.bytes)
        };
        let fetched = self.fetch(meta, requests.into_iter().map(bytes_of).collect());
        for (range, bytes) in fetched.await? {
            let first = range.start / BLOCK_BYTES;
            let length = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
            for (block, from) in (first..).zip((0..bytes.len()).step_by(length)) {
                let part = bytes.slice(from..(from + length).min(bytes.len()));
                cache.put(&meta.path, block, part.clone()).await;
                found.insert(block, part);
            }
        }
        let joined = wanted.into_iter().map(|blocks| {
            let mut whole = BytesMut::new();
            blocks
                .clone()
                .filter_map(|it| found.get(&it))
                .for_each(|it| whole.extend_from_slice(it));
            (bytes_of(blocks), whole.freeze())
        });
        Ok(joined.collect())
    }
}

/// The blocks that hold some ranges, neighbouring ones together; `None` if there is a range outside.
fn blocks(ranges: &[Range<u64>], size: u64) -> Option<Vec<Range<u64>>> {
    let of = |range: &Range<u64>| {
        let inside = range.start < range.end && range.end <= size;
        inside.then(|| range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES))
    };
    let blocks: Option<Vec<Range<u64>>> = ranges.iter().map(of).collect();
    Some(merge(&blocks?, 0))
}

/// What to ask storage for, in blocks: neighbours in one request, which goes on past them when the block
/// before it is there already, for then somebody reads one after the other.
fn requests(missing: &[u64], last: u64, there: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
    let each: Vec<Range<u64>> = missing.iter().map(|block| *block..block + 1).collect();
    let mut requests = merge(&each, 0);
    for nth in 0..requests.len() {
        let most = requests.get(nth + 1).map_or(last, |next| next.start);
        let request = &mut requests[nth];
        let read_before = request.start.checked_sub(1).is_some_and(&there);
        while read_before
            && request.end < most
            && request.end - request.start < AHEAD
            && !there(request.end)
        {
            request.end += 1;
        }
    }
    requests
}

/// Ranges in order, those closer than `gap` as one.
fn merge(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => {
                last.end = last.end.max(range.end)
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_when_near() {
        let far = GAP_BYTES * 10;
        assert_eq!(
            merge(&[far..far + 5, 10..20, 0..5, far + 2..far + 9], GAP_BYTES),
            [0..20, far..far + 9]
        );
        assert_eq!(merge(&[], GAP_BYTES), []);
    }

    type Pairs = Vec<(u64, u64)>;

    fn pairs(ranges: &[Range<u64>]) -> Pairs {
        ranges.iter().map(|it| (it.start, it.end)).collect()
    }

    #[test]
    fn ranges_lie_in_blocks_and_never_outside() {
        let (block, size) = (BLOCK_BYTES, 10 * BLOCK_BYTES + 5);
        let of = |two: [(u64, u64); 2]| {
            let found = blocks(&two.map(|(start, end)| start..end), size);
            found.map(|blocks| pairs(&blocks))
        };
        assert_eq!(of([(0, 1), (block - 1, block)]), Some(vec![(0, 1)]));
        let apart = of([(5 * block, size), (0, block + 1)]);
        assert_eq!(apart, Some(vec![(0, 2), (5, 11)]));
        assert_eq!(of([(0, 1), (0, size + 1)]), None);
        assert_eq!(of([(size + 3, size + 4), (0, 1)]), None);
    }

    #[test]
    fn those_who_read_on_are_given_more() {
        // Missing, kept, what is asked for of 100 blocks.
        let cases: [(&[u64], &[u64], Pairs); 8] = [
            (&[], &[], vec![]),
            (&[0], &[], vec![(0, 1)]),
            (&[7, 8], &[], vec![(7, 9)]),
            (&[1], &[0], vec![(1, 9)]),
            (&[1], &[0, 4], vec![(1, 4)]),
            (&[1, 3], &[0, 2], vec![(1, 2), (3, 11)]),
            (&[97], &[96], vec![(97, 100)]),
            (&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[0], vec![(1, 11)]),
        ];
        for (missing, kept, expected) in cases {
            let asked = requests(missing, 100, |block| kept.contains(&block));
            assert_eq!(pairs(&asked), expected, "{missing:?} beside {kept:?}");
        }
    }
}
