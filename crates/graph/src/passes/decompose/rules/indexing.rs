//! Ops that move elements: by index, by mask, around, and back for derivatives of views.

use super::super::emit::Emit;
use super::wrap;
use firebrand_core::dispatch::{Args, Op};
use firebrand_core::{Result, Scalar, Tensor};

pub(super) fn apply(e: &Emit<'_>, op: Op, a: &Args<'_>) -> Result<Option<Tensor>> {
    let x = || a.tensor(0, "self");
    Ok(Some(match op {
        Op::_UNSAFE_INDEX_TENSOR => e.op(Op::INDEX_TENSOR, a.values())?,
        Op::_UNSAFE_INDEX_PUT => e.op(Op::INDEX_PUT, &a.values()[..a.values().len().min(4)])?,
        Op::INDEX_ADD => {
            let alpha = a.opt_scalar(4, "alpha")?.unwrap_or(Scalar::Int(1));
            let source = e.scale(a.tensor(3, "source")?, alpha)?;
            put_along(e, x()?, a.int(1, "dim")?, a.tensor(2, "index")?, &source, true)?
        }
        Op::INDEX_COPY => {
            let source = a.tensor(3, "source")?;
            put_along(e, x()?, a.int(1, "dim")?, a.tensor(2, "index")?, source, false)?
        }
        Op::INDEX_FILL_INT_SCALAR | Op::INDEX_FILL_INT_TENSOR => {
            let value = match op {
                Op::INDEX_FILL_INT_SCALAR => e.scalar_tensor(a.scalar(3, "value")?, x()?)?,
                _ => e.cast(a.tensor(3, "value")?, x()?.dtype())?,
            };
            put_along(e, x()?, a.int(1, "dim")?, a.tensor(2, "index")?, &value, false)?
        }
        Op::TAKE => {
            let flat = e.reshape(x()?, &[-1])?;
            e.index(&flat, vec![Some(a.tensor(1, "index")?.clone())])?
        }
        Op::ROLL => roll(e, x()?, &a.ints(1, "shifts")?, &a.opt_ints(2, "dims")?.unwrap_or_default())?,
        Op::TRIL | Op::TRIU => {
            let (x, diagonal) = (x()?, a.opt_int(1, "diagonal")?.unwrap_or(0));
            let [rows, columns] = [2, 1].map(|k| x.shape()[x.ndim() - k] as i64);
            let across = e.range(0, columns, 1, x.device())?;
            let down = e.unsqueeze(&e.range(0, rows, 1, x.device())?, -1)?;
            let compare = if op == Op::TRIL { Op::LE_SCALAR } else { Op::GE_SCALAR };
            let inside = e.compare(compare, &e.sub(&across, &down)?, diagonal)?;
            e.choose_or(&inside, x, 0)?
        }
        Op::SELECT_SCATTER => {
            let (x, src) = (x()?, a.tensor(1, "src")?);
            select_scatter(e, x, src, a.int(2, "dim")?, a.int(3, "index")?)?
        }
        Op::SELECT_BACKWARD => {
            let grad = a.tensor(0, "grad_output")?;
            let zeros = e.full(&a.ints(1, "input_sizes")?, 0, grad)?;
            select_scatter(e, &zeros, grad, a.int(2, "dim")?, a.int(3, "index")?)?
        }
        Op::SLICE_BACKWARD => {
            let grad = a.tensor(0, "grad_output")?;
            let zeros = e.full(&a.ints(1, "input_sizes")?, 0, grad)?;
            let mut args = vec![zeros.into(), grad.into()];
            args.extend_from_slice(&a.values()[2..]);
            e.op(Op::SLICE_SCATTER, &args)?
        }
        Op::DIAGONAL_BACKWARD => {
            let grad = a.tensor(0, "grad_output")?;
            let zeros = e.full(&a.ints(1, "input_sizes")?, 0, grad)?;
            let mut args = vec![zeros.into(), grad.into()];
            args.extend_from_slice(&a.values()[2..]);
            e.op(Op::DIAGONAL_SCATTER, &args)?
        }
        Op::UNFOLD_BACKWARD => unfold_backward(e, a)?,
        Op::EMBEDDING_DENSE_BACKWARD => embedding_backward(e, a)?,
        Op::MAX_UNPOOL2D => max_unpool(e, a)?,
        Op::IM2COL => im2col(e, a)?,
        Op::COL2IM => col2im(e, a)?,
        Op::REFLECTION_PAD1D | Op::REFLECTION_PAD2D | Op::REFLECTION_PAD3D => {
            pad(e, x()?, &a.ints(1, "padding")?, reflected)?
        }
        Op::REPLICATION_PAD1D | Op::REPLICATION_PAD2D | Op::REPLICATION_PAD3D => {
            pad(e, x()?, &a.ints(1, "padding")?, repeated)?
        }
        Op::REFLECTION_PAD1D_BACKWARD | Op::REFLECTION_PAD2D_BACKWARD | Op::REFLECTION_PAD3D_BACKWARD => {
            pad_backward(e, a.tensor(0, "grad_output")?, a.tensor(1, "self")?, &a.ints(2, "padding")?, reflected)?
        }
        _ => return Ok(None),
    }))
}

