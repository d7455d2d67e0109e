//! What of a topic's values become columns, as it is said on the command line.

use crate::failure::{Failure, Result};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A schema and what becomes of events that don't fit it.
#[derive(Args, Debug, Default)]
pub(super) struct Columns {
    /// File with a JSON Schema: its properties become columns of the topic's segments.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// What becomes of events that do not fit: `reject` refuses them, `dead-letter` puts them into
    /// TOPIC.dead-letters, `null` takes them without those columns.
    #[arg(long, requires = "schema", value_parser = ["reject", "dead-letter", "null"])]
    on_mismatch: Option<String>,
}

impl Columns {
    /// As the host takes it; nothing if nothing was said.
    pub(super) fn schema(&self) -> Result<Option<Value>> {
        let Some(file) = &self.schema else {
            return Ok(None);
        };
        let shown = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::not_found("no-file", format!("there is no file {shown}"))
            }
            _ => Failure::failed("io", format!("cannot read {shown}: {error}")),
        })?;
        let json: Value = serde_json::from_str(&text).map_err(|error| {
            Failure::usage("invalid-schema", format!("{shown} is not JSON: {error}"))
        })?;
        let mut schema = json!({ "json": json });
        if let Some(on_mismatch) = &self.on_mismatch {
            schema["on_mismatch"] = on_mismatch.clone().into();
        }
        Ok(Some(schema))
    }
}
