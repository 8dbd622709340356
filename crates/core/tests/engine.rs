//! Cases C-1 to C-58 of docs/behaviour/autograd.md: `backward`, `grad`, order, hooks' view of the engine, threads,
//! anomaly mode. C-5 and C-21 for complex numbers are in complex.rs. C-59's switches are accepted on a CPU.
//! C-58 counts runs of the whole process and lives in engine_ids.rs.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use expect_test::expect;
use firebrand_core::autograd::{
    BackwardOptions, Context, Function, GradOptions, Target, backward, current_graph_task_execution_order,
    current_graph_task_id, detect_anomaly, enable_grad, get_gradient_edge, grad as gradient, grad_map, inference_mode,
    is_grad_enabled, no_grad, queue_callback, set_detect_anomaly, set_multithreading_enabled,
    set_override_stale_capture_stream, set_warn_on_accumulate_grad_stream_mismatch, will_engine_execute_node,
};
use firebrand_core::{DType, Error, Result, Tensor, collect_warnings};
use std::sync::{Arc, Mutex};

fn plain() -> GradOptions {
    GradOptions::default()
}

/// The gradients of a call that must succeed.
#[track_caller]
fn grads(
    outputs: impl firebrand_core::autograd::Targets,
    inputs: impl firebrand_core::autograd::Targets,
) -> Vec<Vec<f64>> {
    gradient(outputs, inputs, &plain()).unwrap().iter().map(|g| vals(g.as_ref().unwrap())).collect()
}

fn retain() -> BackwardOptions {
    BackwardOptions { retain_graph: Some(true), ..Default::default() }
}

fn only(inputs: &[&Tensor]) -> BackwardOptions {
    BackwardOptions { inputs: Some(inputs.iter().map(|t| Target::from(*t)).collect()), ..Default::default() }
}

type Log = Arc<Mutex<Vec<String>>>;

fn log() -> Log {
    Arc::new(Mutex::new(Vec::new()))
}

/// A hook that writes its name to the log.
fn note(log: &Log, name: &str) -> impl Fn(&Tensor) + Send + Sync + 'static {
    let (log, name) = (log.clone(), name.to_string());
    move |_| log.lock().unwrap().push(name.clone())
}

