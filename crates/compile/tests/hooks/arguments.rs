//! Hooks on arguments, and their handles (J-1 to J-15, J-29).

use crate::common::*;
use crate::{global_hook_0, global_hook_1, global_hook_2, seed, two, zeros3};
use firebrand_compile::{Shared, compile_with};
use firebrand_core::Tensor;
use firebrand_core::autograd::RemovableHandle;

/// J-1, J-8: no op, no graph; the hook is on the argument itself, which is returned as it is.
#[test]
fn test_tensor_only_register_hook_in_graph_lambda() {
    for (name, c) in counted() {
        for options in [with(&c), full(&c)] {
            let f = compile_with(
                |x: &Tensor| {
                    x.register_hook(|g: &Tensor| g * 2.0);
                    x.clone()
                },
                options,
            );
            let x = zeros3();
            let y = f.call(&x);
            assert!(y.is_same(&x), "{name}");
            y.backward_with(&seed());
            assert_eq!(grad(&x), [2.0, 4.0, 6.0], "{name}");
            assert_eq!(c.frames(), 0, "{name}");
        }
    }
}

/// J-2, J-10: the hook contributes no node.
#[test]
fn test_tensor_register_hook_in_graph_lambda() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, y, z): &(Tensor, Tensor, Tensor)| {
                x.register_hook(|g: &Tensor| g * 2.0);
                (x.clone(), y * y, z * z)
            },
            full(&c),
        );
        let x = zeros3();
        f.call(&(x.clone(), two(), two())).0.backward_with(&seed());
        assert_eq!(grad(&x), [2.0, 4.0, 6.0], "{name}");
        assert_eq!((c.frames(), c.ops()), (1, 2), "{name}");
    }
}

/// J-3, J-11: a registration that is taken back inside leaves nothing.
#[test]
fn test_tensor_register_hook_in_graph_break_handle_lambda() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, y, z): &(Tensor, Tensor, Tensor)| {
                let handle = x.register_hook(|g: &Tensor| g * 2.0);
                let z = z * z;
                handle.remove();
                x.register_hook(|g: &Tensor| g * 3.0);
                (x.clone(), y * y, z)
            },
            full(&c),
        );
        let x = zeros3();
        f.call(&(x.clone(), two(), two())).0.backward_with(&seed());
        assert_eq!(grad(&x), [3.0, 6.0, 9.0], "{name}");
        assert_eq!((c.frames(), c.ops()), (1, 2), "{name}");
    }
}

