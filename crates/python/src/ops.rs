//! Callable objects over the table: functions of the package, methods of tensors, and `ops.aten.add.Tensor`.

use crate::bind::{self, Call};
use crate::overloads::NAMES;
use crate::table::{self, Entry, FFT, FUNCTION, LINALG, METHOD, NN, SPECIAL};
use firebrand::dispatch::Op;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use std::sync::OnceLock;

/// A function of the package: all overloads of one name.
#[pyclass(module = "firebrand", frozen)]
pub(crate) struct OpFunction {
    name: &'static str,
    method: bool,
}

fn entry(name: &str) -> PyResult<&'static Entry> {
    table::entry(name).ok_or_else(|| PyAttributeError::new_err(format!("no op is called '{name}'")))
}

#[pymethods]
impl OpFunction {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let list: Vec<Bound<'py, PyAny>> = args.iter().collect();
        let (this, args) = match (self.method, list.split_first()) {
            (true, Some((this, rest))) => (Some(this), rest),
            (true, None) => {
                return Err(PyTypeError::new_err(format!("unbound method Tensor.{}() needs an argument", self.name)));
            }
            (false, _) => (None, &list[..]),
        };
        bind::call(py, entry(self.name)?, &Call { this, args, kwargs })
    }

    /// A method finds the tensor it was asked of.
    fn __get__<'py>(
        slf: &Bound<'py, OpFunction>,
        object: &Bound<'py, PyAny>,
        _class: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if object.is_none() || !slf.get().method {
            return Ok(slf.as_any().clone());
        }
        let method = OpMethod { name: slf.get().name, this: object.clone().unbind() };
        Ok(Bound::new(slf.py(), method)?.into_any())
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        self.name
    }

    #[getter]
    fn __qualname__(&self) -> &'static str {
        self.name
    }

    /// The texts of its overloads, in the order in which they are tried.
    #[getter]
    fn _signatures(&self) -> PyResult<Vec<String>> {
        Ok(entry(self.name)?.signatures.iter().map(|s| s.text(self.method)).collect())
    }

    fn __repr__(&self) -> String {
        format!("<built-in {} {}>", if self.method { "method" } else { "function" }, self.name)
    }

    fn __reduce__(&self) -> String {
        self.name.to_string()
    }
}

/// A method with the tensor it was asked of.
#[pyclass(module = "firebrand", frozen)]
pub(crate) struct OpMethod {
    name: &'static str,
    this: Py<PyAny>,
}

#[pymethods]
impl OpMethod {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let list: Vec<Bound<'py, PyAny>> = args.iter().collect();
        let this = self.this.bind(py);
        bind::call(py, entry(self.name)?, &Call { this: Some(this), args: &list, kwargs })
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        self.name
    }

    #[getter]
    fn __self__(&self, py: Python<'_>) -> Py<PyAny> {
        self.this.clone_ref(py)
    }

    fn __repr__(&self) -> String {
        format!("<built-in method {} of Tensor object>", self.name)
    }
}

/// One overload, by its name in ATen: `ops.aten.add.Tensor`.
#[pyclass(module = "firebrand", frozen)]
pub(crate) struct OpOverload {
    op: Op,
    entry: OnceLock<Entry>,
}

impl OpOverload {
    /// The object of an op: there is one, as `func is ops.aten.mm.default` asks for.
    pub(crate) fn of(py: Python<'_>, op: Op) -> PyResult<Bound<'_, PyAny>> {
        static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
        let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
        if let Some(found) = known.get_item(op.name())? {
            return Ok(found);
        }
        let made = Bound::new(py, OpOverload { op, entry: OnceLock::new() })?.into_any();
        known.set_item(op.name(), &made)?;
        Ok(made)
    }
}

#[pymethods]
impl OpOverload {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let list: Vec<Bound<'py, PyAny>> = args.iter().collect();
        let entry = self.entry.get_or_init(|| Entry::of_op(self.op));
        bind::call(py, entry, &Call { this: None, args: &list, kwargs })
    }

    fn __repr__(&self) -> String {
        format!("<OpOverload(op='{}')>", self.op.name().replace("::", "."))
    }

    fn name(&self) -> &'static str {
        self.op.name()
    }

    #[getter]
    fn __name__(&self) -> String {
        let short = self.op.name().rsplit("::").next().unwrap_or_default();
        if short.contains('.') { short.to_string() } else { format!("{short}.default") }
    }

    fn __str__(&self) -> String {
        let dotted = self.op.name().replace("::", ".");
        if self.op.name().contains('.') { dotted } else { format!("{dotted}.default") }
    }

    #[getter]
    fn namespace(&self) -> &'static str {
        self.op.name().split("::").next().unwrap_or_default()
    }

    #[getter]
    fn _overloadname(&self) -> &'static str {
        self.op.name().split_once('.').map_or("default", |(_, overload)| overload)
    }

    /// All overloads of the op.
    #[getter]
    fn overloadpacket<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let base = self.op.name().split('.').next().unwrap_or_default();
        let (space, name) = base.split_once("::").unwrap_or(("aten", base));
        py.import("firebrand.ops")?.getattr(space)?.getattr(name)
    }

    /// The schema as ATen prints it.
    #[getter]
    fn _schema(&self) -> &'static str {
        self.op.schema().text
    }

    fn __hash__(&self) -> u64 {
        self.op.name().as_ptr() as u64
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<OpOverload>().is_ok_and(|o| o.get().op == self.op)
    }
}

/// The op of this name, such as `aten::add.Tensor`, or none.
#[pyfunction]
fn op_overload<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    Op::from_name(name).map(|op| OpOverload::of(py, op)).transpose()
}

/// The overload names of an op, such as `["Tensor", "Scalar", "out"]` for `aten::add`.
#[pyfunction]
fn op_overloads(name: &str) -> Vec<&'static str> {
    let of = |op: Op| {
        let (base, overload) = op.name().split_once('.').unwrap_or((op.name(), "default"));
        (base == name).then_some(overload)
    };
    Op::all().filter_map(of).collect()
}

/// Every name of the table with the places where Python finds it.
#[pyfunction]
fn op_names() -> Vec<(&'static str, Vec<&'static str>)> {
    let words = [
        (METHOD, "method"),
        (FUNCTION, "function"),
        (NN, "nn"),
        (LINALG, "linalg"),
        (FFT, "fft"),
        (SPECIAL, "special"),
    ];
    let places = |bits: u8| words.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, word)| *word).collect();
    NAMES.iter().map(|n| (n.0, places(n.1))).collect()
}

/// The callable of a name of the table.
#[pyfunction]
fn op_function(name: &str, method: bool) -> PyResult<OpFunction> {
    let at = NAMES.binary_search_by(|n| n.0.cmp(name));
    let at = at.map_err(|_| PyAttributeError::new_err(format!("no op is called '{name}'")))?;
    Ok(OpFunction { name: NAMES[at].0, method })
}

pub(crate) fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(op_overload, m)?)?;
    m.add_function(wrap_pyfunction!(op_overloads, m)?)?;
    m.add_function(wrap_pyfunction!(op_names, m)?)?;
    m.add_function(wrap_pyfunction!(op_function, m)?)
}
