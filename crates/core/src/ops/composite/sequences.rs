//! Sequences of several lengths: padding, packing by time step, concatenating, splitting.

use crate::limits::as_size;
use crate::ops::formulas::sym;
use crate::ops::lists;
use crate::ops::shape::wrap_dim;
use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops};

/// The integers of a tensor on the CPU.
pub(crate) fn integers(op: &'static str, t: &Tensor) -> Result<Vec<i64>> {
    if t.is_floating_point() || t.is_complex() {
        return Err(Error::argument(op, format!("expected integers, found {}", t.dtype())));
    }
    t.need_data(op)?;
    t.try_detach()?.try_to_dtype(DType::I64)?.try_to_vec::<i64>()
}

/// All sequences in one tensor, short ones filled up.
pub(crate) fn pad_sequence(
    sequences: &[Tensor],
    batch_first: bool,
    padding_value: f64,
    padding_side: &str,
) -> Result<Tensor> {
    const OP: &str = "pad_sequence";
    let Some(first) = sequences.first() else { return Err(Error::argument(OP, "expected at least one sequence")) };
    if !matches!(padding_side, "left" | "right") {
        return Err(Error::argument(OP, format!("padding_side is \"left\" or \"right\", found {padding_side:?}")));
    }
    let rest = first.shape().get(1..).unwrap_or_default();
    if let Some(t) = sequences.iter().find(|t| t.shape().get(1..) != Some(rest)) {
        let m = format!("expected sequences of {rest:?}, found shape {:?}", t.shape());
        return Err(Error::argument(OP, m));
    }
    let longest = sequences.iter().map(|t| t.shape()[0]).max().unwrap_or(0);
    let padded = |t: &Tensor| {
        let missing = SymInt::from(longest - t.shape()[0]);
        let mut pad = vec![SymInt::from(0i64); 2 * t.ndim()];
        let last = pad.len() - 1;
        pad[if padding_side == "left" { last - 1 } else { last }] = missing;
        ops::constant_pad_nd(t, &pad, Scalar::Float(padding_value))
    };
    let all = sequences.iter().map(padded).collect::<Result<Vec<_>>>()?;
    ops::stack(&all, if batch_first { 0 } else { 1 })
}

/// How many sequences are still running at each step, and where each element of the packed form lies in
/// `[batch, time]`.
fn packing(op: &'static str, lengths: &Tensor, batch: usize, time: usize) -> Result<(Vec<i64>, Vec<i64>)> {
    let lengths = integers(op, lengths)?;
    let fits = lengths.len() == batch && lengths.iter().all(|&n| n > 0 && as_size(n) <= time);
    if !fits || lengths.windows(2).any(|w| w[0] < w[1]) {
        let m =
            format!("expected {batch} lengths from 1 to {time}, longest first, found {lengths:?}; sort the sequences");
        return Err(Error::argument(op, m));
    }
    let longest = lengths.first().copied().unwrap_or(0);
    let running = |t: i64| lengths.iter().take_while(|&&n| n > t).count() as i64;
    let sizes = lists::collected(as_size(longest), (0..longest).map(running))?;
    let places = places(op, &sizes, time)?;
    Ok((sizes, places))
}

/// `[batch, time, ..]`, whichever comes first.
fn by_batch(t: &Tensor, batch_first: bool) -> Result<Tensor> {
    if batch_first { Ok(t.clone()) } else { ops::transpose(t, 0, 1) }
}

/// Steps of all sequences one after another, and how many run at each step.
pub(crate) fn pack_padded_sequence(input: &Tensor, lengths: &Tensor, batch_first: bool) -> Result<(Tensor, Tensor)> {
    const OP: &str = "_pack_padded_sequence";
    if input.ndim() < 2 {
        return Err(Error::argument(OP, format!("expected [time, batch, ..], found shape {:?}", input.shape())));
    }
    let input = by_batch(input, batch_first)?;
    let (batch, time) = (input.shape()[0], input.shape()[1]);
    let (sizes, places) = packing(OP, lengths, batch, time)?;
    let flat = ops::flatten(&input, 0, 1)?;
    let count = places.len();
    let data = ops::index_select(&flat, 0, &Tensor::try_from_vec(places, [count])?)?;
    let steps = sizes.len();
    Ok((data, Tensor::try_from_vec(sizes, [steps])?))
}

