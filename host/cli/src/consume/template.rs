//! Formats of events, `'%p %o %k %v\n'`.

use super::{Event, headers};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Write;
use std::str::FromStr;

/// A format, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Partition,
    Offset,
    Key,
    Value,
    Headers,
    Time,
    IngestTime,
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            let piece = match c {
                '\\' => {
                    plain.push(escaped(rest.next())?);
                    continue;
                }
                '%' => match rest.next() {
                    Some('%') => {
                        plain.push('%');
                        continue;
                    }
                    Some('p') => Piece::Partition,
                    Some('o') => Piece::Offset,
                    Some('k') => Piece::Key,
                    Some('v') => Piece::Value,
                    Some('h') => Piece::Headers,
                    Some('t') => Piece::Time,
                    Some('i') => Piece::IngestTime,
                    Some(other) => {
                        return Err(format!(
                            "%{other} is unknown: there are %p %o %k %v %h %t %i %%"
                        ));
                    }
                    None => return Err("ends with %: write %% for a percent sign".into()),
                },
                c => {
                    plain.push(c);
                    continue;
                }
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }
}

fn escaped(c: Option<char>) -> Result<char, String> {
    match c {
        Some('n') => Ok('\n'),
        Some('t') => Ok('\t'),
        Some('r') => Ok('\r'),
        Some('0') => Ok('\0'),
        Some('\\') => Ok('\\'),
        Some(other) => Err(format!(
            "\\{other} is unknown: there are \\n \\t \\r \\0 \\\\"
        )),
        None => Err("ends with \\: write \\\\ for a backslash".into()),
    }
}

impl Template {
    /// Writes an event. Keys and values are written as they were stored; nothing stands for null.
    pub(super) fn write(
        &self,
        event: &Event<'_>,
        bytes: bool,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.write_all(text.as_bytes())?,
                Piece::Partition => write!(out, "{}", event.partition)?,
                Piece::Offset => write!(out, "{}", event.offset)?,
                Piece::Key => out.write_all(&key(event))?,
                Piece::Value => out.write_all(&value(event, bytes))?,
                Piece::Headers => out.write_all(headers(&event.headers).as_bytes())?,
                Piece::Time => out.write_all(event.time.as_bytes())?,
                Piece::IngestTime => out.write_all(event.ingest_time.as_bytes())?,
            }
        }
        Ok(())
    }
}

fn key(event: &Event<'_>) -> Vec<u8> {
    match (&event.key, &event.key_base64) {
        (Some(key), _) => key.clone().into_bytes(),
        (None, Some(key)) => decoded(key),
        (None, None) => Vec::new(),
    }
}

fn value(event: &Event<'_>, bytes: bool) -> Vec<u8> {
    if let Some(value) = &event.value_base64 {
        return decoded(value);
    }
    if event.tombstone {
        return Vec::new();
    }
    let Some(value) = event.value else {
        return b"null".to_vec();
    };
    // In a topic of bytes a JSON text stands for the bytes of the text.
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) if bytes => text.into_bytes(),
        _ => value.get().as_bytes().to_vec(),
    }
}

/// Falls back to what was sent, which is better than nothing.
fn decoded(text: &str) -> Vec<u8> {
    STANDARD
        .decode(text)
        .unwrap_or_else(|_| text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str, event: &str, bytes: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let event: Event<'_> = serde_json::from_str(event).expect("event");
        template
            .parse::<Template>()
            .expect(template)
            .write(&event, bytes, &mut out)
            .expect("writes");
        out
    }

    const EVENT: &str = r#"{"partition":3,"offset":12,"key":"UA","value":"a\tb","headers":[["source","x"],["raw",{"base64":"AA=="}]],
        "time":"2013-01-01T10:15:00Z","ingest_time":"2026-11-29T12:00:00.000123Z"}"#;

    #[test]
    fn fields_and_escapes() {
        assert_eq!(
            shown(r"%p %o %k %v\n", EVENT, false),
            b"3 12 UA \"a\\tb\"\n"
        );
        assert_eq!(
            shown(r"%t\t%i\\%%", EVENT, false),
            b"2013-01-01T10:15:00Z\t2026-11-29T12:00:00.000123Z\\%"
        );
        assert_eq!(
            shown("%h", EVENT, false),
            br#"[["source","x"],["raw",{"base64":"AA=="}]]"#
        );
    }

    #[test]
    fn values_come_as_they_were_stored() {
        assert_eq!(shown("%v", EVENT, true), b"a\tb");
        assert_eq!(
            shown(
                "%k%v",
                r#"{"key_base64":"/w==","value_base64":"AAE="}"#,
                true
            ),
            b"\xff\x00\x01"
        );
        assert_eq!(
            shown("[%k|%v]", r#"{"value":null,"tombstone":true}"#, false),
            b"[|]"
        );
        assert_eq!(shown("%v", r#"{"value":null}"#, false), b"null");
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for (bad, says) in [
            ("%x", "%x"),
            ("%", "%%"),
            (r"\q", r"\q"),
            ("a\\", "backslash"),
        ] {
            let error = bad.parse::<Template>().expect_err(bad);
            assert!(error.contains(says), "{bad}: {error}");
        }
        assert_eq!("".parse::<Template>(), Ok(Template(Vec::new())));
    }
}
