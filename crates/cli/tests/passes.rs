//! `firebrand pass` and `firebrand inspect` on graphs in text form.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

const GRAPH: &str = "graph {
  %x = placeholder
  %g0 = torch._set_grad_enabled(False)
  %sin = aten.sin.default(%x)
  %g1 = torch._set_grad_enabled(True)
  %mul = aten.mul.Tensor(%sin, 2)
  return (%mul,)
}
# inputs
x: USER_INPUT

# outputs
mul: USER_OUTPUT
";

fn firebrand(arguments: &[&str], folder: &std::path::Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firebrand")).args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn passes_on_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("g.fb"), GRAPH).unwrap();
    let out = firebrand(&["pass", "set_grad,autocast", "g.fb"], at);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("%sin = hop.wrap_with_set_grad_enabled(False, %submod_3, %x)"), "{text}");
    let off = firebrand(&["pass", "set_grad", "g.fb", "--ambient-grad", "off", "-o", "out.fb"], at);
    assert!(off.stdout.is_empty() && off.status.success());
    let written = std::fs::read_to_string(at.join("out.fb")).unwrap();
    assert!(written.contains("hop.wrap_with_set_grad_enabled(True"), "{written}");
    assert!(written.ends_with("# outputs\ngetitem: USER_OUTPUT\n"), "{written}");
    let list = String::from_utf8(firebrand(&["pass", "--list"], at).stdout).unwrap();
    assert!(list.contains("replace_set_grad_with_hop_pass (or set_grad)"), "{list}");
}

#[test]
fn refusals_and_usage() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("bad.fb"), GRAPH.replace("(False)", "(0)")).unwrap();
    std::fs::write(at.join("not.fb"), "nonsense").unwrap();
    assert_eq!(firebrand(&["pass", "no_such_pass", "bad.fb"], at).status.code(), Some(2));
    let refused = firebrand(&["pass", "set_grad", "bad.fb", "-o", "out.fb"], at);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("%g0"));
    assert!(!at.join("out.fb").exists());
    let not = firebrand(&["pass", "set_grad", "not.fb"], at);
    assert!(String::from_utf8(not.stderr).unwrap().contains("line 1"));
}

#[test]
fn inspect_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("g.fb"), GRAPH).unwrap();
    let out = firebrand(&["inspect", "g.fb", "--json"], folder.path());
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["ops"]["aten.sin.default"], 1);
    assert_eq!(json["inputs"][0]["kind"], "USER_INPUT");
}
