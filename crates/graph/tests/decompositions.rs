//! run_decompositions: the ops that are left are those that PyTorch leaves (`golden/core_aten.json`), and they compute
//! the same.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::Tensor;
use firebrand_graph::ExportedProgram;
use firebrand_graph::interpret::{Eager, Value, run_module};
use firebrand_graph::ir::Target;
use firebrand_graph::passes::{Context, run_decompositions};
use firebrand_graph::text::{Form, parse, print};
use firebrand_io::read_npz;
use std::collections::HashSet;
use std::path::PathBuf;

fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(file)
}

/// The ops that PyTorch's decompositions leave alone.
fn kept() -> HashSet<String> {
    let lists: serde_json::Value = serde_json::from_slice(&std::fs::read(golden("core_aten.json")).unwrap()).unwrap();
    lists["kept"].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_string()).collect()
}

/// Targets of a program that PyTorch would have taken apart.
fn left_over(program: &ExportedProgram) -> Vec<String> {
    let (kept, mut found) = (kept(), Vec::new());
    let mut see = |module: &firebrand_graph::ir::GraphModule| {
        for n in module.graph.nodes() {
            if let Some(Target::Op(op)) = module.graph[n].target()
                && !kept.contains(op.qualified())
                && op.qualified() != "aten::sym_size.int"
            // reads of sizes stay in programs whose sizes vary
            {
                found.push(op.to_string());
            }
        }
    };
    see(&program.module);
    program.module.subgraphs().for_each(|(_, g)| see(g));
    found
}

fn tensors(value: &Value) -> Vec<Tensor> {
    match value {
        Value::Tensor(t) => vec![t.clone()],
        Value::List(items) => items.iter().flat_map(tensors).collect(),
        other => panic!("{other:?}"),
    }
}

fn same(what: &str, found: &[Tensor], expected: &[Tensor]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{what}");
        for (x, y) in a.to_vec::<f64>().into_iter().zip(b.to_vec::<f64>()) {
            let close = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-5 + 1e-5 * y.abs();
            assert!(close, "{what}: {x} instead of {y}");
        }
    }
}

/// Calls on `x`, `y` (4 by 6), `b` (2 by 4 by 6), `c` (2 by 6 by 3), the mask `m`, labels `k` and weights `w`.
const CALLS: &[&str] = &[
    "aten.t.default(%x)",
    "aten.transpose.int(%b, 0, -1)",
    "aten.squeeze.default(%x)",
    "aten.squeeze.dim(%x, 0)",
    "aten.stack.default([%x, %y], 1)",
    "aten.split.Tensor(%x, 4, 1)",
    "aten.unbind.int(%x, 0)",
    "aten.zeros_like.default(%x)",
    "aten.ones_like.default(%x)",
    "aten.new_zeros.default(%x, [2, 3])",
    "aten.new_full.default(%x, [2], 3)",
    "aten.arange.start(2, 9)",
    "aten.rsub.Scalar(%x, 2, 3)",
    "aten.rsub.Tensor(%x, %y)",
    "aten.floor_divide.default(%x, %y)",
    "aten.addcmul.default(%x, %y, %y, value=0.5)",
    "aten.addcdiv.default(%x, %y, %y)",
    "aten.lerp.Scalar(%x, %y, 0.25)",
    "aten.lerp.Scalar(%x, %y, 0.75)",
    "aten.sgn.default(%x)",
    "aten.frac.default(%x)",
    "aten.deg2rad.default(%x)",
    "aten.rad2deg.default(%x)",
    "aten.isposinf.default(%x)",
    "aten.isneginf.default(%x)",
    "aten.clamp_min.default(%x, 0.5)",
    "aten.clamp_max.default(%x, 0.5)",
    "aten.clamp_min.Tensor(%x, %y)",
    "aten.clamp_max.Tensor(%x, %y)",
    "aten.silu.default(%x)",
    "aten.softplus.default(%x, 2, 1)",
    "aten.mish.default(%x)",
    "aten.hardsigmoid.default(%x)",
    "aten.hardswish.default(%x)",
    "aten.celu.default(%x, 0.5)",
    "aten.hardshrink.default(%x)",
    "aten.threshold.default(%x, 0.5, 7)",
    "aten.glu.default(%x, 1)",
    "aten.log_sigmoid.default(%x)",
    "aten.logaddexp.default(%x, %y)",
    "aten.logaddexp2.default(%x, %y)",
    "aten.masked_fill.Scalar(%x, %m, 2)",
    "aten.sum.default(%x)",
    "aten.nansum.default(%x, [1], True)",
    "aten.aminmax.default(%x, dim=1, keepdim=True)",
    "aten.all.default(%m)",
    "aten.all.dim(%m, 1)",
    "aten.count_nonzero.default(%x)",
    "aten.std.correction(%x, [1], correction=1)",
    "aten.std_mean.correction(%x, [0], correction=0)",
    "aten.linalg_vector_norm.default(%x)",
    "aten.linalg_vector_norm.default(%x, 3, [1], True)",
    "aten.linalg_vector_norm.default(%x, 1, [0])",
    "aten.logsumexp.default(%x, [1], True)",
    "aten.logsumexp.default(%x, [0])",
    "aten.baddbmm.default(%p, %b, %c, beta=0.5, alpha=2)",
    "aten.linear.default(%x, %y)",
    "aten.matmul.default(%b, %c)",
    "aten.mse_loss.default(%x, %y)",
    "aten.smooth_l1_loss.default(%x, %y, 0, 0.5)",
    "aten.huber_loss.default(%x, %y, 2, 0.5)",
    "aten.binary_cross_entropy_with_logits.default(%x, %y)",
    "aten.cross_entropy_loss.default(%x, %k)",
    "aten.nll_loss.default(%x, %k, None, 0)",
    "aten.nll_loss.default(%x, %k, None, 2, 2)",
    "aten.nll_loss.default(%x, %k, %w, 1, 2)",
    "aten.layer_norm.default(%x, [6])",
    "aten.softmax.int(%x, 1)",
];

