//! Ops on lists of tensors: equal to the single ops in values and gradients, one call for layers, strict about lists.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::{self, Interpreter, Next, Outputs, Value};
use firebrand_core::ops::generated::schema::Op;
use firebrand_core::{Result, Scalar, Tensor, ops};
use std::sync::{Arc, Mutex};

fn lists() -> [Vec<Tensor>; 3] {
    [
        vec![leaves(&[1.0, 2.0]), leaves(&[3.0])],
        vec![leaves(&[0.5, 4.0]), leaves(&[2.5])],
        vec![leaves(&[2.0, 3.0]), leaves(&[0.25])],
    ]
}

fn backward(results: &[Tensor]) {
    results.iter().map(Tensor::sum).reduce(|a, b| &a + &b).unwrap().backward();
}

/// What a parameter of a foreach op is given, and its part for each of the two positions.
fn argument(parameter: &str, k: usize) -> (Value, [Value; 2]) {
    let (kind, name) = parameter.split_once(' ').unwrap();
    let tensors = [con(&[1.5, 2.5]), con(&[0.5 + k as f64])];
    let numbers = [Scalar::from(2.0), Scalar::from(3.0)];
    let same = |v: Value| (v.clone(), [v.clone(), v]);
    match kind {
        "Tensor" if name == "scalars" => ((&con(&[2.0, 3.0])).into(), numbers.map(Value::from)),
        "Tensor[]" | "Tensor(a!)[]" => (tensors[..].into(), tensors.map(|t| (&t.clone_tensor()).into())),
        "Scalar[]" => (numbers[..].into(), numbers.map(Value::from)),
        "Tensor" => same((&Tensor::scalar(4.0)).into()),
        "Scalar" => same(numbers[0].into()),
        "bool" => same(false.into()),
        "MemoryFormat?" => same(Value::None),
        other => panic!("a parameter of type {other}"),
    }
}

#[test]
fn every_op_equals_its_reference() {
    let mut seen = 0;
    for op in Op::all().filter(|op| op.name().starts_with("aten::_foreach_")) {
        let (name, parameters) = op.schema().text.split_once('(').unwrap();
        let parameters = parameters.split_once(") ->").unwrap().0;
        let parameters: Vec<&str> = parameters.split(", ").filter(|p| *p != "*").collect();
        let (base, overload) = name["aten::_foreach_".len()..].split_once('.').unwrap_or((&name[15..], ""));
        let reference = match (base.trim_end_matches('_'), overload) {
            ("add" | "sub" | "mul" | "div" | "lerp", "Scalar" | "ScalarList") => format!("aten::{base}.Scalar"),
            ("add" | "sub" | "mul" | "div" | "lerp", _) => format!("aten::{base}.Tensor"),
            ("clamp_min", "List") => "aten::clamp_min.Tensor".to_string(),
            ("clamp_max", "List") => "aten::clamp_max.Tensor".to_string(),
            ("maximum" | "minimum", "List") => format!("aten::{}", base.trim_end_matches('_')),
            ("clamp_min" | "maximum", _) => "aten::clamp_min".to_string(),
            ("clamp_max" | "minimum", _) => "aten::clamp_max".to_string(),
            ("pow", "List") => "aten::pow.Tensor_Tensor".to_string(),
            ("pow", "ScalarAndTensor") => "aten::pow.Scalar".to_string(),
            ("pow", _) => "aten::pow.Tensor_Scalar".to_string(),
            // Takes matrices; reduce each tensor. The op table has rows of them.
            ("mm" | "norm" | "powsum", _) => continue,
            _ => format!("aten::{base}"),
        };
        let given: Vec<(Value, [Value; 2])> =
            parameters.iter().enumerate().map(|(k, parameter)| argument(parameter, k)).collect();
        let list: Vec<Value> = given.iter().map(|(all, _)| all.clone()).collect();
        let results = dispatch::call(op, &list).unwrap();
        let found = match (results.first(), &list[0]) {
            (Some(Value::Tensors(found)), _) | (None, Value::Tensors(found)) => found,
            other => panic!("{name} gave {other:?}"),
        };
        for (i, found) in found.iter().enumerate() {
            let one: Vec<Value> = given.iter().map(|(_, each)| each[i].clone()).collect();
            let Value::Tensor(expected) = &dispatch::call_by_name(&reference, &one).unwrap()[0] else { panic!() };
            let bits = |t: &Tensor| vals(t).iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(found), bits(expected), "{name} at {i}");
        }
        seen += 1;
    }
    assert!(seen >= 52, "found {seen}");
}

