//! Cases E-28 to E-40 and E-50 of docs/behaviour/autograd.md: checkpointing.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{
    BackwardOptions, CheckpointContexts, CheckpointOptions, CheckpointPolicy, Context, ContextFn, DeterminismCheck,
    Function, GradOptions, Target, checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts,
    grad as gradient, no_grad, set_checkpoint_early_stop,
};
use firebrand_core::dispatch::{Interpreter, Next, Op, Outputs, Value as Boxed, push_inner_layer};
use firebrand_core::random::{Generator, get_rng_state, with_generator};
use firebrand_core::{Result, Tensor, collect_warnings};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

fn plain() -> BackwardOptions {
    BackwardOptions::default()
}

fn variant(reentrant: bool) -> CheckpointOptions {
    CheckpointOptions { use_reentrant: Some(reentrant), ..Default::default() }
}

fn one(
    f: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
    x: &Tensor,
    options: &CheckpointOptions,
) -> Tensor {
    checkpoint(move |i| Ok(vec![f(&i[0])?]), &[x], options).unwrap().remove(0)
}

/// E-28
#[test]
fn both_variants_rerun_once() {
    for reentrant in [false, true] {
        let calls = Arc::new(AtomicUsize::new(0));
        let c = calls.clone();
        let x = leaf(1.0);
        let y = one(
            move |x| {
                c.fetch_add(1, Relaxed);
                x.try_sin()?.try_cos()
            },
            &x,
            &variant(reentrant),
        );
        assert_eq!(calls.load(Relaxed), 1);
        assert_eq!(node_name(&y), if reentrant { "CheckpointFunctionBackward" } else { "CosBackward0" });
        y.backward();
        assert_eq!(calls.load(Relaxed), 2);
        close(&grad(&x), &[-1f64.sin().sin() * 1f64.cos()]);
    }
}

/// E-29, E-30
#[test]
fn limits_of_the_reentrant_variant() {
    let x = leaf(1.0);
    let sin = |x: &Tensor| x.try_sin();
    assert_err!(gradient(&one(sin, &x, &variant(true)), &x, &GradOptions::default()), CheckpointReentrantInputs);
    let only = BackwardOptions { inputs: Some(vec![Target::from(&x)]), ..plain() };
    assert_err!(one(sin, &x, &variant(true)).try_backward(&only), CheckpointReentrantInputs);
    let g = gradient(&one(sin, &x, &variant(false)), &x, &GradOptions::default()).unwrap();
    close(&vals(g[0].as_ref().unwrap()), &[1f64.cos()]);

    let w = leaf(2.0);
    let w2 = w.clone();
    let c = Tensor::scalar(3.0f64);
    let (y, warnings) = collect_warnings(|| one(move |x| x.try_mul(&w2), &c, &variant(true)));
    assert!(!y.requires_grad() && warnings.len() == 1);
    let w2 = w.clone();
    one(move |x| x.try_mul(&w2), &c, &variant(false)).backward();
    close(&grad(&w), &[3.0]);
}

/// E-31
#[test]
fn early_stop() {
    let run = |stop: bool, scope: Option<bool>| {
        let log: Arc<Mutex<Vec<&str>>> = Arc::default();
        let l = log.clone();
        let x = leaf(1.0);
        let y = {
            let _scope = scope.map(set_checkpoint_early_stop);
            one(
                move |x| {
                    l.lock().unwrap().push("a");
                    let y = x.sin().cos(); // the ergonomic forms unwind as well
                    l.lock().unwrap().push("b");
                    let z = y + 1.0;
                    l.lock().unwrap().push("c");
                    Ok(z)
                },
                &x,
                &CheckpointOptions { early_stop: stop, ..Default::default() },
            )
        };
        log.lock().unwrap().clear();
        y.backward();
        close(&grad(&x), &[-1f64.sin().sin() * 1f64.cos()]);
        std::mem::take(&mut *log.lock().unwrap())
    };
    assert_eq!(run(true, None), ["a"]);
    assert_eq!(run(false, None), ["a", "b", "c"]);
    assert_eq!(run(true, Some(false)), ["a", "b", "c"]);
}

