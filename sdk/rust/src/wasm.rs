//! The component's outside: what `wit/function.wit` declares, wired to the code that handles a batch.

use crate::Function;
use crate::guest::{self, Instance, MapPage, Surroundings};
use crate::log::{Level, LogLine};
use crate::{HttpAnswer, HttpError, HttpErrorKind, HttpRequest};

mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "function",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "tidemill::wasm",
    });
}

#[doc(hidden)]
pub use bindings::*;

use bindings::tidemill::function::{host, http, secrets};

struct Host;

impl Surroundings for Host {
    fn config(&self) -> String {
        host::config()
    }

    fn input_topic(&self, input: u32) -> String {
        host::input_topic(input)
    }

    fn map_get(&self, slot: u32, key: &[u8], entry: &[u8]) -> Vec<u8> {
        host::map_get(slot, key, entry)
    }

    fn map_scan(&self, slot: u32, key: &[u8], page: &MapPage<'_>) -> Vec<u8> {
        host::map_scan(slot, key, page.prefix, page.from, page.behind, page.limit)
    }
}

/// The value of a secret. What isn't called isn't imported: so these two are no part of [`Surroundings`] here, whose
/// methods all are.
pub(crate) fn secret(name: &str) -> Result<Vec<u8>, String> {
    secrets::get(name)
}

/// Makes a call for an event of the batch.
pub(crate) fn http(event: u32, request: &HttpRequest) -> Result<HttpAnswer, HttpError> {
    let sent = http::Request {
        method: request.method.clone(),
        url: request.url.clone(),
        headers: request.headers.clone(),
        body: request.body.clone(),
        timeout_ms: request.timeout_ms,
    };
    match http::send(event, &sent) {
        Ok(answer) => Ok(HttpAnswer {
            status: answer.status,
            headers: answer.headers,
            body: answer.body,
        }),
        Err(error) => Err(HttpError {
            kind: match error.kind {
                http::ErrorKind::Denied => HttpErrorKind::Denied,
                http::ErrorKind::Connect => HttpErrorKind::Connect,
                http::ErrorKind::Timeout => HttpErrorKind::Timeout,
                http::ErrorKind::TooLarge => HttpErrorKind::TooLarge,
                http::ErrorKind::Broken => HttpErrorKind::Broken,
            },
            message: error.message,
        }),
    }
}

thread_local! {
    static INSTANCE: Instance = Instance::new(Box::new(Host));
}

/// What the component exports.
#[doc(hidden)]
pub fn on_batch<F: Function>(
    _function: impl FnOnce() -> F,
    call: bindings::Call,
    events: &[u8],
) -> Result<Vec<u8>, String> {
    let call = guest::Call {
        input: call.input,
        partition: call.partition,
        attempt: call.attempt,
        watermark: call.watermark,
        seed: call.seed,
    };
    INSTANCE.with(|instance| guest::on_batch::<F>(instance, call, events))
}

pub(crate) fn log(line: LogLine) {
    let level = match line.level {
        Level::Trace => host::LogLevel::Trace,
        Level::Debug => host::LogLevel::Debug,
        Level::Info => host::LogLevel::Info,
        Level::Warn => host::LogLevel::Warn,
        Level::Error => host::LogLevel::Error,
    };
    host::log(level, line.event, &line.message);
}
