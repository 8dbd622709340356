//! Cases of docs/behaviour/autograd.md that PyTorch's own tests assert and that lie between the families of the other files:
//! C-61, D-55, E-43 to E-46, F-34, G-32 to G-36 and Q11. Values and refusals are PyTorch 2.15's.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{
    AutocastOptions, BackwardOptions, CheckpointOptions, Context, Function, SavedHooks, autocast, autocast_dtype,
    checkpoint, current_graph_task_keep_graph, current_node, dual_level, inference_mode, is_autocast_enabled,
    make_dual, no_grad, queue_callback, unpack_dual,
};
use firebrand_core::{DType, Device, JvpRule, Result, Tensor, ops};
use std::sync::{Arc, Mutex};

fn recorded() -> BackwardOptions {
    BackwardOptions { create_graph: true, ..Default::default() }
}

/// what `set_data` refuses, for tensors of every kind.
#[test]
fn set_data_refuses_what_gradients_cannot_be_of() {
    let targets = || {
        let view = cut(&leaves(&[0.0; 3]), 0, 3);
        [
            ("leaf", leaves(&[0.0; 3]), true),
            ("computed", leaves(&[0.0; 3]) * 2.0, true),
            ("view", view, true),
            ("constant", con(&[0.0; 3]), false),
            ("integers", Tensor::zeros([3], DType::I64), false),
            ("inference", inference_mode(|| con(&[0.0; 3])), false),
        ]
    };
    for (dtype, differentiable) in
        [(DType::F32, true), (DType::BF16, true), (DType::C64, true), (DType::I64, false), (DType::Bool, false)]
    {
        for (kind, target, wants_grad) in targets() {
            let done = target.try_set_data(&Tensor::ones([5], dtype));
            assert_eq!(done.is_ok(), differentiable || !wants_grad, "A-63 {kind} <- {dtype}");
            match done {
                Ok(()) => assert_eq!((target.dtype(), target.shape()), (dtype, &[5][..]), "A-63 {kind} <- {dtype}"),
                Err(e) => {
                    assert!(e.to_string().contains("must be floating point or complex dtype"), "A-63: {e}");
                    assert_eq!((target.dtype(), target.shape()), (DType::F64, &[3][..]));
                }
            }
        }
    }
    let meta = Tensor::zeros([3], (DType::F64, Device::Meta));
    for (kind, target, _) in targets() {
        let e = target.try_set_data(&meta).unwrap_err();
        assert!(e.to_string().contains("incompatible tensor type"), "A-63 {kind}: {e}");
    }
}

/// views made before `set_data` keep the old data and go on counting with the tensor.
#[test]
fn versions_after_set_data() {
    let x = con(&[1.0; 4]);
    let v = cut(&x, 0, 2);
    x.add_scalar_(1.0, 1.0);
    let y = con(&[0.0; 4]);
    for _ in 0..3 {
        y.add_scalar_(1.0, 1.0);
    }
    let versions = |what: &str, expected: [u32; 3]| {
        assert_eq!([x.version(), v.version(), y.version()], expected, "A-64 after {what}")
    };
    versions("a write", [1, 1, 3]);
    x.set_data(&y);
    versions("set_data", [1, 1, 3]);
    x.add_scalar_(1.0, 1.0);
    versions("x.add_", [2, 2, 3]);
    v.add_scalar_(1.0, 1.0);
    versions("v.add_", [3, 3, 3]);
    y.add_scalar_(1.0, 1.0);
    versions("y.add_", [3, 3, 4]);
    let w = cut(&x, 0, 1);
    w.add_scalar_(1.0, 1.0);
    versions("a write to a view made after", [4, 4, 4]);
    let d = x.detach();
    d.add_scalar_(1.0, 1.0);
    versions("a write to a detached alias", [5, 5, 4]);
    let alone = x.data();
    alone.add_scalar_(1.0, 1.0);
    versions("a write to the data", [5, 5, 4]);
    assert_eq!((w.version(), d.version(), alone.version()), (5, 5, 1));
    close(&vals(&v), &[3.0, 3.0]);
    close(&vals(&x), &[8.0, 7.0, 7.0, 7.0]);
    close(&vals(&y), &[8.0, 7.0, 7.0, 7.0]);

    // A view saved before refuses a write to its base after.
    let a = leaves(&[1.0; 4]);
    let x = &a * 1.0;
    let v = cut(&x, 0, 2);
    let s = &v * &v;
    x.set_data(&con(&[0.0; 4]));
    no_grad(|| {
        x.add_scalar_(1.0, 1.0);
    });
    assert_err!(s.sum().try_backward(&BackwardOptions::default()), SavedVersionMismatch { .. });
}

