//! Functions as they are shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tidemill_processor::{
    Counts, Deployed, FunctionLogLine, FunctionReport, FunctionStatus, Manifest, Plan, PlanAgain,
    ShadowOf, TaskReport, VersionReport,
};

/// Members that a deployment and a description share.
fn manifest(manifest: &Manifest) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("description".into(), json!(manifest.description));
    shown.insert(
        "inputs".into(),
        manifest
            .inputs
            .iter()
            .map(|input| json!(input.topic.as_str()))
            .collect(),
    );
    let outputs: Map<_, _> = manifest
        .outputs
        .iter()
        .map(|output| (output.name.clone(), json!(output.topic.as_str())))
        .collect();
    shown.insert("outputs".into(), outputs.into());
    let slots: Map<_, _> = manifest
        .slots
        .iter()
        .map(|slot| (slot.name.clone(), json!(slot.kind.as_str())))
        .collect();
    shown.insert("state".into(), slots.into());
    let grants = &manifest.grants;
    shown.insert("deterministic".into(), json!(grants.is_empty()));
    if !grants.is_empty() {
        let http = grants.http.iter().map(|grant| grant.allow.to_string());
        let http: Vec<_> = http.collect();
        let asked = json!({"secrets": grants.secrets, "http": http});
        shown.insert("grants".into(), asked);
    }
    shown
}

/// What a deployment came to.
pub(super) fn deployed(
    deployed: &Deployed,
    report: Option<&FunctionReport>,
    dry_run: bool,
) -> Value {
    let mut shown = manifest(&deployed.manifest);
    shown.extend([
        ("name".to_owned(), json!(deployed.manifest.name.as_str())),
        ("version".to_owned(), json!(deployed.version)),
        ("digest".to_owned(), json!(deployed.digest)),
        ("bytes".to_owned(), json!(deployed.bytes)),
        ("imports".to_owned(), json!(deployed.imports)),
        ("compile_ms".to_owned(), json!(deployed.compile_ms)),
        ("changed".to_owned(), json!(deployed.changed)),
        ("dry_run".to_owned(), json!(dry_run)),
        ("rollback_of".to_owned(), json!(deployed.rollback_of)),
        ("plan".to_owned(), plan(&deployed.plan)),
        (
            "status".to_owned(),
            json!(report.map(|report| status(report.status))),
        ),
    ]);
    shown.into()
}

fn plan(plan: &Plan) -> Value {
    let changes = plan
        .changes
        .iter()
        .map(|change| json!({"what": change.what, "before": change.before, "after": change.after}));
    let start = plan.start.iter().map(
        |start| json!({"topic": start.topic, "partition": start.partition, "offset": start.offset, "end": start.end}),
    );
    json!({
        "from": plan.from,
        "changes": changes.collect::<Vec<_>>(),
        "state": match (plan.resets, plan.again) {
            (true, _) => "reset",
            (false, Some(_)) => "restore",
            (false, None) => "keep",
        },
        "start": start.collect::<Vec<_>>(),
        "moves": plan.moves,
        "again": plan.again.as_ref().map(again),
    })
}

/// What going back to where a version was left comes to.
fn again(again: &PlanAgain) -> Value {
    json!({
        "version": again.version,
        "left": again.left.to_string(),
        "events": again.events,
        "emitted": again.emitted,
        "dead_lettered": again.dead_lettered,
        "passed_over": again.passed_over,
    })
}

/// A version that is kept.
pub(super) fn version(version: &VersionReport) -> Value {
    let mut shown = manifest(&version.manifest);
    shown.extend([
        ("version".to_owned(), json!(version.version)),
        ("digest".to_owned(), json!(version.digest)),
        ("bytes".to_owned(), json!(version.bytes)),
        ("imports".to_owned(), json!(version.imports)),
        ("manifest".to_owned(), version.manifest.source.clone()),
        (
            "deployed".to_owned(),
            json!(version.deployed.map(|time| time.to_string())),
        ),
        ("rollback_of".to_owned(), json!(version.rollback_of)),
        ("state_reset".to_owned(), json!(version.reset)),
        ("in_force".to_owned(), json!(version.in_force)),
        ("restored".to_owned(), json!(version.restored)),
        (
            "left".to_owned(),
            json!(
                version
                    .kept
                    .map(|kept| json!({"time": kept.left.to_string(), "ready": kept.ready}))
            ),
        ),
    ]);
    shown.into()
}

/// A function with its tasks and counts.
pub(super) fn report(report: &FunctionReport) -> Value {
    let mut shown = manifest(&report.manifest);
    shown.extend([
        ("name".to_owned(), json!(report.name.as_str())),
        ("version".to_owned(), json!(report.version)),
        ("digest".to_owned(), json!(report.digest)),
        ("bytes".to_owned(), json!(report.bytes)),
        ("imports".to_owned(), json!(report.imports)),
        ("status".to_owned(), json!(status(report.status))),
        ("status_reason".to_owned(), json!(report.status_reason)),
        ("tasks".to_owned(), report.tasks.iter().map(task).collect()),
        ("counts".to_owned(), counts(&report.counts)),
        ("version_counts".to_owned(), counts(&report.version_counts)),
        (
            "shadow".to_owned(),
            json!(report.shadow.as_ref().map(|name| name.as_str())),
        ),
        (
            "shadow_of".to_owned(),
            json!(report.shadow_of.as_ref().map(shadow_of)),
        ),
    ]);
    shown.into()
}

fn shadow_of(of: &ShadowOf) -> Value {
    json!({
        "function": of.function.as_str(),
        "state": if of.empty { "empty" } else { "copy" },
        "began": of.began.to_string(),
    })
}

fn status(status: FunctionStatus) -> &'static str {
    match status {
        FunctionStatus::Running => "running",
        FunctionStatus::Paused => "paused",
        FunctionStatus::Retrying => "retrying",
        FunctionStatus::Stopped => "stopped",
    }
}

fn task(task: &TaskReport) -> Value {
    json!({
        "topic": task.topic,
        "partition": task.partition,
        "position": task.position,
        "end": task.end,
        "lag": task.lag,
        "lag_seconds": task.lag_seconds,
        "cut_off": task.cut_off,
        "retrying": task.retrying,
        "watermark": task.watermark.map(|time| time.to_string()),
        "timers": task.timers,
        "status": status(task.status),
        "status_reason": task.status_reason,
    })
}

pub(super) fn counts(counts: &Counts) -> Value {
    json!({
        "in": counts.events_in,
        "emitted": counts.emitted,
        "filtered": counts.filtered,
        "skipped": counts.skipped,
        "dead_lettered": counts.dead_lettered,
        "late": counts.late,
        "effective": counts.effective,
        "cut_off": counts.cut_off,
        "retrying": counts.retrying,
        "redriven": counts.redriven,
        "timers": counts.timers,
        "timers_dead_lettered": counts.timers_dead_lettered,
    })
}

/// A line of a function's log.
pub(super) fn line(line: &FunctionLogLine) -> Value {
    let mut shown = json!({
        "time": line.time.to_string(),
        "level": line.level.as_str(),
        "version": line.version,
        "partition": line.partition,
        "offset": line.offset,
        "message": line.message,
    });
    if let Some(topic) = &line.topic {
        shown["topic"] = topic.as_str().into();
    }
    match line
        .key
        .as_deref()
        .map(|key| (key, std::str::from_utf8(key)))
    {
        None => {}
        Some((_, Ok(key))) => shown["key"] = key.into(),
        Some((key, Err(_))) => shown["key_base64"] = STANDARD.encode(key).into(),
    }
    shown
}
