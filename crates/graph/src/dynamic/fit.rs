//! fit: finds the expression behind an integer from its values at several values of the symbols.

use super::SizeExpr;
use firebrand_core::sym::SymOp;

/// A size where symbols have other values than at first.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// The one symbol that has another value here; others may go with it. None if several vary on their own.
    pub varies: Option<usize>,
    /// The values of all symbols.
    pub symbols: &'a [i64],
    /// The size.
    pub size: i64,
}

/// The highest power of a symbol that is looked for.
const MAX_POWER: u32 = 3;

/// With fewer other values of a symbol only the simplest forms are believed.
const ENOUGH: usize = 3;

/// A size in terms of symbols, given its value `here`, at `base`, and at other points: a constant, an affine function, a
/// quotient that rounds down, a multiple of powers, or a sum of such a kind over several symbols. None if nothing fits
/// every point. Which number a quotient adds before it divides is known only if all remainders were looked at.
pub fn fit(here: i64, base: &[i64], points: &[Point<'_>]) -> Option<SizeExpr> {
    let alone = |k: usize| points.iter().filter(move |p| p.varies == Some(k));
    let depends: Vec<usize> = (0..base.len()).filter(|&k| alone(k).any(|p| p.size != here)).collect();
    let fits = |e: &SizeExpr| e.value(base) == Some(here) && points.iter().all(|p| e.value(p.symbols) == Some(p.size));
    let fit = Fit { here, base, points };
    let candidates = match &depends[..] {
        [] => vec![Some(SizeExpr::Int(here))],
        [k] => {
            let rich = alone(*k).count() >= ENOUGH;
            let mut list = vec![fit.affine(*k), fit.quotient(*k, rich), fit.monomial(&depends)];
            if !rich {
                list.truncate(2);
            }
            list
        }
        many => vec![fit.monomial(many), fit.affine_sum(many), fit.bilinear(many)],
    };
    candidates.into_iter().flatten().find(fits)
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

struct Fit<'a> {
    here: i64,
    base: &'a [i64],
    points: &'a [Point<'a>],
}

