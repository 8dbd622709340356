//! Optimizer steps in one pass over memory: parameter, gradient and state are read and written once.
//!
//! Everything is element by element, so any split over threads gives the same bits; products and sums are rounded one by
//! one, so every instruction set does too. Callers have checked that all views are contiguous, of one size and of one
//! type, f32 or f64. This file knows nothing of tensors and schedules.
#![allow(unsafe_code)]

use crate::real::{Real, per_isa, with_real};
use crate::{View, ViewMut, parallel};

/// Elements per task: enough work to be worth a thread, little enough that five streams stay in the nearest caches.
const GRAIN: usize = 1 << 14;

/// The scalars of one Adam or AdamW step.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Weight-decay coefficient.
    pub weight_decay: f64,
    /// The number of this step, from 1.
    pub step: f64,
    /// Whether weight decay is decoupled (AdamW) instead of added to the gradient.
    pub decoupled: bool,
    /// Maximize instead of minimize.
    pub maximize: bool,
}

/// The scalars of one SGD step.
#[derive(Clone, Copy, Debug)]
pub struct SgdStep {
    /// Learning rate.
    pub lr: f64,
    /// Momentum factor; 0 for none.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// Weight-decay coefficient.
    pub weight_decay: f64,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Maximize instead of minimize.
    pub maximize: bool,
    /// Whether this is the first step, which initializes the velocity with the gradient.
    pub first: bool,
}

/// The scalars of one Adagrad step.
#[derive(Clone, Copy, Debug)]
pub struct AdagradStep {
    /// Learning rate after its own decay.
    pub lr: f64,
    /// Added to the denominator for numerical stability.
    pub eps: f64,
    /// Weight-decay coefficient.
    pub weight_decay: f64,
    /// Maximize instead of minimize.
    pub maximize: bool,
}

/// A part of a contiguous view, exclusively.
///
/// # Safety
/// `start + len` elements exist, and no other task uses them meanwhile.
unsafe fn part<'a, T: Real>(v: &ViewMut<'_>, start: usize, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(v.ptr::<T>().add(start), len) }
}

