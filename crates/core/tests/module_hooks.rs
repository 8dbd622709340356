//! Cases D-39 to D-49 and D-59 of docs/behaviour/autograd.md: hooks of modules.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::module::{
    Forward, HookOptions, Module, ModuleCore, ModuleHooks, Parameter, register_module_forward_hook,
    register_module_forward_pre_hook, register_module_full_backward_hook, register_module_full_backward_pre_hook,
};
use firebrand_core::{Error, Result, Tensor, collect_warnings};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<String>>>;

fn entries(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

fn show(grads: &[Option<Tensor>]) -> String {
    let one = |g: &Option<Tensor>| g.as_ref().map_or("none".into(), |g| g.item::<f64>().to_string());
    grads.iter().map(one).collect::<Vec<_>>().join(",")
}

fn scaled(grads: &[Option<Tensor>], k: f64) -> Vec<Option<Tensor>> {
    grads.iter().map(|g| g.as_ref().map(|g| g * k)).collect()
}

/// Multiplies by a constant.
#[derive(Module)]
struct Times {
    k: f64,
    core: ModuleCore,
}

fn times(k: f64) -> Times {
    Times { k, core: ModuleCore::new() }
}

impl Forward for Times {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x * self.k)
    }
}

/// A number beside the tensor: what PyTorch passes by keyword.
impl Forward<(Tensor, f64)> for Times {
    type Output = Tensor;
    fn forward(&self, (x, k): &(Tensor, f64)) -> Result<Tensor> {
        Ok(x * *k)
    }
}

/// Returns 2x, a number, and 3x.
#[derive(Module)]
struct Several(ModuleCore);

impl Forward<(Tensor, i64)> for Several {
    type Output = (Tensor, i64, Tensor);
    fn forward(&self, (x, n): &(Tensor, i64)) -> Result<(Tensor, i64, Tensor)> {
        Ok((x * 2.0, *n, x * 3.0))
    }
}

/// Returns 2a and 3b.
#[derive(Module)]
struct Apart(ModuleCore);

impl Forward<(Tensor, Tensor)> for Apart {
    type Output = (Tensor, Tensor);
    fn forward(&self, (a, b): &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        Ok((a * 2.0, b * 3.0))
    }
}

/// D-59
#[test]
fn inputs_without_a_gradient_get_zeros() {
    let m = Apart(ModuleCore::new());
    let log = Log::default();
    let l = log.clone();
    m.register_full_backward_hook(move |_, gi, go| l.lock().unwrap().push(format!("{} | {}", show(gi), show(go))))
        .unwrap();
    for b in [leaf(5.0), Tensor::scalar(5.0)] {
        m.call(&(leaf(1.0), b)).0.backward();
    }
    assert_eq!(entries(&log), ["2,0 | 1,none", "2,0 | 1,none"]);
}

/// D-39
#[test]
fn order_of_kinds() {
    let m = times(3.0);
    let log = Log::default();
    let only = m.core().id();
    let note = |name: &str| {
        let (log, name) = (log.clone(), name.to_string());
        move || log.lock().unwrap().push(name.clone())
    };
    // Global hooks see every module of the process, so also those of tests that run beside this one.
    let (n1, n2, n3, n4) = (note("gfp"), note("gf"), note("gbp"), note("gb"));
    let global = [
        register_module_forward_pre_hook(move |m, _| {
            if m.core().id() == only {
                n1()
            }
        }),
        register_module_forward_hook(false, move |m, _, _| {
            if m.core().id() == only {
                n2()
            }
        }),
        register_module_full_backward_pre_hook(move |m, _| {
            if m.id == only {
                n3()
            }
        }),
        register_module_full_backward_hook(move |m, _, _| {
            if m.id == only {
                n4()
            }
        }),
    ];
    for (k, prepend) in [(1, false), (0, true)] {
        let options = HookOptions { prepend, always_call: false };
        let n = note(&format!("fp{k}"));
        m.register_forward_pre_hook_with(options, move |_, _| n());
        let n = note(&format!("f{k}"));
        m.register_forward_hook_with(options, move |_, _, _| n());
        let n = note(&format!("bp{k}"));
        m.register_full_backward_pre_hook_with(options, move |_, _| n());
        let n = note(&format!("b{k}"));
        m.register_full_backward_hook_with(options, move |_, _, _| n()).unwrap();
    }
    let y = m.call(&leaf(2.0));
    assert_eq!(entries(&log), ["gfp", "fp0", "fp1", "gf", "f0", "f1"]);
    log.lock().unwrap().clear();
    y.backward();
    assert_eq!(entries(&log), ["gbp", "bp0", "bp1", "gb", "b0", "b1"]);
    global.iter().for_each(|h| h.remove());
    log.lock().unwrap().clear();
    m.call(&leaf(2.0));
    assert_eq!(entries(&log), ["fp0", "fp1", "f0", "f1"]);
}

