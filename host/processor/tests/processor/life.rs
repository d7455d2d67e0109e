//! Deploying, pausing, resuming, replacing and deleting.

use crate::host::{Host, counting, manifest, scripted};
use serde_json::{Value, json};
use tidemill_log::Format;
use tidemill_processor::{Deploy, FunctionReport, FunctionStatus, KeepState, Start};
use tidemill_types::Timestamp;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_function_stands_still_and_goes_on_where_it_stood() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", manifest(json!({}))).await;
    host.send("in", 0, &[(None, "e1")]).await;
    host.caught_up("f").await;
    let paused = host.processor.pause("f").await.expect("it pauses");
    assert_eq!(paused.status, FunctionStatus::Paused);
    host.send("in", 0, &[(None, "e2")]).await;
    host.close().await;

    let host = Host::open(dir.path()).await;
    let report = host.processor.describe("f").await.expect("it is there");
    assert_eq!(
        (report.status, report.tasks[0].lag),
        (FunctionStatus::Paused, 1)
    );
    let resumed = host.processor.resume("f").await.expect("it resumes");
    assert_eq!(resumed.status, FunctionStatus::Running);
    host.caught_up("f").await;
    assert_eq!(host.values("out").await, ["e1", "e2"]);
    let unknown = host.processor.pause("g").await.expect_err("there is no g");
    assert_eq!(unknown.code, "function-not-found");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_follow_each_other_and_the_same_again_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let first = host.deploy("f", counting(json!({}))).await;
    assert!(
        first.changed && first.digest.starts_with("sha256:"),
        "{first:?}"
    );
    assert_eq!((first.version, first.bytes), (1, scripted().len()));
    host.send("in", 0, &[(Some("k"), "2"), (Some("k"), "2")])
        .await;
    host.caught_up("f").await;
    let same = host.deploy("f", counting(json!({}))).await;
    assert_eq!((same.version, same.changed), (1, false));

    let second = host
        .deploy("f", counting(json!({"config": {"a": 1}})))
        .await;
    assert_eq!((second.version, second.changed), (2, true));
    host.send("in", 0, &[(Some("k"), "2"), (Some("k"), "dead")])
        .await;
    host.caught_up("f").await;
    assert_eq!(host.count("f", "k").await, Some(3), "state stays");
    assert_eq!(
        host.read("f.dead-letters").await[0].headers["tidemill-version"],
        "2"
    );

    let third = host
        .try_deploy("f", counting(json!({})), KeepState::Reset)
        .await
        .expect("deploys");
    assert_eq!(third.version, 3);
    assert_eq!(host.count("f", "k").await, None, "state is reset");
    host.send("in", 0, &[(Some("k"), "2")]).await;
    let report = host.caught_up("f").await;
    assert_eq!(host.count("f", "k").await, Some(1));
    assert_eq!(report.counts.events_in, 5, "counts are over all versions");
    host.close().await;
    let host = Host::open(dir.path()).await;
    assert_eq!(
        host.count("f", "k").await,
        Some(1),
        "and stays reset over a restart"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_where_it_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.send("in", 0, &[(None, "e1"), (None, "e2"), (None, "e3")])
        .await;
    let out = |topic: &str| json!({"output": {"out": {"topic": topic, "format": "bytes"}}});
    let starts = [
        ("all", Start::Earliest, vec!["e1", "e2", "e3", "e4"]),
        ("new", Start::Latest, vec!["e4"]),
        (
            "since",
            Start::At(Timestamp::from_micros(1_000_001)),
            vec!["e2", "e3", "e4"],
        ),
    ];
    for (name, start, _) in &starts {
        let deploy = Deploy {
            name: name.parse().expect("a name"),
            component: scripted().into(),
            manifest: Some(manifest(out(name))),
            start: Some(*start),
            state: KeepState::Keep,
            dry_run: false,
        };
        host.processor.deploy(deploy).await.expect("it deploys");
    }
    host.send("in", 0, &[(None, "e4")]).await;
    for (name, _, expected) in &starts {
        host.caught_up(name).await;
        assert_eq!(&host.values(name).await, expected, "{name}");
    }
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_deployment_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy(
        "first",
        manifest(json!({"output": {"out": {"topic": "middle"}}})),
    )
    .await;
    let topics = || {
        host.log
            .topics()
            .iter()
            .map(|topic| topic.name.to_string())
            .collect::<Vec<_>>()
    };
    let before = (
        topics(),
        host.objects.list("functions/").await.expect("lists"),
    );
    let input = |topic: &str| json!({"input": [{"topic": topic}]});
    let cases: [(Value, &str, &str); 6] = [
        (
            manifest(input("inn")),
            "unknown-topic",
            "Did you mean \"in\"?",
        ),
        (
            manifest(json!({"output": {"out": {"topic": "in"}}})),
            "cycle",
            "in → bad → in",
        ),
        (
            manifest(json!({"input": [{"topic": "middle"}], "output": {"out": {"topic": "in"}}})),
            "cycle",
            "middle → bad → in → first → middle",
        ),
        (
            manifest(input("bad.dead-letters")),
            "unknown-topic",
            "bad.dead-letters",
        ),
        (
            manifest(json!({"output": {"out": {"topic": "bad.dead-letters"}}})),
            "invalid-manifest",
            "own",
        ),
        (
            manifest(json!({"batch": {"evens": 1}})),
            "invalid-manifest",
            "\"events\"",
        ),
    ];
    for (manifest, code, words) in cases {
        let refused = host
            .try_deploy("bad", manifest, KeepState::Keep)
            .await
            .expect_err(words);
        assert_eq!(refused.code, code, "{refused}");
        assert!(refused.detail.contains(words), "{refused}");
    }
    let deploy = |component: &[u8], dry_run| Deploy {
        name: "bad".parse().expect("a name"),
        component: component.to_vec().into(),
        manifest: Some(manifest(json!({}))),
        start: None,
        state: KeepState::Keep,
        dry_run,
    };
    let refused = host
        .processor
        .deploy(deploy(b"\x89PNG", false))
        .await
        .expect_err("no component");
    assert_eq!(refused.code, "invalid-component");
    let dry = host
        .processor
        .deploy(deploy(&scripted(), true))
        .await
        .expect("it would deploy");
    assert_eq!((dry.version, dry.changed), (1, true));
    assert_eq!(
        (
            topics(),
            host.objects.list("functions/").await.expect("lists")
        ),
        before
    );
    let names: Vec<_> = host
        .processor
        .list()
        .await
        .expect("lists")
        .into_iter()
        .map(|report| report.name)
        .collect();
    assert_eq!(names.len(), 1);
    assert_eq!(host.processor.users_of("middle"), names);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_functions_come_back_with_or_without_their_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &[(Some("k"), "2")]).await;
    host.caught_up("f").await;
    host.processor
        .delete("f", KeepState::Keep)
        .await
        .expect("it is deleted");
    assert!(host.processor.names().is_empty());
    assert!(host.processor.users_of("in").is_empty());
    host.send("in", 0, &[(Some("k"), "2")]).await;
    host.close().await;

    let host = Host::open(dir.path()).await;
    assert_eq!(
        host.processor
            .describe("f")
            .await
            .expect_err("deleted")
            .code,
        "function-not-found"
    );
    let back = host.deploy("f", counting(json!({}))).await;
    assert_eq!(back.version, 2);
    host.caught_up("f").await;
    assert_eq!(
        host.count("f", "k").await,
        Some(2),
        "it went on where it stood"
    );

    host.processor
        .delete("f", KeepState::Reset)
        .await
        .expect("it is deleted");
    let anew = host.deploy("f", counting(json!({}))).await;
    assert_eq!(anew.version, 1);
    let report = host.caught_up("f").await;
    assert_eq!(
        (report.counts.events_in, host.count("f", "k").await),
        (2, Some(2)),
        "from the start"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_made_again_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    host.send("in", 0, &[(Some("a"), "c")]).await;
    host.caught_up("f").await;
    let old = host.log.topic("in").expect("is there").id;
    let name = |name: &str| name.parse().expect("a name");
    host.log.delete_topic(&name("in")).await.expect("deletes");
    let stopped = |report: &FunctionReport| report.status == FunctionStatus::Stopped;
    let gone = host.until("f", stopped).await;
    assert!(gone.status_reason.expect("why").contains("\"in\" is gone"));
    // With fewer partitions than it had. Positions and totals went with the old one.
    host.topic("in", 1, Format::Bytes).await;
    host.send("in", 0, &[(Some("a"), "c")]).await;
    let report = host.until("f", |report| report.counts.events_in == 1).await;
    assert_eq!(
        (report.status, report.tasks.len()),
        (FunctionStatus::Running, 1)
    );
    assert_eq!(
        host.count("f", "a").await,
        Some(2),
        "its state is what it was"
    );

    // It has begun to read it, so that the next version goes on there.
    host.processor.pause("f").await.expect("pauses");
    host.send("in", 0, &[(Some("a"), "c")]).await;
    let latest = json!({"input": [{"topic": "in", "start": "latest"}]});
    host.deploy("f", counting(latest.clone())).await;
    host.processor.resume("f").await.expect("resumes");
    host.until("f", |report| report.counts.events_in == 2).await;

    // A topic it writes is found, too.
    host.log.delete_topic(&name("out")).await.expect("deletes");
    host.topic("out", 1, Format::Bytes).await;
    let first = host.log.topic("out").expect("is there").id;
    host.send("in", 0, &[(Some("a"), "c")]).await;
    let ended = host
        .until("f", |report| {
            report.counts.events_in == 3 || report.status == FunctionStatus::Stopped
        })
        .await;
    if ended.status == FunctionStatus::Stopped {
        // It emitted before the new one was found, and said so.
        host.processor.resume("f").await.expect("resumes");
    }
    host.until("f", |report| report.counts.events_in == 3).await;
    assert_eq!(host.log.topic("out").expect("is there").id, first);
    assert_eq!(host.read("out").await.len(), 1);
    host.close().await;

    let host = Host::open(dir.path()).await;
    host.send("in", 0, &[(Some("a"), "c")]).await;
    host.until("f", |report| report.counts.events_in == 4).await;
    assert_ne!(host.log.topic("in").expect("is there").id, old);
    host.close().await;
}
