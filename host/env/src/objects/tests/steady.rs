//! Patience: what is repeated, what isn't, how often, and what is said about it.

use super::*;
use crate::metrics::Metrics;
use std::time::Duration;
use tidemill_types::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const FEW: Patience = Patience {
    request: Duration::from_secs(10),
    attempts: 4,
    pause: Duration::from_millis(100),
    most_pause: Duration::from_secs(1),
};

struct Place {
    memory: Arc<MemoryObjects>,
    objects: Objects,
    clock: Clock,
    metrics: Metrics,
}

fn place(seed: u64) -> Place {
    let memory = Arc::new(MemoryObjects::new(Random::seeded(seed)));
    let clock = Clock::manual(Timestamp::from_micros(0));
    let (random, metrics) = (Random::seeded(seed), Metrics::default());
    let objects = Objects::patient(memory.clone(), FEW, &clock, &random, &metrics);
    Place {
        memory,
        objects,
        clock,
        metrics,
    }
}

/// Lets time go by in small steps until it is done; answers how much went by.
async fn in_time<T>(clock: &Clock, work: impl Future<Output = T>) -> (T, Duration) {
    let started = clock.elapsed();
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return (done, clock.elapsed() - started),
            () = tokio::task::yield_now() => clock.advance(1000),
        }
    }
}

fn all(set: impl Fn(&mut Faults)) -> Faults {
    let mut faults = Faults::default();
    set(&mut faults);
    faults
}

