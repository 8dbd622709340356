//! Writes: the pure op that computes what is written, and where the new value goes.

use super::views::Step;
use super::walk::{Scope, Slot, Walk, refuse, stand_in};
use super::{PASS, pure, writes_statistics};
use crate::error::{Error, Result};
use crate::interpret::{Call, Eager, Value, materialize, run_call};
use crate::ir::*;
use crate::schema::{Constant, Schema, Type};
use firebrand_core::dispatch::Op;
use firebrand_core::{Device, Tensor};

/// A call in the new graph.
type PureCall = (Target, Vec<Argument>, Vec<(Name, Argument)>);

impl Walk {
    pub(super) fn op(&mut self, module: &GraphModule, scope: &Scope, n: NodeId, op: &OpOverload) -> Result<Slot> {
        let node = &module.graph[n];
        let Some(schema) = op.schema() else { return self.plain(module, scope, n) };
        if writes_statistics(op) || op.is(Op::_NATIVE_BATCH_NORM_LEGIT) || op.is(Op::_BATCH_NORM_WITH_UPDATE) {
            return self.batch_norm(module, scope, n, op);
        }
        if !schema.mutates() {
            return self.plain(module, scope, n);
        }
        if op.is(Op::DETACH_) {
            return self.detach_in_place(module, scope, n);
        }
        let Some(Slot::Tensor(first)) = node.args().first().and_then(Argument::node).map(|a| scope.slots[&a].clone())
        else {
            return self.write(module, scope, n, op, schema);
        };
        let Some(pure) = pure::relayout(op) else {
            return self.write(module, scope, n, op, schema);
        };
        // The memory stays; the tensor shows it through one view more.
        let from = self.aliases[first].tensor.layout().clone();
        let step = self.step(scope, node, Kind::CallFunction(OpOverload::from(pure).into()), first, from)?;
        let (args, kwargs) = self.values(scope, node)?;
        run_call(&mut Eager { device: Some(Device::Meta) }, &Call { module, node: n, args, kwargs })?;
        let to = self.aliases[first].tensor.layout().clone();
        let value = self.value(first);
        let step = Step { to, to_val: Some(TensorMeta::of(&self.aliases[first].tensor).into()), ..step };
        let new = self.replay(&step, value);
        let alias = &mut self.aliases[first];
        alias.val = step.to_val.clone();
        alias.node = new;
        alias.version = self.memories[alias.memory].version;
        alias.steps.push(step);
        self.rewrites += 1;
        Ok(Slot::Tensor(first))
    }

    pub(super) fn detach_in_place(&mut self, module: &GraphModule, scope: &Scope, n: NodeId) -> Result<Slot> {
        let node = &module.graph[n];
        let Some(Slot::Tensor(alias)) = node.args().first().and_then(Argument::node).map(|a| scope.slots[&a].clone())
        else {
            return refuse(node, "detach_ takes a tensor");
        };
        let (args, kwargs) = self.values(scope, node)?;
        run_call(&mut Eager { device: Some(Device::Meta) }, &Call { module, node: n, args, kwargs })?;
        let value = self.value(alias);
        let new = self.graph.call_function(Target::aten("detach.default"), [value.into()]);
        self.graph.meta_mut(new).val = self.aliases[alias].val.clone();
        let a = &mut self.aliases[alias];
        a.node = new;
        self.memories[a.memory].value = new;
        self.rewrites += 1;
        Ok(Slot::Tensor(alias))
    }

