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
    Timer(Type),
    State(Slot, Ident, Type),
    Output(Ident, Type),
    Context,
    Timers,
}

/// Kinds of slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Value,
    List,
    Map,
    Counter,
}

impl Slot {
    /// As the manifest says it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
            Self::Counter => "counter",
        }
    }
}

impl Slot {
    /// Its type in the SDK.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Value => "State",
            Self::List => "StateList",
            Self::Map => "StateMap",
            Self::Counter => "Counter",
        }
    }
}

/// What a signature is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Function,
    TimerHandler,
}

impl Signature {
    /// Reads and checks a signature.
    pub(crate) fn read(function: &ItemFn, of: Of) -> syn::Result<Self> {
        check_form(function)?;
        let mut parameters: Vec<Parameter> = Vec::new();
        for (position, argument) in function.sig.inputs.iter().enumerate() {
            let parameter = read_parameter(argument)?;
            let alone = |other: &Parameter| !parameters.iter().any(|p| same(p, other));
            match (position, &parameter, of) {
                (0, Parameter::Event(_) | Parameter::Batch(_), Of::Function)
                | (0, Parameter::Timer(_), Of::TimerHandler)
                | (1.., Parameter::State(..) | Parameter::Output(..), _) => {}
                (1.., Parameter::Context | Parameter::Timers, _) if alone(&parameter) => {}
                (1.., Parameter::Context, _) => {
                    return Err(syn::Error::new(argument.span(), "one Context is enough"));
                }
                (1.., Parameter::Timers, _) => {
                    return Err(syn::Error::new(argument.span(), "one Timers is enough"));
                }
                (1.., _, Of::Function) => {
                    return Err(syn::Error::new(
                        argument.span(),
                        "a function handles one event or one batch: only the first parameter is an `Event<…>` or a `Batch<…>`",
                    ));
                }
                (_, _, of) => return Err(first_parameter(argument.span(), of)),
            }
            parameters.push(parameter);
        }
        if parameters.is_empty() {
            return Err(first_parameter(function.sig.paren_token.span.join(), of));
        }
        Ok(Self { parameters })
    }

    /// Whether it takes whole batches.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.parameters.first(), Some(Parameter::Batch(_)))
    }

    /// Whether it sets timers.
    pub(crate) fn has_timers(&self) -> bool {
        self.parameters
            .iter()
            .any(|parameter| matches!(parameter, Parameter::Timers))
    }

    /// Kinds and names of the slots in order.
    pub(crate) fn slots(&self) -> Vec<(Slot, &Ident)> {
        self.parameters
            .iter()
            .filter_map(|p| {
                if let Parameter::State(slot, name, _) = p {
                    Some((*slot, name))
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

fn same(one: &Parameter, other: &Parameter) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn first_parameter(span: proc_macro2::Span, of: Of) -> syn::Error {
    let right = match of {
        Of::Function => {
            "the first parameter is the event: write `flight: Event<Flight>`, or `Event<Bytes>` for the raw value; or `flights: Batch<Flight>` for many at once"
        }
        Of::TimerHandler => {
            "the first parameter is the timer, and there is no other: write `timer: Timer`, or `timer: Timer<Payload>`"
        }
    };
    syn::Error::new(span, right)
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
            "a parameter is an `Event<…>` or a `Batch<…>`, a `State<…>`, `StateList<…>`, `StateMap<…>` or `Counter`, an `Output<…>`, a `Context` or `Timers`: the host has nothing else to give",
        )
    };
    let Type::Path(TypePath { path, .. }) = &*argument.ty else {
        return Err(unknown());
    };
    let Some(last) = path.segments.last() else {
        return Err(unknown());
    };
    let kind = last.ident.to_string();
    let wants = match kind.as_str() {
        "Context" | "Counter" | "Timers" => 0..=0,
        "Timer" => 0..=1,
        "Event" | "Batch" | "State" | "StateList" | "Output" => 1..=1,
        "StateMap" => 2..=2,
        _ => return Err(unknown()),
    };
    let types = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .filter(|argument| matches!(argument, GenericArgument::Type(_)))
            .count(),
        _ => 0,
    };
    if !wants.contains(&types) {
        let right = match wants.end() {
            0 => format!("write `{kind}` alone: it is of nothing"),
            1 => format!("say of what: `{kind}<…>`"),
            _ => format!("say from what to what: `{kind}<Key, Value>`"),
        };
        return Err(syn::Error::new(last.span(), right));
    }
    let whole = (*argument.ty).clone();
    let slot = |slot| named(&argument.pat, "a slot").map(|name| (slot, name));
    let (slot, name) = match kind.as_str() {
        "Context" => return Ok(Parameter::Context),
        "Timers" => return Ok(Parameter::Timers),
        "Timer" => return Ok(Parameter::Timer(whole)),
        "Event" => return Ok(Parameter::Event(whole)),
        "Batch" => return Ok(Parameter::Batch(whole)),
        "Output" => return Ok(Parameter::Output(named(&argument.pat, "an output")?, whole)),
        "State" => slot(Slot::Value)?,
        "StateList" => slot(Slot::List)?,
        "StateMap" => slot(Slot::Map)?,
        _ => slot(Slot::Counter)?,
    };
    Ok(Parameter::State(slot, name, whole))
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
