//! How the C library's allocator is set up for a host, which is to keep to its memory.
//!
//! It is set up by variables that it reads once, before the program's first line: where they aren't given, the program
//! starts itself again with them, in the same process.

use std::ffi::OsStr;

/// What a host is run with, unless it is said otherwise. Each thread but a few would get an arena of its own, and what
/// is let go of in one isn't used by another.
const VARIABLES: [(&str, &str); 1] = [("MALLOC_ARENA_MAX", "2")];

/// The variables that aren't given.
fn missing(is_given: impl Fn(&OsStr) -> bool) -> Vec<(&'static str, &'static str)> {
    let wanted = VARIABLES.into_iter();
    wanted
        .filter(|(name, _)| !is_given(OsStr::new(name)))
        .collect()
}

/// Starts the program again with what is missing. Returns where nothing is, or where that can't be done.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn settle() {
    use std::os::unix::process::CommandExt;
    let missing = missing(|name| std::env::var_os(name).is_some());
    if missing.is_empty() {
        return;
    }
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let mut args = std::env::args_os();
    let mut again = std::process::Command::new(program);
    if let Some(name) = args.next() {
        again.arg0(name);
    }
    // It only returns when it failed: then the host runs as it is, and takes more memory.
    let _ = again.args(args).envs(missing).exec();
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn settle() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_stays() {
        assert_eq!(missing(|_| false).len(), VARIABLES.len());
        assert!(missing(|name| name == "MALLOC_ARENA_MAX").is_empty());
    }
}
