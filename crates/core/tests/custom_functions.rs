//! Custom functions: section 7 of docs/behaviour/autograd.md.
//!
//! Some cases are refused by the compiler instead of at run time: an argument that is not a tensor (G-5), a gradient that
//! is not a tensor (G-6), a function called as such (G-29). The documentation of `Function` and `Context` shows them as
//! examples that must not compile.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{
    BackwardOptions, BatchedOutputs, Context, Function, GradOptions, VmapInfo, dual_level, grad as gradient,
    is_grad_enabled, make_dual, no_grad, unpack_dual,
};
use firebrand_core::func::{self, vmap};
use firebrand_core::{Class, DType, Result, Tensor, collect_warnings, ops};
use std::sync::{Arc, Mutex};

type Grads = Vec<Option<Tensor>>;
/// What closures leave for the test to read.
type Log<T> = Arc<Mutex<T>>;
/// What a batching rule was told.
type Told = Option<(usize, Vec<Option<usize>>)>;
type ForwardFn = dyn Fn(&mut Context, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;
type BackwardFn = dyn Fn(&Context, &[Option<Tensor>]) -> Result<Grads> + Send + Sync;

/// A function made of two closures.
struct MyF {
    forward: Box<ForwardFn>,
    backward: Box<BackwardFn>,
    once: bool,
    clear: bool,
    buffers: bool,
}

impl Function for MyF {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        (self.forward)(ctx, inputs)
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Grads> {
        (self.backward)(ctx, grads)
    }
    fn once_differentiable(&self) -> bool {
        self.once
    }
    fn clear_saved_tensors_on_access(&self) -> bool {
        self.clear
    }
    fn uses_input_grad_buffers(&self) -> bool {
        self.buffers
    }
}

fn my(
    forward: impl Fn(&mut Context, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    backward: impl Fn(&Context, &[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static,
) -> MyF {
    MyF { forward: Box::new(forward), backward: Box::new(backward), once: false, clear: false, buffers: false }
}

/// The first gradient.
fn first(grads: &[Option<Tensor>]) -> &Tensor {
    grads[0].as_ref().unwrap()
}

/// x + 1, with a backward to be tested.
fn shift(backward: impl Fn(&Context, &[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static) -> MyF {
    my(|_, x| Ok(vec![&x[0] + 1.0]), backward)
}

/// The square, in two parts.
struct Sq;
impl Function for Sq {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * &inputs[0]])
    }
    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], _: &[Tensor]) -> Result<()> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        ctx.save_for_forward(&[Some(&inputs[0])]);
        Ok(())
    }
    fn has_setup_context(&self) -> bool {
        true
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Grads> {
        let saved = ctx.saved_tensors()?;
        Ok(vec![Some(saved[0].as_ref().unwrap() * first(grads) * 2.0)])
    }
    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> Result<Grads> {
        Ok(vec![Some(ctx.saved_for_forward()[0].as_ref().unwrap() * first(tangents) * 2.0)])
    }
    fn generate_vmap_rule(&self) -> bool {
        true
    }
}

fn sq(x: &Tensor) -> Tensor {
    Sq.apply(&[x]).unwrap().remove(0)
}

/// G-1
#[test]
fn differentiable_twice() {
    let x = leaf(3.0);
    let y = sq(&x);
    assert_eq!(node_name(&y), "SqBackward");
    let g = gradient(&y, &x, &GradOptions::create_graph()).unwrap().remove(0).unwrap();
    close(&vals(&g), &[6.0]);
    g.backward();
    close(&grad(&x), &[2.0]);
}

/// G-2
#[test]
fn modes_in_forward_and_backward() {
    let seen: Log<Vec<bool>> = Arc::default();
    let (a, b) = (seen.clone(), seen.clone());
    let f = my(
        move |_, x| {
            a.lock().unwrap().extend([is_grad_enabled(), x[0].requires_grad()]);
            Ok(vec![&x[0] * 2.0])
        },
        move |_, g| {
            b.lock().unwrap().push(is_grad_enabled());
            Ok(vec![Some(first(g) * 2.0)])
        },
    );
    let x = leaf(1.0);
    let y = f.apply(&[&x]).unwrap().remove(0);
    let keep = GradOptions { retain_graph: Some(true), ..Default::default() };
    gradient(&y, &x, &keep).unwrap();
    gradient(&y, &x, &GradOptions::create_graph()).unwrap();
    assert_eq!(*seen.lock().unwrap(), [false, true, false, true]);
}

/// G-3, G-4
#[test]
fn numbers_of_gradients() {
    let x = leaf(1.0);
    let run = |f: MyF, x: &[&Tensor]| f.apply(x).unwrap().remove(0).try_backward(&BackwardOptions::default());
    let two = shift(|_, g| Ok(vec![g[0].clone(), g[0].clone()]));
    assert_err!(run(two, &[&x]), FnGradCount { expected: 1, found: 2, .. });
    let trailing = shift(|_, g| Ok(vec![g[0].clone(), None, None]));
    assert!(run(trailing, &[&x]).is_ok());
    let one = my(|_, x| Ok(vec![&x[0] + &x[1]]), |_, g| Ok(vec![g[0].clone()]));
    assert_err!(run(one, &[&x, &leaf(1.0)]), FnGradCount { expected: 2, found: 1, .. });
}

/// G-7
#[test]
fn shapes_and_dtypes_of_gradients() {
    let run = |g: Tensor| {
        let x = leaves(&[1.0, 2.0]);
        let y = shift(move |_, _| Ok(vec![Some(g.clone())])).apply(&[&x]).unwrap().remove(0);
        y.sum().try_backward(&BackwardOptions::default()).map(|()| x.grad().unwrap())
    };
    let e = run(con(&[1.0, 1.0, 1.0])).unwrap_err();
    assert!(e.to_string().contains("[3]") && e.to_string().contains("[2]"), "{e}");
    close(&vals(&run(Tensor::ones([3, 2], DType::F64)).unwrap()), &[3.0, 3.0]);
    assert_eq!(run(Tensor::ones([2], DType::F32)).unwrap().dtype(), DType::F64);
}

/// G-8: without a `backward` (a missing `forward`, and two names for one derivative, are refused by the compiler).
#[test]
fn nothing_to_differentiate_with() {
    struct Bare;
    impl Function for Bare {
        fn forward(&self, _: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            Ok(vec![&x[0] * 1.0])
        }
    }
    let y = Bare.apply(&[&leaf(1.0)]).unwrap().remove(0);
    let e = y.try_backward(&BackwardOptions::default()).unwrap_err();
    assert_eq!(e.kind().class(), Class::NotImplemented);
    let four = shift(|_, g| Ok(vec![Some(first(g) * 4.0)]));
    let x = leaf(1.0);
    four.apply(&[&x]).unwrap()[0].backward();
    close(&grad(&x), &[4.0]);
}

/// G-9
#[test]
fn needs_input_grad_is_fixed_at_apply() {
    let seen: Log<Vec<Vec<bool>>> = Arc::default();
    let (a, b) = (seen.clone(), seen.clone());
    let f = my(
        move |ctx, x| {
            a.lock().unwrap().push(ctx.needs_input_grad().to_vec());
            Ok(vec![&x[0] + &x[1]])
        },
        move |ctx, g| {
            b.lock().unwrap().push(ctx.needs_input_grad().to_vec());
            Ok(vec![g[0].clone(), g[0].clone()])
        },
    );
    f.apply(&[&leaf(1.0), &Tensor::scalar(1.0)]).unwrap()[0].backward();
    assert_eq!(*seen.lock().unwrap(), [[true, false], [true, false]]);
    let narrowed: Log<Vec<bool>> = Arc::default();
    let c = narrowed.clone();
    let (x, y) = (leaf(1.0), leaf(2.0));
    let f = my(
        |_, x| Ok(vec![&x[0] + &x[1]]),
        move |ctx, g| {
            *c.lock().unwrap() = ctx.needs_input_grad().to_vec();
            Ok(vec![g[0].clone(), g[0].clone()])
        },
    );
    gradient(&f.apply(&[&x, &y]).unwrap()[0], &x, &GradOptions::default()).unwrap();
    assert_eq!(*narrowed.lock().unwrap(), [true, true]);
}

struct Dbl;
impl Function for Dbl {
    fn forward(&self, ctx: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
        ops::mul_scalar_(&x[0], 2.0.into())?;
        ctx.mark_dirty(&[&x[0]]);
        Ok(vec![x[0].clone()])
    }
    fn backward(&self, _: &Context, g: &[Option<Tensor>]) -> Result<Grads> {
        Ok(vec![Some(first(g) * 2.0)])
    }
}

/// G-10
#[test]
fn a_function_that_writes_its_input() {
    let a = leaf(3.0);
    let b = &a * 1.0;
    let out = Dbl.apply(&[&b]).unwrap().remove(0);
    assert!(out.is_same(&b));
    assert_eq!((node_name(&b).as_str(), b.version()), ("DblBackward", 2));
    out.backward();
    close(&grad(&a), &[2.0]);
}

/// G-11
#[test]
fn marks_that_do_not_fit() {
    assert_err!(Dbl.apply(&[&leaf(1.0)]), DirtyLeaf { .. });
    let unreturned = my(
        |ctx, x| {
            ctx.mark_dirty(&[&x[0]]);
            Ok(vec![&x[0] * 2.0])
        },
        |_, g| Ok(g.to_vec()),
    );
    assert_err!(unreturned.apply(&[&(&leaf(1.0) * 1.0)]), DirtyNotReturned { .. });
    let (_, warnings) = collect_warnings(|| {
        let stranger = my(
            |ctx, x| {
                ctx.mark_dirty(&[&Tensor::scalar(1.0)]);
                Ok(vec![&x[0] * 2.0])
            },
            |_, g| Ok(g.to_vec()),
        );
        stranger.apply(&[&leaf(1.0)]).unwrap();
    });
    assert_eq!(warnings.len(), 1);
    let a = leaves(&[3.0, 4.0]);
    let b = &a * 1.0;
    Dbl.apply(&[&cut(&b, 0, 1)]).unwrap();
    b.sum().backward();
    close(&grad(&a), &[2.0, 1.0]);
    let two = my(
        |ctx, x| {
            ctx.mark_dirty(&[&x[0]]);
            Ok(vec![x[0].clone(), &x[0] * 2.0])
        },
        |_, g| Ok(vec![g[0].clone()]),
    );
    assert_err!(two.apply(&[&cut(&(&a * 1.0), 0, 1)]), DirtyViewMultiOut { .. });
}

/// G-12
#[test]
fn an_input_returned_unchanged() {
    let x = leaf(1.0);
    let same = my(|_, x| Ok(vec![x[0].clone()]), |_, g| Ok(vec![Some(first(g) * 5.0)]));
    let y = same.apply(&[&x]).unwrap().remove(0);
    assert!(!y.is_same(&x) && y.base().unwrap().is_same(&x));
    assert_eq!(node_name(&y), "MyFBackward");
    y.backward();
    close(&grad(&x), &[5.0]);
}

/// G-13
#[test]
fn views_from_custom_functions() {
    let viewing = || my(|_, x| Ok(vec![x[0].view([-1])]), |_, g| Ok(g.to_vec()));
    let b = &leaves(&[1.0, 2.0]) * 1.0;
    let v = viewing().apply(&[&b]).unwrap().remove(0);
    assert_err!(ops::mul_scalar_(&v, 2.0.into()), CustomFnViewInplace { indirect: false, .. });
    let v = viewing().apply(&[&b]).unwrap().remove(0);
    ops::mul_scalar_(&b, 2.0.into()).unwrap();
    assert_err!(v.try_grad_fn_edge(), CustomFnViewInplace { indirect: true, .. });
}

/// G-14
#[test]
fn outputs_without_gradients() {
    let seen: Log<Vec<(DType, Vec<f64>)>> = Arc::default();
    let log = seen.clone();
    let f = my(
        |ctx, x| {
            let (sorted, at) = ops::sort(&x[0], -1, false)?;
            let double = &x[0] * 2.0;
            ctx.mark_non_differentiable(&[&double]);
            Ok(vec![sorted, at, double])
        },
        move |_, g| {
            let list = g.iter().flatten().map(|g| (g.dtype(), vals(g)));
            log.lock().unwrap().extend(list);
            Ok(vec![g[0].clone()])
        },
    );
    let out = f.apply(&[&leaves(&[1.0, 2.0])]).unwrap();
    let flags: Vec<bool> = out.iter().map(Tensor::requires_grad).collect();
    assert_eq!(flags, [true, false, false]);
    out[0].sum().backward();
    let zeros = || vec![0.0, 0.0];
    let expected = [(DType::F64, vec![1.0, 1.0]), (DType::I64, zeros()), (DType::F64, zeros())];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// G-15
#[test]
fn undefined_gradients() {
    for on in [true, false] {
        let seen: Log<Option<bool>> = Arc::default();
        let log = seen.clone();
        let f = my(
            move |ctx, x| {
                ctx.set_materialize_grads(on);
                Ok(vec![&x[0] * 1.0, &x[0] * 2.0])
            },
            move |_, g| {
                *log.lock().unwrap() = Some(g[1].is_some());
                Ok(vec![g[0].clone()])
            },
        );
        f.apply(&[&leaf(1.0)]).unwrap()[0].backward();
        assert_eq!(*seen.lock().unwrap(), Some(on));
    }
}

/// G-16
#[test]
fn differentiable_once() {
    let seen: Log<Vec<bool>> = Arc::default();
    let log = seen.clone();
    let square = move || {
        let log = log.clone();
        let f = my(
            |ctx, x| {
                ctx.save_for_backward(&[Some(&x[0])]);
                Ok(vec![&x[0] * &x[0]])
            },
            move |ctx, g| {
                log.lock().unwrap().push(is_grad_enabled());
                Ok(vec![Some(ctx.saved_tensors()?[0].as_ref().unwrap() * first(g) * 2.0)])
            },
        );
        MyF { once: true, ..f }
    };
    let x = leaf(3.0);
    let y = square().apply(&[&x]).unwrap().remove(0);
    let g = gradient(&y, &x, &GradOptions::create_graph()).unwrap().remove(0).unwrap();
    assert!(!g.requires_grad());
    let y = square().apply(&[&x]).unwrap().remove(0);
    let seed = leaf(1.0);
    let options = GradOptions { grad_outputs: vec![Some(seed)], ..GradOptions::create_graph() };
    let g = gradient(&y, &x, &options).unwrap().remove(0).unwrap();
    assert!(g.requires_grad());
    assert_err!(g.try_backward(&BackwardOptions::default()), OnceDifferentiable { .. });
    assert_eq!(*seen.lock().unwrap(), [false, false]);
}

/// G-17: tensors or none (anything else is refused by the compiler: see `Context`).
#[test]
fn none_can_be_saved() {
    let f = my(
        |ctx, x| {
            ctx.save_for_backward(&[None, Some(&x[0])]);
            Ok(vec![&x[0] * 1.0])
        },
        |ctx, g| {
            let saved = ctx.saved_tensors()?;
            assert!(saved[0].is_none() && saved[1].is_some(), "G-17");
            Ok(vec![g[0].as_ref().map(|g| g * saved[1].as_ref().unwrap())])
        },
    );
    let x = leaf(3.0);
    f.apply(&[&x]).unwrap()[0].backward();
    assert_eq!(grad(&x), [3.0], "G-17: the gradient is made of what was saved");
}

/// G-18
#[test]
fn saved_tensors_of_a_function() {
    let plain = BackwardOptions::default();
    let a = leaf(3.0);
    let b = &a * 1.0;
    let y = sq(&b);
    ops::add_scalar_(&b, 1.0.into(), 1i64.into()).unwrap();
    assert_err!(y.try_backward(&plain), SavedVersionMismatch { .. });
    let y = sq(&leaf(3.0));
    let node = y.grad_fn().unwrap();
    y.backward();
    assert_err!(node.saved("tensors"), GraphFreed { .. });
    assert_err!(y.try_backward(&plain), GraphFreed { .. });
    let x = leaf(1.0);
    let y = shift(|_, g| Ok(g.to_vec())).apply(&[&x]).unwrap().remove(0);
    y.backward();
    y.backward();
    close(&grad(&x), &[2.0]);
}

/// G-19
#[test]
fn saved_tensors_cleared_on_access() {
    let make = |reads: usize| {
        let f = my(
            |ctx, x| {
                ctx.save_for_backward(&[Some(&x[0])]);
                Ok(vec![&x[0] * &x[0]])
            },
            move |ctx, g| {
                for _ in 0..reads {
                    ctx.saved_tensors()?;
                }
                Ok(g.to_vec())
            },
        );
        MyF { clear: true, ..f }.apply(&[&leaf(1.0)]).unwrap().remove(0)
    };
    assert_err!(make(2).try_backward(&BackwardOptions::default()), SavedTensorsOnce { .. });
    let keep = BackwardOptions { retain_graph: Some(true), ..Default::default() };
    let y = make(1);
    y.try_backward(&keep).unwrap();
    assert_err!(y.try_backward(&keep), SavedTensorsOnce { .. });
}

/// G-20
#[test]
fn gradients_handed_over() {
    struct Boxed;
    impl Function for Boxed {
        fn forward(&self, _: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            Ok(vec![&x[0] * 1.0, &x[0] * 2.0])
        }
        fn backward_owned(&self, _: &Context, mut grads: Grads) -> Result<Grads> {
            assert_eq!(grads.len(), 2);
            let b = grads.pop().flatten().unwrap();
            let a = grads.pop().flatten().unwrap();
            Ok(vec![Some(&a * 2.0 + &b)])
        }
    }
    let x = leaf(1.0);
    let out = Boxed.apply(&[&x]).unwrap();
    (&out[0] + &out[1]).backward();
    close(&grad(&x), &[3.0]);
}

/// G-21
#[test]
fn forward_and_setup_context_apart() {
    struct Scale {
        n: f64,
    }
    impl Function for Scale {
        fn forward(&self, _: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            Ok(vec![&x[0] * &x[1]])
        }
        fn has_setup_context(&self) -> bool {
            true
        }
        fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
            assert_eq!((inputs.len(), outputs.len()), (2, 1));
            ctx.save_for_backward(&[Some(&inputs[1])]);
            Ok(())
        }
        fn backward(&self, ctx: &Context, g: &[Option<Tensor>]) -> Result<Grads> {
            Ok(vec![Some(first(g) * ctx.saved_tensors()?[0].as_ref().unwrap()), None])
        }
    }
    let x = leaf(2.0);
    let y = Scale { n: 3.0 }.apply(&[&x, &Tensor::scalar(3.0)]).unwrap().remove(0);
    assert_eq!(y.grad_fn().unwrap().function::<Scale>().unwrap().n, 3.0);
    y.backward();
    close(&grad(&x), &[3.0]);
}

/// G-22
#[test]
fn tangents_of_a_function() {
    struct Product;
    impl Function for Product {
        fn forward(&self, ctx: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            ctx.save_for_forward(&[Some(&x[0]), Some(&x[1])]);
            Ok(vec![&x[0] * &x[1]])
        }
        fn jvp(&self, ctx: &Context, t: &[Option<Tensor>]) -> Result<Grads> {
            let saved = ctx.saved_for_forward();
            let (x, y) = (saved[0].as_ref().unwrap(), saved[1].as_ref().unwrap());
            let (tx, ty) = (t[0].as_ref().unwrap(), t[1].as_ref().unwrap());
            close(&vals(ty), &[0.0]);
            Ok(vec![Some(tx * y + x * ty)])
        }
    }
    dual_level(|| {
        let d = make_dual(&Tensor::scalar(2.0), &Tensor::scalar(1.0)).unwrap();
        let y = Product.apply(&[&d, &Tensor::scalar(5.0)]).unwrap().remove(0);
        close(&vals(&unpack_dual(&y).unwrap().1.unwrap()), &[5.0]);
        let e = shift(|_, g| Ok(g.to_vec())).apply(&[&d]).unwrap_err();
        assert_eq!(e.kind().class(), Class::NotImplemented);
    })
    .unwrap();
}

/// G-23
#[test]
fn functions_under_transforms() {
    let combined = |x: &Tensor| -> Result<Tensor> { Ok(shift(|_, g| Ok(g.to_vec())).apply(&[x])?.remove(0)) };
    let x = con(&[0.0, 1.0, 2.0]);
    assert_err!(vmap(combined).call(&x), NeedsSetupContext { .. });
    assert_err!(func::grad(combined)(&Tensor::scalar(1.0)), NeedsSetupContext { .. });
    close(&vals(&vmap(sq).call(&x).unwrap()), &[0.0, 1.0, 4.0]);
    close(&vals(&vmap(func::grad(sq)).call(&x).unwrap()), &[0.0, 2.0, 4.0]);
    // Recorded on the level below as well, and pushed forward; nested twice.
    let total = |x: &Tensor| -> Result<Tensor> { Ok(vmap(sq).call(x)?.sum()) };
    close(&vals(&func::grad(total)(&x).unwrap()), &[0.0, 2.0, 4.0]);
    let (_, t) = func::jvp(|x: &Tensor| vmap(sq).call(x), &x, &con(&[1.0, 1.0, 1.0])).unwrap();
    close(&vals(&t), &[0.0, 2.0, 4.0]);
    let rows = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0], [2, 2]);
    close(&vals(&vmap(|row: &Tensor| vmap(sq).call(row)).call(&rows).unwrap()), &[1.0, 4.0, 9.0, 16.0]);
    let second = func::grad(func::grad(sq))(&Tensor::scalar(5.0)).unwrap();
    close(&vals(&second), &[2.0]);
}

