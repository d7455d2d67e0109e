//! What a function asks for beyond its events: `[grants]`.

use super::fields::{Table, refuse};
use std::time::Duration;
use tidemill_env::SecretFolder;
use tidemill_env::outside::{Reach, Request};
use tidemill_types::Result;

/// Most secrets and most places to call that a function may ask for.
const MOST: usize = 64;
/// How long a call may take if nobody says so.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a function asks for; off unless its host grants it, too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// Secrets by name.
    pub secrets: Vec<String>,
    /// Where it calls.
    pub http: Vec<HttpGrant>,
}

/// Calls below an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpGrant {
    /// Where.
    pub allow: Reach,
    /// With which methods; empty: any.
    pub methods: Vec<String>,
    /// How long one may take.
    pub timeout: Duration,
}

impl Grants {
    /// Whether it asks for nothing; then the function depends on its events alone.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.http.is_empty()
    }

    /// The grant that a call goes by.
    pub(crate) fn for_call(&self, request: &Request) -> Option<&HttpGrant> {
        self.http.iter().find(|grant| {
            let any = grant.methods.is_empty();
            grant.allow.allows(request)
                && (any
                    || grant
                        .methods
                        .iter()
                        .any(|method| method == request.method()))
        })
    }
}

pub(super) fn grants(root: &Table<'_>) -> Result<Grants> {
    let table = root.table("grants")?.known(&["secrets", "http"])?;
    let secrets = table.texts("secrets")?.unwrap_or_default();
    let place = table.place_of("secrets");
    for name in &secrets {
        if !SecretFolder::is_name(name) {
            return Err(refuse(
                &place,
                format!(
                    "{name:?} is no name of a secret: 1 to 200 letters, digits, \".\", \"_\" or \"-\", not beginning with \".\""
                ),
            ));
        }
    }
    let http = table.tables("http")?;
    if secrets.len() > MOST || http.len() > MOST {
        return Err(refuse(
            "grants",
            format!("a function may ask for {MOST} secrets and for {MOST} places to call"),
        ));
    }
    Ok(Grants {
        secrets: secrets.into_iter().map(Into::into).collect(),
        http: http.into_iter().map(http_grant).collect::<Result<_>>()?,
    })
}

fn http_grant(table: Table<'_>) -> Result<HttpGrant> {
    let table = table.known(&["allow", "methods", "timeout"])?;
    table.needed("allow")?;
    let Some(allow) = table.parsed("allow", str::parse::<Reach>)? else {
        return Err(refuse(&table.place_of("allow"), "this is missing"));
    };
    let methods = table.texts("methods")?.unwrap_or_default();
    for method in &methods {
        Request::new(method, &allow.to_string(), &[], Vec::new())
            .map_err(|wrong| refuse(&table.place_of("methods"), wrong.message))?;
    }
    let bounds = Duration::from_millis(1)..=Duration::from_secs(600);
    Ok(HttpGrant {
        allow,
        methods: methods.into_iter().map(Into::into).collect(),
        timeout: table.duration("timeout", TIMEOUT, bounds)?,
    })
}
