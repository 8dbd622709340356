//! Normalization layers: rows and channels of contiguous copies for the kernels, and running statistics.

use super::reduce::{contiguous, elements};
use crate::ops::shape::{groups, trailing};
use crate::tensor::{Access, AccessMut};
use crate::{Result, Spec, SymInt, Tensor};
use firebrand_kernels::{View, norm as kernel, write_slice};

/// Tensors that the kernel gets contiguous, some of them absent.
fn dense<const N: usize>(ts: [Option<&Tensor>; N]) -> Result<[Option<Tensor>; N]> {
    let mut out = [const { None }; N];
    for (slot, t) in out.iter_mut().zip(ts) {
        *slot = t.map(contiguous).transpose()?;
    }
    Ok(out)
}

fn reading(t: &Option<Tensor>) -> Result<Option<Access<'_>>> {
    t.as_ref().map(Tensor::read).transpose()
}

fn view<'a>(access: &'a Option<Access<'_>>) -> Option<View<'a>> {
    access.as_ref().map(Access::view)
}

/// A result of a backward kernel, if it is needed.
fn target(wanted: bool, t: &Tensor) -> Result<Option<AccessMut<'_>>> {
    wanted.then(|| t.write()).transpose()
}

pub(crate) fn native_layer_norm(
    input: &Tensor,
    normalized_shape: &[SymInt],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    out: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
) -> Result<()> {
    let n = trailing("native_layer_norm", input, normalized_shape)?.iter().product();
    let (input, [w, b]) = (contiguous(input)?, dense([weight, bias])?);
    let (w, b) = (reading(&w)?, reading(&b)?);
    let (o, m, r) = (out.write()?, mean.write()?, rstd.write()?);
    kernel::layer_norm(input.read()?.view(), n, view(&w), view(&b), eps, o.view_mut(), m.view_mut(), r.view_mut());
    Ok(())
}

pub(crate) fn native_layer_norm_backward(
    grad: &Tensor,
    input: &Tensor,
    normalized_shape: &[SymInt],
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    _bias: Option<&Tensor>,
    output_mask: [bool; 3],
    grad_input: &Tensor,
    grad_weight: &Tensor,
    grad_bias: &Tensor,
) -> Result<()> {
    let n = trailing("native_layer_norm_backward", input, normalized_shape)?.iter().product();
    let (grad, input, mean, rstd) = (contiguous(grad)?, contiguous(input)?, contiguous(mean)?, contiguous(rstd)?);
    let [w] = dense([weight])?;
    let w = reading(&w)?;
    let (gi, gw, gb) =
        (target(output_mask[0], grad_input)?, target(output_mask[1], grad_weight)?, target(output_mask[2], grad_bias)?);
    kernel::layer_norm_backward(
        grad.read()?.view(),
        input.read()?.view(),
        n,
        mean.read()?.view(),
        rstd.read()?.view(),
        view(&w),
        gi.as_ref().map(AccessMut::view_mut),
        gw.as_ref().map(AccessMut::view_mut),
        gb.as_ref().map(AccessMut::view_mut),
    );
    Ok(())
}

/// Sizes and strides of a contiguous tensor as samples, channels and the rest.
fn by_channel(t: &Tensor) -> ([usize; 3], [usize; 3]) {
    let (n, c) = (t.shape()[0], t.shape()[1]);
    let rest = t.shape()[2..].iter().product();
    ([n, c, rest], [c * rest, rest, 1])
}

/// `1 / sqrt(var + eps)` of every channel.
fn inverse_deviation(var: &Tensor, eps: f64) -> Result<Tensor> {
    let mut values = elements::<f64>(var)?;
    values.iter_mut().for_each(|v| *v = 1.0 / (*v + eps).sqrt());
    let out = Tensor::try_empty(Spec::new(var.shape(), var.dtype(), var.device())?)?;
    write_slice(&values, out.write()?.view_mut());
    Ok(out)
}

/// Moves a running statistic towards a new value.
fn update(running: Option<&Tensor>, new: &Tensor, momentum: f64, factor: f64) -> Result<()> {
    if let Some(r) = running {
        let news: Vec<f64> = elements(new)?;
        let mut moved = elements::<f64>(r)?;
        moved.iter_mut().zip(news).for_each(|(r, x)| *r = (1.0 - momentum) * *r + momentum * (x * factor));
        write_slice(&moved, r.write()?.view_mut());
    }
    Ok(())
}

