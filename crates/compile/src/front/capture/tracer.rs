//! The session as a tracer: it records ops, and everything the function does that is not an op.

use super::effect::Effect;
use super::{Body, HookNode, Session};
use crate::breaks::BreakKind;
use crate::front::guard::{EnvironmentGuard, LookGuard, ModuleGuard};
use crate::front::source::Source;
use firebrand_core::autograd::{
    Function, RegionCasts, Removable, RemovableHandle, call_with_casts, is_autocast_enabled,
};
use firebrand_core::capture::{
    self as core_capture, Caller, PostAccumulateFn, Read, StandIns, TensorCell, TensorHookFn, Tracer,
};
use firebrand_core::dispatch::{self, Cond, Interpreter, Next, Op, Outputs, Value};
use firebrand_core::module::{Module, ModuleWatch};
use firebrand_core::tree::Host;
use firebrand_core::{DType, ErrorKind, Number, Result, SymInt, Tensor, func};
use firebrand_graph::ir::{Argument, Function as GraphFunction, NodeId, TensorMeta, Val};
use firebrand_graph::record_cond;
use firebrand_graph::schema::Schema;
use std::any::Any;
use std::panic::Location;
use std::sync::{Arc, Weak};

/// What a handle refers to while the function that made it is captured.
pub(crate) struct HandleProxy {
    pub(crate) session: Weak<Session>,
}

impl Removable for HandleProxy {
    fn remove(&self, id: u64) {
        if let Some(session) = self.session.upgrade() {
            session.remove_hook(id);
        }
    }
    fn contains(&self, _: u64) -> bool {
        true
    }
}

impl Interpreter for Session {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        if self.has_left() {
            return next.call(op, args);
        }
        if self.transforms() {
            return self.pass_on(op, args, next);
        }
        if is_autocast_enabled() {
            // Casts become ops of the graph; this comes back with the region off.
            return call_with_casts(op, args, &|region, t, cast| self.cast_once(region, t, cast));
        }
        if core_capture::has_own_saved_hooks() {
            return self.call_with_hooks(op, args);
        }
        self.check_written(op, args)?;
        let (outlined, given) = {
            let mut state = self.lock();
            let outlined = state.trace.outlined(op, args)?;
            (outlined, state.trace.arguments(args).map_err(firebrand_core::Error::user)?)
        };
        match next.call(op, &outlined) {
            Ok(_) if changes_flag(op, args, &outlined) => {
                // A tensor that is no stand-in says what it is: the write must not wait.
                self.go_on_plainly("a write that changes whether a tensor requires grad", Location::caller())?;
                dispatch::call(op, &with_tensors(args, &|t| Ok(self.binding.real(t).unwrap_or_else(|| t.clone())))?)
            }
            Ok(results) => {
                self.note_length(op, args);
                let mut state = self.lock();
                self.note_memory(&mut state, args, &results);
                state.trace.record(op, given, &results).map_err(firebrand_core::Error::user)?;
                if self.plan.varies() {
                    mark_symbolic(&results);
                }
                Ok(results)
            }
            Err(e) if matches!(e.kind(), ErrorKind::MetaData { .. }) => self.call_for_real(op, args),
            Err(e) => {
                // The function may go on without it; at other sizes the op may not fail.
                self.observe_all_sizes(args);
                Err(e)
            }
        }
    }

    fn cond(&self, call: &Cond<'_>) -> Option<Result<Vec<Tensor>>> {
        // Inside a pure hook ops go to the hook's trace, which takes no conditional: the read of the predicate says so.
        if self.has_left() || self.transforms() || self.lock().body() == Body::PureHook {
            return None;
        }
        let prepare = |stand_in: &Tensor| {
            if self.plan.varies() {
                stand_in.mark_symbolic();
            }
        };
        Some(record_cond(&self.state, &prepare, call))
    }
}

/// The arguments with other tensors.
fn with_tensors(args: &[Value], of: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    args.iter()
        .map(|v| {
            Ok(match v {
                Value::Tensor(t) => Value::Tensor(of(t)?),
                Value::Tensors(list) => Value::Tensors(list.iter().map(of).collect::<Result<_>>()?),
                Value::OptTensors(list) => {
                    Value::OptTensors(list.iter().map(|t| t.as_ref().map(of).transpose()).collect::<Result<_>>()?)
                }
                other => other.clone(),
            })
        })
        .collect()
}

