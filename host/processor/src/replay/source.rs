//! What a replay runs, and over which events.

use crate::deploying::take_up;
use crate::deployment::Deployment;
use crate::manifest::Manifest;
use crate::merge::Positions;
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

/// Events of the partitions of one number of a function's inputs: from offsets up to others, exclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) partition: u32,
    pub(crate) from: Positions,
    pub(crate) to: Positions,
}

impl Span {
    /// How many offsets it covers.
    pub(crate) fn len(&self) -> u64 {
        let both = self.from.iter().zip(self.to.iter());
        both.map(|(from, to)| to.saturating_sub(from)).sum()
    }
}

/// The spans between two points.
///
/// # Errors
/// As [`Log::read`]; `invalid-replay` for an offset where there are several inputs.
pub(crate) async fn spans(
    log: &Log,
    deployment: &Deployment,
    from: Point,
    to: Point,
) -> Result<Vec<Span>> {
    let several = deployment.inputs.len() > 1;
    if several
        && [from, to]
            .iter()
            .any(|point| matches!(point, Point::Offset(_)))
    {
        return Err(Error::invalid(
            "invalid-replay",
            "the function reads several topics, so that an offset says no place; say earliest, latest or a time",
        ));
    }
    let mut ends = vec![(Vec::new(), Vec::new()); deployment.partitions() as usize];
    for input in &deployment.inputs {
        let spans = between(log, input.read(), from, to).await?;
        for (both, (from, to)) in ends.iter_mut().zip(spans) {
            both.0.push(from);
            both.1.push(to);
        }
    }
    let spans = (0..).zip(ends).map(|(partition, (from, to))| Span {
        partition,
        from: Positions::of(from),
        to: Positions::of(to),
    });
    Ok(spans.collect())
}

/// Offsets between two points of a topic, by partition.
async fn between(log: &Log, topic: &Topic, from: Point, to: Point) -> Result<Vec<(u64, u64)>> {
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
        spans.push((ends[0], ends[1].max(ends[0])));
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
