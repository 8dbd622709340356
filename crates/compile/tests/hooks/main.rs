//! The hook suite: hooks on arguments and on values inside a compiled function. Every row runs on all back ends.

mod arguments;
#[path = "../common/mod.rs"]
mod common;
mod state;
mod values;

use common::{leaf, v};
use firebrand_core::{DType, Tensor};

/// `v = [0, 0, 0]` that requires grad.
fn zeros3() -> Tensor {
    leaf(&[0.0; 3])
}

/// `s = [1, 2, 3]`.
fn seed() -> Tensor {
    v(&[1.0, 2.0, 3.0])
}

fn two() -> Tensor {
    Tensor::ones([2, 2], DType::F32)
}

fn global_hook_0(g: &Tensor) -> Tensor {
    g * 4.0
}
fn global_hook_1(g: &Tensor) -> Tensor {
    g / 2.0
}
fn global_hook_2(g: &Tensor) -> Tensor {
    g * 3.0
}
