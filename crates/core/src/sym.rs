//! SymInt: a size that is an integer, and under capture may be a symbolic expression.
//!
//! `Copy`: its current value, and next to it the index of an expression in the table of the capture that runs on this
//! thread, if it is one. So every `i64` is an integer and no integer can be mistaken for an expression, and sizes flow through
//! arithmetic without a different type. Arithmetic extends the expression; comparing it or reading the integer returns
//! the current value and records that as a fact the captured graph depends on. Outside [`record`] there are only
//! integers: an expression that a closure kept beyond its capture is its value in the call that the closure runs for
//! ([`SymInt::here`]).
//! Size arguments take anything that implements [`IntoSizes`]: arrays, slices and tuples of integers and `SymInt`s.

use crate::layout::Dims;
use crate::slot::Slot;
use crate::{Error, Result};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A size argument: an integer (or, under capture, an expression).
#[derive(Clone, Copy, Default)]
pub struct SymInt {
    value: i64,
    /// One more than the expression's place in the table; 0 is an integer.
    place: u32,
    /// Which table.
    table: u32,
}

/// A list of sizes.
pub type SymInts = SmallVec<[SymInt; 5]>;

/// Binary operations on sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SymOp {
    Add,
    Sub,
    Mul,
    /// Rounds toward zero, as integer division does.
    Div,
    Rem,
}

impl SymOp {
    /// The result for integers; `None` if it divides by zero or overflows.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            SymOp::Add => a.checked_add(b),
            SymOp::Sub => a.checked_sub(b),
            SymOp::Mul => a.checked_mul(b),
            SymOp::Div => a.checked_div(b),
            SymOp::Rem => a.checked_rem(b),
        }
    }
}

/// The structure of an expression.
#[derive(Clone, Copy, Debug)]
pub enum SymNode {
    /// A value that may differ in the next call; the number identifies it within the capture.
    Symbol(u32),
    /// A function of two others.
    Binary(SymOp, SymInt, SymInt),
}

/// How two sizes compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SymRelation {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
}

impl SymRelation {
    /// Whether this comparison holds for two integers.
    pub fn holds(self, a: i64, b: i64) -> bool {
        match self {
            SymRelation::Less => a < b,
            SymRelation::LessOrEqual => a <= b,
            SymRelation::Equal => a == b,
            SymRelation::NotEqual => a != b,
        }
    }
}

/// A fact about sizes that a captured function depends on: how the left one compares to the right one.
#[derive(Clone, Copy, Debug)]
pub struct SymFact {
    /// The left side.
    pub left: SymInt,
    /// How they compare.
    pub relation: SymRelation,
    /// The right side.
    pub right: SymInt,
}

/// The expressions and facts of one capture.
#[derive(Debug, Default)]
pub struct SymRecord {
    /// The number of the table: no two captures have the same.
    pub table: u32,
    /// Expressions, each with its value now; they refer to earlier ones.
    pub nodes: Vec<(SymNode, i64)>,
    /// In the order they were found.
    pub facts: Vec<SymFact>,
}

/// The record of the capture that runs here, if one does.
static RECORD: Slot<Option<Arc<Mutex<SymRecord>>>> = Slot::new(|| None);

/// Access to the record of the capture that runs here, if one does.
fn recording<R>(f: impl FnOnce(&mut SymRecord) -> R) -> Option<R> {
    RECORD.get().map(|r| f(&mut r.lock().unwrap_or_else(|e| e.into_inner())))
}

/// Runs `f` with an empty table and returns what was recorded.
pub fn record<R>(f: impl FnOnce() -> R) -> (R, SymRecord) {
    static TABLES: AtomicU32 = AtomicU32::new(1);
    let table = Arc::new(Mutex::new(SymRecord { table: TABLES.fetch_add(1, Relaxed), ..SymRecord::default() }));
    let result = {
        let _scope = RECORD.enter(Some(table.clone()));
        f()
    };
    let recorded = std::mem::take(&mut *table.lock().unwrap_or_else(|e| e.into_inner()));
    (result, recorded)
}

