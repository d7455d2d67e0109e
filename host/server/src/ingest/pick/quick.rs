//! The same for ordinary texts: objects, pointers through objects, names without escapes.

use super::{Found, first};
use tidemill_json::{Cursor, Declined};

/// The rest of a pointer.
type Rest<'p> = Option<&'p [String]>;

/// Checks a text and picks what the pointers name.
pub(super) fn pick<'t>(
    text: &'t str,
    key: Rest<'_>,
    time: Rest<'_>,
) -> Result<Found<'t>, Declined> {
    let mut at = Cursor::new(text);
    let found = match at.token()? {
        b'{' => members(&mut at, key, time)?,
        // Pointers name nothing in a number or a string, unless they name the whole.
        b'[' if key.is_some() || time.is_some() => return Err(Declined),
        _ if is_whole(key) || is_whole(time) => return Err(Declined),
        _ => at.skip().map(|()| Found::default())?,
    };
    at.end()?;
    Ok(found)
}

fn is_whole(rest: Rest<'_>) -> bool {
    rest.is_some_and(<[_]>::is_empty)
}

fn members<'t>(at: &mut Cursor<'t>, key: Rest<'_>, time: Rest<'_>) -> Result<Found<'t>, Declined> {
    if is_whole(key) || is_whole(time) {
        return Err(Declined);
    }
    let mut found = Found::default();
    let mut more = at.enter(b'{')?;
    while more {
        let name = at.name()?;
        if name.escaped {
            return Err(Declined);
        }
        let is_key = first(key) == Some(name.written);
        let is_time = first(time) == Some(name.written);
        if is_key || is_time {
            let value = at.value()?;
            if is_key {
                found.key = below(value, key)?;
            }
            if is_time {
                found.time = below(value, time)?;
            }
        } else {
            at.skip()?;
        }
        more = at.another(b'}')?;
    }
    Ok(found)
}

/// What the pointer names in a member's value.
fn below<'t>(value: &'t str, rest: Rest<'_>) -> Result<Option<&'t str>, Declined> {
    match (rest.and_then(|rest| rest.get(1..)), value.as_bytes()) {
        (None | Some([]), _) => Ok(Some(value)),
        (rest, [b'{', ..]) => members(&mut Cursor::new(value), rest, None).map(|found| found.key),
        (_, [b'[', ..]) => Err(Declined),
        _ => Ok(None),
    }
}
