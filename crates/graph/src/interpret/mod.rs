//! The interpreter: runs a graph node by node on real tensors, or on meta tensors.
//!
//! Values are dropped after their last use. Grad mode belongs to the frame: a marker's effect ends with its graph, also
//! when a node fails. What a node does can be replaced ([`NodeRunner`]). Linear in nodes and references.

mod functions;
mod hops;
mod ops;
mod outline;
mod value;

pub use ops::{boxed_arguments, results};
pub use outline::{Outlined, outline_cond};
pub use value::Value;

use crate::error::{Error, Result};
use crate::ir::*;
use crate::text::print_node;
use firebrand_core::Device;
use firebrand_core::autograd::{is_grad_enabled, set_grad_enabled};
pub(crate) use functions::call_function;
pub(crate) use hops::{attach, autocast_options, entered, owned};
pub(crate) use ops::call_op;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
pub use value::materialize;

/// Decides how a call is executed. [`run_call`] is the default.
pub trait NodeRunner {
    /// Runs a call with evaluated arguments.
    fn run_node(&mut self, call: &Call<'_>) -> Result<Value>;

    /// A device to use in place of every device in the program.
    fn device(&self) -> Option<Device> {
        None
    }
}

/// A call with its arguments.
#[derive(Debug)]
pub struct Call<'a> {
    /// The module the node lives in.
    pub module: &'a GraphModule,
    /// The node.
    pub node: NodeId,
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments.
    pub kwargs: Vec<(Name, Value)>,
}

/// Executes every node.
#[derive(Debug, Default)]
pub struct Eager {
    /// A device that stands for every device the program names, such as [`Device::Meta`].
    pub device: Option<Device>,
}

impl NodeRunner for Eager {
    fn run_node(&mut self, call: &Call<'_>) -> Result<Value> {
        run_call(self, call)
    }

    fn device(&self) -> Option<Device> {
        self.device
    }
}

/// Executes a call; sub-graphs run through the same runner.
pub fn run_call(runner: &mut dyn NodeRunner, call: &Call<'_>) -> Result<Value> {
    match call.module.graph[call.node].kind() {
        Kind::CallFunction(Target::Op(op)) => ops::call_op(op, &call.args, &call.kwargs, runner.device()),
        Kind::CallFunction(Target::Hop(hop)) => hops::call_hop(runner, hop, &call.args),
        Kind::CallFunction(Target::Function(Function::SetGradEnabled)) => {
            let [on] = &call.args[..] else {
                return Err(Error::Value("_set_grad_enabled takes one bool".to_string()));
            };
            set_grad_enabled(on.scalar()?.to_bool());
            Ok(Value::NONE)
        }
        Kind::CallFunction(Target::Function(f @ (Function::EnterAutocast | Function::ExitAutocast))) => {
            let message = "run replace_autocast_with_hop_pass first: markers are not run";
            Err(Error::Value(format!("{}: {message}", f.name())))
        }
        Kind::CallFunction(Target::Function(function)) => functions::call_function(function, &call.args),
        Kind::CallModule(path) => {
            let missing = || Error::Value(format!("the module has no sub-graph {path}"));
            let module = call.module.subgraph(path).cloned().ok_or_else(missing)?;
            run_module(runner, &module, &call.args)
        }
        Kind::CallMethod(method) => Err(Error::Value(format!("method {method}: methods are not run, only functions"))),
        Kind::Placeholder(_) | Kind::GetAttr(_) | Kind::Output => {
            Err(Error::Value("only calls are run by a runner".to_string()))
        }
    }
}

/// Runs a graph on its inputs and returns its result.
///
/// Placeholders take inputs in order; one that starts with `*` takes all that are left; one without an input takes its
/// default. Extra inputs are ignored.
pub fn run_module(runner: &mut dyn NodeRunner, module: &GraphModule, inputs: &[Value]) -> Result<Value> {
    run_from(runner, module, inputs, HashMap::new())
}