/// E-32
#[test]
fn random_state() {
    let noisy = |x: &Tensor| x.try_mul(&Tensor::rand([4], firebrand_core::DType::F64))?.try_sin();
    let with = |preserve: Option<bool>| {
        with_generator(Generator::new(7), || {
            let x = leaves(&[1.0, 2.0, 3.0, 4.0]);
            let y = match preserve {
                None => noisy(&x).unwrap(),
                Some(p) => one(noisy, &x, &CheckpointOptions { preserve_rng_state: p, ..Default::default() }),
            };
            let before = get_rng_state().to_bytes();
            y.sum().backward();
            (grad(&x), before == get_rng_state().to_bytes())
        })
    };
    let expected = with(None).0;
    assert_eq!(with(Some(true)), (expected.clone(), true));
    assert_ne!(with(Some(false)).0, expected);
}

/// E-33, E-34
#[test]
fn reruns_that_differ() {
    let differing = |first: fn(&Tensor) -> Result<Tensor>, second: fn(&Tensor) -> Result<Tensor>| {
        let n = AtomicUsize::new(0);
        move |x: &Tensor| if n.fetch_add(1, Relaxed) == 0 { first(x) } else { second(x) }
    };
    let full = CheckpointOptions { early_stop: false, ..Default::default() };
    let x = leaves(&[1.0, 2.0]);
    let fewer = one(differing(|x| x.try_sin()?.try_cos(), |x| x.try_sin()), &x, &full);
    let e = fewer.sum().try_backward(&plain()).unwrap_err();
    assert!(e.to_string().contains("recomputation: 2 and 1"));
    assert_err!(Err::<(), _>(e), CheckpointMismatch { .. });
    let more = one(differing(|x| x.try_sin(), |x| x.try_sin()?.try_cos()), &x, &full);
    assert_err!(more.sum().try_backward(&plain()), CheckpointMismatch { .. });
    let shaped = one(differing(|x| x.try_sin(), |x| x.try_select(0, 0)?.try_sin()), &x, &full);
    let e = shaped.sum().try_backward(&plain()).unwrap_err();
    assert!(e.to_string().contains("position 0"));

    let x = leaves(&[1.0, 2.0]);
    let loose = CheckpointOptions { determinism_check: DeterminismCheck::None, ..Default::default() };
    let y = one(differing(|x| x.try_sin(), |x| x.try_add_scalar(1.0, 1)?.try_sin()), &x, &loose);
    y.sum().backward();
    close(&grad(&x), &[2f64.cos(), 3f64.cos()]);
}

/// E-35, E-36
#[test]
fn retained_and_nested() {
    let calls = Arc::new(AtomicUsize::new(0));
    let c = calls.clone();
    let x = leaf(1.0);
    let y = one(
        move |x| {
            c.fetch_add(1, Relaxed);
            x.try_sin()
        },
        &x,
        &variant(false),
    );
    y.try_backward(&BackwardOptions { retain_graph: Some(true), ..plain() }).unwrap();
    y.backward();
    assert_eq!(calls.load(Relaxed), 3);
    assert_err!(y.try_backward(&plain()), GraphFreed { .. });

    let log: Arc<Mutex<String>> = Arc::default();
    let l = log.clone();
    let x = leaf(1.0);
    let y = one(
        move |x| {
            l.lock().unwrap().push('f');
            let l2 = l.clone();
            let inner = checkpoint(
                move |i| {
                    l2.lock().unwrap().push('g');
                    Ok(vec![i[0].try_sin()?])
                },
                &[&x.try_cos()?],
                &variant(false),
            )?;
            inner[0].try_exp()
        },
        &x,
        &variant(false),
    );
    log.lock().unwrap().push('|');
    y.backward();
    assert_eq!(*log.lock().unwrap(), "fg|fgg");
    let c = 1f64.cos();
    close(&grad(&x), &[c.sin().exp() * c.cos() * -1f64.sin()]);
}

