//! Reductions, softmax, norms and losses beyond the op table: names of nodes, third derivatives, running statistics.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;

use common::*;
use firebrand_core::autograd::{GradOptions, grad as gradient};
use firebrand_core::{Result, Tensor, ops};

/// Nodes are called as PyTorch calls them.
#[test]
fn names_of_nodes() -> Result<()> {
    let x = Tensor::from_slice(&[0.1, 0.7, 0.4, 0.9, 0.2, 0.5], [2, 3]).requires_grad_();
    let classes = Tensor::new(&[2i64, 0]);
    let y = Tensor::full([2, 3], 0.5, firebrand_core::DType::F64);
    let made = [
        (x.sum(), "SumBackward0"),
        (ops::sum_dim(&x, Some(&[1]), false, None)?, "SumBackward1"),
        (x.mean(), "MeanBackward0"),
        (ops::mean_dim(&x, Some(&[1]), false, None)?, "MeanBackward1"),
        (x.prod(), "ProdBackward0"),
        (ops::prod_dim(&x, 1, false, None)?, "ProdBackward1"),
        (ops::max_dim(&x, 1, false)?.0, "MaxBackward0"),
        (x.max(), "MaxBackward1"),
        (ops::min_dim(&x, 1, false)?.0, "MinBackward0"),
        (x.min(), "MinBackward1"),
        (ops::amax(&x, &[1], false)?, "AmaxBackward0"),
        (ops::var(&x, true)?, "VarBackward0"),
        (ops::std(&x, true)?, "StdBackward0"),
        (ops::var_mean(&x, true)?.1, "VarMeanBackward0"),
        (ops::norm(&x, 2.0.into())?, "NormBackward0"),
        (ops::norm_dim(&x, None, &[1], false)?, "NormBackward1"),
        (ops::linalg_vector_norm(&x, 2.0.into(), None, false, None)?, "LinalgVectorNormBackward0"),
        (ops::logsumexp(&x, &[1], false)?, "LogsumexpBackward0"),
        (ops::cumsum(&x, 1, None)?, "CumsumBackward0"),
        (ops::cumprod(&x, 1, None)?, "CumprodBackward0"),
        (ops::cummax(&x, 1)?.0, "CummaxBackward0"),
        (ops::softmax(&x, 1, None)?, "SoftmaxBackward0"),
        (ops::log_softmax(&x, 1, None)?, "LogSoftmaxBackward0"),
        (ops::layer_norm(&x, &[3.into()], None, None, 1e-5, false)?, "NativeLayerNormBackward0"),
        (ops::group_norm(&x, 3, None, None, 1e-5, false)?, "NativeGroupNormBackward0"),
        (ops::batch_norm(&x, None, None, None, None, true, 0.1, 1e-5, false)?, "NativeBatchNormBackward0"),
        (ops::mse_loss(&x, &y, 1)?, "MseLossBackward0"),
        (ops::l1_loss(&x, &y, 1)?, "MeanBackward0"),
        (ops::smooth_l1_loss(&x, &y, 1, 1.0)?, "SmoothL1LossBackward0"),
        (ops::huber_loss(&x, &y, 1, 1.0)?, "HuberLossBackward0"),
        (ops::binary_cross_entropy(&x, &y, None, 1)?, "BinaryCrossEntropyBackward0"),
        (ops::binary_cross_entropy_with_logits(&x, &y, None, None, 1)?, "BinaryCrossEntropyWithLogitsBackward0"),
        (ops::cross_entropy_loss(&x, &classes, None, 1, (-100).into(), 0.0)?, "NllLossBackward0"),
    ];
    for (t, name) in &made {
        assert_eq!(t.grad_fn().expect("a node").name(), *name);
    }
    Ok(())
}

/// The third derivative of `sum(f(x)^3)` along ones, by three backward passes.
fn third(f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let x = leaves(&[0.3, -1.2, 0.8, 0.5, 1.7, -0.4, 0.9, -0.6]);
    let weights = Tensor::new(&[1.0, -0.5, 2.0, 0.25, -1.5, 0.75, 1.25, -2.0]);
    let y = f(&x.view([2, 4]))?.view([8]);
    let mut out = (&(&y * &y) * &(&y * &weights)).sum();
    let options = GradOptions { create_graph: true, ..GradOptions::default() };
    for _ in 0..3 {
        let g = gradient(&out, &x, &options)?.remove(0).expect("a gradient");
        out = (&g * &weights).sum();
    }
    Ok(vec![out.item()])
}

fn standardised(x: &Tensor, dim: i64) -> Result<Tensor> {
    let centred = ops::sub(x, &ops::mean_dim(x, Some(&[dim]), true, None)?, 1.into())?;
    let var = ops::mean_dim(&ops::mul(&centred, &centred)?, Some(&[dim]), true, None)?;
    ops::div(&centred, &ops::sqrt(&ops::add_scalar(&var, 1e-5.into(), 1.into())?)?)
}

/// Norms can be differentiated as often as what they are made of.
#[test]
fn third_derivatives_of_norms() -> Result<()> {
    let rows = third(|x| standardised(x, 1))?;
    let relative = |found: &[f64], expected: &[f64]| {
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() <= 1e-8 * b.abs().max(1.0), "found {a}, expected {b}");
        }
    };
    relative(&third(|x| ops::layer_norm(x, &[4.into()], None, None, 1e-5, false))?, &rows);
    relative(&third(|x| ops::group_norm(x, 1, None, None, 1e-5, false))?, &rows);
    let columns = third(|x| standardised(x, 0))?;
    relative(&third(|x| ops::batch_norm(x, None, None, None, None, true, 0.1, 1e-5, false))?, &columns);
    let softmax = third(|x| ops::div(&ops::exp(x)?, &ops::sum_dim(&ops::exp(x)?, Some(&[1]), true, None)?))?;
    relative(&third(|x| ops::softmax(x, 1, None))?, &softmax);
    Ok(())
}

/// Training moves the running statistics; two passes before one backward are fine.
#[test]
fn running_statistics() -> Result<()> {
    let x = Tensor::from_slice(&[1.0, 2.0, 3.0, 6.0], [2, 2]).requires_grad_();
    let (mean, var) = (con(&[0.0, 0.0]), con(&[1.0, 1.0]));
    let pass = || ops::batch_norm(&x, None, None, Some(&mean), Some(&var), true, 0.5, 1e-5, false);
    let first = pass()?;
    close(&vals(&mean), &[1.0, 2.0]);
    close(&vals(&var), &[1.5, 4.5]);
    pass()?;
    close(&vals(&mean), &[1.5, 3.0]);
    first.sum().backward();
    close(&grad(&x), &[0.0; 4]);
    Ok(())
}
