//! Compiled equals plain: programs run plainly and compiled, on every back end, with and without compiled backward.
//!
//! A case is a function of [`How`]: it compiles what it wants compiled through it, and writes everything a user can see to
//! its log: values, gradients, which hooks ran with what, errors. The log of the plain run is what every other run must give.
//! Ids are those of docs/behaviour/compile-and-hooks.md, section (l).
#![allow(dead_code)] // every test file uses a part of it

use firebrand_compile::backward::{CompiledBackward, Options as BackwardOptions};
use firebrand_compile::{Backend, Options, Outcome, Tree, backends, compile_with};
use firebrand_core::Tensor;
use firebrand_core::random::{Generator, with_generator};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// How a case is run, and what it has seen.
pub(crate) struct How {
    pub(crate) backend: Option<Arc<dyn Backend>>,
    pub(crate) log: Log,
}

/// What a run has seen.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn push(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    /// A tensor under a name.
    pub(crate) fn see(&self, name: &str, t: &Tensor) {
        self.push(format!("{name} {}", shown(t)));
    }

    /// A tensor that may be missing.
    pub(crate) fn see_opt(&self, name: &str, t: Option<&Tensor>) {
        self.push(format!("{name} {}", t.map_or("none".to_string(), shown)));
    }

    /// The gradient of a leaf.
    pub(crate) fn grad(&self, name: &str, t: &Tensor) {
        self.see_opt(&format!("{name}.grad"), t.grad().as_ref());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Numbers to nine digits: back ends may sum in another order.
pub(crate) fn shown(t: &Tensor) -> String {
    if t.is_meta() {
        return format!("meta {:?}", t.shape());
    }
    let values: Vec<String> = t.detach().to_vec::<f64>().iter().map(|v| format!("{:.9}", v + 0.0)).collect();
    format!("{:?} [{}]", t.shape(), values.join(", "))
}

pub(crate) type Callable<I, O> = Box<dyn Fn(&I) -> Result<O, String> + Send + Sync>;

impl How {
    /// The function as this run calls it.
    pub(crate) fn compile<I, R, F>(&self, f: F) -> Callable<I, R::Tree>
    where
        I: Tree,
        R: Outcome,
        R::Tree: Send + Sync,
        F: Fn(&I) -> R + Send + Sync + 'static,
    {
        match &self.backend {
            None => Box::new(move |x| f(x).outcome().map_err(|e| e.to_string())),
            Some(b) => {
                let compiled = compile_with(f, Options::with_backend(b.clone()));
                Box::new(move |x| compiled.try_call(x).map_err(|e| e.to_string()))
            }
        }
    }
}

/// A program: its id and what it does.
pub(crate) type Case = (&'static str, fn(&How));

pub(crate) fn run(case: fn(&How), backend: Option<Arc<dyn Backend>>) -> Vec<String> {
    let how = How { backend, log: Log::default() };
    let seeded = || with_generator(Generator::new(7), || case(&how));
    if let Err(panic) = catch_unwind(AssertUnwindSafe(seeded)) {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        how.log.push(format!("panic: {}", text.unwrap_or_default()));
    }
    how.log.lines()
}

/// Every back end, with and without compiled backward.
pub(crate) fn ways() -> Vec<(String, Arc<dyn Backend>, Option<CompiledBackward>)> {
    let mut ways = Vec::new();
    for name in ["eager", "aot_eager", "aot_eager_decomp", "firebrand"] {
        let make = || backends::backend(name).unwrap();
        ways.push((name.to_string(), make(), None));
        let compiled = CompiledBackward::new(BackwardOptions::with_backend(make()));
        ways.push((format!("{name}, compiled backward"), make(), Some(compiled)));
    }
    ways
}

/// Runs every case in every way and tells of all differences at once.
pub(crate) fn check(cases: &[Case]) {
    let only = std::env::var("FIREBRAND_CASE").ok();
    let mut wrong = Vec::new();
    for (id, case) in cases.iter().filter(|(id, _)| only.as_ref().is_none_or(|o| id.contains(o.as_str()))) {
        let plain = run(*case, None);
        assert!(!plain.is_empty(), "{id} sees something");
        for (way, backend, backward) in ways() {
            let _scope = backward.as_ref().map(CompiledBackward::enable);
            let found = run(*case, Some(backend));
            if found != plain {
                let at = (0..plain.len().max(found.len())).find(|&k| plain.get(k) != found.get(k)).unwrap_or(0);
                wrong.push(format!(
                    "{id} on {way}, line {at}:\n  plain {:?}\n  found {:?}",
                    plain.get(at),
                    found.get(at)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

/// A leaf.
pub(crate) fn leaf(values: &[f64]) -> Tensor {
    Tensor::new(values).requires_grad_()
}

/// The leaf of a call: other numbers each time.
pub(crate) fn leaf_of(call: usize) -> Tensor {
    let start = call as f64 + 1.0;
    leaf(&[start, start + 1.0, start + 2.0])
}

/// `n` numbers.
pub(crate) fn ramp(n: usize) -> Tensor {
    Tensor::new(&(0..n).map(|k| k as f64 * 0.5 + 1.0).collect::<Vec<_>>()).requires_grad_()
}
