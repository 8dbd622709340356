//! Cases D-1 to D-38 and D-50 to D-53, D-56 to D-58 of docs/behaviour/autograd.md: tensor, node, post-accumulate and multi-grad hooks.
//! Hooks of modules come with modules.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use expect_test::expect;
use firebrand_core::autograd::{
    BackwardOptions, Context, Function, GradOptions, RemovableHandle, Target, get_gradient_edge, grad as gradient,
    no_grad, register_multi_grad_hook, register_multi_grad_hook_any,
};
use firebrand_core::{DType, Device, Error, Result, Tensor};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<String>>>;
type Grads = Option<Vec<Option<Tensor>>>;

fn log() -> Log {
    Arc::default()
}

fn entries(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

fn note(log: &Log, name: &str) -> impl Fn(&Tensor) + Send + Sync + 'static {
    let (log, name) = (log.clone(), name.to_string());
    move |_| log.lock().unwrap().push(name.clone())
}

fn note_pre(log: &Log, name: &str) -> impl Fn(&[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static {
    let (log, name) = (log.clone(), name.to_string());
    move |_| {
        log.lock().unwrap().push(name.clone());
        Ok(None)
    }
}

fn note_post(
    log: &Log,
    name: &str,
) -> impl Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static {
    let (log, name) = (log.clone(), name.to_string());
    move |_, _| {
        log.lock().unwrap().push(name.clone());
        Ok(None)
    }
}

fn scaled(k: f64) -> impl Fn(&[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static {
    move |g| Ok(Some(g.iter().map(|g| g.as_ref().map(|g| g * k)).collect()))
}

fn show(g: &Option<Tensor>) -> String {
    g.as_ref().map_or("none".into(), |g| g.item::<f64>().to_string())
}

fn retain() -> BackwardOptions {
    BackwardOptions { retain_graph: Some(true), ..Default::default() }
}

fn plain() -> BackwardOptions {
    BackwardOptions::default()
}

/// D-1, D-2
#[test]
fn order_of_kinds() {
    let order = log();
    let y = leaf(1.0) * 3.0;
    let n = y.grad_fn().unwrap();
    n.register_hook(note_post(&order, "q1"));
    y.register_hook(note(&order, "t1"));
    n.register_prehook(note_pre(&order, "p1"));
    y.retain_grad();
    y.register_hook(note(&order, "t2"));
    n.register_hook(note_post(&order, "q2"));
    n.register_prehook(note_pre(&order, "p2"));
    y.backward();
    assert_eq!(entries(&order), ["t1", "t2", "p1", "p2", "q1", "q2"]);
    close(&grad(&y), &[1.0]);

    let order = log();
    let x = leaf(1.0);
    let y = &x * 3.0;
    let acc = get_gradient_edge(&x).unwrap().node;
    let (o, w) = (order.clone(), x.downgrade());
    acc.register_hook(move |gi, go| {
        let grad = w.upgrade().and_then(|x| x.grad()).map(|g| g.item::<f64>());
        o.lock().unwrap().push(format!("q {} {} {grad:?}", gi.len(), show(&go[0])));
        Ok(None)
    });
    x.try_register_post_accumulate_grad_hook(note(&order, "a1")).unwrap();
    let (o, w) = (order.clone(), x.downgrade());
    acc.register_prehook(move |_| {
        o.lock().unwrap().push(format!("p {}", w.upgrade().and_then(|x| x.grad()).is_none()));
        Ok(None)
    });
    x.register_hook(note(&order, "t"));
    x.try_register_post_accumulate_grad_hook(note(&order, "a2")).unwrap();
    y.backward();
    assert_eq!(entries(&order), ["t", "p true", "a1", "a2", "q 0 3 Some(3.0)"]);
}

/// D-3, D-4, D-5
#[test]
fn retention_and_capture() {
    let row = Row::default();
    row.is("D-3");
    let x = leaf(1.0);
    let y = &x * 3.0;
    y.retain_grad();
    y.register_hook(|g| g * 10.0);
    y.grad_fn().unwrap().register_prehook(scaled(2.0));
    y.backward();
    assert_eq!((grad(&y), grad(&x)), (vec![10.0], vec![60.0]));

    row.is("D-4");
    let order = log();
    let y = leaf(1.0) * 3.0;
    let z = &y * 5.0;
    y.register_hook(|g| g * 10.0);
    y.grad_fn().unwrap().register_prehook(note_pre(&order, "pre"));
    y.grad_fn().unwrap().register_hook(note_post(&order, "post"));
    y.retain_grad();
    let g = gradient(&z, &y, &GradOptions::default()).unwrap();
    assert_eq!((show(&g[0]), grad(&y)), ("50".into(), vec![50.0]));
    assert!(entries(&order).is_empty());

    row.is("D-5");
    let x = leaf(1.0);
    let z = &x * 5.0;
    x.register_hook(|g| g * 10.0);
    let acc = get_gradient_edge(&x).unwrap().node;
    acc.register_prehook(scaled(2.0));
    acc.register_hook(note_post(&order, "post"));
    x.try_register_post_accumulate_grad_hook(note(&order, "after")).unwrap();
    let g = gradient(&z, &x, &GradOptions::default()).unwrap();
    assert_eq!(show(&g[0]), "50");
    assert!(entries(&order).is_empty());
}

/// Q2: a captured gradient is taken after the tensor's hooks, also when its node runs on.
#[test]
fn captures_come_after_hooks() {
    let x = leaf(1.0);
    let y = &x * 3.0;
    y.register_hook(|g| g * 10.0);
    let z = &y * 5.0;
    let g = gradient(&z, [&y, &x], &GradOptions::default()).unwrap();
    assert_eq!((show(&g[0]), show(&g[1])), ("50".into(), "150".into()));
}

/// D-6, D-7 (a hook that returns something else than a tensor does not compile: types.md)
#[test]
fn replacements() {
    let x = leaf(1.0);
    x.register_hook(|g| g * 2.0);
    x.register_hook(|_| ());
    x.register_hook(|g| g + 1.0);
    (&x * 3.0).backward();
    close(&grad(&x), &[7.0]);

    let x = leaf(1.0);
    let h = x.register_hook(|_| con(&[1.0, 2.0]));
    assert_err!((&x * 3.0).try_backward(&plain()), HookShape { .. });
    h.remove();
    x.register_hook(|g| g.to_dtype(DType::F32));
    assert_err!((&x * 3.0).try_backward(&plain()), HookDtype { .. });
}

/// D-8, D-9, D-10, D-11, D-12, D-53 (a bare tensor from a node hook does not compile: types.md)
#[test]
fn node_hooks() {
    let row = Row::default();
    row.is("D-8");
    let x = leaf(1.0);
    let y = &x * 3.0;
    y.grad_fn().unwrap().register_prehook(|_| Ok(Some(vec![None])));
    y.backward();
    assert!(x.grad().is_none());

    row.is("D-9");
    let y = &x * 3.0;
    y.grad_fn().unwrap().register_prehook(|g| Ok(Some(vec![g[0].clone(), None])));
    assert_err!(y.try_backward(&plain()), HookCount { expected: 1, found: 2, .. });

    row.is("D-10");
    let order = log();
    let y = &x * 3.0;
    let o = order.clone();
    y.grad_fn().unwrap().register_hook(move |gi, go| {
        o.lock().unwrap().push(format!("{} {} | {}", show(&gi[0]), show(&gi[1]), show(&go[0])));
        Ok(Some(vec![gi[0].as_ref().map(|g| g * 7.0), None]))
    });
    y.backward();
    assert_eq!((entries(&order), grad(&x)), (vec!["3 none | 1".to_string()], vec![21.0]));
    x.zero_grad();
    let y = &x * 3.0;
    y.grad_fn().unwrap().register_hook(|_, _| Ok(Some(vec![None, None])));
    y.backward();
    assert!(x.grad().is_none());
    let y = &x * 3.0;
    y.grad_fn().unwrap().register_hook(|gi, _| Ok(Some(vec![gi[0].clone()])));
    assert_err!(y.try_backward(&plain()), HookCount { .. });

    row.is("D-11");
    let order = log();
    let y = &x * 3.0;
    y.grad_fn().unwrap().register_prehook(scaled(10.0));
    let o = order.clone();
    y.grad_fn().unwrap().register_hook(move |gi, go| {
        o.lock().unwrap().push(format!("{} {}", show(&gi[0]), show(&go[0])));
        Ok(None)
    });
    y.backward();
    assert_eq!(entries(&order), ["30 10"]);

    row.is("D-12");
    let x = leaf(1.0);
    let y = &x * 3.0;
    let acc = get_gradient_edge(&x).unwrap().node;
    acc.register_prehook(scaled(10.0));
    y.backward();
    close(&grad(&x), &[30.0]);

    // D-53: another shape or dtype, from a pre-hook and from a post-hook.
    row.is("D-53");
    for (bad, is_shape) in [(con(&[1.0, 2.0]), true), (Tensor::scalar(1.0f32), false)] {
        let y = &x * 3.0;
        let replaced = bad.clone();
        y.grad_fn().unwrap().register_prehook(move |_| Ok(Some(vec![Some(replaced.clone())])));
        let before = y.try_backward(&plain());
        let y = &x * 3.0;
        y.grad_fn().unwrap().register_hook(move |_, _| Ok(Some(vec![Some(bad.clone()), None])));
        let after = y.try_backward(&plain());
        for found in [before, after] {
            match is_shape {
                true => assert_err!(found, HookShape { .. }),
                false => assert_err!(found, HookDtype { .. }),
            }
        }
    }
}

/// D-56: where no gradient flows a hook can put none; it may take one away. D-57: nor one on another device.
#[test]
fn hooks_define_no_gradient() {
    let x = leaves(&[1.0, 2.0]);
    let parts = x.unbind(0);
    parts[1].try_register_hook_any(|_| Tensor::scalar(1.0)).unwrap();
    assert_err!(parts[0].try_backward(&plain()), HookUndefined { .. });
    let parts = x.unbind(0);
    let define = |g: &[Option<Tensor>]| Ok(Some(g.iter().map(|_| Some(Tensor::scalar(1.0))).collect()));
    parts[0].grad_fn().unwrap().register_prehook(define);
    assert_err!(parts[0].try_backward(&plain()), HookUndefined { .. });
    let a = leaf(2.0);
    let y = &a * &Tensor::scalar(3.0);
    y.grad_fn().unwrap().register_hook(|gi, _| Ok(Some(gi.iter().map(|_| Some(Tensor::scalar(1.0))).collect())));
    assert_err!(y.try_backward(&plain()), HookUndefined { .. });
    assert!(x.grad().is_none() && a.grad().is_none(), "a refused hook leaves nothing behind");
    let y = &a * 2.0;
    y.register_hook(|_| Tensor::empty([0usize; 0], (DType::F64, Device::Meta)));
    assert_err!(y.try_backward(&plain()), HookDevice { .. });
}

/// D-58: what a backward returns for an input without gradient reaches the post-hooks, of any shape, and goes nowhere else.
#[test]
fn post_hooks_see_what_leads_nowhere() {
    struct TwoGradients;
    impl Function for TwoGradients {
        fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
            Ok(vec![&inputs[0] * &inputs[1]])
        }
        fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![grads[0].clone(), Some(con(&[5.0; 7]))])
        }
    }
    let (x, constant, seen) = (leaf(1.0), con(&[2.0]), log());
    let y = TwoGradients.apply(&[&x, &constant]).unwrap().remove(0);
    let l = seen.clone();
    y.grad_fn().unwrap().register_hook(move |gi, _| {
        l.lock().unwrap().push(format!("{:?}", gi.iter().map(|g| g.as_ref().map(|g| g.numel())).collect::<Vec<_>>()));
        Ok(None)
    });
    y.sum().backward();
    assert_eq!(entries(&seen), ["[Some(1), Some(7)]"]);
    assert!(x.grad().is_some() && constant.grad().is_none());
}

/// D-13, D-14, D-15
#[test]
fn hooks_that_change_hooks() {
    let row = Row::default();
    row.is("D-13");
    let order = log();
    let x = leaf(1.0);
    let later: Arc<Mutex<Option<RemovableHandle>>> = Arc::default();
    let (o, l) = (order.clone(), later.clone());
    x.register_hook(move |_| {
        o.lock().unwrap().push("1".into());
        if let Some(h) = l.lock().unwrap().take() {
            h.remove()
        }
    });
    *later.lock().unwrap() = Some(x.register_hook(note(&order, "2")));
    (&x * 2.0).backward();
    assert_eq!(entries(&order), ["1", "2"]);

    row.is("D-14");
    let order = log();
    let x = leaf(1.0);
    let (o, w) = (order.clone(), x.downgrade());
    let once = Mutex::new(true);
    x.register_hook(move |_| {
        o.lock().unwrap().push("1".into());
        if std::mem::take(&mut *once.lock().unwrap()) {
            w.upgrade().unwrap().register_hook(note(&o, "2"));
        }
    });
    (&x * 2.0).backward();
    order.lock().unwrap().push("|".into());
    (&x * 2.0).backward();
    assert_eq!(entries(&order), ["1", "|", "1", "2"]);

    row.is("D-15");
    let order = log();
    let x = leaf(1.0);
    let y = &x * 2.0;
    let z = &y * 3.0;
    let (o, wx, ny, nz) = (order.clone(), x.downgrade(), y.grad_fn().unwrap(), z.grad_fn().unwrap());
    z.register_hook(move |_| {
        ny.register_prehook(note_pre(&o, "pre y"));
        wx.upgrade().unwrap().register_hook(note(&o, "leaf"));
        nz.register_hook(note_post(&o, "post z"));
    });
    z.backward();
    assert_eq!(entries(&order), ["post z", "pre y", "leaf"]);
}

/// D-16, D-17, D-18
#[test]
fn handles_and_refusals() {
    let row = Row::default();
    row.is("D-16");
    let order = log();
    let x = leaf(1.0);
    let h = x.register_hook(note(&order, "x"));
    h.remove();
    h.remove();
    let h = {
        let y = leaf(1.0);
        y.register_hook(|_| ())
    };
    h.remove();
    {
        let _scope = x.register_hook(note(&order, "scoped")).scoped();
        (&x * 2.0).backward();
    }
    (&x * 2.0).backward();
    assert_eq!(entries(&order), ["scoped"]);

    row.is("D-17");
    assert_err!(con(&[1.0]).try_register_hook(|_| ()), HookNoGrad);
    assert_err!(con(&[1.0]).try_register_post_accumulate_grad_hook(|_| ()), HookNoGrad);
    assert_err!((&x * 2.0).try_register_post_accumulate_grad_hook(|_| ()), PostAccNonLeaf);

    row.is("D-18");
    let order = log();
    x.register_hook(note(&order, "same"));
    x.register_hook(note(&order, "same"));
    (&x * 2.0).backward();
    assert_eq!(entries(&order), ["same", "same"]);
}

/// D-19, D-20, D-21 (a post-accumulate hook that returns a value does not compile: types.md)
#[test]
fn post_accumulate_hooks() {
    let row = Row::default();
    row.is("D-19");
    let x = leaf(1.0);
    x.try_register_post_accumulate_grad_hook(|p| {
        p.sub_(&(p.grad().unwrap() * 0.1));
    })
    .unwrap();
    (&x * 2.0).backward();
    close(&vals(&x), &[0.8]);

    row.is("D-20");
    let x = leaf(1.0);
    x.try_register_post_accumulate_grad_hook(|p| p.set_grad(None)).unwrap();
    (&x * 2.0).backward();
    assert!(x.grad().is_none());
}

/// D-22, D-23, D-24, D-25, D-26, D-27, D-28
#[test]
fn hooks_and_in_place() {
    let row = Row::default();
    let order = log();
    let seen = |name: &'static str| {
        let o = order.clone();
        move |g: &Tensor| o.lock().unwrap().push(format!("{name} {:?}", vals(g)))
    };
    row.is("D-22");
    let y = leaf(1.0) * 2.0;
    y.register_hook(seen("old"));
    y.mul_scalar_(5.0);
    y.register_hook(seen("new"));
    y.backward();
    assert_eq!(entries(&order), ["new [1.0]", "old [5.0]"]);

    row.is("D-23");
    order.lock().unwrap().clear();
    let y = leaf(1.0) * 2.0;
    y.register_hook(seen("y"));
    y.retain_grad();
    y.mul_scalar_(5.0);
    y.backward();
    assert_eq!((entries(&order), grad(&y)), (vec!["y [5.0]".to_string()], vec![1.0]));

    row.is("D-24");
    order.lock().unwrap().clear();
    let x = leaf(1.0);
    x.register_hook(seen("x"));
    no_grad(|| x.mul_scalar_(5.0));
    (&x * 2.0).backward();
    assert_eq!(entries(&order), ["x [2.0]"]);

    row.is("D-25");
    order.lock().unwrap().clear();
    let (x, y) = (leaf(1.0), leaf(1.0));
    y.register_hook(seen("y"));
    y.try_set_requires_grad(false).unwrap();
    y.add_(&(&x * 3.0));
    y.backward();
    assert!(entries(&order).is_empty());
    close(&grad(&x), &[3.0]);

    row.is("D-26");
    let x = leaves(&[1.0, 2.0]);
    let b = &x * 1.0;
    let v = cut(&b, 0, 1);
    v.register_hook(seen("v"));
    b.mul_scalar_(3.0);
    v.sum().backward();
    assert!(entries(&order).is_empty());
    close(&grad(&x), &[3.0, 0.0]);

    row.is("D-27");
    let b = leaves(&[1.0, 2.0]) * 1.0;
    b.register_hook(seen("b"));
    cut(&b, 0, 1).mul_scalar_(3.0);
    b.sum().backward();
    assert_eq!(entries(&order), ["b [3.0, 1.0]"]);

    row.is("D-28");
    let x = leaf(1.0);
    x.register_hook(|g| {
        g.mul_scalar_(4.0);
    });
    (&x * 2.0).backward();
    close(&grad(&x), &[8.0]);
}

