//! Dim: a dynamic size of an exported program, and where such sizes occur.

use crate::error::{Error, Result};
use crate::ir::Expr;
use crate::program::ValueRange;
use firebrand_core::{Device, Layout, Spec, Tensor};

/// A dynamic size. Two dimensions with the same name always have the same size.
///
/// ```
/// use firebrand_graph::Dim;
/// let batch = Dim::new("batch").min(2).max(64);
/// let doubled = batch.clone() * 2;
/// # _ = doubled;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    name: String,
    range: ValueRange,
    times: i64,
    plus: i64,
}

impl Dim {
    /// A dynamic size with any value that the program supports.
    pub fn new(name: impl Into<String>) -> Dim {
        Dim { name: name.into(), range: ValueRange::default(), times: 1, plus: 0 }
    }

    /// The smallest value that must be supported. Without it, export finds the smallest value that works.
    pub fn min(mut self, min: usize) -> Dim {
        self.range.min = Some(min as i64);
        self
    }

    /// The largest value it may have.
    pub fn max(mut self, max: usize) -> Dim {
        self.range.max = Some(max as i64);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A multiple of another size; its range is that of the other.
impl std::ops::Mul<usize> for Dim {
    type Output = Dim;
    fn mul(self, n: usize) -> Dim {
        Dim { times: self.times * n as i64, plus: self.plus * n as i64, ..self }
    }
}

/// Another size plus a constant.
impl std::ops::Add<usize> for Dim {
    type Output = Dim;
    fn add(self, n: usize) -> Dim {
        Dim { plus: self.plus + n as i64, ..self }
    }
}

/// Another size minus a constant.
impl std::ops::Sub<usize> for Dim {
    type Output = Dim;
    fn sub(self, n: usize) -> Dim {
        Dim { plus: self.plus - n as i64, ..self }
    }
}

/// A symbol of a program.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    /// The name of its dim.
    pub(crate) dim: String,
    /// Where it first occurred: input and dimension.
    pub(crate) place: (usize, usize),
    pub(crate) range: ValueRange,
    /// Its value in the example.
    pub(crate) hint: i64,
}

impl Symbol {
    /// Other values it may have: close by, far off, and the ends of its range.
    pub(crate) fn others(&self) -> Vec<i64> {
        const LARGE: i64 = 1 << 16;
        let n = self.hint;
        let ends = [self.range.min, self.range.max.filter(|m| *m <= LARGE)];
        let mut values = vec![n + 1, 2 * n, 3 * n + 1, 5 * n + 3];
        values.extend(ends.into_iter().flatten());
        // In a narrow range the values below are needed too.
        values.extend([n - 1, n - 2]);
        values.retain(|v| self.may_be(*v));
        let mut seen = Vec::new();
        values.retain(|v| !seen.contains(v) && (seen.push(*v), true).1);
        values
    }

    /// The values next to the one of the example, as many as there are.
    pub(crate) fn around(&self, count: i64) -> Vec<i64> {
        let near = (1..=count).flat_map(|d| [self.hint + d, self.hint - d]);
        near.filter(|v| self.may_be(*v)).take(count as usize).collect()
    }

    /// Whether a value other than that of the example has to work. Without a smallest value those above do.
    fn may_be(&self, value: i64) -> bool {
        let least = self.range.min.unwrap_or(self.hint);
        value != self.hint && value >= least && self.range.max.is_none_or(|m| value <= m)
    }

    /// The name that the `k`-th symbol has in programs.
    pub(crate) fn name(k: usize) -> String {
        format!("s{k}")
    }

