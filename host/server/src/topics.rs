//! `/v1/topics`: create, list, describe, change, truncate, delete.

mod schema;
mod settings;
mod stats;
#[cfg(test)]
mod tests;
mod truncate;

pub(crate) use stats::stats;
pub(crate) use truncate::{TRUNCATE_QUERY, truncate};

use crate::app::Shared;
use crate::body::{json_answer, read_json};
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};
use settings::{TopicChange, TopicRequest, differences, to_json};
use tidemill_log::Topic;
use tidemill_types::{ErrorKind, TopicName};

/// Query parameters of deletion.
pub(crate) const DELETE_QUERY: &[&str] = &["force"];

/// Lists topics.
pub(crate) async fn list(State(app): Shared, RawQuery(query): RawQuery) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let topics: Vec<Value> = app
        .log
        .topics()
        .iter()
        .map(|topic| to_json(topic))
        .collect();
    Ok(json_answer(StatusCode::OK, &json!({"topics": topics})))
}

/// Describes a topic.
pub(crate) async fn describe(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let topic = app.topic(&name)?;
    let mut shown = to_json(&topic);
    let ranges = app.log.ranges(topic.id)?;
    shown["ranges"] = ranges
        .iter()
        .map(|range| {
            json!({"partition": range.partition, "start": range.start, "end": range.end,
                   "archived_end": range.archived_end, "bytes": range.bytes})
        })
        .collect();
    Ok(json_answer(StatusCode::OK, &shown))
}

/// Creates a topic.
pub(crate) async fn create(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let name: TopicName = name.parse()?;
    let asked: TopicRequest = read_json(&app, request).await?;
    let settings = asked.check()?;
    schema::check_name(&name, settings.schema.as_deref())?;
    match app.log.create_topic(&name, settings.clone()).await {
        Ok((topic, created)) => {
            let status = if created {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            Ok(json_answer(status, &to_json(&topic)))
        }
        Err(error) if error.kind == ErrorKind::Conflict => match app.log.topic(name.as_str()) {
            Some(existing) => Err(exists(&existing, &settings)),
            None => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

fn exists(existing: &Topic, asked: &tidemill_log::TopicSettings) -> Box<Problem> {
    let fields = differences(&existing.settings, asked);
    let detail = format!(
        "A topic {:?} exists with other settings; they differ in {}.",
        existing.name.as_str(),
        fields.join(", ")
    );
    Box::new(
        Problem::new("topic-exists", detail)
            .member("fields", fields)
            .member("existing", to_json(existing)),
    )
}

/// Changes a topic's retention and schema.
pub(crate) async fn alter(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let topic = app.topic(&name)?;
    let change: TopicChange = read_json(&app, request).await?;
    let (retention, schema) = change.check(&topic.settings)?;
    schema::check_name(&topic.name, schema.as_ref())?;
    let same_schema = schema.is_none() || schema.as_ref() == topic.settings.schema.as_deref();
    let topic = match retention == topic.settings.retention && same_schema {
        true => topic,
        false => app.log.alter_topic(&topic.name, retention, schema).await?,
    };
    Ok(json_answer(StatusCode::OK, &to_json(&topic)))
}

/// Deletes a topic, unless functions use it.
pub(crate) async fn remove(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::read(query.as_deref(), DELETE_QUERY)?;
    let force = params.flag("force")?;
    let topic = app.topic(&name)?;
    let users: Vec<String> = app
        .processor
        .users_of(topic.name.as_str())
        .iter()
        .map(ToString::to_string)
        .collect();
    if !users.is_empty() && !force {
        let detail = format!(
            "The topic {:?} is used by {}. Delete them first, or add ?force=true.",
            topic.name.as_str(),
            users.join(", ")
        );
        return Err(Box::new(
            Problem::new("topic-in-use", detail).member("functions", users),
        ));
    }
    app.log.delete_topic(&topic.name).await?;
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}
