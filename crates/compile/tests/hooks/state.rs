//! Hooks that share state with the caller or capture values of the call (J-16 to J-28, J-30).

use crate::common::*;
use firebrand_compile::hooks::register_pure_hook;
use firebrand_compile::{BreakKind, Error, Number, Shared, compile_with};
use firebrand_core::Tensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

/// J-30, the forward's part: the multiplier is an input, so no call is a recompilation after the second.
#[test]
fn test_recompile() {
    for (name, c) in counted() {
        let f = compile_with(|(x, i): &(Tensor, Number)| x * i, with(&c));
        let x = ones_leaf(2);
        x.try_register_post_accumulate_grad_hook(|p: &Tensor| {
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