/// Indices for one dimension; all of those before it.
fn at(dim: usize, index: Tensor) -> Vec<Option<Tensor>> {
    let mut list = vec![None; dim];
    list.push(Some(index));
    list
}

/// Puts slices along a dimension.
fn put_along(e: &Emit<'_>, x: &Tensor, dim: i64, index: &Tensor, values: &Tensor, add: bool) -> Result<Tensor> {
    let index = &if index.ndim() == 0 { e.unsqueeze(index, 0)? } else { index.clone() };
    if x.ndim() == 0 {
        let row = e.unsqueeze(x, 0)?;
        let put = e.put(&row, vec![Some(index.clone())], values, add)?;
        return e.op(Op::SQUEEZE_DIMS, &[put.into(), [0i64][..].into()]);
    }
    e.put(x, at(wrap(dim, x.ndim()) as usize, index.clone()), values, add)
}

fn roll(e: &Emit<'_>, x: &Tensor, shifts: &[i64], dims: &[i64]) -> Result<Tensor> {
    let sizes: Vec<i64> = x.shape().iter().map(|&n| n as i64).collect();
    if x.numel() == 0 {
        return e.unary(Op::CLONE, x);
    }
    if dims.is_empty() {
        let flat = e.reshape(x, &[-1])?;
        return e.view(&roll(e, &flat, shifts, &[0])?, &sizes);
    }
    let mut rolled = x.clone();
    for (shift, dim) in shifts.iter().zip(dims) {
        let dim = wrap(*dim, x.ndim());
        let size = sizes[dim as usize];
        let start = (-shift).rem_euclid(size);
        let parts = vec![e.slice(&rolled, dim, start, size)?, e.slice(&rolled, dim, 0, start)?];
        rolled = e.cat(parts, dim)?;
    }
    Ok(rolled)
}

/// A slice in place of the one at an index: chosen where the position is that index.
fn select_scatter(e: &Emit<'_>, x: &Tensor, src: &Tensor, dim: i64, index: i64) -> Result<Tensor> {
    let dim = wrap(dim, x.ndim());
    let size = x.shape()[dim as usize] as i64;
    let index = if index < 0 { index + size } else { index };
    let mut shape = vec![1; x.ndim()];
    shape[dim as usize] = size;
    let here = e.compare(Op::EQ_SCALAR, &e.range(0, size, 1, x.device())?, index)?;
    e.choose(&e.view(&here, &shape)?, &e.unsqueeze(src, dim)?, x)
}

fn unfold_backward(e: &Emit<'_>, a: &Args<'_>) -> Result<Tensor> {
    let (grad, sizes) = (a.tensor(0, "grad_in")?, a.ints(1, "input_sizes")?);
    if sizes.is_empty() {
        return e.op(Op::SQUEEZE_DIMS, &[grad.into(), [0i64][..].into()]);
    }
    let dim = wrap(a.int(2, "dim")?, sizes.len()) as usize;
    let positions = e.range(0, sizes[dim], 1, grad.device())?;
    let windows = e.op(Op::UNFOLD, &[positions.into(), 0i64.into(), a.values()[3].clone(), a.values()[4].clone()])?;
    let index = e.reshape(&windows, &[-1])?;
    // The window comes behind its dimension, and both become one.
    let mut order: Vec<i64> = (0..grad.ndim() as i64 - 1).collect();
    order.insert(dim + 1, grad.ndim() as i64 - 1);
    let mut shape = sizes.clone();
    shape[dim] = -1;
    let flat = e.reshape(&e.permute(grad, &order)?, &shape)?;
    e.put(&e.full(&sizes, 0, grad)?, at(dim, index), &flat, true)
}

