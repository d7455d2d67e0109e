//! Every object path, built in one place.

use tidemill_types::TopicName;

/// `topics/<topic>/p=00000/<first offset>-<nonce>.parquet`
pub(crate) fn segment(topic: &TopicName, partition: u32, first: u64, nonce: &str) -> String {
    format!(
        "{}p={partition:05}/{first:020}-{nonce}.parquet",
        topic_folder(topic)
    )
}

/// All segments of topics of this name; ends with a slash.
pub(crate) fn topic_folder(topic: &TopicName) -> String {
    format!("{TOPICS}{}/", topic.as_str())
}

/// Below it lie all segments.
pub(crate) const TOPICS: &str = "topics/";

/// `manifests/<shard>/<number>`
pub(crate) fn manifest(shard: &str, number: u64) -> String {
    format!("{}{number:020}", manifest_folder(shard))
}

/// All manifests of a shard; ends with a slash.
pub(crate) fn manifest_folder(shard: &str) -> String {
    format!("manifests/{shard}/")
}
