//! Differentiating a solution, not a solver: the derivative of a fixed point by the implicit function theorem, as a
//! custom function.
//!
//! `y = tanh(w y + x)` is solved by iteration without recording anything; the gradient takes one linear equation.

use firebrand::autograd::Context;
use firebrand::prelude::*;

struct FixedPoint;

impl Function for FixedPoint {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let (w, x) = (&inputs[0], &inputs[1]);
        let mut y = x * 0.0;
        for _ in 0..200 {
            y = (&y * w + x).tanh();
        }
        Ok(vec![y])
    }

    fn has_setup_context(&self) -> bool {
        true
    }

    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        ctx.save_for_backward(&[Some(&inputs[0]), Some(&outputs[0])]);
        Ok(())
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let saved = ctx.saved_tensors()?;
        let (Some(w), Some(y), Some(g)) = (&saved[0], &saved[1], &grads[0]) else { return Ok(vec![None, None]) };
        // dy = s (w dy + y dw + dx) with s = 1 - y^2, so dy = s / (1 - s w) (y dw + dx).
        let s = y.square() * -1.0 + 1.0;
        let scale = g * &s / (&s * w * -1.0 + 1.0);
        Ok(vec![Some(&scale * y), Some(scale)])
    }
}

fn solve(w: &Tensor, x: &Tensor) -> Tensor {
    FixedPoint.apply(&[w, x]).expect("the forward cannot fail").remove(0)
}

pub(crate) fn main() -> Result<()> {
    let (w, x) = (Tensor::scalar(0.7f64).requires_grad_(), Tensor::scalar(0.4f64).requires_grad_());
    let y = solve(&w, &x);
    let g = grad(&y, [&w, &x], &GradOptions::create_graph())?;
    let (gw, gx) = (g[0].clone().expect("a gradient"), g[1].clone().expect("a gradient"));
    let at = |w: f64, x: f64| solve(&Tensor::scalar(w), &Tensor::scalar(x)).item::<f64>();
    let h = 1e-6;
    let slopes = ((at(0.7 + h, 0.4) - at(0.7 - h, 0.4)) / (2.0 * h), (at(0.7, 0.4 + h) - at(0.7, 0.4 - h)) / (2.0 * h));
    println!("dy/dw {:.8} (finite difference {:.8})", gw.item::<f64>(), slopes.0);
    println!("dy/dx {:.8} (finite difference {:.8})", gx.item::<f64>(), slopes.1);
    assert!((gw.item::<f64>() - slopes.0).abs() < 1e-7 && (gx.item::<f64>() - slopes.1).abs() < 1e-7);
    // The backward is itself differentiable: d2y/dx2.
    let second = grad(&gx, &x, &GradOptions::default())?[0].clone().expect("a gradient").item::<f64>();
    let curvature = (at(0.7, 0.4 + 1e-4) - 2.0 * at(0.7, 0.4) + at(0.7, 0.4 - 1e-4)) / 1e-8;
    println!("d2y/dx2 {second:.5} (finite difference {curvature:.5})");
    assert!((second - curvature).abs() < 1e-4);
    Ok(())
}
