//! A replay whose outputs are the answer: one event a line as they come, and what it came to in the last.

use super::{accepted, emitted};
use crate::app::App;
use crate::problem::Answer;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tidemill_processor::{Replay, Replayed};
use tidemill_types::Result;
use tokio::sync::mpsc::Receiver;

/// After so long without events comes an empty line: whoever reads knows that there is somebody.
const SILENCE: Duration = Duration::from_secs(15);

/// Runs a replay for its outputs.
pub(super) async fn answer(app: Arc<App>, name: &str, replay: Replay) -> Answer {
    let coming = app.processor.replay_stream(name, replay).await;
    let coming = accepted(&app, name, coming)?;
    let lines = Lines {
        app,
        coming: Some(coming),
        emitted: 0,
        stopped: Vec::new(),
    };
    let lines = futures::stream::unfold(lines, |mut lines| async move {
        let part = lines.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(part)), lines))
    });
    let mut answer = Response::new(Body::from_stream(lines));
    let kind = HeaderValue::from_static("application/x-ndjson");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(answer)
}

struct Lines {
    app: Arc<App>,
    /// `None` behind the last line.
    coming: Option<Receiver<Result<Replayed>>>,
    emitted: u64,
    stopped: Vec<(u32, String)>,
}

impl Lines {
    /// The next lines. Where the host stops there is no last line: what came isn't all.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let coming = self.coming.as_mut()?;
            let came = tokio::select! {
                biased;
                () = self.app.stopping.cancelled() => return None,
                came = coming.recv() => came?,
                () = self.app.clock.sleep(SILENCE) => return Some(b"\n".to_vec()),
            };
            match came {
                Ok(Replayed::Events(events)) => {
                    self.emitted += events.len() as u64;
                    let mut out = Vec::new();
                    for event in &events {
                        emitted::write(&self.app, &mut out, event);
                        out.push(b'\n');
                    }
                    return Some(out);
                }
                Ok(Replayed::Stopped(partition, why)) => self.stopped.push((partition, why)),
                Ok(Replayed::Done) => return Some(self.last()),
                Err(error) => {
                    self.coming = None;
                    let wrong = json!({"error": {"code": error.code, "detail": error.detail}});
                    return Some(format!("{wrong}\n").into_bytes());
                }
            }
        }
    }

    fn last(&mut self) -> Vec<u8> {
        self.coming = None;
        self.stopped.sort();
        let stopped = super::replays::ends(&self.stopped);
        let last = json!({"done": {"emitted": self.emitted, "stopped": stopped}});
        format!("{last}\n").into_bytes()
    }
}
