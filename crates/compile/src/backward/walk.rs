//! The engine's walk, recorded: a backward pass on meta tensors becomes a graph.
//!
//! A walk owns what the trace needs, so it may be made before a run and traced after it, when nodes have let go of what they
//! kept. Formulas run with outlines in place of kept tensors and with the numbers of this run; pure hooks run too. Everything
//! else becomes a `call_host` node at its place. Nothing of the run itself changes.

use super::host::{Hooked, HostKind, HostOp};
use super::key::{Key, is_number};
use crate::breaks::{BreakKind, GraphBreak};
use crate::error::{Error, Result};
use crate::front::watching;
use crate::joint::without_writes;
use firebrand_core::autograd::runner::{self, Defined, GraphTask, Place};
use firebrand_core::autograd::{BoxedBackward, Gradients, Look, Node, SavedTensor};
use firebrand_core::capture::TensorHookFn;
use firebrand_core::{Device, ErrorKind, Layout, Scalar, Spec, Tensor, fusion, ops};
use firebrand_graph::InnerTrace;
use firebrand_graph::interpret::Value;
use firebrand_graph::ir::{Argument, Function, GraphModule, NodeId, ScalarType, Target};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard};

/// A node of the pass.
struct Step {
    node: Node,
    executes: bool,
    targets: Vec<Option<Place>>,
    unwanted: u64,
    captures: Vec<(usize, usize)>,
    hooks: Hooked,
    formula: Formula,
}

enum Formula {
    /// Nothing to do beyond hooks and accumulation.
    Leaf,
    /// The node's own, which keeps no tensor.
    Own,
    /// One with outlines in place of tensors.
    Outlined(BoxedBackward),
    /// One that is called.
    Opaque,
}

/// A backward pass that can be traced.
pub(crate) struct Walk {
    steps: Vec<Step>,
    seeds: Vec<Place>,
    /// Outlines of seeds and kept tensors, in the order of the key.
    inputs: Vec<Tensor>,
    answers: usize,
    /// What becomes of pure hooks.
    hooks: PureHooks,
    /// Where reads of packed tensors are written down.
    reads: Arc<Reads>,
}

/// What becomes of pure hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PureHooks {
    /// They are traced, or called if that is not possible.
    Traced,
    /// They are traced, or an error.
    Required,
    /// They are called.
    Called,
}

/// A graph, what its slots stand for, and the pure hooks that are in it.
pub(crate) struct WalkTrace {
    pub(crate) graph: GraphModule,
    pub(crate) ops: Vec<HostOp>,
    pub(crate) hooks: Vec<TensorHookFn>,
}

fn outline(t: &Tensor) -> firebrand_core::Result<Tensor> {
    Tensor::try_empty(Spec { layout: t.layout().from_start(), dtype: t.dtype(), device: Device::Meta })
}

impl Walk {
    /// The walk of a run; an error if the graph has been freed.
    pub(crate) fn new(task: &GraphTask<'_>, key: &Key, hooks: PureHooks) -> Result<Walk> {
        let inputs = key.tensors.iter().map(outline).collect::<firebrand_core::Result<Vec<_>>>()?;
        let seeds: Vec<Place> = task.seeds().map(|(place, _)| place).collect();
        let mut kept = key.places.iter().map(|&place| &inputs[place]);
        let mut steps = Vec::with_capacity(task.len());
        let reads: Arc<Reads> = Arc::default();
        for i in 0..task.len() {
            let node = task.node(i).clone();
            let (executes, edges) = (task.executes(i), node.next_functions().len());
            let targets: Vec<Option<Place>> = (0..edges).map(|k| task.target(i, k)).collect();
            let unwanted = (0..edges.min(64)).filter(|k| targets[*k].is_none()).fold(0, |bits, k| bits | 1 << k);
            let mut packed = 0;
            let formula = match () {
                () if !executes || node.variable().is_some() => Formula::Leaf,
                () if key.opaque.contains(&i) => Formula::Opaque,
                () => {
                    let mut stand_in = |saved: &SavedTensor| {
                        Ok(match saved.look(&node)? {
                            Look::Tensor(t) if !is_number(t) => {
                                SavedTensor::unpacked(kept.next().expect("the key lists every kept tensor"))
                            }
                            Look::Packed(spec) => {
                                let place = packed;
                                packed += 1;
                                reads.packed(i, place, spec)?
                            }
                            Look::None | Look::Tensor(_) => saved.clone(),
                        })
                    };
                    match node.formula().outlined(&node, &mut stand_in)? {
                        Some(formula) => Formula::Outlined(formula),
                        None => Formula::Own,
                    }
                }
            };
            let (hooked, captures) = (Hooked::of(&node), task.captures(i).collect());
            steps.push(Step { node, executes, targets, unwanted, captures, hooks: hooked, formula });
        }
        Ok(Walk { steps, seeds, inputs, answers: task.answers(), hooks, reads })
    }

