//! Exported programs: loading, running, training and saving `.pt2` files.

use crate::autograd::need_tensors;
use crate::convert;
use crate::errors::{exception, runtime};
use firebrand::graph::interpret::Value;
use firebrand::graph::{Error, ExportedProgram, ProgramModule};
use firebrand::module::Module;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::path::PathBuf;

/// The exception of an error of a program; what an op or Python raised inside it is itself.
fn raised(e: Error) -> PyErr {
    match e {
        Error::Core(e) => exception(e),
        other => runtime(other),
    }
}

/// An output of a program.
fn output(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    match value {
        Value::Tensor(t) => convert::optional(py, Some(t)),
        Value::Scalar(s) => convert::number(py, s),
        Value::List(list) => {
            let all = list.into_iter().map(|v| output(py, v)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, all)?.into_any())
        }
        v if v.is_none() => Ok(py.None().into_bound(py)),
        other => Err(runtime(format!("an output of this kind has no form in Python: {other:?}"))),
    }
}

/// A program as it was exported.
#[pyclass(module = "firebrand.export", frozen)]
pub(crate) struct Program(ExportedProgram);

#[pymethods]
impl Program {
    /// A module with a state of its own that starts as the program's.
    fn module(&self) -> PyResult<Runner> {
        self.0.module().map(Runner).map_err(raised)
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(path)).map_err(raised)
    }
}

/// Reads an archive that `torch.export.save` or `save` wrote. Nothing in it is executed.
#[pyfunction]
fn load_program(py: Python<'_>, path: PathBuf) -> PyResult<Program> {
    py.detach(|| ExportedProgram::load(path)).map(Program).map_err(raised)
}

/// A program that can be called and trained.
#[pyclass(module = "firebrand.export", frozen)]
pub(crate) struct Runner(ProgramModule);

#[pymethods]
impl Runner {
    /// Runs on tensors, in the order of the signature; gives the outputs, flattened.
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let inputs = need_tensors(inputs)?;
        let outputs = py.detach(|| self.0.run(&inputs)).map_err(raised)?;
        PyList::new(py, outputs.into_iter().map(|v| output(py, v)).collect::<PyResult<Vec<_>>>()?)
    }

    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let one = |(name, p): (String, firebrand::module::Parameter)| {
            Ok((name, convert::optional(py, Some(p.tensor().clone()))?))
        };
        self.0.named_parameters().into_iter().map(one).collect()
    }

    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let one = |(name, t)| Ok((name, convert::optional(py, Some(t))?));
        self.0.named_buffers().into_iter().map(one).collect()
    }

    fn inputs(&self) -> PyResult<Vec<String>> {
        let inputs = self.0.tensor_inputs().map_err(raised)?;
        Ok(inputs.into_iter().map(|(name, _)| name.to_string()).collect())
    }

    fn outputs(&self) -> Vec<String> {
        self.0.output_names()
    }

    fn set_training(&self, on: bool) {
        self.0.set_training(on);
    }

    fn is_training(&self) -> bool {
        self.0.is_training()
    }

    /// The program with the state of this module.
    fn program(&self) -> Program {
        Program(self.0.program())
    }
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(load_program, m)?)
}
