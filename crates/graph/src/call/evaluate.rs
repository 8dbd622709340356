//! Evaluates expressions over symbols, once the symbols have values.
//!
//! Integers are exact; overflow, division by zero and symbols without a value give `None`. Nothing panics.

use crate::ir::{Expr, Head};

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Int(v) => v as f64,
            Number::Float(v) => v,
            Number::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// The integer, also of a float that is one.
    pub(crate) fn int(self) -> Option<i64> {
        match self {
            Number::Int(v) => Some(v),
            Number::Bool(v) => Some(i64::from(v)),
            Number::Float(v) => (v.fract() == 0.0 && v.abs() < 9e15).then_some(v as i64),
        }
    }

    fn truth(self) -> bool {
        match self {
            Number::Bool(v) => v,
            Number::Int(v) => v != 0,
            Number::Float(v) => v != 0.0,
        }
    }
}

/// The value of an expression.
pub(crate) fn evaluate(expr: &Expr, symbol: &impl Fn(&str) -> Option<i64>) -> Option<Number> {
    let args = match expr {
        Expr::Symbol(name, _) => return symbol(name).map(Number::Int),
        Expr::Int(v) => return Some(Number::Int(*v)),
        Expr::Rational(p, q) => return Some(Number::Float(*p as f64 / *q as f64)),
        Expr::Float(text, _) => return text.parse().ok().map(Number::Float),
        Expr::Bool(v) => return Some(Number::Bool(*v)),
        Expr::Infinity { negative, .. } => {
            return Some(Number::Float(if *negative { f64::NEG_INFINITY } else { f64::INFINITY }));
        }
        Expr::Call(Head::Piecewise, pairs) => {
            return pairs.iter().find_map(|pair| match pair {
                Expr::Call(Head::ExprCondPair, parts) => match &parts[..] {
                    [value, condition] => {
                        evaluate(condition, symbol)?.truth().then(|| evaluate(value, symbol)).flatten()
                    }
                    _ => None,
                },
                _ => None,
            });
        }
        Expr::Call(head, args) => {
            let numbers: Option<Vec<Number>> = args.iter().map(|a| evaluate(a, symbol)).collect();
            (*head, numbers?)
        }
    };
    call(args.0, &args.1)
}

