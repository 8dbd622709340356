//! From ops to kernels: each function writes the result of one op into a tensor its shape function described.
//!
//! Shapes and dtypes were checked before; what is left here is broadcasting by strides, the compute dtype, and errors
//! that depend on values (indices).

pub(crate) mod activations;
pub(crate) mod attention;
pub(crate) mod complex;
pub(crate) mod conv;
pub(crate) mod creation;
pub(crate) mod ctc;
pub(crate) mod fft;
pub(crate) mod fused;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod linalg;
pub(crate) mod loss;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod numbers;
pub(crate) mod pointwise;
pub(crate) mod pool;
pub(crate) mod quantized;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod region;
pub(crate) mod resample;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod special;
pub(crate) mod view;
pub(crate) mod windows;

use crate::layout::Layout;
use crate::{DType, Error, ErrorKind, Result, Scalar, Spec, Tensor, ops::shape};
use firebrand_kernels::View;

/// Runs a kernel that may need temporary memory as large as its operands: an error if there is not enough. Compiled once, not per kernel.
pub(crate) fn run(kernel: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    firebrand_kernels::scratch::attempt(kernel)?
}

/// [`run`], of a kernel that makes its results.
pub(crate) fn run_for<R>(kernel: impl FnOnce() -> Result<R>) -> Result<R> {
    firebrand_kernels::scratch::attempt(kernel)?
}

/// A tensor's memory seen with a larger shape.
pub(crate) struct Expanded<'a> {
    access: crate::tensor::Access<'a>,
    layout: Layout,
}

impl Expanded<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        self.access.view_as(self.layout.sizes(), self.layout.strides())
    }
}

/// A tensor broadcast to sizes it fits, for reading.
pub(crate) fn expand<'a>(t: &'a Tensor, sizes: &[usize]) -> Result<Expanded<'a>> {
    Ok(Expanded { layout: shape::expanded(t, sizes)?, access: t.read()? })
}

/// The same numbers in row-major memory: the tensor itself if it is.
pub(crate) fn dense(t: &Tensor) -> Result<Tensor> {
    if t.is_contiguous() {
        return Ok(t.clone());
    }
    let copy = Tensor::try_empty(Spec::new(t.shape(), t.dtype(), t.device())?)?;
    firebrand_kernels::copy(t.read()?.view(), copy.write()?.view_mut());
    Ok(copy)
}

/// Runs a kernel that writes row-major memory only: into `out` itself if it is, else through a temporary.
pub(crate) fn into_dense(out: &Tensor, kernel: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
    if out.is_contiguous() {
        return kernel(out);
    }
    let temporary = Tensor::try_empty(Spec::new(out.shape(), out.dtype(), out.device())?)?;
    kernel(&temporary)?;
    firebrand_kernels::copy(temporary.read()?.view(), out.write()?.view_mut());
    Ok(())
}

/// Runs a kernel of floats from `t` into `out`: on the parts of complex numbers one after the other. Integers and truth values go
/// through f64, which holds those up to 2^53; larger ones are an error.
pub(crate) fn as_floats(
    op: &'static str,
    t: &Tensor,
    out: &Tensor,
    kernel: impl Fn(&Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    if t.is_floating_point() {
        return kernel(t, out);
    }
    if t.is_complex() {
        let dtype = t.dtype().to_real();
        let part = |t: &Tensor, k: usize| -> Result<Tensor> {
            let strides: Vec<usize> = t.layout().strides().iter().map(|s| 2 * s).collect();
            let layout = Layout::strided(t.layout().sizes(), &strides, 2 * t.layout().offset() + k)?;
            Ok(t.alias_as(Spec { layout, dtype, device: t.device() }))
        };
        for k in 0..2 {
            let result = Tensor::try_empty(Spec::new(out.shape(), dtype, out.device())?)?;
            kernel(&part(t, k)?, &result)?;
            firebrand_kernels::copy(result.read()?.view(), part(out, k)?.write()?.view_mut());
        }
        return Ok(());
    }
    let as_f64 = |t: &Tensor| Tensor::try_empty(Spec::new(t.shape(), DType::F64, t.device())?);
    let (wide, result) = (as_f64(t)?, as_f64(out)?);
    firebrand_kernels::copy(t.read()?.view(), wide.write()?.view_mut());
    const EXACT: f64 = (1u64 << 53) as f64;
    if wide.try_to_vec::<f64>()?.iter().any(|v| v.abs() > EXACT) {
        return Err(Error::argument(op, "integers above 2^53 are not supported"));
    }
    kernel(&wide, &result)?;
    firebrand_kernels::copy(result.read()?.view(), out.write()?.view_mut());
    Ok(())
}

/// Copies numbers, broadcast and converted; memory that overlaps is safe.
pub(crate) fn copy_into(src: &Tensor, out: &Tensor) -> Result<()> {
    crate::ops::manual::copy_data(src, out)
}

/// A tensor of zeros.
pub(crate) fn zero_into(out: &Tensor) -> Result<()> {
    firebrand_kernels::fill(out.write()?.view_mut(), Scalar::Int(0).into());
    Ok(())
}

/// The error of an index that names no element.
pub(crate) fn out_of_range(op: &'static str, dim: usize, e: firebrand_kernels::index::IndexOutOfRange) -> Error {
    ErrorKind::IndexOutOfRange { op, index: e.index, dim, size: e.size }.into()
}
