//! SymInt: a size that is an integer today and may be an expression under capture.
//!
//! One machine word, `Copy`. Integers are stored as they are; the lowest quarter of the range is reserved for indices
//! into the expression table of the capture that runs on this thread, so sizes flow through arithmetic without a
//! different type. Arithmetic extends the expression; comparing it or asking for the integer answers with the value it
//! has now and records that as a fact the captured graph depends on. Outside [`record`] there are only integers.
//! Size arguments take anything that implements [`IntoSizes`]: arrays, slices and tuples of integers and `SymInt`s.

use smallvec::SmallVec;
use std::cell::RefCell;
use std::cmp::Ordering;

/// A size argument: an integer (or, under capture, an expression).
#[derive(Clone, Copy, Default)]
pub struct SymInt(i64);

/// A list of sizes.
pub type SymInts = SmallVec<[SymInt; 5]>;

/// What lies below is an index into the table.
const EXPRESSIONS: i64 = i64::MIN + (1 << 62);

/// How two sizes are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SymOp {
    Add,
    Sub,
    Mul,
    /// Rounds towards zero, as integers do.
    Div,
    Rem,
}

impl SymOp {
    /// The result for integers; none if it divides by zero or overflows.
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

/// What an expression is made of.
#[derive(Clone, Copy, Debug)]
pub enum SymNode {
    /// A value that may be another one in the next call; the number is the capture's own name for it.
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
    /// Whether two integers compare so.
    pub fn holds(self, a: i64, b: i64) -> bool {
        match self {
            SymRelation::Less => a < b,
            SymRelation::LessOrEqual => a <= b,
            SymRelation::Equal => a == b,
            SymRelation::NotEqual => a != b,
        }
    }
}

/// What a captured function has found out about sizes: the left one compares so to the right one.
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
    /// Expressions, each with its value now; they refer to earlier ones.
    pub nodes: Vec<(SymNode, i64)>,
    /// In the order they were found.
    pub facts: Vec<SymFact>,
}

thread_local! {
    static RECORD: RefCell<Option<SymRecord>> = const { RefCell::new(None) };
}

/// Access to the record of the capture that runs on this thread.
fn recording<R>(f: impl FnOnce(&mut SymRecord) -> R) -> R {
    RECORD.with_borrow_mut(|r| f(r.as_mut().expect("expressions live inside `record`")))
}

/// Runs `f` with an empty table and returns what was recorded. Expressions must not be kept beyond it.
pub fn record<R>(f: impl FnOnce() -> R) -> (R, SymRecord) {
    struct Restore(Option<SymRecord>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            RECORD.with_borrow_mut(|r| *r = before);
        }
    }
    let _restore = Restore(RECORD.with_borrow_mut(|r| r.replace(SymRecord::default())));
    let result = f();
    let recorded = RECORD.with_borrow_mut(|r| r.take().unwrap_or_default());
    (result, recorded)
}

fn push(node: SymNode, value: i64) -> SymInt {
    recording(|r| {
        r.nodes.push((node, value));
        SymInt(i64::MIN + (r.nodes.len() as i64 - 1))
    })
}

impl SymInt {
    /// The size 1.
    pub const ONE: SymInt = SymInt(1);

    /// A value that varies, under the name `symbol`; only inside [`record`].
    pub fn symbol(symbol: u32, value: i64) -> SymInt {
        push(SymNode::Symbol(symbol), value)
    }

    /// Where it is in the table, if it is an expression.
    #[inline]
    pub fn expression(self) -> Option<usize> {
        if self.0 < EXPRESSIONS { Some((self.0 - i64::MIN) as usize) } else { None }
    }

    /// What it is made of, if it is an expression.
    pub fn parts(self) -> Option<SymNode> {
        self.expression().map(|i| recording(|r| r.nodes[i].0))
    }

    /// The value it has now; nothing is recorded.
    #[inline]
    pub fn hint(self) -> i64 {
        match self.expression() {
            None => self.0,
            Some(i) => recording(|r| r.nodes[i].1),
        }
    }

    /// The integer. Under capture this is what a guard is recorded on.
    #[inline]
    pub fn int(self) -> i64 {
        if self.0 >= EXPRESSIONS {
            return self.0;
        }
        let value = self.hint();
        fact(self, SymRelation::Equal, SymInt(value));
        value
    }