/// D-55: a post-hook that an unpack hook registers runs in the run under way, without the gradients that are gone by then;
/// a pre-hook is too late.
#[test]
fn hooks_registered_while_their_node_runs() {
    let a = leaves(&[1.0, 2.0]);
    let y = &a * &a;
    let node = y.grad_fn().unwrap();
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let (inside, written) = (node.clone(), log.clone());
    let unpack = move |t: &Tensor| {
        let (post, pre) = (written.clone(), written.clone());
        inside.register_hook(move |outgoing, incoming| {
            let shown: Vec<_> = outgoing.iter().map(|g| vals(g.as_ref().unwrap())).collect();
            post.lock().unwrap().push(format!("post {shown:?} {}", incoming.len()));
            Ok(None)
        });
        inside.register_prehook(move |_| {
            pre.lock().unwrap().push("pre".into());
            Ok(None)
        });
        Ok(t.clone())
    };
    node.register_saved_hooks("self", SavedHooks::new(|t: &Tensor| Ok(t.detach()), unpack)).unwrap();
    y.sum().backward();
    assert_eq!(*log.lock().unwrap(), ["post [[1.0, 2.0], [1.0, 2.0]] 0"], "D-55");
    close(&grad(&a), &[2.0, 4.0]);
}

/// C-61: which node runs, and whether its run keeps the graph.
#[test]
fn hooks_ask_for_the_node_and_the_run() {
    assert!(current_node().is_none() && current_graph_task_keep_graph(), "C-61: outside a run");
    for keep in [false, true] {
        let x = leaf(2.0);
        let y = x.sin();
        let z = y.exp();
        let log: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
        let note = |log: &Arc<Mutex<Vec<(String, bool)>>>| {
            let name = current_node().map_or("none".to_string(), |n| n.name().to_string());
            log.lock().unwrap().push((name, current_graph_task_keep_graph()));
        };
        for t in [&x, &y, &z] {
            let log = log.clone();
            t.register_hook(move |_| {
                note(&log);
                let inner = log.clone();
                queue_callback(move || {
                    note(&inner);
                    Ok(())
                })
            });
        }
        z.try_backward(&BackwardOptions { retain_graph: Some(keep), ..Default::default() }).unwrap();
        let names = ["ExpBackward0", "SinBackward0", "torch::autograd::AccumulateGrad", "none", "none", "none"];
        assert_eq!(*log.lock().unwrap(), names.map(|n| (n.to_string(), keep)), "C-61");
    }
}

/// E-43: a saved tensor that was detached in place is refused, unless nothing of it was lost.
#[test]
fn saved_tensors_that_were_detached_in_place() {
    let text = "Trying to use a saved tensor that has been detached in-place";
    let run = |y: &Tensor, options: &BackwardOptions| y.sum().try_backward(options);
    for options in [BackwardOptions::default(), recorded()] {
        let a = leaves(&[1.0, 2.0]);
        let b = &a * 2.0;
        let c = b.sin();
        b.detach_();
        let e = run(&c, &options).unwrap_err();
        assert!(e.to_string().contains(text), "E-43: {e}");

        // Also when it became a leaf that requires grad, and when it was an output saved by another node.
        let b = &a * 2.0;
        let c = b.sin();
        b.detach_();
        b.try_set_requires_grad(true).unwrap();
        assert_err!(run(&c, &options), SavedDetached);
        let b = a.exp();
        let c = &b * &b;
        b.detach_();
        assert_err!(run(&c, &options), SavedDetached);
    }
    // A leaf loses nothing but its flag; a constant loses nothing; an output is saved without its history anyway.
    let a = leaf(1.0);
    let c = a.sin();
    a.detach_();
    c.backward();
    assert!(a.grad().is_none(), "E-43: it does not want gradients any more");
    let (a, k) = (leaf(1.0), Tensor::scalar(3.0f64));
    let c = &a * &k;
    k.detach_();
    c.backward();
    close(&grad(&a), &[3.0]);
    let a = leaf(1.0);
    let c = a.exp();
    let d = &c * 1.0;
    c.detach_();
    d.backward();
    close(&grad(&a), &[1f64.exp()]);
    // Detached before it was saved, and given a new history since: both as they are.
    let a = leaf(2.0);
    let b = &a * 3.0;
    b.detach_();
    b.mul_(&a);
    let c = &b * &b;
    c.backward();
    close(&grad(&a), &[2.0 * 12.0 * 6.0]);

    // A custom function keeps what it saved; where its history would count it is refused.
    struct Square;
    impl Function for Square {
        fn forward(&self, ctx: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            ctx.save_for_backward(&[Some(&x[0])]);
            x[0].try_mul(&x[0]).map(|y| vec![y])
        }
        fn backward(&self, ctx: &Context, g: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let saved = ctx.saved_tensors()?.remove(0).unwrap();
            Ok(vec![Some(&(&saved * 2.0) * g[0].as_ref().unwrap())])
        }
    }
    let squared = |a: &Tensor| {
        let b = a * 2.0;
        let c = Square.apply(&[&b]).unwrap().remove(0);
        b.detach_();
        c
    };
    let a = leaf(3.0);
    squared(&a).backward();
    close(&grad(&a), &[24.0]);
    assert_err!(squared(&a).try_backward(&recorded()), SavedDetached);
}