pub(crate) fn native_batch_norm(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
    out: &Tensor,
    save_mean: &Tensor,
    save_invstd: &Tensor,
) -> Result<()> {
    let (input, [w, b, running_m, running_v]) = (contiguous(input)?, dense([weight, bias, running_mean, running_var])?);
    let (sizes, strides) = by_channel(&input);
    let access = input.read()?;
    let x = access.view_as(&sizes, &strides);
    let (mean, invstd) = match (training, running_m, running_v) {
        (false, Some(m), Some(v)) => (m, inverse_deviation(&v, eps)?),
        _ => {
            let var = Tensor::try_empty(save_mean.spec().clone())?;
            kernel::batch_norm_stats(x, save_mean.write()?.view_mut(), var.write()?.view_mut());
            let invstd = inverse_deviation(&var, eps)?;
            firebrand_kernels::copy(invstd.read()?.view(), save_invstd.write()?.view_mut());
            let n = (sizes[0] * sizes[2]) as f64;
            update(running_mean, save_mean, momentum, 1.0)?;
            update(running_var, &var, momentum, n / (n - 1.0))?;
            (save_mean.clone(), invstd)
        }
    };
    let (w, b) = (reading(&w)?, reading(&b)?);
    let to = out.write()?;
    let (m, r) = (mean.read()?, invstd.read()?);
    kernel::batch_norm(x, m.view(), r.view(), view(&w), view(&b), to.view_mut_as(&sizes, &strides));
    Ok(())
}

pub(crate) fn native_batch_norm_backward(
    grad: &Tensor,
    input: &Tensor,
    weight: Option<&Tensor>,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    save_mean: Option<&Tensor>,
    save_invstd: Option<&Tensor>,
    train: bool,
    eps: f64,
    output_mask: [bool; 3],
    grad_input: &Tensor,
    grad_weight: &Tensor,
    grad_bias: &Tensor,
) -> Result<()> {
    let (grad, input) = (contiguous(grad)?, contiguous(input)?);
    let [w, running_m, running_v, save_m, save_r] = dense([weight, running_mean, running_var, save_mean, save_invstd])?;
    let (mean, invstd) = match (train, running_m, running_v, save_m, save_r) {
        (true, _, _, Some(m), Some(r)) => (m, r),
        (false, Some(m), Some(v), _, _) => (m, inverse_deviation(&v, eps)?),
        _ => unreachable!("the shape function saw the statistics"),
    };
    let (sizes, strides) = by_channel(&input);
    let w = reading(&w)?;
    let (gi, gw, gb) =
        (target(output_mask[0], grad_input)?, target(output_mask[1], grad_weight)?, target(output_mask[2], grad_bias)?);
    kernel::batch_norm_backward(
        grad.read()?.view_as(&sizes, &strides),
        input.read()?.view_as(&sizes, &strides),
        mean.read()?.view(),
        invstd.read()?.view(),
        view(&w),
        train,
        gi.as_ref().map(|a| a.view_mut_as(&sizes, &strides)),
        gw.as_ref().map(AccessMut::view_mut),
        gb.as_ref().map(AccessMut::view_mut),
    );
    Ok(())
}

pub(crate) fn native_group_norm(
    input: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
    eps: f64,
    out: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
) -> Result<()> {
    let [n, c, rest, group] = groups("native_group_norm", input, n, c, rest, group)?;
    let (input, [w, b]) = (contiguous(input)?, dense([weight, bias])?);
    let (w, b) = (reading(&w)?, reading(&b)?);
    let (sizes, strides) = ([n, c, rest], [c * rest, rest, 1]);
    let (x, o, m, r) = (input.read()?, out.write()?, mean.write()?, rstd.write()?);
    let (x, o) = (x.view_as(&sizes, &strides), o.view_mut_as(&sizes, &strides));
    kernel::group_norm(x, group, view(&w), view(&b), eps, o, m.view_mut(), r.view_mut());
    Ok(())
}

pub(crate) fn native_group_norm_backward(
    grad: &Tensor,
    input: &Tensor,
    mean: &Tensor,
    rstd: &Tensor,
    weight: Option<&Tensor>,
    n: SymInt,
    c: SymInt,
    rest: SymInt,
    group: i64,
    output_mask: [bool; 3],
    grad_input: &Tensor,
    grad_weight: &Tensor,
    grad_bias: &Tensor,
) -> Result<()> {
    let [n, c, rest, group] = groups("native_group_norm_backward", input, n, c, rest, group)?;
    let (grad, input, mean, rstd) = (contiguous(grad)?, contiguous(input)?, contiguous(mean)?, contiguous(rstd)?);
    let [w] = dense([weight])?;
    let w = reading(&w)?;
    let (sizes, strides) = ([n, c, rest], [c * rest, rest, 1]);
    let (gi, gw, gb) =
        (target(output_mask[0], grad_input)?, target(output_mask[1], grad_weight)?, target(output_mask[2], grad_bias)?);
    kernel::group_norm_backward(
        grad.read()?.view_as(&sizes, &strides),
        input.read()?.view_as(&sizes, &strides),
        group,
        mean.read()?.view(),
        rstd.read()?.view(),
        view(&w),
        gi.as_ref().map(|a| a.view_mut_as(&sizes, &strides)),
        gw.as_ref().map(AccessMut::view_mut),
        gb.as_ref().map(AccessMut::view_mut),
    );
    Ok(())
}
