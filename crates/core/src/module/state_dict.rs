//! State dictionaries: saving and loading the values of a module by name.
//!
//! Names and order are PyTorch's: own parameters, own buffers, then children. Nothing here reads or writes files.

use super::Module;
use super::field::Members;
use super::walk::join;
use crate::autograd::no_grad;
use crate::{ErrorKind, Result, Tensor, ops};
use indexmap::IndexMap;
use std::collections::HashSet;

/// Tensors by path.
pub type StateDict = IndexMap<String, Tensor>;

/// How the names of a state dictionary and of a module differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncompatibleKeys {
    /// Names of the module that the dictionary lacks.
    pub missing: Vec<String>,
    /// Names of the dictionary that the module lacks.
    pub unexpected: Vec<String>,
}

impl IncompatibleKeys {
    /// Whether the names agree.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty()
    }
}

/// Calls `f` with every module and its path, parents first; one that occurs twice is seen at each place.
fn walk<'a>(
    path: &str,
    module: &'a dyn Module,
    f: &mut dyn FnMut(&str, &'a dyn Module, &Members<'a>) -> Result<()>,
) -> Result<()> {
    let members = Members::of(module);
    f(path, module, &members)?;
    members.modules.iter().try_for_each(|(name, child)| walk(&join(path, name), *child, f))
}

/// Own entries of a module: the tensors themselves.
fn own<'a>(path: &'a str, members: &'a Members<'_>) -> impl Iterator<Item = (String, Tensor)> + 'a {
    let parameters = members.parameters.iter().map(|(name, p)| (join(path, name), p.tensor().clone()));
    let buffers =
        members.buffers.iter().filter(|(_, b)| b.is_persistent()).map(|(name, b)| (join(path, name), b.get()));
    parameters.chain(buffers)
}

fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}.") }
}

pub(super) fn collect(module: &dyn Module) -> StateDict {
    let mut state = StateDict::new();
    collect_into("", module, &mut state);
    state
}

/// A module's hooks run when its children are in the dictionary.
fn collect_into(path: &str, module: &dyn Module, state: &mut StateDict) {
    let members = Members::of(module);
    state.extend(own(path, &members).map(|(name, t)| (name, t.detach())));
    for (name, child) in &members.modules {
        collect_into(&join(path, name), *child, state);
    }
    for hook in module.core().tables().into_iter().flat_map(|t| t.state_dict.snapshot()) {
        hook(module, state, &prefix(path));
    }
}

pub(super) fn load(module: &dyn Module, given: &StateDict, strict: bool) -> Result<IncompatibleKeys> {
    let mut state = given.clone();
    let mut targets: Vec<(String, Tensor)> = Vec::new();
    walk("", module, &mut |path, m, members| {
        for hook in m.core().tables().into_iter().flat_map(|t| t.load_pre.snapshot()) {
            hook(m, &mut state, &prefix(path))?;
        }
        targets.extend(own(path, members));
        Ok(())
    })?;

    let known: HashSet<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    let mut keys = IncompatibleKeys {
        missing: targets.iter().filter(|(n, _)| !state.contains_key(n)).map(|(n, _)| n.clone()).collect(),
        unexpected: state.keys().filter(|k| !known.contains(k.as_str())).cloned().collect(),
    };
    walk("", module, &mut |_, m, _| {
        let hooks = m.core().tables().into_iter().flat_map(|t| t.loaded.snapshot());
        hooks.into_iter().try_for_each(|hook| hook(m, &mut keys))
    })?;

    let mut problems = Vec::new();
    if strict && !keys.missing.is_empty() {
        problems.push(format!("missing keys: {}", keys.missing.join(", ")));
    }
    if strict && !keys.unexpected.is_empty() {
        problems.push(format!("unexpected keys: {}", keys.unexpected.join(", ")));
    }
    for (name, target) in &targets {
        if let Some(value) = state.get(name)
            && value.shape() != target.shape()
        {
            problems.push(format!("{name} has shape {:?}, expected {:?}", value.shape(), target.shape()));
        }
    }
    if !problems.is_empty() {
        return Err(ErrorKind::StateDict { module: module.name(), message: problems.join("; ") }.into());
    }
    no_grad(|| {
        for (name, target) in &targets {
            if let Some(value) = state.get(name) {
                ops::copy_(target, value, false)?;
            }
        }
        Ok(keys)
    })
}
