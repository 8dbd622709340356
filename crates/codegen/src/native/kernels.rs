//! The kernels of a declaration: its dispatch section, or what holds without one.

use super::dispatch::{
    COMPOSITE_EXPLICIT, COMPOSITE_EXPLICIT_NON_FUNCTIONAL, COMPOSITE_IMPLICIT, COMPOSITE_IMPLICIT_NESTED, DispatchKey,
    parse_key,
};
use super::read::{Check, bad_value, refuse};
use crate::api::cpp;
use crate::error::Kind;
use crate::schema::FunctionSchema;
use crate::yaml::Node;

/// The dispatch section.
pub(super) fn kernels(node: &Node, func: &FunctionSchema, delegates: bool) -> Check<Vec<(DispatchKey, String)>> {
    let pairs = node.as_map().ok_or_else(|| bad_value("dispatch", "a mapping"))?;
    let mut kernels: Vec<(DispatchKey, String)> = Vec::new();
    let mut count = 0;
    let mut redundant = false;
    for (keys, kernel) in pairs {
        let (Some(keys), Some(kernel)) = (keys.as_str(), kernel.as_str()) else {
            return Err(bad_value("dispatch", "a mapping from keys to kernel names"));
        };
        for key in keys.split(',') {
            let key = parse_key(key.trim())?;
            count += 1;
            redundant |= key == COMPOSITE_IMPLICIT && kernel == cpp::name(func);
            let name = kernel.rsplit("::").next().unwrap_or(kernel).to_owned();
            match kernels.iter_mut().find(|(k, _)| *k == key) {
                Some(slot) => slot.1 = name,
                None => kernels.push((key, name)),
            }
        }
    }
    if count == 1 && redundant {
        return refuse(Kind::DispatchRedundant, "the dispatch section says what holds without it: delete it");
    }
    if let [(COMPOSITE_IMPLICIT, kernel)] = kernels.as_slice()
        && count == 1
        && !delegates
        && !kernel.contains("_symint")
    {
        let expected = cpp::name(func);
        return refuse(
            Kind::DispatchSingletonName,
            format!("the kernel is called `{kernel}`: call it `{expected}` and delete the dispatch section"),
        );
    }
    Ok(kernels)
}

/// What an operator without a dispatch section has.
pub(super) fn implicit_kernel(func: &FunctionSchema) -> Check<Vec<(DispatchKey, String)>> {
    let name = func.name.name.to_string();
    let factory = func.arguments.tensor_options.is_some() && !func.arguments.has_tensor();
    if name.starts_with("new_") || name.ends_with("_like") || factory {
        return refuse(Kind::FactoryNeedsDispatch, format!("factory `{name}` needs a {COMPOSITE_EXPLICIT} kernel"));
    }
    Ok(vec![(COMPOSITE_IMPLICIT, cpp::name(func))])
}

pub(super) fn check_composites(dispatch: &[(DispatchKey, String)]) -> Check {
    let has = |key: DispatchKey| dispatch.iter().any(|(k, _)| *k == key);
    let composites =
        [COMPOSITE_EXPLICIT, COMPOSITE_EXPLICIT_NON_FUNCTIONAL, COMPOSITE_IMPLICIT, COMPOSITE_IMPLICIT_NESTED];
    let count = composites.into_iter().filter(|key| has(key)).count();
    let pair = count == 2 && has(COMPOSITE_IMPLICIT_NESTED) && !has(COMPOSITE_EXPLICIT_NON_FUNCTIONAL);
    if count > 1 && !pair {
        return refuse(Kind::DispatchTwoComposites, "more than one composite kernel: each covers the other");
    }
    Ok(())
}
