//! `tidemill build` and `test`: cargo for functions, and the component made out of cargo's module.

use crate::args::{Shape, Show};
use crate::failure::{Failure, Result};
use crate::print::{self, Table};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wit_component::{ComponentEncoder, DecodedWasm};

/// What functions are built for unless their manifest says otherwise.
const TARGET: &str = "wasm32-unknown-unknown";
/// For functions whose dependencies want clocks or random numbers of a system.
const WASI: &str = "wasm32-wasip2";

/// Build a function into a component.
///
/// Runs `cargo build --release` for WebAssembly and makes a component out of the result. The target is added by rustup where it is missing.
/// A crate that needs the clock or the random numbers of a standard library says `target = "wasm32-wasip2"` under `[package.metadata.tidemill]`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill build ./carrier-delays")]
pub(crate) struct Build {
    /// Directory of the function's crate, or of a workspace of functions.
    #[arg(default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    show: Show,
}

/// Run a function's tests, natively.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill test\n  tidemill test ./carrier-delays -- --nocapture"
)]
pub(crate) struct Test {
    /// Directory of the function's crate.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Arguments for cargo.
    #[arg(last = true)]
    cargo: Vec<String>,
}

/// A component, built.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// Name of the function as its crate suggests it: hyphens for underscores.
    pub(crate) name: String,
    /// Directory of its crate.
    pub(crate) dir: PathBuf,
    /// The component.
    pub(crate) path: PathBuf,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// Interfaces it imports.
    pub(crate) imports: Vec<String>,
}

pub(crate) fn perform(args: &Build) -> Result<()> {
    let built: Vec<Value> = build(&args.dir)?
        .iter()
        .map(|built| json!({"name": built.name, "component": built.path, "bytes": built.bytes, "imports": built.imports}))
        .collect();
    let answer = match (built.as_slice(), args.show.output) {
        ([only], Shape::Json) => only.clone(),
        _ => json!({"functions": built}),
    };
    print::answer(args.show.output, &answer, Some("functions"), |answer| {
        let mut table = Table::new(&["function", "size", "imports", "component"]);
        for built in answer["functions"].as_array().into_iter().flatten() {
            let imports: Vec<&str> = built["imports"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            table.row(vec![
                print::cell(&built["name"]),
                print::bytes(built["bytes"].as_u64().unwrap_or(0)),
                print::cell(&imports.join(", ").into()),
                print::cell(&built["component"]),
            ]);
        }
        table
    })
}

pub(crate) fn test(args: &Test) -> Result<()> {
    let status = cargo()
        .arg("test")
        .args(&args.cargo)
        .current_dir(crate_dir(&args.dir)?)
        .status()
        .map_err(|error| no_cargo(&error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::failed("tests-failed", "cargo test failed"))
    }
}

/// Builds the function or functions in a directory. Cargo's own words go to standard error.
pub(crate) fn build(dir: &Path) -> Result<Vec<Built>> {
    let dir = crate_dir(dir)?;
    let mut artefacts = Vec::new();
    for (target, packages) in targets(dir)? {
        ensure_target(dir, target)?;
        artefacts.extend(compile(dir, target, &packages)?);
    }
    if artefacts.is_empty() {
        return Err(Failure::failed("no-function", format!("{} builds no WebAssembly library", dir.display()))
            .hint("Cargo.toml needs [lib] crate-type = [\"cdylib\", \"rlib\"]; `tidemill new` makes a crate that has it"));
    }
    artefacts.into_iter().map(component).collect()
}

fn crate_dir(dir: &Path) -> Result<&Path> {
    if dir.join("Cargo.toml").is_file() {
        return Ok(dir);
    }
    Err(Failure::not_found(
        "no-crate",
        format!("there is no Cargo.toml in {}", dir.display()),
    )
    .hint("name the directory of a function, or make one by `tidemill new NAME`"))
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn no_cargo(error: &std::io::Error) -> Failure {
    Failure::failed("no-cargo", format!("cannot run cargo: {error}"))
        .hint("functions are built by Rust's cargo: see https://rustup.rs")
}

/// One line of cargo's messages, as far as it matters.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    crate_types: Vec<String>,
}

/// A module as cargo made it.
#[derive(PartialEq, Eq, Debug)]
struct Artefact {
    name: String,
    dir: PathBuf,
    module: PathBuf,
}

/// What cargo says of a workspace, as far as it matters.
#[derive(Deserialize)]
struct Workspace {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    #[serde(default)]
    metadata: Value,
}

/// Makes LLVM inline far more than it would by itself. In a sandbox with a deadline each call of a function is
/// counted, and what isn't inlined is called: a keyed count over JSON is a seventh faster, and its component a
/// sixth larger. As cargo's configuration, so that an author's own flags stand beside it.
const INLINING: &str = r#"build.rustflags=["-Cllvm-args=-inline-threshold=2000"]"#;

/// Targets to build for, and which packages for each; none named: all that cargo builds by itself.
fn targets(dir: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| no_cargo(&error))?;
    if !output.status.success() {
        let what = format!("cargo could not read {}", dir.join("Cargo.toml").display());
        return Err(Failure::failed("build-failed", what));
    }
    let workspace: Workspace = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::failed("build-failed", format!("cargo's metadata: {error}")))?;
    let own = std::fs::canonicalize(dir.join("Cargo.toml"))?;
    chosen(&workspace.packages, &own)
}

