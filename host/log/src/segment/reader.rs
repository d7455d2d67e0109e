//! Ranges of segments back into packed rows: only the pages that are needed are fetched and decoded.

use super::fetch::Fetch;
use super::file::{File, Footer, Unit, footer};
use super::pages::Unpackers;
use super::rows::Memory;
use super::{SegmentMeta, lanes, rows, schema};
use crate::{ReadLimit, TimeOf};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_env::Buffers;
use tidemill_env::Recent;
use tidemill_env::files::BlockCache;
use tidemill_env::objects::Objects;
use tidemill_types::{Batch, ByteSize, Error, Result, Timestamp};

/// Most event bytes of one answer, whatever the limit says.
const ANSWER_BYTES: usize = 16 << 20;
/// The code of the error for an object that isn't there: compaction, merging or retention may have taken
/// it away while it was read.
pub(crate) const ABSENT: &str = "segment-absent";
/// How many units each core decodes in one go for somebody who reads one after the other; fewer where
/// memory doesn't hold those of all who do.
const AHEAD: usize = 2;
/// However few cores there are.
const LEAST_AHEAD: usize = 4;
/// The part of the memory for reading that is for footers.
const FOOTERS: u64 = 4;
/// The part of it that is for buffers of units to come.
const BUFFERS: u64 = 4;
/// Of how many units it is known that they were read to their end.
const READ_THROUGH: u64 = 4096;

/// Reads segments. Cheap to clone.
///
/// Footers, and events that were decoded (in *units*: whole pages of values, about 1 MiB), are kept in
/// memory for those who read on or read the same; what was used longest ago goes first.
#[derive(Clone)]
pub(crate) struct Segments(Arc<Inner>);

struct Inner {
    fetch: Fetch,
    footers: Mutex<Recent<String, Footer>>,
    units: Mutex<Recent<UnitOf, Batch>>,
    /// Units that somebody has read to their end: the next ones are wanted soon.
    read_through: Mutex<Recent<UnitOf, ()>>,
    /// What units lay in that are forgotten.
    memory: Memory,
    /// Bytes of memory for units.
    unit_bytes: u64,
    /// How many of them are decoded in one go at most, on how many threads.
    ahead: usize,
    threads: usize,
}

/// Path, row group and first row.
type UnitOf = (Arc<str>, usize, usize);

impl Segments {
    /// With so many bytes of memory, and blocks of objects kept in `cache`.
    pub(crate) fn new(objects: Objects, memory: u64, cache: Option<BlockCache>) -> Self {
        let (footers, buffers) = (memory / FOOTERS, memory / BUFFERS);
        let units = memory - footers - buffers;
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        Self(Arc::new(Inner {
            fetch: Fetch { objects, cache },
            footers: Mutex::new(Recent::new(footers)),
            units: Mutex::new(Recent::new(units)),
            read_through: Mutex::new(Recent::new(READ_THROUGH)),
            memory: Memory {
                buffers: Buffers::keeping(ByteSize(buffers).as_usize()),
                unpackers: Unpackers::default(),
            },
            unit_bytes: units,
            ahead: (AHEAD * threads).max(LEAST_AHEAD),
            threads,
        }))
    }

