//! `x.i(..)` and `x.set_i(..)`: PyTorch's square brackets.
//!
//! An index is one item or a tuple of items. Integers, ranges and [`NewAxis`] make views; index tensors, masks and
//! lists of positions pick elements (`index`, `index_put_`). Both may be mixed: the view is made first.
//!
//! | PyTorch | here |
//! |---|---|
//! | `x[1]`, `x[-1]` | `x.i(1)`, `x.i(-1)` |
//! | `x[:, 0, 1:3]` | `x.i((.., 0, 1..3))` |
//! | `x[..., 0]` | `x.i((Ellipsis, 0))` |
//! | `x[None]` | `x.i(NewAxis)` |
//! | `x[1:9:2]` | `x.i(Index::from(1..9).step(2))` |
//! | `x[[0, 0, 2]]` | `x.i([0, 0, 2])` |
//! | `x[mask]`, `x[:, index]` | `x.i(&mask)`, `x.i((.., &index))` |
//! | `x[1] = w`, `x[mask] = 0` | `x.set_i(1, &w)`, `x.set_i(&mask, 0)` |
//! | `x[0].mul_(5)` | `x.i(0).mul_(..)` |
//!
//! ```
//! # use firebrand_core as firebrand;
//! use firebrand::{Ellipsis, Tensor};
//! let x = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
//! assert_eq!(x.i((.., -1)).to_vec::<f64>(), [3.0, 6.0]);
//! assert_eq!(x.i((Ellipsis, 1..)).shape(), [2, 2]);
//! assert_eq!(x.i((0, [0, 0, 2])).to_vec::<f64>(), [1.0, 1.0, 3.0]);
//! x.set_i((1, ..2), 0);
//! assert_eq!(x.to_vec::<f64>(), [1.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
//! ```

use crate::ops::shape::view::wrap_index;
use crate::sym::SymInt;
use crate::{DType, Error, Result, Scalar, Tensor, ops};
use smallvec::SmallVec;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A new dimension of size 1.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// All remaining dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// One item of an index.
#[derive(Clone, Debug)]
pub enum Index {
    /// One position; the dimension is removed.
    At(i64),
    /// From `start` to before `end`, every `step`-th.
    Slice {
        /// The first position; the beginning if not given.
        start: Option<i64>,
        /// The position after the last; the end if not given.
        end: Option<i64>,
        /// Distance between positions.
        step: i64,
    },
    /// A new dimension of size 1.
    NewAxis,
    /// All remaining dimensions.
    Ellipsis,
    /// All (true) or nothing (false), along a new dimension.
    Bool(bool),
    /// Positions (integers) or a mask (bool).
    Tensor(Tensor),
}

impl Index {
    /// Every `step`-th of a range; other items stay as they are.
    pub fn step(self, by: i64) -> Index {
        match self {
            Index::Slice { start, end, .. } => Index::Slice { start, end, step: by },
            other => other,
        }
    }
}

const ALL: Index = Index::Slice { start: None, end: None, step: 1 };

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl From<$t> for Index {
            fn from(v: $t) -> Index { Index::At(v as i64) }
        }
        impl From<Range<$t>> for Index {
            fn from(r: Range<$t>) -> Index {
                Index::Slice { start: Some(r.start as i64), end: Some(r.end as i64), step: 1 }
            }
        }
        impl From<RangeFrom<$t>> for Index {
            fn from(r: RangeFrom<$t>) -> Index { Index::Slice { start: Some(r.start as i64), end: None, step: 1 } }
        }
        impl From<RangeTo<$t>> for Index {
            fn from(r: RangeTo<$t>) -> Index { Index::Slice { start: None, end: Some(r.end as i64), step: 1 } }
        }
        impl From<RangeInclusive<$t>> for Index {
            fn from(r: RangeInclusive<$t>) -> Index {
                Index::Slice { start: Some(*r.start() as i64), end: after(*r.end() as i64), step: 1 }
            }
        }
        impl From<RangeToInclusive<$t>> for Index {
            fn from(r: RangeToInclusive<$t>) -> Index { Index::Slice { start: None, end: after(r.end as i64), step: 1 } }
        }
        impl<const N: usize> From<[$t; N]> for Index {
            fn from(v: [$t; N]) -> Index { Index::from(&v[..]) }
        }
        impl From<Vec<$t>> for Index {
            fn from(v: Vec<$t>) -> Index { Index::from(&v[..]) }
        }
        impl From<&[$t]> for Index {
            fn from(v: &[$t]) -> Index {
                Index::Tensor(Tensor::new(&v.iter().map(|&k| k as i64).collect::<Vec<i64>>()))
            }
        }
    )*};
}
integers!(i32, i64, usize);