fn chosen(packages: &[Package], own: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let here = packages.iter().find(|package| package.manifest_path == own);
    let built: Vec<&Package> = match here {
        Some(package) => vec![package],
        None => packages.iter().collect(),
    };
    let (mut plain, mut wasi) = (Vec::new(), Vec::new());
    for package in built {
        match &package.metadata["tidemill"]["target"] {
            Value::Null => plain.push(package.name.clone()),
            target if *target == TARGET => plain.push(package.name.clone()),
            target if *target == WASI => wasi.push(package.name.clone()),
            other => {
                let what = format!(
                    "{}: package.metadata.tidemill.target is {other}",
                    package.name
                );
                return Err(Failure::failed("unknown-target", what)
                    .hint(format!("functions are built for {TARGET} or {WASI}")));
            }
        }
    }
    if wasi.is_empty() {
        return Ok(vec![(TARGET, Vec::new())]);
    }
    let both = [(TARGET, plain), (WASI, wasi)];
    let some = both
        .into_iter()
        .filter(|(_, packages)| !packages.is_empty());
    Ok(some.collect())
}

fn compile(dir: &Path, target: &str, packages: &[String]) -> Result<Vec<Artefact>> {
    let mut child = cargo()
        .args([
            "build",
            "--release",
            "--target",
            target,
            "--message-format",
            "json-render-diagnostics",
            "--config",
            INLINING,
        ])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| no_cargo(&error))?;
    let mut artefacts = Vec::new();
    if let Some(messages) = child.stdout.take() {
        for line in BufReader::new(messages).lines() {
            artefacts.extend(artefact(&line?));
        }
    }
    if child.wait()?.success() {
        return Ok(artefacts);
    }
    Err(Failure::failed(
        "build-failed",
        format!("cargo could not build {}", dir.display()),
    ))
}

/// The module that a message of cargo announces, if it does.
fn artefact(line: &str) -> Option<Artefact> {
    let message: Message = serde_json::from_str(line).ok()?;
    let target = message
        .target
        .filter(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))?;
    if message.reason != "compiler-artifact" {
        return None;
    }
    let module = message.filenames.into_iter().find(|file| {
        file.extension()
            .is_some_and(|extension| extension == "wasm")
    })?;
    Some(Artefact {
        name: target.name.replace('_', "-"),
        dir: message.manifest_path.parent()?.into(),
        module,
    })
}

/// Makes a component out of a module, beside it.
fn component(artefact: Artefact) -> Result<Built> {
    let module = std::fs::read(&artefact.module)?;
    let encoded = encode(&module).map_err(|failure| failure.at(&artefact.name))?;
    let imports = imports(&encoded).map_err(|failure| failure.at(&artefact.name))?;
    let path = artefact.module.with_extension("component.wasm");
    std::fs::write(&path, &encoded)?;
    Ok(Built {
        name: artefact.name,
        dir: artefact.dir,
        path,
        bytes: encoded.len() as u64,
        imports,
    })
}

fn encode(module: &[u8]) -> Result<Vec<u8>> {
    if is_component(module) {
        return Ok(module.to_vec());
    }
    let encoded = ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|mut encoder| encoder.encode());
    encoded.map_err(|error| {
        Failure::failed("no-component", format!("cannot make a component: {error:#}"))
            .hint("a function is a `fn` under #[tidemill::function]; it can use no crate that needs a browser; one that needs a clock or random numbers wants target = \"wasm32-wasip2\" under [package.metadata.tidemill]")
    })
}

/// A component's first bytes differ from a module's by the layer.
fn is_component(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0, b'a', b's', b'm']) && bytes.get(6..8) == Some(&[1, 0])
}