/// Like [`run_module`], with some nodes' values known: these are not run.
pub fn run_from(
    runner: &mut dyn NodeRunner,
    module: &GraphModule,
    inputs: &[Value],
    known: HashMap<NodeId, Value>,
) -> Result<Value> {
    let graph = &module.graph;
    let _frame = set_grad_enabled(is_grad_enabled()).scoped();
    let mut values: Vec<Option<Value>> = vec![None; graph.capacity()];
    let skipped: HashSet<NodeId> = known.keys().copied().collect();
    for (n, value) in known {
        values[n.index()] = Some(value);
    }
    let last_use = last_uses(graph);
    let mut inputs = inputs.iter();
    for n in graph.nodes() {
        if !skipped.contains(&n) {
            let value = run_one(runner, module, n, &mut inputs, &values)
                .map_err(|e| Error::Run { node: print_node(graph, n), source: Box::new(e) })?;
            if graph[n].is_output() {
                return Ok(value);
            }
            values[n.index()] = (graph[n].num_users() > 0).then_some(value);
        }
        for input in graph.input_nodes(n) {
            if last_use[input.index()] == Some(n) {
                values[input.index()] = None;
            }
        }
    }
    Ok(Value::NONE)
}

/// For each node, the last one that reads it.
fn last_uses(graph: &Graph) -> Vec<Option<NodeId>> {
    let mut last = vec![None; graph.capacity()];
    for n in graph.nodes() {
        for input in graph.input_nodes(n) {
            last[input.index()] = Some(n);
        }
    }
    last
}

fn run_one(
    runner: &mut dyn NodeRunner,
    module: &GraphModule,
    n: NodeId,
    inputs: &mut std::slice::Iter<'_, Value>,
    values: &[Option<Value>],
) -> Result<Value> {
    let node = &module.graph[n];
    let mut value = |n: NodeId| {
        let missing = || Error::Value(format!("%{} has no value here", module.graph[n].name()));
        values[n.index()].clone().ok_or_else(missing)
    };
    match node.kind() {
        Kind::Placeholder(target) if target.starts_with('*') => Ok(Value::List(inputs.cloned().collect())),
        Kind::Placeholder(target) => match (inputs.next(), node.args().first()) {
            (Some(input), _) => Ok(input.clone()),
            (None, Some(default)) => materialize(default, &mut value),
            (None, None) => Err(Error::Value(format!("expected positional argument for parameter {target}"))),
        },
        Kind::GetAttr(path) => read_attribute(module, path),
        Kind::Output => materialize(&node.args()[0], &mut value),
        _ => {
            let args = node.args().iter().map(|a| materialize(a, &mut value)).collect::<Result<_>>()?;
            let named = node.kwargs().iter().map(|(k, a)| Ok((k.clone(), materialize(a, &mut value)?)));
            let kwargs = named.collect::<Result<_>>()?;
            runner.run_node(&Call { module, node: n, args, kwargs })
        }
    }
}

fn read_attribute(module: &GraphModule, path: &str) -> Result<Value> {
    let Some(attribute) = module.attributes.get(path) else {
        // Say which part of the path is missing, not only that one is.
        let mut known = String::new();
        for atom in path.split('.') {
            let next = if known.is_empty() { atom.to_string() } else { format!("{known}.{atom}") };
            if module.attributes.get(&next).is_none() {
                return Err(Error::Value(format!("attribute {path}: {next} does not exist")));
            }
            known = next;
        }
        return Err(Error::Value(format!("attribute {path} does not exist")));
    };
    match attribute {
        Attribute::Graph(g) => Ok(Value::Graph(Arc::clone(g))),
        Attribute::Unbound(_) => Err(Error::Value(format!("attribute {path} has no value in this program"))),
        Attribute::Object { class_fqn } => {
            Err(Error::Value(format!("attribute {path} is an object of class {class_fqn}, which cannot be run")))
        }
        Attribute::Module(_) => Err(Error::Value(format!("attribute {path} is a module, not a value"))),
        Attribute::Tensor(t) | Attribute::Parameter(t) | Attribute::Buffer { tensor: t, .. } => {
            Ok(Value::Tensor(t.clone()))
        }
    }
}