    /// Events of a segment with offsets from `from` on: at least one if there is one, else as many as the
    /// limit allows or fewer; empty only if none has such an offset.
    ///
    /// # Errors
    /// `Corrupt` when the object is absent or isn't what was written; `Unavailable`.
    pub(crate) async fn read(
        &self,
        meta: &SegmentMeta,
        from: u64,
        limit: ReadLimit,
    ) -> Result<Vec<Batch>> {
        let file = self.open(meta).await?;
        let Some((group, row)) = file.locate(from).await? else {
            return Ok(Vec::new());
        };
        let path: Arc<str> = meta.path.as_str().into();
        let mut answer = Answer::new(limit);
        for group in group..file.groups() {
            let units = file.units(group)?;
            let first = units.partition_point(|unit| {
                // Only the first row group has rows that are passed over.
                answer.batches.is_empty() && unit.rows.end <= row
            });
            let mut nth = first;
            while nth < units.len() {
                let of = |nth: usize| (path.clone(), group, units[nth].rows.start);
                let known = lock(&self.0.units).get(&of(nth)).cloned();
                let batch = match known {
                    Some(batch) => batch,
                    None => {
                        let read_through = &self.0.read_through;
                        let reads_on =
                            nth > first || (nth > 0 && lock(read_through).has(&of(nth - 1)));
                        let most = if reads_on {
                            self.ahead(&path, &units[nth..])
                        } else {
                            1
                        };
                        let end = (nth + most).min(units.len());
                        self.decode(&file, &path, group, &units[nth..end]).await?
                    }
                };
                let more = answer.take(&batch, from);
                if answer.has_last_of(&batch) {
                    lock(&self.0.units).use_up(&of(nth));
                    lock(&self.0.read_through).put(of(nth), (), 1);
                }
                if !more {
                    return Ok(answer.batches);
                }
                nth += 1;
            }
        }
        Ok(answer.batches)
    }

    /// How many of the next units are decoded in one go for somebody who reads on in a segment. What is decoded must
    /// still be there when its reader comes for it, so all segments that are read have a share of the memory.
    fn ahead(&self, path: &Arc<str>, next: &[Unit]) -> usize {
        let units = lock(&self.0.units);
        let mut read: HashSet<&Arc<str>> = units.in_use().map(|(path, ..)| path).collect();
        read.insert(path);
        let mut share = self.0.unit_bytes / read.len() as u64;
        let fits = |unit: &&Unit| {
            let left = share.checked_sub(unit.memory() as u64);
            share = left.unwrap_or(0);
            left.is_some()
        };
        let fitting = next.iter().take(self.0.ahead).take_while(fits).count();
        fitting.max(1)
    }

    /// What the pages of a segment come to when they are unpacked; only its footer is fetched.
    ///
    /// # Errors
    /// As [`Segments::read`].
    pub(crate) async fn unpacked_bytes(&self, meta: &SegmentMeta) -> Result<u64> {
        Ok(self.open(meta).await?.unpacked_bytes())
    }

    /// Decodes neighbouring units and keeps them; answers the first.
    async fn decode(
        &self,
        file: &File<'_>,
        path: &Arc<str>,
        group: usize,
        units: &[Unit],
    ) -> Result<Batch> {
        let mut batches = lanes::decode(file, group, units, self.0.threads, &self.0.memory).await?;
        let mut kept = lock(&self.0.units);
        for (row, batch) in &batches {
            let bytes = batch.payload().len() + batch.len() * rows::ROW_BYTES;
            kept.put((path.clone(), group, *row), batch.clone(), bytes as u64);
        }
        Ok(batches.swap_remove(0).1)
    }

