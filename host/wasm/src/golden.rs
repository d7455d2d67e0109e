//! The golden bytes beside the contract, for tests.

/// The bytes of a file under `wit/golden`: hexadecimal, `#` starts a comment.
pub(crate) fn bytes(file: &str) -> Vec<u8> {
    let path = format!("{}/../../wit/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines()
        .filter_map(|line| line.split('#').next())
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|e| panic!("{path}: {byte}: {e}")))
        .collect()
}

/// The events of `batch.hex`.
pub(crate) fn rows() -> tidemill_types::PackedRows {
    let mut rows = tidemill_types::PackedRows::default();
    let time = |text: &str| text.parse().expect("a time");
    let key = Some(b"UA".as_slice());
    rows.push(
        time("2013-01-01T10:15:00Z"),
        key,
        Some(br#"{"n":1}"#),
        [("source", b"gate-3".as_slice())],
    )
    .expect("push");
    rows.push(time("2013-01-01T10:15:01Z"), key, Some(br#"{"n":2}"#), [])
        .expect("push");
    rows.push(time("2013-01-01T10:15:02Z"), None, None, [])
        .expect("push");
    rows
}
