//! The ops of detection models against torchvision: values and gradients (`golden/vision.json`).
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::{GradOptions, grad, gradcheck};
use firebrand_core::dispatch::{self, Op, Value};
use firebrand_core::{DType, Result, Tensor};
use serde_json::Value as Json;

fn tensor(v: &Json) -> Tensor {
    let sizes: Vec<usize> = v["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let data: Vec<f64> = v["data"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let dtype = match v["dtype"].as_str().unwrap() {
        "float64" => DType::F64,
        "float32" => DType::F32,
        "int64" => DType::I64,
        other => panic!("{other}"),
    };
    Tensor::from_slice(&data, sizes).to_dtype(dtype)
}

fn argument(v: &Json) -> Value {
    match v {
        Json::Bool(b) => (*b).into(),
        Json::Number(n) if n.is_i64() => n.as_i64().unwrap().into(),
        Json::Number(n) => n.as_f64().unwrap().into(),
        v => tensor(v).into(),
    }
}

fn first(outputs: dispatch::Outputs) -> Tensor {
    match outputs.into_iter().next() {
        Some(Value::Tensor(t)) => t,
        other => panic!("{other:?}"),
    }
}

fn close(found: &Tensor, expected: &Json, what: &str) {
    let expected = tensor(expected);
    assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()), "{what}");
    let limit = if found.dtype() == DType::F32 { 2e-5 } else { 1e-10 };
    let (a, b) = (found.to_dtype(DType::F64).to_vec::<f64>(), expected.to_dtype(DType::F64).to_vec::<f64>());
    for (k, (a, b)) in a.iter().zip(&b).enumerate() {
        assert!((a - b).abs() <= limit * b.abs().max(1.0), "{what}, element {k}: {a} instead of {b}");
    }
}

#[test]
fn values_and_gradients_are_those_of_torchvision() -> Result<()> {
    let rows: Json = serde_json::from_str(include_str!("../../../golden/vision.json")).unwrap();
    for (k, row) in rows.as_array().unwrap().iter().enumerate() {
        let name = row["op"].as_str().unwrap();
        let what = format!("{name}, case {k}");
        let mut args: Vec<Value> = row["args"].as_array().unwrap().iter().map(argument).collect();
        let mut inputs = Vec::new();
        for entry in row["grads"].as_array().into_iter().flatten() {
            let at = entry[0].as_u64().unwrap() as usize;
            let Value::Tensor(t) = &args[at] else { panic!("{what}: argument {at}") };
            let t = t.detach().requires_grad_();
            args[at] = (&t).into();
            inputs.push((t, &entry[1]));
        }
        let out = first(dispatch::call_by_name(name, &args)?);
        close(&out.detach(), &row["out"], &what);
        if inputs.is_empty() {
            continue;
        }
        let options = GradOptions { grad_outputs: vec![Some(tensor(&row["seed"]))], ..Default::default() };
        let leaves: Vec<&Tensor> = inputs.iter().map(|(t, _)| t).collect();
        for (g, (_, expected)) in grad(&out, leaves, &options)?.into_iter().zip(&inputs) {
            close(&g.expect("a gradient"), expected, &format!("{what}, gradient"));
        }
    }
    Ok(())
}

/// Gradients of regions are given once: to differentiate them again is an error, not a gradient of zero.
#[test]
fn second_derivatives_of_regions_are_refused() -> Result<()> {
    let x = Tensor::zeros([1, 1, 4, 4], DType::F64).requires_grad_();
    let rois = Tensor::from_slice(&[0.0f64, 0.0, 0.0, 3.0, 3.0], [1, 5]);
    let args = [(&x).into(), (&rois).into(), 1.0.into(), 2i64.into(), 2i64.into(), 2i64.into(), true.into()];
    let y = first(dispatch::call_by_name("torchvision::roi_align", &args)?);
    let g = grad(&(&y * &y).sum(), &x, &GradOptions::create_graph())?[0].clone().expect("a gradient");
    let e = grad(&g.sum(), &x, &GradOptions::default()).unwrap_err();
    assert!(e.to_string().contains("_roi_align_backward"), "{e}");
    Ok(())
}

