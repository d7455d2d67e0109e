//! Figures about a topic: how much is where, what comes in, how well it is compressed.

use crate::app::{App, Shared};
use crate::body::json_answer;
use crate::problem::Answer;
use crate::query::Params;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use tidemill_log::{PartitionStats, Rate, ReadLimit};
use tidemill_types::{ErrorKind, PartitionId, Result, TopicId};

const ONE: ReadLimit = ReadLimit {
    events: 1,
    bytes: 1,
};

/// Figures about a topic.
pub(crate) async fn stats(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let topic = app.topic(&name)?;
    let partitions = app.log.partition_stats(topic.id)?;
    let mut shown = Vec::with_capacity(partitions.len());
    for stats in &partitions {
        let at = PartitionId {
            topic: topic.id,
            partition: stats.range.partition,
        };
        let (start, end) = (stats.range.start, stats.range.end);
        let mut partition = figures(stats);
        partition["partition"] = at.partition.into();
        partition["start"] = start.into();
        partition["end"] = end.into();
        partition["archived_end"] = stats.range.archived_end.into();
        partition["earliest"] = known(event(&app, at, start).await)?;
        partition["latest"] = match end > start {
            true => known(event(&app, at, end - 1).await)?,
            false => Value::Null,
        };
        shown.push(partition);
    }
    let mut answer = figures(&sum(&partitions));
    answer["topic"] = topic.name.as_str().into();
    answer["compression"] = known(compression(&app, topic.id).await)?;
    answer["partitions"] = shown.into();
    Ok(json_answer(StatusCode::OK, &answer))
}

fn figures(stats: &PartitionStats) -> Value {
    json!({
        "offsets": stats.range.end - stats.range.start,
        "hot": {"journal_bytes": stats.journal_bytes, "memory_bytes": stats.memory_bytes},
        "cold": {"segments": stats.segments, "events": stats.segment_events, "bytes": stats.segment_bytes},
        "rates": {"events_per_second": rounded(stats.rate.events), "bytes_per_second": rounded(stats.rate.bytes)},
    })
}

fn sum(partitions: &[PartitionStats]) -> PartitionStats {
    let mut all = PartitionStats::default();
    for one in partitions {
        all.range.end += one.range.end - one.range.start;
        all.segments += one.segments;
        all.segment_events += one.segment_events;
        all.segment_bytes += one.segment_bytes;
        all.journal_bytes += one.journal_bytes;
        all.memory_bytes += one.memory_bytes;
        all.rate = Rate {
            events: all.rate.events + one.rate.events,
            bytes: all.rate.bytes + one.rate.bytes,
        };
    }
    all
}

/// Two decimals say enough.
fn rounded(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

/// Offset and times of the first event from an offset on.
async fn event(app: &App, at: PartitionId, offset: u64) -> Result<Value> {
    let read = app.log.read(at, offset, ONE).await?;
    let mut events = read.batches.iter().flat_map(|batch| batch.iter());
    Ok(events.next().map_or(Value::Null, |event| {
        json!({"offset": event.offset, "time": event.row.time.to_string(),
               "ingest_time": event.ingest_time.to_string()})
    }))
}

async fn compression(app: &App, topic: TopicId) -> Result<Value> {
    let seen = app.log.compression(topic).await?;
    if seen.stored == 0 {
        return Ok(Value::Null);
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a ratio for people, of sizes far below 2^53"
    )]
    let ratio = seen.unpacked as f64 / seen.stored as f64;
    Ok(json!({"ratio": rounded(ratio), "of_segments": seen.segments}))
}

/// What can't be read now is `null`: the other figures are worth having all the same.
fn known(value: Result<Value>) -> Result<Value> {
    match value {
        Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::OutOfRange) => {
            Ok(Value::Null)
        }
        value => value,
    }
}