fn push(node: SymNode, value: i64) -> SymInt {
    let place = recording(|r| {
        r.nodes.push((node, value));
        (u32::try_from(r.nodes.len()).expect("a capture has fewer than 2^32 expressions"), r.table)
    });
    let (place, table) = place.unwrap_or((0, 0));
    SymInt { value, place, table }
}

impl SymInt {
    /// The size 1.
    pub const ONE: SymInt = SymInt::new(1);

    /// The integer `value`.
    #[inline]
    const fn new(value: i64) -> SymInt {
        SymInt { value, place: 0, table: 0 }
    }

    /// The size as it is here: an expression of the capture that runs, or an integer. In user code that a captured function
    /// left behind (hooks), an expression of that capture is its value in the call that the code runs for.
    #[inline]
    pub fn here(self) -> SymInt {
        if self.place == 0 { self } else { self.kept() }
    }

    #[cold]
    fn kept(self) -> SymInt {
        if recording(|r| r.table) == Some(self.table) {
            return self;
        }
        let value = crate::capture::stand_ins().and_then(|s| s.size(self.table, self.place as usize - 1));
        SymInt::new(value.unwrap_or(self.value))
    }

    /// A value that varies, under the name `symbol`; only inside [`record`].
    pub fn symbol(symbol: u32, value: i64) -> SymInt {
        push(SymNode::Symbol(symbol), value)
    }

    /// Its index in the table, if it is an expression.
    #[inline]
    pub fn expression(self) -> Option<usize> {
        (self.here().place as usize).checked_sub(1)
    }

    /// Its index in the table of a capture that has ended, if it is an expression of that.
    pub fn place_in(self, record: &SymRecord) -> Option<usize> {
        if self.table == record.table { (self.place as usize).checked_sub(1) } else { None }
    }

    /// Its expression, if it belongs to the current capture.
    pub fn parts(self) -> Option<SymNode> {
        let place = self.expression()?;
        recording(|r| r.nodes.get(place).map(|(node, _)| *node)).flatten()
    }

    /// The current value; nothing is recorded.
    #[inline]
    pub fn hint(self) -> i64 {
        self.here().value
    }

    /// The integer. Under capture this is what a guard is recorded on.
    #[inline]
    pub fn int(self) -> i64 {
        let here = self.here();
        if here.place != 0 {
            fact(here, SymRelation::Equal, SymInt::new(here.value));
        }
        here.value
    }

    /// As an index or length; the caller must reject negative values.
    #[inline]
    pub fn to_usize(self) -> Option<usize> {
        usize::try_from(self.int()).ok()
    }

    /// The result of an operation; it extends the expression if one side is one.
    ///
    /// # Panics
    /// If it divides by zero.
    fn combine(self, op: SymOp, o: SymInt) -> SymInt {
        let (left, right) = (self.here(), o.here());
        let (a, b) = (left.value, right.value);
        let value = op.apply(a, b).unwrap_or_else(|| match op {
            // What is beyond every size stays there, so that it is refused where a tensor would have it.
            SymOp::Add => a.saturating_add(b),
            SymOp::Sub => a.saturating_sub(b),
            SymOp::Mul => a.saturating_mul(b),
            SymOp::Div => a.saturating_div(b),
            SymOp::Rem => a.wrapping_rem(b),
        });
        if left.are_plain(right) { SymInt::new(value) } else { push(SymNode::Binary(op, left, right), value) }
    }
}

/// Takes note of a fact, unless both sides are integers.
fn fact(left: SymInt, relation: SymRelation, right: SymInt) {
    if left.are_plain(right) {
        return;
    }
    let _ = recording(|r| r.facts.push(SymFact { left, relation, right }));
}

impl SymInt {
    #[inline]
    fn are_plain(self, o: SymInt) -> bool {
        self.place | o.place == 0
    }