fn imports(component: &[u8]) -> Result<Vec<String>> {
    match wit_component::decode(component) {
        Ok(DecodedWasm::Component(resolve, world)) => Ok(resolve.worlds[world]
            .imports
            .keys()
            .map(|key| resolve.name_world_key(key))
            .collect()),
        Ok(DecodedWasm::WitPackage(..)) => Err(Failure::failed(
            "no-component",
            "this is a description of interfaces, no component",
        )),
        Err(error) => Err(Failure::failed(
            "no-component",
            format!("not a component: {error:#}"),
        )),
    }
}

/// Makes sure that the compiler has WebAssembly's standard library.
fn ensure_target(dir: &Path, target: &str) -> Result<()> {
    if has_target(dir, target) {
        return Ok(());
    }
    print::note(&format!("adding the target {target} by rustup"));
    let added = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(dir)
        .stdout(Stdio::null())
        .status();
    match added {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::failed("no-target", format!("rustup could not add the target {target}"))
            .hint(format!("try `rustup target add {target}` by hand; it needs the network once"))),
        Err(_) => Err(Failure::failed("no-target", format!("the Rust compiler has no target {target}, and there is no rustup to add it"))
            .hint(format!("install the package of your system that brings Rust's standard library for {target}, or Rust by rustup"))),
    }
}

fn has_target(dir: &Path, target: &str) -> bool {
    let asked = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(dir)
        .stderr(Stdio::null())
        .output();
    asked.is_ok_and(|answer| {
        let libraries = String::from_utf8_lossy(&answer.stdout);
        answer.status.success() && Path::new(libraries.trim()).is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_in_cargos_messages() {
        let line = |kind: &str, file: &str| {
            json!({"reason": "compiler-artifact", "manifest_path": "/f/carrier/Cargo.toml",
                   "target": {"name": "carrier_delays", "crate_types": [kind, "rlib"]}, "filenames": ["/t/x.rlib", file]})
            .to_string()
        };
        let found = artefact(&line("cdylib", "/t/carrier_delays.wasm")).expect("found");
        assert_eq!(
            found,
            Artefact {
                name: "carrier-delays".into(),
                dir: "/f/carrier".into(),
                module: "/t/carrier_delays.wasm".into()
            }
        );
        assert_eq!(artefact(&line("lib", "/t/carrier_delays.wasm")), None);
        assert_eq!(artefact(&line("cdylib", "/t/carrier_delays.so")), None);
        assert_eq!(
            artefact(r#"{"reason":"build-finished","success":true}"#),
            None
        );
        assert_eq!(artefact("warning: something"), None);
    }

    #[test]
    fn each_crate_says_what_it_is_built_for() {
        let package = |name: &str, metadata: Value| Package {
            name: name.into(),
            manifest_path: format!("/f/{name}/Cargo.toml").into(),
            metadata,
        };
        let wasi = json!({"tidemill": {"target": WASI}});
        let all = [
            package("plain", Value::Null),
            package("dated", wasi.clone()),
            package("other", json!({"docs": {}})),
        ];
        let chosen = |own: &str| chosen(&all, Path::new(own)).expect("known targets");
        assert_eq!(chosen("/f/plain/Cargo.toml"), [(TARGET, Vec::new())]);
        assert_eq!(
            chosen("/f/dated/Cargo.toml"),
            [(WASI, vec!["dated".to_owned()])]
        );
        let both = [
            (TARGET, vec!["plain".to_owned(), "other".to_owned()]),
            (WASI, vec!["dated".to_owned()]),
        ];
        assert_eq!(chosen("/f/Cargo.toml"), both);
        let odd = [package(
            "odd",
            json!({"tidemill": {"target": "wasm32-wasip1"}}),
        )];
        let failure = super::chosen(&odd, Path::new("/f/Cargo.toml")).expect_err("unknown");
        assert_eq!(failure.code, "unknown-target");
    }

    #[test]
    fn what_is_no_function_is_refused() {
        let module = [0, b'a', b's', b'm', 1, 0, 0, 0];
        assert_eq!(
            encode(b"nonsense").expect_err("no module").code,
            "no-component"
        );
        assert!(!is_component(&module));
        assert!(is_component(&[0, b'a', b's', b'm', 0x0d, 0, 1, 0]));
        assert!(!is_component(&module[..3]));
    }

    #[test]
    fn a_directory_without_a_crate_is_not_found() {
        let failure = build(Path::new("no/such/dir")).expect_err("nothing there");
        assert_eq!(failure.exit.code(), 3);
    }
}
