//! Ranges, random tensors and conversions: short forms of the ops.
//!
//! Random ones draw from the thread's generator, bit for bit as PyTorch's do after the same `manual_seed`.

use crate::{DType, Device, IntoSizes, Result, Scalar, SymInt, Tensor, TensorOptions, ops};

/// The new tensor, with its leaf flag.
fn leaf(made: Result<Tensor>, options: TensorOptions) -> Result<Tensor> {
    if options.requires_grad { made?.try_requires_grad_(true) } else { made }
}

#[track_caller]
fn expect(made: Result<Tensor>) -> Tensor {
    made.unwrap_or_else(|e| panic!("{e}"))
}

impl Tensor {
    /// Concatenates tensors along an existing dimension.
    pub fn try_cat(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
        ops::cat(tensors, dim)
    }

    /// Concatenates tensors along an existing dimension.
    ///
    /// ```
    /// # use firebrand_core as firebrand;
    /// use firebrand::Tensor;
    /// let (a, b) = (Tensor::new(&[[1.0, 2.0]]), Tensor::new(&[[3.0, 4.0]]));
    /// assert_eq!(Tensor::cat(&[a, b], 0).to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0]);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn cat(tensors: &[Tensor], dim: i64) -> Tensor {
        expect(Tensor::try_cat(tensors, dim))
    }

    /// Stacks tensors of the same shape along a new dimension.
    pub fn try_stack(tensors: &[Tensor], dim: i64) -> Result<Tensor> {
        ops::stack(tensors, dim)
    }

    /// Stacks tensors of the same shape along a new dimension.
    #[must_use]
    #[track_caller]
    pub fn stack(tensors: &[Tensor], dim: i64) -> Tensor {
        expect(Tensor::try_stack(tensors, dim))
    }

    /// Uniform random values in [0, 1).
    pub fn try_rand(sizes: impl IntoSizes, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let o = options.into();
        leaf(ops::rand(&sizes.into_sizes(), o.dtype, o.device), o)
    }

    /// Uniform random values in [0, 1).
    #[track_caller]
    pub fn rand(sizes: impl IntoSizes, options: impl Into<TensorOptions>) -> Tensor {
        expect(Tensor::try_rand(sizes, options))
    }

    /// Random values from the standard normal distribution.
    pub fn try_randn(sizes: impl IntoSizes, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let o = options.into();
        leaf(ops::randn(&sizes.into_sizes(), o.dtype, o.device), o)
    }

    /// Random values from the standard normal distribution.
    #[track_caller]
    pub fn randn(sizes: impl IntoSizes, options: impl Into<TensorOptions>) -> Tensor {
        expect(Tensor::try_randn(sizes, options))
    }

    /// Random integers from `low` to `high`, exclusive; i64 by default.
    #[track_caller]
    pub fn randint(
        low: impl Into<SymInt>,
        high: impl Into<SymInt>,
        sizes: impl IntoSizes,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let o = options.into();
        expect(leaf(ops::randint_low(low.into(), high.into(), &sizes.into_sizes(), o.dtype, o.device), o))
    }

    /// A random permutation of 0 to `n` - 1; i64 by default.
    #[track_caller]
    pub fn randperm(n: impl Into<SymInt>, options: impl Into<TensorOptions>) -> Tensor {
        let o = options.into();
        expect(leaf(ops::randperm(n.into(), o.dtype, o.device), o))
    }

    /// `start`, `start + step`, … up to `end`, exclusive. Integers give i64, floats the default dtype.
    #[track_caller]
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let o = options.into();
        expect(leaf(ops::arange_start_step(start.into(), end.into(), step.into(), o.dtype, o.device), o))
    }

    /// `steps` equally spaced values from `start` to `end`, inclusive.
    #[track_caller]
    pub fn linspace(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        steps: i64,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let o = options.into();
        expect(leaf(ops::linspace(start.into(), end.into(), steps, o.dtype, o.device), o))
    }

    /// The identity matrix.
    #[track_caller]
    pub fn eye(n: impl Into<SymInt>, options: impl Into<TensorOptions>) -> Tensor {
        let o = options.into();
        expect(leaf(ops::eye(n.into(), o.dtype, o.device), o))
    }

    // ---- conversions

    /// Converts to another dtype; returns the tensor itself if it already has that dtype.
    pub fn try_to_dtype(&self, dtype: DType) -> Result<Tensor> {
        ops::to_dtype(self, dtype, false, false, None)
    }

    /// Converts to another dtype; returns the tensor itself if it already has that dtype.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Tensor {
        expect(self.try_to_dtype(dtype))
    }

    /// Moves to another device; returns the tensor itself if it is already there.
    pub fn try_to_device(&self, device: Device) -> Result<Tensor> {
        ops::to_dtype_layout(self, None, Some(device), false, false, None)
    }

    /// Moves to another device; returns the tensor itself if it is already there.
    #[track_caller]
    pub fn to_device(&self, device: Device) -> Tensor {
        expect(self.try_to_device(device))
    }

    /// Converts to f32.
    #[track_caller]
    pub fn float(&self) -> Tensor {
        self.to_dtype(DType::F32)
    }

    /// Converts to f64.
    #[track_caller]
    pub fn double(&self) -> Tensor {
        self.to_dtype(DType::F64)
    }

    /// Converts to f16.
    #[track_caller]
    pub fn half(&self) -> Tensor {
        self.to_dtype(DType::F16)
    }

    /// Converts to bf16.
    #[track_caller]
    pub fn bfloat16(&self) -> Tensor {
        self.to_dtype(DType::BF16)
    }

    /// Converts to i64.
    #[track_caller]
    pub fn long(&self) -> Tensor {
        self.to_dtype(DType::I64)
    }
}