/// E-44: a checkpoint reruns under the autocast options of its forward, inside a region or out of it.
#[test]
fn checkpoints_rerun_under_the_autocast_options_of_the_forward() {
    let off = AutocastOptions { enabled: false, ..Default::default() };
    let (bf16, f16) = (AutocastOptions::from(DType::BF16), AutocastOptions::from(DType::F16));
    // Forward region, backward region, gradients of x (rows) and w (rows). The last row's backward ops run in bf16.
    let rows = [
        (bf16, off, DType::BF16, [0.8125, 2.6875], [8.9375, 14.75]),
        (f16, off, DType::F16, [0.81005859375, 2.689453125], [8.9609375, 14.7890625]),
        (off, off, DType::F32, [0.8099153637886047, 2.6890134811401367], [8.963377952575684, 14.794925689697266]),
        (off, bf16, DType::F32, [0.8125, 2.6875], [f64::NAN, f64::NAN]),
    ];
    for reentrant in [false, true] {
        for (k, (forward, backward, dtype, x_grad, w_grad)) in rows.into_iter().enumerate() {
            let x = Tensor::try_from_vec(vec![0f32, 1.0, 2.0, 3.0], [2, 2]).unwrap().requires_grad_();
            let w = Tensor::try_from_vec(vec![0.3f32; 4], [2, 2]).unwrap().requires_grad_();
            let seen: Arc<Mutex<Vec<(bool, DType)>>> = Arc::default();
            let (log, weight) = (seen.clone(), w.clone());
            let f = move |i: &[Tensor]| {
                log.lock().unwrap().push((is_autocast_enabled(), autocast_dtype()));
                Ok(vec![i[0].try_matmul(&weight)?.try_exp()?])
            };
            let options = CheckpointOptions { use_reentrant: Some(reentrant), ..Default::default() };
            let y = autocast(forward, || checkpoint(f, &[&x], &options)).unwrap().remove(0);
            assert_eq!(y.dtype(), dtype);
            autocast(backward, || y.sum().backward());
            let expected = (forward.enabled, forward.dtype);
            assert_eq!(*seen.lock().unwrap(), [expected, expected], "E-44 reentrant {reentrant} row {k}");
            let rows_of = |t: &Tensor| grad(t).chunks(2).map(|r| (r[0], r[1])).collect::<Vec<_>>();
            for (found, wanted) in [(rows_of(&x), x_grad), (rows_of(&w), w_grad)] {
                for ((a, b), want) in found.into_iter().zip(wanted).filter(|(_, w)| !w.is_nan()) {
                    let near = (a - want).abs() < 1e-6 * want.abs() && a == b;
                    assert!(near, "E-44 reentrant {reentrant} row {k}: found {a}, {b}, expected {want}");
                }
            }
        }
    }
}

