//! What text alone does not tell of passes that rewrite nodes: values of folded constants, vetoes, metadata, errors.

use firebrand_core::Tensor;
use firebrand_graph::ir::*;
use firebrand_graph::passes::*;
use firebrand_graph::text::{Form, parse, parse_module, print, print_module};
use firebrand_graph::verify::verify_module;
use firebrand_graph::{Constant, ExportedProgram, InputKind};
use std::sync::Arc;

fn run(text: &str, pass: PassFn) -> ExportedProgram {
    let program = parse(text).unwrap_or_else(|e| panic!("{e}"));
    let (after, _) = pass(&program, &Context::default()).unwrap_or_else(|e| panic!("{e}"));
    verify_module(&after.module).unwrap();
    let (again, report) = pass(&after, &Context::default()).unwrap();
    assert!(!report.changed, "a second run changes:\n{}", print(&again, Form::Short));
    after
}

fn body(program: &ExportedProgram) -> Vec<String> {
    let graph = &program.module.graph;
    print_module(&program.module, Form::Short).lines().skip(1).take(graph.len()).map(|l| l.trim().to_string()).collect()
}

fn names(program: &ExportedProgram) -> Vec<String> {
    let graph = &program.module.graph;
    graph.nodes().map(|n| graph[n].name().to_string()).collect()
}

fn with_constant() -> ExportedProgram {
    let mut module = parse_module(
        "graph {
  %x = placeholder
  %w = get_attr w
  %v = get_attr v
  %mul = aten.mul.Tensor(%w, 2)
  %add = aten.add.Tensor(%mul, 1)
  %ones = aten.ones.default([2])
  %random = aten.bernoulli.default(%w)
  %only = aten.neg.default(%v)
  %only_1 = aten.neg.default(%only)
  return (%mul, %add, %ones, %random, %x, %only_1)
}
",
    )
    .unwrap();
    module.attributes.set("w", Attribute::Tensor(Tensor::new(&[0.25f32, 0.5])));
    module.attributes.set("v", Attribute::Tensor(Tensor::new(&[3.0f32])));
    ExportedProgram::new(module, None)
}

/// P-115
#[test]
fn constants_are_folded() {
    let (after, report) = constant_fold(&with_constant(), &Context::default()).unwrap();
    assert!(report.changed);
    verify_module(&after.module).unwrap();
    assert_eq!(
        body(&after),
        [
            "%x = placeholder",
            "%w = get_attr w",
            "%_frozen_param0 = get_attr _frozen_param0",
            "%_frozen_param1 = get_attr _frozen_param1",
            "%ones = aten.ones.default([2])",
            "%random = aten.bernoulli.default(%w)",
            "%_frozen_param2 = get_attr _frozen_param2",
            "return (%_frozen_param0, %_frozen_param1, %ones, %random, %x, %_frozen_param2)",
        ]
    );
    let value = |name: &str| after.module.attributes.get(name).unwrap().tensor().unwrap().to_vec::<f32>();
    assert_eq!(value("_frozen_param1"), [1.5, 2.0]);
    assert_eq!(value("_frozen_param2"), [3.0]);
    assert!(after.module.attributes.get("v").is_none());
}

/// P-116
#[test]
fn folding_can_be_vetoed() {
    let mut program = with_constant();
    let module = Arc::make_mut(&mut program.module);
    module.attributes.set("unread", Attribute::Tensor(Tensor::new(&[1.0f32])));
    module.graph.inserting(InsertPoint::Front, |g| g.get_attr("unread"));
    let (after, _) = constant_fold_if(&program, |_, _| false).unwrap();
    assert!(after.module.attributes.get("unread").is_none());
    assert_eq!(print_module(&after.module, Form::Short), print_module(&with_constant().module, Form::Short));
}

/// P-117
#[test]
fn guards_before_custom_ops() {
    let text =
        "graph {\n  %x = placeholder : float32[2]\n  %y = aten.add.Tensor(%x, %x) : float32[2]\n  return (%y,)\n}\n";
    let ops = [OpOverload::new("aten::add.Tensor")];
    let (after, _) = insert_custom_op_guards(&parse(text).unwrap(), &ops).unwrap();
    let check = "aten._assert_tensor_metadata.default(%x, dtype=float32, device=device(cpu), layout=strided)";
    assert_eq!(body(&after)[1], format!("%_assert_tensor_metadata_default = {check}"));
    assert_eq!(body(&after)[2], format!("%_assert_tensor_metadata_default_1 = {check}"));
}

