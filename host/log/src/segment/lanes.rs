//! Neighbouring units of a segment, decoded side by side on as many threads as there are cores.

use super::file::{Decoder, File, Step, Unit};
use super::rows::Rows;
use super::schema;
use crate::buffers::Buffers;
use arrow_array::RecordBatch;
use futures::future::try_join_all;
use std::ops::Range;
use tidemill_types::{Batch, Error, Result};

/// Decodes neighbouring units of a row group, at least one; each with its first row.
pub(super) async fn decode(
    file: &File<'_>,
    group: usize,
    units: &[Unit],
    threads: usize,
    buffers: &Buffers,
) -> Result<Vec<(usize, Batch)>> {
    let each = units.len().div_ceil(threads.max(1)).max(1);
    let lanes = units.chunks(each);
    let mut lanes = lanes
        .map(|units| Lane::over(file, group, units, buffers))
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
            let needs = std::mem::take(&mut lane.needs);
            let bytes = bytes.by_ref().take(needs.len()).collect();
            lane.decoder.give(needs, bytes)?;
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
    decoder: Decoder,
    /// What has to be fetched before it goes on; nothing when it is done.
    needs: Vec<Range<u64>>,
    /// Units still to come, the next one last.
    coming: Vec<Unit>,
    rows: Rows,
    buffers: Buffers,
    done: Vec<(usize, Batch)>,
}

impl Lane {
    fn over(file: &File<'_>, group: usize, units: &[Unit], buffers: &Buffers) -> Result<Self> {
        let (Some(first), Some(last)) = (units.first(), units.last()) else {
            return Err(Error::internal("no rows of a segment were to be decoded"));
        };
        let columns = &schema::COLUMNS[schema::OFFSET..];
        let rows = first.rows.start..last.rows.end;
        let lane = Self {
            decoder: file.decoder(group, rows, columns)?,
            needs: Vec::new(),
            rows: rows_of(first, buffers),
            buffers: buffers.clone(),
            coming: units.iter().rev().cloned().collect(),
            done: Vec::with_capacity(units.len()),
        };
        lane.run()
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
            let (first, rows) = (unit.rows.start, unit.rows.len());
            let wanted = (rows - self.rows.len()).min(columns.num_rows() - from);
            self.rows.push(&columns.slice(from, wanted))?;
            from += wanted;
            if self.rows.len() == rows {
                self.coming.pop();
                let next = self.coming.last();
                let next = next.map_or_else(Rows::default, |unit| rows_of(unit, &self.buffers));
                let done = std::mem::replace(&mut self.rows, next);
                self.done.push((first, done.into_batch(&self.buffers)));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<(usize, Batch)>> {
        match self.coming.is_empty() {
            true => Ok(self.done),
            false => Err(Error::corrupt("it has fewer rows than it says").at(self.decoder.path())),
        }
    }
}

fn rows_of(unit: &Unit, buffers: &Buffers) -> Rows {
    Rows::with_room(unit.rows.len(), unit.bytes, buffers)
}
