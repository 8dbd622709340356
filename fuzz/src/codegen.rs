//! Targets of the derivative code generator: nothing panics, and what is read prints back.

use crate::counting::measured;
use firebrand_codegen::ctype::CBase;
use firebrand_codegen::emit::{Source, generate};
use firebrand_codegen::formula::{replace_ident, tokens::Lexed, uses_ident};
use firebrand_codegen::schema::FunctionSchema;
use firebrand_codegen::{Dialect, Sources, Stage, dump, lint, yaml};

/// A schema that parses prints back as it was, and its signature is its own signature.
pub(crate) fn fuzz_schema(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(schema) = measured(data.len(), || text.parse::<FunctionSchema>()) else { return false };
    assert_eq!(schema.to_string(), text);
    let signature = schema.signature();
    assert_eq!(signature.signature(), signature);
    schema.kind();
    true
}

/// Any text is a tree or an error.
pub(crate) fn fuzz_yaml(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(node) = measured(data.len(), || yaml::parse(text, Stage::Native)) else { return false };
    assert!(node.line >= 1);
    true
}

/// Replacing a name by itself changes nothing, in both readings; rewriting takes any text.
pub(crate) fn fuzz_formula(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let lexed = Lexed::new(text);
    let mut end = 0;
    for token in &lexed.tokens {
        assert!(token.range.start >= end && token.range.end > token.range.start);
        end = token.range.end;
    }
    for name in ["grad", "self", "x"] {
        let with = name;
        assert_eq!(replace_ident(text, name, with), text);
        assert_eq!(lexed.replace(name, with), text);
        assert!(!lexed.uses(name) || uses_ident(text, name));
    }
    let names = [("self", CBase::Tensor.into()), ("f", CBase::Tensor.into()), ("dim", CBase::Long.into())];
    let var_names = ["self".to_owned()];
    for dialect in [Dialect::Cpp, Dialect::Rust] {
        if let Ok((formula, saved)) = dialect.saved_variables(text, &names, &var_names) {
            assert!(saved.iter().all(|s| formula.contains(&s.name)));
        }
    }
    Dialect::Rust.check(text).is_ok()
}

/// Where an input of [`fuzz_dump`] is cut into declarations and derivatives.
const CUT: &str = "-----\n";

/// Any two files give the same dump twice, or the same error twice.
pub(crate) fn fuzz_dump(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let (native, derivatives) = text.split_once(CUT).unwrap_or((text, "[]"));
    let found = dump(native, derivatives, true);
    assert_eq!(found, dump(native, derivatives, true));
    for dialect in [Dialect::Cpp, Dialect::Rust] {
        if let Ok(report) = lint::lint(native, derivatives, dialect) {
            assert!(report.findings.iter().all(|finding| finding.line >= 1));
        }
        let sources = Sources { native, derivatives, tags: None, dialect };
        if let Ok(model) = sources.model() {
            assert!(!model.functions.is_empty() || model.infos.is_empty());
        }
    }
    found.is_ok()
}

/// Any two files of ours are refused with a place, or give the same text twice, all of it Rust.
pub(crate) fn fuzz_emit(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let (ops, derivatives) = text.split_once(CUT).unwrap_or((text, ""));
    let run =
        || generate(Source { name: "ops.yaml", text: ops }, Source { name: "derivatives.yaml", text: derivatives });
    let found = run();
    assert_eq!(found, run());
    match found {
        Ok(files) => {
            let written = |text: &str| !text.contains("the generator wrote text that does not parse");
            assert!(files.iter().all(|file| written(&file.text)));
            true
        }
        Err(e) => {
            assert!(e.file.is_some(), "{e}");
            false
        }
    }
}
