//! Coverage: how much of PyTorch's operators another set of operators has, and with which derivatives.

use crate::dialect::Dialect;
use crate::error::Result;
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
}

/// PyTorch's operators and ours, side by side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Every declared operator of PyTorch by full name.
    pub operators: BTreeMap<String, Status>,
    /// Operators of ours that PyTorch does not declare.
    pub only_ours: Vec<String>,
}

impl Coverage {
    /// Operators that we have.
    pub fn present(&self) -> usize {
        self.operators.values().filter(|s| s.ours.is_some()).count()
    }

    /// Operators that both have and PyTorch differentiates, but we do not.
    pub fn without_derivative(&self) -> impl Iterator<Item = &str> {
        let lost = |s: &Status| s.reference_has_derivative && s.ours == Some(false);
        self.operators.iter().filter(move |(_, s)| lost(s)).map(|(name, _)| name.as_str())
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
        for name in self.without_derivative() {
            writeln!(f, "no derivative: {name}")?;
        }
        for name in &self.only_ours {
            writeln!(f, "not in the reference: {name}")?;
        }
        Ok(())
    }
}

/// Compares PyTorch's files with our operators, each given by full name and whether it has a derivative.
pub fn coverage(native: &str, derivatives: &str, ours: &[(&str, bool)]) -> Result<Coverage> {
    let model = Sources { native, derivatives, tags: None, dialect: Dialect::Cpp }.model()?;
    let mut operators = BTreeMap::new();
    for f in model.functions.iter().filter(|f| !f.func.is_generated()) {
        let reference_has_derivative =
            f.info.iter().flat_map(|infos| infos.values()).any(|info| info.has_derivatives());
        operators.insert(f.func.func.name.to_string(), Status { reference_has_derivative, ours: None });
    }
    let mut only_ours = Vec::new();
    for (name, has_derivative) in ours {
        match operators.get_mut(*name) {
            Some(status) => status.ours = Some(*has_derivative),
            None => only_ours.push((*name).to_owned()),
        }
    }
    Ok(Coverage { operators, only_ours })
}
