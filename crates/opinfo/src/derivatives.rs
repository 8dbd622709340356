//! Checks of derivatives against finite differences, and of tangents against gradients.

use crate::call::{Call, Outcome, Place, flatten};
use crate::compare::tolerance;
use crate::results::seeded;
use crate::row::{Numbers, Row, TensorData};
use firebrand_core::autograd::{GradcheckOptions, dual_level, gradcheck, gradgradcheck, make_dual, unpack_dual};
use firebrand_core::dispatch::{Op, Value};
use firebrand_core::{Complex, DType, Result, Tensor};

/// Elements of inputs and outputs up to which whole Jacobians are compared.
const SLOW_LIMIT: usize = 40;

/// The differentiable results of the call, as a function of its leaves.
fn function<'a>(call: &'a Call, row: &'a Row) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'a {
    move |leaves| {
        let out = flatten(call.with_leaves(leaves).own_written()?.run()?);
        let pairs = out.into_iter().zip(&row.seeds);
        Ok(pairs.filter_map(|(v, s)| if let (Value::Tensor(t), Some(_)) = (v, s) { Some(t) } else { None }).collect())
    }
}

fn options(call: &Call, row: &Row) -> GradcheckOptions {
    let outputs = row.seeds.iter().flatten().map(|s| s.shape.iter().product::<usize>());
    let elements = call.leaves.iter().map(Tensor::numel).chain(outputs).sum::<usize>();
    GradcheckOptions { fast_mode: elements > SLOW_LIMIT, ..Default::default() }
}

/// gradcheck.
pub(crate) fn first(op: Op, row: &Row) -> Outcome {
    let call = Call::new(op, row, Place::AsListed, true)?;
    gradcheck(function(&call, row), &call.leaves, &options(&call, row)).map(drop).map_err(|e| e.to_string())
}

/// gradgradcheck, with the row's cotangents: reverse over reverse and forward over reverse.
pub(crate) fn second(op: Op, row: &Row) -> Outcome {
    let call = Call::new(op, row, Place::AsListed, true)?;
    let seeds = row.seeds.iter().flatten().map(|s| {
        let t = s.tensor(Place::AsListed)?;
        t.try_requires_grad_(true).map_err(|e| e.to_string())
    });
    let seeds = seeds.collect::<Outcome<Vec<_>>>()?;
    let mut options = options(&call, row);
    options.fast_mode |= call.leaves.iter().chain(&seeds).map(Tensor::numel).sum::<usize>() > SLOW_LIMIT;
    options.check_forward_ad = !row.has("no_forward_ad");
    gradgradcheck(function(&call, row), &call.leaves, Some(&seeds), &options).map(drop).map_err(|e| e.to_string())
}

/// The parts of complex numbers, one after the other.
fn parts(numbers: &[Complex<f64>]) -> Vec<f64> {
    numbers.iter().flat_map(|z| [z.re, z.im]).collect()
}

/// The real values of a listed gradient.
fn listed(t: &TensorData) -> Outcome<Vec<f64>> {
    match &t.data {
        Some(Numbers::Floats(v)) => Ok(v.clone()),
        Some(Numbers::Complex(v)) => Ok(parts(v)),
        _ => Err("a gradient without float data".to_string()),
    }
}

/// The real values of a tensor: twice as many as elements if it is complex.
fn reals(t: &Tensor) -> Vec<f64> {
    if t.is_complex() { parts(&t.to_vec::<Complex<f64>>()) } else { t.to_vec() }
}

/// A tensor of these real numbers, like another.
fn tensor_like(numbers: &[f64], t: &Tensor) -> Result<Tensor> {
    if !t.is_complex() {
        return Tensor::try_from_slice(numbers, t.shape());
    }
    let pairs: Vec<Complex<f64>> = numbers.chunks_exact(2).map(|z| Complex::new(z[0], z[1])).collect();
    Tensor::try_from_slice(&pairs, t.shape())
}

/// Numbers that are neither equal nor round, so that no entry of a Jacobian hides behind another.
fn direction(n: usize, shift: usize) -> Vec<f64> {
    (0..n).map(|k| ((k + 3 * shift + 1) as f64 * 0.754_877_666).fract() - 0.45).collect()
}

/// Σ seed·(J u) = Σ grad·u: for a tangent of each input alone, and of all together.
pub(crate) fn forward_mode(op: Op, row: &Row) -> Outcome {
    let grads = row.grads.as_ref().ok_or("the row has no gradients")?;
    let call = Call::new(op, row, Place::AsListed, true)?;
    let directions: Vec<Vec<f64>> =
        call.leaves.iter().enumerate().map(|(k, leaf)| direction(reals(leaf).len(), k)).collect();
    let choices = (0..if grads.len() > 1 { grads.len() } else { 0 }).map(Some).chain([None]);
    for chosen in choices {
        let uses = |k: usize| chosen.is_none_or(|c| c == k);
        let found = dual_level(|| -> Outcome<f64> {
            let mut leaves = call.leaves.clone();
            for (k, leaf) in leaves.iter_mut().enumerate().filter(|(k, _)| uses(*k)) {
                let u = tensor_like(&directions[k], leaf).map_err(|e| e.to_string())?;
                *leaf = make_dual(leaf, &u).map_err(|e| e.to_string())?;
            }
            let dual = call.with_leaves(&leaves).own_written().map_err(|e| e.to_string())?;
            let out = flatten(dual.run().map_err(|e| e.to_string())?);
            let mut total = 0.0;
            for (o, seed) in seeded(&out, row)? {
                let tangent = unpack_dual(&o).map_err(|e| e.to_string())?.1;
                if let Some(t) = tangent {
                    if t.shape() != o.shape() || t.dtype() != o.dtype() {
                        return Err(format!("a tangent {t:?} of a result {o:?}"));
                    }
                    let (t, s) = (reals(&t), reals(&seed));
                    total += t.iter().zip(&s).map(|(t, s)| t * s).sum::<f64>();
                }
            }
            Ok(total)
        })
        .map_err(|e| e.to_string())??;
        let (mut expected, mut scale) = (0.0, 1.0);
        for (k, g) in grads.iter().enumerate().filter(|(k, _)| uses(*k)) {
            for (g, u) in listed(g)?.iter().zip(&directions[k]) {
                expected += g * u;
                scale += (g * u).abs();
            }
        }
        if (found - expected).abs() > 100.0 * tolerance(DType::F64) * scale {
            let which = chosen.map_or("all inputs".to_string(), |k| format!("input {k} alone"));
            return Err(format!(
                "for tangents of {which}, Σ seed·tangent is {found}, PyTorch's gradients say {expected}"
            ));
        }
    }
    Ok(())
}
