//! Module hooks in and around compiled functions (J-31 to J-33, J-46 to J-73, L-4, L-10, U-120). Hooks on all modules
//! of the process are in `global_hooks`, by themselves.

mod common;

use common::*;
use firebrand_compile::{BreakKind, Error, Options, Shared, compile_module, compile_with};
use firebrand_core::autograd::{Removable, RemovableHandle};
use firebrand_core::module::{Forward, HookOptions, Module, ModuleHooks, Parameter};
use firebrand_core::{DType, Result, Tensor};
use firebrand_nn::layers::{Linear, ReLU, Sequential};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

fn x16() -> Tensor {
    Tensor::ones([2, 16], DType::F32)
}

/// The hooks around calls of a module, without the ends of tables.
fn hooks_of(m: &dyn Module) -> Vec<u64> {
    m.core().watch().hook_ids().into_iter().filter(|id| *id != 0).collect()
}

/// J-31: layers compiled one by one, each with a closure of its own that calls one function, share one graph.
#[test]
fn test_no_recompile_on_same_hook() {
    fn add_one(x: &[Tensor]) -> Vec<Tensor> {
        x.iter().map(|t| t + 1.0).collect()
    }
    for (name, c) in counted() {
        let layers: Vec<Arc<Linear>> = (0..10).map(|_| Arc::new(Linear::new(16, 16))).collect();
        let mut compiled = Vec::new();
        for layer in &layers {
            layer.register_forward_pre_hook(|_, x| add_one(x));
            compiled.push(compile_module::<_, Tensor>(layer.clone(), full(&c)));
        }
        for (layer, f) in layers.iter().zip(&compiled) {
            assert_eq!(f.call(&x16()).to_vec::<f32>(), layer.call(&x16()).to_vec::<f32>(), "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// J-32, L-10: hooks are guarded, always.
#[test]
fn test_nnmodule_hook_guards() {
    for (name, c) in counted() {
        let layer = Arc::new(Linear::new(16, 16));
        let f = compile_module::<_, Tensor>(layer.clone(), full(&c));
        let before = f.call(&x16());
        layer.register_forward_hook(|_, _, out| &out[0] * 2.0);
        let after = f.call(&x16());
        assert_eq!(after.to_vec::<f32>(), (before * 2.0).to_vec::<f32>(), "{name}");
        assert_eq!(after.to_vec::<f32>(), layer.call(&x16()).to_vec::<f32>(), "{name}");
        assert_eq!(c.frames(), 2, "{name}");
    }
}

/// J-33, L-10: hooks of the outermost module are part of the one graph.
#[test]
fn test_wrap_top_frame_with_hooks() {
    for (name, c) in counted() {
        let layer = Arc::new(Linear::new(16, 16));
        layer.register_forward_pre_hook(|_, x| &x[0] + 1.0);
        let expected = layer.call(&x16()).to_vec::<f32>();
        assert_eq!(
            compile_module::<_, Tensor>(layer.clone(), full(&c)).call(&x16()).to_vec::<f32>(),
            expected,
            "{name}"
        );
        assert_eq!(c.frames(), 1, "{name}");
        let held = layer.clone();
        let f = compile_with(move |x: &Tensor| held.try_call(x), full(&c));
        assert_eq!(f.call(&x16()).to_vec::<f32>(), expected, "{name}");
        assert_eq!(c.frames(), 2, "{name}");
    }
}

/// J-46, J-47, J-54: a hook registered and removed inside the function leaves the tables as they were; it runs after (or,
/// prepended, before) those that are there.
#[test]
fn test_register_forward_hook_inside_compiled_region() {
    for (name, c) in counted() {
        for (case, existing, prepend) in [("J-46", false, false), ("J-47", true, false), ("J-54", true, true)] {
            let layer = Arc::new(Linear::new(16, 16));
            if existing {
                layer.register_forward_pre_hook(|_, x| &x[0] * 3.0);
            }
            let held = layer.clone();
            let body = move |x: &Tensor| -> Result<Tensor> {
                let options = HookOptions { prepend, ..HookOptions::default() };
                let pre = held.register_forward_pre_hook_with(options, |_, x| &x[0] + 1.0);
                let post = held.register_forward_hook(|_, _, out| &out[0] + 1.0);
                let y = held.try_call(x);
                pre.remove();
                post.remove();
                y
            };
            let expected = body(&x16()).unwrap().to_vec::<f32>();
            let before = hooks_of(&*layer);
            let f = compile_with(body, full(&c));
            let frames = c.frames();
            for _ in 0..3 {
                assert_eq!(f.call(&x16()).to_vec::<f32>(), expected, "{case}, {name}");
                assert_eq!(hooks_of(&*layer), before, "{case}, {name}: the hooks are as they were");
            }
            assert_eq!(c.frames() - frames, 1, "{case}, {name}: one frame");
        }
    }
}

/// A hook that is registered inside and stays is registered at every call, as in a plain run.
#[test]
fn a_hook_that_stays_is_registered_at_every_call() {
    let layer = Arc::new(Linear::new(16, 16));
    let (held, other) = (layer.clone(), Arc::new(Linear::new(16, 16)));
    let f = compile_with(
        move |x: &Tensor| {
            held.register_forward_hook(|_, _, out| &out[0] * 1.0);
            other.try_call(x)
        },
        full(&counter()),
    );
    for n in 1..=3 {
        f.call(&x16());
        assert_eq!(hooks_of(&*layer).len(), n);
    }
}

/// J-48, J-49, J-50, J-56, J-58, J-69, J-71: the reference rewinds its counter of handles in these rows. Here numbers are
/// unique over the process and never used again, so no two hooks can collide and no guard can be fooled.
#[test]
fn handle_ids_are_unique_and_increasing() {
    struct Nothing;
    impl Removable for Nothing {
        fn remove(&self, _: u64) {}
        fn contains(&self, _: u64) -> bool {
            false
        }
    }
    let (layer, t, nothing) = (Linear::new(2, 2), ones_leaf(2), Arc::new(Nothing));
    let mut ids = Vec::new();
    for _ in 0..50 {
        let handle = layer.register_forward_hook(|_, _, _| ());
        handle.remove();
        ids.push(handle.id());
        ids.push(t.register_hook(|_: &Tensor| ()).id());
        ids.push(RemovableHandle::new(&nothing).id());
    }
    assert!(ids.is_sorted(), "J-48 to J-50, J-56, J-58, J-69, J-71");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
}

/// J-51: a hook that is removed and added again under a new number.
#[test]
fn test_existing_hook_key_replacement_preserves_runtime_key() {
    fn double(_: &dyn Module, _: &[Tensor], out: &[Tensor]) -> Tensor {
        &out[0] * 2.0
    }
    for (name, c) in counted() {
        let layer = Arc::new(Linear::new(16, 16));
        let first = layer.register_forward_hook(double);
        let f = compile_module::<_, Tensor>(layer.clone(), full(&c));
        let expected = f.call(&x16()).to_vec::<f32>();
        first.remove();
        let second = layer.register_forward_hook(double);
        assert_eq!(f.call(&x16()).to_vec::<f32>(), expected, "{name}");
        assert_eq!(hooks_of(&*layer), [second.id()], "{name}");
        assert!(c.frames() <= 2, "{name}");
    }
}

/// J-52, J-53: the numbers of hooks that a function reads are guarded.
#[test]
fn test_removable_handle_public_hook_dict_keys_replacement_recompiles() {
    for (name, c) in counted() {
        let layer = Arc::new(Linear::new(16, 16));
        let first = layer.register_forward_hook(|_, _, _| ());
        let held = layer.clone();
        let f = compile_with(
            move |x: &Tensor| {
                held.try_call(x)?;
                Ok(x + hooks_of(&*held).iter().sum::<u64>() as f64)
            },
            full(&c),
        );
        assert_eq!(f.call(&x16()).to_vec::<f32>()[0], 1.0 + first.id() as f32, "{name}");
        first.remove();
        let second = layer.register_forward_hook(|_, _, _| ());
        assert_eq!(f.call(&x16()).to_vec::<f32>()[0], 1.0 + second.id() as f32, "{name}");
        assert_eq!(c.frames(), 2, "{name}");
    }
}

/// J-55: what a handle can be made for is said by its type; the documentation of `RemovableHandle::new` has the refusal.
#[test]
fn test_removable_handle_plain_dict_matches_eager_type_error() {
    fn takes_owners<R: Removable + 'static>(_: fn(&Arc<R>) -> RemovableHandle) {}
    struct Owner;
    impl Removable for Owner {
        fn remove(&self, _: u64) {}
        fn contains(&self, _: u64) -> bool {
            false
        }
    }
    takes_owners::<Owner>(RemovableHandle::new);
}

/// J-57, J-72: the number of a handle born in the capture is known only at run time.
#[test]
fn test_removable_handle_id_read_after_allocation_graph_breaks() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                let id = x.register_hook(|_: &Tensor| ()).id();
                x + id as f64
            },
            full(&c),
        );
        let refused = f.try_call(&ones_leaf(1)).map(drop).unwrap_err();
        assert!(matches!(&refused, Error::GraphBreak(b) if b.kind == BreakKind::HandleId), "{name}: {refused}");
    }
}