fn entries(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

/// C-1, C-2, C-3, C-4
#[test]
fn roots_must_be_differentiable() {
    let row = Row::default();
    row.is("C-1");
    assert_err!(con(&[1.0]).try_backward(&BackwardOptions::default()), NoGradFn { index: 0 });
    row.is("C-2");
    let y = leaf(1.0) * 2.0;
    assert_err!(backward([&y, &con(&[1.0])], &BackwardOptions::default()), NoGradFn { index: 1 });
    row.is("C-3");
    let y = leaves(&[1.0, 2.0]) * 2.0;
    assert_err!(y.try_backward(&BackwardOptions::default()), ImplicitGradNonScalar { .. });
    row.is("C-4");
    let x = Tensor::ones([1, 1], DType::F64).requires_grad_();
    x.backward();
    close(&grad(&x), &[1.0]);
}

/// C-6, C-7, C-8, C-9, C-10, C-11, C-12
#[test]
fn inputs_and_unused_ones() {
    let row = Row::default();
    row.is("C-6");
    let x = leaf(1.0);
    let y = &x * 2.0;
    assert_err!(gradient(&y, Vec::<Target>::new(), &plain()), EmptyInputs);
    assert_err!(y.try_backward(&only(&[])), EmptyInputs);

    row.is("C-7");
    let w = leaves(&[1.0, 2.0]);
    assert_err!(gradient(&y, [&x, &w], &plain()), UnusedInput { index: 1 });
    row.is("C-8");
    let y = &x * 2.0;
    let g = gradient(&y, [&x, &w], &GradOptions { allow_unused: Some(true), ..plain() }).unwrap();
    assert!(g[0].as_ref().unwrap().item::<f64>() == 2.0 && g[1].is_none());
    let y = &x * 2.0;
    let zeros = GradOptions { materialize_grads: true, ..plain() };
    let g = gradient(&y, [&x, &w], &zeros).unwrap();
    close(&vals(g[1].as_ref().unwrap()), &[0.0, 0.0]);
    let y = &x * 2.0;
    row.is("C-9");
    let refused = GradOptions { allow_unused: Some(false), ..zeros.clone() };
    assert_err!(gradient(&y, [&x, &w], &refused), MaterializeNeedsUnused);
    row.is("C-10");
    let g = gradient(&y, [&x, &w], &GradOptions { create_graph: true, ..zeros.clone() }).unwrap();
    let zero = g[1].as_ref().unwrap();
    assert!(zero.requires_grad() && zero.is_leaf());
    row.is("C-11");
    let edge = get_gradient_edge(&w).unwrap();
    assert_err!(gradient(&(&x * 2.0), [Target::from(&x), Target::from(&edge)], &zeros), EdgeMaterialize { index: 1 });
    row.is("C-12");
    let unused = GradOptions { allow_unused: Some(true), ..plain() };
    assert_err!(gradient(&(&x * 2.0), [&x, &con(&[1.0])], &unused), InputNoGrad { index: 1 });
}

/// C-13
#[test]
fn repeated_inputs_and_outputs() {
    let x = leaf(1.0);
    assert_eq!(grads(&(&x * 2.0), [&x, &x]), [[2.0], [2.0]]);
    let y = &x * 3.0;
    assert_eq!(grads([&y, &y], &x), [[6.0]]);
    assert_eq!(grads(&x, &x), [[1.0]]);
    let y = &x * 3.0;
    assert_eq!(grads(&y, [&y, &x]), [[1.0], [3.0]]);
}

/// C-14, C-15, C-16, C-17, C-18
#[test]
fn backward_with_inputs() {
    let row = Row::default();
    row.is("C-14");
    let (x, w) = (leaf(1.0), leaf(2.0));
    (&x * &w).try_backward(&only(&[&x])).unwrap();
    close(&grad(&x), &[2.0]);
    assert!(w.grad().is_none());

    row.is("C-15");
    let x = leaf(1.0);
    let y = &x * 3.0;
    (&y * &y).try_backward(&only(&[&y])).unwrap();
    close(&grad(&y), &[6.0]);
    assert!(x.grad().is_none() && y.retains_grad());
    let y = &x * 3.0;
    row.is("C-16");
    (&y * &y).try_backward(&only(&[&y, &x])).unwrap();
    assert_eq!((grad(&y), grad(&x)), (vec![6.0], vec![18.0]));

    row.is("C-17");
    let x = leaf(2.0);
    let y = &x * &x;
    let (a, b) = (&y * &y, &y * 3.0);
    a.try_backward(&only(&[&y])).unwrap();
    assert_err!(b.try_backward(&BackwardOptions::default()), GraphFreed { .. });
    row.is("C-18");
    assert_err!((&x * 2.0).try_backward(&only(&[&con(&[1.0])])), RetainGradNoGrad);
}

/// C-19 (other mappings do not compile: types.md; the argument is an `IndexMap`)
#[test]
fn named_inputs() {
    let (x, w) = (leaf(1.0), leaf(2.0));
    let inputs = indexmap::IndexMap::from([("a", x.clone()), ("b", w.clone())]);
    let g = grad_map(&(&x * &w), &inputs, &plain()).unwrap();
    assert_eq!(g["a"].as_ref().unwrap().item::<f64>(), 2.0);
    assert_eq!(g["b"].as_ref().unwrap().item::<f64>(), 1.0);
}

/// C-20, C-21 (an integer as a gradient does not compile), C-22, C-23, C-54, C-55
#[test]
fn seeds() {
    let row = Row::default();
    let x = leaves(&[1.0, 2.0]);
    let seeded = |g: Vec<Option<Tensor>>| GradOptions { grad_outputs: g, ..plain() };
    row.is("C-20");
    let e = gradient(&(&x * 2.0), &x, &seeded(vec![Some(con(&[1.0; 3]))])).unwrap_err();
    assert!(e.to_string().contains("[2]") && e.to_string().contains("[3]"));
    assert_err!(Err::<(), _>(e), GradShapeMismatch { index: 0, .. });
    row.is("C-21");
    let g = gradient(&(&x * 2.0), &x, &seeded(vec![Some(Tensor::new(&[1.0f32, 1.0]))])).unwrap();
    let g = g[0].as_ref().unwrap();
    assert_eq!((g.dtype(), vals(g)), (DType::F64, vec![2.0, 2.0]));

    row.is("C-22");
    let eye = Tensor::from_slice(&[1.0f64, 0.0, 0.0, 1.0], [2, 2]);
    let batched = GradOptions { grad_outputs: vec![Some(eye)], is_grads_batched: true, ..plain() };
    let g = gradient(&x.pow_scalar(2.0), &x, &batched).unwrap();
    close(&vals(g[0].as_ref().unwrap()), &[2.0, 0.0, 0.0, 4.0]);
    row.is("C-23");
    let bad =
        GradOptions { grad_outputs: vec![Some(Tensor::ones([4, 3], DType::F64))], is_grads_batched: true, ..plain() };
    assert_err!(gradient(&x.pow_scalar(2.0), &x, &bad), BatchedGradShape { .. });

    row.is("C-54");
    let x = leaf(1.0);
    let one = || Some(Tensor::scalar(1.0f64));
    let surplus = BackwardOptions { grad_tensors: vec![one(), one()], ..Default::default() };
    (&x * 2.0).try_backward(&surplus).unwrap();
    close(&grad(&x), &[2.0]);

    row.is("C-55");
    let x = leaves(&[1.0, 2.0]);
    let (a, b) = (&x * 2.0, (&x * 3.0).sum());
    let g = gradient([&a, &b], &x, &seeded(vec![Some(con(&[1.0, 1.0])), None])).unwrap();
    close(&vals(g[0].as_ref().unwrap()), &[5.0, 5.0]);
}

/// C-24, C-26, C-27, C-28, C-53
#[test]
fn higher_derivatives() {
    let row = Row::default();
    let x = leaf(3.0);
    let create = GradOptions::create_graph();
    let one = |y: &Tensor, o: &GradOptions| gradient(y, &x, o).unwrap().remove(0).unwrap();
    row.is("C-24");
    let g = one(&x.pow_scalar(3.0), &create);
    let h = one(&g, &create);
    let k = one(&h, &plain());
    assert_eq!([&g, &h, &k].map(|t| t.item::<f64>()), [27.0, 18.0, 6.0]);

    row.is("C-26");
    let y = &x * &x;
    assert!(no_grad(|| one(&y, &create)).requires_grad());

    row.is("C-27");
    let v = leaf(3.0);
    let seeded = |create_graph| GradOptions { grad_outputs: vec![Some(v.clone())], create_graph, ..plain() };
    assert!(!one(&(&x * 5.0), &seeded(false)).requires_grad());
    assert!(one(&(&x * 5.0), &seeded(true)).requires_grad());

    row.is("C-28");
    let x2 = leaf(2.0);
    let y = &x2 * &x2;
    let freed = GradOptions { create_graph: true, retain_graph: Some(false), ..plain() };
    let g = gradient(&y, &x2, &freed).unwrap().remove(0).unwrap();
    assert_eq!(g.item::<f64>(), 4.0);
    assert_eq!(grads(&g, &x2), [[2.0]]);
    assert_err!(gradient(&y, &x2, &plain()), GraphFreed { .. });

    row.is("C-53");
    let x = leaf(2.0);
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    x.pow_scalar(3.0).try_backward(&options).unwrap();
    let g = x.grad().unwrap();
    x.set_grad(None);
    g.backward();
    close(&grad(&x), &[12.0]);
}

/// C-25, C-52
#[test]
fn grad_mode_inside() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let s = seen.clone();
    let x = leaf(2.0);
    x.register_hook(move |_| s.lock().unwrap().push(is_grad_enabled()));
    (&x * 2.0).backward();
    gradient(&(&x * 2.0), &x, &GradOptions::create_graph()).unwrap();
    assert_eq!(*seen.lock().unwrap(), [false, true]);

    let x = leaf(1.0);
    let y = &x * 3.0;
    no_grad(|| y.backward());
    close(&grad(&x), &[3.0]);
}

