//! The corpus: hand-made, random and exported graphs with what PyTorch's passes make of them, exact to the name.

use firebrand_graph::ir::Argument;
use firebrand_graph::passes::{self, Context};
use firebrand_graph::text::{Form, parse, print, print_module};
use firebrand_graph::{ExportedProgram, GraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, SpecArg};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn files(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == extension));
    files.sort();
    files
}

/// The signature as text, which is how both sides are compared.
fn signature(json: &Value) -> GraphSignature {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let specs = |side: &str| json[side].as_array().unwrap();
    let arg = |s: &Value| match s["arg"].as_str().unwrap() {
        "ConstantArgument" => SpecArg::Constant { name: text(&s["name"]).into(), value: Argument::None },
        _ => SpecArg::Tensor(text(&s["name"]).into()),
    };
    let inputs = specs("inputs").iter().map(|s| {
        let target = text(&s["target"]).into();
        let kind = match s["kind"].as_str().unwrap() {
            "USER_INPUT" => InputKind::UserInput,
            "PARAMETER" => InputKind::Parameter(target),
            "BUFFER" => InputKind::Buffer { target, persistent: true },
            kind => panic!("{kind}"),
        };
        InputSpec { kind, arg: arg(s) }
    });
    let outputs = specs("outputs")
        .iter()
        .map(|s| {
            assert_eq!(s["kind"], "USER_OUTPUT");
            OutputSpec { kind: OutputKind::UserOutput, arg: arg(s) }
        })
        .collect();
    GraphSignature { inputs: inputs.collect(), outputs }
}

fn check(name: &str, case: &Value, default_passes: &[&str]) {
    let named: Vec<&str> =
        case["passes"].as_array().map_or(default_passes.to_vec(), |p| p.iter().map(|p| p.as_str().unwrap()).collect());
    let program = parse(case["before_text"].as_str().unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let before = (!case["before_signature"].is_null()).then(|| signature(&case["before_signature"]));
    let program = ExportedProgram { signature: before.map(Into::into), ..program };
    let context = Context { ambient_grad: case["ambient"].as_bool().unwrap(), compat: true };
    let list: Vec<_> = named.iter().map(|p| passes::find(p).unwrap()).collect();
    let (after, _) = passes::run(&program, &list, &context).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(print_module(&after.module, Form::Short), case["after_text"].as_str().unwrap(), "{name}");
    let names = |s: &GraphSignature| s.outputs.iter().map(|o| o.arg.name().to_string()).collect::<Vec<_>>();
    if let Some(found) = &after.signature {
        assert_eq!(names(found), names(&signature(&case["after_signature"])), "{name}");
    }
}

#[test]
fn hand_made_and_random_graphs() {
    let file = files("json").into_iter().find(|f| f.ends_with("pass_cases.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(cases.len(), 40);
    for case in &cases {
        check(case["name"].as_str().unwrap(), case, &[]);
    }
}

/// P-55, P-57: what tracing a no_grad decorator or an empty block leaves is among them.
#[test]
fn exported_graphs() {
    let mut count = 0;
    for file in files("json") {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let Some(pass) = ["set_grad", "autocast"].into_iter().find(|p| name.ends_with(p)) else { continue };
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        check(name, &case, &[pass]);
        count += 1;
    }
    assert!(count >= 5, "{count}");
}

/// Printing what was read gives the same text, in both forms.
#[test]
fn programs_read_and_print() {
    let files = files("fb");
    assert!(files.len() > 20);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let program = parse(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(print(&program, Form::Short), text, "{}", file.display());
        let long = print(&program, Form::Long);
        assert_eq!(print(&parse(&long).unwrap(), Form::Long), long, "{}", file.display());
    }
}