/// Every op with a rule, and layers made of them: nothing is left that PyTorch takes apart, and the numbers are the same.
#[test]
fn ops_come_apart() {
    let data = |sizes: &[usize], shift: f32| {
        let count: usize = sizes.iter().product();
        let values: Vec<f32> = (0..count).map(|i| ((i * 29 + 7) % 41) as f32 / 10.0 - 2.0 + shift).collect();
        Tensor::from_slice(&values, sizes)
    };
    let inputs: Vec<Value> = [data(&[4, 6], 0.013), data(&[4, 6], 0.37), data(&[2, 4, 6], 0.0), data(&[2, 6, 3], 0.1)]
        .iter()
        .map(Value::from)
        .collect();
    let mut wrong = Vec::new();
    for call in CALLS {
        let text = format!(
            "graph {{\n  %x = placeholder : float32[4, 6]\n  %y = placeholder : float32[4, 6]\n  \
             %b = placeholder : float32[2, 4, 6]\n  %c = placeholder : float32[2, 6, 3]\n  \
             %m = aten.gt.Scalar(%x, 0)\n  %p = aten.bmm.default(%b, %c)\n  \
             %k = aten.argmax.default(%x, 1)\n  %w = aten.select.int(%y, 0, 0)\n  %r = {call}\n  return (%r,)\n}}\n"
        );
        let program = parse(&text).unwrap_or_else(|e| panic!("{call}: {e}"));
        let expected = tensors(&run_module(&mut Eager::default(), &program.module, &inputs).unwrap());
        // Lists have no place in what a traced program returns: take them apart first.
        let text = match expected.len() {
            1 => text,
            n => {
                let items: String = (0..n).map(|i| format!("  %i{i} = operator.getitem(%r, {i})\n")).collect();
                let names: Vec<String> = (0..n).map(|i| format!("%i{i}")).collect();
                text.replace("  return (%r,)", &format!("{items}  return ({})", names.join(", ")))
            }
        };
        let program = parse(&text).unwrap();
        let (core, _) = match run_decompositions(&program, &Context::default()) {
            Ok(done) => done,
            Err(e) => panic!("{call}: {e}"),
        };
        let left = left_over(&core);
        if !left.is_empty() {
            wrong.push(format!("{call}: {}\n{}", left.join(", "), print(&core, Form::Short)));
        }
        same(call, &tensors(&run_module(&mut Eager::default(), &core.module, &inputs).unwrap()), &expected);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Exported models: only ops that PyTorch keeps, the same outputs, and what is written (P-104: running statistics, P-105:
/// inputs) returned first, as PyTorch does. P-120: an autocast region becomes the casts it
/// makes.
#[test]
fn programs_come_apart() {
    let names = [
        "mlp",
        "autocast_region",
        "tied_weights",
        "convnet",
        "embedding_ce",
        "transformer_encoder",
        "batchnorm_train",
        "input_mutation",
        "dynamic_batch",
        "cond_hop",
        "setgrad_in_cond",
    ];
    for name in names {
        let program = ExportedProgram::load(golden(&format!("programs/{name}/model.pt2"))).unwrap();
        let (core, _) = run_decompositions(&program, &Context::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = print(&core, Form::Short);
        assert_eq!(left_over(&core), Vec::<String>::new(), "{name}:\n{text}");
        let inputs = read_npz(golden(&format!("programs/{name}/inputs.npz"))).unwrap();
        // Outputs, and what was written: inputs and state.
        let run = |p: &ExportedProgram| {
            let module = p.module().unwrap();
            let mine: Vec<(&str, Tensor)> = inputs
                .iter()
                .filter(|(n, _)| *n != "__target__")
                .map(|(n, t)| (n.as_str(), t.clone_tensor()))
                .collect();
            let outputs = module.run_named(mine.iter().map(|(n, t)| (*n, t))).unwrap();
            let mut seen: Vec<Tensor> = outputs.iter().flat_map(tensors).collect();
            seen.extend(mine.into_iter().map(|(_, t)| t));
            seen.extend(module.program().state_dict.values().map(|s| s.tensor.clone()));
            seen
        };
        same(name, &run(&core), &run(&program));
        let kinds: Vec<String> = core
            .signature()
            .unwrap()
            .outputs
            .iter()
            .map(|o| format!("{} {}", o.kind.name(), o.kind.target().map_or("", |t| t)))
            .collect();
        let expected = ExportedProgram::load(golden(&format!("programs/{name}/model_core.pt2"))).unwrap();
        let theirs: Vec<String> = expected
            .signature()
            .unwrap()
            .outputs
            .iter()
            .map(|o| format!("{} {}", o.kind.name(), o.kind.target().map_or("", |t| t)))
            .collect();
        assert_eq!(kinds, theirs, "{name}");
        if name == "autocast_region" {
            assert!(!text.contains("hop."), "{text}");
            assert!(text.matches("dtype=bfloat16)").count() >= 3, "{text}");
        }
    }
}
