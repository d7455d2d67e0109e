//! Many functions on few threads and little memory.

use crate::host::{Host, counting, manifest, usual};
use serde_json::json;
use std::time::Duration;
use tidemill_env::Clock;
use tidemill_log::Format;
use tidemill_processor::{KeepState, Settings};
use tidemill_types::ByteSize;

/// The value of a gauge.
fn gauge(host: &Host, name: &str) -> u64 {
    let text = host.metrics.render();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

async fn open(dir: &std::path::Path, functions: Settings) -> Host {
    Host::open_as(dir, ByteSize::mib(16), functions, |_| {})
        .await
        .expect("the host opens")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_functions_share_the_memory_of_a_few_and_idle_ones_have_none() {
    const FUNCTIONS: usize = 150;
    let dir = tempfile::tempdir().expect("a folder");
    let memory = ByteSize::mib(8);
    let settings = Settings {
        memory_bytes: memory,
        idle: Duration::from_millis(20),
        ..usual()
    };
    let host = open(dir.path(), settings.clone()).await;
    host.topic("in", 2, Format::Bytes).await;
    for number in 0..FUNCTIONS {
        host.deploy(&format!("f{number}"), counting(json!({})))
            .await;
    }
    host.close().await;

    let host = open(dir.path(), settings).await;
    for round in 0..3 {
        for partition in 0..2 {
            host.send("in", partition, &[(Some("k"), "2"), (Some("l"), "2")])
                .await;
        }
        for number in 0..FUNCTIONS {
            let report = host.caught_up(&format!("f{number}")).await;
            assert_eq!(report.counts.effective, (round + 1) * 4);
        }
        assert!(gauge(&host, "tidemill_function_instances_bytes") <= memory.0);
    }
    let clock = Clock::system();
    while gauge(&host, "tidemill_function_instances") > 0 {
        clock.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(gauge(&host, "tidemill_function_instances_bytes"), 0);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_may_use_more_than_there_is_has_its_turn_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        memory_bytes: ByteSize(64 << 10),
        ..usual()
    };
    let host = open(dir.path(), settings).await;
    host.topic("in", 4, Format::Bytes).await;
    for name in ["f", "g"] {
        let changes = json!({"output": {}, "limits": {"deadline": "2s"}});
        host.deploy(name, manifest(changes)).await;
    }
    for partition in 0..4 {
        host.send("in", partition, &[(None, "f"), (None, "s"), (None, "t")])
            .await;
    }
    for name in ["f", "g"] {
        let counts = host.caught_up(name).await.counts;
        assert_eq!(
            (counts.filtered, counts.skipped, counts.dead_lettered),
            (4, 4, 4)
        );
    }
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_function_goes_on_while_another_is_swamped() {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        threads: 1,
        ..usual()
    };
    let host = open(dir.path(), settings).await;
    host.topic("busy", 8, Format::Bytes).await;
    host.topic("in", 1, Format::Bytes).await;
    let hot = json!({
        "input": [{"topic": "busy", "start": "earliest"}],
        "output": {"out": {"topic": "swamp", "format": "bytes"}},
        "limits": {"deadline": "50ms", "concurrency": 1},
        "retry": {"attempts": 1, "backoff": "1ms..1ms"},
    });
    host.deploy("hot", manifest(hot)).await;
    host.deploy("quiet", manifest(json!({}))).await;
    // Each of these takes a call until its deadline.
    for partition in 0..8 {
        host.send("busy", partition, &[(None, "l"); 40]).await;
    }
    host.send("in", 0, &[(None, "e")]).await;
    let report = host.caught_up("quiet").await;
    assert_eq!(report.counts.emitted, 1);
    let hot = host.processor.describe("hot").await.expect("it exists");
    let lag: u64 = hot.tasks.iter().map(|task| task.lag).sum();
    assert!(
        lag > 200,
        "it went on long before the other was done: {lag}"
    );
    host.processor.pause("hot").await.expect("it pauses");
    host.close().await;
}

/// The value of a line.
fn line(host: &Host, name: &str, labels: &str) -> Option<u64> {
    let text = host.metrics.render();
    let line = format!("tidemill_function_{name}{{function=\"{labels}}} ");
    let value = text
        .lines()
        .find_map(|shown| shown.strip_prefix(line.as_str()).map(str::to_owned))?;
    value.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_of_so_many_functions_and_of_all_others_together() {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = Settings {
        metrics: 2,
        ..usual()
    };
    let host = open(dir.path(), settings).await;
    host.topic("in", 1, Format::Bytes).await;
    for name in ["a", "b", "c", "d", "e"] {
        let one = json!({"retry": {"attempts": 1}, "batch": {"events": 1}});
        host.deploy(name, manifest(one)).await;
    }
    host.send("in", 0, &[(None, "e"), (None, "t")]).await;
    for name in ["a", "b", "c", "d", "e"] {
        host.caught_up(name).await;
    }
    host.processor.observe();
    let read = |label: &str| line(&host, "events_in_total", &format!("{label}\""));
    assert_eq!(
        ["a", "b", "c", "_other"].map(read),
        [Some(2), Some(2), None, Some(6)]
    );
    let trapped = |label: &str| line(&host, "errors_total", &format!("{label}\",kind=\"trap\""));
    assert_eq!(["a", "c", "_other"].map(trapped), [Some(1), None, Some(3)]);
    let fates = "_other\",version=\"_\",outcome=\"dead-lettered\"";
    assert_eq!(line(&host, "events_total", fates), Some(3));
    let gauges = |name: &str, label: &str| line(&host, name, &format!("{label}\""));
    assert_eq!(gauges("running", "a"), Some(1));
    assert_eq!(gauges("running", "_other"), Some(3));
    assert_eq!(gauges("lag_events", "_other"), Some(0));
    let before = host.metrics.render().lines().count();
    for name in ["f", "g", "h", "i"] {
        host.deploy(name, manifest(json!({}))).await;
        host.caught_up(name).await;
    }
    host.processor.observe();
    assert_eq!(host.metrics.render().lines().count(), before);

    // Who goes leaves its place to the next one that comes to work.
    host.processor
        .delete("a", KeepState::Reset)
        .await
        .expect("deleted");
    host.processor.observe();
    assert!(!host.metrics.render().contains("function=\"a\""));
    host.deploy("z", manifest(json!({}))).await;
    host.caught_up("z").await;
    assert_eq!(read("z"), Some(2));
    host.close().await;
}
