//! The hook suite (J-1 to J-30, J-35 to J-45, L-1 to L-3): hooks on arguments and on values inside a compiled function.
//! Every row runs on all back ends.

mod common;

use common::*;
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::{BreakKind, Error, Number, Options, Shared, compile_with};
use firebrand_core::autograd::RemovableHandle;
use firebrand_core::{DType, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// `v = [0, 0, 0]` that requires grad.
fn zeros3() -> Tensor {
    leaf(&[0.0; 3])
}

/// `s = [1, 2, 3]`.
fn seed() -> Tensor {
    v(&[1.0, 2.0, 3.0])
}

fn two() -> Tensor {
    Tensor::ones([2, 2], DType::F32)
}

fn global_hook_0(g: &Tensor) -> Tensor {
    g * 4.0
}
fn global_hook_1(g: &Tensor) -> Tensor {
    g / 2.0
}
fn global_hook_2(g: &Tensor) -> Tensor {
    g * 3.0
}

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

/// J-16.
#[test]
fn test_intermediary_hooks() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x + 1.0;
                y.register_hook(|g: &Tensor| g * 2.0);
                y + 1.0
            },
            full(&c),
        );
        let x = leaf(&[0.5]);
        let out = f.call(&x);
        out.backward();
        assert_eq!((out.to_vec::<f32>(), grad(&x)), (vec![2.5], vec![2.0]), "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-17, J-18: equal to a plain run, bit for bit.
#[test]
fn test_intermediary_hooks_same_on_aot_eager() {
    let body = |x: &Tensor| {
        let y = x * 2.0;
        y.register_hook(|g: &Tensor| g + 3.0);
        y.register_hook(|g: &Tensor| g + 4.0);
        y * 3.0
    };
    let plain = ones_leaf(4);
    body(&plain).backward_with(&ones(4));
    for (name, c) in counted() {
        let f = compile_with(body, full(&c));
        let x = ones_leaf(4);
        let out = f.call(&x);
        out.backward_with(&ones(4));
        assert_eq!(out.to_vec::<f32>(), [6.0; 4], "{name}");
        assert_eq!(grad(&x), [20.0; 4], "{name}");
        assert_eq!(grad(&x), grad(&plain), "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-19.
#[test]
fn test_input_hooks_same() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                x.register_hook(|g: &Tensor| g + 3.0);
                (x * 2.0) * 3.0
            },
            full(&c),
        );
        let x = ones_leaf(4);
        f.call(&x).backward_with(&ones(4));
        assert_eq!(grad(&x), [9.0; 4], "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// Two hooks that share state: even counts square, odd ones double.
struct SomeObject {
    count: AtomicUsize,
    text: std::sync::Mutex<String>,
}

impl SomeObject {
    fn new() -> Arc<SomeObject> {
        Arc::new(SomeObject { count: AtomicUsize::new(0), text: Default::default() })
    }
    fn do_stuff(&self, g: &Tensor) -> Tensor {
        if self.count.fetch_add(1, Relaxed).is_multiple_of(2) { g * g } else { g + g }
    }
    fn write_grad_as_str_and_do_stuff(&self, g: &Tensor) -> Tensor {
        let g = self.do_stuff(g);
        *self.text.lock().expect("no hook panics") = g.to_string();
        g
    }
}

/// J-20: an opaque hook runs at every backward, exactly once each.
#[test]
fn test_complex_state_mutation_in_intermediary_hooks_same_on_inductor() {
    for (name, c) in counted() {
        let object = SomeObject::new();
        let held = object.clone();
        let body = move |x: &Tensor| {
            let y = x * 2.0;
            for _ in 0..2 {
                let object = held.clone();
                y.register_hook(move |g: &Tensor| object.do_stuff(g));
            }
            y * 3.0
        };
        let plain = ones_leaf(4);
        body(&plain).backward_with(&ones(4));
        assert_eq!((grad(&plain), object.count.load(Relaxed)), (vec![36.0; 4], 2));
        let f = compile_with(body, full(&c));
        for count in [4, 6] {
            let x = ones_leaf(4);
            f.call(&x).backward_with(&ones(4));
            assert_eq!((grad(&x), object.count.load(Relaxed)), (vec![36.0; 4], count), "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-21: an opaque hook may read numbers; a pure one may not.
#[test]
fn test_complex_state_mutation_in_intermediary_hooks_same_on_inductor_with_graph_break() {
    for (name, c) in counted() {
        let object = SomeObject::new();
        let held = object.clone();
        let body = move |x: &Tensor| {
            let y = x * 2.0;
            for _ in 0..2 {
                let object = held.clone();
                y.register_hook(move |g: &Tensor| object.write_grad_as_str_and_do_stuff(g));
            }
            y * 3.0
        };
        body(&ones_leaf(4)).backward_with(&ones(4));
        let f = compile_with(body, full(&c));
        let x = ones_leaf(4);
        f.call(&x).backward_with(&ones(4));
        assert_eq!((grad(&x), object.count.load(Relaxed)), (vec![36.0; 4], 4), "{name}");
        let text = object.text.lock().unwrap().clone();
        assert!(text.contains("18"), "{text}");
        assert_eq!(c.frames(), 1, "{name}");

        let f = compile_with(
            |x: &Tensor| {
                let y = x * 2.0;
                register_pure_hook(&y, |g| g * g.to_vec::<f32>()[0]).unwrap();
                y
            },
            full(&c),
        );
        let refused = f.try_call(&ones_leaf(4)).map(drop).unwrap_err();
        assert!(matches!(&refused, Error::GraphBreak(b) if b.kind == BreakKind::ImpureHook), "{refused}");
    }
}

/// J-22: what a hook captures from the arguments is the call's own.
#[test]
fn test_register_hook_partial_guarding() {
    struct ClassWithVal(Tensor);
    for (name, c) in counted() {
        let f = compile_with(
            |(x, object): &(Tensor, Shared<ClassWithVal>)| {
                let y = x * 2.0;
                let object = object.clone();
                y.register_hook(move |g: &Tensor| g + object.with(|o| o.0.clone()));
                y * 3.0
            },
            full(&c),
        );
        let object = |value: f32| Shared::new(ClassWithVal(v(&[value])));
        let o1 = object(88.0);
        for (o, expected) in [(&o1, 182.0), (&o1, 182.0), (&object(99.0), 204.0), (&object(11.0), 28.0)] {
            let x = ones_leaf(4);
            f.call(&(x.clone(), o.clone())).backward_with(&ones(4));
            assert_eq!(grad(&x), [expected; 4], "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-22, pure: a tensor is an input of the graph; a host number costs one more graph at most.
#[test]
fn test_register_hook_partial_guarding_pure() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, k): &(Tensor, Tensor)| {
                let (y, k) = (x * 2.0, k.clone());
                register_pure_hook(&y, move |g| g + &k).unwrap();
                y * 3.0
            },
            full(&c),
        );
        for (k, expected) in [(88.0, 182.0), (99.0, 204.0)] {
            let x = ones_leaf(4);
            f.call(&(x.clone(), v(&[k]))).backward_with(&ones(4));
            assert_eq!(grad(&x), [expected; 4], "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");

        let f = compile_with(
            |(x, k): &(Tensor, Number)| {
                let (y, k) = (x * 2.0, k.clone());
                register_pure_hook(&y, move |g| g + &k).unwrap();
                y * 3.0
            },
            full(&c),
        );
        for (k, expected) in [(88.0, 182.0), (99.0, 204.0), (11.0, 28.0)] {
            let x = ones_leaf(4);
            f.call(&(x.clone(), Number::from(k))).backward_with(&ones(4));
            assert_eq!(grad(&x), [expected; 4], "{name}");
        }
        assert_eq!(c.frames(), 3, "{name}: one, then two");
    }
}

/// J-23: a hook on the argument that captures a tensor of the call.
#[test]
fn test_hook_with_closure() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, val): &(Tensor, Tensor)| {
                let val = val.clone();
                x.register_hook(move |g: &Tensor| g + &val);
                x.sin().sin()
            },
            full(&c),
        );
        for (val, expected) in [(88.0, 88.36004f32), (99.0, 99.36004)] {
            let x = ones_leaf(4);
            f.call(&(x.clone(), v(&[val]))).backward_with(&ones(4));
            assert!(grad(&x).iter().all(|g| (g - expected).abs() < 1e-4), "{name}: {:?}", grad(&x));
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-24: a hook that captures a value computed inside.
#[test]
fn test_hook_with_nested_closure() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let y = x.sin();
                let z = y.clone();
                x.register_hook(move |g: &Tensor| g + &z);
                y.sin()
            },
            full(&c),
        );
        for _ in 0..2 {
            let x = ones_leaf(4);
            f.call(&x).backward_with(&ones(4));
            assert!(grad(&x).iter().all(|g| (g - 1.2015104).abs() < 1e-6), "{name}: {:?}", grad(&x));
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-25, J-26: a hook on a value inside that captures a tensor of the call.
#[test]
fn test_intermediate_hook_with_closure_eager() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, val): &(Tensor, Tensor)| {
                let (y, val) = (x.sin(), val.clone());
                y.register_hook(move |g: &Tensor| g + &val);
                y.sin()
            },
            full(&c),
        );
        for (val, expected) in [(88.0, 47.906647f32), (99.0, 53.849_97)] {
            let x = ones_leaf(4);
            f.call(&(x.clone(), v(&[val]))).backward_with(&ones(4));
            assert!(grad(&x).iter().all(|g| (g - expected).abs() < 1e-4), "{name}: {:?}", grad(&x));
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// A hook as an argument.
type HookArgument = Shared<Box<dyn Fn(&Tensor) -> Tensor + Send + Sync>>;

fn hook_argument(f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> HookArgument {
    Shared::new(Box::new(f))
}

/// J-27, J-28: which opaque hook it is, and what it captured, needs no new graph.
#[test]
fn test_no_recompile_on_hook_identity_change() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, hook): &(Tensor, HookArgument)| {
                let y = x * 2.0;
                for _ in 0..2 {
                    let hook = hook.clone();
                    y.register_hook(move |g: &Tensor| hook.with(|h| h(g)));
                }
                y * 3.0
            },
            full(&c),
        );
        let x = ones_leaf(4);
        f.call(&(x.clone(), hook_argument(|g| g + 0.0))).backward_with(&ones(4));
        assert_eq!(grad(&x), [6.0; 4], "{name}");
        f.call(&(x.clone(), hook_argument(|g| g * 2.0))).backward_with(&ones(4));
        assert_eq!(grad(&x), [30.0; 4], "{name}");
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-28.
#[test]
fn test_functools_arg_vary() {
    for (name, c) in counted() {
        let f = compile_with(
            |(x, hook): &(Tensor, HookArgument)| {
                let (y, hook) = (x * 2.0, hook.clone());
                y.register_hook(move |g: &Tensor| hook.with(|h| h(g)));
                y * 3.0
            },
            full(&c),
        );
        for (k, expected) in [(1.0, 6.0), (2.0, 12.0)] {
            let x = ones_leaf(2);
            f.call(&(x.clone(), hook_argument(move |g| g * k))).backward_with(&ones(2));
            assert_eq!(grad(&x), [expected; 2], "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-29: a post-accumulate hook may write the leaf and its gradient.
#[test]
fn test_post_acc_grad_hook() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                x.register_post_accumulate_grad_hook(|p: &Tensor| {
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

/// J-30, the forward's part: the multiplier is an input, so no call is a recompilation after the second.
#[test]
fn test_recompile() {
    for (name, c) in counted() {
        let f = compile_with(|(x, i): &(Tensor, Number)| x * i, with(&c));
        let x = ones_leaf(2);
        x.register_post_accumulate_grad_hook(|p: &Tensor| {
            let g = p.grad().expect("just accumulated");
            firebrand_core::autograd::no_grad(|| {
                g.mul_scalar_(2.0);
            });
        })
        .unwrap();
        for i in 0..5i64 {
            x.zero_grad();
            f.call(&(x.clone(), Number::from(i))).sum().backward();
            assert_eq!(grad(&x), [2.0 * i as f32; 2], "{name}");
        }
        assert_eq!(c.frames(), 2, "{name}");
    }
}

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