/// E-45: a reentrant checkpoint none of whose outputs requires grad when it reruns.
#[test]
fn reentrant_checkpoints_without_gradients() {
    let reentrant = CheckpointOptions { use_reentrant: Some(true), ..Default::default() };
    let x = leaf(2.0);
    let both = |i: &[Tensor]| Ok(vec![i[0].detach(), i[0].detach() * 2.0]);
    let y = checkpoint(both, &[&x], &reentrant).unwrap();
    let e = (&y[0] + &y[1]).try_backward(&BackwardOptions::default()).unwrap_err();
    assert_eq!(e.to_string(), "none of output has requires_grad=True, this checkpoint() is not necessary", "E-45");
    let one = |i: &[Tensor]| Ok(vec![i[0].detach(), &i[0] * 2.0]);
    let y = checkpoint(one, &[&x], &reentrant).unwrap();
    (&y[0] + &y[1]).backward();
    close(&grad(&x), &[2.0]);
    let y = checkpoint(both, &[&x], &CheckpointOptions::default()).unwrap();
    assert!(!y[0].requires_grad(), "E-45: the other variant knows at once");
}

/// E-46: hooks on what a custom function saved.
#[test]
fn hooks_on_saved_tensors_of_custom_functions() {
    struct Product;
    impl Function for Product {
        fn forward(&self, ctx: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            let y = x[0].try_mul(&x[1])?;
            ctx.save_for_backward(&[Some(&x[0]), Some(&x[1]), None, Some(&y)]);
            Ok(vec![y])
        }
        fn backward(&self, ctx: &Context, g: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let saved = ctx.saved_tensors()?;
            let g = g[0].as_ref().unwrap();
            assert_eq!(saved[3].as_ref().unwrap().item::<f64>(), 14.0, "an output through its hooks");
            Ok(vec![Some(g * saved[1].as_ref().unwrap()), Some(g * saved[0].as_ref().unwrap())])
        }
    }
    let (a, b) = (leaf(2.0), leaf(7.0));
    let y = Product.apply(&[&a, &b]).unwrap().remove(0);
    let node = y.grad_fn().unwrap();
    let times = |k: f64| SavedHooks::new(move |t: &Tensor| Ok(t.detach() * k), |t: &Tensor| Ok(t.clone()));
    node.register_saved_hooks("tensors[1]", times(10.0)).unwrap();
    node.register_saved_hooks("tensors[3]", times(1.0)).unwrap();
    assert_err!(node.register_saved_hooks("tensors[1]", times(1.0)), SavedHooksTwice);
    assert_err!(node.register_saved_hooks("tensors[2]", times(1.0)), SavedHooksOnNone);
    for name in ["tensors", "tensors[4]", "tensors[x]", "self", "tensors[1", "tensors[-1]"] {
        assert_err!(node.register_saved_hooks(name, times(1.0)), Argument { .. });
    }
    y.backward();
    close(&grad(&a), &[70.0]);
    close(&grad(&b), &[2.0]);
    assert_err!(node.register_saved_hooks("tensors[0]", times(1.0)), SavedHooksAfterFree);

    // One of a list that an op saves is hooked by its place too.
    let a = leaves(&[1.0, 2.0]);
    let index = Tensor::new(&[1i64]);
    let y = ops::index(&a, &[Some(index)]).unwrap();
    let node = y.grad_fn().unwrap();
    let first = SavedHooks::new(|_: &Tensor| Ok(()), |()| Ok(Tensor::new(&[0i64])));
    node.register_saved_hooks("indices[0]", first).unwrap();
    y.sum().backward();
    close(&grad(&a), &[1.0, 0.0]);
}

