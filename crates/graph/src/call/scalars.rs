//! Arithmetic on sizes and other numbers that programs do outside of tensors, with Python's meaning.

use crate::ir::Function;
use firebrand_core::Scalar;

/// The value of a plain function of numbers; a message if it has none.
pub(crate) fn scalar_function(function: &Function, args: &[Scalar]) -> Result<Scalar, String> {
    let failed = || format!("{} of {args:?} has no value", function.name());
    let value = match args {
        [a] => unary(function, *a),
        [a, b] => binary(function, *a, *b),
        [condition, a, b] if *function == Function::SymIte => Some(if condition.to_bool() { *a } else { *b }),
        _ => None,
    };
    value.ok_or_else(failed)
}

fn unary(function: &Function, a: Scalar) -> Option<Scalar> {
    let whole = |v: f64| (v.abs() < 9e18).then_some(Scalar::Int(v as i64));
    match function {
        Function::Neg => match a {
            Scalar::Float(v) => Some(Scalar::Float(-v)),
            v => v.to_i64().checked_neg().map(Scalar::Int),
        },
        Function::Pos => Some(a),
        Function::Trunc | Function::SymInt => {
            if a.is_float() {
                whole(a.to_f64().trunc())
            } else {
                Some(Scalar::Int(a.to_i64()))
            }
        }
        Function::Ceil => {
            if a.is_float() {
                whole(a.to_f64().ceil())
            } else {
                Some(a)
            }
        }
        Function::Floor => {
            if a.is_float() {
                whole(a.to_f64().floor())
            } else {
                Some(a)
            }
        }
        Function::SymNot => Some(Scalar::Bool(!a.to_bool())),
        Function::SymFloat => Some(Scalar::Float(a.to_f64())),
        Function::SymSqrt => Some(Scalar::Float(a.to_f64().sqrt())),
        _ => None,
    }
}

fn binary(function: &Function, a: Scalar, b: Scalar) -> Option<Scalar> {
    use Scalar::{Bool, Float, Int};
    let floats = a.is_float() || b.is_float();
    let (x, y) = (a.to_f64(), b.to_f64());
    let (i, j) = (a.to_i64(), b.to_i64());
    let arithmetic = |int: Option<i64>, float: f64| if floats { Some(Float(float)) } else { int.map(Int) };
    let order = if floats { x.partial_cmp(&y) } else { Some(i.cmp(&j)) };
    let compare = |holds: fn(std::cmp::Ordering) -> bool| Some(Bool(order.is_some_and(holds)));
    let bits = |f: fn(i64, i64) -> i64, g: fn(bool, bool) -> bool| match (a, b) {
        (Bool(a), Bool(b)) => Some(Bool(g(a, b))),
        _ if floats => None,
        _ => Some(Int(f(i, j))),
    };
    match function {
        Function::Eq => compare(|o| o.is_eq()),
        Function::Ne => Some(Bool(!order.is_some_and(|o| o.is_eq()))),
        Function::Le => compare(|o| o.is_le()),
        Function::Ge => compare(|o| o.is_ge()),
        Function::Lt => compare(|o| o.is_lt()),
        Function::Gt => compare(|o| o.is_gt()),
        Function::Add => arithmetic(i.checked_add(j), x + y),
        Function::Sub => arithmetic(i.checked_sub(j), x - y),
        Function::Mul => arithmetic(i.checked_mul(j), x * y),
        Function::FloorDiv if floats => (y != 0.0).then(|| Float((x / y).floor())),
        Function::FloorDiv => floor_div(i, j).map(Int),
        Function::Mod if floats => (y != 0.0).then(|| Float(x - y * (x / y).floor())),
        Function::Mod => floor_div(i, j)?.checked_mul(j).and_then(|m| i.checked_sub(m)).map(Int),
        Function::Pow if floats || j < 0 => Some(Float(x.powf(y))),
        Function::Pow => i.checked_pow(u32::try_from(j).ok()?).map(Int),
        Function::TrueDiv => (y != 0.0).then(|| Float(x / y)),
        Function::And => bits(|a, b| a & b, |a, b| a & b),
        Function::Or => bits(|a, b| a | b, |a, b| a | b),
        Function::LShift if !floats => i.checked_mul(1i64.checked_shl(u32::try_from(j).ok()?)?).map(Int),
        Function::RShift if !floats => i.checked_shr(u32::try_from(j).ok()?).map(Int),
        Function::SymMax => Some(if order?.is_lt() { b } else { a }),
        Function::SymMin => Some(if order?.is_gt() { b } else { a }),
        _ => None,
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    if a % b != 0 && (a < 0) != (b < 0) { q.checked_sub(1) } else { Some(q) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scalar::{Bool, Float, Int};

    #[test]
    fn python_says_the_same() {
        for (f, args, expected) in [
            (Function::FloorDiv, vec![Int(-7), Int(2)], Some(Int(-4))),
            (Function::Mod, vec![Int(-7), Int(2)], Some(Int(1))),
            (Function::Mod, vec![Float(-7.5), Int(2)], Some(Float(0.5))),
            (Function::TrueDiv, vec![Int(7), Int(2)], Some(Float(3.5))),
            (Function::Pow, vec![Int(2), Int(10)], Some(Int(1024))),
            (Function::Pow, vec![Int(2), Int(-1)], Some(Float(0.5))),
            (Function::SymMax, vec![Int(3), Int(5)], Some(Int(5))),
            (Function::SymIte, vec![Bool(false), Int(3), Int(5)], Some(Int(5))),
            (Function::Trunc, vec![Float(-2.5)], Some(Int(-2))),
            (Function::Eq, vec![Int(1), Float(1.0)], Some(Bool(true))),
            (Function::And, vec![Bool(true), Bool(false)], Some(Bool(false))),
            (Function::FloorDiv, vec![Int(1), Int(0)], None),
            (Function::Mul, vec![Int(i64::MAX), Int(2)], None),
            (Function::Neg, vec![Int(i64::MIN)], None),
        ] {
            assert_eq!(scalar_function(&f, &args).ok(), expected, "{f:?} {args:?}");
        }
    }
}
