//! What the user has switched on goes along wherever the work goes: to a thread that takes over the state, and to the one on
//! which the engine continues when nested backward passes get deep. An isolated call sees none of it.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use firebrand_core::autograd::{
    AutocastGuard, AutocastOptions, BackwardOptions, CheckpointOptions, Context, Function, NoGrad,
    allow_mutation_on_saved_tensors, autocast_dtype, checkpoint, current_graph_task_id, enable_grad,
    is_autocast_enabled, is_grad_enabled, set_checkpoint_early_stop, set_detect_anomaly,
};
use firebrand_core::fusion::keep_attention_whole;
use firebrand_core::random::{initial_seed, with_generator};
use firebrand_core::state::ThreadState;
use firebrand_core::sym::{self, SymNode};
use firebrand_core::{DType, Device, Layout, Result, Spec, SymInt, Tensor, collect_warnings, ops, random, warn};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

type Probe = fn() -> String;
/// Runs its argument inside the scope.
type Within = fn(&mut dyn FnMut());

/// A scope, what shows that code runs inside it, and what that shows inside and outside.
struct Scope {
    name: &'static str,
    within: Within,
    probe: Probe,
    inside: &'static str,
    outside: &'static str,
}

const SCOPES: &[Scope] = &[
    Scope {
        name: "grad mode",
        within: |f| {
            let _off = NoGrad::new();
            f()
        },
        // A backward pass records nothing anyway.
        probe: || (is_grad_enabled() && current_graph_task_id() < 0).to_string(),
        inside: "false",
        outside: "true",
    },
    Scope {
        name: "autocast",
        within: |f| {
            let options = AutocastOptions { enabled: true, dtype: DType::BF16, cache_enabled: false };
            let _region = AutocastGuard::new(options);
            f()
        },
        probe: || format!("{} {}", is_autocast_enabled(), is_autocast_enabled().then(autocast_dtype).is_some()),
        inside: "true true",
        outside: "false false",
    },
    Scope {
        name: "a generator of one's own",
        within: |f| with_generator(random::Generator::new(7), f),
        probe: || (initial_seed() == 7).to_string(),
        inside: "true",
        outside: "false",
    },
    Scope {
        name: "collected warnings",
        within: |f| {
            let (_, warnings) = collect_warnings(f);
            assert!(!warnings.is_empty() && warnings.iter().all(|w| w == "here"), "{warnings:?}");
        },
        // A collector of its own takes what an inner one does not: the outer list is checked above.
        probe: || {
            warn("here");
            "told".into()
        },
        inside: "told",
        outside: "told",
    },
    Scope {
        name: "early stop of checkpoints",
        within: |f| {
            let _choice = set_checkpoint_early_stop(false);
            f()
        },
        probe: runs_of_a_checkpoint,
        inside: "2",
        outside: "1",
    },
    Scope {
        name: "attention as a whole",
        within: |f| {
            let _whole = keep_attention_whole();
            f()
        },
        probe: || attention_node().starts_with("ScaledDotProduct").to_string(),
        inside: "true",
        outside: "false",
    },
    Scope {
        name: "writes to saved tensors",
        within: |f| {
            let _allowed = allow_mutation_on_saved_tensors().unwrap();
            f()
        },
        probe: || gradient_after_a_write().map_or("refused".into(), |g| g.to_string()),
        inside: "4",
        outside: "refused",
    },
    Scope {
        name: "symbolic sizes",
        within: |f| {
            let (_, record) = sym::record(f);
            assert!(!record.nodes.is_empty(), "what another thread met is in the record");
        },
        probe: || matches!(SymInt::symbol(0, 5).parts(), Some(SymNode::Symbol(0))).to_string(),
        inside: "true",
        outside: "false",
    },
];

/// How often the last statement of a checkpointed function runs: a rerun that stops early does not reach it.
fn runs_of_a_checkpoint() -> String {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    enable_grad(|| {
        let x = leaf(1.0);
        let f = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let y = x[0].sin();
            count.fetch_add(1, Relaxed);
            Ok(vec![y])
        };
        checkpoint(f, &[&x], &CheckpointOptions::default()).unwrap()[0].backward();
    });
    runs.load(Relaxed).to_string()
}

fn attention_node() -> String {
    let operand = || {
        let spec = Spec { layout: Layout::contiguous(&[1, 2, 3, 4])?, dtype: DType::F64, device: Device::Meta };
        Tensor::try_empty(spec)?.try_requires_grad_(true)
    };
    let x = [operand().unwrap(), operand().unwrap(), operand().unwrap()];
    enable_grad(|| {
        let out = ops::scaled_dot_product_attention(&x[0], &x[1], &x[2], None, 0.0, false, None, false).unwrap();
        node_name(&out)
    })
}