#[test]
fn gradients_of_a_chain_equal_those_of_single_ops() {
    let ([a, b, c], [d, e, f]) = (lists(), lists());
    let two = Scalar::from(2.0);
    let chain = || -> Result<Vec<Tensor>> {
        let x = ops::foreach_add(&a, &b, two)?;
        let x = ops::foreach_mul(&x, &c)?;
        let x = ops::foreach_addcdiv_scalar(&x, &a, &b, two)?;
        let x = ops::foreach_sqrt(&ops::foreach_exp(&ops::foreach_neg(&x)?)?)?;
        let x = ops::foreach_lerp(&x, &b, &c)?;
        ops::foreach_add_scalars_(&x, &[1.0.into(), 5.0.into()])?;
        ops::foreach_mul_(&x, &a)?;
        Ok(x)
    };
    let found = chain().unwrap();
    let expected: Vec<Tensor> = (0..2)
        .map(|i| {
            let x = ops::add(&d[i], &e[i], two).unwrap().mul(&f[i]);
            let x = ops::addcdiv(&x, &d[i], &e[i], two).unwrap().neg().exp().sqrt();
            let x = x.lerp(&e[i], &f[i]) + [1.0, 5.0][i];
            x.mul(&d[i])
        })
        .collect();
    backward(&found);
    backward(&expected);
    for (x, y) in found.iter().zip(&expected) {
        assert_eq!(vals(x), vals(y));
    }
    for (x, y) in [a, b, c].concat().iter().zip(&[d, e, f].concat()) {
        assert_eq!(grad(x), grad(y));
    }
    assert_eq!(node_name(&ops::foreach_mul(&found, &found).unwrap()[1]), "MulBackward0");
}

#[test]
fn in_place_forms_write_and_rebase() {
    let [a, b, _] = lists();
    let x = ops::foreach_mul_scalar(&a, 1.0.into()).unwrap();
    ops::foreach_copy_(&x, &b, false).unwrap();
    assert_eq!(vals(&x[0]), [0.5, 4.0]);
    backward(&x);
    assert_eq!((grad(&a[0]), grad(&b[0])), (vec![0.0, 0.0], vec![1.0, 1.0]));
    no_grad(|| ops::foreach_zero_(&a)).unwrap();
    assert_eq!((vals(&a[0]), vals(&a[1])), (vec![0.0, 0.0], vec![0.0]));
    assert_err!(ops::foreach_zero_(&b), LeafInplace { .. });
}

struct Log(Mutex<Vec<&'static str>>);

impl Interpreter for Log {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        self.0.lock().unwrap().push(op.name());
        next.call(op, args)
    }
}

#[test]
fn layers_see_one_call() {
    let [a, b, _] = lists();
    let log = Arc::new(Log(Mutex::new(Vec::new())));
    let layer = dispatch::push_layer(log.clone());
    ops::foreach_add(&a, &b, 1.into()).unwrap();
    no_grad(|| ops::foreach_add_scalar_(&a, 1.into())).unwrap();
    drop(layer);
    assert_eq!(*log.0.lock().unwrap(), ["aten::_foreach_add.List", "aten::_foreach_add_.Scalar"]);
    assert_eq!(vals(&a[0]), [2.0, 3.0]);
}

#[test]
fn lists_that_do_not_fit_are_refused_before_anything_is_written() {
    let [a, b, _] = lists();
    no_grad(|| {
        assert_err!(ops::foreach_add_(&a, &b[..1], 1.into()), Argument { .. });
        assert_err!(ops::foreach_mul_scalars_(&a, &[1.into()]), Argument { .. });
        assert_err!(ops::foreach_mul_tensor_(&a, &b[0]), Argument { .. });
        assert_err!(ops::foreach_neg(&[]), Argument { .. });
        ops::foreach_mul_tensor_(&a, &Tensor::scalar(2.0)).unwrap();
    });
    assert_eq!((vals(&a[0]), vals(&a[1])), (vec![2.0, 4.0], vec![6.0]));
}
