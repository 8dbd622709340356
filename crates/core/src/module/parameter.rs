//! Parameters and buffers: the tensors a module owns.
//!
//! A parameter is a leaf whose object never changes, so optimizers may hold it; its values are written in place. A
//! buffer is a cell: forward may replace its tensor through `&self`.

use crate::capture::{self, TensorCell};
use crate::{Result, Tensor};
use std::sync::{Arc, RwLock};

/// A trainable tensor: a leaf that requires grad. Cloning the handle shares the parameter.
#[derive(Clone, Debug)]
pub struct Parameter(Tensor);

impl Parameter {
    /// A parameter over the memory of `t`, without its history.
    ///
    /// # Panics
    /// If `t` is not floating point; [`Parameter::frozen`] takes any dtype.
    #[track_caller]
    pub fn new(t: Tensor) -> Parameter {
        Parameter::try_new(t).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Like [`Parameter::new`], but returns an error.
    pub fn try_new(t: Tensor) -> Result<Parameter> {
        let p = Parameter::frozen(t);
        p.try_set_requires_grad(true)?;
        Ok(p)
    }

    /// A parameter that does not require grad.
    pub fn frozen(t: Tensor) -> Parameter {
        Parameter(t.detach())
    }

    /// The parameter as a tensor: the same object.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }

    /// Replaces the data, and that of the gradient, by the result of `f`. The object stays the same, so others may hold it.
    pub(super) fn convert(&self, f: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        let old = self.0.data();
        let new = f(&old)?;
        if new.is_same(&old) {
            return Ok(());
        }
        let grad = self.0.grad().map(|g| f(&g)).transpose()?;
        self.0.zero_grad();
        self.0.set_data(&new);
        // Accumulate nodes know the dtype they were made for.
        *self.0.extras().accumulator.lock().unwrap_or_else(|e| e.into_inner()) = None;
        self.0.try_set_grad(grad.as_ref())
    }
}

impl std::ops::Deref for Parameter {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.0
    }
}

impl AsRef<Tensor> for Parameter {
    fn as_ref(&self) -> &Tensor {
        &self.0
    }
}

/// A tensor that belongs to a module and is not trained, such as a running mean.
#[derive(Debug)]
pub struct Buffer {
    cell: Arc<Cell>,
    persistent: bool,
}

/// What a buffer holds; shared with a capture that reads or writes it.
#[derive(Debug)]
struct Cell(RwLock<Tensor>);

impl TensorCell for Cell {
    fn load(&self) -> Tensor {
        self.0.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn store(&self, t: Tensor) {
        let old = std::mem::replace(&mut *self.0.write().unwrap_or_else(|e| e.into_inner()), t);
        drop(old);
    }
}

impl Buffer {
    /// A buffer that is part of the state dictionary.
    pub fn new(t: Tensor) -> Buffer {
        Buffer { cell: Arc::new(Cell(RwLock::new(t))), persistent: true }
    }

    /// A buffer that is not part of the state dictionary.
    pub fn non_persistent(t: Tensor) -> Buffer {
        Buffer { cell: Arc::new(Cell(RwLock::new(t))), persistent: false }
    }

    /// Whether it is part of the state dictionary.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Its tensor.
    pub fn get(&self) -> Tensor {
        match capture::tracer() {
            Some(tracer) => tracer.load(&(self.cell.clone() as Arc<dyn TensorCell>)),
            None => self.cell.load(),
        }
    }

    /// Replaces its tensor.
    pub fn set(&self, t: Tensor) {
        match capture::tracer() {
            Some(tracer) => tracer.store(&(self.cell.clone() as Arc<dyn TensorCell>), t),
            None => self.cell.store(capture::real(&t)),
        }
    }
}
