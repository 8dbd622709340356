//! From the IR to the JSON of a program.
//!
//! `getitem` and `get_attr` nodes are folded back into their producers and users; unused results get the
//! names the format has for them. A higher-order call without results whose body has no effect is dropped, because no
//! reader accepts it. Source positions are omitted unless requested.

use super::codes::{self, ARGUMENT_NAMES, Coded};
use super::schema::{self, KEYWORD, POSITIONAL};
use crate::error::{Error, Result};
use crate::ir::{
    Argument, DeviceName, Function, Graph, GraphModule, Kind, Meta, Node, NodeId, OpOverload, Symbolic, Target,
    TensorMeta, Val,
};
use crate::schema::Type;
use indexmap::IndexMap;
use std::collections::HashMap;

fn device(d: &DeviceName) -> schema::Device {
    schema::Device { kind: d.kind.to_string(), index: d.index.map(i64::from) }
}

fn sym<T: Copy, U>(s: &Symbolic<T>, value: impl Fn(T) -> U) -> schema::Sym<U> {
    match s {
        Symbolic::Known(v) => schema::Sym::Known(value(*v)),
        Symbolic::Expr { expr, hint } => {
            schema::Sym::Expr(schema::Expr { expr_str: expr.to_string(), hint: hint.map(value) })
        }
    }
}

/// The metadata of a tensor.
pub(super) fn tensor_meta(m: &TensorMeta) -> schema::TensorMeta {
    schema::TensorMeta {
        dtype: m.dtype.code(),
        sizes: m.sizes.iter().map(|s| sym(s, |v| v)).collect(),
        requires_grad: m.requires_grad,
        device: device(&m.device),
        strides: m.strides.iter().map(|s| sym(s, |v| v)).collect(),
        storage_offset: sym(&m.storage_offset, |v| v),
        layout: m.layout.code(),
    }
}

/// Writes a graph with everything below it.
pub(super) fn graph(module: &GraphModule, keep_traces: bool) -> Result<schema::Graph> {
    let mut writer = Writer { module, out: schema::Graph::default(), items: HashMap::new(), keep_traces };
    let graph = &module.graph;
    for id in graph.nodes() {
        writer.node(id, &graph[id]).map_err(|message| Error::Pt2Node {
            entry: "program".into(),
            node: graph[id].name().to_string(),
            message,
        })?;
    }
    Ok(writer.out)
}

struct Writer<'a> {
    module: &'a GraphModule,
    out: schema::Graph,
    /// The `getitem` nodes of a node, by index.
    items: HashMap<NodeId, IndexMap<i64, NodeId>>,
    keep_traces: bool,
}

