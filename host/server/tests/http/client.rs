//! A host under test and a client that sends exactly the bytes it is told to.

use serde_json::Value;
use std::net::SocketAddr;
use tempfile::TempDir;
use tidemill_server::{Config, Host};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A host on a fresh directory.
pub(crate) struct TestHost {
    host: Host,
    pub(crate) dir: TempDir,
}

impl TestHost {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    /// With some settings of its own.
    pub(crate) async fn with(change: impl Fn(&mut Config)) -> Self {
        Self::over(tempfile::tempdir().unwrap(), change).await
    }

    /// On a directory that may have been used before.
    pub(crate) async fn over(dir: TempDir, change: impl Fn(&mut Config)) -> Self {
        let host = Host::start(config(&dir, change)).await.unwrap();
        Self { host, dir }
    }

    /// Stops it; gives the directory.
    pub(crate) async fn stop(self) -> TempDir {
        self.host.stop().await.unwrap();
        self.dir
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.host.address()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Sends a request and reads its answer; `head` is the method, the path and header lines.
    pub(crate) async fn send(&self, head: &str, body: impl AsRef<[u8]>) -> Reply {
        let body = body.as_ref();
        let length = if body.is_empty() && !head.starts_with('P') {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len())
        };
        let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
        let headers: String = headers
            .lines()
            .map(|line| format!("{}\r\n", line.trim()))
            .collect();
        let mut bytes =
            format!("{first} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{length}{headers}\r\n")
                .into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path}"), "").await
    }

    pub(crate) async fn put(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send(&format!("PUT {path}\ncontent-type: application/json"), body)
            .await
    }

    /// Appends to a topic.
    pub(crate) async fn post(
        &self,
        topic: &str,
        content_type: &str,
        body: impl AsRef<[u8]>,
    ) -> Reply {
        self.send(
            &format!("POST /v1/topics/{topic}/events\ncontent-type: {content_type}"),
            body,
        )
        .await
    }

    /// Sends bytes and reads the answer to its end.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Reply {
        let (mut read, mut write) = self.connect().await.into_split();
        let mut got = Vec::new();
        // The host may answer, and close, before it has read everything.
        let (_, _) = tokio::join!(write.write_all(bytes), read.read_to_end(&mut got));
        Reply::parse(&got)
    }

    /// All values of a topic, in the order of partitions and offsets.
    pub(crate) async fn values(&self, topic: &str) -> Vec<Value> {
        self.events(topic)
            .await
            .into_iter()
            .map(|mut event| event["value"].take())
            .collect()
    }

    /// All events of a topic.
    pub(crate) async fn events(&self, topic: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut start = "from=earliest".to_owned();
        loop {
            let mut page = self
                .get(&format!("/v1/topics/{topic}/events?{start}&limit=10000"))
                .await
                .ok();
            let Value::Array(events) = page["events"].take() else {
                panic!("{page}")
            };
            if events.is_empty() {
                all.sort_by_key(|event: &Value| {
                    (event["partition"].as_u64(), event["offset"].as_u64())
                });
                return all;
            }
            all.extend(events);
            start = format!("cursor={}", page["next"].as_str().unwrap());
        }
    }
}

/// Settings for a test: a port of its own, small and quick.
pub(crate) fn config(dir: &TempDir, change: impl Fn(&mut Config)) -> Config {
    let mut config = Config {
        dir: dir.path().join("data"),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..Config::default()
    };
    config.log.journal_file_bytes = tidemill_types::ByteSize::mib(8);
    config.log.reserve_bytes = tidemill_types::ByteSize(0);
    change(&mut config);
    config
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("no answer in {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status: u16 = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        if status == 100 {
            return Self::parse(&bytes[end + 4..]);
        }
        let headers: Vec<_> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut reply = Self {
            status,
            headers,
            body: bytes[end + 4..].to_vec(),
        };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = unchunk(&reply.body);
        }
        reply
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The JSON of a success.
    pub(crate) fn ok(&self) -> Value {
        assert!(
            (200..300).contains(&self.status),
            "{} {}",
            self.status,
            self.text()
        );
        self.json()
    }

    /// Checks that this is a problem with a status and a code; gives its detail.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(
            (
                self.status,
                problem["code"].as_str(),
                problem["status"].as_u64()
            ),
            (status, Some(code), Some(status.into())),
            "{problem}"
        );
        assert_eq!(problem["type"], format!("/v1/errors/{code}"));
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"));
        problem["detail"].as_str().unwrap().to_owned()
    }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let start = line + 2;
        if size == 0 || rest.len() < start + size {
            break;
        }
        out.extend_from_slice(&rest[start..start + size]);
        rest = &rest[(start + size + 2).min(rest.len())..];
    }
    out
}

/// A body in chunks of transfer encoding.
pub(crate) fn chunked(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    out
}