/// A node that a pass inserts knows its value, the modules around its argument, and what it calls.
#[test]
fn new_nodes_are_completed() {
    let text = r#"graph {
  %x = placeholder : float32[2, 3]
  %s = aten.sin.default(%x) : float32[2, 3] @nn_module_stack=["k", "layer", "Layer"]
  return (%s,)
}
"#;
    let mut graph = parse(text).unwrap().module.graph.clone();
    let (x, s) = (graph.find("x").unwrap(), graph.find("s").unwrap());
    graph.register_create_node_hook(node_metadata_hook);
    graph.set_insert_point(InsertPoint::After(s));
    let t = graph.call_function(Target::aten("t.default"), [s.into()]);
    let expected =
        TensorMeta { strides: vec![1.into(), 3.into()], ..TensorMeta::contiguous(ScalarType::Float32, &[3, 2]) };
    assert_eq!(graph[t].meta().val, Some(expected.into()));
    assert_eq!(graph[t].meta().nn_module_stack, graph[s].meta().nn_module_stack);
    let torch_fn = graph[t].meta().torch_fn.as_ref().unwrap();
    assert_eq!((torch_fn.0.as_str(), torch_fn.1.as_str()), ("t.default_0", "OpOverload.t.default"));
    // Without modules around it, a mark says so; a call without results has the value none.
    let check = graph.call_function(Target::aten("_assert_async.default"), [x.into()]);
    assert_eq!(graph[check].meta().val, Some(Val::None));
    let stack = graph[check].meta().nn_module_stack.as_ref().unwrap();
    assert_eq!(stack.keys().collect::<Vec<_>>(), ["_empty_nn_module_stack_from_metadata_hook"]);
}

const CONSTANTS: &str = "graph {
  %p_w = placeholder
  %x = placeholder
  %t0 = get_attr t0
  %lift = aten.lift_fresh_copy.default(%t0)
  %detach_ = aten.detach_.default(%lift)
  %k = get_attr k @nn_module_stack=[\"m\", \"sub\", \"Sub\"]
  %again = get_attr k2
  %dead = get_attr dead
  %dead_lift = aten.lift_fresh_copy.default(%dead)
  %add = aten.add.Tensor(%x, %detach_)
  %mul = aten.mul.Tensor(%k, %again)
  return (%add, %mul)
}
# inputs
p_w: PARAMETER target='w'
x: USER_INPUT

# outputs
add: USER_OUTPUT
mul: USER_OUTPUT
";

/// P-98, P-99, P-100, P-101, P-102
#[test]
fn constants_become_inputs() {
    let mut program = parse(CONSTANTS).unwrap();
    let (t0, k, dead) = (Tensor::new(&[1.0f32]), Tensor::new(&[2.0f32]), Tensor::new(&[3.0f32]));
    let module = Arc::make_mut(&mut program.module);
    for (name, tensor) in [("t0", &t0), ("k", &k), ("k2", &k), ("dead", &dead)] {
        module.attributes.set(name, Attribute::Tensor(tensor.clone()));
    }
    // Without names of the model: literals, the second one in a sub-module.
    let (after, _) = lift_constants_pass(&program, &Context::default()).unwrap();
    let specs: Vec<_> = after.signature().unwrap().inputs.iter().map(|s| s.kind.clone()).collect();
    let constant = |name: &str| InputKind::ConstantTensor(name.into());
    let expected = [
        InputKind::Parameter("w".into()),
        constant("lifted_tensor_0"),
        constant("sub.lifted_tensor_1"),
        InputKind::UserInput,
    ];
    assert_eq!(specs, expected, "P-98, P-101");
    assert_eq!(after.constants.len(), 2, "P-102: the unused one is gone");
    assert_eq!(
        body(&after),
        [
            "%p_w = placeholder",
            "%lifted_tensor_0 = placeholder",
            "%sub_lifted_tensor_1 = placeholder",
            "%x = placeholder",
            "%lift = aten.lift_fresh_copy.default(%lifted_tensor_0)",
            "%detach_ = aten.detach_.default(%lift)",
            "%add = aten.add.Tensor(%x, %detach_)",
            "%mul = aten.mul.Tensor(%sub_lifted_tensor_1, %sub_lifted_tensor_1)",
            "return (%add, %mul)",
        ],
        "P-98"
    );
    let (named, _) = placeholder_naming_pass(&after, &Context::default()).unwrap();
    assert_eq!(names(&named)[..4], ["p_w", "c_lifted_tensor_0", "c_sub_lifted_tensor_1", "x"], "P-98, P-101");
    // With them: one input under the outermost name, a constant under each.
    let attributes = [(k, vec!["k".to_string(), "sub.k".to_string()])];
    let (after, _) = lift_constants(&program, &attributes).unwrap();
    assert!(after.signature().unwrap().inputs.iter().any(|s| s.kind == constant("k")), "P-99");
    assert!(["k", "sub.k"].iter().all(|n| matches!(after.constants.get(*n), Some(Constant::Tensor(_)))), "P-100");
    assert_eq!(names(&after)[..4], ["p_w", "lifted_tensor_0", "k_1", "x"], "P-99, P-100");
}

