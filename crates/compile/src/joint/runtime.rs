//! Calling a plan: the compiled forward as one node of the caller's graph, and the compiled backward when it runs.
//!
//! The node keeps what the partition chose, through the saved-tensor hooks that are active at the call. Its backward asks
//! for the graph of exactly the gradients that arrived. When the backward is itself recorded, the gradients are computed
//! as a differentiable function of inputs and tangents, by a plan of its own: so on, to any order.

use super::plan::{BackwardPlan, Kept, Plan, Source};
use crate::backend::{Call, Early, Executable, Interpreted, Value, register_hook};
use crate::error::{Error, Result};
use firebrand_core::autograd::{Context, Function, RemovableHandle, is_grad_enabled, no_grad};
use firebrand_core::random::{Generator, get_rng_state, set_rng_state, with_generator};
use firebrand_core::{Layout, Spec, Tensor, func, ops};
use std::sync::Arc;

/// Runs a plan on the inputs of a captured graph. `has_run` tells whether the forward graph has: before that nothing has happened.
pub(crate) fn run(plan: &Arc<Plan>, inputs: &[Value], call: &Call, has_run: &mut bool) -> Result<Vec<Value>> {
    let recording = plan.differentiable && is_grad_enabled();
    if !recording && plan.is_direct && inputs.iter().all(is_plain) {
        return no_grad(|| plan.forward.run(inputs, call));
    }
    let tensors = plan.tensors.iter().map(|&k| Ok(inputs[k].tensor()?.clone())).collect::<Result<Vec<_>>>()?;
    // On what the inputs are before the graph writes them.
    let mut undo = Undo { handles: Vec::new(), generator: plan.is_random.then(get_rng_state) };
    for hook in &plan.input_hooks {
        let free: Vec<Value> = hook.free.iter().map(|&k| inputs[k].clone()).collect();
        undo.handles.push(register_hook(call, inputs[hook.on].tensor()?, &hook.body, &free)?);
    }
    let outputs = match recording {
        true => {
            let primals = primals_for_later(plan, &tensors)?;
            let generator = undo.generator.clone();
            let node = CompiledFunction { plan: plan.clone(), call: call.clone(), primals, generator };
            // An input that no gradient reaches is not reached by the engine either, unless the node becomes its history.
            let cut = |k: usize| !plan.reached[k] && !plan.written.iter().any(|w| w.tensor == k && w.recorded);
            let given = tensors.iter().enumerate().map(|(k, t)| if cut(k) { t.detach() } else { t.clone() });
            let given: Vec<Tensor> = given.collect();
            node.apply(&plan.order.iter().map(|&k| &given[k]).collect::<Vec<_>>())?
        }
        false => no_grad(|| -> Result<Vec<Tensor>> {
            let mut outputs = forward(plan, &tensors, call)?;
            outputs.truncate(plan.outputs);
            for w in &plan.written {
                tensors[w.tensor].try_copy_(&outputs[w.output], false)?;
                w.count_others(&tensors[w.tensor]);
            }
            Ok(outputs)
        })?,
    };
    *has_run = true;
    undo.handles.clear();
    undo.generator = None;
    if recording {
        for w in plan.written.iter().filter(|w| !is_dirty(plan, w.output, &tensors[w.tensor])) {
            let (old, new) = (&tensors[w.tensor], &outputs[w.output]);
            match w.recorded {
                true => drop(old.try_copy_(new, false)?),
                false => no_grad(|| old.try_copy_(&new.detach(), false).map(drop))?,
            }
            w.count_others(old);
        }
        for hook in &plan.hooks {
            register_hook(call, &outputs[hook.on], &hook.body, &[])?;
        }
    }
    let view = |base: &Tensor, views: &[firebrand_graph::passes::View], needs: bool| -> Result<Value> {
        let mut at = base.clone();
        for v in views {
            at = if needs { v.apply(&at)? } else { no_grad(|| v.apply(&at))? };
        }
        Ok(Value::Tensor(at))
    };
    plan.sources
        .iter()
        .map(|(source, needs)| match source {
            Source::Output(k) => Ok(Value::Tensor(outputs[*k].clone())),
            Source::ViewOfOutput(k, views) => view(&outputs[*k], views, *needs),
            Source::ViewOfInput(k, views) => view(inputs[*k].tensor()?, views, *needs),
            Source::Number(v) => Ok(v.clone()),
        })
        .collect()
}

