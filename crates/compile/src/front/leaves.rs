//! The leaves of a call's arguments, by kind.

use firebrand_core::Number;
use firebrand_core::tree::{Host, Leaf, SharedRef, TensorTree};
use firebrand_core::{SymInt, Tensor};
use smallvec::SmallVec;

/// The leaves of an argument tree, by kind.
#[derive(Default)]
pub(crate) struct Leaves<'a> {
    pub(crate) tensors: SmallVec<[&'a Tensor; 32]>,
    pub(crate) numbers: SmallVec<[&'a Number; 4]>,
    pub(crate) sizes: SmallVec<[SymInt; 4]>,
    pub(crate) hosts: SmallVec<[Host<'a>; 4]>,
    pub(crate) cells: SmallVec<[SharedRef; 2]>,
}

impl<'a> Leaves<'a> {
    pub(crate) fn of(tree: &'a impl TensorTree) -> Leaves<'a> {
        let mut leaves = Leaves::default();
        // Most leaves are tensors, and most calls have no time to lose.
        tree.visit(&mut |leaf| match leaf {
            Leaf::Tensor(t) => leaves.tensors.push(t),
            other => leaves.add(other),
        });
        leaves
    }

    #[inline(never)]
    fn add(&mut self, leaf: Leaf<'a>) {
        match leaf {
            Leaf::Tensor(t) | Leaf::Index(t) => self.tensors.push(t),
            Leaf::Number(n) => self.numbers.push(n),
            Leaf::Size(n) => self.sizes.push(n),
            Leaf::Host(h) => self.hosts.push(h),
            Leaf::Shared(c) => self.cells.push(c),
            _ => {}
        }
    }
}
