//! The attribute `#[tidemill::function]`: from a plain `fn` to a component and its manifest.

mod attribute;
mod expand;
mod manifest;
mod signature;

use attribute::Settings;
use proc_macro::TokenStream;
use signature::{Of, Signature};

/// Makes a Tidemill function of a plain `fn`.
///
/// The parameters say what it uses: first the event (`flight: Event<Flight>`) or a whole batch of them
/// (`flights: Batch<Flight>`), then in any order slots of
/// state (`total: State<Delays>`: the parameter's name is the slot's; `StateList`, `StateMap` and `Counter` in
/// the same way), outputs (`out: Output<Delays>`), the context (`ctx: Context`) and timers
/// (`timers: Timers`). It returns `Result<()>`.
///
/// Settings of the attribute:
///
/// - `input = "topic"`: the topic it reads. Required.
/// - `output = "topic"`: the topic of its only output; or `outputs(alerts = "topic", stats = "topic")` with
///   the names of the parameters when there are several.
/// - `name = "…"`: its name; by default that of the `fn`, with `-` for `_`.
/// - `start = "earliest" | "latest" | "2013-01-01T00:00:00Z"`: where its first deployment starts.
/// - `key = "/route"`: a JSON pointer into the value; the input is keyed by what it points to instead of
///   the events' own keys.
/// - `ttl(total = "30d", seen = "1h processing")`: how long a slot's values last since their last write, in
///   event time or in processing time.
/// - `on_timer = handler`: the `fn` with `#[tidemill::on_timer]` that timers are handed to.
///
/// The first paragraph of the doc comment is the description. All of it is the function's manifest and
/// travels inside the component, in a custom section `tidemill-manifest`, as JSON in the shape of
/// `function.toml` plus `function.outputs_order` and `function.slots_order`: the parameters in their
/// order, which is how the host numbers them, and `function.timers` where it has some.
///
/// In its place stands a `fn` of the same name without parameters, for `Driver::of`.
#[proc_macro_attribute]
pub fn function(settings: TokenStream, item: TokenStream) -> TokenStream {
    expanded(settings, item)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

fn expanded(settings: TokenStream, item: TokenStream) -> syn::Result<proc_macro2::TokenStream> {
    let function: syn::ItemFn = syn::parse(item).map_err(|error| {
        syn::Error::new(
            error.span(),
            format!("#[tidemill::function] belongs on a `fn`: {error}"),
        )
    })?;
    let settings: Settings = syn::parse(settings)?;
    let signature = Signature::read(&function, Of::Function)?;
    expand::expand(function, &settings, &signature)
}

/// Makes a handler of timers of a plain `fn`; a function names it by `on_timer = …`.
///
/// The first parameter is the timer (`timer: Timer`, or `timer: Timer<Payload>`); the others are as the
/// function's, and the function must have slots and outputs of the same names and kinds. In its place
/// stands a type of the same name.
#[proc_macro_attribute]
pub fn on_timer(settings: TokenStream, item: TokenStream) -> TokenStream {
    timer_handler(settings.into(), item)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

fn timer_handler(
    settings: proc_macro2::TokenStream,
    item: TokenStream,
) -> syn::Result<proc_macro2::TokenStream> {
    if !settings.is_empty() {
        return Err(syn::Error::new_spanned(
            settings,
            "#[tidemill::on_timer] takes no settings: the function names its handler",
        ));
    }
    let function: syn::ItemFn = syn::parse(item).map_err(|error| {
        syn::Error::new(
            error.span(),
            format!("#[tidemill::on_timer] belongs on a `fn`: {error}"),
        )
    })?;
    let signature = Signature::read(&function, Of::TimerHandler)?;
    Ok(expand::expand_timer_handler(function, &signature))
}
