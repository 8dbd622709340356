//! Hessian-vector products by forward over reverse (`jvp` of `grad`), used by conjugate gradients to take Newton steps.
//!
//! The Rosenbrock function in ten dimensions: Newton's method must reach the minimum at (1, …, 1).

use firebrand::func::{grad, hessian, jvp};
use firebrand::prelude::*;

fn rosenbrock(x: &Tensor) -> Tensor {
    let (head, tail) = (x.narrow(0, 0, 9), x.narrow(0, 1, 9));
    ((tail - head.square()).square() * 100.0 + (head * -1.0 + 1.0).square()).sum()
}

fn hvp(x: &Tensor, v: &Tensor) -> Result<Tensor> {
    Ok(jvp(grad(rosenbrock), x, v)?.1)
}

/// Solves `H p = b` (nearly) without ever forming `H`; stops at directions of negative curvature.
fn solve(x: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (mut p, mut r) = (b * 0.0, b.clone());
    let mut d = r.clone();
    for _ in 0..30 {
        let hd = hvp(x, &d)?;
        let (curvature, rr) = ((&d * &hd).sum().item::<f64>(), r.square().sum().item::<f64>());
        if curvature <= 0.0 || rr < 1e-20 {
            break;
        }
        p = p + &d * (rr / curvature);
        r = r - &hd * (rr / curvature);
        d = &r + &d * (r.square().sum().item::<f64>() / rr);
    }
    Ok(p)
}

pub(crate) fn main() -> Result<()> {
    let mut x = Tensor::full([10], 0.8, DType::F64);
    let v = Tensor::linspace(-1.0, 1.0, 10, DType::F64);
    let whole = hessian(rosenbrock)(&x)?.matmul(&v);
    let difference = (whole - hvp(&x, &v)?).abs().amax(.., false).item::<f64>();
    println!("product against the whole Hessian: {difference:.1e}");
    assert!(difference < 1e-9);
    for _ in 0..60 {
        let g = grad(rosenbrock)(&x)?;
        let p = solve(&x, &g)?;
        let mut step = 1.0;
        while rosenbrock(&(&x - &p * step)).item::<f64>() > rosenbrock(&x).item::<f64>() && step > 1e-8 {
            step *= 0.5;
        }
        x = &x - &p * step;
    }
    let distance = (x - 1.0).abs().amax(.., false).item::<f64>();
    println!("distance from the minimum after Newton-CG: {distance:.1e}");
    assert!(distance < 1e-6);
    Ok(())
}
