//! What the log's registry keeps of a function's versions: entries `version/<name>/<number, ten digits>`,
//! JSON, written in the frame that puts the version in force. The newest [`MOST`] are kept, with their
//! components.
//!
//! A component that no kept version has any more is noted as `unused-component/<digest>` in the frame
//! that drops the last version with it. Its object is deleted at the next start, once the manifest is
//! fenced: who is no longer the owner must not take away what a newer owner may have in use.

use crate::parts::Parts;
use crate::record::{PREFIX as FUNCTIONS, Record, component_path};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tidemill_log::Draft;
use tidemill_types::{Error, FunctionName, Result};

/// Prefix of versions' entries.
const PREFIX: &str = "version/";
/// Prefix of entries of components that no version needs.
const UNUSED: &str = "unused-component/";
/// Versions kept of a function: they are part of every manifest of the log.
pub(crate) const MOST: usize = 100;

/// A version as the registry keeps it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Version {
    /// Digest of its component, `sha256:…`.
    pub(crate) digest: String,
    /// Bytes of its component.
    pub(crate) bytes: usize,
    /// Interfaces it imports.
    pub(crate) imports: Vec<String>,
    /// Its manifest as given.
    pub(crate) manifest: Value,
    /// When it was put in force, µs since 1970; unknown for those of an earlier host.
    pub(crate) deployed: Option<i64>,
    /// The version it went back to, if it was a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rollback_of: Option<u32>,
    /// Whether it began without the state of the one before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) reset: bool,
    /// The last commit before it: all that it did lies behind.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) behind: u64,
    /// By partition, how many events the main tasks had emitted before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) emitted: Vec<u64>,
    /// By partition of the first topic its main tasks read, the first offset it handled. Empty for those of
    /// an earlier host.
    pub(crate) first: Vec<u64>,
    /// Where the one before stood, where that isn't where this one began, in the first topic that read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left_at: Option<Vec<u64>>,
    /// As `first`, of its further inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) first_of_others: Vec<Vec<u64>>,
    /// As `left_at`, of the further inputs of the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_at_of_others: Vec<Vec<u64>>,
    /// The version whose state, positions and totals it began with, as they were when that was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restored: Option<u32>,
}

/// Versions of a function by number.
pub(crate) type Versions = BTreeMap<u32, Version>;

impl Version {
    /// The version as one that began at these offsets, input by input, and where the one before stood if
    /// that was elsewhere.
    pub(crate) fn between(self, mut first: Vec<Vec<u64>>, left_at: Option<Vec<Vec<u64>>>) -> Self {
        let others = first.split_off(first.len().min(1));
        let (left_at, left_others) = match left_at {
            None => (None, Vec::new()),
            Some(mut left) => {
                let others = left.split_off(left.len().min(1));
                (left.pop(), others)
            }
        };
        Self {
            first: first.pop().unwrap_or_default(),
            first_of_others: others,
            left_at,
            left_at_of_others: left_others,
            ..self
        }
    }

    /// The first offset it handled, input by input, by partition.
    pub(crate) fn begins(&self) -> Vec<Vec<u64>> {
        let others = self.first_of_others.iter();
        std::iter::once(&self.first)
            .chain(others)
            .cloned()
            .collect()
    }

    /// Where the one before stood, input by input, if that isn't where this one began.
    pub(crate) fn left(&self) -> Option<Vec<Vec<u64>>> {
        let first = self.left_at.as_ref()?;
        let others = self.left_at_of_others.iter();
        Some(std::iter::once(first).chain(others).cloned().collect())
    }

    /// The one in force, as far as the function's record tells.
    pub(crate) fn of_record(record: &Record) -> Self {
        Self {
            digest: record.digest.clone(),
            bytes: record.bytes,
            imports: record.imports.clone(),
            manifest: record.manifest.clone(),
            deployed: None,
            rollback_of: None,
            reset: false,
            behind: 0,
            emitted: Vec::new(),
            first: Vec::new(),
            left_at: None,
            first_of_others: Vec::new(),
            left_at_of_others: Vec::new(),
            restored: None,
        }
    }

    fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|wrong| Error::internal(wrong.to_string()))
    }

    fn decode(key: &str, bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|wrong| Error::corrupt(format!("registry entry {key:?}: {wrong}")))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn prefix_of(name: &FunctionName) -> String {
    format!("{PREFIX}{name}/")
}

fn key(name: &FunctionName, version: u32) -> String {
    format!("{PREFIX}{name}/{version:010}")
}

/// The versions that are kept of a function; the one in force is among them, also where an earlier host
/// deployed it.
///
/// # Errors
/// `Corrupt` when an entry isn't one of this host's.
pub(crate) fn kept(parts: &Parts, name: &FunctionName, record: &Record) -> Result<Versions> {
    let prefix = prefix_of(name);
    let mut versions = Versions::new();
    for (key, entry) in parts.log.entries(&prefix) {
        let number = key[prefix.len()..].parse();
        let number =
            number.map_err(|_| Error::corrupt(format!("registry entry {key:?} has no number")))?;
        versions.insert(number, Version::decode(&key, &entry)?);
    }
    versions
        .entry(record.version)
        .or_insert_with(|| Version::of_record(record));
    Ok(versions)
}

/// The versions that led to the state a version has, from the one that began without any, as far as they are kept.
/// Where a version began with what another one had left, those between aren't among them.
pub(crate) fn led_to(versions: &Versions, number: u32) -> Vec<u32> {
    let mut way = Vec::new();
    let mut next = Some(number);
    while let Some((number, version)) = next.and_then(|n| versions.get_key_value(&n)) {
        way.push(*number);
        next = match version.restored {
            _ if version.reset => None,
            // Only earlier ones can have been left.
            Some(restored) => Some(restored).filter(|restored| restored < number),
            None => versions.range(..number).next_back().map(|(n, _)| *n),
        };
    }
    way.reverse();
    way
}

/// Adds a version to a transaction, and takes the oldest away beyond [`MOST`].
///
/// # Errors
/// `Corrupt` when the registry can't be read.
pub(crate) fn add(
    parts: &Parts,
    draft: &mut Draft,
    name: &FunctionName,
    before: Option<&Record>,
    (number, version): (u32, &Version),
) -> Result<()> {
    let mut versions = match before {
        Some(record) => kept(parts, name, record)?,
        None => Versions::new(),
    };
    if let Some((record, last)) = before.and_then(|r| Some((r, versions.get(&r.version)?))) {
        // One that an earlier host deployed has no entry yet.
        draft.entry(&key(name, record.version), Some(&last.encode()?));
    }
    draft.entry(&key(name, number), Some(&version.encode()?));
    draft.entry(&format!("{UNUSED}{}", version.digest), None);
    versions.insert(number, version.clone());
    let many = versions.len().saturating_sub(MOST);
    let dropped: Versions = versions
        .iter()
        .take(many)
        .map(|(n, v)| (*n, v.clone()))
        .collect();
    let left = versions
        .into_values()
        .skip(many)
        .map(|version| version.digest);
    drop_from(parts, draft, name, &dropped, left.collect())
}

/// Takes all versions of a function away with a transaction.
///
/// # Errors
/// `Corrupt` when the registry can't be read.
pub(crate) fn remove(
    parts: &Parts,
    draft: &mut Draft,
    name: &FunctionName,
    record: &Record,
) -> Result<()> {
    let versions = kept(parts, name, record)?;
    drop_from(parts, draft, name, &versions, BTreeSet::new())
}

/// Drops versions; `left` are the digests of those of the same function that stay.
fn drop_from(
    parts: &Parts,
    draft: &mut Draft,
    name: &FunctionName,
    dropped: &Versions,
    left: BTreeSet<String>,
) -> Result<()> {
    if dropped.is_empty() {
        return Ok(());
    }
    let mut used = used(parts, Some(name))?;
    used.extend(left);
    for (number, version) in dropped {
        draft.entry(&key(name, *number), None);
        if !used.contains(&version.digest) {
            draft.entry(&format!("{UNUSED}{}", version.digest), Some(b""));
        }
    }
    Ok(())
}

/// Digests of the components that functions need, but for those of one of them.
fn used(parts: &Parts, but: Option<&FunctionName>) -> Result<BTreeSet<String>> {
    let mut used = BTreeSet::new();
    for (key, entry) in parts.log.entries(FUNCTIONS) {
        let (name, record) = Record::decode(&key, &entry)?;
        if but == Some(&name) {
            continue;
        }
        let versions = kept(parts, &name, &record)?;
        used.extend(versions.into_values().map(|version| version.digest));
        used.insert(record.digest);
    }
    Ok(used)
}

