//! View groups: a view, its in-place form and its copy.
//!
//! Guarantees that a view that can be traced has a copy with the same signature and the right tag.

use super::NativeFunction;
use super::dispatch::{COMPOSITE_IMPLICIT, COMPOSITE_IMPLICIT_NESTED};
use crate::error::{CodegenError, Kind, Result, Stage};
use crate::hash::QuickIndexMap;
use crate::schema::{FunctionSchema, SchemaKind};
use std::borrow::Cow;
use std::rc::Rc;

/// A view and what belongs to it.
#[derive(Clone, Debug)]
pub struct ViewGroup {
    /// The view.
    pub view: Rc<NativeFunction>,
    /// Its in-place form.
    pub view_inplace: Option<Rc<NativeFunction>>,
    /// The operator that computes the same values without sharing memory.
    pub view_copy: Option<Rc<NativeFunction>>,
}

/// How a member of a signature group shares memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Slot {
    Aliasing,
    AliasingInplace,
    Other(SchemaKind),
}

/// Functions in the order in which entries look them up, and the view groups among them.
pub fn group_views(functions: &[Rc<NativeFunction>]) -> Result<(Vec<Rc<NativeFunction>>, Vec<ViewGroup>)> {
    type Members<'a> = QuickIndexMap<Slot, &'a Rc<NativeFunction>>;
    let mut by_signature: QuickIndexMap<Cow<'_, FunctionSchema>, Members<'_>> = QuickIndexMap::default();
    by_signature.reserve(functions.len());
    for f in functions {
        let slot = slot(f)?;
        if by_signature.entry(view_signature(f)).or_default().insert(slot, f).is_some() {
            return fail(f, Kind::DuplicateVariant, "two operators of one kind in one view group");
        }
    }
    let mut flat = Vec::with_capacity(functions.len());
    let mut groups = Vec::new();
    for mut members in by_signature.into_values() {
        if let Some(view) = members.shift_remove(&Slot::Aliasing).cloned() {
            let group = ViewGroup {
                view,
                view_inplace: members.shift_remove(&Slot::AliasingInplace).cloned(),
                view_copy: members.shift_remove(&Slot::Other(SchemaKind::Functional)).cloned(),
            };
            check(&group)?;
            flat.push(group.view.clone());
            flat.extend(group.view_inplace.iter().chain(&group.view_copy).cloned());
            groups.push(group);
        }
        flat.extend(members.into_values().cloned());
    }
    Ok((flat, groups))
}

fn fail<T>(f: &NativeFunction, kind: Kind, message: &str) -> Result<T> {
    Err(CodegenError::new(Stage::Derivatives, kind, message).at(f.line, &f.text))
}

/// The signature a view shares with its copy; for most operators their own.
fn view_signature(f: &NativeFunction) -> Cow<'_, FunctionSchema> {
    let base = f.func.base();
    if base.ends_with("_copy") || base.ends_with("_scatter") {
        Cow::Owned(f.func.view_signature())
    } else {
        Cow::Borrowed(&f.signature)
    }
}

fn slot(f: &NativeFunction) -> Result<Slot> {
    if !f.is_view_op() {
        return Ok(Slot::Other(f.kind()));
    }
    if !f.func.name.name.inplace {
        return Ok(Slot::Aliasing);
    }
    if !f.has_tag("inplace_view") {
        return fail(f, Kind::InplaceViewTagMissing, "an in-place view needs the tag inplace_view");
    }
    Ok(Slot::AliasingInplace)
}

fn check(group: &ViewGroup) -> Result<()> {
    let view = &group.view;
    let traceable = !view.has_kernel(COMPOSITE_IMPLICIT)
        && !view.has_tag("inplace_view")
        && !view.func.base().ends_with("_inverse");
    match &group.view_copy {
        None if traceable => {
            let message = format!("the view needs an operator `{}_copy`", view.func.base());
            return fail(view, Kind::ViewCopyMissing, &message);
        }
        None => {}
        Some(copy) => {
            let base = copy.func.base();
            if !(base.ends_with("_copy") || base.ends_with("_scatter")) {
                return fail(copy, Kind::ViewCopyName, "the copy of a view is called `_copy` or `_scatter`");
            }
            if view.signature != *view_signature(copy) {
                return fail(copy, Kind::ViewCopySignature, "the copy of a view has the signature of the view");
            }
            if !copy.has_tag("view_copy") {
                return fail(copy, Kind::ViewCopyTagMissing, "the copy of a view needs the tag view_copy");
            }
        }
    }
    if let Some(inplace) = &group.view_inplace {
        if view.signature != inplace.signature {
            return fail(inplace, Kind::ViewCopySignature, "the in-place view has another signature than the view");
        }
        for key in [COMPOSITE_IMPLICIT, COMPOSITE_IMPLICIT_NESTED] {
            if view.has_kernel(key) && !inplace.has_kernel(key) {
                return fail(inplace, Kind::ViewCompositeMismatch, "composite like its view or not at all");
            }
        }
    }
    Ok(())
}
