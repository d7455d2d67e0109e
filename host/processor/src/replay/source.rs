//! What a replay runs, and over which events.

use crate::deploying::take_up;
use crate::deployment::Deployment;
use crate::manifest::Manifest;
use crate::processor::Inner;
use crate::record::Record;
use crate::version::{self, Version, Versions};
use serde_json::Value;
use std::sync::Arc;
use tidemill_log::{Log, TimeOf, Topic};
use tidemill_types::{Error, ErrorKind, FunctionName, PartitionId, Result, Timestamp};

/// A place in the history of a topic, on each of its partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// The first event there is.
    Earliest,
    /// The committed end.
    Latest,
    /// This offset.
    Offset(u64),
    /// The first event of at least this event time.
    Time(Timestamp),
}

/// Events of one partition: from an offset up to another, exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) partition: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The spans between two points.
///
/// # Errors
/// As [`Log::read`].
pub(crate) async fn spans(log: &Log, topic: &Topic, from: Point, to: Point) -> Result<Vec<Span>> {
    let mut spans = Vec::new();
    for range in log.ranges(topic.id)? {
        let at = PartitionId {
            topic: topic.id,
            partition: range.partition,
        };
        let mut ends = [0; 2];
        for (end, point) in ends.iter_mut().zip([from, to]) {
            let offset = match point {
                Point::Earliest => range.start,
                Point::Latest => range.end,
                Point::Offset(offset) => offset,
                Point::Time(time) => log.offset_at(at, time, TimeOf::Event).await?,
            };
            *end = offset.clamp(range.start, range.end);
        }
        spans.push(Span {
            partition: range.partition,
            from: ends[0],
            to: ends[1].max(ends[0]),
        });
    }
    Ok(spans)
}

/// A function with its versions, as a replay found it.
pub(crate) struct Found {
    pub(crate) name: FunctionName,
    pub(crate) record: Record,
    pub(crate) versions: Versions,
}

impl Found {
    /// Looks it up.
    ///
    /// # Errors
    /// `function-not-found`.
    pub(crate) fn of(inner: &Inner, name: &str) -> Result<Self> {
        let (name, record) = inner.existing(name)?;
        let versions = version::kept(&inner.parts, &name, &record)?;
        Ok(Self {
            name,
            record,
            versions,
        })
    }

    /// A version, ready to run; the one in force if none is named.
    ///
    /// # Errors
    /// `version-not-found`; when its component or its topics are gone.
    pub(crate) async fn deployment(
        &self,
        inner: &Inner,
        number: Option<u32>,
    ) -> Result<Arc<Deployment>> {
        let number = number.unwrap_or(self.record.version);
        let version = self.version(number)?;
        let what = (number, version.digest.as_str(), &version.manifest);
        self.put_together(inner, what).await
    }

    /// A component with a manifest, as a version of the function.
    ///
    /// # Errors
    /// `replay-impossible` when it has grants; when its component or its topics are gone.
    pub(crate) async fn put_together(
        &self,
        inner: &Inner,
        (number, digest, manifest): (u32, &str, &Value),
    ) -> Result<Arc<Deployment>> {
        let resolved = Manifest::resolve(None, Some(manifest), &self.name)?;
        if !resolved.grants.is_empty() {
            let name = self.name.as_str();
            return Err(Error::new(
                ErrorKind::Conflict,
                "replay-impossible",
                format!(
                    "version {number} of {name:?} has grants, so that what it did depended on more than its events; what it was answered isn't kept, and a replay neither calls the outside nor reads secrets"
                ),
            ));
        }
        let mut record = Record {
            version: number,
            digest: digest.to_owned(),
            manifest: manifest.clone(),
            ..self.record.clone()
        };
        record.number_slots(&resolved);
        let taken = take_up(inner, &resolved, &record).await;
        taken
            .map(Arc::new)
            .map_err(|wrong| wrong.at(format!("version {number} of {:?}", self.name.as_str())))
    }

    /// What is kept of a version.
    ///
    /// # Errors
    /// `version-not-found`.
    pub(crate) fn version(&self, number: u32) -> Result<&Version> {
        self.versions.get(&number).ok_or_else(|| {
            let known: Vec<String> = self.versions.keys().map(u32::to_string).collect();
            let (name, known) = (&self.name, known.join(", "));
            Error::not_found(
                "version-not-found",
                format!("function {name:?} has no version {number}; there are {known}"),
            )
        })
    }
}