/// D-40
#[test]
fn backward_hooks_replace() {
    let (m, x, log) = (times(3.0), leaf(1.0), Log::default());
    m.register_full_backward_pre_hook(|_, go| scaled(go, 10.0));
    let l = log.clone();
    m.register_full_backward_hook(move |info, gi, go| {
        l.lock().unwrap().push(format!("{} {} {}", info.name, show(gi), show(go)));
        scaled(gi, 100.0)
    })
    .unwrap();
    m.call(&x).backward();
    assert_eq!(entries(&log), ["Times 30 10"]);
    assert_eq!(grad(&x), [3000.0]);
}

/// D-41
#[test]
fn wrong_number_of_gradients() {
    let m = times(3.0);
    let handle = m.register_full_backward_hook(|_, gi, _| vec![gi[0].clone(), gi[0].clone()]).unwrap();
    let y = m.call(&leaf(1.0));
    assert_err!(y.try_backward(&Default::default()), ModuleHookCount { module: "Times", expected: 1, found: 2, .. });
    handle.remove();
    m.register_full_backward_pre_hook(|_, go| vec![go[0].clone(), None]);
    let y = m.call(&leaf(1.0));
    assert_err!(y.try_backward(&Default::default()), ModuleHookCount { expected: 1, found: 2, .. });
    // The same for forward hooks.
    let m = times(3.0);
    m.register_forward_hook(|_, _, o| vec![o[0].clone(), o[0].clone()]);
    assert_err!(m.try_call(&leaf(1.0)), ModuleHookCount { expected: 1, found: 2, .. });
    let m = times(3.0);
    m.register_forward_pre_hook(|_, _| Vec::<Tensor>::new());
    assert_err!(m.try_call(&leaf(1.0)), ModuleHookCount { expected: 1, found: 0, .. });
}

/// D-42
#[test]
fn forward_hooks_replace() {
    let m = times(3.0);
    m.register_forward_pre_hook(|_, i| &i[0] * 10.0);
    m.register_forward_hook(|_, _, o| &o[0] + 1.0);
    assert_eq!(m.call(&leaf(2.0)).item::<f64>(), 61.0);
}

#[derive(Module)]
struct Linear {
    weight: Parameter,
    core: ModuleCore,
}

impl Forward for Linear {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x * &*self.weight)
    }
}

/// D-43
#[test]
fn no_input_requires_grad() {
    let m = Linear { weight: Parameter::new(Tensor::scalar(2.0f64)), core: ModuleCore::new() };
    let log = Log::default();
    let l = log.clone();
    let handle = m
        .register_full_backward_hook(move |_, gi, go| l.lock().unwrap().push(format!("{} {}", show(gi), show(go))))
        .unwrap();
    let y = m.call(&Tensor::scalar(5.0f64));
    let ((), warnings) = collect_warnings(|| y.backward());
    assert_eq!(entries(&log), ["none 1"]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(grad(&m.weight), [5.0]);
    // Nothing to replace, so a replacement is a mistake.
    handle.remove();
    m.register_full_backward_hook(|_, _, go| go.to_vec()).unwrap();
    let y = m.call(&Tensor::scalar(5.0f64));
    let (result, _) = collect_warnings(|| y.try_backward(&Default::default()));
    assert_err!(result, ModuleHookNoInput { module: "Linear" });
}

/// D-44
#[test]
fn outputs_are_views() {
    let m = times(3.0);
    m.register_full_backward_hook(|_, _, _| ()).unwrap();
    let y = m.call(&leaf(1.0));
    assert_err!(y.try_add_(&Tensor::scalar(1.0f64)), CustomFnViewInplace { indirect: false, .. });
}

/// D-45
#[test]
fn tensor_hooks_around_a_module() {
    let (m, log) = (times(3.0), Log::default());
    let note = |name: &'static str| {
        let log = log.clone();
        move || log.lock().unwrap().push(name.to_string())
    };
    let (n1, n2, n3, n4) = (note("in-tensor"), note("module-pre"), note("module-backward"), note("out-tensor"));
    let y0 = leaf(1.0) * 1.0;
    y0.register_hook(move |_| n1());
    m.register_full_backward_pre_hook(move |_, _| n2());
    m.register_full_backward_hook(move |_, _, _| n3()).unwrap();
    let y = m.call(&y0);
    y.register_hook(move |_| n4());
    y.backward();
    assert_eq!(entries(&log), ["out-tensor", "module-pre", "module-backward", "in-tensor"]);
}

/// D-46
#[test]
fn a_module_applied_twice() {
    let (m, x, log) = (times(3.0), leaf(1.0), Log::default());
    let l = log.clone();
    m.register_full_backward_hook(move |_, gi, go| l.lock().unwrap().push(format!("{} {}", show(gi), show(go))))
        .unwrap();
    m.call(&m.call(&x)).backward();
    assert_eq!(entries(&log), ["3 1", "9 3"]);
    assert_eq!(grad(&x), [9.0]);
}

/// Fails, or panics as ops without `try_` do.
#[derive(Module)]
struct Failing {
    panics: bool,
    core: ModuleCore,
}

impl Forward for Failing {
    type Output = Tensor;
    fn forward(&self, _: &Tensor) -> Result<Tensor> {
        if self.panics {
            panic!("no result")
        }
        Err(Error::user("no result"))
    }
}

