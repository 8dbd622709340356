//! Hooks on values inside the function (J-35 to J-45, L-1 to L-3), and effects that are switched off.

use crate::common::*;
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::{BreakKind, Error, Options, Shared, compile_with};
use firebrand_core::Tensor;
use firebrand_graph::cond;

/// J-35, J-39: a hook on a value inside; one that returns nothing.
#[test]
fn test_hook_on_intermediate() {
    for (name, c) in counted() {
        for pure in [false, true] {
            let f = compile_with(
                move |x: &Tensor| {
                    let y = x * 2.0;
                    match pure {
                        true => register_pure_hook(&y, |g| g + 1.0).unwrap(),
                        false => y.register_hook(|g: &Tensor| g + 1.0),
                    };
                    y.sum()
                },
                full(&c),
            );
            let x = ones_leaf(2);
            f.call(&x).backward();
            assert_eq!(grad(&x), [4.0; 2], "{name}, pure: {pure}");
        }
        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                y.register_hook(|_: &Tensor| ());
                y.sum()
            },
            full(&c),
        );
        let x = ones_leaf(2);
        f.call(&x).backward();
        assert_eq!(grad(&x), [2.0; 2], "{name}");
    }
}

/// J-36: other names of the value see the hook, also those in a list outside.
#[test]
fn test_hook_on_intermediate_with_container() {
    for (name, c) in counted() {
        let list: Shared<Vec<Tensor>> = Shared::default();
        let held = list.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let y = x * 2.0;
                held.push(y.clone());
                let alias = y.clone();
                let a = &alias * 3.0;
                y.register_hook(|g: &Tensor| g + 1.0);
                (a + &alias).sum()
            },
            full(&c),
        );
        let x = ones_leaf(2);
        f.call(&x).backward();
        assert_eq!(grad(&x), [10.0; 2], "{name}");
        assert_eq!((c.frames(), list.with(|l| l.len())), (1, 1), "{name}");
    }
}

/// J-37, J-40: the hook is on the value, not on later uses.
#[test]
fn test_hook_on_intermediate_used_before_and_after() {
    for (name, c) in counted() {
        for pure in [false, true] {
            let f = compile_with(
                move |x: &Tensor| {
                    let y = x * 2.0;
                    let z = &y + 1.0;
                    match pure {
                        true => register_pure_hook(&y, |g| g * 2.0).unwrap(),
                        false => y.register_hook(|g: &Tensor| g * 2.0),
                    };
                    let w = &y * 3.0;
                    (z + w).sum()
                },
                full(&c),
            );
            let x = ones_leaf(2);
            f.call(&x).backward();
            assert_eq!(grad(&x), [16.0; 2], "{name}, pure: {pure}");
        }
    }
}

/// J-38: a hooked value that a conditional takes. Both sides are in the one graph; each call takes the side its numbers say.
#[test]
fn test_hook_on_intermediate_with_higher_order_op() {
    for (name, c) in counted() {
        for pure in [false, true] {
            let f = compile_with(
                move |x: &Tensor| {
                    let y = x * 2.0;
                    match pure {
                        true => register_pure_hook(&y, |g| g * 2.0).unwrap(),
                        false => y.register_hook(|g: &Tensor| g * 2.0),
                    };
                    let positive = y.sum().gt_scalar(0.0);
                    let side = |sign: f64| move |y: &[Tensor]| Ok(vec![&y[0] * sign]);
                    cond(&positive, side(1.0), side(-3.0), &[&y]).unwrap().remove(0).sum()
                },
                full(&c),
            );
            let x = ones_leaf(2);
            f.call(&x).backward();
            assert_eq!(grad(&x), [4.0; 2], "{name}, pure: {pure}");
            let x = leaf(&[-1.0, -1.0]);
            f.call(&x).backward();
            assert_eq!(grad(&x), [-12.0; 2], "{name}, pure: {pure}: the other side");
            assert_eq!(c.frames(), 1 + usize::from(pure), "{name}: one graph each");
        }
    }
}

/// A hook on a result of a conditional sees the gradient before the side that ran does: PyTorch gives 20 and 30.
#[test]
fn hooks_on_results_of_conditionals() {
    for (name, c) in counted() {
        for pure in [false, true] {
            let f = compile_with(
                move |x: &Tensor| {
                    let side = |k: f64| move |x: &[Tensor]| Ok(vec![&x[0] * k]);
                    let y = cond(&x.sum().gt_scalar(0.0), side(2.0), side(3.0), &[x]).unwrap().remove(0);
                    match pure {
                        true => register_pure_hook(&y, |g| g * 10.0).unwrap(),
                        false => y.register_hook(|g: &Tensor| g * 10.0),
                    };
                    (&y * 1.0).sum()
                },
                full(&c),
            );
            for (values, expected) in [([1.0, 2.0], 20.0), ([-1.0, -2.0], 30.0)] {
                let x = leaf(&values);
                f.call(&x).backward();
                assert_eq!(grad(&x), [expected; 2], "{name}, pure: {pure}");
            }
        }
        assert_eq!(c.frames(), 2, "{name}: one graph each");
    }
}

