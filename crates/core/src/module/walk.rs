//! The bodies of [`Module`]'s methods: compiled once, not for every type of module.

use super::field::Members;
use super::{Module, Parameter};
use crate::autograd::no_grad;
use crate::{DType, Device, Result, Tensor};
use firebrand_kernels::shared::Arc as Counted;
use std::collections::HashSet;

/// A type's name without path and type arguments.
pub(super) fn short_name(full: &'static str) -> &'static str {
    let full = full.split('<').next().unwrap_or(full);
    full.rsplit("::").next().unwrap_or(full)
}

pub(super) fn named_modules(module: &dyn Module) -> Vec<(String, &dyn Module)> {
    let (mut list, mut seen) = (Vec::new(), HashSet::new());
    modules_below(String::new(), module, &mut seen, &mut list);
    list
}

pub(super) fn named_parameters(module: &dyn Module) -> Vec<(String, Parameter)> {
    let (mut list, mut seen) = (Vec::new(), HashSet::new());
    for (path, module) in module.named_modules() {
        for (name, p) in Members::of(module).parameters {
            if seen.insert(Counted::addr(&p.tensor().0)) {
                list.push((join(&path, &name), p.clone()));
            }
        }
    }
    list
}

pub(super) fn parameters(module: &dyn Module) -> Vec<Parameter> {
    module.named_parameters().into_iter().map(|(_, p)| p).collect()
}

pub(super) fn named_buffers(module: &dyn Module) -> Vec<(String, Tensor)> {
    let (mut list, mut seen) = (Vec::new(), HashSet::new());
    for (path, module) in module.named_modules() {
        for (name, buffer) in Members::of(module).buffers {
            let t = buffer.get();
            if seen.insert(Counted::addr(&t.0)) {
                list.push((join(&path, &name), t));
            }
        }
    }
    list
}

pub(super) fn buffers(module: &dyn Module) -> Vec<Tensor> {
    module.named_buffers().into_iter().map(|(_, b)| b).collect()
}

pub(super) fn apply(module: &dyn Module, f: &mut dyn FnMut(&dyn Module)) {
    for (_, child) in module.named_children() {
        child.apply(f);
    }
    f(module);
}

pub(super) fn set_training(module: &dyn Module, on: bool) {
    module.named_modules().into_iter().for_each(|(_, m)| m.core().set_training(on))
}

pub(super) fn zero_grad(module: &dyn Module) {
    module.parameters().iter().for_each(|p| p.zero_grad())
}

#[track_caller]
pub(super) fn set_requires_grad(module: &dyn Module, on: bool) {
    for p in module.parameters() {
        p.try_set_requires_grad(on).unwrap_or_else(|e| e.raise())
    }
}

pub(super) fn to_dtype(module: &dyn Module, dtype: DType) -> Result<()> {
    let wanted = |t: &Tensor| t.is_floating_point() && t.dtype() != dtype;
    convert(module, &|t| if wanted(t) { t.try_to_dtype(dtype) } else { Ok(t.clone()) })
}

pub(super) fn to_device(module: &dyn Module, device: Device) -> Result<()> {
    convert(module, &|t| t.try_to_device(device))
}

/// `path.name`, or `name` at the root.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

fn modules_below<'a>(
    path: String,
    module: &'a dyn Module,
    seen: &mut HashSet<u64>,
    list: &mut Vec<(String, &'a dyn Module)>,
) {
    if !seen.insert(module.core().id()) {
        return;
    }
    list.push((path.clone(), module));
    for (name, child) in Members::of(module).modules {
        modules_below(join(&path, &name), child, seen, list);
    }
}

/// Replaces the data of every parameter, its gradient, and every buffer.
fn convert(module: &dyn Module, f: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    no_grad(|| {
        for p in module.parameters() {
            p.convert(f)?;
        }
        for (_, m) in module.named_modules() {
            for (_, buffer) in Members::of(m).buffers {
                buffer.set(f(&buffer.get())?);
            }
        }
        Ok(())
    })
}
