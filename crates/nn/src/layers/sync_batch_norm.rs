//! Batch norm over the batches of all ranks (synchronized batch norm).

use super::options::{built, filled, options};
use firebrand_core::autograd::{Context, Function, is_grad_enabled, no_grad};
use firebrand_core::module::{Buffer, ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{DType, Error, Result, Tensor, ops};
use firebrand_dist::{World, functional};

options! {
    /// Options of a [`SyncBatchNorm`] layer.
    pub struct SyncBatchNormOptions(
        /// Number of channels.
        num_features: usize,
    ) {
        /// Added to the denominator for numerical stability.
        eps: f64 = 1e-5,
        /// Weight of the batch in the running statistics; `None` averages over all batches.
        momentum: Option<f64> = Some(0.1),
        /// Whether channels have a learnable scale and shift.
        affine: bool = true,
        /// Whether to keep running statistics for evaluation mode.
        track_running_stats: bool = true,
    }
}

impl SyncBatchNormOptions {
    /// Builds the layer: scale 1, shift 0, running mean 0, running variance 1.
    pub fn build(self, world: &World) -> Result<SyncBatchNorm> {
        let n = self.num_features;
        let affine = |value| self.affine.then(|| filled(&[n], value)).transpose();
        let track = self.track_running_stats;
        Ok(SyncBatchNorm {
            weight: affine(1.0)?,
            bias: affine(0.0)?,
            running_mean: track.then(|| Buffer::new(Tensor::zeros([n], DType::F32))),
            running_var: track.then(|| Buffer::new(Tensor::ones([n], DType::F32))),
            num_batches_tracked: track.then(|| Buffer::new(Tensor::scalar(0i64))),
            options: self,
            world: world.clone(),
            core: ModuleCore::new(),
        })
    }
}

/// Normalizes each channel over the batches of all ranks, as a batch norm in one process normalizes over the whole batch; in evaluation mode with
/// the running statistics. Input: `[batch, channels, ...]`; the batch of a rank may be empty, but every rank must call the layer.
///
/// Under [`Trainer::distributed`](crate::train::Trainer::distributed), give each rank one shard: shards of one rank run one after another, and
/// ranks cannot wait for each other in the middle of them.
///
/// ```
/// # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; pub use firebrand_dist as dist; }
/// use firebrand::module::Forward;
/// use firebrand::{DType, Tensor};
/// use firebrand::dist::World;
/// use firebrand::nn::layers::SyncBatchNorm;
///
/// let world = World::from_env()?;
/// let layer = SyncBatchNorm::new(3, &world);
/// let y = layer.call(&Tensor::randn([8, 3, 4, 4], DType::F32));
/// assert_eq!(y.shape(), [8, 3, 4, 4]);
/// # Ok::<(), firebrand::dist::Error>(())
/// ```
#[derive(Module)]
#[module(extra_repr = Self::arguments)]
pub struct SyncBatchNorm {
    /// Learnable scale.
    pub weight: Option<Parameter>,
    /// Learnable shift.
    pub bias: Option<Parameter>,
    /// Mean for evaluation mode.
    pub running_mean: Option<Buffer>,
    /// Variance for evaluation mode.
    pub running_var: Option<Buffer>,
    /// Number of batches in the statistics.
    pub num_batches_tracked: Option<Buffer>,
    #[module(skip)]
    options: SyncBatchNormOptions,
    #[module(skip)]
    world: World,
    core: ModuleCore,
}

impl SyncBatchNorm {
    /// Creates the layer with PyTorch's defaults.
    #[track_caller]
    pub fn new(num_features: usize, world: &World) -> SyncBatchNorm {
        built(SyncBatchNormOptions::new(num_features).build(world))
    }

    /// The options it was built with.
    pub fn options(&self) -> &SyncBatchNormOptions {
        &self.options
    }

    fn arguments(&self) -> String {
        let o = &self.options;
        let head = ExtraRepr::new().value(o.num_features).field("eps", o.eps).field("momentum", o.momentum);
        head.field("affine", o.affine).field("track_running_stats", o.track_running_stats).finish()
    }

    /// Counts the batch, and moves the running statistics towards its own.
    fn track(&self, batch: &Statistics) -> Result<()> {
        let (Some(mean), Some(var), Some(n)) = (&self.running_mean, &self.running_var, &self.num_batches_tracked)
        else {
            return Ok(());
        };
        no_grad(|| {
            ops::add_scalar_(&n.get(), 1.into(), 1.into())?;
            let momentum = match self.options.momentum {
                Some(m) => m,
                None => 1.0 / n.get().try_item::<i64>()? as f64,
            };
            let unbiased = batch.var.try_mul(batch.count / (batch.count - 1.0).max(1.0))?;
            for (running, new) in [(mean, &batch.mean), (var, &unbiased)] {
                let new = new.try_reshape([-1])?.try_to_dtype(running.get().dtype())?;
                ops::lerp_scalar_(&running.get(), &new, momentum.into())?;
            }
            Ok(())
        })
    }
}

impl Forward for SyncBatchNorm {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let n = self.options.num_features;
        if x.ndim() < 2 || x.shape()[1] != n {
            let message = format!("expected [batch, {n}, ...], found shape {:?}", x.shape());
            return Err(Error::argument("SyncBatchNorm", message));
        }
        let (w, b) = (self.weight.as_deref(), self.bias.as_deref());
        if !self.is_training()
            && let (Some(mean), Some(var)) = (&self.running_mean, &self.running_var)
        {
            return ops::batch_norm(x, w, b, Some(&mean.get()), Some(&var.get()), false, 0.0, self.options.eps, false);
        }
        let batch = no_grad(|| Statistics::of(&x.try_detach()?, &self.world))?;
        if batch.count < 2.0 {
            let message = format!("expected more than one value per channel over all ranks, found {}", batch.count);
            return Err(Error::argument("SyncBatchNorm", message));
        }
        if self.is_training() {
            self.track(&batch)?;
        }
        let function = SyncNormalize { world: self.world.clone(), batch, eps: self.options.eps };
        let inputs: Vec<&Tensor> = [Some(x), w, b].into_iter().flatten().collect();
        Ok(function.apply(&inputs)?.swap_remove(0))
    }
}

