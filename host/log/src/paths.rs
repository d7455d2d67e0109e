//! Every object path, built in one place.

use tidemill_types::TopicName;

/// `topics/<topic>/p=00000/<first offset>-<nonce>.parquet`; see [`with_checksum`].
pub(crate) fn segment(topic: &TopicName, partition: u32, first: u64, nonce: &str) -> String {
    format!(
        "{}p={partition:05}/{first:020}-{nonce}.parquet",
        topic_folder(topic)
    )
}

/// Digits of a nonce, and of a checksum behind it.
const NONCE: usize = 16;
const CHECKSUM: usize = 8;

/// A segment's path with the crc32c of the object behind its nonce, in hexadecimal digits.
pub(crate) fn with_checksum(path: &str, checksum: u32) -> String {
    let without = path.strip_suffix(".parquet").unwrap_or(path);
    format!("{without}{checksum:08x}.parquet")
}

/// The crc32c that the path of a segment tells; `None` if it tells none.
pub(crate) fn checksum(path: &str) -> Option<u32> {
    let nonce = path.strip_suffix(".parquet")?.rsplit_once('-')?.1;
    let told = nonce.get(NONCE..).filter(|told| told.len() == CHECKSUM)?;
    u32::from_str_radix(told, 16).ok()
}

/// All segments of topics of this name; ends with a slash.
pub(crate) fn topic_folder(topic: &TopicName) -> String {
    format!("{TOPICS}{}/", topic.as_str())
}

/// Below it lie all segments.
pub(crate) const TOPICS: &str = "topics/";

/// `marks/<shard>/<commit>-<nonce>`
pub(crate) fn marks(shard: &str, commit: u64, nonce: &str) -> String {
    format!("{}{commit:020}-{nonce}", marks_folder(shard))
}

/// All marks of a shard; ends with a slash.
pub(crate) fn marks_folder(shard: &str) -> String {
    format!("marks/{shard}/")
}

/// `manifests/<shard>/<number>`
pub(crate) fn manifest(shard: &str, number: u64) -> String {
    format!("{}{number:020}", manifest_folder(shard))
}

/// All manifests of a shard; ends with a slash.
pub(crate) fn manifest_folder(shard: &str) -> String {
    format!("manifests/{shard}/")
}

/// The number in a manifest's path; `None` for anything else.
pub(crate) fn manifest_number(path: &str) -> Option<u64> {
    digits(path.rsplit('/').next()?, 20)
}

/// Topic name and partition of a segment's path; `None` for anything else.
pub(crate) fn parse_segment(path: &str) -> Option<(&str, u32)> {
    let (topic, rest) = path.strip_prefix(TOPICS)?.split_once('/')?;
    let (partition, file) = rest.strip_prefix("p=")?.split_once('/')?;
    let (first, nonce) = file.strip_suffix(".parquet")?.split_once('-')?;
    digits(first, 20)?;
    let hexadecimal = nonce.bytes().all(|b| b.is_ascii_hexdigit());
    if nonce.is_empty() || !hexadecimal || partition.len() < 5 {
        return None;
    }
    Some((topic, digits(partition, partition.len())?.try_into().ok()?))
}

fn digits(text: &str, count: usize) -> Option<u64> {
    let all_digits = text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_built_and_recognised() {
        let topic: TopicName = "flights".parse().expect("name");
        let path = segment(&topic, 7, 42, "00ff");
        assert_eq!(
            path,
            "topics/flights/p=00007/00000000000000000042-00ff.parquet"
        );
        assert_eq!(parse_segment(&path), Some(("flights", 7)));
        let path = segment(&topic, 7, 42, "00000000000000ff");
        assert_eq!(checksum(&path), None);
        let path = with_checksum(&path, 0x00ab_cdef);
        assert_eq!(
            path,
            "topics/flights/p=00007/00000000000000000042-00000000000000ff00abcdef.parquet"
        );
        assert_eq!(parse_segment(&path), Some(("flights", 7)));
        assert_eq!(checksum(&path), Some(0x00ab_cdef));
        assert_eq!(manifest("0", 9), "manifests/0/00000000000000000009");
        assert_eq!(manifest_number(&manifest("0", u64::MAX)), Some(u64::MAX));
        for other in [
            "topics/flights/p=00007/42-00ff.parquet",
            "topics/flights/p=00007/00000000000000000042-.parquet",
            "topics/flights/p=00007/00000000000000000042-notes.parquet",
            "topics/flights/p=7/00000000000000000042-00ff.parquet",
            "topics/flights/extra/p=00007/00000000000000000042-00ff.parquet",
            "topics/flights/README",
            "manifests/0/1",
        ] {
            assert_eq!(
                (parse_segment(other), manifest_number(other)),
                (None, None),
                "{other}"
            );
        }
    }
}
