//! The hook suite under compiled backward (J-17 to J-30): each row with every pair of back ends, forward and backward.

use crate::common::*;
use crate::compilers;
use firebrand_compile::{Compiled, Number, Options, Shared, compile_with};
use firebrand_core::Tensor;
use firebrand_core::autograd::no_grad;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a row does with the options of its forward; afterwards both sides have this many graphs.
struct Row {
    id: &'static str,
    run: fn(Options),
    captures: usize,
}

fn close(x: &Tensor, expected: f32) {
    assert!(grad(x).iter().all(|g| (g - expected).abs() < 1e-4), "{:?} for {expected}", grad(x));
}

/// Calls on fresh leaves of ones, and the gradient each must give.
fn steps<A: firebrand_compile::Tree>(f: &Compiled<(Tensor, A), Tensor>, calls: Vec<(A, f32)>) {
    for (argument, expected) in calls {
        let x = ones_leaf(4);
        f.call(&(x.clone(), argument)).backward_with(&ones(4));
        close(&x, expected);
    }
}

type Hook = Shared<Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>>;

fn hook(f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> Hook {
    Shared::new(Box::new(f))
}

const ROWS: &[Row] = &[
    Row {
        id: "J-17, J-18",
        captures: 1,
        run: |o| {
            let f = compile_with(
                |x: &Tensor| {
                    let y = x * 2.0;
                    y.register_hook(|g: &Tensor| g + 3.0);
                    y.register_hook(|g: &Tensor| g + 4.0);
                    y * 3.0
                },
                o,
            );
            for _ in 0..3 {
                let x = ones_leaf(4);
                f.call(&x).backward_with(&ones(4));
                assert_eq!(grad(&x), [20.0; 4]);
            }
        },
    },
    Row {
        id: "J-19",
        captures: 1,
        run: |o| {
            let f = compile_with(
                |x: &Tensor| {
                    x.register_hook(|g: &Tensor| g + 3.0);
                    (x * 2.0) * 3.0
                },
                o,
            );
            for _ in 0..3 {
                let x = ones_leaf(4);
                f.call(&x).backward_with(&ones(4));
                assert_eq!(grad(&x), [9.0; 4]);
            }
        },
    },
    Row {
        id: "J-20, J-21",
        captures: 1,
        run: |o| {
            let (count, text) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(String::new())));
            let held = (count.clone(), text.clone());
            let f = compile_with(
                move |x: &Tensor| {
                    let y = x * 2.0;
                    for _ in 0..2 {
                        let (count, text) = held.clone();
                        y.register_hook(move |g: &Tensor| {
                            *text.lock().expect("no panics") = g.to_string();
                            if count.fetch_add(1, Relaxed).is_multiple_of(2) { g * g } else { g + g }
                        });
                    }
                    y * 3.0
                },
                o,
            );
            for round in 1..4 {
                let x = ones_leaf(4);
                f.call(&x).backward_with(&ones(4));
                assert_eq!((grad(&x), count.load(Relaxed)), (vec![36.0; 4], 2 * round));
                assert!(text.lock().expect("no panics").contains('9'), "the last hook saw nines");
            }
        },
    },
    Row {
        id: "J-22",
        captures: 1,
        run: |o| {
            let f = compile_with(
                |(x, object): &(Tensor, Shared<Tensor>)| {
                    let (y, object) = (x * 2.0, object.clone());
                    y.register_hook(move |g: &Tensor| g + object.with(|o| o.clone()));
                    y * 3.0
                },
                o,
            );
            let object = |value: f32| Shared::new(v(&[value]));
            let o1 = object(88.0);
            steps(&f, vec![(o1.clone(), 182.0), (o1, 182.0), (object(99.0), 204.0), (object(11.0), 28.0)]);
        },
    },
    Row {
        id: "J-23",
        captures: 1,
        run: |o| {
            let f = compile_with(
                |(x, val): &(Tensor, Tensor)| {
                    let val = val.clone();
                    x.register_hook(move |g: &Tensor| g + &val);
                    x.sin().sin()
                },
                o,
            );
            steps(&f, vec![(v(&[88.0]), 88.36004), (v(&[99.0]), 99.36004)]);
        },
    },
    Row {
        id: "J-24",
        captures: 1,
        run: |o| {
            let f = compile_with(
                |x: &Tensor| {
                    let y = x.sin();
                    let z = y.clone();
                    x.register_hook(move |g: &Tensor| g + &z);
                    y.sin()
                },
                o,
            );
            for _ in 0..3 {
                let x = ones_leaf(4);
                f.call(&x).backward_with(&ones(4));
                close(&x, 1.2015104);
            }
        },
    },
    Row {
        id: "J-25, J-26",
        captures: 1,
        run: |o| {
            let f = compile_with(
                |(x, val): &(Tensor, Tensor)| {
                    let (y, val) = (x.sin(), val.clone());
                    y.register_hook(move |g: &Tensor| g + &val);
                    y.sin()
                },
                o,
            );
            steps(&f, vec![(v(&[88.0]), 47.906647), (v(&[99.0]), 53.849_97)]);
        },
    },
    Row {
        id: "J-27",
        captures: 2, // the second step finds a gradient
        run: |o| {
            let f = compile_with(
                |(x, hook): &(Tensor, Hook)| {
                    let y = x * 2.0;
                    for _ in 0..2 {
                        let hook = hook.clone();
                        y.register_hook(move |g: &Tensor| hook.with(|h| h(g)));
                    }
                    y * 3.0
                },
                o,
            );
            let x = ones_leaf(4);
            f.call(&(x.clone(), hook(|g| g + 0.0))).backward_with(&ones(4));
            close(&x, 6.0);
            f.call(&(x.clone(), hook(|g| g * 2.0))).backward_with(&ones(4));
            close(&x, 30.0);
        },
    },
    Row {
        id: "J-28",
        captures: 1,
        run: |o| {
            let f = compile_with(
                |(x, hook): &(Tensor, Hook)| {
                    let (y, hook) = (x * 2.0, hook.clone());
                    y.register_hook(move |g: &Tensor| hook.with(|h| h(g)));
                    y * 3.0
                },
                o,
            );
            steps(&f, vec![(hook(|g| g * 1.0), 6.0), (hook(|g| g * 2.0), 12.0)]);
        },
    },
    Row {
        id: "J-29",
        captures: 1,
        run: |o| {
            let f = compile_with(|x: &Tensor| (x.clone(), x * 2.0), o);
            for _ in 0..2 {
                let x = leaf(&[0.5; 3]);
                x.try_register_post_accumulate_grad_hook(|x: &Tensor| {
                    let g = x.grad().expect("just accumulated");
                    no_grad(|| {
                        x.mul_(&g);
                        g.mul_scalar_(5.0);
                    });
                })
                .expect("a leaf");
                let (same, _) = f.call(&x);
                let seed = leaf(&[2.0; 3]);
                same.backward_with(&seed);
                assert_eq!((x.to_vec::<f32>(), grad(&x)), (vec![1.0; 3], vec![10.0; 3]));
                assert_eq!(seed.to_vec::<f32>(), [2.0; 3], "the seed is not the gradient");
            }
        },
    },
];

