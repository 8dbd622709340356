//! The walk: every node of the old graph in order, run on meta tensors and copied into the new one.
//!
//! Knows which tensors lie in which memory and what its value is; writes themselves are in [`super::writes`].

use super::views::Step;
use super::{Functional, Memory, Mutation, Origin, PASS, View, functionalize_module, hides_writes};
use crate::error::{Error, Result};
use crate::export::dialect_of;
use crate::interpret::{Call, NodeRunner, Outlined, Value, materialize};
use crate::ir::*;
use crate::program::Dialect;
use crate::schema::Schema;
use crate::trace::outline;
use firebrand_core::autograd::{is_grad_enabled, set_grad_enabled};
use firebrand_core::{Device, Layout, Scalar, Spec, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// Positional and named arguments of the traced run.
pub(super) type Given = (Vec<Value>, Vec<(Name, Value)>);

/// What an old node is now.
#[derive(Clone)]
pub(super) enum Slot {
    /// A tensor.
    Tensor(usize),
    /// Several values.
    Many(Vec<Slot>),
    /// Anything else: in the new graph, and in the traced run.
    Other(Argument, Value),
}

#[derive(Default)]
pub(super) struct Scope {
    pub(super) slots: HashMap<NodeId, Slot>,
}

/// A tensor of the old program.
pub(super) struct Alias {
    pub(super) memory: usize,
    pub(super) steps: Vec<Step>,
    pub(super) tensor: Tensor,
    pub(super) node: NodeId,
    pub(super) version: u32,
    pub(super) val: Option<Val>,
    /// Whether its node is a hook on it, or it is a view of one that is itself a view.
    pub(super) hooked: bool,
}

/// A piece of memory and its value now.
pub(super) struct Piece {
    pub(super) tensor: Tensor,
    pub(super) value: NodeId,
    pub(super) version: u32,
    pub(super) val: Option<Val>,
    pub(super) input: Option<usize>,
    pub(super) written: bool,
    /// Whether some write was recorded.
    pub(super) recorded: bool,
}

pub(super) struct Walk {
    pub(super) graph: Graph,
    pub(super) attributes: Attributes,
    pub(super) aliases: Vec<Alias>,
    pub(super) memories: Vec<Piece>,
    /// Memory by address; every tensor seen is kept alive, so none is reused.
    pub(super) at: HashMap<usize, usize>,
    /// Aliases by memory.
    pub(super) by_tensor: HashMap<usize, Vec<usize>>,
    pub(super) mode: bool,
    pub(super) subgraphs: usize,
    pub(super) rewrites: usize,
}

pub(super) fn refuse<T>(node: &Node, message: impl Into<String>) -> Result<T> {
    Err(Error::PassNode { pass: PASS, node: node.name().to_string(), message: message.into() })
}

/// Whether an op of the graph mutates memory, declared in its schema or not.
fn may_write(graph: &GraphModule) -> bool {
    dialect_of(graph) == Dialect::Training || hides_writes(graph)
}

pub(super) fn address(t: &Tensor) -> usize {
    t.untyped_storage().addr()
}

impl Walk {
    /// A tensor in memory of its own.
    pub(super) fn fresh(&mut self, tensor: Tensor, node: NodeId, val: Option<Val>, input: Option<usize>) -> usize {
        let memory = self.memories.len();
        self.at.insert(address(&tensor), memory);
        self.memories.push(Piece {
            tensor: tensor.clone(),
            value: node,
            version: 0,
            val: val.clone(),
            input,
            written: false,
            recorded: false,
        });
        self.alias(Alias { memory, steps: Vec::new(), tensor, node, version: 0, val, hooked: false })
    }

    pub(super) fn alias(&mut self, alias: Alias) -> usize {
        let at = self.aliases.len();
        self.by_tensor.entry(alias.memory).or_default().push(at);
        self.aliases.push(alias);
        at
    }

    /// The alias of a tensor that was seen.
    pub(super) fn find(&self, tensor: &Tensor) -> Option<usize> {
        let memory = self.at.get(&address(tensor))?;
        self.by_tensor[memory].iter().copied().find(|&a| self.aliases[a].tensor.is_same(tensor))
    }

    /// The value of a tensor now.
    pub(super) fn value(&mut self, alias: usize) -> NodeId {
        let a = &self.aliases[alias];
        let memory = &self.memories[a.memory];
        if a.version == memory.version {
            return a.node;
        }
        let (mut node, version, wanted) = (memory.value, memory.version, memory.tensor.requires_grad());
        for step in a.steps.clone() {
            node = self.replay(&step, node);
        }
        // Cut out where nothing is recorded it has no history, so it must not serve elsewhere.
        if self.mode || !wanted {
            let a = &mut self.aliases[alias];
            (a.node, a.version) = (node, version);
        }
        node
    }

    pub(super) fn argument(&mut self, slot: &Slot) -> Argument {
        match slot {
            Slot::Tensor(alias) => self.value(*alias).into(),
            Slot::Many(items) => Argument::List(items.iter().map(|s| self.argument(s)).collect()),
            Slot::Other(argument, _) => argument.clone(),
        }
    }

    pub(super) fn given(&self, slot: &Slot) -> Value {
        match slot {
            Slot::Tensor(alias) => Value::Tensor(self.aliases[*alias].tensor.clone()),
            Slot::Many(items) => Value::List(items.iter().map(|s| self.given(s)).collect()),
            Slot::Other(_, value) => value.clone(),
        }
    }

    /// An argument of the old graph in the new one.
    pub(super) fn mapped(&mut self, scope: &Scope, argument: &Argument) -> Argument {
        argument.map_nodes(&mut |n| self.argument(&scope.slots[&n]))
    }

    pub(super) fn set_mode(&mut self, on: bool) {
        if self.mode != on {
            self.mode = on;
            let marker = self.graph.call_function(Function::SetGradEnabled, [on.into()]);
            self.graph.meta_mut(marker).val = Some(Val::None);
        }
    }

    /// Walks a graph whose placeholders have slots; gives what it returns.
    pub(super) fn run(&mut self, module: &GraphModule, scope: &mut Scope) -> Result<Slot> {
        let graph = &module.graph;
        for n in graph.nodes() {
            let node = &graph[n];
            let slot = match node.kind() {
                Kind::Placeholder(_) => continue,
                Kind::Output => return Ok(self.collect(scope, &node.args()[0])),
                Kind::GetAttr(path) => self.attribute(module, node, path)?,
                Kind::CallFunction(target) => self.call(module, scope, n, target)?,
                Kind::CallMethod(_) | Kind::CallModule(_) => {
                    return refuse(node, "only calls of functions are made pure; inline modules first");
                }
            };
            scope.slots.insert(n, slot);
        }
        Ok(Slot::Many(Vec::new()))
    }

    pub(super) fn collect(&mut self, scope: &Scope, argument: &Argument) -> Slot {
        match argument {
            Argument::Node(n) => scope.slots[n].clone(),
            Argument::Tuple(items) | Argument::List(items) => {
                Slot::Many(items.iter().map(|a| self.collect(scope, a)).collect())
            }
            other => {
                let value = materialize(other, &mut |_| Ok(Value::NONE)).unwrap_or(Value::NONE);
                Slot::Other(self.mapped(scope, other), value)
            }
        }
    }

    pub(super) fn attribute(&mut self, module: &GraphModule, node: &Node, path: &Name) -> Result<Slot> {
        // A body's own attributes move up with its nodes.
        let mut name = path.clone();
        let found = module.attributes.get(path).cloned();
        let taken = self.attributes.get(path);
        let same = match (&found, taken) {
            (Some(a), Some(b)) => match (a, b) {
                (Attribute::Graph(a), Attribute::Graph(b)) => Arc::ptr_eq(a, b),
                _ => matches!((a.tensor(), b.tensor()), (Some(a), Some(b)) if a.is_same(b)),
            },
            _ => false,
        };
        if let (Some(found), false) = (&found, same) {
            if taken.is_some() {
                self.subgraphs += 1;
                name = format!("{path}_pure{}", self.subgraphs).into();
            }
            self.attributes.set(&name, found.clone());
        }
        let copy = self.graph.create_node(Kind::GetAttr(name), [], [], Some(node.name()));
        *self.graph.meta_mut(copy) = node.meta().clone();
        match found {
            Some(Attribute::Graph(g)) => Ok(Slot::Other(copy.into(), Value::Graph(g))),
            Some(a) => match a.tensor() {
                Some(t) => {
                    let t = t.detach().try_to_device(Device::Meta)?;
                    Ok(Slot::Tensor(self.fresh(t, copy, node.meta().val.clone(), None)))
                }
                None => refuse(node, format!("attribute {path} has no value in this program")),
            },
            None => refuse(node, format!("attribute {path} does not exist")),
        }
    }

    pub(super) fn call(&mut self, module: &GraphModule, scope: &mut Scope, n: NodeId, target: &Target) -> Result<Slot> {
        let node = &module.graph[n];
        match (target, node.args()) {
            (Target::Function(Function::SetGradEnabled), [Argument::Bool(on)]) => {
                set_grad_enabled(*on);
                self.set_mode(*on);
                Ok(Slot::Other(Argument::None, Value::NONE))
            }
            (Target::Function(Function::GetItem), [Argument::Node(of), Argument::Int(i)]) => {
                if let Slot::Many(items) = &scope.slots[of] {
                    let i = if *i < 0 { *i + items.len() as i64 } else { *i };
                    let item = usize::try_from(i).ok().and_then(|i| items.get(i).cloned());
                    let slot = item.map_or_else(|| refuse(node, format!("there is no element {i}")), Ok)?;
                    if let Slot::Tensor(a) = &slot
                        && self.graph[self.aliases[*a].node].target().is_some_and(|t| t.is_function(&Function::GetItem))
                    {
                        self.graph.rename(self.aliases[*a].node, node.name());
                    }
                    return Ok(slot);
                }
                self.plain(module, scope, n)
            }
            (Target::Hop(Hop::WrapWithSetGradEnabled), [Argument::Bool(on), Argument::Node(body), operands @ ..]) => {
                let Slot::Other(_, Value::Graph(body)) = scope.slots[body].clone() else {
                    return refuse(node, "the body of a region is a sub-graph");
                };
                let mut inner = Scope::default();
                for (placeholder, operand) in body.graph.placeholders().zip(operands) {
                    let slot = self.collect(scope, operand);
                    inner.slots.insert(placeholder, slot);
                }
                let around = self.mode;
                let _mode = set_grad_enabled(*on).scoped();
                self.set_mode(*on);
                let result = self.run(&body, &mut inner)?;
                self.set_mode(around);
                Ok(result)
            }
            (Target::Function(Function::RegisterHook), [Argument::Node(of), ..]) => {
                let Slot::Tensor(alias) = scope.slots[of] else {
                    return refuse(node, "a hook belongs to a tensor");
                };
                let copy = self.copy(scope, node);
                let a = &mut self.aliases[alias];
                a.node = copy;
                a.hooked = true;
                if a.steps.is_empty() {
                    self.memories[a.memory].value = copy;
                }
                Ok(Slot::Tensor(alias))
            }
            (Target::Hop(Hop::Cond), [_, Argument::Node(yes), Argument::Node(no), operands]) => {
                let operands = self.collect(scope, operands);
                for side in [*yes, *no] {
                    self.make_pure(scope, node, side, &operands)?;
                }
                self.plain(module, scope, n)
            }
            (Target::Op(op), _) => self.op(module, scope, n, op),
            _ => self.plain(module, scope, n),
        }
    }

    /// Makes a side of a conditional pure, if it writes what it made itself.
    fn make_pure(&mut self, scope: &mut Scope, cond: &Node, side: NodeId, operands: &Slot) -> Result<()> {
        let Some(Slot::Other(_, Value::Graph(graph))) = scope.slots.get(&side) else {
            return refuse(cond, "a side is a sub-graph");
        };
        if !may_write(graph) {
            return Ok(());
        }
        let mut typed = (**graph).clone();
        let inputs: Vec<NodeId> = typed.graph.placeholders().collect();
        let Slot::Many(operands) = operands else { return refuse(cond, "operands are a list") };
        for (input, operand) in inputs.into_iter().zip(operands) {
            if let Slot::Tensor(alias) = operand {
                typed.graph.meta_mut(input).val = Some(TensorMeta::of(&self.aliases[*alias].tensor).into());
            }
        }
        let pure = functionalize_module(&typed, false)?;
        if !pure.mutations.is_empty() {
            return refuse(cond, "a branch mutates an operand; a conditional may only compute");
        }
        self.subgraphs += 1;
        self.rewrites += pure.rewrites;
        let (pure, path) = (Arc::new(pure.module), format!("pure_side_{}", self.subgraphs));
        self.attributes.set(&path, Attribute::Graph(Arc::clone(&pure)));
        let read = self.graph.get_attr(&path);
        scope.slots.insert(side, Slot::Other(read.into(), Value::Graph(pure)));
        Ok(())
    }

    /// The node as it is, on new arguments.
    pub(super) fn copy(&mut self, scope: &Scope, node: &Node) -> NodeId {
        let args: Vec<Argument> = node.args().iter().map(|a| self.mapped(scope, a)).collect();
        let kwargs: Vec<_> = node.kwargs().iter().map(|(k, a)| (k.clone(), self.mapped(scope, a))).collect();
        let copy = self.graph.create_node(node.kind().clone(), args, kwargs, Some(node.name()));
        *self.graph.meta_mut(copy) = node.meta().clone();
        copy
    }

    pub(super) fn values(&self, scope: &Scope, node: &Node) -> Result<Given> {
        let mut read = |n: NodeId| Ok(self.given(&scope.slots[&n]));
        let args = node.args().iter().map(|a| materialize(a, &mut read)).collect::<Result<_>>()?;
        let kwargs = node.kwargs().iter().map(|(k, a)| Ok((k.clone(), materialize(a, &mut read)?)));
        Ok((args, kwargs.collect::<Result<_>>()?))
    }

    /// A call of anything that does not write.
    pub(super) fn plain(&mut self, module: &GraphModule, scope: &Scope, n: NodeId) -> Result<Slot> {
        let node = &module.graph[n];
        for body in node.args().iter().filter_map(Argument::node).filter_map(|a| scope.slots.get(&a)) {
            if let Slot::Other(_, Value::Graph(g)) = body
                && may_write(g)
            {
                return refuse(
                    node,
                    "its body mutates memory; only grad-mode regions and branches of conditionals may",
                );
            }
        }
        let (mut args, kwargs) = self.values(scope, node)?;
        if let (Some(Target::Hop(Hop::WithData)), [_, Value::Tensor(value)]) = (node.target(), &mut args[..]) {
            // Its result is a tensor of its own, whose memory is nobody else's here.
            *value = outline(value)?;
        }
        let before: Vec<(Tensor, u32)> = tensors(&args, &kwargs).map(|t| (t.clone(), version(t))).collect();
        let ran = Outlined.run_node(&Call { module, node: n, args, kwargs });
        let result = match ran {
            Ok(value) => value,
            // What reads values cannot run here; what it gives was known when the program was made.
            Err(e) => match &node.meta().val {
                Some(val) => stand_in(val).ok_or(e)?,
                None => return Err(e),
            },
        };
        if let Some((t, _)) = before.iter().find(|(t, v)| version(t) != *v) {
            return refuse(
                node,
                format!("it mutates a tensor of shape {:?}, which its schema does not declare", t.shape()),
            );
        }
        let copy = self.copy(scope, node);
        self.bind(scope, node, copy, result)
    }

    /// Knows the results of a new node.
    pub(super) fn bind(&mut self, scope: &Scope, old: &Node, new: NodeId, result: Value) -> Result<Slot> {
        match result {
            Value::Tensor(t) => self.bind_tensor(scope, old, new, None, t),
            Value::List(items) => {
                let vals: Vec<Option<Val>> = match &old.meta().val {
                    Some(val) => val.items().unwrap_or(&[]).iter().cloned().map(Some).collect(),
                    None => Vec::new(),
                };
                let mut slots = Vec::with_capacity(items.len());
                for (i, item) in items.into_iter().enumerate() {
                    let part = self.graph.call_function(Function::GetItem, [new.into(), (i as i64).into()]);
                    let val = vals.get(i).cloned().flatten();
                    self.graph.meta_mut(part).val = val;
                    slots.push(match item {
                        Value::Tensor(t) => self.bind_tensor(scope, old, part, Some(i), t)?,
                        other => Slot::Other(part.into(), other),
                    });
                }
                Ok(Slot::Many(slots))
            }
            other => Ok(Slot::Other(new.into(), other)),
        }
    }

    pub(super) fn bind_tensor(
        &mut self,
        scope: &Scope,
        old: &Node,
        node: NodeId,
        item: Option<usize>,
        tensor: Tensor,
    ) -> Result<Slot> {
        if let Some(known) = self.find(&tensor) {
            return Ok(Slot::Tensor(known));
        }
        let val = self.graph[node].meta().val.clone().or_else(|| Some(TensorMeta::of(&tensor).into()));
        self.graph.meta_mut(node).val = val.clone();
        let Some(&memory) = self.at.get(&address(&tensor)) else {
            return Ok(Slot::Tensor(self.fresh(tensor, node, val, None)));
        };
        // A view: of its first argument, as all views are.
        let parent = match old.args().first() {
            Some(Argument::Node(n)) => match scope.slots.get(n) {
                Some(Slot::Tensor(a)) if self.aliases[*a].memory == memory => Some(*a),
                _ => None,
            },
            _ => None,
        };
        let Some(parent) = parent else {
            return refuse(old, "its result shares memory with something other than its first argument");
        };
        let step = self.step(scope, old, old.kind().clone(), parent, self.aliases[parent].tensor.layout().clone())?;
        let step = Step { item, to: tensor.layout().clone(), to_val: val.clone(), ..step };
        let version = self.memories[memory].version;
        let mut steps = self.aliases[parent].steps.clone();
        let hooked = self.aliases[parent].hooked && !steps.is_empty();
        steps.push(step);
        Ok(Slot::Tensor(self.alias(Alias { memory, steps, tensor, node, version, val, hooked })))
    }

    /// A view op as a step from its first argument.
    pub(super) fn step(&mut self, scope: &Scope, old: &Node, kind: Kind, parent: usize, from: Layout) -> Result<Step> {
        let Kind::CallFunction(target) = kind else { return refuse(old, "a view is an op") };
        let (given, given_named) = self.values(scope, old)?;
        let args: Vec<Argument> = old.args().iter().skip(1).map(|a| self.mapped(scope, a)).collect();
        let kwargs: Vec<_> = old.kwargs().iter().map(|(k, a)| (k.clone(), self.mapped(scope, a))).collect();
        Ok(Step {
            target,
            args,
            kwargs,
            given: given.into_iter().skip(1).collect(),
            given_named,
            item: None,
            to: from.clone(),
            from,
            from_val: self.aliases[parent].val.clone(),
            to_val: old.meta().val.clone(),
            whole: old.meta().val.clone(),
            name: old.name().clone(),
        })
    }

    pub(super) fn finish(mut self, inputs: Vec<Option<usize>>, results: Slot, share: bool) -> Result<Functional> {
        self.set_mode(is_grad_enabled());
        let view = |steps: &[Step]| steps.iter().map(|s| View { step: s.clone() }).collect::<Vec<_>>();
        let mut mutations = Vec::new();
        let mut returned = Vec::new();
        for (k, alias) in inputs.iter().enumerate().filter_map(|(k, a)| a.map(|a| (k, a))) {
            let (memory, relayout) = (self.aliases[alias].memory, view(&self.aliases[alias].steps));
            let piece = &self.memories[memory];
            if piece.written || !relayout.is_empty() {
                let (data, keeps_history, value) = (piece.written, !piece.recorded, piece.value);
                mutations.push(Mutation { input: k, data, relayout, keeps_history });
                if data {
                    returned.push(Argument::Node(value));
                }
            }
        }
        let mut origins = Vec::new();
        let results = match results {
            Slot::Many(items) => items,
            one => vec![one],
        };
        for slot in &results {
            let value = self.argument(slot);
            returned.push(value);
            origins.push(match slot {
                Slot::Tensor(a) => {
                    let alias = &self.aliases[*a];
                    let memory = match self.memories[alias.memory].input {
                        Some(k) => Memory::Input(k),
                        None => Memory::Fresh(alias.memory),
                    };
                    Some(Origin { memory, views: view(&alias.steps), tensor: *a, hooked: alias.hooked })
                }
                _ => None,
            });
        }
        let mut bases: Vec<usize> = Vec::new();
        let fresh: Vec<(usize, usize)> = origins
            .iter()
            .flatten()
            .filter_map(|o| if let Memory::Fresh(m) = o.memory { Some((m, o.tensor)) } else { None })
            .collect();
        for (memory, tensor) in &fresh {
            if share && !bases.contains(memory) && fresh.iter().any(|(m, t)| m == memory && t != tensor) {
                bases.push(*memory);
                returned.push(self.memories[*memory].value.into());
            }
        }
        self.graph.output(Argument::Tuple(returned.into()));
        self.erase_unused()?;
        let module = GraphModule { graph: self.graph, attributes: self.attributes, ..GraphModule::default() };
        let mut module = module;
        module.delete_all_unused_submodules();
        Ok(Functional { module, mutations, origins, bases, rewrites: self.rewrites })
    }

    /// Erases what only the walk put there, or what a region's body was read by.
    pub(super) fn erase_unused(&mut self) -> Result<()> {
        let order: Vec<NodeId> = self.graph.nodes().rev().collect();
        for n in order {
            let node = &self.graph[n];
            let idle = match node.kind() {
                Kind::GetAttr(_) => true,
                Kind::CallFunction(Target::Function(Function::GetItem)) => true,
                Kind::CallFunction(Target::Op(op)) => op.schema().is_some_and(Schema::is_view),
                _ => false,
            };
            if idle && node.num_users() == 0 {
                self.graph.erase(n)?;
            }
        }
        Ok(())
    }
}

pub(super) fn version(t: &Tensor) -> u32 {
    t.try_version().unwrap_or(0)
}

pub(super) fn tensors<'a>(args: &'a [Value], kwargs: &'a [(Name, Value)]) -> impl Iterator<Item = &'a Tensor> {
    args.iter().chain(kwargs.iter().map(|(_, v)| v)).flat_map(Value::tensors)
}

/// A value like what is known of it.
pub(super) fn stand_in(val: &Val) -> Option<Value> {
    match val {
        Val::None => Some(Value::NONE),
        Val::Tensor(meta) => {
            let hint = |s: &SymInt| s.hint().and_then(|v| usize::try_from(v).ok());
            let sizes: Vec<usize> = meta.sizes.iter().map(hint).collect::<Option<_>>()?;
            let strides: Vec<usize> = meta.strides.iter().map(hint).collect::<Option<_>>()?;
            let spec = Spec {
                layout: Layout::strided(&sizes, &strides, 0).ok()?,
                dtype: meta.dtype.dtype()?,
                device: Device::Meta,
            };
            Tensor::try_empty(spec).ok().map(Value::Tensor)
        }
        Val::SymInt(s) => s.hint().map(Value::from),
        Val::SymFloat(s) => s.hint().map(Value::from),
        Val::SymBool(s) => s.hint().map(|b| Value::Scalar(Scalar::Bool(b))),
        Val::Tuple(items) | Val::List(items) => items.iter().map(stand_in).collect::<Option<_>>().map(Value::List),
        _ => None,
    }
}
