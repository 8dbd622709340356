//! Running a custom function: its forward, its tangents, its node.
//!
//! Under a wrapping level (`func::level`) the forward runs one level down, by the function's batching rule or a
//! generated one, and is recorded there too; this level then keeps its own tensors by `setup_context`.

use super::mapped::Mapped;
use super::{BatchedOutputs, Context, Function, VmapInfo};
use crate::autograd::node::{
    Backward, BoxedBackward, Edge, Edges, Gradients, InputMetadata, Needs, Node, Wishes, boxed,
};
use crate::autograd::saved::{SavedAt, SavedHooks, SavedSlot, SavedTensor, SavedValue, hook_slot};
use crate::autograd::view::CreationKind;
use crate::autograd::{SavedVisitor, forward, record};
use crate::capture;
use crate::func::level;
use crate::state::{self, ModeGuard};
use crate::warnings::warn;
use crate::{Error, ErrorKind, JvpRule, Result, Tensor};
use smallvec::{SmallVec, smallvec};
use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

struct FunctionNode {
    function: Arc<dyn Function>,
    ctx: Context,
    name: String,
}

/// Makes differentiating a value that has no derivative an error, once it is asked for.
struct DelayedError {
    error: Box<dyn Fn() -> Error + Send + Sync>,
}

/// Returns the values unchanged; their derivative is an error with this text. They are the outputs of one node; `sources` are its inputs.
pub fn delayed_error(
    message: &str,
    values: &[Option<Tensor>],
    sources: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let text = message.to_string();
    let formula = boxed(DelayedError { error: Box::new(move || Error::user(text.clone())) });
    let edges = sources.iter().map(|s| s.as_ref().map_or(Ok(None), record::edge)).collect::<Result<Edges>>()?;
    let present = values.iter().flatten().map(InputMetadata::of).collect();
    let node = Node::new(edges, present, formula)?;
    let mut slot = 0;
    let one = |v: &Option<Tensor>| {
        v.as_ref().map(|v| {
            let mut alias = v.alias_with(v.layout().clone());
            alias.set_birth_history(Edge { node: node.clone(), slot });
            slot += 1;
            alias
        })
    };
    Ok(values.iter().map(one).collect())
}

impl Backward for DelayedError {
    fn name(&self) -> &str {
        "torch::autograd::Error"
    }
    fn apply(&self, _: &Node, _: Gradients, _: &Needs<'_>) -> Result<Gradients> {
        Err((self.error)())
    }
}

impl FunctionNode {
    fn run(&self, grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        if !self.function.once_differentiable() {
            return self.function.backward_owned(&self.ctx, grads);
        }
        let traced = state::is(state::GRAD) && grads.iter().flatten().any(record::wants_grad);
        let mut outs = {
            let _off = ModeGuard::new(0, state::GRAD);
            self.function.backward_owned(&self.ctx, grads)?
        };
        if traced {
            for out in outs.iter_mut().flatten() {
                // No edges: the node fails if the engine reaches it, and leads nowhere it could be asked for.
                let function = self.ctx.name.clone();
                let error = move || ErrorKind::OnceDifferentiable { function: function.clone() }.into();
                let formula = boxed(DelayedError { error: Box::new(error) });
                let mut alias = out.alias_with(out.layout().clone());
                let node = Node::new(Edges::new(), smallvec![InputMetadata::of(&alias)], formula)?;
                alias.set_birth_history(Edge { node, slot: 0 });
                *out = alias;
            }
        }
        Ok(outs)
    }
}

