//! The attribute `#[tidemill::function]`: from a plain `fn` to a component and its manifest.

mod attribute;
mod expand;
mod manifest;
mod signature;

use attribute::Settings;
use proc_macro::TokenStream;
use signature::Signature;

/// Makes a Tidemill function of a plain `fn`.
///
/// The parameters say what it uses: first the event (`flight: Event<Flight>`) or a whole batch of them
/// (`flights: Batch<Flight>`), then in any order slots of
/// state (`total: State<Delays>`: the parameter's name is the slot's), outputs (`out: Output<Delays>`) and
/// the context (`ctx: Context`). It returns `Result<()>`.
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
///
/// The first paragraph of the doc comment is the description. All of it is the function's manifest and
/// travels inside the component, in a custom section `tidemill-manifest`, as JSON in the shape of
/// `function.toml` plus `function.outputs_order` and `function.slots_order`: the parameters in their
/// order, which is how the host numbers them.
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
    let signature = Signature::read(&function)?;
    expand::expand(function, &settings, &signature)
}
