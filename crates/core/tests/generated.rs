//! The generated code at work: nodes, saved values, in-place forms, views, forward mode, boxed calls.
#![allow(clippy::unwrap_used)]

use expect_test::expect;
use firebrand_core::autograd::{dual_level, make_dual, unpack_dual};
use firebrand_core::dispatch::{Op, call};
use firebrand_core::{DType, Result, Scalar, Tensor, ops};

fn leaf(values: &[f64]) -> Tensor {
    Tensor::new(values).requires_grad_()
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>()
}

fn name(t: &Tensor) -> String {
    t.grad_fn().map(|n| n.name().to_string()).unwrap_or_default()
}

#[test]
fn nodes_have_the_names_that_pytorch_prints() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let y = leaf(&[3.0, 4.0]);
    let one = Scalar::Int(1);
    assert_eq!(name(&x.mul(&y)), "MulBackward0");
    assert_eq!(name(&x.mul_scalar(2)), "MulBackward1");
    assert_eq!(name(&x.add_scalar(2, 1)), "AddBackward1");
    assert_eq!(name(&ops::rsub_scalar(&x, one, one)?), "RsubBackward1");
    assert_eq!(name(&x.pow_scalar(2)), "PowBackward0");
    assert_eq!(name(&x.pow(&y)), "PowBackward1");
    assert_eq!(name(&ops::scalar_pow(Scalar::Int(2), &x)?), "PowBackward2");
    assert_eq!(name(&x.sum()), "SumBackward0");
    assert_eq!(name(&x.sum_dim(0, false)), "SumBackward1");
    assert_eq!(name(&x.max()), "MaxBackward1");
    assert_eq!(name(&ops::stack(&[x.clone(), y.clone()], 0)?), "StackBackward0");
    assert_eq!(name(&x.view([2, 1])), "ViewBackward0");
    assert_eq!(name(&ops::to_copy(&x, Some(firebrand_core::DType::F32), None, false, None)?), "ToCopyBackward0");
    Ok(())
}

#[test]
fn a_product_saves_only_what_is_needed() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let y = Tensor::new(&[3.0, 4.0]);
    let node = x.mul(&y).grad_fn().expect("recorded");
    assert_eq!(node.saved_names()?, ["other", "self"]);
    assert!(node.saved("self")?.and_then(|v| v.tensor().cloned()).is_none());
    assert_eq!(numbers(node.saved("other")?.and_then(|v| v.tensor().cloned()).as_ref().expect("kept")), [3.0, 4.0]);
    Ok(())
}

#[test]
fn gradients_flow_through_views_and_in_place_writes() -> Result<()> {
    let x = leaf(&[1.0, 2.0, 3.0]);
    let y = x.mul_scalar(2);
    y.select(0, 1).mul_scalar_(3);
    y.mul_(&x);
    y.sum().backward();
    // d/dx of [2 x0^2, 6 x1^2, 2 x2^2]
    assert_eq!(numbers(&x.grad().expect("a gradient")), [4.0, 24.0, 12.0]);
    Ok(())
}

#[test]
fn a_result_that_was_overwritten_is_noticed() {
    let y = leaf(&[1.0, 2.0]).exp();
    y.mul_scalar_(2);
    expect!["a tensor needed for the gradient was modified by an in-place operation: float64 [2], which is output 0 of ExpBackward0, is at version 1; expected version 0. Run the forward under detect_anomaly(true) to see the call whose gradient failed"].assert_eq(&y.sum().try_backward(&Default::default()).unwrap_err().to_string());
}

#[test]
fn lists_of_tensors_have_one_edge_each() -> Result<()> {
    let (x, y) = (leaf(&[1.0, 2.0]), leaf(&[3.0]));
    let z = ops::cat(&[x.clone(), y.clone()], 0)?;
    let parts = z.split(1, 0);
    parts[0].mul(&parts[2]).sum().backward();
    assert_eq!(numbers(&x.grad().expect("a gradient")), [3.0, 0.0]);
    assert_eq!(numbers(&y.grad().expect("a gradient")), [1.0]);
    Ok(())
}

#[test]
fn tangents_follow_values() -> Result<()> {
    let tangent = dual_level(|| -> Result<Vec<f64>> {
        let x = make_dual(&Tensor::new(&[1.0, 2.0]), &Tensor::new(&[1.0, 10.0]))?;
        let y = x.mul(&x).exp();
        let z = y.clone_tensor();
        z.mul_(&x);
        Ok(numbers(&unpack_dual(&z)?.1.expect("a tangent")))
    })??;
    // d(x e^(x^2)) = (1 + 2 x^2) e^(x^2) dx
    let expected = [3.0 * 1f64.exp(), 9.0 * 4f64.exp() * 10.0];
    assert!(tangent.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9 * b), "{tangent:?} {expected:?}");
    Ok(())
}

#[test]
fn ops_can_be_called_by_name_with_defaults() -> Result<()> {
    let x = Tensor::new(&[1.0, 2.0]);
    let add = Op::from_name("aten::add.Tensor").expect("declared");
    let sum = call(add, &[(&x).into(), (&x).into()])?;
    assert_eq!(format!("{:?}", sum.len()), "1");
    let Some(firebrand_core::dispatch::Value::Tensor(sum)) = sum.first() else { panic!("a tensor") };
    assert_eq!(numbers(sum), [2.0, 4.0]);
    expect!["aten::add.Tensor: argument 1 ('other') should be a tensor, found a string"]
        .assert_eq(&call(add, &[(&x).into(), "text".into()]).unwrap_err().to_string());
    Ok(())
}

/// A call that is refused leaves every target as it was, also those that come before the one that does not fit.
#[test]
fn refused_out_forms_resize_nothing() -> Result<()> {
    let op = Op::from_name("aten::max.dim_max").expect("a form");
    let x = Tensor::from_slice(&[1.0f64, 4.0, 3.0, 2.0], [2, 2]);
    let (values, indices) = (Tensor::zeros([0], DType::F64), Tensor::zeros([3], DType::I64));
    let run = |indices: &Tensor| {
        let given = [x.clone().into(), 1i64.into(), false.into(), values.clone().into(), indices.clone().into()];
        call(op, &given)
    };
    let error = run(&indices).expect_err("the second target has another shape").to_string();
    assert!(error.contains("[3]"), "{error}");
    assert_eq!((values.shape(), values.version()), (&[0][..], 0), "the first target");
    run(&Tensor::zeros([0], DType::I64))?;
    assert_eq!(values.to_vec::<f64>(), [4.0, 3.0]);
    Ok(())
}

#[test]
fn out_forms_write_and_refuse_gradients() -> Result<()> {
    let (x, out) = (Tensor::new(&[1.0, 2.0]), Tensor::new(&[0.0, 0.0]));
    ops::mul_out(&x, &x, &out)?;
    assert_eq!(numbers(&out), [1.0, 4.0]);
    expect!["mul: out= variants do not record gradients, but one of the arguments requires grad; call it under no_grad, or use the functional variant"].assert_eq(&ops::mul_out(&leaf(&[1.0, 2.0]), &x, &out).unwrap_err().to_string());
    Ok(())
}