/// C-29, C-30, C-31
#[test]
fn order_of_execution() {
    let row = Row::default();
    row.is("C-29");
    let order = log();
    let x = leaf(1.0);
    let (a, b, c) = (x.sin(), x.cos(), x.exp());
    for (t, n) in [(&a, "a"), (&b, "b"), (&c, "c"), (&x, "leaf")] {
        t.register_hook(note(&order, n));
    }
    (&a + &b + &c).backward();
    assert_eq!(entries(&order), ["c", "b", "a", "leaf"]);

    row.is("C-30");
    let order = log();
    let (x, w) = (leaf(1.0), leaf(2.0));
    let h = x.sin();
    h.register_hook(note(&order, "sin"));
    w.register_hook(note(&order, "w"));
    (&h * &w).backward();
    assert_eq!(entries(&order), ["w", "sin"]);

    row.is("C-31");
    let y = leaf(1.0) * 2.0;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let s = seen.clone();
    y.register_hook(move |g| s.lock().unwrap().push(g.item::<f64>()));
    (&y * 3.0 + &y * 4.0).backward();
    assert_eq!(*seen.lock().unwrap(), [7.0]);
}

/// C-66: leaves that one node makes ready get their gradients in the order of its operands, wherever else they are used.
#[test]
fn leaves_that_are_ready_at_once() {
    let order = log();
    let (x, y, z) = (leaf(1.0), leaf(2.0), leaf(3.0));
    for (t, n) in [(&x, "x"), (&y, "y"), (&z, "z")] {
        t.register_hook(note(&order, n));
    }
    let product = &x * &y;
    (y.sin() + product).backward();
    assert_eq!(entries(&order), ["x", "y"]);
    let three = x.addcmul(&y, &z);
    (z.sin() + three).backward();
    assert_eq!(entries(&order)[2..], ["x", "y", "z"]);
}

