//! A host as a separate process on a free port, killed when dropped.

use crate::program;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Settings of a host under test, as environment variables (`TIDEMILL_LOG__SEGMENT_AGE`, `1s`).
pub type Settings<'a> = &'a [(&'a str, &'a str)];

/// How long anything may take before a test calls it hanging.
const PATIENCE: Duration = Duration::from_secs(120);

/// `$1` mount point, `$2` size, `$3` program; keeps the process number.
const MOUNT_AND_SERVE: &str = r#"mount -t tmpfs -o "size=$2" tmpfs "$1" && exec "$3" serve --listen 127.0.0.1:0 --dir "$1/data""#;

/// A running host.
pub struct Host {
    process: Child,
    address: String,
    client: reqwest::blocking::Client,
}

impl Host {
    /// Starts a host on a directory and waits until it is ready.
    pub fn start(dir: &Path, settings: Settings<'_>) -> Self {
        Self::try_start(dir, settings)
            .unwrap_or_else(|stderr| panic!("the host did not start: {stderr}"))
    }

    /// Starts a host; gives its standard error if it ends instead of becoming ready.
    pub fn try_start(dir: &Path, settings: Settings<'_>) -> Result<Self, String> {
        let mut command = Command::new(program());
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--dir"])
            .arg(dir);
        Self::launch(command, settings)
    }

    /// Starts a host whose directory is a small disk (a `tmpfs` of `size`, as `mount` writes it) that only
    /// the host sees; others reach it through `/proc/PID/root`.
    pub fn start_on_small_disk(mount_point: &Path, size: &str, settings: Settings<'_>) -> Self {
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            MOUNT_AND_SERVE,
            "sh",
        ]);
        command.arg(mount_point).arg(size).arg(program());
        Self::launch(command, settings)
            .unwrap_or_else(|stderr| panic!("the host did not start on a small disk: {stderr}"))
    }

    fn launch(mut command: Command, settings: Settings<'_>) -> Result<Self, String> {
        let mut process = command
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("tidemill serve runs");
        let errors = process.stderr.take().expect("piped");
        let collected = std::thread::spawn(move || {
            let lines: Vec<String> = BufReader::new(errors)
                .lines()
                .map_while(Result::ok)
                .collect();
            lines.join("\n")
        });
        let first_line = BufReader::new(process.stdout.take().expect("piped"))
            .lines()
            .next();
        let Some(Ok(line)) = first_line else {
            let status = process.wait().expect("ended");
            return Err(format!(
                "{status}\n{}",
                collected.join().expect("collected")
            ));
        };
        let address = line
            .split_whitespace()
            .find_map(|word| word.trim_end_matches('/').strip_prefix("http://"))
            .unwrap_or_else(|| panic!("no address in {line:?}"))
            .to_owned();
        // The client is built without a TLS provider of its own; only the first of a process counts.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::blocking::Client::builder()
            .timeout(PATIENCE)
            .build()
            .expect("client");
        let host = Self {
            process,
            address,
            client,
        };
        host.until("ready", || host.get("/readyz").0 == 200);
        Ok(host)
    }

    /// `http://address/path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Process number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The client, for requests of one's own.
    pub fn client(&self) -> &reqwest::blocking::Client {
        &self.client
    }

    /// Status and JSON of a GET.
    pub fn get(&self, path: &str) -> (u16, Value) {
        self.answer(self.client.get(self.url(path)))
    }

    /// Status and JSON of a request with a body.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<reqwest::blocking::Body>,
    ) -> (u16, Value) {
        let method = method.parse().expect("method");
        self.answer(
            self.client
                .request(method, self.url(path))
                .header("content-type", content_type)
                .body(body),
        )
    }

    /// Creates a topic.
    pub fn topic(&self, name: &str, settings: &Value) {
        let (status, answer) = self.send(
            "PUT",
            &format!("/v1/topics/{name}"),
            "application/json",
            settings.to_string(),
        );
        assert!(status == 201 || status == 200, "{status} {answer}");
    }

    /// Appends values as NDJSON; gives the answer.
    pub fn append(&self, topic: &str, lines: &[Value]) -> Value {
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let (status, answer) = self.send(
            "POST",
            &format!("/v1/topics/{topic}/events"),
            "application/x-ndjson",
            body,
        );
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Deploys a component.
    pub fn deploy(&self, name: &str, component: &Path, query: &str) -> (u16, Value) {
        let bytes = std::fs::read(component).expect("component");
        self.send(
            "PUT",
            &format!("/v1/functions/{name}{query}"),
            "application/wasm",
            bytes,
        )
    }

    /// Deploys a component with a manifest beside it.
    pub fn deploy_with(&self, name: &str, component: &Path, manifest: String) -> (u16, Value) {
        let form = reqwest::blocking::multipart::Form::new()
            .file("component", component)
            .expect("component")
            .text("manifest", manifest);
        let path = self.url(&format!("/v1/functions/{name}"));
        self.answer(self.client.put(path).multipart(form))
    }

    /// All events of a topic, from its beginning to its committed end.
    pub fn events(&self, topic: &str) -> Vec<Value> {
        let mut events = Vec::new();
        let mut cursor = "from=earliest".to_owned();
        loop {
            let (status, page) = self.get(&format!(
                "/v1/topics/{topic}/events?{cursor}&limit=10000&max_bytes=16777216"
            ));
            assert_eq!(status, 200, "{page}");
            let some = page["events"].as_array().expect("events");
            if some.is_empty() {
                return events;
            }
            events.extend(some.iter().cloned());
            cursor = format!("cursor={}", page["next"].as_str().expect("next"));
        }
    }

    /// Waits until a function has no lag.
    pub fn caught_up(&self, function: &str) -> Value {
        let mut last = json!(null);
        self.until(&format!("{function} has caught up"), || {
            let (status, report) = self.get(&format!("/v1/functions/{function}"));
            assert_eq!(status, 200, "{report}");
            let done = report["tasks"]
                .as_array()
                .is_some_and(|tasks| tasks.iter().all(|task| task["lag"] == 0));
            last = report;
            done
        });
        last
    }

    /// Asks until it is so.
    pub fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        self.until_ok(what, || is_so().then_some(()).ok_or_else(String::new));
    }

    /// Asks until there is no difference to what is wanted; tells the last one if that takes too long.
    #[expect(
        clippy::disallowed_methods,
        reason = "polls a separate process; what is asserted doesn't depend on the pause"
    )]
    pub fn until_ok(&self, what: &str, mut ask: impl FnMut() -> Result<(), String>) {
        let start = Instant::now();
        while let Err(difference) = ask() {
            let waited = start.elapsed();
            assert!(
                waited < PATIENCE,
                "waited too long until {what} {difference}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL, as a crash.
    pub fn kill(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("reaped");
    }

    /// SIGTERM; gives the exit status.
    pub fn terminate(mut self) -> std::process::ExitStatus {
        let sent = Command::new("kill")
            .arg(self.pid().to_string())
            .status()
            .expect("kill runs");
        assert!(sent.success());
        self.process.wait().expect("ended")
    }

    fn answer(&self, request: reqwest::blocking::RequestBuilder) -> (u16, Value) {
        let response = request.send().expect("an answer");
        let status = response.status().as_u16();
        let text = response.text().expect("a body");
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (status, value)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
