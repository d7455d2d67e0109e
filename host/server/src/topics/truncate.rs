//! `DELETE /v1/topics/{topic}/events`: events below an offset go.

use crate::app::Shared;
use crate::body::json_answer;
use crate::problem::{Answer, Problem};
use crate::query::Params;
use crate::read::out_of_range;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde_json::json;
use tidemill_types::{ErrorKind, PartitionId};

/// Query parameters.
pub(crate) const TRUNCATE_QUERY: &[&str] = &["partition", "before"];

/// Takes away what lies below an offset of a partition; answers where it starts and ends now.
pub(crate) async fn truncate(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::read(query.as_deref(), TRUNCATE_QUERY)?;
    let topic = app.topic(&name)?;
    let needed = |what: &str| {
        let detail = format!(
            "{what} is missing: events go by ?partition=0&before=123, an offset that stays"
        );
        Problem::because("invalid-request", detail)
    };
    let partition = params.parse::<u32>("partition", "write a partition's number")?;
    let before = params.parse::<u64>("before", "write an offset")?;
    let at = PartitionId {
        topic: topic.id,
        partition: partition.ok_or_else(|| needed("partition"))?,
    };
    let before = before.ok_or_else(|| needed("before"))?;
    match app.log.truncate(at, before).await {
        Ok(range) => Ok(json_answer(
            StatusCode::OK,
            &json!({"partition": range.partition, "start": range.start, "end": range.end}),
        )),
        Err(error) if error.kind == ErrorKind::OutOfRange => {
            Err(out_of_range(at.partition, before, &app.log.range(at)?))
        }
        Err(error) => Err(error.into()),
    }
}
