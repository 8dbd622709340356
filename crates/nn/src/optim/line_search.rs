//! A line search for the strong Wolfe conditions: sufficient decrease, and a slope that has flattened enough.
//!
//! It first walks out until a bracket holds a good step, then narrows the bracket by cubic interpolation. It knows a
//! function of the step length and nothing of parameters.

use firebrand_core::{Result, Tensor};

/// Sufficient decrease, as a share of the first slope.
const C1: f64 = 1e-4;
/// How flat the slope must become, as a share of the first one.
const C2: f64 = 0.9;
const MAX_STEPS: usize = 25;

/// The loss at one step length.
#[derive(Clone)]
pub(super) struct Point {
    pub(super) t: f64,
    pub(super) loss: f64,
    pub(super) grad: Tensor,
    /// Slope along the direction.
    pub(super) slope: f64,
}

/// The minimum of the cubic through two points with their slopes, kept within bounds.
fn cubic(a: &Point, b: &Point, bounds: Option<(f64, f64)>) -> f64 {
    let (low, high) = bounds.unwrap_or((a.t.min(b.t), a.t.max(b.t)));
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.t - b.t);
    let square = d1 * d1 - a.slope * b.slope;
    if square < 0.0 || square.is_nan() {
        return (low + high) / 2.0;
    }
    let d2 = square.sqrt();
    let (left, right) = if a.t <= b.t { (a, b) } else { (b, a) };
    let at = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2.0 * d2));
    at.max(low).min(high)
}

/// From `start` (at step length 0), first trying `t`: a point that satisfies the conditions, or the best one found, and
/// how often `at` was asked. `reach` is the largest element of the direction.
pub(super) fn strong_wolfe(
    start: Point,
    t: f64,
    reach: f64,
    tolerance_change: f64,
    at: &mut dyn FnMut(f64) -> Result<Point>,
) -> Result<(Point, usize)> {
    let enough = |p: &Point| p.loss <= start.loss + C1 * p.t * start.slope;
    let flat = |p: &Point| p.slope.abs() <= -C2 * start.slope;
    let mut now = at(t)?;
    let (mut evaluations, mut steps) = (1, 0);
    let mut last = start.clone();
    let mut bracket = loop {
        if steps == MAX_STEPS {
            break [start.clone(), now.clone()];
        }
        if !enough(&now) || (steps > 1 && now.loss >= last.loss) {
            break [last, now.clone()];
        }
        if flat(&now) {
            return Ok((now, evaluations));
        }
        if now.slope >= 0.0 {
            break [last, now.clone()];
        }
        let bounds = (now.t + 0.01 * (now.t - last.t), now.t * 10.0);
        let next = cubic(&last, &now, Some(bounds));
        last = std::mem::replace(&mut now, at(next)?);
        evaluations += 1;
        steps += 1;
    };
    let order = |b: &[Point; 2]| if b[0].loss <= b[1].loss { (0, 1) } else { (1, 0) };
    let (mut low, mut high) = order(&bracket);
    let mut stuck = false;
    while steps < MAX_STEPS && (bracket[1].t - bracket[0].t).abs() * reach >= tolerance_change {
        let mut t = cubic(&bracket[0], &bracket[1], None);
        let (min, max) = (bracket[0].t.min(bracket[1].t), bracket[0].t.max(bracket[1].t));
        // A step next to an end of the bracket makes little progress: once is allowed, then it is moved inwards.
        let margin = 0.1 * (max - min);
        let near = (max - t).min(t - min) < margin;
        let push = near && (stuck || t >= max || t <= min);
        if push {
            t = if (t - max).abs() < (t - min).abs() { max - margin } else { min + margin };
        }
        stuck = near && !push;
        let point = at(t)?;
        evaluations += 1;
        steps += 1;
        if !enough(&point) || point.loss >= bracket[low].loss {
            bracket[high] = point;
            (low, high) = order(&bracket);
            continue;
        }
        let done = flat(&point);
        if !done && point.slope * (bracket[high].t - bracket[low].t) >= 0.0 {
            bracket[high] = bracket[low].clone();
        }
        bracket[low] = point;
        if done {
            break;
        }
    }
    Ok((bracket[low].clone(), evaluations))
}
