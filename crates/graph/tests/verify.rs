//! What the verifier refuses in a program: docs/behaviour/graph-and-passes.md §8.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use expect_test::expect;
use firebrand_core::Tensor;
use firebrand_graph::text::parse;
use firebrand_graph::verify::verify_program;
use firebrand_graph::{Dialect, ExportedProgram, State};

const GOOD: &str = "graph {
  %p_w = placeholder : float32[2]
  %b_n = placeholder : float32[2]
  %x = placeholder : float32[2]
  %mul = aten.mul.Tensor(%x, %p_w) : float32[2]
  %add = aten.add.Tensor(%b_n, %mul) : float32[2]
  return (%add, %mul)
}
# inputs
p_w: PARAMETER target='w'
b_n: BUFFER target='n' persistent=True
x: USER_INPUT

# outputs
add: BUFFER_MUTATION target='n'
mul: USER_OUTPUT
";

fn program(text: &str) -> ExportedProgram {
    let mut program = parse(text).unwrap_or_else(|e| panic!("{e}"));
    for (name, is_parameter) in [("w", true), ("n", false)] {
        let tensor = Tensor::new(&[1.0f32, 2.0]);
        program.state_dict.insert(name.to_string(), State { tensor, is_parameter });
    }
    program.dialect = Dialect::Aten;
    program
}

#[test]
fn a_good_program_passes() {
    verify_program(&program(GOOD)).unwrap();
}

/// P-46, P-47 and the other rules of a program, one by one.
#[test]
fn every_rule_is_checked() {
    for (from, to, expected) in [
        ("x: USER_INPUT\n", "", "3 placeholders, the signature 2 input specs"),
        ("x: USER_INPUT\n", "z: USER_INPUT\n", "its input spec is called z"),
        ("mul: USER_OUTPUT\n", "", "returns 2 values, the signature has 1 output specs"),
        ("mul: USER_OUTPUT", "add: USER_OUTPUT", "its output spec is called add"),
        ("PARAMETER target='w'", "PARAMETER target='v'", "parameter v is not in the state dict"),
        ("PARAMETER target='w'", "PARAMETER target='n'", "not a parameter"),
        ("persistent=True", "persistent=False", "not persistent, but in the state dict"),
        ("BUFFER target='n'", "BUFFER target='m'", "neither in the state dict nor a constant"),
        ("BUFFER_MUTATION target='n'", "BUFFER_MUTATION target='m'", "BUFFER_MUTATION of m, which is not an input"),
        ("BUFFER_MUTATION target='n'", "USER_INPUT_MUTATION target='q'", "which is not an input"),
        ("PARAMETER target='w'", "CONSTANT_TENSOR target='w'", "not a constant tensor"),
        ("aten.mul.Tensor(%x", "aten.mul_.Tensor(%x", "mutates an argument"),
        ("%x, %p_w) : float32[2]", "%x, %p_w)", "no abstract value"),
        ("  return (%add, %mul)\n", "", "not an output"),
        (
            "  %x = placeholder",
            "  %y = aten.neg.default(%p_w) : float32[2]\n  %x = placeholder",
            "comes after other nodes",
        ),
        ("  %x = placeholder", "  %x = placeholder x(%p_w)", "the default of a placeholder names a node"),
    ] {
        let error = verify_program(&program(&GOOD.replacen(from, to, 1))).unwrap_err().to_string();
        assert!(error.contains(expected), "{from} -> {to}: {error}");
    }
    let read = GOOD.replace("%mul = aten.mul.Tensor(%x, %p_w)", "%k = get_attr k\n  %mul = aten.mul.Tensor(%x, %k)");
    assert!(verify_program(&program(&read)).unwrap_err().to_string().contains("constants are inputs"));
    expect!["node %: the program has no signature"]
        .assert_eq(&verify_program(&parse("graph {\n  return ()\n}\n").unwrap()).unwrap_err().to_string());
}

/// A spec of an output has no name only if the output is a constant.
#[test]
fn nameless_outputs_are_constants() {
    let text = |specs: &str| {
        format!("graph {{\n  %x = placeholder\n  return (None, %x)\n}}\n# inputs\nx: USER_INPUT\n\n# outputs\n{specs}")
    };
    firebrand_graph::text::parse(&text(": USER_OUTPUT\nx: USER_OUTPUT\n")).unwrap();
    let error = firebrand_graph::text::parse(&text(": USER_OUTPUT\n: USER_OUTPUT\n")).unwrap_err().to_string();
    assert!(error.starts_with("line 10") && error.contains("a value of the graph is returned here"), "{error}");
}
