//! Functions that call the outside and know secrets.

use crate::built;
use crate::host::{Host, manifest, usual};
use crate::outside::{Outside, Reply};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::OnceLock;
use tidemill_log::Format;
use tidemill_processor::{Deploy, HostGrants, KeepState, Point, Replay, ReplayMode, Settings};
use tidemill_state::Scope;
use tidemill_types::{ByteSize, FunctionId};

const SECRET: &str = "hush-4711";

fn component() -> Vec<u8> {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT.get_or_init(|| built::component("caller")).clone()
}

/// What a host grants that has this secret and may call this machine.
fn grants(dir: &Path) -> HostGrants {
    let folder = dir.join("secrets");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("token");
    std::fs::write(&file, format!("{SECRET}\n")).expect("written");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("set");
    }
    HostGrants {
        secrets: Some(folder),
        addresses: vec!["127.0.0.1".parse().expect("an address")],
        ..HostGrants::default()
    }
}

async fn open(dir: &Path, grants: HostGrants) -> Host {
    let settings = Settings { grants, ..usual() };
    Host::open_as(dir, ByteSize::mib(16), settings, |_| {})
        .await
        .expect("the host opens")
}

/// A host with `in`, whose `caller` may call this server.
async fn host(dir: &Path, outside: &Outside) -> Host {
    let grants = HostGrants {
        http: vec![outside.url("/").parse().expect("a reach")],
        ..grants(dir)
    };
    let host = open(dir, grants).await;
    host.topic("in", 2, Format::Json).await;
    host
}

fn asks(outside: &Outside, more: Value) -> Value {
    let mut manifest = manifest(more);
    manifest["grants"]["http"] = json!([{"allow": outside.url("/")}]);
    manifest["output"] = json!({"out": {"topic": "out"}});
    manifest
}

async fn deploy(host: &Host, manifest: Value) -> tidemill_types::Result<bool> {
    let deployed = host
        .deploy_guest("caller", component(), manifest, KeepState::Keep)
        .await?;
    assert!(
        deployed
            .imports
            .iter()
            .any(|import| import.contains("function/http@")),
        "{:?}",
        deployed.imports
    );
    Ok(deployed.manifest.grants.is_empty())
}

async fn send(host: &Host, partition: u32, key: &str, ask: Value) {
    host.send("in", partition, &[(Some(key), &ask.to_string())])
        .await;
}

async fn out(host: &Host) -> Vec<Value> {
    let values = host.values("out").await;
    values
        .iter()
        .map(|value| serde_json::from_str(value).expect("JSON"))
        .collect()
}

/// Records of calls that are kept: there are none once events have their fate.
fn kept(host: &Host) -> usize {
    let kept = |partition: u32| {
        let scope = Scope {
            function: FunctionId(1),
            partition: partition | 1 << 31,
        };
        host.state
            .list(scope, 32_765, b"", None, 1000)
            .expect("it can be read")
            .len()
    };
    kept(0) + kept(1)
}