impl Backward for FunctionNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&self, node: &Node, mut grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        let _ = self.ctx.node.set(node.downgrade());
        if self.ctx.materialize_grads {
            for (g, meta) in grads.iter_mut().zip(&self.ctx.outputs) {
                if g.is_none() {
                    *g = Some(Tensor::try_full_spec(&meta.shape, 0i64.into(), meta.dtype)?);
                }
            }
        }
        self.ctx.last_run.store(needs.is_last_run(), Relaxed);
        let mut outs = self.ctx.bound.run(|| self.run(grads.into_vec()))?;
        if needs.is_last_run() {
            self.release();
        }
        let expected = needs.len();
        while outs.len() > expected && outs.last().is_some_and(Option::is_none) {
            outs.pop();
        }
        if outs.len() != expected {
            let function = self.ctx.name.clone();
            return Err(ErrorKind::FnGradCount { function, expected, found: outs.len() }.into());
        }
        Ok(outs.into())
    }

    fn release(&self) {
        [&self.ctx.saved, &self.ctx.results].into_iter().flatten().for_each(SavedSlot::release)
    }

    fn takes_saved(&self) -> bool {
        self.function.takes_saved_tensors()
    }

    fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
        let Some(saved) = &self.ctx.saved else { return Ok(Vec::new()) };
        let list = saved.copy(node)?;
        let tensors = list.into_iter().map(|s| s.unpack(node)).collect::<Result<Vec<_>>>()?;
        Ok(vec![("tensors", SavedValue::Tensors(tensors))])
    }

    fn hook_saved(&self, at: SavedAt<'_>, hooks: Arc<SavedHooks>) -> Result<bool> {
        match (at, &self.ctx.saved) {
            (("tensors", Some(k)), Some(saved)) => {
                hook_slot(hooks, &|f| saved.with(&mut |list| f(list.map(|list| list.get_mut(k)))))
            }
            _ => Ok(false),
        }
    }

    fn context(&self) -> Option<&Context> {
        Some(&self.ctx)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(&*self.function)
    }

    fn visit_saved(&self, node: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
        visitor.fixed(self.function.compiled_id());
        let Some(number) = self.function.traceable().filter(|_| self.ctx.bound.is_plain()) else { return Ok(false) };
        let saved = self.ctx.saved.as_ref().map_or(Ok(Vec::new()), |saved| saved.copy(node))?;
        if saved.iter().any(|s| s.look(node).is_err()) {
            return Ok(false); // only what `backward` asks for must be as it was
        }
        let mut kind = DefaultHasher::new();
        (*self.function).type_id().hash(&mut kind);
        visitor.fixed(kind.finish());
        visitor.fixed(number);
        visitor.fixed(self.ctx.materialize_grads.into());
        self.ctx.needs_input_grad.iter().for_each(|needs| visitor.fixed((*needs).into()));
        saved.iter().try_for_each(|s| visitor.tensor(s))?;
        Ok(true)
    }

    fn outlined(
        &self,
        node: &Node,
        outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
    ) -> Result<Option<BoxedBackward>> {
        let mut ctx = Context::new(self.ctx.name.clone(), self.ctx.needs_input_grad.clone(), false);
        ctx.materialize_grads = self.ctx.materialize_grads;
        ctx.outputs = self.ctx.outputs.clone();
        if let Some(saved) = &self.ctx.saved {
            let outlined = saved.copy(node)?.iter().map(outline).collect::<Result<Vec<_>>>()?;
            ctx.saved = Some(SavedSlot::new(outlined));
        }
        Ok(Some(boxed(FunctionNode { function: self.function.clone(), ctx, name: self.name.clone() })))
    }

    fn wishes(&self) -> Wishes {
        Wishes {
            input_buffers: self.function.uses_input_grad_buffers(),
            early_leaves: self.function.hands_over_gradients(),
        }
    }
}