    /// The `k`-th symbol, as programs write it.
    pub(crate) fn expr(k: usize) -> Expr {
        Expr::size_symbol(&Symbol::name(k))
    }
}

/// Which dimensions vary: for each input and dimension the symbol, and what it is multiplied by and added to.
pub(crate) struct Places(Vec<Vec<Option<(usize, i64, i64)>>>);

impl Places {
    /// Finds the symbols. `name` is how messages call an input.
    pub(crate) fn new(
        inputs: &[Tensor],
        dims: &[(usize, usize, Dim)],
        name: impl Fn(usize) -> String,
    ) -> Result<(Places, Vec<Symbol>)> {
        let mut places: Vec<Vec<_>> = inputs.iter().map(|t| vec![None; t.ndim()]).collect();
        let mut symbols: Vec<Symbol> = Vec::new();
        for (input, dim, d) in dims {
            let Some(size) = inputs.get(*input).and_then(|t| t.layout().sizes().get(*dim).copied()) else {
                let message = format!("Dim {}: there is no dimension {dim} of {}", d.name, name(*input));
                return Err(Error::Value(message));
            };
            let refuse = |message: String| Err(Error::Input { name: name(*input), message });
            let rest = size as i64 - d.plus;
            if d.times == 0 || rest % d.times != 0 {
                return refuse(format!(
                    "dimension {dim} has size {size}, which {} * {} + {} cannot be",
                    d.name, d.times, d.plus
                ));
            }
            let hint = rest / d.times;
            let range = |r: &ValueRange| {
                let end = |v: Option<i64>| v.map_or(String::new(), |v| v.to_string());
                format!("{}..{}", end(r.min), end(r.max))
            };
            let outside = d.range.min.is_some_and(|m| hint < m) || d.range.max.is_some_and(|m| hint > m);
            if outside {
                return refuse(format!(
                    "size {dim} of the example makes {} {hint}, outside {}",
                    d.name,
                    range(&d.range)
                ));
            }
            if hint < 2 {
                let why = "sizes 0 and 1 broadcast, so they do not generalize; use an example with 2 or more";
                return refuse(format!("size {dim} of the example makes {} {hint}: {why}", d.name));
            }
            let symbol = match symbols.iter().position(|s| s.dim == d.name) {
                Some(k) => {
                    let first = &mut symbols[k];
                    if first.hint != hint {
                        let there = name(first.place.0);
                        let place = format!("size {} of {there}", first.place.1);
                        return refuse(format!("size {dim} makes {} {hint}, {place} makes it {}", d.name, first.hint));
                    }
                    if first.range != d.range && d.range != ValueRange::default() {
                        let (a, b) = (range(&first.range), range(&d.range));
                        return refuse(format!("Dim {} has two ranges, {a} and {b}", d.name));
                    }
                    k
                }
                None => {
                    let place = (*input, *dim);
                    symbols.push(Symbol { dim: d.name.clone(), place, range: d.range, hint });
                    symbols.len() - 1
                }
            };
            places[*input][*dim] = Some((symbol, d.times, d.plus));
        }
        Ok((Places(places), symbols))
    }

    /// A meta tensor like input `i`, at other values of the symbols.
    pub(crate) fn outline(&self, i: usize, input: &Tensor, symbols: &[i64], name: &str) -> Result<Tensor> {
        let layout = input.layout();
        let mut sizes = layout.sizes().to_vec();
        let mut varies = false;
        for (size, place) in sizes.iter_mut().zip(&self.0[i]) {
            if let Some((symbol, times, plus)) = place {
                let value = symbols[*symbol] * times + plus;
                *size =
                    usize::try_from(value).map_err(|_| Error::Value(format!("a size of {name} would be {value}")))?;
                varies = true;
            }
        }
        let layout = if varies { relaid(layout, &sizes, name)? } else { layout.clone() };
        let spec = Spec { layout, dtype: input.dtype(), device: Device::Meta };
        Ok(Tensor::try_empty(spec)?.try_requires_grad_(input.requires_grad())?)
    }
}

/// A dense layout with the order of dimensions of another one.
fn relaid(like: &Layout, sizes: &[usize], name: &str) -> Result<Layout> {
    let dense = |sizes: &[usize]| {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&d| std::cmp::Reverse((like.strides()[d], sizes.len() - d)));
        let (mut strides, mut step) = (vec![0; sizes.len()], 1);
        for &d in order.iter().rev() {
            strides[d] = step;
            step = usize::saturating_mul(step, sizes[d].max(1));
        }
        strides
    };
    let differs = |(d, s): (usize, &usize)| like.sizes()[d] != 1 && *s != like.strides()[d];
    if dense(like.sizes()).iter().enumerate().any(differs) {
        let message = "it is not contiguous, so sizes cannot vary; use a contiguous example".to_string();
        return Err(Error::Input { name: name.to_string(), message });
    }
    Ok(Layout::strided(sizes, &dense(sizes), 0)?)
}
