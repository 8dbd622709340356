//! Random numbers that are drawn by trial: the same seed gives PyTorch's numbers, and leaves the generator where
//! PyTorch's is. The slope of gamma-distributed numbers is that of their quantile.
#![allow(clippy::unwrap_used)]

use firebrand_core::dispatch::{self, Value};
use firebrand_core::random::manual_seed;
use firebrand_core::{DType, Result, Tensor, ops};
use serde_json::Value as Json;

fn numbers(v: &Json) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn one(name: &str, args: &[Value]) -> Result<Tensor> {
    let mut out = dispatch::call_by_name(name, args)?;
    match out.pop() {
        Some(Value::Tensor(t)) => Ok(t),
        other => panic!("expected a tensor, found {other:?}"),
    }
}

#[test]
fn draws_are_those_of_pytorch() -> Result<()> {
    let rows: Json = serde_json::from_str(include_str!("../../../golden/distributions.json")).unwrap();
    for row in rows.as_array().unwrap() {
        let (op, dtype) = (row["op"].as_str().unwrap(), row["dtype"].as_str().unwrap());
        let dtype = if dtype == "float64" { DType::F64 } else { DType::F32 };
        let args: Vec<Value> = row["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|list| {
                let list = numbers(list);
                let width = list.len();
                let wide = list.repeat(6);
                Tensor::from_slice(&wide, [6, width]).to_dtype(dtype).into()
            })
            .collect();
        manual_seed(17);
        let found = one(op, &args)?.to_dtype(DType::F64).to_vec::<f64>();
        let next = ops::rand(&[], Some(DType::F64), None)?.item::<f64>();
        let limit = if dtype == DType::F64 { 1e-12 } else { 2e-7 };
        for (k, (a, b)) in found.iter().zip(numbers(&row["out"])).enumerate() {
            assert!((a - b).abs() <= limit * b.abs().max(1e-30), "{op} {dtype} draw {k}: {a} instead of {b}");
        }
        assert_eq!(next, row["next"].as_f64().unwrap(), "{op} {dtype}: as many numbers were drawn");
    }
    Ok(())
}

/// The number drawn moves with its shape as the quantile does: compared with a difference of the quantile, found by
/// bisection of the distribution's own function.
#[test]
fn gamma_numbers_have_the_slope_of_their_quantile() -> Result<()> {
    let probability =
        |shape: f64, x: f64| ops::igamma(&Tensor::scalar(shape), &Tensor::scalar(x)).unwrap().item::<f64>();
    let quantile = |shape: f64, p: f64| {
        let (mut low, mut high) = (0.0, 200.0);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if probability(shape, middle) < p { low = middle } else { high = middle }
        }
        0.5 * (low + high)
    };
    for (shape, x) in [(0.5, 0.3), (2.0, 1.5), (4.0, 6.0), (9.0, 9.1), (9.0, 5.0), (30.0, 22.0)] {
        let p = probability(shape, x);
        let h = 1e-4 * shape;
        let slope = (quantile(shape + h, p) - quantile(shape - h, p)) / (2.0 * h);
        let found =
            one("aten::_standard_gamma_grad", &[Tensor::scalar(shape).into(), Tensor::scalar(x).into()])?.item::<f64>();
        assert!((found - slope).abs() < 2e-3 * slope.abs(), "shape {shape} at {x}: {found} instead of {slope}");
    }
    let shape = Tensor::new(&[2.0f64, 5.0]).requires_grad_();
    let y = ops::_standard_gamma(&shape)?;
    y.sum().backward();
    let expected = one("aten::_standard_gamma_grad", &[(&shape.detach()).into(), (&y.detach()).into()])?;
    assert_eq!(shape.grad().expect("a gradient").to_vec::<f64>(), expected.to_vec::<f64>());
    Ok(())
}
