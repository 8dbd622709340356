//! Trees (PyTorch's pytrees): the arguments and results of functions that firebrand transforms, wraps or compiles:
//! tensors, numbers, host values and handles, in tuples, lists and maps, nested arbitrarily.
//!
//! A tree lists its leaves in a fixed order and can be rebuilt with other leaves. Transforms and module hooks look at
//! tensors only; everything else is a constant to them. The compiler looks at all leaves: plain host values
//! (`bool`, integers, floats, text) are part of a function's code as far as it is concerned, a [`Number`] or [`SymInt`] may
//! become an input of a graph.

use crate::autograd::RemovableHandle;
use crate::number::Number;
use crate::{DType, Device, Error, Result, SymInt, Tensor};
use indexmap::IndexMap;
use std::any::Any;

use std::hash::Hash;
use std::sync::Arc;

/// A leaf of a tree.
#[derive(Debug)]
#[non_exhaustive]
pub enum Leaf<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A tensor of positions: it is neither differentiated nor mapped over.
    Index(&'a Tensor),
    /// A host number that may become an input of a graph.
    Number(&'a Number),
    /// A size that may become an input of a graph.
    Size(SymInt),
    /// A host value.
    Host(Host<'a>),
    /// A cell that the function and its caller share.
    Shared(SharedRef),
    /// A handle to a hook.
    Handle(&'a RemovableHandle),
}

/// A cell of any type.
#[derive(Clone)]
pub struct SharedRef {
    /// Where it is.
    pub address: usize,
    /// The cell.
    pub cell: Arc<dyn Any + Send + Sync>,
}

/// A host value, or part of the structure around the leaves.
#[derive(Clone, Debug, PartialEq)]
pub enum Host<'a> {
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float, by its bits.
    Float(u64),
    /// A string; also the name of an enum's variant.
    Text(std::borrow::Cow<'a, str>),
    /// How many elements follow.
    Len(usize),
    /// The key of the value that follows.
    Key(std::borrow::Cow<'a, str>),
    /// An absent value.
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
            Host::Key(s) => Host::Key(s.clone().into_owned().into()),
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
            Host::Key(s) => write!(f, "key {s}"),
            Host::Len(n) => write!(f, "{n} elements"),
            Host::None => f.write_str("nothing"),
        }
    }
}

/// Makes new leaves.
pub trait Rebuild {
    /// For a tensor.
    fn tensor(&mut self, t: &Tensor) -> Tensor;
    /// For a tensor of positions.
    fn index(&mut self, t: &Tensor) -> Tensor {
        self.tensor(t)
    }
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

/// A value composed of leaves.
///
/// The tensors are its *slots*, in order; a position that holds something else (a number, an absent tensor) is an empty slot
/// and stays unchanged.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument or result here",
    label = "use tensors, Numbers, host values, handles and Shared cells, in tuples, arrays, Vec, Option or IndexMap"
)]
pub trait TensorTree: Clone + 'static {
    /// The same structure with another type in place of each tensor.
    type With<X>;

    /// Shows every leaf, in order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>));

    /// The same structure with new leaves, made in the same order.
    fn rebuild(&self, make: &mut dyn Rebuild) -> Self;

    /// The same structure with `f` of every tensor, in order.
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>>;

    /// Calls `f` for every slot in order, with its tensor or `None`.
    fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        self.visit(&mut |leaf| match leaf {
            Leaf::Tensor(t) => f(Some(t)),
            Leaf::Index(_) | Leaf::Host(Host::Len(_) | Host::Key(_)) => {}
            _ => f(None),
        })
    }

    /// The same structure with other tensors, taken in order.
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let mut make = Replace { f, failed: None };
        let made = self.rebuild(&mut make);
        make.failed.map_or(Ok(made), Err)
    }

    /// The tensors in order.
    fn leaves(&self) -> Vec<Tensor> {
        let mut list = Vec::new();
        self.visit_slots(&mut |t| list.extend(t.cloned()));
        list
    }

    /// The same structure with the tensors of a list, which has one for every leaf.
    fn with_leaves(&self, leaves: Vec<Tensor>) -> Result<Self> {
        let mut leaves = leaves.into_iter();
        self.replace(&mut |_| leaves.next().ok_or_else(|| Error::argument("tree", "fewer tensors than leaves")))
    }
}

/// Puts other tensors in place, up to the first error.
struct Replace<'a> {
    f: &'a mut dyn FnMut(&Tensor) -> Result<Tensor>,
    failed: Option<Error>,
}

impl Rebuild for Replace<'_> {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        if self.failed.is_none() {
            match (self.f)(t) {
                Ok(made) => return made,
                Err(e) => self.failed = Some(e),
            }
        }
        t.clone()
    }
    fn index(&mut self, t: &Tensor) -> Tensor {
        t.clone()
    }
}