/// F-34: the tangent object is kept only if it lies in its memory as the primal does; else the dual has a copy.
#[test]
fn make_dual_compares_the_memory_too() {
    let plain = |t: Tensor| t.detach();
    let matrix = |rows: i64, cols: i64| con(&[1.0; 6]).view([rows, cols]);
    // Primal, tangent, whether the caller's tensor is the tangent, what `as_strided` over five elements shows.
    type Row = (&'static str, Tensor, Tensor, bool, Option<[f64; 5]>);
    let rows: Vec<Row> = vec![
        ("slice, dense", plain(cut(&con(&[0.0; 5]), 0, 4)), con(&[1.0; 4]), false, Some([2.0, 2.0, 2.0, 2.0, 0.0])),
        (
            "slice, slice",
            plain(cut(&con(&[0.0; 5]), 0, 4)),
            cut(&con(&[1.0; 5]), 0, 4),
            true,
            Some([2.0, 2.0, 2.0, 2.0, 1.0]),
        ),
        (
            "offset",
            plain(cut(&con(&[0.0; 5]), 1, 5)),
            cut(&con(&[1.0; 5]), 0, 4),
            false,
            Some([0.0, 2.0, 2.0, 2.0, 2.0]),
        ),
        ("dense, slice", con(&[0.0; 4]), cut(&con(&[1.0; 5]), 0, 4), false, None),
        ("dense, dense", con(&[0.0; 4]), con(&[1.0; 4]), true, None),
        ("dense, expanded", con(&[0.0; 4]), con(&[1.0]).expand([4]), false, None),
        ("transposed, dense", matrix(2, 3).t(), matrix(3, 2), false, Some([2.0; 5])),
        ("dense, transposed", matrix(2, 3), matrix(3, 2).t(), false, Some([2.0; 5])),
        ("tracked slice", cut(&con(&[0.0; 5]), 0, 4), con(&[1.0; 4]), false, Some([2.0, 2.0, 2.0, 2.0, 0.0])),
        ("size one", con(&[0.0; 4]).view([4, 1]), con(&[1.0; 4]).view([1, 4]).t(), true, None),
    ];
    for (name, primal, tangent, same, shown) in rows {
        dual_level(|| {
            let dual = make_dual(&primal, &tangent).unwrap();
            let own = unpack_dual(&dual).unwrap().1.unwrap();
            assert_eq!(own.is_same(&tangent), same, "F-34 {name}");
            own.mul_(&Tensor::scalar(2.0f64));
            let changed = vals(&tangent).iter().all(|v| *v == 2.0);
            assert_eq!(
                changed, same,
                "F-34 {name}: a write to the tangent reaches the caller's tensor only if it is that"
            );
            let all = dual.try_as_strided([5], [1], Some(0.into()));
            match shown {
                None => assert!(all.is_err(), "F-34 {name}: there are four elements"),
                Some(expected) => {
                    let t = unpack_dual(&all.unwrap()).unwrap().1.unwrap();
                    close(&vals(&t), &expected);
                }
            }
        })
        .unwrap();
    }
}

type Forward = fn(&mut Context, &[Tensor]) -> Result<Vec<Tensor>>;
type Jvp = fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>;
/// A label, a function, the error it ends with and the tangents it gives.
type JvpRow<'a> = (&'a str, Forward, Jvp, Option<String>, Vec<Option<Vec<f64>>>);

/// A function made of closures.
struct Made {
    forward: Forward,
    jvp: Jvp,
}

impl Function for Made {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        (self.forward)(ctx, inputs)
    }
    fn jvp(&self, _: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        (self.jvp)(tangents)
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(grads.to_vec())
    }
}

/// G-32: forward writes a temporary in place and returns a view of it.
#[test]
fn functions_that_return_a_view_of_what_they_wrote() {
    struct Local(bool);
    impl Function for Local {
        fn forward(&self, _: &mut Context, x: &[Tensor]) -> Result<Vec<Tensor>> {
            let view = cut(&ops::clone(&x[0], None)?, 0, 3);
            if self.0 {
                view.add_scalar_(2.0, 1.0);
            }
            Ok(vec![view])
        }
        fn backward(&self, _: &Context, g: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
            let g = g[0].as_ref().unwrap();
            Ok(vec![Some(ops::constant_pad_nd(g, &[0.into(), 1.into()], 0.0.into())?)])
        }
    }
    for in_place in [false, true] {
        let x = leaves(&[1.0, 2.0, 3.0, 4.0]);
        let y = Local(in_place).apply(&[&x]).unwrap().remove(0);
        assert_eq!(node_name(&y), "LocalBackward", "G-32 in place: {in_place}");
        assert!(y.is_view());
        close(&vals(&y), if in_place { &[3.0, 4.0, 5.0] } else { &[1.0, 2.0, 3.0] });
        (&y * &y).sum().backward();
        let factor = if in_place { [6.0, 8.0, 10.0, 0.0] } else { [2.0, 4.0, 6.0, 0.0] };
        close(&grad(&x), &factor);
        // Its own backward would be lost.
        let y = Local(in_place).apply(&[&x]).unwrap().remove(0);
        assert_err!(y.try_add_scalar_(1.0, 1.0), CustomFnViewInplace { .. });
    }
}

