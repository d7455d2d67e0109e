//! JSON pointers (RFC 6901).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use tidemill_types::{Error, Result};

/// A checked pointer; cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pointer(Arc<Parsed>);

#[derive(PartialEq, Eq, Debug)]
struct Parsed {
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
        let text = text.to_owned();
        Ok(Self(Arc::new(Parsed { text, tokens })))
    }

    /// Its names, unescaped.
    pub(crate) fn tokens(&self) -> &[String] {
        &self.0.tokens
    }
}

/// Pointers in the settings of topics, each read once: an append needs one or two.
#[derive(Default)]
pub(crate) struct Pointers(RwLock<HashMap<String, Pointer>>);

impl Pointers {
    /// Most that are kept; with more of them all are forgotten and read again.
    const KEPT: usize = 4096;

    /// The pointer of this text.
    ///
    /// # Errors
    /// As [`Pointer::read`].
    pub(crate) fn get(&self, text: &str) -> Result<Pointer> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(pointer) = known.get(text) {
            return Ok(pointer.clone());
        }
        drop(known);
        let pointer = Pointer::read(text)?;
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= Self::KEPT {
            known.clear();
        }
        known.insert(text.to_owned(), pointer.clone());
        Ok(pointer)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
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
    fn pointers_that_were_read_are_kept_up_to_a_bound() {
        let pointers = Pointers::default();
        for nth in 0..=Pointers::KEPT {
            let text = format!("/{nth}");
            assert_eq!(pointers.get(&text).unwrap().tokens(), [nth.to_string()]);
            assert_eq!(pointers.get(&text).unwrap(), Pointer::read(&text).unwrap());
        }
        assert_eq!(pointers.0.read().unwrap().len(), 1);
        assert!(pointers.get("a").is_err());
    }

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
