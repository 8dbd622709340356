//! Hooks on all modules of the process, in and around compiled functions (J-34, L-10). They act on every test that runs at the same
//! time, so these have a program of their own and run one by one.

mod common;

use common::*;
use firebrand_compile::{compile_module, effects};
use firebrand_core::module::{Forward, ModuleWatch, register_module_forward_pre_hook};
use firebrand_core::{DType, Tensor};
use firebrand_nn::layers::Linear;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// The only test that runs, while it lives.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn x16() -> Tensor {
    Tensor::ones([2, 16], DType::F32)
}

/// J-34, L-10: a hook on all modules that counts (as an effect) counts once per call.
#[test]
fn test_global_module_forward_pre_hook() {
    let _alone = alone();
    let count = Arc::new(AtomicUsize::new(0));
    let held = count.clone();
    let handle = register_module_forward_pre_hook(move |_, _| {
        let held = held.clone();
        effects::record(move || {
            held.fetch_add(1, Relaxed);
        });
    });
    let layer = Arc::new(Linear::new(16, 16));
    layer.call(&x16());
    assert_eq!(count.load(Relaxed), 1);
    let f = compile_module::<_, Tensor>(layer, full(&counter()));
    for expected in [2, 3] {
        f.call(&x16());
        assert_eq!(count.load(Relaxed), expected);
    }
    handle.remove();
}

/// Hooks of the whole process are part of the guards.
#[test]
fn global_hooks_are_guarded() {
    let _alone = alone();
    assert!(ModuleWatch::global_hook_ids().is_empty());
    let c = counter();
    let layer = Arc::new(Linear::new(16, 16));
    let f = compile_module::<_, Tensor>(layer, full(&c));
    let plain = f.call(&x16());
    let handle = register_module_forward_pre_hook(|_, x| &x[0] * 0.0);
    assert_ne!(f.call(&x16()).to_vec::<f32>(), plain.to_vec::<f32>());
    handle.remove();
    assert_eq!(f.call(&x16()).to_vec::<f32>(), plain.to_vec::<f32>());
    assert_eq!(c.frames(), 2);
}
