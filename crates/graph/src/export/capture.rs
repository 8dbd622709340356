//! The layer that writes ops down: above autograd for export, below it for decompositions.

use super::refuse;
use crate::error::Result;
use crate::ir::*;
use crate::schema::{Schema, SchemaArg};
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::dispatch::{self, Interpreter, Next, Op, Outputs, Value};
use firebrand_core::{Device, Scalar, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// A graph in the making.
pub(crate) struct Capture {
    trace: Mutex<Trace>,
}

struct Trace {
    module: GraphModule,
    /// Tensors that have a node, in buckets by the address of their description, which several may share.
    nodes: HashMap<usize, Vec<(Tensor, NodeId)>>,
    /// Tensors with memory, and what stands for them while tracing.
    outlines: Vec<(Tensor, Tensor)>,
    ambient: bool,
    mode: bool,
    /// For a graph that nobody differentiates: nodes by memory. Grad mode is then a note on the node.
    below: Option<HashMap<usize, Vec<(Tensor, NodeId)>>>,
}

/// The key of a node's note that its value was computed where nothing was recorded.
pub(crate) const UNRECORDED: &str = "unrecorded";
/// The key of a node's note that a derivative reads its value as the result of the op that made it.
pub(crate) const SAVED_RESULT: &str = "saved_result";

impl Capture {
    /// An empty graph; `ambient` is the grad mode around it.
    pub(crate) fn new(ambient: bool) -> Capture {
        let trace = Trace {
            module: GraphModule::default(),
            nodes: HashMap::new(),
            outlines: Vec::new(),
            ambient,
            mode: ambient,
            below: None,
        };
        Capture { trace: Mutex::new(trace) }
    }

    /// An empty graph of what derivatives are made of: they hold results by aliases of their own, which are known by
    /// their memory. No op that is written down may write.
    pub(crate) fn below() -> Capture {
        let capture = Capture::new(true);
        capture.trace().below = Some(HashMap::new());
        capture
    }

    /// Writes a call down that is no op; `result` is what it gives.
    pub(crate) fn call_node(
        &self,
        target: Target,
        args: &[crate::interpret::Value],
        result: Option<&Tensor>,
    ) -> Result<()> {
        let mut trace = self.trace();
        let args: Vec<Argument> = args.iter().map(|v| trace.plain_argument(v)).collect::<Result<_>>()?;
        let node = trace.module.graph.call_function(target, args);
        trace.module.graph.meta_mut(node).val = Some(result.map_or(Val::None, |t| TensorMeta::of(t).into()));
        if let Some(t) = result {
            trace.bind(t, node);
        }
        Ok(())
    }

    /// Ends the graph with these results, some of which may be absent.
    pub(crate) fn finish_some(&self, results: &[Option<Tensor>]) -> Result<GraphModule> {
        let mut trace = self.trace();
        let mut returned = Vec::with_capacity(results.len());
        for t in results {
            returned.push(match t {
                Some(t) => trace.node(t)?.into(),
                None => Argument::None,
            });
        }
        trace.module.graph.output(Argument::Tuple(returned.into()));
        Ok(std::mem::take(&mut trace.module))
    }

    fn trace(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds an input; returns its name.
    pub(crate) fn input(&self, name: &str, tensor: &Tensor) -> Name {
        let mut trace = self.trace();
        let node = trace.module.graph.placeholder(name);
        trace.module.graph.meta_mut(node).val = Some(TensorMeta::of(tensor).into());
        trace.bind(tensor, node);
        trace.module.graph[node].name().clone()
    }

    /// Ends the graph with these results.
    pub(crate) fn finish(&self, results: &[Tensor]) -> Result<GraphModule> {
        let mut trace = self.trace();
        let ambient = trace.ambient;
        trace.set_mode(ambient);
        let results: Vec<Argument> = results.iter().map(|t| Ok(trace.node(t)?.into())).collect::<Result<_>>()?;
        trace.module.graph.output(Argument::Tuple(results.into()));
        Ok(std::mem::take(&mut trace.module))
    }
}

/// Runs `f` and writes down every op it calls, whole layers as they are.
pub(crate) fn above_autograd<R>(
    capture: &Arc<Capture>,
    f: impl FnOnce() -> firebrand_core::Result<R>,
) -> firebrand_core::Result<R> {
    let _layer = dispatch::push_layer(Arc::clone(capture) as Arc<dyn Interpreter>);
    f()
}

/// Runs `f` on outlines of `inputs` and writes down what reaches the kernels: layers come apart into the ops they are
/// made of. The placeholders keep these names.
pub(crate) fn trace_below_autograd(
    inputs: &[(Name, Tensor)],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<GraphModule> {
    let capture = Arc::new(Capture::new(is_grad_enabled()));
    let mut outlines = Vec::new();
    for (name, tensor) in inputs {
        let outline = tensor.try_to_device(Device::Meta)?.try_requires_grad_(tensor.requires_grad())?;
        capture.input(name, &outline);
        outlines.push(outline);
    }
    let results = {
        let _layer = dispatch::push_inner_layer(Arc::clone(&capture) as Arc<dyn Interpreter>);
        f(&outlines)?
    };
    capture.finish(&results)
}

impl Interpreter for Capture {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> firebrand_core::Result<Outputs> {
        let outlined = self.trace().outlined(args)?;
        // Looked up before the op runs: one that changes a layout in place changes what its argument is known by.
        let given = args.iter().map(|v| self.trace().argument(v)).collect::<Result<Vec<_>>>();
        let given = given.map_err(firebrand_core::Error::user)?;
        let results = next.call(op, &outlined)?;
        self.trace().record(op, given, &results).map_err(firebrand_core::Error::user)?;
        Ok(results)
    }
}

fn address(tensor: &Tensor) -> usize {
    std::ptr::from_ref(tensor.spec()).addr()
}

impl Trace {
    fn bind(&mut self, tensor: &Tensor, node: NodeId) {
        let bucket = self.nodes.entry(address(tensor)).or_default();
        match bucket.iter_mut().find(|(t, _)| t.is_same(tensor)) {
            // An op in place: whoever uses the tensor from now on uses the result.
            Some((_, old)) => *old = node,
            None => bucket.push((tensor.clone(), node)),
        }
        if let Some(below) = &mut self.below {
            below.entry(tensor.untyped_storage().addr()).or_default().push((tensor.clone(), node));
        }
    }

    /// The node of the value that a tensor nobody made here shows, if it is an alias of one.
    fn alias(&mut self, tensor: &Tensor) -> Option<NodeId> {
        let same = |t: &Tensor| {
            t.dtype() == tensor.dtype()
                && t.storage_offset() == tensor.storage_offset()
                && t.layout().same_geometry(tensor.layout())
        };
        let bucket = self.below.as_ref()?.get(&tensor.untyped_storage().addr())?;
        // Not by an alias without history: derivatives mean the value that the op gave.
        let detached = |n: NodeId| self.module.graph[n].target().is_some_and(|t| t.is_aten("detach"));
        let alike = || bucket.iter().rev().filter(|(t, _)| same(t)).map(|(_, n)| *n);
        let node = alike().find(|n| !detached(*n)).or_else(|| alike().next())?;
        note(&mut self.module.graph, node, SAVED_RESULT);
        self.bind(tensor, node);
        Some(node)
    }

    /// The node of a tensor; one that nobody made here is a constant.
    fn node(&mut self, tensor: &Tensor) -> Result<NodeId> {
        let bucket = self.nodes.get(&address(tensor));
        if let Some((_, node)) = bucket.and_then(|b| b.iter().find(|(t, _)| t.is_same(tensor))) {
            return Ok(*node);
        }
        if let Some(node) = self.alias(tensor) {
            return Ok(node);
        }
        if self.below.is_some() && tensor.is_meta() && !self.outlines.iter().any(|(_, o)| o.is_same(tensor)) {
            let shape = tensor.shape();
            return refuse(format!("a tensor of shape {shape:?} without memory was made by no op of the program"));
        }
        if let Some((real, _)) = self.outlines.iter().find(|(_, o)| o.is_same(tensor)) {
            let real = real.clone();
            return self.node(&real);
        }
        let count = self.module.attributes.len();
        let name = format!("_tensor_constant{count}");
        self.module.attributes.set(&name, Attribute::Tensor(tensor.clone()));
        let node = self.module.graph.get_attr(&name);
        self.module.graph.meta_mut(node).val = Some(TensorMeta::of(tensor).into());
        self.bind(tensor, node);
        Ok(node)
    }

    /// The arguments with tensors that have memory replaced by outlines of them.
    fn outlined(&mut self, args: &[Value]) -> firebrand_core::Result<Vec<Value>> {
        let mut outline = |t: &Tensor| -> firebrand_core::Result<Tensor> {
            if t.is_meta() || t.is_wrapped_number() {
                return Ok(t.clone());
            }
            if let Some((_, outline)) = self.outlines.iter().find(|(real, _)| real.is_same(t)) {
                return Ok(outline.clone());
            }
            let outline = t.detach().try_to_device(Device::Meta)?.try_requires_grad_(t.requires_grad())?;
            self.outlines.push((t.clone(), outline.clone()));
            Ok(outline)
        };
        let mut one = |v: &Value| -> firebrand_core::Result<Value> {
            Ok(match v {
                Value::Tensor(t) => Value::Tensor(outline(t)?),
                Value::Tensors(list) => Value::Tensors(list.iter().map(&mut outline).collect::<Result<_, _>>()?),
                Value::OptTensors(list) => {
                    let list = list.iter().map(|t| t.as_ref().map(&mut outline).transpose());
                    Value::OptTensors(list.collect::<Result<_, _>>()?)
                }
                Value::Device(_) => Value::Device(Device::Meta),
                other => other.clone(),
            })
        };
        args.iter().map(&mut one).collect()
    }

    fn set_mode(&mut self, on: bool) {
        if self.mode != on && self.below.is_none() {
            self.mode = on;
            let marker = self.module.graph.call_function(Function::SetGradEnabled, [on.into()]);
            self.module.graph.meta_mut(marker).val = Some(Val::None);
        }
    }

    fn record(&mut self, op: Op, args: Vec<Argument>, results: &Outputs) -> Result<()> {
        self.set_mode(is_grad_enabled());
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
        let val = match &vals[..] {
            [] => Val::None,
            [one] => one.clone(),
            _ => Val::Tuple(vals.into()),
        };
        graph.meta_mut(node).val = Some(val);
        if self.below.is_some() && !is_grad_enabled() {
            note(graph, node, UNRECORDED);
        }
        match &results[..] {
            [] => {}
            [Value::Tensor(t)] => self.bind(t, node),
            [Value::Tensors(list)] => list.iter().enumerate().for_each(|(i, t)| self.bind_item(node, i, t)),
            many => {
                for (i, value) in many.iter().enumerate() {
                    if let Value::Tensor(t) = value {
                        self.bind_item(node, i, t);
                    }
                }
            }
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
            Plain::List(items) => Argument::List(items.iter().map(|v| self.plain_argument(v)).collect::<Result<_>>()?),
            Plain::Constant(a) => a.clone(),
            Plain::Graph(g) => {
                let name = format!("body_{}", self.module.attributes.len());
                self.module.attributes.set(&name, Attribute::Graph(Arc::clone(g)));
                self.module.graph.get_attr(&name).into()
            }
            other => return refuse(format!("{} cannot be written down", other.kind())),
        })
    }

    fn bind_item(&mut self, node: NodeId, i: usize, tensor: &Tensor) {
        let item = self.module.graph.call_function(Function::GetItem, [node.into(), (i as i64).into()]);
        self.module.graph.meta_mut(item).val = Some(TensorMeta::of(tensor).into());
        self.bind(tensor, item);
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
            Value::Tensor(t) if t.is_wrapped_number() => scalar(t.try_scalar_value()?),
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
            Value::Int(i) => Argument::Int(i.int()),
            Value::Ints(list) => Argument::list(list.iter().map(|i| Argument::Int(i.int()))),
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
            other => return refuse(format!("{} cannot be written down", other.kind())),
        })
    }
}

