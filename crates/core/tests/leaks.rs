//! Nothing is kept longer than it is needed: live bytes over many steps, graphs that die with their tensors, hooks that
//! let go of what they captured.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use firebrand_core::autograd::{
    BackwardOptions, allow_mutation_on_saved_tensors, checkpoint, get_gradient_edge, queue_callback,
    register_multi_grad_hook, register_multi_grad_hook_any, saved_tensors_hooks,
};
use firebrand_core::module::{Forward, Module, ModuleCore, ModuleHooks, Parameter};
use firebrand_core::{DType, Error, Result, Tensor, memory_stats};
use std::sync::{Arc, Mutex};

#[derive(Module)]
struct Layer {
    weight: Parameter,
    core: ModuleCore,
}

impl Forward for Layer {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok((x * &*self.weight).tanh())
    }
}

/// One training step that registers and fires a hook of every kind.
fn step(m: &Layer, x: &Tensor) {
    let unpacked = saved_tensors_hooks(|t| Ok(t.detach()), |t: &Tensor| Ok(t.clone())).unwrap();
    let y = m.call(x);
    drop(unpacked);
    let y = checkpoint(|t| Ok(vec![t[0].sin()]), &[&y], &Default::default()).unwrap().remove(0);
    y.register_hook(|g| g * 1.0);
    y.retain_grad();
    let node = y.grad_fn().unwrap();
    node.register_prehook(|_| Ok(None));
    node.register_hook(|_, _| Ok(None));
    let edge = get_gradient_edge(&m.weight).unwrap();
    edge.node.register_hook(|_, _| queue_callback(|| Ok(())).map(|()| None));
    let all = register_multi_grad_hook(&[&y, &m.weight], |_| Ok(())).unwrap();
    let any = register_multi_grad_hook_any(&[&y, &m.weight], |_| Ok(())).unwrap();
    let leaf = m.weight.register_hook(|g| g * 1.0);
    let after = m.weight.try_register_post_accumulate_grad_hook(|_| ()).unwrap();
    y.sum().backward();
    [leaf, after].iter().for_each(|h| h.remove());
    all.remove();
    any.remove();
    m.zero_grad();
}

/// Runs a test on a thread of its own, one at a time: live bytes are the process's, and a thread reports the last of its
/// own when it ends.
fn alone(test: impl FnOnce() + Send) {
    static ONE: Mutex<()> = Mutex::new(());
    let _turn = ONE.lock().unwrap_or_else(|e| e.into_inner());
    if cfg!(target_family = "wasm") {
        return test();
    }
    std::thread::scope(|s| s.spawn(test).join()).unwrap_or_else(|p| std::panic::resume_unwind(p));
}

/// 10,000 steps with hooks of every kind leave as many live bytes as one.
#[test]
fn live_bytes_stay_flat() {
    alone(|| {
        let m = Layer { weight: Parameter::new(Tensor::full([64], 0.5, DType::F32)), core: ModuleCore::new() };
        m.register_forward_pre_hook(|_, i| &i[0] * 1.0);
        m.register_forward_hook(|_, _, o| &o[0] * 1.0);
        m.register_full_backward_pre_hook(|_, _| ());
        m.register_full_backward_hook(|_, _, _| ()).unwrap();
        let x = Tensor::ones([64], DType::F32).requires_grad_();
        for _ in 0..10 {
            step(&m, &x);
            x.zero_grad();
        }
        let before = memory_stats().live;
        for _ in 0..10_000 {
            step(&m, &x);
            x.zero_grad();
        }
        assert_eq!(memory_stats().live, before);
    });
}

/// Dropping the result drops its graph with all it saved, also after a run that failed in a hook.
#[test]
fn graphs_die_with_their_tensors() {
    alone(|| {
        let x = Tensor::ones([1000], DType::F64).requires_grad_();
        let before = memory_stats().live;
        let inner = x.exp();
        let (weak, y) = (inner.downgrade(), (&inner * &inner).tanh().sum());
        drop(inner);
        assert!(memory_stats().live > before);
        drop(y);
        assert!(weak.upgrade().is_none());
        assert_eq!(memory_stats().live, before);

        // What a failed run left in a multi-grad hook goes when the next run comes along.
        let (a, b) = (leaf(1.0), leaf(2.0));
        let multi = register_multi_grad_hook(&[&a, &b], |_| Ok(())).unwrap();
        let before = memory_stats().live;
        for _ in 0..3 {
            let seen: Arc<Mutex<Vec<firebrand_core::WeakTensor>>> = Arc::default();
            let s = seen.clone();
            let watch = a.register_hook(move |g| s.lock().unwrap().push(g.downgrade()));
            let failing = b.register_hook(|_| Err::<(), _>(Error::user("stop")));
            // The gradient of `a` arrives first, then that of `b` fails.
            assert_eq!((&a + &b * 2.0).try_backward(&BackwardOptions::default()).unwrap_err().to_string(), "stop");
            [watch, failing].iter().for_each(|h| h.remove());
            assert_eq!(seen.lock().unwrap().len(), 1);
            (&a + &b).backward();
            a.zero_grad();
            b.zero_grad();
            assert!(seen.lock().unwrap()[0].upgrade().is_none());
            assert_eq!(memory_stats().live, before);
        }
        multi.remove();
    });
}

/// A hook that captures its own tensor is a cycle; removing the hook breaks it.
#[test]
fn removing_a_hook_breaks_its_cycle() {
    alone(|| {
        let before = memory_stats().live;
        let y = Tensor::ones([1000], DType::F64).requires_grad_() * 2.0;
        let (weak, own) = (y.downgrade(), y.clone());
        let handle = y.register_hook(move |g| g + &own);
        drop(y);
        assert!(weak.upgrade().is_some(), "the hook keeps its tensor alive");
        handle.remove();
        assert!(weak.upgrade().is_none());
        assert_eq!(memory_stats().live, before);

        // Also when the hook removes itself while it runs.
        let x = leaf(1.0);
        let y = &x * 2.0;
        let (weak, own) = (y.downgrade(), y.clone());
        let slot: Arc<Mutex<Option<firebrand_core::autograd::RemovableHandle>>> = Arc::default();
        let s = slot.clone();
        *slot.lock().unwrap() = Some(y.register_hook(move |g| {
            s.lock().unwrap().take().unwrap().remove();
            g + &own
        }));
        y.backward();
        assert_eq!(grad(&x), [6.0]);
        drop(y);
        assert!(weak.upgrade().is_none());
    });
}

/// A scope that allows mutation keeps nothing of graphs that are gone.
#[test]
fn allow_mutation_keeps_nothing() {
    alone(|| {
        let x = Tensor::ones([1000], DType::F64).requires_grad_();
        let before = memory_stats().live;
        {
            let _scope = allow_mutation_on_saved_tensors().unwrap();
            for _ in 0..10 {
                let b = x.clone_tensor();
                let y = b.sin();
                b.mul_(&Tensor::scalar(2.0f64));
                y.sum().backward();
                x.zero_grad();
            }
        }
        assert_eq!(memory_stats().live, before);
    });
}
