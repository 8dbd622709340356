//! Cases H-1 to H-17 of docs/behaviour/autograd.md: `gradcheck` and `gradgradcheck`. The complex part of H-14 waits for
//! complex numbers.

// Lists of one input read better spelled out.
#![allow(clippy::unwrap_used, clippy::cloned_ref_to_slice_refs)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{Context, Function, GradcheckOptions, gradcheck, gradgradcheck};
use firebrand_core::{Class, DType, ErrorKind, Result, Tensor, collect_warnings, ops};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

fn plain() -> GradcheckOptions {
    GradcheckOptions::default()
}
fn fast() -> GradcheckOptions {
    GradcheckOptions { fast_mode: true, ..plain() }
}
fn silent() -> GradcheckOptions {
    GradcheckOptions { raise_exception: false, ..plain() }
}
fn with_forward() -> GradcheckOptions {
    GradcheckOptions { check_forward_ad: true, ..plain() }
}

fn cube(x: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![&x[0] * &x[0] * &x[0]])
}

/// `scale · x`, with a backward (and jvp) that says something of its own.
#[derive(Clone, Copy)]
struct Claims {
    scale: f64,
    backward: fn(&Tensor) -> Tensor,
    jvp: f64,
    materialize: bool,
}

impl Claims {
    fn new(scale: f64, backward: fn(&Tensor) -> Tensor) -> Claims {
        Claims { scale, backward, jvp: scale, materialize: true }
    }
    fn function(self) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>> {
        move |x| self.apply(&[&x[0]])
    }
}

impl Function for Claims {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.set_materialize_grads(self.materialize);
        Ok(vec![&inputs[0] * self.scale])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let g = grads[0].as_ref().ok_or_else(|| firebrand_core::Error::user("no gradient to work with"))?;
        Ok(vec![Some((self.backward)(g))])
    }
    fn jvp(&self, _: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![tangents[0].as_ref().map(|t| t * self.jvp)])
    }
}

/// The message of a failed check.
#[track_caller]
fn message(r: Result<bool>) -> String {
    match r {
        Err(e) if matches!(e.kind(), ErrorKind::Gradcheck { .. }) => e.to_string(),
        other => panic!("expected a Gradcheck error, found {other:?}"),
    }
}

/// H-1
#[test]
fn right_derivatives_pass() {
    let x = leaves(&[1.0, 2.0]);
    let sin = |x: &[Tensor]| Ok(vec![x[0].sin()]);
    for options in [plain(), fast(), with_forward()] {
        assert!(gradcheck(sin, &[x.clone()], &options).unwrap());
    }
    assert!(gradgradcheck(cube, &[x.clone()], None, &plain()).unwrap());
    assert_eq!(vals(&x), [1.0, 2.0]);
    assert_eq!(x.version(), 0);
}

/// H-2
#[test]
fn wrong_backward_is_named() {
    let x = leaves(&[1.0, 2.0]);
    let f = Claims::new(2.0, |g| g * 3.0).function();
    let m = message(gradcheck(&f, &[x.clone()], &plain()));
    for part in ["output 0", "input 0", "[2.000000, 0.000000]", "[3.000000, 0.000000]", "[0.000000, 3.000000]"] {
        assert!(m.contains(part), "{m}");
    }
    assert!(!gradcheck(&f, &[x.clone()], &silent()).unwrap());
    let m = message(gradcheck(&f, &[x], &fast()));
    assert!(m.contains("slow mode") && m.contains("[3.000000, 0.000000]"), "{m}");
}

/// H-3
#[test]
fn number_of_evaluations() {
    let x = leaves(&[1.0, 2.0, 3.0]);
    let count = |options: &GradcheckOptions| {
        let calls = Cell::new(0);
        let f = |x: &[Tensor]| {
            calls.set(calls.get() + 1);
            cube(x)
        };
        assert!(gradcheck(f, &[x.clone()], options).unwrap());
        calls.get()
    };
    assert_eq!(count(&plain()), 8);
    assert_eq!(count(&GradcheckOptions { check_undefined_grad: false, ..plain() }), 7);
    assert_eq!(count(&fast()), 4);
}