/// Whether an op that writes a tensor of the caller's changes whether that requires grad, as its outline shows.
fn changes_flag(op: Op, args: &[Value], outlined: &[Value]) -> bool {
    let written = Schema::of_op(op).args.iter().map(|a| a.written);
    written.zip(args.iter().zip(outlined)).any(|(written, pair)| match pair {
        (Value::Tensor(t), Value::Tensor(outline)) if written => {
            !t.is_meta() && t.requires_grad() != outline.requires_grad()
        }
        _ => false,
    })
}

fn mark_symbolic(results: &Outputs) {
    for value in results {
        match value {
            Value::Tensor(t) => t.mark_symbolic(),
            Value::Tensors(list) => list.iter().for_each(Tensor::mark_symbolic),
            _ => {}
        }
    }
}

impl Session {
    /// An op whose result depends on numbers: the graph so far runs, then the op.
    fn call_for_real(&self, op: Op, args: &[Value]) -> Result<Outputs> {
        let kind = match op.name() {
            "aten::is_nonzero" => BreakKind::DataDependentBranch,
            "aten::item" | "aten::_local_scalar_dense" | "aten::equal" | "aten::allclose" => BreakKind::ScalarRead,
            _ => BreakKind::DynamicShape,
        };
        self.break_here(kind, op.name(), None)?;
        let values = self.real_values(op, args)?;
        core_capture::suspended(|| dispatch::call(op, &values))
    }

    /// The cast of a parameter in an autocast region, which is one for all ops of it.
    fn cast_once(&self, region: &RegionCasts, t: &Tensor, cast: &dyn Fn() -> Result<Tensor>) -> Result<Tensor> {
        if self.lock().body() != Body::Function {
            return cast();
        }
        let is_it = |(r, of, _): &&(RegionCasts, Tensor, Tensor)| r.is_same(region) && of.id() == t.id();
        if let Some((.., known)) = self.lock().casts.iter().find(is_it) {
            return Ok(known.clone());
        }
        let made = cast()?;
        self.lock().casts.push((region.clone(), t.clone(), made.clone()));
        Ok(made)
    }

    /// An op inside the scope of saved-tensor hooks that the function switched on: the graph so far runs, then the op with
    /// these hooks.
    fn call_with_hooks(&self, op: Op, args: &[Value]) -> Result<Outputs> {
        let last = self.lock().breaks.last().is_some_and(|b| b.kind == BreakKind::SavedHooks);
        if !(last && self.is_flushed()) {
            self.break_here(BreakKind::SavedHooks, op.name(), None)?;
        }
        let values = self.real_values(op, args)?;
        core_capture::suspended_with_own_hooks(|| dispatch::call(op, &values))
    }

    /// The arguments with memory: the graph so far has run.
    fn real_values(&self, op: Op, args: &[Value]) -> Result<Vec<Value>> {
        let missing = || firebrand_core::Error::user(format!("{}: a tensor of the function has no value", op.name()));
        with_tensors(args, &|t| self.real(t).ok_or_else(missing))
    }

    /// Takes back a hook of this capture.
    fn remove_hook(&self, id: u64) {
        let mut state = self.lock();
        for effect in &mut state.effects {
            if let Effect::Hook { handle, .. } | Effect::PostAccumulate { handle, .. } = effect
                && *handle == id
            {
                *effect = Effect::Removed { handle: id };
                return;
            }
        }
        let opaque = state.hooks.iter().position(|h| h.handle == id).map(|at| state.hooks.remove(at).node);
        let pure = state.pure_hooks.iter().position(|h| h.handle == id);
        if let Some(node) = opaque.or_else(|| pure.map(|at| state.pure_hooks.remove(at).node)) {
            state.effects.push(Effect::Removed { handle: id });
            let graph = &mut state.trace.module_mut().graph;
            if let Some(input) = graph[node].args().first().cloned() {
                graph.replace_all_uses_with(node, input.clone());
                let before = input.node();
                let _ = graph.erase(node); // nothing uses it any more
                if let Some(before) = before {
                    state.trace.rebind(node, before);
                }
            }
            return;
        }
        drop(state);
        // The hook is in place already (a break came in between).
        self.binding.handle_by_key(id).inspect(RemovableHandle::remove);
    }

    /// Whether it is a view made where nothing is recorded. Whether that is a leaf changes where its base is written: it cannot wait for
    /// the end of the graph.
    fn is_loose(&self, t: &Tensor) -> bool {
        let real = self.lock().reals.get(&t.id()).map(|(_, real)| real.clone());
        let t = real.as_ref().unwrap_or(t);
        t.is_view_here() && t.is_leaf_here() && t.requires_grad()
    }

