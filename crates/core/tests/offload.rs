//! Saved tensors in a store or in a smaller dtype.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use expect_test::expect;
use firebrand_core::autograd::{GradOptions, SpillStore, Spilled, grad as gradient, save_compressed, save_in_store};
use firebrand_core::{DType, Error, Result, Storage, Tensor, collect_warnings, memory_stats, reset_peak_memory};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Keeps copies in memory, up to a limit, and counts them.
#[derive(Clone, Default)]
struct Shelf {
    held: Arc<AtomicUsize>,
    puts: Arc<AtomicUsize>,
    limit: Option<usize>,
}

struct Place(Storage, Arc<AtomicUsize>);

impl Spilled for Place {
    fn get(&self) -> Result<Storage> {
        Ok(self.0.duplicate()?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.1.fetch_sub(1, SeqCst);
    }
}

impl SpillStore for Shelf {
    fn put(&self, bytes: &Storage) -> Result<Box<dyn Spilled>> {
        if self.limit.is_some_and(|limit| self.held.load(SeqCst) >= limit) {
            return Err(Error::user("the shelf is full"));
        }
        self.held.fetch_add(1, SeqCst);
        self.puts.fetch_add(1, SeqCst);
        Ok(Box::new(Place(bytes.duplicate()?, self.held.clone())))
    }
}

fn loss(x: &Tensor, w: &Tensor) -> Tensor {
    let h = (x * w).tanh();
    // A transposed view, so that strides matter.
    (h.t().exp() * h.t()).sum()
}

fn pair() -> (Tensor, Tensor) {
    let x = Tensor::linspace(0.1, 1.2, 12, DType::F64).view([3, 4]).requires_grad_();
    (x, Tensor::full([3, 4], 0.7, DType::F64).requires_grad_())
}

/// Gradients of first and second order are the same numbers; every place is given back.
#[test]
fn a_store_changes_no_gradient() {
    let shelf = Shelf::default();
    let (x, w) = pair();
    let expected = gradient(&loss(&x, &w), &x, &GradOptions::default()).unwrap().remove(0).unwrap();
    let y = {
        let _scope = save_in_store(shelf.clone(), 0).unwrap();
        loss(&x, &w)
    };
    // tanh's result is saved by tanh and again by mul, through the same view: leaves stay, twins are stored once.
    assert!(shelf.held.load(SeqCst) > 0);
    let g = gradient(&y, &x, &GradOptions::create_graph()).unwrap().remove(0).unwrap();
    assert_eq!(vals(&g), vals(&expected));
    let second = gradient(&g.sum(), &w, &GradOptions::default()).unwrap().remove(0).unwrap();
    let plain = gradient(&loss(&x, &w), &x, &GradOptions::create_graph()).unwrap().remove(0).unwrap();
    let plain = gradient(&plain.sum(), &w, &GradOptions::default()).unwrap().remove(0).unwrap();
    assert_eq!(vals(&second), vals(&plain));
    drop((y, g, second));
    assert_eq!(shelf.held.load(SeqCst), 0);
}

/// A tensor that several ops save is stored once; one that was written in between is not the same.
#[test]
fn twins_are_stored_once() {
    let shelf = Shelf::default();
    let x = leaf(2.0);
    let b = &x * 1.0;
    let y = {
        let _scope = save_in_store(shelf.clone(), 0).unwrap();
        let y = &b * &b;
        assert_eq!(shelf.puts.load(SeqCst), 1);
        b.add_(&Tensor::scalar(1.0f64));
        y + b.sin()
    };
    assert_eq!(shelf.puts.load(SeqCst), 2);
    y.backward();
    // The stored copies do not see the write: 2·2 + cos 3.
    close(&grad(&x), &[4.0 + 3f64.cos()]);
}

/// A full store costs memory, not gradients; it is said once.
#[test]
fn a_full_store_is_no_error() {
    let shelf = Shelf { limit: Some(1), ..Shelf::default() };
    let (x, w) = pair();
    let expected = gradient(&loss(&x, &w), &x, &GradOptions::default()).unwrap().remove(0).unwrap();
    let (y, warnings) = collect_warnings(|| {
        let _scope = save_in_store(shelf.clone(), 0).unwrap();
        loss(&x, &w)
    });
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("the shelf is full"));
    let found = gradient(&y, &x, &GradOptions::default()).unwrap().remove(0).unwrap();
    assert_eq!(vals(&found), vals(&expected));
}

