//! Plain functions: element access and arithmetic on numbers, with Python's rules.

use super::Value;
use crate::error::{Error, Result};
use crate::ir::{Argument, Function};
use firebrand_core::Scalar;
use std::cmp::Ordering;

fn wrong(function: &Function, message: impl std::fmt::Display) -> Error {
    Error::Value(format!("{}: {message}", function.name()))
}

/// Calls a function that changes no mode.
pub(crate) fn call_function(function: &Function, args: &[Value]) -> Result<Value> {
    match (function, args) {
        (Function::GetItem, [from, index]) => get_item(from, index),
        (_, [a]) => unary(function, a.scalar()?).map(Value::Scalar),
        (_, [a, b]) => binary(function, a.scalar()?, b.scalar()?).map(Value::Scalar),
        (Function::SymIte, [condition, yes, no]) => {
            Ok(if condition.scalar()?.to_bool() { yes.clone() } else { no.clone() })
        }
        _ => Err(wrong(function, format!("does not take {} arguments", args.len()))),
    }
}

fn get_item(from: &Value, index: &Value) -> Result<Value> {
    match (from, index) {
        (Value::List(items), Value::Scalar(Scalar::Int(i))) => {
            let at = if *i < 0 { i + items.len() as i64 } else { *i };
            let item = usize::try_from(at).ok().and_then(|at| items.get(at));
            item.cloned().ok_or_else(|| {
                wrong(&Function::GetItem, format!("index {i} is out of range for {} elements", items.len()))
            })
        }
        (Value::Dict(entries), Value::Constant(Argument::Str(key))) => {
            let entry = entries.iter().find(|(k, _)| k == key);
            entry.map(|(_, v)| v.clone()).ok_or_else(|| wrong(&Function::GetItem, format!("no key {key:?}")))
        }
        _ => Err(wrong(&Function::GetItem, format!("{} has no elements to take by {}", from.kind(), index.kind()))),
    }
}

fn checked(function: &Function, value: Option<i64>) -> Result<Scalar> {
    value.map(Scalar::Int).ok_or_else(|| wrong(function, "the result does not fit 64 bits, or divides by zero"))
}

fn unary(function: &Function, a: Scalar) -> Result<Scalar> {
    if a.is_complex() {
        return Err(wrong(function, "is not defined for complex numbers"));
    }
    let whole = |v: f64| checked(function, (v.abs() < 9.3e18).then_some(v as i64));
    match (function, a) {
        (Function::Neg, a) => Ok(a.negated()),
        (Function::Pos, Scalar::Bool(b)) => Ok(Scalar::Int(b.into())),
        (Function::Pos, a) => Ok(a),
        (Function::Trunc | Function::SymInt, a) if a.is_float() => whole(a.to_f64().trunc()),
        (Function::Ceil, a) if a.is_float() => whole(a.to_f64().ceil()),
        (Function::Floor, a) if a.is_float() => whole(a.to_f64().floor()),
        (Function::Trunc | Function::SymInt | Function::Ceil | Function::Floor, a) => Ok(Scalar::Int(a.to_i64())),
        (Function::SymNot, a) => Ok(Scalar::Bool(!a.to_bool())),
        (Function::SymFloat, a) => Ok(Scalar::Float(a.to_f64())),
        (Function::SymSqrt, a) => Ok(Scalar::Float(a.to_f64().sqrt())),
        _ => Err(wrong(function, "is not a known function of one number")),
    }
}

/// Division that rounds down; none if it divides by zero or overflows.
fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn binary(function: &Function, a: Scalar, b: Scalar) -> Result<Scalar> {
    use Function::*;
    if a.is_complex() || b.is_complex() {
        return Err(wrong(function, "is not defined for complex numbers"));
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    let order = if a.is_float() || b.is_float() { x.partial_cmp(&y) } else { Some(a.to_i64().cmp(&b.to_i64())) };
    let compared = match function {
        Eq => Some(order == Some(Ordering::Equal)),
        Ne => Some(order != Some(Ordering::Equal)),
        Le => Some(matches!(order, Some(Ordering::Less | Ordering::Equal))),
        Ge => Some(matches!(order, Some(Ordering::Greater | Ordering::Equal))),
        Lt => Some(order == Some(Ordering::Less)),
        Gt => Some(order == Some(Ordering::Greater)),
        _ => None,
    };
    if let Some(holds) = compared {
        return Ok(Scalar::Bool(holds));
    }
    if let (And | Or, Scalar::Bool(p), Scalar::Bool(q)) = (function, a, b) {
        return Ok(Scalar::Bool(if *function == And { p && q } else { p || q }));
    }
    match function {
        TrueDiv if y == 0.0 => return Err(wrong(function, "division by zero")),
        TrueDiv => return Ok(Scalar::Float(x / y)),
        SymMax => return Ok(if order == Some(Ordering::Less) { b } else { a }),
        SymMin => return Ok(if order == Some(Ordering::Greater) { b } else { a }),
        _ => {}
    }
    if a.is_float() || b.is_float() {
        return Ok(Scalar::Float(match function {
            Add => x + y,
            Sub => x - y,
            Mul => x * y,
            Pow => x.powf(y),
            FloorDiv if y != 0.0 => (x / y).floor(),
            Mod if y != 0.0 => x - y * (x / y).floor(),
            _ => return Err(wrong(function, "is not defined for these numbers")),
        }));
    }
    let (i, j) = (a.to_i64(), b.to_i64());
    let shift = u32::try_from(j).ok().filter(|s| *s < 64);
    let value = match function {
        Add => i.checked_add(j),
        Sub => i.checked_sub(j),
        Mul => i.checked_mul(j),
        FloorDiv => floor_div(i, j),
        Mod => floor_div(i, j).map(|q| i - q * j),
        Pow if j < 0 => return Ok(Scalar::Float(x.powf(y))),
        Pow => u32::try_from(j).ok().and_then(|j| i.checked_pow(j)),
        And => Some(i & j),
        Or => Some(i | j),
        LShift => shift.and_then(|s| i.checked_mul(1i64.checked_shl(s)?)),
        RShift => shift.map(|s| i >> s),
        _ => return Err(wrong(function, "is not a known function of two numbers")),
    };
    checked(function, value)
}
