//! Sends batches: paced, a bounded number at once, tried again until their outcome is known. Each
//! request in flight is the next one of a producer of its own, so that the host appends it once however
//! often it has to be sent.

use super::Order;
use super::input::Batch;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::print::count;
use crate::progress::{Stopwatch, pause};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use indicatif::ProgressBar;
use reqwest::Method;
use std::hash::BuildHasher;
use std::time::Duration;
use tokio::sync::mpsc;

/// Attempts at one batch, the first included: about half a minute in all.
const ATTEMPTS: u32 = 12;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What has been acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
    pub(crate) retries: u64,
}

/// A producer: whoever sends its requests one after the other.
#[derive(Debug)]
struct Lane {
    id: String,
    /// Number of its next request.
    next: u64,
}

pub(crate) struct Sender<'a> {
    client: &'a Client,
    order: &'a Order,
    /// Those with no request in flight.
    lanes: Vec<Lane>,
    bar: ProgressBar,
    watch: Stopwatch,
    /// Events handed to the network, for pacing.
    started: u64,
    written: Written,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(client: &'a Client, order: &'a Order, bar: ProgressBar) -> Self {
        let run = name_of_run();
        let lane = |nth| Lane {
            id: format!("tidemill-{run}-{nth}"),
            next: 0,
        };
        Self {
            client,
            order,
            lanes: (0..order.in_flight.max(1)).map(lane).collect(),
            bar,
            watch: Stopwatch::start(),
            started: 0,
            written: Written::default(),
        }
    }

    /// Sends everything; the first failure ends it, after the requests in flight.
    pub(crate) async fn run(mut self, mut batches: mpsc::Receiver<Batch>) -> Result<Written> {
        let (client, order) = (self.client, self.order);
        let mut flying = FuturesUnordered::new();
        let mut held: Option<Batch> = None;
        let mut failed = None;
        let mut open = true;
        while (open && failed.is_none()) || !flying.is_empty() {
            let free = open && failed.is_none() && !self.lanes.is_empty();
            tokio::select! {
                Some((lane, done)) = flying.next(), if !flying.is_empty() => {
                    self.lanes.push(lane);
                    if let Err(failure) = self.note(done) {
                        failed.get_or_insert(failure);
                    }
                }
                batch = next(&mut held, &mut batches), if free => match batch {
                    Some(batch) => {
                        self.pace().await;
                        self.started += batch.places.len() as u64;
                        if let Some(mut lane) = self.lanes.pop() {
                            flying.push(async move {
                                let done = send(client, order, &mut lane, batch).await;
                                (lane, done)
                            });
                        }
                    }
                    None => open = false,
                },
            }
        }
        match failed {
            None => Ok(self.written),
            Some(failure) if self.written.events == 0 => Err(failure),
            Some(failure) => Err(failure.at(format!(
                "after {} events were written",
                count(self.written.events)
            ))),
        }
    }

    fn note(&mut self, done: Result<Written>) -> Result<()> {
        let done = done?;
        self.written.events += done.events;
        self.written.bytes += done.bytes;
        self.written.requests += 1;
        self.written.retries += done.retries;
        let rate = self.watch.rate(self.written.events);
        self.bar.set_message(format!(
            "{} events, {rate:.0}/s",
            count(self.written.events)
        ));
        Ok(())
    }

    /// Waits until the next batch may start.
    async fn pace(&self) {
        if let Some(rate) = self.order.rate {
            let due = Duration::from_micros(self.started.saturating_mul(1_000_000) / rate.max(1));
            let early = due.saturating_sub(self.watch.elapsed());
            if !early.is_zero() {
                pause(early).await;
            }
        }
    }
}

/// The next batch, with what has gathered behind it meanwhile. Nothing is lost if it is not awaited
/// to its end.
async fn next(held: &mut Option<Batch>, batches: &mut mpsc::Receiver<Batch>) -> Option<Batch> {
    let mut batch = match held.take() {
        Some(batch) => batch,
        None => batches.recv().await?,
    };
    while let Ok(more) = batches.try_recv() {
        if !batch.fits(&more, super::BATCH_EVENTS) {
            *held = Some(more);
            break;
        }
        batch.append(more);
    }
    Some(batch)
}