fn fine() -> Reply {
    Some((200, "fine".into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_made_once_and_its_answer_is_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|came, _| Some((200, format!("{} {}", came.path, came.body))));
    let host = host(dir.path(), &outside).await;
    let alone = deploy(&host, asks(&outside, json!({})))
        .await
        .expect("it is granted");
    assert!(!alone, "it asks for grants");
    let calls = [outside.url("/a"), outside.url("/b")];
    send(&host, 0, "k", json!({"n": 1, "calls": calls})).await;
    send(&host, 0, "k", json!({"n": 2, "calls": [outside.url("/a")]})).await;
    host.caught_up("caller").await;
    let came = |n: u64, path: &str| format!("{path} {{\"n\":{n}}}");
    assert_eq!(
        out(&host).await,
        [
            json!({"n": 1, "came": [came(1, "/a"), came(1, "/b")]}),
            json!({"n": 2, "came": [came(2, "/a")]}),
        ]
    );
    let (a, b) = (outside.came("/a"), outside.came("/b"));
    assert_eq!((a.len(), b.len()), (2, 1));
    let keys: std::collections::BTreeSet<_> = a
        .iter()
        .chain(&b)
        .map(|came| came.key().to_owned())
        .collect();
    assert_eq!(keys.len(), 3, "each call has a key of its own");
    assert!(
        a.iter()
            .all(|came| came.headers["authorization"] == format!("Bearer {SECRET}"))
    );
    assert_eq!(kept(&host), 0);
    let shown = host.metrics.render();
    assert!(
        shown.contains("tidemill_function_calls_total{function=\"caller\",outcome=\"2xx\"} 3"),
        "{shown}"
    );
    assert!(shown.contains("tidemill_function_call_seconds_count{function=\"caller\"} 3"));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_sees_the_same_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|_, _| fine());
    let host = host(dir.path(), &outside).await;
    deploy(&host, asks(&outside, json!({})))
        .await
        .expect("it is granted");
    for (n, then) in [(1, "again"), (2, "trap")] {
        let call = outside.url(&format!("/{then}"));
        send(
            &host,
            0,
            "k",
            json!({"n": n, "then": then, "calls": [call]}),
        )
        .await;
    }
    let report = host.caught_up("caller").await;
    assert_eq!(report.counts.dead_lettered, 2);
    let tries = host.read("caller.dead-letters").await;
    assert!(
        tries
            .iter()
            .all(|letter| letter.headers["tidemill-attempts"] == "3"),
        "{tries:?}"
    );
    assert_eq!(
        (outside.came("/again").len(), outside.came("/trap").len()),
        (1, 1)
    );
    assert_eq!(kept(&host), 0);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_called_again_under_the_same_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|came, before| match (came.path.as_str(), before) {
        ("/busy", 0 | 1) => Some((503, "busy".into())),
        ("/down", _) => Some((503, "down".into())),
        _ => fine(),
    });
    for order in ["partition", "key"] {
        let dir = dir.path().join(order);
        std::fs::create_dir(&dir).expect("a folder");
        let before = (outside.came("/first").len(), outside.came("/down").len());
        let host = host(&dir, &outside).await;
        let retry = json!({"attempts": 3, "backoff": "1ms..2ms", "order": order});
        deploy(&host, asks(&outside, json!({"retry": retry})))
            .await
            .expect("it is granted");
        let calls = [outside.url("/first"), outside.url("/busy")];
        send(&host, 0, "a", json!({"n": 1, "calls": calls})).await;
        send(
            &host,
            0,
            "b",
            json!({"n": 2, "calls": [outside.url("/down")]}),
        )
        .await;
        let report = host
            .until("caller", |report| {
                report.counts.effective + report.counts.dead_lettered == 2
            })
            .await;
        assert_eq!(report.counts.dead_lettered, 1);
        assert_eq!(
            outside.came("/first").len() - before.0,
            1,
            "what was answered stays"
        );
        assert_eq!(
            outside.came("/down").len() - before.1,
            3,
            "as often as the event is tried"
        );
        assert_eq!(kept(&host), 0);
        host.close().await;
    }
    let keys: Vec<_> = outside
        .came("/busy")
        .iter()
        .map(|came| came.key().to_owned())
        .collect();
    assert_eq!(keys.len(), 4);
    assert!(keys[0] == keys[1] && keys[1] == keys[2], "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_answers_of_a_kind() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|came, _| match came.path.as_str() {
        "/large" => Some((200, "x".repeat(3000))),
        "/silent" => None,
        _ => fine(),
    });
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody_at = format!("http://{}/", nobody.local_addr().expect("an address"));
    drop(nobody);
    let http = [
        outside.url("/"),
        nobody_at.clone(),
        "http://localhost/".into(),
        "http://10.0.0.1/".into(),
    ];
    let grants = HostGrants {
        http: http
            .iter()
            .map(|url| url.parse().expect("a reach"))
            .collect(),
        answer_bytes: ByteSize(2000),
        calls: 5,
        ..grants(dir.path())
    };
    let host = open(dir.path(), grants).await;
    host.topic("in", 1, Format::Json).await;
    let mut manifest = asks(&outside, json!({}));
    let allowed = http
        .iter()
        .map(|url| json!({"allow": url, "timeout": "200ms"}));
    manifest["grants"]["http"] = allowed.collect();
    deploy(&host, manifest).await.expect("it is granted");
    let calls = [
        outside.url("/large"),
        outside.url("/silent"),
        nobody_at,
        "http://10.0.0.1/".into(),
        "https://elsewhere.example/".into(),
        outside.url("/fine"),
        outside.url("/more"),
    ];
    send(
        &host,
        0,
        "k",
        json!({"n": 1, "then": "any", "calls": calls}),
    )
    .await;
    host.caught_up("caller").await;
    let out = out(&host).await;
    let came = out[0]["came"].as_array().expect("a list");
    let kinds: Vec<_> = came
        .iter()
        .map(|one| one["kind"].as_str().unwrap_or("answer"))
        .collect();
    assert_eq!(
        kinds,
        [
            "TooLarge", "Timeout", "Connect", "Denied", "Denied", "answer", "Denied"
        ],
        "{came:?}"
    );
    for (at, says) in [
        (0, "grants.answer_bytes"),
        (3, "grants.addresses"),
        (4, "[[grants.http]]"),
        (6, "grants.calls"),
    ] {
        assert!(
            came[at]["message"].as_str().expect("words").contains(says),
            "{came:?}"
        );
    }
    assert_eq!(kept(&host), 0);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_get_into_no_words() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|_, _| fine());
    let host = host(dir.path(), &outside).await;
    deploy(&host, asks(&outside, json!({})))
        .await
        .expect("it is granted");
    for (n, then) in [(1, "leak"), (2, "trap"), (3, "stop")] {
        send(&host, 0, "k", json!({"n": n, "then": then})).await;
    }
    let report = host
        .until("caller", |report| {
            report
                .status_reason
                .as_deref()
                .is_some_and(|why| why.contains("the token is"))
        })
        .await;
    let mut words = vec![report.status_reason.unwrap_or_default()];
    words.extend(
        host.lines("caller")
            .await
            .into_iter()
            .map(|line| line.message),
    );
    let letters = host.read("caller.dead-letters").await;
    assert_eq!(letters.len(), 2);
    words.extend(
        letters
            .into_iter()
            .map(|letter| letter.headers["tidemill-error"].clone()),
    );
    let told: Vec<_> = words
        .iter()
        .filter(|words| words.contains("the token is [secret]"))
        .collect();
    assert!(told.len() >= 3, "{words:?}");
    assert!(
        words.iter().all(|words| !words.contains(SECRET)),
        "{words:?}"
    );
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_granted_is_refused_and_nothing_is_run_twice() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|_, _| fine());
    let bare = open(&dir.path().join("bare"), HostGrants::default()).await;
    bare.topic("in", 1, Format::Json).await;
    let refused = deploy(&bare, asks(&outside, json!({})))
        .await
        .expect_err("off by default");
    assert_eq!(refused.code, "not-granted", "{refused}");
    bare.close().await;

    let host = host(dir.path(), &outside).await;
    deploy(&host, asks(&outside, json!({})))
        .await
        .expect("it is granted");
    send(&host, 0, "k", json!({"n": 1, "calls": [outside.url("/a")]})).await;
    host.caught_up("caller").await;
    let replay = |mode| Replay {
        mode,
        version: None,
        from: Point::Earliest,
        to: Point::Latest,
        examples: 1,
    };
    for mode in [
        ReplayMode::Verify,
        ReplayMode::Diff(1),
        ReplayMode::Into("side".into()),
    ] {
        let refused = host
            .processor
            .replay("caller", replay(mode))
            .await
            .expect_err("it has grants");
        assert_eq!(refused.code, "replay-impossible", "{refused}");
    }
    let rows = tidemill_types::PackedRows::default();
    let refused = host
        .processor
        .invoke("caller", None, KeepState::Keep, rows, None)
        .await
        .expect_err("it has grants");
    assert_eq!(refused.code, "replay-impossible", "{refused}");
    let shadow = Deploy {
        name: "caller".parse().expect("a name"),
        component: component().into(),
        manifest: Some(asks(&outside, json!({"config": {"other": 1}}))),
        start: None,
        state: KeepState::Keep,
        dry_run: false,
    };
    let refused = host
        .processor
        .deploy_shadow(shadow)
        .await
        .expect_err("it has grants");
    assert_eq!(refused.code, "not-deterministic", "{refused}");
    assert_eq!(outside.came("/a").len(), 1);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_an_answer_holds_up_nobody_else_and_can_be_paused() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|came, before| match (came.path.as_str(), before) {
        ("/slow", 0) => None,
        _ => fine(),
    });
    let host = host(dir.path(), &outside).await;
    deploy(&host, asks(&outside, json!({})))
        .await
        .expect("it is granted");
    send(
        &host,
        0,
        "a",
        json!({"n": 1, "calls": [outside.url("/slow")]}),
    )
    .await;
    outside.wait("/slow", 1);
    send(
        &host,
        1,
        "b",
        json!({"n": 2, "calls": [outside.url("/quick")]}),
    )
    .await;
    host.until("caller", |report| report.counts.effective == 1)
        .await;
    host.processor.pause("caller").await.expect("it stands");
    host.processor.resume("caller").await.expect("it goes on");
    host.caught_up("caller").await;
    let slow = outside.came("/slow");
    assert_eq!(slow.len(), 2);
    assert_eq!(slow[0].key(), slow[1].key(), "it is the same call");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_asks_for_something_else_on_another_try_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|_, _| fine());
    let host = host(dir.path(), &outside).await;
    deploy(&host, asks(&outside, json!({})))
        .await
        .expect("it is granted");
    send(
        &host,
        0,
        "k",
        json!({"n": 1, "then": "differ", "calls": [outside.url("/a")]}),
    )
    .await;
    host.caught_up("caller").await;
    let letters = host.read("caller.dead-letters").await;
    let error = &letters[0].headers["tidemill-error"];
    assert!(error.contains("not deterministic: call 0"), "{error}");
    assert_eq!(outside.came("/a?attempt=0").len(), 1);
    assert_eq!(outside.came("/a?attempt=1").len(), 0);
    assert_eq!(kept(&host), 0);
    host.close().await;
}

