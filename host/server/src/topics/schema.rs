//! A topic's schema as it is asked for and shown.

use super::settings::{name_of, one_of, wrong};
use crate::ingest::dead_letter_topic;
use crate::problem::Answer;
use serde::Deserialize;
use serde_json::{Value, json};
use tidemill_log::{Format, OnMismatch, Schema};
use tidemill_types::TopicName;

/// What a request says of a schema.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object {\"json\": {…}, \"on_mismatch\": …}"
)]
pub(super) struct SchemaRequest {
    json: Value,
    #[serde(default)]
    on_mismatch: Option<String>,
}

const ON_MISMATCH: [(&str, OnMismatch); 3] = [
    ("reject", OnMismatch::Reject),
    ("dead-letter", OnMismatch::DeadLetter),
    ("null", OnMismatch::Null),
];

impl SchemaRequest {
    /// The schema asked for, of values of this format; what doesn't fit is treated as `before` if the
    /// request doesn't say.
    pub(super) fn check(self, format: Format, before: OnMismatch) -> Answer<Schema> {
        if format != Format::Json {
            return Err(wrong(
                "schema",
                "goes with format \"json\" only; other values aren't looked into",
            ));
        }
        let on_mismatch = self.on_mismatch.map_or(Ok(before), |text| {
            one_of("schema.on_mismatch", &text, &ON_MISMATCH)
        })?;
        Ok(Schema::read(self.json, on_mismatch)?)
    }
}

/// A schema as it is shown.
pub(super) fn to_json(schema: &Schema) -> Value {
    let on_mismatch = name_of(&schema.on_mismatch(), &ON_MISMATCH);
    json!({"json": schema.json(), "on_mismatch": on_mismatch})
}

/// Refuses a schema whose dead letters could have no topic.
pub(super) fn check_name(name: &TopicName, schema: Option<&Schema>) -> Answer<()> {
    match schema.map(Schema::on_mismatch) {
        Some(OnMismatch::DeadLetter) => Ok(dead_letter_topic(name).map(drop)?),
        _ => Ok(()),
    }
}