/// Passes its input on; its backward returns nothing.
struct Swallow;
impl Function for Swallow {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * 1.0])
    }
    fn backward(&self, _: &Context, _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
}

/// D-29
#[test]
fn undefined_gradients_reach_hooks() {
    let order = log();
    let x = leaf(1.0);
    let y = &x * 2.0;
    let z = Swallow.apply(&[&y]).unwrap().remove(0);
    let any = |name: &'static str| {
        let o = order.clone();
        move |g: Option<&Tensor>| o.lock().unwrap().push(format!("{name} {}", show(&g.cloned())))
    };
    y.try_register_hook_any(any("y")).unwrap();
    x.try_register_hook_any(any("x")).unwrap();
    y.retain_grad();
    let o = order.clone();
    y.grad_fn().unwrap().register_prehook(move |g| {
        o.lock().unwrap().push(format!("pre {}", show(&g[0])));
        Ok(None)
    });
    let o = order.clone();
    y.grad_fn().unwrap().register_hook(move |gi, go| {
        o.lock().unwrap().push(format!("post {} {} | {}", show(&gi[0]), show(&gi[1]), show(&go[0])));
        Ok(None)
    });
    x.try_register_post_accumulate_grad_hook(note(&order, "after")).unwrap();
    z.backward();
    assert_eq!(entries(&order), ["y none", "pre none", "post none none | none", "x none", "after"]);
    assert!(x.grad().is_none() && y.grad().is_none());
}

