//! What partitioners keep, and how many ops the backward has.

use super::*;
use firebrand_graph::ir::{Kind, NodeId, Target};

struct Row {
    case: &'static str,
    f: F,
    shapes: &'static [&'static [usize]],
    /// What the minimum cut keeps, and the ops of its backward.
    cut: (&'static [&'static str], usize),
    /// The same for the default rule.
    default: Option<(&'static [&'static str], usize)>,
}

/// Inputs and ops, by name; what the forward returns behind its outputs.
fn kept(executable: &AotExecutable) -> Vec<String> {
    let graph = executable.backward_graph().unwrap().graph;
    let kept = graph.placeholders().map(|n| graph[n].name().to_string()).filter(|n| !n.starts_with("tangents"));
    // `sin_1` is an op called sin.
    kept.map(|n| n.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_').to_string()).collect()
}

fn ops(executable: &AotExecutable) -> usize {
    let graph = executable.backward_graph().unwrap().graph;
    let is_op = |n: &NodeId| matches!(graph[*n].kind(), Kind::CallFunction(Target::Op(_)));
    graph.nodes().filter(is_op).count()
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { case: "U-61", f: |x| Ok(vec![x[0].try_sin()?.try_cos()?]), shapes: &[&[4]],
        cut: (&["primals"], 6), default: Some((&["primals", "sin"], 5)) },
    Row { case: "U-62", f: |x| Ok(vec![x[0].try_sin()?.try_sin()?.try_sin()?.try_sin()?]), shapes: &[&[4]],
        cut: (&["primals"], 11), default: Some((&["primals", "sin", "sin", "sin"], 8)) },
    Row { case: "U-64", f: |x| Ok(vec![x[0].try_relu()?]), shapes: &[&[4]],
        cut: (&["relu"], 1), default: Some((&["relu"], 1)) },
    Row { case: "U-66", f: |x| Ok(vec![x[0].try_softmax(0)?]), shapes: &[&[4]],
        cut: (&["_softmax"], 1), default: None },
    Row { case: "U-68", f: |x| Ok(vec![&x[0].try_add_scalar(1.0, 1.0)?.try_exp()? * 2.0]), shapes: &[&[4]],
        cut: (&["exp"], 2), default: None },
];

/// U-61, U-62, U-64, U-66, U-68: saved sets and backward ops of both partitioners.
#[test]
fn saved_sets() {
    let rules = backends();
    for Row { case, f, shapes, cut, default } in ROWS {
        let inputs: Vec<Tensor> =
            shapes.iter().map(|s| Tensor::ones(*s, firebrand_core::DType::F32).requires_grad_()).collect();
        let graph = capture(f, &inputs);
        let executable = compile(&rules[0].1, &graph, &inputs);
        assert_eq!(
            (kept(&executable), ops(&executable)),
            (cut.0.iter().map(|s| s.to_string()).collect(), cut.1),
            "{case}"
        );
        if let Some((names, count)) = default {
            let executable = compile(&rules[1].1, &graph, &inputs);
            let names: Vec<String> = names.iter().map(|s| s.to_string()).collect();
            assert_eq!((kept(&executable), ops(&executable)), (names, *count), "{case}, default rule");
        }
    }
}

/// U-63: a product is not computed twice; its backward needs transposes, which are kept as they are.
#[test]
fn products_are_kept() {
    let f: F = |x| Ok(vec![x[0].try_matmul(&x[1])?.try_relu()?.try_sin()?]);
    let inputs = [&[2usize, 3][..], &[3, 4]].map(|s| Tensor::ones(s, firebrand_core::DType::F32).requires_grad_());
    let graph = capture(f, &inputs);
    let executable = compile(&aot_eager(), &graph, &inputs);
    let backward = executable.backward_graph().unwrap().graph;
    let shapes: Vec<Vec<i64>> = backward
        .placeholders()
        .filter(|n| !backward[*n].name().starts_with("tangents"))
        .filter_map(|n| {
            backward[n].meta().val.as_ref()?.tensor().map(|t| t.sizes.iter().filter_map(|s| s.known()).collect())
        })
        .collect();
    let mut sorted = shapes.clone();
    sorted.sort();
    assert_eq!(sorted, [vec![2, 4], vec![3, 2], vec![4, 3]], "the relu, and both factors transposed");
    assert!(kept(&executable).contains(&"relu".to_string()));
    let names = kept(&compile(&backends()[1].1, &graph, &inputs));
    assert_eq!(names, ["primals", "primals", "relu"], "the default rule keeps what the backward reads");
}

/// U-65: dropout keeps its mask only.
#[test]
fn dropout_keeps_its_mask() {
    let f: F = |x| Ok(vec![firebrand_core::ops::dropout(&x[0], 0.5, true)?]);
    let x = [Tensor::ones([4], firebrand_core::DType::F32).requires_grad_()];
    for (name, backend) in backends() {
        let executable = compile(&backend, &capture(f, &x), &x);
        assert_eq!(kept(&executable).len(), 1, "{name}: {:?}", kept(&executable));
        assert!(!kept(&executable).contains(&"primals".to_string()), "{name}");
    }
}

/// U-70: one tangent, one op; what needs no gradient has none, and an unused input gets none.
#[test]
fn outputs_without_gradient() {
    let f: F = |x| Ok(vec![&x[0] * 2.0, x[0].try_gt_scalar(0.0)?, &x[0].detach() * 3.0]);
    let x = [leaf(&[1.0, -1.0]), leaf(&[5.0])];
    let executable = compile(&aot_eager(), &capture(f, &x), &x);
    let backward = executable.backward_graph().unwrap().graph;
    assert_eq!(backward.placeholders().filter(|n| backward[*n].name().starts_with("tangents")).count(), 1);
    assert_eq!(ops(&executable), 1);
    let out = call(&executable, &x);
    assert_eq!(out.iter().map(Tensor::requires_grad).collect::<Vec<_>>(), [true, false, false]);
    let g = grads(&out, &x);
    assert_eq!(g[0].as_ref().unwrap().to_vec::<f32>(), [2.0, 2.0]);
    assert!(g[1].is_none());
}

/// The budget: nothing kept but inputs at 0, what the cut keeps at 1, and never more in between.
#[test]
fn memory_budget() {
    let f: F = |x| {
        let mut y = x[0].clone();
        for _ in 0..4 {
            y = y.try_matmul(&x[1])?.try_tanh()?;
        }
        Ok(vec![y])
    };
    let inputs = [&[4usize, 8][..], &[8, 8]].map(|s| Tensor::ones(s, firebrand_core::DType::F32).requires_grad_());
    let graph = capture(f, &inputs);
    let plain: Vec<Vec<u64>> = grads(&f(&inputs).unwrap(), &inputs).iter().map(|g| bits(g.as_ref().unwrap())).collect();
    let mut counts = Vec::new();
    for budget in [0.0, 0.5, 1.0] {
        let partition = PartitionOptions { activation_memory_budget: budget, ..PartitionOptions::default() };
        let backend = Aot::new(AotOptions { name: "budget", inner: Arc::new(Interpret), partition, decompose: false });
        let executable = compile(&backend, &graph, &inputs);
        let values = kept(&executable).iter().filter(|n| *n != "primals").count();
        counts.push(values);
        let found: Vec<Vec<u64>> =
            grads(&call(&executable, &inputs), &inputs).iter().map(|g| bits(g.as_ref().unwrap())).collect();
        assert_eq!(found, plain, "budget {budget}");
    }
    assert_eq!(counts[0], 0);
    assert!(counts[0] < counts[1] && counts[1] < counts[2], "{counts:?}");
}

/// U-67: a decomposed layer norm keeps its input, mean and reciprocal deviation, not the normalised value.
#[test]
fn layer_norm_keeps_statistics() {
    let f: F = |x| Ok(vec![firebrand_core::ops::layer_norm(&x[0], &[64.into()], None, None, 1e-5, false)?]);
    let numbers: Vec<f32> = (0..512).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = [Tensor::from_slice(&numbers, [8, 64]).requires_grad_()];
    let executable = compile(&firebrand_compile::joint::aot_eager_decomp(), &capture(f, &x), &x);
    let backward = executable.backward_graph().unwrap().graph;
    let mut shapes: Vec<Vec<i64>> = backward
        .placeholders()
        .filter(|n| !backward[*n].name().starts_with("tangents"))
        .filter_map(|n| {
            backward[n].meta().val.as_ref()?.tensor().map(|t| t.sizes.iter().filter_map(|s| s.known()).collect())
        })
        .collect();
    shapes.sort();
    assert_eq!(shapes, [vec![8, 1], vec![8, 1], vec![8, 64]]);
    assert!(kept(&executable).contains(&"primals".to_string()));
    assert_eq!(ops(&executable), 11);
    let weights = Tensor::from_slice(&numbers, [8, 64]).cos();
    let gradient = |out: &Tensor| grads(&[out * &weights], &x)[0].clone().unwrap().to_vec::<f32>();
    let (plain, found) = (f(&x).unwrap(), call(&executable, &x));
    for (a, b) in gradient(&found[0]).iter().zip(gradient(&plain[0])) {
        assert!((a - b).abs() < 1e-5, "{a} for {b}");
    }
}