    /// Running statistics become results of the functional form.
    pub(super) fn batch_norm(
        &mut self,
        module: &GraphModule,
        scope: &Scope,
        n: NodeId,
        op: &OpOverload,
    ) -> Result<Slot> {
        let node = &module.graph[n];
        let schema = op.schema().expect("an op of the table");
        let at = |name: &str| {
            let named = node.kwargs().iter().find(|(k, _)| &**k == name).map(|(_, a)| a);
            schema.position(name).and_then(|i| node.args().get(i)).or(named).cloned().unwrap_or(Argument::None)
        };
        let flag = if op.is(Op::INSTANCE_NORM) { "use_input_stats" } else { "training" };
        let trains = op.is(Op::_BATCH_NORM_WITH_UPDATE) || at(flag) != Argument::Bool(false);
        let statistics = [at("running_mean"), at("running_var")];
        if !trains || statistics.contains(&Argument::None) {
            return self.plain(module, scope, n);
        }
        if op.is(Op::INSTANCE_NORM) {
            return refuse(node, "instance_norm with running statistics has no functional form");
        }
        let names = ["input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"];
        let args: Vec<Argument> = names.iter().map(|name| self.mapped(scope, &at(name))).collect();
        let kind = Kind::CallFunction(Target::aten("_native_batch_norm_legit_functional.default"));
        let (given, named) = self.values(scope, node)?;
        let ran =
            run_call(&mut Eager { device: Some(Device::Meta) }, &Call { module, node: n, args: given, kwargs: named })?;
        let new = self.graph.create_node(kind, args, [], Some(node.name()));
        let several = matches!(ran, Value::List(_));
        let results: Vec<Value> = match ran {
            Value::List(items) => items,
            one => vec![one],
        };
        let mut slots = Vec::new();
        let mut vals: Vec<Val> = Vec::new();
        for (i, result) in results.into_iter().enumerate().take(3) {
            let part = self.graph.call_function(Function::GetItem, [new.into(), (i as i64).into()]);
            let t = result.tensor()?.clone();
            vals.push(TensorMeta::of(&t).into());
            slots.push(self.bind_tensor(scope, node, part, Some(i), t)?);
        }
        for (i, statistic) in statistics.iter().enumerate() {
            let Some(Slot::Tensor(alias)) = statistic.node().map(|a| scope.slots[&a].clone()) else {
                return refuse(node, "running statistics are tensors");
            };
            let part = self.graph.call_function(Function::GetItem, [new.into(), (i as i64 + 3).into()]);
            self.graph.meta_mut(part).val = self.aliases[alias].val.clone();
            self.assign(alias, part)?;
        }
        while vals.len() < 5 {
            vals.push(TensorMeta::of(&self.aliases[0].tensor).into());
        }
        self.graph.meta_mut(new).val = Some(Val::Tuple(vals.into()));
        self.rewrites += 1;
        Ok(if several { Slot::Many(slots) } else { slots.swap_remove(0) })
    }

