//! Dead letters put back and discarded: each once, whatever happens meanwhile.

use crate::crash::{reopen, some_time};
use crate::host::{Host, conserved, counting, manifest, process};
use serde_json::json;
use tidemill_log::{Draft, Format};
use tidemill_processor::{Chosen, Done, KeepState, LetterQuery};
use tidemill_types::{PackedRows, Timestamp};

fn all() -> LetterQuery {
    LetterQuery {
        limit: 1000,
        ..LetterQuery::default()
    }
}

/// Handles nothing that is asked to trap.
fn failing() -> serde_json::Value {
    counting(json!({"retry": {"attempts": 1}}))
}

async fn places(host: &Host, query: &LetterQuery) -> Vec<(u32, u64)> {
    let page = host
        .processor
        .dead_letters("f", query)
        .await
        .expect("lists");
    page.letters.iter().map(|letter| letter.place).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_put_back_reaches_its_function_once_and_fails_again_as_what_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", failing()).await;
    host.deploy(
        "other",
        manifest(json!({"output": {"out": {"topic": "others", "format": "bytes"}}})),
    )
    .await;
    host.send(
        "in",
        1,
        &[(Some("a"), "c"), (Some("a"), "dead"), (Some("b"), "t")],
    )
    .await;
    host.send("in", 0, &[(Some("z"), "u wrong")]).await;
    host.caught_up("f").await;
    let page = host.processor.dead_letters("f", &all()).await;
    let page = page.expect("lists");
    assert_eq!((page.letters.len(), page.next), (3, None));
    assert_eq!(page.ends, [(0, 1), (1, 2)]);
    let dead = &page.letters[1];
    assert_eq!((dead.place, dead.key.as_deref()), ((1, 0), Some(&b"a"[..])));
    assert_eq!(dead.headers().collect::<Vec<_>>(), [("n", &b"1"[..])]);
    assert_eq!(
        (dead.story["reason"].as_str(), dead.story["offset"].as_str()),
        ("guest", "1")
    );
    let query = |reason: &str| LetterQuery {
        reason: Some(reason.into()),
        ..all()
    };
    assert_eq!(places(&host, &query("trap")).await, [(1, 1)]);
    assert_eq!(places(&host, &query("decode")).await, [(0, 0)]);

    // Put back, it fails again: another letter, of the same event.
    let these = Chosen::These(vec![(1, 0), (1, 0)]);
    let dealt = host.processor.redrive("f", these.clone()).await;
    assert_eq!(dealt.expect("it is put back").count, 1);
    let report = host
        .until("f", |report| report.counts.dead_lettered == 4)
        .await;
    assert!(conserved(&report), "{report:?}");
    assert_eq!((report.counts.events_in, report.counts.redriven), (5, 1));
    let again = host
        .processor
        .redrive("f", these)
        .await
        .expect("it answers");
    assert_eq!((again.count, again.already), (0, vec![(1, 0)]));
    let letter = host
        .processor
        .dead_letter("f", (1, 2))
        .await
        .expect("it is there");
    assert_eq!(
        (
            letter.story["offset"].as_str(),
            letter.story["redriven"].as_str()
        ),
        ("1", "1")
    );
    assert_eq!(letter.headers().collect::<Vec<_>>(), [("n", &b"1"[..])]);
    assert_eq!(
        (letter.time, letter.value.as_deref()),
        (dead.time, Some(&b"dead"[..]))
    );

    // What was done with letters is known after a restart, with a page behind each.
    let discarded = host
        .processor
        .discard("f", Chosen::All(query("decode")))
        .await;
    assert_eq!(discarded.expect("it is discarded").count, 1);
    host.close().await;
    let host = reopen(dir.path()).await;
    assert_eq!(places(&host, &all()).await, [(1, 1), (1, 2)]);
    let one = |from| LetterQuery {
        limit: 1,
        from,
        ..all()
    };
    let first = host
        .processor
        .dead_letters("f", &one((0, 0)))
        .await
        .expect("lists");
    assert_eq!((first.letters[0].place, first.next), ((1, 1), Some((1, 2))));
    let everything = LetterQuery { all: true, ..all() };
    let page = host
        .processor
        .dead_letters("f", &everything)
        .await
        .expect("lists");
    let done: Vec<_> = page.letters.iter().map(|letter| letter.done).collect();
    assert_eq!(
        done,
        [Some(Done::Discarded), Some(Done::Redriven), None, None]
    );
    // The other function read its input, and nothing more.
    assert_eq!(host.caught_up("other").await.counts.events_in, 4);
    let missing = host
        .processor
        .redrive("f", Chosen::These(vec![(0, 9)]))
        .await;
    assert_eq!(
        missing.expect_err("there is none").code,
        "dead-letter-not-found"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mended_version_gets_them_in_order_also_when_it_was_paused() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", failing()).await;
    // The first time they are events of a batch that asks for another try, and only one try is made.
    let values: Vec<String> = (0..1500).map(|n| format!("R {n}")).collect();
    for part in values.chunks(500) {
        let events: Vec<_> = part
            .iter()
            .map(|value| (Some("k"), value.as_str()))
            .collect();
        host.send("in", 0, &events).await;
    }
    let report = host.caught_up("f").await;
    assert_eq!(report.counts.dead_lettered, 1500);
    host.deploy(
        "f",
        counting(json!({"retry": {"attempts": 2, "backoff": "1ms..1ms"}})),
    )
    .await;
    host.processor.pause("f").await.expect("it pauses");
    let mut chosen = all();
    let mut put = 0;
    loop {
        let dealt = host
            .processor
            .redrive("f", Chosen::All(chosen.clone()))
            .await;
        let dealt = dealt.expect("they are put back");
        put += dealt.count;
        chosen.ends = Some(dealt.ends);
        match dealt.next {
            Some(next) => chosen.from = next,
            None => break,
        }
    }
    assert_eq!(put, 1500);
    let report = host.processor.describe("f").await.expect("it is there");
    assert_eq!(
        (report.counts.retrying, report.counts.redriven),
        (1500, 1500)
    );
    assert!(conserved(&report));
    host.processor.resume("f").await.expect("it resumes");
    let report = host.until("f", |report| report.counts.retrying == 0).await;
    assert!(conserved(&report), "{report:?}");
    assert_eq!(
        (report.counts.effective, report.counts.dead_lettered),
        (1500, 1500)
    );
    assert_eq!(host.values("out").await, values);
    assert_eq!(places(&host, &all()).await, []);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyed_by_a_pointer_they_go_back_to_the_task_of_their_key_and_foreign_ones_do_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 3, Format::Bytes).await;
    let keyed = |attempts: u32| {
        manifest(
            json!({"retry": {"attempts": attempts, "backoff": "1ms..1ms"},
            "input": [{"topic": "in", "start": "earliest", "key": "/0"}]}),
        )
    };
    host.deploy("f", keyed(1)).await;
    host.send("in", 2, &[(Some("own"), "t"), (Some("own"), "[\"a\"]")])
        .await;
    host.until("f", |report| report.counts.events_in == 2).await;
    let dealt = host.processor.redrive("f", Chosen::All(all())).await;
    assert_eq!(dealt.expect("it is put back").count, 1);
    host.until("f", |report| report.counts.dead_lettered == 2)
        .await;
    let letters = host.read("f.dead-letters").await;
    assert_eq!(letters[1].key.as_deref(), Some("own"));
    assert_eq!(
        (
            letters[1].headers["tidemill-partition"].as_str(),
            letters[1].headers["tidemill-offset"].as_str()
        ),
        ("2", "0")
    );
    assert!(!letters[1].headers.contains_key("tidemill-origin"));

    // Whoever may write to the topic: what is no letter is none, and what can't go back stays.
    let topic = host.log.topic("f.dead-letters").expect("there");
    let mut rows = PackedRows::default();
    let time = Timestamp::from_micros(0);
    rows.push(time, None, Some(b"{}"), []).expect("fits");
    let timer = [("tidemill-function", &b"f"[..]), ("tidemill-timer", b"t")];
    rows.push(time, Some(b"k"), Some(b"{}"), timer)
        .expect("fits");
    let mut draft = Draft::new();
    draft.append(topic.id, &rows, &[0, 0]).expect("fits");
    let ticket = host.log.commit(draft).map_err(|(error, _)| error);
    ticket.expect("commits").durable().await.expect("durable");
    let dealt = host
        .processor
        .redrive("f", Chosen::These(vec![(0, 1)]))
        .await;
    let dealt = dealt.expect("it answers");
    assert_eq!((dealt.count, dealt.refused.len()), (0, 1));
    assert!(dealt.refused[0].1.contains("timer"), "{dealt:?}");
    let none = host.processor.dead_letter("f", (0, 0)).await;
    assert_eq!(none.expect_err("no letter").code, "dead-letter-not-found");
    host.processor
        .delete("f", KeepState::Reset)
        .await
        .expect("goes");
    host.close().await;
}

