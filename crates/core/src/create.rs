//! Creating tensors: from values, filled, empty.

use crate::capture;
use crate::layout::Dims;
use crate::sym::{IntoSizes, checked_sizes};
use crate::tensor::{REQUIRES_GRAD, WRAPPED_NUMBER};
use crate::{Complex, DType, Device, Element, Error, ErrorKind, Result, Scalar, Spec, Tensor, bf16, f16, ops, state};
use firebrand_kernels::{fill, write_slice};

/// Dtype and device of a new tensor, and whether it requires grad.
#[derive(Clone, Copy, Debug, Default)]
pub struct TensorOptions {
    /// Element type; the default dtype if not given.
    pub dtype: Option<DType>,
    /// Device; CPU if not given.
    pub device: Option<Device>,
    /// Whether the new tensor requires grad.
    pub requires_grad: bool,
}

impl From<DType> for TensorOptions {
    fn from(d: DType) -> Self {
        TensorOptions { dtype: Some(d), ..Default::default() }
    }
}
impl From<Device> for TensorOptions {
    fn from(d: Device) -> Self {
        TensorOptions { device: Some(d), ..Default::default() }
    }
}
impl From<(DType, Device)> for TensorOptions {
    fn from((dtype, device): (DType, Device)) -> Self {
        TensorOptions { dtype: Some(dtype), device: Some(device), ..Default::default() }
    }
}

/// What [`Tensor::new`] takes: an element, or a list of literals of one shape.
pub trait Literal {
    /// The element type.
    type Element: Element;
    /// Adds its sizes, outermost first, taken from the first row.
    fn sizes(&self, sizes: &mut Dims);
    /// Adds its elements, row by row; returns an error if its shape is not `sizes`.
    fn elements(&self, sizes: &[usize], elements: &mut Vec<Self::Element>) -> Result<()>;
}

macro_rules! elements {
    ($($t:ty),*) => {$(
        impl Literal for $t {
            type Element = $t;
            fn sizes(&self, _: &mut Dims) {}
            fn elements(&self, _: &[usize], elements: &mut Vec<$t>) -> Result<()> {
                elements.push(*self);
                Ok(())
            }
        }
    )*};
}
elements!(f64, f32, bf16, f16, i64, i32, i16, i8, u8, bool, Complex<f32>, Complex<f64>);

impl<L: Literal> Literal for [L] {
    type Element = L::Element;
    fn sizes(&self, sizes: &mut Dims) {
        sizes.push(self.len());
        if let Some(row) = self.first() {
            row.sizes(sizes);
        }
    }
    fn elements(&self, sizes: &[usize], elements: &mut Vec<L::Element>) -> Result<()> {
        match sizes.split_first() {
            Some((&n, rest)) if n == self.len() => self.iter().try_for_each(|row| row.elements(rest, elements)),
            _ => {
                let expected = sizes.first().copied().unwrap_or(0);
                let message = format!("expected rows of one length, found {expected} and {}", self.len());
                Err(Error::argument("Tensor::new", message))
            }
        }
    }
}
macro_rules! lists {
    ($([$($generics:tt)*] $t:ty;)*) => {$(
        impl<L: Literal, $($generics)*> Literal for $t {
            type Element = L::Element;
            fn sizes(&self, sizes: &mut Dims) {
                self[..].sizes(sizes)
            }
            fn elements(&self, sizes: &[usize], elements: &mut Vec<L::Element>) -> Result<()> {
                self[..].elements(sizes, elements)
            }
        }
    )*};
}
lists! {
    [const N: usize] [L; N];
    [] Vec<L>;
    [] &[L];
}

impl Tensor {
    /// A tensor filled with one value.
    pub(crate) fn try_full_spec(sizes: &[usize], value: Scalar, dtype: DType) -> Result<Tensor> {
        let t = Tensor::try_empty(Spec::new(sizes, dtype, Device::Cpu)?)?;
        fill(t.write()?.view_mut(), value.into());
        Ok(t)
    }

    /// A 0-dim tensor of the scalar's own dtype.
    pub(crate) fn try_scalar(value: Scalar) -> Result<Tensor> {
        Tensor::try_full_spec(&[], value, value.dtype())
    }

    /// A scalar as an operand: a 0-dim tensor that is weak in type promotion.
    #[inline]
    pub fn try_wrapped_number(value: Scalar) -> Result<Tensor> {
        let t = Tensor::try_empty(Spec::new(&[], value.dtype_of_kind(), Device::Cpu)?)?;
        fill(t.write()?.view_mut(), value.into());
        t.set_flag(WRAPPED_NUMBER);
        Ok(t)
    }

    /// A meta tensor for a scalar of this kind while a function is captured; weak in type promotion.
    pub fn try_wrapped_number_outline(like: Scalar) -> Result<Tensor> {
        let t = Tensor::try_empty(Spec::new(&[], like.dtype_of_kind(), Device::Meta)?)?;
        t.set_flag(WRAPPED_NUMBER);
        Ok(t)
    }

    /// A tensor with these elements, in row-major order.
    pub fn try_from_vec<T: Element>(data: Vec<T>, sizes: impl IntoSizes) -> Result<Tensor> {
        Tensor::try_from_slice(&data, sizes)
    }

    /// A tensor with a copy of these elements, in row-major order.
    pub fn try_from_slice<T: Element>(data: &[T], sizes: impl IntoSizes) -> Result<Tensor> {
        let sizes = checked_sizes("from_slice", &sizes.into_sizes())?;
        let n = crate::layout::checked_numel(&sizes);
        if n != Some(data.len()) {
            let m = format!("{} elements given for the shape {sizes:?}", data.len());
            return Err(Error::argument("from_slice", m));
        }
        let t = Tensor::try_empty(Spec::new(&sizes, T::DTYPE, Device::Cpu)?)?;
        write_slice(data, t.write()?.view_mut());
        if let Some(tracer) = capture::tracer() {
            tracer.made(&t);
        }
        Ok(t)
    }