/// The effects of a call whose graph fails: the graph will run again, op by op.
struct Undo {
    handles: Vec<RemovableHandle>,
    generator: Option<Generator>,
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.handles.iter().for_each(RemovableHandle::remove);
        if let Some(generator) = self.generator.take() {
            set_rng_state(generator);
        }
    }
}

/// Whether it is a tensor that nothing has to be taken off.
fn is_plain(value: &Value) -> bool {
    matches!(value, Value::Tensor(t) if !t.requires_grad())
}

fn forward(plan: &Plan, tensors: &[Tensor], call: &Call) -> Result<Vec<Tensor>> {
    let values: Vec<Value> = tensors.iter().map(|t| Value::Tensor(t.detach())).collect();
    plan.forward.run(&values, call)?.into_iter().map(|v| Ok(v.tensor()?.clone())).collect()
}

/// Whether the node itself writes the input: then its history is the node. A view's base has to learn of the write, so
/// that is left to a plain copy.
fn is_dirty(plan: &Plan, output: usize, input: &Tensor) -> bool {
    plan.written.iter().any(|w| w.output == output && w.recorded) && !input.is_view_here()
}

/// Inputs as they were at the call, with their version then; what the graph writes is copied.
fn primals_for_later(plan: &Plan, tensors: &[Tensor]) -> Result<Vec<(Tensor, u32)>> {
    let one = |(k, t): (usize, &Tensor)| {
        let t = match plan.written.iter().any(|w| w.tensor == k) {
            true => ops::clone(t, None)?,
            false => t.clone(),
        };
        let version = t.try_version().unwrap_or(0);
        Ok((t, version))
    };
    tensors.iter().enumerate().map(one).collect()
}

/// A tangent as the backward graph expects it.
fn laid_out(t: Tensor, layout: &Layout) -> firebrand_core::Result<Tensor> {
    if t.layout().same_geometry(layout) || is_mapped() || t.is_meta() {
        return Ok(t);
    }
    let like = Tensor::try_empty(Spec { layout: layout.clone(), dtype: t.dtype(), device: t.device() })?;
    match is_grad_enabled() && t.requires_grad() {
        true => ops::clone(&t, None),
        false => {
            like.try_copy_(&t, false)?;
            Ok(like)
        }
    }
}

/// Whether gradients may be batched here, or have tangents: then each op goes by its rule.
fn is_mapped() -> bool {
    let active = func::active();
    active.levels > 0 || active.dual
}

struct CompiledFunction {
    plan: Arc<Plan>,
    call: Call,
    primals: Vec<(Tensor, u32)>,
    generator: Option<Generator>,
}

impl CompiledFunction {
    /// Inputs of the node as inputs of the graph.
    fn in_place(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let place = |k: usize| self.plan.order.iter().position(|&o| o == k).unwrap_or(k);
        (0..inputs.len()).map(|k| inputs[place(k)].clone()).collect()
    }

    /// Gradients of the graph's inputs as those of the node's.
    fn in_order(&self, grads: Vec<Option<Tensor>>) -> Vec<Option<Tensor>> {
        self.plan.order.iter().map(|&k| grads[k].clone()).collect()
    }

