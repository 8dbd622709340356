//! Checks inputs against what the program was traced with: dtypes, ranks, sizes, and the symbols that sizes bind.
//!
//! A symbol is bound by the first input that has it as a bare size; every other size is then an expression that
//! must match. Ranges are checked last. Error messages say what was found and what is allowed, and give the condition.

use super::evaluate::evaluate;
use crate::error::{Error, Result};
use crate::ir::{Expr, SymInt, Symbolic, TensorMeta};
use crate::program::ValueRange;
use firebrand_core::Tensor;
use indexmap::IndexMap;
use std::collections::HashMap;

/// Values of symbols, and where each came from.
#[derive(Default)]
pub(crate) struct Bindings(HashMap<String, (i64, String)>);

/// Sizes that could not be compared yet.
struct Pending<'a> {
    input: &'a str,
    dim: usize,
    size: i64,
    expr: &'a Expr,
}

fn refuse<T>(name: &str, message: String) -> Result<T> {
    Err(Error::Input { name: name.to_string(), message })
}

impl Bindings {
    /// The value of a symbol.
    pub(crate) fn get(&self, symbol: &str) -> Option<i64> {
        self.0.get(symbol).map(|(v, _)| *v)
    }

    /// Binds or compares one size.
    fn bind(&mut self, symbol: &str, size: i64, input: &str, dim: usize) -> Result<()> {
        match self.0.get(symbol) {
            Some((bound, origin)) if *bound != size => refuse(
                input,
                format!(
                    "dimension {dim} has size {size}, expected {bound}, as {origin} has ({input}.size()[{dim}] == {origin})"
                ),
            ),
            Some(_) => Ok(()),
            None => {
                self.0.insert(symbol.to_string(), (size, format!("{input}.size()[{dim}]")));
                Ok(())
            }
        }
    }
}

/// Finds the value of the one unknown symbol of a linear expression, such as `2*s0 + 1`.
fn solve(expr: &Expr, size: i64, known: &Bindings) -> Option<(String, i64)> {
    let mut unknown: Option<&str> = None;
    let mut several = false;
    expr.for_each_symbol(&mut |s| {
        if known.get(s).is_none() {
            several |= unknown.is_some_and(|u| u != s);
            unknown = Some(s);
        }
    });
    let symbol = unknown.filter(|_| !several)?;
    let at = |v: i64| evaluate(expr, &|s| if s == symbol { Some(v) } else { known.get(s) })?.int();
    let (zero, one) = (at(0)?, at(1)?);
    let (slope, rest) = (one.checked_sub(zero)?, size.checked_sub(zero)?);
    if slope == 0 || rest % slope != 0 {
        return None;
    }
    let value = rest / slope;
    (at(value)? == size).then(|| (symbol.to_string(), value))
}

/// Checks tensors against the program's metadata and binds the symbols to values.
pub(crate) fn bind<'a>(
    inputs: impl Iterator<Item = (&'a str, &'a TensorMeta, &'a Tensor)>,
    numbers: impl Iterator<Item = (&'a str, &'a SymInt, i64)>,
    ranges: &IndexMap<String, ValueRange>,
) -> Result<Bindings> {
    let mut bindings = Bindings::default();
    let mut pending = Vec::new();
    for (name, meta, tensor) in inputs {
        if meta.dtype.dtype() != Some(tensor.dtype()) {
            return refuse(name, format!("expected {}, found {}", meta.dtype, tensor.dtype()));
        }
        if meta.sizes.len() != tensor.ndim() {
            let (found, expected) = (tensor.ndim(), meta.sizes.len());
            return refuse(name, format!("expected {expected} dimensions, found {found}"));
        }
        for (dim, (expected, &size)) in meta.sizes.iter().zip(tensor.shape()).enumerate() {
            let size = size as i64;
            match expected {
                Symbolic::Known(v) if *v != size => {
                    let condition = format!("{name}.size()[{dim}] == {v}");
                    return refuse(name, format!("dimension {dim} has size {size}, expected {v} ({condition})"));
                }
                Symbolic::Known(_) => {}
                Symbolic::Expr { expr, .. } => match expr.symbol() {
                    Some(symbol) => bindings.bind(symbol, size, name, dim)?,
                    None => pending.push(Pending { input: name, dim, size, expr }),
                },
            }
        }
    }
    for (name, expected, value) in numbers {
        match expected {
            Symbolic::Known(v) if *v != value => return refuse(name, format!("expected {v}, found {value}")),
            Symbolic::Expr { expr, .. } if expr.symbol().is_some() => {
                bindings.bind(expr.symbol().expect("just asked"), value, name, 0)?;
            }
            _ => {}
        }
    }
    for Pending { input, dim, size, expr } in pending {
        let value = evaluate(expr, &|s| bindings.get(s)).and_then(|n| n.int());
        match value {
            Some(v) if v == size => {}
            Some(v) => return refuse(input, format!("dimension {dim} has size {size}, expected {v} (= {expr})")),
            None => match solve(expr, size, &bindings) {
                Some((symbol, v)) => bindings.bind(&symbol, v, input, dim)?,
                None => return refuse(input, format!("dimension {dim} has size {size}, which {expr} cannot be")),
            },
        }
    }
    check_ranges(&bindings, ranges)?;
    Ok(bindings)
}