    /// Puts a hook node behind the value of `t`.
    pub(super) fn hook_node(&self, t: &Tensor, arguments: Vec<Argument>) -> Result<NodeId> {
        let mut state = self.lock();
        let value = state.trace.node(t).map_err(firebrand_core::Error::user)?;
        let mut all = vec![value.into()];
        all.extend(arguments);
        let node = state.trace.module_mut().graph.call_function(GraphFunction::RegisterHook, all);
        state.trace.module_mut().graph.meta_mut(node).val = Some(Val::from(TensorMeta::of(t)));
        state.trace.bind(t, node);
        Ok(node)
    }
}

impl Tracer for Session {
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn materialize(&self, t: &Tensor, why: Read, at: Caller) -> Result<Tensor> {
        let (kind, what) = match why {
            Read::Item if t.dtype() == DType::Bool => (BreakKind::DataDependentBranch, "item of a bool tensor"),
            Read::Item => (BreakKind::ScalarRead, "item"),
            Read::Data => (BreakKind::DataRead, "to_vec"),
            Read::Backward => (BreakKind::Backward, "backward"),
            Read::Disabled => (BreakKind::Disabled, "a disabled function"),
        };
        let last = self.lock().breaks.last().is_some_and(|b| b.location == Some(at) && b.kind == kind);
        if !(last && self.real(t).is_some() && self.is_flushed()) {
            self.break_here(kind, what, Some(at))?;
        }
        self.real(t).ok_or_else(|| firebrand_core::Error::user(format!("{what}: the tensor has no value here")))
    }

    fn register_hook(&self, t: &Tensor, hook: TensorHookFn, at: Caller) -> Result<RemovableHandle> {
        let pure = self.lock().body().pure();
        if let Some((body, kind)) = pure {
            self.note_break(kind, format!("a hook registered inside {body}"), Some(at))?;
        }
        if self.transforms() {
            self.only_ops("register_hook", Some(at))?;
        }
        if self.is_from_outside_of_its_checkpoint(t)? {
            self.begins_anew_at_checkpoints("a hook on what a checkpoint reads")?;
        }
        let session = super::session().ok_or_else(|| firebrand_core::Error::user("no capture runs here"))?;
        let proxy = session.proxy_handle();
        let handle = proxy.key();
        // A leaf has one history; that of another tensor changes where the function writes it, so its hook has a place in the
        // graph.
        if self.is_loose(t) {
            self.go_on_plainly("a hook on a view without history", at)?;
            return t.try_register_hook_any(move |g| hook(g));
        }
        if self.is_source(t) && t.is_leaf_here() {
            self.push_effect(Effect::Hook { target: t.clone(), hook, handle });
        } else {
            let node = self.hook_node(t, vec![Argument::Int(0)])?;
            self.lock().hooks.push(HookNode { node, hook, handle });
        }
        Ok(proxy)
    }

    fn register_post_accumulate_hook(&self, t: &Tensor, hook: PostAccumulateFn) -> Result<RemovableHandle> {
        if self.is_loose(t) {
            self.go_on_plainly("a post-accumulate hook on a view without history", Location::caller())?;
            return t.try_register_post_accumulate_grad_hook(move |t: &Tensor| hook(t));
        }
        let session = super::session().ok_or_else(|| firebrand_core::Error::user("no capture runs here"))?;
        let proxy = session.proxy_handle();
        self.push_effect(Effect::PostAccumulate { target: t.clone(), hook, handle: proxy.key() });
        Ok(proxy)
    }

    fn retain_grad(&self, t: &Tensor) -> Result<()> {
        if self.transforms() {
            self.only_ops("retain_grad", None)?;
        }
        if self.is_source(t) {
            self.push_effect(Effect::RetainGrad { target: t.clone() });
        } else {
            // What is kept is the gradient behind all hooks, of the last version: known when the graph ends. Nothing can read
            // that of a tensor that is gone by then.
            self.lock().retained.push(t.downgrade());
        }
        Ok(())
    }

    fn grad(&self, t: &Tensor) -> Option<Tensor> {
        let last = self.lock().effects.iter().rev().find_map(|e| match e {
            Effect::SetGrad { target, grad } if target.is_same(t) => Some(grad.clone()),
            _ => None,
        });
        if let Some(grad) = last {
            return grad;
        }
        // Whether there is a gradient differs from call to call: the function goes on with what is there now.
        if self.break_here(BreakKind::DataRead, "grad", None).is_err() {
            return None;
        }
        self.real(t).and_then(|real| core_capture::suspended(|| real.grad()))
    }

