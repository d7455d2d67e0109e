//! The imports that only functions with a grant have: secrets and calls to the outside.

use super::guest::Guest;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, WasmStr};

type Result<T, E = wasmtime::Error> = std::result::Result<T, E>;

/// The interface of secrets.
pub const SECRETS: &str = "tidemill:function/secrets@0.1.0";
/// The interface of calls to the outside.
pub const HTTP: &str = "tidemill:function/http@0.1.0";

/// A call that a guest asks for (`request` in the WIT).
#[derive(Clone, PartialEq, Eq, Debug, ComponentType, Lift)]
#[component(record)]
pub struct HttpRequest {
    /// Its method.
    pub method: String,
    /// Its address.
    pub url: String,
    /// Its headers, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
    /// How long it may take, in ms; 0: as long as the grant allows.
    #[component(name = "timeout-ms")]
    pub timeout_ms: u32,
}

/// What was answered (`response` in the WIT).
#[derive(Clone, PartialEq, Eq, Debug, ComponentType, Lower)]
#[component(record)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Why there is no answer (`error` in the WIT).
#[derive(Clone, PartialEq, Eq, Debug, ComponentType, Lower)]
#[component(record)]
pub struct HttpError {
    /// The kind.
    pub kind: HttpErrorKind,
    /// What happened, where, and what to do.
    pub message: String,
}

/// Kinds of [`HttpError`] (`error-kind` in the WIT, which says what each means).
#[derive(Clone, Copy, PartialEq, Eq, Debug, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub enum HttpErrorKind {
    /// It may not be made.
    #[component(name = "denied")]
    Denied,
    /// No connection was made.
    #[component(name = "connect")]
    Connect,
    /// There was no whole answer in time.
    #[component(name = "timeout")]
    Timeout,
    /// The answer is larger than it may be.
    #[component(name = "too-large")]
    TooLarge,
    /// The connection broke, or what came was no HTTP.
    #[component(name = "broken")]
    Broken,
}

/// What a call came to.
pub type HttpOutcome = std::result::Result<HttpAnswer, HttpError>;

/// Adds the imports; a component that doesn't name them never sees them.
pub(super) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    let mut secrets = linker.instance(SECRETS)?;
    secrets.func_wrap(
        "get",
        |store: StoreContextMut<'_, Guest>, (name,): (WasmStr,)| {
            let name = name.to_str(&store)?;
            let value: std::result::Result<Vec<u8>, String> = store.data().services.secret(&name);
            Ok((value,))
        },
    )?;
    let mut http = linker.instance(HTTP)?;
    http.func_wrap(
        "send",
        |store: StoreContextMut<'_, Guest>, (event, request): (u32, HttpRequest)| {
            let outcome = store.data().services.http(event, request);
            Ok((outcome.map_err(wasmtime::Error::msg)?,))
        },
    )
}
