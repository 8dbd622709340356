//! Ops on lists of tensors: each runs its base op once per position, so its derivative is the base op's.
//!
//! A foreach op is one call for layers and one per element below them. Arguments are paired with those of the
//! reference by position, as PyTorch does: a list stands for its elements, anything else is the same for all of them,
//! and what is missing at the end takes the base op's default.

use super::op::{Arg, Op, Returns};
use super::text::{Plan, join};
use super::types::Ty;
use crate::error::{Kind, Result};
use crate::native::{Form, Implementation};

/// A call of the base op for position `i`.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The Rust name of the base op.
    reference: String,
    /// One text per argument of the base op.
    arguments: Vec<String>,
}

/// Finds every reference and writes down how its arguments are made.
pub(super) fn resolve(ops: &mut [Op]) -> Result<()> {
    for k in 0..ops.len() {
        let Implementation::Foreach(reference) = &ops[k].rust.implementation else { continue };
        let reference = match ops[k].rust.form {
            Form::Inplace => format!("{reference}_"),
            _ => reference.clone(),
        };
        let Some(found) = ops.iter().find(|op| op.rust.name == reference && op.outs.is_empty()) else {
            let message = format!("the reference `{reference}` is the Rust name of no op");
            return Err(ops[k].error(Kind::EmitForeachNoInfo, message));
        };
        let arguments = pair(&ops[k], found)?;
        ops[k].foreach = Some(Call { reference, arguments });
    }
    Ok(())
}

/// One text per argument of the base op, for position `i`.
fn pair(op: &Op, reference: &Op) -> Result<Vec<String>> {
    let own: Vec<_> = op.args().collect();
    let theirs: Vec<_> = reference.args().collect();
    let arity = |message: String| {
        op.error(Kind::EmitForeachArity, format!("{message}; its reference is {}", reference.native.text))
    };
    if own.len() > theirs.len() {
        return Err(arity(format!("`{}` has no counterpart", own[theirs.len()].name)));
    }
    let one = |(k, theirs): (usize, &&Arg)| match (own.get(k), &theirs.default) {
        (Some(a), _) => match (a.ty, theirs.ty) {
            (Ty::Tensors, Ty::Tensor) => Ok(format!("&{}[i]", a.ident)),
            (Ty::Scalars, Ty::Scalar) => Ok(format!("{}[i]", a.ident)),
            (mine, other) if mine == other => Ok(a.ident.clone()),
            _ => Err(arity(format!("`{}` fits `{}` neither as a list nor as it is", a.name, theirs.name))),
        },
        (None, Some(default)) => Ok(default.clone()),
        (None, None) => Err(arity(format!("nothing is given for `{}`", theirs.name))),
    };
    theirs.iter().enumerate().map(one).collect()
}

/// The body of the typed function.
pub(super) fn body(plan: &Plan<'_>, call: &Call) -> String {
    let op = plan.op;
    let of = |ty: Ty| op.args().filter(move |a| a.ty == ty);
    let lengths = join(of(Ty::Tensors).chain(of(Ty::Scalars)).map(|a| format!("{}.len()", a.ident)));
    let shared = join(of(Ty::Tensor).map(|a| a.ident.clone()));
    let call = format!("{}({})", call.reference, call.arguments.join(", "));
    let run = match op.returns {
        Returns::Nothing => format!("for i in 0..self_.len() {{ {call}?; }} Ok(())"),
        _ => format!("(0..self_.len()).map(|i| {call}).collect()"),
    };
    format!("foreach::check({:?}, &[{lengths}], &[{shared}])?; {run}", op.base())
}
