//! Uploads: a component alone, or with its manifest beside it.

use crate::app::App;
use crate::body::{read_bytes, too_large};
use crate::problem::{Answer, Problem};
use axum::extract::multipart::{Field, Multipart};
use axum::extract::{FromRequest, Request};
use axum::http::header;
use bytes::Bytes;
use serde_json::Value;
use tidemill_types::limits;

/// Largest manifest.
const MANIFEST_BYTES: usize = 1 << 20;
/// How many times longer than other bodies an upload in parts may take.
const PATIENCE: u32 = 10;

/// What was uploaded.
pub(super) struct Upload {
    pub(super) component: Bytes,
    /// The manifest in JSON form.
    pub(super) manifest: Option<Value>,
}

/// Reads an upload.
pub(super) async fn read(app: &App, request: Request) -> Answer<Upload> {
    let content_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    match content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
        .as_str()
    {
        "application/wasm" => {
            let component = read_bytes(app, request.into_body(), limits::COMPONENT_BYTES).await?;
            Ok(Upload {
                component: component.into(),
                manifest: None,
            })
        }
        "multipart/form-data" => {
            let form = Multipart::from_request(request, &())
                .await
                .map_err(|error| not_a_form(error.body_text()))?;
            let wait = app.http.body_timeout * PATIENCE;
            tokio::select! {
                biased;
                upload = parts(form) => upload,
                () = app.clock.sleep(wait) => Err(Problem::because("request-timeout", "the upload did not arrive in time")),
            }
        }
        _ => {
            let detail = "a function is uploaded as application/wasm, or as multipart/form-data with the parts component and manifest";
            Err(Problem::because("unsupported-media-type", detail))
        }
    }
}

async fn parts(mut form: Multipart) -> Answer<Upload> {
    let (mut component, mut manifest) = (None, None);
    while let Some(field) = form
        .next_field()
        .await
        .map_err(|error| not_a_form(error.body_text()))?
    {
        let twice = |name: &str| {
            Problem::because("invalid-request", format!("the part {name} is there twice"))
        };
        match field.name().unwrap_or_default() {
            "component" if component.is_some() => return Err(twice("component")),
            "component" => component = Some(bounded(field, limits::COMPONENT_BYTES).await?),
            "manifest" if manifest.is_some() => return Err(twice("manifest")),
            "manifest" => {
                let is_json = field
                    .content_type()
                    .is_some_and(|given| given.starts_with("application/json"));
                let text = bounded(field, MANIFEST_BYTES).await?;
                manifest = Some(manifest_value(&text, is_json)?);
            }
            other => {
                return Err(Problem::because(
                    "invalid-request",
                    format!("there is no part {other:?}; the parts are component and manifest"),
                ));
            }
        }
    }
    let component = component
        .ok_or_else(|| Problem::because("invalid-request", "the part component is missing"))?;
    Ok(Upload {
        component: component.into(),
        manifest,
    })
}

async fn bounded(mut field: Field<'_>, most: usize) -> Answer<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(part) = field
        .chunk()
        .await
        .map_err(|error| not_a_form(error.body_text()))?
    {
        if bytes.len() + part.len() > most {
            return Err(too_large(most, " in one part"));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

fn not_a_form(why: String) -> Box<Problem> {
    Problem::because("invalid-request", format!("the form can't be read: {why}"))
}

/// A manifest in JSON form, from TOML or JSON.
pub(super) fn manifest_value(text: &[u8], is_json: bool) -> Answer<Value> {
    let wrong = |why: String| Problem::because("invalid-manifest", why);
    let text = std::str::from_utf8(text).map_err(|_| wrong("the manifest is not UTF-8".into()))?;
    if is_json || text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| wrong(format!("the manifest is not JSON: {error}")));
    }
    let table: toml::Table = text
        .parse()
        .map_err(|error| wrong(format!("the manifest is not TOML: {error}")))?;
    Ok(json_of(toml::Value::Table(table)))
}

fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        // What JSON has no number for (infinity) becomes null and is refused as such.
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(truth) => truth.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(all) => all.into_iter().map(json_of).collect(),
        toml::Value::Table(all) => all
            .into_iter()
            .map(|(name, value)| (name, json_of(value)))
            .collect(),
    }
}
