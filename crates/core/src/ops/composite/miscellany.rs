//! Ops of one line or two: aliases with other arguments, and parts of larger ops that programs call directly.

use crate::ops::arith::{add, mul};
use crate::ops::formulas::{self, sym, zero_where};
use crate::ops::lists;
use crate::tensor::sparse;
use crate::{DType, Device, Error, Result, Scalar, SymInt, Tensor, ops};

// ---- ranges

/// A number in a tensor without dimensions.
fn number(op: &'static str, t: &Tensor) -> Result<Option<Scalar>> {
    if t.ndim() != 0 {
        return Err(Error::argument(op, format!("expected bounds without dimensions, found shape {:?}", t.shape())));
    }
    if t.is_meta() { Ok(None) } else { ops::item(&ops::detach(t)?).map(Some) }
}

/// A bound of a range: a number, or a tensor that holds one.
pub(crate) trait Bound: Copy {
    /// None if it is a meta tensor's.
    fn value(self, op: &'static str) -> Result<Option<Scalar>>;
}

impl Bound for Scalar {
    fn value(self, _: &'static str) -> Result<Option<Scalar>> {
        Ok(Some(self))
    }
}

impl Bound for &Tensor {
    fn value(self, op: &'static str) -> Result<Option<Scalar>> {
        number(op, self)
    }
}

fn linspace(
    start: impl Bound,
    end: impl Bound,
    steps: i64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "linspace";
    match (start.value(OP)?, end.value(OP)?) {
        (Some(start), Some(end)) => ops::linspace(start, end, steps, dtype, device),
        // The bounds say nothing about the shape.
        _ => ops::linspace(Scalar::Int(0), Scalar::Int(0), steps, dtype, Some(Device::Meta)),
    }
}

fn logspace(
    start: impl Bound,
    end: impl Bound,
    steps: i64,
    base: f64,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "logspace";
    match (start.value(OP)?, end.value(OP)?) {
        (Some(start), Some(end)) => ops::logspace(start, end, steps, base, dtype, device),
        _ => ops::logspace(Scalar::Int(0), Scalar::Int(0), steps, base, dtype, Some(Device::Meta)),
    }
}

macro_rules! ranges {
    ($($linspace:ident $logspace:ident ($a:ty, $b:ty);)*) => {$(
        pub(crate) fn $linspace(
            start: $a,
            end: $b,
            steps: i64,
            dtype: Option<DType>,
            device: Option<Device>,
        ) -> Result<Tensor> {
            linspace(start, end, steps, dtype, device)
        }

        pub(crate) fn $logspace(
            start: $a,
            end: $b,
            steps: i64,
            base: f64,
            dtype: Option<DType>,
            device: Option<Device>,
        ) -> Result<Tensor> {
            logspace(start, end, steps, base, dtype, device)
        }
    )*};
}
ranges! {
    linspace_tensors logspace_tensors (&Tensor, &Tensor);
    linspace_tensor_scalar logspace_tensor_scalar (&Tensor, Scalar);
    linspace_scalar_tensor logspace_scalar_tensor (Scalar, &Tensor);
}

/// As `arange`, with the end included.
pub(crate) fn range_step(
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Tensor> {
    const OP: &str = "range";
    let (a, b, by) = (start.to_f64(), end.to_f64(), step.to_f64());
    if !(a.is_finite() && b.is_finite()) || by == 0.0 || by.is_nan() || (b - a) * by < 0.0 {
        return Err(Error::argument(OP, format!("the step {by} does not lead from {a} to {b}")));
    }
    let dtype = dtype.unwrap_or_else(crate::dtype::default_dtype);
    let last = ((b - a) / by).floor();
    if last >= (1u64 << 62) as f64 {
        return Err(Error::argument(OP, format!("{last} elements are too many")));
    }
    let wide = if dtype.is_floating_point() { DType::F64 } else { DType::I64 };
    let steps = ops::arange(Scalar::Int(last as i64 + 1), Some(wide), device)?;
    let places = ops::add_scalar(&ops::mul_scalar(&steps, step)?, start, Scalar::Int(1))?;
    formulas::cast(&places, dtype)
}

pub(crate) fn range(start: Scalar, end: Scalar, dtype: Option<DType>, device: Option<Device>) -> Result<Tensor> {
    range_step(start, end, Scalar::Int(1), dtype, device)
}

/// Powers of every element, falling unless `increasing`.
pub(crate) fn vander(x: &Tensor, n: Option<i64>, increasing: bool) -> Result<Tensor> {
    const OP: &str = "vander";
    let &[length] = x.shape() else {
        return Err(Error::argument(OP, format!("expected a vector, found shape {:?}", x.shape())));
    };
    let count = n.unwrap_or(length as i64);
    if count < 0 {
        return Err(Error::argument(OP, format!("the number of powers must not be negative, found {count}")));
    }
    let dtype = if matches!(x.dtype(), d if d.is_floating_point() || d.is_complex()) { x.dtype() } else { DType::I64 };
    let x = formulas::cast(x, dtype)?;
    let ones = ops::new_ones(&x, &sym(&[length, count.min(1) as usize]), None, None)?;
    let rest = ops::expand(&ops::unsqueeze(&x, 1)?, &[length.into(), (count - 1).max(0).into()], false)?;
    let powers = ops::cat(&[ones, ops::cumprod(&rest, 1, None)?], 1)?;
    if increasing { Ok(powers) } else { ops::flip(&powers, &[1]) }
}

// ---- places

/// Indices of nonzero elements, one vector per dimension.
pub(crate) fn where_nonzero(condition: &Tensor) -> Result<Vec<Tensor>> {
    if condition.is_batched() {
        return Err(crate::func::rules::depends_on_values(crate::dispatch::Op::WHERE));
    }
    ops::nonzero_numpy(condition)
}

pub(crate) fn unique(self_: &Tensor, sorted: bool, return_inverse: bool) -> Result<(Tensor, Tensor)> {
    let (values, inverse, _) = ops::unique2(self_, sorted, return_inverse, false)?;
    Ok((values, inverse))
}

pub(crate) fn unique_dim_consecutive(
    self_: &Tensor,
    dim: i64,
    return_inverse: bool,
    return_counts: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    ops::unique_consecutive(self_, return_inverse, return_counts, Some(dim))
}

/// `index_put_`, with bounds checked or not.
pub(crate) fn index_put_impl_<'a>(
    self_: &'a Tensor,
    indices: &[Option<Tensor>],
    values: &Tensor,
    accumulate: bool,
    _unsafe: bool,
) -> Result<&'a Tensor> {
    ops::index_put_(self_, indices, values, accumulate)
}