    /// A write of data.
    pub(super) fn write(
        &mut self,
        module: &GraphModule,
        scope: &Scope,
        n: NodeId,
        op: &OpOverload,
        schema: &Schema,
    ) -> Result<Slot> {
        let node = &module.graph[n];
        let mut args: Vec<Argument> = Vec::new();
        let mut kwargs: Vec<(Name, Argument)> = Vec::new();
        let mut written: Vec<Slot> = Vec::new();
        for (i, arg) in schema.args.iter().enumerate() {
            let named = node.kwargs().iter().find(|(k, _)| &**k == arg.name).map(|(_, a)| a);
            let by_name = i >= node.args().len();
            let Some(value) = node.args().get(i).or(named) else { continue };
            if arg.written {
                let slot = self.collect(scope, value);
                // Such a hook is off the path of gradients and on that of their derivatives: no pure graph says that.
                if matches!(slot, Slot::Tensor(a) if self.aliases[a].hooked && !self.aliases[a].steps.is_empty()) {
                    return refuse(node, "a view with a hook is written");
                }
                written.push(slot);
            }
            match (arg.written && arg.kwarg_only, by_name) {
                (true, _) => {}
                (_, true) => kwargs.push((arg.name.into(), self.mapped(scope, value))),
                (_, false) => args.push(self.mapped(scope, value)),
            }
        }
        let (given, given_named) = self.values(scope, node)?;
        let (target, args, kwargs) = match op.op().and_then(pure::form) {
            Some(pure) => {
                add_defaults(&mut kwargs, args.len(), schema, Schema::of_op(pure));
                (Target::Op(pure.into()), args, kwargs)
            }
            None => match random_form(op, &args, &written, self) {
                Some((target, args, kwargs)) => (target, args, kwargs),
                None => return refuse(node, format!("{op} has no functional form; use ops that have one")),
            },
        };
        let call = Call { module, node: n, args: given, kwargs: given_named };
        run_call(&mut Eager { device: Some(Device::Meta) }, &call)?;
        let candidate = target.overload().map_or(String::new(), |o| o.base().to_string());
        let new = self.graph.create_node(Kind::CallFunction(target.clone()), args, kwargs, Some(&candidate));
        let written: Vec<Slot> = written
            .into_iter()
            .flat_map(|s| match s {
                Slot::Many(items) => items,
                one => vec![one],
            })
            .collect();
        let one = matches!(&written[..], [_])
            && target
                .overload()
                .and_then(OpOverload::schema)
                .is_some_and(|s| matches!(s.returns, [t] if *t != Type::Tensors));
        let mut vals = Vec::new();
        for (i, slot) in written.iter().enumerate() {
            let Slot::Tensor(alias) = *slot else { return refuse(node, "only tensors are written") };
            let val = self.aliases[alias].val.clone();
            vals.extend(val.clone());
            let part = match one {
                true => new,
                false => self.graph.call_function(Function::GetItem, [new.into(), (i as i64).into()]),
            };
            self.graph.meta_mut(part).val = val;
            let part = self.cast(alias, part, &target, op)?;
            self.assign(alias, part)?;
        }
        if !one {
            self.graph.meta_mut(new).val = Some(Val::List(vals.into()));
        }
        self.rewrites += 1;
        Ok(if written.len() == 1 { written[0].clone() } else { Slot::Many(written) })
    }

    /// A pure op may give a wider type than the tensor written has.
    pub(super) fn cast(&mut self, alias: usize, new: NodeId, target: &Target, op: &OpOverload) -> Result<NodeId> {
        let dtype = self.aliases[alias].tensor.dtype();
        let keeps = target.overload().is_some_and(|t| {
            matches!(t.base(), "copy" | "zero" | "fill" | "relu" | "neg" | "abs" | "masked_fill" | "index_put")
                || t.base().contains("scatter")
                || t.base().starts_with("index_")
        });
        // Only ops of two operands promote; a comparison gives truth values.
        let promotes = op.schema().is_some_and(|s| s.args.len() > 1) || dtype == firebrand_core::DType::Bool;
        let compares =
            matches!(op.base(), "eq_" | "ne_" | "lt_" | "le_" | "gt_" | "ge_") || op.base().starts_with("logical_");
        if keeps || !(promotes || compares) {
            return Ok(new);
        }
        let found = self.type_of(new);
        if found == Some(dtype) {
            return Ok(new);
        }
        let kind = Kind::CallFunction(Target::aten("_to_copy.default"));
        let named = [("dtype".into(), Argument::DType(dtype.into()))];
        let cast = self.graph.create_node(kind, [new.into()], named, Some("_to_copy"));
        self.graph.meta_mut(cast).val = self.graph[new].meta().val.clone();
        if let (Some(found), Some(Val::Tensor(meta))) = (found, self.graph[new].meta().val.clone()) {
            let meta = TensorMeta { dtype: found.into(), ..(*meta).clone() };
            self.graph.meta_mut(new).val = Some(meta.into());
        }
        Ok(cast)
    }

    /// The dtype a new node really has, by running it on tensors like its arguments.
    pub(super) fn type_of(&self, n: NodeId) -> Option<firebrand_core::DType> {
        let mut read = |n: NodeId| {
            let val = self.graph[n].meta().val.as_ref();
            val.and_then(stand_in).ok_or_else(|| Error::Value("unknown".to_string()))
        };
        let node = &self.graph[n];
        let args = node.args().iter().map(|a| materialize(a, &mut read)).collect::<Result<Vec<_>>>().ok()?;
        let kwargs = node.kwargs().iter().map(|(k, a)| Ok((k.clone(), materialize(a, &mut read)?)));
        let kwargs = kwargs.collect::<Result<Vec<_>>>().ok()?;
        let op = node.target()?.overload()?;
        let result = crate::interpret::call_op(op, &args, &kwargs, Some(Device::Meta)).ok()?;
        result.tensor().ok().map(Tensor::dtype)
    }