impl<'a> Writer<'a> {
    fn graph(&self) -> &'a Graph {
        &self.module.graph
    }

    fn node(&mut self, id: NodeId, node: &'a Node) -> Result<(), String> {
        match node.kind() {
            Kind::Placeholder(_) => {
                let argument = match &node.meta().val {
                    Some(Val::Constant(value)) => constant(value)?,
                    Some(val) => self.value(node.name(), val)?,
                    None => return Err("nothing is known of this input".into()),
                };
                self.out.inputs.push(argument);
                Ok(())
            }
            Kind::GetAttr(_) => Ok(()),
            Kind::Output => {
                let value = node.args().first().ok_or("the output has no value")?;
                self.out.is_single_tensor_return = value.items().is_none();
                let items = value.items().unwrap_or(std::slice::from_ref(value));
                for item in items {
                    let argument = self.argument(item, Type::Other)?;
                    self.out.outputs.push(argument);
                }
                Ok(())
            }
            Kind::CallFunction(target) => self.call(id, node, target),
            Kind::CallMethod(_) | Kind::CallModule(_) => {
                Err("calls of methods and modules are not part of exported programs".into())
            }
        }
    }

    fn call(&mut self, id: NodeId, node: &'a Node, target: &Target) -> Result<(), String> {
        if target.is_function(&Function::GetItem)
            && let [Argument::Node(producer), Argument::Int(index)] = node.args()
            && self.graph()[*producer].meta().val.as_ref().is_some_and(|v| v.items().is_some())
        {
            // Listed when the producer was written; a second one of the same index would need a name of its own.
            let listed = self.items.get(producer).and_then(|i| i.get(index));
            return if listed == Some(&id) { Ok(()) } else { Err("the same result is taken out twice".into()) };
        }
        let hop = matches!(target, Target::Hop(_));
        let val = node.meta().val.as_ref().ok_or("nothing is known of its value")?;
        if hop && (*val == Val::None || val.items().is_some_and(<[_]>::is_empty)) {
            return if self.has_effect(node) {
                Err("a higher-order op without results cannot be written".into())
            } else {
                Ok(())
            };
        }
        let inputs = self.inputs(node, target)?;
        let outputs = self.outputs(id, node, val)?;
        let single = hop.then(|| val.items().is_none());
        self.out.nodes.push(schema::Node {
            target: codes::target_name(target),
            inputs,
            outputs,
            metadata: metadata(node.meta(), self.keep_traces),
            is_hop_single_tensor_return: single,
            name: Some(node.name().to_string()),
        });
        Ok(())
    }

    /// Whether the body of a higher-order call does more than compute.
    fn has_effect(&self, node: &Node) -> bool {
        node.args().iter().filter_map(Argument::node).filter_map(|n| self.graph()[n].attr_path()).any(|path| {
            let body = self.module.subgraph(path);
            body.is_none_or(|b| b.graph.nodes().any(|n| matches!(b.graph[n].kind(), Kind::CallFunction(_))))
        })
    }

    fn inputs(&mut self, node: &'a Node, target: &Target) -> Result<Vec<schema::NamedArgument>, String> {
        let schema = target.overload().and_then(OpOverload::schema);
        let read = node.meta().other.as_ref().and_then(|other| other.get(ARGUMENT_NAMES));
        let read: Vec<&str> = read.map_or_else(Vec::new, |names| names.split(',').collect());
        let mut inputs = Vec::with_capacity(node.args().len() + node.kwargs().len());
        for (k, arg) in node.args().iter().enumerate() {
            let declared = schema.and_then(|s| s.args.get(k));
            let name = match (declared, target) {
                (Some(a), _) => a.name.to_string(),
                // Scalar functions name their operands so.
                (None, Target::Function(_)) => ["a", "b", "c"].get(k).unwrap_or(&"").to_string(),
                _ => read.get(k).unwrap_or(&"").to_string(),
            };
            let arg = self.argument(arg, declared.map_or(Type::Other, |a| a.ty))?;
            inputs.push(schema::NamedArgument { name, arg, kind: Some(POSITIONAL) });
        }
        for (name, arg) in node.kwargs() {
            let declared = schema.and_then(|s| s.args.iter().find(|a| a.name == &**name));
            let arg = self.argument(arg, declared.map_or(Type::Other, |a| a.ty))?;
            inputs.push(schema::NamedArgument { name: name.to_string(), arg, kind: Some(KEYWORD) });
        }
        Ok(inputs)
    }

    fn outputs(&mut self, id: NodeId, node: &'a Node, val: &Val) -> Result<Vec<schema::Argument>, String> {
        let Some(vals) = val.items() else {
            return Ok(if *val == Val::None { Vec::new() } else { vec![self.value(node.name(), val)?] });
        };
        let items = self.taken_out(id);
        let mut outputs = Vec::with_capacity(vals.len());
        for (k, val) in vals.iter().enumerate() {
            let item = items.get(&(k as i64)).copied();
            let name = match item {
                Some(item) => self.graph()[item].name().to_string(),
                None => format!("{}_unused_{k}", node.name()),
            };
            outputs.push(match val {
                Val::None => schema::Argument::AsNone(true),
                Val::List(list) => self.inner_list(item, &name, list)?,
                _ => self.value(&name, val)?,
            });
        }
        self.items.insert(id, items);
        if let Val::List(_) = val {
            let names = outputs.into_iter().map(|o| match o {
                schema::Argument::AsTensor(t) => Ok(t),
                _ => Err("a list of results that are not all tensors".to_string()),
            });
            return Ok(vec![schema::Argument::AsTensors(names.collect::<Result<_, _>>()?)]);
        }
        Ok(outputs)
    }

    /// The nodes that take results of a node out, by index.
    fn taken_out(&self, id: NodeId) -> IndexMap<i64, NodeId> {
        let mut items = IndexMap::new();
        for user in self.graph().users(id) {
            let user_node = &self.graph()[user];
            if user_node.target().is_some_and(|t| t.is_function(&Function::GetItem))
                && let [_, Argument::Int(index)] = user_node.args()
            {
                items.entry(*index).or_insert(user);
            }
        }
        items
    }

    /// A list among several results: only its elements have names.
    fn inner_list(&mut self, item: Option<NodeId>, name: &str, list: &[Val]) -> Result<schema::Argument, String> {
        let inner = item.map_or_else(IndexMap::new, |item| self.taken_out(item));
        let mut names = Vec::with_capacity(list.len());
        for (k, val) in list.iter().enumerate() {
            let element = match inner.get(&(k as i64)) {
                Some(element) => self.graph()[*element].name().to_string(),
                None => format!("{name}_unused_{k}"),
            };
            match self.value(&element, val)? {
                schema::Argument::AsTensor(t) => names.push(t),
                _ => return Err("a list of results that are not all tensors".to_string()),
            }
        }
        if let Some(item) = item {
            self.items.insert(item, inner);
        }
        Ok(schema::Argument::AsTensors(names))
    }

    /// Mentions a value, and notes what is known of it.
    fn value(&mut self, name: &str, val: &Val) -> Result<schema::Argument, String> {
        use schema::{Argument as A, SymArg};
        let n = name.to_string();
        Ok(match val {
            Val::Tensor(meta) => {
                self.out.tensor_values.insert(n.clone(), tensor_meta(meta));
                A::AsTensor(schema::Named { name: n })
            }
            Val::SymInt(s) => {
                self.out.sym_int_values.insert(n.clone(), sym(s, |v| v));
                A::AsSymInt(SymArg::AsName(n))
            }
            Val::SymFloat(s) => {
                self.out.sym_float_values.insert(n.clone(), sym(s, schema::Float));
                A::AsSymFloat(SymArg::AsName(n))
            }
            Val::SymBool(s) => {
                self.out.sym_bool_values.insert(n.clone(), sym(s, |v| v));
                A::AsSymBool(SymArg::AsName(n))
            }
            Val::CustomObj { class_fqn } => {
                let object = schema::CustomObj { name: n.clone(), class_fqn: class_fqn.to_string() };
                self.out.custom_obj_values.insert(n, object.clone());
                A::AsCustomObj(object)
            }
            Val::Token => A::AsTensor(schema::Named { name: n }),
            Val::Constant(value) => constant(value)?,
            Val::None | Val::Tuple(_) | Val::List(_) => return Err(format!("%{name} is not one value")),
        })
    }

    /// A reference to a value that was written before.
    fn reference(&self, id: NodeId) -> Result<schema::Argument, String> {
        use schema::{Argument as A, SymArg};
        let node = &self.graph()[id];
        let name = node.name().to_string();
        if let Some(path) = node.attr_path() {
            let sub = self.module.subgraph(path).ok_or_else(|| format!("{path} is not a sub-graph"))?;
            let body = graph(sub, self.keep_traces).map_err(|e| e.to_string())?;
            return Ok(A::AsGraph(schema::Subgraph { name: path.to_string(), graph: Box::new(body) }));
        }
        Ok(match node.meta().val.as_ref().ok_or_else(|| format!("nothing is known of %{name}"))? {
            Val::Tensor(_) | Val::Token => A::AsTensor(schema::Named { name }),
            Val::SymInt(_) => A::AsSymInt(SymArg::AsName(name)),
            Val::SymFloat(_) => A::AsSymFloat(SymArg::AsName(name)),
            Val::SymBool(_) => A::AsSymBool(SymArg::AsName(name)),
            Val::CustomObj { class_fqn } => {
                A::AsCustomObj(schema::CustomObj { name, class_fqn: class_fqn.to_string() })
            }
            Val::Constant(value) => constant(value)?,
            // A list result as a whole: its elements stand for it.
            Val::List(vals) => {
                let items = self.items.get(&id);
                let name = |k: usize| match items.and_then(|i| i.get(&(k as i64))) {
                    Some(item) => self.graph()[*item].name().to_string(),
                    None => format!("{name}_unused_{k}"),
                };
                A::AsTensors((0..vals.len()).map(|k| schema::Named { name: name(k) }).collect())
            }
            Val::None | Val::Tuple(_) => return Err(format!("%{name} is not one value")),
        })
    }

    fn argument(&self, arg: &Argument, ty: Type) -> Result<schema::Argument, String> {
        match arg {
            Argument::Node(id) => self.reference(*id),
            Argument::Tuple(items) | Argument::List(items) => self.list(items, ty),
            Argument::Op(target) => Ok(schema::Argument::AsOperator(codes::target_name(target))),
            Argument::Dict(entries) => {
                let items = entries.iter().map(|(k, v)| Ok((k.to_string(), self.argument(v, Type::Other)?)));
                Ok(schema::Argument::AsStringToArgument(items.collect::<Result<_, String>>()?))
            }
            other => constant(other),
        }
    }

    /// A list: its tag follows its elements, and the schema's type if it has none.
    fn list(&self, items: &[Argument], ty: Type) -> Result<schema::Argument, String> {
        use schema::{Argument as A, OptionalTensor, SymArg};
        if items.is_empty() {
            return Ok(match ty {
                Type::Ints => A::AsInts(Vec::new()),
                Type::Floats => A::AsFloats(Vec::new()),
                Type::Bools => A::AsBools(Vec::new()),
                Type::OptTensors => A::AsOptionalTensors(Vec::new()),
                _ => A::AsTensors(Vec::new()),
            });
        }
        let parts: Vec<A> = items.iter().map(|a| self.argument(a, Type::Other)).collect::<Result<_, _>>()?;
        macro_rules! all {
            ($($pattern:pat => $value:expr),* $(,)?) => {
                parts.iter().map(|p| match p { $($pattern => Some($value),)* _ => None }).collect::<Option<Vec<_>>>()
            };
        }
        let list = None
            .or_else(|| all!(A::AsTensor(t) => t.clone()).map(A::AsTensors))
            .or_else(|| all!(A::AsInt(v) => *v).map(A::AsInts))
            .or_else(|| all!(A::AsBool(v) => *v).map(A::AsBools))
            .or_else(|| all!(A::AsFloat(v) => *v, A::AsInt(v) => schema::Float(*v as f64)).map(A::AsFloats))
            .or_else(|| all!(A::AsString(v) => v.clone()).map(A::AsStrings))
            .or_else(|| all!(A::AsSymInt(s) => s.clone(), A::AsInt(v) => SymArg::AsInt(*v)).map(A::AsSymInts))
            .or_else(|| all!(A::AsSymBool(s) => s.clone(), A::AsBool(v) => SymArg::AsBool(*v)).map(A::AsSymBools))
            .or_else(|| all!(A::AsSymFloat(s) => s.clone(), A::AsFloat(v) => SymArg::AsFloat(*v)).map(A::AsSymFloats))
            .or_else(|| {
                all!(A::AsTensor(t) => OptionalTensor::AsTensor(t.clone()), A::AsNone(_) => OptionalTensor::AsNone(true))
                    .map(A::AsOptionalTensors)
            })
            .or_else(|| all!(A::AsTensors(t) => t.clone()).map(A::AsNestedTensors))
            .or_else(|| all!(A::AsInts(v) => v.clone()).map(A::AsIntLists))
            .or_else(|| all!(A::AsFloats(v) => v.clone()).map(A::AsFloatLists));
        list.ok_or_else(|| "a list of several kinds of values cannot be written".into())
    }
}