/// Deformable convolution is made of ops, and so are its derivatives.
#[test]
fn deformable_convolution_is_differentiated_twice() -> Result<()> {
    let sample = |sizes: &[usize], seed: usize| {
        let n: usize = sizes.iter().product();
        let values: Vec<f64> = (0..n).map(|k| ((k * 29 + seed * 7) % 19) as f64 / 20.0 - 0.43).collect();
        Tensor::from_slice(&values, sizes.to_vec()).requires_grad_()
    };
    let tensors = [
        sample(&[1, 2, 3, 3], 1),
        sample(&[2, 2, 2, 2], 2),
        sample(&[1, 8, 2, 2], 3),
        sample(&[1, 4, 2, 2], 4),
        sample(&[2], 5),
    ];
    assert!(Op::from_name("torchvision::deform_conv2d").is_some());
    let f = |x: &[Tensor]| {
        let mut args: Vec<Value> = x.iter().map(Value::from).collect();
        args.extend([1i64, 1, 0, 0, 1, 1, 1, 1].map(Value::from));
        args.push(true.into());
        Ok(vec![first(dispatch::call_by_name("torchvision::deform_conv2d", &args)?)])
    };
    assert!(gradcheck(f, &tensors, &Default::default())?);
    Ok(())
}

/// Files name these ops with arguments of their choice: every number and every tensor in turn is exchanged for extreme
/// ones, forward and in the ops of gradients. Each call ends with a result or an error, and none asks for endless work.
#[test]
fn hostile_arguments_end_with_a_result_or_an_error() {
    const INTEGERS: [i64; 7] = [i64::MIN, -(1 << 62), -1, 0, 1 << 50, 1 << 62, i64::MAX];
    const FLOATS: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1e308, 1e308];
    let tensors = |t: &Tensor| -> Vec<Tensor> {
        let sizes = t.shape().to_vec();
        let changed = |f: &dyn Fn(usize, usize) -> usize| sizes.iter().enumerate().map(|(d, &n)| f(d, n)).collect();
        let mut all: Vec<Vec<usize>> = vec![vec![], vec![0], vec![3, 0, 2]];
        all.extend([changed(&|_, n| n + 1), changed(&|_, _| 0), changed(&|_, _| 1)]);
        all.extend((0..sizes.len()).map(|k| changed(&|d, n| if d == k { 0 } else { n })));
        let mut made: Vec<Tensor> = all.into_iter().map(|sizes| Tensor::zeros(sizes, t.dtype())).collect();
        // No elements, and sizes that only such a tensor has.
        made.extend((1..sizes.len()).map(|k| {
            let sizes: Vec<usize> = changed(&|d, n| match d {
                0 => 0,
                d if d == k => 1 << (usize::BITS - 24),
                _ => n,
            });
            Tensor::zeros(sizes, t.dtype())
        }));
        made.extend(FLOATS.iter().chain(&[3e9, -3e9]).map(|&v| Tensor::full(sizes.clone(), v, t.dtype())));
        made.push(Tensor::zeros(sizes.clone(), DType::I64));
        made
    };
    let others = |v: &Value| -> Vec<Value> {
        match v {
            Value::Tensor(t) => tensors(t).into_iter().map(Value::from).collect(),
            Value::Int(_) => INTEGERS.map(Value::from).to_vec(),
            Value::Float(_) => FLOATS.map(Value::from).to_vec(),
            _ => Vec::new(),
        }
    };
    let rows: Json = serde_json::from_str(include_str!("../../../golden/vision.json")).unwrap();
    let mut calls: Vec<(String, Vec<Value>)> = Vec::new();
    for row in rows.as_array().unwrap() {
        let name = row["op"].as_str().unwrap().to_string();
        let args: Vec<Value> = row["args"].as_array().unwrap().iter().map(argument).collect();
        if name.contains("roi") {
            let out = first(dispatch::call_by_name(&name, &args).unwrap());
            let back = name.replace("::", "::_") + "_backward";
            calls.push((back, args.iter().cloned().chain([out.into()]).collect()));
        }
        calls.push((name, args));
    }
    let mut wrong = Vec::new();
    for (name, args) in &calls {
        for k in 0..args.len() {
            for other in others(&args[k]) {
                let mut given = args.clone();
                given[k] = other.clone();
                let call = || dispatch::call_by_name(name, &given).map(drop);
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
                    wrong.push(format!("{name}: argument {k} is {other:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Two sizes whose product is no number.
    let (name, args) = calls.iter().find(|(name, _)| name == "torchvision::ps_roi_pool").unwrap();
    let mut given = args.clone();
    let side = 1i64 << (usize::BITS / 2);
    (given[3], given[4]) = (side.into(), side.into());
    let error = dispatch::call_by_name(name, &given).unwrap_err().to_string();
    assert!(error.contains(&format!("{side} by {side} bins")), "{error}");
    let (name, args) = calls.iter().find(|(name, _)| name == "torchvision::roi_align").unwrap();
    let mut given = args.clone();
    given[5] = (1i64 << 40).into();
    let error = dispatch::call_by_name(name, &given).unwrap_err().to_string();
    assert!(error.contains("lower sampling_ratio"), "{error}");
}