    fn first_order(&self, ctx: &Context, grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        let plan = &self.plan;
        // In the last run they are ours alone, but for what others hold: the backend may write over them.
        let defined: Vec<bool> = grads.iter().zip(&plan.needs).map(|(g, n)| g.is_some() && *n).collect();
        if !defined.contains(&true) {
            return Ok(vec![None; plan.tensors.len()]);
        }
        let backward = plan.backward(&defined)?;
        let saved = ctx.take_saved_tensors_at(&backward.saved)?;
        let mut values = Vec::with_capacity(saved.len() + grads.len());
        for t in saved {
            values.push(Value::Tensor(t.ok_or_else(|| Error::internal("a saved value is lost"))?));
        }
        for (k, g) in grads.into_iter().enumerate().filter(|(k, _)| defined[*k]) {
            let g = g.ok_or_else(|| Error::internal("a defined gradient is none"))?;
            values.push(Value::Tensor(laid_out(g, &plan.layouts[k])?));
        }
        // On meta tensors a compiled backward pass writes down what happens here.
        let traced = values.iter().any(|v| matches!(v, Value::Tensor(t) if t.is_meta()));
        let early = ctx.early_leaves();
        let results = match is_mapped() || traced {
            false if !early.is_empty() => return self.handing_over(ctx, &early, &backward, values),
            false => backward.run.run_owned(values, &self.call)?,
            true => Interpreted { graph: Arc::new(backward.graph.clone()) }.run(&values, &self.call)?,
        };
        pick(&backward.grads, &results)
    }

    /// Runs the backward graph and hands each leaf that takes it early its gradient as soon as that is computed.
    fn handing_over(
        &self,
        ctx: &Context,
        early: &[bool],
        backward: &BackwardPlan,
        values: Vec<Value>,
    ) -> Result<Vec<Option<Tensor>>> {
        // Per result of the graph, the input of the node whose gradient it is.
        let mut inputs: Vec<Option<usize>> = vec![None; backward.grads.len()];
        for (input, &k) in self.plan.order.iter().enumerate().filter(|(input, _)| early[*input]) {
            if let Some(place) = backward.grads[k] {
                inputs[place] = Some(input);
            }
        }
        let versions = || -> Vec<u32> { self.primals.iter().map(|(t, _)| t.try_version().unwrap_or(0)).collect() };
        let before = versions();
        let mut left = backward.grads.clone();
        let mut take = |place: usize, value: Value| -> Result<()> {
            let (Some(input), Value::Tensor(grad)) = (inputs[place], value) else {
                return Err(Error::internal("an unused result was handed over"));
            };
            left[self.plan.order[input]] = None;
            Ok(ctx.hand_over(input, grad)?)
        };
        let wanted = inputs.iter().map(Option::is_some).collect();
        let results = backward.run.run_handing_over(values, &self.call, &mut Early { wanted, take: &mut take })?;
        if versions() != before {
            let text = "a hook on the gradient of a leaf wrote an input of a compiled function whose backward was still running, which may have read it; write it after the backward pass";
            return Err(firebrand_core::Error::argument("backward", text).into());
        }
        pick(&left, &results)
    }

    /// Gradients that can be differentiated: recomputed from the inputs, with the random numbers of the forward.
    fn higher_order(&self, ctx: &Context, grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        let plan = &self.plan;
        let defined: Vec<bool> = grads.iter().zip(&plan.needs).map(|(g, n)| g.is_some() && *n).collect();
        if !defined.contains(&true) {
            return Ok(vec![None; plan.tensors.len()]);
        }
        let second = plan.second(&defined)?;
        if !plan.written.is_empty() {
            // What the graph writes is recomputed from copies: whether it has been written since is known of what was kept.
            drop(ctx.take_saved_tensors_at(&plan.backward(&defined)?.saved)?);
        }
        let mut values = Vec::new();
        for ((t, version), reads) in self.primals.iter().zip(&second.reads) {
            if *reads && t.try_version().unwrap_or(0) != *version {
                let text = "an input of a compiled function was modified in place after the call, and differentiating its gradient needs the old value; write a copy instead (x.clone()), or write it inside the function";
                return Err(firebrand_core::Error::argument("backward", text).into());
            }
            values.push(Value::Tensor(t.clone()));
        }
        for (k, g) in grads.into_iter().enumerate().filter(|(k, _)| defined[*k]) {
            let g = g.ok_or_else(|| Error::internal("a defined gradient is none"))?;
            values.push(Value::Tensor(laid_out(g, &plan.layouts[k])?));
        }
        if !second.results.is_empty() {
            let kept = ctx.results()?;
            for k in &second.results {
                let at = plan.kept_results.iter().position(|kept| kept == k);
                let result = at.and_then(|at| kept.get(at)).ok_or_else(|| Error::internal("a result is not kept"))?;
                values.push(Value::Tensor(result.clone()));
            }
        }
        let run = match (is_mapped(), is_grad_enabled()) {
            (true, true) => &second.transformed,
            (true, false) => &second.unrecorded,
            (false, _) => &second.run,
        };
        let results = match &self.generator {
            Some(then) => with_generator(then.clone(), || run.run(&values, &self.call))?,
            None => run.run(&values, &self.call)?,
        };
        pick(&second.grads, &results)
    }
}

