//! The module tree: names, sharing, modes, conversions, state dictionaries, and the derive macro.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::module::{
    AsModule, Buffer, Forward, IncompatibleKeys, Module, ModuleCore, ModuleField, ModuleHooks, Parameter, StateDict,
    TensorTree,
};
use firebrand_core::{DType, Result, Tensor};
use std::sync::Arc;

#[derive(Module)]
struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
    features: usize,
    core: ModuleCore,
}

impl Linear {
    fn new(features: usize) -> Linear {
        Linear {
            weight: Parameter::new(Tensor::full([features as i64], 2.0, DType::F64)),
            bias: Some(Parameter::new(Tensor::full([features as i64], 1.0, DType::F64))),
            features,
            core: ModuleCore::new(),
        }
    }
}

impl Forward for Linear {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x * &*self.weight;
        Ok(match &self.bias {
            Some(b) => y + &**b,
            None => y,
        })
    }
}

/// A shared weight, a shared module, buffers of both kinds.
#[derive(Module)]
struct Shared {
    a: Arc<Linear>,
    b: Linear,
    c: Arc<Linear>,
    p: Parameter,
    q: Buffer,
    r: Buffer,
    core: ModuleCore,
}

fn shared() -> Shared {
    let a = Arc::new(Linear::new(1));
    let mut b = Linear::new(1);
    b.weight = a.weight.clone();
    let one = || Tensor::full([1], 1.0, DType::F64);
    Shared {
        b,
        c: a.clone(),
        a,
        p: Parameter::new(one()),
        q: Buffer::new(one()),
        r: Buffer::non_persistent(one()),
        core: ModuleCore::new(),
    }
}

fn names<T>(list: Vec<(String, T)>) -> Vec<String> {
    list.into_iter().map(|(n, _)| n).collect()
}

/// The lists PyTorch gives for the same module.
#[test]
fn names_and_sharing() {
    let m = shared();
    assert_eq!(names(m.named_parameters()), ["p", "a.weight", "a.bias", "b.bias"]);
    assert_eq!(names(m.named_modules()), ["", "a", "b"]);
    assert_eq!(names(m.named_children()), ["a", "b", "c"]);
    assert_eq!(names(m.named_buffers()), ["q", "r"]);
    let keys: Vec<String> = m.state_dict().into_keys().collect();
    assert_eq!(keys, ["p", "q", "a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"]);
    assert_eq!(m.parameters().len(), 4);
    assert_eq!(m.name(), "Shared");
    let printed = "Shared(\n  (a): Linear()\n  (b): Linear()\n  (c): Linear()\n)";
    assert_eq!((format!("{m:?}"), format!("{:?}", m.as_module())), (printed.to_string(), printed.to_string()));
}

