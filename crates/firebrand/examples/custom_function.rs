//! A custom operation with its own derivatives in both modes, checked against finite differences.

use firebrand::autograd::{Context, GradcheckOptions, gradcheck, gradgradcheck};
use firebrand::prelude::*;

/// log(1 + exp(x)), written so that large x do not overflow in the backward pass.
struct Softplus;

/// exp(x) / (1 + exp(x))
fn sigmoid(x: &Tensor) -> Tensor {
    ((-x).exp() + 1.0).reciprocal()
}

impl Function for Softplus {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let x = &inputs[0];
        ctx.save_for_backward(&[Some(x)]);
        ctx.save_for_forward(&[Some(x)]);
        Ok(vec![(x.exp() + 1.0).log()])
    }

    // Built from ops, so it can be differentiated again.
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let saved = ctx.saved_tensors()?;
        Ok(vec![saved[0].as_ref().zip(grads[0].as_ref()).map(|(x, g)| g * sigmoid(x))])
    }

    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![ctx.saved_for_forward()[0].as_ref().zip(tangents[0].as_ref()).map(|(x, t)| t * sigmoid(x))])
    }
}

pub(crate) fn main() -> Result<()> {
    let x = Tensor::new(&[-2.0f64, 0.0, 3.0]).requires_grad_();
    let y = Softplus.apply(&[&x])?.remove(0);
    println!("{:?}: {y:?}", y.grad_fn().expect("recorded"));
    y.sum().backward();
    println!("gradient {:?}", x.grad().expect("x is a leaf"));

    let f = |inputs: &[Tensor]| Softplus.apply(&[&inputs[0]]);
    let both_modes = GradcheckOptions { check_forward_ad: true, ..Default::default() };
    assert!(gradcheck(f, std::slice::from_ref(&x), &both_modes)?);
    assert!(gradgradcheck(f, &[x], None, &GradcheckOptions::default())?);
    println!("first and second derivatives agree with finite differences");
    Ok(())
}
