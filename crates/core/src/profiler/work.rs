//! Work: the least that an op has to do, from its arguments alone.
//!
//! Bytes are those of the elements it reads and writes, each tensor once; operations are the multiplications and additions of
//! products and convolutions, as textbooks count them, whatever algorithm computes them. Other ops count none: their time
//! is the time of their bytes.

use crate::dispatch::{Cost, Op, Value};
use crate::layout::Layout;
use crate::{DType, Scalar, Tensor};
use std::ops::{Add, AddAssign};

/// The least that something has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Multiplications and additions of products and convolutions.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Add for Work {
    type Output = Work;
    fn add(self, o: Work) -> Work {
        Work { flops: self.flops.saturating_add(o.flops), bytes: self.bytes.saturating_add(o.bytes) }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, o: Work) {
        *self = *self + o
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Work>>(all: I) -> Work {
        all.fold(Work::default(), Work::add)
    }
}

/// The tensors among boxed values.
pub(super) fn tensors(values: &[Value]) -> impl Iterator<Item = &Tensor> {
    values.iter().flat_map(|v| {
        let (one, list, some): (_, &[Tensor], &[Option<Tensor>]) = match v {
            Value::Tensor(t) => (Some(t), &[], &[]),
            Value::Tensors(list) => (None, list, &[]),
            Value::OptTensors(list) => (None, &[], list),
            _ => (None, &[], &[]),
        };
        one.into_iter().chain(list).chain(some.iter().flatten())
    })
}

/// Bytes of the different elements of a layout: those repeated by a stride of zero count once.
fn bytes(layout: &Layout, dtype: DType) -> u64 {
    let different = layout.sizes().iter().zip(layout.strides()).filter(|(_, stride)| **stride != 0);
    different.fold(dtype.size() as u64, |n, (size, _)| n.saturating_mul(*size as u64))
}

fn numel(t: &Tensor) -> u64 {
    t.numel() as u64
}

/// The length of a dimension, counted from the end.
fn last(t: &Tensor, k: usize) -> u64 {
    t.shape().iter().rev().nth(k).map_or(1, |n| *n as u64)
}

impl Work {
    /// Reading or writing these, and nothing else to speak of.
    pub(crate) fn moving<'a>(parts: impl Iterator<Item = (&'a Layout, DType)>) -> Work {
        Work { flops: 0, bytes: parts.map(|(layout, dtype)| bytes(layout, dtype)).fold(0, u64::saturating_add) }
    }

    /// What this call has to do.
    pub(super) fn of(op: Op, args: &[Value], outputs: &[Value]) -> Work {
        if op.info().cost == Cost::Free {
            return Work::default();
        }
        let all = tensors(args).chain(tensors(outputs));
        Work { flops: flops(op, args, outputs), ..Work::moving(all.map(|t| (t.layout(), t.dtype()))) }
    }
}

fn flops(op: Op, args: &[Value], outputs: &[Value]) -> u64 {
    let tensor = |k: usize| if let Some(Value::Tensor(t)) = args.get(k) { Some(t) } else { None };
    let product = |out: Option<&Tensor>, left: Option<&Tensor>| match (out, left) {
        (Some(out), Some(left)) => 2 * numel(out) * last(left, 0),
        _ => 0,
    };
    let out = tensors(outputs).next();
    match op {
        Op::MM | Op::BMM | Op::MV | Op::DOT | Op::_LINEAR_QUANTIZED | Op::_INT_MM => product(out, tensor(0)),
        Op::ADDMM | Op::BADDBMM | Op::ADDMV => product(out, tensor(1)),
        Op::ADDMM_ | Op::BADDBMM_ | Op::ADDMV_ => product(tensor(0), tensor(1)),
        Op::ADDBMM => tensor(1).zip(tensor(2)).map_or(0, |(a, b)| 2 * numel(a) * last(b, 0)),
        Op::_ATTENTION => attention(tensor(0), tensor(1), args.get(4)) * 2,
        // The scores again, and the gradients of values, scores, queries and keys.
        Op::_ATTENTION_BACKWARD => attention(tensor(1), tensor(2), args.get(5)) * 5,
        Op::CONVOLUTION => match (out, tensor(0), tensor(1)) {
            (Some(out), Some(input), Some(weight)) => convolution(input, weight, out, args.get(6)),
            _ => 0,
        },
        Op::CONVOLUTION_BACKWARD => match (tensor(0), tensor(1), tensor(2)) {
            (Some(grad), Some(input), Some(weight)) => {
                let Some(Value::Bools(wanted)) = args.get(10) else { return 0 };
                let sides = wanted.iter().take(2).filter(|w| **w).count() as u64;
                sides * convolution(input, weight, grad, args.get(7))
            }
            _ => 0,
        },
        _ => 0,
    }
}

/// One of the two products of an attention; a causal one needs half of it.
fn attention(query: Option<&Tensor>, key: Option<&Tensor>, causal: Option<&Value>) -> u64 {
    let (Some(query), Some(key)) = (query, key) else { return 0 };
    let all = 2 * numel(query) * last(key, 1);
    match causal {
        Some(Value::Bool(true) | Value::Scalar(Scalar::Bool(true))) => all / 2,
        _ => all,
    }
}

/// A convolution's operations: each element of the output (of the input, if transposed) meets each weight of one channel.
fn convolution(input: &Tensor, weight: &Tensor, output: &Tensor, transposed: Option<&Value>) -> u64 {
    let per_channel = weight.shape().iter().skip(1).fold(1u64, |n, size| n.saturating_mul(*size as u64));
    let swept = if let Some(Value::Bool(true)) = transposed { input } else { output };
    numel(swept).saturating_mul(per_channel).saturating_mul(2)
}