fn note(graph: &mut Graph, node: NodeId, key: &str) {
    let other = graph.meta_mut(node).other.get_or_insert_default();
    Arc::make_mut(other).insert(key.to_string(), String::new());
}

fn val_of(value: &Value) -> Val {
    match value {
        Value::Tensor(t) => TensorMeta::of(t).into(),
        Value::Tensors(list) => Val::List(list.iter().map(|t| TensorMeta::of(t).into()).collect()),
        Value::Int(i) => Val::SymInt(Symbolic::Known(i.int())),
        Value::Bool(b) => Val::Constant((*b).into()),
        Value::Float(v) => Val::Constant((*v).into()),
        _ => Val::None,
    }
}

/// Whether leaving the argument out means the same.
fn is_default(arg: &SchemaArg, value: &Argument) -> bool {
    let Some(default) = arg.default else { return false };
    match value {
        Argument::None => true, // boxed calls take none for "as declared"
        Argument::Bool(b) => default == if *b { "True" } else { "False" },
        Argument::Int(i) => default.parse() == Ok(*i),
        Argument::Float(v) => default.parse() == Ok(*v),
        Argument::List(items) => {
            let inner = default.strip_prefix('[').and_then(|d| d.strip_suffix(']')).unwrap_or(default);
            let parts: Vec<&str> = inner.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
            // `padding=0` stands for as many zeros as there are dimensions.
            let same = |(i, item): (usize, &Argument)| match item {
                Argument::Int(v) => {
                    parts.get(if parts.len() == 1 { 0 } else { i }).is_some_and(|p| p.parse() == Ok(*v))
                }
                Argument::Bool(b) => parts.get(i) == Some(&if *b { "True" } else { "False" }),
                _ => false,
            };
            (items.is_empty() && parts.is_empty()) || (!items.is_empty() && items.iter().enumerate().all(same))
        }
        _ => false,
    }
}