    /// The first offset from `from` on whose time of that kind is at least `time`.
    ///
    /// # Errors
    /// As [`Segments::read`].
    pub(crate) async fn offset_at(
        &self,
        meta: &SegmentMeta,
        from: u64,
        time: Timestamp,
        time_of: TimeOf,
    ) -> Result<Option<u64>> {
        let time = time.micros();
        let (latest, column) = match time_of {
            TimeOf::Event => (meta.max_time, schema::EVENT_TS),
            TimeOf::Ingest => (meta.max_ingest, schema::INGEST_TS),
        };
        if latest < time || meta.end <= from {
            return Ok(None);
        }
        let file = self.open(meta).await?;
        for group in 0..file.groups() {
            let (_, last_offset) = file.bounds(group, schema::OFFSET)?;
            let (_, latest) = file.bounds(group, column)?;
            if last_offset.cast_unsigned() < from || latest < time {
                continue;
            }
            let mut found = None;
            let columns = [schema::COLUMNS[schema::OFFSET], schema::COLUMNS[column]];
            file.decode(group, 0..file.rows(group), &columns, |columns| {
                let offsets = columns.column(0).as_primitive_opt::<Int64Type>();
                let times = columns
                    .column(1)
                    .as_primitive_opt::<TimestampMicrosecondType>();
                let (offsets, times) = offsets
                    .zip(times)
                    .ok_or_else(|| Error::corrupt("it has other columns"))?;
                let mut events = offsets.values().iter().zip(times.values());
                found = events
                    .find(|(offset, at)| offset.cast_unsigned() >= from && **at >= time)
                    .map(|(offset, _)| offset.cast_unsigned());
                Ok(found.is_none())
            })
            .await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Key and offset of each event from an offset on, in order, until `each` says `false`. Nothing else
    /// is fetched.
    ///
    /// # Errors
    /// As [`Segments::read`].
    pub(crate) async fn scan_keys(
        &self,
        meta: &SegmentMeta,
        from: u64,
        mut each: impl FnMut(Option<&[u8]>, u64) -> bool,
    ) -> Result<bool> {
        let file = self.open(meta).await?;
        let columns = [
            schema::COLUMNS[schema::OFFSET],
            schema::COLUMNS[schema::KEY],
        ];
        let mut more = true;
        for group in 0..file.groups() {
            let (_, last) = file.bounds(group, schema::OFFSET)?;
            if last.cast_unsigned() < from {
                continue;
            }
            file.decode(group, 0..file.rows(group), &columns, |columns| {
                let offsets = columns.column(0).as_primitive_opt::<Int64Type>();
                let keys = columns.column(1).as_binary_view_opt();
                let (offsets, keys) = offsets
                    .zip(keys)
                    .ok_or_else(|| Error::corrupt("it has other columns"))?;
                let rows = offsets.values().iter().zip(keys.iter());
                let mut rows = rows.map(|(offset, key)| (offset.cast_unsigned(), key));
                more = rows.all(|(offset, key)| offset < from || each(key, offset));
                Ok(more)
            })
            .await?;
            if !more {
                break;
            }
        }
        Ok(more)
    }

    /// Lets go of what is kept of an object that is deleted.
    pub(crate) async fn forget(&self, path: &str) {
        lock(&self.0.footers).remove(&path.to_owned());
        lock(&self.0.units).remove_all(|(of, _, _)| **of == *path);
        lock(&self.0.read_through).remove_all(|(of, _, _)| **of == *path);
        if let Some(cache) = &self.0.fetch.cache {
            cache.forget(path).await;
        }
    }

    async fn open<'a>(&'a self, meta: &'a SegmentMeta) -> Result<File<'a>> {
        let known = lock(&self.0.footers).get(&meta.path).cloned();
        let footer = match known {
            Some(footer) => footer,
            None => {
                let footer = footer(&self.0.fetch, meta).await?;
                let bytes = footer.metadata().memory_size() as u64;
                lock(&self.0.footers).put(meta.path.clone(), footer.clone(), bytes);
                footer
            }
        };
        Ok(File::new(&self.0.fetch, meta, footer))
    }
}

/// What is gathered until a limit.
struct Answer {
    batches: Vec<Batch>,
    events: usize,
    /// Most event bytes, and how many there are.
    most: usize,
    bytes: usize,
}

impl Answer {
    fn new(limit: ReadLimit) -> Self {
        Self {
            batches: Vec::new(),
            events: limit.events.max(1),
            most: limit.bytes.min(ANSWER_BYTES),
            bytes: 0,
        }
    }

    /// Takes what the limit allows of a batch from an offset on; `false` when nothing more may come.
    fn take(&mut self, batch: &Batch, from: u64) -> bool {
        let first = batch.row_at(from);
        let mut end = first;
        while end < batch.len() && self.events > 0 {
            let bytes = batch.head(end).bytes();
            // The very first event comes even if it is larger than the limit.
            let is_first = end == first && self.batches.is_empty();
            if self.bytes + bytes > self.most && !is_first {
                break;
            }
            self.bytes += bytes;
            self.events -= 1;
            end += 1;
        }
        if end > first {
            self.batches.push(batch.slice(first..end));
        }
        end == batch.len() && self.events > 0 && self.bytes < self.most
    }

    /// Whether it ends with the last event of a batch.
    fn has_last_of(&self, batch: &Batch) -> bool {
        let last = |batch: &Batch| batch.len().checked_sub(1).map(|row| batch.offset(row));
        self.batches.last().and_then(last) == last(batch)
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
