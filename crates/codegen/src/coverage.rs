//! Coverage: how much of PyTorch's operators another set of operators has, and with which derivatives.
//!
//! What is missing is out of scope for a reason (`schema/out_of_scope.yaml`: name patterns under reasons) or owed; a
//! pattern that covers nothing is an error, so that the list stays true.

use crate::dialect::Dialect;
use crate::error::{CodegenError, Kind, Result, Stage};
use crate::pipeline::Sources;
use std::collections::BTreeMap;
use std::fmt;

/// One of PyTorch's operators, by full name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// PyTorch differentiates it.
    pub reference_has_derivative: bool,
    /// We have it; and if so, whether we differentiate it.
    pub ours: Option<bool>,
    /// It writes its results into tensors given.
    pub is_out: bool,
}

/// PyTorch's operators and ours, side by side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Every declared operator of PyTorch by full name.
    pub operators: BTreeMap<String, Status>,
    /// Operators of ours that PyTorch does not declare.
    pub only_ours: Vec<String>,
    /// Entries of PyTorch's derivatives by exact name, and whether we have an operator of that name.
    pub entries: BTreeMap<String, bool>,
    /// Why operators that we do not have are out of scope, by name.
    pub out_of_scope: BTreeMap<String, String>,
}

impl Coverage {
    /// Operators that we have.
    pub fn present(&self) -> usize {
        self.operators.values().filter(|s| s.ours.is_some()).count()
    }

    /// Operators that both have and PyTorch differentiates, but we do not. `out=` forms record nothing on either side.
    pub fn without_derivative(&self) -> impl Iterator<Item = &str> {
        let lost = |s: &Status| s.reference_has_derivative && s.ours == Some(false) && !s.is_out;
        self.operators.iter().filter(move |(_, s)| lost(s)).map(|(name, _)| name.as_str())
    }

    /// Operators that are missing, and not out of scope.
    pub fn owed(&self) -> impl Iterator<Item = &str> {
        let owed = |(name, s): &(&String, &Status)| s.ours.is_none() && !self.out_of_scope.contains_key(*name);
        self.operators.iter().filter(owed).map(|(name, _)| name.as_str())
    }

    /// Operators that PyTorch differentiates and we do not have.
    pub fn missing_differentiable(&self) -> impl Iterator<Item = &str> {
        let missing = |s: &Status| s.reference_has_derivative && s.ours.is_none();
        self.operators.iter().filter(move |(_, s)| missing(s)).map(|(name, _)| name.as_str())
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_derivative = |s: &&Status| s.reference_has_derivative;
        let both = |s: &&Status| s.reference_has_derivative && s.ours == Some(true);
        writeln!(f, "operators: {} of {}", self.present(), self.operators.len())?;
        writeln!(
            f,
            "derivatives: {} of {}",
            self.operators.values().filter(both).count(),
            self.operators.values().filter(with_derivative).count()
        )?;
        let entries = self.entries.values().filter(|here| **here).count();
        writeln!(f, "derivative entries by exact name: {entries} of {}", self.entries.len())?;
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        self.out_of_scope.values().for_each(|reason| *reasons.entry(reason).or_default() += 1);
        for (reason, count) in reasons {
            writeln!(f, "out of scope: {count} ({reason})")?;
        }
        for name in self.owed() {
            writeln!(f, "missing: {name}")?;
        }
        for name in self.without_derivative() {
            writeln!(f, "no derivative: {name}")?;
        }
        for name in &self.only_ours {
            writeln!(f, "not in the reference: {name}")?;
        }
        Ok(())
    }
}

/// The names of the entries of a file of derivatives.
fn entry_names(derivatives: &str) -> impl Iterator<Item = &str> {
    let name = |line: &'_ str| -> Option<usize> { line.find('(') };
    derivatives
        .lines()
        .filter_map(|line| line.strip_prefix("- name:"))
        .map(str::trim)
        .filter_map(move |line| Some(&line[..name(line)?]))
}

/// A pattern of names: `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((front, back)) => name.strip_prefix(front).is_some_and(|rest| {
            (0..=rest.len()).filter(|k| rest.is_char_boundary(*k)).any(|k| matches(back, &rest[k..]))
        }),
    }
}

/// Why each missing operator is out of scope. Lines are `reason:` and, below it, `- pattern`; `#` begins a comment.
fn reasons(text: &str, operators: &BTreeMap<String, Status>) -> Result<BTreeMap<String, String>> {
    let fail = |line: usize, message: String| {
        Err(CodegenError::new(Stage::Native, Kind::FieldValue, message).at(line, "schema/out_of_scope.yaml"))
    };
    let (mut found, mut reason) = (BTreeMap::new(), None);
    for (k, line) in text.lines().enumerate() {
        let line = line.trim_end();
        match (line.strip_prefix("- "), line.strip_suffix(':'), reason) {
            _ if line.is_empty() || line.starts_with('#') => {}
            (Some(pattern), _, Some(reason)) => {
                let covered: Vec<&String> = (operators.iter())
                    .filter(|(name, s)| s.ours.is_none() && matches(pattern, name))
                    .map(|(name, _)| name)
                    .collect();
                if covered.is_empty() {
                    return fail(k + 1, format!("`{pattern}` names no operator that is missing; remove it"));
                }
                for name in covered {
                    found.entry(name.clone()).or_insert_with(|| str::to_owned(reason));
                }
            }
            (None, Some(text), _) => reason = Some(text),
            _ => return fail(k + 1, format!("expected `reason:` or `- pattern` below one, found `{line}`")),
        }
    }
    Ok(found)
}

/// Compares PyTorch's files with our operators, each given by full name and whether it has a derivative.
pub fn coverage(native: &str, derivatives: &str, ours: &[(&str, bool)], out_of_scope: &str) -> Result<Coverage> {
    let model = Sources { native, derivatives, tags: None, dialect: Dialect::Cpp }.model()?;
    let mut operators = BTreeMap::new();
    for f in model.functions.iter().filter(|f| !f.func.is_generated()) {
        let reference_has_derivative =
            f.info.iter().flat_map(|infos| infos.values()).any(|info| info.has_derivatives());
        let is_out = f.func.func.is_out_fn();
        operators.insert(f.func.func.name.to_string(), Status { reference_has_derivative, ours: None, is_out });
    }
    let mut only_ours = Vec::new();
    for (name, has_derivative) in ours {
        match operators.get_mut(*name) {
            Some(status) => status.ours = Some(*has_derivative),
            None => only_ours.push((*name).to_owned()),
        }
    }
    let here = |name: &str| ours.iter().any(|(own, _)| *own == name);
    let entries = entry_names(derivatives).map(|name| (name.to_owned(), here(name))).collect();
    let out_of_scope = reasons(out_of_scope, &operators)?;
    Ok(Coverage { operators, only_ours, entries, out_of_scope })
}
