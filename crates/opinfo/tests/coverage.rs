//! `coverage.txt` says what the table says; `UPDATE_EXPECT=1` writes it anew.

use std::path::Path;

#[test]
fn the_recorded_counts_are_those_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("coverage.txt");
    let text = firebrand_opinfo::coverage_text();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &text).expect("the crate's folder can be written");
    }
    let found = std::fs::read_to_string(&path).expect("coverage.txt is there");
    assert!(found == text, "coverage.txt is stale; run this test with UPDATE_EXPECT=1");
}

#[test]
fn recorded_counts_read_back() {
    if std::env::var_os("UPDATE_EXPECT").is_none() {
        assert_eq!(firebrand_opinfo::recorded_coverage(), firebrand_opinfo::coverage());
    }
}
