//! `/v1/functions`: deploy, list, describe, pause, resume, delete, look inside.

mod emitted;
mod invoke;
mod letters;
mod logs;
mod replays;
mod shadow;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod upload;
mod versions;
mod view;

use crate::app::{App, Shared, not_found};
use crate::body::json_answer;
use crate::problem::{Answer, Problem};
use crate::query::Params;
use crate::suggest::nearest;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};
use tidemill_processor::{Deploy, Deployed, KeepState, Start};
use tidemill_types::{Error, FunctionName, Result, Timestamp};

pub(crate) use invoke::{INVOKE_QUERY, invoke};
pub(crate) use letters::{
    LETTERS_QUERY, dead_letter, dead_letters, discard as discard_dead_letters,
    redrive as redrive_dead_letters,
};
pub(crate) use logs::{LOGS_QUERY, LOGS_TYPES, logs};
pub(crate) use replays::{cancel_replay, describe_replay, replay};
pub(crate) use shadow::{PROMOTE_QUERY, diff_shadow, promote_shadow, shadow, stop_shadow};
pub(crate) use state::{STATE_QUERY, state};
pub(crate) use versions::{ROLLBACK_QUERY, rollback, versions};

/// Query parameters of a deployment.
pub(crate) const PUT_QUERY: &[&str] = &["start", "state", "dry_run", "shadow"];
/// Content types of a deployment.
pub(crate) const PUT_TYPES: &[&str] = &["application/wasm", "multipart/form-data"];
/// Query parameters of deletion.
pub(crate) const DELETE_QUERY: &[&str] = &["state"];

/// Deploys a function.
pub(crate) async fn deploy(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let params = Params::read(query.as_deref(), PUT_QUERY)?;
    let name: FunctionName = name.parse()?;
    let start = params.parse_own("start", start_of)?;
    let state = state_of(&params)?;
    let dry_run = params.flag("dry_run")?;
    let beside = params.flag("shadow")?;
    let upload = upload::read(&app, request).await?;
    let first = app.processor.manifest(name.as_str()).is_err();
    let deploy = Deploy {
        name: name.clone(),
        component: upload.component,
        manifest: upload.manifest,
        start,
        state,
        dry_run,
    };
    if beside {
        let begun = accepted(
            &app,
            name.as_str(),
            app.processor.deploy_shadow(deploy).await,
        )?;
        let report = app.processor.shadow(name.as_str()).await.ok();
        let mut shown = view::deployed(&begun, report.as_ref(), dry_run);
        shown["shadow_of"] = json!(name.as_str());
        let status = match dry_run {
            true => StatusCode::OK,
            false => StatusCode::CREATED,
        };
        return Ok(json_answer(status, &shown));
    }
    let deployed = app.processor.deploy(deploy).await.map_err(refused)?;
    let status = if first && deployed.changed && !dry_run {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let report = app.processor.describe(name.as_str()).await.ok();
    Ok(json_answer(
        status,
        &view::deployed(&deployed, report.as_ref(), dry_run),
    ))
}

/// A topic that a manifest names and that isn't there is a fault of what was sent, not of the address.
fn refused(error: Error) -> Box<Problem> {
    let is_topic = error.code == "topic-not-found";
    let problem = Problem::from(error);
    Box::new(if is_topic {
        problem.status(StatusCode::UNPROCESSABLE_ENTITY)
    } else {
        problem
    })
}

/// What came of a request that names a function and, perhaps, topics.
fn accepted<T>(app: &App, name: &str, result: Result<T>) -> Answer<T> {
    match result {
        Err(error) if error.code != "function-not-found" => Err(refused(error)),
        other => found(app, name, other),
    }
}

/// What a deployment does to state.
fn state_of(params: &Params<'_>) -> Answer<KeepState> {
    let choices = [("keep", KeepState::Keep), ("reset", KeepState::Reset)];
    let state = params.one_of("state", &choices)?;
    Ok(state.unwrap_or(KeepState::Keep))
}

/// A deployment under an existing name, as it is shown.
async fn redeployed(app: &App, name: &str, deployed: &Deployed, dry_run: bool) -> Answer {
    let report = app.processor.describe(name).await.ok();
    let shown = view::deployed(deployed, report.as_ref(), dry_run);
    Ok(json_answer(StatusCode::OK, &shown))
}

fn start_of(text: &str) -> Result<Start> {
    match text {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        "keep" => Ok(Start::Keep),
        time => time.parse::<Timestamp>().map(Start::At).map_err(|error| {
            Error::invalid(
                error.code,
                format!("write earliest, latest, keep or a time: {}", error.detail),
            )
        }),
    }
}

/// Lists functions.
pub(crate) async fn list(State(app): Shared, RawQuery(query): RawQuery) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let reports = app.processor.list().await?;
    let functions: Vec<Value> = reports.iter().map(view::report).collect();
    Ok(json_answer(
        StatusCode::OK,
        &json!({"functions": functions}),
    ))
}

/// Describes a function.
pub(crate) async fn describe(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let report = found(&app, &name, app.processor.describe(&name).await)?;
    Ok(json_answer(StatusCode::OK, &view::report(&report)))
}

/// Pauses a function.
pub(crate) async fn pause(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let report = found(&app, &name, app.processor.pause(&name).await)?;
    Ok(json_answer(StatusCode::OK, &view::report(&report)))
}

/// Lets a function go on.
pub(crate) async fn resume(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let report = found(&app, &name, app.processor.resume(&name).await)?;
    Ok(json_answer(StatusCode::OK, &view::report(&report)))
}

/// Deletes a function.
pub(crate) async fn remove(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::read(query.as_deref(), DELETE_QUERY)?;
    let state = params
        .one_of(
            "state",
            &[("keep", KeepState::Keep), ("drop", KeepState::Reset)],
        )?
        .unwrap_or(KeepState::Reset);
    found(&app, &name, app.processor.delete(&name, state).await)?;
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

/// Adds the nearest name to "not found".
fn found<T>(app: &App, name: &str, result: Result<T>) -> Answer<T> {
    result.map_err(|error| {
        if error.code != "function-not-found" {
            return error.into();
        }
        if let Err(error) = name.parse::<FunctionName>() {
            return error.into();
        }
        let all = app.processor.names();
        let near = nearest(name, all.iter().map(FunctionName::as_str));
        Problem::because("function-not-found", not_found("function", name, near))
    })
}