/// An argument that mentions no value.
fn constant(arg: &Argument) -> Result<schema::Argument, String> {
    use schema::Argument as A;
    Ok(match arg {
        Argument::None => A::AsNone(true),
        Argument::Bool(v) => A::AsBool(*v),
        Argument::Int(v) => A::AsInt(*v),
        Argument::Float(v) => A::AsFloat(schema::Float(*v)),
        Argument::Complex(re, im) => {
            A::AsComplex(schema::Complex { real: schema::Float(*re), imag: schema::Float(*im) })
        }
        Argument::Str(v) => A::AsString(v.to_string()),
        Argument::DType(v) => A::AsScalarType(v.code()),
        Argument::Device(d) => A::AsDevice(device(d)),
        Argument::Layout(v) => A::AsLayout(v.code()),
        Argument::MemoryFormat(v) => A::AsMemoryFormat(v.code()),
        other => return Err(format!("{other:?} cannot be written")),
    })
}

fn metadata(meta: &Meta, keep_traces: bool) -> IndexMap<String, String> {
    let mut out = IndexMap::new();
    if let Some(trace) = meta.stack_trace.as_ref().filter(|_| keep_traces) {
        out.insert("stack_trace".into(), trace.to_string());
    }
    if let Some(stack) = &meta.nn_module_stack {
        let entries: Vec<String> = stack.iter().map(|(key, (path, class))| format!("{key},{path},{class}")).collect();
        out.insert("nn_module_stack".into(), entries.join(";"));
    }
    if let Some(torch_fn) = &meta.torch_fn {
        out.insert("torch_fn".into(), format!("{};{}", torch_fn.0, torch_fn.1));
    }
    if let Some(other) = &meta.other {
        let kept = other.iter().filter(|(k, _)| *k != ARGUMENT_NAMES);
        out.extend(kept.map(|(k, v)| (k.clone(), v.clone())));
    }
    out
}