    /// Whether `self < o`; the answer is a fact.
    #[inline]
    fn is_less(self, o: SymInt) -> bool {
        if self.are_plain(o) {
            return self.value < o.value;
        }
        let (left, right) = (self.here(), o.here());
        let less = left.value < right.value;
        match less {
            true => fact(left, SymRelation::Less, right),
            false => fact(right, SymRelation::LessOrEqual, left),
        }
        less
    }
}

impl Ord for SymInt {
    fn cmp(&self, o: &SymInt) -> Ordering {
        if *self == *o {
            Ordering::Equal
        } else if self.is_less(*o) {
            Ordering::Less
        } else {
            Ordering::Greater
        }
    }
}
impl PartialOrd for SymInt {
    fn partial_cmp(&self, o: &SymInt) -> Option<Ordering> {
        Some(self.cmp(o))
    }
    // Each asks for what it needs and no more: `n > 5` must not tell 4 from 5.
    fn lt(&self, o: &SymInt) -> bool {
        self.is_less(*o)
    }
    fn le(&self, o: &SymInt) -> bool {
        !o.is_less(*self)
    }
    fn gt(&self, o: &SymInt) -> bool {
        o.is_less(*self)
    }
    fn ge(&self, o: &SymInt) -> bool {
        !self.is_less(*o)
    }
}
impl PartialEq for SymInt {
    fn eq(&self, o: &SymInt) -> bool {
        if self.are_plain(*o) {
            return self.value == o.value;
        }
        let (left, right) = (self.here(), o.here());
        let equal = left.value == right.value;
        fact(left, if equal { SymRelation::Equal } else { SymRelation::NotEqual }, right);
        equal
    }
}
impl Eq for SymInt {}
impl std::hash::Hash for SymInt {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.int().hash(state)
    }
}

impl std::fmt::Debug for SymInt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hint().fmt(f)
    }
}
impl std::fmt::Display for SymInt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hint().fmt(f)
    }
}

macro_rules! comparisons {
    ($($t:ty),*) => {$(
        impl PartialEq<$t> for SymInt {
            fn eq(&self, o: &$t) -> bool { *self == SymInt::from(*o) }
        }
        impl PartialOrd<$t> for SymInt {
            fn partial_cmp(&self, o: &$t) -> Option<Ordering> { Some(self.cmp(&SymInt::from(*o))) }
            fn lt(&self, o: &$t) -> bool { *self < SymInt::from(*o) }
            fn le(&self, o: &$t) -> bool { *self <= SymInt::from(*o) }
            fn gt(&self, o: &$t) -> bool { *self > SymInt::from(*o) }
            fn ge(&self, o: &$t) -> bool { *self >= SymInt::from(*o) }
        }
        impl PartialEq<SymInt> for $t {
            fn eq(&self, o: &SymInt) -> bool { SymInt::from(*self) == *o }
        }
        impl PartialOrd<SymInt> for $t {
            fn partial_cmp(&self, o: &SymInt) -> Option<Ordering> { Some(SymInt::from(*self).cmp(o)) }
            fn lt(&self, o: &SymInt) -> bool { SymInt::from(*self) < *o }
            fn le(&self, o: &SymInt) -> bool { SymInt::from(*self) <= *o }
            fn gt(&self, o: &SymInt) -> bool { SymInt::from(*self) > *o }
            fn ge(&self, o: &SymInt) -> bool { SymInt::from(*self) >= *o }
        }
    )*};
}
comparisons!(i32, u32, i64, usize);

macro_rules! conversions {
    ($($t:ty, $from:expr);*) => {$(
        impl From<$t> for SymInt {
            #[inline]
            fn from(v: $t) -> SymInt { SymInt::new($from(v)) }
        }
        impl From<SymInt> for $t {
            /// Panics if the size does not fit.
            fn from(v: SymInt) -> $t { <$t>::try_from(v.int()).expect("a size fits the integer type it is converted to") }
        }
    )*};
}
// A size beyond i64 is beyond every tensor: it is refused as i64::MAX is.
conversions!(i32, i64::from; u32, i64::from; usize, |v| i64::try_from(v).unwrap_or(i64::MAX));