// ---- products

pub(crate) fn add_relu(self_: &Tensor, other: &Tensor, alpha: Scalar) -> Result<Tensor> {
    ops::relu(&ops::add(self_, other, alpha)?)
}

pub(crate) fn add_relu_scalar(self_: &Tensor, other: Scalar, alpha: Scalar) -> Result<Tensor> {
    ops::relu(&ops::add_scalar(self_, other, alpha)?)
}

pub(crate) fn addmm_activation(
    self_: &Tensor,
    mat1: &Tensor,
    mat2: &Tensor,
    beta: Scalar,
    alpha: Scalar,
    use_gelu: bool,
) -> Result<Tensor> {
    let sum = ops::addmm(self_, mat1, mat2, beta, alpha)?;
    if use_gelu { ops::gelu(&sum, "none") } else { ops::relu(&sum) }
}

/// The product of matrices of i8, in i32.
pub(crate) fn int_mm(self_: &Tensor, mat2: &Tensor) -> Result<Tensor> {
    let bytes = |t: &Tensor| t.dtype() == DType::I8 && t.ndim() == 2;
    if !bytes(self_) || !bytes(mat2) {
        let m = format!(
            "expected matrices of i8, found {} {:?} and {} {:?}",
            self_.dtype(),
            self_.shape(),
            mat2.dtype(),
            mat2.shape()
        );
        return Err(Error::argument("_int_mm", m));
    }
    ops::mm(&formulas::cast(self_, DType::I32)?, &formulas::cast(mat2, DType::I32)?)
}

