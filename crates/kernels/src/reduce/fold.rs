//! The inner loops of reductions: fold one block of elements to a value, or several rows into a row of accumulators.
//!
//! Every reduction is a `map` of the element (and a parameter of its output, such as the mean) and an associative `merge`.
//! The loops exist once per compute type and instruction set; the choice of map and merge is made once a block.
#![allow(unsafe_code)]

use crate::lanes::{Compute, Kernel, fold};

/// A map and a merge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fold {
    Sum,
    Prod,
    Max,
    Min,
    /// How many are not zero.
    Count,
    AbsSum,
    AbsMax,
    AbsMin,
    AbsPowSum(f64),
    SquareSum,
    /// Sum of `exp(x - p)`.
    ExpSum,
    /// Sum of `(x - p)^2`.
    SquareDiffSum,
}

impl Fold {
    /// The value of no elements.
    pub(super) fn unit<X: Compute>(self) -> X {
        match self {
            Fold::Prod => X::ONE,
            Fold::Max => X::LOWEST,
            Fold::Min | Fold::AbsMin => X::HIGHEST,
            _ => X::ZERO,
        }
    }

    /// Joins two results.
    #[inline(always)]
    pub(super) fn merge<X: Compute>(self, a: X, b: X) -> X {
        match self {
            Fold::Prod => a.mul(b),
            Fold::Max | Fold::AbsMax => a.max(b),
            Fold::Min | Fold::AbsMin => a.min(b),
            _ => a.add(b),
        }
    }
}

/// Runs `$body` with `$map` and `$merge` bound to the closures of a fold.
macro_rules! with_fold {
    ($fold:expr, $x:ty, $fma:ident, ($map:ident, $merge:ident) => $body:expr) => {{
        macro_rules! arm {
            ($m:expr, $g:expr) => {{
                let ($map, $merge) = ($m, $g);
                $body
            }};
        }
        match $fold {
            Fold::Sum => arm!(|x: $x, _p: $x| x, <$x>::add),
            Fold::Prod => arm!(|x: $x, _p: $x| x, <$x>::mul),
            Fold::Max => arm!(|x: $x, _p: $x| x, <$x>::max),
            Fold::Min => arm!(|x: $x, _p: $x| x, <$x>::min),
            Fold::Count => arm!(|x: $x, _p: $x| if x == <$x>::ZERO { <$x>::ZERO } else { <$x>::ONE }, <$x>::add),
            Fold::AbsSum if <$x>::FLOAT => arm!(|x: $x, _p: $x| x.abs(), <$x>::add),
            Fold::AbsMax if <$x>::FLOAT => arm!(|x: $x, _p: $x| x.abs(), <$x>::max),
            Fold::AbsMin if <$x>::FLOAT => arm!(|x: $x, _p: $x| x.abs(), <$x>::min),
            Fold::AbsPowSum(e) if <$x>::FLOAT => {
                arm!(move |x: $x, _p: $x| <$x>::from_f64(x.to_f64().abs().powf(e)), <$x>::add)
            }
            Fold::SquareSum => arm!(|x: $x, _p: $x| x.mul(x), <$x>::add),
            Fold::ExpSum if <$x>::FLOAT => arm!(|x: $x, p: $x| x.sub(p).exp::<$fma>(), <$x>::add),
            Fold::SquareDiffSum if <$x>::FLOAT => arm!(
                |x: $x, p: $x| {
                    let d = x.sub(p);
                    d.mul(d)
                },
                <$x>::add
            ),
            _ => unreachable!("a fold of floats"),
        }
    }};
}

/// Folds one block.
pub(super) struct Block<'a, X> {
    pub(super) fold: Fold,
    pub(super) xs: &'a [X],
    pub(super) p: X,
}

impl<X: Compute> Kernel for Block<'_, X> {
    type Out = X;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> X {
        let (xs, p, unit) = (self.xs, self.p, self.fold.unit());
        with_fold!(self.fold, X, FMA, (map, merge) => fold(xs, unit, |x| map(x, p), merge))
    }
}

/// Folds rows `pitch` apart into `acc`, element by element.
pub(super) struct Columns<'a, X> {
    pub(super) fold: Fold,
    pub(super) first: *const X,
    pub(super) pitch: usize,
    pub(super) rows: usize,
    pub(super) acc: &'a mut [X],
    /// One parameter a column.
    pub(super) p: &'a [X],
}

impl<X: Compute> Kernel for Columns<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Columns { fold, first, pitch, rows, acc, p } = self;
        let n = acc.len();
        let p = &p[..n];
        // SAFETY: the caller gives `rows` rows of `n` readable elements.
        let row = |r: usize| unsafe { std::slice::from_raw_parts(first.add(r * pitch), n) };
        with_fold!(fold, X, FMA, (map, merge) => {
            let mut r = 0;
            while r + 4 <= rows {
                let (a, b, c, d) = (row(r), row(r + 1), row(r + 2), row(r + 3));
                for i in 0..n {
                    let ab = merge(map(a[i], p[i]), map(b[i], p[i]));
                    let cd = merge(map(c[i], p[i]), map(d[i], p[i]));
                    acc[i] = merge(acc[i], merge(ab, cd))
                }
                r += 4;
            }
            for r in r..rows {
                let a = row(r);
                for i in 0..n {
                    acc[i] = merge(acc[i], map(a[i], p[i]))
                }
            }
        })
    }
}