impl From<i64> for SymInt {
    #[inline]
    fn from(v: i64) -> SymInt {
        SymInt::new(v)
    }
}
impl From<SymInt> for i64 {
    #[inline]
    fn from(v: SymInt) -> i64 {
        v.int()
    }
}
impl From<&SymInt> for SymInt {
    fn from(v: &SymInt) -> SymInt {
        *v
    }
}
/// Sizes as plain integers.
pub(crate) fn checked_sizes(op: &'static str, sizes: &[SymInt]) -> Result<Dims> {
    sizes
        .iter()
        .map(|&s| s.to_usize().ok_or_else(|| Error::argument(op, format!("a negative size ({s}) in {sizes:?}"))))
        .collect()
}

impl From<SymInt> for crate::Scalar {
    fn from(v: SymInt) -> crate::Scalar {
        crate::Scalar::Int(v.int())
    }
}

macro_rules! arithmetic {
    ($($trait:ident $f:ident $assign:ident $g:ident),*) => {$(
        impl<T: Into<SymInt>> std::ops::$trait<T> for SymInt {
            type Output = SymInt;
            fn $f(self, o: T) -> SymInt { self.combine(SymOp::$trait, o.into()) }
        }
        impl<T: Into<SymInt>> std::ops::$assign<T> for SymInt {
            fn $g(&mut self, o: T) { *self = self.combine(SymOp::$trait, o.into()) }
        }
        arithmetic!(@ $trait $f: i32 u32 i64 usize);
    )*};
    // With the size on the right.
    (@ $trait:ident $f:ident: $($t:ty)*) => {$(
        impl std::ops::$trait<SymInt> for $t {
            type Output = SymInt;
            fn $f(self, o: SymInt) -> SymInt { SymInt::from(self).combine(SymOp::$trait, o) }
        }
    )*};
}
arithmetic!(Add add AddAssign add_assign, Sub sub SubAssign sub_assign, Mul mul MulAssign mul_assign,
    Div div DivAssign div_assign, Rem rem RemAssign rem_assign);

/// As a float: `1.0 / f64::from(x.size(0))`.
impl From<SymInt> for f64 {
    fn from(v: SymInt) -> f64 {
        v.int() as f64
    }
}

impl std::ops::Neg for SymInt {
    type Output = SymInt;
    fn neg(self) -> SymInt {
        SymInt::new(0) - self
    }
}

impl std::iter::Product for SymInt {
    fn product<I: Iterator<Item = SymInt>>(iter: I) -> SymInt {
        iter.fold(SymInt::new(1), |a, b| a * b)
    }
}

impl std::iter::Sum for SymInt {
    fn sum<I: Iterator<Item = SymInt>>(iter: I) -> SymInt {
        iter.fold(SymInt::new(0), |a, b| a + b)
    }
}

/// What a size argument accepts: arrays, slices, vectors and tuples of integers or [`SymInt`]s, or one integer.
pub trait IntoSizes {
    /// The sizes.
    fn into_sizes(self) -> SymInts;
}

impl<T: Into<SymInt>, const N: usize> IntoSizes for [T; N] {
    fn into_sizes(self) -> SymInts {
        self.into_iter().map(Into::into).collect()
    }
}
impl<T: Copy + Into<SymInt>, const N: usize> IntoSizes for &[T; N] {
    fn into_sizes(self) -> SymInts {
        self.iter().map(|&v| v.into()).collect()
    }
}
impl<T: Copy + Into<SymInt>> IntoSizes for &[T] {
    fn into_sizes(self) -> SymInts {
        self.iter().map(|&v| v.into()).collect()
    }
}
impl<T: Copy + Into<SymInt>> IntoSizes for &Vec<T> {
    fn into_sizes(self) -> SymInts {
        self.iter().map(|&v| v.into()).collect()
    }
}
impl<T: Into<SymInt>> IntoSizes for Vec<T> {
    fn into_sizes(self) -> SymInts {
        self.into_iter().map(Into::into).collect()
    }
}
impl IntoSizes for SymInts {
    fn into_sizes(self) -> SymInts {
        self
    }
}
impl IntoSizes for &SymInts {
    fn into_sizes(self) -> SymInts {
        self.clone()
    }
}
impl IntoSizes for () {
    fn into_sizes(self) -> SymInts {
        SymInts::new()
    }
}

