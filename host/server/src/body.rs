//! Bodies as they arrive: bounded in bytes and in time, decompressed with a bound too.

use crate::app::App;
use crate::budget::{Budget, Hold};
use crate::problem::{Answer, Problem};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use tidemill_env::Clock;

/// Largest zstd window, as a power of two: what levels up to 19 use, and a bound on memory.
const ZSTD_WINDOW_LOG: u32 = 23;

/// How a body is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// From `Content-Encoding`.
    pub(crate) fn of(headers: &HeaderMap) -> Answer<Self> {
        let Some(value) = headers.get(header::CONTENT_ENCODING) else {
            return Ok(Self::Identity);
        };
        let name = value.to_str().unwrap_or("?").trim();
        for (known, encoding) in [
            ("identity", Self::Identity),
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("zstd", Self::Zstd),
        ] {
            if name.eq_ignore_ascii_case(known) {
                return Ok(encoding);
            }
        }
        Err(Problem::because(
            "unsupported-encoding",
            format!("Content-Encoding {name:?} is not taken; use gzip, zstd or identity"),
        ))
    }
}

/// `Content-Length`, if it is known.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// How long a body may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// All of it.
    Whole(Duration),
    /// Each pause in it.
    Pause(Duration),
}

/// Reads a body part by part.
pub(crate) struct BodyReader {
    body: Body,
    clock: Clock,
    patience: Patience,
    deadline: Option<BoxFuture<'static, ()>>,
    hold: Option<Hold>,
}

impl BodyReader {
    /// Reads `body`.
    pub(crate) fn new(body: Body, clock: Clock, patience: Patience) -> Self {
        Self {
            body,
            clock,
            patience,
            deadline: None,
            hold: None,
        }
    }

    /// Counts what arrives: it is kept until [`BodyReader::hold`] gives it back.
    pub(crate) fn counted(mut self, budget: &Budget) -> Self {
        self.hold = Some(budget.hold());
        self
    }

    /// What was counted so far.
    pub(crate) fn hold(&mut self) -> Option<&mut Hold> {
        self.hold.as_mut()
    }

    /// The next part; `None` at the end.
    pub(crate) async fn next(&mut self) -> Answer<Option<Bytes>> {
        loop {
            let frame = match self.patience {
                Patience::Pause(_) => {
                    self.deadline = None;
                    self.frame().await?
                }
                Patience::Whole(_) => self.frame().await?,
            };
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        if let Some(hold) = &mut self.hold {
                            hold.grow(bytes.len()).await?;
                        }
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    return Err(Problem::because(
                        "incomplete-body",
                        format!("the body breaks off: {error}"),
                    ));
                }
            }
        }
    }

    async fn frame(&mut self) -> Answer<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let (Patience::Whole(wait) | Patience::Pause(wait)) = self.patience;
        let clock = self.clock.clone();
        // Made only when the body makes us wait: most bodies are there already.
        let deadline = &mut self.deadline;
        let late = async {
            deadline
                .get_or_insert_with(|| Box::pin(async move { clock.sleep(wait).await }))
                .await;
        };
        tokio::select! {
            biased;
            frame = self.body.frame() => Ok(frame),
            () = late => Err(Problem::because("request-timeout", format!("the body did not arrive within {}", tidemill_types::format_duration(wait)))),
        }
    }

    /// Reads and forgets what a refused client still sends, up to a bound, so that it gets to read the answer.
    pub(crate) async fn drain(&mut self) {
        const MOST: usize = 8 << 20;
        self.patience = Patience::Pause(Duration::from_secs(1));
        self.hold = None;
        let mut drained = 0;
        while drained < MOST
            && let Ok(Some(bytes)) = self.next().await
        {
            drained += bytes.len();
        }
    }

    /// Gives the whole body to `take`, in parts, refusing more than `most` bytes.
    pub(crate) async fn read_whole(
        &mut self,
        most: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Answer<()> {
        let mut read = 0_usize;
        loop {
            let bytes = match self.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(()),
                Err(problem) => {
                    if problem.code == "busy" {
                        self.drain().await;
                    }
                    return Err(problem);
                }
            };
            read += bytes.len();
            if read > most {
                self.drain().await;
                return Err(too_large(most, ""));
            }
            take(&bytes);
        }
    }
}

/// A body above its limit.
pub(crate) fn too_large(most: usize, after: &str) -> Box<Problem> {
    let problem = Problem::new(
        "too-large",
        format!(
            "the body is larger than {most} bytes{after}; send fewer events per request, or stream them as NDJSON, without Producer-Id, Idempotency-Key and If-Match, whose requests are one commit"
        ),
    );
    Box::new(problem.member("limit", most))
}

/// Decompresses a whole body into `take`, refusing more than `most` bytes.
pub(crate) fn decompress(
    encoding: Encoding,
    compressed: &[u8],
    most: usize,
    mut take: impl FnMut(&[u8]),
) -> Answer<()> {
    let broken = |error: std::io::Error| {
        Problem::because(
            "incomplete-body",
            format!("the compressed body can't be read: {error}"),
        )
    };
    let mut reader: Box<dyn Read> = match encoding {
        Encoding::Identity => Box::new(compressed),
        Encoding::Gzip => Box::new(flate2::read::MultiGzDecoder::new(compressed)),
        Encoding::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(compressed).map_err(broken)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(broken)?;
            Box::new(decoder)
        }
    };
    let mut part = vec![0; 64 << 10];
    let mut read_in_all = 0;
    loop {
        let read = reader.read(&mut part).map_err(broken)?;
        if read == 0 {
            return Ok(());
        }
        read_in_all += read;
        if read_in_all > most {
            return Err(too_large(most, " after decompression"));
        }
        take(&part[..read]);
    }
}

/// Reads a small JSON body; none at all is an empty object. Unknown members are refused by name.
pub(crate) async fn read_json<T: DeserializeOwned>(app: &App, request: Request) -> Answer<T> {
    const MOST: usize = 1 << 20;
    let (parts, body) = request.into_parts();
    let bytes = read_bytes(app, body, MOST).await?;
    if bytes.is_empty() {
        return serde_json::from_str("{}").map_err(|error| {
            Problem::because("invalid-request", format!("a body is needed: {error}"))
        });
    }
    let content_type = parts
        .headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.to_str().unwrap_or("?"));
    if let Some(other) =
        content_type.filter(|given| !given.to_ascii_lowercase().starts_with("application/json"))
    {
        return Err(Problem::because(
            "unsupported-media-type",
            format!("Content-Type {other:?} is not taken here; send application/json"),
        ));
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::because("invalid-request", format!("the body: {error}")))
}

/// Reads a whole body.
pub(crate) async fn read_bytes(app: &App, body: Body, most: usize) -> Answer<Vec<u8>> {
    let mut reader = BodyReader::new(
        body,
        app.clock.clone(),
        Patience::Pause(app.http.body_timeout),
    );
    let mut bytes = Vec::new();
    reader
        .read_whole(most, |part| bytes.extend_from_slice(part))
        .await?;
    Ok(bytes)
}

/// An answer in JSON.
pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Response<Body> {
    json_text_answer(status, body.to_string())
}

/// An answer whose JSON text is there already.
pub(crate) fn json_text_answer(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    answer
}
