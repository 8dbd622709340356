//! Gradients with hooks in ordinary mode (U-100 to U-116): what each placement and order gives.

mod common;

use common::*;
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::{BreakKind, Error, Number, Shared, compile_with};
use firebrand_core::autograd::{BackwardOptions, RemovableHandle};
use firebrand_core::{Result, Tensor};

type Body = fn(&Tensor) -> Tensor;

fn opaque(t: &Tensor, hook: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> RemovableHandle {
    t.register_hook(hook)
}

fn pure(t: &Tensor, hook: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> RemovableHandle {
    register_pure_hook(t, hook).expect("the tensor requires grad")
}

macro_rules! bodies {
    ($hook:ident) => {{
        let rows: [(&str, Body, f32); 5] = [
            (
                "U-100",
                |x| {
                    let y = x * 2.0;
                    $hook(&y, |g| g + 1.0);
                    $hook(&y, |g| g * 10.0);
                    y.sum()
                },
                40.0,
            ),
            (
                "U-101",
                |x| {
                    x.register_hook(|g: &Tensor| g + 100.0);
                    let y = x * 2.0;
                    $hook(&y, |g| g * 3.0);
                    let z = y * 5.0;
                    $hook(&z, |g| g + 1.0);
                    z.sum()
                },
                160.0,
            ),
            (
                "U-102",
                |x| {
                    let y = x * 2.0;
                    $hook(&y, |g| g * 10.0);
                    y
                },
                60.0,
            ),
            (
                "U-103",
                |x| {
                    let y = x * 2.0;
                    $hook(&y, |g| g * g);
                    ((&y * 3.0) + (&y * 4.0)).sum()
                },
                98.0,
            ),
            (
                "U-104",
                |x| {
                    let y = x * 2.0;
                    $hook(&y, |g| g * 10.0);
                    y.mul_scalar_(3.0);
                    $hook(&y, |g| g + 1.0);
                    y.sum()
                },
                120.0,
            ),
        ];
        rows
    }};
}

/// U-100 to U-104, opaque and pure, plain and compiled.
#[test]
fn placements_and_orders() {
    let gradient = |case: &str, f: &dyn Fn(&Tensor) -> Tensor| {
        let x = ones_leaf(2);
        let y = f(&x);
        let y = if case == "U-102" { (y * 3.0).sum() } else { y };
        y.backward();
        grad(&x)
    };
    for (case, body, expected) in bodies!(opaque).into_iter().chain(bodies!(pure)) {
        assert_eq!(gradient(case, &body), [expected; 2], "{case}, plain");
        for (name, c) in counted() {
            let f = compile_with(body, full(&c));
            for _ in 0..2 {
                assert_eq!(gradient(case, &|x| f.call(x)), [expected; 2], "{case}, {name}");
            }
            assert_eq!(c.frames(), 1, "{case}, {name}");
        }
    }
}

/// U-105: every call registers again on the same leaf.
#[test]
fn repeated_registration() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                x.register_hook(|g: &Tensor| g * 2.0);
                x * 1.0
            },
            full(&c),
        );
        let x = ones_leaf(1);
        for expected in [2.0, 4.0, 8.0] {
            x.zero_grad();
            f.call(&x).sum().backward();
            assert_eq!(grad(&x), [expected], "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// U-106: a hook of the caller's on a result. U-107: hooks of the caller's on an argument are not guarded.
#[test]
fn hooks_of_the_caller() {
    for (name, c) in counted() {
        let f = compile_with(|x: &Tensor| x * 2.0, full(&c));
        let x = ones_leaf(1);
        let y = f.call(&x);
        y.register_hook(|g: &Tensor| g * 7.0);
        y.sum().backward();
        assert_eq!(grad(&x), [14.0], "U-106 {name}");

        let x = ones_leaf(1);
        x.register_hook(|g: &Tensor| g * 7.0);
        f.call(&x).sum().backward();
        assert_eq!(grad(&x), [14.0], "U-107 {name}");
        x.zero_grad();
        x.register_hook(|g: &Tensor| g + 1.0);
        f.call(&x).sum().backward();
        assert_eq!((grad(&x), c.frames()), (vec![15.0], 1), "U-107 {name}");
    }
}

/// U-108: a hook that changes the size fails as in a plain run: when compiled if it is pure, else at backward.
#[test]
fn wrong_size() {
    for (name, c) in counted() {
        let body = |x: &Tensor| {
            let y = x * 2.0;
            y.register_hook(|g: &Tensor| g.sum());
            y.sum()
        };
        let told = |r: Result<()>| r.unwrap_err().to_string();
        let plain = told(body(&ones_leaf(2)).try_backward(&BackwardOptions::default()));
        let f = compile_with(body, full(&c));
        let found = told(f.call(&ones_leaf(2)).try_backward(&BackwardOptions::default()));
        assert!(found.contains(&plain) || plain.contains(&found), "{name}: {found} for {plain}");
        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                register_pure_hook(&y, |g| g.sum())?;
                Ok(y.sum())
            },
            full(&c),
        );
        let found = f.try_call(&ones_leaf(2)).unwrap_err().to_string();
        assert!(found.contains("shape"), "{name}: {found}");
    }
}

