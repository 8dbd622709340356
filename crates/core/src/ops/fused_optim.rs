//! Optimizer steps in one pass: PyTorch's `_fused_adam_`, `_fused_adamw_`, `_fused_sgd_`, `_fused_adagrad_`.
//!
//! Lists hold parameters, gradients and state by position; all of one position have one shape and one dtype (f32 or f64).
//! `state_steps` hold the number of the step, already counted up. With `found_inf` set to one nothing is written;
//! `grad_scale` divides the gradients first. These ops only write and record no history, so they return an error for a leaf
//! that requires grad outside `no_grad`.

use super::cpu::dense;
use crate::ops::manual::copy_data;
use crate::profiler::{self, EventKind, Work};
use crate::{DType, Error, ErrorKind, Result, Tensor, ops, races, state};
use firebrand_kernels::optim::{self, AdagradStep, AdamStep, SgdStep};

/// One parameter's gradient and the tensors that are written, ready for a kernel.
struct Place<'a> {
    op: &'static str,
    /// Parameter first, then state.
    written: Vec<&'a Tensor>,
    grad: &'a Tensor,
}

impl Place<'_> {
    fn check(&self) -> Result<()> {
        let param = self.written[0];
        if !matches!(param.dtype(), DType::F32 | DType::F64) {
            let (found, expected) = (param.dtype(), "float32 or float64; other dtypes are served by the foreach form");
            return Err(ErrorKind::DTypeUnsupported { op: self.op, found, expected }.into());
        }
        for t in self.written.iter().copied().chain([self.grad]) {
            if t.shape() != param.shape() || t.dtype() != param.dtype() {
                let message = format!(
                    "expected gradient and state like the parameter, {:?} of {}, found {:?} of {}",
                    param.shape(),
                    param.dtype(),
                    t.shape(),
                    t.dtype()
                );
                return Err(Error::argument(self.op, message));
            }
        }
        for (k, t) in self.written.iter().enumerate() {
            t.check_writable(self.op)?;
            if state::word() & state::GRAD != 0 && t.requires_grad() {
                t.check_inplace(self.op)?;
            }
            if self.written[..k].iter().any(|o| o.is_beside(t)) {
                return Err(Error::argument(self.op, "a parameter and its state share memory; clone() the state"));
            }
        }
        Ok(())
    }

    /// Runs the kernel on row-major tensors that share no memory, and puts back what was copied for that.
    fn run(self, kernel: impl FnOnce(&Tensor, &[Tensor]) -> Result<()>) -> Result<()> {
        self.check()?;
        if !self.written[0].is_meta() {
            self.written.iter().copied().chain([self.grad]).try_for_each(|t| t.need_data(self.op))?;
            let shared = self.written.iter().any(|t| t.is_beside(self.grad));
            let grad = if shared { self.grad.try_deep_copy()? } else { self.grad.clone() };
            let rows: Vec<Tensor> = self.written.iter().map(|t| dense(t)).collect::<Result<_>>()?;
            let grad = dense(&grad)?;
            // The gradient is read, the rest read and written.
            let all = || rows.iter().chain(&rows).chain([&grad]).map(|t| (t.layout(), t.dtype()));
            let name = || format!("aten::{}", self.op);
            profiler::kernel(EventKind::Op, name, || Work::moving(all()), || kernel(&grad, &rows))?;
            for (t, row) in self.written.iter().zip(&rows) {
                if !row.is_same(t) {
                    copy_data(row, t)?;
                }
            }
        }
        self.written.iter().for_each(|t| t.bump_version());
        Ok(())
    }
}

/// Whether to step at all; divides gradients by their scale.
fn prepare(
    op: &'static str,
    lists: &[usize],
    grads: &[Tensor],
    scale: Option<&Tensor>,
    inf: Option<&Tensor>,
) -> Result<bool> {
    ops::foreach::check(op, lists, &[])?;
    if grads.iter().any(Tensor::is_meta) {
        return Ok(true); // on meta nothing is read
    }
    if let Some(inf) = inf
        && ops::item(inf)?.to_f64() == 1.0
    {
        return Ok(false);
    }
    if let Some(scale) = scale {
        let by = ops::item(scale)?;
        for g in grads {
            ops::div_scalar_(g, by)?;
        }
    }
    Ok(true)
}

/// The number of the step; on meta there is none to read.
fn count(step: &Tensor, param: &Tensor) -> Result<f64> {
    if param.is_meta() { Ok(1.0) } else { Ok(ops::item(step)?.to_f64()) }
}