/// Sums of matrices with these coefficients: `[n, ..]` and `[k, n]` to `[k, ..]`.
pub(crate) fn compute_linear_combination(input: &Tensor, coefficients: &Tensor) -> Result<Tensor> {
    if input.ndim() == 0 || coefficients.ndim() != 2 || coefficients.shape()[1] != input.shape()[0] {
        let m = format!("coefficients {:?} do not fit an input {:?}", coefficients.shape(), input.shape());
        return Err(Error::argument("_compute_linear_combination", m));
    }
    ops::tensordot(coefficients, input, &[1], &[0])
}

pub(crate) fn cholesky_solve_helper(self_: &Tensor, a: &Tensor, upper: bool) -> Result<Tensor> {
    ops::cholesky_solve(self_, a, upper)
}

// ---- norms

/// RMS norm and the factor of each row.
pub(crate) fn fused_rms_norm(
    input: &Tensor,
    normalized_shape: &[i64],
    weight: Option<&Tensor>,
    eps: Option<f64>,
) -> Result<(Tensor, Tensor)> {
    let sizes: Vec<SymInt> = normalized_shape.iter().map(|&n| n.into()).collect();
    let out = ops::rms_norm(input, &sizes, weight, eps)?;
    let wide = match input.dtype() {
        wide @ (DType::F64 | DType::C64 | DType::C128) => wide,
        _ => DType::F32,
    };
    let eps = eps.unwrap_or(if wide.to_real() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) });
    let x = formulas::cast(input, wide)?;
    let dims: Vec<i64> = (1..=sizes.len() as i64).map(|k| -k).collect();
    let square = ops::mean_dim(&mul(&x, &x)?, Some(&dims), true, None)?;
    Ok((out, ops::rsqrt(&add(&square, &eps)?)?))
}

/// Batch norm with the statistics it is given; mean and deviation of the batch are not made.
pub(crate) fn batch_norm_no_update(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
    let (out, mean, deviation) =
        ops::native_batch_norm(input, weight, bias, running_mean, running_var, false, momentum, eps)?;
    let reserve = ops::zeros(&[0.into()], Some(DType::U8), Some(input.device()))?;
    Ok((out, mean, deviation, reserve))
}

/// Zeros like `self` with the shape and strides of one sample of `other`.
pub(crate) fn new_zeros_with_same_feature_meta(
    self_: &Tensor,
    other: &Tensor,
    self_num_batch_dims: i64,
) -> Result<Tensor> {
    let batch = usize::try_from(self_num_batch_dims).ok().filter(|n| *n <= self_.ndim());
    let Some(batch) = batch else {
        let m = format!("expected at most {} batch dimensions, found {self_num_batch_dims}", self_.ndim());
        return Err(Error::argument("_new_zeros_with_same_feature_meta", m));
    };
    let sizes = [&self_.shape()[..batch], other.shape()].concat();
    ops::new_zeros(other, &sym(&sizes), None, None)
}

// ---- embedding bags

/// The bag of each index, where it is not told.
fn bags(indices: &Tensor, offsets: Option<&Tensor>, offset2bag: &Tensor) -> Result<Tensor> {
    match offsets {
        Some(offsets) if offset2bag.numel() != indices.numel() => {
            let places =
                ops::arange(Scalar::Int(indices.numel() as i64), Some(offsets.dtype()), Some(indices.device()))?;
            let found = ops::searchsorted(offsets, &places, false, true, None, None)?;
            ops::add_scalar(&found, Scalar::Int(-1), Scalar::Int(1))
        }
        _ => Ok(offset2bag.clone()),
    }
}

