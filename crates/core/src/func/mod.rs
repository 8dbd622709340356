//! Function transforms that nest in any order: `grad`, `vjp`, `jvp`, `vmap` and the transforms built on them.
//!
//! A transform takes a function of tensors and returns another function. Arguments and results are one tensor, a
//! tuple, a vector or a map of tensors ([`TensorTree`]); the function may return tensors or a `Result`.
//!
//! ```
//! # use firebrand_core as firebrand;
//! use firebrand::{Tensor, func};
//!
//! let x = Tensor::new(&[1.0f64, 2.0]);
//! let cubes = |x: &Tensor| (x * x * x).sum();
//! let g = func::grad(cubes)(&x).unwrap();
//! assert_eq!(g.to_vec::<f64>(), [3.0, 12.0]);
//! // The gradient of every row of a matrix, without a loop.
//! let rows = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0], [2, 2]);
//! let each = func::vmap(func::grad(cubes)).call(&rows).unwrap();
//! assert_eq!(each.to_vec::<f64>(), [3.0, 12.0, 27.0, 48.0]);
//! ```
//!
//! `level` explains how nesting works: each wrapping level has its own graph and tangents. Inside a
//! transform `no_grad` is respected; `no_grad` around one does not stop it.

mod argnums;
pub(crate) mod functional_call;
mod grad;
mod jacobian;
mod jvp;
pub(crate) mod level;
pub(crate) mod rules;
pub(crate) mod vmap;

pub use crate::tree::{Outcome, TensorTree};
pub use argnums::{
    Arg, Argnums, grad_and_value_argnums, grad_argnums, hessian_argnums, jacfwd_argnums, jacrev_argnums,
    with_respect_to,
};
pub use functional_call::functional_call;
pub use grad::{Vjp, argument, grad, grad_and_value, grad_and_value_with_aux, grad_with_aux, vjp, vjp_with_aux};
pub use jacobian::{hessian, jacfwd, jacrev, jacrev_with_aux};
pub use jvp::{Linear, jvp, jvp_with_aux, linearize};
pub use rules::Batching;
pub use vmap::{BatchDims, Randomness, Vmap, vmap};

/// What is active here of function transforms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Active {
    /// How many transforms.
    pub transforms: u8,
    /// How many of them wrap tensors.
    pub levels: u8,
    /// Whether there is a dual level.
    pub dual: bool,
}

/// What is active here of function transforms.
pub fn active() -> Active {
    let word = crate::state::word();
    let count = |bits: u32| ((word & bits) >> bits.trailing_zeros()) as u8;
    Active {
        transforms: count(crate::state::DEPTH),
        levels: count(crate::state::LEVEL),
        dual: word & crate::state::DUAL != 0,
    }
}

/// Whether a function transform or a dual level is active here.
pub fn is_transforming() -> bool {
    crate::state::is(crate::state::DEPTH | crate::state::LEVEL | crate::state::DUAL)
}
