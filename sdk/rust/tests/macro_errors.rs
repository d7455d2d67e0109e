//! What the attribute says of functions it can't take: the message stands at the author's code and says
//! what to write. `TRYBUILD=overwrite cargo test -p tidemill --test macro_errors` writes the messages anew.

#[test]
fn errors_point_at_the_authors_code() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
