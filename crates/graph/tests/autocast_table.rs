//! Autocast over the op table: inside a region an op gives the dtypes that PyTorch gives (`golden/autocast.json`), in eager and
//! in a program alike, and a program computes what eager computes, to the bit.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{autocast, no_grad};
use firebrand_core::dispatch::{self, Autocast, Op, Outputs, Value};
use firebrand_core::{DType, Result, Tensor};
use firebrand_graph::{ExportedProgram, export};
use firebrand_opinfo::{Call, Family, Place};
use std::collections::HashSet;

fn golden() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/autocast.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn tensors(outputs: Outputs) -> Vec<Tensor> {
    let one = |v: Value| match v {
        Value::Tensor(t) => vec![t],
        Value::Tensors(list) => list,
        _ => Vec::new(),
    };
    outputs.into_iter().flat_map(one).collect()
}

/// The call of a sample with its floats in f32, in bf16, or the first in f32 and the others in bf16.
fn sample(at: &str, variant: &str) -> Option<Call> {
    let (family, line) = at.split_once(':').unwrap();
    let row = Family::named(family)?.rows().iter().find(|r| r.line.to_string() == line)?;
    let mut call = Call::new(Op::from_name(&row.op)?, row, Place::AsListed, false).unwrap();
    let mut first = true;
    let mut cast = |t: &mut Tensor| {
        if t.is_floating_point() {
            let wide = variant == "f32" || (variant == "mixed" && first);
            *t = t.to_dtype(if wide { DType::F32 } else { DType::BF16 });
            first = false;
        }
    };
    for value in &mut call.args {
        match value {
            Value::Tensor(t) => cast(t),
            Value::Tensors(list) => list.iter_mut().for_each(&mut cast),
            Value::OptTensors(list) => list.iter_mut().flatten().for_each(&mut cast),
            _ => {}
        }
    }
    let leaves = call.args.iter().flat_map(|v| match v {
        Value::Tensor(t) => vec![t.clone()],
        Value::Tensors(list) => list.clone(),
        Value::OptTensors(list) => list.iter().flatten().cloned().collect(),
        _ => Vec::new(),
    });
    call.leaves = leaves.collect();
    Some(call)
}

fn in_region(call: &Call, leaves: &[Tensor]) -> Result<Vec<Tensor>> {
    autocast(DType::BF16, || Ok(tensors(call.with_leaves(leaves).run()?)))
}

/// As the golden file names them.
fn dtypes(list: &[Tensor]) -> Vec<String> {
    list.iter().map(|t| format!("{:?}", t.dtype()).to_lowercase()).collect()
}

/// What PyTorch gives; none where it gives no tensor.
fn expected(row: &serde_json::Value) -> Option<Vec<Option<&str>>> {
    Some(row.as_array()?.iter().map(|d| d.as_str()).collect())
}

fn agree(found: &[String], expected: &[Option<&str>]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| b.is_none_or(|b| a == b))
}

/// Where ops differ from PyTorch's whether a region is open or not: the test holds them to what they give outside one.
const NOT_OF_AUTOCAST: [(&str, &str); 24] = [
    ("aten::_weight_norm_interface.default", "norms of half tensors are half"),
    ("aten::mish_backward.default", "operands of two dtypes promote"),
    ("aten::_softmax_backward_data.default", "an argument of the samples asks for f64"),
    ("aten::_log_softmax_backward_data.default", "an argument of the samples asks for f64"),
    ("aten::searchsorted.Tensor", "two dtypes are refused"),
    ("aten::bucketize.Tensor", "two dtypes are refused"),
    ("aten::linalg_solve_triangular.default", "half tensors are refused"),
    ("aten::lu_unpack.default", "half tensors are refused"),
    ("aten::linalg_matrix_exp.default", "half tensors are refused"),
    ("aten::matrix_exp.default", "half tensors are refused"),
    ("aten::linalg_pinv.atol_rtol_tensor", "one kernel, where PyTorch has products"),
    ("aten::linalg_pinv.atol_rtol_float", "one kernel, where PyTorch has products"),
    ("aten::linalg_pinv.default", "one kernel, where PyTorch has products"),
    ("aten::linalg_pinv.rcond_tensor", "one kernel, where PyTorch has products"),
    ("aten::_foreach_mm.default", "ops on lists are not decomposed"),
    ("aten::glu_backward_jvp.default", "operands of two dtypes promote"),
    ("aten::soft_margin_loss_backward.default", "operands of two dtypes promote"),
    ("aten::_euclidean_dist.default", "differences, where PyTorch has products"),
    ("aten::matrix_exp_backward.default", "half tensors are refused"),
    ("aten::linalg_polar.default", "half tensors are refused"),
    ("aten::_scaled_dot_product_attention_math.default", "two dtypes are refused"),
    ("aten::_compute_linear_combination.default", "two dtypes are refused"),
    ("aten::_fake_quantize_learnable_per_tensor_affine_backward.default", "gradients have the dtype of the values"),
    ("aten::_fake_quantize_learnable_per_channel_affine_backward.default", "gradients have the dtype of the values"),
];

fn bits(t: &Tensor) -> String {
    match t.dtype().is_complex() {
        true => format!("{:?}", t.to_vec::<firebrand_core::Complex<f64>>()),
        false => format!("{:?}", t.to_vec::<f64>()),
    }
}