    /// Whether the nodes have the hooks that they had when the walk was made. If not, a trace would be of another run.
    pub(crate) fn is_of_now(&self) -> bool {
        self.steps.iter().all(|s| Hooked::of(&s.node).is_like(&s.hooks))
    }

    /// Whether formulas are called and not traced.
    pub(crate) fn calls_formulas(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.formula, Formula::Opaque))
    }

    /// Writes the pass down. `defined` says which gradients each step gave, where formulas are called; without, they are
    /// taken to give all. A formula that looks at numbers is called from then on.
    pub(crate) fn trace(&mut self, defined: Option<&[Defined]>) -> Result<WalkTrace> {
        loop {
            match self.try_trace(defined) {
                Ok(traced) => return Ok(traced),
                Err(Failure::Formula(i, e)) => {
                    let name = self.steps[i].node.name();
                    tracing::debug!(target: "firebrand::compile::backward", "{name} is called: {e}");
                    self.steps[i].formula = Formula::Opaque;
                }
                Err(Failure::Other(e)) => return Err(e),
            }
        }
    }

    fn try_trace(&self, defined: Option<&[Defined]>) -> Result<WalkTrace, Failure> {
        let tracer = InnerTrace::new();
        for (i, t) in self.inputs.iter().enumerate() {
            let seeds = self.seeds.len();
            tracer.input(&if i < seeds { format!("seed_{i}") } else { format!("saved_{}", i - seeds) }, t);
        }
        let host = Arc::new(Host { tracer: tracer.clone(), ops: Mutex::default() });
        let tracing = Tracing { walk: self, defined, host: host.clone() };
        let _whole = fusion::keep_attention_whole();
        let answers = {
            let _scope = self.reads.enter(host.clone());
            tracer.trace(|| tracing.run())?
        };
        let mut graph = without_writes(tracer.finish(&answers).map_err(Error::from)?)?;
        sweep(&mut graph)?;
        let pure = self.steps.iter().filter(|s| s.hooks.counts.pure > 0).flat_map(|s| runner::pure_hooks(&s.node));
        let ops = std::mem::take(&mut *lock(&host.ops));
        Ok(WalkTrace { graph, ops, hooks: pure.collect() })
    }
}