/// What stays in memory is still version-checked: leaves, and tensors too small to move.
#[test]
fn what_stays_is_checked() {
    let (x, c) = (leaf(2.0), leaf(3.0));
    let b = &x * 1.0;
    let y = {
        let _scope = save_in_store(Shelf::default(), 1 << 20).unwrap();
        b.sin() + &c * &c
    };
    b.add_(&Tensor::scalar(1.0f64));
    assert_err!(y.try_backward(&Default::default()), SavedVersionMismatch { .. });
}

/// Half the bytes are kept, gradients are right to the precision of the smaller dtype, and have their own dtype.
#[test]
fn compressed() {
    let x = Tensor::linspace(0.1, 1.0, 4096, DType::F32).requires_grad_();
    let run = || (x.sin() * x.cos()).exp();
    let live = |y: &dyn Fn() -> Tensor| {
        let before = memory_stats().live;
        let y = y();
        (memory_stats().live - before, gradient(&y.sum(), &x, &GradOptions::default()).unwrap().remove(0).unwrap())
    };
    let (plain_bytes, expected) = live(&run);
    let (bytes, found) = live(&|| {
        let _scope = save_compressed(DType::BF16).unwrap();
        run()
    });
    assert_eq!(found.dtype(), DType::F32);
    let (found, expected) = (found.to_vec::<f32>(), expected.to_vec::<f32>());
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 0.02 * b.abs().max(1.0)));
    assert_ne!(found, expected);
    // sin, cos and exp keep their results; exp's is also the caller's.
    assert!(bytes < plain_bytes, "{bytes} {plain_bytes}");
    expect!["save_compressed: expected a floating point dtype, found int64"]
        .assert_eq(&save_compressed(DType::I64).map(drop).unwrap_err().to_string());
    // Integers and tensors that are small already pass unchanged.
    let _scope = save_compressed(DType::F32).unwrap();
    let y = x.index_select(0, &Tensor::new(&[1i64, 2]));
    y.sum().backward();
    assert_eq!(x.grad().unwrap().to_vec::<f32>()[..4], [0.0, 1.0, 1.0, 0.0]);
}

/// Peak memory of a deep chain is that of a few tensors when what it saves is away.
#[test]
fn peak_memory_falls() {
    let x = Tensor::full([1 << 16], 0.5, DType::F32).requires_grad_();
    let peak = |run: &dyn Fn()| {
        reset_peak_memory();
        let before = memory_stats().live;
        run();
        memory_stats().peak - before
    };
    let chain = || (0..20).fold(x.clone(), |y, _| y.sin());
    let plain = peak(&|| chain().sum().backward());
    struct Nowhere;
    impl SpillStore for Nowhere {
        fn put(&self, bytes: &Storage) -> Result<Box<dyn Spilled>> {
            // Compressed to its first element, which is all of it here.
            Ok(Box::new(Constant(
                bytes.nbytes(),
                Tensor::try_from_storage(bytes, DType::F32, firebrand_core::Layout::contiguous(&[1]).unwrap())?.item(),
            )))
        }
    }
    struct Constant(usize, f32);
    impl Spilled for Constant {
        fn get(&self) -> Result<Storage> {
            Ok(Tensor::full([self.0 as i64 / 4], self.1, DType::F32).untyped_storage())
        }
    }
    x.zero_grad();
    let away = peak(&|| {
        let y = {
            let _scope = save_in_store(Nowhere, 0).unwrap();
            chain()
        };
        y.sum().backward()
    });
    assert!(away * 3 < plain, "{away} {plain}");
}