fn lists(log: &Arc<Mutex<Vec<Vec<String>>>>) -> impl Fn(&[Option<Tensor>]) -> Result<()> + Send + Sync + 'static {
    let log = log.clone();
    move |g| {
        log.lock().unwrap().push(g.iter().map(show).collect());
        Ok(())
    }
}

/// D-30, D-31, D-32, D-33, D-34
#[test]
fn multi_grad_hooks() {
    let row = Row::default();
    row.is("D-30");
    let (a, b) = (leaf(1.0), leaf(2.0));
    let (c, d) = (&a * &b, &a * &b);
    let calls = Arc::default();
    let h = register_multi_grad_hook(&[&a, &b, &c, &d], lists(&calls)).unwrap();
    (&c * 1.0).try_backward(&retain()).unwrap();
    let only_a = BackwardOptions { inputs: Some(vec![Target::from(&a)]), ..retain() };
    (&c * 1.0).try_backward(&only_a).unwrap();
    (&c + &d).try_backward(&retain()).unwrap();
    assert_eq!(
        *calls.lock().unwrap(),
        [vec!["2", "1", "1", "none"], vec!["2", "none", "1", "none"], vec!["4", "2", "1", "1"]]
    );
    row.is("D-34");
    h.remove();
    h.remove();
    (&c * 1.0).try_backward(&retain()).unwrap();
    assert_eq!(calls.lock().unwrap().len(), 3);

    row.is("D-31");
    let first: Arc<Mutex<Vec<f64>>> = Arc::default();
    let f = first.clone();
    register_multi_grad_hook_any(&[&a, &b, &c, &d], move |g| {
        f.lock().unwrap().push(g.item());
        Ok(())
    })
    .unwrap();
    (&c * 1.0).try_backward(&retain()).unwrap();
    (&c * 1.0).try_backward(&retain()).unwrap();
    assert_eq!(*first.lock().unwrap(), [1.0, 1.0]);

    // A third mode does not exist: all and any are functions of their own.
    row.is("D-32");
    assert_err!(register_multi_grad_hook(&[&a, &con(&[1.0])], |_| Ok(())), HookNoGrad);
    let fired = log();
    let f = fired.clone();
    let x = leaf(1.0);
    register_multi_grad_hook_any(&[&con(&[1.0]), &x], move |_| {
        f.lock().unwrap().push("any".into());
        Ok(())
    })
    .unwrap();
    (&x * 2.0).backward();
    assert_eq!(entries(&fired), ["any"]);

    row.is("D-33");
    let x = leaf(1.0);
    let calls = Arc::default();
    x.register_hook(|g| g * 10.0);
    let multi = register_multi_grad_hook(&[&x], lists(&calls)).unwrap();
    x.register_hook(|g| g * 100.0);
    (&x * 3.0).backward();
    assert_eq!(*calls.lock().unwrap(), [["30"]]);
    close(&grad(&x), &[3000.0]);
    row.is("D-34");
    multi.remove();
    {
        let _scope = register_multi_grad_hook(&[&x], lists(&calls)).unwrap().scoped();
        (&x * 3.0).backward();
    }
    (&x * 3.0).backward();
    assert_eq!(calls.lock().unwrap().len(), 2);
}

