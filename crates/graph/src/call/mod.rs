//! A program with its own state, ready to be called: [`ProgramModule`].
//!
//! The program itself is not changed: its module starts with the program's state (mapped or copied, see
//! [`firebrand_core::Fork`]) and holds the updates from running and training. Inputs are checked against what the program was
//! traced with; in-place writes and mutation outputs end up in buffers and in the caller's tensors. Ops run eagerly, so
//! results have history and parameters get gradients.

mod adapters;
mod bind;
mod cheap;
mod evaluate;
mod fused;
mod mode;
mod recompute;
mod runner;
mod structure;

pub(crate) use bind::bind;
pub use cheap::{recompute_cheap, recompute_wide};
pub(crate) use evaluate::evaluate;
pub(crate) use mode::with_mode;
pub use recompute::{blocks_of, recompute_blocks};
pub(crate) use runner::Runner;

use crate::error::{Error, Result};
use crate::interpret::{Value, run_module};
use crate::ir::{Argument, GraphModule, Name, NodeId, TensorMeta, Val};
use crate::program::{Constant, ExportedProgram, State};
use crate::signature::{InputKind, OutputKind, SpecArg};
use firebrand_core::autograd::no_grad;
use firebrand_core::module::{Buffer, Forward, Module, ModuleCore, ModuleVisitor, Parameter};
use firebrand_core::{Fork, Scalar, Tensor, TensorMap};
use indexmap::IndexMap;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use structure::Structure;

/// A program that can be called and trained.
///
/// It is a [`Module`] whose parameters and buffers have the names of the original model; several names of one tensor are
/// one parameter. [`Module::train`] and [`Module::eval`] switch the training flags of dropout, batch norm and recurrent layers;
/// until then the program runs as it was exported.
pub struct ProgramModule {
    program: ExportedProgram,
    parameters: IndexMap<String, Parameter>,
    buffers: IndexMap<String, Buffer>,
    exported_mode: Option<bool>,
    other_mode: OnceLock<GraphModule>,
    evaluator: Option<Evaluator>,
    core: ModuleCore,
}

/// Runs a program's graph in place of the interpreter: takes all inputs, in the order of the signature, and returns all outputs.
pub type Evaluator = Arc<dyn Fn(&GraphModule, &[Value]) -> Result<Vec<Value>> + Send + Sync>;

impl Module for ProgramModule {
    fn core(&self) -> &ModuleCore {
        &self.core
    }

    fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
        self.parameters.iter().for_each(|(name, p)| visitor.parameter(name, p));
        self.buffers.iter().for_each(|(name, b)| visitor.buffer(name, b));
    }
}

/// Takes a list of tensors and returns the tensors among the outputs.
impl Forward<Vec<Tensor>> for ProgramModule {
    type Output = Vec<Tensor>;
    fn forward(&self, inputs: &Vec<Tensor>) -> firebrand_core::Result<Vec<Tensor>> {
        let outputs = self.run(inputs)?;
        Ok(outputs.into_iter().filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect())
    }
}

/// One input of the caller's.
struct UserInput<'a> {
    name: &'a str,
    val: &'a Val,
    constant: Option<&'a Argument>,
}

impl ExportedProgram {
    /// A module with its own state, initialized with the program's. Mapped weights are not copied until they are written.
    ///
    /// # Errors
    /// If the program calls ops this build does not have, or has no signature.
    pub fn module(&self) -> Result<ProgramModule> {
        ProgramModule::new(self)
    }

    /// Runs the program once on these tensors (constants are baked in); in-place updates of its state are discarded.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Value>> {
        self.module()?.run(inputs)
    }

    /// The parameters by name, in the order of the state dict; all names, also of tied ones.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.state_dict.iter().filter(|(_, s)| s.is_parameter).map(|(name, s)| (name.as_str(), &s.tensor))
    }

    /// The persistent buffers by name.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.state_dict.iter().filter(|(_, s)| !s.is_parameter).map(|(name, s)| (name.as_str(), &s.tensor))
    }
}