#[test]
fn over_crashes_each_is_put_back_once_or_still_open() {
    let dir = tempfile::tempdir().expect("a folder");
    const LETTERS: u64 = 60;
    process(|runtime| {
        runtime.block_on(async {
            let host = Host::open(dir.path()).await;
            host.topic("in", 2, Format::Bytes).await;
            host.deploy("f", failing()).await;
            for n in 0..LETTERS {
                let value = format!("R {n}");
                let partition = u32::try_from(n % 2).expect("small");
                host.send("in", partition, &[(Some("k"), &value)]).await;
            }
            host.caught_up("f").await;
            host.deploy(
                "f",
                counting(json!({"retry": {"attempts": 3, "backoff": "1ms..2ms"}})),
            )
            .await;
        });
    });
    for round in 0..8_u64 {
        process(|runtime| {
            runtime.block_on(async {
                let host = reopen(dir.path()).await;
                let processor = host.processor.clone();
                let some = LetterQuery { limit: 7, ..all() };
                let put = tokio::spawn(async move {
                    for _ in 0..2 {
                        let _ = processor.redrive("f", Chosen::All(some.clone())).await;
                    }
                });
                some_time(&host, round % 5).await;
                if round % 3 == 0 {
                    put.await.expect("it ends");
                }
            });
        });
    }
    process(|runtime| {
        runtime.block_on(async {
            let host = reopen(dir.path()).await;
            let report = host.until("f", |report| report.counts.retrying == 0).await;
            assert!(conserved(&report), "{report:?}");
            let open = places(&host, &all()).await.len() as u64;
            assert_eq!(
                report.counts.redriven + open,
                LETTERS,
                "never both, never neither"
            );
            assert!(open < LETTERS, "something was put back");
            let mut out = host.values("out").await;
            assert_eq!(out.len() as u64, report.counts.redriven);
            out.sort_unstable();
            out.dedup();
            assert_eq!(out.len() as u64, report.counts.redriven, "each once");
            host.close().await;
        });
    });
}
