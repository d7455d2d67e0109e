//! Secrets that a task was given, so that none of them gets into a log, an error or a dead letter's reason.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// What stands in the place of a secret.
const MASKED: &str = "[secret]";
/// Values that are remembered: as many as a function may ask for, and their earlier ones.
const MOST: usize = 128;
/// Leading bytes of a secret by which a text that was cut within it is known.
const LEAST: usize = 4;

/// The values, the longest first.
#[derive(Debug, Default)]
pub(crate) struct Mask(Mutex<Vec<String>>);

impl Mask {
    /// Remembers a value that is handed over. What isn't text gets into no text.
    pub(crate) fn add(&self, value: &[u8]) {
        let Ok(value) = std::str::from_utf8(value) else {
            return;
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if value.is_empty() || known.iter().any(|known| known == value) {
            return;
        }
        if known.len() == MOST {
            known.pop();
        }
        known.push(value.to_owned());
        // A secret that is part of another one must not take the longer one apart.
        known.sort_by_key(|value| std::cmp::Reverse(value.len()));
    }

    /// A text without any of them.
    pub(crate) fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = Cow::Borrowed(text);
        for value in known.iter() {
            if shown.contains(value.as_str()) {
                shown = Cow::Owned(shown.replace(value.as_str(), MASKED));
            }
            let cut = (LEAST..value.len())
                .rev()
                .filter_map(|len| value.get(..len))
                .find(|part| shown.ends_with(part));
            if let Some(part) = cut {
                let kept = shown.len() - part.len();
                shown = Cow::Owned(format!("{}{MASKED}", &shown[..kept]));
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_stand() {
        let mask = Mask::default();
        assert!(matches!(
            mask.text("nothing yet"),
            Cow::Borrowed("nothing yet")
        ));
        for value in ["sk_1234", "sk_1234_long", "pä55"] {
            mask.add(value.as_bytes());
        }
        mask.add(b"\xff\xfe");
        mask.add(b"");
        for (text, shown) in [
            (
                "key sk_1234 is wrong, sk_1234",
                "key [secret] is wrong, [secret]",
            ),
            ("sk_1234_long!", "[secret]!"),
            ("pä55pä55", "[secret][secret]"),
            ("cut within sk_12", "cut within [secret]"),
            ("sk_ is what keys begin with", "sk_ is what keys begin with"),
            ("", ""),
        ] {
            assert_eq!(mask.text(text), shown);
        }
    }
}
