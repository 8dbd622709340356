//! The generated batching rule of a custom function: the function itself, mapped over the batch, as a custom function of
//! the level below. Its backward maps the function's backward, its tangents the function's tangents.

use super::{Context, Function};
use crate::func::level::{self, Batch};
use crate::func::rules::Batched;
use crate::{ErrorKind, Result, Tensor, ops};
use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock};

type Dims = Vec<Option<usize>>;

/// What was kept of a call: the tensors live in the context of this level, their batch dimensions here.
#[derive(Clone, Default)]
struct Kept {
    saved: Dims,
    for_forward: Dims,
    needs_input_grad: Vec<bool>,
    materialize_grads: bool,
    state: Option<Arc<dyn Any + Send + Sync>>,
}

pub(super) struct Mapped {
    inner: Arc<dyn Function>,
    in_dims: Dims,
    batch: Batch,
    out_dims: OnceLock<Dims>,
    kept: Mutex<Kept>,
}

/// Tensors of the level above the batch for each of these.
fn up(tensors: &[Option<Tensor>], dims: &[Option<usize>]) -> Vec<Option<Tensor>> {
    tensors.iter().zip(dims).map(|(t, d)| t.as_ref().map(|t| level::wrap(t.clone(), *d))).collect()
}

/// The tensors one level down, and their batch dimensions.
fn down(tensors: &[Option<Tensor>]) -> Result<(Vec<Option<Tensor>>, Dims)> {
    let below = tensors.iter().map(|t| match t {
        Some(t) => level::unwrap(t).map(|b| (Some(b.value), b.dim)),
        None => Ok((None, None)),
    });
    Ok(below.collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

fn some(tensors: &[Tensor]) -> Vec<Option<Tensor>> {
    tensors.iter().cloned().map(Some).collect()
}

fn borrowed(tensors: &[Option<Tensor>]) -> Vec<Option<&Tensor>> {
    tensors.iter().map(Option::as_ref).collect()
}

impl Mapped {
    pub(super) fn new(inner: Arc<dyn Function>, in_dims: Dims, batch: Batch) -> Mapped {
        Mapped { inner, in_dims, batch, out_dims: OnceLock::new(), kept: Mutex::default() }
    }

    /// Where the outputs have their batch.
    pub(super) fn out_dims(&self) -> Dims {
        self.out_dims.get().cloned().unwrap_or_default()
    }

    fn kept(&self) -> Kept {
        self.kept.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn context(&self, needs_input_grad: Vec<bool>) -> Context {
        Context::new(self.inner.name(), needs_input_grad, false)
    }

    /// The context of the mapped function, with its tensors wrapped again.
    fn restored(&self, ctx: &Context) -> Result<Context> {
        let kept = self.kept();
        let mut inner = self.context(kept.needs_input_grad.clone());
        inner.materialize_grads = kept.materialize_grads;
        inner.state = kept.state;
        inner.to_save = up(&ctx.saved_tensors()?, &kept.saved);
        inner.for_forward = up(ctx.saved_for_forward(), &kept.for_forward);
        Ok(inner)
    }

    /// A result with its batch moved to where it is due; summed if none is due there.
    fn placed(&self, found: Option<Tensor>, dim: Option<usize>, due: Option<usize>) -> Result<Option<Tensor>> {
        let Some(value) = found else { return Ok(None) };
        Ok(Some(match (dim, due) {
            (_, Some(d)) => ops::movedim(&Batched { value, dim }.full(self.batch.size)?, 0, d as i64)?,
            (Some(d), None) => ops::sum_dim(&value, Some(&[d as i64]), false, None)?,
            (None, None) => value,
        }))
    }
}

impl Function for Mapped {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let _level = level::enter_batch(self.batch)?;
        let inputs: Vec<Tensor> = up(&some(inputs), &self.in_dims).into_iter().flatten().collect();
        let outs = self.inner.forward(&mut self.context(vec![false; inputs.len()]), &inputs)?;
        let (outs, dims) = down(&some(&outs))?;
        let _ = self.out_dims.set(dims);
        Ok(outs.into_iter().flatten().collect())
    }

    fn has_setup_context(&self) -> bool {
        true
    }

    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        let _level = level::enter_batch(self.batch)?;
        let mut inner = self.context(ctx.needs_input_grad().to_vec());
        let inputs: Vec<Tensor> = up(&some(inputs), &self.in_dims).into_iter().flatten().collect();
        let results: Vec<Tensor> = up(&some(outputs), &self.out_dims()).into_iter().flatten().collect();
        self.inner.setup_context(&mut inner, &inputs, &results)?;
        if !inner.dirty.is_empty() {
            let message = format!("{}: a function that mutates its inputs needs its own vmap rule", self.name());
            return Err(ErrorKind::Vmap { message }.into());
        }
        let (saved, saved_dims) = down(&inner.to_save)?;
        let (for_forward, forward_dims) = down(&inner.for_forward)?;
        ctx.save_for_backward(&borrowed(&saved));
        ctx.save_for_forward(&borrowed(&for_forward));
        ctx.set_materialize_grads(inner.materialize_grads);
        let frozen = |t: &Tensor| inner.non_differentiable.iter().any(|n| n.is_same(t));
        let frozen: Vec<&Tensor> = results.iter().zip(outputs).filter(|(r, _)| frozen(r)).map(|(_, o)| o).collect();
        ctx.mark_non_differentiable(&frozen);
        *self.kept.lock().unwrap_or_else(|e| e.into_inner()) = Kept {
            saved: saved_dims,
            for_forward: forward_dims,
            needs_input_grad: inner.needs_input_grad.clone(),
            materialize_grads: inner.materialize_grads,
            state: inner.state.clone(),
        };
        Ok(())
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let (found, dims) = {
            let _level = level::enter_batch(self.batch)?;
            let inner = self.restored(ctx)?;
            down(&self.inner.backward_owned(&inner, up(grads, &self.out_dims()))?)?
        };
        let due = self.in_dims.iter().copied().chain(std::iter::repeat(None));
        found.into_iter().zip(dims).zip(due).map(|((g, d), due)| self.placed(g, d, due)).collect()
    }

    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let (found, dims) = {
            let _level = level::enter_batch(self.batch)?;
            let inner = self.restored(ctx)?;
            down(&self.inner.jvp(&inner, &up(tangents, &self.in_dims))?)?
        };
        found
            .into_iter()
            .zip(dims)
            .zip(self.out_dims())
            .map(|((t, d), due)| match due {
                None => Ok(t),
                due => self.placed(t, d, due),
            })
            .collect()
    }

    fn generate_vmap_rule(&self) -> bool {
        true
    }

    fn once_differentiable(&self) -> bool {
        self.inner.once_differentiable()
    }
}