/// All dimensions but the channels.
fn over(x: &Tensor) -> Vec<i64> {
    (0..x.ndim() as i64).filter(|d| *d != 1).collect()
}

/// What the values of each channel have in common over all ranks; broadcasts against a batch.
struct Statistics {
    mean: Tensor,
    var: Tensor,
    count: f64,
}

impl Statistics {
    /// In two sums: the mean first, then squared distances from it. Both can be differentiated.
    fn of(x: &Tensor, world: &World) -> Result<Statistics> {
        let values = x.numel() / x.shape()[1].max(1);
        let count = world.all_reduce(&Tensor::scalar(values as f64))?.try_item::<f64>()?;
        let x = if x.dtype().size() < 4 { x.try_to_dtype(DType::F32)? } else { x.clone() };
        let mean = functional::all_reduce(world, &x.try_sum_dim(&over(&x)[..], true)?)?.try_div(count.max(1.0))?;
        let distance = x.try_sub(&mean)?;
        let squares = distance.try_mul(&distance)?.try_sum_dim(&over(&x)[..], true)?;
        let var = functional::all_reduce(world, &squares)?.try_div(count.max(1.0))?;
        Ok(Statistics { mean, var, count })
    }
}

/// Normalization with statistics over all ranks: of a batch, or of a batch with scale and shift.
struct SyncNormalize {
    world: World,
    batch: Statistics,
    eps: f64,
}

impl Function for SyncNormalize {
    fn name(&self) -> String {
        "SyncBatchNorm".into()
    }

    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[Some(&inputs[0]), inputs.get(1)]);
        let (mean, var) = (self.batch.mean.try_reshape([-1])?, self.batch.var.try_reshape([-1])?);
        let (w, b) = (inputs.get(1), inputs.get(2));
        Ok(vec![ops::batch_norm(&inputs[0], w, b, Some(&mean), Some(&var), false, 0.0, self.eps, false)?])
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let saved = ctx.saved_tensors()?;
        let (Some(x), Some(dy)) = (&saved[0], &grads[0]) else {
            return Ok(vec![None; 1 + 2 * usize::from(saved[1].is_some())]);
        };
        // The statistics depend on the batch: where this pass is itself differentiated, they need their history.
        let again = if is_grad_enabled() { Some(Statistics::of(x, &self.world)?) } else { None };
        let batch = again.as_ref().unwrap_or(&self.batch);
        let invstd = batch.var.try_add(self.eps)?.try_rsqrt()?;
        let (wide, dims) = (invstd.dtype(), over(x));
        let dy = dy.try_to_dtype(wide)?;
        let xhat = x.try_to_dtype(wide)?.try_sub(&batch.mean)?.try_mul(&invstd)?;
        let db = dy.try_sum_dim(&dims[..], true)?;
        let dw = dy.try_mul(&xhat)?.try_sum_dim(&dims[..], true)?;
        let scale = match &saved[1] {
            Some(w) => invstd.try_mul(&w.try_to_dtype(wide)?.try_reshape(invstd.shape())?)?,
            None => invstd,
        };
        let mean_over_ranks = |t: &Tensor| functional::all_reduce(&self.world, t)?.try_div(batch.count);
        let (mean_dy, mean_dy_xhat) = (mean_over_ranks(&db)?, mean_over_ranks(&dw)?);
        let dx = dy.try_sub(&mean_dy)?.try_sub(&xhat.try_mul(&mean_dy_xhat)?)?.try_mul(&scale)?;
        let mut all = vec![Some(dx.try_to_dtype(x.dtype())?)];
        if let Some(w) = &saved[1] {
            for d in [dw, db] {
                all.push(Some(d.try_reshape([-1])?.try_to_dtype(w.dtype())?));
            }
        }
        Ok(all)
    }
}
