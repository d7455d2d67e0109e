use super::*;
use http_body_util::BodyExt;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[tokio::test]
async fn a_problem_has_every_member() {
    let error = Error::new(ErrorKind::Busy, "busy", "64 MiB are waiting");
    let answer = Problem::from(error).member("limit", 5).into_answer("r1");
    assert_eq!(answer.status(), 503);
    assert_eq!(
        answer.headers()[header::CONTENT_TYPE],
        "application/problem+json"
    );
    assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    let body: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let expected = json!({
        "type": "/v1/errors/busy", "title": "too much is waiting", "status": 503, "code": "busy", "detail": "64 MiB are waiting",
        "retryable": true, "no_side_effects": true, "request_id": "r1", "limit": 5
    });
    assert_eq!(body, expected);
}

#[test]
fn kinds_say_what_to_expect() {
    for (kind, code, status, retryable, no_side_effects) in [
        (ErrorKind::Invalid, "invalid-component", 422, false, true),
        (ErrorKind::Invalid, "no-page-yet", 400, false, true),
        (ErrorKind::NotFound, "topic-not-found", 404, false, true),
        (ErrorKind::Conflict, "no-page-yet", 409, false, true),
        (ErrorKind::OutOfRange, "no-page-yet", 416, false, true),
        (ErrorKind::TooLarge, "too-large", 413, false, true),
        (ErrorKind::StorageFull, "storage-full", 507, true, true),
        (ErrorKind::Unavailable, "unavailable", 503, true, false),
        (ErrorKind::Internal, "internal", 500, false, false),
        (ErrorKind::Corrupt, "corrupt", 500, false, false),
    ] {
        let problem = Problem::from(Error::new(kind, code, "x"));
        assert_eq!(
            (
                problem.status.as_u16(),
                problem.retryable,
                problem.no_side_effects
            ),
            (status, retryable, no_side_effects),
            "{kind:?} {code}"
        );
    }
}

/// Every code that the host's source names has a page, so that no client gets a dead address.
#[test]
fn every_code_has_a_page() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    source_files(&host, &mut files);
    assert!(
        files.len() > 50,
        "{} files found: is the walk right?",
        files.len()
    );
    let used: BTreeSet<String> = files
        .iter()
        .flat_map(|file| codes(&std::fs::read_to_string(file).unwrap()))
        .collect();
    assert!(
        used.contains("topic-in-use") && used.contains("invalid-size"),
        "{used:?}"
    );
    let missing: Vec<_> = used.iter().filter(|code| page(code).is_none()).collect();
    assert!(
        missing.is_empty(),
        "add pages for {missing:?} in problem/pages/"
    );
}

#[test]
fn pages_are_complete_and_unique() {
    let codes: BTreeSet<_> = pages().map(|page| page.code).collect();
    assert_eq!(codes.len(), pages().count());
    for page in pages() {
        assert!(
            (400..600).contains(&page.status)
                && page.meaning.ends_with('.')
                && page.remedy.ends_with('.'),
            "{}",
            page.code
        );
    }
}

fn source_files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() && name != "tests" && name != "target" {
            source_files(&entry, out);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            out.push(entry);
        }
    }
}

/// The codes given to errors in a source text: the first string after one of the constructors.
fn codes(source: &str) -> Vec<String> {
    let source = source
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let constructors = [
        "Error::invalid(",
        "Error::not_found(",
        "Error::conflict(",
        "Error::unavailable(",
        "Problem::new(",
        "Problem::because(",
    ];
    let after = constructors
        .iter()
        .flat_map(|constructor| source.split(constructor).skip(1).map(|rest| (rest, 0)));
    let by_kind = source
        .split("Error::new(")
        .skip(1)
        .filter_map(|rest| rest.split_once(',').map(|(_, rest)| (rest, 0)));
    after
        .chain(by_kind)
        .filter_map(|(rest, _)| {
            rest.trim_start()
                .strip_prefix('"')?
                .split('"')
                .next()
                .map(str::to_owned)
        })
        .collect()
}
