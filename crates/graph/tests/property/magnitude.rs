//! How large the terms of a gradient are: the sum, over all paths from results to an input, of the products of absolute
//! local derivatives. Two orders of summing the same terms differ by a few roundings of this, whatever cancels.
//!
//! Written anew for the seven ops of the random programs, so that it shares nothing with what it judges.

use super::{INPUTS, Step};

type Real = fn(f64) -> f64;

/// A value: its elements (three, or one), and which values it passes gradients to, with absolute derivatives.
struct Entry {
    elements: Vec<f64>,
    recorded: bool,
    from: Vec<(usize, Vec<f64>)>,
}

/// The magnitudes for both inputs.
pub(super) fn magnitudes(steps: &[Step], returned: &[usize]) -> [Vec<f64>; 2] {
    let mut on = true;
    let mut values: Vec<Entry> =
        INPUTS.iter().map(|v| Entry { elements: v.to_vec(), recorded: true, from: Vec::new() }).collect();
    for step in steps {
        let count = values.len();
        let (elements, from) = match *step {
            Step::Toggle(mode) => {
                on = mode;
                continue;
            }
            Step::Unary(f, a) => {
                let x = &values[a % count].elements;
                let (value, derivative): (Real, Real) = match f {
                    0 => (f64::sin, f64::cos),
                    1 => (f64::cos, f64::sin),
                    2 => (f64::tanh, |x| 1.0 - x.tanh() * x.tanh()),
                    _ => (|x| -x, |_| 1.0),
                };
                let slopes = x.iter().map(|&x| derivative(x).abs()).collect();
                (x.iter().map(|&x| value(x)).collect(), vec![(a % count, slopes)])
            }
            Step::Binary(f, a, b) => {
                let (x, y) = (&values[a % count].elements, &values[b % count].elements);
                let pairs: Vec<(f64, f64)> =
                    (0..x.len().max(y.len())).map(|i| (x[i % x.len()], y[i % y.len()])).collect();
                let map = |f: fn(&(f64, f64)) -> f64| pairs.iter().map(f).collect::<Vec<f64>>();
                let (value, left, right): (Vec<f64>, Vec<f64>, Vec<f64>) = match f {
                    0 => (map(|(x, y)| x + y), map(|_| 1.0), map(|_| 1.0)),
                    1 => (map(|(x, y)| x * y), map(|(_, y)| y.abs()), map(|(x, _)| x.abs())),
                    _ => (map(|(x, y)| x - y), map(|_| 1.0), map(|_| 1.0)),
                };
                (value, vec![(a % count, left), (b % count, right)])
            }
            Step::Max(a) => {
                let x = &values[a % count].elements;
                let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let slopes = x.iter().map(|&x| if x == largest { 1.0 } else { 0.0 }).collect();
                (vec![largest], vec![(a % count, slopes)])
            }
        };
        let recorded = on && from.iter().any(|&(i, _)| values[i].recorded);
        values.push(Entry { elements, recorded, from });
    }
    let mut sums: Vec<Vec<f64>> = values.iter().map(|v| vec![0.0; v.elements.len()]).collect();
    for i in returned {
        sums[i % values.len()].iter_mut().for_each(|s| *s += 1.0);
    }
    for (i, value) in values.iter().enumerate().rev().filter(|(_, v)| v.recorded) {
        let own = std::mem::take(&mut sums[i]);
        for (producer, slopes) in &value.from {
            let sum = &mut sums[*producer];
            // One element that serves three, or three that give one, collect or spread: the sizes divide each other.
            for k in 0..slopes.len().max(own.len()) {
                let at = k % sum.len();
                sum[at] += own[k % own.len()] * slopes[k % slopes.len()];
            }
        }
        sums[i] = own;
    }
    sums.truncate(2);
    sums.try_into().expect("there are two inputs")
}