/// Q1: the root is counted, so a hook that contains it is called once, with every gradient.
#[test]
fn multi_grad_hooks_count_the_root() {
    let (a, b) = (leaf(1.0), leaf(2.0));
    let c = &a * &b;
    let calls = Arc::default();
    register_multi_grad_hook(&[&a, &b, &c], lists(&calls)).unwrap();
    c.backward();
    assert_eq!(*calls.lock().unwrap(), [["2", "1", "1"]]);
}

/// D-35, D-36, D-37
#[test]
fn multi_grad_hooks_and_failures() {
    let row = Row::default();
    row.is("D-35");
    let (a, b) = (leaf(1.0), leaf(2.0));
    let calls = Arc::default();
    let h = b.register_hook(|_| -> Result<()> { Err(Error::user("b")) });
    register_multi_grad_hook(&[&a, &b], lists(&calls)).unwrap();
    expect!["b"].assert_eq(&(&a * &b).try_backward(&plain()).unwrap_err().to_string());
    h.remove();
    (&a * &b).backward();
    assert_eq!(*calls.lock().unwrap(), [["2", "1"]]);

    row.is("D-36");
    let (a, b) = (leaf(1.0), leaf(2.0));
    let calls = Arc::default();
    register_multi_grad_hook(&[&a, &b], lists(&calls)).unwrap();
    (Swallow.apply(&[&a]).unwrap().remove(0) + &b * 2.0).backward();
    assert_eq!(*calls.lock().unwrap(), [["none", "2"]]);

    row.is("D-37");
    let (a, b) = (leaf(1.0), leaf(2.0));
    let c = &a * &b;
    let calls = Arc::default();
    let h = register_multi_grad_hook(&[&a, &c], lists(&calls)).unwrap();
    assert_err!(gradient(&(&c * 1.0), &a, &GradOptions::default()), LeafInGradCall);
    h.remove();
    let c = &a * &b;
    register_multi_grad_hook(&[&c], lists(&calls)).unwrap();
    gradient(&(&c * 1.0), &a, &GradOptions::default()).unwrap();
    assert_eq!(*calls.lock().unwrap(), [["1"]]);
}