/// Deletes components that no version needs; what can't be deleted now is at the next start.
///
/// # Errors
/// When the registry can't be read or written.
pub(crate) async fn sweep(parts: &Parts) -> Result<()> {
    let used = used(parts, None)?;
    let mut draft = Draft::new();
    let mut done = false;
    for (key, _) in parts.log.entries(UNUSED) {
        let digest = &key[UNUSED.len()..];
        if !used.contains(digest)
            && let Err(wrong) = parts.objects.delete(&component_path(digest)).await
        {
            tracing::warn!(digest, error = %wrong, "a component that no version needs can't be deleted now");
            continue;
        }
        draft.entry(&key, None);
        done = true;
    }
    match done {
        true => parts.commit_durably(draft, &[]).await,
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_have_golden_bytes() {
        let version = Version {
            digest: "sha256:ab".into(),
            bytes: 9,
            imports: vec!["tidemill:function/host@0.1.0".into()],
            manifest: json!({"input": [{"topic": "a"}]}),
            deployed: Some(17),
            rollback_of: None,
            reset: false,
            behind: 4,
            emitted: vec![1, 0],
            first: vec![3, 0],
            left_at: None,
            first_of_others: Vec::new(),
            left_at_of_others: Vec::new(),
            restored: None,
        };
        let golden = br#"{"digest":"sha256:ab","bytes":9,"imports":["tidemill:function/host@0.1.0"],"manifest":{"input":[{"topic":"a"}]},"deployed":17,"behind":4,"emitted":[1,0],"first":[3,0]}"#;
        assert_eq!(version.encode().expect("encodes"), golden);
        assert_eq!(Version::decode("k", golden).expect("its own"), version);
        let back = Version {
            rollback_of: Some(1),
            reset: true,
            left_at: Some(vec![5, 6]),
            restored: Some(1),
            ..version
        };
        let encoded = back.encode().expect("encodes");
        assert!(encoded.ends_with(
            br#""deployed":17,"rollback_of":1,"reset":true,"behind":4,"emitted":[1,0],"first":[3,0],"left_at":[5,6],"restored":1}"#
        ));
        assert_eq!(Version::decode("k", &encoded).expect("its own"), back);
        let several = back.between(
            vec![vec![3], vec![4]],
            Some(vec![vec![5], vec![6], vec![7]]),
        );
        let encoded = several.encode().expect("encodes");
        assert!(encoded.ends_with(
            br#""first":[3],"left_at":[5],"first_of_others":[[4]],"left_at_of_others":[[6],[7]],"restored":1}"#
        ));
        assert_eq!(Version::decode("k", &encoded).expect("its own"), several);
        assert_eq!(several.begins(), [[3], [4]]);
        assert_eq!(several.left(), Some(vec![vec![5], vec![6], vec![7]]));
        assert!(Version::decode("k", b"{}").is_err());
        let name = "f".parse().expect("a name");
        assert_eq!(key(&name, 12), "version/f/0000000012");
        assert!(key(&name, 12).starts_with(&prefix_of(&name)));
    }

    #[test]
    fn what_led_to_a_version_passes_over_what_was_undone() {
        let record = Record {
            version: 1,
            ..crate::record::plain()
        };
        let version = |reset, restored| Version {
            reset,
            restored,
            ..Version::of_record(&record)
        };
        let versions = Versions::from([
            (1, version(false, None)),
            (2, version(true, None)),
            (3, version(false, None)),
            (4, version(false, Some(2))),
            (5, version(false, None)),
            (6, version(false, Some(1))),
            (7, version(false, Some(5))),
        ]);
        assert_eq!(led_to(&versions, 3), [2, 3]);
        assert_eq!(led_to(&versions, 5), [2, 4, 5]);
        assert_eq!(led_to(&versions, 6), [1, 6]);
        assert_eq!(led_to(&versions, 7), [2, 4, 5, 7]);
        assert_eq!(led_to(&versions, 8), [0; 0]);
    }
}