/// The end of a range that includes its last position; -1 is the last of all.
fn after(last: i64) -> Option<i64> {
    if last == -1 { None } else { Some(last + 1) }
}

impl From<SymInt> for Index {
    fn from(v: SymInt) -> Index {
        Index::At(v.int())
    }
}
impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        ALL
    }
}
impl From<NewAxis> for Index {
    fn from(_: NewAxis) -> Index {
        Index::NewAxis
    }
}
impl From<Ellipsis> for Index {
    fn from(_: Ellipsis) -> Index {
        Index::Ellipsis
    }
}
impl From<bool> for Index {
    fn from(v: bool) -> Index {
        Index::Bool(v)
    }
}
impl From<&Tensor> for Index {
    fn from(t: &Tensor) -> Index {
        Index::Tensor(t.clone())
    }
}
impl From<Tensor> for Index {
    fn from(t: Tensor) -> Index {
        Index::Tensor(t)
    }
}

/// The items of an index.
pub type Indices = SmallVec<[Index; 4]>;

/// What indexing accepts: one item, a tuple of items, or a list made at run time.
pub trait IntoIndex {
    /// The items.
    fn into_index(self) -> Indices;
}

impl<T: Into<Index>> IntoIndex for T {
    fn into_index(self) -> Indices {
        smallvec::smallvec![self.into()]
    }
}
impl IntoIndex for Indices {
    fn into_index(self) -> Indices {
        self
    }
}

macro_rules! tuples {
    ($(($($t:ident $n:tt),+)),*) => {$(
        impl<$($t: Into<Index>),+> IntoIndex for ($($t,)+) {
            fn into_index(self) -> Indices { smallvec::smallvec![$(self.$n.into()),+] }
        }
    )*};
}
tuples!((A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3), (A 0, B 1, C 2, D 3, E 4), (A 0, B 1, C 2, D 3, E 4, F 5));

/// The value of an indexed assignment.
#[derive(Clone, Debug)]
pub enum IndexValue {
    /// Broadcast to the indexed elements.
    Tensor(Tensor),
    /// The same number everywhere.
    Number(Scalar),
}

impl From<&Tensor> for IndexValue {
    fn from(t: &Tensor) -> IndexValue {
        IndexValue::Tensor(t.clone())
    }
}
impl From<Tensor> for IndexValue {
    fn from(t: Tensor) -> IndexValue {
        IndexValue::Tensor(t)
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl From<$t> for IndexValue {
            fn from(v: $t) -> IndexValue { IndexValue::Number(v.into()) }
        }
    )*};
}
numbers!(bool, i32, i64, f32, f64, Scalar);

fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8)
}