/// J-59, J-60 to J-68, J-70: without fullgraph the number is the call's own, whatever host containers do with it.
#[test]
fn test_removable_handle_id_read_after_allocation_uses_runtime_id() {
    for (name, c) in counted() {
        let seen: Shared<Vec<i64>> = Shared::default();
        let held = seen.clone();
        let f = compile_with(
            move |x: &Tensor| {
                let id = x.register_hook(|_: &Tensor| ()).id();
                held.with(|seen| seen.push(id as i64));
                let map = HashMap::from([(id, 5.0), (u64::MAX, 7.0)]);
                let set = HashSet::from([id]);
                let float = f64::from(u32::try_from(id).expect("a test makes few handles"));
                assert!(set.contains(&id) && !set.contains(&(id + 1)) && !map.contains_key(&(id + 1)));
                x * map[&id] + float
            },
            with(&c),
        );
        let mut ids = HashSet::new();
        for _ in 0..2 {
            let x = ones_leaf(1);
            let y = f.call(&x);
            let id = *seen.with(|s| s.last().copied()).as_ref().expect("the function has run");
            assert_eq!(y.to_vec::<f64>(), [5.0 + id as f64], "J-59 to J-68, J-70, {name}");
            y.sum().backward();
            assert_eq!(grad(&x), [5.0], "J-59 to J-68, J-70, {name}");
            assert!(ids.insert(id), "J-59 to J-68, J-70, {name}: numbers are fresh");
        }
    }
}

