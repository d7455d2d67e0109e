//! Why a function doesn't move: whatever holds it up, it says so, of itself and of its tasks.

use crate::crash::reopen;
use crate::host::{Ground, Host, counting, manifest, usual};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tidemill_env::Random;
use tidemill_env::files::Disk;
use tidemill_env::objects::{Faults, MemoryObjects, Objects};
use tidemill_log::Format;
use tidemill_processor::{FunctionReport, FunctionStatus, KeepState, Settings};
use tidemill_types::ByteSize;

/// What the function says, and that its tasks say the same.
fn all_say(report: &FunctionReport) -> &str {
    let why = report.status_reason.as_deref().expect("it says why");
    for task in &report.tasks {
        assert_eq!(task.status, report.status);
        assert_eq!(task.status_reason.as_deref(), Some(why));
    }
    why
}

async fn open(dir: &Path, functions: Settings) -> Host {
    Host::open_as(dir, ByteSize::mib(16), functions, |_| {})
        .await
        .expect("the host opens")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_paused_or_stopped_says_since_when_and_by_what() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let paused = host.processor.pause("f").await.expect("pauses");
    assert_eq!(
        (paused.status, paused.tasks.len()),
        (FunctionStatus::Paused, 2)
    );
    let said = all_say(&paused).to_owned();
    assert!(
        said.starts_with("paused since 20") && said.contains("as was asked for"),
        "{said}"
    );
    // Another version finds it as it was, and so does another start.
    host.deploy("f", counting(json!({"config": {"n": 1}})))
        .await;
    host.close().await;
    let host = Host::open(dir.path()).await;
    let paused = host.processor.describe("f").await.expect("there");
    assert_eq!(all_say(&paused), said);
    host.processor.resume("f").await.expect("resumes");
    let running = host.caught_up("f").await;
    assert_eq!(
        (running.status, running.status_reason),
        (FunctionStatus::Running, None)
    );
    host.send("in", 0, &[(Some("a"), "x ends it")]).await;
    let stopped = host
        .until("f", |report| report.status == FunctionStatus::Stopped)
        .await;
    let said = all_say(&stopped);
    assert!(
        said.starts_with("stopped since 20") && said.contains("x ends it"),
        "{said}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_tried_again_says_since_when_how_often_and_when_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let waiting = |order: &str| {
        manifest(json!({"retry": {"attempts": 9, "backoff": "1h..1h", "order": order}}))
    };
    host.deploy("f", waiting("partition")).await;
    host.send("in", 0, &[(None, "r")]).await;
    let retrying = |report: &FunctionReport| report.status == FunctionStatus::Retrying;
    let report = host.until("f", retrying).await;
    let why = report.tasks[0].status_reason.as_deref().expect("says why");
    assert!(
        why.starts_with("retrying since 20") && why.contains(": try 1 failed: r; try 2 of 9 at 20"),
        "{why}"
    );
    let all = report.status_reason.expect("says why");
    assert_eq!(all, format!("partition 0 of in: {why}"));
    host.deploy("f", waiting("key")).await;
    let parked = host.until("f", |report| report.tasks[0].lag == 0).await;
    let why = parked.status_reason.as_deref().expect("says why");
    assert!(
        why.contains("1 events wait to be tried again")
            && why.contains("failed: r; the next at 20"),
        "{why}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_memory_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        memory_bytes: ByteSize(64 << 10),
        ..usual()
    };
    let host = open(dir.path(), settings).await;
    host.topic("in", 1, Format::Bytes).await;
    let looping = json!({
        "limits": {"deadline": "1s"}, "retry": {"attempts": 1000, "backoff": "1ms..1ms"},
        "input": [{"topic": "loops", "start": "earliest"}],
    });
    host.topic("loops", 1, Format::Bytes).await;
    host.deploy("looping", manifest(looping)).await;
    host.deploy("f", manifest(json!({}))).await;
    host.send("loops", 0, &[(None, "l")]).await;
    host.until("looping", |report| {
        report.status == FunctionStatus::Retrying
    })
    .await;
    host.send("in", 0, &[(None, "e")]).await;
    let says = |report: &FunctionReport| {
        let why = report.status_reason.as_deref().unwrap_or_default();
        why.contains("partition 0 of in: waiting since 20")
            && why.contains("functions.memory_bytes")
    };
    // It had its turn already, unless the other was at work again just then.
    let waits = host
        .until("f", |report| says(report) || report.tasks[0].lag == 0)
        .await;
    assert_eq!(
        waits.status,
        FunctionStatus::Running,
        "it is nobody's fault"
    );
    host.processor.pause("looping").await.expect("pauses");
    let report = host.caught_up("f").await;
    assert_eq!(report.status_reason, None);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_thread_or_for_what_its_key_is_to_bring_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        threads: 1,
        ..usual()
    };
    let host = open(dir.path(), settings).await;
    host.topic("in", 1, Format::Json).await;
    host.topic("loops", 1, Format::Bytes).await;
    let keyed = json!({"input": [{"topic": "in", "key": "/k", "start": "earliest"}]});
    host.deploy("f", counting(keyed)).await;
    host.caught_up("f").await;
    let looping = json!({
        "limits": {"deadline": "5s"}, "retry": {"attempts": 1},
        "input": [{"topic": "loops", "start": "earliest"}],
    });
    host.deploy("looping", manifest(looping)).await;
    host.send("loops", 0, &[(None, "l")]).await;
    host.send("in", 0, &[(None, r#"{"k":"a"}"#)]).await;
    let says = |report: &FunctionReport| {
        let said = |topic: &str, what: &str| {
            let mut tasks = report.tasks.iter().filter(|task| task.topic == topic);
            tasks.any(|task| {
                task.status_reason
                    .as_deref()
                    .is_some_and(|why| why.contains(what))
            })
        };
        said("in", "waiting for its turn for")
            && said("f.by-key", "1 of in aren't brought to f.by-key yet")
            && report
                .status_reason
                .as_deref()
                .is_some_and(|why| why.contains("functions.threads"))
    };
    let waits = host
        .until("f", |report| says(report) || report.counts.events_in == 1)
        .await;
    assert_eq!(waits.status, FunctionStatus::Running);
    let report = host.until("f", |report| report.counts.events_in == 1).await;
    assert_eq!(report.status, FunctionStatus::Running);
    host.close().await;
}

/// A folder whose host ended while `f` tried an event again.
async fn left_retrying(dir: &std::path::Path) {
    let host = Host::open(dir).await;
    host.topic("in", 1, Format::Bytes).await;
    let retry = json!({"retry": {"attempts": 1000, "backoff": "50ms..50ms"}});
    host.deploy("f", manifest(retry)).await;
    host.send("in", 0, &[(None, "r")]).await;
    host.until("f", |report| report.status == FunctionStatus::Retrying)
        .await;
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_the_disk_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    left_retrying(dir.path()).await;
    let full = |settings: &mut tidemill_log::Settings| settings.reserve_bytes = ByteSize(1 << 60);
    let host = Host::open_with(dir.path(), full).await.expect("it opens");
    let report = host
        .until("f", |report| {
            let why = report.tasks[0].status_reason.as_deref();
            why.is_some_and(|why| why.contains("too little free space"))
        })
        .await;
    let why = report.status_reason.expect("says why");
    assert!(why.contains("waiting since 20"), "{why}");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_room_in_the_journal_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    left_retrying(dir.path()).await;
    let full = |settings: &mut tidemill_log::Settings| settings.journal_bytes = ByteSize(1);
    let host = Host::open_with(dir.path(), full).await.expect("it opens");
    let report = host
        .until("f", |report| {
            let why = report.tasks[0].status_reason.as_deref();
            why.is_some_and(|why| why.contains("log.journal_bytes"))
        })
        .await;
    let why = report.status_reason.expect("says why");
    assert!(
        why.contains("partition 0 of in: waiting since 20") && why.contains("can't be cut"),
        "{why}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_state_to_be_written_back_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    // Half of it may wait: a few keys are more than that, and what waits is gathered before it is written.
    let host = Host::open_small(dir.path(), ByteSize(2048), |_| {})
        .await
        .expect("the host opens");
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let mut said = None;
    for round in 0..1000 {
        let keys: Vec<String> = (0..50).map(|key| format!("{round}-{key}")).collect();
        let events: Vec<_> = keys.iter().map(|key| (Some(key.as_str()), "c")).collect();
        host.send("in", 0, &events).await;
        let report = host.processor.describe("f").await.expect("there");
        let why = report.tasks[0].status_reason.clone();
        said = why.filter(|why| why.contains("state.dirty_bytes"));
        if said.is_some() {
            break;
        }
    }
    let said = said.expect("it waited at least once");
    assert!(said.starts_with("waiting since 20"), "{said}");
    let report = host.caught_up("f").await;
    assert_eq!(report.status, FunctionStatus::Running);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_storage_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let memory = Arc::new(MemoryObjects::new(Random::seeded(5)));
    let host = || async {
        let ground = Ground {
            files: Arc::new(Disk::default()),
            objects: Objects::new(memory.clone()),
            random: Random::seeded(7),
            memory: ByteSize::mib(16),
            fault: None,
        };
        let opened = Host::open_on(dir.path(), ground, usual(), |_| {}).await;
        opened.expect("the host opens")
    };
    let first = host().await;
    first.topic("in", 1, Format::Bytes).await;
    first.deploy("f", counting(json!({}))).await;
    first.processor.pause("f").await.expect("pauses");
    first
        .send("in", 0, &[(Some("a"), "c"), (Some("a"), "c")])
        .await;
    first.log.seal().await.expect("seals");
    first.close().await;
    let second = host().await;
    memory.set_faults(Faults {
        errors: 100,
        ..Faults::default()
    });
    second.processor.resume("f").await.expect("resumes");
    let waits = |report: &FunctionReport| report.status_reason.is_some();
    let report = second.until("f", waits).await;
    let said = report.status_reason.as_deref().expect("it says why");
    assert!(
        said.starts_with("partition 0 of in: waiting since 20")
            && said.contains("object storage failed"),
        "{said}"
    );
    memory.set_faults(Faults::default());
    let report = second.caught_up("f").await;
    assert_eq!((report.counts.events_in, report.status_reason), (2, None));
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missing_when_the_host_started_is_found_once_it_is_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let digest = host.deploy("g", manifest(json!({}))).await.digest;
    host.send("in", 0, &[(Some("a"), "c")]).await;
    host.caught_up("f").await;
    host.caught_up("g").await;
    let name = "in".parse().expect("a name");
    host.log.delete_topic(&name).await.expect("deletes");
    host.close().await;

    let host = reopen(dir.path()).await;
    let report = host.processor.describe("f").await.expect("there");
    assert_eq!(report.status, FunctionStatus::Stopped);
    let why = report.status_reason.expect("says why");
    assert_eq!(
        why,
        "its topic \"in\" is gone; it goes on once that is made again"
    );
    host.topic("in", 1, Format::Bytes).await;
    host.send("in", 0, &[(Some("a"), "c")]).await;
    let report = host.until("f", |report| report.counts.events_in == 1).await;
    assert_eq!(
        (report.status, report.status_reason),
        (FunctionStatus::Running, None)
    );
    assert_eq!(
        host.count("f", "a").await,
        Some(2),
        "its state is what it was"
    );
    host.until("g", |report| report.counts.events_in == 1).await;
    host.close().await;

    // A component that isn't there.
    let path = format!("functions/{}.wasm", &digest["sha256:".len()..]);
    let path = dir.path().join("objects").join(path);
    let aside = dir.path().join("aside.wasm");
    std::fs::rename(&path, &aside).expect("moves");
    let host = reopen(dir.path()).await;
    let report = host.processor.describe("g").await.expect("there");
    let why = report.status_reason.expect("says why");
    assert!(why.starts_with("it can't be taken up: "), "{why}");
    std::fs::rename(&aside, &path).expect("moves");
    host.send("in", 0, &[(Some("a"), "e")]).await;
    host.until("g", |report| report.counts.events_in == 2).await;
    host.processor
        .delete("g", KeepState::Reset)
        .await
        .expect("deletes");
    host.close().await;
}
