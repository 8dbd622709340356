//! SizeExpr: a size as a function of symbols, which are numbered.
//!
//! The one form in which sizes are computed with: guards compare it, graphs are written from it. What a capture records
//! ([`SymNode`](firebrand_core::sym::SymNode)) becomes it when the capture ends, and [`Expr`] is its text in archives.

use crate::ir::{Expr, Function, Head};
use firebrand_core::sym::SymOp;
use std::fmt;
use std::sync::Arc;

/// A size as a function of symbols.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeExpr {
    /// An integer.
    Int(i64),
    /// A symbol.
    Symbol(u32),
    /// Two of them combined.
    Binary(SymOp, Arc<(SizeExpr, SizeExpr)>),
}

impl SizeExpr {
    /// Two of them combined.
    pub fn binary(op: SymOp, a: SizeExpr, b: SizeExpr) -> SizeExpr {
        SizeExpr::Binary(op, Arc::new((a, b)))
    }

    /// `self + n`, simplified if `n` is 0.
    pub fn plus(self, n: i64) -> SizeExpr {
        if n == 0 { self } else { SizeExpr::binary(SymOp::Add, self, SizeExpr::Int(n)) }
    }

    /// `self * n`, simplified if `n` is 1.
    pub fn times(self, n: i64) -> SizeExpr {
        if n == 1 { self } else { SizeExpr::binary(SymOp::Mul, self, SizeExpr::Int(n)) }
    }

    /// Its value; `None` if it divides by zero or overflows.
    pub fn value(&self, symbols: &[i64]) -> Option<i64> {
        self.value_where(&|s| symbols.get(s as usize).copied())
    }

    /// Its value for the symbols' values given by `symbol`; `None` if one is not known, or if it divides by zero or overflows.
    pub fn value_where(&self, symbol: &impl Fn(u32) -> Option<i64>) -> Option<i64> {
        match self {
            SizeExpr::Int(i) => Some(*i),
            SizeExpr::Symbol(s) => symbol(*s),
            SizeExpr::Binary(op, parts) => op.apply(parts.0.value_where(symbol)?, parts.1.value_where(symbol)?),
        }
    }

    /// Visits every symbol in it, including repetitions.
    pub fn for_each_symbol(&self, see: &mut impl FnMut(u32)) {
        match self {
            SizeExpr::Int(_) => {}
            SizeExpr::Symbol(s) => see(*s),
            SizeExpr::Binary(_, parts) => {
                parts.0.for_each_symbol(see);
                parts.1.for_each_symbol(see);
            }
        }
    }

    /// The same over named symbols, as programs have it.
    pub(crate) fn named(&self, names: &[Expr]) -> Expr {
        let (op, parts) = match self {
            SizeExpr::Int(i) => return Expr::Int(*i),
            SizeExpr::Symbol(s) => return names[*s as usize].clone(),
            SizeExpr::Binary(op, parts) => (op, parts),
        };
        let (a, b) = (parts.0.named(names), parts.1.named(names));
        let head = match op {
            SymOp::Add => Head::Add,
            SymOp::Sub => return Expr::call(Head::Add, [a, Expr::call(Head::Mul, [Expr::Int(-1), b])]),
            SymOp::Mul => Head::Mul,
            SymOp::Div => Head::FloorDiv,
            SymOp::Rem => Head::Mod,
        };
        // Numbers come first where the order is free.
        match (head, &b) {
            (Head::Mul, Expr::Int(_)) => Expr::call(head, [b, a]),
            _ => Expr::call(head, [a, b]),
        }
    }
}

/// The function of the graph that combines two sizes so.
pub fn size_function(op: SymOp) -> Function {
    match op {
        SymOp::Add => Function::Add,
        SymOp::Sub => Function::Sub,
        SymOp::Mul => Function::Mul,
        SymOp::Div => Function::FloorDiv,
        SymOp::Rem => Function::Mod,
    }
}

impl fmt::Display for SizeExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeExpr::Int(i) => i.fmt(f),
            SizeExpr::Symbol(s) => write!(f, "s{s}"),
            SizeExpr::Binary(op, parts) => {
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
