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
    let properties = schema.properties().iter();
    properties.map(|property| property.kind.field(&property.name))
}

impl Kind {
    /// A column's field.
    pub(super) fn field(self, name: &str) -> Field {
        let data_type = match self {
            Self::Text | Self::Object | Self::Array => DataType::Utf8,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Integer => DataType::Int64,
            Self::Number => DataType::Float64,
            Self::Boolean => DataType::Boolean,
        };
        Field::new(name, data_type, true)
    }
}

/// Typed columns in the making.
pub(super) struct Typed {
    schema: Arc<Schema>,
    columns: Vec<Column>,
}

impl Typed {
    pub(super) fn new(schema: Arc<Schema>, rows: usize) -> Self {
        let properties = schema.properties().iter();
        let columns = properties
            .map(|property| Column::new(property.kind, rows))
            .collect();
        Self { schema, columns }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, value: Option<&[u8]>) {
        for (column, cell) in self.columns.iter_mut().zip(self.schema.cells(value)) {
            column.push(cell);
        }
    }

    pub(super) fn finish(self) -> impl Iterator<Item = ArrayRef> {
        self.columns.into_iter().map(Column::finish)
    }
}

/// One column in the making.
pub(super) enum Column {
    Text(StringBuilder),
    Time(TimestampMicrosecondBuilder),
    Integer(Int64Builder),
    Number(Float64Builder),
    Boolean(BooleanBuilder),
}

impl Column {
    pub(super) fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Text | Kind::Object | Kind::Array => {
                Self::Text(StringBuilder::with_capacity(rows, 0))
            }
            Kind::Time => Self::Time(TimestampMicrosecondBuilder::with_capacity(rows)),
            Kind::Integer => Self::Integer(Int64Builder::with_capacity(rows)),
            Kind::Number => Self::Number(Float64Builder::with_capacity(rows)),
            Kind::Boolean => Self::Boolean(BooleanBuilder::with_capacity(rows)),
        }
    }

    /// Adds a cell; one of another kind is null.
    pub(super) fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Text(all), Cell::Text(text)) => all.append_value(text),
            (Self::Time(all), Cell::Time(micros)) => all.append_value(micros),
            (Self::Integer(all), Cell::Integer(number)) => all.append_value(number),
            (Self::Number(all), Cell::Number(number)) => all.append_value(number),
            (Self::Boolean(all), Cell::Boolean(truth)) => all.append_value(truth),
            (Self::Text(all), _) => all.append_null(),
            (Self::Time(all), _) => all.append_null(),
            (Self::Integer(all), _) => all.append_null(),
            (Self::Number(all), _) => all.append_null(),
            (Self::Boolean(all), _) => all.append_null(),
        }
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::Text(mut all) => Arc::new(all.finish()),
            Self::Time(mut all) => Arc::new(all.finish().with_timezone("UTC")),
            Self::Integer(mut all) => Arc::new(all.finish()),
            Self::Number(mut all) => Arc::new(all.finish()),
            Self::Boolean(mut all) => Arc::new(all.finish()),
        }
    }
}
