//! The fused backend: functional graphs without autograd become few kernels over planned memory.
//!
//! A graph is lowered to loops (`lower`, `rules`), loops are gathered into kernels (`fuse`), a kernel becomes one program of
//! the tile executor (`emit`), and the plan says when memory comes and goes (`plan`, `run`). A plan fits inputs of one
//! geometry; an executable keeps several. A graph that cannot be planned is interpreted, and the log says why.
//!
//! Precision: elementwise results are those of eager execution; sums may be taken in another order; values of half types stay
//! f32 inside a kernel unless [`FusedOptions::bitwise`] requests bitwise equality with eager execution.

mod batch_norm;
mod emit;
mod fuse;
mod ir;
mod join;
mod lower;
mod plan;
mod report;
mod rules;
mod run;

use crate::backend::Interpreted;
use crate::backend::{Backend, Call, Early, ExampleInput, ExampleValue, Executable, Value};
use crate::error::Result;
use crate::times::{Stage, timed};
use firebrand_core::Scalar;
use firebrand_core::autograd::no_grad;
use firebrand_core::autograd::runner::without_history;
use firebrand_core::dispatch::{Cost, Derivative, Op, Tags};
use firebrand_core::layout::Dims;
use firebrand_graph::ir::GraphModule;
use lower::Given;
use plan::Plan;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use tracing::info;

pub use report::{FusionCounters, PlanStats, counters, reset_counters};

/// How the fused backend lowers an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// A loop recorded from its own kernel.
    Recorded,
    /// A loop by a rule; where the rule declines, a call.
    Rule,
    /// A layout.
    View,
    /// The ops it is composed of.
    Parts,
    /// A call of its kernel.
    Call,
}

/// How the fused backend lowers an op.
pub fn fusion(op: Op) -> Fusion {
    let info = op.info();
    match info.derivative {
        _ if rules::has_rule(op) => Fusion::Rule,
        Derivative::Composite => Fusion::Parts,
        _ if info.cost == Cost::Free => Fusion::View,
        _ if info.tags.has(Tags::POINTWISE) && !info.tags.has(Tags::NONDETERMINISTIC_SEEDED) => Fusion::Recorded,
        _ => Fusion::Call,
    }
}

/// Plans an executable keeps; the oldest goes first.
const PLANS: usize = 16;

/// Options of the fused backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FusedOptions {
    /// Every op rounds as in eager mode: half types after each op, reductions by their own kernels.
    pub bitwise: bool,
}

/// The backend for functional graphs; [`crate::joint::firebrand`] adds gradients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fused {
    options: FusedOptions,
}

impl Fused {
    /// With these options.
    pub fn new(options: FusedOptions) -> Fused {
        Fused { options }
    }

    /// Compiles a graph and returns the concrete type, which exposes its plans. Without examples the first plan is made
    /// at the first call.
    pub fn compile_graph(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<FusedGraph> {
        let compiled = FusedGraph {
            module: Arc::new(graph.clone()),
            options: self.options,
            first: OnceLock::new(),
            plans: RwLock::default(),
            making: Mutex::new(()),
        };
        let given: Option<Vec<Given>> = examples.iter().map(given).collect();
        if let Some(given) = given.filter(|g| g.len() == graph.graph.placeholders().count()) {
            compiled.make(&given);
        }
        Ok(compiled)
    }
}

impl Backend for Fused {
    fn name(&self) -> &str {
        "firebrand"
    }

    fn compile(&self, graph: &GraphModule, examples: &[ExampleInput]) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(self.compile_graph(graph, examples)?))
    }
}

/// What a plan for the first call is made for; none if the example does not say.
fn given(example: &ExampleInput) -> Option<Given> {
    let sizes = |v: &[firebrand_graph::ir::SymInt]| -> Option<Dims> {
        v.iter().map(|s| s.hint().and_then(|n| usize::try_from(n).ok())).collect()
    };
    Some(match &example.value {
        ExampleValue::Tensor(t) => {
            Given::Tensor { sizes: sizes(&t.sizes)?, strides: sizes(&t.strides)?, dtype: t.dtype.dtype()? }
        }
        ExampleValue::Int(i) => Given::Int(Scalar::Int(*i)),
        ExampleValue::Float(_) => Given::Float,
    })
}

/// A compiled graph: its plans by the geometry of the inputs.
pub struct FusedGraph {
    module: Arc<GraphModule>,
    options: FusedOptions,
    /// The first plan: most graphs have no other, and finding it takes no lock.
    first: OnceLock<Planned>,
    /// The others, newest first.
    plans: RwLock<Vec<Arc<Planned>>>,
    /// One plan is made at a time.
    making: Mutex<()>,
}

impl std::fmt::Debug for FusedGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FusedGraph").field("nodes", &self.module.graph.len()).finish_non_exhaustive()
    }
}

/// What is done for inputs of one geometry.
enum Planned {
    Plan(Plan),
    /// Node by node: planning failed.
    Interpret(Vec<Given>),
}

impl Planned {
    fn given(&self) -> &[Given] {
        match self {
            Planned::Plan(p) => &p.given,
            Planned::Interpret(given) => given,
        }
    }