/// Why a trace ended.
enum Failure {
    /// The formula of a step cannot be traced.
    Formula(usize, firebrand_core::Error),
    Other(Error),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure::Other(e.into())
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Where the calls of a trace are written down.
struct Host {
    tracer: InnerTrace,
    ops: Mutex<Vec<HostOp>>,
}

impl Host {
    fn call(
        &self,
        step: usize,
        kind: HostKind,
        values: &[Option<Tensor>],
        results: &[Option<Tensor>],
    ) -> firebrand_graph::Result<()> {
        let slot = {
            let mut ops = lock(&self.ops);
            ops.push(HostOp { step, kind });
            ops.len() - 1
        };
        let none_or = |t: &Option<Tensor>, f: &dyn Fn(&Tensor) -> Value| t.as_ref().map_or(Value::NONE, f);
        let list = |f: &dyn Fn(&Tensor) -> Value| Value::List(results.iter().map(|t| none_or(t, f)).collect());
        let sizes = |t: &Tensor| Value::List(t.shape().iter().map(|n| (*n as i64).into()).collect());
        let dtype = |t: &Tensor| Value::Constant(Argument::DType(ScalarType::from(t.dtype())));
        let args = [
            Value::Constant(kind.name().into()),
            (slot as i64).into(),
            Value::List(values.iter().map(|t| none_or(t, &|t| t.into())).collect()),
            list(&sizes),
            list(&dtype),
        ];
        self.tracer.call_tuple(Function::CallHost, &args, results)
    }
}

/// Reads of packed tensors: a formula that is traced calls the unpack hooks that it calls in an eager run, in that order.
#[derive(Default)]
struct Reads(Mutex<Option<Arc<Host>>>);

impl Reads {
    /// The tensor at this place among the packed ones of a step.
    fn packed(self: &Arc<Self>, step: usize, place: usize, spec: &Spec) -> firebrand_core::Result<SavedTensor> {
        let spec = Spec { layout: spec.layout.to_contiguous(), dtype: spec.dtype, device: Device::Meta };
        let (like, reads) = (Tensor::try_empty(spec.clone())?, self.clone());
        Ok(SavedTensor::read_by(&like, move || {
            let host = lock(&reads.0).clone();
            let host =
                host.ok_or_else(|| firebrand_core::Error::user("a packed tensor is read where nothing is traced"))?;
            let read = Tensor::try_empty(spec.clone())?;
            let done = host.call(step, HostKind::Unpack { place }, &[], &[Some(read.clone())]);
            done.map_err(firebrand_core::Error::user)?;
            Ok(read)
        }))
    }

    /// They go to this trace while the guard lives.
    fn enter(&self, host: Arc<Host>) -> impl Drop + '_ {
        struct End<'a>(&'a Reads);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                let ended = lock(&self.0.0).take();
                drop(ended);
            }
        }
        lock(&self.0).replace(host);
        End(self)
    }
}

struct Tracing<'a> {
    walk: &'a Walk,
    defined: Option<&'a [Defined]>,
    host: Arc<Host>,
}

