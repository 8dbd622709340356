//! Trace: building a graph from ops with boxed arguments.
//!
//! A trace knows which node produced which tensor. Real tensors are replaced by meta tensors before an op runs, so
//! nothing is computed. Where a tensor comes in that no node stands for, the caller's choice ([`Free`]) decides what it
//! becomes. Changes of grad mode become markers. A trace does not depend on its callers: export uses it above
//! autograd, decompositions below, compilers in segments.

use crate::dynamic::size_function;
use crate::error::{Error, Result};
use crate::ir::*;
use crate::schema::{Constant, Schema, SchemaArg};
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::dispatch::{self, Op, Outputs, Value};
use firebrand_core::state::ThreadState;
use firebrand_core::sym::SymNode;
use firebrand_core::{DType, Device, Scalar, SymInt, Tensor, TensorMap, WeakTensor};
use firebrand_core::{capture, func};
use std::collections::HashMap;
use std::sync::Arc;

pub use firebrand_core::capture::outline;

/// What a tensor from outside becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// A constant that the module holds.
    Constant,
    /// A further input, listed in [`Trace::captured`].
    Input,
}

/// A graph under construction.
pub struct Trace {
    module: GraphModule,
    /// Tensors that have a node, by id. Holding them keeps their ids from being reused.
    nodes: HashMap<usize, (Tensor, NodeId)>,
    outlines: Outlines,
    free: Free,
    captured: Vec<(Tensor, NodeId)>,
    /// The last placeholder of a tensor; further ones go behind it.
    last_input: Option<NodeId>,
    /// The last placeholder of a scalar.
    last_number: Option<NodeId>,
    symbols: HashMap<u32, Argument>,
    expressions: HashMap<usize, NodeId>,
    ambient: bool,
    mode: bool,
    /// The autocast region that is open: its marker and its dtype.
    autocast: Option<(NodeId, DType)>,
    /// Nodes by memory, where derivatives are recorded.
    memory: Option<HashMap<usize, Vec<(Tensor, NodeId)>>>,
    /// For a graph that is not differentiated: grad mode is a note on the node.
    below: bool,
}

/// Real tensors, and the meta tensors that replace them while tracing.
#[derive(Default)]
struct Outlines {
    of: TensorMap<Tensor>,
    reals: TensorMap<Tensor>,
}

/// The trace that ops go to, which it is used as, and those that wait while the sides of conditionals are recorded.
pub struct TraceStack {
    current: Trace,
    waiting: Vec<Trace>,
}

impl TraceStack {
    /// Ops go to this trace.
    pub fn new(trace: Trace) -> TraceStack {
        TraceStack { current: trace, waiting: Vec::new() }
    }

    /// Ops go to this trace from now on; what is recorded so far waits.
    pub fn begin(&mut self, branch: Trace) {
        self.waiting.push(std::mem::replace(&mut self.current, branch));
    }

    /// Ends what [`TraceStack::begin`] began and gives it back.
    pub fn end(&mut self) -> Trace {
        let waiting = self.waiting.pop().expect("what ends has begun");
        std::mem::replace(&mut self.current, waiting)
    }

    /// Whether a side of a conditional is recorded.
    pub fn in_branch(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The trace outside all conditionals.
    pub fn outermost(&mut self) -> &mut Trace {
        self.waiting.first_mut().unwrap_or(&mut self.current)
    }
}

impl AsMut<TraceStack> for TraceStack {
    fn as_mut(&mut self) -> &mut TraceStack {
        self
    }
}

impl std::ops::Deref for TraceStack {
    type Target = Trace;
    fn deref(&self) -> &Trace {
        &self.current
    }
}

impl std::ops::DerefMut for TraceStack {
    fn deref_mut(&mut self) -> &mut Trace {
        &mut self.current
    }
}

/// The key of a node's note that its value was computed where nothing was recorded.
pub(crate) const UNRECORDED: &str = "unrecorded";
/// The key of a node's note that a derivative reads its value as the result of the op that made it.
pub(crate) const SAVED_RESULT: &str = "saved_result";
/// The key of a node's note that a sub-graph it runs uses the random generator.
pub(crate) const DRAWS: &str = "draws";

impl Trace {
    /// An empty graph; `ambient` is the grad mode around it.
    pub fn new(ambient: bool, free: Free) -> Trace {
        Trace {
            module: GraphModule::default(),
            nodes: HashMap::new(),
            outlines: Outlines::default(),
            free,
            captured: Vec::new(),
            last_input: None,
            last_number: None,
            symbols: HashMap::new(),
            expressions: HashMap::new(),
            ambient,
            mode: ambient,
            autocast: None,
            memory: None,
            below: false,
        }
    }

