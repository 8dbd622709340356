//! Helpers for the engine and all families of formulas: reducing, casting, slicing and scattering gradients.

use crate::func::level;
use crate::layout::{Dims, Layout};
use crate::ops::lists;
use crate::sym::{SymInt, SymInts};
use crate::{DType, Result, Scalar, Spec, Tensor, ops};
use smallvec::SmallVec;

/// What a formula may evaluate to.
pub(crate) trait IntoGrad {
    fn into_grad(self) -> Option<Tensor>;
}
impl IntoGrad for Tensor {
    fn into_grad(self) -> Option<Tensor> {
        Some(self)
    }
}
impl IntoGrad for &Tensor {
    fn into_grad(self) -> Option<Tensor> {
        Some(self.clone())
    }
}
impl IntoGrad for Option<Tensor> {
    fn into_grad(self) -> Option<Tensor> {
        self
    }
}

/// What a formula for a list of tensors may evaluate to.
pub(crate) trait IntoGrads {
    fn into_grads(self) -> Vec<Option<Tensor>>;
}
impl IntoGrads for Vec<Option<Tensor>> {
    fn into_grads(self) -> Vec<Option<Tensor>> {
        self
    }
}
impl IntoGrads for Vec<Tensor> {
    fn into_grads(self) -> Vec<Option<Tensor>> {
        self.into_iter().map(Some).collect()
    }
}

/// Stores the gradient of an input.
pub(crate) fn put(place: &mut Option<Tensor>, grad: impl IntoGrad) {
    *place = grad.into_grad();
}

/// Stores the gradients of a list of inputs.
pub(crate) fn put_all(places: &mut [Option<Tensor>], grads: impl IntoGrads) {
    for (place, grad) in places.iter_mut().zip(grads.into_grads()) {
        *place = grad;
    }
}

/// The size of one dimension; 1 for a 0-dim tensor.
pub(crate) fn sym_size(t: &Tensor, dim: i64) -> Result<SymInt> {
    let d = ops::shape::wrap_dim("size", dim, t.ndim())?;
    Ok(t.shape().get(d).copied().unwrap_or(1).into())
}

/// Zeros of a remembered shape, dtype and device.
pub(crate) fn zeros_of(spec: &Spec) -> Result<Tensor> {
    zeros_plain(&spec.layout.to_contiguous(), spec.dtype, spec.device)
}

/// The formula of a derivative that is not implemented; `what` is `op: argument`.
pub(crate) fn not_implemented(what: &str) -> Result<Tensor> {
    let (op, argument) = what.split_once(": ").unwrap_or((what, ""));
    Err(crate::ErrorKind::DerivativeNotImplemented { op: op.to_string(), argument: argument.to_string() }.into())
}

pub(crate) fn sym(sizes: &[usize]) -> SymInts {
    sizes.iter().map(|&n| n.into()).collect()
}

/// The conjugate; of real numbers the tensor itself.
pub(crate) fn conj(t: &Tensor) -> Result<Tensor> {
    if t.is_complex() { ops::conj_physical(t) } else { Ok(t.clone()) }
}

/// Converts to another dtype; the same tensor if it has it.
pub(crate) fn cast(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype { Ok(t.clone()) } else { ops::to_copy(t, Some(dtype), None, false, None) }
}

/// Sums over the dims that broadcasting added or repeated.
pub(crate) fn sum_to_size(g: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    if g.shape() == sizes {
        return Ok(g.clone());
    }
    let lead = g.ndim() - sizes.len();
    let dims: SmallVec<[i64; 6]> =
        (0..g.ndim()).filter(|&k| k < lead || (sizes[k - lead] == 1 && g.shape()[k] != 1)).map(|k| k as i64).collect();
    let summed = if dims.is_empty() { g.clone() } else { ops::sum_dim(g, Some(&dims), true, None)? };
    if lead > 0 { ops::view(&summed, &sym(sizes)) } else { Ok(summed) }
}

/// `a + b`.
pub(crate) fn add_tensors(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::add(a, b, Scalar::Int(1))
}

/// `a += b`.
pub(crate) fn add_in_place(a: &Tensor, b: &Tensor) -> Result<()> {
    ops::add_(a, b, Scalar::Int(1)).map(|_| ())
}