/// What every index of a bag contributed, given the gradients of the bags: sums (mode 0) or means (mode 1).
fn rows_of_bags(
    grad: &Tensor,
    offset2bag: &Tensor,
    bag_size: &Tensor,
    mode: i64,
    per_sample_weights: Option<&Tensor>,
) -> Result<Tensor> {
    let mut rows = ops::index_select(grad, 0, offset2bag)?;
    if mode == 1 {
        let sizes = ops::index_select(&ops::clamp_min(bag_size, Scalar::Int(1))?, 0, offset2bag)?;
        rows = ops::div(&rows, &ops::unsqueeze(&formulas::cast(&sizes, rows.dtype())?, 1)?)?;
    }
    if let Some(w) = per_sample_weights {
        rows = mul(&rows, &ops::unsqueeze(w, 1)?)?;
    }
    Ok(rows)
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn embedding_bag_dense_backward(
    grad: &Tensor,
    indices: &Tensor,
    offset2bag: &Tensor,
    bag_size: &Tensor,
    maximum_indices: &Tensor,
    num_weights: SymInt,
    scale_grad_by_freq: bool,
    mode: i64,
    per_sample_weights: Option<&Tensor>,
    padding_idx: i64,
) -> Result<Tensor> {
    const OP: &str = "_embedding_bag_dense_backward";
    if grad.ndim() != 2 {
        return Err(Error::argument(OP, format!("expected gradients of bags, found shape {:?}", grad.shape())));
    }
    let table = [num_weights, grad.shape()[1].into()];
    let zeros = ops::new_zeros(grad, &table, None, None)?;
    if mode == 2 {
        let wide = |t: &Tensor| formulas::cast(t, DType::I64);
        let none = ops::lt_scalar(maximum_indices, Scalar::Int(0))?;
        let places = ops::masked_fill(&wide(maximum_indices)?, &none, Scalar::Int(0))?;
        return ops::scatter_add(&zeros, 0, &places, &zero_where(&none, grad)?);
    }
    let mut rows = rows_of_bags(grad, offset2bag, bag_size, mode, per_sample_weights)?;
    if scale_grad_by_freq {
        let ones = ops::new_ones(&rows, &indices.sym_sizes(), None, None)?;
        let none = ops::new_zeros(&rows, &[num_weights], None, None)?;
        let counts = ops::index_add(&none, 0, indices, &ones, Scalar::Int(1))?;
        rows = ops::div(&rows, &ops::unsqueeze(&ops::index_select(&counts, 0, indices)?, 1)?)?;
    }
    if padding_idx >= 0 {
        rows = zero_where(&ops::unsqueeze(&ops::eq_scalar(indices, Scalar::Int(padding_idx))?, 1)?, &rows)?;
    }
    ops::index_add(&zeros, 0, indices, &rows, Scalar::Int(1))
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn embedding_bag_backward(
    grad: &Tensor,
    indices: &Tensor,
    offsets: &Tensor,
    offset2bag: &Tensor,
    bag_size: &Tensor,
    maximum_indices: &Tensor,
    num_weights: SymInt,
    scale_grad_by_freq: bool,
    mode: i64,
    sparse: bool,
    per_sample_weights: Option<&Tensor>,
    padding_idx: i64,
) -> Result<Tensor> {
    let bags = bags(indices, Some(offsets), offset2bag)?;
    if sparse {
        if mode == 2 {
            let m = "mode 2 (max) has no sparse gradients; pass sparse=false";
            return Err(Error::argument("_embedding_bag_backward", m));
        }
        let rows = rows_of_bags(grad, &bags, bag_size, mode, per_sample_weights)?;
        let padding = padding_idx.into();
        return sparse::embedding_gradient(&rows, indices, num_weights, padding, scale_grad_by_freq);
    }
    embedding_bag_dense_backward(
        grad,
        indices,
        &bags,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )
}

/// Gradients of the weights of single samples: products of a bag's gradient and the row it added.
pub(crate) fn embedding_bag_weights_backward(
    grad: &Tensor,
    weight: &Tensor,
    indices: &Tensor,
    offsets: &Tensor,
    offset2bag: &Tensor,
    mode: i64,
    padding_idx: i64,
) -> Result<Tensor> {
    if mode != 0 {
        let m = format!("per_sample_weights need mode 0 (sum), found mode {mode}");
        return Err(Error::argument("_embedding_bag_per_sample_weights_backward", m));
    }
    let bags = bags(indices, Some(offsets), offset2bag)?;
    let products = mul(&ops::index_select(grad, 0, &bags)?, &ops::index_select(weight, 0, indices)?)?;
    let sums = ops::sum_dim(&products, Some(&[1]), false, None)?;
    match padding_idx >= 0 {
        true => zero_where(&ops::eq_scalar(indices, Scalar::Int(padding_idx))?, &sums),
        false => Ok(sums),
    }
}

// ---- lists

/// The values of a tensor, one for each of `n` positions.
fn numbers(op: &'static str, t: &Tensor, n: usize) -> Result<Vec<Scalar>> {
    if t.ndim() != 1 || t.numel() != n {
        return Err(Error::argument(op, format!("expected a vector of {n} numbers, found shape {:?}", t.shape())));
    }
    t.need_data(op)?;
    let values = formulas::cast(&ops::detach(t)?, DType::F64)?.try_to_vec::<f64>()?;
    lists::collected(n, values.into_iter().map(Scalar::Float))
}

macro_rules! by_tensor {
    ($($name:ident $in_place:ident $op:literal $call:ident $call_:ident;)*) => {$(
        pub(crate) fn $name(
            tensors: &[Tensor],
            tensor1: &[Tensor],
            tensor2: &[Tensor],
            scalars: &Tensor,
        ) -> Result<Vec<Tensor>> {
            ops::$call(tensors, tensor1, tensor2, &numbers($op, scalars, tensors.len())?)
        }

        pub(crate) fn $in_place(
            tensors: &[Tensor],
            tensor1: &[Tensor],
            tensor2: &[Tensor],
            scalars: &Tensor,
        ) -> Result<()> {
            ops::$call_(tensors, tensor1, tensor2, &numbers($op, scalars, tensors.len())?)
        }
    )*};
}
by_tensor! {
    foreach_addcmul_tensor foreach_addcmul_tensor_ "_foreach_addcmul" foreach_addcmul_scalars foreach_addcmul_scalars_;
    foreach_addcdiv_tensor foreach_addcdiv_tensor_ "_foreach_addcdiv" foreach_addcdiv_scalars foreach_addcdiv_scalars_;
}

/// Copies of `src` in the dtypes of `self`, whose values do not matter.
pub(crate) fn foreach_copy(tensors: &[Tensor], src: &[Tensor], non_blocking: bool) -> Result<Vec<Tensor>> {
    ops::foreach::check("_foreach_copy", &[tensors.len(), src.len()], &[])?;
    tensors.iter().zip(src).map(|(t, s)| ops::copy(t, s, non_blocking)).collect()
}

/// Divides gradients by their scale, in place, and notes whether any is not finite.
pub(crate) fn amp_unscale_(tensors: &[Tensor], found_inf: &Tensor, inv_scale: &Tensor) -> Result<()> {
    let _plain = crate::autograd::NoGrad::new();
    if found_inf.numel() != 1 || inv_scale.numel() != 1 {
        let m = format!("expected one element each, found {:?} and {:?}", found_inf.shape(), inv_scale.shape());
        return Err(Error::argument("_amp_foreach_non_finite_check_and_unscale_", m));
    }
    for t in tensors {
        let bad = ops::any(&ops::logical_not(&ops::isfinite(t)?)?)?;
        let bad = ops::reshape(&formulas::cast(&bad, found_inf.dtype())?, &found_inf.sym_sizes())?;
        ops::copy_(found_inf, &ops::maximum(found_inf, &bad)?, false)?;
        let scale = ops::reshape(inv_scale, &[])?;
        ops::copy_(t, &mul(t, &scale)?, false)?;
    }
    Ok(())
}

/// The next scale of a loss: smaller after a step that was not finite, larger after enough that were.
pub(crate) fn amp_update_scale_<'a>(
    self_: &'a Tensor,
    growth_tracker: &Tensor,
    found_inf: &Tensor,
    scale_growth_factor: f64,
    scale_backoff_factor: f64,
    growth_interval: i64,
) -> Result<&'a Tensor> {
    const OP: &str = "_amp_update_scale_";
    let _plain = crate::autograd::NoGrad::new();
    if [self_, growth_tracker, found_inf].iter().any(|t| t.numel() != 1) {
        return Err(Error::argument(OP, "expected one element in scale, tracker and found_inf"));
    }
    if growth_tracker.dtype() != DType::I32 || found_inf.dtype() != DType::F32 || self_.dtype() != DType::F32 {
        return Err(Error::argument(OP, "expected an i32 tracker, and scale and found_inf in f32"));
    }
    let value = |t: &Tensor| Ok::<f64, Error>(ops::item(t)?.to_f64());
    if value(found_inf)? != 0.0 {
        ops::mul_scalar_(self_, Scalar::Float(scale_backoff_factor))?;
        ops::zero_(growth_tracker)?;
        return Ok(self_);
    }
    let successful = value(growth_tracker)? as i64 + 1;
    if successful == growth_interval {
        let grown = value(self_)? as f32 * scale_growth_factor as f32;
        if grown.is_finite() {
            ops::fill_(self_, Scalar::Float(f64::from(grown)))?;
        }
        ops::zero_(growth_tracker)?;
    } else {
        // Counts as a write all the same.
        self_.bump_version();
        ops::fill_(growth_tracker, Scalar::Int(successful))?;
    }
    Ok(self_)
}

