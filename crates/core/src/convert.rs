//! Reading tensors back: single values, vectors, the data without history.

use crate::capture::{self, Caller, Read};
use crate::tensor::sparse;
use crate::{DType, Element, Error, ErrorKind, Result, Scalar, Spec, Tensor, races};
use firebrand_kernels::{bf16, copy, f16, pointwise, read_slice};
use std::panic::Location;

impl Tensor {
    /// The elements in row-major order, converted to `T`.
    #[track_caller]
    pub fn try_to_vec<T: Element + Default>(&self) -> Result<Vec<T>> {
        self.try_read(Read::Data, Location::caller())
    }

    fn try_read<T: Element + Default>(&self, why: Read, at: Caller) -> Result<Vec<T>> {
        if let Some(tracer) = capture::tracer()
            && !self.is_wrapped_number()
        {
            return tracer.materialize(self, why, at)?.try_to_vec_here();
        }
        match capture::stands_for(self) {
            Some(real) => real.try_to_vec_here(),
            None => self.try_to_vec_here(),
        }
    }

    fn try_to_vec_here<T: Element + Default>(&self) -> Result<Vec<T>> {
        if let Some(w) = self.wrapped().filter(|w| w.bdim.is_none()) {
            return w.value.try_to_vec_here();
        }
        self.need_data("to_vec")?;
        races::op!("to_vec", self);
        let mut out = crate::ops::lists::filled(T::default(), self.numel())?;
        read_slice(self.read()?.view(), &mut out);
        Ok(out)
    }

    /// The elements in row-major order, converted to `T`.
    ///
    /// # Panics
    /// On the meta device.
    #[track_caller]
    pub fn to_vec<T: Element + Default>(&self) -> Vec<T> {
        self.try_to_vec().unwrap_or_else(|e| e.raise())
    }

    /// The only element, converted to `T`.
    #[track_caller]
    pub fn try_item<T: Element + Default>(&self) -> Result<T> {
        if self.numel() != 1 {
            let m = format!(
                "a tensor of shape {:?} has {} elements; only one can be read as a number",
                self.shape(),
                self.numel()
            );
            return Err(Error::argument("item", m));
        }
        Ok(self.try_read(Read::Item, Location::caller())?[0])
    }

    /// The only element, converted to `T`.
    ///
    /// # Panics
    /// If there is not exactly one.
    #[track_caller]
    pub fn item<T: Element + Default>(&self) -> T {
        self.try_item().unwrap_or_else(|e| e.raise())
    }

    /// The only element as a [`Scalar`](crate::Scalar).
    #[track_caller]
    pub fn try_scalar_value(&self) -> Result<Scalar> {
        Ok(match self.dtype() {
            DType::Bool => Scalar::Bool(self.try_item()?),
            d if d.is_integer() => Scalar::Int(self.try_item()?),
            DType::F16 => Scalar::Float(self.try_item::<f16>()?.to_f64()),
            DType::BF16 => Scalar::Float(self.try_item::<bf16>()?.to_f64()),
            d if d.is_complex() => Scalar::Complex(self.try_item()?),
            _ => Scalar::Float(self.try_item()?),
        })
    }

    /// An alias over the same memory, without history and with its own version counter: writes through it are not
    /// seen by any check.
    #[track_caller]
    pub fn data(&self) -> Tensor {
        if let Some(tracer) = capture::tracer() {
            // As long as nothing is written, an alias that counts with this one is as good.
            let alias = self.detach();
            if let Err(e) = tracer.unseen_alias(&alias, Location::caller()) {
                e.raise();
            }
            if capture::is_capturing() {
                return alias;
            }
        }
        if let Some(real) = capture::stands_for(self) {
            return real.data();
        }
        if self.is_sparse() {
            return self.detach(); // its indices and values are never written
        }
        let spec = Spec { layout: self.layout().clone(), dtype: self.dtype(), device: self.device() };
        Tensor::from_parts(self.storage().clone(), spec, 0).counting_alone()
    }

    /// Replaces the data with that of another tensor, of any shape and dtype. Flags, hooks and version stay;
    /// earlier views keep the old data and keep counting versions with this tensor. It is an error to set integers on a tensor
    /// that requires grad, or data on another device.
    #[track_caller]
    pub fn try_set_data(&self, other: &Tensor) -> Result<()> {
        if let Some(real) = capture::itself(self, "set_data")? {
            return real.try_set_data(&capture::real(other));
        }
        let other = &capture::real(other);
        if self.device() != other.device() {
            return Err(ErrorKind::SetDataDevice { expected: self.device(), found: other.device() }.into());
        }
        if self.requires_grad() && !other.dtype().is_differentiable() {
            return Err(ErrorKind::SetDataDtype { dtype: other.dtype() }.into());
        }
        if sparse::either(self, other) {
            return Err(sparse::refused("set_data", "one of the two"));
        }
        self.replace_data(other.storage().clone(), other.spec().clone());
        Ok(())
    }

    /// Like [`Tensor::try_set_data`], but panics on error.
    ///
    /// # Panics
    /// If [`Tensor::try_set_data`] returns an error.
    #[track_caller]
    pub fn set_data(&self, other: &Tensor) {
        crate::error::expect_ok(self.try_set_data(other))
    }

    /// A copy of a leaf with its gradient; an error for non-leaf tensors.
    #[track_caller]
    pub fn try_deep_copy(&self) -> Result<Tensor> {
        if let Some(real) = capture::itself(self, "deep_copy")? {
            return real.try_deep_copy();
        }
        if !self.is_leaf_here() {
            return Err(crate::ErrorKind::DeepCopyNonLeaf.into());
        }
        races::op!("deep_copy", self);
        let copy_of = |t: &Tensor| -> Result<Tensor> {
            if t.is_sparse() {
                return sparse::copy(t);
            }
            let layout = if t.layout().is_non_overlapping_and_dense() {
                t.layout().dense_like()
            } else {
                t.layout().to_contiguous()
            };
            let out = Tensor::try_empty(Spec { layout, dtype: t.dtype(), device: t.device() })?;
            if !t.is_meta() {
                copy(t.read()?.view(), out.write()?.view_mut());
            }
            Ok(out)
        };
        let out = copy_of(self)?;
        out.try_set_requires_grad(self.requires_grad())?;
        if let Some(g) = self.extras_if_any().and_then(|e| e.grad.get()) {
            out.try_set_grad(Some(&copy_of(&g)?))?;
        }
        Ok(out)
    }
}

impl From<Scalar> for pointwise::Value {
    fn from(s: Scalar) -> Self {
        match s {
            Scalar::Bool(b) => pointwise::Value::Bool(b),
            Scalar::Int(i) => pointwise::Value::Int(i),
            Scalar::Float(f) => pointwise::Value::Float(f),
            Scalar::Complex(c) => pointwise::Value::Complex(c),
        }
    }
}
