//! Values with tensors at known places, as modules and transforms take and return them: one tensor, or tuples, vectors,
//! arrays and maps of tensors and plain values, nested as you like.

use crate::{DType, Device, Error, Result, Tensor};
use indexmap::IndexMap;
use std::hash::Hash;

/// A structure with tensors at its leaves. A place that holds something else (a number, an absent tensor) is an empty
/// slot and stays as it is.
pub trait TensorTree: Clone + 'static {
    /// The same structure with something else in the place of each tensor.
    type With<X>;

    /// Calls `f` for every slot in order, with its tensor or `None`.
    fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>));

    /// The same structure with `f` of every tensor, in order.
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>>;

    /// The same structure with other tensors, taken in order.
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self>;

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

impl TensorTree for Tensor {
    type With<X> = X;
    fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        f(Some(self))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<X> {
        f(self)
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        f(self)
    }
}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {$(
        impl TensorTree for $t {
            type With<X> = $t;
            fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
                f(None)
            }
            fn map_leaves<X>(&self, _: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<$t> {
                Ok(self.clone())
            }
            fn replace(&self, _: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<$t> {
                Ok(self.clone())
            }
        }
    )*};
}
plain!((), bool, i32, i64, u32, u64, usize, f32, f64, String, &'static str, DType, Device);

impl<T: TensorTree> TensorTree for Option<T> {
    type With<X> = Option<T::With<X>>;
    fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        match self {
            Some(t) => t.visit_slots(f),
            None => f(None),
        }
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.as_ref().map(|t| t.map_leaves(f)).transpose()
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.as_ref().map(|t| t.replace(f)).transpose()
    }
}

impl<T: TensorTree> TensorTree for Vec<T> {
    type With<X> = Vec<T::With<X>>;
    fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        self.iter().for_each(|t| t.visit_slots(f))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        self.iter().map(|t| t.map_leaves(f)).collect()
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.iter().map(|t| t.replace(f)).collect()
    }
}

impl<T: TensorTree, const N: usize> TensorTree for [T; N] {
    type With<X> = [T::With<X>; N];
    fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        self.iter().for_each(|t| t.visit_slots(f))
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<Self::With<X>> {
        let items = self.iter().map(|t| t.map_leaves(f)).collect::<Result<Vec<_>>>()?;
        Ok(items.try_into().unwrap_or_else(|_| unreachable!("as many as there were")))
    }
    fn replace(&self, f: &mut dyn FnMut(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let items = self.iter().map(|t| t.replace(f)).collect::<Result<Vec<_>>>()?;
        Ok(items.try_into().unwrap_or_else(|_| unreachable!("as many as there were")))
    }
}

impl<K: Hash + Eq + Clone + 'static, T: TensorTree> TensorTree for IndexMap<K, T> {
    type With<X> = IndexMap<K, T::With<X>>;
    fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        self.values().for_each(|t| t.visit_slots(f))
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
            fn visit_slots(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
                $(self.$at.visit_slots(f);)+
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
