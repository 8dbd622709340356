//! Collectives that gradients flow through.

use crate::World;
use firebrand_core::autograd::{Context, Function};
use firebrand_core::{Result, Tensor};

/// The sum over all ranks, as a function that can be differentiated any number of times. Values computed from the sum exist on every
/// rank, so the gradient of a rank's term is the sum of all ranks' gradients.
///
/// ```
/// use firebrand_core::Tensor;
/// use firebrand_dist::{World, functional};
///
/// let world = World::from_env()?;
/// let x = Tensor::new(&[2.0f64]).requires_grad_();
/// let sum = functional::all_reduce(&world, &x)?;
/// (&sum * &sum).backward();
/// assert_eq!(x.grad().expect("reached").item::<f64>(), 4.0 * (world.size() as f64).powi(2));
/// # Ok::<(), firebrand_dist::Error>(())
/// ```
pub fn all_reduce(world: &World, t: &Tensor) -> Result<Tensor> {
    let mut sums = AllReduce { world: world.clone() }.apply(&[t])?;
    Ok(sums.swap_remove(0))
}

struct AllReduce {
    world: World,
}

impl Function for AllReduce {
    fn forward(&self, _: &mut Context, terms: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![self.world.all_reduce(&terms[0])?])
    }

    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        // Never `None`: undefined gradients arrive as zeros, since the other ranks wait for this one.
        grads[0].as_ref().map(|g| all_reduce(&self.world, g)).transpose().map(|g| vec![g])
    }

    fn jvp(&self, _: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        tangents[0].as_ref().map(|t| all_reduce(&self.world, t)).transpose().map(|t| vec![t])
    }
}