/// Runs and records a shared function, as [`Function::apply`] does with an owned one.
pub fn run(function: Arc<dyn Function>, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
    if let Some(tracer) = capture::tracer() {
        return tracer.apply(function, &inputs);
    }
    let inputs: Vec<Tensor> =
        if state::is(state::LAYERS) { inputs.iter().map(capture::real).collect() } else { inputs };
    let word = state::word();
    // Under vmap a dual tensor may be unbatched and only its tangent differ from sample to sample: then forward runs here, as it is.
    let here = word & state::DUAL != 0
        && level::batch().is_some()
        && !function.has_setup_context()
        && inputs.iter().all(|t| level::unwrap(t).is_ok_and(|b| b.dim.is_none()));
    if word & state::DEPTH != 0 && !function.has_setup_context() && !here {
        return Err(ErrorKind::NeedsSetupContext { function: function.name() }.into());
    }
    let needs = inputs.iter().map(record::wants_grad).collect();
    let mut ctx = Context::new(function.name(), needs, function.clear_saved_tensors_on_access());
    let recording = word & state::GRAD != 0 && ctx.needs_input_grad.contains(&true);
    let edges: Edges = if recording {
        inputs.iter().map(|t| if t.requires_grad() { record::edge(t) } else { Ok(None) }).collect::<Result<_>>()?
    } else {
        Edges::new()
    };
    let results = if word & state::LEVEL != 0 && !here {
        one_level_down(&function, &inputs)?
    } else {
        let _plain = ModeGuard::new(0, state::GRAD | state::DUAL);
        function.forward(&mut ctx, &inputs)?
    };
    if function.has_setup_context() {
        let _plain = ModeGuard::new(0, state::GRAD | state::DUAL);
        function.setup_context(&mut ctx, &inputs, &results)?;
    }
    check_dirty(&ctx, &inputs, &results, recording)?;
    let kind = if function.compiled_id() == 0 { CreationKind::Custom } else { CreationKind::Compiled };
    let mut outputs: Vec<Tensor> = results.iter().map(|r| wrap(&ctx, kind, &inputs, r)).collect();
    ctx.outputs = outputs.iter().map(InputMetadata::of).collect();
    if let Some(dtypes) = &ctx.output_grad_dtypes {
        if dtypes.len() != outputs.len() {
            let message = format!("{} dtypes for {} outputs", dtypes.len(), outputs.len());
            return Err(ErrorKind::OutputGradDtype { function: ctx.name.clone(), message }.into());
        }
        for (meta, dtype) in ctx.outputs.iter_mut().zip(dtypes) {
            meta.any_dtype = dtype.is_none();
            meta.dtype = dtype.unwrap_or(meta.dtype);
        }
    }
    if word & state::DUAL != 0 && inputs.iter().any(|t| forward::tangent(t).is_some()) {
        push_tangents(&*function, &ctx, &inputs, &results, &outputs)?;
    }
    if recording {
        link(function, ctx, edges, &results, &mut outputs)?;
    }
    Ok(outputs)
}

/// The outputs, computed and recorded one level down.
fn one_level_down(function: &Arc<dyn Function>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let below = inputs.iter().map(level::unwrap).collect::<Result<Vec<_>>>()?;
    let values: Vec<Tensor> = below.iter().map(|b| b.value.clone()).collect();
    let dims: Vec<Option<usize>> = below.iter().map(|b| b.dim).collect();
    let Some(batch) = level::batch().filter(|_| dims.iter().any(Option::is_some)) else {
        let outs = state::descend(|| run(function.clone(), values))?;
        return Ok(outs.into_iter().map(|t| level::wrap(t, None)).collect());
    };
    let (outs, out_dims) = state::descend(|| -> Result<BatchedOutputs> {
        if function.generate_vmap_rule() {
            let mapped = Arc::new(Mapped::new(function.clone(), dims, batch));
            let outs = run(mapped.clone(), values)?;
            return Ok((outs, mapped.out_dims()));
        }
        let info = VmapInfo { batch_size: batch.size, randomness: batch.randomness };
        function.vmap(info, &dims, &values)?.ok_or_else(|| {
            ErrorKind::FunctionNotImplemented { function: function.name(), what: "vmap rule (see generate_vmap_rule)" }
                .into()
        })
    })?;
    if outs.len() != out_dims.len() {
        let message =
            format!("{}: the vmap rule gave {} outputs and {} dims", function.name(), outs.len(), out_dims.len());
        return Err(ErrorKind::Vmap { message }.into());
    }
    // An input that is given back as it is stays the same tensor.
    let given = |t: &Tensor, d| below.iter().position(|b| b.dim == d && b.value.is_same(t));
    let up = |(t, d): (Tensor, _)| given(&t, d).map_or_else(|| level::wrap(t, d), |k| inputs[k].clone());
    Ok(outs.into_iter().zip(out_dims).map(up).collect())
}

