//! Cases F-1 to F-11 of docs/behaviour/autograd.md: grad mode, inference mode, engine switches; and autocast.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{
    AutocastGuard, AutocastOptions, InferenceMode, autocast, autocast_dtype, enable_grad, enforce_grad_layout_policy,
    inference_mode, is_autocast_enabled, is_grad_enabled, is_inference_mode_enabled, is_multithreading_enabled,
    no_grad, set_grad_enabled, set_multithreading_enabled,
};
use firebrand_core::state::ThreadState;
use firebrand_core::{DType, Tensor, collect_warnings, ops};

/// F-1
#[test]
fn grad_mode_decides_what_is_recorded() {
    let x = leaf(2.0);
    no_grad(|| {
        assert!(!(&x * 2.0).requires_grad());
        assert!(leaf(1.0).requires_grad());
        assert!(enable_grad(|| &x * 2.0).requires_grad());
    });
}

/// F-2: a panic restores the mode; between the items of an iterator that computes under `no_grad` the caller's mode holds.
#[test]
fn modes_are_restored() {
    let left = std::panic::catch_unwind(|| no_grad(|| panic!("out")));
    assert!(left.is_err() && is_grad_enabled());
    for inside in (0..2).map(|_| no_grad(is_grad_enabled)) {
        assert!(!inside && is_grad_enabled());
    }
}

/// F-3
#[test]
fn grad_mode_as_a_call_a_scope_and_a_wrapper() {
    set_grad_enabled(false);
    assert!(!is_grad_enabled());
    set_grad_enabled(true);
    {
        let _scope = set_grad_enabled(false).scoped();
        assert!(!is_grad_enabled());
    }
    assert!(is_grad_enabled());
    let wrapped = || {
        let _scope = set_grad_enabled(false).scoped();
        is_grad_enabled()
    };
    assert!(is_grad_enabled() && !wrapped() && is_grad_enabled());
}

/// F-4, and how a worker takes over the state of its caller.
#[test]
fn modes_belong_to_a_thread() {
    no_grad(|| {
        assert!(std::thread::spawn(is_grad_enabled).join().unwrap());
        let here = ThreadState::capture();
        let there = std::thread::spawn(move || (here.run(is_grad_enabled), is_grad_enabled())).join().unwrap();
        assert_eq!(there, (false, true));
    });
}

/// F-5, F-6
#[test]
fn inference_tensors() {
    let x = leaves(&[2.0]);
    inference_mode(|| {
        assert!((&x * 2.0).is_inference());
        assert!(Tensor::ones([2], DType::F64).is_inference());
        assert!(!x.view([1]).is_inference());
        assert!(!is_grad_enabled() && is_inference_mode_enabled());
        let b = enable_grad(|| &x * 2.0);
        assert!(b.is_inference() && !b.requires_grad());
        let _normal = InferenceMode::new(false);
        let c = &x * 2.0;
        assert!(!c.is_inference() && c.requires_grad());
    });
}

/// F-7
#[test]
fn inference_tensors_outside() {
    let x = leaf(2.0);
    let i = inference_mode(|| Tensor::scalar(3.0));
    assert_err!(i.try_version(), InferenceVersion);
    assert_err!(ops::mul(&x, &i), InferenceSaved);
    assert!((&x + &i).requires_grad());
    assert_err!(ops::add_scalar_(&i, 1.0.into(), 1i64.into()), InferenceInplace { .. });
    assert_err!(i.clone().try_requires_grad_(true), InferenceRequiresGrad);
    assert!(!ops::clone(&i, None).unwrap().is_inference());
    assert!(i.view([1]).is_inference());
    assert!(!(&i * 2.0).is_inference());
}

/// F-8, F-9
#[test]
fn writing_in_inference_mode() {
    let normal = Tensor::scalar(1.0);
    let x = leaf(1.0);
    inference_mode(|| {
        for t in [&normal, &x] {
            ops::add_scalar_(t, 1.0.into(), 1i64.into()).unwrap();
            assert_eq!(t.version(), 1);
        }
        assert!(leaf(1.0).requires_grad());
    });
    let b = &leaves(&[1.0]) * 1.0;
    let v = inference_mode(|| b.view([1]));
    assert_err!(ops::add_scalar_(&v, 1.0.into(), 1i64.into()), InferenceViewInplace { .. });
}