fn pick(places: &[Option<usize>], results: &[Value]) -> Result<Vec<Option<Tensor>>> {
    places.iter().map(|p| p.map(|i| Ok(results[i].tensor()?.clone())).transpose()).collect()
}

impl Function for CompiledFunction {
    fn name(&self) -> String {
        "CompiledFunction".to_string()
    }

    /// What it keeps it keeps in `forward`: on a level of a transform the graph is another function.
    fn has_setup_context(&self) -> bool {
        true
    }

    fn compiled_id(&self) -> u64 {
        self.plan.id
    }

    /// Hooks of the call have to be called.
    fn traceable(&self) -> Option<u64> {
        (!self.plan.calls_hooks).then_some(self.plan.id)
    }

    fn takes_saved_tensors(&self) -> bool {
        true
    }

    fn hands_over_gradients(&self) -> bool {
        true
    }

    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> firebrand_core::Result<Vec<Tensor>> {
        let plan = &self.plan;
        let inputs = &self.in_place(inputs);
        ctx.set_materialize_grads(false);
        let mut results = forward(plan, inputs, &self.call)?;
        let kept = results.split_off(plan.outputs);
        let mut dirty = Vec::new();
        let mut saved: Vec<Tensor> = Vec::with_capacity(plan.kept.len());
        for k in &plan.kept {
            saved.push(match k {
                // What is about to be overwritten is kept as a copy.
                Kept::Primal(k) if plan.written.iter().any(|w| w.tensor == *k) => ops::clone(&inputs[*k], None)?,
                Kept::Primal(k) => inputs[*k].clone(),
                Kept::Value(k) if plan.written.iter().any(|w| inputs[w.tensor].shares_storage(&kept[*k])) => {
                    ops::clone(&kept[*k], None)?
                }
                Kept::Value(k) => kept[*k].clone(),
                // An output that becomes the input it is written to is kept under that name.
                Kept::Output(k) => results[*k].clone(),
            });
        }
        for w in &plan.written {
            if is_dirty(plan, w.output, &inputs[w.tensor]) {
                let (old, new) = (&inputs[w.tensor], &results[w.output]);
                old.try_copy_(new, false)?;
                w.count_others(old);
                dirty.push(w.tensor);
                results[w.output] = old.clone();
            }
        }
        ctx.mark_dirty(&dirty.iter().map(|&k| &inputs[k]).collect::<Vec<_>>());
        let frozen: Vec<Tensor> =
            results.iter().zip(&plan.needs).filter(|(_, needs)| !**needs).map(|(t, _)| t.clone()).collect();
        ctx.mark_non_differentiable(&frozen.iter().collect::<Vec<_>>());
        ctx.save_for_backward(&saved.iter().map(Some).collect::<Vec<_>>());
        ctx.keep_results(&plan.kept_results.iter().map(|&k| &results[k]).collect::<Vec<_>>());
        Ok(results)
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        self.backward_owned(ctx, grads.to_vec())
    }

    fn backward_owned(&self, ctx: &Context, grads: Vec<Option<Tensor>>) -> firebrand_core::Result<Vec<Option<Tensor>>> {
        // Random numbers of then are kept, and cannot be drawn again for a batch.
        let drawn = self.generator.is_some() && !is_grad_enabled();
        if is_grad_enabled() || (is_mapped() && !drawn) {
            // Read them, so that a graph that was freed says so.
            ctx.saved_tensors()?;
            return Ok(self.in_order(self.higher_order(ctx, grads)?));
        }
        Ok(self.in_order(self.first_order(ctx, grads)?))
    }
}
