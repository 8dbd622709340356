//! Generated derivatives as data: a formula with its saved values, and one node type for all of them.
//!
//! The saved values of a node are a tuple. Derivatives that save the same types share all code around their formula: how values
//! are moved out, copied, shown, hooked, outlined and released. A formula itself is a plain function.

use super::node::{Backward, BoxedBackward, Gradients, Needs, Node, boxed};
use super::saved::{PlainSlot, SavedAt, SavedHooks, SavedSlot, SavedTensor, SavedValue, hook_slot};
use super::saved_visit::{SavedVisitor, Visit};
use crate::dispatch::MemoryFormat;
use crate::sym::SymInts;
use crate::{DType, Device, Layout, Result, Scalar, Spec, SymInt, Tensor};
use smallvec::smallvec;
use std::any::Any;
use std::sync::Arc;

/// `apply(node, saved, grads, needs, gradients)`: stores the gradients that are needed. At least one of `grads` is defined.
type Apply<T> = fn(&Node, T, &[Option<Tensor>], &Needs<'_>, &mut [Option<Tensor>]) -> Result<()>;

/// One derivative.
pub(crate) struct Formula<T: 'static> {
    /// `MulBackward0`.
    pub(crate) name: &'static str,
    /// The names of the saved values, in order.
    pub(crate) names: &'static [&'static str],
    pub(crate) apply: Apply<T>,
}

impl<T: Fields + Clone> Formula<T> {
    /// The saved values of a node, if there are tensors among them: released after the last run.
    #[inline]
    pub(crate) fn keep(&'static self, saved: T) -> BoxedBackward {
        boxed(Recorded { formula: self, saved: SavedSlot::new(saved) })
    }

    /// The saved values of a node without tensors: never released, so the node can run any number of times.
    #[inline]
    pub(crate) fn keep_plain(&'static self, saved: T) -> BoxedBackward {
        boxed(Plain { formula: self, saved: PlainSlot::new(saved) })
    }

    #[inline]
    fn run(
        &self,
        node: &Node,
        grads: &[Option<Tensor>],
        needs: &Needs<'_>,
        take: impl FnOnce() -> Result<T>,
    ) -> Result<Gradients> {
        let mut gradients: Gradients = smallvec![None; needs.len()];
        if grads.iter().any(Option::is_some) {
            (self.apply)(node, take()?, grads, needs, &mut gradients)?;
        }
        Ok(gradients)
    }
}

struct Recorded<T: 'static> {
    formula: &'static Formula<T>,
    saved: SavedSlot<T>,
}

impl<T: Fields + Clone> Backward for Recorded<T> {
    fn name(&self) -> &str {
        self.formula.name
    }
    fn apply(&self, node: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        self.formula.run(node, &grads, needs, || self.saved.take_or_clone(node, needs))
    }
    fn release(&self) {
        self.saved.release()
    }
    fn takes_saved(&self) -> bool {
        true
    }
    fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
        show_kept(self, node)
    }
    fn visit_saved(&self, node: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
        visit_kept(self, node, visitor)
    }
    fn declared_at(&self) -> Option<u64> {
        Some(std::ptr::from_ref(self.formula).addr() as u64)
    }
    fn outlined(
        &self,
        node: &Node,
        outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
    ) -> Result<Option<BoxedBackward>> {
        outline_kept(self, node, outline)
    }
    fn hook_saved(&self, at: SavedAt<'_>, hooks: Arc<SavedHooks>) -> Result<bool> {
        hook_kept(self, at, hooks)
    }
}

/// A [`Recorded`] of any type: what is not run in every backward pass is written once for all of them.
trait Kept {
    /// The names of the saved values.
    fn names(&self) -> &'static [&'static str];
    /// A copy of the saved values, so that no lock is held while they are used; an error after release.
    fn copy(&self, node: &Node) -> Result<Box<dyn Fields>>;
    /// Shows the saved values to `f` under the lock; nothing after release.
    fn with(&self, f: &mut dyn FnMut(Option<&mut dyn Fields>));
    /// The same formula with other saved values, which are of the same types.
    fn again(&self, saved: Box<dyn Fields>) -> Option<BoxedBackward>;
}

impl<T: Fields + Clone> Kept for Recorded<T> {
    fn names(&self) -> &'static [&'static str] {
        self.formula.names
    }
    fn copy(&self, node: &Node) -> Result<Box<dyn Fields>> {
        Ok(Box::new(self.saved.copy(node)?))
    }
    fn with(&self, f: &mut dyn FnMut(Option<&mut dyn Fields>)) {
        self.saved.with(&mut |saved| f(saved.map(|saved| saved as &mut dyn Fields)))
    }
    fn again(&self, saved: Box<dyn Fields>) -> Option<BoxedBackward> {
        let saved: Box<dyn Any> = saved;
        saved.downcast::<T>().ok().map(|saved| self.formula.keep(*saved))
    }
}

fn show_kept(kept: &dyn Kept, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
    show(node, kept.names(), &*kept.copy(node)?)
}

fn visit_kept(kept: &dyn Kept, node: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
    visit(&*kept.copy(node)?, visitor)
}

fn outline_kept(
    kept: &dyn Kept,
    node: &Node,
    outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
) -> Result<Option<BoxedBackward>> {
    let mut saved = kept.copy(node)?;
    replace(&mut *saved, outline)?;
    Ok(kept.again(saved))
}

fn hook_kept(kept: &dyn Kept, at: SavedAt<'_>, hooks: Arc<SavedHooks>) -> Result<bool> {
    let names = kept.names();
    hook_slot(hooks, &|f| kept.with(&mut |saved| f(saved.map(|saved| find(saved, names, at)))))
}