    /// An empty graph for derivatives: they hold results by separate aliases, which are known by
    /// their memory. No op that is recorded may write.
    pub(crate) fn below() -> Trace {
        Trace { memory: Some(HashMap::new()), below: true, ..Trace::new(true, Free::Constant) }
    }

    /// From now on a tensor is also known by its memory: derivatives hold what they need by aliases of their own.
    pub fn know_by_memory(&mut self) {
        if self.memory.is_none() {
            let mut bound: Vec<&(Tensor, NodeId)> = self.nodes.values().collect();
            bound.sort_by_key(|(_, n)| n.index());
            let mut memory: HashMap<usize, Vec<(Tensor, NodeId)>> = HashMap::new();
            for (t, n) in bound {
                memory.entry(t.untyped_storage().addr()).or_default().push((t.clone(), *n));
            }
            self.memory = Some(memory);
        }
    }

    /// The module built so far.
    pub fn module(&self) -> &GraphModule {
        &self.module
    }

    /// The module built so far, to modify it.
    pub fn module_mut(&mut self) -> &mut GraphModule {
        &mut self.module
    }

    /// The inputs that came from outside, in order.
    pub fn captured(&self) -> &[(Tensor, NodeId)] {
        &self.captured
    }

    /// Clears the list of those inputs.
    pub fn forget_captured(&mut self) {
        self.captured.clear();
    }

    /// Adds an input for `tensor`.
    pub fn input(&mut self, name: &str, tensor: &Tensor) -> NodeId {
        let at = self.last_input.map_or(InsertPoint::Front, InsertPoint::After);
        let node = self.module.graph.inserting(at, |g| g.placeholder(name));
        self.last_input = Some(node);
        self.module.graph.meta_mut(node).val = Some(TensorMeta::of(tensor).into());
        self.bind(tensor, node);
        node
    }

    /// Adds a scalar input, after the tensor inputs.
    pub fn number(&mut self, name: &str, val: impl Into<Val>) -> NodeId {
        let at = self.last_number.or(self.last_input).map_or(InsertPoint::Front, InsertPoint::After);
        let node = self.module.graph.inserting(at, |g| g.placeholder(name));
        self.last_number = Some(node);
        self.module.graph.meta_mut(node).val = Some(val.into());
        node
    }

    /// Defines the node of a size symbol in this graph.
    pub fn bind_symbol(&mut self, symbol: u32, argument: impl Into<Argument>) {
        self.symbols.insert(symbol, argument.into());
    }

    /// Whether the graph knows a symbol.
    pub fn has_symbol(&self, symbol: u32) -> bool {
        self.symbols.contains_key(&symbol)
    }

    /// The grad mode around the graph.
    pub fn ambient(&self) -> bool {
        self.ambient
    }

    /// Replaces `old` by `new` from now on.
    pub fn rebind(&mut self, old: NodeId, new: NodeId) {
        let by_memory = self.memory.iter_mut().flat_map(HashMap::values_mut).flatten();
        for (_, node) in self.nodes.values_mut().chain(by_memory).filter(|(_, node)| *node == old) {
            *node = new;
        }
    }

    /// Associates a node with a tensor from now on.
    pub fn bind(&mut self, tensor: &Tensor, node: NodeId) {
        self.nodes.insert(tensor.id(), (tensor.clone(), node));
        if let Some(memory) = &mut self.memory {
            memory.entry(tensor.untyped_storage().addr()).or_default().push((tensor.clone(), node));
        }
    }

