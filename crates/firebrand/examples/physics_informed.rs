//! A physics-informed network: a small network learns `u'' = -u`, `u(0) = 0`, `u'(0) = 1`, whose solution is the sine.
//!
//! The equation is part of the loss: its second derivative comes from two nested forward-mode transforms, mapped over
//! the points; the gradient of the loss with respect to the parameters goes through all of it.

use firebrand::func::{grad_and_value, jvp, vmap};
use firebrand::prelude::*;

type Params = (Tensor, Tensor, Tensor);

fn network((w, b, v): &Params, t: &Tensor) -> Tensor {
    ((t * w + b).tanh() * v).sum()
}

/// The value and its first two derivatives at one point.
fn taylor(params: &Params, t: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let one = t.ones_like();
    let slope = |t: &Tensor| jvp(|t: &Tensor| network(params, t), t, &one);
    let ((u, first), (_, second)) = jvp(slope, t, &one)?;
    Ok((u, first, second))
}

fn residual(params: &Params, points: &Tensor) -> Result<Tensor> {
    let (u, _, second) = vmap(|t: &Tensor| taylor(params, t)).call(points)?;
    let (u0, slope0, _) = taylor(params, &Tensor::scalar(0.0f64))?;
    Ok((u + second).square().mean() + u0.square() + (slope0 - 1.0).square())
}

pub(crate) fn main() -> Result<()> {
    manual_seed(2);
    let mut params: Params =
        (Tensor::randn([16], DType::F64), Tensor::randn([16], DType::F64), Tensor::randn([16], DType::F64) * 0.3);
    let points = Tensor::linspace(0.0, 3.0, 24, DType::F64);
    let (mut m, mut s) = (vec![Tensor::zeros([16], DType::F64); 3], vec![Tensor::zeros([16], DType::F64); 3]);
    let mut last = f64::INFINITY;
    for step in 1..=800 {
        let ((a, b, c), value) = grad_and_value(|p: &Params| residual(p, &points))(&params)?;
        last = value.item();
        // Adam, written out.
        let mut update = |k: usize, p: &Tensor, g: &Tensor| {
            m[k] = &m[k] * 0.9 + g * 0.1;
            s[k] = &s[k] * 0.99 + g.square() * 0.01;
            let (m, s) = (&m[k] / (1.0 - 0.9f64.powi(step)), &s[k] / (1.0 - 0.99f64.powi(step)));
            p - m / (s.sqrt() + 1e-8) * 0.02
        };
        params = (update(0, &params.0, &a), update(1, &params.1, &b), update(2, &params.2, &c));
    }
    let u = vmap(|t: &Tensor| network(&params, t)).call(&points)?;
    let error = (u - points.sin()).abs().amax(.., false).item::<f64>();
    println!("residual {last:.1e}, largest distance from the sine {error:.4}");
    assert!(error < 0.05);
    Ok(())
}
