//! Query parameters: known names only, each once, read with a message that says what would be right.

use crate::problem::{Answer, Problem};
use crate::suggest::nearest;
use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

/// The parameters of one request.
pub(crate) struct Params<'q>(Vec<(Cow<'q, str>, Cow<'q, str>)>);

impl<'q> Params<'q> {
    /// Reads a query string; every name must be among `known` and appear once.
    pub(crate) fn read(query: Option<&'q str>, known: &[&'static str]) -> Answer<Self> {
        let mut all: Vec<(Cow<'q, str>, Cow<'q, str>)> = Vec::new();
        let Some(query) = query.filter(|query| !query.is_empty()) else {
            return Ok(Self(all));
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if !known.contains(&name.as_ref()) {
                let shown: String = name.chars().take(60).collect();
                let hint = match nearest(&name, known.iter().copied()) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None if known.is_empty() => "this address takes none".to_owned(),
                    None => format!("this address takes {}", known.join(", ")),
                };
                return Err(Problem::because(
                    "invalid-request",
                    format!("there is no query parameter {shown:?} here; {hint}"),
                ));
            }
            if all.iter().any(|(other, _)| *other == name) {
                return Err(Problem::because(
                    "invalid-request",
                    format!("the query parameter {name:?} is given twice"),
                ));
            }
            all.push((name, value));
        }
        Ok(Self(all))
    }

    /// The text of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_ref())
    }

    /// A parameter read by its type; `right` says what would be right.
    pub(crate) fn parse<T: FromStr>(&self, name: &str, right: &str) -> Answer<Option<T>> {
        self.get(name)
            .map(|text| text.parse().map_err(|_| wrong(name, text, right)))
            .transpose()
    }

    /// A parameter whose type says itself what would be right.
    pub(crate) fn parse_own<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> tidemill_types::Result<T>,
    ) -> Answer<Option<T>> {
        self.get(name)
            .map(|text| read(text).map_err(|error| wrong(name, text, error.detail)))
            .transpose()
    }

    /// A parameter with a few possible values.
    pub(crate) fn one_of<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Answer<Option<T>> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match choices.iter().find(|(choice, _)| *choice == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let all: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
                Err(wrong(name, text, format!("write {}", all.join(" or "))))
            }
        }
    }

    /// `true` or `false`; absent: `false`; without a value: `true`.
    pub(crate) fn flag(&self, name: &str) -> Answer<bool> {
        Ok(self
            .one_of(name, &[("true", true), ("false", false), ("", true)])?
            .unwrap_or(false))
    }
}

fn wrong(name: &str, text: &str, right: impl Display) -> Box<Problem> {
    let shown: String = text.chars().take(60).collect();
    Problem::because("invalid-request", format!("{name}={shown:?}: {right}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(query: &str) -> String {
        let read = Params::read(Some(query), &["limit", "wait", "force"]);
        read.and_then(|p| {
            Ok((
                p.parse::<usize>("limit", "write a whole number")?,
                p.flag("force")?,
            ))
        })
        .expect_err(query)
        .detail
    }

    #[test]
    fn reads_what_is_known() {
        let params = Params::read(
            Some("limit=5&wait=1%20s&force"),
            &["limit", "wait", "force"],
        )
        .unwrap();
        assert_eq!(params.parse("limit", "").unwrap(), Some(5));
        assert_eq!(params.get("wait"), Some("1 s"));
        assert!(params.flag("force").unwrap());
        assert_eq!(params.get("other"), None);
    }

    #[test]
    fn refuses_by_name() {
        assert_eq!(
            refusal("limt=5"),
            "there is no query parameter \"limt\" here; did you mean \"limit\"?"
        );
        assert_eq!(
            refusal("colour=5"),
            "there is no query parameter \"colour\" here; this address takes limit, wait, force"
        );
        assert_eq!(
            refusal("limit=5&limit=6"),
            "the query parameter \"limit\" is given twice"
        );
        assert_eq!(refusal("limit=-1"), "limit=\"-1\": write a whole number");
        assert_eq!(
            refusal("force=maybe"),
            "force=\"maybe\": write true or false or "
        );
    }
}
