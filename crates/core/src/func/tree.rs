//! What transforms take and return: one tensor, or tuples, vectors, arrays and maps of tensors, nested as you like.

use crate::{Error, Result, Tensor};
use indexmap::IndexMap;
use std::hash::Hash;

/// A structure with tensors at its leaves.
pub trait TensorTree: Clone {
    /// The same structure with something else at the leaves.
    type With<X>;

    /// Calls `f` with every tensor in order.
    fn visit(&self, f: &mut dyn FnMut(&Tensor));

    /// The same structure with `f` of every tensor, in order.
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>>;

    /// The same structure with other tensors, taken in order.
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self>;

    /// The tensors in order.
    fn leaves(&self) -> Vec<Tensor> {
        let mut list = Vec::new();
        self.visit(&mut |t| list.push(t.clone()));
        list
    }

    /// The same structure with the tensors of a list, which has one for every leaf.
    fn with_leaves(&self, leaves: Vec<Tensor>) -> Result<Self> {
        let mut leaves = leaves.into_iter();
        self.replace(&mut |_| leaves.next().ok_or_else(|| Error::argument("tree", "fewer tensors than leaves")))
    }
}

impl TensorTree for Tensor {
    type With<X> = X;
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        f(self)
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<X> {
        f(self)
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        f(self)
    }
}

impl TensorTree for () {
    type With<X> = ();
    fn visit(&self, _: &mut dyn FnMut(&Tensor)) {}
    fn map_leaves<X>(&self, _: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<()> {
        Ok(())
    }
    fn replace(&self, _: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<()> {
        Ok(())
    }
}

impl<T: TensorTree> TensorTree for Vec<T> {
    type With<X> = Vec<T::With<X>>;
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|t| t.visit(f))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.iter().map(|t| t.map_leaves(f)).collect()
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.iter().map(|t| t.replace(f)).collect()
    }
}

impl<T: TensorTree> TensorTree for Option<T> {
    type With<X> = Option<T::With<X>>;
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|t| t.visit(f))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.as_ref().map(|t| t.map_leaves(f)).transpose()
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.as_ref().map(|t| t.replace(f)).transpose()
    }
}

impl<K: Hash + Eq + Clone, T: TensorTree> TensorTree for IndexMap<K, T> {
    type With<X> = IndexMap<K, T::With<X>>;
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.values().for_each(|t| t.visit(f))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.iter().map(|(k, t)| Ok((k.clone(), t.map_leaves(f)?))).collect()
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.iter().map(|(k, t)| Ok((k.clone(), t.replace(f)?))).collect()
    }
}

macro_rules! tuples {
    ($($($name:ident $at:tt),+;)+) => {$(
        impl<$($name: TensorTree),+> TensorTree for ($($name,)+) {
            type With<X> = ($($name::With<X>,)+);
            fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
                $(self.$at.visit(f);)+
            }
            fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
                Ok(($(self.$at.map_leaves(f)?,)+))
            }
            fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
                Ok(($(self.$at.replace(f)?,)+))
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

/// What a function under a transform may return: tensors, or tensors or an error.
pub trait Outcome {
    /// The tensors.
    type Tree: TensorTree;
    /// The tensors, or the error.
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
