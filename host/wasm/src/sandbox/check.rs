//! What a component must be before it is compiled: read from its bytes and its types, without running it.

use super::wasi;
use tidemill_types::{ByteSize, Error, Result, limits};
use wasmparser::{ComponentExternalKind, ComponentTypeRef, Parser, Payload, TypeBounds};
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::{ComponentItem, Type};

/// The package all imports come from.
const PACKAGE: &str = "tidemill:function/";
/// Its version that this host speaks.
const VERSION: &str = "@0.1.0";
/// What imports of WASI begin with.
pub(super) const WASI: &str = "wasi:";
/// The export that handles batches.
pub(super) const ON_BATCH: &str = "on-batch";
/// The custom section the manifest travels in.
const MANIFEST_SECTION: &str = "tidemill-manifest";
/// Most names listed in a refusal.
const LISTED_NAMES: usize = 8;

/// What a component says about itself.
#[derive(Debug, Default)]
pub(super) struct Inspected {
    /// Interfaces it imports, with versions.
    pub(super) imports: Vec<String>,
    /// The embedded manifest.
    pub(super) manifest: Option<String>,
}

/// Reads the outside of a component: that it is one, what it imports and exports, its manifest.
///
/// # Errors
/// `invalid-component`, starting with the check that failed.
pub(super) fn inspect(bytes: &[u8]) -> Result<Inspected> {
    if bytes.is_empty() {
        return Err(refuse("empty", "the component has no bytes"));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(refuse(
            "not WebAssembly",
            "it does not start with the bytes 00 61 73 6d; build the function with `tidemill build` and deploy its .wasm file",
        ));
    }
    if Parser::is_core_wasm(bytes) {
        return Err(refuse(
            "core module",
            "this is a core module, not a component; `tidemill build` makes a component of it",
        ));
    }
    let outside = Outside::read(bytes)
        .map_err(|error| refuse("does not validate", format_args!("{error}")))?;
    outside.code.check()?;
    for import in &outside.imports {
        check_import(import)?;
    }
    if !outside.exports.iter().any(|name| name == ON_BATCH) {
        let found = list(&outside.exports);
        return Err(refuse(
            "missing export",
            format_args!(
                "a function exports `{ON_BATCH}`, this component exports {found}; is it built with the `tidemill` crate and `tidemill build`?"
            ),
        ));
    }
    let manifest = outside
        .manifest
        .map(|bytes| {
            String::from_utf8(bytes).map_err(|_| {
                refuse(
                    "manifest",
                    format_args!("the section `{MANIFEST_SECTION}` is not UTF-8"),
                )
            })
        })
        .transpose()?;
    Ok(Inspected {
        imports: outside.imports,
        manifest,
    })
}

/// Checks that the export `on-batch` has the contract's type.
///
/// # Errors
/// `invalid-component`.
pub(super) fn on_batch_type(engine: &Engine, component: &Component) -> Result<()> {
    let ty = component.component_type();
    let export = ty.get_export(engine, ON_BATCH).map(|export| export.ty);
    let Some(ComponentItem::ComponentFunc(function)) = export else {
        return Err(refuse(
            "wrong export",
            format_args!("`{ON_BATCH}` is not a function"),
        ));
    };
    let params: Vec<_> = function.params().map(|(_, ty)| ty).collect();
    let results: Vec<_> = function.results().collect();
    let right = !function.async_()
        && matches!(params.as_slice(), [call, events] if is_call(call) && is_bytes(events))
        && matches!(results.as_slice(), [Type::Result(result)]
            if result.ok().is_some_and(|ok| is_bytes(&ok)) && result.err() == Some(Type::String));
    if right {
        return Ok(());
    }
    Err(refuse(
        "wrong export",
        format_args!(
            "`{ON_BATCH}` does not have the type of {PACKAGE}function{VERSION}; build the function with a `tidemill` crate of this host's version"
        ),
    ))
}

/// The compiler refused it.
pub(super) fn does_not_validate(error: &wasmtime::Error) -> Error {
    refuse("does not validate", format_args!("{error:#}"))
}

/// An import has an allowed name but another type.
pub(super) fn wrong_import(error: &wasmtime::Error) -> Error {
    refuse(
        "wrong import",
        format_args!(
            "{error:#}; build the function with a `tidemill` crate of this host's version"
        ),
    )
}

