//! Adam, as in the paper: moments with bias correction. In place, outside the graph.

use firebrand::autograd::no_grad;
use firebrand::{Result, Tensor, ops};

const BETAS: (f64, f64) = (0.9, 0.999);
const EPS: f64 = 1e-8;

struct Moments {
    parameter: Tensor,
    first: Tensor,
    second: Tensor,
}

/// The optimiser and its state.
pub(crate) struct Adam {
    state: Vec<Moments>,
    steps: i32,
    /// Learning rate of the next step.
    pub(crate) lr: f64,
}

impl Adam {
    /// For these parameters.
    pub(crate) fn new(parameters: Vec<Tensor>, lr: f64) -> Adam {
        let zeros = |p: &Tensor| Tensor::zeros(p.shape(), p.dtype());
        let state =
            parameters.into_iter().map(|p| Moments { first: zeros(&p), second: zeros(&p), parameter: p }).collect();
        Adam { state, steps: 0, lr }
    }

    /// Moves every parameter that has a gradient, and drops the gradient.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.steps += 1;
        let (b1, b2) = BETAS;
        let step_size = self.lr / (1.0 - b1.powi(self.steps));
        let correction = (1.0 - b2.powi(self.steps)).sqrt();
        no_grad(|| {
            for Moments { parameter, first, second } in &self.state {
                let Some(g) = parameter.grad() else { continue };
                ops::add_(ops::mul_scalar_(first, b1.into())?, &g, (1.0 - b1).into())?;
                ops::addcmul_(ops::mul_scalar_(second, b2.into())?, &g, &g, (1.0 - b2).into())?;
                let denominator = ops::sqrt(second)?;
                ops::add_scalar_(ops::div_scalar_(&denominator, correction.into())?, EPS.into(), 1.0.into())?;
                ops::addcdiv_(parameter, first, &denominator, (-step_size).into())?;
                parameter.zero_grad();
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps on x² from 1 with lr 0.1: the first moves by lr, whatever the gradient.
    #[test]
    fn first_steps() {
        let x = Tensor::new(&[1.0f64, -2.0]).requires_grad_();
        let mut adam = Adam::new(vec![x.clone()], 0.1);
        for expected in [[0.9, -1.9], [0.800_249, -1.800_119]] {
            (&x * &x).sum().backward();
            adam.step().expect("shapes agree");
            let found = x.to_vec::<f64>();
            assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 2e-4), "{found:?}");
            assert!(x.grad().is_none());
        }
    }
}