// ---- optimizer steps with the rate in a tensor

fn rate(op: &'static str, lr: &Tensor) -> Result<f64> {
    if lr.numel() != 1 {
        return Err(Error::argument(op, format!("expected one learning rate, found shape {:?}", lr.shape())));
    }
    Ok(ops::item(&ops::detach(lr)?)?.to_f64())
}

macro_rules! adam {
    ($($name:ident $op:literal $call:ident),*) => {$(
        #[allow(clippy::too_many_arguments)] // those of the op
        pub(crate) fn $name(
            tensors: &[Tensor],
            grads: &[Tensor],
            exp_avgs: &[Tensor],
            exp_avg_sqs: &[Tensor],
            max_exp_avg_sqs: &[Tensor],
            state_steps: &[Tensor],
            lr: &Tensor,
            beta1: f64,
            beta2: f64,
            weight_decay: f64,
            eps: f64,
            amsgrad: bool,
            maximize: bool,
            grad_scale: Option<&Tensor>,
            found_inf: Option<&Tensor>,
        ) -> Result<()> {
            ops::$call(
                tensors,
                grads,
                exp_avgs,
                exp_avg_sqs,
                max_exp_avg_sqs,
                state_steps,
                rate($op, lr)?,
                beta1,
                beta2,
                weight_decay,
                eps,
                amsgrad,
                maximize,
                grad_scale,
                found_inf,
            )
        }
    )*};
}
adam!(fused_adam_lr_ "_fused_adam_" fused_adam_, fused_adamw_lr_ "_fused_adamw_" fused_adamw_);

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn fused_sgd_lr_(
    tensors: &[Tensor],
    grads: &[Tensor],
    momentum_buffer_list: &[Tensor],
    weight_decay: f64,
    momentum: f64,
    lr: &Tensor,
    dampening: f64,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Option<&Tensor>,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    ops::fused_sgd_(
        tensors,
        grads,
        momentum_buffer_list,
        weight_decay,
        momentum,
        rate("_fused_sgd_", lr)?,
        dampening,
        nesterov,
        maximize,
        is_first_step,
        grad_scale,
        found_inf,
    )
}

