//! Selective checkpointing: a policy says op by op which results are kept for the rerun and which are computed again.
//!
//! A layer below autograd around the first run keeps the results of the ops the policy names; one around a rerun hands them out
//! in the same order, per op, instead of calling the kernel. Views cost nothing and are never kept; ops that write cannot be. An op
//! that draws random numbers runs again even if its result is kept, so that later ones see the stream of the first run.

use super::checkpoint::{CheckpointContexts, ContextFn};
use super::engine::current_graph_task_keep_graph;
use crate::dispatch::{Interpreter, Next, Op, Outputs, Value, push_inner_layer};
use crate::record::Tags;
use crate::{Error, ErrorKind, Result, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// What becomes of the results of an op. PyTorch's `MUST_` and `PREFER_` policies differ for its compiler only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointPolicy {
    /// They are kept from the first run.
    Save,
    /// They are computed again.
    Recompute,
}

/// What a policy is asked about.
#[derive(Clone, Copy, Debug)]
pub struct SelectiveContext {
    /// Whether this is a rerun. The answer must be the same as in the first run.
    pub is_recompute: bool,
}

type Policy = dyn Fn(&SelectiveContext, Op, &[Value]) -> CheckpointPolicy + Send + Sync;

/// The results of one call, with the versions their memory had.
struct Kept {
    outputs: Outputs,
    versions: Vec<u32>,
}

fn tensors(outputs: &Outputs) -> impl Iterator<Item = &Tensor> {
    outputs.iter().flat_map(|v| match v {
        Value::Tensor(t) => std::slice::from_ref(t),
        Value::Tensors(list) => list,
        _ => &[],
    })
}

fn versions(outputs: &Outputs) -> Vec<u32> {
    tensors(outputs).map(Tensor::version).collect()
}

/// The same memory under new handles, which get histories of their own.
fn aliases(outputs: &Outputs) -> Outputs {
    let alias = |t: &Tensor| t.alias_with(t.layout().clone());
    outputs
        .iter()
        .map(|v| match v {
            Value::Tensor(t) => Value::Tensor(alias(t)),
            Value::Tensors(list) => Value::Tensors(list.iter().map(alias).collect()),
            other => other.clone(),
        })
        .collect()
}

#[derive(Default)]
struct Cache(Mutex<HashMap<Op, Vec<Option<Kept>>>>);

impl Cache {
    fn keep(&self, op: Op, outputs: &Outputs) {
        let kept = Kept { outputs: aliases(outputs), versions: versions(outputs) };
        self.0.lock().unwrap_or_else(|e| e.into_inner()).entry(op).or_default().push(Some(kept));
    }

    /// The results of the `k`-th call of an op. They are given away unless the graph is kept.
    fn take(&self, op: Op, k: usize) -> Result<Outputs> {
        let gone =
            |message: &str| Error::from(ErrorKind::CheckpointMismatch { message: format!("{}: {message}", op.name()) });
        let keeps = current_graph_task_keep_graph();
        let mut cache = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let Some(slot) = cache.get_mut(&op).and_then(|calls| calls.get_mut(k)) else {
            return Err(gone("the rerun calls it more often than the first run, or the policy answers differently"));
        };
        let Some(kept) = slot else {
            return Err(gone(
                "its kept results were used up by an earlier backward pass; a region under selective checkpointing can be \
                 differentiated again only if each pass but the last retains the graph",
            ));
        };
        if versions(&kept.outputs) != kept.versions {
            return Err(gone("a kept result was written in place since; recompute it, or write a copy"));
        }
        let outputs = aliases(&kept.outputs);
        let spent = if keeps { None } else { slot.take() };
        drop(cache);
        drop(spent);
        Ok(outputs)
    }
}

/// The layer around one run.
struct Selective {
    policy: Arc<Policy>,
    cache: Arc<Cache>,
    /// How often each op was called; only in a rerun.
    calls: Option<Mutex<HashMap<Op, usize>>>,
}

impl Interpreter for Selective {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        let context = SelectiveContext { is_recompute: self.calls.is_some() };
        if op.has(Tags::VIEW) || (self.policy)(&context, op, args) == CheckpointPolicy::Recompute {
            return next.call(op, args);
        }
        if op.schema().args.iter().any(|a| a.written) {
            let message = format!("{}: the results of an op that writes cannot be saved; recompute it", op.name());
            return Err(ErrorKind::CheckpointMismatch { message }.into());
        }
        let Some(calls) = &self.calls else {
            let outputs = next.call(op, args)?;
            self.cache.keep(op, &outputs);
            return Ok(outputs);
        };
        if op.has(Tags::NONDETERMINISTIC_SEEDED) {
            next.call(op, args)?;
        }
        let k = {
            let mut calls = calls.lock().unwrap_or_else(|e| e.into_inner());
            let count = calls.entry(op).or_default();
            *count += 1;
            *count - 1
        };
        self.cache.take(op, k)
    }
}

/// The contexts of one checkpoint.
struct SelectiveContexts {
    policy: Arc<Policy>,
    cache: Arc<Cache>,
}

impl CheckpointContexts for SelectiveContexts {
    fn forward(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let (policy, cache) = (self.policy.clone(), self.cache.clone());
        let _layer = push_inner_layer(Arc::new(Selective { policy, cache, calls: None }));
        run()
    }

    fn recompute(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let (policy, cache) = (self.policy.clone(), self.cache.clone());
        let _layer = push_inner_layer(Arc::new(Selective { policy, cache, calls: Some(Mutex::default()) }));
        run()
    }
}

/// A `context_fn` for [`checkpoint`](super::checkpoint()) that keeps the results of the ops a policy names.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::autograd::{CheckpointOptions, CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts};
/// use firebrand::{Tensor, dispatch::Op};
///
/// let products = create_selective_checkpoint_contexts(|_, op, _| match op {
///     Op::MM => CheckpointPolicy::Save,
///     _ => CheckpointPolicy::Recompute,
/// });
/// let options = CheckpointOptions { context_fn: Some(products), ..Default::default() };
/// let w = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]).requires_grad_();
/// let layer = |x: &[Tensor]| Ok(vec![x[0].try_mm(&x[0])?.try_sin()?]);
/// checkpoint(layer, &[&w], &options)?[0].sum().backward();
/// assert!(w.grad().is_some());
/// # Ok::<(), firebrand::Error>(())
/// ```
pub fn create_selective_checkpoint_contexts(
    policy: impl Fn(&SelectiveContext, Op, &[Value]) -> CheckpointPolicy + Send + Sync + 'static,
) -> ContextFn {
    let policy: Arc<Policy> = Arc::new(policy);
    ContextFn::new(move || SelectiveContexts { policy: policy.clone(), cache: Arc::default() })
}
