//! A real S3 server (SeaweedFS) on free ports of the loopback, stopped when dropped. It can be stopped
//! and started again over the same data, as a storage that goes away and comes back.

use crate::python;
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BUCKET: &str = "test";
const KEY: &str = "tester";
const SECRET: &str = "tester-secret";
/// How long a start may take before a test calls it hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server, with one bucket.
pub struct S3 {
    dir: TempDir,
    ports: Vec<u16>,
    client: reqwest::blocking::Client,
    process: Option<Child>,
}

impl S3 {
    /// Starts it over empty data.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let identities = serde_json::json!({"identities": [{
            "name": KEY,
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]});
        std::fs::write(dir.path().join("identities.json"), identities.to_string())
            .expect("written");
        std::fs::create_dir(dir.path().join("data")).expect("made");
        // Only the first of a process counts.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::blocking::Client::builder()
            .timeout(Duration::from_secs(10))
            .build()
            .expect("client");
        let mut server = Self {
            dir,
            ports: free_ports(8),
            client,
            process: None,
        };
        server.go();
        server.until("the bucket is there", |server| {
            let made = server.client.post(server.filer("")).send();
            made.is_ok_and(|answer| answer.status().is_success())
        });
        server
    }

    /// Settings of a host that keeps its objects below `prefix` of the bucket.
    pub fn settings(&self, prefix: &str) -> Vec<(String, String)> {
        let option =
            |name: &str, value: String| (format!("TIDEMILL_STORAGE__OPTIONS__{name}"), value);
        vec![
            (
                "TIDEMILL_STORAGE__URL".into(),
                format!("s3://{BUCKET}/{prefix}"),
            ),
            option(
                "AWS_ENDPOINT",
                format!("http://127.0.0.1:{}", self.ports[7]),
            ),
            option("AWS_REGION", "us-east-1".into()),
            option("AWS_ACCESS_KEY_ID", KEY.into()),
            option("AWS_SECRET_ACCESS_KEY", SECRET.into()),
            option("AWS_ALLOW_HTTP", "true".into()),
        ]
    }

    /// Stops it; what it was told is kept.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = Command::new("kill").arg(process.id().to_string()).status();
            let start = Patience::begins();
            while process.try_wait().is_ok_and(|ended| ended.is_none()) {
                if start.is_over() {
                    let _ = process.kill();
                }
                pause();
            }
        }
    }

    /// Starts it again where it was.
    pub fn go(&mut self) {
        let port = |nth: usize| self.ports[nth].to_string();
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let log = std::fs::File::create(self.dir.path().join("log")).expect("log");
        let process = Command::new(python::bin().join("weed"))
            .args(["-logtostderr=true", "server", "-dir", &path("data")])
            .args(["-ip", "127.0.0.1", "-ip.bind", "127.0.0.1"])
            .args(["-master.telemetry=false", "-master.port", &port(0)])
            .args([
                "-master.port.grpc",
                &port(1),
                "-master.volumeSizeLimitMB",
                "64",
            ])
            .args(["-volume.max", "50", "-volume.port", &port(2)])
            .args([
                "-volume.port.grpc",
                &port(3),
                "-filer",
                "-filer.port",
                &port(4),
            ])
            .args([
                "-filer.port.grpc",
                &port(5),
                "-filer.localSocket",
                &path("filer.sock"),
            ])
            .args(["-s3", "-s3.port", &port(7), "-s3.port.grpc", &port(6)])
            .args([
                "-s3.config",
                &path("identities.json"),
                "-s3.localSocket",
                &path("s3.sock"),
            ])
            .args(["-s3.port.iceberg", "0", "-s3.port.lance", "0"])
            .current_dir(self.dir.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("weed runs");
        self.process = Some(process);
        self.until("it answers", |server| {
            let s3 = format!("http://127.0.0.1:{}/", server.ports[7]);
            let listed = server.client.get(server.filer_root()).send();
            server.client.get(s3).send().is_ok()
                && listed.is_ok_and(|answer| answer.status().is_success())
        });
    }

    /// Copies all objects below a folder of the bucket into a folder, by another door than S3.
    pub fn copy(&self, folder: &str, to: &Path) {
        let url = format!("{}?limit=10000", self.filer(&format!("{folder}/")));
        let listed = self.client.get(url).header("accept", "application/json");
        let listed: Value = listed.send().expect("listed").json().expect("JSON");
        std::fs::create_dir_all(to).expect("made");
        for entry in listed["Entries"].as_array().into_iter().flatten() {
            let path = entry["FullPath"].as_str().expect("path");
            let name = path.rsplit('/').next().expect("name");
            let is_folder = entry["Mode"].as_u64().expect("mode") & (1 << 31) != 0;
            match is_folder {
                true => self.copy(&format!("{folder}/{name}"), &to.join(name)),
                false => {
                    let object = self.client.get(self.filer(&format!("{folder}/{name}")));
                    let bytes = object.send().expect("answer").bytes().expect("body");
                    std::fs::write(to.join(name), bytes).expect("written");
                }
            }
        }
    }

    fn filer_root(&self) -> String {
        format!("http://127.0.0.1:{}/", self.ports[4])
    }

    fn filer(&self, path: &str) -> String {
        format!("{}buckets/{BUCKET}/{path}", self.filer_root())
    }

    fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Patience::begins();
        while !is_so(self) {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(!start.is_over(), "waited too long until {what}: {}", log());
            pause();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "polls a separate process; what is asserted doesn't depend on the pause"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// When a separate process has taken too long.
struct Patience(Instant);

impl Patience {
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for a separate process; nothing but a hang is asserted of it"
    )]
    fn begins() -> Self {
        Self(Instant::now())
    }

    fn is_over(&self) -> bool {
        self.0.elapsed() > PATIENCE
    }
}

/// Ports that are free as long as nobody else takes them.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
        .collect();
    let port = |it: &TcpListener| it.local_addr().expect("address").port();
    held.iter().map(port).collect()
}

impl Drop for S3 {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
