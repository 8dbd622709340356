//! What the tests of compiled functions share: the list of back ends, a counter, small tensors.
#![allow(dead_code)] // every test file uses a part of it

use firebrand_compile::backends::{self, Counter};
use firebrand_compile::{Backend, Options};
use firebrand_core::Tensor;
use std::sync::Arc;

/// Every back end that must behave as a plain run does, by name.
pub(crate) fn all_backends() -> Vec<(&'static str, Arc<dyn Backend>)> {
    let make = |name| (name, backends::backend(name).expect("a known back end"));
    vec![make("eager"), make("aot_eager"), make("firebrand")]
}

/// A counter around each of them.
pub(crate) fn counted() -> Vec<(&'static str, Arc<Counter>)> {
    all_backends().into_iter().map(|(name, b)| (name, backends::counter(b))).collect()
}

/// A counter around the eager back end.
pub(crate) fn counter() -> Arc<Counter> {
    backends::counter(backends::eager())
}

/// Options with this back end.
pub(crate) fn with(backend: &Arc<Counter>) -> Options {
    Options::with_backend(backend.clone())
}

/// One graph, with this back end.
pub(crate) fn full(backend: &Arc<Counter>) -> Options {
    Options { fullgraph: true, ..with(backend) }
}

/// A vector.
pub(crate) fn v(values: &[f32]) -> Tensor {
    Tensor::new(values)
}

/// A leaf.
pub(crate) fn leaf(values: &[f32]) -> Tensor {
    Tensor::new(values).requires_grad_()
}

/// Ones.
pub(crate) fn ones(n: usize) -> Tensor {
    Tensor::new(&vec![1.0f32; n])
}

/// A leaf of ones.
pub(crate) fn ones_leaf(n: usize) -> Tensor {
    ones(n).requires_grad_()
}

/// The gradient of a leaf.
pub(crate) fn grad(t: &Tensor) -> Vec<f32> {
    t.grad().expect("there is a gradient").to_vec()
}
