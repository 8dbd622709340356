//! Forward mode: tensors that carry a tangent while a dual level is active.
//!
//! One dual level exists at a time (per wrapping level of `func`: nested `func::jvp` wraps). The tangent lives with the
//! tensor; leaving the level erases every tangent created in it. A view and its base share tangents: a view without its
//! own tangent uses the matching region of its base's.

use super::view::Lens;
use crate::func::level;
use crate::state::{self, ModeGuard};
use crate::tensor::WeakTensor;
use crate::tensor::{TANGENT, WRAPPED};
use crate::{Error, ErrorKind, Result, Tensor, capture, dispatch, ops};

/// Enters the dual level; returns an error if one is active.
#[track_caller]
pub fn enter_dual_level() -> Result<u32> {
    capture::leave("a dual level")?;
    enter()
}

fn enter() -> Result<u32> {
    if !cfg!(feature = "transforms") {
        return dispatch::left_out("forward mode", "transforms");
    }
    state::stacks(|s| match &s.dual {
        Some(_) => Err(Error::from(ErrorKind::NestedDualLevel)),
        None => {
            s.dual = Some(Default::default());
            Ok(())
        }
    })?;
    if super::mode::computes_tangents() {
        state::set_word(state::word() | state::DUAL);
    }
    Ok(0)
}

/// Leaves the dual level and erases its tangents.
pub fn exit_dual_level(level: Option<u32>) -> Result<()> {
    let active = is_dual_level_active().then_some(0);
    if active.is_none() || level.is_some_and(|l| Some(l) != active) {
        let found = level.unwrap_or(0);
        return Err(ErrorKind::DualLevelOrder { expected: active, found }.into());
    }
    state::set_word(state::word() & !state::DUAL);
    let Some(tensors) = state::stacks(|s| s.dual.take()) else { return Ok(()) };
    let tensors = std::mem::take(&mut *tensors.lock().unwrap_or_else(|e| e.into_inner()));
    for t in tensors.iter().filter_map(WeakTensor::upgrade) {
        t.clear_flag(TANGENT);
        let old = t.extras().tangent.lock().unwrap_or_else(|e| e.into_inner()).take();
        drop(old);
    }
    Ok(())
}

/// Runs `f` in a dual level.
#[track_caller]
pub fn dual_level<R>(f: impl FnOnce() -> R) -> Result<R> {
    capture::leave("a dual level")?;
    level_of_transform(f)
}

/// As [`dual_level`], for a transform: it is part of a capture if the transform is.
pub(crate) fn level_of_transform<R>(f: impl FnOnce() -> R) -> Result<R> {
    struct Exit;
    impl Drop for Exit {
        fn drop(&mut self) {
            let _ = exit_dual_level(None);
        }
    }
    enter()?;
    let _exit = Exit;
    Ok(f())
}

/// Whether a dual level is active here.
pub fn is_dual_level_active() -> bool {
    state::stacks(|s| s.dual.is_some())
}

/// An alias of `primal` that carries `tangent`.
pub fn make_dual(primal: &Tensor, tangent: &Tensor) -> Result<Tensor> {
    let (primal, tangent) = (&capture::real(primal), &capture::real(tangent));
    if !is_dual_level_active() {
        return Err(ErrorKind::NoDualLevel.into());
    }
    for t in [primal, tangent] {
        if !t.dtype().is_differentiable() {
            return Err(ErrorKind::DualDtype { dtype: t.dtype() }.into());
        }
        if self::tangent(t).is_some() {
            return Err(ErrorKind::DualTwice.into());
        }
    }
    if primal.shape() != tangent.shape() {
        let (expected, found) = (primal.shape().to_vec(), tangent.shape().to_vec());
        return Err(ErrorKind::DualShape { expected, found }.into());
    }
    let dual = {
        let _off = ModeGuard::new(0, state::DUAL);
        ops::formulas::view_of_all(primal)?
    };
    attach(&dual, like_primal(primal, tangent)?);
    Ok(dual)
}

