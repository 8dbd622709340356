//! The inner loops of reductions: fold one block of elements to a value, or several rows into a row of accumulators.
//!
//! Every reduction is a `map` of the element (and a parameter of its output, such as the mean) and an associative `merge`.
//! Few elements are merged in the compute type; what came of them is joined in the wide one.
//! The loops exist once per compute type and instruction set; the choice of map and merge is made once a block.
#![allow(unsafe_code)]

use crate::lanes::{Compute, Kernel, fold, fold_wide, sum_wide};

/// A map and a merge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fold {
    Sum,
    /// The sum, every element added in the wide type: for means that squares are taken around.
    WideSum,
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

    /// Whether the result is one of the elements: nothing is lost on the way to it.
    pub(super) fn is_extreme(self) -> bool {
        matches!(self, Fold::Max | Fold::Min | Fold::AbsMax | Fold::AbsMin)
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

/// Runs `$body` with `$map`, `$merge` and `$join`, the merge of the wide type, bound to the closures of a fold.
macro_rules! with_fold {
    ($fold:expr, $x:ty, $fma:ident, ($map:ident, $merge:ident, $join:ident) => $body:expr) => {{
        macro_rules! arm {
            ($m:expr, $g:ident) => {{
                let ($map, $merge, $join) = ($m, <$x>::$g, <$x as Compute>::Wide::$g);
                $body
            }};
        }
        match $fold {
            Fold::Sum | Fold::WideSum => arm!(|x: $x, _p: $x| x, add),
            Fold::Prod => arm!(|x: $x, _p: $x| x, mul),
            Fold::Max => arm!(|x: $x, _p: $x| x, max),
            Fold::Min => arm!(|x: $x, _p: $x| x, min),
            Fold::Count => arm!(|x: $x, _p: $x| if x == <$x>::ZERO { <$x>::ZERO } else { <$x>::ONE }, add),
            Fold::AbsSum if <$x>::FLOAT => arm!(|x: $x, _p: $x| x.abs(), add),
            Fold::AbsMax if <$x>::FLOAT => arm!(|x: $x, _p: $x| x.abs(), max),
            Fold::AbsMin if <$x>::FLOAT => arm!(|x: $x, _p: $x| x.abs(), min),
            Fold::AbsPowSum(e) if <$x>::FLOAT => {
                arm!(move |x: $x, _p: $x| <$x>::from_f64(x.to_f64().abs().powf(e)), add)
            }
            Fold::SquareSum => arm!(|x: $x, _p: $x| x.mul(x), add),
            Fold::ExpSum if <$x>::FLOAT => arm!(|x: $x, p: $x| x.sub(p).exp::<$fma>(), add),
            Fold::SquareDiffSum if <$x>::FLOAT => arm!(
                |x: $x, p: $x| {
                    let d = x.sub(p);
                    d.mul(d)
                },
                add
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
    type Out = X::Wide;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> X::Wide {
        let (xs, p) = (self.xs, self.p);
        if self.fold.is_extreme() {
            return Extreme { fold: self.fold, xs }.run::<FMA>().widen();
        }
        if self.fold == Fold::WideSum {
            return sum_wide(xs);
        }
        let unit = self.fold.unit();
        with_fold!(self.fold, X, FMA, (map, merge, join) => fold_wide(xs, unit, |x| map(x, p), merge, join))
    }
}

/// The extreme of one block, as it is.
pub(super) struct Extreme<'a, X> {
    pub(super) fold: Fold,
    pub(super) xs: &'a [X],
}

impl<X: Compute> Kernel for Extreme<'_, X> {
    type Out = X;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> X {
        let (xs, unit) = (self.xs, self.fold.unit());
        match self.fold {
            Fold::Max => fold(xs, unit, |x| x, X::max),
            Fold::Min => fold(xs, unit, |x| x, X::min),
            Fold::AbsMax => fold(xs, unit, X::abs, X::max),
            Fold::AbsMin => fold(xs, unit, X::abs, X::min),
            _ => unreachable!("a fold that finds an extreme"),
        }
    }
}

/// Folds rows `pitch` apart into `acc`, element by element.
pub(super) struct Columns<'a, X: Compute> {
    pub(super) fold: Fold,
    pub(super) first: *const X,
    pub(super) pitch: usize,
    pub(super) rows: usize,
    pub(super) acc: &'a mut [X::Wide],
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
        if fold == Fold::WideSum {
            for r in 0..rows {
                let a = row(r);
                for i in 0..n {
                    acc[i] = acc[i].add(a[i].widen())
                }
            }
            return;
        }
        with_fold!(fold, X, FMA, (map, merge, join) => {
            let mut r = 0;
            // Four rows and no more: the compiler gives up on vectors when it has to tell many stretches of memory apart.
            while r + 4 <= rows {
                let (a, b, c, d) = (row(r), row(r + 1), row(r + 2), row(r + 3));
                for i in 0..n {
                    let ab = merge(map(a[i], p[i]), map(b[i], p[i]));
                    let cd = merge(map(c[i], p[i]), map(d[i], p[i]));
                    acc[i] = join(acc[i], merge(ab, cd).widen())
                }
                r += 4;
            }
            for r in r..rows {
                let a = row(r);
                for i in 0..n {
                    acc[i] = join(acc[i], map(a[i], p[i]).widen())
                }
            }
        })
    }
}