impl Tracing<'_> {
    fn run(&self) -> Result<Vec<Option<Tensor>>, Failure> {
        let steps = &self.walk.steps;
        let mut arriving: Vec<Gradients> =
            steps.iter().map(|s| SmallVec::from_elem(None, s.node.input_metadata().len())).collect();
        let mut answers = vec![None; self.walk.answers];
        for (&place, seed) in self.walk.seeds.iter().zip(&self.walk.inputs) {
            deliver(&mut arriving, place, seed.clone())?;
        }
        for (i, step) in steps.iter().enumerate() {
            let mut grads = std::mem::take(&mut arriving[i]);
            if step.hooks.counts.tensor + step.hooks.counts.retained > 0 {
                grads = self.tensor_hooks(i, step, grads)?;
            }
            for &(slot, k) in &step.captures {
                answers[k] = grads[slot].clone();
            }
            if !step.executes {
                continue;
            }
            if step.hooks.counts.pre > 0 {
                grads = self.host(i, HostKind::PreHooks, &grads, &alike(&grads))?;
            }
            // A formula that is called calls them too.
            let hooked = step.hooks.counts.post > 0 && !matches!(step.formula, Formula::Opaque);
            let incoming = hooked.then(|| grads.clone());
            let mut outs = self.formula(i, step, grads)?;
            if let Some(incoming) = incoming {
                let values: Gradients = outs.iter().chain(&incoming).cloned().collect();
                let outgoing = outs.len();
                outs = self.host(i, HostKind::PostHooks { outgoing }, &values, &alike(&outs))?;
            }
            for (target, g) in step.targets.iter().zip(outs) {
                if let (Some(place), Some(g)) = (target, g) {
                    deliver(&mut arriving, *place, g)?;
                }
            }
        }
        Ok(answers)
    }

    /// Pure hooks become part of the graph if nothing else is on the value.
    fn tensor_hooks(&self, i: usize, step: &Step, grads: Gradients) -> Result<Gradients> {
        let pure = step.hooks.counts.pure == step.hooks.counts.tensor && step.hooks.counts.retained == 0;
        if pure && self.walk.hooks != PureHooks::Called {
            let mut traced = grads.clone();
            let (done, touched) = watching(|| runner::run_tensor_hooks(&step.node, &mut traced));
            match done {
                Ok(()) if !touched => return Ok(traced),
                // A hook that returns another kind of gradient than it got is wrong in any case.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::HookShape { .. } | ErrorKind::HookDtype { .. } | ErrorKind::HookUndefined { .. }
                    ) =>
                {
                    return Err(e.into());
                }
                Ok(()) => {}
                Err(e) if self.walk.hooks == PureHooks::Required => {
                    let what = format!("a hook on the gradient of {}: {e}", step.node.name());
                    return Err(Error::GraphBreak(GraphBreak { kind: BreakKind::ImpureHook, what, location: None }));
                }
                Err(e) => tracing::debug!(target: "firebrand::compile::backward", "a pure hook is called: {e}"),
            }
        }
        self.host(i, HostKind::TensorHooks, &grads, &alike(&grads))
    }

    fn formula(&self, i: usize, step: &Step, grads: Gradients) -> Result<Gradients, Failure> {
        let formula = match &step.formula {
            Formula::Leaf => {
                let bare = step.hooks.counts.tensor + step.hooks.counts.pre + step.hooks.counts.post == 0;
                let kind = match step.hooks.counts.post_accumulate {
                    0 => HostKind::Accumulate { bare },
                    _ => HostKind::AccumulateHooked { bare },
                };
                return Ok(self.host(i, kind, &grads, &[])?);
            }
            Formula::Opaque => return Ok(self.called(i, step, &grads)?),
            Formula::Own => step.node.formula(),
            Formula::Outlined(formula) => &**formula,
        };
        runner::apply(&step.node, formula, grads, step.unwanted).map_err(|e| Failure::Formula(i, e))
    }

    /// A formula that is called: its results look as the next nodes expect.
    fn called(&self, i: usize, step: &Step, grads: &[Option<Tensor>]) -> Result<Gradients> {
        let seen = self.defined.and_then(|d| d.get(i));
        let one = |(k, target): (usize, &Option<Place>)| {
            let (to, slot) = (*target)?;
            let defined = seen.is_none_or(|d| d.get(k).copied().unwrap_or(false));
            let meta = self.walk.steps[to].node.input_metadata().get(slot)?;
            let layout = Layout::contiguous(&meta.shape).ok()?;
            defined.then_some(Spec { layout, dtype: meta.dtype, device: Device::Meta })
        };
        let results: Vec<Option<Spec>> = step.targets.iter().enumerate().map(one).collect();
        self.host(i, HostKind::Formula { unwanted: step.unwanted }, grads, &results)
    }

    fn host(
        &self,
        step: usize,
        kind: HostKind,
        values: &[Option<Tensor>],
        results: &[Option<Spec>],
    ) -> Result<Gradients> {
        let make = |s: &Option<Spec>| s.clone().map(Tensor::try_empty).transpose();
        let results = results.iter().map(make).collect::<firebrand_core::Result<Vec<_>>>()?;
        self.host.call(step, kind, values, &results)?;
        Ok(results.into())
    }
}

/// What gradients like these look like.
fn alike(grads: &[Option<Tensor>]) -> Vec<Option<Spec>> {
    let like = |t: &Tensor| Spec { layout: t.layout().to_contiguous(), dtype: t.dtype(), device: Device::Meta };
    grads.iter().map(|g| g.as_ref().map(like)).collect()
}

fn deliver(arriving: &mut [Gradients], (step, slot): Place, g: Tensor) -> Result<()> {
    let grads = &mut arriving[step];
    if grads.len() <= slot {
        grads.resize(slot + 1, None);
    }
    grads[slot] = Some(match grads[slot].take() {
        None => g,
        Some(old) => ops::add(&old, &g, Scalar::Int(1))?,
    });
    Ok(())
}

/// Erases what nothing reads: parts of formulas.
fn sweep(module: &mut GraphModule) -> Result<()> {
    let graph = &mut module.graph;
    let order: Vec<NodeId> = graph.nodes().rev().collect();
    for n in order {
        let node = &graph[n];
        let unread = match node.target() {
            Some(Target::Function(Function::CallHost)) => false,
            Some(Target::Op(op)) => op.schema().is_some_and(|s| !s.mutates()),
            Some(Target::Function(_)) => true,
            _ => false,
        };
        if unread && node.num_users() == 0 {
            graph.erase(n)?;
        }
    }
    Ok(())
}