fn check_ranges(bindings: &Bindings, ranges: &IndexMap<String, ValueRange>) -> Result<()> {
    // In the order of the program, so that the same mistake gives the same message.
    for (symbol, range) in ranges {
        let Some((value, origin)) = bindings.0.get(symbol) else { continue };
        let broken = match (range.min, range.max) {
            (Some(min), _) if *value < min => format!("{origin} >= {min}"),
            (_, Some(max)) if *value > max => format!("{origin} <= {max}"),
            _ => continue,
        };
        let end = |v: Option<i64>| v.filter(|v| *v < i64::MAX - 1).map_or(String::new(), |v| v.to_string());
        let (input, dim) = origin.split_once(".size()[").unwrap_or((origin, ""));
        let what = match dim.strip_suffix(']') {
            Some(dim) => format!("dimension {dim} has size {value}"),
            None => format!("it is {value}"),
        };
        return refuse(input, format!("{what}, allowed {}..{} ({broken})", end(range.min), end(range.max)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ScalarType;
    use std::sync::Arc;

    fn meta(sizes: &[&str]) -> TensorMeta {
        let size = |text: &&str| match text.parse::<i64>() {
            Ok(v) => Symbolic::Known(v),
            Err(_) => Symbolic::Expr { expr: Arc::new(Expr::parse(text).unwrap()), hint: None },
        };
        TensorMeta { sizes: sizes.iter().map(size).collect(), ..TensorMeta::contiguous(ScalarType::Float32, &[]) }
    }

    fn check(metas: &[TensorMeta], shapes: &[&[i64]]) -> Result<Bindings> {
        let tensors: Vec<Tensor> = shapes.iter().map(|s| Tensor::zeros(*s, firebrand_core::DType::F32)).collect();
        let names = ["x", "y"];
        let ranges = [("s0".to_string(), ValueRange { min: Some(3), max: Some(6) })].into_iter().collect();
        let inputs = names.iter().zip(metas).zip(&tensors).map(|((n, m), t)| (*n, m, t));
        bind(inputs, std::iter::empty(), &ranges)
    }

    /// P-119: each broken condition is named, with what was found and what is allowed.
    #[test]
    fn broken_conditions_are_named() {
        let s = "Symbol('s0', positive=True, integer=True)";
        let twice = format!("Add(Mul(Integer(2), {s}), Integer(1))");
        let one = [meta(&[s, "2"])];
        let two = [meta(&[s, "2"]), meta(&[s])];
        let derived = [meta(&[s, "2"]), meta(&[&twice])];
        assert!(check(&one, &[&[3, 2]]).is_ok() && check(&one, &[&[6, 2]]).is_ok());
        assert!(check(&two, &[&[4, 2], &[4]]).is_ok() && check(&derived, &[&[4, 2], &[9]]).is_ok());
        assert!(check(&[meta(&[&twice])], &[&[7]]).is_ok(), "solved for the symbol");
        for (metas, shapes, message) in [
            (&one[..], &[&[2i64, 2][..]][..], "input x: dimension 0 has size 2, allowed 3..6 (x.size()[0] >= 3)"),
            (&one, &[&[7, 2]], "input x: dimension 0 has size 7, allowed 3..6 (x.size()[0] <= 6)"),
            (&one, &[&[4, 5]], "input x: dimension 1 has size 5, expected 2 (x.size()[1] == 2)"),
            (&one, &[&[4]], "input x: expected 2 dimensions, found 1"),
            (
                &two,
                &[&[4, 2], &[5]],
                "input y: dimension 0 has size 5, expected 4, as x.size()[0] has (y.size()[0] == x.size()[0])",
            ),
            (&derived, &[&[4, 2], &[8]], "input y: dimension 0 has size 8, expected 9"),
            (&[meta(&[&twice])], &[&[8]], "input x: dimension 0 has size 8, which Add("),
            (&[meta(&[&twice])], &[&[17]], "allowed 3..6"),
        ] {
            let found = check(metas, shapes).err().expect("refused").to_string();
            assert!(found.contains(message), "{found}");
        }
    }
}