impl TensorTree for Tensor {
    type With<X> = X;
    #[inline]
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Tensor(self))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> Tensor {
        make.tensor(self)
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<X> {
        f(self)
    }
}

/// Leaves that are not tensors.
macro_rules! leaves {
    ($($t:ty: |$v:ident| $leaf:expr, |$make:ident| $rebuilt:expr;)*) => {$(
        impl TensorTree for $t {
            type With<X> = $t;
            fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                let $v = self;
                see($leaf)
            }
            fn rebuild(&self, $make: &mut dyn Rebuild) -> $t {
                let $v = self;
                $rebuilt
            }
            fn map_leaves<X>(&self, _: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<$t> {
                Ok(self.clone())
            }
        }
    )*};
}
leaves! {
    Number: |n| Leaf::Number(n), |make| make.number(n);
    SymInt: |n| Leaf::Size(*n), |make| make.size(*n);
    RemovableHandle: |h| Leaf::Handle(h), |make| make.handle(h);
}

macro_rules! hosts {
    ($($t:ty: |$v:ident| $host:expr;)*) => {$(
        leaves! { $t: |$v| Leaf::Host($host), |_make| $v.clone(); }
    )*};
}
hosts! {
    (): |_v| Host::None;
    bool: |v| Host::Bool(*v);
    i32: |v| Host::Int(i64::from(*v));
    i64: |v| Host::Int(*v);
    u32: |v| Host::Int(i64::from(*v));
    u64: |v| Host::Int(*v as i64);
    usize: |v| Host::Int(*v as i64);
    f32: |v| Host::Float(f64::from(*v).to_bits());
    f64: |v| Host::Float(v.to_bits());
    String: |v| Host::Text(v.as_str().into());
    &'static str: |v| Host::Text((*v).into());
    DType: |v| Host::Text(v.name().into());
    Device: |v| Host::Text(v.name().into());
}

impl<T: TensorTree> TensorTree for Option<T> {
    type With<X> = Option<T::With<X>>;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        match self {
            Some(t) => t.visit(see),
            None => see(Leaf::Host(Host::None)),
        }
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> Option<T> {
        self.as_ref().map(|t| t.rebuild(make))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.as_ref().map(|t| t.map_leaves(f)).transpose()
    }
}

impl<T: TensorTree> TensorTree for Vec<T> {
    type With<X> = Vec<T::With<X>>;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Host(Host::Len(self.len())));
        self.iter().for_each(|t| t.visit(see))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> Vec<T> {
        self.iter().map(|t| t.rebuild(make)).collect()
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.iter().map(|t| t.map_leaves(f)).collect()
    }
}

impl<T: TensorTree, const N: usize> TensorTree for [T; N] {
    type With<X> = [T::With<X>; N];
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        self.iter().for_each(|t| t.visit(see))
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> [T; N] {
        std::array::from_fn(|i| self[i].rebuild(make))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        let items = self.iter().map(|t| t.map_leaves(f)).collect::<Result<Vec<_>>>()?;
        Ok(items.try_into().unwrap_or_else(|_| unreachable!("as many as there were")))
    }
}

impl<K: Hash + Eq + Clone + std::fmt::Debug + 'static, T: TensorTree> TensorTree for IndexMap<K, T> {
    type With<X> = IndexMap<K, T::With<X>>;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Host(Host::Len(self.len())));
        for (key, t) in self {
            see(Leaf::Host(Host::Key(format!("{key:?}").into())));
            t.visit(see);
        }
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> IndexMap<K, T> {
        self.iter().map(|(k, t)| (k.clone(), t.rebuild(make))).collect()
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.iter().map(|(k, t)| Ok((k.clone(), t.map_leaves(f)?))).collect()
    }
}

macro_rules! tuples {
    ($($($name:ident $at:tt),+;)+) => {$(
        impl<$($name: TensorTree),+> TensorTree for ($($name,)+) {
            type With<X> = ($($name::With<X>,)+);
            fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
                $(self.$at.visit(see);)+
            }
            fn rebuild(&self, make: &mut dyn Rebuild) -> Self {
                ($(self.$at.rebuild(make),)+)
            }
            fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
                Ok(($(self.$at.map_leaves(f)?,)+))
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

/// What a transformed or compiled function may return: a tree, or a `Result` of one.
pub trait Outcome {
    /// The tree.
    type Tree: TensorTree;
    /// The tree, or the error.
    fn outcome(self) -> Result<Self::Tree>;
}

impl<T: TensorTree> Outcome for T {
    type Tree = T;
    fn outcome(self) -> Result<T> {
        Ok(self)
    }
}

impl<T: TensorTree> Outcome for Result<T> {
    type Tree = T;
    fn outcome(self) -> Result<T> {
        self
    }
}
