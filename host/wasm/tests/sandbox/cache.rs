//! Compiled components on disk.

use super::*;
use std::path::{Path, PathBuf};

fn cached(dir: &Path) -> Sandbox {
    Sandbox::new(Settings {
        cache_dir: Some(dir.join("cache")),
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
    let written = std::fs::metadata(&file)
        .expect("metadata")
        .modified()
        .expect("a time");
    assert_eq!(answers(&cached(dir.path()), &bytes), fresh);
    let after = std::fs::metadata(&file)
        .expect("metadata")
        .modified()
        .expect("a time");
    assert_eq!(
        written, after,
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
