use super::*;

fn load(file: Option<&str>, env: &[(&str, &str)], overrides: &Overrides) -> Result<Config> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidemill.toml");
    if let Some(text) = file {
        std::fs::write(&path, text).unwrap();
    }
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(file.map(|_| path.as_path()), env, overrides)
}

#[test]
fn flags_override_variables_override_the_file() {
    let file = "dir = \"a\"\n[log]\nsegment_bytes = \"1MiB\"\nsegment_age = \"1h\"\n[functions]\nthreads = 3\n[storage.options]\naws_region = \"x\"\n";
    let env = [
        ("TIDEMILL_LOG__SEGMENT_BYTES", "2MiB"),
        ("TIDEMILL_DIR", "b"),
        ("TIDEMILL_HOST", "http://elsewhere"),
        ("HOME", "x"),
    ];
    let overrides = Overrides {
        dir: Some("c".into()),
        listen: Some("[::1]:0".into()),
        settings: vec![
            ("http.busy_wait".into(), "1ms".into()),
            // So much that no share is below its default, whatever the machine has.
            ("memory.limit".into(), "64GiB".into()),
        ],
    };
    let config = load(Some(file), &env, &overrides).unwrap();
    let mut expected = Config {
        memory_limit: ByteSize::mib(64 << 10),
        dir: "c".into(),
        listen: "[::1]:0".parse().unwrap(),
        ..Config::default()
    };
    expected.log.segment_bytes = ByteSize::mib(2);
    expected.log.segment_age = Duration::from_secs(3600);
    expected.functions.threads = 3;
    expected.http.busy_wait = Duration::from_millis(1);
    expected
        .storage
        .options
        .insert("aws_region".into(), "x".into());
    assert_eq!(config, expected);
}

#[test]
fn what_is_wrong_is_named() {
    let set = |key: &str, value: &str| Overrides {
        settings: vec![(key.into(), value.into())],
        ..Overrides::default()
    };
    for (file, env, overrides, code, says) in [
        (
            Some("[log]\nsegment_byte = \"1MiB\""),
            ("A", "b"),
            Overrides::default(),
            "invalid-config",
            "did you mean \"log.segment_bytes\"?",
        ),
        (
            None,
            ("TIDEMILL_LOG__SEGMENT_BITES", "1"),
            Overrides::default(),
            "invalid-config",
            "TIDEMILL_LOG__SEGMENT_BITES: there is no setting \"log.segment_bites\"; did you mean",
        ),
        (
            None,
            ("A", "b"),
            set("log.segment_bytes", "much"),
            "invalid-config",
            "\"much\" is not a size",
        ),
        (
            None,
            ("A", "b"),
            set("http.body_bytes", "1GiB"),
            "invalid-config",
            "36MiB at most",
        ),
        (
            None,
            ("A", "b"),
            set("telemetry.format", "xml"),
            "invalid-config",
            "\"text\" or \"json\"",
        ),
        (
            None,
            ("A", "b"),
            set("telemetry.level", "loud=very"),
            "invalid-config",
            "trace",
        ),
        (
            None,
            ("A", "b"),
            set("http.connections", "0"),
            "invalid-config",
            "at least one",
        ),
        (
            Some("dir = "),
            ("A", "b"),
            Overrides::default(),
            "invalid-config",
            "is not TOML",
        ),
        (
            None,
            ("TIDEMILL_LISTEN", "0.0.0.0:7070"),
            Overrides::default(),
            "not-loopback",
            "127.0.0.1",
        ),
    ] {
        let error = load(file, &[env], &overrides).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.detail.contains(says), "{says:?} in {error}");
    }
    let missing = Config::load(
        Some(Path::new("/nowhere/tidemill.toml")),
        std::iter::empty(),
        &Overrides::default(),
    )
    .unwrap_err();
    assert!(
        missing
            .detail
            .contains("/nowhere/tidemill.toml can't be read"),
        "{missing}"
    );
}

#[test]
fn the_reference_configuration_is_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/tidemill.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        Config::default().to_toml(),
        "write what Config::default().to_toml() gives into deploy/tidemill.toml"
    );
    assert_eq!(
        load(Some(&text), &[], &Overrides::default()).unwrap(),
        Config::default()
    );
}

#[test]
fn a_written_configuration_reads_back() {
    let mut config = Config {
        dir: "somewhere \"else\"".into(),
        ..Config::default()
    };
    config
        .storage
        .options
        .insert("aws_endpoint".into(), "http://127.0.0.1:9".into());
    config.telemetry.format = LogFormat::Json;
    assert_eq!(
        load(Some(&config.to_toml()), &[], &Overrides::default()).unwrap(),
        config
    );
}