#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn fused_adagrad_lr_(
    tensors: &[Tensor],
    grads: &[Tensor],
    state_sums: &[Tensor],
    state_steps: &[Tensor],
    lr: &Tensor,
    lr_decay: f64,
    weight_decay: f64,
    eps: f64,
    maximize: bool,
    grad_scale: Option<&Tensor>,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    let lr = rate("_fused_adagrad_", lr)?;
    ops::fused_adagrad_(
        tensors,
        grads,
        state_sums,
        state_steps,
        lr,
        lr_decay,
        weight_decay,
        eps,
        maximize,
        grad_scale,
        found_inf,
    )
}

/// `polygamma` in place; the order comes second there.
pub(crate) fn polygamma_(self_: &Tensor, n: i64) -> Result<&Tensor> {
    ops::copy_(self_, &ops::polygamma(n, &ops::clone(self_, None)?)?, false)
}

pub(crate) fn grid_sampler_2d_fallback_backward(
    grad_output: &Tensor,
    input: &Tensor,
    grid: &Tensor,
    interpolation_mode: i64,
    padding_mode: i64,
    align_corners: bool,
) -> Result<(Tensor, Tensor)> {
    ops::grid_sampler_2d_backward(
        grad_output,
        input,
        grid,
        interpolation_mode,
        padding_mode,
        align_corners,
        [true, true],
    )
}
