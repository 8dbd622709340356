//! The record of every op: each column has an answer, columns agree with one another, and rules are used.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::autocast;
use firebrand_core::dispatch::{self, Autocast, Cost, Decomposition, Derivative, Kind, Op, Tags, Value};
use firebrand_core::func::{Batching, vmap};
use firebrand_core::schema::{Schema, Type};
use firebrand_core::{DType, Result, Scalar, Tensor, collect_warnings, ops};
use std::collections::BTreeSet;

/// What is wrong with the record of an op.
fn wrong(op: Op) -> Vec<String> {
    let info = op.info();
    let mut found = Vec::new();
    let mut need = |holds: bool, message: &str| {
        if !holds {
            found.push(format!("{op:?}: {message}"));
        }
    };
    let given = |s: &Schema| s.args.iter().filter(|a| !a.is_out()).map(|a| a.ty).collect::<Vec<_>>();
    need(Op::from_name(info.name) == Some(op), "its name finds another op");
    need((info.kind == Kind::Functional) != info.schema.mutates(), "its kind and its schema disagree on writes");
    need((info.kind == Kind::Out) == info.schema.args.iter().any(|a| a.is_out()), "only out= forms have out arguments");
    for (form, kind) in [(info.in_place, Kind::InPlace), (info.out, Kind::Out)] {
        let Some(form) = form else { continue };
        // A factory's out= form takes dtype and device from the tensor given, so no call takes its place.
        let options = kind == Kind::Out && info.schema.position("dtype").is_some();
        let of_factory = options && form.info().functional.is_none();
        need(of_factory || form.info().functional == Some(op), "a form does not lead back to it");
        need(form.info().kind == kind, "a form is of another kind");
        need(of_factory || given(form.schema()) == given(&info.schema), "a form takes other arguments");
    }
    if let Some(functional) = info.functional {
        let of = functional.info();
        need(of.kind == Kind::Functional, "its functional form writes");
        need(of.in_place == Some(op) || of.out == Some(op), "its functional form does not lead back to it");
        need(info.decomposition == Decomposition::Functional, "it is decomposed as its functional form is");
        let same = info.kind == Kind::Out
            || info.tags.has(Tags::INPLACE_VIEW)
            || op.batching() == Batching::Decompose
            || op.batching() == functional.batching();
        need(same, "it is batched otherwise than its functional form");
    } else {
        need(info.decomposition != Decomposition::Functional, "it has no functional form to be decomposed as");
    }
    let composite = info.derivative == Derivative::Composite;
    if composite {
        need(op.batching() == Batching::Decompose, "a composite op is batched by its parts");
        let parts = matches!(info.decomposition, Decomposition::Parts | Decomposition::Kept | Decomposition::Refused);
        need(parts || info.functional.is_some(), "a composite op becomes its parts unless it is kept");
    }
    need(info.autocast == Autocast::AsIs || info.kind == Kind::Functional, "autocast leaves forms alone");
    need(info.autocast != Autocast::Whole || composite, "only composite ops are opened, or not");
    need((info.cost == Cost::Free) == info.schema.is_view(), "views and nothing else are free");
    if let Some(k) = info.training {
        need(info.schema.args[usize::from(k)].ty == Type::Bool, "its training flag is not a bool");
    }
    found
}

#[test]
fn every_op_has_an_answer_in_every_column() {
    let wrong: Vec<String> = Op::all().flat_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The in-place forms whose overload is called otherwise than that of the op they are a form of.
#[test]
fn forms_are_found_by_what_they_take() {
    let functional = |name: &str| Op::from_name(name).unwrap().info().functional.map(Op::name);
    assert_eq!(functional("aten::pow_.Scalar"), Some("aten::pow.Tensor_Scalar"));
    assert_eq!(functional("aten::pow_.Tensor"), Some("aten::pow.Tensor_Tensor"));
    assert_eq!(functional("aten::floor_divide_.Tensor"), Some("aten::floor_divide"));
    assert_eq!(functional("aten::where.self_out"), Some("aten::where.self"));
    assert_eq!(functional("aten::copy_"), Some("aten::copy"));
}

fn in_place(op: Op, rows: &Tensor, other: impl Fn(&Tensor) -> Value) -> Result<Tensor> {
    vmap(|x: &Tensor| {
        let copy = x.clone_tensor();
        dispatch::call(op, &[(&copy).into(), other(x)])?;
        Ok::<_, firebrand_core::Error>(copy)
    })
    .call(rows)
}

/// These ran sample by sample although their batching said "rule".
#[test]
fn in_place_ops_are_batched_by_the_rule_of_their_functional_form() {
    let rows = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
    let two = Tensor::from_slice(&[2.0f64, 3.0], [2]);
    let cases: [(Op, Value, [f64; 6]); 3] = [
        (Op::POW__SCALAR, Scalar::Int(2).into(), [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]),
        (Op::POW__TENSOR, (&two).into(), [1.0, 8.0, 9.0, 64.0, 25.0, 216.0]),
        (Op::FLOOR_DIVIDE__TENSOR, (&two).into(), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]),
    ];
    for (op, other, expected) in cases {
        assert_eq!(op.batching(), Batching::Rule, "{op:?}");
        let (result, warnings) = collect_warnings(|| in_place(op, &rows, |_| other.clone()));
        assert_eq!(result.unwrap().to_vec::<f64>(), expected, "{op:?}");
        assert!(warnings.is_empty(), "{op:?}: {warnings:?}");
    }
}

/// The test above can fail: an op that says `loop` warns.
#[test]
fn an_op_without_a_rule_says_so() {
    let op = Op::ISIN_TENSOR_TENSOR;
    assert_eq!(op.batching(), Batching::Fallback);
    let rows = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0], [2, 2]);
    let (_, warnings) = collect_warnings(|| {
        vmap(|x: &Tensor| match dispatch::call(op, &[x.into(), x.into()])?.pop() {
            Some(Value::Tensor(t)) => Ok(t),
            other => panic!("found {other:?}"),
        })
        .call(&rows)
    });
    assert!(warnings.iter().any(|w| w.contains("sample by sample")), "{warnings:?}");
}

/// They ran into themselves: a call of an op on lists inside a region never came back.
#[test]
fn ops_on_lists_run_inside_a_region() {
    let list = [Tensor::new(&[1.0f32, 2.0]), Tensor::new(&[3.0f32])];
    let sums = autocast(DType::BF16, || ops::foreach_add_scalar(&list, Scalar::Int(1))).unwrap();
    assert_eq!(sums.iter().map(Tensor::to_vec::<f32>).collect::<Vec<_>>(), [vec![2.0, 3.0], vec![4.0]]);
    assert_eq!(sums[0].dtype(), DType::F32);
    let looked_into = Op::all().filter(|op| op.has(Tags::FOREACH) && op.info().autocast != Autocast::AsIs);
    assert_eq!(looked_into.count(), 0);
}

/// PyTorch's lists for the CPU, read from its dispatcher.
#[test]
fn autocast_knows_the_ops_that_pytorch_lists() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/autocast.json");
    let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let listed: BTreeSet<&str> = golden["listed"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert!(listed.len() > 90, "{}", listed.len());
    let ours: BTreeSet<&str> = Op::all()
        .filter(|op| matches!(op.info().autocast, Autocast::Lower | Autocast::Full | Autocast::Widest))
        .map(|op| op.name().trim_start_matches("aten::"))
        // On the CPU PyTorch runs it as `mkldnn_rnn_layer`, which is on the list.
        .filter(|name| *name != "lstm.input")
        .collect();
    assert_eq!(ours, listed);
}