/// Sends one batch until it is acknowledged or there is a reason to stop.
async fn send(client: &Client, order: &Order, lane: &mut Lane, batch: Batch) -> Result<Written> {
    let query: Vec<(&str, &str)> = [("key", &order.key), ("key_pointer", &order.key_pointer)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect();
    let body = Bytes::from(batch.body);
    let mut retries = 0;
    loop {
        let request = client
            .request(
                Method::POST,
                &["v1", "topics", &order.topic, "events"],
                &query,
            )
            .header("content-type", "application/x-ndjson")
            .header("producer-id", &lane.id)
            .header("producer-epoch", 0)
            .header("producer-seq", lane.next)
            .body(body.clone());
        let answered = async {
            let answer = client.send(request).await?;
            client.body(answer).await
        };
        match answered.await {
            Ok(_) => {
                lane.next += 1;
                return Ok(Written {
                    events: batch.places.len() as u64,
                    bytes: body.len() as u64,
                    requests: 1,
                    retries,
                });
            }
            Err(failure) => match again(&failure, retries) {
                Some(wait) => pause(wait).await,
                None => return Err(located(failure, &batch.places)),
            },
        }
        retries += 1;
    }
}

/// How long to wait before trying again; nothing if that is no use.
fn again(failure: &Failure, retries: u64) -> Option<Duration> {
    let passing = match &failure.problem {
        Some(problem) => matches!(problem.status, 429 | 502 | 503 | 504),
        None => failure.exit == Exit::Unreachable,
    };
    if !passing || retries + 1 >= ATTEMPTS.into() {
        return None;
    }
    let doubled = FIRST_PAUSE.saturating_mul(1 << u32::try_from(retries).unwrap_or(16).min(16));
    let asked = failure
        .problem
        .as_ref()
        .and_then(|problem| problem.retry_after)
        .map(Duration::from_secs);
    Some(asked.unwrap_or(doubled).min(LONGEST_PAUSE))
}

/// A name that no other run has.
#[expect(
    clippy::disallowed_methods,
    reason = "two runs must not be taken for one; nothing else depends on it"
)]
fn name_of_run() -> String {
    let random = std::hash::RandomState::new();
    format!("{:016x}", random.hash_one(std::process::id()))
}