    /// The node of the value that an unknown tensor aliases, if there is one.
    fn alias(&mut self, tensor: &Tensor) -> Option<NodeId> {
        if !self.below && !tensor.is_meta() {
            return None; // the caller's, with a history of its own
        }
        let same = |t: &Tensor| {
            t.dtype() == tensor.dtype()
                && t.layout().offset() == tensor.layout().offset()
                && t.layout().same_geometry(tensor.layout())
        };
        let bucket = self.memory.as_ref()?.get(&tensor.untyped_storage().addr())?;
        // A value with a history is what the op gave, the first in this memory, and neither a view of all of it nor a detached
        // alias; one without is such an alias, if there is one.
        let detached = |n: NodeId| self.module.graph[n].target().is_some_and(|t| t.is_op(Op::DETACH));
        let alike = || bucket.iter().filter(|(t, _)| same(t));
        let (first, _) = alike().find(|(_, n)| detached(*n) != tensor.requires_grad()).or_else(|| alike().next())?;
        let node = self.nodes.get(&first.id())?.1;
        note(&mut self.module.graph, node, SAVED_RESULT);
        self.bind(tensor, node);
        Some(node)
    }

    /// The node of a tensor, if it has one.
    pub fn known(&self, tensor: &Tensor) -> Option<NodeId> {
        if let Some((_, node)) = self.nodes.get(&tensor.id()) {
            return Some(*node);
        }
        let real = self.outlines.reals.get(tensor)?;
        self.nodes.get(&real.id()).map(|(_, node)| *node)
    }

    /// Whether a meta tensor comes from no op of the program and stands for nothing.
    pub fn is_lost(&mut self, tensor: &Tensor) -> bool {
        tensor.is_meta()
            && self.outlines.reals.get(tensor).is_none()
            && self.known(tensor).or_else(|| self.alias(tensor)).is_none()
    }

    /// The node of a tensor; one that comes from outside gets one.
    pub fn node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        if let Some(node) = self.known(tensor).or_else(|| self.alias(tensor)) {
            return Ok(node);
        }
        let real = self.outlines.reals.get(tensor).cloned();
        if self.below && tensor.is_meta() && real.is_none() {
            let shape = tensor.shape();
            let message = format!("a meta tensor of shape {shape:?} was not produced by an op of the program");
            return Err(Error::Value(message));
        }
        let tensor = &real.unwrap_or_else(|| tensor.clone());
        if self.free == Free::Input {
            let node = self.input(&format!("captured_{}", self.captured.len()), tensor);
            self.captured.push((tensor.clone(), node));
            return Ok(node);
        }
        let name = format!("_tensor_constant{}", self.module.attributes.len());
        self.module.attributes.set(&name, Attribute::Tensor(tensor.clone()));
        let node = self.module.graph.get_attr(&name);
        self.module.graph.meta_mut(node).val = Some(TensorMeta::of(tensor).into());
        self.bind(tensor, node);
        Ok(node)
    }

    /// The tensor used while tracing: itself, or a meta tensor like it.
    pub fn outline(&mut self, t: &Tensor) -> firebrand_core::Result<Tensor> {
        if t.is_meta() || t.is_wrapped_number() {
            return Ok(t.clone());
        }
        if let Some(outline) = self.outlines.of.get(t) {
            return Ok(outline.clone());
        }
        let outline = outline_like(t)?;
        self.outlines.of.insert(t, outline.clone());
        self.outlines.reals.insert(&outline, t.clone());
        Ok(outline)
    }