#[test]
fn rows() {
    for row in ROWS {
        for (forward, c) in counted() {
            for (name, counter, compiler) in compilers() {
                let before = c.frames();
                {
                    let _scope = compiler.enable();
                    (row.run)(full(&c));
                }
                let id = row.id;
                assert_eq!(c.frames() - before, 1, "{id}: graphs of the forward, {forward} and {name}");
                let found = (compiler.captures(), counter.frames());
                assert_eq!(found, (row.captures, row.captures), "{id}: backward, {forward} and {name}");
            }
        }
    }
}

/// J-30: the multiplier is an input of the compiled backward, too.
#[test]
fn test_recompile() {
    for (name, _, compiler) in compilers() {
        let x = ones_leaf(2);
        x.try_register_post_accumulate_grad_hook(|p: &Tensor| {
            let g = p.grad().expect("just accumulated");
            no_grad(|| g.mul_scalar_(2.0).clone());
        })
        .expect("a leaf");
        let _scope = compiler.enable();
        for i in 0..5 {
            x.zero_grad();
            let y = match i % 2 {
                0 => &x * f64::from(i),
                _ => &x * &Number::from(f64::from(i)),
            };
            y.sum().backward();
            assert_eq!(grad(&x), [2.0 * i as f32; 2], "{name}");
        }
        assert_eq!(compiler.captures(), 1, "{name}");
    }
}