#[test]
fn tracepoints_are_collected() {
    let after = run(
        "graph {\n  %x = placeholder\n  \
         %t = hop._export_tracepoint(%x, 3, kind=\"module_call_inputs\", path=\"sub\")\n  %i = operator.getitem(%t, 0)\n  \
         %y = aten.sin.default(%i)\n  %u = hop._export_tracepoint(%y, kind=\"module_call_outputs\", path=\"sub\")\n  \
         %o = operator.getitem(%u, 0)\n  return (%o,)\n}\n# inputs\nx: USER_INPUT\n\n# outputs\no: USER_OUTPUT\n",
        collect_tracepoints_pass,
    );
    assert_eq!(body(&after), ["%x = placeholder", "%y = aten.sin.default(%x)", "return (%y,)"]);
    assert_eq!(&**after.signature().unwrap().outputs[0].arg.name(), "y");
    let entry = &after.module_call_graph[0];
    let signature = entry.signature.as_ref().unwrap();
    assert_eq!((entry.fqn.as_str(), signature.inputs.len(), signature.outputs.len()), ("sub", 2, 1));
}

/// P-90, P-91, P-92, P-93, P-95: cutting and putting back.
#[test]
fn split_and_inline() {
    let text = "graph {\n  %x = placeholder\n  %y = placeholder\n  %a = aten.sin.default(%y)\n  \
                %m = aten.max.dim(%a, 0)\n  %v = operator.getitem(%m, 0)\n  %b = aten.add.Tensor(%v, %x)\n  \
                return (%b, %a)\n}";
    let module = parse_module(text).unwrap();
    let calls = |g: &Graph, n: NodeId| g[n].target().is_some();
    let split = sequential_split(&module, calls).unwrap();
    assert_eq!(print_module(&module, Form::Short), text, "the input is not changed");
    assert_eq!(split.calls.len(), 4);
    let last = split.module.subgraph("submod_4").unwrap();
    assert_eq!(
        last.graph.placeholders().map(|n| last.graph[n].name().to_string()).collect::<Vec<_>>(),
        ["v", "x"],
        "P-93: in order of first use"
    );
    let mut whole = split.module;
    for call in split.calls {
        node_inline_(&mut whole, call).unwrap();
    }
    assert_eq!(print_module(&whole, Form::Short), text, "P-90");

    let never = sequential_split(&module, |_, _| false).unwrap();
    assert_eq!(never.module.subgraphs().map(|(n, _)| n.to_string()).collect::<Vec<_>>(), ["submod_0"], "P-91");
    let empty = parse_module("graph {\n  %x = placeholder\n  return (%x,)\n}").unwrap();
    let nothing = sequential_split(&empty, |_, _| true).unwrap();
    assert_eq!(print_module(&nothing.module, Form::Short), print_module(&empty, Form::Short), "P-92");
}

/// P-94, P-95, P-96
#[test]
fn inlining() {
    let text = "graph {\n  %x = placeholder\n  %c = call_module s(%x)\n  %d = call_module s(%c)\n  return (%d,)\n}\n  \
                s {\n    %x = placeholder\n    %y = aten.sin.default(%x)\n    return %y\n  }";
    let mut module = parse_module(text).unwrap();
    for name in ["c", "d"] {
        let call = module.graph.find(name).unwrap();
        node_inline_(&mut module, call).unwrap();
    }
    assert_eq!(
        print_module(&module, Form::Short),
        "graph {\n  %x = placeholder\n  %y = aten.sin.default(%x)\n  %y_1 = aten.sin.default(%y)\n  return (%y_1,)\n}",
        "P-96"
    );
    for (bad, expected) in [
        (text.replace("s(%x)", "s(1)"), "argument 0 for %x is not a node; constants cannot be inlined"),
        (text.replace("return %y\n", "return None\n"), "the sub-module returns neither a value nor a tuple of values"),
    ] {
        let mut module = parse_module(&bad).unwrap();
        let call = module.graph.find("c").unwrap();
        let error = node_inline_(&mut module, call).unwrap_err().to_string();
        assert!(error.contains(expected), "P-94 {bad}: {error}");
    }
    let mut back = parse_module(
        "graph {\n  %x = placeholder\n  %y = placeholder\n  %c = call_module s(%x, %y)\n  %g = operator.getitem(%c, 1)\n  \
         return (%g,)\n}\n  s {\n    %a = placeholder\n    %b = placeholder\n    return (%a, %b)\n  }",
    )
    .unwrap();
    let call = back.graph.find("c").unwrap();
    node_inline_(&mut back, call).unwrap();
    assert_eq!(
        print_module(&back, Form::Short),
        "graph {\n  %x = placeholder\n  %y = placeholder\n  return (%y,)\n}",
        "P-95"
    );
}

