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
        tree.visit(&mut |leaf| {
            if let Leaf::Tensor(t) | Leaf::Index(t) = leaf {
                leaves.tensors.push(t);
                return;
            }
            match leaf {
                Leaf::Number(n) => leaves.numbers.push(n),
                Leaf::Size(n) => leaves.sizes.push(n),
                Leaf::Host(h) => leaves.hosts.push(h),
                Leaf::Shared(c) => leaves.cells.push(c),
                _ => {}
            }
        });
        leaves
    }
}
