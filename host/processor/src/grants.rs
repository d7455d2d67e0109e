//! What a host grants to functions: nothing, unless its operator says so.

use crate::manifest::{Grants, Manifest};
use std::path::PathBuf;
use std::time::Duration;
use tidemill_env::SecretFolder;
use tidemill_env::outside::{Network, Reach, Request};
use tidemill_types::{ByteSize, Error, Result, format_duration};
use tidemill_wasm::{HTTP, SECRETS};

/// What functions may be granted, and its bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostGrants {
    /// Names of functions that may be granted something; `*`: all.
    pub functions: Vec<String>,
    /// Folder of the secrets, a file for each; `None`: there are none.
    pub secrets: Option<PathBuf>,
    /// Where functions may call; empty: nowhere.
    pub http: Vec<Reach>,
    /// Addresses that may be called although they aren't public.
    pub addresses: Vec<Network>,
    /// Longest time of a call.
    pub timeout: Duration,
    /// Bytes of a call's request.
    pub request_bytes: ByteSize,
    /// Bytes of a call's answer.
    pub answer_bytes: ByteSize,
    /// Calls that one event may make.
    pub calls: u16,
    /// Calls at a time, of all functions.
    pub concurrency: usize,
    /// Calls at a time, of one function.
    pub function_concurrency: usize,
}

impl Default for HostGrants {
    fn default() -> Self {
        Self {
            functions: vec!["*".into()],
            secrets: None,
            http: Vec::new(),
            addresses: Vec::new(),
            timeout: Duration::from_secs(30),
            request_bytes: ByteSize::mib(1),
            answer_bytes: ByteSize::mib(1),
            calls: 16,
            concurrency: 64,
            function_concurrency: 16,
        }
    }
}

impl HostGrants {
    /// Refuses what a manifest asks for and isn't granted, and a component that uses what its manifest
    /// doesn't ask for.
    ///
    /// # Errors
    /// `not-granted` with what it is by name, and what to do; `invalid-manifest`.
    pub(crate) fn check(&self, manifest: &Manifest, imports: &[String]) -> Result<()> {
        let grants = &manifest.grants;
        unasked(grants, imports)?;
        if grants.is_empty() {
            return Ok(());
        }
        if !self.may_be_granted(manifest.name.as_str()) {
            return refuse(format!(
                "this host grants nothing to function {:?}; its operator may add the name to grants.functions",
                manifest.name.as_str()
            ));
        }
        for name in &grants.secrets {
            if let Err(wrong) = self.secret(name) {
                let why = wrong.detail;
                return refuse(format!("manifest, grants.secrets, {name:?}: {why}"));
            }
        }
        for (at, grant) in grants.http.iter().enumerate() {
            let (place, allow) = (format!("manifest, grants.http[{at}]"), &grant.allow);
            if !self.http.iter().any(|reach| reach.covers(allow)) {
                return refuse(format!(
                    "{place}.allow: this host lets no function call {allow}; its operator may add it to grants.http"
                ));
            }
            if grant.timeout > self.timeout {
                let (wants, most) = (grant.timeout, self.timeout);
                let (wants, most) = (format_duration(wants), format_duration(most));
                return refuse(format!(
                    "{place}.timeout: {wants} is more than this host allows a call (grants.timeout = {most:?})"
                ));
            }
        }
        Ok(())
    }

    /// Whether a function may be granted anything.
    pub(crate) fn may_be_granted(&self, function: &str) -> bool {
        let names = |name: &String| name == "*" || name == function;
        self.functions.iter().any(names)
    }

    /// The value of a secret now. Blocks.
    ///
    /// # Errors
    /// `secret-unavailable`.
    pub(crate) fn secret(&self, name: &str) -> Result<Vec<u8>> {
        match &self.secrets {
            Some(folder) => SecretFolder::new(folder).read(name),
            None => Err(Error::unavailable(
                "secret-unavailable",
                "this host has no secrets; its operator may name a folder by grants.secrets",
            )),
        }
    }

    /// Whether calls may go there at all.
    pub(crate) fn allows(&self, request: &Request) -> bool {
        self.http.iter().any(|reach| reach.allows(request))
    }
}

fn refuse(why: String) -> Result<()> {
    Err(Error::invalid("not-granted", why))
}

