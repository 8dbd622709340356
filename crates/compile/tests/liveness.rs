//! What of a function is alive after its capture is said by results, effects and closures. A clone more or less, here or in
//! the function, changes neither values nor lifetimes.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use firebrand_compile::{Shared, compile_with};
use firebrand_core::{Tensor, ops};
use std::sync::{Arc, Mutex};

/// Adds in place.
fn add_(t: &Tensor, other: &Tensor) {
    ops::add_(t, other, 1i64.into()).unwrap();
}

/// A tensor that the function makes of host data is a new one at every call: written, returned, kept or captured.
#[test]
fn what_a_function_makes_is_new_at_every_call() {
    for (name, backend) in counted() {
        let written = compile_with(
            |x: &Tensor| {
                let sum = v(&[0.0, 10.0]);
                add_(&sum, x);
                sum
            },
            full(&backend),
        );
        let twice = compile_with(
            |x: &Tensor| {
                let sum = v(&[0.0, 10.0]);
                let again = sum.clone();
                add_(&sum, x);
                (sum, &again * 1.0, again)
            },
            full(&backend),
        );
        let constant = compile_with(|x: &Tensor| (v(&[5.0]), x * 2.0), full(&backend));
        for k in 1..4 {
            let x = v(&[k as f32, k as f32]);
            let expected = [k as f32, 10.0 + k as f32];
            assert_eq!(written.call(&x).to_vec::<f32>(), expected, "{name}, call {k}");
            let (a, b, c) = twice.call(&x);
            for t in [&a, &b, &c] {
                assert_eq!(t.to_vec::<f32>(), expected, "{name}, call {k}");
            }
            assert!(a.is_same(&c), "{name}: one tensor");
            let (five, _) = constant.call(&x);
            assert_eq!(five.to_vec::<f32>(), [5.0], "{name}, call {k}");
            add_(&five, &v(&[1.0])); // the caller's own
        }
    }
}

/// A hook that captured such a tensor sees the one of its call.
#[test]
fn a_hook_sees_what_its_call_made() {
    for (name, backend) in counted() {
        let body = |history: bool| {
            move |x: &Tensor| {
                let factor = v(&[1.0]);
                add_(&factor, &if history { x.clone() } else { x.detach() });
                let y = x * 1.0;
                y.register_hook(move |g: &Tensor| g * &factor);
                y
            }
        };
        // A write that makes the tensor require grad does not wait for the graph: the function may ask.
        for f in [compile_with(body(false), full(&backend)), compile_with(body(true), with(&backend))] {
            // All calls are made before the first hook runs.
            let calls = [2.0f32, 3.0, 5.0].map(|k| {
                let x = leaf(&[k]);
                (f.call(&x), x, k)
            });
            for (y, x, k) in calls {
                y.sum().backward();
                assert_eq!(grad(&x), [1.0 + k], "X-170 on {name}");
            }
        }
    }
}

/// Clones that the function keeps somewhere, or a hook captures, in any number: values and gradients are those of a plain
/// run, and the graph is one.
#[test]
fn clones_change_nothing() {
    for (name, backend) in counted() {
        for clones in 0..4 {
            let stash: Arc<Mutex<Vec<Tensor>>> = Arc::default();
            let kept = stash.clone();
            let body = move |x: &Tensor| {
                let y = x.sin();
                let z = &y * 3.0;
                let captured: Vec<Tensor> = (0..clones).map(|_| y.clone()).collect();
                kept.lock().unwrap().extend((0..clones).map(|_| z.clone()));
                z.register_hook(move |g: &Tensor| captured.iter().fold(g * 2.0, |g, y| &g + y));
                (z.clone(), z)
            };
            let f = compile_with(body.clone(), full(&backend));
            let before = backend.frames();
            for k in 1..4 {
                let run = |f: &dyn Fn(&Tensor) -> (Tensor, Tensor)| {
                    let x = leaf(&[k as f32, 0.5]);
                    let (a, b) = f(&x);
                    assert!(a.is_same(&b), "{name}: one result, returned twice");
                    (&a * 1.0).sum().backward();
                    (a.to_vec::<f32>(), grad(&x))
                };
                let (plain, compiled) = (run(&body), run(&|x| f.call(x)));
                let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(
                    near(&plain.0, &compiled.0) && near(&plain.1, &compiled.1),
                    "{name}, {clones} clones, call {k}"
                );
            }
            assert_eq!(backend.frames() - before, 1, "{name}, {clones} clones");
            stash.lock().unwrap().clear();
        }
    }
}

/// A result that an effect stores as well is not kept alive by a hook that never saw it.
#[test]
fn hooks_keep_what_they_captured_only() {
    for (name, backend) in counted() {
        let list: Shared<Vec<Tensor>> = Shared::default();
        let stored = list.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let y = x.sin();
                y.register_hook(|g: &Tensor| g * 2.0);
                let z = y.exp();
                stored.push(z.clone());
                z
            },
            full(&backend),
        );
        for _ in 0..3 {
            let x = ones_leaf(4);
            let z = f.call(&x);
            let weak = z.downgrade();
            assert!(list.with(|l| l.pop().unwrap().is_same(&z)), "{name}");
            drop(z);
            assert!(weak.upgrade().is_none(), "{name}: nobody holds the result");
        }
    }
}
