//! Loading other weights into a program: a checkpoint's tensors replace the state, name by name.
//!
//! Names may differ by a common prefix (`model.` of a wrapper, `module.` of data parallelism): the one that
//! makes most of them match is used. All remaining mismatches are listed: nothing is skipped silently.

use crate::error::{Error, Result};
use crate::program::{Constant, ExportedProgram};
use firebrand_core::autograd::no_grad;
use firebrand_core::{Tensor, TensorMap};
use firebrand_io::plain;
use indexmap::IndexMap;
use std::fmt;

/// How names of a checkpoint became names of a program, and what has no counterpart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightsReport {
    /// Number of tensors that were loaded.
    pub loaded: usize,
    /// The prefix that was removed from the checkpoint's names.
    pub stripped: String,
    /// The prefix that was added to them.
    pub added: String,
    /// Names of the program that the checkpoint does not have.
    pub missing: Vec<String>,
    /// Names of the checkpoint that the program does not have.
    pub unexpected: Vec<String>,
    /// Tensors with different sizes, as `name: expected …, found …`.
    pub mismatched: Vec<String>,
}

impl WeightsReport {
    /// Whether every tensor of the program was found and matches.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.mismatched.is_empty()
    }
}

impl fmt::Display for WeightsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tensors", self.loaded)?;
        if !self.stripped.is_empty() {
            write!(f, ", prefix {:?} removed from their names", self.stripped)?;
        }
        if !self.added.is_empty() {
            write!(f, ", prefix {:?} added to their names", self.added)?;
        }
        for (what, names) in [
            ("missing", &self.missing),
            ("not in the program", &self.unexpected),
            ("with other sizes", &self.mismatched),
        ] {
            if !names.is_empty() {
                let names: Vec<_> = names.iter().map(|n| plain(n)).collect();
                write!(f, "; {} {what}: {}", names.len(), names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Beginnings that wrappers give to the names of a checkpoint.
const WRAPPERS: [&str; 4] = ["module.", "_orig_mod.", "model.", "base_model.model."];

impl ExportedProgram {
    /// The program with these tensors as its state, cast to the program's dtypes. A tensor with several names needs one of them;
    /// buffers that the checkpoint lacks keep their value. Only tensors that need a cast are copied.
    ///
    /// # Errors
    /// If a parameter is missing or a size differs; the message lists all of them. With `partial` these keep their old values.
    pub fn with_weights(
        &self,
        weights: &IndexMap<String, Tensor>,
        partial: bool,
    ) -> Result<(ExportedProgram, WeightsReport)> {
        let (stripped, added) = self.renaming(weights);
        let renamed: IndexMap<String, (&str, &Tensor)> = weights
            .iter()
            .map(|(name, t)| {
                (format!("{added}{}", name.strip_prefix(stripped.as_str()).unwrap_or(name)), (name.as_str(), t))
            })
            .collect();
        let mut report = WeightsReport { stripped, added, ..WeightsReport::default() };
        let mut result = self.clone();
        let mut used = vec![false; renamed.len()];
        // What each distinct tensor of the program becomes, so that names of one tensor stay names of one.
        let mut replaced: TensorMap<Tensor> = TensorMap::new();
        for (name, state) in &self.state_dict {
            let Some((at, _, (_, value))) = renamed.get_full(name) else { continue };
            used[at] = true;
            if value.shape() != state.tensor.shape() {
                let (expected, found) = (state.tensor.shape(), value.shape());
                report.mismatched.push(format!("{name}: expected {expected:?}, found {found:?}"));
                continue;
            }
            if !replaced.contains(&state.tensor) {
                replaced.insert(&state.tensor, placed(value, &state.tensor)?);
            }
            report.loaded += 1;
        }
        for (name, state) in &mut result.state_dict {
            match replaced.get(&state.tensor) {
                Some(new) => state.tensor = new.clone(),
                None if state.is_parameter && !report.mismatched.iter().any(|m| m.starts_with(&format!("{name}:"))) => {
                    report.missing.push(name.clone());
                }
                None => {}
            }
        }
        for (name, constant) in &mut result.constants {
            if let (Some((at, _, (_, value))), Constant::Tensor(t)) = (renamed.get_full(name), constant)
                && value.shape() == t.shape()
            {
                used[at] = true;
                *t = placed(value, t)?;
                report.loaded += 1;
            }
        }
        let unused = renamed.values().zip(&used).filter(|(_, used)| !**used).map(|((name, _), _)| name.to_string());
        report.unexpected = unused.collect();
        if !partial && !report.is_complete() {
            return Err(Error::Value(format!("the weights do not match the program: {report}")));
        }
        Ok((result, report))
    }

    /// What must be taken off and put before a checkpoint's names so that most of them are names of the program.
    fn renaming(&self, weights: &IndexMap<String, Tensor>) -> (String, String) {
        let agree = |strip: &str, add: &str| {
            let renamed = weights.keys().filter_map(|n| Some(format!("{add}{}", n.strip_prefix(strip)?)));
            renamed.filter(|n| self.state_dict.contains_key(n)).count()
        };
        // Beginnings of the program's own names, at module boundaries, as far as two levels.
        let mut before: Vec<&str> = vec![""];
        for name in self.state_dict.keys() {
            for (i, _) in name.match_indices('.').take(2) {
                if !before.contains(&&name[..=i]) {
                    before.push(&name[..=i]);
                }
            }
        }
        let off = [""].into_iter().chain(WRAPPERS);
        let pairs = off.flat_map(|strip| before.iter().map(move |add| (strip, *add)));
        let mut best = ("", "", agree("", ""));
        for (strip, add) in pairs {
            let count = agree(strip, add);
            if count > best.2 {
                best = (strip, add, count);
            }
        }
        (best.0.to_string(), best.1.to_string())
    }
}

/// A value with the dtype and the `requires_grad` of the one it replaces.
fn placed(value: &Tensor, old: &Tensor) -> Result<Tensor> {
    let new = no_grad(|| value.try_to_dtype(old.dtype()))?.detach();
    new.try_set_requires_grad(old.requires_grad())?;
    Ok(new)
}
