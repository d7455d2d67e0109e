//! HTTP to the outside, for functions that were granted it: one call at a time, to addresses that may be
//! called, within a time and a size. Follows no redirects, keeps no cookies, uses no proxy.
//!
//! Which addresses a host name stands for is looked at after it was resolved, and exactly those that were
//! looked at are connected to; so a name can't lead to what lies behind the host ([`Networks`]).

mod network;
mod reach;
#[cfg(test)]
mod tests;

pub use network::{Network, Networks};
pub use reach::Reach;

use bytes::{Bytes, BytesMut};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tidemill_types::{ByteSize, Error, Result, format_duration};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection is kept that isn't used.
const IDLE: Duration = Duration::from_secs(30);
/// Most headers of a request.
const HEADERS: usize = 64;
/// Header that says which calls are the same call.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Headers that belong to the connection or to the host, not to who makes the call.
const RESERVED: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    IDEMPOTENCY_KEY,
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A call that can be made: its parts are what HTTP takes.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers in the order they came, names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, as it was sent.
    pub body: Bytes,
}

/// Why a call brought no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// The kind.
    pub kind: CallErrorKind,
    /// What happened, where, and what to do.
    pub message: String,
}

/// Kinds of [`CallError`]: a caller may do something else for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallErrorKind {
    /// It may not be made; nothing was sent.
    Denied,
    /// No connection was made; nothing was sent.
    Connect,
    /// There was no whole answer in time; what was asked for may have been done.
    Timeout,
    /// The answer is larger than it may be; what was asked for may have been done.
    TooLarge,
    /// The connection broke, or what came was no HTTP; what was asked for may have been done.
    Broken,
}

impl CallErrorKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Denied,
        Self::Connect,
        Self::Timeout,
        Self::TooLarge,
        Self::Broken,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::TooLarge => "too-large",
            Self::Broken => "broken",
        }
    }
}

impl CallError {
    fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// It may not be made.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(CallErrorKind::Denied, message)
    }
}

impl Request {
    /// Takes the parts of a call.
    ///
    /// # Errors
    /// `Denied`, with what is wrong: an address that is none or names a user, a method or a header that HTTP
    /// doesn't take, or a header that is the host's to set.
    pub fn new(
        method: &str,
        url: &str,
        headers: &[(String, Vec<u8>)],
        body: Vec<u8>,
    ) -> Result<Self, CallError> {
        let method = Method::from_bytes(method.as_bytes())
            .ok()
            .filter(|known| reach::METHODS.contains(&known.as_str()))
            .ok_or_else(|| {
                let known = reach::METHODS.join(", ");
                CallError::denied(format!("{method:?} is none of the methods {known}"))
            })?;
        let url = reach::parse(url).map_err(CallError::denied)?;
        if headers.len() > HEADERS {
            let count = headers.len();
            return Err(CallError::denied(format!(
                "{count} headers are more than a call may have ({HEADERS})"
            )));
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let wrong = |what: &str| CallError::denied(format!("header {name:?} {what}"));
            let known = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong("has a name that HTTP doesn't take"))?;
            if RESERVED.contains(&known.as_str()) {
                return Err(wrong("is set by the host; leave it out"));
            }
            let mut value = HeaderValue::from_bytes(value)
                .map_err(|_| wrong("has a value that HTTP doesn't take"))?;
            value.set_sensitive(true);
            all.append(known, value);
        }
        Ok(Self {
            method,
            url,
            headers: all,
            body: body.into(),
        })
    }

    /// Its method.
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// Its address, as it is sent.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Method and address without the query, for people: a query may hold what is nobody's business.
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        format!("{} {url}", self.method)
    }

    /// Bytes that are sent, but for what HTTP adds.
    pub fn size(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len());
        self.url.as_str().len() + headers.sum::<usize>() + self.body.len()
    }

    /// Hands over all that makes it what it is, part by part: the same parts, the same call.
    pub fn parts(&self, mut each: impl FnMut(&[u8])) {
        each(self.method.as_str().as_bytes());
        each(self.url.as_str().as_bytes());
        for (name, value) in &self.headers {
            each(name.as_str().as_bytes());
            each(value.as_bytes());
        }
        each(&self.body);
    }
}