/// J-73: with effects switched off the result is right and nothing is registered.
#[test]
fn test_removable_handle_next_id_respects_replay_side_effects_false() {
    for (name, c) in counted() {
        let f = compile_with(
            |x: &Tensor| {
                x.register_hook(|g: &Tensor| g * 10.0);
                x * 3.0
            },
            Options { replay_effects: false, ..full(&c) },
        );
        for _ in 0..2 {
            let x = ones_leaf(1);
            f.call(&x).sum().backward();
            assert_eq!(grad(&x), [3.0], "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// U-120, L-4: pre-hook x2, forward hook +1, backward hook x5 around a linear layer of ones and a relu.
#[test]
fn module_hooks_of_every_kind() {
    for (name, c) in counted() {
        let layer =
            firebrand_nn::layers::LinearOptions { bias: false, ..firebrand_nn::layers::LinearOptions::new(2, 2) }
                .build()
                .unwrap();
        firebrand_core::autograd::no_grad(|| {
            layer.weight.fill_(1.0);
        });
        layer.register_forward_pre_hook(|_, x| &x[0] * 2.0);
        layer.register_forward_hook(|_, _, out| &out[0] + 1.0);
        layer
            .register_full_backward_hook(|_, grad_inputs, _| {
                grad_inputs.iter().map(|g| g.as_ref().map(|g| g * 5.0)).collect::<Vec<_>>()
            })
            .unwrap();
        let net = Arc::new(Sequential::new().then(layer).then(ReLU::new()));
        let f = compile_module::<_, Tensor>(net, full(&c));
        for _ in 0..2 {
            let x = Tensor::ones([1, 2], DType::F32).requires_grad_();
            let y = f.call(&x);
            y.sum().backward();
            assert_eq!((y.to_vec::<f32>(), grad(&x)), (vec![5.0; 2], vec![20.0; 2]), "{name}");
        }
        assert_eq!(c.frames(), 1, "{name}");
    }
}

/// The state dictionary of a compiled module has the names of the module itself.
#[test]
fn state_names_are_never_prefixed() {
    let layer = Arc::new(Linear::new(2, 2));
    let f = compile_module::<_, Tensor>(layer.clone(), full(&counter()));
    let names = |m: &dyn Module| m.state_dict().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&f), names(&*layer));
    let _: Vec<Parameter> = f.parameters();
}
