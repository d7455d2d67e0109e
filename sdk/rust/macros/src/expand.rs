//! What stands in the place of the annotated `fn`.

use crate::attribute::{Outputs, Settings};
use crate::manifest::{Manifest, Output, Slot, Ttl};
use crate::signature::{Parameter, Signature};
use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, Ident, ItemFn, Lit, Meta, Path, Type};

/// A `fn` of the same name that gives the function with its manifest, and the component's export.
pub(crate) fn expand(
    mut function: ItemFn,
    settings: &Settings,
    signature: &Signature,
) -> syn::Result<TokenStream> {
    let outputs = outputs(settings, signature)?
        .into_iter()
        .map(|(name, topic)| Output {
            bytes: signature.carries_bytes(&name),
            name,
            topic,
        });
    let manifest = Manifest {
        name: settings.name.as_ref().map_or_else(
            || plain(&function.sig.ident).replace('_', "-"),
            syn::LitStr::value,
        ),
        description: description(&function.attrs),
        inputs: settings.inputs.iter().map(syn::LitStr::value).collect(),
        start: settings.start.as_ref().map(syn::LitStr::value),
        key: settings.key.as_ref().map(syn::LitStr::value),
        outputs: outputs.collect(),
        slots: slots(settings, signature)?,
        timers: timers(settings, signature)?,
        secrets: texts(&settings.secrets),
        http: texts(&settings.http),
    };
    let (docs, others): (Vec<_>, Vec<_>) = function
        .attrs
        .drain(..)
        .partition(|a| a.path().is_ident("doc") || a.path().is_ident("cfg"));
    function.attrs = others;
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let name = function.sig.ident.clone();
    let implementation = implementation(&name, &manifest, signature, settings.on_timer.as_ref());
    let export = export(&name, &manifest.to_json());
    Ok(quote! {
        #(#docs)*
        #[allow(dead_code, reason = "tests name it, a component is reached by its export")]
        #visibility fn #name() -> impl ::tidemill::Function {
            #[allow(elided_lifetimes_in_paths)]
            #function
            #implementation
            __TidemillFunction
        }
        #export
    })
}

fn texts(texts: &[syn::LitStr]) -> Vec<String> {
    texts.iter().map(syn::LitStr::value).collect()
}

fn plain(name: &Ident) -> String {
    name.unraw().to_string()
}

/// The slots in the order of the parameters.
fn slots(settings: &Settings, signature: &Signature) -> syn::Result<Vec<Slot>> {
    let parameters = signature.slots();
    for ttl in &settings.ttls {
        if !parameters.iter().any(|(_, name)| **name == ttl.slot) {
            return Err(syn::Error::new(
                ttl.slot.span(),
                format!(
                    "there is no slot `{}`: name a parameter such as `{0}: State<…>`",
                    ttl.slot
                ),
            ));
        }
    }
    let slot = |(slot, name): (crate::signature::Slot, &Ident)| Slot {
        name: plain(name),
        kind: slot.kind(),
        ttl: settings
            .ttls
            .iter()
            .find(|ttl| ttl.slot == *name)
            .map(|ttl| Ttl {
                text: ttl.text.clone(),
                micros: ttl.micros,
                processing: ttl.processing,
            }),
    };
    Ok(parameters.into_iter().map(slot).collect())
}

/// Whether there are timers: both who sets them and who handles them.
fn timers(settings: &Settings, signature: &Signature) -> syn::Result<bool> {
    if signature.has_timers() && settings.on_timer.is_none() {
        return Err(syn::Error::new(
            Span::call_site(),
            "timers need a handler: add on_timer = handler to #[tidemill::function(…)], and a fn `handler` with #[tidemill::on_timer]",
        ));
    }
    Ok(settings.on_timer.is_some())
}