/// Reads its saved tensors twice in one backward.
struct Twice;
impl Function for Twice {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        Ok(vec![inputs[0].try_sin()?])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        ctx.saved_tensors()?;
        ctx.saved_tensors()?;
        Ok(grads.to_vec())
    }
}

/// E-37, E-38, E-39, E-40
#[test]
fn refusals_and_sequences() {
    let row = Row::default();
    let x = leaf(1.0);
    row.is("E-37");
    let y = one(|x| Ok(Twice.apply(&[x])?.remove(0)), &x, &variant(false));
    assert_err!(y.try_backward(&plain()), CheckpointDoubleUnpack);

    row.is("E-38");
    let b = &x * 1.0;
    let y = one(|x| x.try_sin(), &b, &variant(false));
    b.add_scalar_(1.0, 1);
    assert_err!(y.try_backward(&plain()), SavedVersionMismatch { .. });

    row.is("E-39");
    // An unknown determinism check does not compile: types.md.
    assert!(!no_grad(|| one(|x| x.try_sin(), &x, &variant(false))).requires_grad(), "E-39");

    row.is("E-40");
    let chain: [fn(&Tensor) -> Result<Tensor>; 3] = [|x| x.try_sin(), |x| x.try_cos(), |x| x.try_exp()];
    let run = |checkpointed: bool| {
        let x = leaf(0.5);
        let y = match checkpointed {
            true => checkpoint_sequential(&chain, 2, &x, &variant(false)).unwrap(),
            false => x.sin().cos().exp(),
        };
        y.backward();
        grad(&x)
    };
    close(&run(true), &run(false));
}

/// Leaving the variant open warns and means reentrant.
#[test]
fn the_variant_should_be_chosen() {
    let x = leaf(1.0);
    let open = CheckpointOptions { use_reentrant: None, ..Default::default() };
    let (y, warnings) = collect_warnings(|| one(|x| x.try_sin(), &x, &open));
    assert_eq!((warnings.len(), node_name(&y)), (1, "CheckpointFunctionBackward".to_string()));
}

/// The ops that a policy saves run once, the others again; gradients do not depend on it.
#[test]
fn selective_checkpoints_rerun_what_the_policy_says() {
    let counting = |op: Op, calls: &Arc<AtomicUsize>| -> firebrand_core::dispatch::LayerGuard {
        struct Counting(Op, Arc<AtomicUsize>);
        impl Interpreter for Counting {
            fn call(&self, op: Op, args: &[Boxed], next: Next<'_>) -> Result<Outputs> {
                if op == self.0 {
                    self.1.fetch_add(1, Relaxed);
                }
                next.call(op, args)
            }
        }
        push_inner_layer(Arc::new(Counting(op, calls.clone())))
    };
    let f = |x: &Tensor| x.try_mm(x)?.try_sin()?.try_mm(x)?.try_cos();
    let expected = {
        let x = Tensor::from_slice(&[0.1f64, 0.2, 0.3, 0.4], [2, 2]).requires_grad_();
        f(&x).unwrap().sum().backward();
        x.grad().unwrap().to_vec::<f64>()
    };
    for (saved, runs) in [(Some(Op::MM), 2), (Some(Op::SIN), 4), (None, 4)] {
        let x = Tensor::from_slice(&[0.1f64, 0.2, 0.3, 0.4], [2, 2]).requires_grad_();
        let contexts = create_selective_checkpoint_contexts(move |_, op, _| {
            if Some(op) == saved { CheckpointPolicy::Save } else { CheckpointPolicy::Recompute }
        });
        let options = CheckpointOptions { context_fn: Some(contexts), early_stop: false, ..Default::default() };
        let calls = Arc::new(AtomicUsize::new(0));
        // Under the layers of the checkpoint, so it sees what reaches the kernels; products of backward are not counted.
        let forward = counting(Op::MM, &calls);
        let y = one(f, &x, &options).sum();
        drop(forward);
        assert_eq!(calls.load(Relaxed), 2);
        let rerun = Arc::new(AtomicUsize::new(0));
        let backward = counting(Op::MM, &rerun);
        y.backward_retain_graph();
        drop(backward);
        assert_eq!(rerun.load(Relaxed), runs - 2 + 4, "{saved:?}: four products are gradients");
        assert_eq!(x.grad().unwrap().to_vec::<f64>(), expected);
        y.backward();
        let again = y.try_backward(&plain());
        assert!(again.is_err());
    }
}

