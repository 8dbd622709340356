//! Shared parts of in-place and `out=` variants: checks before anything is written, and the write itself.
//!
//! A kernel writes its output while it reads its inputs, so a target that partially overlaps an input gets
//! the result through a temporary. The version is counted after the write.

use crate::autograd::forward;
use crate::dtype::can_cast;
use crate::tensor::Shape;
use crate::{DType, Error, ErrorKind, Result, Spec, Tensor, state};

/// How two tensors lie to each other in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overlap {
    /// No element in common.
    No,
    /// The same elements in the same order.
    Full,
    /// Anything else, or unknown.
    Partial,
}

/// How `a` and `b` share memory.
pub(crate) fn overlap(a: &Tensor, b: &Tensor) -> Overlap {
    if a.numel() == 0 || b.numel() == 0 || !a.is_beside(b) {
        return Overlap::No;
    }
    let (la, lb) = (a.layout(), b.layout());
    if la.offset() == lb.offset() && la.same_geometry(lb) && a.dtype() == b.dtype() {
        return Overlap::Full;
    }
    // Views of parts have another dtype than their base, so places are compared in bytes.
    let (sa, sb) = (a.dtype().size(), b.dtype().size());
    if la.end() * sa <= lb.offset() * sb || lb.end() * sb <= la.offset() * sa { Overlap::No } else { Overlap::Partial }
}

fn same_shape(op: &'static str, spec: &Spec, target: &Tensor) -> Result<()> {
    if spec.layout.sizes() != target.shape() {
        return Err(Error::from(ErrorKind::InplaceShape {
            op,
            result: spec.layout.sizes().to_vec(),
            target: target.shape().to_vec(),
        }));
    }
    Ok(())
}

fn same_dtype(op: &'static str, spec: &Spec, target: &Tensor) -> Result<()> {
    if !can_cast(spec.dtype, target.dtype()) {
        return Err(ErrorKind::CannotCast { op, from: spec.dtype, to: target.dtype() }.into());
    }
    Ok(())
}

/// Refuses an `out=` argument of another dtype than the result's, for ops that do not cast.
pub(crate) fn need_dtype(op: &'static str, out: &Tensor, dtype: DType) -> Result<()> {
    if out.dtype() == dtype {
        return Ok(());
    }
    Err(Error::argument(op, format!("expected an out= tensor of dtype {dtype}, found {}", out.dtype())))
}

/// Writes an op's result into `target`: `kernel(out)` fills `out`, which is the target or a temporary. The caller has
/// called `check_writable`.
pub(crate) fn write(
    op: &'static str,
    target: &Tensor,
    spec: Shape<'_>,
    inputs: &[&Tensor],
    kernel: &dyn Fn(&Tensor) -> Result<()>,
) -> Result<()> {
    same_shape(op, &spec, target)?;
    same_dtype(op, &spec, target)?;
    if !target.is_meta() {
        let direct = spec.dtype == target.dtype()
            && inputs.iter().all(|i| i.is_same(target) || overlap(target, i) != Overlap::Partial);
        if direct {
            kernel(target)?;
        } else {
            let temporary = raw(&spec)?;
            kernel(&temporary)?;
            firebrand_kernels::copy(temporary.read()?.view(), target.write()?.view_mut());
        }
    }
    target.bump_version();
    Ok(())
}

/// Like [`write`], for kernels that read inputs after they began to write: the result always goes through a temporary if
/// the target shares memory with an input.
pub(crate) fn write_through_copy(
    op: &'static str,
    target: &Tensor,
    spec: Shape<'_>,
    inputs: &[&Tensor],
    kernel: &dyn Fn(&Tensor) -> Result<()>,
) -> Result<()> {
    if target.is_meta() || !inputs.iter().any(|i| i.is_beside(target)) {
        return write(op, target, spec, &[], kernel);
    }
    same_shape(op, &spec, target)?;
    same_dtype(op, &spec, target)?;
    let temporary = raw(&spec)?;
    kernel(&temporary)?;
    write(op, target, spec, &[], &|out| {
        firebrand_kernels::copy(temporary.read()?.view(), out.write()?.view_mut());
        Ok(())
    })
}