/// The view that the plain items select, and the rest for `index`, one entry per dimension.
fn split(x: &Tensor, items: Indices) -> Result<(Tensor, Vec<Option<Tensor>>)> {
    const OP: &str = "index";
    let takes = |item: &Index| match item {
        Index::At(_) | Index::Slice { .. } => 1,
        Index::Tensor(t) if is_mask(t) => t.ndim(),
        Index::Tensor(_) => 1,
        Index::NewAxis | Index::Ellipsis | Index::Bool(_) => 0,
    };
    let named: usize = items.iter().map(takes).sum();
    let gaps = items.iter().filter(|i| matches!(i, Index::Ellipsis)).count();
    if named > x.ndim() || gaps > 1 {
        let m = format!("an index of {named} dimensions and {gaps} ellipses for a tensor of shape {:?}", x.shape());
        return Err(Error::argument(OP, m));
    }
    let mut view = x.clone();
    let mut picks: Vec<Option<Tensor>> = Vec::new();
    // The dimension of `view` that the next item is about.
    let mut d = 0;
    for item in items {
        match item {
            Index::At(at) => view = ops::select(&view, d as i64, at.into())?,
            Index::Tensor(t) if t.ndim() == 0 && !is_mask(&t) => {
                ops::shape::index::need_index(OP, &t)?;
                let at = ops::item(&t)?.to_i64();
                let at = wrap_index(OP, at, d, view.shape()[d])?;
                view = ops::select(&view, d as i64, at.into())?;
            }
            Index::Slice { start, end, step } => {
                if start.is_some() || end.is_some() || step != 1 {
                    let (start, end) = (start.map(SymInt::from), end.map(SymInt::from));
                    view = ops::slice(&view, d as i64, start, end, step.into())?;
                }
                picks.push(None);
                d += 1;
            }
            Index::NewAxis => {
                view = ops::unsqueeze(&view, d as i64)?;
                picks.push(None);
                d += 1;
            }
            Index::Ellipsis => {
                let rest = x.ndim() - named;
                picks.extend((0..rest).map(|_| None));
                d += rest;
            }
            Index::Bool(all) => {
                view = ops::unsqueeze(&view, d as i64)?;
                picks.push(Some(Tensor::new(&[all])));
                d += 1;
            }
            Index::Tensor(t) if t.ndim() == 0 => {
                view = ops::unsqueeze(&view, d as i64)?;
                picks.push(Some(ops::reshape(&t, &[1.into()])?));
                d += 1;
            }
            Index::Tensor(t) => {
                d += if is_mask(&t) { t.ndim() } else { 1 };
                picks.push(Some(t));
            }
        }
    }
    Ok((view, picks))
}

impl Tensor {
    /// The indexed elements: a view if the index has only integers, ranges and new axes, a copy if tensors pick elements.
    pub fn try_i(&self, index: impl IntoIndex) -> Result<Tensor> {
        let (view, picks) = split(self, index.into_index())?;
        if picks.iter().any(Option::is_some) {
            return ops::index(&view, &picks);
        }
        if view.is_same(self) { ops::alias(self) } else { Ok(view) }
    }

    /// The indexed elements; see [`Tensor::try_i`] and the table in the module's documentation.
    ///
    /// # Panics
    /// If the index does not match the tensor.
    #[track_caller]
    pub fn i(&self, index: impl IntoIndex) -> Tensor {
        self.try_i(index).unwrap_or_else(|e| e.raise())
    }

    /// Assigns to the indexed elements, in place and with history. The value is broadcast.
    pub fn try_set_i(&self, index: impl IntoIndex, value: impl Into<IndexValue>) -> Result<()> {
        let (view, picks) = split(self, index.into_index())?;
        if !picks.iter().any(Option::is_some) {
            return match value.into() {
                IndexValue::Number(v) => ops::fill_(&view, v).map(drop),
                IndexValue::Tensor(t) => ops::copy_(&view, &without_leading_ones(&t, view.ndim())?, false).map(drop),
            };
        }
        let values = match value.into() {
            IndexValue::Number(v) => ops::new_full(&view, &[], v, None, None)?,
            IndexValue::Tensor(t) => t,
        };
        ops::index_put_(&view, &picks, &values, false).map(drop)
    }

    /// Assigns to the indexed elements; see [`Tensor::try_set_i`].
    ///
    /// # Panics
    /// If the index does not match the tensor, or the value does not match the indexed elements.
    #[track_caller]
    pub fn set_i(&self, index: impl IntoIndex, value: impl Into<IndexValue>) {
        self.try_set_i(index, value).unwrap_or_else(|e| e.raise())
    }
}

/// A value may have leading dimensions of size 1 more than its place.
fn without_leading_ones(t: &Tensor, ndim: usize) -> Result<Tensor> {
    let extra = t.ndim().saturating_sub(ndim);
    if extra == 0 || t.shape()[..extra].iter().any(|&n| n != 1) {
        return Ok(t.clone());
    }
    let sizes: crate::sym::SymInts = t.shape()[extra..].iter().map(|&n| n.into()).collect();
    ops::view(t, &sizes)
}
