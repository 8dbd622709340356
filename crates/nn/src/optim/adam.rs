//! Adam, and AdamW, which differs in one thing: weight decay shrinks the parameter instead of entering the gradient.

use super::algorithm::{Algorithm, Batch, Implementation, Slot, effective_grads, need};
use super::grouped::Grouped;
use super::state_dict::settings;
use firebrand_core::{Result, Scalar, ops};

/// Adam: steps scaled by the running means of gradients and of their squares.
pub type Adam = Grouped<AdamOptions>;
/// Adam with decoupled weight decay.
pub type AdamW = Grouped<AdamWOptions>;

/// The rule of both.
fn update(o: &AdamOptions, decoupled: bool, batch: &Batch) -> Result<()> {
    let grads = effective_grads(batch, o.maximize, if decoupled { 0.0 } else { o.weight_decay })?;
    if decoupled && o.weight_decay != 0.0 {
        ops::foreach_mul_scalar_(&batch.params, (1.0 - o.lr * o.weight_decay).into())?;
    }
    let (beta1, beta2) = o.betas;
    let (means, squares) = (&batch.slots[0], &batch.slots[1]);
    ops::foreach_lerp_scalar_(means, &grads, (1.0 - beta1).into())?;
    ops::foreach_mul_scalar_(squares, beta2.into())?;
    ops::foreach_addcmul_scalar_(squares, &grads, &grads, (1.0 - beta2).into())?;
    let mut largest = squares;
    if let Some(maxima) = batch.slots.get(2) {
        for (m, s) in maxima.iter().zip(squares) {
            ops::copy_(m, &ops::maximum(m, s)?, false)?;
        }
        largest = maxima;
    }
    let denominators = ops::foreach_sqrt(largest)?;
    let numbers = |f: &dyn Fn(f64) -> f64| batch.counts.iter().map(|&n| f(n).into()).collect::<Vec<Scalar>>();
    ops::foreach_div_scalars_(&denominators, &numbers(&|n| (1.0 - beta2.powf(n)).sqrt()))?;
    ops::foreach_add_scalar_(&denominators, o.eps.into())?;
    let step_sizes = numbers(&|n| -o.lr / (1.0 - beta1.powf(n)));
    ops::foreach_addcdiv_scalars_(&batch.params, means, &denominators, &step_sizes)
}

fn update_fused(o: &AdamOptions, decoupled: bool, batch: &Batch) -> Result<()> {
    let run = if decoupled { ops::fused_adamw_ } else { ops::fused_adam_ };
    let maxima = batch.slots.get(2).map_or(&[][..], |m| m);
    run(
        &batch.params,
        &batch.grads,
        &batch.slots[0],
        &batch.slots[1],
        maxima,
        &batch.steps,
        o.lr,
        o.betas.0,
        o.betas.1,
        o.weight_decay,
        o.eps,
        o.amsgrad,
        o.maximize,
        None,
        None,
    )
}

macro_rules! adam {
    ($(#[$doc:meta])* $options:ident, $name:literal, $weight_decay:literal, $decoupled:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $options {
            /// Learning rate.
            pub lr: f64,
            /// Decay of the means of gradients and of their squares.
            pub betas: (f64, f64),
            /// Added to the denominator for numerical stability.
            pub eps: f64,
            /// Weight-decay coefficient.
            pub weight_decay: f64,
            /// AMSGrad: use the maximum of past squared gradients.
            pub amsgrad: bool,
            /// Maximize instead of minimize.
            pub maximize: bool,
            /// Which implementation to use.
            pub implementation: Implementation,
        }

        impl Default for $options {
            fn default() -> $options {
                $options {
                    lr: 1e-3,
                    betas: (0.9, 0.999),
                    eps: 1e-8,
                    weight_decay: $weight_decay,
                    amsgrad: false,
                    maximize: false,
                    implementation: Implementation::Auto,
                }
            }
        }

        impl Algorithm for $options {
            const NAME: &'static str = $name;
            const COUNTS: bool = true;
            settings!(lr, betas, eps, weight_decay, amsgrad, maximize; momentum: betas.0);

            fn validate(&self) -> Result<()> {
                let (b1, b2) = self.betas;
                need($name, "lr", self.lr >= 0.0, self.lr, "of at least 0")?;
                need($name, "eps", self.eps >= 0.0, self.eps, "of at least 0")?;
                need($name, "betas", [b1, b2].iter().all(|b| (0.0..1.0).contains(b)), self.betas, "from 0 to below 1")?;
                need($name, "weight_decay", self.weight_decay >= 0.0, self.weight_decay, "of at least 0")
            }

            fn slots(&self) -> Vec<Slot> {
                let names = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
                names[..if self.amsgrad { 3 } else { 2 }].iter().map(|n| Slot::zeros(n)).collect()
            }

            fn update(&self, batch: &Batch) -> Result<()> {
                update(&self.common(), $decoupled, batch)
            }

            fn update_fused(&self, batch: &Batch) -> Option<Result<()>> {
                Some(update_fused(&self.common(), $decoupled, batch))
            }
        }
    };
}
adam!(
    /// Settings of [`Adam`], with PyTorch's defaults.
    AdamOptions, "Adam", 0.0, false
);
adam!(
    /// Settings of [`AdamW`], with PyTorch's defaults.
    AdamWOptions, "AdamW", 1e-2, true
);

impl AdamOptions {
    fn common(&self) -> AdamOptions {
        *self
    }
}

impl AdamWOptions {
    fn common(&self) -> AdamOptions {
        let AdamWOptions { lr, betas, eps, weight_decay, amsgrad, maximize, implementation } = *self;
        AdamOptions { lr, betas, eps, weight_decay, amsgrad, maximize, implementation }
    }
}