/// The gradient of a square whose operand is overwritten before backward.
fn gradient_after_a_write() -> Result<f64> {
    enable_grad(|| {
        let x = leaf(2.0);
        let a = &x * 1.0;
        let y = ops::mul(&a, &a)?;
        ops::mul_scalar_(&a.detach(), 0.0.into())?;
        y.try_backward(&BackwardOptions::default())?;
        Ok(grad(&x)[0])
    })
}

/// Runs `probe` on a fresh thread in the state of this one.
fn on_another_thread(probe: Probe) -> String {
    let here = ThreadState::capture();
    std::thread::spawn(move || here.run(probe)).join().unwrap()
}

/// Runs `probe` inside nested backward passes, so many that the engine has moved to another thread.
fn in_a_deep_backward(probe: Probe) -> String {
    type Found = Arc<Mutex<Option<(std::thread::ThreadId, String)>>>;
    fn nest(depth: usize, probe: Probe, found: &Found) {
        if depth == 0 {
            let seen = (std::thread::current().id(), probe());
            *found.lock().unwrap() = Some(seen);
            return;
        }
        let found = found.clone();
        let x = enable_grad(|| {
            let x = leaf(1.0);
            x.register_hook(move |_: &Tensor| nest(depth - 1, probe, &found));
            &x + 1.0
        });
        x.backward();
    }
    let found = Found::default();
    nest(70, probe, &found);
    let (thread, seen) = found.lock().unwrap().take().unwrap();
    assert_ne!(thread, std::thread::current().id(), "70 nested runs are more than one stack holds");
    seen
}

#[test]
fn scopes_go_where_the_work_goes() {
    for Scope { name, within, probe, inside, outside } in SCOPES {
        let check = |place: &str, found: String, expected: &str| assert_eq!(found, expected, "{name}: {place}");
        if *name != "collected warnings" {
            check("outside", probe(), outside);
        }
        let mut ran = false;
        within(&mut || {
            check("in place", probe(), inside);
            check("on another thread", on_another_thread(*probe), inside);
            check("in a deep backward pass", in_a_deep_backward(*probe), inside);
            check("isolated", ThreadState::isolated(probe), outside);
            check("in place, afterwards", probe(), inside);
            ran = true;
        });
        assert!(ran, "{name}");
    }
}

/// One stream: what the thread that takes over draws, the first does not draw again.
#[test]
fn a_stream_of_random_numbers_goes_on() {
    let draw = || Tensor::randn([1], DType::F64).item::<f64>();
    let expected = with_generator(random::Generator::new(7), || [draw(), draw(), draw()]);
    let found = with_generator(random::Generator::new(7), || {
        let (first, here) = (draw(), ThreadState::capture());
        let second = std::thread::spawn(move || here.run(draw)).join().unwrap();
        [first, second, draw()]
    });
    assert_eq!(found, expected);
}

/// What only exists inside a node's backward: the run, the node that is executed, the buffers it may add to.
struct Elsewhere(Arc<Mutex<Vec<String>>>);

impl Function for Elsewhere {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![&inputs[0] * 3.0])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let seen = || {
            let made = enable_grad(|| leaf(1.0).sin());
            let parent = made.grad_fn().unwrap().metadata().contains_key("parent_");
            (current_graph_task_id(), parent, ctx.input_grad_buffers().map(|b| b[0].is_some()))
        };
        let here = ThreadState::capture();
        let [near, far] = [seen(), std::thread::scope(|s| s.spawn(|| here.run(seen)).join().unwrap())];
        let shown = |(run, parent, buffers): (i64, bool, Result<bool>)| format!("{} {parent} {buffers:?}", run >= 0);
        self.0.lock().unwrap().extend([shown(near), shown(far)]);
        Ok(vec![Some(grads[0].as_ref().unwrap() * 3.0)])
    }
    fn uses_input_grad_buffers(&self) -> bool {
        true
    }
}

#[test]
fn what_a_node_may_ask_goes_along() {
    let run = |anomaly: bool| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let _anomaly = set_detect_anomaly(anomaly, false);
        let x = leaf(2.0);
        let y = Elsewhere(log.clone()).apply(&[&x]).unwrap().remove(0);
        (&y + &x).backward();
        assert_eq!(grad(&x), [4.0]);
        let seen = log.lock().unwrap().clone();
        assert_eq!(seen[0], seen[1], "on this thread and on another");
        seen[0].clone()
    };
    // In anomaly mode nodes know the one that is executed, and there are no buffers to add to.
    assert!(run(true).starts_with("true true Err("), "{}", run(true));
    assert!(run(false).starts_with("true false Ok("), "{}", run(false));
}