/// H-4
#[test]
fn nothing_to_check_is_a_value_error() {
    for options in [plain(), silent()] {
        let e = gradcheck(cube, &[con(&[1.0])], &options).unwrap_err();
        assert_eq!(e.kind().class(), Class::Value, "{e}");
    }
}

/// H-5
#[test]
fn low_precision_warns() {
    let x = Tensor::new(&[1.0f32, 2.0]).requires_grad_();
    let (passed, warnings) = collect_warnings(|| gradcheck(cube, &[x], &silent()).unwrap());
    assert!(!passed);
    assert!(warnings.len() == 1 && warnings[0].contains("f64"), "{warnings:?}");
}

/// H-6
#[test]
fn zero_strides_are_refused() {
    let x = con(&[1.0]).expand([3]).detach().requires_grad_();
    assert_err!(gradcheck(cube, &[x], &plain()), OverlappingInput { index: 0 });
}

/// H-7
#[test]
fn backward_must_repeat_itself() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let f = Claims::new(2.0, |g| g * (2.0 + 1e-9 * f64::from(RUNS.fetch_add(1, Relaxed) % 2))).function();
    let x = leaves(&[1.0, 2.0]);
    let m = message(gradcheck(&f, &[x.clone()], &plain()));
    assert!(m.contains("not reentrant"), "{m}");
    assert!(gradcheck(&f, &[x], &GradcheckOptions { nondet_tol: 1e-6, ..plain() }).unwrap());
}

/// H-8
#[test]
fn backward_must_use_the_incoming_gradient() {
    let f = Claims::new(2.0, |_| Tensor::full((), 2.0, DType::F64)).function();
    let m = message(gradcheck(&f, &[leaf(1.0)], &plain()));
    assert!(m.contains("not multiplied by grad_output"), "{m}");
}

/// H-9
#[test]
fn undefined_gradients() {
    let f = Claims { materialize: false, ..Claims::new(2.0, |g| g * 2.0) }.function();
    let x = leaves(&[1.0, 2.0]);
    let m = message(gradcheck(&f, &[x.clone()], &plain()));
    assert!(m.contains("Expected backward function to handle undefined output grads"), "H-9: {m}");
    assert!(m.contains("no gradient to work with"), "H-9: the function's own error is part of it: {m}");
    assert!(gradcheck(&f, &[x], &GradcheckOptions { check_undefined_grad: false, ..plain() }).unwrap());
}

/// H-10
#[test]
fn contradictory_options() {
    let f = |_: &[Tensor]| -> Result<Vec<Tensor>> { panic!("evaluated") };
    let none = GradcheckOptions { check_backward_ad: false, ..silent() };
    let batched =
        GradcheckOptions { check_backward_ad: false, check_forward_ad: true, check_batched_grad: true, ..silent() };
    for options in [none, batched] {
        let e = gradcheck(f, &[leaf(1.0)], &options).unwrap_err();
        assert_eq!(e.kind().class(), Class::Assertion, "{e}");
    }
}

/// H-11
#[test]
fn outputs_without_derivative_must_be_constant() {
    let x = leaves(&[1.0, 2.0]);
    let rounded = |x: &[Tensor]| Ok(vec![x[0].gt(&con(&[0.0]))]);
    let detached = |x: &[Tensor]| Ok(vec![x[0].mul_scalar(2.0).detach()]);
    for options in [plain(), fast()] {
        assert!(gradcheck(rounded, &[x.clone()], &options).unwrap());
        let m = message(gradcheck(detached, &[x.clone()], &options));
        assert!(m.contains("expected to be zero"), "{m}");
    }
}

/// H-12
#[test]
fn tolerance_is_relative_to_the_numerical_value() {
    let x = leaves(&[1.0, 2.0]);
    let passes = |backward: fn(&Tensor) -> Tensor| {
        gradcheck(Claims::new(1.0, backward).function(), &[x.clone()], &silent()).unwrap()
    };
    assert!(passes(|g| g * 1.0005));
    assert!(passes(|g| g * 1.001));
    assert!(!passes(|g| g * 1.0011));
    assert!(!passes(|g| g * 1.01));
}

