//! Region passes where text alone does not tell: identity, metadata, errors.

use firebrand_graph::Error;
use firebrand_graph::ir::{Function, Hop, Target, Val};
use firebrand_graph::passes::*;
use firebrand_graph::text::{Form, parse, print};
use std::sync::Arc;

const TYPED: &str = r#"graph {
  %x = placeholder : float32[2]
  %g0 = torch._set_grad_enabled(False) : none @nn_module_stack=["k", "layer", "Layer"]
  %sin = aten.sin.default(%x) : float32[2]
  %g1 = torch._set_grad_enabled(True) : none
  return (%sin,)
}
"#;

/// P-1, P-60: without markers the same objects come back.
#[test]
fn nothing_to_do() {
    let text = "graph {\n  %x = placeholder\n  return (%x,)\n}\n# inputs\nx: USER_INPUT\n\n# outputs\nx: USER_OUTPUT\n";
    let program = parse(text).unwrap();
    for pass in [replace_set_grad_with_hop_pass, replace_autocast_with_hop_pass] {
        let (after, report) = pass(&program, &Context::default()).unwrap();
        assert!(Arc::ptr_eq(&after.module, &program.module));
        assert!(Arc::ptr_eq(after.signature.as_ref().unwrap(), program.signature.as_ref().unwrap()));
        assert_eq!(report, Report::default());
    }
}

/// P-50
#[test]
fn a_second_run_changes_nothing() {
    let program = parse(TYPED).unwrap();
    let (once, report) = replace_set_grad_with_hop_pass(&program, &Context::default()).unwrap();
    assert!(report.changed);
    let (twice, report) = replace_set_grad_with_hop_pass(&once, &Context::default()).unwrap();
    assert!(!report.changed && Arc::ptr_eq(&once.module, &twice.module));
}

/// P-2, P-3: what is known of the new nodes.
#[test]
fn metadata_of_a_region() {
    let (after, _) = replace_set_grad_with_hop_pass(&parse(TYPED).unwrap(), &Context::default()).unwrap();
    let graph = &after.module.graph;
    let hop = graph.find_calls(&Target::from(Hop::WrapWithSetGradEnabled)).next().unwrap();
    let meta = graph[hop].meta();
    assert!(matches!(&meta.val, Some(Val::Tuple(items)) if items.len() == 1));
    assert_eq!(meta.nn_module_stack.as_ref().unwrap()["k"], ("layer".to_string(), "Layer".to_string()));
    let torch_fn = meta.torch_fn.as_ref().unwrap();
    assert_eq!(torch_fn.0, "wrap_with_set_grad_enabled");
    assert_eq!(torch_fn.1, "WrapWithSetGradEnabled.wrap_with_set_grad_enabled");
    let item = graph.find_calls(&Target::from(Function::GetItem)).next().unwrap();
    assert!(graph[item].meta().val.as_ref().unwrap().tensor().is_some());
    // The long form keeps all of it.
    let long = print(&after, Form::Long);
    assert_eq!(print(&parse(&long).unwrap(), Form::Long), long);
}

/// P-49
#[test]
fn a_marker_without_module_stack() {
    let text = TYPED.replace(r#" @nn_module_stack=["k", "layer", "Layer"]"#, "");
    let (after, _) = replace_set_grad_with_hop_pass(&parse(&text).unwrap(), &Context::default()).unwrap();
    let graph = &after.module.graph;
    let hop = graph.find_calls(&Target::from(Hop::WrapWithSetGradEnabled)).next().unwrap();
    assert!(graph[hop].meta().nn_module_stack.as_ref().unwrap().is_empty());
}

/// P-48
#[test]
fn a_region_value_without_val() {
    let text = TYPED.replace("sin.default(%x) : float32[2]", "sin.default(%x)");
    let error = replace_set_grad_with_hop_pass(&parse(&text).unwrap(), &Context::default()).unwrap_err();
    assert!(matches!(&error, Error::PassNode { node, .. } if node == "sin"), "{error}");
}

/// P-46, P-47
#[test]
fn outputs_and_specs_agree() {
    let graph = "graph {\n  %x = placeholder\n  %g = torch._set_grad_enabled(False)\n  return (None, %x)\n}\n";
    let run = |outputs: &str| {
        let program = parse(&format!("{graph}# inputs\nx: USER_INPUT\n\n# outputs\n{outputs}")).unwrap();
        replace_set_grad_with_hop_pass(&program, &Context::default())
    };
    run(": USER_OUTPUT\nx: USER_OUTPUT\n").expect("a spec without a name stands for the none");
    for (case, outputs, expected) in [
        ("P-46", "x: USER_OUTPUT\n", "the graph returns 2 values, the signature has 1 output specs"),
        ("P-47", ": USER_OUTPUT arg=constant value=3\nx: USER_OUTPUT\n", "output 0 is None, but its spec says"),
        ("P-47", "y: USER_OUTPUT\nx: USER_OUTPUT\n", "output 0 is None, but its spec says"),
    ] {
        let error = run(outputs).unwrap_err().to_string();
        assert!(error.contains(expected), "{case} {outputs}: {error}");
    }
}
