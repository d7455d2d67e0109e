//! Events of chosen keys, as packed requests that are made while they are sent: every key once in order, or
//! keys drawn alike or by Zipf's law.

use super::connection::{Connection, post};
use super::events::batch;
use super::reader::apart;
use crate::failure::{Failure, Result};
use crate::progress::pause;
use futures::future::try_join_all;
use std::fmt::Write;
use std::time::Duration;

/// Events of a request.
const BATCH: u64 = 500;
/// No request is larger, whatever its events are.
const REQUEST_BYTES: u64 = 1 << 20;
const CONNECTIONS: u64 = 4;
/// How long a connection that was refused waits.
const REFUSED: Duration = Duration::from_millis(5);
/// How uneven keys are that are drawn by Zipf's law: the usual figure of key-value benchmarks.
const SKEW: f64 = 0.99;
/// Ranks become keys this far apart, so that popular ones aren't neighbours; a prime number, and small enough that no
/// product of it and a rank is too large.
const STRIDE: u64 = 2_147_483_647;

/// Which keys come, one event each.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// 0, 1, 2, …
    Each,
    /// This one.
    Only(u64),
    /// Any below this, alike.
    Uniform(u64),
    /// By Zipf's law.
    Zipf(Zipf),
}

/// Ranks below a number, the first the most popular, as Gray and others draw them ("Quickly generating
/// billion-record synthetic databases", 1994).
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    keys: u64,
    sum: f64,
    eta: f64,
}

impl Zipf {
    #[expect(clippy::cast_precision_loss, reason = "shares of a number of keys")]
    pub(super) fn of(keys: u64) -> Self {
        let sum: f64 = (1..=keys).map(|rank| (rank as f64).powf(-SKEW)).sum();
        let two = 1.0 + 2_f64.powf(-SKEW);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - SKEW)) / (1.0 - two / sum);
        Self { keys, sum, eta }
    }

    /// The rank for a number from 0 to 1.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank from a share"
    )]
    fn rank(&self, drawn: f64) -> u64 {
        let at = drawn * self.sum;
        if at < 1.0 {
            return 0;
        }
        if at < 1.0 + 0.5_f64.powf(SKEW) {
            return 1;
        }
        let place = (self.eta * drawn - self.eta + 1.0).powf(1.0 / (1.0 - SKEW));
        ((self.keys as f64 * place) as u64).min(self.keys - 1)
    }
}

impl Keys {
    /// The key of an event: the same for the same number, whoever sends it.
    pub(super) fn key(&self, nth: u64) -> u64 {
        match self {
            Self::Each => nth,
            Self::Only(key) => *key,
            Self::Uniform(keys) => mixed(nth) % keys,
            Self::Zipf(zipf) => {
                let rank = zipf.rank(share(mixed(nth)));
                rank.wrapping_mul(STRIDE) % zipf.keys
            }
        }
    }
}

/// A number that looks drawn by lot (SplitMix64).
fn mixed(nth: u64) -> u64 {
    let mut z = nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Between 0 and 1, without 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are a float's")]
fn share(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// A key as events have it.
pub(super) fn name(key: u64) -> String {
    format!("k{key:011}")
}

/// Sends so many events, with a text of so many bytes in each value.
pub(super) async fn send(
    address: &str,
    topic: &str,
    keys: Keys,
    events: u64,
    text: usize,
) -> Result<()> {
    let (address, topic) = (address.to_owned(), topic.to_owned());
    apart(move || async move {
        let path = format!("/v1/topics/{topic}/events");
        let each =
            (0..CONNECTIONS).map(|nth| connection(&address, &path, &keys, nth, events, text));
        try_join_all(each).await.map(drop)
    })
    .await
}

/// Sends every fourth batch.
async fn connection(
    address: &str,
    path: &str,
    keys: &Keys,
    nth: u64,
    events: u64,
    text: usize,
) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    let size = BATCH.min(REQUEST_BYTES / (text as u64 + 64)).max(1);
    let mut first = nth * size;
    while first < events {
        let range = first..events.min(first + size);
        let request = post(
            path,
            super::events::Form::Packed.content_type(),
            &packed(keys, range, text),
        );
        loop {
            match connection.call(&request).await? {
                200..=299 => break,
                429 | 503 => pause(REFUSED).await,
                status => {
                    let says = String::from_utf8_lossy(connection.body()).into_owned();
                    let detail = format!("the host answers {status}: {says}");
                    return Err(Failure::failed("refused", detail));
                }
            }
        }
        first += size * CONNECTIONS;
    }
    Ok(())
}

/// Events of these numbers.
fn packed(keys: &Keys, range: std::ops::Range<u64>, text: usize) -> Vec<u8> {
    let events = range.map(|nth| {
        let mut value = format!(r#"{{"n":{nth}"#);
        if text > 0 {
            value.push_str(r#","text":""#);
            // Not the same text everywhere: what comes later would compress it away.
            let (end, mut word) = (value.len() + text, nth);
            while value.len() < end {
                word = mixed(word);
                let _ = write!(value, "{word:016x}");
            }
            value.truncate(end);
            value.push('"');
        }
        value.push('}');
        (name(keys.key(nth)), value)
    });
    batch(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_their_law() {
        let zipf = Zipf::of(1000);
        let mut seen = vec![0_u32; 1000];
        for nth in 0..200_000 {
            seen[usize::try_from(zipf.rank(share(mixed(nth)))).expect("small")] += 1;
        }
        let of = |rank: f64| 200_000.0 * rank.powf(-SKEW) / zipf.sum;
        for (at, rank, most) in [
            (0, 1.0, 0.03),
            (1, 2.0, 0.05),
            (2, 3.0, 0.25),
            (9, 10.0, 0.25),
        ] {
            let seen = f64::from(seen[at]);
            let off = (seen - of(rank)).abs() / of(rank);
            assert!(off < most, "rank {rank}: {seen} instead of {}", of(rank));
        }
        assert_eq!((zipf.rank(0.0), zipf.rank(1.0)), (0, 999));
    }

    #[test]
    fn keys_are_below_their_number_and_spread() {
        let keys = [Keys::Uniform(50), Keys::Zipf(Zipf::of(50))];
        for keys in keys {
            let seen: std::collections::BTreeSet<_> = (0..5000).map(|nth| keys.key(nth)).collect();
            assert_eq!(
                (seen.first(), seen.last(), seen.len()),
                (Some(&0), Some(&49), 50)
            );
        }
        assert_eq!(Keys::Each.key(7), 7);
    }

    #[test]
    fn values_are_json_of_the_length_that_was_asked_for() {
        let body = packed(&Keys::Each, 5..6, 40);
        let at = body
            .windows(2)
            .position(|two| two == b"{\"")
            .expect("a value");
        let value: serde_json::Value = serde_json::from_slice(&body[at..]).expect("JSON");
        assert_eq!(value["n"], 5);
        assert_eq!(value["text"].as_str().map(str::len), Some(40));
        let key = name(5);
        assert!(body.windows(key.len()).any(|some| some == key.as_bytes()));
    }
}
