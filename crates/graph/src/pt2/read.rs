//! From the JSON of a program to the IR: graphs, their values and their sub-graphs.
//!
//! Names are taken as they are if they are identifiers (ASCII letters, digits, `_`), as those of PyTorch's graphs all are;
//! a value that is defined twice or used before it is defined is an error. `getitem` and
//! `get_attr` nodes, which the file omits, are recreated. Ops are not checked here: one that this build does not
//! know is kept by name, so that a program can be inspected; see [`crate::ExportedProgram::unsupported`].

use super::codes::{self, ARGUMENT_NAMES, Coded};
use super::schema::{self, KEYWORD, POSITIONAL};
use crate::error::{Error, Result};
use crate::ir::{
    Argument, Attribute, DeviceName, Expr, Function, Graph, GraphModule, Kind, MemoryFormat, MemoryLayout, Meta, Name,
    NodeId, OpOverload, ScalarType, Symbolic, Target, TensorMeta, Val,
};
use crate::schema::Schema;
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How deep sub-graphs may nest.
const MAX_DEPTH: usize = 64;

/// Where in the archive something is, for messages.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) entry: &'a str,
}

impl Place<'_> {
    pub(super) fn refuse(self, message: impl Into<String>) -> Error {
        Error::Pt2 { entry: self.entry.to_string(), message: message.into() }
    }

    fn at_node(self, node: &str, message: impl Into<String>) -> Error {
        Error::Pt2Node { entry: self.entry.to_string(), node: node.to_string(), message: message.into() }
    }
}

/// Reads a graph with everything below it. `names` are those of constant inputs, which only the signature knows.
pub(super) fn module(place: Place<'_>, source: &schema::Graph, names: &[Option<Name>]) -> Result<GraphModule> {
    Reader::read(place, source, names, 0)
}

/// Names of values and sub-graphs are identifiers: they are printed, and stand in the text form, as they are.
fn check_name(name: &str) -> Result<(), String> {
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Ok(());
    }
    // Long ones are cut: they are not legitimate.
    let shown: String = name.chars().take(80).collect();
    Err(format!("{shown:?} is not a valid name: expected letters, digits and underscores"))
}

/// What is called, as the file names it: a dotted path, and nothing that a terminal could take for a command.
fn target(name: &str) -> Result<Target, String> {
    match name.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(codes::target(name)),
        false => Err(format!("{:?} is not the name of an op", name.chars().take(80).collect::<String>())),
    }
}

/// An element of a graph's values that is not there.
fn missing(name: &str) -> String {
    format!("nothing is known of the value {name:?}")
}

