//! View copies: the copy of a view has the derivative of the view.

use crate::model::{DifferentiabilityInfo, Infos, InfosByKey, OperatorInfos, Origin};
use crate::native::{NativeFunction, ViewGroup};
use std::collections::HashMap;
use std::rc::Rc;

/// Adds an info for the copy of every view that has one. An entry for the copy itself wins.
pub(crate) fn add(infos: &mut Infos, groups: &[ViewGroup]) {
    let copies: HashMap<&str, &Rc<NativeFunction>> =
        groups.iter().filter_map(|g| Some((g.view.text.as_str(), g.view_copy.as_ref()?))).collect();
    let mut added: Vec<OperatorInfos> = Vec::new();
    for operator in infos.values() {
        let mut by_key = InfosByKey::new();
        let mut func = None;
        for (key, info) in &operator.by_key {
            if let Some(copy) = copies.get(info.func.text.as_str()) {
                by_key.insert(key.clone(), Rc::new(copy_info(info, copy)));
                func = Some(Rc::clone(copy));
            }
        }
        if let Some(func) = func {
            added.push(OperatorInfos { func, origin: Origin::ViewCopy, by_key });
        }
    }
    for operator in added {
        infos.entry(operator.func.text.clone()).or_insert(operator);
    }
}

/// The info of a view, for its copy.
fn copy_info(info: &DifferentiabilityInfo, copy: &Rc<NativeFunction>) -> DifferentiabilityInfo {
    // The overload would go after the dot. Names carry none, so the dot stands alone.
    let (name, overload) = info.name.split_once('.').unwrap_or((&info.name, ""));
    DifferentiabilityInfo {
        name: format!("{name}_copy.{overload}"),
        func: Rc::clone(copy),
        op: info.op.as_ref().map(|op| format!("{op}_copy")),
        ..info.clone()
    }
}
