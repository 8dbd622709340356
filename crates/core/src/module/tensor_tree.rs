//! Values made of tensors, as modules take and return them: read and rebuilt by hooks that do not know their type.

use crate::{DType, Device, Result, Tensor};
use std::any::Any;

/// A value with tensors at known places. Places that hold something else count as one empty slot each, as in
/// PyTorch's tuples of gradients.
pub trait TensorTree: Sized + 'static {
    /// Calls `f` for every slot in order, with its tensor or `None`.
    fn visit(&self, f: &mut dyn FnMut(Option<&Tensor>));

    /// The same structure with `f` of every tensor, in the same order.
    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self;

    /// The tensors, in order.
    fn tensors(&self) -> Vec<Tensor> {
        let mut list = Vec::new();
        self.visit(&mut |t| list.extend(t.cloned()));
        list
    }
}

impl TensorTree for Tensor {
    fn visit(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        f(Some(self))
    }
    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Tensor {
        f(self)
    }
}

impl<T: TensorTree> TensorTree for Option<T> {
    fn visit(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        match self {
            Some(t) => t.visit(f),
            None => f(None),
        }
    }
    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Option<T> {
        self.as_ref().map(|t| t.map(f))
    }
}

impl<T: TensorTree> TensorTree for Vec<T> {
    fn visit(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        self.iter().for_each(|t| t.visit(f))
    }
    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Vec<T> {
        self.iter().map(|t| t.map(f)).collect()
    }
}

impl<T: TensorTree, const N: usize> TensorTree for [T; N] {
    fn visit(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
        self.iter().for_each(|t| t.visit(f))
    }
    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> [T; N] {
        std::array::from_fn(|i| self[i].map(f))
    }
}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {$(
        impl TensorTree for $t {
            fn visit(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
                f(None)
            }
            fn map(&self, _: &mut dyn FnMut(&Tensor) -> Tensor) -> $t {
                self.clone()
            }
        }
    )*};
}
plain!((), bool, i32, i64, u32, u64, usize, f32, f64, String, &'static str, DType, Device);

macro_rules! tuple {
    ($($t:ident $k:tt),*) => {
        impl<$($t: TensorTree),*> TensorTree for ($($t,)*) {
            fn visit(&self, f: &mut dyn FnMut(Option<&Tensor>)) {
                $(self.$k.visit(f);)*
            }
            fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
                ($(self.$k.map(f),)*)
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

/// `tree` with other tensors; `wrong` makes the error if their number differs (given expected and found).
pub(super) fn rebuild<T: TensorTree>(
    tree: &T,
    tensors: Vec<Tensor>,
    wrong: impl FnOnce(usize, usize) -> crate::Error,
) -> Result<T> {
    let mut expected = 0;
    tree.visit(&mut |t| expected += usize::from(t.is_some()));
    if tensors.len() != expected {
        return Err(wrong(expected, tensors.len()));
    }
    let mut next = tensors.into_iter();
    Ok(tree.map(&mut |old| next.next().unwrap_or_else(|| old.clone())))
}

/// A value whose type the hooks do not know.
pub(super) trait Erased {
    fn tensors(&self) -> Vec<Tensor>;
    fn replace(&mut self, tensors: Vec<Tensor>, wrong: &dyn Fn(usize, usize) -> crate::Error) -> Result<()>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn type_name(&self) -> &'static str;
}

/// Holds a value for [`Erased`] access.
pub(super) struct Holder<T>(pub(super) T);

impl<T: TensorTree> Erased for Holder<T> {
    fn tensors(&self) -> Vec<Tensor> {
        self.0.tensors()
    }
    fn replace(&mut self, tensors: Vec<Tensor>, wrong: &dyn Fn(usize, usize) -> crate::Error) -> Result<()> {
        self.0 = rebuild(&self.0, tensors, wrong)?;
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        &self.0
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        &mut self.0
    }
    fn type_name(&self) -> &'static str {
        std::any::type_name::<T>()
    }
}