/// Waits until no record of a call is kept.
async fn swept(host: &Host) {
    let clock = tidemill_env::Clock::system();
    for _ in 0..20_000 {
        if kept(host) == 0 {
            return;
        }
        clock.sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{} records are kept", kept(host));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_no_version_needs_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = Outside::start(|_, _| fine());
    let host = host(dir.path(), &outside).await;
    let waiting = |order: &str| {
        let retry = json!({"attempts": 9, "backoff": "1h..1h", "order": order});
        asks(&outside, json!({"retry": retry}))
    };
    deploy(&host, waiting("partition")).await.expect("granted");
    let fails = |n: u64, path: &str| {
        let call = outside.url(path);
        json!({"n": n, "then": "again", "calls": [call]})
    };
    // One of them is parked by the version that waits by key, the other stands in front for good.
    send(&host, 0, "k", fails(1, "/a")).await;
    send(&host, 1, "j", fails(2, "/b")).await;
    let waits = |count: u64| {
        move |report: &tidemill_processor::FunctionReport| report.counts.retrying == count
    };
    host.until("caller", waits(2)).await;
    deploy(&host, waiting("key")).await.expect("granted");
    let parked = |report: &tidemill_processor::FunctionReport| {
        report.counts.retrying == 2 && report.tasks.iter().all(|task| task.lag == 0)
    };
    host.until("caller", parked).await;
    assert_eq!(
        kept(&host),
        2,
        "they see the same when they are tried again"
    );
    // A version that calls nobody gives them their fate.
    let quiet = manifest(json!({"output": {"out": {"topic": "out"}}}));
    host.deploy("caller", quiet).await;
    host.until("caller", waits(0)).await;
    swept(&host).await;

    // What stood in front is passed by one that begins elsewhere.
    deploy(&host, waiting("partition")).await.expect("granted");
    send(&host, 0, "k", fails(3, "/c")).await;
    host.until("caller", waits(1)).await;
    assert_eq!(kept(&host), 1);
    let elsewhere = Deploy {
        name: "caller".parse().expect("a name"),
        component: component().into(),
        manifest: Some(waiting("key")),
        start: Some(tidemill_processor::Start::Latest),
        state: KeepState::Reset,
        dry_run: false,
    };
    host.processor
        .deploy(elsewhere)
        .await
        .expect("begins elsewhere");
    swept(&host).await;
    for path in ["/a", "/b", "/c"] {
        assert_eq!(outside.came(path).len(), 1, "{path}");
    }
    host.close().await;
}
