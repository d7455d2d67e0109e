//! What the log's registry keeps of a function: the entry `function/<name>`, JSON.
//!
//! Functions' numbers come from the entry `next-function` and are never used again. A reader's number
//! for committed positions is `function × 4 + role`: role 0 is the main task, role 1 repartitions.

use crate::Manifest;
use crate::deployment::Deployment;
use crate::manifest::SlotKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use tidemill_state::ORDERED_SLOTS;
use tidemill_types::{Error, FunctionId, FunctionName, Result, TopicId};

/// Prefix of functions' entries.
pub(crate) const PREFIX: &str = "function/";
/// The entry that says which number comes next.
pub(crate) const NEXT: &str = "next-function";

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Role {
    /// Runs the function.
    Main,
    /// Moves an input's events to the internal topic `<function>.by-key`, or `<function>.by-key.<topic>`.
    Repartition,
}

/// The reader's number under which a task's position is committed.
pub(crate) fn reader(function: FunctionId, role: Role) -> u32 {
    function.0 * 4 + u32::from(role == Role::Repartition)
}

/// Whether a function is at work, as far as somebody or something decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Standing {
    /// At work.
    Running,
    /// Paused by somebody.
    Paused,
    /// Stopped by `fatal`, exhausted retries or a fault.
    Stopped,
    /// Deleted, its positions and state kept.
    Deleted,
}

/// A function as the registry keeps it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Its number.
    pub(crate) id: u32,
    /// Version in force.
    pub(crate) version: u32,
    /// Digest of its component, `sha256:…`.
    pub(crate) digest: String,
    /// Bytes of its component.
    pub(crate) bytes: usize,
    /// Interfaces it imports.
    pub(crate) imports: Vec<String>,
    /// Its manifest as given.
    pub(crate) manifest: Value,
    /// Whether it is at work.
    pub(crate) standing: Standing,
    /// Why not.
    pub(crate) reason: Option<String>,
    /// Since when not, µs since 1970; unknown for those of an earlier host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<i64>,
    /// Numbers of the topics whose starting positions have been decided.
    pub(crate) started: Vec<u32>,
    /// Numbers of state slots by name. A name keeps its number for good, whatever the guest calls it
    /// by, so that versions may add, drop and reorder slots.
    pub(crate) slots: BTreeMap<String, u16>,
    /// Whether values say when they were written; those of functions of before time-to-live don't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stamped: bool,
    /// What it runs beside, if it is a shadow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shadow: Option<Shadow>,
}

/// What the registry keeps of a shadow in its record. A shadow that is `deleted` is one whose state was
/// being copied when the host ended; it goes at the next start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shadow {
    /// The function it runs beside.
    #[serde(with = "as_text")]
    pub(crate) of: FunctionName,
    /// The manifest as it would be deployed.
    pub(crate) manifest: Value,
    /// The number under which the function's positions and state lie as they were when it began.
    pub(crate) kept: u32,
    /// Partitions of the topic that the main tasks read.
    pub(crate) partitions: u32,
    /// Whether it began without state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) empty: bool,
    /// When it began, µs since 1970.
    pub(crate) began: i64,
}

impl Record {
    /// The function whose input it reads and whose random numbers it sees: itself, unless it is a shadow.
    pub(crate) fn owner<'a>(&'a self, name: &'a FunctionName) -> &'a FunctionName {
        self.shadow.as_ref().map_or(name, |shadow| &shadow.of)
    }

    /// Key of its entry.
    pub(crate) fn key(name: &FunctionName) -> String {
        format!("{PREFIX}{name}")
    }

    /// Its number.
    pub(crate) fn function(&self) -> FunctionId {
        FunctionId(self.id)
    }

    /// The entry's bytes.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|wrong| Error::internal(wrong.to_string()))
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// `Corrupt` when it isn't one of this host's.
    pub(crate) fn decode(key: &str, bytes: &[u8]) -> Result<(FunctionName, Self)> {
        let wrong = |what: String| Error::corrupt(format!("registry entry {key:?}: {what}"));
        let name = key.strip_prefix(PREFIX).unwrap_or_default();
        let name = name.parse().map_err(|error: Error| wrong(error.detail))?;
        let record = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        Ok((name, record))
    }

    /// Gives the manifest's slots their numbers; new names get numbers never used before, maps those of
    /// slots that the state store keeps in order.
    pub(crate) fn number_slots(&mut self, manifest: &Manifest) {
        for slot in &manifest.slots {
            let ordered = slot.kind == SlotKind::Map;
            let number = self.slots.get(&slot.name);
            if number.is_some_and(|number| (*number >= ORDERED_SLOTS) == ordered) {
                continue;
            }
            let used = self.slots.values().map(|number| number % ORDERED_SLOTS);
            let next = used.max().map_or(0, |most| most + 1);
            let base = if ordered { ORDERED_SLOTS } else { 0 };
            self.slots.insert(slot.name.clone(), base + next);
        }
    }

    /// Numbers of the manifest's slots, in the guest's order.
    pub(crate) fn slot_numbers(&self, manifest: &Manifest) -> Vec<u16> {
        let number = |name: &str| self.slots.get(name).copied().unwrap_or_default();
        manifest
            .slots
            .iter()
            .map(|slot| number(&slot.name))
            .collect()
    }

    /// Where to start in a deployment's topics is decided.
    pub(crate) fn start_in(&mut self, deployment: &Deployment) {
        let inputs = deployment.inputs.iter();
        for topic in inputs.flat_map(|input| std::iter::once(&input.topic).chain(&input.by_key)) {
            if !self.started.contains(&topic.id.0) {
                self.started.push(topic.id.0);
            }
        }
    }

