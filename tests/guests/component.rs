//! Components for tests and benchmarks, out of core modules in text form. Included with `#[path]`.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

/// The contract, relative to this file.
const WIT: &str = include_str!("../../wit/function.wit");
const PRELUDE: &str = include_str!("wat/prelude.wat");

/// The core module that consists of the prelude and these fields (imports first).
pub(crate) fn module(imports: &str, fields: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {imports} {PRELUDE} {fields})"))
        .unwrap_or_else(|error| panic!("{error}\n{fields}"))
}

/// A component of the world `tidemill:function/function` around that module.
pub(crate) fn guest(imports: &str, fields: &str) -> Vec<u8> {
    of_world(WIT, "function", &module(imports, fields))
}

/// A component of any world around a core module.
pub(crate) fn of_world(wit: &str, world: &str, module: &[u8]) -> Vec<u8> {
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("test.wit", wit).expect("the WIT is right");
    let world = resolve
        .select_world(&[package], Some(world))
        .expect("the world exists");
    let mut module = module.to_vec();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("the module can carry its world");
    ComponentEncoder::default()
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .expect("the module fits its world")
}
