//! run_decompositions over the op table: every op that PyTorch takes apart comes apart into ops that PyTorch keeps
//! (`golden/core_aten.json`), and values and gradients stay.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{GradOptions, grad};
use firebrand_core::dispatch::{Op, Outputs, Value};
use firebrand_core::{DType, Result, Tensor};
use firebrand_graph::ir::{GraphModule, Target};
use firebrand_graph::passes::{Context, run_decompositions};
use firebrand_graph::{ExportedProgram, export};
use firebrand_opinfo::{Call, FAMILIES, Place, Row};
use std::collections::{BTreeMap, HashSet};

fn list(key: &str) -> HashSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/core_aten.json");
    let lists: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    lists[key].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_string()).collect()
}

fn tensors(outputs: Outputs) -> Vec<Tensor> {
    let one = |v: Value| match v {
        Value::Tensor(t) => vec![t],
        Value::Tensors(list) => list,
        _ => Vec::new(),
    };
    outputs.into_iter().flat_map(one).collect()
}

/// `conj_physical` of complex numbers is what PyTorch calls `_conj_physical`, which it keeps.
const KEPT_BY_ANOTHER_NAME: &str = "aten::conj_physical";

/// Where rows differ from the op, as they do in PyTorch: the op, what differs, and why.
const AS_IN_PYTORCH: [(&str, &str, &str); 5] = [
    (
        "aten::_weight_norm_interface",
        "gradient",
        "the op has no derivative for the norms it also gives; its parts have",
    ),
    ("aten::linalg_vector_norm", "gradient 0: element 0 is NaN", "a root has no slope at zero"),
    ("aten::norm.ScalarOpt_dim", "gradient 0: element 0 is NaN", "a root has no slope at zero"),
    ("aten::mish", "is NaN instead of -0", "minus infinity times zero"),
    ("aten::silu", "is NaN instead of -0", "minus infinity times zero"),
];

/// Ops of a program that PyTorch would have taken apart.
fn left_over(module: &GraphModule, kept: &HashSet<String>, found: &mut Vec<String>) {
    for n in module.graph.nodes() {
        if let Some(Target::Op(op)) = module.graph[n].target()
            && !kept.contains(op.qualified())
            && op.qualified() != KEPT_BY_ANOTHER_NAME
        {
            found.push(op.to_string());
        }
    }
    module.subgraphs().for_each(|(_, g)| left_over(g, kept, found));
}

fn close(a: &Tensor, b: &Tensor) -> std::result::Result<(), String> {
    if (a.shape(), a.dtype()) != (b.shape(), b.dtype()) {
        return Err(format!("{:?} {} instead of {:?} {}", a.shape(), a.dtype(), b.shape(), b.dtype()));
    }
    if a.dtype().is_complex() {
        return Ok(());
    }
    let tolerance = if a.dtype() == DType::F64 { 1e-9 } else { 1e-4 };
    for (k, (x, y)) in a.to_vec::<f64>().into_iter().zip(b.to_vec::<f64>()).enumerate() {
        let same = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * (1.0 + y.abs());
        if !same {
            return Err(format!("element {k} is {x} instead of {y}"));
        }
    }
    Ok(())
}

fn exported(call: &Call) -> Result<ExportedProgram> {
    let f = |leaves: &[Tensor]| Ok(tensors(call.with_leaves(leaves).run()?));
    export(f, &call.leaves, &[]).map_err(firebrand_core::Error::user)
}

/// Gradients of all results for the leaves, each element of a result with a weight of its own.
fn gradients(outputs: &[Tensor], leaves: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    let mut total: Option<Tensor> = None;
    for t in outputs.iter().filter(|t| t.requires_grad() && t.dtype() == DType::F64) {
        let weights: Vec<f64> = (0..t.numel()).map(|i| 1.0 + (i % 7) as f64 / 4.0).collect();
        let part = (t * &Tensor::from_slice(&weights, t.shape())).sum();
        total = Some(total.map_or(part.clone(), |sum| sum + part));
    }
    let Some(total) = total else { return Ok(vec![None; leaves.len()]) };
    let options = GradOptions { allow_unused: Some(true), retain_graph: Some(true), ..GradOptions::default() };
    leaves.iter().map(|leaf| Ok(grad(&total, leaf, &options)?.remove(0))).collect()
}

