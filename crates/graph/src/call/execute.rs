//! Runs a graph on real values, op by op, through the ordinary dispatch: hooks, layers and autograd see every op.
//!
//! A value is dropped after its last user ran. Grad mode and autocast belong to a frame: whatever a region changes is
//! put back when it ends, also when it fails. An error names the node.

use super::autocast;
use super::scalars::scalar_function;
use crate::error::{Error, Result};
use crate::ir::{Argument, Function, Graph, GraphModule, Hop, Kind, MemoryFormat, Node, NodeId, Target};
use crate::pt2::op_schema;
use firebrand_core::autograd::{is_grad_enabled, set_grad_enabled};
use firebrand_core::dispatch::{self, Value};
use firebrand_core::{DType, Device, Scalar, Tensor};
use std::sync::Arc;

/// What a node's value can be.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// A tensor, a number, or anything else an op takes.
    Value(Value),
    /// A tuple or list.
    Items(Vec<Object>),
    /// A sub-graph.
    Graph(Arc<GraphModule>),
}

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Value(message.into()))
}

/// Runs a graph; gives what it returns.
pub(crate) fn run(module: &GraphModule, inputs: Vec<Object>) -> Result<Object> {
    Frame::run(module, inputs, None)
}

struct Frame<'a> {
    module: &'a GraphModule,
    values: Vec<Option<Object>>,
    /// Users that have not run yet, by node.
    waiting: Vec<usize>,
    /// Autocast regions that are open; the last one counts. None switches it off.
    autocast: Vec<Option<DType>>,
}

impl<'a> Frame<'a> {
    fn run(module: &'a GraphModule, inputs: Vec<Object>, autocast: Option<DType>) -> Result<Object> {
        let graph = &module.graph;
        let mut frame = Frame {
            module,
            values: vec![None; graph.capacity()],
            waiting: vec![0; graph.capacity()],
            autocast: vec![autocast],
        };
        // Marks of grad mode inside the graph last until its end.
        let _mode = set_grad_enabled(is_grad_enabled()).scoped();
        let mut inputs = inputs.into_iter();
        for id in graph.nodes() {
            let node = &graph[id];
            frame.waiting[id.index()] = node.num_users();
            let value = match node.kind() {
                Kind::Placeholder(name) => match inputs.next() {
                    Some(value) => value,
                    None => return refuse(format!("expected positional argument for parameter {name}")),
                },
                Kind::GetAttr(path) => frame.attribute(path)?,
                Kind::Output => return frame.resolve(graph, &node.args()[0]),
                Kind::CallFunction(target) => frame
                    .call(graph, node, target)
                    .map_err(|e| Error::Run { node: format!("%{} = {target}", node.name()), source: Box::new(e) })?,
                Kind::CallMethod(_) | Kind::CallModule(_) => {
                    return refuse(format!("%{}: calls of methods and modules cannot be run", node.name()));
                }
            };
            if node.num_users() > 0 {
                frame.values[id.index()] = Some(value);
            }
            for used in graph.input_nodes(id) {
                frame.waiting[used.index()] -= 1;
                if frame.waiting[used.index()] == 0 {
                    frame.values[used.index()] = None;
                }
            }
        }
        refuse("the graph has no output")
    }

    fn attribute(&self, path: &str) -> Result<Object> {
        match self.module.attributes.get(path) {
            Some(a) => match (a.graph(), a.tensor()) {
                (Some(g), _) => Ok(Object::Graph(g.clone())),
                (None, Some(t)) => Ok(Object::Value(Value::Tensor(t.clone()))),
                _ => refuse(format!("{path} is neither a tensor nor a sub-graph")),
            },
            None => refuse(format!("the module has no attribute {path}")),
        }
    }

    fn resolve(&self, graph: &Graph, argument: &Argument) -> Result<Object> {
        let items = |list: &[Argument]| -> Result<Object> {
            Ok(Object::Items(list.iter().map(|a| self.resolve(graph, a)).collect::<Result<_>>()?))
        };
        Ok(Object::Value(match argument {
            Argument::Node(n) => return self.value(graph, *n),
            Argument::Tuple(list) | Argument::List(list) => return items(list),
            Argument::None | Argument::Layout(_) => Value::None,
            Argument::Bool(v) => Value::Bool(*v),
            Argument::Int(v) => Value::Int((*v).into()),
            Argument::Float(v) => Value::Float(*v),
            Argument::Str(v) => Value::Str(v.to_string()),
            Argument::DType(d) => match d.dtype() {
                Some(dtype) => Value::DType(dtype),
                None => return refuse(format!("tensors of {d} are not supported")),
            },
            Argument::Device(d) => Value::Device(if &*d.kind == "meta" { Device::Meta } else { Device::Cpu }),
            Argument::MemoryFormat(f) => Value::MemoryFormat(match f {
                MemoryFormat::Contiguous => dispatch::MemoryFormat::Contiguous,
                MemoryFormat::ChannelsLast => dispatch::MemoryFormat::ChannelsLast,
                MemoryFormat::Preserve => dispatch::MemoryFormat::Preserve,
                MemoryFormat::ChannelsLast3d => return refuse("the memory format channels_last_3d is not supported"),
            }),
            Argument::Complex(..) | Argument::Op(_) | Argument::Slice(_) | Argument::Dict(_) => {
                return refuse(format!("an argument {argument:?} is not supported"));
            }
        }))
    }

