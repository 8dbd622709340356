//! Random numbers: the state of the one generator that ops use by themselves, and generators of the caller's own.
//!
//! An op that is given a generator runs with its state in the place of the thread's, and leaves the state behind the op in it.

use firebrand::random::{self, Generator};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard};

/// Where a stream of random numbers is.
#[pyclass(module = "firebrand", frozen)]
pub(crate) struct RngState(Generator);

#[pyfunction]
fn get_rng_state() -> RngState {
    RngState(random::get_rng_state())
}

#[pyfunction]
fn set_rng_state(state: &Bound<'_, RngState>) {
    random::set_rng_state(state.get().0.clone());
}

/// A stream of random numbers, which ops take as `generator=`.
#[pyclass(name = "Generator", module = "firebrand", frozen)]
pub(crate) struct PyGenerator(Mutex<Generator>);

impl PyGenerator {
    fn lock(&self) -> MutexGuard<'_, Generator> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Runs with the numbers of this generator. It is not locked meanwhile.
    pub(crate) fn during<R>(&self, f: impl FnOnce() -> R) -> R {
        let state = self.lock().clone();
        let (found, state) = random::with_generator(state, || (f(), random::get_rng_state()));
        *self.lock() = state;
        found
    }
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device = "cpu"))]
    fn new(device: &str) -> PyResult<PyGenerator> {
        if device != "cpu" {
            return Err(PyRuntimeError::new_err(format!("generators are on the device cpu, found {device}")));
        }
        // PyTorch's default seed.
        Ok(PyGenerator(Mutex::new(Generator::new(67_280_421_310_721))))
    }

    /// Begins the stream of a seed.
    fn manual_seed<'py>(slf: &Bound<'py, PyGenerator>, seed: i64) -> Bound<'py, PyGenerator> {
        slf.get().lock().manual_seed(seed.cast_unsigned());
        slf.clone()
    }

    /// The seed of the stream.
    fn initial_seed(&self) -> u64 {
        self.lock().initial_seed()
    }

    /// Where the stream is.
    fn get_state(&self) -> RngState {
        RngState(self.lock().clone())
    }

    /// Goes back to where a stream was.
    fn set_state<'py>(slf: &Bound<'py, PyGenerator>, state: &Bound<'_, RngState>) -> Bound<'py, PyGenerator> {
        *slf.get().lock() = state.get().0.clone();
        slf.clone()
    }

    /// A generator at the same place of the same stream.
    fn clone_state(&self) -> PyGenerator {
        PyGenerator(Mutex::new(self.lock().clone()))
    }

    fn __repr__(&self) -> &'static str {
        "<firebrand.Generator of the cpu>"
    }
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<RngState>()?;
    m.add_class::<PyGenerator>()?;
    m.add_function(wrap_pyfunction!(get_rng_state, m)?)?;
    m.add_function(wrap_pyfunction!(set_rng_state, m)?)
}