macro_rules! single {
    ($($t:ty),*) => {$(
        impl IntoSizes for $t {
            fn into_sizes(self) -> SymInts { smallvec::smallvec![self.into()] }
        }
    )*};
}
single!(i32, u32, i64, usize, SymInt);

macro_rules! tuples {
    ($(($($t:ident $n:tt),+)),*) => {$(
        impl<$($t: Into<SymInt>),+> IntoSizes for ($($t,)+) {
            fn into_sizes(self) -> SymInts { smallvec::smallvec![$(self.$n.into()),+] }
        }
    )*};
}
tuples!((A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3), (A 0, B 1, C 2, D 3, E 4), (A 0, B 1, C 2, D 3, E 4, F 5));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_an_integer() {
        let n = SymInt::from(6);
        assert_eq!(n / 2 + 1 - 4, 0);
        assert!(n > 5 && n < 7usize);
        assert_eq!([1, 2, 3, 4, 5, 6, 7][usize::from(n)], 7);
        assert_eq!((n, -1).into_sizes().as_slice(), &[SymInt::from(6), SymInt::from(-1)]);
    }

    /// On either side of an operator, whatever the integer's type.
    #[test]
    fn mixes_with_integers() {
        let mut n = SymInt::from(6);
        assert_eq!((2i64 * n, 10usize - n, 13i32 / n, 8u32 % n), (12.into(), 4.into(), 2.into(), 2.into()));
        assert!(5 < n && 6usize == n && 7i64 >= n);
        n += 2;
        n *= 3usize;
        assert_eq!(n, 24);
        assert_eq!(1.0 / f64::from(n / 6), 0.25);
    }

    /// The lowest quarter of the range once stood for expressions.
    #[test]
    fn every_integer_is_an_integer() {
        let ((), r) = record(|| {
            let n = SymInt::symbol(0, 6);
            for v in [i64::MIN, i64::MIN + 1, -(1 << 62) - 1, -(1 << 62), -1, 0, i64::MAX] {
                let s = SymInt::from(v);
                assert_eq!((s.int(), s.hint(), s.expression(), s.parts().is_none()), (v, v, None, true));
                assert_eq!(format!("{s} {s:?}"), format!("{v} {v}"));
                assert_eq!(s.to_usize(), usize::try_from(v).ok());
                assert!(s == v && (s < 6) == (v < 6));
            }
            assert_eq!((n + i64::MIN).hint(), i64::MIN + 6);
        });
        assert_eq!((r.nodes.len(), r.facts.len()), (2, 0), "integers are neither expressions nor facts");
        assert_eq!(SymInt::from(usize::MAX), i64::try_from(usize::MAX).unwrap_or(i64::MAX));
        assert_eq!(SymInt::from(i64::MAX) * 2 + 1, i64::MAX);
    }

    #[test]
    fn an_expression_kept_beyond_its_capture_is_its_value() {
        let (n, _) = record(|| SymInt::symbol(0, 6));
        assert_eq!((n.int(), (n + 1).int(), n > 5, n.parts().is_none()), (6, 7, true, true));
    }

    #[test]
    fn arithmetic_extends_an_expression_and_comparisons_are_facts() {
        let ((), r) = record(|| {
            let n = SymInt::symbol(0, 6);
            let half = n / 2 + 1;
            assert_eq!((half.hint(), half.expression().is_some()), (4, true));
            assert!(n > 5);
            assert_eq!(half.int(), 4);
        });
        assert_eq!(r.nodes.len(), 3);
        let relations: Vec<SymRelation> = r.facts.iter().map(|f| f.relation).collect();
        assert_eq!(relations, [SymRelation::Less, SymRelation::Equal]);
    }
}