/// One of several results of a call, by the name the file gives it.
enum Element<'a> {
    Absent,
    One(&'a str, Val),
    List(Vec<(&'a str, Val)>),
}

impl Element<'_> {
    fn val(&self) -> Val {
        match self {
            Element::Absent => Val::None,
            Element::One(_, val) => val.clone(),
            Element::List(list) => Val::List(list.iter().map(|(_, val)| val.clone()).collect()),
        }
    }
}

/// Everything runs on the CPU, whichever processor a value once lived on; the loader says so once.
fn device(d: &schema::Device) -> DeviceName {
    DeviceName { kind: if d.kind == "meta" { "meta".into() } else { "cpu".into() }, index: None }
}

/// An object of a class that is known by name only.
fn custom_object(o: &schema::CustomObj) -> Result<Val, String> {
    match o.class_fqn.chars().any(char::is_control) {
        true => Err(format!("{:?} is not the name of a class", o.class_fqn)),
        false => Ok(Val::CustomObj { class_fqn: o.class_fqn.as_str().into() }),
    }
}

/// A symbolic number.
pub(super) fn sym<T: schema::Tagged, U: Copy>(
    s: &schema::Sym<T>,
    value: impl Fn(T) -> U,
) -> Result<Symbolic<U>, String> {
    Ok(match s {
        schema::Sym::Known(v) => Symbolic::Known(value(*v)),
        schema::Sym::Expr(e) => Symbolic::Expr {
            expr: Arc::new(Expr::parse(&e.expr_str).map_err(|err| err.to_string())?),
            hint: e.hint.map(value),
        },
    })
}

/// The metadata of a tensor.
pub(super) fn tensor_meta(m: &schema::TensorMeta) -> Result<TensorMeta, String> {
    let sizes = |list: &[schema::Sym<i64>]| list.iter().map(|s| sym(s, |v| v)).collect::<Result<Vec<_>, _>>();
    if m.sizes.len() != m.strides.len() {
        return Err(format!("{} sizes and {} strides", m.sizes.len(), m.strides.len()));
    }
    if m.sizes.iter().any(|s| matches!(s, schema::Sym::Known(v) if *v < 0)) {
        return Err("a negative size".into());
    }
    Ok(TensorMeta {
        dtype: ScalarType::from_code(m.dtype)?,
        sizes: sizes(&m.sizes)?,
        strides: sizes(&m.strides)?,
        storage_offset: sym(&m.storage_offset, |v| v)?,
        device: device(&m.device),
        layout: MemoryLayout::from_code(m.layout)?,
        requires_grad: m.requires_grad,
    })
}

struct Reader<'a> {
    place: Place<'a>,
    source: &'a schema::Graph,
    module: GraphModule,
    /// Sub-graphs by name, to see whether two of one name agree.
    subgraphs: HashMap<&'a str, &'a schema::Graph>,
    values: HashMap<&'a str, NodeId>,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn read(place: Place<'a>, source: &'a schema::Graph, names: &[Option<Name>], depth: usize) -> Result<GraphModule> {
        if depth > MAX_DEPTH {
            return Err(place.refuse(format!("sub-graphs nest deeper than {MAX_DEPTH}")));
        }
        let mut reader = Reader {
            place,
            source,
            module: GraphModule::new(Graph::new()),
            subgraphs: HashMap::new(),
            values: HashMap::with_capacity(source.tensor_values.len()),
            depth,
        };
        for (k, input) in source.inputs.iter().enumerate() {
            reader.placeholder(input, names.get(k).and_then(Option::as_ref)).map_err(|m| place.refuse(m))?;
        }
        let used = used_names(source);
        for node in &source.nodes {
            let at = node.name.as_deref().unwrap_or(&node.target);
            reader.node(node, &used).map_err(|e| match e {
                Refusal::Here(m) => place.at_node(at, m),
                Refusal::Below(e) => e,
            })?;
        }
        reader.output().map_err(|m| place.refuse(m))?;
        Ok(reader.module)
    }

    fn graph(&mut self) -> &mut Graph {
        &mut self.module.graph
    }

    /// Adds a node with a name of the file.
    fn create(
        &mut self,
        kind: Kind,
        args: Vec<Argument>,
        kwargs: Vec<(Name, Argument)>,
        name: &str,
    ) -> Result<NodeId, String> {
        check_name(name)?;
        let node = self.graph().create_named(kind, args, kwargs, &name.into());
        node.ok_or_else(|| format!("two values are called {name:?}"))
    }

    fn placeholder(&mut self, input: &'a schema::Argument, constant_name: Option<&Name>) -> Result<(), String> {
        let (name, val) = match input {
            schema::Argument::AsTensor(t) => (&*t.name, self.tensor(&t.name)?),
            schema::Argument::AsSymInt(schema::SymArg::AsName(n)) => (&**n, self.sym_int(n)?),
            schema::Argument::AsSymFloat(schema::SymArg::AsName(n)) => (&**n, self.sym_float(n)?),
            schema::Argument::AsSymBool(schema::SymArg::AsName(n)) => (&**n, self.sym_bool(n)?),
            schema::Argument::AsCustomObj(o) => (&*o.name, custom_object(o)?),
            constant => {
                let value = plain(constant).ok_or("an input is neither a tensor nor a number nor a constant")?;
                let node = match constant_name {
                    Some(name) => self.create(Kind::Placeholder(name.clone()), Vec::new(), Vec::new(), name)?,
                    None => self.graph().placeholder("constant"),
                };
                self.graph().meta_mut(node).val = Some(Val::Constant(value));
                return Ok(());
            }
        };
        let node = self.create(Kind::Placeholder(name.into()), Vec::new(), Vec::new(), name)?;
        self.graph().meta_mut(node).val = Some(val);
        self.values.insert(name, node);
        Ok(())
    }

    // ---- what is known of values

    fn tensor(&self, name: &str) -> Result<Val, String> {
        let meta = self.source.tensor_values.get(name).ok_or_else(|| missing(name))?;
        Ok(tensor_meta(meta).map_err(|m| format!("the value {name:?}: {m}"))?.into())
    }
    fn sym_int(&self, name: &str) -> Result<Val, String> {
        let value = self.source.sym_int_values.get(name).ok_or_else(|| missing(name))?;
        Ok(Val::SymInt(sym(value, |v| v)?))
    }
    fn sym_float(&self, name: &str) -> Result<Val, String> {
        let value = self.source.sym_float_values.get(name).ok_or_else(|| missing(name))?;
        Ok(Val::SymFloat(sym(value, |v| v.0)?))
    }
    fn sym_bool(&self, name: &str) -> Result<Val, String> {
        let value = self.source.sym_bool_values.get(name).ok_or_else(|| missing(name))?;
        Ok(Val::SymBool(sym(value, |v| v)?))
    }

    // ---- nodes

    fn node(&mut self, node: &'a schema::Node, used: &HashSet<&str>) -> Result<(), Refusal> {
        let target = target(&node.target)?;
        let hop = matches!(target, Target::Hop(_));
        let (mut args, mut kwargs): (Vec<Argument>, Vec<(Name, Argument)>) = (Vec::new(), Vec::new());
        let schema = target.overload().and_then(OpOverload::schema);
        for input in &node.inputs {
            let value = self.argument(&input.arg, hop)?;
            let by_name = match input.kind {
                Some(POSITIONAL) => false,
                Some(KEYWORD) => true,
                // Older files do not say: by position as long as the schema's order is followed.
                None | Some(0) => match &schema {
                    Some(s) => s
                        .args
                        .get(args.len())
                        .is_none_or(|a| a.kwarg_only || a.name != input.name || !kwargs.is_empty()),
                    None => false,
                },
                Some(kind) => return Err(Refusal::Here(format!("{kind} is not a kind of argument"))),
            };
            match by_name {
                true => {
                    check_name(&input.name)?;
                    kwargs.push((input.name.as_str().into(), value));
                }
                false if kwargs.is_empty() => args.push(value),
                false => return Err(Refusal::Here("a positional argument after a keyword argument".into())),
            }
        }
        if let Some(schema) = &schema {
            check_call(schema, args.len(), kwargs.iter().map(|(name, _)| &**name))?;
        }

        let mut meta = metadata(&node.metadata);
        if schema.is_none() && target.overload().is_some() && !args.is_empty() {
            // Only the file knows what an op that is but a name calls its arguments.
            let names: Vec<&str> = node.inputs.iter().take(args.len()).map(|input| &*input.name).collect();
            names.iter().try_for_each(|name| if name.is_empty() { Ok(()) } else { check_name(name) })?;
            let other = meta.other.get_or_insert_default();
            Arc::make_mut(other).insert(ARGUMENT_NAMES.into(), names.join(","));
        }
        let kind = Kind::CallFunction(target.clone());
        // One result is the node itself; several, or the tuple of a higher-order op, are unpacked by `getitem`.
        let own = match &node.outputs[..] {
            [one] if hop => {
                let single = node.is_hop_single_tensor_return;
                single.unwrap_or(matches!(one, schema::Argument::AsTensor(_))).then_some(one)
            }
            [schema::Argument::AsTensors(_)] => None,
            [one] => Some(one),
            _ => None,
        };
        if let Some(one) = own {
            let (name, val) = self.result(one)?.ok_or("a result that is neither a tensor nor a number")?;
            meta.val = Some(val);
            let id = self.create(kind, args, kwargs, name)?;
            *self.graph().meta_mut(id) = meta;
            self.values.insert(name, id);
            return Ok(());
        }
        let elements: Vec<Element<'a>> = match &node.outputs[..] {
            [schema::Argument::AsTensors(list)] => self.list(list)?,
            many => many.iter().map(|o| self.element(o)).collect::<Result<_, String>>()?,
        };
        let vals = elements.iter().map(Element::val).collect();
        meta.val = Some(match &node.outputs[..] {
            [] => Val::None,
            [schema::Argument::AsTensors(_)] => Val::List(vals),
            _ => Val::Tuple(vals),
        });
        let id = match &node.name {
            Some(name) => self.create(kind, args, kwargs, name)?,
            None => self.graph().create_node(kind, args, kwargs, None),
        };
        let origin = meta.clone();
        *self.graph().meta_mut(id) = meta;
        let own_name = self.graph()[id].name().clone();
        for (k, element) in elements.into_iter().enumerate() {
            match element {
                Element::Absent => {}
                Element::One(name, val) => {
                    // An unused result has a name made up for the file.
                    if name != format!("{own_name}_unused_{k}") || used.contains(name) {
                        self.item(id, k, name, val, &origin)?;
                    }
                }
                // The list has no name in the file, only what is in it.
                Element::List(list) => {
                    let item = Kind::CallFunction(Function::GetItem.into());
                    let item =
                        self.graph().create_node(item, vec![id.into(), Argument::Int(k as i64)], Vec::new(), None);
                    let vals = list.iter().map(|(_, val)| val.clone()).collect();
                    *self.graph().meta_mut(item) = Meta { val: Some(Val::List(vals)), ..origin.clone() };
                    for (k, (name, val)) in list.into_iter().enumerate().filter(|(_, (name, _))| used.contains(name)) {
                        self.item(item, k, name, val, &origin)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes one of several results out, under the name the file gives it.
    fn item(&mut self, from: NodeId, k: usize, name: &'a str, val: Val, origin: &Meta) -> Result<(), String> {
        let args = vec![from.into(), Argument::Int(k as i64)];
        let item = self.create(Kind::CallFunction(Function::GetItem.into()), args, Vec::new(), name)?;
        *self.graph().meta_mut(item) = Meta { val: Some(val), ..origin.clone() };
        self.values.insert(name, item);
        Ok(())
    }

    /// One of several results.
    fn element(&self, output: &'a schema::Argument) -> Result<Element<'a>, String> {
        if let schema::Argument::AsTensors(list) = output {
            let one = |t: &'a schema::Named| Ok((&*t.name, self.tensor(&t.name)?));
            return Ok(Element::List(list.iter().map(one).collect::<Result<_, String>>()?));
        }
        Ok(self.result(output)?.map_or(Element::Absent, |(name, val)| Element::One(name, val)))
    }

    /// A list of tensors that is all an op returns.
    fn list(&self, list: &'a [schema::Named]) -> Result<Vec<Element<'a>>, String> {
        list.iter().map(|t| Ok(Element::One(&t.name, self.tensor(&t.name)?))).collect()
    }

    /// Name and value of a result; none if it is absent.
    fn result(&self, output: &'a schema::Argument) -> Result<Option<(&'a str, Val)>, String> {
        Ok(Some(match output {
            schema::Argument::AsTensor(t) => (&t.name, self.tensor(&t.name)?),
            schema::Argument::AsSymInt(schema::SymArg::AsName(n)) => (n, self.sym_int(n)?),
            schema::Argument::AsSymFloat(schema::SymArg::AsName(n)) => (n, self.sym_float(n)?),
            schema::Argument::AsSymBool(schema::SymArg::AsName(n)) => (n, self.sym_bool(n)?),
            schema::Argument::AsCustomObj(o) => (&o.name, custom_object(o)?),
            schema::Argument::AsNone(_) => return Ok(None),
            _ => return Err("a result that is neither a tensor nor a number".into()),
        }))
    }

    fn value(&self, name: &str) -> Result<Argument, String> {
        let found = self.values.get(name).copied().map(Argument::Node);
        found.ok_or_else(|| format!("the value {name:?} is used before it is defined, or never is"))
    }

    fn sym_arg(&self, arg: &schema::SymArg) -> Result<Argument, String> {
        Ok(match arg {
            schema::SymArg::AsName(name) => self.value(name)?,
            schema::SymArg::AsInt(v) => Argument::Int(*v),
            schema::SymArg::AsBool(v) => Argument::Bool(*v),
            schema::SymArg::AsFloat(v) => Argument::Float(v.0),
        })
    }

    fn argument(&mut self, arg: &'a schema::Argument, hop: bool) -> Result<Argument, Refusal> {
        use schema::Argument as A;
        if let A::AsGraph(sub) = arg {
            return self.subgraph(sub);
        }
        Ok(match arg {
            A::AsTensor(t) => self.value(&t.name)?,
            A::AsTensors(list) => {
                let items: Vec<_> = list.iter().map(|t| self.value(&t.name)).collect::<Result<_, _>>()?;
                // The operands of a higher-order op are a tuple; the file does not tell it from a list.
                if hop { Argument::tuple(items) } else { Argument::list(items) }
            }
            A::AsSymInt(s) | A::AsSymBool(s) | A::AsSymFloat(s) => self.sym_arg(s)?,
            A::AsSymInts(list) | A::AsSymBools(list) | A::AsSymFloats(list) => {
                Argument::list(list.iter().map(|s| self.sym_arg(s)).collect::<Result<Vec<_>, _>>()?)
            }
            A::AsOptionalTensor(t) => self.optional(t)?,
            A::AsOptionalTensors(list) => {
                Argument::list(list.iter().map(|t| self.optional(t)).collect::<Result<Vec<_>, _>>()?)
            }
            A::AsNestedTensors(lists) => {
                let inner = |list: &Vec<schema::Named>| -> Result<Argument, String> {
                    Ok(Argument::list(list.iter().map(|t| self.value(&t.name)).collect::<Result<Vec<_>, _>>()?))
                };
                Argument::list(lists.iter().map(inner).collect::<Result<Vec<_>, _>>()?)
            }
            A::AsCustomObj(o) => self.value(&o.name)?,
            A::AsStringToArgument(map) => {
                let mut items = Vec::with_capacity(map.len());
                for (key, value) in map {
                    items.push((key.as_str().into(), self.argument(value, hop)?));
                }
                Argument::Dict(items.into())
            }
            A::AsOperator(name) => Argument::Op(Arc::new(target(name)?)),
            A::AsDevice(d) => Argument::Device(device(d)),
            A::AsScalarType(v) => Argument::DType(ScalarType::from_code(*v)?),
            A::AsMemoryFormat(v) => Argument::MemoryFormat(MemoryFormat::from_code(*v)?),
            A::AsLayout(v) => Argument::Layout(MemoryLayout::from_code(*v)?),
            other => plain(other).ok_or("an argument of an unknown kind")?,
        })
    }

    fn optional(&self, arg: &schema::OptionalTensor) -> Result<Argument, String> {
        match arg {
            schema::OptionalTensor::AsTensor(t) => self.value(&t.name),
            schema::OptionalTensor::AsNone(_) => Ok(Argument::None),
        }
    }

    fn subgraph(&mut self, sub: &'a schema::Subgraph) -> Result<Argument, Refusal> {
        check_name(&sub.name)?;
        match self.subgraphs.insert(&sub.name, &sub.graph) {
            Some(other) if *other != *sub.graph => {
                return Err(Refusal::Here(format!("two sub-graphs are called {:?}", sub.name)));
            }
            Some(_) => {}
            None => {
                let module = Reader::read(self.place, &sub.graph, &[], self.depth + 1).map_err(Refusal::Below)?;
                if sub.name.contains('.') || !self.module.attributes.set(&sub.name, Attribute::Graph(module.into())) {
                    return Err(Refusal::Here(format!("a sub-graph cannot be called {:?}", sub.name)));
                }
            }
        }
        let kind = Kind::GetAttr(sub.name.as_str().into());
        Ok(self.graph().create_node(kind, [], [], Some(&sub.name)).into())
    }

    fn output(&mut self) -> Result<(), String> {
        let mut results = Vec::with_capacity(self.source.outputs.len());
        for output in &self.source.outputs {
            results.push(self.argument(output, false).map_err(|e| match e {
                Refusal::Here(m) => m,
                Refusal::Below(e) => e.to_string(),
            })?);
        }
        let value = match (self.source.is_single_tensor_return, &results[..]) {
            (true, [one]) => one.clone(),
            (true, _) => return Err("expected a single value to return, found several".into()),
            (false, _) => Argument::tuple(results),
        };
        self.graph().output(value);
        Ok(())
    }
}

/// Why a node was refused: on its own account, or for what is in a sub-graph.
enum Refusal {
    Here(String),
    Below(Error),
}

impl From<String> for Refusal {
    fn from(m: String) -> Refusal {
        Refusal::Here(m)
    }
}
impl From<&str> for Refusal {
    fn from(m: &str) -> Refusal {
        Refusal::Here(m.into())
    }
}

/// Checks names and number of the arguments of a call.
fn check_call<'a>(schema: &Schema, positional: usize, keywords: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let by_position = schema.args.iter().filter(|a| !a.kwarg_only).count();
    if positional > by_position {
        return Err(format!("{positional} positional arguments, the op takes {by_position}"));
    }
    let mut given = vec![false; schema.args.len()];
    given[..positional].fill(true);
    for name in keywords {
        match schema.position(name) {
            None => return Err(format!("the op has no argument {name:?}")),
            Some(k) if std::mem::replace(&mut given[k], true) => {
                return Err(format!("the argument {name:?} is given twice"));
            }
            Some(_) => {}
        }
    }
    match schema.args.iter().zip(&given).find(|(a, given)| a.default.is_none() && !**given) {
        Some((a, _)) => Err(format!("the argument {:?} is missing", a.name)),
        None => Ok(()),
    }
}

/// An argument that mentions no value.
pub(super) fn plain(arg: &schema::Argument) -> Option<Argument> {
    use schema::Argument as A;
    let floats = |list: &[schema::Float]| Argument::list(list.iter().map(|v| Argument::Float(v.0)));
    let ints = |list: &[i64]| Argument::list(list.iter().map(|&v| Argument::Int(v)));
    Some(match arg {
        A::AsNone(_) => Argument::None,
        A::AsInt(v) => Argument::Int(*v),
        A::AsFloat(v) => Argument::Float(v.0),
        A::AsBool(v) => Argument::Bool(*v),
        A::AsString(v) => Argument::Str(v.as_str().into()),
        A::AsComplex(c) => Argument::Complex(c.real.0, c.imag.0),
        A::AsInts(list) => ints(list),
        A::AsFloats(list) => floats(list),
        A::AsBools(list) => Argument::list(list.iter().map(|&v| Argument::Bool(v))),
        A::AsStrings(list) => Argument::list(list.iter().map(|v| Argument::Str(v.as_str().into()))),
        A::AsIntLists(lists) => Argument::list(lists.iter().map(|l| ints(l))),
        A::AsFloatLists(lists) => Argument::list(lists.iter().map(|l| floats(l))),
        _ => return None,
    })
}

/// Every name that some argument mentions.
fn used_names(graph: &schema::Graph) -> HashSet<&str> {
    fn see<'a>(arg: &'a schema::Argument, used: &mut HashSet<&'a str>) {
        use schema::Argument as A;
        match arg {
            A::AsTensor(t) => _ = used.insert(&t.name),
            A::AsTensors(list) => used.extend(list.iter().map(|t| t.name.as_str())),
            A::AsNestedTensors(lists) => used.extend(lists.iter().flatten().map(|t| t.name.as_str())),
            A::AsSymInts(list) | A::AsSymBools(list) | A::AsSymFloats(list) => {
                used.extend(list.iter().filter_map(|s| match s {
                    schema::SymArg::AsName(n) => Some(n.as_str()),
                    _ => None,
                }));
            }
            A::AsSymInt(schema::SymArg::AsName(n))
            | A::AsSymBool(schema::SymArg::AsName(n))
            | A::AsSymFloat(schema::SymArg::AsName(n)) => _ = used.insert(n),
            A::AsOptionalTensor(schema::OptionalTensor::AsTensor(t)) => _ = used.insert(&t.name),
            A::AsOptionalTensors(list) => used.extend(list.iter().filter_map(|t| match t {
                schema::OptionalTensor::AsTensor(t) => Some(t.name.as_str()),
                schema::OptionalTensor::AsNone(_) => None,
            })),
            A::AsStringToArgument(map) => map.values().for_each(|a| see(a, used)),
            _ => {}
        }
    }
    let mut used = HashSet::new();
    let inputs = graph.nodes.iter().flat_map(|n| n.inputs.iter().map(|i| &i.arg));
    inputs.chain(&graph.outputs).for_each(|a| see(a, &mut used));
    used
}

/// Where a node came from. A comma inside a path or class makes the text ambiguous: the first and last one count.
fn metadata(source: &IndexMap<String, String>) -> Meta {
    let mut meta = Meta::default();
    let mut other = IndexMap::new();
    for (key, text) in source {
        match key.as_str() {
            "stack_trace" => meta.stack_trace = Some(text.as_str().into()),
            "nn_module_stack" => {
                let entries = text.split(';').filter_map(|entry| {
                    let (key, rest) = entry.split_once(',')?;
                    let (path, class) = rest.rsplit_once(',')?;
                    Some((key.to_string(), (path.to_string(), class.to_string())))
                });
                meta.nn_module_stack = Some(Arc::new(entries.collect()));
            }
            "torch_fn" if text.contains(';') => {
                let (counted, qualified) = text.split_once(';').expect("it contains one");
                meta.torch_fn = Some(Arc::new((counted.to_string(), qualified.to_string())));
            }
            _ => _ = other.insert(key.clone(), text.clone()),
        }
    }
    if !other.is_empty() {
        meta.other = Some(Arc::new(other));
    }
    meta
}
