//! A small HTTP server that stands for the outside of a test. Included with `#[path]`.
#![allow(
    unreachable_pub,
    dead_code,
    reason = "some crates that include this offer it to others, and each looks at something else"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A request that came.
#[derive(Clone, Debug)]
#[allow(
    dead_code,
    reason = "each test that includes this looks at something else"
)]
pub struct Came {
    /// Its path and query.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
}

impl Came {
    /// The key by which it is known again.
    pub fn key(&self) -> &str {
        &self.headers["idempotency-key"]
    }
}

/// Status and body; `None`: silence.
pub type Reply = Option<(u16, String)>;

type Answering = dyn Fn(&Came, usize) -> Reply + Send + Sync;

/// The server. It answers until the test ends.
pub struct Outside {
    address: String,
    came: Arc<(Mutex<Vec<Came>>, Condvar)>,
}

impl Outside {
    /// Answers each request by its path and how often that path was asked for before.
    pub fn start(answering: impl Fn(&Came, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let came: Arc<(Mutex<Vec<Came>>, Condvar)> = Arc::default();
        let answering: Arc<Answering> = Arc::new(answering);
        let all = Arc::clone(&came);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (all, answering) = (Arc::clone(&all), Arc::clone(&answering));
                std::thread::spawn(move || serve(stream, &all, &*answering));
            }
        });
        Self { address, came }
    }

    /// `http://127.0.0.1:port/path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests so far to a path.
    pub fn came(&self, path: &str) -> Vec<Came> {
        let all = self.came.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .filter(|came| came.path == path)
            .cloned()
            .collect()
    }

    /// Waits until so many requests to a path have come.
    pub fn wait(&self, path: &str, count: usize) -> Vec<Came> {
        let (all, more) = &*self.came;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let found: Vec<_> = all
                .iter()
                .filter(|came| came.path == path)
                .cloned()
                .collect();
            if found.len() >= count {
                return found;
            }
            all = more.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn serve(mut stream: TcpStream, all: &(Mutex<Vec<Came>>, Condvar), answering: &Answering) {
    let Some(came) = read(&stream) else { return };
    let before = {
        let mut known = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.iter().filter(|other| other.path == came.path).count();
        known.push(came.clone());
        all.1.notify_all();
        before
    };
    match answering(&came, before) {
        Some((status, body)) => {
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} Told\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
        None => {
            // Until the other end goes.
            let _ = stream.read(&mut [0; 1]);
        }
    }
}

fn read(stream: &TcpStream) -> Option<Came> {
    let mut lines = BufReader::new(stream);
    let mut first = String::new();
    lines.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(Some(0), |n| n.parse().ok())?;
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some(Came {
        path,
        headers,
        body: String::from_utf8(body).ok()?,
    })
}