struct Plain<T: 'static> {
    formula: &'static Formula<T>,
    saved: PlainSlot<T>,
}

impl<T: Fields + Clone> Backward for Plain<T> {
    fn name(&self) -> &str {
        self.formula.name
    }
    fn apply(&self, node: &Node, grads: Gradients, needs: &Needs<'_>) -> Result<Gradients> {
        self.formula.run(node, &grads, needs, || Ok(self.saved.get().clone()))
    }
    fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
        show(node, self.formula.names, self.saved.get())
    }
    fn visit_saved(&self, _: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
        visit(self.saved.get(), visitor)
    }
    fn declared_at(&self) -> Option<u64> {
        Some(std::ptr::from_ref(self.formula).addr() as u64)
    }
}

/// A saved value of any type.
pub(crate) trait Field: Visit {
    /// The value as users see it; `None` if it has no public form.
    fn show(&self, node: &Node) -> Result<Option<SavedValue>>;
    /// The tensors in it.
    fn tensors(&mut self) -> &mut [SavedTensor] {
        &mut []
    }
    /// Whether it is a list of tensors, which are hooked one by one.
    fn is_list(&self) -> bool {
        false
    }
}

/// The saved values of a node.
pub(crate) trait Fields: Any + Send + Sync {
    fn count(&self) -> usize;
    fn field(&self, k: usize) -> &dyn Field;
    fn field_mut(&mut self, k: usize) -> &mut dyn Field;
}

#[inline(never)]
fn show(node: &Node, names: &[&'static str], saved: &dyn Fields) -> Result<Vec<(&'static str, SavedValue)>> {
    let mut shown = Vec::with_capacity(names.len());
    for (k, name) in names.iter().enumerate() {
        shown.extend(saved.field(k).show(node)?.map(|value| (*name, value)));
    }
    Ok(shown)
}

#[inline(never)]
fn visit(saved: &dyn Fields, visitor: &mut dyn SavedVisitor) -> Result<bool> {
    (0..saved.count()).try_for_each(|k| saved.field(k).visit(visitor))?;
    Ok(true)
}

#[inline(never)]
fn replace(saved: &mut dyn Fields, by: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>) -> Result<()> {
    for k in 0..saved.count() {
        for t in saved.field_mut(k).tensors() {
            *t = by(t)?;
        }
    }
    Ok(())
}

#[inline(never)]
fn find<'a>(saved: &'a mut dyn Fields, names: &[&str], at: SavedAt<'_>) -> Option<&'a mut SavedTensor> {
    let k = names.iter().position(|name| *name == at.0)?;
    let field = saved.field_mut(k);
    match (at.1, field.is_list()) {
        (None, false) => field.tensors().first_mut(),
        (Some(i), true) => field.tensors().get_mut(i),
        _ => None,
    }
}

impl Field for SavedTensor {
    fn show(&self, node: &Node) -> Result<Option<SavedValue>> {
        Ok(Some(self.clone().unpack(node)?.into()))
    }
    fn tensors(&mut self) -> &mut [SavedTensor] {
        std::slice::from_mut(self)
    }
}

impl Field for Vec<SavedTensor> {
    fn show(&self, node: &Node) -> Result<Option<SavedValue>> {
        let tensors = self.iter().map(|t| t.clone().unpack(node)).collect::<Result<Vec<_>>>()?;
        Ok(Some(tensors.into()))
    }
    fn tensors(&mut self) -> &mut [SavedTensor] {
        self
    }
    fn is_list(&self) -> bool {
        true
    }
}

impl<const N: usize> Field for [bool; N] {
    fn show(&self, _: &Node) -> Result<Option<SavedValue>> {
        Ok(Some(self.to_vec().into()))
    }
}

macro_rules! shown {
    ($($t:ty),* $(,)?) => {$(
        impl Field for $t {
            fn show(&self, _: &Node) -> Result<Option<SavedValue>> {
                Ok(Some(self.clone().into()))
            }
        }
    )*};
}
shown! {
    Scalar, Option<Scalar>, i64, Option<i64>, usize, SymInt, Option<SymInt>, f64, Option<f64>, bool, Option<bool>,
    SymInts, Option<SymInts>, Vec<SymInts>, Vec<i64>, Option<Vec<i64>>, Vec<f64>, Option<Vec<f64>>, String,
    Option<String>, DType, Option<DType>, Vec<DType>,
}

macro_rules! not_shown {
    ($($t:ty),* $(,)?) => {$(
        impl Field for $t {
            fn show(&self, _: &Node) -> Result<Option<SavedValue>> {
                Ok(None)
            }
        }
    )*};
}
not_shown! { Vec<Scalar>, Device, Option<Device>, MemoryFormat, Option<MemoryFormat>, Layout }

/// The sizes: dtype and device are known of the gradient too.
impl Field for Spec {
    fn show(&self, _: &Node) -> Result<Option<SavedValue>> {
        Ok(Some(self.layout.sizes().iter().map(|&n| n as i64).collect::<Vec<_>>().into()))
    }
}

macro_rules! tuples {
    ($($n:literal: $($t:ident $k:tt),*;)*) => {$(
        impl<$($t: Field + Send + Sync + 'static),*> Fields for ($($t,)*) {
            fn count(&self) -> usize {
                $n
            }
            fn field(&self, k: usize) -> &dyn Field {
                match k {
                    $($k => &self.$k,)*
                    _ => unreachable!("a node keeps {} values", $n),
                }
            }
            fn field_mut(&mut self, k: usize) -> &mut dyn Field {
                match k {
                    $($k => &mut self.$k,)*
                    _ => unreachable!("a node keeps {} values", $n),
                }
            }
        }
    )*};
}
tuples! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
    9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8;
    10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9;
    11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10;
    12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11;
}