    /// The arguments with real tensors replaced by meta tensors, and expressions by their values.
    pub fn outlined(&mut self, op: Op, args: &[Value]) -> firebrand_core::Result<Vec<Value>> {
        let mut one = |v: &Value| -> firebrand_core::Result<Value> {
            Ok(match v {
                Value::Tensor(t) => Value::Tensor(self.outline(t)?),
                Value::Tensors(list) => Value::Tensors(list.iter().map(|t| self.outline(t)).collect::<Result<_, _>>()?),
                Value::OptTensors(list) => {
                    let list = list.iter().map(|t| t.as_ref().map(|t| self.outline(t)).transpose());
                    Value::OptTensors(list.collect::<Result<_, _>>()?)
                }
                Value::Int(i) => Value::Int(i.hint().into()),
                Value::Ints(list) => Value::Ints(list.iter().map(|i| i.hint().into()).collect()),
                Value::Device(_) => Value::Device(Device::Meta),
                other => other.clone(),
            })
        };
        let mut values: Vec<Value> = args.iter().map(&mut one).collect::<firebrand_core::Result<_>>()?;
        // Factory ops make meta tensors.
        let schema = Schema::of_op(op);
        let from_tensors = args.iter().any(|v| matches!(v, Value::Tensor(_) | Value::Tensors(_)));
        if let (Some(k), false) = (schema.position("device"), from_tensors) {
            values.resize(values.len().max(k + 1), Value::None);
            values[k] = Value::Device(Device::Meta);
        }
        Ok(values)
    }

    /// Marks a change of grad mode, if it is one.
    pub fn set_mode(&mut self, on: bool) {
        if self.mode != on && !self.below {
            self.mode = on;
            let marker = self.module.graph.call_function(Function::SetGradEnabled, [on.into()]);
            self.module.graph.meta_mut(marker).val = Some(Val::None);
        }
    }

    /// Marks changes of grad mode and where autocast regions begin and end; `dtype` is that of the region we are in. Between
    /// the end of one and the beginning of another comes the mode, so that no region is cut for nothing.
    pub(crate) fn set_regions(&mut self, grad: bool, dtype: Option<DType>) {
        let changes = self.autocast.map(|(_, d)| d) != dtype && !self.below;
        if let Some((enter, _)) = self.autocast.take_if(|_| changes) {
            let exit = self.module.graph.call_function(Function::ExitAutocast, [enter.into()]);
            self.module.graph.meta_mut(exit).val = Some(Val::None);
        }
        self.set_mode(grad);
        if let (Some(dtype), true) = (dtype, changes) {
            let args = ["cpu".into(), ScalarType::from(dtype).into(), true.into(), false.into()];
            let enter = self.module.graph.call_function(Function::EnterAutocast, args);
            self.module.graph.meta_mut(enter).val = Some(Val::None);
            self.autocast = Some((enter, dtype));
        }
    }

    /// The arguments of an op as they are recorded. Looked up before the op runs: one that changes a layout in place
    /// changes what its argument is known by.
    pub fn arguments(&mut self, args: &[Value]) -> Result<Vec<Argument>> {
        args.iter().map(|v| self.argument(v)).collect()
    }

    /// Records an op that was called with `args` and gave `results`.
    pub fn record(&mut self, op: Op, args: Vec<Argument>, results: &Outputs) -> Result<NodeId> {
        self.record_in_mode(is_grad_enabled(), op, args, results)
    }

