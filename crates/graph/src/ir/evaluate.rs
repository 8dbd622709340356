//! The value of an expression, given its symbols.

use super::{Expr, Head};
use crate::error::{Error, Result};
use firebrand_core::Scalar;

impl Expr {
    /// The value, or none if a symbol in it is not known. Numbers that do not fit 64 bits are an error.
    pub fn evaluate(&self, known: &dyn Fn(&str) -> Option<i64>) -> Result<Option<Scalar>> {
        let value = match self {
            Expr::Symbol(name, _) => return Ok(known(name).map(Scalar::Int)),
            Expr::Int(i) => Scalar::Int(*i),
            Expr::Bool(b) => Scalar::Bool(*b),
            Expr::Rational(p, q) => Scalar::Float(*p as f64 / *q as f64),
            Expr::Float(text, _) => Scalar::Float(text.parse().map_err(|_| self.undefined())?),
            Expr::Infinity { negative, .. } => Scalar::Float(if *negative { f64::NEG_INFINITY } else { f64::INFINITY }),
            Expr::Call(head, args) => {
                let mut values = Vec::with_capacity(args.len());
                for arg in args.iter() {
                    match arg.evaluate(known)? {
                        Some(value) => values.push(value),
                        None => return Ok(None),
                    }
                }
                apply(*head, &values).ok_or_else(|| self.undefined())?
            }
        };
        Ok(Some(value))
    }

    fn undefined(&self) -> Error {
        Error::Value(format!("{self} has no value that fits 64 bits"))
    }
}

fn fold(values: &[Scalar], int: fn(i64, i64) -> Option<i64>, float: fn(f64, f64) -> f64) -> Option<Scalar> {
    let (first, rest) = values.split_first()?;
    rest.iter().try_fold(*first, |a, &b| {
        if a.is_float() || b.is_float() {
            Some(Scalar::Float(float(a.to_f64(), b.to_f64())))
        } else {
            int(a.to_i64(), b.to_i64()).map(Scalar::Int)
        }
    })
}

/// Division that rounds down; none if it divides by zero or overflows.
pub(crate) fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn apply(head: Head, v: &[Scalar]) -> Option<Scalar> {
    use Head::*;
    let truth = |b: bool| Some(Scalar::Bool(b));
    match (head, v) {
        (Add, _) => fold(v, i64::checked_add, |a, b| a + b),
        (Mul, _) => fold(v, i64::checked_mul, |a, b| a * b),
        (Max, _) => fold(v, |a, b| Some(a.max(b)), f64::max),
        (Min, _) => fold(v, |a, b| Some(a.min(b)), f64::min),
        (Pow | PowByNatural, [a, b]) if !a.is_float() && !b.is_float() && b.to_i64() >= 0 => {
            a.to_i64().checked_pow(u32::try_from(b.to_i64()).ok()?).map(Scalar::Int)
        }
        (Pow | PowByNatural | FloatPow, [a, b]) => Some(Scalar::Float(a.to_f64().powf(b.to_f64()))),
        (FloorDiv | CleanDiv, [a, b]) => floor_div(a.to_i64(), b.to_i64()).map(Scalar::Int),
        (CeilDiv, [a, b]) => floor_div(a.to_i64().checked_neg()?, b.to_i64())?.checked_neg().map(Scalar::Int),
        (Mod | PythonMod, [a, b]) => {
            let (a, b) = (a.to_i64(), b.to_i64());
            floor_div(a, b).map(|q| Scalar::Int(a - q * b))
        }
        (ModularIndexing, [a, b, c]) => {
            let (quotient, c) = (floor_div(a.to_i64(), b.to_i64())?, c.to_i64());
            floor_div(quotient, c).map(|q| Scalar::Int(quotient - q * c))
        }
        (IntTrueDiv | FloatTrueDiv, [a, b]) => Some(Scalar::Float(a.to_f64() / b.to_f64())),
        (LShift, [a, b]) => a.to_i64().checked_mul(1i64.checked_shl(u32::try_from(b.to_i64()).ok()?)?).map(Scalar::Int),
        (RShift, [a, b]) => a.to_i64().checked_shr(u32::try_from(b.to_i64()).ok()?).map(Scalar::Int),
        (ToFloat, [a]) => Some(Scalar::Float(a.to_f64())),
        (FloorToInt, [a]) => Some(Scalar::Int(a.to_f64().floor() as i64)),
        (CeilToInt, [a]) => Some(Scalar::Int(a.to_f64().ceil() as i64)),
        (TruncToInt, [a]) => Some(Scalar::Int(a.to_f64().trunc() as i64)),
        (TruncToFloat, [a]) => Some(Scalar::Float(a.to_f64().trunc())),
        (RoundToInt, [a]) => Some(Scalar::Int(a.to_f64().round_ties_even() as i64)),
        (Where, [a, b, c]) => Some(if a.to_bool() { *b } else { *c }),
        (Identity, [a]) => Some(*a),
        (Equality, [a, b]) => truth(a.to_f64() == b.to_f64()),
        (Unequality, [a, b]) => truth(a.to_f64() != b.to_f64()),
        (GreaterThan, [a, b]) => truth(a.to_f64() >= b.to_f64()),
        (LessThan, [a, b]) => truth(a.to_f64() <= b.to_f64()),
        (StrictGreaterThan, [a, b]) => truth(a.to_f64() > b.to_f64()),
        (StrictLessThan, [a, b]) => truth(a.to_f64() < b.to_f64()),
        (And, _) => truth(v.iter().all(|x| x.to_bool())),
        (Or, _) => truth(v.iter().any(|x| x.to_bool())),
        (Not, [a]) => truth(!a.to_bool()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_from_symbols() {
        let known = |name: &str| (name == "s0").then_some(7);
        let value = |text: &str| Expr::parse(text).unwrap().evaluate(&known).unwrap();
        let s0 = "Symbol('s0', positive=True)";
        assert_eq!(value(&format!("Add(Mul(Integer(2), {s0}), Integer(-1))")), Some(Scalar::Int(13)));
        assert_eq!(value(&format!("FloorDiv({s0}, Integer(2))")), Some(Scalar::Int(3)));
        assert_eq!(value(&format!("CeilDiv({s0}, Integer(2))")), Some(Scalar::Int(4)));
        assert_eq!(value(&format!("PythonMod(Mul(Integer(-1), {s0}), Integer(4))")), Some(Scalar::Int(1)));
        assert_eq!(value(&format!("GreaterThan({s0}, Symbol('u0'))")), None);
        assert!(Expr::parse("Mod(Integer(1), Integer(0))").unwrap().evaluate(&known).is_err());
    }
}
