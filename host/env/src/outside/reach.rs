//! What may be called: an address, and all that lies below it.

use reqwest::Url;
use std::fmt;
use std::str::FromStr;
use tidemill_types::{Error, Result};

/// Methods that a call may have.
pub(super) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// `https://api.example.com/v1/`: calls to that scheme, host and port whose path is the same, or goes on
/// behind it after a `/`. A query is free; none may be said here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reach(Url);

impl FromStr for Reach {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: String| Error::invalid("invalid-reach", why);
        let url = parse(text).map_err(refuse)?;
        if url.query().is_some() {
            return Err(refuse(format!(
                "{text:?} has a query; what may be called ends with the path"
            )));
        }
        Ok(Self(url))
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl Reach {
    /// Whether everything of another reach is within this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.holds(&other.0)
    }

    /// Whether a call may go there.
    pub fn allows(&self, request: &super::Request) -> bool {
        self.holds(&request.url)
    }

    fn holds(&self, url: &Url) -> bool {
        let reach = &self.0;
        if (reach.scheme(), reach.host_str()) != (url.scheme(), url.host_str())
            || reach.port_or_known_default() != url.port_or_known_default()
        {
            return false;
        }
        let (prefix, path) = (reach.path(), url.path());
        match path.strip_prefix(prefix) {
            None => false,
            Some(rest) => prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
        }
    }
}

/// Reads an address that may be called at all; a fragment, which is never sent, is left out.
///
/// # Errors
/// In words, what is wrong with it. What it has behind the path isn't repeated.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let shown = text.split(['?', '#']).next().unwrap_or_default();
    let mut url = Url::parse(text).map_err(|why| format!("{shown:?} is no URL: {why}"))?;
    if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
        return Err(format!(
            "{shown:?} is no URL of HTTP; write https://host/path"
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user or a password in it isn't called; use a header".into());
    }
    if leads_upwards(url.path()) {
        return Err(format!(
            "the path of {shown:?} has encoded slashes around \"..\", which servers understand in different ways"
        ));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Whether a path that is decoded once more would go up: plain `..` were resolved when it was parsed.
fn leads_upwards(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let decoded = lower
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "/")
        .replace('\\', "/");
    decoded.split('/').any(|part| part == ".." || part == ".")
}

#[cfg(test)]
mod tests {
    use super::super::{CallErrorKind, Request};
    use super::*;

    fn reach(text: &str) -> Reach {
        text.parse().expect("a reach")
    }

    fn get(url: &str) -> Request {
        Request::new("GET", url, &[], Vec::new()).expect("a request")
    }

    #[test]
    fn a_call_stays_within_its_reach() {
        let cases: [(&str, &[&str], &[&str]); 4] = [
            (
                "https://api.example.com/v1/",
                &[
                    "https://api.example.com/v1/",
                    "https://API.example.com:443/v1/charges?x=../..",
                    "https://api.example.com/v1/a/../b#fragment",
                ],
                &[
                    "http://api.example.com/v1/",
                    "https://api.example.com/v1",
                    "https://api.example.com/v10/",
                    "https://api.example.com/v1/../admin",
                    "https://api.example.com/v1/%2e%2e/admin",
                    "https://api.example.com:8443/v1/",
                    "https://api.example.com.evil.example/v1/",
                    "https://evil.example/https://api.example.com/v1/",
                ],
            ),
            (
                "https://api.example.com/v1",
                &["https://api.example.com/v1", "https://api.example.com/v1/x"],
                &["https://api.example.com/v10", "https://api.example.com/"],
            ),
            (
                "http://127.0.0.1:8080",
                &["http://127.0.0.1:8080/any", "http://0x7f.1:8080/"],
                &["http://127.0.0.1/", "http://localhost:8080/"],
            ),
            ("http://[::1]:80/", &["http://[::1]/x"], &["http://[::2]/x"]),
        ];
        for (allowed, within, outside) in cases {
            let allowed = reach(allowed);
            for url in within {
                assert!(allowed.allows(&get(url)), "{allowed} {url}");
            }
            for url in outside {
                assert!(!allowed.allows(&get(url)), "{allowed} {url}");
            }
        }
        assert!(reach("https://a.example/").covers(&reach("https://a.example/v1")));
        assert!(!reach("https://a.example/v1").covers(&reach("https://a.example/")));
    }

    #[test]
    fn what_servers_could_understand_otherwise_is_denied() {
        for url in [
            "https://a.example/v1/..%2fadmin",
            "https://a.example/v1/%2E%2E%5cadmin",
            "https://user@a.example/v1/",
            "https://user:hush@a.example/v1/",
            "ftp://a.example/",
            "file:///etc/passwd",
            "a.example/v1",
            "",
        ] {
            let denied = Request::new("GET", url, &[], Vec::new()).expect_err(url);
            assert_eq!(denied.kind, CallErrorKind::Denied, "{url}");
            assert!(!denied.message.contains("hush"), "{denied:?}");
            assert!(url.parse::<Reach>().is_err(), "{url}");
        }
        assert!("https://a.example/?q=1".parse::<Reach>().is_err());
        // What is only part of a name goes through.
        assert_eq!(
            get("https://a.example/a%2Fb").url(),
            "https://a.example/a%2Fb"
        );
    }
}