/// Lists, boxes, tuples and type parameters are members too; plain values are not.
#[test]
fn derive_finds_members_by_type() {
    type Layer = Box<dyn Forward<Tensor, Output = Tensor>>;

    #[derive(Module)]
    struct Everything<M, const N: usize>
    where
        M: ModuleField,
    {
        list: Vec<M>,
        pair: [Parameter; N],
        r#type: (Linear, f64),
        boxed: Layer,
        #[module(rename = "renamed")]
        other: Option<Linear>,
        absent: Option<Buffer>,
        #[module(skip)]
        cache: std::sync::Mutex<Option<Tensor>>,
        core: ModuleCore,
    }
    let p = || Parameter::new(Tensor::scalar(1.0f64));
    let m = Everything {
        list: vec![Linear::new(1), Linear::new(2)],
        pair: [p(), p()],
        r#type: (Linear::new(3), 0.5),
        boxed: Box::new(Linear::new(4)),
        other: Some(Linear::new(5)),
        absent: None,
        cache: Default::default(),
        core: ModuleCore::new(),
    };
    assert_eq!(names(m.named_children()), ["list.0", "list.1", "type.0", "boxed", "renamed"]);
    assert_eq!(names(m.named_parameters())[..3], ["pair.0", "pair.1", "list.0.weight"]);
    assert!(m.cache.lock().unwrap().is_none());
    // A box is seen through: what apply and hooks get is the module itself.
    let mut features = Vec::new();
    m.apply(&mut |m| features.extend(m.downcast_ref::<Linear>().map(|l| l.features)));
    assert_eq!(features, [1, 2, 3, 4, 5]);
    assert_eq!(m.boxed.call(&con(&[1.0, 1.0, 1.0, 1.0])).to_vec::<f64>(), [3.0; 4]);
    assert_eq!(m.r#type.1, 0.5);
}

/// Hooks of a module in a box run once.
#[test]
fn boxes_share_hooks() {
    let m: Box<dyn Forward<Tensor, Output = Tensor>> = Box::new(Linear::new(1));
    m.register_forward_hook(|_, _, o| &o[0] * 10.0);
    assert_eq!(m.call(&con(&[1.0])).to_vec::<f64>(), [30.0]);
    let inner: &dyn Forward<Tensor, Output = Tensor> = &*m;
    assert_eq!(inner.call(&con(&[1.0])).to_vec::<f64>(), [30.0]);
}

#[test]
fn modes_and_gradients() {
    let m = shared();
    assert!(m.is_training() && m.b.is_training());
    m.eval();
    assert!(!m.is_training() && !m.a.is_training() && !m.b.is_training());
    m.train();
    assert!(m.b.is_training());

    m.a.call(&con(&[3.0])).sum().backward();
    assert_eq!(grad(&m.a.weight), [3.0]);
    m.zero_grad();
    assert!(m.a.weight.grad().is_none());
    m.requires_grad_(false);
    assert!(!m.a.call(&con(&[3.0])).requires_grad());
    m.requires_grad_(true);
    assert!(m.b.weight.requires_grad() && m.b.weight.is_leaf());
}

/// The object of a parameter stays, so an optimizer that holds it goes on; its gradient is converted with it.
#[test]
fn conversion_keeps_objects() {
    let m = Linear::new(2);
    let held = m.weight.clone();
    let y = m.call(&con(&[1.0, 1.0])).sum();
    y.backward();
    m.to_dtype(DType::F32).unwrap();
    assert!(held.is_same(&m.weight));
    assert_eq!((held.dtype(), held.grad().unwrap().dtype()), (DType::F32, DType::F32));
    // A graph of before the change is still alive here; the new one does not accumulate through its node.
    m.zero_grad();
    m.call(&Tensor::new(&[1.0f32, 1.0])).sum().backward();
    assert_eq!(held.grad().unwrap().dtype(), DType::F32);
    let b = shared();
    b.to_dtype(DType::BF16).unwrap();
    assert_eq!(b.q.get().dtype(), DType::BF16);
}

#[test]
fn state_dict_round_trip() {
    let (m, other) = (shared(), shared());
    firebrand_core::autograd::no_grad(|| m.p.fill_(7.0));
    m.q.set(Tensor::full([1], 5.0, DType::F64));
    let state = m.state_dict();
    assert!(state.values().all(|t| !t.requires_grad()));
    assert!(state["p"].shares_storage(&m.p));
    assert!(other.load_state_dict(&state, true).unwrap().is_empty());
    assert_eq!((vals(&other.p), vals(&other.q.get())), (vec![7.0], vec![5.0]));
    assert!(other.p.requires_grad() && other.p.is_leaf());

    let one = || Tensor::full([1], 1.0, DType::F64);
    let partial = StateDict::from([("p".to_string(), one()), ("z".to_string(), one())]);
    let keys = other.load_state_dict(&partial, false).unwrap();
    let missing = ["q", "a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"].map(String::from).to_vec();
    assert_eq!(keys, IncompatibleKeys { missing, unexpected: vec!["z".into()] });
    assert_eq!(vals(&other.p), [1.0]);
}

/// Differences are all named, and nothing is copied when there are any.
#[test]
fn state_dict_that_does_not_fit() {
    let m = Linear::new(2);
    let state = StateDict::from([("weight".to_string(), con(&[9.0, 9.0])), ("extra".to_string(), con(&[1.0]))]);
    let e = m.load_state_dict(&state, true).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the state dictionary does not match module Linear: missing keys: bias; unexpected keys: extra"
    );
    assert_eq!(vals(&m.weight), [2.0, 2.0]);
    let state = StateDict::from([("weight".to_string(), con(&[9.0])), ("bias".to_string(), con(&[9.0, 9.0]))]);
    assert_err!(m.load_state_dict(&state, false), StateDict { .. });
    assert_eq!(vals(m.bias.as_ref().unwrap()), [1.0, 1.0]);
}

/// Hooks rename entries on the way out and back on the way in.
#[test]
fn state_dict_hooks() {
    let m = shared();
    m.b.register_state_dict_post_hook(|_, state, prefix| {
        if let Some(t) = state.shift_remove(&format!("{prefix}weight")) {
            state.insert(format!("{prefix}w"), t);
        }
    });
    let state = m.state_dict();
    assert!(state.contains_key("b.w") && !state.contains_key("b.weight"));
    assert_err!(m.load_state_dict(&state, true), StateDict { .. });
    let rename = m.b.register_load_state_dict_pre_hook(|_, state, prefix| {
        if let Some(t) = state.shift_remove(&format!("{prefix}w")) {
            state.insert(format!("{prefix}weight"), t);
        }
        Ok(())
    });
    assert!(m.load_state_dict(&state, true).unwrap().is_empty());
    rename.remove();
    m.register_load_state_dict_post_hook(|_, keys| {
        keys.missing.clear();
        keys.unexpected.clear();
        Ok(())
    });
    assert!(m.load_state_dict(&state, true).is_ok());
}

#[test]
fn trees_of_tensors() {
    let x = leaf(1.0);
    let tree = (x.clone(), 3usize, vec![Some(x.clone()), None], [x.clone()]);
    let mut slots = Vec::new();
    tree.visit_slots(&mut |t| slots.push(t.is_some()));
    assert_eq!(slots, [true, false, true, false, true]);
    let doubled = tree.replace(&mut |t| Ok(t * 2.0)).unwrap();
    assert_eq!(doubled.leaves().iter().map(|t| t.item::<f64>()).collect::<Vec<_>>(), [2.0; 3]);
}
