//! Columns that a topic's schema names, taken from values.

use crate::Schema;
use crate::schema::{Cell, Kind};
use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, Field, TimeUnit};
use std::sync::Arc;

/// The fields of a schema's columns. All may be null.
pub(super) fn fields(schema: &Schema) -> impl Iterator<Item = Field> {
    schema.properties().iter().map(|property| {
        let data_type = match property.kind {
            Kind::Text | Kind::Object | Kind::Array => DataType::Utf8,
            Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Integer => DataType::Int64,
            Kind::Number => DataType::Float64,
            Kind::Boolean => DataType::Boolean,
        };
        Field::new(&property.name, data_type, true)
    })
}

/// Typed columns in the making.
pub(super) struct Typed<'s> {
    schema: &'s Schema,
    columns: Vec<Column>,
}

enum Column {
    Text(StringBuilder),
    Time(TimestampMicrosecondBuilder),
    Integer(Int64Builder),
    Number(Float64Builder),
    Boolean(BooleanBuilder),
}

impl<'s> Typed<'s> {
    pub(super) fn new(schema: &'s Schema, rows: usize) -> Self {
        let column = |kind| match kind {
            Kind::Text | Kind::Object | Kind::Array => {
                Column::Text(StringBuilder::with_capacity(rows, 0))
            }
            Kind::Time => Column::Time(TimestampMicrosecondBuilder::with_capacity(rows)),
            Kind::Integer => Column::Integer(Int64Builder::with_capacity(rows)),
            Kind::Number => Column::Number(Float64Builder::with_capacity(rows)),
            Kind::Boolean => Column::Boolean(BooleanBuilder::with_capacity(rows)),
        };
        let properties = schema.properties().iter();
        Self {
            schema,
            columns: properties.map(|property| column(property.kind)).collect(),
        }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, value: Option<&[u8]>) {
        for (column, cell) in self.columns.iter_mut().zip(self.schema.cells(value)) {
            match (column, cell) {
                (Column::Text(all), Cell::Text(text)) => all.append_value(text),
                (Column::Time(all), Cell::Time(micros)) => all.append_value(micros),
                (Column::Integer(all), Cell::Integer(number)) => all.append_value(number),
                (Column::Number(all), Cell::Number(number)) => all.append_value(number),
                (Column::Boolean(all), Cell::Boolean(truth)) => all.append_value(truth),
                (Column::Text(all), _) => all.append_null(),
                (Column::Time(all), _) => all.append_null(),
                (Column::Integer(all), _) => all.append_null(),
                (Column::Number(all), _) => all.append_null(),
                (Column::Boolean(all), _) => all.append_null(),
            }
        }
    }

    pub(super) fn finish(self) -> impl Iterator<Item = ArrayRef> {
        self.columns.into_iter().map(|column| -> ArrayRef {
            match column {
                Column::Text(mut all) => Arc::new(all.finish()),
                Column::Time(mut all) => Arc::new(all.finish().with_timezone("UTC")),
                Column::Integer(mut all) => Arc::new(all.finish()),
                Column::Number(mut all) => Arc::new(all.finish()),
                Column::Boolean(mut all) => Arc::new(all.finish()),
            }
        })
    }
}
