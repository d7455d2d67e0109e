//! Calls to the outside under SIGKILL: what is on record isn't called again, what isn't is called under the same
//! key.

use crate::crash::BUSY;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tidemill_tests::{Host, Outside, component};

const SECRET: &str = "hush-4711";

/// Starts a host whose functions may call this server, with its secret.
fn start(dir: &Path, outside: &Outside) -> Host {
    let folder = dir.join("secrets");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("token");
    std::fs::write(&file, SECRET).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (folder, http) = (folder.display().to_string(), outside.url("/"));
    let grants = [
        ("TIDEMILL_GRANTS__SECRETS", folder.as_str()),
        ("TIDEMILL_GRANTS__HTTP", http.as_str()),
        ("TIDEMILL_GRANTS__ADDRESSES", "127.0.0.1"),
    ];
    let settings: Vec<_> = BUSY.iter().copied().chain(grants).collect();
    Host::start(&dir.join("data"), &settings)
}

fn deploy(host: &Host, outside: &Outside, query: &str) -> (u16, Value) {
    let manifest = format!(
        "[[input]]\ntopic = \"in\"\nstart = \"earliest\"\n[[grants.http]]\nallow = \"{}\"\n[retry]\nattempts = 2\nbackoff = \"1ms..5ms\"\n",
        outside.url("/")
    );
    let form = reqwest::blocking::multipart::Form::new()
        .file("component", component("tests/guests/caller"))
        .unwrap()
        .text("manifest", manifest);
    let url = host.url(&format!("/v1/functions/caller{query}"));
    let answer = host.client().put(url).multipart(form).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap())
}

#[test]
fn killed_between_its_calls_an_event_repeats_only_what_is_not_on_record() {
    let dir = tempfile::tempdir().unwrap();
    // The second call is answered only once the host was killed twice.
    let outside = Outside::start(|came, before| match (came.path.as_str(), before) {
        ("/second", 0 | 1) => None,
        (path, _) => Some((200, path.to_owned())),
    });
    let mut host = start(dir.path(), &outside);
    host.topic("in", &json!({"partitions": 1, "key": "/k"}));
    let (status, deployed) = deploy(&host, &outside, "");
    assert_eq!(status, 201, "{deployed}");
    assert_eq!(deployed["deterministic"], false);
    let calls = ["/first", "/second", "/third"].map(|path| outside.url(path));
    host.append("in", &[json!({"k": "a", "n": 1, "calls": calls})]);
    for kills in 1..=2 {
        outside.wait("/second", kills);
        host.kill();
        host = start(dir.path(), &outside);
    }
    let report = host.caught_up("caller");
    assert_eq!(report["deterministic"], false);
    assert_eq!(report["counts"]["effective"], 1, "{report}");
    let emitted = host.events("out");
    assert_eq!(emitted.len(), 1);
    assert_eq!(
        emitted[0]["value"]["came"],
        json!(["/first", "/second", "/third"])
    );
    let count = |path: &str| outside.came(path).len();
    assert_eq!(
        (count("/first"), count("/second"), count("/third")),
        (1, 3, 1)
    );
    let second = outside.came("/second");
    assert!(
        second.iter().all(|came| came.key() == second[0].key()),
        "one call, one key"
    );
    assert_ne!(second[0].key(), outside.came("/first")[0].key());
    let (_, metrics) = host.get("/metrics");
    let metrics = metrics.as_str().unwrap();
    assert!(
        metrics.contains("tidemill_function_calls_total{function=\"caller\",outcome=\"2xx\"}"),
        "{metrics}"
    );
}

#[test]
fn what_is_not_granted_is_refused_and_a_secret_is_told_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let outside = Outside::start(|_, _| Some((404, "nothing here".into())));
    let bare = Host::start(&dir.path().join("bare"), &[]);
    bare.topic("in", &json!({"partitions": 1, "key": "/k"}));
    let (status, refused) = deploy(&bare, &outside, "");
    assert_eq!(
        (status, &refused["code"]),
        (422, &json!("not-granted")),
        "{refused}"
    );
    assert!(
        refused["detail"].as_str().unwrap().contains("grants."),
        "{refused}"
    );
    drop(bare);

    let host = start(dir.path(), &outside);
    host.topic("in", &json!({"partitions": 1, "key": "/k"}));
    assert_eq!(deploy(&host, &outside, "").0, 201);
    let (status, listed) = host.get("/v1/functions");
    assert_eq!(
        (status, &listed["functions"][0]["deterministic"]),
        (200, &json!(false)),
        "{listed}"
    );
    host.append(
        "in",
        &[
            json!({"k": "a", "n": 1, "then": "leak"}),
            json!({"k": "a", "n": 2, "calls": [outside.url("/gone")]}),
        ],
    );
    let report = host.caught_up("caller");
    assert_eq!(report["counts"]["dead_lettered"], 2, "{report}");
    let letters = host.events("caller.dead-letters");
    let words = format!("{letters:?} {report}");
    assert!(words.contains("the token is [secret]"), "{words}");
    assert!(words.contains("status 404: nothing here"), "{words}");
    assert_eq!(outside.came("/gone").len(), 1, "what was answered is final");
    host.until("its log is there", || {
        !host.events("caller.logs").is_empty()
    });
    let lines = format!("{:?}", host.events("caller.logs"));
    assert!(lines.contains("the token is [secret]"), "{lines}");
    assert!(!words.contains(SECRET) && !lines.contains(SECRET));
    let (status, refused) = deploy(&host, &outside, "?shadow=true");
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("not-deterministic")),
        "{refused}"
    );
    let path = "/v1/functions/caller/replay";
    let (status, refused) = host.send("POST", path, "application/json", "{\"verify\":true}");
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("replay-impossible")),
        "{refused}"
    );
}
