//! Which dtypes an `out=` tensor may have: that of the result for some ops, any that it can be cast to for others, as in PyTorch.

use firebrand_core::dispatch::{self, Value};
use firebrand_core::{DType, Result, Tensor};

fn call(op: &str, out: DType, arguments: &[Value], results: usize) -> Result<()> {
    let targets = (0..results).map(|_| Value::Tensor(Tensor::zeros([2], out)));
    let all: Vec<Value> = arguments.iter().cloned().chain(targets).collect();
    dispatch::call_by_name(op, &all).map(drop)
}

#[test]
fn ops_that_do_not_cast_refuse_other_dtypes() {
    let t = Value::Tensor(Tensor::from_slice(&[1.5f32, -2.5], [2]));
    let pair = [t.clone(), t.clone()];
    let matrix = Value::Tensor(Tensor::from_slice(&[1.5f32, -2.5, 0.5, 1.0], [2, 2]));
    // A typed form and forms that are rows of data; the last is of several results.
    let cases: [(&str, &[Value], usize); 4] = [
        ("aten::amax.out", &[matrix.clone(), Value::from(&[1i64][..]), false.into()], 1),
        ("aten::floor.out", std::slice::from_ref(&t), 1),
        ("aten::heaviside.out", &pair, 1),
        ("aten::aminmax.out", &[matrix, 1i64.into(), false.into()], 2),
    ];
    for (op, arguments, results) in cases {
        assert!(call(op, DType::F32, arguments, results).is_ok(), "{op}");
        for other in [DType::F64, DType::F16] {
            let error = call(op, other, arguments, results).expect_err(op).to_string();
            assert!(error.contains("expected an out= tensor of dtype float32"), "{op}: {error}");
        }
    }
}

#[test]
fn ops_that_cast_take_what_the_result_can_become() {
    let t = Value::Tensor(Tensor::from_slice(&[1.5f32, -2.5], [2]));
    for (op, arguments) in [("aten::add.out", vec![t.clone(), t.clone()]), ("aten::cos.out", vec![t])] {
        // `add` has a number between its operands and its result.
        let arguments = match op {
            "aten::add.out" => [arguments, vec![1i64.into()]].concat(),
            _ => arguments,
        };
        for other in [DType::F32, DType::F64, DType::F16] {
            assert!(call(op, other, &arguments, 1).is_ok(), "{op} to {other}");
        }
        assert!(call(op, DType::I64, &arguments, 1).is_err(), "{op} to integers");
    }
}