#[test]
fn selective_checkpoints_refuse_what_would_be_wrong() {
    let save = |wanted: Op| {
        create_selective_checkpoint_contexts(move |_, op, _| {
            if op == wanted { CheckpointPolicy::Save } else { CheckpointPolicy::Recompute }
        })
    };
    let with = |op: Op| CheckpointOptions { context_fn: Some(save(op)), ..Default::default() };
    let x = leaf(1.0);
    let written = one(
        |x| {
            let y = x.try_sin()?;
            let z = y.try_cos()?;
            no_grad(|| y.data().try_mul_(3.0).map(drop))?;
            Ok(z)
        },
        &x,
        &with(Op::SIN),
    );
    drop(written); // `data` counts alone: nothing to see
    let written = one(
        |x| {
            let y = x.try_sin()?;
            let z = y.try_mul(2.0)?;
            y.detach().try_mul_(3.0)?;
            z.try_cos()
        },
        &x,
        &with(Op::SIN),
    );
    assert!(written.try_backward(&plain()).unwrap_err().to_string().contains("written in place"));
    let in_place = |x: &[Tensor]| Ok(vec![x[0].try_sin()?.try_mul_(2.0)?.try_cos()?]);
    let writing = create_selective_checkpoint_contexts(|_, op, _| {
        if op.schema().mutates() { CheckpointPolicy::Save } else { CheckpointPolicy::Recompute }
    });
    let writing = CheckpointOptions { context_fn: Some(writing), ..Default::default() };
    let refused = checkpoint(in_place, &[&x], &writing).unwrap_err().to_string();
    assert!(refused.contains("cannot be saved"), "{refused}");
    let y = one(|x| x.try_sin()?.try_cos(), &x, &with(Op::SIN));
    y.try_backward(&BackwardOptions { retain_graph: Some(true), ..Default::default() }).unwrap();
    let reentrant = CheckpointOptions { use_reentrant: Some(true), ..with(Op::SIN) };
    let refused = checkpoint(|x| Ok(x.to_vec()), &[&x], &reentrant).unwrap_err().to_string();
    assert!(refused.contains("use_reentrant"), "{refused}");
}

/// Random numbers that are saved are drawn again, so that those after them are the same.
#[test]
fn selective_checkpoints_keep_the_stream() {
    let noisy = |x: &Tensor| {
        let drawn = |x: &Tensor| x.try_mul(&firebrand_core::ops::rand_like(x, None, None, None)?);
        drawn(&drawn(x)?.try_sin()?)?.try_cos()
    };
    let run = |context_fn| {
        let x = Tensor::from_slice(&[0.1f64; 64], [64]).requires_grad_();
        with_generator(Generator::new(3), || {
            one(noisy, &x, &CheckpointOptions { context_fn, ..Default::default() }).sum().backward();
        });
        x.grad().unwrap().to_vec::<f64>()
    };
    let all = create_selective_checkpoint_contexts(|_, op, _| {
        if op.has(firebrand_core::record::Tags::NONDETERMINISTIC_SEEDED) {
            CheckpointPolicy::Save
        } else {
            CheckpointPolicy::Recompute
        }
    });
    assert_eq!(run(Some(all)), run(None));
}