/// G-33 to G-36: what `jvp` returns must be to the tangents what the outputs are to the inputs.
#[test]
fn tangents_of_custom_functions_follow_their_outputs() {
    fn t(tangents: &[Option<Tensor>]) -> &Tensor {
        tangents[0].as_ref().unwrap()
    }
    let slice: Forward = |_, x| Ok(vec![cut(&x[0], 0, 2)]);
    let copy: Forward = |_, x| Ok(vec![ops::clone(&x[0], None)?]);
    let itself: Forward = |_, x| Ok(vec![x[0].clone()]);
    let dirty: Forward = |ctx, x| {
        ctx.mark_dirty(&[&x[0]]);
        x[0].try_mul_(&Tensor::scalar(2.0f64))?;
        Ok(vec![x[0].clone()])
    };
    let frozen: Forward = |ctx, x| {
        let y = ops::clone(&x[0], None)?;
        ctx.mark_non_differentiable(&[&y]);
        Ok(vec![y, &x[0] * 2.0])
    };
    let integers: Forward = |_, x| Ok(vec![x[0].try_to_dtype(DType::I64)?, &x[0] * 2.0]);
    let two: Forward = |_, x| Ok(vec![&x[0] * 1.0, &x[0] * 2.0]);
    let rule = |rule: JvpRule| Some(format!("JvpRule({rule:?})"));
    let other = |kind: &str| Some(kind.to_string());
    let rows: Vec<JvpRow<'_>> = vec![
        // G-33: a view.
        ("G-33 view", slice, |g| Ok(vec![Some(cut(t(g), 0, 2))]), None, vec![Some(vec![1.0, 1.0])]),
        ("G-33 copy", slice, |g| Ok(vec![Some(ops::clone(&cut(t(g), 0, 2), None)?)]), rule(JvpRule::View), vec![]),
        ("G-33 none", slice, |_| Ok(vec![None]), rule(JvpRule::View), vec![]),
        (
            "G-33 of another",
            slice,
            |_| Ok(vec![Some(cut(&con(&[1.0; 4]), 0, 2))]),
            rule(JvpRule::ViewOfTangent),
            vec![],
        ),
        ("G-33 other part", slice, |g| Ok(vec![Some(cut(t(g), 2, 4))]), rule(JvpRule::SameRegion), vec![]),
        ("G-33 free", copy, |g| Ok(vec![Some(t(g).clone())]), None, vec![Some(vec![1.0; 4])]),
        // G-34: an input as it is.
        ("G-34 itself", itself, |g| Ok(vec![Some(t(g).clone())]), rule(JvpRule::View), vec![]),
        ("G-34 view", itself, |g| Ok(vec![Some(t(g).view([4]))]), None, vec![Some(vec![1.0; 4])]),
        ("G-34 new", itself, |g| Ok(vec![Some(t(g) * 2.0)]), rule(JvpRule::View), vec![]),
        // G-35: an input that was written.
        (
            "G-35 written",
            dirty,
            |g| Ok(vec![Some(t(g).mul_(&Tensor::scalar(2.0f64)).clone())]),
            None,
            vec![Some(vec![2.0; 4])],
        ),
        ("G-35 new", dirty, |g| Ok(vec![Some(t(g) * 2.0)]), rule(JvpRule::WrittenInPlace), vec![]),
        ("G-35 unchanged", dirty, |g| Ok(vec![Some(t(g).clone())]), rule(JvpRule::WrittenInPlace), vec![]),
        ("G-35 none", dirty, |_| Ok(vec![None]), rule(JvpRule::WrittenInPlace), vec![]),
        (
            "G-35 a view of it",
            dirty,
            |g| Ok(vec![Some(t(g).mul_(&Tensor::scalar(2.0f64)).view([4]))]),
            rule(JvpRule::ReturnedAsIs),
            vec![],
        ),
        // G-36: outputs without derivative, and how many there are.
        ("G-36 none", frozen, |g| Ok(vec![None, Some(t(g) * 2.0)]), None, vec![None, Some(vec![2.0; 4])]),
        (
            "G-36 some",
            frozen,
            |g| Ok(vec![Some(t(g).clone()), Some(t(g) * 2.0)]),
            other("JvpNotDifferentiable"),
            vec![],
        ),
        ("G-36 integers", integers, |g| Ok(vec![None, Some(t(g) * 2.0)]), None, vec![None, Some(vec![2.0; 4])]),
        (
            "G-36 integers, some",
            integers,
            |g| Ok(vec![Some(t(g).clone()), None]),
            other("JvpNotDifferentiable"),
            vec![],
        ),
        ("G-36 too many", copy, |g| Ok(vec![Some(t(g).clone()), None]), other("JvpCount"), vec![]),
        ("G-36 too few", two, |g| Ok(vec![Some(t(g).clone())]), other("JvpCount"), vec![]),
        ("G-36 shape", copy, |g| Ok(vec![Some(cut(t(g), 0, 2))]), other("JvpShape"), vec![]),
        ("G-36 broadcast", copy, |g| Ok(vec![Some(cut(t(g), 0, 1))]), other("JvpShape"), vec![]),
    ];
    for (name, forward, jvp, refused, tangents) in rows {
        for sliced in [false, true] {
            // The tangent of a slice is a view already.
            let (refused, tangents) = match (name, sliced) {
                ("G-34 itself", true) => (None, vec![Some(vec![1.0; 4])]),
                _ => (refused.clone(), tangents.clone()),
            };
            dual_level(|| {
                let dual = make_dual(&con(&[0.0, 1.0, 2.0, 3.0, 4.0]), &con(&[1.0; 5])).unwrap();
                let whole = ops::clone(&dual, None).unwrap();
                let x = if sliced { cut(&whole, 1, 5) } else { ops::clone(&cut(&dual, 0, 4), None).unwrap() };
                match (Made { forward, jvp }.apply(&[&x]), &refused) {
                    (Ok(outs), None) => {
                        let found: Vec<_> = outs.iter().map(|o| unpack_dual(o).unwrap().1.map(|t| vals(&t))).collect();
                        assert_eq!(found, tangents, "{name}, sliced: {sliced}");
                    }
                    (Err(e), Some(kind)) => {
                        let shown = match e.kind() {
                            firebrand_core::ErrorKind::JvpRule { rule, .. } => format!("JvpRule({rule:?})"),
                            kind => format!("{kind:?}"),
                        };
                        assert!(shown.starts_with(kind), "{name}, sliced {sliced}: found {shown}, expected {kind}");
                    }
                    (Ok(_), Some(kind)) => panic!("{name}, sliced: {sliced}: expected {kind}"),
                    (Err(e), None) => panic!("{name}, sliced: {sliced}: {e}"),
                }
            })
            .unwrap();
        }
    }
}