#[test]
fn eager_and_programs_give_the_dtypes_that_pytorch_gives() {
    let golden = golden();
    let (mut wrong, mut covered, mut regions) = (Vec::new(), HashSet::new(), 0);
    for (at, row) in golden["rows"].as_object().unwrap() {
        let name = row["op"].as_str().unwrap();
        for variant in ["f32", "bf16", "mixed"] {
            let Some(expected) = expected(&row[variant]) else { continue };
            let Some(call) = sample(at, variant) else { continue };
            let mut fail = |what: &str, found: String| wrong.push(format!("{at} {name} {variant}: {what} {found}"));
            let known = NOT_OF_AUTOCAST.iter().any(|(op, _)| *op == name);
            let eager = match no_grad(|| in_region(&call, &call.leaves)) {
                Ok(eager) => eager,
                Err(_) if known && no_grad(|| call.run()).is_err() => continue,
                Err(e) => {
                    fail("eager refuses it:", e.to_string());
                    continue;
                }
            };
            let outside = || no_grad(|| call.run()).is_ok_and(|outs| dtypes(&tensors(outs)) == dtypes(&eager));
            let fits = agree(&dtypes(&eager), &expected) || (known && outside());
            if !fits {
                fail("eager gives", format!("{:?} instead of {expected:?}", dtypes(&eager)));
            }
            covered.insert(call.op);
            let plain = export(|x: &[Tensor]| Ok(tensors(call.with_leaves(x).run()?)), &call.leaves, &[]);
            let program = no_grad(|| export(|x: &[Tensor]| in_region(&call, x), &call.leaves, &[]));
            let Ok(program) = program else {
                // What cannot be exported at all reads values.
                if plain.is_ok() {
                    fail("only a region cannot be exported:", format!("{:?}", program.err().map(|e| e.to_string())));
                }
                continue;
            };
            regions += 1;
            let ran = no_grad(|| program.module().and_then(|m| m.run(&call.leaves)));
            let found: Vec<Tensor> = match ran {
                Ok(values) => values.iter().filter_map(|v| v.tensor().ok().cloned()).collect(),
                Err(e) => {
                    fail("the program fails:", e.to_string());
                    continue;
                }
            };
            if dtypes(&found) != dtypes(&eager) {
                fail("a program gives", format!("{:?} instead of {:?}", dtypes(&found), dtypes(&eager)));
            } else if found.iter().zip(&eager).any(|(a, b)| bits(a) != bits(b)) && !name.contains("empty") {
                fail("a program computes", "other values than eager".to_string());
            }
        }
    }
    for (name, row) in golden["calls"].as_object().unwrap() {
        let op = Op::from_name(&format!("aten::{name}")).unwrap();
        for (variant, dtype) in [("f32", DType::F32), ("bf16", DType::BF16)] {
            let matrix = [(Tensor::ones([4, 4], DType::F32) + Tensor::eye(4, DType::F32)).to_dtype(dtype)];
            let region = |x: &[Tensor]| {
                autocast(DType::BF16, || Ok(tensors(dispatch::call(op, &[Value::Tensor(x[0].clone())])?)))
            };
            let eager = no_grad(|| region(&matrix)).unwrap();
            let program = no_grad(|| export(region, &matrix, &[])).unwrap();
            let ran = no_grad(|| program.module().and_then(|m| m.run(&matrix))).unwrap();
            let found: Vec<Tensor> = ran.iter().filter_map(|v| v.tensor().ok().cloned()).collect();
            for (who, list) in [("eager", &eager), ("a program", &found)] {
                if !agree(&dtypes(list), &expected(&row[variant]).unwrap()) {
                    wrong.push(format!("{name} {variant}: {who} gives {:?}", dtypes(list)));
                }
            }
        }
        covered.insert(op);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(regions > 1000, "{regions} programs with a region");
    let missing: Vec<Op> =
        Op::all().filter(|op| !matches!(op.info().autocast, Autocast::AsIs) && !covered.contains(op)).collect();
    assert!(missing.is_empty(), "no sample: {missing:?}");
}

/// Layers that are made of products: their parts run in bf16, also in a program read from an archive.
#[test]
fn composite_layers_are_opened_in_programs_too() {
    for name in ["aten::einsum", "aten::tensordot", "aten::lstm.input", "aten::gru.input", "aten::chain_matmul"] {
        let golden = golden();
        let rows = golden["rows"].as_object().unwrap();
        let of = |op: &str| op.strip_suffix(".default").unwrap_or(op) == name;
        let Some((at, row)) = rows.iter().find(|(_, row)| of(row["op"].as_str().unwrap())) else {
            panic!("no sample of {name}");
        };
        let call = sample(at, "f32").unwrap();
        let program = no_grad(|| export(|x: &[Tensor]| in_region(&call, x), &call.leaves, &[])).unwrap();
        let loaded = ExportedProgram::from_bytes(program.to_bytes().unwrap()).unwrap();
        let found = no_grad(|| loaded.module().unwrap().run(&call.leaves)).unwrap();
        let found: Vec<Tensor> = found.iter().map(|v| v.tensor().unwrap().clone()).collect();
        let expected = expected(&row["f32"]).unwrap();
        assert!(agree(&dtypes(&found), &expected), "{name}: {:?} instead of {expected:?}", dtypes(&found));
    }
}
