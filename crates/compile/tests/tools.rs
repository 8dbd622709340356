//! The tools: accuracy check, minifier, dumps. docs/behaviour/compile-and-hooks.md f.8.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use expect_test::expect;
use firebrand_compile::fused::Fused;
use firebrand_compile::tools::{Checked, check_accuracy, dot, minify, reproducer};
use firebrand_compile::{Backend, Call, ExampleInput, Executable, Result, Value};
use firebrand_core::{DType, Tensor};
use firebrand_graph::ir::{Argument, GraphModule, InsertPoint, Kind, Target};
use firebrand_graph::text::parse_module;
use std::sync::Arc;

fn graph(text: &str) -> GraphModule {
    parse_module(&format!("graph {{\n{text}\n}}\n")).unwrap_or_else(|e| panic!("{e}"))
}

/// A back end that adds one after every relu.
fn faulty(graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
    let mut wrong = graph.clone();
    let relu = Target::aten("relu.default");
    let found: Vec<_> = wrong.graph.find_calls(&relu).collect();
    for n in found {
        let args = [Argument::Node(n), Argument::Int(1)];
        let add = Kind::CallFunction(Target::aten("add.Tensor"));
        let sum = wrong.graph.inserting(InsertPoint::After(n), |g| g.create_node(add, args, [], None));
        wrong.graph.replace_uses_if(n, sum, |_, user| user != sum);
    }
    Fused::default().compile(&wrong, examples)
}

/// U-152: `2 relu(x + 1)` at 1 is 6 instead of 4, and the check names the relu.
#[test]
fn accuracy_check_flags_a_wrong_node() {
    let module = graph(
        "  %x = placeholder\n  %a = aten.add.Tensor(%x, 1)\n  %r = aten.relu.default(%a)\n  %y = aten.mul.Tensor(%r, 2)\n  return (%y,)",
    );
    let inputs = [Value::Tensor(Tensor::full([1], 1.0, DType::F32))];
    let examples: Vec<ExampleInput> = vec![];
    let bad = faulty(&module, &examples).unwrap().run(&inputs, &Call::default()).unwrap();
    assert_eq!(bad[0].tensor().unwrap().item::<f32>(), 6.0);
    let report = check_accuracy(&faulty, &module, &inputs, 1e-3).unwrap();
    assert_eq!(report.wrong, [0]);
    assert_eq!(report.errors, [0.5]);
    let blamed: Vec<&str> = report.blame.iter().map(|d| &*d.node).collect();
    assert_eq!(blamed, ["r"]);
    assert!(check_accuracy(&Fused::default(), &module, &inputs, 1e-3).unwrap().is_accurate());
    // As a mode: every call is checked.
    let checked = Checked::new(faulty, 1e-3).compile(&module, &[]).unwrap();
    let error = checked.run(&inputs, &Call::default()).unwrap_err().to_string();
    assert!(error.contains("%r = aten.relu.default"), "{error}");
    let checked = Checked::new(Fused::default(), 1e-3).compile(&module, &[]).unwrap();
    assert_eq!(checked.run(&inputs, &Call::default()).unwrap()[0].tensor().unwrap().item::<f32>(), 4.0);
}

/// U-153: six ops with the predicate "has relu" come down to relu and one input; the text reads back.
#[test]
fn minifier_keeps_only_what_fails() {
    let module = graph(
        "  %x = placeholder\n  %y = placeholder\n  %a = aten.add.Tensor(%x, %y)\n  %b = aten.mul.Tensor(%a, %y)\n  \
         %c = aten.relu.default(%b)\n  %d = aten.sub.Tensor(%c, %x)\n  %e = aten.sin.default(%d)\n  %f = aten.cos.default(%e)\n  \
         return (%f,)",
    );
    let inputs = [Value::Tensor(Tensor::ones([2, 3], DType::F32)), Value::Tensor(Tensor::ones([3], DType::F32))];
    let relu = Target::aten("relu.default");
    let calls = |g: &GraphModule| {
        g.graph.nodes().filter_map(|n| g.graph[n].target().map(ToString::to_string)).collect::<Vec<_>>()
    };
    let small = minify(&module, &inputs, &mut |g, _| g.graph.find_calls(&relu).next().is_some()).unwrap();
    assert_eq!(calls(&small.graph), ["aten.relu.default"]);
    assert_eq!(small.inputs.len(), 1);
    let text = reproducer(&small.graph, &small.inputs);
    let again = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(calls(&again), ["aten.relu.default"]);
    // A wrong number as predicate: what is left is the op that the back end gets wrong.
    let mut wrong = |g: &GraphModule, i: &[Value]| !check_accuracy(&faulty, g, i, 1e-3).unwrap().is_accurate();
    assert_eq!(calls(&minify(&module, &inputs, &mut wrong).unwrap().graph), ["aten.relu.default"]);
    expect!["internal compiler error: there is nothing to minify: the predicate does not hold for the whole graph; please report it"].assert_eq(&minify(&module, &inputs, &mut |_, _| false).unwrap_err().to_string());
}

#[test]
fn graphs_as_pictures() {
    let module = graph("  %x = placeholder\n  %y = aten.sin.default(%x)\n  return (%y,)");
    let text = dot(&module);
    assert!(text.contains("n0 -> n1;") && text.contains("aten.sin.default"), "{text}");
}
