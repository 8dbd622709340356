//! Relations between sizes that a captured function has found out: `s0 > 5`, `s0 * s1 == 12`.

use super::Symbols;
use firebrand_core::sym::SymRelation;
use firebrand_graph::dynamic::SizeExpr;
use std::fmt;
use std::sync::Arc;

/// Where the value of a symbol comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolSource {
    /// A dimension of a tensor argument.
    Dim { argument: usize, dim: usize },
    /// A size argument.
    Size(usize),
}

/// Two sizes that must compare as they did.
#[derive(Clone, Debug)]
pub(crate) struct SizeGuard {
    pub(crate) left: SizeExpr,
    pub(crate) right: SizeExpr,
    pub(crate) relation: SymRelation,
    /// Why, if the function did not compare them itself.
    pub(crate) reason: Option<Arc<str>>,
}

impl SizeGuard {
    pub(crate) fn holds(&self, symbols: &Symbols) -> bool {
        match (self.left.value(symbols), self.right.value(symbols)) {
            (Some(l), Some(r)) => self.relation.holds(l, r),
            _ => false,
        }
    }
}

impl fmt::Display for SizeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.relation {
            SymRelation::Less => "<",
            SymRelation::LessOrEqual => "<=",
            SymRelation::Equal => "==",
            SymRelation::NotEqual => "!=",
        };
        write!(f, "{} {sign} {}", self.left, self.right)?;
        self.reason.as_ref().map_or(Ok(()), |r| write!(f, " ({r})"))
    }
}
