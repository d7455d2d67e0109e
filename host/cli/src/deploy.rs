//! `tidemill deploy`: a function into a host.

pub(crate) mod plan;

use crate::args::Show;
use crate::build::{self, Built};
use crate::client::Client;
use crate::failure::{Failure, Result};
use clap::Args;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Deploy a function to the host.
///
/// A directory is built first; a component goes as it is. A `function.toml` beside it goes with it and
/// overrides what the function says of itself, key by key.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill deploy\n  tidemill deploy ./carrier-delays --start earliest\n  tidemill deploy ./carrier-delays --shadow\n  tidemill deploy carrier_delays.component.wasm --name carrier-delays --dry-run"
)]
pub(crate) struct Deploy {
    /// A component, or the directory of a crate.
    #[arg(default_value = ".", value_name = "FILE|DIR")]
    what: PathBuf,
    /// Name of the function; from function.toml or the crate if not said.
    #[arg(long)]
    name: Option<String>,
    /// Where it starts: `earliest`, `latest`, a time, or `keep`: where the version before stands. Not said:
    /// `keep`, and for a first version what its manifest says, or `latest`.
    #[arg(long, value_name = "WHERE")]
    start: Option<String>,
    /// What becomes of an earlier version's state.
    #[arg(long, value_parser = ["keep", "reset"])]
    state: Option<String>,
    /// Run it beside the version in force instead: on the same events, from a copy of the state (or, with
    /// `--state reset`, without any), with outputs of its own. `tidemill functions shadow` deals with it.
    #[arg(long, conflicts_with = "start")]
    shadow: bool,
    /// Check everything, show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Don't ask; who isn't at a terminal isn't asked either.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    show: Show,
}

/// A component with what stands beside it.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    component: Vec<u8>,
    manifest: Option<String>,
}

pub(crate) async fn perform(host: &str, args: &Deploy) -> Result<()> {
    let client = Client::new(host)?;
    let package = Package::find(&args.what, args.name.as_deref())?;
    let query: Vec<(&str, &str)> = [("start", &args.start), ("state", &args.state)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .chain(args.shadow.then_some(("shadow", "true")))
        .collect();
    let dry = [query.as_slice(), &[("dry_run", "true")]].concat();
    if args.dry_run {
        let answer = package.deploy(&client, &dry).await?;
        return plan::show(args.show.output, &answer);
    }
    if !args.yes && plan::can_ask() {
        let answer = package.clone().deploy(&client, &dry).await?;
        if answer["changed"] == true && !plan::confirmed(&answer)? {
            return Ok(());
        }
    }
    let answer = package.deploy(&client, &query).await?;
    plan::show(args.show.output, &answer)
}

impl Package {
    /// From a file, or from a directory after building it.
    fn find(what: &Path, name: Option<&str>) -> Result<Self> {
        if !what.is_dir() {
            return Self::read(what, what.parent().unwrap_or(Path::new(".")), name);
        }
        let mut built = build::build(what)?;
        match (built.pop(), built.is_empty()) {
            (Some(only), true) => Self::built(&only, name),
            _ => Err(Failure::usage(
                "many-functions",
                format!("{} holds several functions", what.display()),
            )
            .hint("deploy them one by one, each by its directory")),
        }
    }

    /// From what was built.
    pub(crate) fn built(built: &Built, name: Option<&str>) -> Result<Self> {
        let mut package = Self::read(&built.path, &built.dir, name)?;
        if name.is_none()
            && package
                .manifest
                .as_deref()
                .and_then(manifest_name)
                .is_none()
        {
            package.name.clone_from(&built.name);
        }
        Ok(package)
    }

    /// A component under a name, with a manifest for it.
    pub(crate) fn of(name: &str, component: Vec<u8>, manifest: String) -> Self {
        Self {
            name: name.to_owned(),
            component,
            manifest: Some(manifest),
        }
    }

    fn read(file: &Path, beside: &Path, name: Option<&str>) -> Result<Self> {
        let component = std::fs::read(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::not_found("no-file", format!("there is no file {}", file.display()))
            }
            _ => Failure::failed("io", format!("cannot read {}: {error}", file.display())),
        })?;
        let manifest = match std::fs::read_to_string(beside.join("function.toml")) {
            Ok(manifest) => Some(manifest),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(Failure::failed(
                    "io",
                    format!("cannot read function.toml: {error}"),
                ));
            }
        };
        let stem = file.file_name().unwrap_or_default().to_string_lossy();
        let stem = stem
            .split_once('.')
            .map_or(stem.as_ref(), |(stem, _)| stem)
            .replace('_', "-");
        let name = name
            .map(String::from)
            .or_else(|| manifest_name(manifest.as_deref()?))
            .unwrap_or(stem);
        Ok(Self {
            name,
            component,
            manifest,
        })
    }

    /// Sends it; gives back the host's answer.
    pub(crate) async fn deploy(self, client: &Client, query: &[(&str, &str)]) -> Result<Value> {
        let request = client.request(Method::PUT, &["v1", "functions", &self.name], query);
        let request = match self.manifest {
            None => request
                .header("content-type", "application/wasm")
                .body(self.component),
            Some(manifest) => request.multipart(
                Form::new()
                    .part(
                        "component",
                        part(self.component, "function.wasm", "application/wasm")?,
                    )
                    .part(
                        "manifest",
                        part(manifest.into_bytes(), "function.toml", "application/toml")?,
                    ),
            ),
        };
        client.json(request).await
    }
}

fn part(bytes: Vec<u8>, name: &'static str, kind: &str) -> Result<Part> {
    Part::bytes(bytes)
        .file_name(name)
        .mime_str(kind)
        .map_err(|error| Failure::failed("no-part", error.to_string()))
}

/// `name` of the table `[function]`; the host reads the rest, and checks it.
fn manifest_name(manifest: &str) -> Option<String> {
    let mut table = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            table = line.split('#').next().unwrap_or(line).trim();
        } else if table == "[function]"
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "name"
        {
            let value = value.trim();
            let quote = value
                .chars()
                .next()
                .filter(|quote| matches!(quote, '"' | '\''))?;
            return value[1..]
                .split_once(quote)
                .map(|(name, _)| name.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_read_from_the_manifest() {
        let manifest = "# name = \"no\"\nname = \"no\"\n[[input]]\ntopic = \"t\"\n\n[function] # this\nname = 'carrier-delays' # yes\n";
        assert_eq!(manifest_name(manifest).as_deref(), Some("carrier-delays"));
        assert_eq!(manifest_name("[config]\nname = \"x\"\n"), None);
        assert_eq!(manifest_name("[function]\nname = 3\n"), None);
        assert_eq!(manifest_name(""), None);
    }

    #[test]
    fn a_missing_component_is_not_found() {
        let failure = Package::find(Path::new("no/such.wasm"), None).expect_err("missing");
        assert_eq!(failure.exit.code(), 3);
    }
}