/// Makes calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outside {
    client: Client,
    networks: Networks,
}

impl Outside {
    /// A client that connects to public addresses and to those of `networks`.
    ///
    /// # Errors
    /// When the machine's certificates can't be read.
    pub fn open(networks: Networks) -> Result<Self> {
        // The first caller in the process chooses; a second one finds the same choice made.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Looking(networks.clone()))
            .build()
            .map_err(|error| Error::internal(format!("no HTTP to the outside: {}", all(&error))))?;
        Ok(Self { client, networks })
    }

    /// Makes a call: once, and to its end or to that of `time`. The answer, with its headers, may have `most` bytes.
    ///
    /// # Errors
    /// See [`CallErrorKind`].
    pub async fn call(
        &self,
        request: &Request,
        idempotency_key: &str,
        (time, most): (Duration, ByteSize),
    ) -> Result<Answer, CallError> {
        if let Some(address) = address_of(&request.url) {
            self.networks.check(address).map_err(CallError::denied)?;
        }
        let key = HeaderValue::from_str(idempotency_key)
            .map_err(|_| CallError::denied("its idempotency key is no text of HTTP"))?;
        let mut headers = request.headers.clone();
        headers.insert(IDEMPOTENCY_KEY, key);
        let sent = self
            .client
            .request(request.method.clone(), request.url.clone())
            .headers(headers)
            .body(request.body.clone());
        let answered = async {
            let response = sent.send().await.map_err(|error| failed(request, &error))?;
            read(request, response, most).await
        };
        match tokio::time::timeout(time, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::new(
                CallErrorKind::Timeout,
                format!(
                    "{}: no whole answer within {}",
                    request.shown(),
                    format_duration(time)
                ),
            )),
        }
    }
}

async fn read(
    request: &Request,
    mut response: reqwest::Response,
    most: ByteSize,
) -> Result<Answer, CallError> {
    let headers: Vec<_> = response
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect();
    let heads: usize = headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let (status, room) = (response.status().as_u16(), most.as_usize());
    let mut body = BytesMut::new();
    loop {
        if heads + body.len() > room {
            return Err(CallError::new(
                CallErrorKind::TooLarge,
                format!(
                    "{}: the answer is larger than {most} (grants.answer_bytes)",
                    request.shown()
                ),
            ));
        }
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(error) => return Err(failed(request, &error)),
        }
    }
    Ok(Answer {
        status,
        headers,
        body: body.freeze(),
    })
}

/// What the client's error means.
fn failed(request: &Request, error: &reqwest::Error) -> CallError {
    let shown = request.shown();
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(at) = cause {
        if let Some(refused) = at.downcast_ref::<Refused>() {
            return CallError::denied(format!("{shown}: {}", refused.0));
        }
        cause = at.source();
    }
    let kind = if error.is_connect() {
        CallErrorKind::Connect
    } else if error.is_timeout() {
        CallErrorKind::Timeout
    } else {
        CallErrorKind::Broken
    };
    // Its own words name the whole address.
    let why = error.source().map_or_else(|| "it failed".into(), all);
    CallError::new(kind, format!("{shown}: {why}"))
}

/// An error with its causes.
fn all(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(at) = cause {
        let more = at.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = at.source();
    }
    text
}

/// The address that a URL names instead of a host: nothing is resolved then.
fn address_of(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// None of the addresses that a name stands for may be called.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Refused {}

/// Resolves names to addresses that may be called.
struct Looking(Networks);

impl Resolve for Looking {
    fn resolve(&self, name: Name) -> Resolving {
        let networks = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut refused = None;
            let mut allowed: Vec<SocketAddr> = Vec::new();
            for address in found {
                match networks.check(address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            match refused {
                Some(why) if allowed.is_empty() => {
                    Err(Refused(format!("{} resolves to {why}", name.as_str())).into())
                }
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}