/// Says where in the file it happened.
fn located(failure: Failure, places: &[u64]) -> Failure {
    let range = match (places.first(), places.last()) {
        (Some(first), Some(last)) if first != last => format!("events {first} to {last}"),
        (Some(only), _) => format!("event {only}"),
        _ => return failure,
    };
    let Some(problem) = failure.problem.as_deref() else {
        return failure.at(range);
    };
    let Some(wrong) = problem.errors.first() else {
        return failure.at(range);
    };
    let place = usize::try_from(wrong.index)
        .ok()
        .and_then(|index| places.get(index))
        .copied();
    let place = place.map_or(range, |place| format!("event {place}"));
    let pointer = wrong
        .pointer
        .as_deref()
        .filter(|pointer| !pointer.is_empty());
    let message = match pointer {
        Some(pointer) => format!("{place}: {} at {pointer}", wrong.reason),
        None => format!("{place}: {}", wrong.reason),
    };
    let more = problem.errors.len() - 1;
    Failure { message: if more > 0 { format!("{message}, and {more} more") } else { message }, ..failure }
        .hint("nothing of this request was written; events count as lines, or as elements of a JSON document")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Problem, WrongEvent};
    use crate::stub;

    fn refused(status: u16, no_side_effects: bool) -> Failure {
        Failure::refused(Problem {
            status,
            no_side_effects,
            ..Problem::default()
        })
    }

    #[test]
    fn what_may_pass_is_tried_again_whether_it_was_written_or_not() {
        assert!(again(&refused(429, true), 0).is_some());
        assert!(again(&refused(503, true), 0).is_some());
        assert!(
            again(&refused(503, false), 0).is_some(),
            "the host writes it once"
        );
        assert!(
            again(&refused(422, true), 0).is_none(),
            "it would be refused again"
        );
        assert!(again(&refused(507, true), 0).is_none());
        assert!(again(&Failure::unreachable("h", "refused"), 0).is_some());
        let lost = Failure {
            exit: Exit::Unreachable,
            ..Failure::failed("connection-lost", "broke")
        };
        assert!(again(&lost, 0).is_some(), "the host knows its outcome");
    }

    #[test]
    fn attempts_and_pauses_are_bounded() {
        let failure = refused(503, true);
        assert!(again(&failure, u64::from(ATTEMPTS) - 1).is_none());
        let pauses: Vec<Duration> = (0..u64::from(ATTEMPTS) - 1)
            .filter_map(|retries| again(&failure, retries))
            .collect();
        assert_eq!(pauses[..3], [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
        let asked = Failure::refused(Problem {
            retry_after: Some(2),
            ..*failure.problem.expect("problem")
        });
        assert_eq!(again(&asked, 0), Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_wrong_event_is_named_by_its_place_in_the_file() {
        let wrong = WrongEvent {
            index: 1,
            pointer: Some("/time".into()),
            reason: "not a time".into(),
        };
        let problem = Problem {
            status: 422,
            errors: vec![wrong],
            ..Problem::default()
        };
        let failure = located(Failure::refused(problem), &[10, 12, 13]);
        assert_eq!(failure.message, "event 12: not a time at /time");
        assert_eq!(
            located(refused(500, false), &[3, 4])
                .message
                .split(':')
                .next(),
            Some("events 3 to 4")
        );
    }

    #[tokio::test]
    async fn small_batches_gather_and_none_is_lost() {
        let batch = |place: u64| Batch {
            body: format!("{place}\n").into_bytes(),
            places: vec![place],
        };
        let (give, mut take) = mpsc::channel(8);
        for place in 0..3 {
            give.send(batch(place)).await.expect("room");
        }
        give.send(Batch {
            body: vec![b' '; 300 << 10],
            places: vec![3],
        })
        .await
        .expect("room");
        drop(give);
        let mut held = None;
        assert_eq!(
            next(&mut held, &mut take).await.expect("batch").places,
            [0, 1, 2]
        );
        assert_eq!(next(&mut held, &mut take).await.expect("batch").places, [3]);
        assert!(next(&mut held, &mut take).await.is_none());
    }

    /// Sends one batch to a host that gives these answers; also the requests that it got.
    async fn sent(answers: Vec<String>) -> (Result<Written>, Vec<String>) {
        let (address, requests) = stub::host(answers).await;
        let client = Client::new(&address).expect("client");
        let order = Order {
            topic: "t".into(),
            key_pointer: Some("/k".into()),
            in_flight: 1,
            ..Order::default()
        };
        let (give, take) = mpsc::channel(1);
        let batch = Batch {
            body: b"{\"k\":1}\n{\"k\":2}\n".to_vec(),
            places: vec![1, 2],
        };
        give.send(batch).await.expect("room");
        drop(give);
        let written = Sender::new(&client, &order, ProgressBar::hidden())
            .run(take)
            .await;
        (written, requests.await.expect("requests"))
    }

    #[tokio::test]
    async fn a_busy_host_is_asked_again_with_the_same_events() {
        let busy = r#"{"status": 503, "code": "busy", "no_side_effects": true}"#;
        let (written, requests) = sent(vec![
            stub::answer("503 Busy", "", busy),
            stub::answer("200 OK", "", r#"{"count": 2}"#),
        ])
        .await;
        let written = written.expect("written");
        assert_eq!(
            (written.events, written.requests, written.retries),
            (2, 1, 1)
        );
        assert!(
            requests[0].starts_with("POST /v1/topics/t/events?key_pointer=%2Fk HTTP/1.1\r\n"),
            "{}",
            requests[0]
        );
        assert_eq!(requests[0], requests[1]);
    }

    #[tokio::test]
    async fn an_unclear_outcome_is_asked_for_with_the_same_number() {
        let unclear = r#"{"status": 503, "code": "unavailable", "no_side_effects": false}"#;
        let cut = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 10\r\n\r\n{".to_owned();
        let (written, requests) = sent(vec![
            stub::answer("503 Unavailable", "", unclear),
            cut,
            stub::answer("204 No Content", "", ""),
        ])
        .await;
        let written = written.expect("written");
        assert_eq!((written.events, written.retries), (2, 2));
        let number = |request: &String| request.contains("\r\nproducer-seq: 0\r\n");
        assert!(requests.iter().all(number), "{}", requests[0]);
        assert!(requests.iter().all(|request| *request == requests[0]));
    }

    #[tokio::test]
    async fn requests_are_counted_one_after_the_other() {
        let answers = vec![stub::answer("200 OK", "", r#"{"count": 500}"#); 3];
        let (address, requests) = stub::host(answers).await;
        let client = Client::new(&address).expect("client");
        let order = Order {
            topic: "t".into(),
            in_flight: 1,
            ..Order::default()
        };
        let (give, take) = mpsc::channel(3);
        for first in [0, 500, 1000] {
            let places: Vec<u64> = (first..first + 500).collect();
            let body = b"1\n".repeat(500);
            give.send(Batch { body, places }).await.expect("room");
        }
        drop(give);
        let written = Sender::new(&client, &order, ProgressBar::hidden()).run(take);
        assert_eq!(written.await.expect("written").requests, 3);
        let header = |request: &str, name: &str| {
            let value = request.lines().find_map(|line| line.strip_prefix(name));
            value.expect("the header").to_owned()
        };
        let requests = requests.await.expect("requests");
        let numbers: Vec<String> = requests
            .iter()
            .map(|r| header(r, "producer-seq: "))
            .collect();
        assert_eq!(numbers, ["0", "1", "2"]);
        let ids = requests.iter().map(|r| header(r, "producer-id: "));
        assert_eq!(ids.collect::<std::collections::BTreeSet<_>>().len(), 1);
    }
}