/// C-32, C-33
#[test]
fn buffers_never_write_into_tensors_others_hold() {
    let x = leaves(&[1.0, 2.0]);
    let y = &x * 1.0;
    let g = con(&[1.0, 1.0]);
    let options = BackwardOptions { grad_tensors: vec![Some(g.clone()), Some(g.clone())], ..Default::default() };
    backward([&y, &y], &options).unwrap();
    assert_eq!((grad(&x), vals(&g)), (vec![2.0, 2.0], vec![1.0, 1.0]));

    let x = leaf(1.0);
    let y = &x * 1.0;
    let (a, b) = (&y + 0.0, &y + 0.0);
    let kept: Arc<Mutex<Vec<Tensor>>> = Arc::default();
    for t in [&a, &b] {
        let k = kept.clone();
        t.register_hook(move |g| k.lock().unwrap().push(g.clone()));
    }
    (&a + &b).backward();
    assert!(kept.lock().unwrap().iter().all(|g| g.item::<f64>() == 1.0));
    close(&grad(&x), &[2.0]);
}

/// C-34, C-35, C-36, C-37
#[test]
fn callbacks() {
    let row = Row::default();
    row.is("C-34");
    assert_err!(queue_callback(|| Ok(())), CallbackOutsideBackward);

    row.is("C-35");
    let order = log();
    let x = leaf(1.0);
    let (o, leaf_) = (order.clone(), x.downgrade());
    x.register_hook(move |_| -> Result<()> {
        let (o1, o2, l) = (o.clone(), o.clone(), leaf_.clone());
        queue_callback(move || {
            let g = l.upgrade().and_then(|x| x.grad()).map(|g| g.item::<f64>());
            o1.lock().unwrap().push(format!("cb1 {g:?}"));
            Ok(())
        })?;
        queue_callback(move || {
            o2.lock().unwrap().push("cb2".into());
            let o3 = o2.clone();
            queue_callback(move || {
                o3.lock().unwrap().push("cb3".into());
                Ok(())
            })
        })
    });
    (&x * 2.0).backward();
    order.lock().unwrap().push("ret".into());
    assert_eq!(entries(&order), ["cb1 Some(2.0)", "cb2", "cb3", "ret"]);

    row.is("C-36");
    let order = log();
    let x = leaf(1.0);
    let y = &x * 2.0;
    let o = order.clone();
    y.register_hook(move |_| {
        let o = o.clone();
        queue_callback(move || {
            o.lock().unwrap().push("ran".into());
            Ok(())
        })
    });
    x.register_hook(|_| -> Result<()> { Err(Error::user("hook")) });
    expect!["hook"].assert_eq(&y.try_backward(&BackwardOptions::default()).unwrap_err().to_string());
    (leaf(1.0) * 2.0).backward();
    assert!(entries(&order).is_empty());

    row.is("C-37");
    let x = leaf(1.0);
    x.register_hook(|_| queue_callback(|| Err(Error::user("callback failed"))));
    let e = (&x * 2.0).try_backward(&BackwardOptions::default()).unwrap_err();
    assert_eq!(e.to_string(), "callback failed");
}

