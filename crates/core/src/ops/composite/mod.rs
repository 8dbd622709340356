//! Ops that are built of other ops: differentiable through them, so they need no formula. One file per family.

mod view;

pub(crate) use view::*;
