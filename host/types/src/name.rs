//! Names of topics and functions.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest name, in bytes; a name becomes a folder in object storage, where 255 is a common limit.
const LONGEST: usize = 200;

fn check(what: &str, name: &str) -> Result<Arc<str>> {
    let fits = !name.is_empty()
        && name.len() <= LONGEST
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if fits {
        return Ok(name.into());
    }
    let shown: String = name.chars().take(60).collect();
    Err(Error::invalid(
        "invalid-name",
        format!(
            "{shown:?} can't be a {what}'s name: use 1 to {LONGEST} of the characters a-z, A-Z, 0-9, '.', '_' and '-', but not \".\" or \"..\""
        ),
    ))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $type {
            type Err = Error;
            fn from_str(name: &str) -> Result<Self> {
                check($what, name).map(Self)
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// A topic's name: 1 to 200 of `a-zA-Z0-9._-`.
    TopicName,
    "topic"
);
name!(
    /// A function's name: 1 to 200 of `a-zA-Z0-9._-`.
    FunctionName,
    "function"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_and_refuses() {
        for good in ["a", "A-b_c.9", "..a", &"x".repeat(200)] {
            assert!(good.parse::<TopicName>().is_ok(), "{good:?}");
        }
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a b",
            "ü",
            "a\0",
            &"x".repeat(201),
        ] {
            let refusal = bad.parse::<FunctionName>().expect_err(bad);
            assert_eq!(refusal.code, "invalid-name");
        }
    }
}
