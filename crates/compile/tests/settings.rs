//! Settings of the process and of the engine around and inside compiled functions. They are everybody's, so this is a
//! program of its own, with one test.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/cases.rs"]
mod cases;

use cases::{Case, How, check, leaf_of};
use firebrand_compile::{Stance, set_stance, stance};
use firebrand_core::autograd::{
    ViewReplay, allow_mutation_on_saved_tensors, detect_anomaly, disable_saved_tensors_hooks,
    enforce_grad_layout_policy, is_anomaly_enabled, is_fwd_grad_enabled, is_grad_enabled, is_multithreading_enabled,
    is_view_replay_enabled, saved_tensors_hooks_disabled, set_checkpoint_early_stop, set_detect_anomaly,
    set_fwd_grad_enabled, set_grad_enabled, set_multithreading_enabled, set_view_replay,
};
use firebrand_core::backends::{set_winograd, winograd};
use firebrand_core::dtype::default_dtype;
use firebrand_core::module::{Forward, Module};
use firebrand_core::{
    DType, Tensor, TensorOptions, empty_cache, memory_stats, num_threads, reset_peak_memory, set_default_dtype,
    set_num_threads,
};
use firebrand_nn::layers::Dropout;
use std::sync::Arc;

/// A setting: its name, what a function does with it, what it is then, and how it is taken back.
type Setting = (&'static str, fn(), fn() -> String, fn());

const SETTINGS: &[Setting] = &[
    (
        "default dtype",
        || set_default_dtype(DType::F64),
        || default_dtype().to_string(),
        || set_default_dtype(DType::F32),
    ),
    ("threads", || set_num_threads(3), || num_threads().to_string(), || set_num_threads(2)),
    ("convolutions", || set_winograd(false), || winograd().to_string(), || set_winograd(true)),
    (
        "threads of the engine",
        || std::mem::forget(set_multithreading_enabled(false)),
        || is_multithreading_enabled().to_string(),
        || std::mem::forget(set_multithreading_enabled(true)),
    ),
    (
        "anomaly mode",
        || std::mem::forget(set_detect_anomaly(true, false)),
        || is_anomaly_enabled().to_string(),
        || std::mem::forget(set_detect_anomaly(false, false)),
    ),
    (
        "forward mode",
        || std::mem::forget(set_fwd_grad_enabled(false)),
        || is_fwd_grad_enabled().to_string(),
        || std::mem::forget(set_fwd_grad_enabled(true)),
    ),
    ("grad mode", || _ = set_grad_enabled(false), || is_grad_enabled().to_string(), || _ = set_grad_enabled(true)),
    (
        "view replay",
        || _ = set_view_replay(true),
        || is_view_replay_enabled().to_string(),
        || _ = set_view_replay(false),
    ),
    (
        "layouts of gradients",
        || std::mem::forget(enforce_grad_layout_policy(false)),
        String::new,
        || std::mem::forget(enforce_grad_layout_policy(true)),
    ),
    (
        "early stop of checkpoints",
        || std::mem::forget(set_checkpoint_early_stop(false)),
        String::new,
        || std::mem::forget(set_checkpoint_early_stop(true)),
    ),
    ("stance", || set_stance(Stance::PlainOnRecompile), || format!("{:?}", stance()), || set_stance(Stance::Default)),
    ("memory", || _ = memory_stats(), String::new, reset_peak_memory),
    ("kept memory", empty_cache, String::new, || {}),
];

/// Each is set in every call, and holds from there on.
fn set_inside(how: &How) {
    for (name, set, now, undo) in SETTINGS {
        let f = how.compile(move |x: &Tensor| {
            let y = x * 2.0;
            set();
            let made = Tensor::ones([3], TensorOptions::default());
            (y.sin(), made)
        });
        for k in 0..3 {
            undo();
            let x = leaf_of(k);
            let (y, made) = f(&x).unwrap();
            how.log.push(format!("{name} {} {} {}", now(), y.requires_grad(), made.dtype()));
            how.log.see(name, &y);
            undo();
        }
    }
}

/// Each scope is that of every call.
fn scopes_inside(how: &How) {
    let log = how.log.clone();
    let f = how.compile(move |x: &Tensor| {
        let y = x * 2.0;
        {
            let _anomaly = detect_anomaly(true);
            let _replay = ViewReplay::new(true);
            let _disabled = disable_saved_tensors_hooks("not here").unwrap();
            log.push(format!("{:?}", allow_mutation_on_saved_tensors().err().map(|e| e.to_string())));
        }
        log.push(format!("{:?} {}", saved_tensors_hooks_disabled(), is_anomaly_enabled()));
        y.sin()
    });
    for k in 0..3 {
        let _disabled = (k == 1).then(|| disable_saved_tensors_hooks("outside").unwrap());
        let x = leaf_of(k);
        f(&x).unwrap().sum().backward();
        how.log.grad("x", &x);
    }
}

/// What a function asks for is that of the call.
fn looked_at_inside(how: &How) {
    let module = Arc::new(Dropout::new(0.5));
    let asked = module.clone();
    let f = how.compile(move |x: &Tensor| {
        let mut y = x * 1.0;
        let all = [
            is_anomaly_enabled(),
            is_multithreading_enabled(),
            is_view_replay_enabled(),
            is_fwd_grad_enabled(),
            winograd(),
            num_threads() == 2,
            asked.is_training(),
            default_dtype() == DType::F32,
        ];
        for (k, _) in all.iter().enumerate().filter(|(_, on)| **on) {
            y = &y * (k as f64 + 2.0) + 1.0;
        }
        y
    });
    for k in 0..10 {
        let _anomaly = (k % 5 == 1).then(|| set_detect_anomaly(true, false));
        let _threads = (k % 5 == 2).then(|| set_multithreading_enabled(false));
        let _replay = (k % 5 == 3).then(|| ViewReplay::new(true));
        let _forward = (k % 5 == 4).then(|| set_fwd_grad_enabled(false));
        set_winograd(k % 4 != 1);
        set_num_threads(if k % 4 == 2 { 1 } else { 2 });
        set_default_dtype(if k % 4 == 3 { DType::F64 } else { DType::F32 });
        module.set_training(k % 3 != 0);
        how.log.see("y", &f(&leaf_of(k)).unwrap());
    }
    set_winograd(true);
    set_num_threads(2);
    set_default_dtype(DType::F32);
}

/// A module is switched inside.
fn training_inside(how: &How) {
    let module = Arc::new(Dropout::new(0.5));
    let switched = module.clone();
    let f = how.compile(move |x: &Tensor| {
        switched.set_training(false);
        let y = switched.forward(x)?;
        switched.set_training(true);
        y.try_add(&switched.forward(x)?)
    });
    for k in 0..4 {
        module.set_training(k % 2 == 0);
        how.log.see("y", &f(&leaf_of(k)).unwrap());
        how.log.push(module.is_training().to_string());
    }
}

#[test]
fn settings() {
    const CASES: &[Case] =
        &[("X-138", set_inside), ("X-138", scopes_inside), ("X-139", looked_at_inside), ("X-140", training_inside)];
    set_num_threads(2);
    check(CASES);
}
