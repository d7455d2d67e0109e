//! Neighbouring units of a segment, decoded side by side on as many threads as there are cores.

use super::file::{Decoder, File, Step, Unit};
use super::rows::{Memory, Rows};
use super::schema;
use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::future::try_join_all;
use parquet::file::metadata::ColumnChunkMetaData;
use std::ops::Range;
use tidemill_types::{Batch, Error, Result};

/// Units that are decoded one after the other, if there are as many: each lane has columns to open.
const LEAST: usize = 2;

/// Decodes neighbouring units of a row group, at least one; each with its first row.
pub(super) async fn decode(
    file: &File<'_>,
    group: usize,
    units: &[Unit],
    threads: usize,
    memory: &Memory,
) -> Result<Vec<(usize, Batch)>> {
    let each = units.len().div_ceil(threads.max(1)).max(LEAST);
    let lanes = units.chunks(each);
    let mut lanes = lanes
        .map(|units| Lane::over(file, group, units, memory))
        .collect::<Result<Vec<_>>>()?;
    loop {
        let needed = lanes.iter().flat_map(|lane| lane.needs.iter().cloned());
        let needed: Vec<Range<u64>> = needed.collect();
        if needed.is_empty() {
            break;
        }
        // All at once: neighbours share pages and requests.
        let mut bytes = file.fetch(&needed).await?.into_iter();
        for lane in &mut lanes {
            let needs = lane.needs.len();
            lane.give(bytes.by_ref().take(needs).collect())?;
        }
        lanes = run(lanes).await?;
    }
    let batches = lanes.into_iter().map(Lane::finish);
    Ok(batches.collect::<Result<Vec<_>>>()?.concat())
}

/// Runs each as far as it gets; one of them here.
async fn run(mut lanes: Vec<Lane>) -> Result<Vec<Lane>> {
    let here = lanes.pop();
    let elsewhere = lanes.into_iter();
    let elsewhere: Vec<_> = elsewhere
        .map(|lane| tokio::task::spawn_blocking(|| lane.run()))
        .collect();
    let here = here.map(Lane::run);
    let ran = try_join_all(elsewhere)
        .await
        .map_err(|_| Error::internal("work in the background panicked"))?;
    ran.into_iter().chain(here).collect()
}

/// Units that are decoded one after the other.
struct Lane {
    /// Of all columns but values.
    decoder: Decoder,
    values: ColumnChunkMetaData,
    /// What has to be fetched before it goes on; nothing when it is done.
    needs: Vec<Range<u64>>,
    /// Units still to come, the next one last.
    coming: Vec<Unit>,
    /// The pages of their values, once they were fetched.
    pages: Vec<Bytes>,
    /// The rows of the next one.
    rows: Option<Rows>,
    memory: Memory,
    done: Vec<(usize, Batch)>,
}

impl Lane {
    fn over(file: &File<'_>, group: usize, units: &[Unit], memory: &Memory) -> Result<Self> {
        let (Some(first), Some(last)) = (units.first(), units.last()) else {
            return Err(Error::internal("no rows of a segment were to be decoded"));
        };
        let columns = schema::COLUMNS[schema::OFFSET..].iter().copied();
        let columns: Vec<&str> = columns
            .filter(|column| *column != schema::COLUMNS[schema::VALUE])
            .collect();
        let rows = first.rows.start..last.rows.end;
        let mut decoder = file.decoder(group, rows, &columns)?;
        let coming: Vec<Unit> = units.iter().rev().cloned().collect();
        let mut needs: Vec<Range<u64>> = coming.iter().map(|unit| unit.pages.clone()).collect();
        // It can't have rows before anything was fetched.
        if let Step::Needs(ranges) = decoder.step()? {
            needs.extend(ranges);
        }
        Ok(Self {
            decoder,
            values: file.column(group, schema::VALUE)?.clone(),
            needs,
            coming,
            pages: Vec::new(),
            rows: None,
            memory: memory.clone(),
            done: Vec::with_capacity(units.len()),
        })
    }

    /// Takes what it needs, in that order.
    fn give(&mut self, mut bytes: Vec<Bytes>) -> Result<()> {
        let mut needs = std::mem::take(&mut self.needs);
        if self.pages.is_empty() && self.done.is_empty() {
            let units = self.coming.len();
            self.pages = bytes.drain(..units).collect();
            needs.drain(..units);
        }
        self.decoder.give(needs, bytes)
    }

    /// Decodes until something has to be fetched.
    fn run(mut self) -> Result<Self> {
        loop {
            match self.decoder.step()? {
                Step::Rows(columns) => {
                    let taken = self.take(&columns);
                    taken.map_err(|error| error.at(self.decoder.path()))?;
                }
                Step::Needs(ranges) => {
                    self.needs = ranges;
                    return Ok(self);
                }
                Step::End => return Ok(self),
            }
        }
    }

    fn take(&mut self, columns: &RecordBatch) -> Result<()> {
        let mut from = 0;
        while let Some(unit) = self.coming.last().filter(|_| from < columns.num_rows()) {
            let count = unit.rows.len();
            let mut rows = match self.rows.take() {
                Some(rows) => rows,
                None => self.begin(unit)?,
            };
            let wanted = (count - rows.len()).min(columns.num_rows() - from);
            rows.push(&columns.slice(from, wanted), &self.memory)?;
            from += wanted;
            if rows.len() < count {
                self.rows = Some(rows);
                break;
            }
            let first = unit.rows.start;
            self.done.push((first, rows.into_batch(&self.memory)));
            self.coming.pop();
        }
        Ok(())
    }

    /// Unpacks the values of a unit.
    fn begin(&self, unit: &Unit) -> Result<Rows> {
        // The pages of units that are done are let go with them.
        let pages = self.pages.get(self.coming.len() - 1).cloned();
        let pages = pages.ok_or_else(|| Error::internal("the pages of a unit weren't fetched"))?;
        let size = (unit.rows.len(), unit.bytes);
        Rows::of_values(pages, &self.values, self.decoder.path(), size, &self.memory)
    }

    fn finish(self) -> Result<Vec<(usize, Batch)>> {
        match self.coming.is_empty() {
            true => Ok(self.done),
            false => Err(Error::corrupt("it has fewer rows than it says").at(self.decoder.path())),
        }
    }
}