    fn value(&self, graph: &Graph, id: NodeId) -> Result<Object> {
        match &self.values[id.index()] {
            Some(value) => Ok(value.clone()),
            None => refuse(format!("%{} has no value", graph[id].name())),
        }
    }

    fn call(&mut self, graph: &Graph, node: &Node, target: &Target) -> Result<Object> {
        match target {
            Target::Op(op) => match op.op() {
                Some(op) => self.op(graph, node, op),
                None => refuse("this build has no such op"),
            },
            Target::Hop(hop) => {
                let args = node.args().iter().map(|a| self.resolve(graph, a)).collect::<Result<Vec<_>>>()?;
                self.higher_order(hop, args)
            }
            Target::Function(f) => {
                let args = node.args().iter().map(|a| self.resolve(graph, a)).collect::<Result<Vec<_>>>()?;
                self.function(f, args)
            }
        }
    }

    fn op(&self, graph: &Graph, node: &Node, op: dispatch::Op) -> Result<Object> {
        let schema = op_schema::of(op);
        let mut args = vec![Value::None; schema.arguments.len()];
        for (k, argument) in node.args().iter().enumerate() {
            match args.get_mut(k) {
                Some(slot) => *slot = boxed(self.resolve(graph, argument)?, &schema.arguments[k].ty)?,
                None => return refuse(format!("the op takes {} arguments", args.len())),
            }
        }
        for (name, argument) in node.kwargs() {
            match schema.arguments.iter().position(|a| a.name == **name) {
                Some(k) => args[k] = boxed(self.resolve(graph, argument)?, &schema.arguments[k].ty)?,
                None => return refuse(format!("the op has no argument {name:?}")),
            }
        }
        if let Some(lower) = self.autocast.last().copied().flatten() {
            let base = op.name().trim_start_matches("aten::");
            autocast::cast(base.split('.').next().unwrap_or(base), lower, &mut args)?;
        }
        let mut results = dispatch::call(op, &args)?;
        Ok(match results.len() {
            1 => object(results.pop().expect("there is one")),
            _ => Object::Items(results.into_iter().map(object).collect()),
        })
    }

    fn higher_order(&self, hop: &Hop, args: Vec<Object>) -> Result<Object> {
        let autocast = self.autocast.last().copied().flatten();
        match (hop, &args[..]) {
            (Hop::Cond, [predicate, Object::Graph(yes), Object::Graph(no), operands]) => {
                let operands = match operands {
                    Object::Items(items) => items.clone(),
                    _ => return refuse("the operands of cond are a tuple"),
                };
                let branch = if truth(predicate)? { yes } else { no };
                let result = Frame::run(branch, operands.clone(), autocast)?;
                attach(result, &operands)
            }
            (Hop::WrapWithSetGradEnabled, [enabled, Object::Graph(body), operands @ ..]) => {
                let _mode = set_grad_enabled(truth(enabled)?).scoped();
                Frame::run(body, operands.to_vec(), autocast)
            }
            (Hop::WrapWithAutocast, [device, dtype, enabled, _cache, Object::Graph(body), operands @ ..]) => {
                Frame::run(body, operands.to_vec(), region(autocast, device, dtype, enabled)?)
            }
            _ => refuse(format!("hop.{} cannot be run, or not with these arguments", hop.name())),
        }
    }

    fn function(&mut self, function: &Function, args: Vec<Object>) -> Result<Object> {
        let none = Object::Value(Value::None);
        match (function, &args[..]) {
            (Function::GetItem, [Object::Items(items), Object::Value(Value::Int(k))]) => {
                let item = usize::try_from(k.int()).ok().and_then(|k| items.get(k));
                item.cloned().map_or_else(|| refuse(format!("item {k} of {} values", items.len())), Ok)
            }
            (Function::SetGradEnabled, [enabled]) => {
                // The frame puts it back.
                _ = set_grad_enabled(truth(enabled)?);
                Ok(none)
            }
            (Function::EnterAutocast, [device, dtype, enabled, ..]) => {
                let inner = region(self.autocast.last().copied().flatten(), device, dtype, enabled)?;
                self.autocast.push(inner);
                Ok(none)
            }
            (Function::ExitAutocast, _) => {
                if self.autocast.len() > 1 {
                    self.autocast.pop();
                }
                Ok(none)
            }
            _ => {
                let numbers = args.iter().map(number).collect::<Result<Vec<_>>>()?;
                let result = scalar_function(function, &numbers).map_err(Error::Value)?;
                Ok(Object::Value(match result {
                    Scalar::Int(v) => Value::Int(v.into()),
                    Scalar::Float(v) => Value::Float(v),
                    Scalar::Bool(v) => Value::Bool(v),
                }))
            }
        }
    }
}