/// J-41: a pure hook must not write outer state; an opaque one may, at every backward.
#[test]
fn test_hook_bwd_inside_side_effects() {
    for (name, c) in counted() {
        let list: Shared<Vec<Tensor>> = Shared::default();
        let held = list.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let (y, list) = (x * 2.0, held.clone());
                register_pure_hook(&y, move |g| {
                    list.push(g.clone());
                    g * 2.0
                })?;
                Ok((y + x).sum())
            },
            full(&c),
        );
        let refused = f.try_call(&ones_leaf(2)).map(drop).unwrap_err().to_string();
        assert!(refused.contains("unsafe side effect"), "{refused}");
        let held = list.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let (y, list) = (x * 2.0, held.clone());
                y.register_hook(move |g: &Tensor| {
                    list.push(g.clone());
                    g * 2.0
                });
                (y + x).sum()
            },
            full(&c),
        );
        let x = ones_leaf(2);
        f.call(&x).backward();
        assert_eq!((grad(&x), list.with(|l| l.len()), c.frames()), (vec![5.0; 2], 1, 1), "{name}");
    }
}

/// J-42: a result of an op with several can be hooked.
#[test]
fn test_hook_on_intermediate_from_split() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let pieces = x.split(2, 0);
                let cat = firebrand_core::ops::cat(&pieces, 0).unwrap();
                pieces[0].register_hook(|g: &Tensor| g + 1.0);
                cat.sum() + pieces[0].sum()
            },
            full(&c),
        );
        let x = ones_leaf(6);
        f.call(&x).backward();
        assert_eq!(grad(&x), [3.0, 3.0, 1.0, 1.0, 1.0, 1.0], "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-43: a hook that looks at the memory order of the gradient is not pure; an opaque one sees what a plain run shows.
#[test]
fn test_register_hook_on_intermediate_stride_dependent() {
    for (name, c) in counted() {
        let hook = |g: &Tensor| if g.is_contiguous() { g * 2.0 } else { g * 3.0 };
        let f = compile_with(
            move |x: &Tensor| {
                let y = x * 2.0;
                register_pure_hook(&y, hook)?;
                Ok(y.sum())
            },
            full(&c),
        );
        let refused = f.try_call(&ones_leaf(2)).map(drop).unwrap_err();
        assert!(matches!(&refused, Error::GraphBreak(b) if b.kind == BreakKind::ImpureHook), "{refused}");
        let body = move |x: &Tensor| {
            let y = x * 2.0;
            y.register_hook(hook);
            y.sum()
        };
        let (plain, x) = (ones_leaf(2), ones_leaf(2));
        body(&plain).backward();
        compile_with(body, full(&c)).call(&x).backward();
        assert_eq!(grad(&x), grad(&plain), "{name}");
    }
}

/// J-44, J-45: the body of a pure hook is part of what makes two graphs the same.
#[test]
fn test_register_hook_on_intermediate_autograd_cache() {
    for (name, c) in counted() {
        let make = |k: f64| {
            compile_with(
                move |x: &Tensor| {
                    let y = x * 2.0;
                    register_pure_hook(&y, move |g| g * k).unwrap();
                    y.sum()
                },
                full(&c),
            )
        };
        let gradient = |f: &firebrand_compile::Compiled<Tensor, Tensor>| {
            let x = ones_leaf(2);
            f.call(&x).backward();
            grad(&x)[0]
        };
        let before = firebrand_compile::cache_stats().shared;
        let (half, three) = (make(0.5), make(3.0));
        assert_eq!((gradient(&half), gradient(&three)), (1.0, 6.0), "{name}");
        assert_eq!((c.frames(), firebrand_compile::cache_stats().shared - before), (2, 0), "{name}");
        let again = make(0.5);
        assert_eq!(gradient(&again), 1.0, "{name}");
        assert_eq!((c.frames(), firebrand_compile::cache_stats().shared - before), (2, 1), "{name}");
    }
}

/// L-1, U-117: a hook on a value inside that is removed again leaves no node.
#[test]
fn removed_intermediate_hook() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                let handle = y.register_hook(|g: &Tensor| g * 10.0);
                handle.remove();
                y.sum()
            },
            full(&c),
        );
        let x = ones_leaf(2);
        f.call(&x).backward();
        assert_eq!((grad(&x), c.frames(), c.ops()), (vec![2.0; 2], 1, 2), "{name}");
    }
}

/// L-2, U-118: the handle of such a hook can be returned, and removes the hook of its call only.
#[test]
fn returned_intermediate_handle() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                let handle = y.register_hook(|g: &Tensor| g * 10.0);
                (y.sum(), handle)
            },
            full(&c),
        );
        let (x, kept) = (ones_leaf(2), ones_leaf(2));
        let (y, handle) = f.call(&x);
        let (z, _) = f.call(&kept);
        handle.remove();
        y.backward();
        z.backward();
        assert_eq!((grad(&x), grad(&kept), c.frames()), (vec![2.0; 2], vec![20.0; 2], 1), "{name}");
    }
}

/// L-3, U-119: a value inside that keeps its gradient.
#[test]
fn retain_grad_on_an_intermediate() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                y.retain_grad();
                let z = (&y * 3.0).sum();
                (y, z)
            },
            full(&c),
        );
        for _ in 0..2 {
            let x = ones_leaf(2);
            let (y, z) = f.call(&x);
            z.backward();
            assert_eq!((grad(&x), grad(&y)), (vec![6.0; 2], vec![3.0; 2]), "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// Options: effects can be switched off; then only results count.
#[test]
fn effects_switched_off() {
    let c = counter();
    let f = compile_with(
        |x: &Tensor| {
            x.register_hook(|g: &Tensor| g * 2.0);
            x * 1.0
        },
        Options { replay_effects: false, ..full(&c) },
    );
    let x = ones_leaf(1);
    f.call(&x).sum().backward();
    assert_eq!(grad(&x), [1.0]);
}