#[tokio::test]
async fn what_may_pass_is_asked_again_after_growing_pauses_and_then_told() {
    let it = place(1);
    it.memory.set_faults(all(|faults| faults.errors = 100));
    let (failed, took) = in_time(&it.clock, it.objects.get("a")).await;
    assert_eq!(failed.expect_err("no answer").code, "storage-failed");
    // Pauses of 50 to 100, 100 to 200 and 200 to 400 ms.
    let (least, most) = (Duration::from_millis(350), Duration::from_millis(710));
    assert!((least..most).contains(&took), "{took:?}");
    let shown = it.metrics.render();
    for line in [
        "tidemill_object_requests_total{operation=\"get\",outcome=\"failed\"} 4",
        "tidemill_object_retries_total{operation=\"get\"} 3",
        "tidemill_object_storage_reachable 0",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    let failing = it.objects.failing().expect("it fails");
    assert_eq!(
        failing.since.micros(),
        i64::try_from(took.as_micros()).expect("short")
    );

    it.memory.set_faults(Faults::default());
    let absent = it.objects.get("a").await.expect_err("absent");
    assert_eq!(absent.kind, ErrorKind::NotFound);
    assert_eq!(it.objects.failing(), None, "that was an answer");
    assert!(
        it.metrics
            .render()
            .contains("tidemill_object_storage_reachable 1")
    );
}

#[tokio::test]
async fn a_storage_with_too_much_to_do_is_left_alone_for_longer() {
    let it = place(2);
    it.memory.set_faults(all(|faults| faults.throttled = 100));
    let (failed, took) = in_time(&it.clock, it.objects.delete("a")).await;
    assert_eq!(failed.expect_err("too many requests").code, "storage-busy");
    assert!(took >= Duration::from_millis(1100), "{took:?}");
    assert!(took <= Duration::from_millis(2210), "{took:?}");
}

#[tokio::test]
async fn a_refusal_is_not_repeated() {
    let it = place(3);
    it.memory.set_faults(all(|faults| faults.refused = 100));
    let error = it.objects.list("a/").await.expect_err("refused");
    assert_eq!(
        (error.kind, error.code),
        (ErrorKind::Unavailable, "storage-refused")
    );
    let created = it.objects.create("a", "x".into()).await;
    assert_eq!(created.expect_err("refused").code, "storage-refused");
    assert_eq!(it.clock.elapsed(), Duration::ZERO);
    let shown = it.metrics.render();
    assert!(
        shown.contains("{operation=\"list\",outcome=\"refused\"} 1"),
        "{shown}"
    );
    assert!(!shown.contains("retries_total{"), "{shown}");
}

#[tokio::test]
async fn a_request_without_an_answer_has_its_time_and_what_came_of_it_is_read_back() {
    let it = place(4);
    it.memory.set_faults(all(|faults| faults.silent = 100));
    let (failed, took) = in_time(&it.clock, it.objects.size("a")).await;
    let error = failed.expect_err("silence");
    assert!(error.detail.contains("within 10s"), "{error}");
    assert!(took >= 4 * FEW.request, "{took:?}");

    // The first put takes effect; nobody hears of it.
    let creating = in_time(&it.clock, it.objects.create("slot", "ours".into()));
    let mut creating = std::pin::pin!(creating);
    tokio::select! {
        biased;
        _ = &mut creating => panic!("silence is no answer"),
        () = async {
            while it.memory.paths().is_empty() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    it.memory.set_faults(Faults::default());
    let (created, _) = creating.await;
    assert_eq!(created.expect("found"), Created::Ours);
    let other = it.objects.create("slot", "theirs".into()).await;
    assert_eq!(other.expect("answered"), Created::Exists);
}

#[tokio::test]
async fn a_create_refused_after_an_unclear_attempt_may_still_be_ours() {
    let it = place(5);
    it.memory.set_faults(all(|faults| faults.silent = 100));
    let creating = in_time(&it.clock, it.objects.create("slot", "ours".into()));
    let mut creating = std::pin::pin!(creating);
    tokio::select! {
        biased;
        _ = &mut creating => panic!("silence is no answer"),
        () = async {
            while it.memory.paths().is_empty() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    it.memory.set_faults(all(|faults| faults.refused = 100));
    let (created, _) = creating.await;
    let error = created.expect_err("nobody knows");
    assert!(error.detail.contains("is unknown"), "{error}");
}

#[tokio::test]
async fn one_winner_whatever_goes_wrong() {
    let mut told = 0;
    for seed in 0..100 {
        let it = place(seed);
        it.memory.set_faults(Faults {
            lost_answers: 10,
            late: 10,
            errors: 10,
            slow: 50,
            throttled: 10,
            refused: 5,
            silent: 5,
        });
        let creates = join_all((0..4).map(|n| it.objects.create("slot", n.to_string().into())));
        let (answers, _) = in_time(&it.clock, creates).await;
        it.memory.set_faults(Faults::default());
        it.memory.settle();
        let stored = it.objects.get("slot").await.ok();
        for (writer, answer) in answers.iter().enumerate() {
            let ours = stored
                .as_ref()
                .is_some_and(|body| *body == writer.to_string());
            match answer {
                Ok(Created::Ours) => assert!(ours, "seed {seed}: {writer} believes to have won"),
                Ok(Created::Exists) => assert!(!ours, "seed {seed}: {writer} won and doesn't know"),
                Err(error) => assert_eq!(error.kind, ErrorKind::Unavailable),
            }
            told += usize::from(answer.is_ok());
        }
    }
    assert!(told > 300, "{told} of 400 were told");
}

/// Answers every request with one status, and counts them.
async fn server(status: &'static str) -> (String, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("address");
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 16 << 10];
            if stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (format!("http://{address}"), asked)
}

#[tokio::test]
async fn answers_of_a_real_server_are_told_apart_and_repeated_in_one_place_only() {
    for (status, code, requests) in [
        ("500 Internal Server Error", "storage-failed", 3),
        ("503 Slow Down", "storage-busy", 3),
        ("429 Too Many Requests", "storage-busy", 3),
        ("403 Forbidden", "storage-refused", 1),
        ("401 Unauthorized", "storage-refused", 1),
        ("400 Bad Request", "storage-refused", 1),
        ("404 Not Found", "object-not-found", 1),
    ] {
        let (endpoint, asked) = server(status).await;
        let options = [
            ("aws_endpoint", endpoint.as_str()),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", "a"),
            ("aws_secret_access_key", "b"),
            ("aws_allow_http", "true"),
        ];
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let patience = Patience {
            attempts: 3,
            pause: Duration::ZERO,
            ..Patience::default()
        };
        let (clock, random, metrics) = (Clock::system(), Random::seeded(1), Metrics::default());
        let opened = Objects::open_patiently(
            "s3://bucket/x",
            &options,
            patience,
            &clock,
            &random,
            &metrics,
        );
        let objects = opened.expect("opens");
        let error = objects.get("a").await.expect_err(status);
        assert_eq!(error.code, code, "{status}: {error}");
        let asked = asked.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(asked, requests, "{status}");
    }
}