/// Makes a result depend on every operand that wants gradients: those that the branch did not use get zeros, as if the
/// other branch had been added with weight zero. Costs nothing but the nodes: what is added is the sum of no elements.
fn attach(result: Object, operands: &[Object]) -> Result<Object> {
    if !is_grad_enabled() {
        return Ok(result);
    }
    let mut zero: Option<Tensor> = None;
    for operand in operands {
        if let Object::Value(Value::Tensor(t)) = operand
            && t.requires_grad()
        {
            let t = if t.ndim() == 0 { t.try_unsqueeze(0)? } else { t.clone() };
            let nothing = t.try_slice(0, Some(0.into()), Some(0.into()), 1)?.try_sum()?;
            zero = Some(match zero {
                Some(z) => z.try_add(&nothing)?,
                None => nothing,
            });
        }
    }
    match zero {
        Some(zero) => add_to_floats(result, &zero),
        None => Ok(result),
    }
}

fn add_to_floats(object: Object, zero: &Tensor) -> Result<Object> {
    Ok(match object {
        Object::Items(items) => {
            Object::Items(items.into_iter().map(|i| add_to_floats(i, zero)).collect::<Result<_>>()?)
        }
        Object::Value(Value::Tensor(t)) if t.is_floating_point() => {
            Object::Value(t.try_add(&zero.try_to_dtype(t.dtype())?)?.into())
        }
        other => other,
    })
}

/// The autocast state inside a region.
fn region(outer: Option<DType>, device: &Object, dtype: &Object, enabled: &Object) -> Result<Option<DType>> {
    if !matches!(device, Object::Value(Value::Str(d)) if d == "cpu") {
        // Regions of other devices do not concern what runs here.
        return Ok(outer);
    }
    let lower = match dtype {
        Object::Value(Value::DType(d)) => *d,
        _ => DType::BF16,
    };
    Ok(truth(enabled)?.then_some(lower))
}

fn truth(object: &Object) -> Result<bool> {
    match object {
        Object::Value(Value::Bool(b)) => Ok(*b),
        Object::Value(Value::Tensor(t)) => Ok(t.try_scalar_value()?.to_bool()),
        Object::Value(Value::Int(i)) => Ok(i.int() != 0),
        _ => refuse("a truth value expected"),
    }
}

fn number(object: &Object) -> Result<Scalar> {
    match object {
        Object::Value(Value::Int(i)) => Ok(Scalar::Int(i.int())),
        Object::Value(Value::Float(f)) => Ok(Scalar::Float(*f)),
        Object::Value(Value::Bool(b)) => Ok(Scalar::Bool(*b)),
        Object::Value(Value::Tensor(t)) => Ok(t.try_scalar_value()?),
        _ => refuse("a number expected"),
    }
}

/// A result of an op.
fn object(value: Value) -> Object {
    match value {
        Value::Tensors(list) => Object::Items(list.into_iter().map(|t| Object::Value(Value::Tensor(t))).collect()),
        Value::Scalar(Scalar::Int(v)) => Object::Value(Value::Int(v.into())),
        Value::Scalar(Scalar::Float(v)) => Object::Value(Value::Float(v)),
        Value::Scalar(Scalar::Bool(v)) => Object::Value(Value::Bool(v)),
        value => Object::Value(value),
    }
}

/// An argument as the op's schema wants it: lists by their elements, numbers as tensors where a tensor is due.
fn boxed(object: Object, ty: &str) -> Result<Value> {
    let items = match object {
        Object::Value(value) => {
            let wants_tensor = ty == "Tensor" || ty == "Tensor?";
            return Ok(match value {
                Value::Int(v) if wants_tensor => Tensor::wrapped_number(Scalar::Int(v.int()))?.into(),
                Value::Float(v) if wants_tensor => Tensor::wrapped_number(Scalar::Float(v))?.into(),
                Value::Bool(v) if wants_tensor => Tensor::wrapped_number(Scalar::Bool(v))?.into(),
                value => value,
            });
        }
        Object::Items(items) => items,
        Object::Graph(_) => return refuse("a sub-graph is no argument of an op"),
    };
    if items.is_empty() && ty.starts_with("Tensor") {
        return Ok(if ty.contains("?[") { Value::OptTensors(Vec::new()) } else { Value::Tensors(Vec::new()) });
    }
    macro_rules! all {
        ($($pattern:pat => $value:expr),*) => {
            items.iter().map(|i| match i { $(Object::Value($pattern) => Some($value),)* _ => None }).collect::<Option<_>>()
        };
    }
    if let Some(list) = all!(Value::Tensor(t) => t.clone()) {
        return Ok(Value::Tensors(list));
    }
    let value = None
        .or_else(|| all!(Value::Int(v) => *v).map(Value::Ints))
        .or_else(|| all!(Value::Bool(v) => *v).map(Value::Bools))
        .or_else(|| all!(Value::Float(v) => *v, Value::Int(v) => v.int() as f64).map(Value::Floats))
        .or_else(|| all!(Value::Tensor(t) => Some(t.clone()), Value::None => None).map(Value::OptTensors));
    value.map_or_else(|| refuse("a list of several kinds of values"), Ok)
}