    fn fits(&self, inputs: &[Value]) -> bool {
        self.given().len() == inputs.len() && self.given().iter().zip(inputs).all(|(g, v)| g.fits(v))
    }
}

/// A plan of a graph.
enum Found<'a> {
    First(&'a Planned),
    Other(Arc<Planned>),
}

impl Deref for Found<'_> {
    type Target = Planned;

    fn deref(&self) -> &Planned {
        match self {
            Found::First(planned) => planned,
            Found::Other(planned) => planned,
        }
    }
}

impl FusedGraph {
    fn find(&self, inputs: &[Value]) -> Option<Found<'_>> {
        if let Some(first) = self.first.get().filter(|p| p.fits(inputs)) {
            return Some(Found::First(first));
        }
        let plans = self.plans.read().unwrap_or_else(|e| e.into_inner());
        plans.iter().find(|p| p.fits(inputs)).cloned().map(Found::Other)
    }

    /// Makes a plan; one at a time.
    fn make(&self, given: &[Given]) -> Found<'_> {
        let planned = match timed(Stage::Fuse, || plan::plan(&self.module, given, &self.options)) {
            Ok(plan) => {
                report::count(&plan.stats);
                Planned::Plan(plan)
            }
            Err(why) => {
                info!(target: "firebrand::fusion", %why, "the graph is interpreted");
                Planned::Interpret(given.to_vec())
            }
        };
        let planned = match self.first.set(planned) {
            Ok(()) => return Found::First(self.first.get().expect("just set")),
            Err(planned) => Arc::new(planned),
        };
        let mut plans = self.plans.write().unwrap_or_else(|e| e.into_inner());
        plans.insert(0, Arc::clone(&planned));
        plans.truncate(PLANS - 1);
        Found::Other(planned)
    }

    /// Shows every plan, newest first.
    fn each(&self, see: &mut dyn FnMut(&Planned)) {
        let plans = self.plans.read().unwrap_or_else(|e| e.into_inner());
        plans.iter().map(|p| &**p).chain(self.first.get()).for_each(see)
    }

    /// Statistics of each plan, newest first; interpreted graphs have none.
    pub fn stats(&self) -> Vec<PlanStats> {
        let mut stats = Vec::new();
        self.each(&mut |p| {
            if let Planned::Plan(p) = p {
                stats.push(p.stats.clone())
            }
        });
        stats
    }

    /// The newest plan as text: one line per kernel or call, with its nodes.
    pub fn describe(&self) -> String {
        let mut newest = None;
        self.each(&mut |p| {
            newest.get_or_insert_with(|| match p {
                Planned::Plan(p) => report::describe(p, &self.module),
                Planned::Interpret(_) => "interpreted node by node\n".to_string(),
            });
        });
        newest.unwrap_or_else(|| "no plan yet\n".to_string())
    }

    /// The plan for these inputs, made if there is none yet.
    fn planned(&self, inputs: &[Value]) -> Found<'_> {
        self.find(inputs).unwrap_or_else(|| {
            // Kernels are for memory; what is computed on meta tensors, or refused, is for the ops to say.
            if inputs.iter().any(|v| matches!(v, Value::Tensor(t) if t.is_meta())) {
                return Found::Other(Arc::new(Planned::Interpret(Vec::new())));
            }
            let _one = self.making.lock().unwrap_or_else(|e| e.into_inner());
            let found = self.find(inputs);
            found.unwrap_or_else(|| self.make(&inputs.iter().map(Given::of).collect::<Vec<_>>()))
        })
    }

    fn interpret(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let bare = |v: &Value| match v {
            Value::Tensor(t) => Value::Tensor(without_history(t)),
            other => other.clone(),
        };
        let inputs: Vec<Value> = inputs.iter().map(bare).collect();
        no_grad(|| Interpreted { graph: Arc::clone(&self.module) }.run(&inputs, call))
    }
}

impl Executable for FusedGraph {
    fn ignores_history(&self) -> bool {
        true
    }

    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        match &*self.planned(inputs) {
            Planned::Plan(plan) => run::run(plan, &self.module, |k| inputs[k].clone(), call, None),
            Planned::Interpret(_) => self.interpret(inputs, call),
        }
    }

    fn run_owned(&self, mut inputs: Vec<Value>, call: &Call) -> Result<Vec<Value>> {
        match &*self.planned(&inputs) {
            Planned::Plan(plan) => {
                run::run(plan, &self.module, |k| std::mem::replace(&mut inputs[k], Value::NONE), call, None)
            }
            Planned::Interpret(_) => self.interpret(&inputs, call),
        }
    }

    fn run_handing_over(&self, mut inputs: Vec<Value>, call: &Call, early: &mut Early<'_>) -> Result<Vec<Value>> {
        match &*self.planned(&inputs) {
            Planned::Plan(plan) => {
                let input = |k| std::mem::replace(&mut inputs[k], Value::NONE);
                run::run(plan, &self.module, input, call, Some(early))
            }
            Planned::Interpret(_) => self.interpret(&inputs, call),
        }
    }
}
