//! Events that don't fit their topic's schema, on their way to its dead letters: in the same frame as
//! the others, untouched, with headers that say why, as functions' dead letters have them.

use super::rows::Letter;
use crate::app::App;
use crate::problem::Answer;
use std::sync::Arc;
use tidemill_log::{Draft, Format, Topic, TopicSettings};
use tidemill_types::{PackedRows, Result, RowView, TopicName};

/// Longest reason kept, in bytes.
const REASON_BYTES: usize = 4096;

/// The topic of a topic's dead letters.
///
/// # Errors
/// `invalid-name` when that is too long.
pub(crate) fn dead_letter_topic(topic: &TopicName) -> Result<TopicName> {
    format!("{}.dead-letters", topic.as_str()).parse()
}

/// Letters ready to be appended.
pub(super) struct Letters {
    topic: Arc<Topic>,
    rows: PackedRows,
    partitions: Vec<u32>,
}

impl Letters {
    /// Copies letters out of a complete payload; creates their topic if there is none.
    pub(super) async fn of(
        app: &App,
        topic: &Topic,
        letters: &[Letter],
        payload: &[u8],
    ) -> Answer<Option<Self>> {
        if letters.is_empty() {
            return Ok(None);
        }
        let name = dead_letter_topic(&topic.name)?;
        let to = match app.log.topic(name.as_str()) {
            Some(known) => known,
            None => {
                let settings = TopicSettings {
                    partitions: topic.settings.partitions,
                    format: Format::Bytes,
                    ..TopicSettings::default()
                };
                app.log.create_topic(&name, settings).await?.0
            }
        };
        let (mut rows, mut partitions) = (PackedRows::default(), Vec::new());
        for letter in letters {
            push(&mut rows, topic, letter, payload)?;
            partitions.push(letter.partition % to.settings.partitions.max(1));
        }
        Ok(Some(Self {
            topic: to,
            rows,
            partitions,
        }))
    }

    pub(super) fn add_to(&self, draft: &mut Draft) -> Result<()> {
        draft.append(self.topic.id, &self.rows, &self.partitions)
    }
}

fn push(rows: &mut PackedRows, topic: &Topic, letter: &Letter, payload: &[u8]) -> Result<()> {
    let event = RowView::new(letter.head, payload);
    let error = match letter.wrong.pointer.as_str() {
        "" => letter.wrong.reason.clone(),
        pointer => format!("{pointer}: {}", letter.wrong.reason),
    };
    let time = event.time.to_string();
    let headers = [
        ("tidemill-reason", &b"schema"[..]),
        (
            "tidemill-error",
            &error.as_bytes()[..error.floor_char_boundary(REASON_BYTES)],
        ),
        ("tidemill-topic", topic.name.as_str().as_bytes()),
        ("tidemill-time", time.as_bytes()),
    ];
    let headers = event.headers.chain(headers);
    rows.push(event.time, event.key, event.value, headers)
}
