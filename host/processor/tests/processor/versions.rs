//! Versions that follow each other, going back to one, and where each goes on.

use crate::component;
use crate::host::{Host, counting, manifest, scripted};
use serde_json::json;
use tidemill_log::Format;
use tidemill_processor::{Deploy, Deployed, KeepState, Rollback, Start};
use tidemill_types::Result;

/// `scripted.wat` with something else in it, so that its digest is another.
fn another() -> Vec<u8> {
    let text = format!("{}\n(func $unused)", include_str!("scripted.wat"));
    component::guest("", &text)
}

async fn deploy_from(
    host: &Host,
    manifest: serde_json::Value,
    start: Start,
    state: KeepState,
) -> Result<Deployed> {
    let deploy = Deploy {
        name: "f".parse().expect("a name"),
        component: scripted().into(),
        manifest: Some(manifest),
        start: Some(start),
        state,
        dry_run: false,
    };
    host.processor.deploy(deploy).await
}

fn to(version: u32, state: KeepState, dry_run: bool) -> Rollback {
    Rollback {
        version,
        state,
        dry_run,
    }
}

async fn components(host: &Host) -> usize {
    let components = host.objects.list("functions/").await;
    components.expect("lists").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn going_back_is_a_new_version_of_what_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    let first = host.deploy("f", counting(json!({}))).await;
    assert_eq!((first.plan.from, first.plan.moves), (None, false));
    host.send("in", 0, &[(Some("k"), "2")]).await;
    host.caught_up("f").await;
    let changed = counting(json!({"config": {"a": 1}, "limits": {"deadline": "300ms"}}));
    let second = host
        .deploy_guest("f", another(), changed, KeepState::Keep)
        .await
        .expect("deploys");
    let what: Vec<_> = second
        .plan
        .changes
        .iter()
        .map(|c| c.what.as_str())
        .collect();
    assert_eq!(what, ["component", "config.a", "limits.deadline"]);
    assert_eq!(
        second.plan.start[0].offset, 1,
        "it goes on where the first stood"
    );
    host.send("in", 0, &[(Some("k"), "2")]).await;
    host.caught_up("f").await;

    let dry = host
        .processor
        .rollback("f", to(1, KeepState::Keep, true))
        .await;
    assert_eq!(dry.expect("it would").version, 3);
    assert_eq!(
        host.processor.describe("f").await.expect("there").version,
        2
    );
    let unknown = host
        .processor
        .rollback("f", to(7, KeepState::Keep, false))
        .await;
    let unknown = unknown.expect_err("never was");
    assert_eq!(unknown.code, "version-not-found");
    assert!(unknown.detail.contains("there are 1, 2"), "{unknown}");
    host.close().await;

    let host = Host::open(dir.path()).await;
    let back = host
        .processor
        .rollback("f", to(1, KeepState::Keep, false))
        .await;
    let back = back.expect("goes back");
    assert_eq!(
        (back.version, back.rollback_of, back.digest.as_str()),
        (3, Some(1), first.digest.as_str())
    );
    assert_eq!(back.manifest.source, first.manifest.source);
    host.send("in", 0, &[(Some("k"), "2"), (Some("k"), "dead")])
        .await;
    host.caught_up("f").await;
    assert_eq!(host.count("f", "k").await, Some(3), "state stays");
    let letters = host.read("f.dead-letters").await;
    assert_eq!(letters[0].headers["tidemill-version"], "3");
    let again = host
        .processor
        .rollback("f", to(1, KeepState::Keep, false))
        .await;
    assert!(!again.expect("it is so already").changed);
    let reset = host
        .processor
        .rollback("f", to(2, KeepState::Reset, false))
        .await;
    assert_eq!(reset.expect("goes back").version, 4);
    assert_eq!(host.count("f", "k").await, None, "state is reset");

    let versions = host.processor.versions("f").await.expect("there");
    let told: Vec<_> = versions
        .iter()
        .map(|v| (v.version, v.rollback_of, v.reset, v.in_force))
        .collect();
    assert_eq!(
        told,
        [
            (4, Some(2), true, true),
            (3, Some(1), false, false),
            (2, None, false, false),
            (1, None, false, false)
        ]
    );
    assert!(versions.iter().all(|version| version.deployed.is_some()));
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_hundred_are_kept_and_components_as_long_as_one_needs_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy_guest("f", another(), manifest(json!({})), KeepState::Keep)
        .await
        .expect("deploys");
    for n in 0..100 {
        host.deploy("f", manifest(json!({"config": {"n": n}})))
            .await;
    }
    let versions = host.processor.versions("f").await.expect("there");
    let numbers: Vec<_> = versions.iter().map(|version| version.version).collect();
    assert_eq!(numbers, (2..=101).rev().collect::<Vec<_>>());
    assert_eq!(
        components(&host).await,
        2,
        "nothing is deleted while it runs"
    );
    host.close().await;
    let host = Host::open(dir.path()).await;
    assert_eq!(
        components(&host).await,
        1,
        "no version needs the first one's"
    );
    host.deploy_guest(
        "g",
        another(),
        manifest(json!({"output": {}})),
        KeepState::Keep,
    )
    .await
    .expect("it is brought again");
    host.processor
        .delete("f", KeepState::Reset)
        .await
        .expect("deleted");
    host.processor
        .delete("g", KeepState::Keep)
        .await
        .expect("deleted");
    host.close().await;
    let host = Host::open(dir.path()).await;
    assert_eq!(components(&host).await, 1, "g may come back");
    let back = host.deploy("f", manifest(json!({}))).await;
    assert_eq!(back.version, 1);
    host.close().await;
    let host = Host::open(dir.path()).await;
    assert_eq!(components(&host).await, 2, "f's is needed again");
    assert_eq!(host.processor.versions("f").await.expect("there").len(), 1);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_comes_back_as_another_kind_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.deploy("f", counting(json!({}))).await;
    let without = host.deploy("f", manifest(json!({}))).await;
    let change = &without.plan.changes[0];
    assert_eq!(
        (change.what.as_str(), &change.after),
        ("state.count", &None)
    );
    let retyped = || manifest(json!({"state": {"count": {"kind": "counter"}}}));
    let refused = host.try_deploy("f", retyped(), KeepState::Keep).await;
    let refused = refused.expect_err("what lies there is a value");
    assert_eq!(refused.code, "invalid-manifest");
    assert!(
        refused.detail.contains("holds a value") && refused.detail.contains("state=reset"),
        "{refused}"
    );
    let reset = host.try_deploy("f", retyped(), KeepState::Reset).await;
    assert!(reset.expect("nothing lies there").plan.resets);
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_has_read_moves_only_if_it_forgets() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 1, Format::Bytes).await;
    host.send("in", 0, &[(Some("k"), "2")]).await;
    let nothing = deploy_from(&host, counting(json!({})), Start::Keep, KeepState::Keep).await;
    assert_eq!(
        nothing.expect_err("it stands nowhere").code,
        "invalid-start"
    );
    let first = deploy_from(&host, counting(json!({})), Start::Earliest, KeepState::Keep).await;
    assert_eq!(first.expect("deploys").plan.start[0].offset, 0);
    host.send("in", 0, &[(Some("k"), "2")]).await;
    host.caught_up("f").await;
    let kept = deploy_from(&host, counting(json!({})), Start::Keep, KeepState::Keep).await;
    assert!(!kept.expect("it is so already").changed);
    let moved = deploy_from(&host, counting(json!({})), Start::Earliest, KeepState::Keep).await;
    let refused = moved.expect_err("it would count twice");
    assert!(refused.detail.contains("state=reset"), "{refused}");

    let again = deploy_from(
        &host,
        counting(json!({})),
        Start::Earliest,
        KeepState::Reset,
    )
    .await;
    let again = again.expect("deploys");
    assert!(again.plan.moves && again.plan.resets && again.changed);
    let report = host.caught_up("f").await;
    assert_eq!(
        host.count("f", "k").await,
        Some(2),
        "counted once more, from nothing"
    );
    assert_eq!(report.counts.events_in, 4, "totals go on");
    host.close().await;
    let host = Host::open(dir.path()).await;
    assert_eq!(host.count("f", "k").await, Some(2));
    let later = deploy_from(&host, manifest(json!({})), Start::Latest, KeepState::Keep).await;
    later.expect("what remembers nothing may move");
    host.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyed_function_moves_with_its_events_by_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = Host::open(dir.path()).await;
    host.topic("in", 2, Format::Json).await;
    let keyed = || counting(json!({"input": [{"topic": "in", "key": "/k", "start": "earliest"}]}));
    host.deploy("f", keyed()).await;
    host.send("in", 0, &[(None, r#"{"k":"a"}"#)]).await;
    host.send("in", 1, &[(None, r#"{"k":"a"}"#)]).await;
    host.caught_up("f").await;
    let before = host.until("f", |report| report.counts.events_in == 2).await;
    assert_eq!(before.counts.events_in, 2);
    deploy_from(&host, keyed(), Start::Earliest, KeepState::Reset)
        .await
        .expect("deploys");
    let after = host.until("f", |report| report.counts.events_in >= 4).await;
    assert_eq!(after.counts.events_in, 4, "each was read once more");
    host.close().await;
}