impl ProgramModule {
    fn new(program: &ExportedProgram) -> Result<ProgramModule> {
        let targets = program.unsupported();
        if !targets.is_empty() {
            return Err(Error::Unsupported { targets });
        }
        let mut program = program.clone();
        let mut fork = Fork::default();
        // Names of one tensor stay names of one tensor.
        let mut forked: TensorMap<Tensor> = TensorMap::new();
        let mut copy = |t: &Tensor| -> Result<Tensor> {
            if let Some(c) = forked.get(t) {
                return Ok(c.clone());
            }
            let c = fork.tensor(t)?;
            forked.insert(t, c.clone());
            Ok(c)
        };
        let (mut parameters, mut buffers) = (IndexMap::new(), IndexMap::new());
        let mut known: TensorMap<Parameter> = TensorMap::new();
        for (name, state) in &mut program.state_dict {
            let tensor = copy(&state.tensor)?;
            if !state.is_parameter {
                buffers.insert(name.clone(), Buffer::new(tensor.clone()));
                state.tensor = tensor;
                continue;
            }
            let parameter = match known.get(&tensor) {
                Some(p) => p.clone(),
                None => {
                    let wants_grad = tensor.requires_grad();
                    let p = Parameter::frozen(tensor.clone());
                    p.try_set_requires_grad(wants_grad)?;
                    known.insert(&tensor, p.clone());
                    p
                }
            };
            state.tensor = parameter.tensor().clone();
            parameters.insert(name.clone(), parameter);
        }
        let transient: HashSet<String> = program
            .signature()?
            .inputs
            .iter()
            .filter_map(|s| match &s.kind {
                InputKind::Buffer { target, persistent: false } => Some(target.to_string()),
                _ => None,
            })
            .collect();
        for (name, constant) in &mut program.constants {
            if let Constant::Tensor(t) = constant {
                *t = copy(t)?;
                if transient.contains(name) {
                    buffers.insert(name.clone(), Buffer::non_persistent(t.clone()));
                }
            }
        }
        let exported_mode = mode::exported_mode(&program.module);
        let core = ModuleCore::new();
        core.set_training(exported_mode.unwrap_or(false));
        Ok(ProgramModule {
            program,
            parameters,
            buffers,
            exported_mode,
            other_mode: OnceLock::new(),
            evaluator: None,
            core,
        })
    }

    /// The program with the current state of this module, for saving.
    pub fn program(&self) -> ExportedProgram {
        let mut program = self.program.clone();
        for (name, buffer) in &self.buffers {
            match (buffer.is_persistent(), program.constants.get_mut(name)) {
                (false, Some(Constant::Tensor(t))) => *t = buffer.get(),
                _ => _ = program.state_dict.insert(name.clone(), State { tensor: buffer.get(), is_parameter: false }),
            }
        }
        program
    }

    fn graph(&self) -> &GraphModule {
        match self.exported_mode {
            Some(exported) if exported != self.core.is_training() => {
                self.other_mode.get_or_init(|| mode::with_mode(&self.program.module, self.core.is_training()))
            }
            _ => &self.program.module,
        }
    }

