//! Type promotion: which dtype an op computes in, given tensors with dimensions, 0-dim tensors and plain numbers.
//!
//! Three ranks, as in PyTorch: a tensor with dimensions outweighs a 0-dim tensor of the same category, which outweighs
//! a number; a higher category (bool < integer < float < complex) always wins.
//! A weaker complex operand makes a stronger float one complex at the float's own precision.

use crate::DType;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

static DEFAULT: AtomicU8 = AtomicU8::new(0);

/// The default dtype of float results; f32 unless [`set_default_dtype`](crate::set_default_dtype) changed it.
pub fn default_dtype() -> DType {
    match DEFAULT.load(Relaxed) {
        1 => DType::F64,
        2 => DType::F16,
        3 => DType::BF16,
        _ => DType::F32,
    }
}

/// Changes the default float dtype; an integer dtype makes it f32 again.
pub(crate) fn store_default(d: DType) {
    DEFAULT.store(
        match d {
            DType::F64 => 1,
            DType::F16 => 2,
            DType::BF16 => 3,
            _ => 0,
        },
        Relaxed,
    )
}

/// The smallest dtype that holds both, by PyTorch's table.
pub fn promote(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    let (lo, hi) = if a < b { (a, b) } else { (b, a) };
    match (lo, hi) {
        (Bool, x) => x,
        (U8, I8) => I16,
        (F16, BF16) => F32,
        (F64, C64) => C128,
        (_, x) => x,
    }
}

fn category(d: DType) -> u8 {
    match d {
        DType::Bool => 0,
        d if d.is_integer() => 1,
        d if d.is_floating_point() => 2,
        _ => 3,
    }
}

/// What promotion needs to know about an operand.
pub trait Operand {
    /// Its dtype.
    fn dtype(&self) -> DType;
    /// How many dimensions it has.
    fn ndim(&self) -> usize;
    /// Whether it is a host number wrapped as a tensor.
    fn is_wrapped_number(&self) -> bool;
}

/// Promotion state over the operands of an op.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promotion {
    dims: Option<DType>,
    zero_dim: Option<DType>,
    number: Option<DType>,
}

impl Promotion {
    /// Adds a tensor.
    #[inline]
    pub fn tensor(mut self, t: &impl Operand) -> Self {
        let slot = if t.is_wrapped_number() {
            &mut self.number
        } else if t.ndim() == 0 {
            &mut self.zero_dim
        } else {
            &mut self.dims
        };
        // A float number has no precision of its own.
        let own = match t.dtype() {
            d if t.is_wrapped_number() && d.is_floating_point() => default_dtype(),
            d if t.is_wrapped_number() && d.is_complex() => default_dtype().to_complex(),
            d => d,
        };
        *slot = Some(slot.map_or(own, |d| promote(d, own)));
        self
    }

    /// Adds a number of this dtype.
    pub fn number(mut self, dtype: DType) -> Self {
        self.number = Some(self.number.map_or(dtype, |d| promote(d, dtype)));
        self
    }

    /// The dtype of the result.
    pub fn result(self) -> DType {
        let combine = |strong: Option<DType>, weak: Option<DType>| match (strong, weak) {
            (Some(s), Some(w)) if s.is_floating_point() && w.is_complex() => Some(s.to_complex()),
            (Some(s), Some(w)) if category(w) > category(s) => Some(w),
            (s, w) => s.or(w),
        };
        combine(self.dims, combine(self.zero_dim, self.number)).unwrap_or_else(default_dtype)
    }
}

/// The dtype two tensors are combined in.
#[inline]
pub fn result_type(a: &impl Operand, b: &impl Operand) -> DType {
    if a.dtype() == b.dtype() {
        return a.dtype();
    }
    Promotion::default().tensor(a).tensor(b).result()
}

/// Whether an in-place op may store a result of type `from` in a tensor of type `to`.
pub fn can_cast(from: DType, to: DType) -> bool {
    category(from) <= category(to)
}

/// Integers and bools become the default float type, floats and complex types stay.
#[inline]
pub fn to_float(d: DType) -> DType {
    if d.is_differentiable() { d } else { default_dtype() }
}
