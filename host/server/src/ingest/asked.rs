//! Events that a function is asked about: taken as if they were appended to its input, and appended nowhere.

use super::answer::refused;
use super::plan::{Form, Plan};
use super::rows::{Letter, Rows};
use super::{Front, off_path, parse};
use crate::app::App;
use crate::body::{self, BodyReader, Encoding, Patience, content_length, decompress};
use crate::problem::{Answer, Problem};
use crate::query::Params;
use axum::extract::Request;
use tidemill_log::Topic;
use tidemill_types::PackedRows;

/// Query parameters that say how events are taken.
pub(crate) const ASKED_QUERY: [&str; 2] = ["key", "key_pointer"];

/// Most events shrink to a tenth or less when they are compressed.
const UNPACKED: usize = 16;

/// The events of a request, with what counts their memory; one that the topic wouldn't take, or would put among
/// its dead letters, refuses all.
pub(crate) async fn asked(
    app: &App,
    topic: &Topic,
    params: &Params<'_>,
    request: Request,
) -> Answer<(PackedRows, BodyReader)> {
    let (parts, body) = request.into_parts();
    let plan = Plan::with(app, topic, (&parts.headers, params), None)?;
    let most = app.http.body_bytes.as_usize();
    if content_length(&parts.headers).is_some_and(|length| length > most) {
        return Err(body::too_large(most, ""));
    }
    let patience = Patience::Whole(app.http.body_timeout);
    let mut reader = BodyReader::new(body, app.clock.clone(), patience).counted(&app.arriving);
    let mut came = Vec::new();
    let read = reader.read_whole(most, |part| came.extend_from_slice(part));
    read.await?;
    let (mut front, mut payload) = (Front::default(), Vec::new());
    let mut take = |bytes: &[u8]| match plan.form {
        Form::Packed => front.take(bytes, &mut payload),
        _ => payload.extend_from_slice(bytes),
    };
    let copied = most.min(came.len().saturating_mul(UNPACKED));
    if let Some(hold) = reader.hold() {
        hold.grow(copied).await?;
    }
    match plan.encoding {
        Encoding::Identity => take(&came),
        encoding => off_path(usize::MAX, || decompress(encoding, &came, most, &mut take))?,
    }
    drop(came);
    let mut rows = Rows::over(payload.len());
    off_path(payload.len(), || parse(&plan, &mut rows, front, &payload))?;
    if let Some(Letter { wrong, .. }) = rows.letters.first() {
        let (letters, reason) = (rows.letters.len(), &wrong.reason);
        let detail = format!(
            "{letters} of the events would be dead letters of topic {} and never get to the function; the first because {reason}",
            topic.name
        );
        return Err(Problem::because("invalid-events", detail));
    }
    if rows.is_empty() || rows.refused > 0 {
        return Err(Box::new(refused(rows.refused, &rows.refusals)));
    }
    rows.finish(&mut payload);
    let heads = rows.heads;
    Ok((PackedRows { payload, heads }, reader))
}