/// D-38, D-50
#[test]
fn lifetimes() {
    let order = log();
    let x = leaf(1.0);
    x.register_hook(note(&order, "leaf"));
    {
        let y = &x * 2.0;
        get_gradient_edge(&x).unwrap().node.register_prehook(note_pre(&order, "node"));
        y.backward();
    }
    (&x * 2.0).backward();
    assert_eq!(entries(&order), ["leaf", "node", "leaf"]);

    let seen = log();
    let s = seen.clone();
    let x = leaf(1.0);
    x.register_hook(move |g| s.lock().unwrap().push(g.item::<f64>().to_string()));
    x.set_data(&Tensor::scalar(5.0f64));
    (&x * &x).backward();
    assert_eq!(entries(&seen), ["10"]);
}

/// D-51, D-52
#[test]
fn what_hooks_see() {
    let strides: Arc<Mutex<Vec<usize>>> = Arc::default();
    let s = strides.clone();
    let x = Tensor::ones([2, 3], DType::F64).requires_grad_();
    x.register_hook(move |g| *s.lock().unwrap() = g.strides().to_vec());
    x.sum().backward();
    assert_eq!((&strides.lock().unwrap()[..], x.grad().unwrap().strides()), (&[0usize, 0][..], &[3usize, 1][..]));

    let order = log();
    let x = leaves(&[1.0, 2.0]);
    let u = x.unbind(0);
    for (k, name) in [(1, "b"), (0, "a")] {
        let (o, name) = (order.clone(), name.to_string());
        u[k].try_register_hook_any(move |g| o.lock().unwrap().push(format!("{name} {}", show(&g.cloned())))).unwrap();
    }
    (&u[0] * 2.0 + &u[1] * 3.0).try_backward(&retain()).unwrap();
    (&u[0] * 2.0).backward();
    assert_eq!(entries(&order), ["b 3", "a 2", "b none", "a 2"]);
}