    /// A tensor with a copy of these elements, in row-major order.
    ///
    /// # Panics
    /// If the shape does not have as many elements.
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], sizes: impl IntoSizes) -> Tensor {
        Tensor::try_from_slice(data, sizes).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A tensor with these elements: `&[1.0, 2.0]`, or nested as deep as the tensor has dimensions.
    ///
    /// ```
    /// # use firebrand_core as firebrand;
    /// use firebrand::Tensor;
    /// assert_eq!(Tensor::new(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).shape(), [2, 3]);
    /// ```
    pub fn try_new<L: Literal + ?Sized>(data: &L) -> Result<Tensor> {
        let (mut sizes, mut elements) = (Dims::new(), Vec::new());
        data.sizes(&mut sizes);
        data.elements(&sizes, &mut elements)?;
        Tensor::try_from_slice(&elements, &sizes[..])
    }

    /// Like [`Tensor::try_new`], but panics on error.
    ///
    /// # Panics
    /// If rows have different lengths, which arrays cannot have.
    #[track_caller]
    pub fn new<L: Literal + ?Sized>(data: &L) -> Tensor {
        Tensor::try_new(data).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A 0-dim tensor of the element's own dtype.
    #[track_caller]
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_slice(&[value], ())
    }

    /// A tensor filled with one value.
    pub fn try_full(
        sizes: impl IntoSizes,
        value: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        let (o, value): (TensorOptions, Scalar) = (options.into(), value.into());
        if capture::is_capturing() {
            // Under capture a new tensor is an op, so that every call makes its own.
            let t = ops::full(&sizes.into_sizes(), value, o.dtype, o.device)?;
            return if o.requires_grad { t.try_requires_grad_(true) } else { Ok(t) };
        }
        let sizes = checked_sizes("full", &sizes.into_sizes())?;
        let dtype = o.dtype.unwrap_or_else(|| value.dtype());
        let t = Tensor::try_empty(Spec::new(&sizes, dtype, o.device.unwrap_or_default())?)?;
        if !t.is_meta() {
            fill(t.write()?.view_mut(), value.into());
        }
        if o.requires_grad { t.try_requires_grad_(true) } else { Ok(t) }
    }

    /// A tensor filled with one value.
    #[track_caller]
    pub fn full(sizes: impl IntoSizes, value: impl Into<Scalar>, options: impl Into<TensorOptions>) -> Tensor {
        Tensor::try_full(sizes, value, options).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A tensor of zeros.
    #[track_caller]
    pub fn zeros(sizes: impl IntoSizes, options: impl Into<TensorOptions>) -> Tensor {
        let mut o = options.into();
        o.dtype = Some(o.dtype.unwrap_or_else(crate::dtype::default_dtype));
        Tensor::full(sizes, 0i64, o)
    }

    /// A tensor of ones.
    #[track_caller]
    pub fn ones(sizes: impl IntoSizes, options: impl Into<TensorOptions>) -> Tensor {
        let mut o = options.into();
        o.dtype = Some(o.dtype.unwrap_or_else(crate::dtype::default_dtype));
        Tensor::full(sizes, 1i64, o)
    }

    /// A tensor with unspecified values (never uninitialized memory; bools are false).
    #[track_caller]
    pub fn empty(sizes: impl IntoSizes, options: impl Into<TensorOptions>) -> Tensor {
        let o: TensorOptions = options.into();
        let make = || -> Result<Tensor> {
            let sizes = checked_sizes("empty", &sizes.into_sizes())?;
            let dtype = o.dtype.unwrap_or_else(crate::dtype::default_dtype);
            let t = Tensor::try_unwritten(Spec::new(&sizes, dtype, o.device.unwrap_or_default())?)?;
            if o.requires_grad { t.try_requires_grad_(true) } else { Ok(t) }
        };
        make().unwrap_or_else(|e| panic!("{e}"))
    }

    // ---- the leaf flag

    /// Sets whether a leaf requires grad.
    #[track_caller]
    pub fn try_requires_grad_(self, on: bool) -> Result<Tensor> {
        self.try_set_requires_grad(on)?;
        Ok(self)
    }

    /// Makes the tensor require grad, and returns it.
    ///
    /// # Panics
    /// If the dtype cannot have gradients.
    #[track_caller]
    pub fn requires_grad_(self) -> Tensor {
        self.try_requires_grad_(true).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Sets whether a leaf requires grad, through any of its handles.
    ///
    /// # Panics
    /// If the tensor is not a leaf, or its dtype cannot have gradients.
    #[track_caller]
    pub fn set_requires_grad(&self, on: bool) {
        self.try_set_requires_grad(on).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Sets whether a leaf requires grad, through any of its handles.
    #[track_caller]
    pub fn try_set_requires_grad(&self, on: bool) -> Result<()> {
        if on != self.requires_grad()
            && let Some(real) = capture::flagged(self)?
        {
            return real.try_set_requires_grad(on);
        }
        if on && self.is_inference_here() && !state::is(state::INFERENCE) {
            return Err(ErrorKind::InferenceRequiresGrad.into());
        }
        if self.try_grad_fn_edge()?.is_some() {
            return if on { Ok(()) } else { Err(ErrorKind::NonLeafFlag.into()) };
        }
        if !on {
            self.clear_flag(REQUIRES_GRAD);
            return Ok(());
        }
        if !self.dtype().is_differentiable() {
            return Err(ErrorKind::NotDifferentiableDtype { dtype: self.dtype() }.into());
        }
        self.set_flag(REQUIRES_GRAD);
        Ok(())
    }
}
