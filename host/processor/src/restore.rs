//! What is kept at a switch of versions so that it can be undone: the state and the positions of the version
//! that is left, as they were at that transaction border.
//!
//! They lie under a number of their own, like those of a function: positions from the frame of the switch on,
//! state once it is copied. To go back, the function takes that number in one frame, so that state, positions and
//! totals change together however much state there is; the number it had keeps what the version left behind.
//!
//! The registry entry `restore/<name>/<version, ten digits>`, JSON, says what is kept of a version. One whose state
//! was being copied when the host ended goes at the next start.

mod copying;
mod taking;

use crate::deploying::clear;
use crate::leaving;
use crate::parked;
use crate::parts::Parts;
use crate::processor::Inner;
use crate::record::{Role, reader};
pub(crate) use copying::Copying;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
pub(crate) use taking::{Taken, here, letters_as_of, take};
use tidemill_log::Draft;
use tidemill_state::Changes;
use tidemill_types::{Error, FunctionId, FunctionName, Result};

/// Prefix of the entries.
const PREFIX: &str = "restore/";
/// How often it is looked for what has been kept long enough.
const LOOK: Duration = Duration::from_secs(10);

/// What is kept of a version that was left.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Point {
    /// The number under which state and positions lie.
    pub(crate) kept: u32,
    /// Partitions of the topic that its main tasks read.
    pub(crate) partitions: u32,
    /// Number of that topic.
    pub(crate) topic: u32,
    /// Numbers of the further topics that they read, in the manifest's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<u32>,
    /// When it was left, µs since 1970.
    pub(crate) taken: i64,
    /// Whether all of its state lies there.
    pub(crate) copied: bool,
    /// Numbers of state slots by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) slots: BTreeMap<String, u16>,
    /// Whether values say when they were written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stamped: bool,
    /// The dead letters there were.
    pub(crate) letters: Letters,
}

/// Dead letters as of a switch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Letters {
    /// Number of their topic.
    pub(crate) topic: u32,
    /// Where it ended, by partition.
    pub(crate) ends: Vec<u64>,
    /// What was done with them: the entries of that, by partition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) done: BTreeMap<u32, Value>,
}

/// What is kept of a function's versions, by version.
pub(crate) type Points = BTreeMap<u32, Point>;

impl Point {
    /// The topics that its main tasks read, in the manifest's order.
    pub(crate) fn topics(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.topic).chain(self.others.iter().copied())
    }

    /// The number under which it lies.
    pub(crate) fn function(&self) -> FunctionId {
        FunctionId(self.kept)
    }

    fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|wrong| Error::internal(wrong.to_string()))
    }

    fn decode(key: &str, bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|wrong| Error::corrupt(format!("registry entry {key:?}: {wrong}")))
    }
}

fn prefix_of(name: &FunctionName) -> String {
    format!("{PREFIX}{name}/")
}

fn key(name: &FunctionName, version: u32) -> String {
    format!("{PREFIX}{name}/{version:010}")
}

/// What is kept of a function's versions.
///
/// # Errors
/// `Corrupt` when an entry isn't one of this host's.
pub(crate) fn points(parts: &Parts, name: &FunctionName) -> Result<Points> {
    let prefix = prefix_of(name);
    let mut points = Points::new();
    for (key, entry) in parts.log.entries(&prefix) {
        let number = key[prefix.len()..].parse();
        let number =
            number.map_err(|_| Error::corrupt(format!("registry entry {key:?} has no number")))?;
        points.insert(number, Point::decode(&key, &entry)?);
    }
    Ok(points)
}

/// A transaction's part in what is kept.
#[derive(Default)]
pub(crate) struct Keeping {
    /// State that goes with it.
    pub(crate) cleared: Vec<Changes>,
    /// Numbers under which nothing lies from then on.
    gone: Vec<FunctionId>,
}

impl Keeping {
    /// Says that something is kept.
    ///
    /// # Errors
    /// When it can't be written down.
    pub(crate) fn add(
        draft: &mut Draft,
        name: &FunctionName,
        (version, point): (u32, &Point),
    ) -> Result<()> {
        draft.entry(&key(name, version), Some(&point.encode()?));
        Ok(())
    }

    /// Says that nothing is kept of a version any more; what lies there may have become somebody's.
    pub(crate) fn forget_entry(draft: &mut Draft, name: &FunctionName, version: u32) {
        draft.entry(&key(name, version), None);
    }

    /// Takes away what lies under a number.
    pub(crate) fn clear(&mut self, draft: &mut Draft, function: FunctionId, partitions: u32) {
        draft.forget(reader(function, Role::Main));
        self.cleared.extend(clear(function, partitions));
        self.cleared.extend(parked::cleared(function, partitions));
        self.gone.push(function);
    }

    /// Takes away what is kept of a version.
    pub(crate) fn drop_point(
        &mut self,
        draft: &mut Draft,
        name: &FunctionName,
        (version, point): (u32, &Point),
    ) {
        Self::forget_entry(draft, name, version);
        self.clear(draft, point.function(), point.partitions);
    }

    /// Takes away what is kept of other versions than some.
    ///
    /// # Errors
    /// `Corrupt` when the registry can't be read.
    pub(crate) fn drop_others(
        &mut self,
        inner: &Inner,
        draft: &mut Draft,
        name: &FunctionName,
        but: &[u32],
    ) -> Result<()> {
        for (version, point) in points(&inner.parts, name)? {
            if !but.contains(&version) {
                self.drop_point(draft, name, (version, &point));
            }
        }
        Ok(())
    }