fn embedding_backward(e: &Emit<'_>, a: &Args<'_>) -> Result<Tensor> {
    let (grad, indices) = (a.tensor(0, "grad_output")?, a.tensor(1, "indices")?);
    let (rows, padding) = (a.int(2, "num_weights")?, a.int(3, "padding_idx")?);
    let width = grad.shape().last().copied().unwrap_or(1) as i64;
    let index = e.reshape(indices, &[-1])?;
    let mut flat = e.reshape(grad, &[-1, width])?;
    if a.bool(4, "scale_grad_by_freq")? {
        let ones = e.full(&[index.numel() as i64], 1, grad)?;
        let counts = e.put(&e.full(&[rows], 0, grad)?, vec![Some(index.clone())], &ones, true)?;
        flat = e.div(&flat, &e.unsqueeze(&e.index(&counts, vec![Some(index.clone())])?, 1)?)?;
    }
    if padding >= 0 {
        let counts = e.unsqueeze(&e.compare(Op::NE_SCALAR, &index, padding)?, 1)?;
        flat = e.choose_or(&counts, &flat, 0)?;
    }
    e.put(&e.full(&[rows, width], 0, grad)?, vec![Some(index)], &flat, true)
}

fn max_unpool(e: &Emit<'_>, a: &Args<'_>) -> Result<Tensor> {
    let (x, indices, size) = (a.tensor(0, "self")?, a.tensor(1, "indices")?, a.ints(2, "output_size")?);
    let planes: i64 = x.shape()[..x.ndim() - 2].iter().map(|&n| n as i64).product();
    let area: i64 = size.iter().product();
    let offsets = e.unsqueeze(&e.range(0, planes * area, area, x.device())?, 1)?;
    let index = e.add(&e.reshape(indices, &[planes, -1])?, &offsets)?;
    let flat =
        e.put(&e.full(&[planes * area], 0, x)?, vec![Some(e.reshape(&index, &[-1])?)], &e.reshape(x, &[-1])?, false)?;
    let mut shape: Vec<i64> = x.shape()[..x.ndim() - 2].iter().map(|&n| n as i64).collect();
    shape.extend(size);
    e.view(&flat, &shape)
}

/// Where the elements of all windows along one dimension lie: window by window across, element by element down.
fn windows(e: &Emit<'_>, x: &Tensor, size: i64, kernel: i64, dilation: i64, stride: i64) -> Result<Tensor> {
    let starts = e.range(0, size - dilation * (kernel - 1), stride, x.device())?;
    let steps = e.range(0, kernel * dilation, dilation, x.device())?;
    e.add(&e.unsqueeze(&starts, 0)?, &e.unsqueeze(&steps, -1)?)
}

/// What both directions of im2col need: kernel, padding and the indices of rows and columns.
struct Patches {
    kernel: [i64; 2],
    padding: [i64; 2],
    indices: Vec<Option<Tensor>>,
    /// How many windows there are along each dimension.
    counts: [i64; 2],
}

fn patches(e: &Emit<'_>, x: &Tensor, size: [i64; 2], a: &Args<'_>, from: usize) -> Result<Patches> {
    let pair = |k: usize| {
        let v = a.ints(from + k, "size")?;
        Ok::<_, firebrand_core::Error>([v[0], *v.last().unwrap_or(&v[0])])
    };
    let (kernel, dilation, padding, stride) = (pair(0)?, pair(1)?, pair(2)?, pair(3)?);
    let one = |d: usize| windows(e, x, size[d] + 2 * padding[d], kernel[d], dilation[d], stride[d]);
    let (rows, columns) = (one(0)?, one(1)?);
    let counts = [rows.shape()[1] as i64, columns.shape()[1] as i64];
    let rows = e.unsqueeze(&e.unsqueeze(&rows, -1)?, -1)?;
    Ok(Patches { kernel, padding, indices: vec![None, None, Some(rows), Some(columns)], counts })
}

