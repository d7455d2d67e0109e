//! State of a function, as it is committed: one key, or the entries of a slot.

use super::found;
use crate::app::{App, Shared, not_found};
use crate::body::json_text_answer;
use crate::problem::{Answer, Problem};
use crate::query::Params;
use crate::read::{json_or_base64, text_or_base64};
use crate::suggest::nearest;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use tidemill_processor::{Manifest, SlotKind, StateEntry};
use tidemill_types::{Error, Result};

/// Query parameters.
pub(crate) const STATE_QUERY: &[&str] = &[
    "slot",
    "key",
    "key_base64",
    "entry",
    "entry_base64",
    "prefix",
    "limit",
    "cursor",
];

const DEFAULT_ENTRIES: usize = 100;
const MOST_ENTRIES: usize = 10_000;

/// Shows state.
pub(crate) async fn state(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::read(query.as_deref(), STATE_QUERY)?;
    let (slot, kind) = slot(&app, &name, &params)?;
    let key = text_or_bytes(&params, "key", "key_base64")?;
    let entry = text_or_bytes(&params, "entry", "entry_base64")?;
    let refuse = |what: &str| Err(Problem::because("invalid-request", what.to_owned()));
    if entry.is_some() && (kind != SlotKind::Map || key.is_none()) {
        return refuse("entry is for the entry of a map under a key; give the key too");
    }
    let mut out = Vec::new();
    match key {
        // A map has many entries under a key.
        Some(key) if kind != SlotKind::Map || entry.is_some() => {
            for other in ["prefix", "limit", "cursor"] {
                if params.get(other).is_some() {
                    return refuse(&format!(
                        "{other} is for listing; it doesn't go with one key"
                    ));
                }
            }
            let entry = entry.as_deref();
            let entry = app.processor.state_get(&name, &slot, &key, entry).await;
            write_entry(&mut out, &slot, &found(&app, &name, entry)?);
        }
        key => list(&app, (&name, &slot), key.as_deref(), &params, &mut out).await?,
    }
    Ok(json_text_answer(StatusCode::OK, out))
}

/// A parameter given as text, or as base64 under another name.
pub(super) fn text_or_bytes(
    params: &Params<'_>,
    text: &str,
    base64: &str,
) -> Answer<Option<Vec<u8>>> {
    match (params.get(text), params.parse_own(base64, decode)?) {
        (Some(_), Some(_)) => Err(Problem::because(
            "invalid-request",
            format!("give {text} or {base64}, not both"),
        )),
        (Some(text), None) => Ok(Some(text.as_bytes().to_vec())),
        (None, bytes) => Ok(bytes),
    }
}

/// The slot asked for; a function with one slot needs no name for it.
fn slot(app: &App, name: &str, params: &Params<'_>) -> Answer<(String, SlotKind)> {
    let manifest = found(app, name, app.processor.manifest(name))?;
    let slot = slot_name(name, &manifest, params)?;
    let spec = manifest.slots.iter().find(|spec| spec.name == slot);
    let kind = spec.map_or(SlotKind::Value, |spec| spec.kind);
    Ok((slot, kind))
}

fn slot_name(name: &str, manifest: &Manifest, params: &Params<'_>) -> Answer<String> {
    let slots: Vec<&str> = manifest
        .slots
        .iter()
        .map(|slot| slot.name.as_str())
        .collect();
    match (params.get("slot"), slots.as_slice()) {
        (Some(asked), _) if slots.contains(&asked) => Ok(asked.to_owned()),
        (Some(asked), _) => Err(Problem::because(
            "slot-not-found",
            not_found("slot", asked, nearest(asked, slots.iter().copied())),
        )),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(Problem::because(
            "slot-not-found",
            format!("The function {name:?} keeps no state."),
        )),
        (None, _) => Err(Problem::because(
            "invalid-request",
            format!("slot is needed: one of {}", slots.join(", ")),
        )),
    }
}

async fn list(
    app: &App,
    (name, slot): (&str, &str),
    key: Option<&[u8]>,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> Answer<()> {
    let limit = params
        .parse::<usize>("limit", "write a whole number")?
        .unwrap_or(DEFAULT_ENTRIES);
    if !(1..=MOST_ENTRIES).contains(&limit) {
        return Err(Problem::because(
            "invalid-request",
            format!("limit={limit}: 1 to {MOST_ENTRIES} entries can be asked for"),
        ));
    }
    let after = params.parse_own("cursor", read_cursor)?;
    let prefix = params.get("prefix").unwrap_or_default().as_bytes();
    let page = app
        .processor
        .state_list(name, slot, key, prefix, after, limit)
        .await;
    let page = found(app, name, page)?;
    out.extend_from_slice(b"{\"entries\":[");
    for (nth, entry) in page.entries.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        write_entry(out, slot, entry);
    }
    let next = page.next.map_or("null".to_owned(), |(partition, place)| {
        format!("\"{partition}:{}\"", URL_SAFE_NO_PAD.encode(place))
    });
    out.extend_from_slice(format!("],\"next\":{next}}}").as_bytes());
    Ok(())
}

fn write_entry(out: &mut Vec<u8>, slot: &str, entry: &StateEntry) {
    out.extend_from_slice(
        format!(
            "{{\"slot\":{},\"partition\":{},",
            serde_json::Value::from(slot),
            entry.partition
        )
        .as_bytes(),
    );
    text_or_base64(out, "key", &entry.key);
    out.push(b',');
    if let Some(entry) = &entry.entry {
        text_or_base64(out, "entry", entry);
        out.push(b',');
    }
    json_or_base64(out, &entry.value);
    out.push(b'}');
}

fn decode(text: &str) -> Result<Vec<u8>> {
    STANDARD
        .decode(text)
        .map_err(|error| Error::invalid("invalid-request", format!("not base64: {error}")))
}

/// `partition:place`, the place in URL-safe base64, as `next` of an answer gives it.
fn read_cursor(text: &str) -> Result<(u32, Bytes)> {
    let read = || {
        let (partition, key) = text.split_once(':')?;
        Some((
            partition.parse().ok()?,
            URL_SAFE_NO_PAD.decode(key).ok()?.into(),
        ))
    };
    read().ok_or_else(|| Error::invalid("invalid-request", "use next of an earlier answer"))
}
