//! Dead letters of a function: list, look at, put back, discard.

use super::found;
use crate::app::{App, Shared};
use crate::body::{json_answer, json_text_answer, read_json};
use crate::problem::{Answer, Problem};
use crate::query::Params;
use crate::read::{Cursor, json_or_base64, text_or_base64};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use tidemill_processor::{Chosen, DeadLetter, Dealt, Done, LetterPlace, LetterQuery};
use tidemill_types::{Error, Result, Timestamp};

/// Query parameters of the list.
pub(crate) const LETTERS_QUERY: &[&str] = &[
    "reason", "topic", "since", "before", "all", "limit", "cursor", "ends",
];

const DEFAULT_LETTERS: usize = 100;
const MOST_LETTERS: usize = 1_000;

/// Lists dead letters.
pub(crate) async fn dead_letters(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::read(query.as_deref(), LETTERS_QUERY)?;
    let limit = params.parse::<usize>("limit", "write a whole number")?;
    let limit = limit.unwrap_or(DEFAULT_LETTERS);
    if !(1..=MOST_LETTERS).contains(&limit) {
        return Err(Problem::because(
            "invalid-request",
            format!("limit={limit}: 1 to {MOST_LETTERS} letters can be asked for"),
        ));
    }
    let text = |name: &str| params.get(name).map(str::to_owned);
    let query = LetterQuery {
        reason: text("reason"),
        topic: text("topic"),
        since: params.parse_own("since", time)?,
        before: params.parse_own("before", time)?,
        all: params.flag("all")?,
        from: params.parse_own("cursor", place)?.unwrap_or_default(),
        ends: params.parse_own("ends", places)?,
        limit,
    };
    let page = app.processor.dead_letters(&name, &query).await;
    let page = found(&app, &name, page)?;
    let mut out = b"{\"dead_letters\":[".to_vec();
    for (nth, letter) in page.letters.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        write(&mut out, letter);
    }
    let (next, ends) = (
        json!(page.next.map(shown)),
        json!(Cursor(page.ends).to_string()),
    );
    out.extend_from_slice(format!("],\"next\":{next},\"ends\":{ends}}}").as_bytes());
    Ok(json_text_answer(StatusCode::OK, out))
}

/// Shows one.
pub(crate) async fn dead_letter(
    State(app): Shared,
    Path((name, letter)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::read(query.as_deref(), &[])?;
    let letter = app.processor.dead_letter(&name, place(&letter)?).await;
    let mut out = Vec::new();
    write(&mut out, &found(&app, &name, letter)?);
    Ok(json_text_answer(StatusCode::OK, out))
}

/// Which letters something is done with.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with letters, or with all and what is wanted of them"
)]
struct Which {
    letters: Option<Vec<String>>,
    #[serde(default)]
    all: bool,
    reason: Option<String>,
    topic: Option<String>,
    since: Option<String>,
    before: Option<String>,
    cursor: Option<String>,
    ends: Option<String>,
    limit: Option<usize>,
}

impl Which {
    /// What a request asks for.
    async fn of(app: &App, query: Option<&str>, request: Request) -> Answer<Chosen> {
        Params::read(query, &[])?;
        read_json::<Self>(app, request).await?.chosen()
    }

    fn chosen(self) -> Answer<Chosen> {
        let is_filtered = self.reason.is_some()
            || self.topic.is_some()
            || self.since.is_some()
            || self.before.is_some();
        match self.letters {
            Some(_) if self.all || is_filtered => Err(Problem::because(
                "invalid-request",
                "name letters, or say all with what is wanted of them, not both",
            )),
            Some(named) => {
                let named: Result<_> = named.iter().map(|text| place(text)).collect();
                Ok(Chosen::These(named?))
            }
            None if !self.all => Err(Problem::because(
                "invalid-request",
                "say which: \"letters\": [\"0:12\"], or \"all\": true with reason, topic, since or before",
            )),
            None => Ok(Chosen::All(LetterQuery {
                reason: self.reason,
                topic: self.topic,
                since: self.since.as_deref().map(time).transpose()?,
                before: self.before.as_deref().map(time).transpose()?,
                all: false,
                from: self
                    .cursor
                    .as_deref()
                    .map(place)
                    .transpose()?
                    .unwrap_or_default(),
                ends: self.ends.as_deref().map(places).transpose()?,
                limit: self.limit.unwrap_or(MOST_LETTERS),
            })),
        }
    }
}