/// Whether some element is NaN.
pub(crate) fn has_nan(t: &Tensor) -> Result<bool> {
    if !t.dtype().is_differentiable() || t.is_meta() || t.numel() == 0 {
        return Ok(false);
    }
    if t.is_sparse() {
        return crate::tensor::sparse::has_nan(t);
    }
    if crate::state::is(crate::state::LEVEL) {
        // Of any sample.
        let below = crate::func::level::unwrap(t)?;
        return crate::state::descend(|| has_nan(&below.value));
    }
    let _plain = crate::autograd::NoGrad::new();
    ops::any(&ops::ne(t, t)?)?.try_item::<bool>()
}

/// A tracked view of the whole tensor.
pub(crate) fn view_of_all(t: &Tensor) -> Result<Tensor> {
    ops::alias(t)
}

/// Broadcast to a shape.
pub(crate) fn expand_to(t: &Tensor, sizes: &[usize]) -> Result<Tensor> {
    if t.shape() == sizes { Ok(t.clone()) } else { ops::expand(t, &sym(sizes), false) }
}

/// Whether a layer below autograd writes down what happens: then tensors are made by ops it can see.
pub(crate) fn is_traced() -> bool {
    let word = crate::state::word();
    // A level has a layer of its own; the ops of a captured one are written down when they have come down.
    word & crate::state::INNER != 0 && (word & crate::state::LEVEL == 0 || crate::state::stacks(|s| s.tracer.is_some()))
}

/// Zeros of the same shape and dtype, dense.
pub(crate) fn zeros_like_primal(t: &Tensor) -> Result<Tensor> {
    if is_traced() {
        return ops::zeros_like(t, None, None, None);
    }
    let spec = Spec { layout: t.layout().dense_like(), dtype: t.dtype(), device: t.device() };
    let out = Tensor::try_empty(spec)?;
    if !out.is_meta() {
        firebrand_kernels::fill(out.write()?.view_mut(), Scalar::Int(0).into());
    }
    Ok(out)
}

/// `like` is what will be written into the zeros: inside vmap they are batched if it is.
fn zeros_strided(layout: &Layout, like: &Tensor) -> Result<Tensor> {
    if crate::state::is(crate::state::LEVEL) {
        return level::zeros_for(layout, &[like]);
    }
    zeros_plain(layout, like.dtype(), like.device())
}

/// Zeros of the given strides, one for all samples.
pub(crate) fn zeros_plain(layout: &Layout, dtype: DType, device: crate::Device) -> Result<Tensor> {
    if is_traced() {
        let end = layout.from_start().end();
        let flat = ops::zeros(&sym(&[end]), Some(dtype), Some(device))?;
        return ops::as_strided(&flat, &sym(layout.sizes()), &sym(layout.strides()), Some(0.into()));
    }
    // All of the memory is cleared, also what lies between the elements: views of it may show that.
    let end = layout.from_start().end();
    let flat = Tensor::try_empty(Spec::new(&[end], dtype, device)?)?;
    if !flat.is_meta() {
        firebrand_kernels::fill(flat.write()?.view_mut(), Scalar::Int(0).into());
    }
    Ok(flat.alias_with(layout.from_start()))
}

/// Zeros with the strides of a tensor, so that regions of both correspond; `like` is going to be written into them.
pub(crate) fn zeros_with_layout(t: &Tensor, like: &Tensor) -> Result<Tensor> {
    zeros_strided(t.layout(), like)
}

/// A copy with the given strides.
pub(crate) fn clone_with_layout(t: &Tensor, layout: &Layout) -> Result<Tensor> {
    let layout = layout.from_start();
    let out = if crate::state::is(crate::state::LEVEL) || is_traced() {
        zeros_strided(&layout, t)?
    } else {
        Tensor::try_empty(Spec { layout, dtype: t.dtype(), device: t.device() })?
    };
    ops::copy_(&out, t, false)?;
    out.set_version_counter(0);
    Ok(out)
}

/// The part of `whole` (laid out as `base`) that a view with layout `region` of the base shows.
pub(crate) fn region_of(whole: &Tensor, base: &Layout, region: &Layout) -> Result<Tensor> {
    let at = whole.layout().offset() + region.offset() - base.offset();
    let strides: SymInts = region.strides().iter().map(|&s| s.into()).collect();
    ops::as_strided(whole, &sym(region.sizes()), &strides, Some(SymInt::from(at)))
}