/// Q11: gradients of `cholesky_solve` and `cholesky_inverse` are what finite differences of PyTorch's results are, also
/// when the triangle that is not read holds something. PyTorch's own are not: it multiplies by the whole matrix.
#[test]
fn gradients_of_a_cholesky_factor_are_those_of_the_triangle_that_is_read() {
    let l = [2.0, 0.7, 0.1, 0.5, 1.5, 0.2, 0.3, 0.4, 1.2];
    // By central differences of torch.cholesky_solve(b, l, upper).sum() and torch.cholesky_inverse(l, upper).sum().
    let solve = [
        [-0.023341049, 0.0, 0.0, -0.274691358, -0.416666667, 0.0, -1.053240741, -1.354166667, -1.793016975],
        [-0.066952160, -0.344753086, -1.247685185, 0.0, -0.438086420, -1.481018518, 0.0, 0.0, -2.727893518],
    ];
    let inverse = [
        [-0.129050926, 0.0, 0.0, -0.212962963, -0.212962963, 0.0, -0.451388889, -0.451388889, -0.489004630],
        [-0.146890432, -0.208950617, -0.599537037, 0.0, -0.181090535, -0.519598765, 0.0, 0.0, -0.862667181],
    ];
    let near = |what: &str, found: Vec<f64>, expected: [f64; 9]| {
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 2e-8, "Q11 {what}: found {found:?}, expected {expected:?}");
    };
    for (k, upper) in [false, true].into_iter().enumerate() {
        let factor = || Tensor::try_from_vec(l.to_vec(), [3, 3]).unwrap().requires_grad_();
        let b = Tensor::try_from_vec(vec![1.0, 2.0, 3.0], [3, 1]).unwrap();
        let f = factor();
        ops::cholesky_solve(&b, &f, upper).unwrap().sum().backward();
        near("solve", grad(&f), solve[k]);
        let f = factor();
        ops::cholesky_inverse(&f, upper).unwrap().sum().backward();
        near("inverse", grad(&f), inverse[k]);
    }
}