/// Puts letters back.
pub(crate) async fn redrive(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let chosen = Which::of(&app, query.as_deref(), request).await?;
    let dealt = app.processor.redrive(&name, chosen).await;
    Ok(answer("redriven", &found(&app, &name, dealt)?))
}

/// Discards letters.
pub(crate) async fn discard(
    State(app): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let chosen = Which::of(&app, query.as_deref(), request).await?;
    let dealt = app.processor.discard(&name, chosen).await;
    Ok(answer("discarded", &found(&app, &name, dealt)?))
}

fn answer(what: &str, dealt: &Dealt) -> axum::http::Response<axum::body::Body> {
    let refused: Vec<Value> = dealt
        .refused
        .iter()
        .map(|(letter, why)| json!({"letter": shown(*letter), "why": why}))
        .collect();
    let mut all = json!({
        "already": dealt.already.iter().copied().map(shown).collect::<Vec<_>>(),
        "refused": refused,
        "next": dealt.next.map(shown),
        "ends": Cursor(dealt.ends.clone()).to_string(),
    });
    all[what] = json!(dealt.count);
    json_answer(StatusCode::OK, &all)
}

fn shown((partition, offset): LetterPlace) -> String {
    format!("{partition}:{offset}")
}

fn time(text: &str) -> Result<Timestamp> {
    text.parse()
}

fn place(text: &str) -> Result<LetterPlace> {
    match places(text)?.as_slice() {
        [one] => Ok(*one),
        _ => Err(Error::invalid(
            "invalid-cursor",
            format!("{text:?} is not one partition:offset, as in \"0:12\""),
        )),
    }
}

fn places(text: &str) -> Result<Vec<LetterPlace>> {
    Cursor::read(text).map(|cursor| cursor.0)
}

/// A letter: the event as it was, and what the host says of it.
fn write(out: &mut Vec<u8>, letter: &DeadLetter) {
    let state = match letter.done {
        None => "open",
        Some(Done::Redriven) => "redriven",
        Some(Done::Discarded) => "discarded",
    };
    let story = |name: &str| letter.story.get(name);
    let number = |name: &str| story(name).and_then(|text| text.parse::<u64>().ok());
    let mut shown_story = json!({
        "letter": shown(letter.place),
        "state": state,
        "since": letter.since.to_string(),
        "reason": story("reason"),
        "error": story("error"),
        "attempts": number("attempts"),
        "version": number("version"),
        "topic": story("topic"),
        "partition": number("partition"),
        "offset": number("offset"),
        "time": letter.time.to_string(),
    });
    for (name, header) in [
        ("first_failure", "first-failure"),
        ("last_failure", "last-failure"),
        ("timer", "timer"),
    ] {
        if let Some(text) = story(header) {
            shown_story[name] = json!(text);
        }
    }
    if let Some(times) = number("redriven") {
        shown_story["redriven"] = json!(times);
    }
    let headers: Vec<Value> = letter
        .headers()
        .map(|(name, value)| match std::str::from_utf8(value) {
            Ok(text) => json!([name, text]),
            Err(_) => json!([name, {"base64": STANDARD.encode(value)}]),
        })
        .collect();
    shown_story["headers"] = headers.into();
    let text = shown_story.to_string();
    out.extend_from_slice(text.strip_suffix('}').unwrap_or(&text).as_bytes());
    out.push(b',');
    match &letter.key {
        None => out.extend_from_slice(b"\"key\":null"),
        Some(key) => text_or_base64(out, "key", key),
    }
    out.push(b',');
    match &letter.value {
        None => out.extend_from_slice(b"\"value\":null,\"tombstone\":true"),
        Some(value) => json_or_base64(out, value),
    }
    out.push(b'}');
}
