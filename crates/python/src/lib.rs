//! The Python package: tensors, autograd, function transforms and exported programs, on the boxed dispatch of core.
//!
//! Calls of ops go through one table (`overloads`, generated) and one binder (`bind`); there is no code per op. Classes that users
//! subclass or monkey-patch are written in Python (`python/firebrand`); everything that touches tensors, nodes and hooks is here.
//! No lock of this crate is held while Python runs, and kernels and backward passes run detached from the interpreter.
//! Nothing here computes: the crate knows the façade and no kernels.
#![allow(missing_docs)] // a Python module: its documentation is that of the package

mod autograd;
mod backend;
mod bind;
mod compile;
mod convert;
mod errors;
mod func;
mod function;
mod held;
mod identity;
mod index;
mod interop;
mod layer;
mod literal;
mod modes;
mod node;
mod ops;
#[path = "generated/overloads.rs"]
mod overloads;
mod plain;
mod program;
mod random;
mod sparse;
mod table;
mod tensor;

use pyo3::prelude::*;

/// The extension module; `python/firebrand` is what users import.
#[pymodule]
fn _firebrand(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<tensor::PyTensor>()?;
    m.add_class::<node::PyNode>()?;
    m.add_class::<convert::PyDType>()?;
    m.add_class::<convert::PyDevice>()?;
    m.add_class::<convert::PyMemoryFormat>()?;
    m.add_class::<convert::PyLayout>()?;
    m.add_class::<ops::OpFunction>()?;
    m.add_class::<ops::OpMethod>()?;
    m.add_class::<ops::OpOverload>()?;
    m.add_class::<autograd::Handle>()?;
    m.add_class::<modes::InferenceGuard>()?;
    m.add_class::<modes::SavedHooksScope>()?;
    m.add_class::<modes::DisabledHooksScope>()?;
    m.add_class::<layer::LayerScope>()?;
    m.add_class::<node::SavedTensor>()?;
    m.add_function(wrap_pyfunction!(node::node_class, m)?)?;
    m.add_class::<func::Pullback>()?;
    m.add_class::<func::Pushforward>()?;
    m.add_class::<program::Program>()?;
    m.add_class::<program::Runner>()?;
    m.add("StopRecomputation", py.get_type::<errors::StopRecomputation>())?;
    m.add("CheckpointError", py.get_type::<errors::CheckpointError>())?;
    m.add("LinAlgError", py.get_type::<errors::LinAlgError>())?;
    m.add("GradcheckError", py.get_type::<errors::GradcheckError>())?;
    convert::add(m)?;
    ops::add(m)?;
    literal::add(m)?;
    interop::add(m)?;
    autograd::add(m)?;
    modes::add(m)?;
    random::add(m)?;
    sparse::add(m)?;
    func::add(m)?;
    function::add(m)?;
    plain::add(m)?;
    program::add(m)?;
    compile::add(m)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
