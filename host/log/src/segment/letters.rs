//! Columns of topics of dead letters (`….dead-letters`), taken from the headers in which a letter tells its
//! story; the headers themselves stay as they are. A letter that lacks one, or in which it isn't what it
//! should be, has null.

use super::typed::Column;
use crate::schema::{Cell, Kind};
use crate::{Format, Topic};
use arrow_array::ArrayRef;
use arrow_schema::Field;
use std::str::FromStr;
use tidemill_types::{Headers, Timestamp};

/// Header and column; a column is called as its header, with underscores.
const COLUMNS: [(&str, &str, Kind); 9] = [
    ("tidemill-function", "tidemill_function", Kind::Text),
    ("tidemill-version", "tidemill_version", Kind::Integer),
    ("tidemill-reason", "tidemill_reason", Kind::Text),
    ("tidemill-error", "tidemill_error", Kind::Text),
    ("tidemill-attempts", "tidemill_attempts", Kind::Integer),
    ("tidemill-topic", "tidemill_topic", Kind::Text),
    ("tidemill-partition", "tidemill_partition", Kind::Integer),
    ("tidemill-offset", "tidemill_offset", Kind::Integer),
    ("tidemill-time", "tidemill_time", Kind::Time),
];
/// What these topics' names end with.
const SUFFIX: &str = ".dead-letters";

/// Whether a topic has these columns.
pub(super) fn are_in(topic: &Topic) -> bool {
    let settings = &topic.settings;
    topic.name.as_str().ends_with(SUFFIX)
        && settings.format == Format::Bytes
        && settings.schema.is_none()
}

/// The fields of the columns. All may be null.
pub(super) fn fields() -> impl Iterator<Item = Field> {
    COLUMNS.iter().map(|(_, name, kind)| kind.field(name))
}

/// The columns in the making.
pub(super) struct Letters([Column; COLUMNS.len()]);

impl Letters {
    pub(super) fn new(rows: usize) -> Self {
        Self(COLUMNS.map(|(.., kind)| Column::new(kind, rows)))
    }

    /// Adds a row; of headers that repeat, the last counts, for those of the event itself come first.
    pub(super) fn push(&mut self, headers: Headers<'_>) {
        let mut found = [None; COLUMNS.len()];
        for (name, value) in headers {
            let place = COLUMNS.iter().position(|(header, ..)| *header == name);
            if let Some(place) = place {
                found[place] = std::str::from_utf8(value).ok();
            }
        }
        for ((column, (.., kind)), text) in self.0.iter_mut().zip(COLUMNS).zip(found) {
            column.push(text.map_or(Cell::Null, |text| cell(kind, text)));
        }
    }

    pub(super) fn finish(self) -> impl Iterator<Item = ArrayRef> {
        self.0.into_iter().map(Column::finish)
    }
}

fn cell(kind: Kind, text: &str) -> Cell<'_> {
    let read = match kind {
        Kind::Integer => i64::from_str(text).ok().map(Cell::Integer),
        Kind::Time => Timestamp::from_str(text)
            .ok()
            .map(|time| Cell::Time(time.micros())),
        _ => Some(Cell::Text(text.into())),
    };
    read.unwrap_or(Cell::Null)
}