/// Where each element of the packed data lies in `[batch, time]`.
fn places(op: &'static str, sizes: &[i64], time: usize) -> Result<Vec<i64>> {
    let batch = sizes.first().copied().unwrap_or(0);
    let Some(time) = i64::try_from(time).ok().filter(|t| t.checked_mul(batch).is_some()) else {
        return Err(Error::argument(op, format!("{batch} sequences of {time} steps are more than a tensor can hold")));
    };
    let count = sizes.iter().fold(0i64, |sum, &n| sum.saturating_add(n));
    let each = sizes.iter().enumerate().flat_map(|(t, &n)| (0..n).map(move |b| b * time + t as i64));
    lists::collected(as_size(count), each)
}

/// Where each element of packed `data` lies in `[batch, time]`, and the length of each sequence.
fn unpacking(op: &'static str, data: &Tensor, batch_sizes: &Tensor, time: usize) -> Result<(Vec<i64>, Vec<i64>)> {
    let sizes = integers(op, batch_sizes)?;
    if sizes.windows(2).any(|w| w[0] < w[1]) || sizes.iter().any(|&n| n <= 0) || sizes.len() > time {
        let m = format!("expected at most {time} batch sizes, positive and in descending order, found {sizes:?}");
        return Err(Error::argument(op, m));
    }
    let count = sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(n));
    if data.ndim() == 0 || count != i64::try_from(data.shape()[0]).ok() {
        let m = format!("batch sizes {sizes:?} do not add up to the rows of packed data of shape {:?}", data.shape());
        return Err(Error::argument(op, m));
    }
    let batch = sizes.first().copied().unwrap_or(0);
    let length = |b| sizes.iter().filter(|&&n| n > b).count() as i64;
    Ok((places(op, &sizes, time)?, lists::collected(as_size(batch), (0..batch).map(length))?))
}

/// Elements put back to their places among zeros.
fn spread(data: &Tensor, places: Vec<i64>, batch: usize, time: usize) -> Result<Tensor> {
    let count = places.len();
    let at = Tensor::try_from_vec(places, [count])?;
    let rows = batch.saturating_mul(time); // beyond every tensor, and refused as such
    let zeros = ops::new_zeros(data, &sym(&[&[rows], &data.shape()[1..]].concat()), None, None)?;
    let flat = ops::index_add(&zeros, 0, &at, data, Scalar::Int(1))?;
    ops::reshape(&flat, &sym(&[&[batch, time], &data.shape()[1..]].concat()))
}

pub(crate) fn pack_padded_sequence_backward(
    grad: &Tensor,
    input_size: &[SymInt],
    batch_sizes: &Tensor,
    batch_first: bool,
) -> Result<Tensor> {
    const OP: &str = "_pack_padded_sequence_backward";
    let sizes = input_size.iter().map(|n| n.to_usize()).collect::<Option<Vec<_>>>();
    let Some(sizes) = sizes.filter(|s| s.len() >= 2 && grad.ndim() + 1 == s.len()) else {
        return Err(Error::argument(OP, format!("expected the sizes of padded sequences, found {input_size:?}")));
    };
    let (batch, time) = if batch_first { (sizes[0], sizes[1]) } else { (sizes[1], sizes[0]) };
    let (places, lengths) = unpacking(OP, grad, batch_sizes, time)?;
    if lengths.len() > batch {
        let m = format!("a gradient of shape {:?} does not fit sizes {input_size:?}", grad.shape());
        return Err(Error::argument(OP, m));
    }
    by_batch(&spread(grad, places, batch, time)?, batch_first)
}

