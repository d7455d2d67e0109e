//! What a deployment would change, in words that can be read before it is done.

use crate::manifest::{Manifest, SlotSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use tidemill_log::Format;
use tidemill_types::{Timestamp, format_duration};
use tidemill_wasm::Clock;

/// What a deployment changes.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The version in force before it.
    pub from: Option<u32>,
    /// What is different, by name.
    pub changes: Vec<PlanChange>,
    /// Whether all state goes.
    pub resets: bool,
    /// Where it reads on, by topic and partition of its inputs.
    pub start: Vec<PlanStart>,
    /// Whether that isn't where the version before stands.
    pub moves: bool,
    /// What it means that state and positions go back to what they were.
    pub again: Option<PlanAgain>,
}

/// What going back to where a version was left comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanAgain {
    /// The version.
    pub version: u32,
    /// When it was left.
    pub left: Timestamp,
    /// Events that were handled since, and are handled again.
    pub events: u64,
    /// Events that were emitted since: they stand, and are emitted again.
    pub emitted: u64,
    /// Events that were dead letters since.
    pub dead_lettered: u64,
    /// Events that are passed over, for the version had handled them before it was left.
    pub passed_over: u64,
}

/// One difference: what is only before is removed, what is only after is added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanChange {
    /// The place in the manifest, as `state.total` or `limits.memory`; `component`: its digest.
    pub what: String,
    /// As it is.
    pub before: Option<String>,
    /// As it would be.
    pub after: Option<String>,
}

/// Where a partition is read on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanStart {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The next offset to read.
    pub offset: u64,
    /// The committed end.
    pub end: u64,
}

/// What is different between two manifests with their components' digests.
pub(super) fn changes(
    before: Option<(&str, &Manifest)>,
    (digest, after): (&str, &Manifest),
) -> Vec<PlanChange> {
    let mut all: BTreeMap<String, (Option<String>, Option<String>)> = BTreeMap::new();
    if let Some((digest, before)) = before {
        for (what, value) in described(digest, before) {
            all.entry(what).or_default().0 = Some(value);
        }
    }
    for (what, value) in described(digest, after) {
        all.entry(what).or_default().1 = Some(value);
    }
    let differ = all
        .into_iter()
        .filter(|(_, (before, after))| before != after);
    differ
        .map(|(what, (before, after))| PlanChange {
            what,
            before,
            after,
        })
        .collect()
}

/// Everything that can be told apart: topics and slots as they were understood, the rest as it was given.
fn described(digest: &str, manifest: &Manifest) -> Vec<(String, String)> {
    let mut all = vec![("component".to_owned(), digest.to_owned())];
    for input in &manifest.inputs {
        let by = input.key.as_ref();
        let by = by.map_or_else(|| "read".into(), |key| format!("read by {key:?}"));
        all.push((format!("input.{}", input.topic), by));
    }
    for output in &manifest.outputs {
        let format = match output.format {
            Format::Json => "json",
            Format::Bytes => "bytes",
        };
        let count = output
            .partitions
            .map_or_else(String::new, |n| format!(", {n} partitions"));
        let shown = format!("{} ({format}{count})", output.topic);
        all.push((format!("output.{}", output.name), shown));
    }
    for slot in &manifest.slots {
        all.push((format!("state.{}", slot.name), shown(slot)));
    }
    if manifest.timers {
        all.push(("timers".into(), "handled".into()));
    }
    for (section, value) in manifest.source.as_object().into_iter().flatten() {
        if !["function", "input", "output", "state"].contains(&section.as_str()) {
            flatten(section, value, &mut all);
        }
    }
    all
}

fn shown(slot: &SlotSpec) -> String {
    let kind = slot.kind.as_str();
    let Some(ttl) = slot.ttl else {
        return kind.into();
    };
    let clock = match slot.ttl_time {
        Clock::Event => "",
        Clock::Processing => " in processing time",
    };
    format!("{kind}, for {}{clock}", format_duration(ttl))
}

fn flatten(place: &str, value: &Value, all: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                flatten(&format!("{place}.{name}"), value, all);
            }
        }
        Value::String(text) => all.push((place.to_owned(), text.clone())),
        other => all.push((place.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_is_told_and_nothing_else() {
        let manifest = |source: Value| {
            Manifest::resolve(None, Some(&source), &"f".parse().expect("a name")).expect("valid")
        };
        let old = manifest(json!({
            "input": [{"topic": "a"}], "output": {"out": {"topic": "b"}},
            "function": {"slots_order": ["x", "gone"]},
            "state": {"x": {}, "gone": {"kind": "list"}},
            "limits": {"memory": "8MiB", "deadline": "1s"}, "config": {"deep": {"n": 1}},
        }));
        let new = manifest(json!({
            "input": [{"topic": "a", "key": "/k"}], "output": {"out": {"topic": "b"}},
            "function": {"slots_order": ["fresh", "x"]},
            "state": {"x": {"ttl": "1d"}, "fresh": {"kind": "map"}},
            "limits": {"memory": "16MiB", "deadline": "1s"}, "config": {"deep": {"n": 2}},
        }));
        let told: Vec<String> = changes(Some(("d1", &old)), ("d1", &new))
            .into_iter()
            .map(|change| {
                let side = |side: Option<String>| side.unwrap_or_else(|| "-".into());
                format!(
                    "{}: {} > {}",
                    change.what,
                    side(change.before),
                    side(change.after)
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "config.deep.n: 1 > 2",
                "input.a: read > read by \"/k\"",
                "limits.memory: 8MiB > 16MiB",
                "state.fresh: - > map",
                "state.gone: list > -",
                "state.x: value > value, for 1d",
            ]
        );
        assert_eq!(changes(Some(("d1", &old)), ("d1", &old)), []);
        let first = changes(None, ("d1", &old));
        assert!(first.iter().all(|change| change.before.is_none()));
        assert!(first.iter().any(|change| change.what == "component"));
    }
}