/// U-109: a hook that writes the gradient in place.
#[test]
fn gradient_written_in_place() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                register_pure_hook(&y, |g| g.mul_scalar_(2.0).clone())?;
                Ok(y * 1.0)
            },
            full(&c),
        );
        let refused = f.try_call(&ones_leaf(2)).map(drop).unwrap_err();
        assert!(matches!(&refused, Error::GraphBreak(b) if b.kind == BreakKind::ImpureHook), "{name}: {refused}");
        let body = |x: &Tensor| {
            let y = x * 2.0;
            y.register_hook(|g: &Tensor| {
                g.mul_scalar_(2.0);
            });
            y * 1.0
        };
        let (plain, x) = (ones_leaf(2), ones_leaf(2));
        body(&plain).backward_with(&ones(2));
        compile_with(body, full(&c)).call(&x).backward_with(&ones(2));
        assert_eq!(grad(&x), grad(&plain), "{name}");
    }
}

/// U-110, U-115: the errors of a plain run.
#[test]
fn hooks_that_cannot_be() {
    for (name, c) in counted() {
        let no_grad = |x: &Tensor| -> Result<Tensor> {
            let y = x * 2.0;
            y.try_register_hook(|_: &Tensor| ())?;
            Ok(y)
        };
        let told = compile_with(no_grad, full(&c)).try_call(&ones(2)).map(drop).unwrap_err().to_string();
        assert_eq!(told, no_grad(&ones(2)).map(drop).unwrap_err().to_string(), "U-110 {name}");
        let non_leaf = |x: &Tensor| -> Result<Tensor> {
            let y = x * 2.0;
            y.try_register_post_accumulate_grad_hook(|_: &Tensor| ())?;
            Ok(y)
        };
        let told = compile_with(non_leaf, full(&c)).try_call(&ones_leaf(2)).map(drop).unwrap_err().to_string();
        assert_eq!(told, non_leaf(&ones_leaf(2)).map(drop).unwrap_err().to_string(), "U-115 {name}");
    }
}

/// U-111: a hook that captures a value computed inside.
#[test]
fn hook_with_an_inner_value() {
    for (name, c) in counted() {
        for is_pure in [false, true] {
            let f = compile_with(
                move |x: &Tensor| {
                    let y = x.sin();
                    let z = &y * 2.0;
                    let hook = move |g: &Tensor| g + &y;
                    match is_pure {
                        true => register_pure_hook(&z, hook).unwrap(),
                        false => z.register_hook(hook),
                    };
                    (&z * &z).sum()
                },
                full(&c),
            );
            let x = ones_leaf(1);
            f.call(&x).backward();
            assert!((grad(&x)[0] - 4.546_487).abs() < 1e-6, "{name}, pure: {is_pure}: {:?}", grad(&x));
        }
    }
}

/// U-112: a number that a pure hook captures becomes an input when it changes.
#[test]
fn pure_hook_with_a_number() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, k): &(Tensor, Number)| {
                let (y, k) = (x * 2.0, k.clone());
                register_pure_hook(&y, move |g| g * &k).unwrap();
                y.sum()
            },
            full(&c),
        );
        for (k, frames) in [(2.0, 1), (3.0, 2), (4.0, 2), (5.0, 2)] {
            let x = ones_leaf(1);
            f.call(&(x.clone(), Number::from(k))).backward();
            assert_eq!((f64::from(grad(&x)[0]), c.frames()), (2.0 * k, frames), "{name}");
        }
    }
}

/// U-113: a printing hook runs at every backward. U-114: a hook on the argument that appends to a list.
#[test]
fn hooks_with_effects() {
    for (name, c) in counted() {
        let printed: Shared<Vec<String>> = Shared::default();
        let held = printed.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let (y, printed) = (x * 2.0, held.clone());
                y.register_hook(move |g: &Tensor| {
                    printed.with(|p| p.push(g.to_string()));
                    g * 2.0
                });
                y.sum()
            },
            with(&c),
        );
        for n in 1..=2 {
            let x = ones_leaf(1);
            f.call(&x).backward();
            assert_eq!((grad(&x), printed.with(|p| p.len())), (vec![4.0], n), "U-113 {name}");
        }
        assert_eq!(c.frames(), 1, "U-113 {name}");

        let list: Shared<Vec<f32>> = Shared::default();
        let held = list.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let list = held.clone();
                x.register_hook(move |g: &Tensor| list.with(|l| l.push(g.sum().item::<f32>())));
                (x * 2.0).sum()
            },
            with(&c),
        );
        let frames = c.frames();
        for _ in 0..2 {
            f.call(&ones_leaf(2)).backward();
        }
        assert_eq!((list.with(|l| l.clone()), c.frames() - frames), (vec![4.0, 4.0], 1), "U-114 {name}");
    }
}

/// U-116: a hook that normalises.
#[test]
fn normalising_hook() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x * 1.0;
                y.register_hook(|g: &Tensor| g / g.norm(2.0));
                (&y * &y).sum()
            },
            full(&c),
        );
        let x = leaf(&[3.0, 4.0]);
        f.call(&x).backward();
        let g = grad(&x);
        assert!((g[0] - 0.6).abs() < 1e-6 && (g[1] - 0.8).abs() < 1e-6, "{name}: {g:?}");
    }
}
