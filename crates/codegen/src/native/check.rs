//! Checks of declarations against each other.

use super::NativeFunction;
use crate::error::{CodegenError, Kind, Result, Stage};
use crate::schema::BaseOperatorName;
use std::collections::{HashMap, HashSet};

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
    let by_name: HashMap<_, _> = functions.iter().map(|f| (&f.func.name, f)).collect();
    let bases: HashSet<_> = functions.iter().map(|f| &f.func.name.name).collect();
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