/// C-38, C-39
#[test]
fn errors_of_hooks() {
    let (x, w) = (leaf(1.0), leaf(2.0));
    let h = x.sin();
    h.register_hook(|_| -> Result<()> { Err(Error::user("mine")) });
    let e = (&h * &w).try_backward(&BackwardOptions::default()).unwrap_err();
    assert_eq!(e.to_string(), "mine");
    assert_err!(Err::<(), _>(e), User(_));
    close(&grad(&w), &[1f64.sin()]);
    assert!(x.grad().is_none());

    let x = leaf(1.0);
    let h = x.sin();
    let o = &h * &h;
    let handle = h.register_hook(|_| -> Result<()> { Err(Error::user("mine")) });
    expect!["mine"].assert_eq(&o.try_backward(&BackwardOptions::default()).unwrap_err().to_string());
    handle.remove();
    assert_err!(o.try_backward(&BackwardOptions::default()), GraphFreed { .. });
}

/// A function whose backward runs a closure first.
struct During<F>(F);
impl<F: Fn() -> Result<()> + Send + Sync + 'static> Function for During<F> {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * 1.0])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        (self.0)()?;
        Ok(grads.to_vec())
    }
}

/// C-40, C-42, C-43
#[test]
fn nested_runs() {
    let row = Row::default();
    row.is("C-40");
    assert_eq!(current_graph_task_id(), -1);
    let ids = Arc::new(Mutex::new(Vec::new()));
    let i = ids.clone();
    let f = During(move || {
        let push = |i: &Mutex<Vec<i64>>| i.lock().unwrap().push(current_graph_task_id());
        push(&i);
        let w = enable_grad(|| leaf(1.0) * 2.0);
        let i2 = i.clone();
        w.register_hook(move |_| i2.lock().unwrap().push(current_graph_task_id()));
        w.try_backward(&BackwardOptions::default())?;
        push(&i);
        Ok(())
    });
    f.apply(&[&leaf(1.0)]).unwrap()[0].backward();
    let ids = ids.lock().unwrap().clone();
    assert_eq!(ids[0], ids[2]);
    assert!(ids[1] > ids[0]);

    row.is("C-42");
    let w = leaf(1.0);
    let w2 = w.clone();
    let f = During(move || enable_grad(|| &w2 * 10.0).try_backward(&BackwardOptions::default()));
    f.apply(&[&w]).unwrap()[0].backward();
    close(&grad(&w), &[11.0]);

    row.is("C-43");
    let (x, w) = (leaf(1.0), leaf(1.0));
    let w2 = w.clone();
    let h = x.register_hook(move |_| (&w2 * 2.0).try_backward(&BackwardOptions::default()));
    assert_err!((&x * 2.0).try_backward(&BackwardOptions::default()), NoGradFn { .. });
    h.remove();
    let w2 = w.clone();
    x.register_hook(move |_| enable_grad(|| &w2 * 2.0).try_backward(&BackwardOptions::default()));
    (&x * 2.0).backward();
    close(&grad(&w), &[2.0]);
}