/// D-47
#[test]
fn hooks_that_are_always_called() {
    for panics in [false, true] {
        let (m, log) = (Failing { panics, core: ModuleCore::new() }, Log::default());
        let l = log.clone();
        m.register_forward_hook(move |_, _, _| l.lock().unwrap().push("plain".into()));
        let l = log.clone();
        let always = HookOptions { prepend: false, always_call: true };
        m.register_forward_hook_with(always, move |_, i, o| {
            l.lock().unwrap().push(format!("always {} {}", i.len(), o.is_none()));
        });
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| m.try_call(&leaf(1.0))));
        match failed {
            Ok(result) => assert_eq!(result.unwrap_err().to_string(), "no result"),
            Err(panic) => assert_eq!(panic.downcast_ref::<&str>(), Some(&"no result")),
        }
        assert_eq!(entries(&log), ["always 1 true"]);
    }
}

/// D-47: a hook that ran before another one failed is not called again; what it returns then is too late.
#[test]
fn always_called_once() {
    let (m, log) = (times(3.0), Log::default());
    let always = HookOptions { prepend: false, always_call: true };
    for name in ["first", "second"] {
        let l = log.clone();
        m.register_forward_hook_with(always, move |_, _, o| {
            l.lock().unwrap().push(format!("{name} {}", o.is_some()));
            if name == "first" { Err(Error::user("hook")) } else { Ok(()) }
        });
    }
    assert_eq!(m.try_call(&leaf(1.0)).unwrap_err().to_string(), "hook");
    assert_eq!(entries(&log), ["first true", "second true"]);
}

/// D-48: hooks that see arguments which are no tensors; in Rust they know the types.
#[test]
fn typed_hooks() {
    let (m, log) = (times(1.0), Log::default());
    m.register_typed_forward_pre_hook(|_, (x, _): &(Tensor, f64)| Ok(Some((x.clone(), 5.0))));
    let l = log.clone();
    m.register_typed_forward_hook(move |_, (_, k): &(Tensor, f64), out: &Tensor| {
        l.lock().unwrap().push(k.to_string());
        Ok(Some(out * 2.0))
    });
    assert_eq!(m.call(&(leaf(1.0), 2.0)).item::<f64>(), 10.0);
    assert_eq!(entries(&log), ["5"]);
    assert_err!(m.try_call(&leaf(1.0)), ModuleHookType { module: "Times", .. });
}

/// D-49
#[test]
fn legacy_and_full_hooks_do_not_mix() {
    let (m, x, log) = (times(3.0), leaf(1.0), Log::default());
    let l = log.clone();
    let legacy = m.register_backward_hook(move |_, gi, go| {
        l.lock().unwrap().push(format!("{} {}", show(gi), show(go)));
    });
    assert_err!(m.register_full_backward_hook(|_, _, _| ()), MixedModuleHooks { module: "Times" });
    m.call(&x).backward();
    assert_eq!(entries(&log), ["3,none 1"]);
    legacy.unwrap().remove();
    m.register_full_backward_hook(|_, _, _| ()).unwrap();
    assert_err!(m.register_backward_hook(|_, _, _| ()), MixedModuleHooks { module: "Times" });
}

/// Places that hold no tensor have no gradient; an output that was not used has an undefined one.
#[test]
fn slots_of_other_values() {
    let (m, log) = (Several(ModuleCore::new()), Log::default());
    let l = log.clone();
    m.register_full_backward_hook(move |_, gi, go| l.lock().unwrap().push(format!("{}|{}", show(gi), show(go))))
        .unwrap();
    let x = leaf(1.0);
    let (a, n, _) = m.call(&(x.clone(), 7));
    assert_eq!(n, 7);
    a.backward();
    assert_eq!(entries(&log), ["2,none|1,none,none"]);
    assert_eq!(grad(&x), [2.0]);
}

/// With grad mode off nothing is installed, and a module keeps no tensor of a call alive.
#[test]
fn no_grad_installs_nothing() {
    let m = times(3.0);
    m.register_full_backward_hook(|_, _, _| -> () { panic!("no backward runs") }).unwrap();
    let x = leaf(1.0);
    let y = firebrand_core::autograd::no_grad(|| m.call(&x));
    assert!(!y.requires_grad() && !y.is_view());
    let weak = m.call(&x).downgrade();
    assert!(weak.upgrade().is_none());
}

/// A hook may remove itself; that counts from the next call.
#[test]
fn removal_while_running() {
    let (m, log) = (times(3.0), Log::default());
    let slot: Arc<Mutex<Option<firebrand_core::autograd::RemovableHandle>>> = Arc::default();
    let (l, s) = (log.clone(), slot.clone());
    let handle = m.register_forward_hook(move |_, _, _| {
        l.lock().unwrap().push("once".into());
        s.lock().unwrap().take().unwrap().remove();
    });
    *slot.lock().unwrap() = Some(handle);
    m.call(&leaf(1.0));
    m.call(&leaf(1.0));
    assert_eq!(entries(&log), ["once"]);
}