/// J-4, J-5: one handle under two names; removal through either works.
#[test]
fn test_tensor_register_hook_multi_handle_return() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, y): &(Tensor, Tensor)| {
                let handle = x.register_hook(|g: &Tensor| g * 2.0);
                (x.clone(), y * y, handle.clone(), handle)
            },
            full(&c),
        );
        for use_second in [false, true] {
            let x = zeros3();
            let (y, _, h, h2) = f.call(&(x.clone(), two()));
            assert_eq!(h.id(), h2.id(), "{name}");
            y.backward_with(&seed());
            assert_eq!(grad(&x), [2.0, 4.0, 6.0], "{name}");
            if use_second {
                h2.remove()
            } else {
                h.remove()
            }
            x.zero_grad();
            y.backward_with(&seed());
            assert_eq!(grad(&x), [1.0, 2.0, 3.0], "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-6: removing twice is harmless, and the handle of a removed hook can be returned.
#[test]
fn test_removed_handle_return() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, y): &(Tensor, Tensor)| {
                let handle = x.register_hook(|g: &Tensor| g * 2.0);
                let z = y * y;
                handle.remove();
                handle.remove();
                (x.clone(), z, handle.clone(), handle)
            },
            full(&c),
        );
        let x = zeros3();
        let (y, _, h, h2) = f.call(&(x.clone(), two()));
        y.backward_with(&seed());
        assert_eq!(grad(&x), [1.0, 2.0, 3.0], "{name}");
        assert_eq!(h.id(), h2.id(), "{name}");
        h.remove();
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-7: a handle stored in a cell of the caller's, at every call.
#[test]
fn test_tensor_register_hook_repeated_handle_not_local() {
    for (name, c) in counted() {
        let field: Shared<Option<RemovableHandle>> = Shared::default();
        let cell = field.clone();
        let f = compile_with(
            move |(x, y): &(Tensor, Tensor)| {
                cell.set(Some(x.register_hook(|g: &Tensor| g * 2.0)));
                (x.clone(), y * y)
            },
            full(&c),
        );
        let mut ids = Vec::new();
        for _ in 0..2 {
            let x = zeros3();
            f.call(&(x.clone(), two())).0.backward_with(&seed());
            assert_eq!(grad(&x), [2.0, 4.0, 6.0], "{name}");
            ids.push(field.get().expect("the handle is there").id());
        }
        assert_ne!(ids[0], ids[1], "each call makes its own registration");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-9: a hook on the argument and one on a value inside.
#[test]
fn test_tensor_only_register_hook_in_graph_local_inner() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let z = x * x;
                x.register_hook(|g: &Tensor| g * 2.0);
                z.register_hook(|g: &Tensor| g * 2.0);
                (x.clone(), z)
            },
            full(&c),
        );
        let x = zeros3();
        f.call(&x).0.backward_with(&seed());
        assert_eq!(grad(&x), [2.0, 4.0, 6.0], "{name}");
        assert_eq!((c.frames(), c.ops()), (1, 2), "{name}: mul and the hook");
        let x = leaf(&[1.0, 2.0, 3.0]);
        f.call(&x).1.backward_with(&ones(3));
        assert_eq!(grad(&x), [8.0, 16.0, 24.0], "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-12: the hook is a `fn` item.
#[test]
fn test_tensor_register_global_hook() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                x.register_hook(global_hook_0);
                (x.clone(), x * x)
            },
            full(&c),
        );
        let x = zeros3();
        f.call(&x).0.backward_with(&seed());
        assert_eq!(grad(&x), [4.0, 8.0, 12.0], "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-13, J-14: hooks run in the order of registration; their handles come back in a list.
#[test]
fn test_tensor_register_multiple_hooks_handles_in_list() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let handles = vec![
                    x.register_hook(global_hook_0),
                    x.register_hook(global_hook_1),
                    x.register_hook(global_hook_2),
                ];
                (x.clone(), x * x, handles)
            },
            full(&c),
        );
        let x = zeros3();
        let (y, _, handles) = f.call(&x);
        y.backward_with(&seed());
        assert_eq!(grad(&x), [6.0, 12.0, 18.0], "{name}");
        handles.iter().for_each(RemovableHandle::remove);
        y.backward_with(&seed());
        assert_eq!(grad(&x), [7.0, 14.0, 21.0], "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-15: a handle in a process-wide cell, in one graph.
#[test]
fn test_tensor_register_global_hooks_handles_in_list() {
    static GLOBAL: std::sync::LazyLock<Shared<Vec<RemovableHandle>>> = std::sync::LazyLock::new(Shared::default);
    for (name, c) in counted() {
        GLOBAL.with(Vec::clear);
        let f = compile_with(
            |x: &Tensor| {
                GLOBAL.push(x.register_hook(global_hook_0));
                (x.clone(), x * x)
            },
            full(&c),
        );
        let x = zeros3();
        let y = f.call(&x).0;
        y.backward_with(&seed());
        assert_eq!(grad(&x), [4.0, 8.0, 12.0], "{name}");
        GLOBAL.with(|list| list.iter().for_each(RemovableHandle::remove));
        y.backward_with(&seed());
        assert_eq!(grad(&x), [5.0, 10.0, 15.0], "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-29: a post-accumulate hook may write the leaf and its gradient.
#[test]
fn test_post_acc_grad_hook() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                x.try_register_post_accumulate_grad_hook(|p: &Tensor| {
                    firebrand_core::autograd::no_grad(|| {
                        let g = p.grad().expect("just accumulated");
                        p.mul_(&g);
                        g.mul_scalar_(5.0);
                    })
                })
                .unwrap();
                (x.clone(), x * 2.0)
            },
            full(&c),
        );
        let (x, seed) = (leaf(&[0.5; 3]), leaf(&[2.0; 3]));
        f.call(&x).0.backward_with(&seed);
        assert_eq!(
            (x.to_vec::<f32>(), grad(&x), seed.to_vec::<f32>()),
            (vec![1.0; 3], vec![10.0; 3], vec![2.0; 3]),
            "{name}"
        );
        assert_eq!(c.frames(), 1, "{name}");
    }
}