    /// As an index or length; negative values are the caller's to refuse.
    #[inline]
    pub fn to_usize(self) -> Option<usize> {
        usize::try_from(self.int()).ok()
    }

    fn combine(self, op: SymOp, o: SymInt, plain: impl FnOnce(i64, i64) -> i64) -> SymInt {
        if self.0 >= EXPRESSIONS && o.0 >= EXPRESSIONS {
            return SymInt(plain(self.0, o.0));
        }
        push(SymNode::Binary(op, self, o), plain(self.hint(), o.hint()))
    }
}

fn fact(left: SymInt, relation: SymRelation, right: SymInt) {
    recording(|r| r.facts.push(SymFact { left, relation, right }));
}

impl SymInt {
    #[inline]
    fn are_plain(self, o: SymInt) -> bool {
        self.0 >= EXPRESSIONS && o.0 >= EXPRESSIONS
    }

    /// Whether `self < o`; the answer is a fact.
    #[inline]
    fn is_less(self, o: SymInt) -> bool {
        if self.are_plain(o) {
            return self.0 < o.0;
        }
        let less = self.hint() < o.hint();
        match less {
            true => fact(self, SymRelation::Less, o),
            false => fact(o, SymRelation::LessOrEqual, self),
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
            return self.0 == o.0;
        }
        let equal = self.hint() == o.hint();
        fact(*self, if equal { SymRelation::Equal } else { SymRelation::NotEqual }, *o);
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
            fn eq(&self, o: &$t) -> bool { *self == SymInt(*o as i64) }
        }
        impl PartialOrd<$t> for SymInt {
            fn partial_cmp(&self, o: &$t) -> Option<Ordering> { Some(self.cmp(&SymInt(*o as i64))) }
            fn lt(&self, o: &$t) -> bool { *self < SymInt(*o as i64) }
            fn le(&self, o: &$t) -> bool { *self <= SymInt(*o as i64) }
            fn gt(&self, o: &$t) -> bool { *self > SymInt(*o as i64) }
            fn ge(&self, o: &$t) -> bool { *self >= SymInt(*o as i64) }
        }
    )*};
}
comparisons!(i32, u32, i64, usize);

macro_rules! conversions {
    ($($t:ty),*) => {$(
        impl From<$t> for SymInt {
            #[inline]
            fn from(v: $t) -> SymInt { SymInt(v as i64) }
        }
        impl From<SymInt> for $t {
            /// Panics if the size does not fit.
            fn from(v: SymInt) -> $t { <$t>::try_from(v.int()).expect("a size fits the integer type it is converted to") }
        }
    )*};
}
conversions!(i32, u32, usize);

impl From<i64> for SymInt {
    #[inline]
    fn from(v: i64) -> SymInt {
        SymInt(v)
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
impl From<SymInt> for crate::Scalar {
    fn from(v: SymInt) -> crate::Scalar {
        crate::Scalar::Int(v.int())
    }
}

macro_rules! arithmetic {
    ($($trait:ident $f:ident $op:tt),*) => {$(
        impl<T: Into<SymInt>> std::ops::$trait<T> for SymInt {
            type Output = SymInt;
            fn $f(self, o: T) -> SymInt { self.combine(SymOp::$trait, o.into(), |a, b| a $op b) }
        }
    )*};
}
arithmetic!(Add add +, Sub sub -, Mul mul *, Div div /, Rem rem %);

impl std::ops::Neg for SymInt {
    type Output = SymInt;
    fn neg(self) -> SymInt {
        SymInt(0) - self
    }
}

impl std::iter::Product for SymInt {
    fn product<I: Iterator<Item = SymInt>>(iter: I) -> SymInt {
        iter.fold(SymInt(1), |a, b| a * b)
    }
}

impl std::iter::Sum for SymInt {
    fn sum<I: Iterator<Item = SymInt>>(iter: I) -> SymInt {
        iter.fold(SymInt(0), |a, b| a + b)
    }
}

/// What a size argument accepts: arrays, slices, vectors and tuples of integers or [`SymInt`]s, or one number.
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