/// G-24
#[test]
fn a_batching_rule_of_its_own() {
    struct Triple(Log<Told>);
    impl Function for Triple {
        fn forward(&self, _: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            Ok(vec![&x[0] * 3.0])
        }
        fn has_setup_context(&self) -> bool {
            true
        }
        fn vmap(&self, info: VmapInfo, in_dims: &[Option<usize>], x: &[Tensor]) -> Result<Option<BatchedOutputs>> {
            *self.0.lock().unwrap() = Some((info.batch_size, in_dims.to_vec()));
            Ok(Some((vec![&x[0] * 3.0], in_dims.to_vec())))
        }
    }
    let seen: Log<Told> = Arc::default();
    let log = seen.clone();
    let f = move |x: &Tensor| -> Result<Tensor> { Ok(Triple(log.clone()).apply(&[x])?.remove(0)) };
    close(&vals(&vmap(f).call(&con(&[0.0, 1.0, 2.0])).unwrap()), &[0.0, 3.0, 6.0]);
    assert_eq!(*seen.lock().unwrap(), Some((3, vec![Some(0)])));
}

/// G-25: values that are not tensors are fields of the function, before and after.
#[test]
fn functions_that_record_nothing() {
    let x = leaf(2.0);
    assert!(no_grad(|| sq(&x)).grad_fn().is_none());
    let none = my(|_, _| Ok(vec![Tensor::scalar(1.0)]), |_, g| Ok(g.to_vec()));
    assert!(!none.apply(&[]).unwrap()[0].requires_grad());
    let seen: Log<Vec<(DType, f64)>> = Arc::default();
    let log = seen.clone();
    let mixed = my(
        |_, x| Ok(vec![&x[0] * 1.0, Tensor::scalar(7i64)]),
        move |_, g| {
            log.lock().unwrap().extend(g.iter().flatten().map(|g| (g.dtype(), g.item::<f64>())));
            Ok(vec![g[0].clone()])
        },
    );
    let out = mixed.apply(&[&x]).unwrap();
    assert_eq!((out[1].item::<i64>(), out[1].requires_grad()), (7, false), "G-25");
    (&out[0] * 3.0).backward();
    assert_eq!(*seen.lock().unwrap(), [(DType::F64, 3.0), (DType::I64, 0.0)], "G-25: zeros stand for the integers");
    assert_eq!(grad(&x), [3.0], "G-25");
}

