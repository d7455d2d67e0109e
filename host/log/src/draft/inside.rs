//! What is in a draft, for those who run a transaction without committing it.

use super::{Advance, Draft};
use bytes::Bytes;
use std::ops::Range;
use tidemill_types::{
    Batch, CommitSeq, Commits, IngestTimes, Offsets, PartitionId, ROW_HEAD_BYTES, Timestamp,
    TopicId,
};

impl Draft {
    /// Steps of readers, in the order they were added.
    pub fn advances(&self) -> &[Advance] {
        &self.facts.advances
    }

    /// Rows that are appended, by the order of appends and then by partition; they share the draft's memory.
    /// They have no place yet: offsets count from 0 in each batch, ingest time and commit are 0.
    pub fn into_appended(self) -> Vec<(PartitionId, Batch)> {
        let body = Bytes::from(self.body);
        let part = |range: Range<usize>| (range.end <= body.len()).then(|| body.slice(range));
        let slices = self.facts.slices.iter();
        let batch = slices.filter_map(|slice| {
            let section = self.sections.get(slice.section as usize)?;
            let payload = section.at as usize..(section.at + section.payload) as usize;
            let first = payload.end + slice.first_row as usize * ROW_HEAD_BYTES;
            let heads = first..first + slice.rows as usize * ROW_HEAD_BYTES;
            let batch = Batch::new(
                part(heads)?,
                part(payload)?,
                Offsets::From(0),
                IngestTimes::Same(Timestamp::from_micros(0)),
                Commits::Same(CommitSeq(0)),
            );
            let at = PartitionId {
                topic: TopicId(slice.topic),
                partition: slice.partition,
            };
            Some((at, batch))
        });
        batch.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::PackedRows;

    #[test]
    fn what_is_appended_is_shown_by_partition() {
        let mut draft = Draft::new();
        for (topic, count) in [(1, 3), (2, 1)] {
            let mut rows = PackedRows::default();
            for n in 0..count {
                let value = format!("{topic}.{n}");
                let time = Timestamp::from_micros(n);
                rows.push(time, Some(b"k"), Some(value.as_bytes()), [])
                    .expect("it fits");
            }
            let partitions: Vec<u32> = (0..rows.len()).map(|n| u32::from(n == 1)).collect();
            draft
                .append(TopicId(topic), &rows, &partitions)
                .expect("it fits");
        }
        let shown: Vec<_> = draft
            .into_appended()
            .iter()
            .map(|(at, batch)| {
                let values: Vec<_> = batch
                    .iter()
                    .map(|event| {
                        String::from_utf8_lossy(event.row.value.unwrap_or_default()).into_owned()
                    })
                    .collect();
                (at.topic.0, at.partition, values.join(" "))
            })
            .collect();
        let expected = [(1, 0, "1.0 1.2"), (1, 1, "1.1"), (2, 0, "2.0")];
        assert_eq!(shown, expected.map(|(t, p, v)| (t, p, v.to_owned())));
    }
}