    fn set_grad(&self, t: &Tensor, grad: Option<&Tensor>) -> Result<()> {
        self.push_effect(Effect::SetGrad { target: t.clone(), grad: grad.cloned() });
        Ok(())
    }

    fn made(&self, t: &Tensor) {
        // What a level makes of it is another tensor: every call would need its own.
        if func::active().levels != self.levels && self.only_ops("a tensor of host data", None).is_err() {
            return; // the error is noted
        }
        self.lock().made.push(t.clone());
    }

    fn begin_checkpoint(&self, at: Caller) -> Result<()> {
        self.checkpoint(at)
    }

    fn begin_transform(&self, records: bool) -> bool {
        self.begin(records)
    }

    fn end_transform(&self) {
        self.end()
    }

    fn in_transform(&self) -> bool {
        self.transforms()
    }

    fn below_autograd(self: Arc<Self>) -> Arc<dyn Interpreter> {
        Arc::new(super::transform::Below(self))
    }

    fn same_value(&self, alias: &Tensor, of: &Tensor) {
        let mut state = self.lock();
        if let Some(node) = state.trace.known(of) {
            state.trace.bind(alias, node);
        }
    }

    fn result_of_transform(&self, t: &Tensor) -> Result<Tensor> {
        self.transformed(t)
    }

    fn keeps_nodes(&self) -> Arc<dyn Any + Send + Sync> {
        self.keeper()
    }

    fn load(&self, cell: &Arc<dyn TensorCell>) -> Tensor {
        let mut state = self.lock();
        if let Some((_, held)) = state.tensor_cells.iter().find(|(c, _)| Arc::ptr_eq(c, cell)) {
            return held.clone();
        }
        let real = cell.load();
        if state.trace.known(&real).is_some() {
            return real; // the function made the cell, or has set what it holds
        }
        let made = core_capture::suspended(|| self.source(&mut state, "buffer", &real, Source::Cell(cell.clone())));
        let held = made.unwrap_or(real);
        state.tensor_cells.push((cell.clone(), held.clone()));
        held
    }

    fn store(&self, cell: &Arc<dyn TensorCell>, t: Tensor) {
        if self.transforms() && self.only_ops("a write of a cell", None).is_err() {
            return; // the error is noted
        }
        {
            let mut state = self.lock();
            state.tensor_cells.retain(|(c, _)| !Arc::ptr_eq(c, cell));
            state.tensor_cells.push((cell.clone(), t.clone()));
        }
        self.push_effect(Effect::Store { cell: cell.clone(), value: t });
    }

    fn enter_module(&self, module: &dyn Module) {
        let core = module.core();
        let mut state = self.lock();
        let watch = core.watch();
        if state.modules.iter().any(|m| m.watch.is_same(&watch)) {
            return;
        }
        // Hooks that the function itself put in are none of its conditions.
        let own = |id: &u64| {
            state.effects.iter().any(|e| matches!(e, Effect::Register { handle, .. } if handle.key() == *id))
        };
        let mut hooks: Vec<u64> = watch.hook_ids().into_iter().filter(|id| !own(id)).collect();
        if hooks.iter().all(|id| *id == 0) {
            hooks.clear();
        }
        let training = watch.is_training();
        state.modules.push(ModuleGuard { name: module.name(), watch, training, hooks });
    }

    fn registered(&self, handle: &RemovableHandle, again: Arc<dyn Fn() -> RemovableHandle + Send + Sync>) {
        self.push_effect(Effect::Register { again, handle: handle.clone() });
    }

    fn apply(&self, function: Arc<dyn Function>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if self.transforms() {
            self.only_ops("a custom function", None)?;
        }
        let stand_ins = {
            let mut state = self.lock();
            inputs.iter().map(|t| state.trace.outline(t)).collect::<Result<Vec<_>>>()?
        };
        let run = || core_capture::suspended(|| firebrand_core::autograd::apply_function(function.clone(), stand_ins));
        let Some(Ok(results)) = core_capture::trial(run) else {
            // It reads numbers, or fails, at these sizes perhaps: it runs as it is.
            self.go_on_plainly("a custom function that reads numbers or fails", Location::caller())?;
            return firebrand_core::autograd::apply_function(function, inputs.iter().map(core_capture::real).collect());
        };
        let mut state = self.lock();
        let slot = state.functions.len();
        state.functions.push(function);
        let mut args = vec![Argument::Int(slot as i64)];
        for t in inputs {
            args.push(state.trace.node(t).map_err(firebrand_core::Error::user)?.into());
        }
        state.trace.record_function(GraphFunction::ApplyFunction, args, &results);
        if self.plan.varies() {
            results.iter().for_each(Tensor::mark_symbolic);
        }
        Ok(results)
    }