/// Asks the function for the tangents of its outputs and checks them against the outputs: an output that shares memory
/// with an input has a tangent that shares memory with the input's.
fn push_tangents(
    function: &dyn Function,
    ctx: &Context,
    inputs: &[Tensor],
    results: &[Tensor],
    outputs: &[Tensor],
) -> Result<()> {
    let own: Vec<Option<Tensor>> = inputs.iter().map(forward::tangent).collect();
    let versions: Vec<Option<u32>> = own.iter().map(|t| t.as_ref().map(Tensor::version_counter)).collect();
    let given = inputs
        .iter()
        .zip(&own)
        .map(|(input, own)| match own {
            None if ctx.materialize_grads => forward::tangent_or_zeros(input).map(Some),
            own => Ok(own.clone()),
        })
        .collect::<Result<Vec<_>>>()?;
    let tangents = {
        // A tangent has none itself.
        let _plain = ModeGuard::new(0, state::DUAL);
        function.jvp(ctx, &given)?
    };
    if tangents.len() != outputs.len() {
        let (expected, found) = (outputs.len(), tangents.len());
        return Err(ErrorKind::JvpCount { function: ctx.name.clone(), expected, found }.into());
    }
    for (position, tangent) in tangents.into_iter().enumerate() {
        let (result, out) = (&results[position], &outputs[position]);
        let refused = |rule| Error::from(ErrorKind::JvpRule { function: ctx.name.clone(), position, rule });
        if ctx.is_frozen(result) {
            if tangent.is_some() {
                return Err(ErrorKind::JvpNotDifferentiable { function: ctx.name.clone(), position }.into());
            }
            continue;
        }
        if let Some(t) = tangent.as_ref().filter(|t| t.shape() != out.shape()) {
            let (expected, found) = (out.shape().to_vec(), t.shape().to_vec());
            return Err(ErrorKind::JvpShape { function: ctx.name.clone(), position, expected, found }.into());
        }
        if ctx.is_dirty(result) {
            let input = inputs.iter().position(|i| i.is_same(result));
            if let Some((i, old)) = input.and_then(|i| Some((i, own[i].as_ref()?))) {
                if Some(old.version_counter()) == versions[i] {
                    return Err(refused(JvpRule::WrittenInPlace));
                }
                if !tangent.as_ref().is_some_and(|t| t.is_same(old)) {
                    return Err(refused(JvpRule::ReturnedAsIs));
                }
            }
            if let Some(t) = tangent {
                forward::set_tangent_inplace(out, t)?;
            }
            continue;
        }
        if let Some((input, old)) = shown_input(out, inputs, &own) {
            check_view(tangent.as_ref(), old, out, input).map_err(refused)?;
        }
        if let Some(t) = tangent {
            forward::set_tangent(out, t)?;
        }
    }
    Ok(())
}

/// The input with a tangent whose memory an output shows. Wrappers of a level show nothing themselves.
fn shown_input<'a>(
    out: &Tensor,
    inputs: &'a [Tensor],
    tangents: &'a [Option<Tensor>],
) -> Option<(&'a Tensor, &'a Tensor)> {
    let base = out.base_here().filter(|_| !state::is(state::LEVEL))?;
    let shares = |i: &Tensor| i.is_same(base) || i.base_here().is_some_and(|b| b.is_same(base));
    inputs.iter().zip(tangents).find_map(|(i, t)| t.as_ref().filter(|_| shares(i)).map(|t| (i, t)))
}