/// C-41
#[test]
fn deep_reentrancy() {
    fn level(n: u32) -> Result<()> {
        let x = enable_grad(|| leaf(1.0));
        let y = enable_grad(|| {
            During(move || if n == 0 { Ok(()) } else { level(n - 1) }).apply(&[&x]).map(|mut v| v.remove(0))
        })?;
        y.try_backward(&BackwardOptions::default())
    }
    level(200).unwrap();
}

/// C-44, C-45
#[test]
fn threads() {
    let seen = Arc::new(Mutex::new(None));
    let s = seen.clone();
    let x = leaf(1.0);
    x.register_hook(move |_| *s.lock().unwrap() = Some(std::thread::current().id()));
    (&x * 2.0).backward();
    assert_eq!(*seen.lock().unwrap(), Some(std::thread::current().id()));

    let w = leaves(&[1.0, 2.0]);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| (&w * 3.0).sum().backward());
        }
    });
    close(&grad(&w), &[24.0, 24.0]);

    // One graph, several runs at once.
    let x = leaves(&[1.0, 2.0]);
    let y = (&x * &x).sum();
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| y.try_backward(&retain()).unwrap());
        }
    });
    close(&grad(&x), &[16.0, 32.0]);
}

/// C-46, C-47, C-48, C-57
#[test]
fn anomaly_mode() {
    let row = Row::default();
    let failing = || {
        let x = leaf(0.0);
        let y = x.sqrt() * 0.0;
        (x, y)
    };
    row.is("C-46");
    let (_, warnings) = collect_warnings(|| {
        let _on = detect_anomaly(true);
        let (_x, y) = failing();
        let e = y.try_backward(&BackwardOptions::default()).unwrap_err();
        assert!(e.to_string().contains("SqrtBackward0"));
        assert_err!(Err::<(), _>(e), NanGradient { output: 0, .. });
    });
    assert_eq!(warnings.len(), 2, "one on entering, one with the trace");
    assert!(warnings[1].contains("Traceback"));

    row.is("C-47");
    {
        let _on = set_detect_anomaly(true, false);
        let (x, y) = failing();
        y.backward();
        assert!(grad(&x)[0].is_nan());
    }
    let (x, y) = failing();
    let (_, warnings) = collect_warnings(|| {
        let _on = set_detect_anomaly(true, true);
        assert_err!(y.try_backward(&BackwardOptions::default()), NanGradient { .. });
    });
    assert!(warnings[0].contains("No forward pass information"));
    drop(x);

    row.is("C-48");
    let _on = set_detect_anomaly(true, true);
    let x = leaf(2.0);
    let y = x.pow_scalar(3.0);
    assert!(y.grad_fn().unwrap().metadata().contains_key("traceback_"));
    let g = gradient(&y, &x, &GradOptions::create_graph()).unwrap().remove(0).unwrap();
    let parent = g.grad_fn().unwrap().metadata()["parent_"].clone();
    let parent = parent.downcast_ref::<firebrand_core::autograd::Node>().unwrap().clone();
    assert_eq!(parent.name(), "PowBackward0");

    row.is("C-57");
    let x = leaf(0.0);
    let y = x.sqrt();
    y.grad_fn()
        .unwrap()
        .register_hook(|gi, _| Ok(Some(gi.iter().map(|g| g.as_ref().map(|g| g.zeros_like())).collect())));
    (&y * 0.0).backward();
    close(&grad(&x), &[0.0]);
}

