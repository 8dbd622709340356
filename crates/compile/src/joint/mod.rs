//! The joint-graph backend: forward and backward of a captured graph are traced together, partitioned and compiled.
//!
//! A captured graph may mutate its inputs, return views and contain hooks; the inner backend gets functional graphs without
//! history and hidden state. What cannot be traced as a whole (a custom function that comes with the call, an op without
//! a functional form) runs node by node instead: slower, with the same results.

mod cond;
mod decompose;
mod loose;
pub mod partition;
mod plan;
mod runtime;
mod stages;
mod trace;
mod transformed;
mod types;
mod writes;

pub use crate::backend::Interpret;

use crate::backend::Interpreted;
use crate::backend::same_list;
use crate::backend::{Backend, Call, ExampleInput, ExampleValue, Executable, Value, calls_host};
use crate::error::Result;
use crate::joint::partition::PartitionOptions;
use firebrand_core::autograd::{
    AutocastGuard, AutocastOptions, autocast_dtype, is_anomaly_enabled, is_autocast_enabled, is_grad_enabled,
};
use firebrand_core::layout::Dims;
use firebrand_core::state::ThreadState;
use firebrand_core::{DType, Layout};
use firebrand_graph::ir::{Function, GraphModule, Target, TensorMeta};
use plan::{Modes, Plan};
use stages::{Cut, Piece, Staged};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use trace::Input;
pub(crate) use trace::without_writes;

/// Options of a joint-graph backend.
#[derive(Clone)]
pub struct AotOptions {
    /// Its name.
    pub name: &'static str,
    /// Compiles forward and backward graphs.
    pub inner: Arc<dyn Backend>,
    /// How the joint graph is partitioned.
    pub partition: PartitionOptions,
    /// Whether to decompose normalizations, softmax and derivatives of activations first.
    pub decompose: bool,
}

impl AotOptions {
    /// Compiles a forward or backward graph.
    fn compile(&self, graph: &GraphModule, is_static: &[bool]) -> Result<Arc<dyn Executable>> {
        self.inner.compile(graph, &plan::examples(graph, is_static))
    }
}

/// A joint-graph backend.
pub struct Aot {
    options: AotOptions,
}

impl Aot {
    /// With these options.
    pub fn new(options: AotOptions) -> Aot {
        Aot { options }
    }
}

/// The joint graph, functionalized and partitioned, each part interpreted: the optimizing backend without its optimizations.
pub fn aot_eager() -> Aot {
    let partition = PartitionOptions::default();
    Aot::new(AotOptions { name: "aot_eager", inner: Arc::new(Interpret), partition, decompose: false })
}

/// Like [`aot_eager`], with larger ops decomposed into those that an optimizing backend fuses.
pub fn aot_eager_decomp() -> Aot {
    let partition = PartitionOptions::default();
    Aot::new(AotOptions { name: "aot_eager_decomp", inner: Arc::new(Interpret), partition, decompose: true })
}

/// The optimizing backend: the joint graph, partitioned with recomputation, each part fused.
pub fn firebrand(options: crate::fused::FusedOptions) -> Aot {
    let partition = PartitionOptions { keep_saved_results: false, ..PartitionOptions::default() };
    let inner = Arc::new(crate::fused::Fused::new(options));
    Aot::new(AotOptions { name: "firebrand", inner, partition, decompose: false })
}

/// A joint-graph backend around another one, which gets functional graphs without history.
pub fn aot(inner: Arc<dyn Backend>, partition: PartitionOptions) -> Aot {
    Aot::new(AotOptions { name: "aot", inner, partition, decompose: false })
}

/// The maximum number of plans (for different sizes) per graph.
const PLANS: usize = 32;

impl Backend for Aot {
    fn name(&self) -> &str {
        self.options.name
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        if calls_host(graph) {
            return self.options.inner.compile(graph, examples); // there is nothing to make pure or to differentiate
        }
        if !is_grad_enabled() || !examples.iter().any(ExampleInput::requires_grad) {
            return Ok(Arc::new(self.compile_graph(graph, examples)?));
        }
        let typed = if types::is_typed(graph) { Ok(None) } else { types::typed(graph, &inputs_of(examples)).map(Some) };
        let graph = match &typed {
            Ok(typed) => typed.as_ref().unwrap_or(graph),
            Err(_) => return Ok(Arc::new(self.in_stages(graph, examples, None))),
        };
        let cut = stages::cut(graph);
        let interpret =
            stages::writes_recorded(graph, !matches!(cut, Cut::One)) || types::spoils(graph, &inputs_of(examples));
        match cut {
            Cut::One if !interpret => Ok(Arc::new(self.compile_graph(graph, examples)?)),
            Cut::Stages(pieces) if !interpret => Ok(Arc::new(self.in_stages(graph, examples, Some(pieces)))),
            _ => Ok(Arc::new(self.in_stages(graph, examples, None))),
        }
    }

