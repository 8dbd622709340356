//! Relations between sizes that a captured function has found out: `s0 > 5`, `s0 * s1 == 12`.

use super::Symbols;
use firebrand_core::sym::{SymOp, SymRelation};
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

/// A size as a function of symbols.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Int(i64),
    Symbol(u32),
    Binary(SymOp, Arc<(Expr, Expr)>),
}

impl Expr {
    /// Its value; none if it divides by zero or overflows.
    pub(crate) fn value(&self, symbols: &[i64]) -> Option<i64> {
        match self {
            Expr::Int(i) => Some(*i),
            Expr::Symbol(s) => symbols.get(*s as usize).copied(),
            Expr::Binary(op, parts) => op.apply(parts.0.value(symbols)?, parts.1.value(symbols)?),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Int(i) => i.fmt(f),
            Expr::Symbol(s) => write!(f, "s{s}"),
            Expr::Binary(op, parts) => {
                let sign = match op {
                    SymOp::Add => "+",
                    SymOp::Sub => "-",
                    SymOp::Mul => "*",
                    SymOp::Div => "/",
                    SymOp::Rem => "%",
                };
                write!(f, "({} {sign} {})", parts.0, parts.1)
            }
        }
    }
}

/// Two sizes that must compare as they did.
#[derive(Clone, Debug)]
pub(crate) struct SizeGuard {
    pub(crate) left: Expr,
    pub(crate) right: Expr,
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
