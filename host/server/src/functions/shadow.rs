//! The version that runs beside the one in force: looked at, compared, put in force, stopped.

use super::{accepted, found, redeployed, replays, state_of, view};
use crate::app::Shared;
use crate::body::{json_answer, read_json};
use crate::problem::Answer;
use crate::query::Params;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;

/// Query parameters of putting it in force.
pub(crate) const PROMOTE_QUERY: &[&str] = &["state", "dry_run"];

/// The shadow of a function.
pub(crate) async fn shadow(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let report = found(&app, &name, app.processor.shadow(&name).await)?;
    Ok(json_answer(StatusCode::OK, &view::report(&report)))
}

/// Ends it.
pub(crate) async fn stop_shadow(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    found(&app, &name, app.processor.stop_shadow(&name).await)?;
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

/// Puts it in force.
pub(crate) async fn promote_shadow(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::read(query.as_deref(), PROMOTE_QUERY)?;
    let state = state_of(&params)?;
    let dry_run = params.flag("dry_run")?;
    let deployed = app.processor.promote_shadow(&name, state, dry_run).await;
    let deployed = accepted(&app, &name, deployed)?;
    redeployed(&app, &name, &deployed, dry_run).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    examples: Option<usize>,
}

/// Begins to compare it with the version in force.
pub(crate) async fn diff_shadow(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let asked: Asked = read_json(&app, request).await?;
    let examples = asked.examples.unwrap_or(replays::EXAMPLES);
    let begun = app.processor.shadow_diff(&name, examples).await;
    let begun = found(&app, &name, begun)?;
    Ok(json_answer(StatusCode::ACCEPTED, &replays::report(&begun)))
}
