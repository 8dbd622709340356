//! Type-erased inputs and outputs of modules, for hooks.

use super::TensorTree;
use crate::{Result, Tensor};
use std::any::Any;

/// `tree` with other tensors; `wrong` makes the error if their number differs (given expected and found).
pub(super) fn rebuild<T: TensorTree>(
    tree: &T,
    tensors: Vec<Tensor>,
    wrong: impl FnOnce(usize, usize) -> crate::Error,
) -> Result<T> {
    let mut expected = 0;
    tree.visit_slots(&mut |t| expected += usize::from(t.is_some()));
    if tensors.len() != expected {
        return Err(wrong(expected, tensors.len()));
    }
    tree.with_leaves(tensors)
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
        self.0.leaves()
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
