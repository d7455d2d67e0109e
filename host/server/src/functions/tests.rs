use super::start_of;
use super::upload::manifest_value;
use serde_json::json;
use tidemill_processor::Start;
use tidemill_types::Timestamp;

#[test]
fn manifests_in_toml_and_json_are_the_same() {
    let toml = "[function]\nname = \"f\"\n[[input]]\ntopic = \"in\"\nstart = 2013-01-01T00:00:00Z\n[config]\nthreshold = 15\nratio = 0.5\non = true\nlist = [1, \"a\"]\n";
    let expected = json!({
        "function": {"name": "f"},
        "input": [{"topic": "in", "start": "2013-01-01T00:00:00Z"}],
        "config": {"threshold": 15, "ratio": 0.5, "on": true, "list": [1, "a"]}
    });
    assert_eq!(manifest_value(toml.as_bytes(), false).unwrap(), expected);
    assert_eq!(
        manifest_value(expected.to_string().as_bytes(), false).unwrap(),
        expected
    );
    assert_eq!(
        manifest_value(expected.to_string().as_bytes(), true).unwrap(),
        expected
    );
    for (text, is_json, says) in [
        (&b"[function"[..], false, "not TOML"),
        (b"{", false, "not JSON"),
        (b"x = 1", true, "not JSON"),
        (b"\xff", false, "UTF-8"),
    ] {
        let refusal = manifest_value(text, is_json).unwrap_err();
        assert_eq!(refusal.code, "invalid-manifest");
        assert!(refusal.detail.contains(says), "{}", refusal.detail);
    }
}

#[test]
fn starts_are_read() {
    assert_eq!(start_of("earliest").unwrap(), Start::Earliest);
    assert_eq!(start_of("latest").unwrap(), Start::Latest);
    assert_eq!(
        start_of("1970-01-01T00:00:01Z").unwrap(),
        Start::At(Timestamp::from_micros(1_000_000))
    );
    assert!(
        start_of("now")
            .unwrap_err()
            .detail
            .contains("earliest, latest, keep or a time")
    );
}
