//! Row groups of a segment: columns in the making until they are as much as one has.

use super::schema;
use super::values::Values;
use super::writer::not_written;
use crate::{Format, Topic};
use arrow_array::ArrayRef;
use arrow_schema::Fields;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;
use std::io::Write;
use tidemill_types::{Batch, Error, Result};

/// A Parquet file in the making.
pub(super) struct Groups<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: ArrowRowGroupWriterFactory,
    /// The fields of all columns but the one of values.
    fields: Fields,
    /// The row group in the making, without its values; empty before its first row.
    leaves: Vec<ArrowColumnWriter>,
    values: Values,
    /// Encoded bytes of a row group.
    bytes: usize,
}

impl<W: Write + Send> Groups<W> {
    /// An empty one for a topic's events, with row groups of so many encoded bytes.
    pub(super) fn new(to: W, topic: &Topic, bytes: usize) -> Result<Self> {
        let (schema, stored) = schema::schema(topic)?;
        let options = ArrowWriterOptions::new()
            .with_properties(schema::properties(&topic.settings)?)
            .with_parquet_schema(stored)
            .with_skip_arrow_metadata(true);
        let fields = schema.fields().iter().enumerate();
        let fields = fields.filter(|(column, _)| *column != schema::VALUE);
        let fields = fields.map(|(_, field)| field.clone()).collect();
        let writer = ArrowWriter::try_new_with_options(to, schema, options);
        let parts = writer.and_then(ArrowWriter::into_serialized_writer);
        let (file, columns) = parts.map_err(|error| not_written(&error))?;
        // Columns before it have one leaf each.
        let value = file.schema_descr().column(schema::VALUE);
        let text = topic.settings.format == Format::Json;
        Ok(Self {
            values: Values::new(value, text, schema::level()?)?,
            file,
            columns,
            fields,
            leaves: Vec::new(),
            bytes,
        })
    }

    /// Takes the values of rows, whose other columns are taken later.
    ///
    /// # Errors
    /// As [`Values::write`].
    pub(super) fn write_values(&mut self, batch: &Batch) -> Result<()> {
        self.values.write(batch)
    }

    /// Takes all other columns, in the order of the schema, of the rows whose values were taken since.
    ///
    /// # Errors
    /// `StorageFull` and `Unavailable` when the file can't be written; `Internal`.
    pub(super) fn write(&mut self, arrays: &[ArrayRef]) -> Result<()> {
        if self.leaves.is_empty() {
            let group = self.file.flushed_row_groups().len();
            let leaves = self.columns.create_column_writers(group);
            self.leaves = leaves.map_err(|error| not_written(&error))?;
            self.leaves.remove(schema::VALUE);
        }
        if arrays.len() != self.fields.len() {
            return Err(Error::internal(
                "a segment was given other columns than it has",
            ));
        }
        self.write_columns(arrays)
            .map_err(|error| not_written(&error))?;
        let others = self.leaves.iter();
        let others: usize = others.map(|leaf| leaf.get_estimated_total_bytes()).sum();
        if self.values.encoded_bytes() + others >= self.bytes {
            self.end()?;
        }
        Ok(())
    }

    fn write_columns(&mut self, arrays: &[ArrayRef]) -> Result<(), ParquetError> {
        let mut writers = self.leaves.iter_mut();
        for (field, array) in self.fields.iter().zip(arrays) {
            for leaf in compute_leaves(field, array)? {
                if let Some(writer) = writers.next() {
                    writer.write(&leaf)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the row group.
    fn end(&mut self) -> Result<()> {
        if self.leaves.is_empty() {
            return Ok(());
        }
        let failed = |error: ParquetError| not_written(&error);
        let mut group = self.file.next_row_group().map_err(failed)?;
        let mut leaves = self.leaves.drain(..);
        for leaf in leaves.by_ref().take(schema::VALUE) {
            let chunk = leaf.close().map_err(failed)?;
            chunk.append_to_row_group(&mut group).map_err(failed)?;
        }
        self.values
            .finish(|chunk, closed| group.append_column(chunk, closed).map_err(failed))?;
        for leaf in leaves {
            let chunk = leaf.close().map_err(failed)?;
            chunk.append_to_row_group(&mut group).map_err(failed)?;
        }
        group.close().map(drop).map_err(failed)
    }

    /// Ends the file, which says this of itself.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn finish(mut self, says: impl IntoIterator<Item = KeyValue>) -> Result<W> {
        self.end()?;
        for pair in says {
            self.file.append_key_value_metadata(pair);
        }
        self.file.into_inner().map_err(|error| not_written(&error))
    }
}
