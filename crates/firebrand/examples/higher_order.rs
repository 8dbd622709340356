//! Derivatives of any order: `create_graph` records the backward pass like any other computation.

use firebrand::autograd::{GradOptions, grad};
use firebrand::prelude::*;

/// The derivative of `y` by `x`, itself differentiable.
fn derivative(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let grads = grad(y, x, &GradOptions::create_graph())?;
    Ok(grads.into_iter().flatten().next().expect("y depends on x"))
}

pub(crate) fn main() -> Result<()> {
    // sin, cos, -sin, -cos, sin, …
    let x = Tensor::scalar(0.5f64).requires_grad_();
    let mut y = x.sin();
    for order in 0..6 {
        println!("derivative {order} of sin at 0.5: {:+.6}", y.item::<f64>());
        let expected = (0.5 + f64::from(order) * std::f64::consts::FRAC_PI_2).sin();
        assert!((y.item::<f64>() - expected).abs() < 1e-12);
        y = derivative(&y, &x)?;
    }

    // Hessian times vector, without the Hessian: the gradient of (gradient · v).
    let x = Tensor::new(&[1.0f64, 2.0, 3.0]).requires_grad_();
    let v = Tensor::new(&[1.0f64, 0.0, -1.0]);
    let f = (&x * &x * &x).sum();
    let product = derivative(&(derivative(&f, &x)? * &v).sum(), &x)?;
    println!("Hessian of Σx³ times {v:?}: {product:?}");
    assert_eq!(product.to_vec::<f64>(), [6.0, 0.0, -18.0]);
    Ok(())
}