/// A copy of a base's gradient in the base's own layout, and a copy of the region's part of it.
pub(crate) fn cut_region(g: &Tensor, base: &Layout, region: &Layout) -> Result<(Tensor, Tensor)> {
    let whole = clone_with_layout(g, base)?;
    let slice = ops::clone(&region_of(&whole, base, region)?, None)?;
    Ok((whole, slice))
}

/// A region's layout as seen from the first element of its base.
fn region_at(base: &Layout, region: &Layout) -> Layout {
    Layout::derived(region.sizes(), region.strides(), region.offset() - base.offset())
}

/// The gradient of a base with the region's part replaced (by zeros if there is none).
pub(crate) fn paste_region(whole: &Tensor, part: Option<&Tensor>, base: &Layout, region: &Layout) -> Result<Tensor> {
    let target = region_of(whole, base, region)?;
    match part {
        Some(p) => {
            let p = sum_to_size(p, region.sizes())?;
            if !level::holds(whole, &p) {
                // Inside vmap the part may differ between samples where the whole does not.
                let wider = level::zeros_for(base, &[whole, &p])?;
                ops::copy_(&wider, whole, false)?;
                return paste_region(&wider, Some(&p), &base.from_start(), &region_at(base, region));
            }
            ops::copy_(&target, &p, false)?;
        }
        None => {
            ops::zero_(&target)?;
        }
    }
    Ok(whole.clone())
}

/// The gradient of a base of which a region was shown: `g` in the region, zero elsewhere. Elements shown several times
/// get the sum.
pub(crate) fn as_strided_scatter_zeros(g: &Tensor, base: &Layout, region: &Layout) -> Result<Tensor> {
    // Repeated dims (stride 0) are summed first.
    let repeated: SmallVec<[i64; 6]> =
        (0..region.ndim()).filter(|&k| region.strides()[k] == 0 && region.sizes()[k] > 1).map(|k| k as i64).collect();
    let g = if repeated.is_empty() { g.clone() } else { ops::sum_dim(g, Some(&repeated), true, None)? };
    let sizes: Dims = (0..region.ndim())
        .map(|k| if region.strides()[k] == 0 { region.sizes()[k].min(1) } else { region.sizes()[k] })
        .collect();
    let region = Layout::strided(&sizes, region.strides(), region.offset())?;
    if region.has_internal_overlap() || base.has_internal_overlap() {
        return overlapping_scatter(&g, base, &region);
    }
    let whole = zeros_strided(base, &g)?;
    if region.numel() > 0 {
        ops::copy_(&region_of(&whole, base, &region)?, &g, false)?;
    }
    Ok(whole)
}

/// As above for windows that overlap each other (unfold): by position in memory.
fn overlapping_scatter(g: &Tensor, base: &Layout, region: &Layout) -> Result<Tensor> {
    let start = base.offset().min(region.offset());
    let end = base.end().max(region.end());
    let positions = |l: &Layout| -> Result<Tensor> {
        let mut list = vec![(l.offset() - start) as i64];
        for (&n, &s) in l.sizes().iter().zip(l.strides()) {
            let next = list.iter().flat_map(|&p| (0..n).map(move |k| p + (k * s) as i64));
            list = lists::collected(list.len().saturating_mul(n), next)?;
        }
        Tensor::try_from_vec(list, [l.numel()])
    };
    let zeros = Tensor::try_full_spec(&[end - start], Scalar::Int(0), g.dtype())?;
    let flat = ops::reshape(g, &[SymInt::from(-1)])?;
    let memory = ops::index_add(&zeros, 0, &positions(region)?, &flat, Scalar::Int(1))?;
    // Elements of an overlapping base share their gradient equally, so that the sum over the memory is right.
    let at = positions(base)?;
    let mut picked = ops::index_select(&memory, 0, &at)?;
    if base.has_internal_overlap() {
        let ones = Tensor::try_full_spec(&[base.numel()], Scalar::Int(1), g.dtype())?;
        let zeros = Tensor::try_full_spec(&[end - start], Scalar::Int(0), g.dtype())?;
        let counts = ops::index_select(&ops::index_add(&zeros, 0, &at, &ones, Scalar::Int(1))?, 0, &at)?;
        picked = ops::div(&picked, &counts)?;
    }
    ops::view(&picked, &sym(base.sizes()))
}