/// G-26
#[test]
fn adding_to_the_gradients_already_there() {
    for first_recorded in [true, false] {
        let seen: Log<Option<Vec<f64>>> = Arc::default();
        let log = seen.clone();
        let f = my(
            |_, x| Ok(vec![&x[0] * 3.0]),
            move |ctx, g| {
                let share = first(g) * 3.0;
                Ok(vec![match ctx.input_grad_buffers()?.remove(0) {
                    Some(sum) => {
                        *log.lock().unwrap() = Some(vals(&sum));
                        ops::add_(&sum, &share, 1i64.into())?;
                        None
                    }
                    None => Some(share),
                }])
            },
        );
        let f = MyF { buffers: true, ..f };
        let x = leaves(&[1.0, 2.0]);
        let other = |x: &Tensor| x * con(&[5.0, 6.0]);
        let total = if first_recorded {
            let a = f.apply(&[&x]).unwrap().remove(0);
            &a + other(&x)
        } else {
            let b = other(&x);
            &b + f.apply(&[&x]).unwrap().remove(0)
        };
        total.sum().backward();
        assert_eq!(*seen.lock().unwrap(), first_recorded.then(|| vec![5.0, 6.0]));
        close(&grad(&x), &[8.0, 9.0]);
    }
}

/// G-27
#[test]
fn dtype_of_incoming_gradients() {
    let seen: Log<Option<DType>> = Arc::default();
    let log = seen.clone();
    let f = my(
        |ctx, x| {
            ctx.set_output_grad_dtype(&[Some(DType::F32)])?;
            Ok(vec![&x[0] * 1.0])
        },
        move |_, g| {
            *log.lock().unwrap() = Some(first(g).dtype());
            Ok(g.to_vec())
        },
    );
    (&f.apply(&[&leaf(1.0)]).unwrap()[0] * 2.0).backward();
    assert_eq!(*seen.lock().unwrap(), Some(DType::F32));
    let twice = my(
        |ctx, x| {
            ctx.set_output_grad_dtype(&[None])?;
            ctx.set_output_grad_dtype(&[None])?;
            Ok(vec![&x[0] * 1.0])
        },
        |_, g| Ok(g.to_vec()),
    );
    assert_err!(twice.apply(&[&leaf(1.0)]), OutputGradDtype { .. });
    let count = my(
        |ctx, x| {
            ctx.set_output_grad_dtype(&[None, None])?;
            Ok(vec![&x[0] * 1.0])
        },
        |_, g| Ok(g.to_vec()),
    );
    let e = count.apply(&[&leaf(1.0)]).unwrap_err();
    assert!(e.to_string().contains('2') && e.to_string().contains('1'), "{e}");
}

