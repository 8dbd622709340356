//! Functionalization: views as data that can be replayed forwards and backwards.

use super::{Binding, TypeStyle, dispatcher};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::native::ViewGroup;
use crate::schema::{Argument, FunctionSchema, Type};

type Check<T> = std::result::Result<T, Refusal>;

/// The class that describes one application of a view.
pub fn view_meta_class(view: &FunctionSchema) -> String {
    format!("{}_ViewMeta", view.name.unambiguous_name())
}

/// The call that replays a view: the view itself or its copy.
pub fn forward_call(group: &ViewGroup, reapply_views: bool) -> Check<String> {
    let called = match &group.view_copy {
        _ if reapply_views => &group.view,
        Some(copy) => copy,
        None => return Err(Refusal::new(Kind::ViewCopyMissing, format!("`{}` has no copy", group.view.text))),
    };
    Ok(format!("at::_ops::{}::call", called.func.name.unambiguous_name()))
}

/// The function that undoes a view.
pub fn reverse_name(view: &FunctionSchema) -> String {
    format!("{}_inverse", view.name.unambiguous_name())
}

/// Whether several tensors come out.
pub fn is_multi_output(view: &FunctionSchema) -> bool {
    match view.returns.as_slice() {
        [only] => only.ty.as_list().is_some(),
        returns => returns.len() > 1,
    }
}

/// The arguments after the first, which must be the tensor that is viewed.
fn non_self(view: &FunctionSchema) -> Check<impl Iterator<Item = &Argument>> {
    let mut arguments = view.arguments.flat_all();
    match arguments.next() {
        Some(first) if first.ty == Type::TENSOR => Ok(arguments),
        _ => Err(Refusal::new(Kind::ViewArgument, format!("the first argument of `{view}` is not a tensor"))),
    }
}

fn inverse_return_mode() -> Binding {
    Binding::new("inverse_return_mode", CBase::InverseReturnMode)
}

/// The arguments of the forward or the reverse function.
pub fn op_arguments(view: &FunctionSchema, is_reverse: bool, style: TypeStyle) -> Check<Vec<Binding>> {
    let tensor = || CType::from(CBase::Tensor).const_ref();
    let mut bindings = vec![Binding::new("base", tensor())];
    if is_reverse {
        bindings.push(Binding::new("mutated_view", tensor()));
        bindings.push(inverse_return_mode());
        if is_multi_output(view) {
            bindings.push(Binding::new("out_index", CBase::Long));
        }
    }
    for a in non_self(view)? {
        bindings.push(dispatcher::argument(a, style)?);
    }
    Ok(bindings)
}

/// What a view-meta object stores, owning its memory.
pub fn attributes(view: &FunctionSchema, style: TypeStyle) -> Check<Vec<Binding>> {
    let mut bindings = vec![Binding::new("reapply_views", CBase::Bool), inverse_return_mode()];
    for a in non_self(view)? {
        bindings.push(dispatcher::owning_argument(a, style)?);
    }
    Ok(bindings)
}
