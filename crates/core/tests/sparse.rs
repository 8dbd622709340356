//! Sparse gradients against PyTorch's (`golden/sparse.json`), and what refuses them.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::{BackwardOptions, NoGrad, backward, detect_anomaly, dual_level, make_dual};
use firebrand_core::dispatch::{Interpreter, Next, Op, Outputs, Value as Boxed, push_layer};
use firebrand_core::func::{grad as func_grad, vmap};
use firebrand_core::{DType, Result, Tensor, ops};
use serde_json::Value;
use std::sync::Arc;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../golden/sparse.json")).unwrap()
}

fn floats(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn table() -> Tensor {
    let values: Vec<f64> = (0..10).map(|i| f64::from(i) / 8.0 - 0.5).collect();
    Tensor::from_slice(&values, [5, 2]).requires_grad_()
}

fn indices() -> Tensor {
    Tensor::from_slice(&[0i64, 2, 0, 3, 2, 1], [2, 3])
}

fn weighted(y: &Tensor) -> Tensor {
    let n = y.numel();
    let factors: Vec<f64> = (1..=n).map(|i| i as f64).collect();
    (y.reshape([n as i64]) * Tensor::from_slice(&factors, [n])).sum()
}

fn bag(w: &Tensor, mode: i64, padding: Option<i64>, weights: bool) -> Result<Tensor> {
    let at = Tensor::new(&[4i64, 1, 1, 0, 3]);
    let weights = weights.then(|| Tensor::new(&[0.5f64, 2.0, -1.0, 1.5, 3.0]));
    let offsets = Tensor::new(&[0i64, 2, 2]);
    Ok(ops::embedding_bag_padding_idx(w, &at, &offsets, false, mode, true, weights.as_ref(), false, padding)?.0)
}

fn case(name: &str, w: &Tensor) -> Tensor {
    match name {
        "embedding" => ops::embedding(w, &indices(), (-1).into(), false, true),
        "embedding padding_idx=2" => ops::embedding(w, &indices(), 2.into(), false, true),
        "embedding_bag sum" => bag(w, 0, None, false),
        "embedding_bag mean padding_idx=1" => bag(w, 1, Some(1), false),
        "embedding_bag sum weights" => bag(w, 0, None, true),
        "gather" => ops::gather(w, 0, &Tensor::from_slice(&[0i64, 2, 1, 0, 1, 1], [3, 2]), true),
        other => panic!("no case {other}"),
    }
    .unwrap()
}

/// Whether it is sparse, how many entries, where, and what.
fn same(found: &Tensor, expected: &Value, what: &str) {
    assert_eq!(found.is_sparse(), expected["nnz"].is_u64(), "{what}");
    assert_eq!(found.to_dense().to_vec::<f64>(), floats(&expected["dense"]), "{what}");
    if found.is_sparse() {
        assert_eq!(found.nnz() as u64, expected["nnz"], "{what}");
        let c = found.coalesce();
        assert!(c.is_coalesced() && !found.is_coalesced(), "{what}");
        assert_eq!(c.indices().to_vec::<f64>(), floats(&expected["coalesced"][0]), "{what}");
        assert_eq!(c.values().to_vec::<f64>(), floats(&expected["coalesced"][1]), "{what}");
        assert_eq!((found.shape(), found.dtype()), (&[5, 2][..], DType::F64), "{what}");
    }
}

#[test]
fn gradients_and_their_sums_are_pytorchs() {
    let golden = golden();
    for (name, row) in golden["cases"].as_object().unwrap() {
        let w = table();
        let grad = || w.grad().unwrap();
        weighted(&case(name, &w)).backward();
        same(&grad(), &row["once"], &format!("{name}, once"));
        let before = grad();
        weighted(&case(name, &w)).backward();
        same(&grad(), &row["twice"], &format!("{name}, twice"));
        same(&before, &row["once"], &format!("{name}: a gradient that was read stays as it was"));
        (&w * &w).sum().backward();
        same(&grad(), &row["and dense"], &format!("{name}, and dense"));
        let w = table();
        (weighted(&case(name, &w)) + (&w * &w).sum()).backward();
        same(&w.grad().unwrap(), &row["beside dense"], &format!("{name}, beside dense"));
        let w = table();
        (weighted(&case(name, &w)) + weighted(&case(name, &w))).backward();
        same(&w.grad().unwrap(), &row["two uses"], &format!("{name}, two uses"));
    }
}

#[test]
fn hooks_see_them_and_retained_gradients_are_copies() {
    let w = table();
    let inner = w.clone_tensor();
    inner.retain_grad();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = seen.clone();
    inner.register_hook(move |g: &Tensor| list.lock().unwrap().push((g.is_sparse(), g.nnz())));
    weighted(&case("embedding", &inner)).backward();
    assert_eq!(*seen.lock().unwrap(), [(true, 6)]);
    let (kept, own) = (inner.grad().unwrap(), w.grad().unwrap());
    assert!(kept.is_sparse() && own.is_sparse() && !kept.is_same(&own));
    assert_eq!(kept.to_dense().to_vec::<f64>(), own.to_dense().to_vec::<f64>());
    let refused = weighted(&case("embedding", &(&w * 2.0))).try_backward(&BackwardOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("sparse"), "the gradient of a product is dense: {refused}");
}

#[test]
fn prints_like_pytorch() {
    let t = Tensor::sparse_coo_tensor(
        &Tensor::from_slice(&[2i64, 0], [1, 2]),
        &Tensor::from_slice(&[1.5f32, 2.0, 3.0, -1.0], [2, 2]),
        &[4, 2],
    );
    assert_eq!(t.to_string(), golden()["printed"].as_str().unwrap().replace("torch.", ""));
}

#[test]
fn dense_plus_sparse() {
    let t = Tensor::sparse_coo_tensor(
        &Tensor::from_slice(&[0i64, 1, 0, 1, 0, 1], [2, 3]),
        &Tensor::new(&[1.0f64, 2.0, 3.0]),
        &[2, 2],
    );
    let d = Tensor::ones([2, 2], DType::F64);
    assert_eq!(ops::add(&d, &t, 2.into()).unwrap().to_vec::<f64>(), [1.0, 9.0, 5.0, 1.0]);
    assert_eq!(d.to_vec::<f64>(), [1.0; 4]);
    let version = d.version();
    ops::add_(&d, &t, (-1).into()).unwrap();
    assert_eq!((d.to_vec::<f64>(), d.version()), (vec![1.0, -3.0, -1.0, 1.0], version + 1));
    let both = ops::add(&t, &t, 1.into()).unwrap();
    assert!(both.is_sparse());
    assert_eq!(both.to_dense().to_vec::<f64>(), [0.0, 8.0, 4.0, 0.0]);
}

/// A layer that lets everything pass.
struct Watching;
impl Interpreter for Watching {
    fn call(&self, op: Op, args: &[Boxed], next: Next<'_>) -> Result<Outputs> {
        next.call(op, args)
    }
}

/// Every way to a sparse tensor that is not made for one ends in an error, never in other values.
#[test]
fn refusals_name_what_to_do() {
    let w = table();
    weighted(&case("embedding", &w)).backward();
    let g = w.grad().unwrap();
    let d = Tensor::ones([5, 2], DType::F64);
    let _plain = NoGrad::new();
    let list = [g.clone(), d.clone()];
    let refused: Vec<(&str, Result<Tensor>)> = vec![
        ("mul", ops::mul(&g, &d)),
        ("mul", ops::mul(&d, &g)),
        ("matmul", ops::matmul(&ops::t(&d).unwrap(), &g)),
        ("cat", ops::cat(&list, 0)),
        ("where", ops::where_self(&Tensor::new(&[true]), &g, &d)),
        ("", ops::cos(&g)),
        ("", ops::mul_scalar(&g, 2.into())),
        ("", ops::sum(&g, None)),
        ("", ops::clone(&g, None)),
        ("", ops::t(&g).and_then(|t| ops::cos(&t))),
        ("", ops::zero_(&g).cloned()),
        ("copy_", ops::copy_(&d, &g, false).cloned()),
        ("add", ops::add(&g, &d, 1.into())),
        ("add_", ops::add_(&g, &g, 1.into()).cloned()),
        ("item", ops::select(&g, 0, 0.into()).and_then(|t| t.try_to_vec::<f64>()).map(|_| d.clone())),
        ("set_data", d.try_set_data(&g).map(|()| d.clone())),
        ("resize_", ops::resize_(&g.detach(), &[20.into(), 2.into()], None).cloned()),
    ];
    for (k, (name, result)) in refused.into_iter().enumerate() {
        let text = result.map(|t| t.to_string()).expect_err(&format!("case {k}, {name}")).to_string();
        assert!(text.contains("sparse"), "{name}: {text}");
        assert!(text.starts_with(name) || name == "item", "{name}: {text}");
    }
    assert_eq!(g.nnz(), 6);
    assert_eq!(d.to_vec::<f64>(), [1.0; 10]);
}

/// Where a derivative, a layer or a transform would lose it, it does not arise.
#[test]
fn no_sparse_gradient_where_it_would_be_lost() {
    let text = |r: Result<()>| r.unwrap_err().to_string();
    let second = || {
        let w = table();
        let loss = weighted(&case("embedding", &w).square());
        backward(&loss, &BackwardOptions { create_graph: true, ..Default::default() })
    };
    assert!(text(second()).contains("create_graph"));
    let layered = || {
        let loss = weighted(&case("gather", &table()));
        let _layer = push_layer(Arc::new(Watching));
        backward(&loss, &BackwardOptions::default())
    };
    assert!(text(layered()).contains("layer"));
    let mapped = || {
        let f =
            |w: &Tensor| -> Result<Tensor> { Ok(weighted(&ops::embedding(w, &indices(), (-1).into(), false, true)?)) };
        let batch = Tensor::ones([3, 5, 2], DType::F64);
        vmap(func_grad(f)).call(&batch).map(drop)
    };
    assert!(text(mapped()).contains("sparse"));
    let pushed = || {
        dual_level(|| {
            let w = table();
            let seed = make_dual(&Tensor::scalar(1.0f64), &Tensor::scalar(1.0f64))?;
            let options = BackwardOptions { grad_tensors: vec![Some(seed)], ..Default::default() };
            backward(&weighted(&case("embedding", &w)), &options)
        })?
    };
    assert!(text(pushed()).contains("forward mode"));
    let scaled = ops::embedding(&table(), &indices(), (-1).into(), true, true).unwrap();
    assert!(text(backward(&weighted(&scaled), &BackwardOptions::default())).contains("scale_grad_by_freq"));
    assert!(bag(&table(), 2, None, false).unwrap_err().to_string().contains("mode 2 (max)"));
    let wrong = Tensor::try_sparse_coo_tensor(&Tensor::from_slice(&[7i64], [1, 1]), &Tensor::new(&[1.0f64]), &[4]);
    assert!(wrong.unwrap_err().to_string().contains("the index 7 is outside"));
}

#[test]
fn anomaly_mode_looks_at_the_values() {
    let w = table();
    let run = |factor: f64| {
        let y = case("embedding", &w) * factor;
        let _anomaly = detect_anomaly(true);
        backward(&weighted(&y), &BackwardOptions::default())
    };
    run(1.0).unwrap();
    assert!(run(f64::NAN).unwrap_err().to_string().contains("nan"));
}