/// What stands in the place of the annotated handler of timers: a type of the same name.
pub(crate) fn expand_timer_handler(mut function: ItemFn, signature: &Signature) -> TokenStream {
    let (docs, others): (Vec<_>, Vec<_>) = function
        .attrs
        .drain(..)
        .partition(|a| a.path().is_ident("doc") || a.path().is_ident("cfg"));
    function.attrs = others;
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let name = function.sig.ident.clone();
    let slots = signature
        .slots()
        .into_iter()
        .map(|(slot, name)| (slot.kind(), plain(name)));
    let outputs = signature
        .outputs()
        .into_iter()
        .map(|name| ("output", plain(name)));
    let uses = slots
        .chain(outputs)
        .map(|(kind, name)| quote!((#kind, #name)));
    let (prepared, arguments) = arguments(signature, Numbers::ByName);
    quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #visibility struct #name;
        const _: () = {
            #[allow(elided_lifetimes_in_paths)]
            #function
            impl ::tidemill::TimerHandler for #name {
                const USES: &'static [(&'static str, &'static str)] = &[#(#uses),*];

                fn handle(running: &::tidemill::Running<'_>) -> ::tidemill::Result<()> {
                    #(#prepared)*
                    #name(#(#arguments),*)
                }
            }
        };
    }
}

/// Parameter and topic of every output, in the order of the parameters.
fn outputs(settings: &Settings, signature: &Signature) -> syn::Result<Vec<(String, String)>> {
    let parameters = signature.outputs();
    match &settings.outputs {
        Outputs::None => match parameters.first() {
            None => Ok(Vec::new()),
            Some(parameter) => Err(syn::Error::new(
                parameter.span(),
                format!(
                    "say which topic `{parameter}` is: add output = \"some-topic\" to #[tidemill::function(…)]"
                ),
            )),
        },
        Outputs::Only(topic) => match parameters.as_slice() {
            [parameter] => Ok(vec![(plain(parameter), topic.value())]),
            [] => Err(syn::Error::new(
                topic.span(),
                "nothing is emitted to this topic: add a parameter `out: Output<…>`",
            )),
            [_, second, ..] => Err(syn::Error::new(
                second.span(),
                format!(
                    "with several outputs each has its topic: write outputs({} = \"…\", {second} = \"…\")",
                    parameters[0]
                ),
            )),
        },
        Outputs::Named(named) => {
            for (name, _) in named {
                if !parameters.contains(&name) {
                    return Err(syn::Error::new(
                        name.span(),
                        format!("there is no parameter `{name}: Output<…>`"),
                    ));
                }
            }
            let topic = |parameter: &Ident| match named
                .iter()
                .filter(|(name, _)| name == parameter)
                .collect::<Vec<_>>()[..]
            {
                [(_, topic)] => Ok((plain(parameter), topic.value())),
                [] => Err(syn::Error::new(
                    parameter.span(),
                    format!("say which topic it is: outputs({parameter} = \"some-topic\")"),
                )),
                [_, (again, _), ..] => Err(syn::Error::new(
                    again.span(),
                    format!("`{again}` is named twice"),
                )),
            };
            parameters.into_iter().map(topic).collect()
        }
    }
}

/// First paragraph of a doc comment, on one line.
fn description(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
    let text: Vec<String> = lines
        .flat_map(|l| {
            l.lines()
                .map(|l| l.trim().to_owned())
                .collect::<Vec<_>>()
                .into_iter()
                .chain(l.is_empty().then(String::new))
        })
        .collect();
    let paragraph = text
        .iter()
        .skip_while(|line| line.is_empty())
        .take_while(|line| !line.is_empty());
    paragraph.map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn implementation(
    name: &Ident,
    manifest: &Manifest,
    signature: &Signature,
    on_timer: Option<&Path>,
) -> TokenStream {
    let Manifest {
        name: function_name,
        inputs,
        ..
    } = manifest;
    let key = manifest.key.as_ref().map_or_else(
        || quote!(::core::option::Option::None),
        |key| quote!(::core::option::Option::Some(#key)),
    );
    let outputs = manifest
        .outputs
        .iter()
        .map(|Output { name, topic, .. }| quote!((#name, #topic)));
    let slots = manifest.slots.iter().map(|Slot { name, kind, ttl }| {
        let micros = ttl.as_ref().map_or(0, |ttl| ttl.micros);
        let processing = ttl.as_ref().is_some_and(|ttl| ttl.processing);
        quote!(::tidemill::Slot { name: #name, kind: #kind, ttl_micros: #micros, processing: #processing })
    });
    let timers = manifest.timers;
    let (check, on_timer) = on_timer.map_or_else(no_timers, timer_handler);
    let json = manifest.to_json();
    let whole = signature.is_whole();
    let (prepared, arguments) = arguments(signature, Numbers::Counted);
    quote! {
        struct __TidemillFunction;
        impl ::tidemill::Function for __TidemillFunction {
            const NAME: &'static str = #function_name;
            const INPUTS: &'static [&'static str] = &[#(#inputs),*];
            const KEY: ::core::option::Option<&'static str> = #key;
            const OUTPUTS: &'static [(&'static str, &'static str)] = &[#(#outputs),*];
            const SLOTS: &'static [::tidemill::Slot] = &[#(#slots),*];
            const MANIFEST: &'static str = #json;
            const WHOLE: bool = #whole;
            const TIMERS: bool = #timers;

            fn handle(running: &::tidemill::Running<'_>) -> ::tidemill::Result<()> {
                #(#prepared)*
                #name(#(#arguments),*)
            }

            fn on_timer(running: &::tidemill::Running<'_>) -> ::tidemill::Result<()> {
                #on_timer
            }
        }
        #check
    }
}

fn no_timers() -> (TokenStream, TokenStream) {
    let refuse = quote! {
        let _ = running;
        ::tidemill::fatal("the function has no handler of timers")
    };
    (TokenStream::new(), refuse)
}

/// The check that the handler uses nothing but what the function has, and its call.
fn timer_handler(handler: &Path) -> (TokenStream, TokenStream) {
    let check = quote_spanned! {handler.span()=>
        const _: () = ::core::assert!(
            ::tidemill::covers(
                <#handler as ::tidemill::TimerHandler>::USES,
                <__TidemillFunction as ::tidemill::Function>::SLOTS,
                <__TidemillFunction as ::tidemill::Function>::OUTPUTS,
            ),
            "the handler of timers uses a slot or an output that the function doesn't have: give the function a parameter of the same name and kind",
        );
    };
    let call =
        quote_spanned!(handler.span()=> <#handler as ::tidemill::TimerHandler>::handle(running));
    (check, call)
}

/// Where the numbers of slots and outputs come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// The order of the parameters.
    Counted,
    /// Their names, for another `fn` has said the order.
    ByName,
}

/// One `let` per parameter, so that an error in a type points at the author's type.
fn arguments(signature: &Signature, numbers: Numbers) -> (Vec<TokenStream>, Vec<Ident>) {
    let (mut slot, mut port) = (0_u16, 0_u16);
    let mut prepared = Vec::new();
    let mut arguments = Vec::new();
    for (position, parameter) in signature.parameters.iter().enumerate() {
        let argument = format_ident!("argument{position}", span = Span::mixed_site());
        let counted = |number: &mut u16| {
            let this = *number;
            *number = number.saturating_add(1);
            quote!(#this)
        };
        let at = |ty: &Type| ty.span();
        prepared.push(match parameter {
            Parameter::Event(ty) => quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::Running::event(running)?;),
            Parameter::Batch(ty) => quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::Batch::new(running)?;),
            Parameter::Timer(ty) => quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::Timer::new(running)?;),
            Parameter::State(kind, name, ty) => {
                let number = match numbers {
                    Numbers::Counted => counted(&mut slot),
                    Numbers::ByName => {
                        let name = plain(name);
                        quote!(::tidemill::Running::slot(running, #name))
                    }
                };
                let of = format_ident!("{}", kind.type_name());
                quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::#of::new(running, #number);)
            }
            Parameter::Output(name, ty) => {
                let number = match numbers {
                    Numbers::Counted => counted(&mut port),
                    Numbers::ByName => {
                        let name = plain(name);
                        quote!(::tidemill::Running::output(running, #name))
                    }
                };
                quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::Output::new(running, #number);)
            }
            Parameter::Context => quote!(let #argument = ::tidemill::Context::new(running);),
            Parameter::Timers => quote!(let #argument = ::tidemill::Timers::new(running);),
        });
        arguments.push(argument);
    }
    (prepared, arguments)
}

/// The component's export and its custom section.
fn export(name: &Ident, manifest: &str) -> TokenStream {
    let bytes = Literal::byte_string(manifest.as_bytes());
    let len = manifest.len();
    quote! {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code)]
        const _: () = {
            struct Exported;
            impl ::tidemill::wasm::Guest for Exported {
                fn on_batch(
                    call: ::tidemill::wasm::Call,
                    events: ::std::vec::Vec<u8>,
                ) -> ::core::result::Result<::std::vec::Vec<u8>, ::std::string::String> {
                    ::tidemill::wasm::on_batch(#name, call, &events)
                }
            }
            ::tidemill::wasm::export!(Exported with_types_in ::tidemill::wasm);

            #[used]
            #[unsafe(link_section = "tidemill-manifest")]
            static MANIFEST: [u8; #len] = *#bytes;
        };
    }
}