/// A square whose backward cannot be differentiated.
struct OnceSquare;
impl Function for OnceSquare {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        Ok(vec![&inputs[0] * &inputs[0]])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let saved = ctx.saved_tensors()?;
        Ok(vec![saved[0].as_ref().zip(grads[0].as_ref()).map(|(x, g)| x * g * 2.0)])
    }
    fn once_differentiable(&self) -> bool {
        true
    }
}

/// H-13
#[test]
fn once_differentiable_fails_the_second_order() {
    let x = leaves(&[1.0, 2.0]);
    let f = |x: &[Tensor]| OnceSquare.apply(&[&x[0]]);
    assert!(gradcheck(f, &[x.clone()], &plain()).unwrap());
    for options in [plain(), fast()] {
        let m = message(gradgradcheck(f, &[x.clone()], None, &options));
        assert!(m.contains("Jacobian mismatch"), "{m}");
    }
}

/// H-14
#[test]
fn batched_gradients() {
    let double = |x: &[Tensor]| Ok(vec![&x[0] * 2.0]);
    let options = GradcheckOptions { check_batched_grad: true, ..plain() };
    assert!(gradcheck(double, &[leaves(&[1.0, 2.0])], &options).unwrap());
}

/// H-15
#[test]
fn wrong_jvp_is_named() {
    let f = Claims { jvp: 3.0, ..Claims::new(2.0, |g| g * 2.0) }.function();
    let x = leaves(&[1.0, 2.0]);
    assert!(gradcheck(&f, &[x.clone()], &plain()).unwrap());
    for options in [with_forward(), GradcheckOptions { fast_mode: true, ..with_forward() }] {
        let m = message(gradcheck(&f, &[x.clone()], &options));
        assert!(m.contains("forward mode") && m.contains("output 0"), "{m}");
    }
}

/// H-16
#[test]
fn second_order_with_given_gradients_and_forward_over_reverse() {
    let x = leaves(&[1.0, 2.0]);
    assert!(gradgradcheck(cube, &[x.clone()], Some(&[leaves(&[1.0, 1.0])]), &plain()).unwrap());
    assert!(gradgradcheck(cube, &[x], None, &with_forward()).unwrap());
}

/// H-17
#[test]
fn gradient_dtypes_are_cast_before_they_are_seen() {
    let f = Claims::new(2.0, |g| {
        let half = ops::to_copy(g, Some(DType::F32), None, false, None);
        half.expect("a copy").mul_scalar(2.0)
    })
    .function();
    let options = GradcheckOptions { check_grad_dtypes: true, ..plain() };
    assert!(gradcheck(f, &[leaves(&[1.0, 2.0])], &options).unwrap());
}

/// Several inputs and outputs: the message names the right pair, constants are left alone.
#[test]
fn several_inputs_and_outputs() {
    let (x, y, c) = (leaves(&[1.0, 2.0]), leaves(&[3.0, 4.0]), con(&[5.0, 6.0]));
    let f = |t: &[Tensor]| Ok(vec![&t[0] * &t[1], &t[1] * &t[2], t[2].gt(&t[1])]);
    let inputs = [x, y, c];
    for fast_mode in [false, true] {
        let options = GradcheckOptions { fast_mode, check_batched_grad: true, ..with_forward() };
        assert!(gradcheck(f, &inputs, &options).unwrap());
        assert!(gradgradcheck(f, &inputs, None, &options).unwrap());
    }
    let wrong = |t: &[Tensor]| Ok(vec![&t[0] * &t[1], Claims::new(2.0, |g| g * 3.0).apply(&[&t[1]])?.remove(0)]);
    let m = message(gradcheck(wrong, &inputs, &plain()));
    assert!(m.contains("output 1 with respect to input 1"), "{m}");
}

/// An error inside f leaves the inputs as they were.
#[test]
fn inputs_are_restored_after_an_error() {
    let x = leaves(&[1.0, 2.0]);
    let calls = Cell::new(0);
    let f = |x: &[Tensor]| {
        calls.set(calls.get() + 1);
        if calls.get() == 3 { Err(firebrand_core::Error::user("enough")) } else { cube(x) }
    };
    assert_err!(gradcheck(f, &[x.clone()], &silent()), User(_));
    assert_eq!(vals(&x), [1.0, 2.0]);
}