    /// Whether where to start in a topic has been decided.
    pub(crate) fn has_started(&self, topic: TopicId) -> bool {
        self.started.contains(&topic.0)
    }
}

/// A function's name as it lies in JSON.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use tidemill_types::FunctionName;

    pub(super) fn serialize<S: Serializer>(
        name: &FunctionName,
        json: S,
    ) -> Result<S::Ok, S::Error> {
        json.serialize_str(name.as_str())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(json: D) -> Result<FunctionName, D::Error> {
        let text = String::deserialize(json)?;
        text.parse()
            .map_err(|wrong: tidemill_types::Error| D::Error::custom(wrong.detail))
    }
}

/// Path of a component in object storage.
pub(crate) fn component_path(digest: &str) -> String {
    format!(
        "functions/{}.wasm",
        digest.strip_prefix("sha256:").unwrap_or(digest)
    )
}

/// One of a test.
#[cfg(test)]
pub(crate) fn plain() -> Record {
    Record {
        id: 3,
        version: 2,
        digest: "sha256:ab".into(),
        bytes: 9,
        imports: vec!["tidemill:function/host@0.1.0".into()],
        manifest: serde_json::json!({"input": [{"topic": "a"}]}),
        standing: Standing::Stopped,
        reason: Some("why".into()),
        since: None,
        started: vec![4],
        slots: BTreeMap::from([("total".into(), 1)]),
        stamped: false,
        shadow: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record() -> Record {
        plain()
    }

    #[test]
    fn entries_have_golden_bytes() {
        let golden = br#"{"id":3,"version":2,"digest":"sha256:ab","bytes":9,"imports":["tidemill:function/host@0.1.0"],"manifest":{"input":[{"topic":"a"}]},"standing":"stopped","reason":"why","started":[4],"slots":{"total":1}}"#;
        assert_eq!(record().encode().expect("encodes"), golden);
        let (name, read) = Record::decode("function/f", golden).expect("its own bytes");
        assert_eq!((name.as_str(), read), ("f", record()));
        let stamped = Record {
            since: Some(17),
            stamped: true,
            ..record()
        };
        let encoded = stamped.encode().expect("encodes");
        assert!(encoded.ends_with(
            br#""reason":"why","since":17,"started":[4],"slots":{"total":1},"stamped":true}"#
        ));
        assert_eq!(
            Record::decode("function/f", &encoded).expect("its own").1,
            stamped
        );
        let beside = Record {
            shadow: Some(Shadow {
                of: "f".parse().expect("a name"),
                manifest: json!({"input": [{"topic": "a"}]}),
                kept: 4,
                partitions: 2,
                empty: true,
                began: 17,
            }),
            ..record()
        };
        let encoded = beside.encode().expect("encodes");
        assert!(encoded.ends_with(br#","slots":{"total":1},"shadow":{"of":"f","manifest":{"input":[{"topic":"a"}]},"kept":4,"partitions":2,"empty":true,"began":17}}"#));
        let (name, read) = Record::decode("function/f.shadow", &encoded).expect("its own");
        assert_eq!(read.owner(&name).as_str(), "f");
        assert_eq!(read, beside);
        assert!(Record::decode("function/f", b"{}").is_err());
        assert!(Record::decode("function/", golden).is_err());
    }

    #[test]
    fn slots_keep_their_numbers() {
        let manifest = |order: &[&str]| {
            let state: serde_json::Map<String, Value> = order
                .iter()
                .map(|name| ((*name).to_owned(), json!({})))
                .collect();
            let source = json!({"input": [{"topic": "a"}], "function": {"slots_order": order}, "state": state});
            Manifest::resolve(None, Some(&source), &"f".parse().expect("a name")).expect("valid")
        };
        let mut record = Record {
            slots: BTreeMap::new(),
            ..record()
        };
        let first = manifest(&["b", "a"]);
        record.number_slots(&first);
        assert_eq!(record.slot_numbers(&first), [0, 1]);
        let second = manifest(&["c", "a"]);
        record.number_slots(&second);
        assert_eq!(
            record.slot_numbers(&second),
            [2, 1],
            "b's number isn't given away"
        );
        record.number_slots(&first);
        assert_eq!(
            record.slot_numbers(&first),
            [0, 1],
            "b finds its state again"
        );
    }

    #[test]
    fn maps_have_numbers_that_the_store_keeps_in_order() {
        let manifest = |kind: &str| {
            let source = json!({"input": [{"topic": "a"}], "function": {"slots_order": ["b", "a"]},
                "state": {"a": {"kind": kind}, "b": {}}});
            Manifest::resolve(None, Some(&source), &"f".parse().expect("a name")).expect("valid")
        };
        let mut record = Record {
            slots: BTreeMap::new(),
            ..record()
        };
        record.number_slots(&manifest("map"));
        assert_eq!(
            record.slot_numbers(&manifest("map")),
            [0, ORDERED_SLOTS + 1]
        );
        record.number_slots(&manifest("value"));
        assert_eq!(
            record.slot_numbers(&manifest("value")),
            [0, 2],
            "another kind, another slot"
        );
    }

    #[test]
    fn readers_and_paths() {
        assert_eq!(reader(FunctionId(5), Role::Main), 20);
        assert_eq!(reader(FunctionId(5), Role::Repartition), 21);
        assert_eq!(component_path("sha256:00ff"), "functions/00ff.wasm");
    }
}