fn call(head: Head, args: &[Number]) -> Option<Number> {
    use Number::{Bool, Float, Int};
    let fold = |int: fn(i64, i64) -> Option<i64>, float: fn(f64, f64) -> f64| -> Option<Number> {
        let (first, rest) = args.split_first()?;
        rest.iter().try_fold(*first, |a, b| match (a, *b) {
            (Float(_), _) | (_, Float(_)) => Some(Float(float(a.float(), b.float()))),
            _ => int(a.int()?, b.int()?).map(Int),
        })
    };
    let two = || if let [a, b] = args { Some((*a, *b)) } else { None };
    let ints = || two().and_then(|(a, b)| Some((a.int()?, b.int()?)));
    let one = || if let [a] = args { Some(*a) } else { None };
    let compare = |holds: fn(f64, f64) -> bool| {
        let (a, b) = two()?;
        Some(Bool(holds(a.float(), b.float())))
    };
    let whole = |v: f64| (v.abs() < 9e18).then_some(Int(v as i64));
    match head {
        Head::Add => fold(i64::checked_add, |a, b| a + b),
        Head::Mul => fold(i64::checked_mul, |a, b| a * b),
        Head::Max => fold(|a, b| Some(a.max(b)), f64::max),
        Head::Min => fold(|a, b| Some(a.min(b)), f64::min),
        Head::Pow | Head::PowByNatural => match two()? {
            (Int(a), Int(b)) if b >= 0 => a.checked_pow(u32::try_from(b).ok()?).map(Int),
            (a, b) => Some(Float(a.float().powf(b.float()))),
        },
        Head::FloatPow => two().map(|(a, b)| Float(a.float().powf(b.float()))),
        Head::Mod | Head::PythonMod => {
            ints().and_then(|(a, b)| floor_div(a, b)?.checked_mul(b)?.checked_neg()?.checked_add(a)).map(Int)
        }
        Head::FloorDiv | Head::CleanDiv => ints().and_then(|(a, b)| floor_div(a, b)).map(Int),
        Head::CeilDiv => ints().and_then(|(a, b)| floor_div(a.checked_neg()?, b)?.checked_neg()).map(Int),
        Head::IntTrueDiv | Head::FloatTrueDiv => two().map(|(a, b)| Float(a.float() / b.float())),
        Head::LShift => ints().and_then(|(a, b)| a.checked_mul(1i64.checked_shl(u32::try_from(b).ok()?)?)).map(Int),
        Head::RShift => ints().and_then(|(a, b)| a.checked_shr(u32::try_from(b).ok()?)).map(Int),
        Head::ToFloat => one().map(|a| Float(a.float())),
        Head::FloorToInt => one().and_then(|a| whole(a.float().floor())),
        Head::CeilToInt => one().and_then(|a| whole(a.float().ceil())),
        Head::TruncToInt => one().and_then(|a| whole(a.float().trunc())),
        Head::TruncToFloat => one().map(|a| Float(a.float().trunc())),
        Head::RoundToInt => one().and_then(|a| whole(a.float().round_ties_even())),
        Head::RoundDecimal => ints_after(args).map(|(a, digits)| {
            let scale = 10f64.powi(digits);
            Float((a * scale).round_ties_even() / scale)
        }),
        Head::Where => match args {
            [condition, a, b] => Some(if condition.truth() { *a } else { *b }),
            _ => None,
        },
        Head::ModularIndexing => match args {
            [a, b, c] => {
                let q = floor_div(a.int()?, b.int()?)?;
                let m = c.int()?;
                floor_div(q, m)?.checked_mul(m)?.checked_neg()?.checked_add(q).map(Int)
            }
            _ => None,
        },
        Head::Identity => one(),
        Head::Equality => compare(|a, b| a == b),
        Head::Unequality => compare(|a, b| a != b),
        Head::GreaterThan => compare(|a, b| a >= b),
        Head::LessThan => compare(|a, b| a <= b),
        Head::StrictGreaterThan => compare(|a, b| a > b),
        Head::StrictLessThan => compare(|a, b| a < b),
        Head::And => Some(Bool(args.iter().all(|a| a.truth()))),
        Head::Or => Some(Bool(args.iter().any(|a| a.truth()))),
        Head::Not => one().map(|a| Bool(!a.truth())),
        Head::Piecewise | Head::ExprCondPair | Head::IsNonOverlappingAndDenseIndicator => None,
    }
}

fn ints_after(args: &[Number]) -> Option<(f64, i32)> {
    let [a, digits] = args else { return None };
    Some((a.float(), i32::try_from(digits.int()?).ok()?))
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    if a % b != 0 && (a < 0) != (b < 0) { q.checked_sub(1) } else { Some(q) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_python_values() {
        let value = |text: &str| evaluate(&Expr::parse(text).unwrap(), &|s| (s == "s0").then_some(7));
        for (text, expected) in [
            ("Add(Mul(Integer(2), Symbol('s0')), Integer(-1))", Some(Number::Int(13))),
            ("FloorDiv(Mul(Integer(-1), Symbol('s0')), Integer(2))", Some(Number::Int(-4))),
            ("CeilDiv(Symbol('s0'), Integer(2))", Some(Number::Int(4))),
            ("Mod(Mul(Integer(-1), Symbol('s0')), Integer(3))", Some(Number::Int(2))),
            ("Pow(Symbol('s0'), Integer(2))", Some(Number::Int(49))),
            ("Max(Symbol('s0'), Integer(9))", Some(Number::Int(9))),
            ("FloorToInt(IntTrueDiv(Symbol('s0'), Integer(2)))", Some(Number::Int(3))),
            ("And(LessThan(Symbol('s0'), Integer(7)), Not(false))", Some(Number::Bool(true))),
            (
                "Piecewise(ExprCondPair(Integer(1), StrictLessThan(Symbol('s0'), Integer(0))), ExprCondPair(Integer(2), true))",
                Some(Number::Int(2)),
            ),
            ("Symbol('s1')", None),
            ("FloorDiv(Integer(1), Integer(0))", None),
            ("FloorDiv(Integer(-9223372036854775808), Integer(-1))", None),
            ("Mod(Integer(-9223372036854775808), Integer(-1))", None),
            ("Mul(Integer(9223372036854775807), Integer(2))", None),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }
}