fn elements<'a, T: Real>(grad: &View<'a>, others: &[Option<&ViewMut<'_>>]) -> &'a [T] {
    let all = grad.as_slice::<T>().expect("callers give contiguous gradients of the compute type");
    for v in others.iter().copied().flatten() {
        assert!(v.is_contiguous() && v.dtype() == grad.dtype() && v.numel() == all.len(), "checked by the caller");
    }
    all
}

/// Adam or AdamW on one parameter. `max_exp_avg_sq` is present with AMSGrad.
pub fn adam(
    param: ViewMut,
    grad: View,
    exp_avg: ViewMut,
    exp_avg_sq: ViewMut,
    max_exp_avg_sq: Option<ViewMut>,
    step: &AdamStep,
) {
    with_real!(grad.dtype(), T => {
        let g = elements::<T>(&grad, &[Some(&param), Some(&exp_avg), Some(&exp_avg_sq), max_exp_avg_sq.as_ref()]);
        parallel::split(g.len(), GRAIN, |r| {
            let n = r.len();
            // SAFETY: ranges are disjoint, and the four views are different tensors of this size.
            let (p, m, v) = unsafe {
                (part::<T>(&param, r.start, n), part(&exp_avg, r.start, n), part(&exp_avg_sq, r.start, n))
            };
            // SAFETY: as above.
            let x = max_exp_avg_sq.map_or(&mut [][..], |x| unsafe { part(&x, r.start, n) });
            adam_part(p, &g[r], m, v, x, step);
        })
    })
}

per_isa! {
    fn adam_part<T: Real>(p: &mut [T], g: &[T], m: &mut [T], v: &mut [T], x: &mut [T], s: &AdamStep) {
        let n = p.len();
        let (g, m, v) = (&g[..n], &mut m[..n], &mut v[..n]);
        let sign = T::from_f64(if s.maximize { -1.0 } else { 1.0 });
        let shrink = T::from_f64(1.0 - s.lr * s.weight_decay);
        let decay = T::from_f64(s.weight_decay);
        let (toward, keep, add) = (T::from_f64(1.0 - s.beta1), T::from_f64(s.beta2), T::from_f64(1.0 - s.beta2));
        let step_size = T::from_f64(s.lr / (1.0 - s.beta1.powf(s.step)));
        let correction = T::from_f64((1.0 - s.beta2.powf(s.step)).sqrt());
        let eps = T::from_f64(s.eps);
        let (coupled, decoupled) = (s.weight_decay != 0.0 && !s.decoupled, s.weight_decay != 0.0 && s.decoupled);
        let amsgrad = x.len() == n;
        for i in 0..n {
            let mut w = p[i];
            let mut d = sign * g[i];
            if coupled {
                d += decay * w
            }
            if decoupled {
                w = w * shrink
            }
            let mean = m[i] + toward * (d - m[i]);
            let mut square = keep * v[i] + add * d * d;
            m[i] = mean;
            v[i] = square;
            if amsgrad {
                square = if x[i] > square { x[i] } else { square };
                x[i] = square;
            }
            p[i] = w - step_size * mean / (square.root() / correction + eps);
        }
    }
}

/// SGD on one parameter. `velocity` is present with momentum.
pub fn sgd(param: ViewMut, grad: View, velocity: Option<ViewMut>, step: &SgdStep) {
    with_real!(grad.dtype(), T => {
        let g = elements::<T>(&grad, &[Some(&param), velocity.as_ref()]);
        parallel::split(g.len(), GRAIN, |r| {
            let n = r.len();
            // SAFETY: ranges are disjoint, and the views are different tensors of this size.
            let p = unsafe { part::<T>(&param, r.start, n) };
            // SAFETY: as above.
            let v = velocity.map_or(&mut [][..], |v| unsafe { part(&v, r.start, n) });
            sgd_part(p, &g[r], v, step);
        })
    })
}

per_isa! {
    fn sgd_part<T: Real>(p: &mut [T], g: &[T], v: &mut [T], s: &SgdStep) {
        let n = p.len();
        let g = &g[..n];
        let sign = T::from_f64(if s.maximize { -1.0 } else { 1.0 });
        let (lr, decay) = (T::from_f64(s.lr), T::from_f64(s.weight_decay));
        let (momentum, add) = (T::from_f64(s.momentum), T::from_f64(1.0 - s.dampening));
        let decays = s.weight_decay != 0.0;
        if v.len() != n {
            for i in 0..n {
                let d = sign * g[i];
                p[i] = p[i] - lr * if decays { d + decay * p[i] } else { d };
            }
            return;
        }
        for i in 0..n {
            let mut d = sign * g[i];
            if decays {
                d += decay * p[i]
            }
            v[i] = if s.first { d } else { momentum * v[i] + add * d };
            p[i] = p[i] - lr * if s.nesterov { d + momentum * v[i] } else { v[i] };
        }
    }
}

/// Adagrad on one parameter.
pub fn adagrad(param: ViewMut, grad: View, sum: ViewMut, step: &AdagradStep) {
    with_real!(grad.dtype(), T => {
        let g = elements::<T>(&grad, &[Some(&param), Some(&sum)]);
        parallel::split(g.len(), GRAIN, |r| {
            // SAFETY: ranges are disjoint, and the views are different tensors of this size.
            let (p, s) = unsafe { (part::<T>(&param, r.start, r.len()), part(&sum, r.start, r.len())) };
            adagrad_part(p, &g[r], s, step);
        })
    })
}

per_isa! {
    fn adagrad_part<T: Real>(p: &mut [T], g: &[T], sum: &mut [T], s: &AdagradStep) {
        let n = p.len();
        let (g, sum) = (&g[..n], &mut sum[..n]);
        let sign = T::from_f64(if s.maximize { -1.0 } else { 1.0 });
        let (lr, eps, decay) = (T::from_f64(s.lr), T::from_f64(s.eps), T::from_f64(s.weight_decay));
        let decays = s.weight_decay != 0.0;
        for i in 0..n {
            let mut d = sign * g[i];
            if decays {
                d += decay * p[i]
            }
            sum[i] += d * d;
            p[i] = p[i] - lr * d / (sum[i].root() + eps);
        }
    }
}