/// Padded sequences of packed ones, and their lengths.
pub(crate) fn pad_packed_sequence(
    data: &Tensor,
    batch_sizes: &Tensor,
    batch_first: bool,
    padding_value: Scalar,
    total_length: i64,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "_pad_packed_sequence";
    let steps = batch_sizes.numel();
    if total_length > 0 && as_size(total_length) < steps {
        let m = format!("expected a total length of at least {steps}, the longest sequence, found {total_length}");
        return Err(Error::argument(OP, m));
    }
    let time = if total_length > 0 { as_size(total_length) } else { steps };
    let (places, lengths) = unpacking(OP, data, batch_sizes, time)?;
    let batch = lengths.len();
    let spread = spread(data, places, batch, time)?;
    let lengths = Tensor::try_from_vec(lengths, [batch])?;
    // Steps from a sequence's length on are padding.
    let steps = ops::arange(Scalar::Int(time as i64), Some(DType::I64), None)?;
    let padding = ops::ge(&steps, &ops::unsqueeze(&lengths, 1)?)?;
    let padding = (2..data.ndim() + 1).try_fold(padding, |t, _| ops::unsqueeze(&t, -1))?;
    let filled = ops::masked_fill(&spread, &padding, padding_value)?;
    Ok((by_batch(&filled, batch_first)?, lengths))
}

/// All elements of all tensors in one vector.
pub(crate) fn flatten_dense_tensors(tensors: &[Tensor]) -> Result<Tensor> {
    if tensors.is_empty() {
        return Err(Error::argument("flatten_dense_tensors", "expected at least one tensor"));
    }
    let flat = |t: &Tensor| ops::reshape(t, &[SymInt::from(-1i64)]);
    ops::cat(&tensors.iter().map(flat).collect::<Result<Vec<_>>>()?, 0)
}

/// The vector cut into tensors of the shapes of `tensors`.
pub(crate) fn unflatten_dense_tensors(flat: &Tensor, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut at = 0;
    tensors
        .iter()
        .map(|t| {
            let start = at;
            at += t.numel();
            ops::view(&ops::narrow(flat, 0, start.into(), t.numel().into())?, &t.sym_sizes())
        })
        .collect()
}

/// Chunks of every tensor side by side: the first chunks of all, then the second, padded with zeros to one length.
pub(crate) fn chunk_cat(tensors: &[Tensor], dim: i64, num_chunks: i64) -> Result<Tensor> {
    const OP: &str = "_chunk_cat";
    let Some(first) = tensors.first() else { return Err(Error::argument(OP, "expected at least one tensor")) };
    let d = wrap_dim(OP, dim, first.ndim())?;
    if num_chunks <= 0 {
        return Err(Error::argument(OP, format!("expected a positive number of chunks, found {num_chunks}")));
    }
    let n = as_size(num_chunks);
    let chunks = |t: &Tensor| {
        if t.ndim() <= d || t.numel() == 0 || t.shape()[..d] != first.shape()[..d] || t.dtype() != first.dtype() {
            let m = format!("expected tensors alike up to dimension {d}, found shape {:?}", t.shape());
            return Err(Error::argument(OP, m));
        }
        let length = t.shape()[d].div_ceil(n) * n;
        let mut pad = vec![SymInt::from(0i64); 2 * (t.ndim() - d)];
        let last = pad.len() - 1;
        pad[last] = (length - t.shape()[d]).into();
        let padded = ops::constant_pad_nd(t, &pad, Scalar::Int(0))?;
        ops::reshape(&padded, &[&sym(&t.shape()[..d])[..], &[n.into(), SymInt::from(-1i64)]].concat())
    };
    ops::cat(&tensors.iter().map(chunks).collect::<Result<Vec<_>>>()?, d as i64 + 1)
}

/// As many indices as repetitions: 0 `repeats[0]` times, 1 `repeats[1]` times and so on.
pub(crate) fn repeat_interleave(repeats: &Tensor, output_size: Option<SymInt>) -> Result<Tensor> {
    const OP: &str = "repeat_interleave";
    if repeats.ndim() != 1 || !matches!(repeats.dtype(), DType::I64 | DType::I32) {
        let m = format!("expected a vector of i64 or i32, found {} of shape {:?}", repeats.dtype(), repeats.shape());
        return Err(Error::argument(OP, m));
    }
    let count = repeats.numel() as i64;
    let places = ops::arange(Scalar::Int(count), Some(repeats.dtype()), Some(repeats.device()))?;
    ops::repeat_interleave_tensor(&places, repeats, Some(0), output_size)
}