/// What is wrong with the decomposition of a row, if anything.
fn check(row: &Row, op: Op, kept: &HashSet<String>) -> std::result::Result<(), String> {
    let call = Call::new(op, row, Place::AsListed, true)?;
    let program = exported(&call).map_err(|e| format!("export: {e}"))?;
    let (core, _) = run_decompositions(&program, &Context::default()).map_err(|e| format!("decompose: {e}"))?;
    let mut left = Vec::new();
    left_over(&core.module, kept, &mut left);
    if !left.is_empty() {
        return Err(format!("left: {}", left.join(", ")));
    }
    if row.out.iter().any(|o| matches!(o, firebrand_opinfo::Argument::Tensor(t) if t.data.is_none())) {
        return Ok(()); // random, or memory as it comes
    }
    let expected = tensors(call.run().map_err(|e| e.to_string())?);
    let found = core.module().and_then(|m| m.run(&call.leaves)).map_err(|e| format!("run: {e}"))?;
    let found: Vec<Tensor> = found.iter().map(|v| v.tensor().unwrap().clone()).collect();
    if found.len() != expected.len() {
        return Err(format!("{} results instead of {}", found.len(), expected.len()));
    }
    found.iter().zip(&expected).try_for_each(|(a, b)| close(a, b))?;
    if row.grads.is_none() {
        return Ok(());
    }
    let ours = gradients(&found, &call.leaves).map_err(|e| format!("gradient: {e}"))?;
    let theirs = gradients(&expected, &call.leaves).map_err(|e| format!("gradient of the op: {e}"))?;
    for (k, pair) in ours.iter().zip(&theirs).enumerate() {
        match pair {
            (Some(a), Some(b)) => close(a, b).map_err(|e| format!("gradient {k}: {e}"))?,
            (None, Some(b)) => close(&b.zeros_like(), b).map_err(|e| format!("gradient {k} is missing: {e}"))?,
            (Some(a), None) => close(a, &a.zeros_like()).map_err(|e| format!("gradient {k} is new: {e}"))?,
            (None, None) => {}
        }
    }
    Ok(())
}

/// Whether a row is none of this test's business: it writes its arguments (functionalize is tested elsewhere), gives numbers
/// that are not tensors, or needs numbers of tensors, which no export has.
fn is_elsewhere(row: &Row, op: Op) -> bool {
    let name = op.name().trim_start_matches("aten::");
    let reads = [
        "argwhere",
        "combinations",
        "embedding_bag",
        "embedding_bag.padding_idx",
        "is_nonzero",
        "item",
        "one_hot",
        "repeat_interleave.self_Tensor",
    ];
    let numbers = name.starts_with("sym_") || name == "numel";
    firebrand_graph::schema::Schema::of_op(op).mutates()
        || !row.after.is_empty()
        || numbers
        || reads.contains(&name)
        || row.arguments().any(|a| matches!(a, firebrand_opinfo::Argument::MemoryFormat(m) if m == "channels_last"))
}

#[test]
fn every_row_of_the_table() {
    let (kept, taken) = (list("kept"), list("taken_apart"));
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for row in FAMILIES.iter().flat_map(|f| f.rows()).filter(|r| r.is_base()) {
        let Some(op) = Op::from_name(&row.op).filter(|op| taken.contains(op.name())) else { continue };
        if is_elsewhere(row, op) {
            continue;
        }
        count += 1;
        let known = |m: &str| AS_IN_PYTORCH.iter().any(|(name, what, _)| *name == op.name() && m.contains(what));
        if let Err(message) = check(row, op, &kept)
            && !known(&message)
        {
            wrong.entry(row.op.clone()).or_insert_with(|| format!("sample {}: {message}", row.sample));
        }
    }
    let shown: Vec<String> = wrong.iter().map(|(op, message)| format!("{op}: {message}")).collect();
    assert!(count > 1500, "only {count} rows were looked at");
    assert!(wrong.is_empty(), "{} ops of {count} rows:\n{}", wrong.len(), shown.join("\n"));
}

/// What PyTorch keeps is kept: no rule goes further than it does. Only ops on lists become the ops of their elements.
#[test]
fn kept_ops_stay() {
    let kept = list("kept");
    let mut gone: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for row in FAMILIES.iter().flat_map(|f| f.rows()).filter(|r| r.is_base()) {
        let Some(op) = Op::from_name(&row.op).filter(|op| kept.contains(op.name())) else { continue };
        if op.name().starts_with("aten::_foreach_") {
            continue;
        }
        let Ok(call) = Call::new(op, row, Place::AsListed, true) else { continue };
        if is_elsewhere(row, op) {
            continue;
        }
        let Ok(program) = exported(&call) else { continue };
        let Ok((core, _)) = run_decompositions(&program, &Context::default()) else { continue };
        count += 1;
        let graph = &core.module.graph;
        let is_op = |n| graph[n].target().and_then(Target::overload).is_some_and(|o| o.qualified() == op.name());
        if !graph.nodes().any(is_op) {
            let left: Vec<String> =
                graph.nodes().filter_map(|n| Some(graph[n].target()?.overload()?.to_string())).collect();
            gone.insert(row.op.clone(), left.join(", "));
        }
    }
    let shown: Vec<String> = gone.iter().map(|(op, parts)| format!("{op}: {parts}")).collect();
    assert!(gone.is_empty(), "{} ops of {count} rows:\n{}", gone.len(), shown.join("\n"));
}