/// The tangent itself if it has the same layout and storage size as the primal: then a view of part of the
/// primal's memory is also a valid view of the tangent's. Otherwise a copy with that layout, with zeros around it.
fn like_primal(primal: &Tensor, tangent: &Tensor) -> Result<Tensor> {
    let memory = |t: &Tensor| t.storage().nbytes() / t.dtype().size();
    let (p, t) = (primal.layout(), tangent.layout());
    let same_strides = (0..p.ndim()).all(|d| p.sizes()[d] == 1 || p.strides()[d] == t.strides()[d]);
    let same = same_strides && p.offset() == t.offset() && memory(primal) == memory(tangent);
    // Elements that share memory cannot be written one by one.
    if same || p.has_internal_overlap() {
        return Ok(tangent.clone());
    }
    // The memory of a wrapper is not what it shows, and a tracer sees ops only.
    let opaque = (primal.flags() | tangent.flags()) & WRAPPED != 0 || state::is(state::LEVEL | state::INNER);
    if opaque {
        let dense = p.is_non_overlapping_and_dense() && !same_strides;
        return if dense { ops::formulas::clone_with_layout(tangent, &p.dense_like()) } else { Ok(tangent.clone()) };
    }
    let _off = ModeGuard::new(0, state::DUAL);
    let zeros = ops::zeros(&[memory(primal).into()], Some(tangent.dtype()), Some(tangent.device()))?;
    let copy = zeros.alias_with(p.clone());
    ops::copy_(&copy, tangent, false)?;
    Ok(copy)
}

/// The primal (without tangent) and the tangent of a tensor; no tangent outside a level.
pub fn unpack_dual(t: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
    let t = &capture::real(t);
    if !is_dual_level_active() {
        return Ok((t.clone(), None));
    }
    let primal = {
        let _off = ModeGuard::new(0, state::DUAL);
        ops::formulas::view_of_all(t)?
    };
    if let Some(view) = primal.view_info() {
        view.hide_tangent();
    }
    Ok((primal, tangent(t)))
}

/// The tangent a tensor carries; a tensor of another wrapping level is a constant here.
pub(crate) fn tangent(t: &Tensor) -> Option<Tensor> {
    // Unless it was written in place here: then it has a tangent of this level.
    let of_here = |owner: &Tensor| stored(owner).filter(|g| owner.is_of_this_level() || g.is_of_this_level());
    if t.flags() & TANGENT != 0 {
        return of_here(t);
    }
    // Written through its base after the view was made.
    let view = t.view_info()?;
    let base = &view.base;
    if base.flags() & TANGENT == 0 || view.hides_tangent() {
        return None;
    }
    region(&of_here(base)?, base, t).ok()
}

/// The part of a base's tangent that belongs to a view of it.
fn region(whole: &Tensor, base: &Tensor, view: &Tensor) -> Result<Tensor> {
    let (all, part) = (base.layout(), view.layout());
    if base.dtype() == view.dtype() && all.offset() == part.offset() && all.same_geometry(part) {
        return Ok(whole.clone()); // all of it
    }
    let strange = || ErrorKind::OtherDtypeViewInplace { indirect: true, of: None };
    let lens = Lens::of(base.dtype(), view.dtype()).ok_or_else(strange)?;
    let (from, part) = lens.layouts(base.layout(), view.layout())?;
    lens.show(ops::formulas::region_of(&lens.enter(whole)?, &from, &part)?)
}

/// The tangent stored with the tensor itself, whatever level it belongs to.
pub(crate) fn stored(t: &Tensor) -> Option<Tensor> {
    t.extras().tangent.lock().unwrap_or_else(|e| e.into_inner()).clone()
}

/// Whether some tensor carries a tangent.
pub(crate) fn any_tangent(ts: &[&Tensor]) -> bool {
    ts.iter().any(|t| tangent(t).is_some())
}

/// The tangent, or zeros.
pub(crate) fn tangent_or_zeros(t: &Tensor) -> Result<Tensor> {
    tangent(t).map_or_else(|| ops::formulas::zeros_like_primal(t), Ok)
}