/// A component that imports what its manifest doesn't ask for would be refused at each use.
fn unasked(grants: &Grants, imports: &[String]) -> Result<()> {
    let uses = |interface: &str| imports.iter().any(|import| import == interface);
    let refuse = |what: &str, how: &str| {
        Err(Error::invalid(
            "invalid-manifest",
            format!(
                "manifest, grants: the component {what}, but its manifest doesn't ask for it; {how}"
            ),
        ))
    };
    if uses(SECRETS) && grants.secrets.is_empty() {
        return refuse("uses secrets", "write secrets = [\"name\"] under [grants]");
    }
    if uses(HTTP) && grants.http.is_empty() {
        return refuse(
            "makes calls to the outside",
            "write [[grants.http]] with allow = \"https://…\"",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn manifest(grants: &Value) -> Result<Manifest> {
        let source = json!({"input": [{"topic": "in"}], "grants": grants});
        Manifest::resolve(None, Some(&source), &"f".parse().expect("a name"))
    }

    fn host(dir: &std::path::Path) -> HostGrants {
        HostGrants {
            secrets: Some(dir.to_owned()),
            http: vec!["https://api.example.com/v1/".parse().expect("a reach")],
            ..HostGrants::default()
        }
    }

    #[test]
    fn what_is_not_granted_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let asks =
            json!({"secrets": ["stripe"], "http": [{"allow": "https://api.example.com/v1/"}]});
        let only_secret = json!({"secrets": ["stripe"]});
        let only_http = json!({"http": [{"allow": "https://api.example.com/v1/x"}]});
        let wide = json!({"http": [{"allow": "https://api.example.com/"}]});
        let slow = json!({"http": [{"allow": "https://api.example.com/v1/", "timeout": "1m"}]});
        let nothing = HostGrants::default();
        let named = HostGrants {
            functions: vec!["g".into()],
            ..host(dir.path())
        };
        for (host, asks, says) in [
            (&nothing, &only_secret, "grants.secrets"),
            (&nothing, &only_http, "grants.http"),
            (&named, &asks, "grants.functions"),
            (&host(dir.path()), &asks, "stripe"),
            (&host(dir.path()), &wide, "https://api.example.com/"),
            (&host(dir.path()), &slow, "grants.timeout = \"30s\""),
        ] {
            let refused = host
                .check(&manifest(asks).expect("valid"), &[])
                .expect_err(says);
            assert_eq!(refused.code, "not-granted");
            assert!(refused.detail.contains(says), "{refused}");
        }
        let good = manifest(&only_http).expect("valid");
        host(dir.path())
            .check(&good, &[HTTP.to_owned()])
            .expect("granted");
        nothing
            .check(&manifest(&json!({})).expect("valid"), &[])
            .expect("asks for nothing");
    }

    #[test]
    fn what_a_component_uses_its_manifest_asks_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let none = manifest(&json!({})).expect("valid");
        for (import, says) in [(HTTP, "[[grants.http]]"), (SECRETS, "secrets = ")] {
            let refused = host(dir.path())
                .check(&none, &[import.to_owned()])
                .expect_err(says);
            assert!(refused.detail.contains(says), "{refused}");
        }
    }

    #[test]
    fn grants_are_checked_as_written() {
        for (grants, says) in [
            (json!({"secret": []}), "grants.secret"),
            (json!({"secrets": ["../x"]}), "no name of a secret"),
            (json!({"http": [{}]}), "grants.http[0].allow"),
            (
                json!({"http": [{"allow": "api.example.com"}]}),
                "grants.http[0].allow",
            ),
            (
                json!({"http": [{"allow": "https://a.example/", "methods": ["get"]}]}),
                "methods",
            ),
            (
                json!({"http": [{"allow": "https://a.example/", "timeout": "1h"}]}),
                "timeout",
            ),
            (
                json!({"http": [{"allow": "https://a.example/", "redirects": 1}]}),
                "redirects",
            ),
        ] {
            let refused = manifest(&grants).expect_err(says);
            assert_eq!(refused.code, "invalid-manifest");
            assert!(refused.detail.contains(says), "{refused}");
        }
        let grants = json!({"http": [{"allow": "https://a.example/", "methods": ["GET"]}]});
        let grants = manifest(&grants).expect("valid").grants;
        let call =
            |method| Request::new(method, "https://a.example/x", &[], Vec::new()).expect("a call");
        assert!(
            grants.for_call(&call("GET")).is_some() && grants.for_call(&call("POST")).is_none()
        );
    }
}