fn adam(
    op: &'static str,
    [params, grads, means, squares, maxima]: [&[Tensor]; 5],
    steps: &[Tensor],
    step: AdamStep,
    amsgrad: bool,
    scale: Option<&Tensor>,
    inf: Option<&Tensor>,
) -> Result<()> {
    let n = params.len();
    let last = if amsgrad { maxima.len() } else { n };
    if !prepare(op, &[n, grads.len(), means.len(), squares.len(), steps.len(), last], grads, scale, inf)? {
        return Ok(());
    }
    for i in 0..n {
        let step = AdamStep { step: count(&steps[i], &params[i])?, ..step };
        let mut written = vec![&params[i], &means[i], &squares[i]];
        if amsgrad {
            written.push(&maxima[i]);
        }
        Place { op, written, grad: &grads[i] }.run(|g, w| {
            let (g, w): (_, Vec<_>) = (g.read()?, w.iter().map(Tensor::write).collect::<Result<_>>()?);
            let max = w.get(3).map(|x| x.view_mut());
            optim::adam(w[0].view_mut(), g.view(), w[1].view_mut(), w[2].view_mut(), max, &step);
            Ok(())
        })?;
    }
    Ok(())
}

macro_rules! adams {
    ($($name:ident $decoupled:literal)*) => {$(
        pub(crate) fn $name(
            self_: &[Tensor],
            grads: &[Tensor],
            exp_avgs: &[Tensor],
            exp_avg_sqs: &[Tensor],
            max_exp_avg_sqs: &[Tensor],
            state_steps: &[Tensor],
            lr: f64,
            beta1: f64,
            beta2: f64,
            weight_decay: f64,
            eps: f64,
            amsgrad: bool,
            maximize: bool,
            grad_scale: Option<&Tensor>,
            found_inf: Option<&Tensor>,
        ) -> Result<()> {
            let step = AdamStep { lr, beta1, beta2, eps, weight_decay, step: 1.0, decoupled: $decoupled, maximize };
            let (op, lists) = (concat!("_", stringify!($name)), [self_, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs]);
            races::op!(op, self_, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs);
            adam(op, lists, state_steps, step, amsgrad, grad_scale, found_inf)
        }
    )*};
}
adams!(fused_adam_ false fused_adamw_ true);

pub(crate) fn fused_sgd_(
    self_: &[Tensor],
    grads: &[Tensor],
    momentum_buffer_list: &[Tensor],
    weight_decay: f64,
    momentum: f64,
    lr: f64,
    dampening: f64,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Option<&Tensor>,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    const OP: &str = "_fused_sgd_";
    races::op!(OP, self_, grads, momentum_buffer_list);
    let buffers = if momentum == 0.0 { self_.len() } else { momentum_buffer_list.len() };
    if !prepare(OP, &[self_.len(), grads.len(), buffers], grads, grad_scale, found_inf)? {
        return Ok(());
    }
    let step = SgdStep { lr, momentum, dampening, weight_decay, nesterov, maximize, first: is_first_step };
    for i in 0..self_.len() {
        let mut written = vec![&self_[i]];
        if momentum != 0.0 {
            written.push(&momentum_buffer_list[i]);
        }
        Place { op: OP, written, grad: &grads[i] }.run(|g, w| {
            let (g, w): (_, Vec<_>) = (g.read()?, w.iter().map(Tensor::write).collect::<Result<_>>()?);
            optim::sgd(w[0].view_mut(), g.view(), w.get(1).map(|v| v.view_mut()), &step);
            Ok(())
        })?;
    }
    Ok(())
}

pub(crate) fn fused_adagrad_(
    self_: &[Tensor],
    grads: &[Tensor],
    state_sums: &[Tensor],
    state_steps: &[Tensor],
    lr: f64,
    lr_decay: f64,
    weight_decay: f64,
    eps: f64,
    maximize: bool,
    grad_scale: Option<&Tensor>,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    const OP: &str = "_fused_adagrad_";
    races::op!(OP, self_, grads, state_sums);
    let lists = [self_.len(), grads.len(), state_sums.len(), state_steps.len()];
    if !prepare(OP, &lists, grads, grad_scale, found_inf)? {
        return Ok(());
    }
    for i in 0..self_.len() {
        let count = count(&state_steps[i], &self_[i])?;
        let step = AdagradStep { lr: lr / (1.0 + (count - 1.0) * lr_decay), eps, weight_decay, maximize };
        Place { op: OP, written: vec![&self_[i], &state_sums[i]], grad: &grads[i] }.run(|g, w| {
            let (g, p, s) = (g.read()?, w[0].write()?, w[1].write()?);
            optim::adagrad(p.view_mut(), g.view(), s.view_mut(), &step);
            Ok(())
        })?;
    }
    Ok(())
}