impl Fit<'_> {
    /// The point at which symbol `k` is furthest from its base value, alone.
    fn far(&self, k: usize) -> Option<&Point<'_>> {
        let alone = self.points.iter().filter(|p| p.varies == Some(k));
        alone.max_by_key(|p| p.symbols[k].abs_diff(self.base[k]))
    }

    /// How much the size and the symbol rise from here to there.
    fn rise(&self, k: usize) -> Option<(i64, i64)> {
        let far = self.far(k)?;
        let run = far.symbols[k] - self.base[k];
        (run != 0).then_some((far.size - self.here, run))
    }

    fn slope(&self, k: usize) -> Option<i64> {
        let (rise, run) = self.rise(k)?;
        (rise % run == 0).then(|| rise / run)
    }

    fn affine(&self, k: usize) -> Option<SizeExpr> {
        let slope = self.slope(k)?;
        Some(SizeExpr::Symbol(k as u32).times(slope).plus(self.here - slope * self.base[k]))
    }

    /// `s / q`, or `m·((s + c) / q) + e` if there are points enough to tell.
    fn quotient(&self, k: usize, shifted: bool) -> Option<SizeExpr> {
        let (rise, run) = self.rise(k)?;
        if rise == 0 || (run < 0) != (rise < 0) {
            return None;
        }
        let divided = |c: i64, q: i64| {
            let over = SizeExpr::Symbol(k as u32).plus(c);
            SizeExpr::binary(SymOp::Div, over, SizeExpr::Int(q))
        };
        if !shifted {
            return (run % rise == 0).then(|| divided(0, run / rise));
        }
        let alone = self.points.iter().filter(|p| p.varies == Some(k));
        // All sizes differ by multiples of this.
        let unit = alone.clone().fold(0, |unit, p| gcd(unit, (p.size - self.here).abs()));
        let near = (run / (rise / unit)).max(2);
        for q in near.saturating_sub(1).max(2)..=near + 1 {
            for c in 0..q {
                let rest = self.here - unit * (self.base[k] + c).div_euclid(q);
                let whole = divided(c, q).times(unit).plus(rest);
                if alone.clone().all(|p| whole.value(p.symbols) == Some(p.size)) {
                    return Some(whole);
                }
            }
        }
        None
    }

    /// A multiple of powers of the symbols.
    fn monomial(&self, symbols: &[usize]) -> Option<SizeExpr> {
        let (mut product, mut powers) = (1i64, None);
        for &k in symbols {
            let far = self.far(k)?;
            let times = |base: i64, n: u32| i128::from(base).checked_pow(n);
            let power = (1..=MAX_POWER).find(|&n| {
                let (Some(there), Some(here)) = (times(far.symbols[k], n), times(self.base[k], n)) else {
                    return false;
                };
                i128::from(self.here).checked_mul(there) == i128::from(far.size).checked_mul(here)
            })?;
            product = product.checked_mul(self.base[k].checked_pow(power)?)?;
            for _ in 0..power {
                let symbol = SizeExpr::Symbol(k as u32);
                powers = Some(match powers {
                    Some(p) => SizeExpr::binary(SymOp::Mul, p, symbol),
                    None => symbol,
                });
            }
        }
        (product != 0 && self.here % product == 0).then(|| powers.map(|p| p.times(self.here / product)))?
    }

    /// A sum of multiples.
    fn affine_sum(&self, symbols: &[usize]) -> Option<SizeExpr> {
        let (mut sum, mut rest) = (None, self.here);
        for &k in symbols {
            let slope = self.slope(k)?;
            rest -= slope * self.base[k];
            let term = SizeExpr::Symbol(k as u32).times(slope);
            sum = Some(match sum {
                Some(s) => SizeExpr::binary(SymOp::Add, s, term),
                None => term,
            });
        }
        sum.map(|s| s.plus(rest))
    }

    /// `a·s·t + b·s + c·t + d`; needs a point where both vary.
    fn bilinear(&self, symbols: &[usize]) -> Option<SizeExpr> {
        let &[s, t] = symbols else { return None };
        let both =
            self.points.iter().find(|p| p.varies.is_none() && [s, t].iter().all(|&k| p.symbols[k] != self.base[k]))?;
        let (at_s, at_t) = (self.slope(s)?, self.slope(t)?);
        let (ds, dt) = (both.symbols[s] - self.base[s], both.symbols[t] - self.base[t]);
        let mixed = both.size - self.here - at_s * ds - at_t * dt;
        if mixed % (ds * dt) != 0 {
            return None;
        }
        let a = mixed / (ds * dt);
        let (b, c) = (at_s - a * self.base[t], at_t - a * self.base[s]);
        let d = self.here - a * self.base[s] * self.base[t] - b * self.base[s] - c * self.base[t];
        let symbol = |k: usize| SizeExpr::Symbol(k as u32);
        let terms = [(a, SizeExpr::binary(SymOp::Mul, symbol(s), symbol(t))), (b, symbol(s)), (c, symbol(t))];
        let terms = terms.into_iter().filter(|(n, _)| *n != 0).map(|(n, e)| e.times(n));
        terms.reduce(|x, y| SizeExpr::binary(SymOp::Add, x, y)).map(|e| e.plus(d))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of two sizes that programs have come back as expressions of the same values everywhere.
    #[test]
    fn finds_what_programs_compute() {
        let functions: &[fn(i64, i64) -> i64] = &[
            |_, _| 7,
            |s, _| s,
            |s, _| 3 * s + 1,
            |_, t| t / 2,
            |s, _| (s + 2 - 3) / 2 + 1,
            |s, _| (((s - 1) / 2 + 1) - 1) / 2 + 1,
            |s, _| 6 * (s / 4 + 1),
            |s, _| s * s,
            |s, t| 4 * s * t * t,
            |s, t| s + t,
            |s, t| 2 * s + 3 * t - 1,
            |s, t| (s + 1) * (t + 2),
        ];
        let base = [6i64, 4];
        let mut others = vec![[12i64, 4], [19, 4], [3, 4], [6, 5], [6, 8], [6, 13], [6, 3], [7, 5], [12, 8]];
        others.extend((7..=10).map(|s| [s, 4])); // every remainder of the largest divisor
        for (i, f) in functions.iter().enumerate() {
            let points: Vec<Point<'_>> = others
                .iter()
                .map(|at| Point {
                    varies: match (at[0] != base[0], at[1] != base[1]) {
                        (true, false) => Some(0),
                        (false, true) => Some(1),
                        _ => None,
                    },
                    symbols: at,
                    size: f(at[0], at[1]),
                })
                .collect();
            let found = fit(f(6, 4), &base, &points).unwrap_or_else(|| panic!("function {i}"));
            for s in 3..40 {
                for t in 3..40 {
                    assert_eq!(found.value(&[s, t]), Some(f(s, t)), "function {i}: {found}");
                }
            }
        }
    }

    #[test]
    fn says_no_where_nothing_fits() {
        let at = |symbols: &'static [i64], size| Point { varies: Some(0), symbols, size };
        assert_eq!(fit(4, &[4], &[at(&[5], 5), at(&[8], 3)]), None);
    }
}
