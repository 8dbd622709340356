//! A capture, the binding of a call and the watch on cells go along where the closure's work moves to another thread.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use firebrand_compile::{Shared, compile_with, effects};
use firebrand_core::Tensor;
use firebrand_core::state::ThreadState;
use firebrand_graph::cond;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs `f` on a fresh thread in the state of this one.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let here = ThreadState::capture();
    std::thread::scope(|s| s.spawn(|| here.run(f)).join().unwrap())
}

/// Ops, effects and cells that a helper thread of the closure uses are the closure's.
#[test]
fn a_capture_goes_where_the_work_goes() {
    for (name, backend) in counted() {
        let calls = Arc::new(AtomicUsize::new(0));
        let (count, scale) = (calls.clone(), Shared::new(v(&[2.0])));
        let cell = scale.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let (count, cell) = (count.clone(), &cell);
                elsewhere(move || {
                    effects::record(move || _ = count.fetch_add(1, Relaxed));
                    &x.sin() * &cell.get()
                })
            },
            full(&backend),
        );
        for (k, factor) in [2.0, 3.0, 5.0].into_iter().enumerate() {
            scale.set(v(&[factor]));
            let y = f.call(&v(&[1.0]));
            assert_eq!(y.to_vec::<f32>(), [1.0f32.sin() * factor], "{name}");
            assert_eq!(calls.load(Relaxed), k + 1, "{name}: the effect is repeated at every call");
        }
        assert_eq!(backend.frames(), 1, "{name}: the cell is an input of the one graph");
    }
}

#[test]
fn a_conditional_is_recorded_where_the_work_goes() {
    for (name, backend) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                elsewhere(|| cond(&x.sum().gt_scalar(0.0), |x| Ok(vec![x[0].sin()]), |x| Ok(vec![x[0].cos()]), &[x]))
            },
            full(&backend),
        );
        for value in [1.0f32, -1.0] {
            let y = f.call(&v(&[value])).remove(0);
            let expected = if value > 0.0 { value.sin() } else { value.cos() };
            assert!((y.item::<f32>() - expected).abs() < 1e-6, "{name}");
        }
        assert_eq!(backend.frames(), 1, "{name}");
    }
}

/// A hook of a call sees the call's own cells, wherever it reads them.
#[test]
fn the_binding_of_a_call_goes_where_its_hook_goes() {
    for (name, backend) in counted() {
        let f = compile_with(
            |(x, scale): &(Tensor, Shared<f32>)| {
                let y = x * 1.0;
                let scale = scale.clone();
                y.register_hook(move |g: &Tensor| elsewhere(|| g * f64::from(scale.with(|s| *s))));
                &y * 2.0
            },
            full(&backend),
        );
        for factor in [3.0f32, 5.0, 7.0] {
            let x = leaf(&[1.0]);
            f.call(&(x.clone(), Shared::new(factor))).sum().backward();
            assert_eq!(grad(&x), [2.0 * factor], "{name}");
        }
    }
}
