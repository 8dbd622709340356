//! Exported programs: exporting functions, running passes, loading, running, training and saving `.pt2` files.

use crate::autograd::{call_flat, need_tensors};
use crate::convert;
use crate::errors::{exception, runtime};
use crate::held::Held;
use firebrand::graph::interpret::Value;
use firebrand::graph::passes::{self, Context};
use firebrand::graph::text::{Form, print};
use firebrand::graph::{Dim, Error, Export, ExportedProgram, LoadOptions, NamedTensor, ProgramModule, SaveOptions};
use firebrand::module::Module;
use pyo3::exceptions::PyTypeError;
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

    /// The program after passes, by their names.
    fn run_passes(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Program> {
        let found = names.iter().map(|n| passes::find(n)).collect::<Result<Vec<_>, _>>().map_err(raised)?;
        let (program, _) = py.detach(|| passes::run(&self.0, &found, &Context::default())).map_err(raised)?;
        Ok(Program(program))
    }

    /// The program as text; with types and attributes if `long`.
    #[pyo3(signature = (long=false))]
    fn text(&self, long: bool) -> String {
        print(&self.0, if long { Form::Long } else { Form::Short })
    }

    /// Writes an archive; with the source positions of its ops, which name folders of this machine, only if asked.
    #[pyo3(signature = (path, stack_traces=false))]
    fn save(&self, py: Python<'_>, path: PathBuf, stack_traces: bool) -> PyResult<()> {
        let options = SaveOptions { keep_stack_traces: stack_traces };
        py.detach(|| self.0.save_with(path, options)).map_err(raised)
    }
}

/// A dynamic size: input, dimension, its name, its smallest and largest value.
type DynamicSize = (usize, usize, String, Option<usize>, Option<usize>);

/// Runs a function of a list of tensors on meta tensors and records it. `state` is (name, tensor, is a parameter).
#[pyfunction]
fn export_function<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    names: Vec<String>,
    state: Vec<(String, Bound<'py, PyAny>, bool)>,
    dynamic: Vec<DynamicSize>,
) -> PyResult<Program> {
    let (held, inputs) = (Held::new(f), need_tensors(inputs)?);
    let own = |(name, object, is_parameter): &(String, Bound<'py, PyAny>, bool)| {
        let tensor = convert::tensor_of(object).cloned();
        let tensor = tensor.ok_or_else(|| PyTypeError::new_err(format!("{name} is not a Tensor")))?;
        Ok(NamedTensor { name: name.clone(), tensor, is_parameter: *is_parameter })
    };
    let state = state.iter().map(own).collect::<PyResult<Vec<_>>>()?;
    let program = py.detach(|| {
        let mut export = Export::new(&inputs).names(names).state(&state);
        for (input, dim, name, min, max) in &dynamic {
            let mut size = Dim::new(name.as_str());
            if let Some(n) = *min {
                size = size.min(n);
            }
            if let Some(n) = *max {
                size = size.max(n);
            }
            export = export.dynamic(*input, *dim, &size);
        }
        export.run(|t| call_flat(&held, t))
    });
    program.map(Program).map_err(raised)
}

/// The names of passes, and what they do.
#[pyfunction]
fn list_passes() -> Vec<(&'static str, &'static str)> {
    passes::PASSES.iter().map(|p| (p.name, p.summary)).collect()
}

/// Reads an archive that `torch.export.save` or `save` wrote. Nothing in it is executed. With `runnable=False`, ops that cannot be run are
/// no error: such a program can be read, changed and written.
#[pyfunction]
#[pyo3(signature = (path, runnable=true))]
fn load_program(py: Python<'_>, path: PathBuf, runnable: bool) -> PyResult<Program> {
    let options = LoadOptions { refuse_unsupported: runnable, ..LoadOptions::default() };
    py.detach(|| ExportedProgram::load_with(path, &options)).map(Program).map_err(raised)
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
    m.add_function(wrap_pyfunction!(export_function, m)?)?;
    m.add_function(wrap_pyfunction!(list_passes, m)?)?;
    m.add_function(wrap_pyfunction!(load_program, m)?)
}