    fn compile_transformed(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        let plain = plan::only_computes(graph).then(|| self.compile(graph, examples)).transpose()?;
        Ok(Arc::new(transformed::Transformed::new(graph, plain, self.options.clone())))
    }
}

impl Aot {
    /// A graph whose plans are made when it is first called.
    fn unplanned(&self, graph: &GraphModule, is_static: Vec<bool>) -> AotExecutable {
        AotExecutable {
            options: self.options.clone(),
            graph: Arc::new(graph.clone()),
            is_static,
            first: OnceLock::new(),
            plans: Mutex::default(),
        }
    }

    fn in_stages(&self, graph: &GraphModule, examples: &[ExampleInput], pieces: Option<Vec<Piece>>) -> Staged {
        let is_static: Vec<bool> = examples.iter().map(|e| e.is_static).collect();
        let stage = |piece: Piece| {
            let given = stages::places(graph, &piece);
            let given = given.into_iter().map(|k| k.is_some_and(|k| is_static.get(k).copied().unwrap_or(false)));
            let run: Arc<dyn Executable> = Arc::new(self.unplanned(&piece.graph, given.collect()));
            (piece, run)
        };
        let stages = pieces.map(|pieces| pieces.into_iter().map(stage).collect());
        let whole = Arc::new(self.unplanned(graph, is_static.clone()));
        Staged::new(graph, whole, stages)
    }

    /// Like [`Backend::compile`], of a graph that is one node of the caller's, with the graphs to look at.
    pub fn compile_graph(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<AotExecutable> {
        let executable = self.unplanned(graph, examples.iter().map(|e| e.is_static).collect());
        executable.add(Key::new(inputs_of(examples)));
        Ok(executable)
    }
}

/// The inputs of the first call.
fn inputs_of(examples: &[ExampleInput]) -> Vec<Input> {
    let input = |e: &ExampleInput| match &e.value {
        ExampleValue::Tensor(meta) => Input::Tensor(known(meta)),
        ExampleValue::Int(i) => Input::Number((*i).into()),
        ExampleValue::Float(v) => Input::Number((*v).into()),
    };
    examples.iter().map(input).collect()
}

/// The description with every size at its value in the first call.
fn known(meta: &TensorMeta) -> TensorMeta {
    let fix = |s: &firebrand_graph::ir::SymInt| s.hint().unwrap_or(0).into();
    TensorMeta {
        sizes: meta.sizes.iter().map(fix).collect(),
        strides: meta.strides.iter().map(fix).collect(),
        storage_offset: fix(&meta.storage_offset),
        ..meta.clone()
    }
}

/// What a plan depends on.
struct Key {
    inputs: Vec<Input>,
    /// The layouts of tensors, to compare at every call.
    layouts: Vec<Option<Layout>>,
    recording: bool,
    /// What autocast lowers to, if it is on: its casts become part of the plan.
    autocast: Option<DType>,
}

fn ambient_autocast() -> Option<DType> {
    is_autocast_enabled().then(autocast_dtype)
}

impl Key {
    fn new(inputs: Vec<Input>) -> Key {
        let sizes = |v: &[firebrand_graph::ir::SymInt]| -> Option<Dims> {
            v.iter().map(|s| s.known().and_then(|n| usize::try_from(n).ok())).collect()
        };
        let layout = |i: &Input| match i {
            Input::Tensor(meta) => Layout::strided(&sizes(&meta.sizes)?, &sizes(&meta.strides)?, 0).ok(),
            Input::Number(_) => None,
        };
        Key {
            layouts: inputs.iter().map(layout).collect(),
            inputs,
            recording: is_grad_enabled(),
            autocast: ambient_autocast(),
        }
    }

    fn of(inputs: &[Value]) -> Key {
        let one = |v: &Value| match v {
            Value::Tensor(t) => Input::Tensor(TensorMeta::of(t)),
            other => Input::Number(other.clone()),
        };
        Key::new(inputs.iter().map(one).collect())
    }

