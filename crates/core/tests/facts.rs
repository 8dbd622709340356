//! Facts that programs ask by op: dtypes and versions, whose numbers the op table cannot hold.
#![allow(clippy::unwrap_used)]

use firebrand_core::dispatch::{self, Value};
use firebrand_core::{DType, Scalar, Tensor, ops};

fn dtype(name: &str, args: &[Value]) -> DType {
    match dispatch::call_by_name(name, args).unwrap().pop() {
        Some(Value::DType(d)) => d,
        other => panic!("{name}: found {other:?}"),
    }
}

/// Rows are PyTorch's answers.
#[test]
fn dtypes_of_results() {
    let float = |dtype| Tensor::zeros([2], dtype);
    let number = |v: f64| Value::from(Scalar::Float(v));
    for (a, b, expected) in [
        (DType::F32, DType::I64, DType::F32),
        (DType::U8, DType::I8, DType::I16),
        (DType::F16, DType::BF16, DType::F32),
        (DType::F64, DType::C64, DType::C128),
    ] {
        assert_eq!(dtype("aten::promote_types", &[a.into(), b.into()]), expected, "{a} with {b}");
    }
    let (ints, halves) = (float(DType::I64), float(DType::F16));
    let zero = Tensor::scalar(0i64);
    assert_eq!(dtype("aten::result_type.Tensor", &[(&zero).into(), (&halves).into()]), DType::F16);
    assert_eq!(dtype("aten::result_type.Scalar", &[(&ints).into(), number(1.5)]), DType::F32);
    assert_eq!(dtype("aten::result_type.Scalar", &[(&halves).into(), Scalar::Int(2).into()]), DType::F16);
    assert_eq!(dtype("aten::result_type.Scalar_Tensor", &[number(1.5), (&ints).into()]), DType::F32);
    assert_eq!(dtype("aten::result_type.Scalar_Scalar", &[Scalar::Int(1).into(), number(2.5)]), DType::F32);
}

#[test]
fn versions() {
    let x = Tensor::zeros([2], DType::F32);
    let version = |x: &Tensor| match dispatch::call_by_name("aten::_version", &[x.into()]).unwrap().pop() {
        Some(Value::Int(n)) => n,
        other => panic!("found {other:?}"),
    };
    let before = version(&x);
    ops::fill_(&x, Scalar::Int(1)).unwrap();
    assert_eq!(version(&x), before + 1);
    // Another size counts as a write, the same size does not.
    ops::resize_(&x, &[1.into(), 2.into()], None).unwrap();
    assert_eq!(version(&x), before + 2);
    ops::resize_(&x, &[1.into(), 2.into()], None).unwrap();
    assert_eq!(version(&x), before + 2);
    let e = ops::resize_(&Tensor::zeros([2], DType::F32).requires_grad_(), &[3.into()], None).unwrap_err();
    assert!(e.to_string().contains("requires grad"), "{e}");
}