/// Like [`write_through_copy`], for kernels that may write over their first input, if that is the target itself and real.
pub(crate) fn write_onto_term(
    op: &'static str,
    target: &Tensor,
    spec: Shape<'_>,
    inputs: &[&Tensor],
    kernel: &dyn Fn(&Tensor) -> Result<()>,
) -> Result<()> {
    let apart =
        matches!(inputs, [term, rest @ ..] if term.is_same(target) && !rest.iter().any(|i| i.is_beside(target)));
    if apart && !target.dtype().is_complex() && target.layout().is_non_overlapping_and_dense() {
        return write(op, target, spec, &[], kernel);
    }
    write_through_copy(op, target, spec, inputs, kernel)
}

/// A tensor outside every mode: a temporary.
fn raw(spec: &Spec) -> Result<Tensor> {
    Tensor::try_empty(Spec { layout: spec.layout.to_contiguous(), ..spec.clone() })
}

/// Writes into an `out=` argument: an empty one takes the result's shape, others must have it.
pub(crate) fn write_out(
    op: &'static str,
    out: &Tensor,
    spec: Shape<'_>,
    inputs: &[&Tensor],
    kernel: &dyn Fn(&Tensor) -> Result<()>,
) -> Result<()> {
    let resized = prepare_out(op, out, &spec, inputs)?;
    write(op, resized.as_ref().unwrap_or(out), spec, inputs, kernel)?;
    adopt(out, resized);
    Ok(())
}

/// Like [`write_out`], for kernels that read inputs after they began to write.
pub(crate) fn write_out_through_copy(
    op: &'static str,
    out: &Tensor,
    spec: Shape<'_>,
    inputs: &[&Tensor],
    kernel: &dyn Fn(&Tensor) -> Result<()>,
) -> Result<()> {
    let resized = prepare_out(op, out, &spec, inputs)?;
    write_through_copy(op, resized.as_ref().unwrap_or(out), spec, inputs, kernel)?;
    adopt(out, resized);
    Ok(())
}

/// Like [`write_out_through_copy`], for several results: all are computed before the first is written.
pub(crate) fn write_outs<const N: usize>(
    op: &'static str,
    outs: [&Tensor; N],
    specs: [Spec; N],
    inputs: &[&Tensor],
    kernel: &dyn Fn([&Tensor; N]) -> Result<()>,
) -> Result<()> {
    let mut resized = [const { None }; N];
    for ((out, spec), resized) in outs.iter().zip(&specs).zip(&mut resized) {
        *resized = prepare_out(op, out, spec, inputs)?;
        same_shape(op, spec, resized.as_ref().unwrap_or(out))?;
        same_dtype(op, spec, out)?;
    }
    let results: Vec<Tensor> = specs.iter().map(raw).collect::<Result<_>>()?;
    if outs.iter().all(|out| !out.is_meta()) {
        kernel(std::array::from_fn(|k| &results[k]))?;
    }
    for (((out, spec), result), resized) in outs.iter().zip(specs).zip(&results).zip(resized) {
        write(op, resized.as_ref().unwrap_or(out), spec.into(), &[], &|out| {
            firebrand_kernels::copy(result.read()?.view(), out.write()?.view_mut());
            Ok(())
        })?;
        adopt(out, resized);
    }
    Ok(())
}

/// Why an `out=` variant is refused in forward mode.
pub(crate) const LOST_TANGENT: &str = "forward mode does not support it because it is an out= function: the tangent would be lost; use the functional variant";

/// Checks an `out=` argument. An empty one of another shape is to [`adopt`] the tensor that this returns, once the result
/// is in it: the argument may be an input too, and keeps its shape until the kernel has read it.
pub(crate) fn prepare_out(op: &'static str, out: &Tensor, spec: &Spec, inputs: &[&Tensor]) -> Result<Option<Tensor>> {
    if state::is(state::GRAD) && (out.requires_grad() || inputs.iter().any(|t| t.requires_grad())) {
        return Err(Error::argument(
            op,
            "out= variants do not record gradients, but one of the arguments requires grad; call it under no_grad, or use the functional variant",
        ));
    }
    if state::is(state::DUAL) && (forward::tangent(out).is_some() || forward::any_tangent(inputs)) {
        return Err(Error::argument(op, LOST_TANGENT));
    }
    out.check_writable(op)?;
    if out.shape() == spec.layout.sizes() || out.numel() != 0 {
        return Ok(None);
    }
    Tensor::try_empty(Spec { dtype: out.dtype(), device: out.device(), layout: spec.layout.clone() }).map(Some)
}

/// Gives `out` the memory and shape of a result that it was resized for.
pub(crate) fn adopt(out: &Tensor, resized: Option<Tensor>) {
    if let Some(t) = resized {
        out.replace_data(t.storage().clone(), t.spec().clone());
        out.bump_version();
    }
}