/// F-10
#[test]
fn multithreading_switch() {
    assert!(is_multithreading_enabled());
    {
        let _off = set_multithreading_enabled(false);
        assert!(!is_multithreading_enabled());
    }
    assert!(is_multithreading_enabled());
}

/// F-11
#[test]
fn layout_of_gradients() {
    let run = || {
        let x = Tensor::ones([2, 3], DType::F64).requires_grad_();
        x.transpose(0, 1).backward_with(&Tensor::ones([3, 2], DType::F64));
        x.grad().unwrap().strides().to_vec()
    };
    assert_eq!(run(), [3, 1]);
    let _free = enforce_grad_layout_policy(false);
    assert_eq!(run(), [1, 2]);
}

fn f32s(shape: &[usize]) -> Tensor {
    Tensor::full(shape, 0.5, DType::F32)
}

/// Which dtype each kind of op runs in: as PyTorch 2.15 on the CPU answers.
#[test]
fn autocast_policies() {
    let x = f32s(&[4, 4]);
    let low = x.to_dtype(DType::BF16);
    autocast(DType::BF16, || {
        assert!(is_autocast_enabled() && autocast_dtype() == DType::BF16);
        assert_eq!(x.mm(&x).dtype(), DType::BF16);
        assert_eq!(x.matmul(&x).dtype(), DType::BF16);
        assert_eq!(ops::linear(&x, &x, None).unwrap().dtype(), DType::BF16);
        assert_eq!(ops::addmm(&x, &x, &x, 1i64.into(), 1i64.into()).unwrap().dtype(), DType::BF16);
        assert_eq!(ops::einsum("ij,jk->ik", &[x.clone(), x.clone()], None).unwrap().dtype(), DType::BF16);
        // Wide: losses, products of many numbers.
        assert_eq!(ops::mse_loss(&low, &low, 1).unwrap().dtype(), DType::F32);
        assert_eq!(ops::prod(&low, None).unwrap().dtype(), DType::F32);
        // The widest of the arguments.
        assert_eq!(ops::cat(&[x.clone(), low.clone()], 0).unwrap().dtype(), DType::F32);
        assert_eq!(ops::stack(&[low.clone(), low.clone()], 0).unwrap().dtype(), DType::BF16);
        // As they are.
        assert_eq!(low.exp().dtype(), DType::BF16);
        assert_eq!(low.sum().dtype(), DType::BF16);
        assert_eq!((&x + &low).dtype(), DType::F32);
        // f64 is never touched.
        let wide = x.to_dtype(DType::F64);
        assert_eq!(wide.mm(&wide).dtype(), DType::F64);
        // Off for a part.
        let _off = AutocastGuard::new(AutocastOptions { enabled: false, ..Default::default() });
        assert_eq!(x.mm(&x).dtype(), DType::F32);
    });
    assert!(!is_autocast_enabled());
    assert_eq!(x.mm(&x).dtype(), DType::F32);
    autocast(DType::F16, || assert_eq!(x.mm(&x).dtype(), DType::F16));
    let (_, warnings) = collect_warnings(|| autocast(DType::F64, || assert_eq!(x.mm(&x).dtype(), DType::F32)));
    assert_eq!(warnings.len(), 1);
}

/// Gradients come back in the parameter's dtype; its cast is made once in a region.
#[test]
fn autocast_gradients_and_cache() {
    let w = f32s(&[4, 4]).requires_grad_();
    let x = f32s(&[4, 4]);
    let (a, b) = autocast(DType::BF16, || (x.mm(&w), x.mm(&w)));
    let source = |t: &Tensor| t.grad_fn().unwrap().next_functions()[1].as_ref().unwrap().node.clone();
    assert!(source(&a).is_same(&source(&b)));
    let (c, d) = autocast(AutocastOptions { cache_enabled: false, ..Default::default() }, || (x.mm(&w), x.mm(&w)));
    assert!(!source(&c).is_same(&source(&d)));
    a.sum().backward();
    let g = w.grad().unwrap();
    assert_eq!((g.dtype(), g.to_vec::<f32>()[0]), (DType::F32, 2.0));
}
