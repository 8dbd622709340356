//! Meta-learning (MAML): gradients through the gradient step of an inner loop, over a batch of tasks by `vmap`.
//!
//! Tasks are sine waves of different phase. The meta-gradient must agree with a finite difference.

use firebrand::func::{grad, grad_and_value, vmap};
use firebrand::prelude::*;

type Params = (Tensor, Tensor, Tensor);

fn predict((w1, b1, w2): &Params, x: &Tensor) -> Tensor {
    (x.unsqueeze(1) * w1 + b1).tanh().matmul(w2)
}

fn error(params: &Params, phase: &Tensor, x: &Tensor) -> Tensor {
    let wanted = (x + phase).sin();
    (predict(params, x) - wanted).square().mean()
}

/// The error on new points after one step on a few.
fn after_one_step(params: &Params, phase: &Tensor) -> Result<Tensor> {
    let (few, new) = (Tensor::linspace(-3.0, 3.0, 6, DType::F64), Tensor::linspace(-2.5, 2.5, 8, DType::F64));
    let (g1, g2, g3) = grad(|p: &Params| error(p, phase, &few))(params)?;
    let step = |p: &Tensor, g: &Tensor| p - g * 0.1;
    let adapted = (step(&params.0, &g1), step(&params.1, &g2), step(&params.2, &g3));
    Ok(error(&adapted, phase, &new))
}

fn meta_loss(params: &Params, phases: &Tensor) -> Result<Tensor> {
    Ok(vmap(|phase: &Tensor| after_one_step(params, phase)).call(phases)?.mean())
}

pub(crate) fn main() -> Result<()> {
    manual_seed(1);
    let mut params: Params =
        (Tensor::randn([20], DType::F64), Tensor::randn([20], DType::F64), Tensor::randn([20], DType::F64) * 0.1);
    let phases = Tensor::linspace(0.0, 2.0, 5, DType::F64);

    // The meta-gradient against a finite difference along one direction.
    let g = grad(|p: &Params| meta_loss(p, &phases))(&params)?;
    let moved = |h: f64| meta_loss(&(&params.0 + h, params.1.clone(), params.2.clone()), &phases);
    let slope = (moved(1e-5)?.item::<f64>() - moved(-1e-5)?.item::<f64>()) / 2e-5;
    let found = g.0.sum().item::<f64>();
    println!("meta-gradient {found:.8}, finite difference {slope:.8}");
    assert!((found - slope).abs() < 1e-6);

    let first = meta_loss(&params, &phases)?.item::<f64>();
    let mut last = first;
    for _ in 0..60 {
        let ((g1, g2, g3), value) = grad_and_value(|p: &Params| meta_loss(p, &phases))(&params)?;
        params = (&params.0 - g1 * 0.05, &params.1 - g2 * 0.05, &params.2 - g3 * 0.05);
        last = value.item();
    }
    println!("error after one step on a new task: {first:.4} before, {last:.4} after meta-training");
    assert!(last < first);
    Ok(())
}