/// G-28
#[test]
fn one_tensor_returned_twice() {
    let f = my(
        |_, x| {
            let y = &x[0] * 2.0;
            Ok(vec![y.clone(), y])
        },
        |_, g| Ok(vec![Some(first(g) * 2.0 + g[1].as_ref().unwrap() * 2.0)]),
    );
    let x = leaf(1.0);
    let out = f.apply(&[&x]).unwrap();
    assert!(out[0].is_same(&out[1]));
    assert_eq!(out[0].output_nr(), 1);
    (&out[0] + &out[1]).backward();
    close(&grad(&x), &[4.0]);
}

/// G-31
#[test]
fn buffers_where_there_are_none() {
    let f = my(
        |ctx, x| {
            assert_err!(ctx.input_grad_buffers(), InputGradBuffers { .. });
            Ok(vec![&x[0] * 3.0])
        },
        |ctx, g| {
            ctx.input_grad_buffers()?;
            Ok(g.to_vec())
        },
    );
    let x = leaf(1.0);
    let y = MyF { buffers: true, ..f }.apply(&[&x]).unwrap().remove(0);
    assert_err!(gradient(&y, &x, &GradOptions::create_graph()), InputGradBuffers { .. });
}

/// A function that writes two inputs: each gets the gradient of its own output (the second once got that of the first).
#[test]
fn two_written_inputs() {
    struct Scale;
    impl Function for Scale {
        fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
            inputs[0].try_mul_scalar_(2.0)?;
            inputs[1].try_mul_scalar_(5.0)?;
            ctx.mark_dirty(&[&inputs[0], &inputs[1]]);
            Ok(inputs.to_vec())
        }
        fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![grads[0].as_ref().map(|g| g * 2.0), grads[1].as_ref().map(|g| g * 5.0)])
        }
    }
    let leaves = [1.0f32, 1.0].map(|v| Tensor::scalar(v).requires_grad_());
    let written = leaves.each_ref().map(|l| l * 1.0);
    Scale.apply(&[&written[0], &written[1]]).unwrap();
    (&written[0] + &(&written[1] * 3.0)).backward();
    assert_eq!(leaves.each_ref().map(|l| l.grad().unwrap().item::<f32>()), [2.0, 15.0]);
}
