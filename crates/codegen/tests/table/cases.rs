//! Example folders: declarations and formulas with the dump they must give, byte for byte.

use std::path::Path;

#[test]
fn every_folder_gives_its_expected_dump() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<_> = std::fs::read_dir(&root)
        .expect("the folder of cases")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.join("native.yaml").exists())
        .collect();
    folders.sort();
    assert!(folders.len() >= 8, "cases are missing");
    for folder in folders {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a case file");
        let plan = folder.join("PLAN").exists();
        let found = firebrand_codegen::dump(&read("native.yaml"), &read("derivatives.yaml"), plan)
            .unwrap_or_else(|error| firebrand_codegen::error_json(&error));
        assert!(found == read("expected.json"), "{} differs", folder.display());
    }
}
