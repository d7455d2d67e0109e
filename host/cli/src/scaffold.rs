//! `tidemill new`: a small crate that builds and tests as it is.

use crate::failure::{Failure, Result};
use crate::print;
use clap::Args;
use std::path::{Path, PathBuf};

/// Make a new function.
///
/// A small crate with a test, a manifest and a README, ready to build and deploy.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill new page-visits")]
pub(crate) struct New {
    /// Name of the function, or the path of its directory.
    #[arg(value_name = "NAME")]
    path: PathBuf,
    /// Directory of the SDK's crate, to depend on it by path.
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// The files of a new crate, with places for names.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../templates/Cargo.toml")),
    ("src/lib.rs", include_str!("../templates/lib.rs")),
    ("function.toml", include_str!("../templates/function.toml")),
    ("README.md", include_str!("../templates/README.md")),
    (".gitignore", include_str!("../templates/gitignore")),
];

/// Names that a Rust function or crate cannot have.
const TAKEN: [&str; 24] = [
    "abstract", "as", "async", "await", "break", "const", "crate", "dyn", "else", "enum", "fn",
    "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "self", "test", "tidemill",
    "type",
];

pub(crate) fn perform(args: &New) -> Result<()> {
    let name = name(&args.path)?;
    let sdk = sdk(args.sdk.as_deref())?;
    write(&args.path, name, &sdk)?;
    print::line(&format!("{} is a new function", args.path.display()))?;
    print::note(&format!(
        "next: cd {} && tidemill test && tidemill deploy",
        args.path.display()
    ));
    Ok(())
}

/// The function's name: the last part of the path.
fn name(path: &Path) -> Result<&str> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
    if !plain
        || !name.starts_with(|c: char| c.is_ascii_lowercase())
        || name.ends_with(['-', '_'])
        || name.len() > 64
    {
        return Err(Failure::usage(
            "invalid-name",
            format!(
                "{:?} cannot be the name of a function",
                path.display().to_string()
            ),
        )
        .hint("use small letters, digits and hyphens, a letter first, as in page-visits"));
    }
    if TAKEN.contains(&name) {
        return Err(Failure::usage(
            "invalid-name",
            format!("{name:?} means something else in Rust"),
        )
        .hint("choose another name, as in page-visits"));
    }
    Ok(name)
}

/// How the crate finds the SDK: where the program was built from, if that is still there; otherwise
/// by version.
fn sdk(given: Option<&Path>) -> Result<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/rust");
    let found = match given {
        Some(given) if !given.join("Cargo.toml").is_file() => {
            return Err(Failure::not_found(
                "no-sdk",
                format!("there is no crate in {}", given.display()),
            )
            .hint("--sdk names the directory of the crate `tidemill`"));
        }
        Some(given) => Some(given.to_path_buf()),
        None => source.join("Cargo.toml").is_file().then_some(source),
    };
    Ok(match found {
        Some(path) => format!(
            "{{ path = {:?} }}",
            path.canonicalize()?.display().to_string()
        ),
        None => format!("{:?}", env!("CARGO_PKG_VERSION")),
    })
}

fn write(dir: &Path, name: &str, sdk: &str) -> Result<()> {
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) || dir.is_file() {
        return Err(Failure::conflict(
            "exists",
            format!("{} exists and is not empty", dir.display()),
        )
        .hint("choose another name, or remove it first"));
    }
    for (file, text) in FILES {
        let path = dir.join(file);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let text = text
            .replace("{{name}}", name)
            .replace("{{function}}", &name.replace('-', "_"))
            .replace("{{sdk}}", sdk);
        std::fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn names_are_checked() {
        assert_eq!(
            name(Path::new("some/where/page-visits")).expect("good"),
            "page-visits"
        );
        for bad in ["", "..", "a b", "1st", "Page", "ä", "match", "x-", "a/.."] {
            assert_eq!(
                name(Path::new(bad)).expect_err(bad).exit,
                Exit::Usage,
                "{bad:?}"
            );
        }
    }

    #[test]
    fn no_place_for_a_name_is_left_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("page-visits");
        write(&path, "page-visits", "\"1\"").expect("writes");
        for (file, _) in FILES {
            let text = std::fs::read_to_string(path.join(file)).expect(file);
            assert!(!text.contains("{{"), "{file}");
        }
        let code = std::fs::read_to_string(path.join("src/lib.rs")).expect("code");
        assert!(code.contains("fn page_visits(") && code.contains("output = \"page-visits\""));
        assert_eq!(
            write(&path, "page-visits", "\"1\"")
                .expect_err("exists")
                .exit,
            Exit::Conflict
        );
    }

    #[test]
    fn the_sdk_is_found_by_path_from_a_source_build() {
        assert!(sdk(None).expect("found").starts_with("{ path = \"/"));
        assert_eq!(
            sdk(Some(Path::new("no/such"))).expect_err("missing").exit,
            Exit::NotFound
        );
    }
}