    /// The caller's inputs, flattened, in order.
    fn user_inputs(&self) -> Result<Vec<UserInput<'_>>> {
        let graph = &self.program.module.graph;
        let mut inputs = Vec::new();
        for (id, spec) in graph.placeholders().zip(&self.program.signature()?.inputs) {
            if spec.kind == InputKind::UserInput {
                let constant = match &spec.arg {
                    SpecArg::Constant { value, .. } => Some(value),
                    _ => None,
                };
                let val = graph[id].meta().val.as_ref().unwrap_or(&Val::None);
                inputs.push(UserInput { name: graph[id].name(), val, constant });
            }
        }
        Ok(inputs)
    }

    /// Names and metadata of the caller's tensor inputs, in order.
    pub fn tensor_inputs(&self) -> Result<Vec<(&str, &TensorMeta)>> {
        let inputs = self.user_inputs()?;
        Ok(inputs.iter().filter_map(|i| Some((i.name, i.val.tensor()?))).collect())
    }

    /// The nodes of the outputs that are returned to the caller, flattened, in order; `None` for constants.
    fn user_outputs(&self) -> Vec<Option<NodeId>> {
        let Ok(signature) = self.program.signature() else { return Vec::new() };
        let graph = &self.program.module.graph;
        let returned =
            signature.outputs.iter().filter(|o| matches!(o.kind, OutputKind::UserOutput | OutputKind::LossOutput));
        let node = |name: &str| graph.nodes().find(|id| **graph[*id].name() == *name);
        returned.map(|o| Some(o.arg.name()).filter(|n| !n.is_empty()).and_then(|n| node(n))).collect()
    }

    /// Names of the outputs, flattened, in order: keys where the model returns a map, names of nodes otherwise.
    pub fn output_names(&self) -> Vec<String> {
        let graph = &self.program.module.graph;
        let nodes = self.user_outputs();
        let none = IndexMap::new();
        let fields = self.program.extras.as_ref().map_or(&none, |e| &e.namedtuple_fields);
        let structure = self.program.call_spec().and_then(|spec| Structure::parse(&spec.out_spec, fields).ok());
        let keys = structure.map(|s| s.leaf_names()).filter(|k| k.len() == nodes.len());
        let named = |k: usize| keys.as_ref().map(|keys| keys[k].clone()).filter(|name| !name.is_empty());
        let node = |k: usize| nodes[k].map_or_else(|| format!("out_{k}"), |id| graph[id].name().to_string());
        (0..nodes.len()).map(|k| named(k).unwrap_or_else(|| node(k))).collect()
    }

    /// The metadata of an output, by its position among the flattened ones; `None` if it is not a tensor.
    pub fn output_meta(&self, position: usize) -> Option<&TensorMeta> {
        let id = (*self.user_outputs().get(position)?)?;
        self.program.module.graph[id].meta().val.as_ref()?.tensor()
    }

    /// Whether the program was exported in training mode; `None` if no op depends on it.
    pub fn exported_in_training(&self) -> Option<bool> {
        self.exported_mode
    }

    /// Runs on these tensors, in the order of the signature; constants are filled in. Returns the outputs, flattened.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Value>> {
        let expected = self.user_inputs()?;
        let wanted = expected.iter().filter(|i| i.constant.is_none()).count();
        if wanted != inputs.len() {
            let names: Vec<&str> = expected.iter().filter(|i| i.constant.is_none()).map(|i| i.name).collect();
            let message = format!("expected {wanted} tensors, found {}: {}", inputs.len(), names.join(", "));
            return Err(Error::Value(message));
        }
        let mut given = inputs.iter();
        let values = expected.iter().map(|i| match i.constant {
            Some(value) => constant(value),
            None => Value::Tensor(given.next().expect("they were counted").clone()),
        });
        self.run_flat(values.collect())
    }

    /// Runs on tensors by the names of the inputs; constants are filled in.
    pub fn run_named<'a>(&self, inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<Vec<Value>> {
        let mut given: IndexMap<&str, &Tensor> = inputs.into_iter().collect();
        let mut values = Vec::new();
        let expected = self.user_inputs()?;
        for input in &expected {
            values.push(match (given.swap_remove(input.name), input.constant) {
                (Some(t), _) => Value::Tensor(t.clone()),
                (None, Some(value)) => constant(value),
                (None, None) => {
                    let others: Vec<&str> = given.keys().copied().collect();
                    let message = match others.join(", ") {
                        none if none.is_empty() => "missing".to_string(),
                        others => format!("missing; expected this name, found {others}"),
                    };
                    return Err(Error::Input { name: input.name.to_string(), message });
                }
            });
        }
        if let Some(name) = given.keys().next() {
            let names: Vec<&str> = expected.iter().map(|i| i.name).collect();
            let message = format!("the program has no such input; it has {}", names.join(", "));
            return Err(Error::Input { name: name.to_string(), message });
        }
        self.run_flat(values)
    }

    /// Runs the graph with `evaluator` from now on, for instance a compiler. Inputs are checked and state is updated as before.
    pub fn set_evaluator(&mut self, evaluator: Evaluator) {
        self.evaluator = Some(evaluator);
    }

    /// Runs on all inputs, including constants, flattened in the order of the signature; returns all outputs, flattened.
    pub fn run_flat(&self, inputs: Vec<Value>) -> Result<Vec<Value>> {
        let inputs = self.check(inputs)?;
        let signature = self.program.signature()?;
        let mut user = inputs.iter();
        let mut values = Vec::with_capacity(signature.inputs.len());
        for spec in &signature.inputs {
            let value = match &spec.kind {
                InputKind::UserInput => user.next().expect("they were counted").clone(),
                InputKind::Token => Value::NONE,
                kind => {
                    let target = kind.target().map_or("", |t| t);
                    Value::Tensor(self.state(target).ok_or_else(|| Error::Value(format!("{target} has no value")))?)
                }
            };
            values.push(value);
        }
        let results = match &self.evaluator {
            Some(evaluator) => evaluator(self.graph(), &values)?,
            None => match run_module(&mut Runner::default(), self.graph(), &values)? {
                Value::List(items) => items,
                one => vec![one],
            },
        };
        let mut outputs = Vec::with_capacity(results.len());
        for (spec, result) in signature.outputs.iter().zip(results) {
            match (&spec.kind, &result) {
                (OutputKind::UserOutput | OutputKind::LossOutput, _) => outputs.push(result),
                (OutputKind::BufferMutation(t) | OutputKind::ParameterMutation(t), Value::Tensor(new)) => {
                    if let Some(old) = self.state(t) {
                        no_grad(|| old.try_copy_(&new.detach(), false).map(drop))?;
                    }
                }
                (OutputKind::UserInputMutation(name), Value::Tensor(new)) => {
                    let expected = self.user_inputs()?;
                    let position = expected.iter().position(|i| i.name == &**name);
                    if let Some(Value::Tensor(old)) = position.map(|k| &inputs[k]) {
                        old.try_copy_(new, false)?;
                    }
                }
                _ => {}
            }
        }
        // Buffers never require grad, whatever was written into them.
        for buffer in self.buffers.values().map(Buffer::get).filter(Tensor::requires_grad) {
            buffer.try_detach_()?;
        }
        Ok(outputs)
    }

    /// Calls the program like the original model: with nested arguments and keyword arguments, returning the original structure.
    ///
    /// # Errors
    /// If the structure is not the one the program was exported with, or holds classes of the original program.
    pub fn call_structured(&self, args: Vec<Value>, kwargs: Vec<(Name, Value)>) -> Result<Value> {
        let missing = || Error::Value("the program does not say how it is called; call it flat".into());
        let spec = self.program.call_spec().ok_or_else(missing)?;
        let none = IndexMap::new();
        let fields = self.program.extras.as_ref().map_or(&none, |e| &e.namedtuple_fields);
        let (inputs, outputs) = (Structure::parse(&spec.in_spec, fields)?, Structure::parse(&spec.out_spec, fields)?);
        let mut leaves = Vec::new();
        let given = Value::List(vec![Value::List(args), Value::Dict(kwargs)]);
        inputs.flatten(given, "(args, kwargs)", &mut leaves)?;
        let mut results = self.run_flat(leaves)?.into_iter();
        let result = outputs.unflatten(&mut results);
        result.ok_or_else(|| Error::Value("the program returns fewer values than its structure has".into()))
    }

    fn state(&self, target: &str) -> Option<Tensor> {
        if let Some(p) = self.parameters.get(target) {
            return Some(p.tensor().clone());
        }
        if let Some(b) = self.buffers.get(target) {
            return Some(b.get());
        }
        self.program.state(target).cloned()
    }

    /// Checks inputs against what the program was traced with; returns them as the graph expects them.
    fn check(&self, inputs: Vec<Value>) -> Result<Vec<Value>> {
        let expected = self.user_inputs()?;
        if expected.len() != inputs.len() {
            let names: Vec<&str> = expected.iter().map(|i| i.name).collect();
            let message = format!("expected {} inputs, found {}: {}", expected.len(), inputs.len(), names.join(", "));
            return Err(Error::Value(message));
        }
        let refuse = |name: &str, message: String| Err(Error::Input { name: name.to_string(), message });
        let (mut tensors, mut numbers, mut values) = (Vec::new(), Vec::new(), Vec::with_capacity(inputs.len()));
        for (input, value) in expected.iter().zip(inputs) {
            let value = match (input.val, input.constant, value) {
                (_, Some(baked), value) => {
                    if !same_constant(baked, &value) {
                        let message = format!("expected {baked:?}, which was baked in at export, found {value:?}");
                        return refuse(input.name, message);
                    }
                    value
                }
                // A number may come as a tensor of one element: archives of arrays have nothing else.
                (Val::SymInt(_), None, Value::Tensor(t)) => t.try_item::<i64>()?.into(),
                (Val::SymFloat(_), None, Value::Tensor(t)) => t.try_item::<f64>()?.into(),
                (Val::SymBool(_), None, Value::Tensor(t)) => t.try_item::<bool>()?.into(),
                (Val::Tensor(_), None, value) if !matches!(value, Value::Tensor(_)) => {
                    return refuse(input.name, format!("expected a tensor, found {}", value.kind()));
                }
                (_, None, value) => value,
            };
            values.push(value);
        }
        for (input, value) in expected.iter().zip(&values) {
            match (input.val, value) {
                (Val::Tensor(meta), Value::Tensor(t)) => tensors.push((input.name, &**meta, t)),
                (Val::SymInt(s), Value::Scalar(Scalar::Int(v))) => numbers.push((input.name, s, *v)),
                _ => {}
            }
        }
        bind(tensors.into_iter(), numbers.into_iter(), &self.program.range_constraints)?;
        Ok(values)
    }
}

/// A baked-in constant as a value.
fn constant(value: &Argument) -> Value {
    match value {
        Argument::Bool(v) => (*v).into(),
        Argument::Int(v) => (*v).into(),
        Argument::Float(v) => (*v).into(),
        other => Value::Constant(other.clone()),
    }
}

fn same_constant(baked: &Argument, given: &Value) -> bool {
    match (baked, given) {
        (Argument::Bool(a), Value::Scalar(Scalar::Bool(b))) => a == b,
        (Argument::Int(a), Value::Scalar(Scalar::Int(b))) => a == b,
        (Argument::Float(a), Value::Scalar(Scalar::Float(b))) => a == b || (a.is_nan() && b.is_nan()),
        (Argument::Complex(re, im), Value::Scalar(Scalar::Complex(b))) => (*re, *im) == (b.re, b.im),
        (a, Value::Constant(b)) => a == b,
        _ => false,
    }
}

impl std::fmt::Debug for ProgramModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |list: Vec<&String>| list.into_iter().cloned().collect::<Vec<_>>();
        f.debug_struct("ProgramModule")
            .field("parameters", &names(self.parameters.keys().collect()))
            .field("buffers", &names(self.buffers.keys().collect()))
            .finish()
    }
}
