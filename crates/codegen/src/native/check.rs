//! Checks of finished declarations: each on its own, then against each other.

use super::NativeFunction;
use super::read::{Check, bad_value, refuse};
use crate::error::{CodegenError, Kind, Result, Stage};
use crate::hash::{QuickMap, QuickSet};
use crate::schema::{BaseOperatorName, BaseTy, SchemaKind};

/// Words an argument may not be called, because Python callers could not name it.
#[rustfmt::skip]
const PYTHON_KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Operators that were there before the rule.
const FROM_IS_FINE: &[&str] = &["_has_compatible_shallow_copy_type", "random_.from", "uniform_"];

/// Delegates exist and are structured, no argument is a Python keyword, in-place views have their twin.
pub(super) fn cross_check(functions: &[NativeFunction]) -> Result<()> {
    let by_name: QuickMap<_, _> = functions.iter().map(|f| (&f.func.name, f)).collect();
    let bases: QuickSet<_> = functions.iter().map(|f| &f.func.name.name).collect();
    for f in functions {
        let name = f.func.name.to_string();
        let fail = |kind, message: String| Err(CodegenError::new(Stage::Native, kind, message).at(f.line, &f.text));
        if let Some(delegate) = &f.structured_delegate
            && !by_name.get(delegate).is_some_and(|d| d.structured)
        {
            return fail(Kind::DelegateBad, format!("`{name}` delegates to `{delegate}`, which is not structured"));
        }
        if let Some(a) = f
            .func
            .arguments
            .flat_all()
            .find(|a| PYTHON_KEYWORDS.contains(&&*a.name) && !(a.name == "from" && FROM_IS_FINE.contains(&&*name)))
        {
            return fail(Kind::ArgReservedWord, format!("argument `{}` of `{name}` is a Python keyword", a.name));
        }
        let exempt = matches!(&*name, "resize_" | "resize_as_") || f.func.name.name.to_string() == "set_";
        if f.has_tag("inplace_view") && !exempt {
            let twin = BaseOperatorName { inplace: false, functional_overload: false, ..f.func.name.name.clone() };
            if !f.func.name.name.inplace || !bases.contains(&twin) {
                return fail(Kind::InplaceViewBad, format!("in-place view `{name}` needs the operator `{twin}`"));
            }
        }
    }
    Ok(())
}

/// Checks on the finished declaration; generated variants go through them too.
pub(super) fn check_whole(f: &NativeFunction, device_guard: bool, inherits: bool) -> Check {
    let name = f.func.name.to_string();
    if f.func.is_out_fn() && f.variant_method {
        return refuse(Kind::OutVariantMethod, format!("out operator `{name}` can only be a function"));
    }
    if f.structured && f.kind() != SchemaKind::Out {
        return refuse(Kind::StructuredNotOut, "`structured` belongs on the out operator");
    }
    if f.structured_delegate.is_some() && f.kind() == SchemaKind::Out {
        return refuse(Kind::DelegateOnOut, "`structured_delegate` does not belong on the out operator");
    }
    if f.part_of_structured_group() && !device_guard {
        return Err(bad_value("device_guard", "absent on structured operators"));
    }
    if f.structured && f.structured_delegate.is_some() {
        return Err(bad_value("structured", "absent on delegating operators"));
    }
    let has_default = |name: &String| f.func.arguments.flat_all().any(|a| a.name == *name && a.default.is_some());
    if let Some(name) = f.cpp_no_default_args.iter().find(|name| !has_default(name)) {
        return Err(bad_value("cpp_no_default_args", &format!("a list of defaulted arguments (not `{name}`)")));
    }
    if inherits && !f.structured {
        return Err(bad_value("structured_inherits", "absent unless structured"));
    }
    if name.starts_with("_foreach") && f.device_check {
        return refuse(Kind::ForeachDeviceCheck, "foreach operators need `device_check: NoCheck`");
    }
    let mut arguments = f.func.arguments.flat_all();
    let says_dropout = name.contains("dropout") || arguments.any(|a| a.name.contains("dropout"));
    let exempt = name.contains("backward") || f.func.name.name.to_string() == "_cudnn_init_dropout_state";
    let random = name.contains("rand") && !name.contains("_philox_")
        || says_dropout && !exempt
        || f.func.arguments.flat_non_out().any(|a| a.ty.innermost() == Some(BaseTy::Generator));
    if random && !f.has_tag("nondeterministic_seeded") {
        return refuse(Kind::TagSeededMissing, format!("`{name}` is random: it needs the tag nondeterministic_seeded"));
    }
    Ok(())
}
