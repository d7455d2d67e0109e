//! The parameters of the annotated `fn`: what the function uses.

use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{FnArg, GenericArgument, Ident, ItemFn, Pat, PathArguments, ReturnType, Type, TypePath};

/// The parameters in order.
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
}

/// One parameter. `Type` is the whole type as written.
pub(crate) enum Parameter {
    Event(Type),
    Batch(Type),
    State(Ident, Type),
    Output(Ident, Type),
    Context,
}

impl Signature {
    /// Reads and checks a signature.
    pub(crate) fn read(function: &ItemFn) -> syn::Result<Self> {
        check_form(function)?;
        let mut parameters = Vec::new();
        for (position, argument) in function.sig.inputs.iter().enumerate() {
            let parameter = read_parameter(argument)?;
            match (position, &parameter) {
                (0, Parameter::Event(_) | Parameter::Batch(_))
                | (1.., Parameter::State(..) | Parameter::Output(..)) => {}
                (1.., Parameter::Context)
                    if !parameters.iter().any(|p| matches!(p, Parameter::Context)) => {}
                (1.., Parameter::Context) => {
                    return Err(syn::Error::new(argument.span(), "one Context is enough"));
                }
                (1.., Parameter::Event(_) | Parameter::Batch(_)) => {
                    return Err(syn::Error::new(
                        argument.span(),
                        "a function handles one event or one batch: only the first parameter is an `Event<…>` or a `Batch<…>`",
                    ));
                }
                (0, _) => return Err(first_parameter(argument.span())),
            }
            parameters.push(parameter);
        }
        if parameters.is_empty() {
            return Err(first_parameter(function.sig.paren_token.span.join()));
        }
        Ok(Self { parameters })
    }

    /// Whether it takes whole batches.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.parameters.first(), Some(Parameter::Batch(_)))
    }

    /// Names of the slots in order.
    pub(crate) fn slots(&self) -> Vec<&Ident> {
        self.parameters
            .iter()
            .filter_map(|p| {
                if let Parameter::State(name, _) = p {
                    Some(name)
                } else {
                    None
                }
            })
            .collect()
    }

    /// Whether an output carries `Bytes`, whatever they are, instead of JSON.
    pub(crate) fn carries_bytes(&self, output: &str) -> bool {
        self.parameters.iter().any(|parameter| match parameter {
            Parameter::Output(name, ty) => name.unraw() == output && inner_is_bytes(ty),
            _ => false,
        })
    }

    /// Names of the outputs in order.
    pub(crate) fn outputs(&self) -> Vec<&Ident> {
        self.parameters
            .iter()
            .filter_map(|p| {
                if let Parameter::Output(name, _) = p {
                    Some(name)
                } else {
                    None
                }
            })
            .collect()
    }
}

/// Whether a type is written `Output<Bytes>`.
fn inner_is_bytes(output: &Type) -> bool {
    let Type::Path(TypePath { path, .. }) = output else {
        return false;
    };
    let Some(PathArguments::AngleBracketed(arguments)) =
        path.segments.last().map(|last| &last.arguments)
    else {
        return false;
    };
    arguments.args.iter().any(|argument| match argument {
        GenericArgument::Type(Type::Path(TypePath { path, .. })) => path
            .segments
            .last()
            .is_some_and(|last| last.ident == "Bytes"),
        _ => false,
    })
}

fn first_parameter(span: proc_macro2::Span) -> syn::Error {
    syn::Error::new(
        span,
        "the first parameter is the event: write `flight: Event<Flight>`, or `Event<Bytes>` for the raw value; or `flights: Batch<Flight>` for many at once",
    )
}

fn check_form(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return Err(syn::Error::new(
            token.span(),
            "a function can't be async: it has nothing to wait for, the host does the waiting",
        ));
    }
    if let Some(token) = &signature.unsafety {
        return Err(syn::Error::new(token.span(), "a function can't be unsafe"));
    }
    if !signature.generics.params.is_empty() {
        return Err(syn::Error::new(
            signature.generics.span(),
            "a function can't be generic: its manifest names one type for each parameter",
        ));
    }
    if matches!(signature.inputs.first(), Some(FnArg::Receiver(_))) {
        return Err(syn::Error::new(
            signature.inputs[0].span(),
            "a function has no `self`: write it outside of `impl`, and keep what it remembers in a parameter `State<…>`",
        ));
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(syn::Error::new(
            signature.paren_token.span.close(),
            "a function says how it went: write `-> Result<()>` after it",
        ));
    }
    Ok(())
}

fn read_parameter(argument: &FnArg) -> syn::Result<Parameter> {
    let FnArg::Typed(argument) = argument else {
        return Err(syn::Error::new(argument.span(), "a function has no `self`"));
    };
    let unknown = || {
        syn::Error::new(
            argument.ty.span(),
            "a parameter is an `Event<…>`, a `State<…>`, an `Output<…>` or a `Context`: the host has nothing else to give",
        )
    };
    let Type::Path(TypePath { path, .. }) = &*argument.ty else {
        return Err(unknown());
    };
    let Some(last) = path.segments.last() else {
        return Err(unknown());
    };
    let kind = last.ident.to_string();
    if kind == "Context" {
        return Ok(Parameter::Context);
    }
    if !["Event", "Batch", "State", "Output"].contains(&kind.as_str()) {
        return Err(unknown());
    }
    let types = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .filter(|argument| matches!(argument, GenericArgument::Type(_)))
            .count(),
        _ => 0,
    };
    if types != 1 {
        return Err(syn::Error::new(
            last.span(),
            format!("say of what: `{kind}<…>`"),
        ));
    }
    let whole = (*argument.ty).clone();
    Ok(match kind.as_str() {
        "Event" => Parameter::Event(whole),
        "Batch" => Parameter::Batch(whole),
        "State" => Parameter::State(named(&argument.pat, "a slot")?, whole),
        _ => Parameter::Output(named(&argument.pat, "an output")?, whole),
    })
}

fn named(pattern: &Pat, what: &str) -> syn::Result<Ident> {
    match pattern {
        Pat::Ident(name) if name.subpat.is_none() && name.by_ref.is_none() => {
            Ok(name.ident.clone())
        }
        _ => Err(syn::Error::new(
            pattern.span(),
            format!("{what} has the name of its parameter: write a plain name here"),
        )),
    }
}