/// The tangent of an optional tensor, or zeros; `None` if there is no tensor.
pub(crate) fn opt_tangent_or_zeros(t: Option<&Tensor>) -> Result<Option<Tensor>> {
    t.map(tangent_or_zeros).transpose()
}

/// The tangents of a list, zeros where there is none.
pub(crate) fn tangents_or_zeros(ts: &[Tensor]) -> Result<Vec<Tensor>> {
    ts.iter().map(tangent_or_zeros).collect()
}

/// Attaches a tangent to a tensor until the level ends.
pub(crate) fn attach(t: &Tensor, tangent: Tensor) {
    let before = t.extras().tangent.lock().unwrap_or_else(|e| e.into_inner()).replace(tangent);
    drop(before);
    t.set_flag(TANGENT);
    if let Some(list) = state::stacks(|s| s.dual.clone()) {
        list.lock().unwrap_or_else(|e| e.into_inner()).push(t.downgrade());
    }
}

/// Takes the tangent off a tensor that is detached in place.
pub(crate) fn forget(t: &Tensor) {
    if t.flags() & TANGENT != 0 {
        let before = t.extras().tangent.lock().unwrap_or_else(|e| e.into_inner()).take();
        drop(before);
        t.clear_flag(TANGENT);
    }
}

/// Attaches the tangent to the result of an op.
pub(crate) fn set_tangent(result: &Tensor, tangent: Tensor) -> Result<()> {
    if !result.dtype().is_differentiable() {
        return Ok(());
    }
    let tangent =
        if tangent.dtype() != result.dtype() { ops::formulas::cast(&tangent, result.dtype())? } else { tangent };
    let tangent =
        if tangent.shape() != result.shape() { ops::formulas::expand_to(&tangent, result.shape())? } else { tangent };
    attach(result, tangent);
    pass_on(result);
    Ok(())
}

/// What a node saved of this output gets its tangent too, so that the backward can be differentiated in forward mode.
fn pass_on(output: &Tensor) {
    let saved = output.extras_if_any().and_then(|e| e.saved_alias.lock().unwrap_or_else(|e| e.into_inner()).take());
    if let Some(alias) = saved
        && let Some(t) = tangent(output)
    {
        attach(&alias, t);
    }
}

/// Sets the new tangent of a tensor that was written in place: in the memory of the old one, so that views see it.
pub(crate) fn set_tangent_inplace(target: &Tensor, new: Tensor) -> Result<()> {
    let _off = ModeGuard::new(0, state::DUAL);
    let hidden = |t: &Tensor| t.flags() & TANGENT != 0 && !t.is_of_this_level() && tangent(t).is_none();
    if hidden(target) || target.base_here().is_some_and(hidden) {
        // It would take the place of the tangent that the tensor has outside.
        return Err(ErrorKind::CapturedMutation { op: "forward mode" }.into());
    }
    write_tangent(target, new)?;
    pass_on(target);
    Ok(())
}

fn write_tangent(target: &Tensor, new: Tensor) -> Result<()> {
    match tangent(target) {
        Some(old) if old.is_same(&new) => Ok(()),
        Some(old) if level::holds(&old, &new) => ops::copy_(&old, &new, false).map(drop),
        // None yet, or one that is the same for all samples where the new one is not: a new one of the whole base.
        old => match target.view_info().filter(|v| !v.hides_tangent()).map(|v| &v.base) {
            Some(base) => {
                // The base gets a zero tangent first; the region of it is what was written.
                let zeros = ops::formulas::zeros_with_layout(base, &ops::formulas::cast(&new, base.dtype())?)?;
                if let (Some(_), Some(before)) = (&old, stored(base)) {
                    ops::copy_(&zeros, &before, false)?;
                }
                let region = region(&zeros, base, target)?;
                ops::copy_(&region, &new, false)?;
                if old.is_some() {
                    attach(target, region);
                }
                attach(base, zeros);
                Ok(())
            }
            None => {
                let own = ops::formulas::zeros_with_layout(target, &new)?;
                ops::copy_(&own, &new, false)?;
                attach(target, own);
                Ok(())
            }
        },
    }
}