/// C-49, C-50
#[test]
fn questions_from_inside() {
    let run = |single: bool| {
        let found: Arc<Mutex<Option<Result<Vec<String>>>>> = Arc::default();
        let f = found.clone();
        let y = leaf(1.0).sin();
        let z = &y * &y;
        z.register_hook(move |_| {
            let order = current_graph_task_execution_order();
            *f.lock().unwrap() = Some(order.map(|l| l.iter().map(|n| n.name().to_string()).collect()));
        });
        let _mode = set_multithreading_enabled(!single);
        z.backward();
        std::mem::take(&mut *found.lock().unwrap()).unwrap()
    };
    assert_err!(run(false), MultithreadingMustBeOff);
    assert_eq!(run(true).unwrap(), ["MulBackward0", "SinBackward0", "torch::autograd::AccumulateGrad"]);

    let x = leaf(1.0);
    let node = get_gradient_edge(&x).unwrap().node;
    assert_err!(will_engine_execute_node(&node), NotInBackward);
    let y = &x * 2.0;
    let found: Arc<Mutex<Option<Result<bool>>>> = Arc::default();
    let f = found.clone();
    y.register_hook(move |_| *f.lock().unwrap() = Some(will_engine_execute_node(&node)));
    gradient(&y, &x, &plain()).unwrap();
    assert_err!(found.lock().unwrap().take().unwrap(), LeafInGradCall);
}

/// C-51
#[test]
fn pruned_nodes_run_no_hooks() {
    let order = log();
    let (x, w) = (leaf(1.0), leaf(1.0));
    let (y, z) = (&x * 2.0, &w * 3.0);
    for (t, n) in [(&y, "y"), (&z, "z"), (&x, "x"), (&w, "w")] {
        t.register_hook(note(&order, n));
    }
    for (t, n) in [(&x, "post x"), (&w, "post w")] {
        t.try_register_post_accumulate_grad_hook(note(&order, n)).unwrap();
    }
    (&y * &z).try_backward(&only(&[&x])).unwrap();
    assert_eq!(entries(&order), ["y", "x", "post x"]);
    assert!(w.grad().is_none());
}

/// C-56
#[test]
fn inference_mode_and_accumulation() {
    let x = leaf(2.0);
    let y = &x * &x;
    inference_mode(|| y.backward());
    let g = x.grad().unwrap();
    assert!(g.item::<f64>() == 4.0 && g.is_inference());

    let x = leaf(1.0);
    let y = &x * 2.0;
    y.try_backward(&retain()).unwrap();
    let g = x.grad().unwrap();
    inference_mode(|| y.backward());
    assert!(x.grad().unwrap().is_same(&g) && !g.is_inference() && g.item::<f64>() == 4.0);
}

/// C-59: accepted on a CPU, without effect there.
#[test]
fn device_switches() {
    for on in [false, true] {
        set_warn_on_accumulate_grad_stream_mismatch(on);
        set_override_stale_capture_stream(on);
        let x = leaf(3.0);
        let ((), warnings) = collect_warnings(|| {
            (&x * 2.0).backward();
            (&x * 2.0).backward();
        });
        assert_eq!((grad(&x), warnings.len()), (vec![4.0], 0), "C-59, switches {on}");
    }
    set_override_stale_capture_stream(false);
}

/// Wide graphs: one leaf used five thousand times.
#[test]
fn wide_graph() {
    let x = leaf(1.0);
    let mut sum = &x * 1.0;
    for _ in 1..5000 {
        sum = sum + &x * 1.0;
    }
    sum.backward();
    close(&grad(&x), &[5000.0]);
}

/// The gradient of a weight that is used transposed is a view by birth. It is taken over when nobody else sees it, and
/// copied when somebody does.
#[test]
fn transposed_gradients_become_tensors_of_their_own() {
    let w = Tensor::ones([3, 2], DType::F32).requires_grad_();
    let x = Tensor::ones([4, 2], DType::F32);
    x.matmul(&w.t()).sum().backward();
    let grad = w.grad().expect("a gradient");
    assert!(!grad.is_view() && grad.is_contiguous());
    assert_eq!(grad.to_vec::<f32>(), [4.0; 6]);

    let seen = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = seen.clone();
    w.zero_grad();
    let transposed = w.t();
    transposed.register_hook(move |g: &Tensor| {
        *keep.lock().unwrap() = Some(g.clone());
    });
    x.matmul(&transposed).sum().backward();
    w.grad().expect("a gradient").fill_(7.0);
    let seen = seen.lock().unwrap().clone().expect("the hook ran");
    assert_eq!(seen.t().contiguous().to_vec::<f32>(), [4.0; 6], "what a hook kept is not written through the gradient");
}
