//! JSON pointers (RFC 6901).

use std::fmt;
use tidemill_types::{Error, Result};

/// A checked pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pointer {
    text: String,
    tokens: Vec<String>,
}

impl Pointer {
    /// Reads a pointer; empty means the whole value.
    ///
    /// # Errors
    /// `invalid-setting` with what would be right.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(
                "invalid-setting",
                format!(
                    "{text:?} is not a JSON pointer: write a slash before each name, as in \"/carrier\" or \"/user/id\" (\"~0\" for '~', \"~1\" for '/')"
                ),
            )
        };
        let tokens = match text.strip_prefix('/') {
            Some(rest) => rest
                .split('/')
                .map(unescape)
                .collect::<Option<Vec<_>>>()
                .ok_or_else(wrong)?,
            None if text.is_empty() => Vec::new(),
            None => return Err(wrong()),
        };
        Ok(Self {
            text: text.to_owned(),
            tokens,
        })
    }

    /// Its names, unescaped.
    pub(crate) fn tokens(&self) -> &[String] {
        &self.tokens
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescape(token: &str) -> Option<String> {
    let mut out = String::with_capacity(token.len());
    let mut rest = token.chars();
    while let Some(c) = rest.next() {
        out.push(match c {
            '~' => match rest.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pointers() {
        for (text, tokens) in [
            ("", vec![]),
            ("/a", vec!["a"]),
            ("/", vec![""]),
            ("/a~1b/m~0n/0", vec!["a/b", "m~n", "0"]),
        ] {
            assert_eq!(Pointer::read(text).unwrap().tokens(), tokens, "{text:?}");
        }
        for bad in ["a", "a/b", "/a~2", "/a~"] {
            assert!(
                Pointer::read(bad)
                    .unwrap_err()
                    .detail
                    .contains("JSON pointer"),
                "{bad:?}"
            );
        }
    }
}