fn is_call(ty: &Type) -> bool {
    let Type::Record(record) = ty else {
        return false;
    };
    let expected = [
        ("input", Type::U32),
        ("partition", Type::U32),
        ("attempt", Type::U32),
        ("watermark", Type::S64),
        ("seed", Type::U64),
    ];
    record
        .fields()
        .map(|field| (field.name, field.ty))
        .eq(expected)
}

fn is_bytes(ty: &Type) -> bool {
    matches!(ty, Type::List(list) if list.ty() == Type::U8)
}

fn check_import(name: &str) -> Result<()> {
    if ["host", "types", "secrets", "http"]
        .iter()
        .any(|interface| *name == format!("{PACKAGE}{interface}{VERSION}"))
    {
        return Ok(());
    }
    let why = if name.starts_with(WASI) {
        match wasi::refusal(name) {
            None => return Ok(()),
            Some(why) => why,
        }
    } else if name.starts_with(PACKAGE) {
        format!(
            "this host offers `host`, `secrets` and `http` of {PACKAGE}…{VERSION}; build the function with a `tidemill` crate of this host's version"
        )
    } else {
        format!(
            "a function may import `{PACKAGE}host{VERSION}`, with a grant `secrets` and `http` beside it, and nothing else but what a standard library needs of WASI"
        )
    };
    Err(refuse("forbidden import", format_args!("`{name}`: {why}")))
}

fn refuse(check: &str, what: impl std::fmt::Display) -> Error {
    Error::invalid("invalid-component", format!("{check}: {what}"))
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".into();
    }
    let shown: Vec<_> = names
        .iter()
        .take(LISTED_NAMES)
        .map(|name| format!("`{name}`"))
        .collect();
    let more = names.len().saturating_sub(LISTED_NAMES);
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{rest}", shown.join(", "))
}

/// How much there is to compile.
#[derive(Default)]
struct Code {
    functions: usize,
    bytes: usize,
    largest: usize,
}

impl Code {
    fn count(&mut self, body: usize) {
        self.functions += 1;
        self.bytes += body;
        self.largest = self.largest.max(body);
    }

    /// A component that would keep the compiler busy for minutes, or take its memory, is refused before.
    fn check(&self) -> Result<()> {
        let too_much = |what: String| Err(refuse("too much code", what));
        let size = |bytes: usize| ByteSize(bytes as u64);
        if self.largest > limits::CODE_BODY_BYTES {
            return too_much(format!(
                "one of its functions has {} bytes of code, at most CODE_BODY_BYTES ({}) are compiled; split the function",
                self.largest,
                size(limits::CODE_BODY_BYTES)
            ));
        }
        if self.bytes > limits::CODE_BYTES {
            return too_much(format!(
                "its functions have {} bytes of code, at most CODE_BYTES ({}) are compiled",
                self.bytes,
                size(limits::CODE_BYTES)
            ));
        }
        if self.functions > limits::CODE_FUNCTIONS {
            return too_much(format!(
                "it has {} functions, at most CODE_FUNCTIONS ({}) are compiled",
                self.functions,
                limits::CODE_FUNCTIONS
            ));
        }
        Ok(())
    }
}

/// The outermost names of a component, and the manifest from wherever it lies.
#[derive(Default)]
struct Outside {
    code: Code,
    imports: Vec<String>,
    exports: Vec<String>,
    manifest: Option<Vec<u8>>,
}

impl Outside {
    fn read(bytes: &[u8]) -> wasmparser::Result<Self> {
        let mut found = Self::default();
        // The component itself is depth 1; modules and components in it are deeper.
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::ComponentImportSection(imports) if depth == 1 => {
                    for import in imports {
                        let import = import?;
                        // Types that the world takes from its interfaces are no demand of their own.
                        if !matches!(import.ty, ComponentTypeRef::Type(TypeBounds::Eq(_))) {
                            found.imports.push(import.name.name.to_owned());
                        }
                    }
                }
                Payload::ComponentExportSection(exports) if depth == 1 => {
                    for export in exports {
                        let export = export?;
                        if export.kind != ComponentExternalKind::Type {
                            found.exports.push(export.name.name.to_owned());
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => found.code.count(body.range().len()),
                Payload::CustomSection(section) if section.name() == MANIFEST_SECTION => {
                    found
                        .manifest
                        .get_or_insert_with(|| section.data().to_vec());
                }
                _ => {}
            }
        }
        Ok(found)
    }
}