#[test]
fn helpers() {
    let mut g =
        parse_module("graph {\n  %x = placeholder\n  %a = aten.sin.default(%x)\n  return (%a,)\n}").unwrap().graph;
    assert_eq!(nodes_count(&g, |n| g[n].target().is_some()), 1);
    assert_eq!(nodes_first(&g, |_| true), g.first());
    assert_eq!(nodes_first(&g, |n| g[n].attr_path().is_some()), None);
    let calls = nodes_filter(&g, |n| g[n].target().is_some());
    let x = g.first().unwrap();
    let done = nodes_map(&mut g, calls.clone(), |g, n| node_replace_(g, n, x)).unwrap();
    assert_eq!((done, g.len()), (calls, 2));
}

/// P-83 and errors of the reader: line and node are named.
#[test]
fn the_reader_says_where() {
    for (text, expected) in [
        ("graph {\n  %x = placeholder\n  %x = placeholder\n}", "line 3: node %x: two nodes have this name"),
        (
            "graph {\n  %y = aten.sin.default(%x)\n}",
            "line 2: node %y: column 26: expected a node that is defined above",
        ),
        ("graph {\n  %y = nonsense(%x)\n}", "line 2: node %y: column 8: expected placeholder, get_attr, or a target"),
        ("graph {\n  %y = aten.sin.default(1\n}", "line 2: node %y"),
        ("grap {", "line 1: column 1: expected 'graph {'"),
        ("graph {\n", "expected '}'"),
        ("graph {\n}\n    deep {\n    }", "line 3"),
        ("graph {\n}\n# inputs\nx: NO_SUCH_KIND", "line 4"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// A whole program: the state of the folded norm leaves the program, what it computes does not change.
#[test]
fn norms_of_a_program_with_state_are_folded() {
    use firebrand_core::{DType, ops};
    use firebrand_graph::{NamedTensor, export};
    let named = |name: &str, tensor: Tensor, is_parameter| NamedTensor { name: name.to_string(), tensor, is_parameter };
    let numbers = |sizes: &[usize], step: usize| {
        let n: usize = sizes.iter().product();
        let list: Vec<f32> = (0..n).map(|i| ((i * step + 3) % 17) as f32 * 0.1 - 0.7).collect();
        Tensor::from_slice(&list, sizes.to_vec())
    };
    let positive = |n: usize| numbers(&[n], 5).abs();
    let state = [
        named("conv.weight", numbers(&[4, 1, 3, 3], 7).requires_grad_(), true),
        named("norm.weight", positive(4).requires_grad_(), true),
        named("norm.bias", numbers(&[4], 3).requires_grad_(), true),
        named("norm.running_mean", numbers(&[4], 11), false),
        named("norm.running_var", positive(4), false),
        named("norm.num_batches_tracked", Tensor::new(&[3i64]), false),
    ];
    let t = |k: usize| Some(&state[k].tensor);
    let x = numbers(&[2, 2, 5, 6], 13);
    let net = |i: &[Tensor]| {
        let y = ops::conv2d(&i[0], &state[0].tensor, None, &[2.into()], &[1.into()], &[1.into()], 2.into())?;
        let y = ops::batch_norm(&y, t(1), t(2), t(3), t(4), false, 0.1, 1e-5, false)?;
        Ok(vec![ops::relu(&y)?])
    };
    let program = export(net, std::slice::from_ref(&x), &state).unwrap();
    let (after, report) = fold_batch_norm(&program, &Context::default()).unwrap();
    assert_eq!(report.rewrites, 1);
    verify_module(&after.module).unwrap();
    let text = print(&after, Form::Short);
    assert!(text.contains("aten.conv2d") && !text.contains("batch_norm."), "{text}");
    assert!(after.state_dict.keys().all(|k| k == "norm.num_batches_tracked"), "{:?}", after.state_dict.keys());
    let run = |p: &ExportedProgram| p.run(std::slice::from_ref(&x)).unwrap()[0].tensor().unwrap().to_vec::<f32>();
    for (a, b) in run(&after).iter().zip(run(&program)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    assert!(program.state_dict.contains_key("norm.weight"), "the program given is unchanged");
    assert_eq!(after.state("_folded_bias0").unwrap().dtype(), DType::F32);
}
