//! Optimizers of core behind one class; their Python classes keep `param_groups` and hand settings over before each step.

use crate::autograd::need_tensors;
use crate::convert;
use crate::errors::Raise;
use firebrand::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use firebrand::{IndexMap, Tensor};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;

enum Kind {
    Sgd(SGD),
    Adam(Adam),
    AdamW(AdamW),
}

/// An optimizer.
#[pyclass(module = "firebrand.optim")]
pub(crate) struct PyOptimizer(Kind);

/// One setting, or its default.
fn setting<'py, T: FromPyObjectOwned<'py>>(settings: &Bound<'py, PyDict>, name: &str, default: T) -> PyResult<T> {
    match settings.get_item(name)? {
        None => Ok(default),
        Some(value) => {
            let found = value.get_type().name()?.to_string();
            value.extract().map_err(|_| PyTypeError::new_err(format!("the setting '{name}' cannot be a {found}")))
        }
    }
}

fn sgd(s: &Bound<'_, PyDict>) -> PyResult<SGDOptions> {
    let d = SGDOptions::default();
    Ok(SGDOptions {
        lr: setting(s, "lr", d.lr)?,
        momentum: setting(s, "momentum", d.momentum)?,
        dampening: setting(s, "dampening", d.dampening)?,
        weight_decay: setting(s, "weight_decay", d.weight_decay)?,
        nesterov: setting(s, "nesterov", d.nesterov)?,
        maximize: setting(s, "maximize", d.maximize)?,
        ..d
    })
}

fn adam(s: &Bound<'_, PyDict>) -> PyResult<AdamOptions> {
    let d = AdamOptions::default();
    Ok(AdamOptions {
        lr: setting(s, "lr", d.lr)?,
        betas: setting(s, "betas", d.betas)?,
        eps: setting(s, "eps", d.eps)?,
        weight_decay: setting(s, "weight_decay", d.weight_decay)?,
        amsgrad: setting(s, "amsgrad", d.amsgrad)?,
        maximize: setting(s, "maximize", d.maximize)?,
        ..d
    })
}

fn adamw(s: &Bound<'_, PyDict>) -> PyResult<AdamWOptions> {
    let d = AdamWOptions::default();
    Ok(AdamWOptions {
        lr: setting(s, "lr", d.lr)?,
        betas: setting(s, "betas", d.betas)?,
        eps: setting(s, "eps", d.eps)?,
        weight_decay: setting(s, "weight_decay", d.weight_decay)?,
        amsgrad: setting(s, "amsgrad", d.amsgrad)?,
        maximize: setting(s, "maximize", d.maximize)?,
        ..d
    })
}

impl PyOptimizer {
    fn any(&self) -> &dyn Optimizer {
        match &self.0 {
            Kind::Sgd(o) => o,
            Kind::Adam(o) => o,
            Kind::AdamW(o) => o,
        }
    }
}

#[pymethods]
impl PyOptimizer {
    #[new]
    fn new(kind: &str, params: &Bound<'_, PyAny>, settings: &Bound<'_, PyDict>) -> PyResult<PyOptimizer> {
        let params = need_tensors(params)?;
        Ok(PyOptimizer(match kind {
            "SGD" => Kind::Sgd(SGD::new(params, sgd(settings)?).raise()?),
            "Adam" => Kind::Adam(Adam::new(params, adam(settings)?).raise()?),
            "AdamW" => Kind::AdamW(AdamW::new(params, adamw(settings)?).raise()?),
            other => {
                let text = format!("no optimizer is called '{other}'; expected 'SGD', 'Adam' or 'AdamW'");
                return Err(PyValueError::new_err(text));
            }
        }))
    }

    fn add_group(&mut self, params: &Bound<'_, PyAny>, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let params = need_tensors(params)?;
        match &mut self.0 {
            Kind::Sgd(o) => o.add_group(params, sgd(settings)?),
            Kind::Adam(o) => o.add_group(params, adam(settings)?),
            Kind::AdamW(o) => o.add_group(params, adamw(settings)?),
        }
        .raise()
    }

    /// Gives a group these settings.
    fn configure(&mut self, group: usize, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        if group >= self.any().groups() {
            return Err(PyValueError::new_err(format!("there is no group {group}")));
        }
        match &mut self.0 {
            Kind::Sgd(o) => *o.options_mut(group) = sgd(settings)?,
            Kind::Adam(o) => *o.options_mut(group) = adam(settings)?,
            Kind::AdamW(o) => *o.options_mut(group) = adamw(settings)?,
        }
        Ok(())
    }

    fn step(&mut self, py: Python<'_>) -> PyResult<()> {
        let kind = &mut self.0;
        py.detach(|| match kind {
            Kind::Sgd(o) => o.step(),
            Kind::Adam(o) => o.step(),
            Kind::AdamW(o) => o.step(),
        })
        .raise()
    }

    /// Tensors by the position of the parameter and by name.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (position, tensors) in self.any().state_dict().state {
            let one = PyDict::new(py);
            for (name, t) in tensors {
                one.set_item(name, convert::optional(py, Some(t))?)?;
            }
            all.set_item(position, one)?;
        }
        Ok(all)
    }

    /// Restores what `state` gave.
    fn load_state(&mut self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut tensors: BTreeMap<usize, IndexMap<String, Tensor>> = BTreeMap::new();
        for (position, one) in state.iter() {
            let entry = tensors.entry(position.extract()?).or_default();
            for (name, value) in one.cast::<PyDict>()?.iter() {
                let wrong = || PyTypeError::new_err(format!("the state '{name}' is not a Tensor"));
                let t = convert::tensor_of(&value).cloned().ok_or_else(wrong)?;
                entry.insert(name.extract()?, t);
            }
        }
        let mut saved = self.any().state_dict();
        saved.state = tensors;
        match &mut self.0 {
            Kind::Sgd(o) => o.load_state_dict(&saved),
            Kind::Adam(o) => o.load_state_dict(&saved),
            Kind::AdamW(o) => o.load_state_dict(&saved),
        }
        .raise()
    }
}
