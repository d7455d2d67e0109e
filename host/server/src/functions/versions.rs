//! Versions of a function, and going back to one.

use super::{accepted, found, redeployed, view};
use crate::app::Shared;
use crate::body::{json_answer, read_json};
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tidemill_processor::{KeepState, Rollback};

/// Query parameters of a rollback.
pub(crate) const ROLLBACK_QUERY: &[&str] = &["dry_run"];

/// Lists the versions that are kept, the newest first.
pub(crate) async fn versions(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let versions = found(&app, &name, app.processor.versions(&name).await)?;
    let versions: Vec<Value> = versions.iter().map(view::version).collect();
    Ok(json_answer(StatusCode::OK, &json!({"versions": versions})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    version: u32,
    state: Option<String>,
    #[serde(default)]
    again: bool,
}

/// Goes back to an earlier version.
pub(crate) async fn rollback(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let params = Params::read(query.as_deref(), ROLLBACK_QUERY)?;
    let dry_run = params.flag("dry_run")?;
    let asked: Asked = read_json(&app, request).await?;
    let state = match asked.state.as_deref() {
        None | Some("keep") => KeepState::Keep,
        Some("reset") => KeepState::Reset,
        Some("restore") => KeepState::Restore { again: asked.again },
        Some(other) => {
            let detail = format!("state: {other:?} is not \"keep\", \"reset\" or \"restore\"");
            return Err(Problem::because("invalid-request", detail));
        }
    };
    let rollback = Rollback {
        version: asked.version,
        state,
        dry_run,
    };
    let deployed = app.processor.rollback(&name, rollback).await;
    let deployed = accepted(&app, &name, deployed)?;
    redeployed(&app, &name, &deployed, dry_run).await
}