fn im2col(e: &Emit<'_>, a: &Args<'_>) -> Result<Tensor> {
    let x = a.tensor(0, "self")?;
    let batched = if x.ndim() == 3 { e.unsqueeze(x, 0)? } else { x.clone() };
    let [n, c, h, w] = [0, 1, 2, 3].map(|d| batched.shape()[d] as i64);
    let p = patches(e, x, [h, w], a, 1)?;
    let [ph, pw] = p.padding;
    let padded = e.op(Op::CONSTANT_PAD_ND, &[batched.into(), [pw, pw, ph, ph][..].into()])?;
    let taken = e.permute(&e.index(&padded, p.indices)?, &[0, 1, 2, 4, 3, 5])?;
    let columns = e.reshape(&taken, &[n, c * p.kernel[0] * p.kernel[1], p.counts[0] * p.counts[1]])?;
    if x.ndim() == 3 { e.op(Op::SQUEEZE_DIMS, &[columns.into(), [0i64][..].into()]) } else { Ok(columns) }
}

fn col2im(e: &Emit<'_>, a: &Args<'_>) -> Result<Tensor> {
    let (x, size) = (a.tensor(0, "self")?, a.ints(1, "output_size")?);
    let batched = if x.ndim() == 2 { e.unsqueeze(x, 0)? } else { x.clone() };
    let p = patches(e, x, [size[0], size[1]], a, 2)?;
    let [kh, kw] = p.kernel;
    let (n, c) = (batched.shape()[0] as i64, batched.shape()[1] as i64 / (kh * kw));
    let apart = e.reshape(&batched, &[n, c, kh, kw, p.counts[0], p.counts[1]])?;
    let apart = e.permute(&apart, &[0, 1, 2, 4, 3, 5])?;
    let [ph, pw] = p.padding;
    let zeros = e.full(&[n, c, size[0] + 2 * ph, size[1] + 2 * pw], 0, x)?;
    let put = e.put(&zeros, p.indices, &apart, true)?;
    let cut = e.op(Op::CONSTANT_PAD_ND, &[put.into(), [-pw, -pw, -ph, -ph][..].into()])?;
    if x.ndim() == 2 { e.op(Op::SQUEEZE_DIMS, &[cut.into(), [0i64][..].into()]) } else { Ok(cut) }
}

/// Which elements of a dimension a padded one shows.
type Source = fn(&Emit<'_>, &Tensor, i64, i64, i64) -> Result<Tensor>;

fn reflected(e: &Emit<'_>, x: &Tensor, size: i64, left: i64, right: i64) -> Result<Tensor> {
    let from_end = e.rsub(size - 1, &e.unary(Op::ABS, &e.range(-left, size + right, 1, x.device())?)?)?;
    e.rsub(size - 1, &e.unary(Op::ABS, &from_end)?)
}

fn repeated(e: &Emit<'_>, x: &Tensor, size: i64, left: i64, right: i64) -> Result<Tensor> {
    let positions = e.range(-left, size + right, 1, x.device())?;
    e.op(Op::CLAMP, &[positions.into(), Scalar::Int(0).into(), Scalar::Int(size - 1).into()])
}

/// Pads the last dimensions, one after the other; `padding` begins with the last.
fn pad(e: &Emit<'_>, x: &Tensor, padding: &[i64], source: Source) -> Result<Tensor> {
    let mut padded = x.clone();
    for (k, ends) in padding.chunks_exact(2).enumerate() {
        let dim = x.ndim() - 1 - k;
        let index = source(e, x, x.shape()[dim] as i64, ends[0], ends[1])?;
        padded = e.index(&padded, at(dim, index))?;
    }
    Ok(padded)
}

fn pad_backward(e: &Emit<'_>, grad: &Tensor, x: &Tensor, padding: &[i64], source: Source) -> Result<Tensor> {
    let mut folded = grad.clone();
    for (k, ends) in padding.chunks_exact(2).enumerate() {
        let dim = x.ndim() - 1 - k;
        let size = x.shape()[dim] as i64;
        let index = source(e, x, size, ends[0], ends[1])?;
        let mut sizes: Vec<i64> = folded.shape().iter().map(|&n| n as i64).collect();
        sizes[dim] = size;
        folded = e.put(&e.full(&sizes, 0, grad)?, at(dim, index), &folded, true)?;
    }
    Ok(folded)
}
