//! Secrets of a host: files in a folder, each read when it is used, so that a new one counts at once.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tidemill_types::{Error, Result};

/// Largest secret.
const BYTES: u64 = 64 << 10;

/// A folder with a file for each secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretFolder(PathBuf);

impl SecretFolder {
    /// Secrets lie in this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Whether a name can be a secret's: letters, digits, `.`, `_` and `-`, not a dot in front.
    pub fn is_name(name: &str) -> bool {
        (1..=200).contains(&name.len())
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    }

    /// The value of a secret now: its file without one line end behind it. Blocks.
    ///
    /// # Errors
    /// `secret-unavailable` with the file and what to do: there is none, it is empty or too large, others
    /// than its owner may read it, or it isn't ours to read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.0.join(name);
        let refuse = |why: String| Error::unavailable("secret-unavailable", why);
        if !Self::is_name(name) {
            return Err(refuse(format!("{name:?} is no name of a secret")));
        }
        let shown = path.display();
        let value = read_private(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refuse(format!(
                "there is no secret {name:?}: put it into the file {shown}"
            )),
            _ => refuse(format!(
                "the secret {name:?} can't be read from {shown}: {error}"
            )),
        })?;
        let kept = value.strip_suffix(b"\n").unwrap_or(&value);
        let kept = kept.strip_suffix(b"\r").unwrap_or(kept);
        if kept.is_empty() {
            return Err(refuse(format!("the secret {name:?} is empty: {shown}")));
        }
        Ok(kept.to_vec())
    }
}

fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = about.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(io::Error::other(format!(
                "others than its owner may use it (mode {mode:03o}); make it 600 or 400"
            )));
        }
    }
    let mut value = Vec::new();
    file.take(BYTES + 1).read_to_end(&mut value)?;
    if value.len() as u64 > BYTES {
        return Err(io::Error::other(format!("it has more than {BYTES} bytes")));
    }
    Ok(value)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn put(folder: &Path, name: &str, value: &[u8], mode: u32) {
        let path = folder.join(name);
        write(&path, value).expect("written");
        set_permissions(&path, Permissions::from_mode(mode)).expect("set");
    }

    #[test]
    fn a_secret_is_what_its_file_holds_now() {
        let dir = tempfile::tempdir().expect("a folder");
        let secrets = SecretFolder::new(dir.path());
        put(dir.path(), "stripe", b"one\n", 0o600);
        assert_eq!(secrets.read("stripe").expect("there"), b"one");
        put(dir.path(), "stripe", b"two\r\n", 0o600);
        assert_eq!(secrets.read("stripe").expect("there"), b"two");
        put(dir.path(), "kept", b"with end\n\n", 0o400);
        assert_eq!(secrets.read("kept").expect("there"), b"with end\n");
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_and_never_what_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let secrets = SecretFolder::new(dir.path());
        put(dir.path(), "open", b"hush", 0o640);
        put(dir.path(), "empty", b"\n", 0o600);
        put(dir.path(), "long", &vec![b'x'; 70_000], 0o600);
        std::fs::create_dir(dir.path().join("folder")).expect("made");
        std::fs::set_permissions(dir.path().join("folder"), Permissions::from_mode(0o700))
            .expect("set");
        for (name, says) in [
            ("open", "mode 640"),
            ("empty", "is empty"),
            ("long", "more than 65536"),
            ("folder", "no file"),
            ("none", "there is no secret"),
            ("../open", "no name"),
            (".hidden", "no name"),
            ("", "no name"),
        ] {
            let refused = secrets.read(name).expect_err(name);
            assert_eq!(refused.code, "secret-unavailable");
            assert!(refused.detail.contains(says), "{refused}");
            assert!(!refused.detail.contains("hush"), "{refused}");
        }
    }
}
