//! Key hashing: murmur2 as Kafka's default partitioner computes it, so that keys land where Kafka
//! users expect them. Written down and never changed.

/// 32-bit murmur2 with Kafka's seed (`org.apache.kafka.common.utils.Utils.murmur2`).
pub fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the seed mixes the length modulo 2^32"
    )]
    let mut h: u32 = 0x9747_b28c ^ bytes.len() as u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^ (h >> 15)
}

/// The partition a key belongs to: the positive part of its murmur2 modulo the number of partitions.
pub fn partition_of_key(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Kafka's `UtilsTest.testMurmur2`.
    #[test]
    fn agrees_with_kafka() {
        let vectors: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
            ("", 275_646_681),
        ];
        for (text, hash) in vectors {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text:?}");
        }
    }
}