/// With `debug` a mismatch shows where the runs part.
#[test]
fn a_debugged_mismatch_shows_the_ops() {
    let calls = AtomicUsize::new(0);
    let changing = move |x: &Tensor| {
        let y = x.try_sin()?;
        if calls.fetch_add(1, Relaxed) == 0 { y.try_cos()?.try_exp() } else { y.try_exp() }
    };
    let y = one(changing, &leaf(1.0), &CheckpointOptions { debug: true, ..Default::default() });
    let text = y.try_backward(&plain()).unwrap_err().to_string();
    for part in [
        "ops of both runs:\n  aten::sin(float64[])",
        "then the first run: aten::cos(float64[])",
        "then the rerun: aten::exp",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// What `context_fn` makes surrounds both runs.
#[test]
fn contexts_surround_both_runs() {
    struct Marks(Arc<Mutex<Vec<&'static str>>>);
    impl CheckpointContexts for Marks {
        fn forward(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
            self.0.lock().unwrap().push("forward");
            run()
        }
        fn recompute(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
            self.0.lock().unwrap().push("recompute");
            run()
        }
    }
    let marks = Arc::<Mutex<Vec<&'static str>>>::default();
    let list = marks.clone();
    let context_fn = Some(ContextFn::new(move || Marks(list.clone())));
    let x = leaf(1.0);
    let y = one(|x| x.try_sin()?.try_cos(), &x, &CheckpointOptions { context_fn, ..Default::default() });
    assert_eq!(*marks.lock().unwrap(), ["forward"]);
    y.backward();
    assert_eq!(*marks.lock().unwrap(), ["forward", "recompute"]);
    close(&grad(&x), &[-1f64.sin().sin() * 1f64.cos()]);
}

/// E-50: layers below autograd do not see an op of which the rerun needs only the inputs; without early stop they do.
#[test]
fn an_op_whose_inputs_complete_a_rerun_does_not_run() {
    struct Seen(Mutex<Vec<Op>>);
    impl Interpreter for Seen {
        fn call(&self, op: Op, args: &[Boxed], next: Next<'_>) -> Result<Outputs> {
            self.0.lock().unwrap().push(op);
            next.call(op, args)
        }
    }
    type Function = fn(&Tensor) -> Result<Tensor>;
    // The function, its last op, whether that runs again, and the derivative at 0.5.
    let (sin, cos) = 0.5f64.sin_cos();
    let cases: [(Function, Op, bool, f64); 5] = [
        (|x| x.try_tan()?.try_atan()?.try_asinh(), Op::ASINH, false, 1.25f64.sqrt().recip()),
        (|x| x.try_asinh(), Op::ASINH, false, 1.25f64.sqrt().recip()),
        // Two inputs are missing at once.
        (|x| x.try_sin()?.try_atan2(x), Op::ATAN2, false, (0.5 * cos - sin) / (0.25 + sin * sin)),
        // What is saved is the result, so the op has to run.
        (|x| x.try_exp(), Op::EXP, true, 0.5f64.exp()),
        // Nothing after the first op is recorded.
        (|x| no_grad(|| x.try_asinh())?.try_add(&x.try_exp()?), Op::EXP, true, 0.5f64.exp()),
    ];
    for (k, (f, last, runs, expected)) in cases.into_iter().enumerate() {
        for early_stop in [true, false] {
            let x = leaf(0.5);
            let y = one(f, &x, &CheckpointOptions { early_stop, ..Default::default() });
            let seen = Arc::new(Seen(Mutex::default()));
            let guard = push_inner_layer(seen.clone());
            y.backward();
            drop(guard);
            let count = seen.0.lock().unwrap().iter().filter(|op| **op == last).count();
            let expected_count = usize::from(runs || !early_stop);
            assert_eq!(count, expected_count, "E-50: case {k}, early stop {early_stop}: {:?}", seen.0);
            close(&grad(&x), &[expected]);
        }
    }
}
