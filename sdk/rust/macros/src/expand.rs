//! What stands in the place of the annotated `fn`.

use crate::attribute::{Outputs, Settings};
use crate::manifest::{Manifest, Output};
use crate::signature::{Parameter, Signature};
use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, Ident, ItemFn, Lit, Meta, Type};

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
        input: settings.input.value(),
        start: settings.start.as_ref().map(syn::LitStr::value),
        key: settings.key.as_ref().map(syn::LitStr::value),
        outputs: outputs.collect(),
        slots: signature.slots().into_iter().map(plain).collect(),
    };
    let (docs, others): (Vec<_>, Vec<_>) = function
        .attrs
        .drain(..)
        .partition(|a| a.path().is_ident("doc") || a.path().is_ident("cfg"));
    function.attrs = others;
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let name = function.sig.ident.clone();
    let implementation = implementation(&name, &manifest, signature);
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

fn plain(name: &Ident) -> String {
    name.unraw().to_string()
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

fn implementation(name: &Ident, manifest: &Manifest, signature: &Signature) -> TokenStream {
    let Manifest {
        name: function_name,
        input,
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
    let slots = &manifest.slots;
    let json = manifest.to_json();
    let whole = signature.is_whole();
    let (prepared, arguments) = arguments(signature);
    quote! {
        struct __TidemillFunction;
        impl ::tidemill::Function for __TidemillFunction {
            const NAME: &'static str = #function_name;
            const INPUT: &'static str = #input;
            const KEY: ::core::option::Option<&'static str> = #key;
            const OUTPUTS: &'static [(&'static str, &'static str)] = &[#(#outputs),*];
            const SLOTS: &'static [&'static str] = &[#(#slots),*];
            const MANIFEST: &'static str = #json;
            const WHOLE: bool = #whole;

            fn handle(running: &::tidemill::Running<'_>) -> ::tidemill::Result<()> {
                #(#prepared)*
                #name(#(#arguments),*)
            }
        }
    }
}

/// One `let` per parameter, so that an error in a type points at the author's type.
fn arguments(signature: &Signature) -> (Vec<TokenStream>, Vec<Ident>) {
    let (mut slot, mut port) = (0_u16, 0_u16);
    let mut prepared = Vec::new();
    let mut arguments = Vec::new();
    for (position, parameter) in signature.parameters.iter().enumerate() {
        let argument = format_ident!("argument{position}", span = Span::mixed_site());
        let counted = |number: &mut u16| {
            let this = *number;
            *number = number.saturating_add(1);
            this
        };
        let at = |ty: &Type| ty.span();
        prepared.push(match parameter {
            Parameter::Event(ty) => quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::Running::event(running)?;),
            Parameter::Batch(ty) => quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::Batch::new(running)?;),
            Parameter::State(_, ty) => {
                let slot = counted(&mut slot);
                quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::State::new(running, #slot);)
            }
            Parameter::Output(_, ty) => {
                let port = counted(&mut port);
                quote_spanned!(at(ty)=> let #argument: #ty = ::tidemill::Output::new(running, #port);)
            }
            Parameter::Context => quote!(let #argument = ::tidemill::Context::new(running);),
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
