//! Server-sent events: a stream that goes on until the reader leaves; each event's id is the cursor
//! behind it, so that a browser resumes by itself.

use super::cursor::Cursor;
use super::event::{Layout, write};
use super::gather::{Want, arrival, page};
use crate::app::App;
use crate::budget::Hold;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tidemill_log::{ReadLimit, Topic};

/// A comment keeps proxies from cutting a silent connection.
const SILENCE: Duration = Duration::from_secs(15);

/// The answer whose body is the stream.
pub(super) fn answer(
    app: Arc<App>,
    topic: Arc<Topic>,
    cursor: Cursor,
    limit: ReadLimit,
) -> Response<Body> {
    let hold = app.leaving.hold();
    let stream = futures::stream::unfold(
        Some((app, topic, cursor, limit, hold)),
        |state| async move {
            let (app, topic, cursor, limit, mut hold) = state?;
            // The last part is sent.
            hold.release();
            let (bytes, cursor) = next(&app, &topic, cursor, limit, &mut hold).await?;
            hold.shrink(bytes.len());
            let state = cursor.map(|cursor| (app, topic, cursor, limit, hold));
            Some((Ok::<_, Infallible>(Bytes::from(bytes)), state))
        },
    );
    let mut answer = Response::new(Body::from_stream(stream));
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

/// The next part of the stream and where it goes on; without that it ends there.
async fn next(
    app: &App,
    topic: &Topic,
    cursor: Cursor,
    limit: ReadLimit,
    hold: &mut Hold,
) -> Option<(Vec<u8>, Option<Cursor>)> {
    let before = cursor.clone();
    let page = match page(
        app,
        topic,
        cursor,
        Want {
            limit,
            wait: Duration::ZERO,
        },
        hold,
    )
    .await
    {
        Ok(page) => page,
        // The stream goes on once others have given back what they took.
        Err(problem) if problem.code == "busy" => {
            return Some((b": busy\n\n".to_vec(), Some(before)));
        }
        Err(problem) => {
            let told = serde_json::json!({"code": problem.code, "detail": problem.detail});
            return Some((
                format!("event: problem\ndata: {told}\n\n").into_bytes(),
                None,
            ));
        }
    };
    if page.count == 0 {
        return tokio::select! {
            biased;
            () = app.stopping.cancelled() => None,
            came = arrival(app, topic, &page.next) => match came {
                Ok(true) => Some((Vec::new(), Some(page.next.clone()))),
                _ => None,
            },
            () = app.clock.sleep(SILENCE) => Some((b": still here\n\n".to_vec(), Some(page.next.clone()))),
        };
    }
    let mut out = Vec::with_capacity(page.bytes * 3 / 2);
    let mut reached = before;
    for (partition, event) in page.events() {
        if let Some(position) = reached.0.iter_mut().find(|(known, _)| *known == partition) {
            position.1 = event.offset + 1;
        }
        out.extend_from_slice(format!("id: {reached}\ndata: ").as_bytes());
        let format = topic.settings.format;
        write(&mut out, format, partition, &event, Layout::OneLine);
        out.extend_from_slice(b"\n\n");
    }
    Some((out, Some(page.next)))
}
