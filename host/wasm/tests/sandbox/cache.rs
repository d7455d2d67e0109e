//! Compiled components on disk.

use super::*;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn cached(dir: &Path) -> Sandbox {
    bounded(dir, ByteSize::mib(64))
}

fn bounded(dir: &Path, cache_bytes: ByteSize) -> Sandbox {
    Sandbox::new(Settings {
        cache_dir: Some(dir.join("cache")),
        cache_bytes,
        instances: 1,
    })
    .expect("a sandbox")
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir.join("cache"))
        .expect("the cache")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

fn answers(sandbox: &Sandbox, bytes: &[u8]) -> Vec<u8> {
    let component = sandbox.compile(bytes).expect("sound");
    start(sandbox, &component, LIMITS)
        .on_batch(CALL, &batch(&[b"a"]))
        .expect("an answer")
}

#[test]
fn a_component_is_kept_and_found_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = component::guest("", PASSTHROUGH);
    let fresh = answers(&cached(dir.path()), &bytes);
    let [file] = files(dir.path())
        .try_into()
        .expect("one file and nothing unfinished");
    let number = || std::fs::metadata(&file).expect("metadata").ino();
    let written = number();
    assert_eq!(answers(&cached(dir.path()), &bytes), fresh);
    assert_eq!(
        written,
        number(),
        "it was loaded, not compiled and written again"
    );
    assert_eq!(files(dir.path()), [file]);
}

#[test]
fn a_damaged_file_is_never_loaded_and_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = component::guest("", FILTER);
    answers(&cached(dir.path()), &bytes);
    let [file] = files(dir.path()).try_into().expect("one file");
    let good = std::fs::read(&file).expect("the file");
    let flipped = |at: usize| {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        bad
    };
    let damages = [0, 7, 8, 39, 40, good.len() / 2, good.len() - 1].map(flipped);
    let cuts = [0, 8, 40, good.len() / 2, good.len() - 1].map(|end| good[..end].to_vec());
    for bad in damages.into_iter().chain(cuts) {
        std::fs::write(&file, &bad).expect("write");
        works(&cached(dir.path()));
        answers(&cached(dir.path()), &bytes);
        assert!(
            std::fs::read(&file).expect("the file") == good,
            "the damaged file was replaced"
        );
    }
}

#[test]
fn a_file_of_another_component_is_not_taken_for_this_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let filter = component::guest("", FILTER);
    let passthrough = component::guest("", PASSTHROUGH);
    let expected = answers(&cached(dir.path()), &filter);
    let [file] = files(dir.path()).try_into().expect("one file");
    std::fs::remove_file(&file).expect("remove");
    answers(&cached(dir.path()), &passthrough);
    let [foreign] = files(dir.path()).try_into().expect("one file");
    std::fs::rename(&foreign, &file).expect("rename");
    assert_eq!(answers(&cached(dir.path()), &filter), expected);
}

#[test]
fn a_cache_that_can_not_be_written_costs_only_time() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(
        dir.path().join("cache"),
        b"a file where the directory should be",
    )
    .expect("write");
    answers(&cached(dir.path()), &component::guest("", FILTER));
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let filter = component::guest("", FILTER);
    let passthrough = component::guest("", PASSTHROUGH);
    let another = component::guest("", &format!("{FILTER} (func)"));
    answers(&cached(dir.path()), &filter);
    let [first] = files(dir.path()).try_into().expect("one file");
    answers(&cached(dir.path()), &passthrough);
    let second = files(dir.path())
        .into_iter()
        .find(|file| *file != first)
        .expect("another");
    let bytes = |file: &Path| std::fs::metadata(file).expect("metadata").len();
    let old = |file: &Path, seconds| {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = std::fs::File::options().write(true).open(file);
        file.expect("opens").set_modified(time).expect("set");
    };
    old(&first, 1);
    old(&second, 2);
    std::fs::write(dir.path().join("cache/left.1-1.tmp"), b"unfinished").expect("write");
    let room = ByteSize(bytes(&first) + bytes(&second) / 2 * 3);
    let sandbox = bounded(dir.path(), room);
    answers(&sandbox, &filter);
    answers(&sandbox, &another);
    let left = files(dir.path());
    assert!(left.contains(&first), "it was used just now");
    assert!(!left.contains(&second), "it had to make room");
    assert_eq!(left.len(), 2, "nothing unfinished: {left:?}");

    let sandbox = bounded(dir.path(), ByteSize(0));
    assert_eq!(files(dir.path()), Vec::<PathBuf>::new());
    answers(&sandbox, &passthrough);
    assert_eq!(files(dir.path()), [second], "the newest stays");
}

#[test]
fn one_component_is_compiled_once_for_all_its_names() {
    let sandbox = sandbox();
    let bytes = component::guest("", FILTER);
    let first = sandbox.compile(&bytes).expect("sound");
    let again = sandbox.compile(&bytes).expect("sound");
    assert!(first.is_same(&again));
    drop((first, again));
    works(&sandbox);
}
