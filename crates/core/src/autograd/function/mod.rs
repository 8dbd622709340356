//! Custom functions: a user-defined forward with a user-defined backward (and forward-mode and batching rules).
//!
//! `forward` runs unrecorded on the given tensors; afterwards its outputs are linked to one node named after the type.
//! `forward` saves what is needed later in the [`Context`]; plain values simply live in the function's own fields, so the
//! function *is* the node's state ([`Node::function`] reads it back). Inputs and outputs are tensors by type.

mod apply;
mod context;
mod mapped;

pub use apply::delayed_error;
pub use apply::run as apply_function;
pub(crate) use context::BufferScope;
pub use context::Context;

use super::node::Node;
use crate::func::Randomness;
use crate::{ErrorKind, Result, Tensor};
use std::any::Any;
use std::sync::Arc;

/// Information for a batching rule.
#[derive(Clone, Copy, Debug)]
pub struct VmapInfo {
    /// Number of samples.
    pub batch_size: usize,
    /// The behavior of random operations.
    pub randomness: Randomness,
}

/// Results of a batching rule: the outputs, and the batch dimension of each (`None`: the same for every sample).
pub type BatchedOutputs = (Vec<Tensor>, Vec<Option<usize>>);

/// An operation with its own derivative.
///
/// ```
/// # use firebrand_core as firebrand;
/// use firebrand::autograd::{Context, Function};
/// use firebrand::{Result, Tensor};
///
/// struct Square;
/// impl Function for Square {
///     fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         ctx.save_for_backward(&[Some(&inputs[0])]);
///         Ok(vec![&inputs[0] * &inputs[0]])
///     }
///     fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
///         let saved = ctx.saved_tensors()?;
///         let (x, g) = (saved[0].as_ref().unwrap(), grads[0].as_ref().unwrap());
///         Ok(vec![Some(x * g * 2.0)])
///     }
/// }
///
/// let x = Tensor::scalar(3.0f64).requires_grad_();
/// let y = Square.apply(&[&x]).unwrap().remove(0);
/// y.backward();
/// assert_eq!(x.grad().unwrap().item::<f64>(), 6.0);
/// ```
///
/// Errors that PyTorch reports at run time are compile errors here: inputs are tensors (G-5), gradients are tensors or `None` (G-6),
/// and a function can only be run through `apply` (G-29).
pub trait Function: Any + Send + Sync {
    /// The prefix of its node's name before `Backward`; the type's name by default.
    fn name(&self) -> String {
        let full = std::any::type_name::<Self>();
        let full = full.split('<').next().unwrap_or(full);
        full.rsplit("::").next().unwrap_or(full).to_string()
    }

    /// Computes the outputs. Nothing in here is recorded. With [`Function::has_setup_context`] it must not use `ctx`.
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Saves what is needed later, separately from `forward`: required for use under function transforms, where `forward`
    /// runs on the tensors of another level than the ones kept here.
    fn setup_context(&self, _ctx: &mut Context, _inputs: &[Tensor], _outputs: &[Tensor]) -> Result<()> {
        Ok(())
    }

    /// Whether the function is written in two parts: `forward` and `setup_context`.
    fn has_setup_context(&self) -> bool {
        false
    }

    /// Gradients of the inputs from those of the outputs; `None` where there is none.
    fn backward(&self, _ctx: &Context, _grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Err(ErrorKind::FunctionNotImplemented { function: self.name(), what: "backward" }.into())
    }

    /// Like `backward`, but takes the gradients by value: each can be dropped as soon as it was used.
    fn backward_owned(&self, ctx: &Context, grads: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        self.backward(ctx, &grads)
    }

    /// Tangents of the outputs from those of the inputs.
    fn jvp(&self, _ctx: &Context, _tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Err(ErrorKind::FunctionNotImplemented { function: self.name(), what: "jvp" }.into())
    }

    /// The batching rule: inputs have the batch at `in_dims`. `None`: there is no custom rule.
    fn vmap(&self, _info: VmapInfo, _in_dims: &[Option<usize>], _inputs: &[Tensor]) -> Result<Option<BatchedOutputs>> {
        Ok(None)
    }

    /// Whether to generate the batching rule by mapping `forward`, `backward` and `jvp` themselves.
    fn generate_vmap_rule(&self) -> bool {
        false
    }

    /// Whether `backward` cannot itself be differentiated: it then runs unrecorded, and differentiating it is an error.
    fn once_differentiable(&self) -> bool {
        false
    }

    /// Whether the first read of the saved tensors empties them, so that `backward` can free them early.
    fn clear_saved_tensors_on_access(&self) -> bool {
        false
    }

    /// Whether `backward` asks for [`Context::take_saved_tensors`]: after the last run of the node its saved tensors are gone.
    fn takes_saved_tensors(&self) -> bool {
        false
    }

    /// Whether `backward` asks for [`Context::input_grad_buffers`].
    fn uses_input_grad_buffers(&self) -> bool {
        false
    }

    /// Whether `backward` may call [`Context::hand_over`].
    fn hands_over_gradients(&self) -> bool {
        false
    }

    /// Whether all that `backward` does is compute, by ops, with gradients, saved tensors and what this number stands for (its fields,
    /// say): then compiled backward passes take these ops into their graph, and do not call it. It is called if there is none.
    fn traceable(&self) -> Option<u64> {
        None
    }

    /// An id that distinguishes compiled functions; zero for other functions. A backward pass that was compiled with one of them does
    /// not match another.
    fn compiled_id(&self) -> u64 {
        0
    }

    /// Applies the function and records it.
    fn apply(self, inputs: &[&Tensor]) -> Result<Vec<Tensor>>
    where
        Self: Sized,
    {
        apply::run(Arc::new(self), inputs.iter().map(|t| (*t).clone()).collect())
    }
}

impl Node {
    /// The custom function this node belongs to, with its fields.
    pub fn function<F: Function>(&self) -> Option<&F> {
        self.formula().as_any()?.downcast_ref()
    }

    /// The context of the custom function that this node belongs to.
    pub fn context(&self) -> Option<&Context> {
        self.formula().context()
    }
}