    /// Gives a tensor, and the memory it lies in, a new value.
    pub(super) fn assign(&mut self, alias: usize, new: NodeId) -> Result<()> {
        let (memory, steps) = (self.aliases[alias].memory, self.aliases[alias].steps.clone());
        // The values on the way, from the memory to what the last step is applied to.
        let mut at = self.memories[memory].value;
        let mut parents = vec![at];
        for step in steps.iter().take(steps.len().saturating_sub(1)) {
            at = self.replay(step, at);
            parents.push(at);
        }
        let mut value = new;
        for (step, parent) in steps.iter().zip(parents).rev() {
            value = self.put_back(step, parent, value)?;
        }
        let hidden = !self.mode || steps.iter().any(Step::is_detach);
        let piece = &self.memories[memory];
        if steps.iter().any(Step::is_detach) && self.aliases[alias].tensor.requires_grad() {
            let node = self.graph[new].name().to_string();
            let message = "a detached alias gets its own history, which the memory it shares does not have";
            return Err(Error::PassNode { pass: PASS, node, message: message.to_string() });
        }
        let keeps = hidden && piece.tensor.requires_grad();
        if keeps {
            let (old, val, around) = (piece.value, piece.val.clone(), self.mode);
            self.set_mode(true);
            value = self.graph.call_function(Hop::WithData, [old.into(), value.into()]);
            self.graph.meta_mut(value).val = val;
            self.set_mode(around);
        }
        let piece = &mut self.memories[memory];
        piece.value = value;
        piece.version += 1;
        piece.written = true;
        piece.recorded |= !hidden;
        let version = piece.version;
        // A view is cut out of the memory anew, as its history is: hooks on it see what reaches it, not the memory.
        if steps.is_empty() {
            let alias = &mut self.aliases[alias];
            (alias.node, alias.version) = (value, version);
        }
        Ok(())
    }
}

/// Names what may be left out of one op and not of its pure form.
fn add_defaults(kwargs: &mut Vec<(Name, Argument)>, given: usize, from: &Schema, pure: &Schema) {
    for (arg, own) in pure.args.iter().zip(from.args.iter().filter(|a| !(a.written && a.kwarg_only))).skip(given) {
        let named = kwargs.iter().any(|(k, _)| **k == *arg.name);
        if let (None, false, false, Some(default)) = (arg.default, arg.optional, named, own.default) {
            let value = match default {
                Constant::Bool(b) => Argument::Bool(b),
                Constant::Int(i) => Argument::Int(i),
                Constant::Float(v) => Argument::Float(v),
                _ => continue,
            };
            kwargs.push((arg.name.into(), value));
        }
    }
}

/// Ops that fill a tensor with random numbers, by ops that make one.
pub(super) fn random_form(op: &OpOverload, args: &[Argument], written: &[Slot], walk: &Walk) -> Option<PureCall> {
    let [Slot::Tensor(alias)] = written else { return None };
    let tensor = &walk.aliases[*alias].tensor;
    let number = |k: usize, default: f64| args.get(k).cloned().unwrap_or(default.into());
    match op.qualified() {
        "aten::normal_" => {
            let sizes = Argument::list(tensor.shape().iter().map(|&s| Argument::Int(s as i64)));
            let named = vec![("dtype".into(), Argument::DType(tensor.dtype().into()))];
            Some((Target::aten("normal.float_float"), vec![number(1, 0.0), number(2, 1.0), sizes], named))
        }
        "aten::uniform_" if number(1, 0.0) == Argument::Float(0.0) && number(2, 1.0) == Argument::Float(1.0) => {
            Some((Target::aten("rand_like.default"), vec![args[0].clone()], Vec::new()))
        }
        _ => None,
    }
}
