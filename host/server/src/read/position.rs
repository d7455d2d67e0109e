//! Where a read starts.

use super::cursor::Cursor;
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::http::StatusCode;
use serde_json::json;
use tidemill_log::{Range, TimeOf, Topic};
use tidemill_types::{PartitionId, Timestamp};

/// What the query says about the start.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Start {
    Earliest,
    Latest,
    Time(Timestamp, TimeOf),
    Cursor(Cursor),
}

/// The positions to read from, checked against what there is.
pub(super) async fn start(
    app: &App,
    topic: &Topic,
    params: &Params<'_>,
    resumed: Option<Cursor>,
) -> Answer<Cursor> {
    let partition = params.parse::<u32>("partition", "write a partition's number")?;
    let start = match resumed {
        Some(cursor) => Start::Cursor(cursor),
        None => asked(params, partition)?,
    };
    let clamp = params.flag("clamp")?;
    let ranges = super::bounds(app, topic)?;
    if let Some(partition) = partition {
        range_of(&ranges, topic, partition)?;
    }
    let chosen = ranges
        .iter()
        .filter(|range| partition.is_none_or(|partition| partition == range.partition));
    match start {
        Start::Earliest => Ok(Cursor(
            chosen.map(|range| (range.partition, range.start)).collect(),
        )),
        Start::Latest => Ok(Cursor(
            chosen.map(|range| (range.partition, range.end)).collect(),
        )),
        Start::Time(time, time_of) => {
            let mut positions = Vec::new();
            for range in chosen {
                let at = PartitionId {
                    topic: topic.id,
                    partition: range.partition,
                };
                positions.push((range.partition, app.log.offset_at(at, time, time_of).await?));
            }
            Ok(Cursor(positions))
        }
        Start::Cursor(cursor) => checked(cursor, &ranges, topic, clamp),
    }
}

fn asked(params: &Params<'_>, partition: Option<u32>) -> Answer<Start> {
    let offset = params.parse::<u64>("offset", "write an offset")?;
    let cursor = params.parse_own("cursor", Cursor::read)?;
    let from = params.one_of(
        "from",
        &[("earliest", Start::EARLIEST), ("latest", Start::LATEST)],
    )?;
    let time = params.parse_own("time", str::parse::<Timestamp>)?;
    let kinds = &[("event", TimeOf::Event), ("ingest", TimeOf::Ingest)];
    let time_of = params.one_of("time_of", kinds)?;
    if time_of.is_some() && time.is_none() {
        return Err(Problem::because("invalid-request", "time_of needs time"));
    }
    let given = [
        offset.is_some(),
        cursor.is_some(),
        from.is_some(),
        time.is_some(),
    ];
    if given.into_iter().filter(|given| *given).count() > 1 {
        return Err(Problem::because(
            "invalid-request",
            "give one of offset, cursor, from and time",
        ));
    }
    match (offset, cursor, from, time) {
        (Some(offset), ..) => {
            let partition = partition
                .ok_or_else(|| Problem::because("invalid-request", "offset needs partition"))?;
            Ok(Start::Cursor(Cursor(vec![(partition, offset)])))
        }
        (_, Some(_), ..) if partition.is_some() => Err(Problem::because(
            "invalid-request",
            "a cursor names its partitions itself",
        )),
        (_, Some(cursor), ..) => Ok(Start::Cursor(cursor)),
        (_, _, Some(latest), _) => Ok(if latest {
            Start::Latest
        } else {
            Start::Earliest
        }),
        (_, _, _, Some(time)) => Ok(Start::Time(time, time_of.unwrap_or_default())),
        _ => Ok(Start::Earliest),
    }
}

impl Start {
    const EARLIEST: bool = false;
    const LATEST: bool = true;
}

fn range_of<'r>(ranges: &'r [Range], topic: &Topic, partition: u32) -> Answer<&'r Range> {
    ranges.iter().find(|range| range.partition == partition).ok_or_else(|| {
        Problem::because("partition-not-found", format!("The topic {} has {} partitions, counted from 0; there is no partition {partition}.", topic.name, ranges.len()))
    })
}

/// Refuses positions outside of what there is, or moves them inside.
fn checked(mut cursor: Cursor, ranges: &[Range], topic: &Topic, clamp: bool) -> Answer<Cursor> {
    for (partition, offset) in &mut cursor.0 {
        let range = range_of(ranges, topic, *partition)?;
        if clamp {
            *offset = (*offset).clamp(range.start, range.end.max(range.start));
        } else if !(range.start..=range.end).contains(offset) {
            return Err(out_of_range(*partition, *offset, range));
        }
    }
    Ok(cursor)
}

/// The refusal of an offset that isn't there, with those that are.
pub(crate) fn out_of_range(partition: u32, offset: u64, range: &Range) -> Box<Problem> {
    let (start, end) = (range.start, range.end);
    let detail = format!(
        "Offset {offset} of partition {partition} is not between its start {start} and its end {end}."
    );
    let problem =
        Problem::new("offset-out-of-range", detail).status(StatusCode::RANGE_NOT_SATISFIABLE);
    Box::new(
        problem
            .member("partition", partition)
            .member("start", json!(start))
            .member("end", json!(end)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::QUERY;

    fn ask(query: &str) -> Result<Start, String> {
        let params = Params::read(Some(query), QUERY).map_err(|p| p.detail)?;
        let partition = params.parse("partition", "").map_err(|p| p.detail)?;
        asked(&params, partition).map_err(|p| p.detail)
    }

    #[test]
    fn one_start_at_most() {
        assert_eq!(ask(""), Ok(Start::Earliest));
        assert_eq!(ask("from=latest"), Ok(Start::Latest));
        assert_eq!(
            ask("partition=2&offset=7"),
            Ok(Start::Cursor(Cursor(vec![(2, 7)])))
        );
        assert_eq!(
            ask("cursor=0:1,1:2"),
            Ok(Start::Cursor(Cursor(vec![(0, 1), (1, 2)])))
        );
        assert_eq!(
            ask("time=1970-01-01T00:00:00Z"),
            Ok(Start::Time(Timestamp::from_micros(0), TimeOf::Event))
        );
        assert_eq!(
            ask("time=1970-01-01T00:00:00Z&time_of=ingest"),
            Ok(Start::Time(Timestamp::from_micros(0), TimeOf::Ingest))
        );
        for (query, says) in [
            ("offset=7", "needs partition"),
            ("from=earliest&cursor=0:1", "one of"),
            ("cursor=0:1&partition=0", "itself"),
            ("from=yesterday", "earliest or latest"),
            ("time=yesterday", "RFC 3339"),
            ("time_of=ingest", "needs time"),
            ("time=1970-01-01T00:00:00Z&time_of=day", "event or ingest"),
            ("cursor=x", "partition:offset"),
            ("partition=-1", "partition=\"-1\""),
        ] {
            let refusal = ask(query).expect_err(query);
            assert!(refusal.contains(says), "{query}: {refusal}");
        }
    }
}
