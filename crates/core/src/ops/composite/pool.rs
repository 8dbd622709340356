//! Poolings in one dimension (images of one row), and those that drop their indices.

use crate::ops::formulas::sym;
use crate::ops::shape::spatial;
use crate::{Error, Result, SymInt, Tensor, ops};

/// A list for images of one row, from a list for rows.
fn row(op: &'static str, name: &str, list: &[i64], first: i64) -> Result<Vec<i64>> {
    if name == "stride" && list.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![first, spatial(op, name, list, 1, i64::MIN)?[0] as i64])
}

fn need_rows(op: &'static str, t: &Tensor) -> Result<()> {
    if matches!(t.ndim(), 2 | 3) {
        return Ok(());
    }
    Err(Error::argument(op, format!("expected [batch, channels, length] or [channels, length], found {:?}", t.shape())))
}

pub(crate) fn max_pool1d_with_indices(
    self_: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    ceil_mode: bool,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "max_pool1d";
    need_rows(OP, self_)?;
    let image = ops::unsqueeze(self_, -2)?;
    let (kernel, stride) = (row(OP, "kernel_size", kernel, 1)?, row(OP, "stride", stride, 1)?);
    let (padding, dilation) = (row(OP, "padding", padding, 0)?, row(OP, "dilation", dilation, 1)?);
    let (out, at) = ops::max_pool2d_with_indices(&image, &kernel, &stride, &padding, &dilation, ceil_mode)?;
    Ok((ops::squeeze_dim(&out, -2)?, ops::squeeze_dim(&at, -2)?))
}

pub(crate) fn max_pool1d(
    self_: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    ceil_mode: bool,
) -> Result<Tensor> {
    Ok(max_pool1d_with_indices(self_, kernel, stride, padding, dilation, ceil_mode)?.0)
}

pub(crate) fn max_pool2d(
    self_: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    ceil_mode: bool,
) -> Result<Tensor> {
    Ok(ops::max_pool2d_with_indices(self_, kernel, stride, padding, dilation, ceil_mode)?.0)
}

pub(crate) fn max_pool3d(
    self_: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    ceil_mode: bool,
) -> Result<Tensor> {
    Ok(ops::max_pool3d_with_indices(self_, kernel, stride, padding, dilation, ceil_mode)?.0)
}

pub(crate) fn avg_pool1d(
    self_: &Tensor,
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    ceil_mode: bool,
    count_include_pad: bool,
) -> Result<Tensor> {
    const OP: &str = "avg_pool1d";
    need_rows(OP, self_)?;
    let image = ops::unsqueeze(self_, -2)?;
    let (kernel, stride) = (row(OP, "kernel_size", kernel, 1)?, row(OP, "stride", stride, 1)?);
    let padding = row(OP, "padding", padding, 0)?;
    let out = ops::avg_pool2d(&image, &kernel, &stride, &padding, ceil_mode, count_include_pad, None)?;
    ops::squeeze_dim(&out, -2)
}

/// The one output size of a pooling over rows.
fn length(op: &'static str, output_size: &[i64]) -> Result<i64> {
    match output_size {
        [n] => Ok(*n),
        list => Err(Error::argument(op, format!("expected one output size, found {list:?}"))),
    }
}

pub(crate) fn adaptive_avg_pool1d(self_: &Tensor, output_size: &[i64]) -> Result<Tensor> {
    const OP: &str = "adaptive_avg_pool1d";
    need_rows(OP, self_)?;
    let sizes = [SymInt::from(1i64), SymInt::from(length(OP, output_size)?)];
    ops::squeeze_dim(&adaptive_avg_pool2d(&ops::unsqueeze(self_, -2)?, &sizes)?, -2)
}

pub(crate) fn adaptive_max_pool1d(self_: &Tensor, output_size: &[i64]) -> Result<(Tensor, Tensor)> {
    const OP: &str = "adaptive_max_pool1d";
    need_rows(OP, self_)?;
    let (out, at) = ops::adaptive_max_pool2d(&ops::unsqueeze(self_, -2)?, &[1, length(OP, output_size)?])?;
    Ok((ops::squeeze_dim(&out, -2)?, ops::squeeze_dim(&at, -2)?))
}

/// One average of everything is a mean, for which there is a faster loop.
fn is_mean(t: &Tensor, n: usize, output_size: &[SymInt]) -> bool {
    output_size.len() == n && output_size.iter().all(|s| s.int() == 1) && matches!(t.ndim().wrapping_sub(n), 1 | 2)
}

pub(crate) fn adaptive_avg_pool2d(self_: &Tensor, output_size: &[SymInt]) -> Result<Tensor> {
    if is_mean(self_, 2, output_size) {
        return ops::mean_dim(self_, Some(&[-1, -2]), true, None);
    }
    ops::_adaptive_avg_pool2d(self_, output_size)
}

pub(crate) fn adaptive_avg_pool3d(self_: &Tensor, output_size: &[SymInt]) -> Result<Tensor> {
    if is_mean(self_, 3, output_size) {
        return ops::mean_dim(self_, Some(&[-1, -2, -3]), true, None);
    }
    ops::_adaptive_avg_pool3d(self_, output_size)
}

/// Puts values back where the maxima were, with zeros around them.
pub(crate) fn max_unpool3d(
    t: &Tensor,
    indices: &Tensor,
    output_size: &[SymInt],
    stride: &[i64],
    _padding: &[i64],
) -> Result<Tensor> {
    let space: Option<Vec<usize>> = output_size.iter().map(|s| s.to_usize()).collect();
    let fits = matches!(t.ndim(), 4 | 5) && indices.shape() == t.shape() && stride.iter().all(|&s| s > 0);
    let Some(space) = space.filter(|s| s.len() == 3 && fits) else {
        let m = format!(
            "expected maxima of volumes and as many indices, and an output size; found {:?}, {:?} and {output_size:?}",
            t.shape(),
            indices.shape()
        );
        return Err(Error::argument("max_unpool3d", m));
    };
    let Some(places) = crate::layout::checked_numel(&space) else {
        return Err(Error::argument("max_unpool3d", format!("volumes of {space:?} are larger than memory can be")));
    };
    let lead = t.shape()[..t.ndim() - 3].to_vec();
    let flat =
        |t: &Tensor| ops::reshape(t, &sym(&[lead.as_slice(), &[t.shape()[lead.len()..].iter().product()]].concat()));
    let empty = ops::new_zeros(t, &sym(&[lead.as_slice(), &[places]].concat()), None, None)?;
    let filled = ops::scatter(&empty, -1, &flat(indices)?, &flat(t)?)?;
    ops::reshape(&filled, &sym(&[lead, space].concat()))
}
