//! Lays the manifest beside a component over the one embedded in it, key by key.

use serde_json::Value;
use tidemill_types::{Error, Result};

/// The manifest to read: `beside` over `embedded`.
pub(super) fn merged(embedded: Option<&str>, beside: Option<&Value>) -> Result<Value> {
    let embedded = embedded
        .map(|text| {
            serde_json::from_str(text).map_err(|wrong| {
                let detail = format!("the manifest embedded in the component is not JSON: {wrong}");
                Error::invalid("invalid-manifest", detail)
            })
        })
        .transpose()?;
    match (embedded, beside) {
        (Some(embedded), Some(beside)) => Ok(over(embedded, beside)),
        (Some(only), None) => Ok(only),
        (None, Some(only)) => Ok(only.clone()),
        (None, None) => Err(Error::invalid(
            "invalid-manifest",
            "the component has no manifest embedded and none came beside it: build it with the SDK, or send a function.toml as the part \"manifest\"",
        )),
    }
}

/// Tables merge key by key, lists of tables (inputs) element by element; anything else is replaced.
fn over(below: Value, above: &Value) -> Value {
    match (below, above) {
        (Value::Object(mut below), Value::Object(above)) => {
            for (key, value) in above {
                let merged = match below.remove(key) {
                    Some(old) => over(old, value),
                    None => value.clone(),
                };
                below.insert(key.clone(), merged);
            }
            Value::Object(below)
        }
        (Value::Array(below), Value::Array(above)) if tables(&below) && tables(above) => {
            let mut below = below.into_iter();
            let mut merged: Vec<Value> = above
                .iter()
                .map(|value| {
                    below
                        .next()
                        .map_or_else(|| value.clone(), |old| over(old, value))
                })
                .collect();
            merged.extend(below);
            Value::Array(merged)
        }
        (_, above) => above.clone(),
    }
}

fn tables(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(Value::is_object)
}
