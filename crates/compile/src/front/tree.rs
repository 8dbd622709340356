//! What compiled functions take and return: tensors, host values and handles, in tuples, lists and maps.
//!
//! A tree shows its leaves in a fixed order and can be made again with other leaves. Plain host values (`bool`, integers,
//! floats, text) are part of a function's code as far as the compiler is concerned: a call with another value compiles
//! again. A [`Number`] or [`SymInt`] may become an input of the graph instead.

use crate::front::number::Number;
use firebrand_core::autograd::RemovableHandle;
use firebrand_core::{DType, Device, SymInt, Tensor};
use indexmap::IndexMap;
use std::any::Any;
use std::hash::Hash;
use std::sync::Arc;

/// A leaf of a tree.
pub enum Leaf<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A host number that may become an input.
    Number(&'a Number),
    /// A size that may become an input.
    Size(SymInt),
    /// A host value.
    Host(Host<'a>),
    /// A cell.
    Shared(SharedRef),
    /// A handle to a hook.
    Handle(&'a RemovableHandle),
}

/// A cell of any type: where it is, and the cell.
#[derive(Clone)]
pub struct SharedRef {
    pub(crate) address: usize,
    pub(crate) cell: Arc<dyn Any + Send + Sync>,
}

/// A host value that a graph is compiled for.
#[derive(Clone, Debug, PartialEq)]
pub enum Host<'a> {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float, by its bits.
    Float(u64),
    /// Text, also the name of an enum's variant.
    Text(std::borrow::Cow<'a, str>),
    /// How many elements follow.
    Len(usize),
    /// Nothing is here.
    None,
}

impl Host<'_> {
    /// The value with text of its own.
    pub fn to_owned(&self) -> Host<'static> {
        match self {
            Host::Text(s) => Host::Text(s.clone().into_owned().into()),
            Host::Bool(b) => Host::Bool(*b),
            Host::Int(i) => Host::Int(*i),
            Host::Float(f) => Host::Float(*f),
            Host::Len(n) => Host::Len(*n),
            Host::None => Host::None,
        }
    }
}

impl std::fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Host::Bool(b) => b.fmt(f),
            Host::Int(i) => i.fmt(f),
            Host::Float(bits) => f64::from_bits(*bits).fmt(f),
            Host::Text(s) => write!(f, "{s:?}"),
            Host::Len(n) => write!(f, "{n} elements"),
            Host::None => f.write_str("nothing"),
        }
    }
}

/// Makes new leaves.
pub trait Rebuild {
    /// For a tensor.
    fn tensor(&mut self, t: &Tensor) -> Tensor;
    /// For a number.
    fn number(&mut self, n: &Number) -> Number {
        n.clone()
    }
    /// For a size.
    fn size(&mut self, n: SymInt) -> SymInt {
        n
    }
    /// For a handle.
    fn handle(&mut self, h: &RemovableHandle) -> RemovableHandle {
        h.clone()
    }
}

/// A value made of leaves.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument or result of a compiled function",
    label = "use tensors, Numbers, host values, handles and Shared cells, in tuples, arrays, Vec, Option or IndexMap"
)]
pub trait Tree: Sized + 'static {
    /// Shows every leaf, in order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>));
    /// The same structure with new leaves, made in the same order.
    fn rebuild(&self, make: &mut dyn Rebuild) -> Self;
}

impl Tree for Tensor {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Tensor(self))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> Tensor {
        make.tensor(self)
    }
}
impl Tree for Number {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Number(self))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> Number {
        make.number(self)
    }
}
impl Tree for SymInt {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Size(*self))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> SymInt {
        make.size(*self)
    }
}
impl Tree for RemovableHandle {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Handle(self))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> RemovableHandle {
        make.handle(self)
    }
}

macro_rules! hosts {
    ($($t:ty => |$v:ident| $host:expr;)*) => {$(
        impl Tree for $t {
            fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                let $v = self;
                see(Leaf::Host($host))
            }
            fn rebuild(&self, _: &mut dyn Rebuild) -> $t {
                self.clone()
            }
        }
    )*};
}
hosts! {
    bool => |v| Host::Bool(*v);
    i32 => |v| Host::Int(i64::from(*v));
    i64 => |v| Host::Int(*v);
    u32 => |v| Host::Int(i64::from(*v));
    u64 => |v| Host::Int(*v as i64);
    usize => |v| Host::Int(*v as i64);
    f32 => |v| Host::Float(f64::from(*v).to_bits());
    f64 => |v| Host::Float(v.to_bits());
    String => |v| Host::Text(v.as_str().into());
    &'static str => |v| Host::Text((*v).into());
    DType => |v| Host::Text(v.name().into());
    Device => |v| Host::Text(v.name().into());
}

impl Tree for () {
    fn visit<'a>(&'a self, _: &mut dyn FnMut(Leaf<'a>)) {}
    fn rebuild(&self, _: &mut dyn Rebuild) {}
}

impl<T: Tree> Tree for Option<T> {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        match self {
            Some(t) => t.visit(see),
            None => see(Leaf::Host(Host::None)),
        }
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> Option<T> {
        self.as_ref().map(|t| t.rebuild(make))
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Host(Host::Len(self.len())));
        self.iter().for_each(|t| t.visit(see))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> Vec<T> {
        self.iter().map(|t| t.rebuild(make)).collect()
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        self.iter().for_each(|t| t.visit(see))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> [T; N] {
        std::array::from_fn(|i| self[i].rebuild(make))
    }
}

impl<K: Hash + Eq + Clone + std::fmt::Debug + 'static, T: Tree> Tree for IndexMap<K, T> {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Host(Host::Len(self.len())));
        for (key, t) in self {
            see(Leaf::Host(Host::Text(format!("{key:?}").into())));
            t.visit(see);
        }
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> IndexMap<K, T> {
        self.iter().map(|(k, t)| (k.clone(), t.rebuild(make))).collect()
    }
}

macro_rules! tuples {
    ($($($name:ident $at:tt),+;)+) => {$(
        impl<$($name: Tree),+> Tree for ($($name,)+) {
            fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                $(self.$at.visit(see);)+
            }
            fn rebuild(&self, make: &mut dyn Rebuild) -> Self {
                ($(self.$at.rebuild(make),)+)
            }
        }
    )+};
}
tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}

/// What a compiled function may return: a tree, or a tree or an error.
pub trait Outcome {
    /// The tree.
    type Tree: Tree;
    /// The tree, or the error.
    fn outcome(self) -> firebrand_core::Result<Self::Tree>;
}
impl<T: Tree> Outcome for T {
    type Tree = T;
    fn outcome(self) -> firebrand_core::Result<T> {
        Ok(self)
    }
}
impl<T: Tree> Outcome for firebrand_core::Result<T> {
    type Tree = T;
    fn outcome(self) -> firebrand_core::Result<T> {
        self
    }
}