    /// As [`Trace::record`], of an op that ran in this grad mode.
    pub fn record_in_mode(&mut self, mode: bool, op: Op, args: Vec<Argument>, results: &Outputs) -> Result<NodeId> {
        self.set_mode(mode);
        let schema = Schema::of_op(op);
        let (mut positional, mut named): (Vec<Argument>, Vec<(Name, Argument)>) = (Vec::new(), Vec::new());
        let mut skipped: Vec<(&SchemaArg, Argument)> = Vec::new();
        for (arg, value) in schema.args.iter().zip(args) {
            if is_default(arg, &value) {
                skipped.push((arg, value));
            } else if arg.kwarg_only {
                named.push((arg.name.into(), value));
            } else {
                // Defaults before a given argument are written out.
                positional.extend(skipped.drain(..).filter(|(a, _)| !a.kwarg_only).map(|(_, v)| v));
                positional.push(value);
            }
        }
        let target = OpOverload::from(op);
        let name = target.base().to_string();
        let graph = &mut self.module.graph;
        let node = graph.create_node(Kind::CallFunction(target.into()), positional, named, Some(&name));
        let vals: Vec<Val> = results.iter().map(val_of).collect();
        graph.meta_mut(node).val = Some(match &vals[..] {
            [] => Val::None,
            [one] => one.clone(),
            _ => Val::Tuple(vals.into()),
        });
        if self.below && !is_grad_enabled() {
            note(graph, node, UNRECORDED);
        }
        match &results[..] {
            [] => {}
            [Value::Tensor(t)] => self.bind(t, node),
            [Value::Tensors(list)] => list.iter().enumerate().for_each(|(i, t)| self.bind_item(node, i, t)),
            many => {
                for (i, value) in many.iter().enumerate() {
                    match value {
                        Value::Tensor(t) => self.bind_item(node, i, t),
                        Value::Tensors(list) => {
                            let graph = &mut self.module.graph;
                            let part = graph.call_function(Function::GetItem, [node.into(), (i as i64).into()]);
                            graph.meta_mut(part).val = Some(val_of(value));
                            list.iter().enumerate().for_each(|(k, t)| self.bind_item(part, k, t));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(node)
    }

    /// Says of a node whose op ran below autograd whether a history would be recorded for it: if it ran where that is done, and for
    /// one of its operands there is one.
    pub fn note_history(&mut self, node: NodeId) {
        let graph = &mut self.module.graph;
        let has = |n: NodeId| matches!(&graph[n].meta().val, Some(Val::Tensor(meta)) if meta.requires_grad);
        let detached = graph[node].target().is_some_and(|t| t.is_op(Op::DETACH));
        if !self.mode || detached || !graph.input_nodes(node).any(has) {
            return;
        }
        let parts: Vec<NodeId> = std::iter::once(node).chain(graph.users(node)).collect();
        for n in parts {
            if let Some(Val::Tensor(meta)) = &graph[n].meta().val
                && meta.dtype.dtype().is_some_and(DType::is_differentiable)
            {
                let meta = TensorMeta { requires_grad: true, ..(**meta).clone() };
                graph.meta_mut(n).val = Some(meta.into());
            }
        }
    }

    /// Records a call that is not an op, with its `result`.
    pub(crate) fn record_call(
        &mut self,
        target: Target,
        args: &[crate::interpret::Value],
        result: Option<&Tensor>,
    ) -> Result<()> {
        let args: Vec<Argument> = args.iter().map(|v| self.plain_argument(v)).collect::<Result<_>>()?;
        let node = self.module.graph.call_function(target, args);
        self.module.graph.meta_mut(node).val = Some(result.map_or(Val::None, |t| TensorMeta::of(t).into()));
        if let Some(t) = result {
            self.bind(t, node);
        }
        Ok(())
    }

    /// As `record_call`, for a call that returns a tuple, parts of which may be absent.
    pub(crate) fn record_tuple(
        &mut self,
        target: Target,
        args: &[crate::interpret::Value],
        results: &[Option<Tensor>],
    ) -> Result<()> {
        let arguments: Vec<Argument> = args.iter().map(|v| self.plain_argument(v)).collect::<Result<_>>()?;
        let node = self.module.graph.call_function(target, arguments);
        let vals = results.iter().map(|t| t.as_ref().map_or(Val::None, |t| TensorMeta::of(t).into()));
        self.module.graph.meta_mut(node).val = Some(Val::Tuple(vals.collect()));
        if args.iter().any(|v| matches!(v, crate::interpret::Value::Graph(g) if draws(g))) {
            note(&mut self.module.graph, node, DRAWS);
        }
        for (i, t) in results.iter().enumerate().filter_map(|(i, t)| Some((i, t.as_ref()?))) {
            self.bind_item(node, i, t);
        }
        Ok(())
    }

    fn plain_argument(&mut self, value: &crate::interpret::Value) -> Result<Argument> {
        use crate::interpret::Value as Plain;
        Ok(match value {
            Plain::Tensor(t) => self.node(t)?.into(),
            Plain::Scalar(Scalar::Bool(b)) => Argument::Bool(*b),
            Plain::Scalar(Scalar::Int(i)) => Argument::Int(*i),
            Plain::Scalar(Scalar::Float(v)) => Argument::Float(*v),
            Plain::Scalar(Scalar::Complex(v)) => Argument::Complex(v.re, v.im),
            Plain::List(items) => Argument::List(items.iter().map(|v| self.plain_argument(v)).collect::<Result<_>>()?),
            Plain::Constant(a) => a.clone(),
            Plain::Graph(g) => {
                let name = format!("body_{}", self.module.attributes.len());
                self.module.attributes.set(&name, Attribute::Graph(Arc::clone(g)));
                self.module.graph.get_attr(&name).into()
            }
            other => return Err(Error::Value(format!("{} cannot be recorded", other.kind()))),
        })
    }

    /// Records a function or higher-order op, with a tuple of tensors as its result.
    pub fn record_function(
        &mut self,
        function: impl Into<Target>,
        args: impl Into<Box<[Argument]>>,
        results: &[Tensor],
    ) -> NodeId {
        self.set_mode(is_grad_enabled());
        let node = self.module.graph.call_function(function, args);
        let vals = results.iter().map(|t| TensorMeta::of(t).into());
        self.module.graph.meta_mut(node).val = Some(Val::Tuple(vals.collect()));
        results.iter().enumerate().for_each(|(i, t)| self.bind_item(node, i, t));
        node
    }

    fn bind_item(&mut self, node: NodeId, i: usize, tensor: &Tensor) {
        let item = self.module.graph.call_function(Function::GetItem, [node.into(), (i as i64).into()]);
        self.module.graph.meta_mut(item).val = Some(TensorMeta::of(tensor).into());
        self.bind(tensor, item);
    }

    /// Drops all tensors; those still alive afterwards are held elsewhere.
    pub fn release(&mut self) -> Vec<(WeakTensor, NodeId)> {
        let outlines = std::mem::take(&mut self.outlines).of;
        let outlines = outlines
            .into_iter()
            .filter_map(|(real, outline)| Some((outline.downgrade(), self.nodes.get(&real.id())?.1)));
        let mut list: Vec<(WeakTensor, NodeId)> = outlines.collect();
        self.memory = None;
        list.extend(self.nodes.drain().map(|(_, (t, n))| (t.downgrade(), n)));
        list.sort_by_key(|(_, n)| n.index());
        list
    }

    /// Ends the graph with these results.
    pub fn finish(&mut self, results: Vec<Argument>) -> GraphModule {
        let ambient = self.ambient;
        self.set_regions(ambient, None);
        self.module.graph.output(Argument::Tuple(results.into()));
        std::mem::take(&mut self.module)
    }

    /// An integer argument: a number, or the node that computes an expression.
    pub fn size(&mut self, value: SymInt) -> Argument {
        let Some((index, node)) = value.expression().zip(value.parts()) else { return Argument::Int(value.hint()) };
        if let Some(node) = self.expressions.get(&index) {
            return (*node).into();
        }
        match node {
            // What this graph does not know it holds as a number, and is tied to.
            SymNode::Symbol(symbol) => self.symbols.get(&symbol).cloned().unwrap_or_else(|| Argument::Int(value.int())),
            SymNode::Binary(op, a, b) => {
                let arguments = [self.size(a), self.size(b)];
                let node = self.module.graph.call_function(size_function(op), arguments);
                self.module.graph.meta_mut(node).val = Some(Val::SymInt(Symbolic::Known(value.hint())));
                self.expressions.insert(index, node);
                node.into()
            }
        }
    }

    fn argument(&mut self, value: &Value) -> Result<Argument> {
        let scalar = |s: Scalar| match s {
            Scalar::Bool(b) => Argument::Bool(b),
            Scalar::Int(i) => Argument::Int(i),
            Scalar::Float(v) => Argument::Float(v),
            Scalar::Complex(v) => Argument::Complex(v.re, v.im),
        };
        Ok(match value {
            Value::None => Argument::None,
            Value::Tensor(t) if t.is_wrapped_number() && !t.is_meta() => scalar(t.try_scalar_value()?),
            Value::Tensor(t) => self.node(t)?.into(),
            Value::Tensors(list) => {
                let items = list.iter().map(|t| Ok(self.node(t)?.into()));
                Argument::list(items.collect::<Result<Vec<Argument>>>()?)
            }
            Value::OptTensors(list) => {
                let items = list.iter().map(|t| t.as_ref().map_or(Ok(Argument::None), |t| Ok(self.node(t)?.into())));
                Argument::list(items.collect::<Result<Vec<Argument>>>()?)
            }
            Value::Scalar(s) => scalar(*s),
            Value::Scalars(list) => Argument::list(list.iter().map(|s| scalar(*s))),
            Value::Int(i) => self.size(*i),
            Value::Ints(list) => Argument::list(list.iter().map(|i| self.size(*i)).collect::<Vec<_>>()),
            Value::Float(v) => Argument::Float(*v),
            Value::Floats(list) => Argument::list(list.iter().map(|v| Argument::Float(*v))),
            Value::Bool(b) => Argument::Bool(*b),
            Value::Bools(list) => Argument::list(list.iter().map(|b| Argument::Bool(*b))),
            Value::Str(s) => s.as_str().into(),
            Value::DType(d) => ScalarType::from(*d).into(),
            Value::Device(_) => DeviceName::cpu().into(),
            Value::MemoryFormat(m) => Argument::MemoryFormat(match m {
                dispatch::MemoryFormat::Contiguous => MemoryFormat::Contiguous,
                dispatch::MemoryFormat::ChannelsLast => MemoryFormat::ChannelsLast,
                dispatch::MemoryFormat::Preserve => MemoryFormat::Preserve,
            }),
            other => return Err(Error::Value(format!("{} cannot be recorded", other.kind()))),
        })
    }
}

/// Like [`outline`], a leaf exactly if `t` is one, so that writing it in place is allowed alike.
pub fn outline_like(t: &Tensor) -> firebrand_core::Result<Tensor> {
    let stand_in = outline(t)?;
    if !t.requires_grad() || t.is_leaf_here() {
        return Ok(stand_in);
    }
    // No layer, above autograd or below, sees how it is made; on a level of a transform, the level has to.
    match func::is_transforming() {
        false => ThreadState::isolated(|| stand_in.try_clone_tensor()),
        true => capture::suspended(|| stand_in.try_clone_tensor()),
    }
}

/// Whether running the graph uses the random generator.
fn draws(module: &GraphModule) -> bool {
    let graph = &module.graph;
    graph.nodes().any(|n| graph[n].draws()) || module.subgraphs().any(|(_, g)| draws(g))
}

fn note(graph: &mut Graph, node: NodeId, key: &str) {
    let other = graph.meta_mut(node).other.get_or_insert_default();
    Arc::make_mut(other).insert(key.to_string(), String::new());
}

fn val_of(value: &Value) -> Val {
    match value {
        Value::Tensor(t) => TensorMeta::of(t).into(),
        Value::Tensors(list) => Val::List(list.iter().map(|t| TensorMeta::of(t).into()).collect()),
        Value::Int(i) => Val::SymInt(Symbolic::Known(i.hint())),
        Value::Bool(b) => Val::Constant((*b).into()),
        Value::Float(v) => Val::Constant((*v).into()),
        _ => Val::None,
    }
}

/// Whether omitting the argument means the same.
fn is_default(arg: &SchemaArg, value: &Argument) -> bool {
    let Some(default) = arg.default else { return false };
    match value {
        Argument::None => true, // boxed calls take none for "as declared"
        Argument::Bool(b) => default == Constant::Bool(*b),
        Argument::Int(i) => default == Constant::Int(*i),
        Argument::Float(v) => default == Constant::Float(*v) || matches!(default, Constant::Int(i) if i as f64 == *v),
        Argument::List(items) => match default {
            // `padding=0` stands for as many zeros as there are dimensions.
            Constant::Int(d) | Constant::Ints(&[d]) => {
                !items.is_empty() && items.iter().all(|item| matches!(item, Argument::Int(v) if *v == d))
            }
            Constant::Ints(list) => {
                items.len() == list.len()
                    && items.iter().zip(list).all(|(a, d)| matches!(a, Argument::Int(v) if v == d))
            }
            _ => false,
        },
        _ => false,
    }
}