    /// Takes away all that is kept of a function's versions.
    ///
    /// # Errors
    /// `Corrupt` when the registry can't be read.
    pub(crate) fn drop_all(
        &mut self,
        inner: &Inner,
        draft: &mut Draft,
        name: &FunctionName,
    ) -> Result<()> {
        self.drop_others(inner, draft, name, &[])
    }

    /// Once the transaction is durable: space comes back.
    pub(crate) fn done(&self, parts: &Parts) {
        for function in &self.gone {
            parts.state.forget(*function);
        }
    }
}

/// Those that go because others are kept: at most `most` stay, the newest ones, and in any case those that are kept
/// just now, whatever the clock says.
pub(crate) fn beyond(points: &Points, most: usize, now: &[u32]) -> Vec<u32> {
    let others = points.iter().filter(|(version, _)| !now.contains(version));
    let mut by_age: Vec<_> = others
        .map(|(version, point)| (point.taken, *version))
        .collect();
    by_age.sort_unstable();
    let many = by_age.len().saturating_sub(most.saturating_sub(now.len()));
    let oldest = by_age.into_iter().take(many);
    oldest.map(|(_, version)| version).collect()
}

/// Takes away what nobody can go back to: whose state was being copied when the host ended, and what has been kept
/// for long enough. Nobody else changes functions meanwhile.
///
/// # Errors
/// As a commit.
pub(crate) async fn sweep(inner: &Inner, at_start: bool) -> Result<()> {
    let parts = &inner.parts;
    let age = i64::try_from(inner.settings.restore_age.as_micros()).unwrap_or(i64::MAX);
    let until = parts.clock.now().micros().saturating_sub(age);
    for (key, entry) in parts.log.entries(PREFIX) {
        let point = Point::decode(&key, &entry)?;
        let is_broken = at_start && !point.copied;
        if !is_broken && point.taken > until {
            continue;
        }
        if is_broken {
            tracing::warn!(
                entry = key,
                "state was being kept to go back to when the host ended; it can't be gone back to"
            );
        }
        let (mut draft, mut keeping) = (Draft::new(), Keeping::default());
        draft.entry(&key, None);
        keeping.clear(&mut draft, point.function(), point.partitions);
        parts.commit_durably(draft, &keeping.cleared).await?;
        keeping.done(parts);
    }
    Ok(())
}

/// Looks from time to time for what has been kept long enough; it ends with the processor.
pub(crate) fn start(inner: &Arc<Inner>) {
    let (clock, shutdown) = (inner.parts.clock.clone(), inner.shutdown.clone());
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        shutdown
            .run_until_cancelled(async move {
                loop {
                    clock.sleep(LOOK).await;
                    if !look(&inner).await {
                        return;
                    }
                }
            })
            .await
    });
}

async fn look(inner: &Weak<Inner>) -> bool {
    let Some(inner) = inner.upgrade() else {
        return false;
    };
    let _admin = inner.admin.lock().await;
    if let Err(wrong) = sweep(&inner, false).await {
        tracing::warn!(error = %wrong, "what was kept of versions for long enough can't be taken away now");
    }
    if let Err(wrong) = leaving::sweep(&inner).await {
        tracing::warn!(error = %wrong, "where functions stood in inputs that they don't read can't be forgotten now");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn point() -> Point {
        Point {
            kept: 7,
            partitions: 2,
            topic: 3,
            others: Vec::new(),
            taken: 17,
            copied: true,
            slots: BTreeMap::from([("total".into(), 1)]),
            stamped: true,
            letters: Letters {
                topic: 5,
                ends: vec![4, 0],
                done: BTreeMap::from([(0, json!({"topic": 5, "done": [[1, 2, "r"]]}))]),
            },
        }
    }

    #[test]
    fn entries_have_golden_bytes() {
        let golden = br#"{"kept":7,"partitions":2,"topic":3,"taken":17,"copied":true,"slots":{"total":1},"stamped":true,"letters":{"topic":5,"ends":[4,0],"done":{"0":{"done":[[1,2,"r"]],"topic":5}}}}"#;
        let encoded = point().encode().expect("encodes");
        assert_eq!(
            String::from_utf8_lossy(&encoded),
            String::from_utf8_lossy(golden)
        );
        assert_eq!(Point::decode("k", golden).expect("its own"), point());
        let bare = Point {
            copied: false,
            slots: BTreeMap::new(),
            stamped: false,
            letters: Letters::default(),
            ..point()
        };
        let golden = br#"{"kept":7,"partitions":2,"topic":3,"taken":17,"copied":false,"letters":{"topic":0,"ends":[]}}"#;
        assert_eq!(bare.encode().expect("encodes"), golden);
        assert_eq!(Point::decode("k", golden).expect("its own"), bare);
        let several = Point {
            others: vec![4, 9],
            ..bare
        };
        let golden = br#"{"kept":7,"partitions":2,"topic":3,"others":[4,9],"taken":17,"copied":false,"letters":{"topic":0,"ends":[]}}"#;
        assert_eq!(several.encode().expect("encodes"), golden);
        assert_eq!(Point::decode("k", golden).expect("its own"), several);
        assert!(Point::decode("k", b"{}").is_err());
        let name = "f".parse().expect("a name");
        assert_eq!(key(&name, 12), "restore/f/0000000012");
    }

    #[test]
    fn the_newest_are_kept() {
        let at = |taken| Point { taken, ..point() };
        let points = Points::from([(1, at(9)), (2, at(5)), (3, at(9)), (4, at(8))]);
        assert_eq!(beyond(&points, 2, &[]), [2, 4]);
        assert_eq!(beyond(&points, 2, &[2]), [4, 1]);
        assert_eq!(beyond(&points, 1, &[2, 4]), [1, 3]);
        assert_eq!(beyond(&points, 9, &[1]), [0; 0]);
    }
}