    fn size(&self, t: &Tensor, dim: usize) -> SymInt {
        self.symbolic_size(t, dim)
    }

    fn size_operand(&self, n: SymInt) -> Result<Tensor> {
        let mut state = self.lock();
        let given = match state.body() {
            Body::Function => Some(state.trace.arguments(&[Value::Int(n)]).map_err(firebrand_core::Error::user)?),
            // It knows the sizes of its gradient, and not those that it captured.
            Body::PureHook => state.trace.arguments(&[Value::Int(n)]).ok(),
            Body::Branch => None,
        };
        let Some(node) = given.and_then(|given| given[0].node()) else {
            return Ok(Number::new(n.int()).tensor().clone());
        };
        let number = Number::outline(n.hint().into())?;
        state.trace.bind(number.tensor(), node);
        Ok(number.tensor().clone())
    }

    fn observe_sizes(&self, t: &Tensor) {
        for d in 0..t.ndim() {
            self.symbolic_size(t, d).int(); // the fact is what counts
        }
    }

    fn observe_number(&self, number: &Tensor) {
        self.lock().numbers_read.push(number.id());
    }

    fn observe_strides(&self, exactly: bool, at: Caller) -> Result<()> {
        let body = self.lock().body();
        match body {
            Body::PureHook => {}
            // Whether a tensor is row-major is a condition of the graph, how far its elements are apart is not.
            _ if exactly => return self.go_on_plainly("strides", at),
            _ => return Ok(()),
        }
        let _ = self.note_break(BreakKind::ImpureHook, "a look at the memory order of a gradient", None);
        Ok(())
    }

    fn look(&self, t: &Tensor, what: &'static str, read: fn(&Tensor) -> bool) -> Option<bool> {
        let real = self.real(t).filter(|_| self.is_source(t))?;
        let mut state = self.lock();
        let given = state.sources.iter().find(|(stand_in, _)| stand_in.id() == t.id()).map(|(_, s)| s.clone());
        let source = given.or_else(|| (!t.is_meta()).then(|| Source::Captured(t.clone())))?;
        let expected = core_capture::suspended(|| read(&real));
        state.looked_at.push(LookGuard { what, source, read, expected });
        Some(expected)
    }

    fn unseen_alias(&self, alias: &Tensor, at: Caller) -> Result<()> {
        if self.plainly.aliases || self.lock().flushed {
            return self.go_on_plainly("data", at);
        }
        let storage = alias.untyped_storage();
        self.lock().unseen.insert(storage.addr(), storage);
        Ok(())
    }

    fn observe(&self, what: &'static str, read: fn() -> i64) {
        let read = Arc::new(move || Host::Int(read()));
        let guard = EnvironmentGuard { what: what.to_string(), expected: read(), read };
        self.lock().environment.push(guard);
    }

    fn observe_training(&self, module: &ModuleWatch) {
        let mut state = self.lock();
        if !state.modules.iter().any(|m| m.watch.is_same(module)) {
            let (watch, training) = (module.clone(), module.is_training());
            state.modules.push(ModuleGuard { name: "a module", hooks: watch.hook_ids(), watch, training });
        }
    }

    fn leave(&self, what: &'static str, at: Caller) -> Result<()> {
        self.go_on_plainly(what, at)
    }

    fn made_here(&self, t: &Tensor) -> bool {
        self.lock().made.iter().any(|m| m.is_same(t))
    }

    fn owns(&self, handle: &RemovableHandle) -> bool {
        let state = self.lock();
        let registered = |e: &Effect| matches!(e, Effect::Register { handle: h, .. } if h.key() == handle.key());
        state.handles.iter().any(|p| handle.belongs_to(p)) || state.effects.iter().any(registered)
    }

    fn handle_id(&self, handle: &RemovableHandle, at: Caller) -> u64 {
        let ours = self.lock().handles.iter().any(|p| handle.belongs_to(p));
        if !ours {
            return handle.key();
        }
        match self.break_here(BreakKind::HandleId, "id of a handle", Some(at)) {
            Ok(()) => self.binding.handle(handle).key(),
            Err(e) => panic!("{e}"),
        }
    }
}
