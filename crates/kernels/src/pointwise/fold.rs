//! Folds: a row of registers to one number, and sums of registers over tiles.
//!
//! Sums are taken a few elements at a time, joined in f64, so a long row loses no more digits than a short one.
#![allow(unsafe_code)]

use super::loops::Arg;
use crate::lanes::{Compute, Kernel, dispatch, fold, fold_wide, sum_of};
use crate::{DType, Element};

/// How a row becomes one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// The sum.
    Sum,
    /// The largest; NaN if one is.
    Max,
    /// The smallest; NaN if one is.
    Min,
}

/// What is summed of two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// `a b`
    Products,
    /// `(a - b)^2`
    SquaredDifferences,
}

/// How a value of a program goes to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sink {
    /// Every element.
    Elements,
    /// One element a row, the last dimension of the domain: the value is the same along it.
    Rows,
    /// The sum over all rows times a factor: one element per place in a row.
    Columns(f64),
    /// The sum over everything times a factor: one element.
    Total(f64),
}

/// Elements of which products are summed in lanes before the sum is added to the total.
const BLOCK: usize = 512;

/// Folds `n` float registers.
///
/// # Safety
/// `a` holds `n` registers of `dtype`, which is f32 or f64.
pub(super) unsafe fn fold_row(how: Fold, dtype: DType, a: *const u8, n: usize) -> f64 {
    // SAFETY: the caller's promise.
    unsafe {
        if dtype == DType::F64 {
            dispatch(Row { how, xs: std::slice::from_raw_parts(a.cast::<f64>(), n) })
        } else {
            dispatch(Row { how, xs: std::slice::from_raw_parts(a.cast::<f32>(), n) })
        }
    }
}

/// Sums terms of two operands of `n` float registers each; a scalar stands for as many.
///
/// # Safety
/// `a` and `b` hold registers of `dtype`, which is f32 or f64.
pub(super) unsafe fn sum_row(terms: Terms, dtype: DType, a: Arg, b: Arg, n: usize) -> f64 {
    // The terms do not change when the operands change places, so that a scalar is the second.
    let (a, b) = if a.step == 0 { (b, a) } else { (a, b) };
    // SAFETY: the caller's promise.
    unsafe {
        if dtype == DType::F64 {
            dispatch(Pairs::<f64> { terms, a: a.tile_of(if a.step == 0 { 1 } else { n }), b, n })
        } else {
            dispatch(Pairs::<f32> { terms, a: a.tile_of(if a.step == 0 { 1 } else { n }), b, n })
        }
    }
}

/// `n` pairs; one element of `a` stands for all if there is only one.
struct Pairs<'a, X> {
    terms: Terms,
    a: &'a [X],
    /// Registers of type `X`: the maker's promise.
    b: Arg,
    n: usize,
}

impl<X: Compute> Kernel for Pairs<'_, X> {
    type Out = f64;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        let Pairs { terms, a, b, n } = self;
        let squared = |s: X, a: X, b: X| {
            let d = a.sub(b);
            d.mul_add::<FMA>(d, s)
        };
        let product = |s: X, a: X, b: X| a.mul_add::<FMA>(b, s);
        if b.step == 0 {
            // SAFETY: a scalar has one element.
            let b: X = unsafe { b.first() };
            let term = |x: X| match terms {
                Terms::Products => x.mul(b),
                Terms::SquaredDifferences => x.sub(b).mul(x.sub(b)),
            };
            let total = fold_wide(a, X::Wide::ZERO, term, X::add, X::Wide::add).to_f64();
            return if a.len() == n { total } else { total * n as f64 };
        }
        // SAFETY: a tile has `n` elements.
        let b: &[X] = unsafe { b.tile_of(n) };
        let mut total = 0.0;
        for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
            total += match terms {
                Terms::Products => sum_of(a, b, product),
                Terms::SquaredDifferences => sum_of(a, b, squared),
            }
        }
        total
    }
}

/// Adds `rows` rows of registers to one row of sums in f64.
///
/// # Safety
/// `a` holds `rows * n` registers of `dtype`, which is f32 or f64, and `sums` holds `n` numbers; they do not overlap.
pub(super) unsafe fn add_rows(dtype: DType, sums: *mut f64, a: *const u8, rows: usize, n: usize) {
    use std::slice::{from_raw_parts, from_raw_parts_mut};
    // SAFETY: the caller's promise.
    unsafe {
        let sums = from_raw_parts_mut(sums, n);
        if dtype == DType::F64 {
            dispatch(Columns { sums, xs: from_raw_parts(a.cast::<f64>(), rows * n) })
        } else {
            dispatch(Columns { sums, xs: from_raw_parts(a.cast::<f32>(), rows * n) })
        }
    }
}

struct Row<'a, T> {
    how: Fold,
    xs: &'a [T],
}

struct Columns<'a, T> {
    sums: &'a mut [f64],
    xs: &'a [T],
}

macro_rules! kernels {
    ($($t:ident)*) => {$(
        impl Kernel for Row<'_, $t> {
            type Out = f64;
            #[inline(always)]
            #[allow(clippy::unnecessary_cast)] // f64 is one of the types
            fn run<const FMA: bool>(self) -> f64 {
                let largest = |a: $t, b: $t| if a > b || a.is_nan() { a } else { b };
                let smallest = |a: $t, b: $t| if a < b || a.is_nan() { a } else { b };
                match self.how {
                    Fold::Sum => fold_wide(self.xs, 0.0, |x| x, |a, b| a + b, |a, b| a + b),
                    Fold::Max => fold(self.xs, $t::NEG_INFINITY, |x| x, largest) as f64,
                    Fold::Min => fold(self.xs, $t::INFINITY, |x| x, smallest) as f64,
                }
            }
        }

        impl Kernel for Columns<'_, $t> {
            type Out = ();
            #[inline(always)]
            #[allow(clippy::unnecessary_cast)] // as above
            fn run<const FMA: bool>(self) {
                let Columns { sums, xs } = self;
                let n = sums.len();
                let four = xs.len() / (4 * n.max(1)) * 4 * n;
                for rows in xs[..four].chunks_exact(4 * n.max(1)) {
                    let (a, b, c, d) = (&rows[..n], &rows[n..2 * n], &rows[2 * n..3 * n], &rows[3 * n..4 * n]);
                    for i in 0..n {
                        sums[i] += ((a[i] + b[i]) + (c[i] + d[i])) as f64
                    }
                }
                for row in xs[four..].chunks_exact(n.max(1)) {
                    for (s, &x) in sums.iter_mut().zip(row) {
                        *s += x as f64
                    }
                }
            }
        }
    )*};
}
kernels!(f32 f64);