    /// Whether a call with these inputs may use a plan of this key.
    fn fits(&self, inputs: &[Value]) -> bool {
        self.recording == is_grad_enabled()
            && self.autocast == ambient_autocast()
            && self.inputs.len() == inputs.len()
            && self.inputs.iter().zip(&self.layouts).zip(inputs).all(|((k, layout), v)| match (k, v) {
                (Input::Tensor(meta), Value::Tensor(t)) => {
                    meta.dtype.dtype() == Some(t.dtype())
                        && meta.requires_grad == t.requires_grad()
                        && layout
                            .as_ref()
                            .is_some_and(|l| same_list(l.sizes(), t.shape()) && same_list(l.strides(), t.strides()))
                }
                (Input::Number(Value::Scalar(a)), Value::Scalar(b)) => same_number(*a, *b),
                (Input::Number(a), b) => a.is_none() && b.is_none(),
                _ => false,
            })
    }
}

fn same_number(a: firebrand_core::Scalar, b: firebrand_core::Scalar) -> bool {
    use firebrand_core::Scalar::*;
    match (a, b) {
        (Bool(a), Bool(b)) => a == b,
        (Int(a), Int(b)) => a == b,
        (Float(a), Float(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}

/// A captured graph and its plans, one per sizes of inputs.
pub struct AotExecutable {
    options: AotOptions,
    graph: Arc<GraphModule>,
    is_static: Vec<bool>,
    /// The first plan: most graphs have no other, and finding it takes no lock.
    first: OnceLock<Known>,
    /// The others, newest first.
    plans: Mutex<VecDeque<Known>>,
}

/// A plan, none where the graph has to run node by node, and what it is for.
type Known = (Key, Option<Arc<Plan>>);

impl AotExecutable {
    fn add(&self, key: Key) -> Option<Arc<Plan>> {
        let custom = |t: &Target| t.is_function(&Function::ApplyFunction);
        let g = &self.graph.graph;
        let plan = match g.nodes().any(|n| g[n].target().is_some_and(custom)) {
            true => None,
            false => {
                let modes = Modes { recording: key.recording, autocast: key.autocast };
                let new = || Plan::new(&self.graph, key.inputs.clone(), &self.is_static, modes, &self.options);
                // Nothing that the caller has switched on takes part.
                let made = ThreadState::isolated(new);
                made.inspect_err(|e| {
                    tracing::info!(target: "firebrand::compile::joint", "a graph runs node by node: {e}");
                })
                .ok()
                .map(Arc::new)
            }
        };
        if let Err(known) = self.first.set((key, plan.clone())) {
            let mut plans = self.plans.lock().unwrap_or_else(|e| e.into_inner());
            plans.truncate(PLANS - 2);
            plans.push_front(known);
        }
        plan
    }

    fn plan(&self, inputs: &[Value]) -> Option<Cow<'_, Arc<Plan>>> {
        if let Some((_, plan)) = self.first.get().filter(|(key, _)| key.fits(inputs)) {
            return plan.as_ref().map(Cow::Borrowed);
        }
        {
            let plans = self.plans.lock().unwrap_or_else(|e| e.into_inner());
            if let Some((_, plan)) = plans.iter().find(|(key, _)| key.fits(inputs)) {
                return plan.clone().map(Cow::Owned);
            }
        }
        self.add(Key::of(inputs)).map(Cow::Owned)
    }

    /// The forward graph at the first sizes, if the graph was traced as a whole.
    pub fn forward_graph(&self) -> Option<GraphModule> {
        Some(self.first.get()?.1.as_ref()?.forward_graph.clone())
    }

    /// The backward graph at the first sizes, when every output that wants one has a gradient.
    pub fn backward_graph(&self) -> Option<GraphModule> {
        Some(self.first.get()?.1.as_ref()?.backward_graph()?.graph.clone())
    }
}

/// Whether an input the plan writes shares memory with another.
fn overlaps(plan: &Plan, inputs: &[Value]) -> bool {
    plan.written.iter().any(|w| {
        let Ok(written) = inputs[w.input].tensor() else { return false };
        let other =
            |(k, v): (usize, &Value)| k != w.input && matches!(v, Value::Tensor(t) if t.shares_storage(written));
        inputs.iter().enumerate().any(other)
    })
}

impl Executable for AotExecutable {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let op_by_op = || Interpreted { graph: self.graph.clone() }.run(inputs, call);
        match self.plan(inputs) {
            Some(plan) if !overlaps(&plan, inputs) && !is_anomaly_enabled() => {
                let mut has_run = false;
                let done = {
                    let off = || AutocastGuard::new(AutocastOptions { enabled: false, ..AutocastOptions::default() });
                    let _cast_already = ambient_autocast().map(|_| off());
                    runtime::run(&plan, inputs, call, &mut has_run)
                };
                // Op by op, everything before the op that fails happens.
                done.or_else(|e| if has_run { Err(e) } else { op_by_op() })
            }
            _ => op_by_op(),
        }
    }
}