/// Whether the tangent of a view is the same view of the input's tangent `old`.
fn check_view(tangent: Option<&Tensor>, old: &Tensor, out: &Tensor, input: &Tensor) -> Result<(), JvpRule> {
    let t = tangent.ok_or(JvpRule::View)?;
    let base = t.base_here().ok_or(JvpRule::View)?;
    if !base.is_same(old.base_here().unwrap_or(old)) {
        return Err(JvpRule::ViewOfTangent);
    }
    let from = |t: &Tensor, whole: &Tensor| t.layout().offset() as isize - whole.layout().offset() as isize;
    let comparable = old.layout().strides() == input.layout().strides();
    if comparable && (t.layout().strides() != out.layout().strides() || from(t, old) != from(out, input)) {
        return Err(JvpRule::SameRegion);
    }
    Ok(())
}

fn check_dirty(ctx: &Context, inputs: &[Tensor], results: &[Tensor], recording: bool) -> Result<()> {
    let function = || ctx.name.clone();
    for d in &ctx.dirty {
        if !inputs.iter().any(|i| i.is_same(d)) {
            warn(format!("{}: a tensor that is not an input was marked dirty", ctx.name));
            continue;
        }
        if recording && d.is_leaf_here() && d.requires_grad() {
            return Err(ErrorKind::DirtyLeaf { function: function() }.into());
        }
        if !results.iter().any(|r| r.is_same(d)) {
            return Err(ErrorKind::DirtyNotReturned { function: function() }.into());
        }
        if recording && d.is_view_here() && results.len() > 1 {
            return Err(ErrorKind::DirtyViewMultiOut { function: function() }.into());
        }
        d.bump_version();
    }
    Ok(())
}

/// What the caller gets for one result: an input returned unchanged becomes a view of it.
fn wrap(ctx: &Context, kind: CreationKind, inputs: &[Tensor], result: &Tensor) -> Tensor {
    if let Some(input) = inputs.iter().find(|i| i.is_same(result)) {
        if ctx.is_dirty(input) {
            return result.clone();
        }
        return input.make_view(input.layout().clone(), kind);
    }
    result.set_view_kind(kind);
    result.clone()
}

/// Makes the node and gives the outputs their history.
fn link(
    function: Arc<dyn Function>,
    mut ctx: Context,
    edges: Edges,
    results: &[Tensor],
    outputs: &mut [Tensor],
) -> Result<()> {
    let slot_of = |t: &Tensor| results.iter().rposition(|r| r.is_same(t));
    let saved = std::mem::take(&mut ctx.to_save)
        .iter()
        .map(|t| match t {
            None => Ok(SavedTensor::NONE),
            Some(t) => match slot_of(t) {
                Some(slot) => SavedTensor::output(t, slot as u32),
                None => SavedTensor::input(t),
            },
        })
        .collect::<Result<Vec<_>>>()?;
    if !saved.is_empty() {
        ctx.saved = Some(SavedSlot::new(saved));
    }
    let kept = std::mem::take(&mut ctx.to_keep);
    if !kept.is_empty() {
        let _as_they_are = ModeGuard::new(0, state::SAVED_HOOKS);
        let one = |t: &Tensor| slot_of(t).map_or_else(|| SavedTensor::input(t), |k| SavedTensor::output(t, k as u32));
        ctx.results = Some(SavedSlot::new(kept.iter().map(one).collect::<Result<Vec<_>>>()?));
    }
    let frozen: Vec<bool> = results.iter().map(|r| ctx.is_frozen(r)).collect();
    let dirty: Vec<bool> = results.iter().map(|r| ctx.is_dirty(r)).collect();
    let name = format!("{}Backward", ctx.name);
    let meta: SmallVec<[InputMetadata; 1]> = ctx.outputs.iter().cloned().collect();
    let node = Node::new(edges, meta, boxed(FunctionNode { function, ctx, name }))?;
    for (slot, out) in outputs.iter_mut().enumerate() {
        if frozen[slot] {
            continue;
        }
        if dirty[slot] {
            out.rebase_history(node.clone(), slot as u32)?;
        } else {
            out.set_birth_history(Edge { node: node.clone(), slot: slot as u32 });
            // Forward may have written what it returns a view of; this history is that of the result.
            out.mark_history_current();
        }
    }
    Ok(())
}
