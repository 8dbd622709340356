//! Connectionist temporal classification: the probability of a target over all alignments with blanks between its
//! classes, by the forward recursion, and its gradient by forward and backward recursion. Computed in f64.

use super::copy_into;
use crate::limits::as_size;
use crate::ops::lists;
use crate::ops::shape::need_float;
use crate::{DType, Error, Result, Spec, Tensor};

const OP: &str = "_ctc_loss";
const NEVER: f64 = f64::NEG_INFINITY;

/// What both directions need of the arguments.
struct Sequences {
    time: usize,
    batch: usize,
    classes: usize,
    /// The longest target, blanks included.
    states: usize,
    blank: usize,
    targets: Vec<Vec<usize>>,
    lengths: Vec<usize>,
}

/// `log(e^a + e^b)`
fn add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if high == NEVER { NEVER } else { high + (low - high).exp().ln_1p() }
}

impl Sequences {
    fn new(
        log_probs: &Tensor,
        targets: &Tensor,
        input_lengths: &[i64],
        target_lengths: &[i64],
        blank: i64,
    ) -> Result<Sequences> {
        let wrong = |m: String| Err(Error::argument(OP, m));
        need_float(OP, log_probs.dtype())?;
        let &[time, batch, classes] = log_probs.shape() else {
            return wrong(format!("expected log-probabilities [time, batch, classes], found {:?}", log_probs.shape()));
        };
        if !matches!(targets.dtype(), DType::I32 | DType::I64) || targets.ndim() > 2 {
            let m = format!(
                "expected targets as i32 or i64, [batch, longest] or one after another; found {}",
                targets.dtype()
            );
            return wrong(m);
        }
        if !(0..classes as i64).contains(&blank) {
            return wrong(format!("expected a blank class below {classes}, found {blank}"));
        }
        let lengths = |list: &[i64], most: usize| -> Result<Option<Vec<usize>>> {
            match list.len() == batch && list.iter().all(|&n| n >= 0 && n as usize <= most) {
                true => lists::collected(batch, list.iter().map(|&n| n as usize)).map(Some),
                false => Ok(None),
            }
        };
        let (Some(inputs), Some(counts)) = (lengths(input_lengths, time)?, lengths(target_lengths, usize::MAX)?) else {
            let m = format!(
                "expected {batch} input lengths up to {time} and {batch} target lengths, found {input_lengths:?} and {target_lengths:?}"
            );
            return wrong(m);
        };
        let wide = Tensor::try_empty(Spec::new(targets.shape(), DType::I64, targets.device())?)?;
        copy_into(targets, &wide)?;
        let values = wide.try_to_vec::<i64>()?;
        let mut at = 0;
        let mut rows = lists::room(batch)?;
        for (b, &n) in counts.iter().enumerate() {
            let row = match targets.shape() {
                &[rows, longest] if rows == batch && n <= longest => &values[b * longest..b * longest + n],
                &[all] if n <= all - at.min(all) => &values[at..at + n],
                found => return wrong(format!("targets of shape {found:?} do not hold lengths {target_lengths:?}")),
            };
            at += n;
            if row.iter().any(|&c| c < 0 || c as usize >= classes) {
                return wrong(format!("expected classes below {classes}, found another in targets"));
            }
            rows.push(lists::collected(n, row.iter().map(|&c| c as usize))?);
        }
        let states = 2 * counts.iter().max().copied().unwrap_or(0) + 1;
        Ok(Sequences { time, batch, classes, states, blank: blank as usize, targets: rows, lengths: inputs })
    }

    /// The class of a state: blanks stand before, between and after the classes of a target.
    fn class(&self, b: usize, state: usize) -> usize {
        if state.is_multiple_of(2) { self.blank } else { self.targets[b][state / 2] }
    }

    /// Whether a state may follow the one before the last: not across a blank between equal classes.
    fn skips(&self, b: usize, state: usize) -> bool {
        state >= 2 && self.class(b, state) != self.class(b, state - 2)
    }

    fn count(&self, b: usize) -> usize {
        2 * self.targets[b].len() + 1
    }
}

/// The elements in f64.
fn wide(t: &Tensor) -> Result<Vec<f64>> {
    let copy = Tensor::try_empty(Spec::new(t.shape(), DType::F64, t.device())?)?;
    copy_into(t, &copy)?;
    copy.try_to_vec::<f64>()
}

fn stored(values: Vec<f64>, sizes: &[usize], like: &Tensor) -> Result<Tensor> {
    let out = Tensor::try_empty(Spec::new(sizes, like.dtype(), like.device())?)?;
    lists::write(&out, values)?;
    Ok(out)
}

/// Losses `[batch]`, and `[batch, time, states]`: the logarithm of the probability of each state at each time.
pub(crate) fn ctc_loss(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &[i64],
    target_lengths: &[i64],
    blank: i64,
    _zero_infinity: bool,
) -> Result<(Tensor, Tensor)> {
    if let (true, &[time, batch, _]) = (log_probs.is_meta(), log_probs.shape()) {
        let longest = as_size(target_lengths.iter().copied().max().unwrap_or(0).max(0));
        let like = |sizes: &[usize]| Tensor::try_empty(Spec::new(sizes, log_probs.dtype(), log_probs.device())?);
        return Ok((like(&[batch])?, like(&[batch, time, longest.saturating_mul(2).saturating_add(1)])?));
    }
    log_probs.need_data(OP)?;
    targets.need_data(OP)?;
    let s = Sequences::new(log_probs, targets, input_lengths, target_lengths, blank)?;
    let lp = wide(log_probs)?;
    let at = |t: usize, b: usize, c: usize| lp[(t * s.batch + b) * s.classes + c];
    let mut alpha = lists::filled(NEVER, s.batch.saturating_mul(s.time).saturating_mul(s.states))?;
    let mut losses = lists::filled(0.0, s.batch)?;
    for b in 0..s.batch {
        let rows = &mut alpha[b * s.time * s.states..(b + 1) * s.time * s.states];
        let (count, length) = (s.count(b), s.lengths[b]);
        if length == 0 {
            losses[b] = if count == 1 { 0.0 } else { f64::INFINITY };
            continue;
        }
        for (state, first) in rows.iter_mut().enumerate().take(count.min(2)) {
            *first = at(0, b, s.class(b, state));
        }
        for t in 1..length {
            let (before, row) = rows[(t - 1) * s.states..].split_at_mut(s.states);
            for state in 0..count {
                let mut sum = before[state];
                if state >= 1 {
                    sum = add(sum, before[state - 1]);
                }
                if s.skips(b, state) {
                    sum = add(sum, before[state - 2]);
                }
                row[state] = sum + at(t, b, s.class(b, state));
            }
        }
        let last = &rows[(length - 1) * s.states..][..count];
        losses[b] = -if count == 1 { last[0] } else { add(last[count - 1], last[count - 2]) };
    }
    Ok((stored(losses, &[s.batch], log_probs)?, stored(alpha, &[s.batch, s.time, s.states], log_probs)?))
}

/// The gradient of log-probabilities.
#[allow(clippy::too_many_arguments)] // those of the op
pub(crate) fn ctc_loss_backward(
    grad: &Tensor,
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &[i64],
    target_lengths: &[i64],
    neg_log_likelihood: &Tensor,
    log_alpha: &Tensor,
    blank: i64,
    zero_infinity: bool,
) -> Result<Tensor> {
    if log_probs.is_meta() {
        return Tensor::try_empty(Spec::new(log_probs.shape(), log_probs.dtype(), log_probs.device())?);
    }
    log_probs.need_data(OP)?;
    targets.need_data(OP)?;
    let s = Sequences::new(log_probs, targets, input_lengths, target_lengths, blank)?;
    let fits = grad.numel() == s.batch
        && neg_log_likelihood.numel() == s.batch
        && log_alpha.shape() == [s.batch, s.time, s.states];
    if !fits {
        let m = format!("a gradient of shape {:?} or probabilities {:?} do not fit", grad.shape(), log_alpha.shape());
        return Err(Error::argument("_ctc_loss_backward", m));
    }
    let (lp, alpha, losses, grads) = (wide(log_probs)?, wide(log_alpha)?, wide(neg_log_likelihood)?, wide(grad)?);
    let mut out = lists::filled(0.0, lp.len())?;
    let (mut beta, mut next) = (lists::filled(NEVER, s.states)?, lists::filled(NEVER, s.states)?);
    let mut sums = lists::filled(NEVER, s.classes)?;
    for b in 0..s.batch {
        let (count, length) = (s.count(b), s.lengths[b]);
        if length == 0 || (zero_infinity && losses[b] == f64::INFINITY) {
            continue;
        }
        for t in (0..length).rev() {
            let place = (t * s.batch + b) * s.classes;
            let row = &lp[place..place + s.classes];
            std::mem::swap(&mut beta, &mut next);
            for state in 0..count {
                let ends = t + 1 == length;
                let mut sum = match ends {
                    true if state + 2 >= count => 0.0,
                    true => NEVER,
                    false => next[state],
                };
                if !ends && state + 1 < count {
                    sum = add(sum, next[state + 1]);
                }
                if !ends && state + 2 < count && s.skips(b, state + 2) {
                    sum = add(sum, next[state + 2]);
                }
                beta[state] = sum + row[s.class(b, state)];
            }
            sums.fill(NEVER);
            for state in 0..count {
                let class = s.class(b, state);
                sums[class] = add(sums[class], alpha[(b * s.time + t) * s.states + state] + beta[state]);
            }
            for (c, &sum) in sums.iter().enumerate() {
                out[place + c] = (row[c].exp() - (sum + losses[b] - row[c]).exp()) * grads[b];
            }
        }
    }
    stored(out, log_probs.shape(), log_probs)
}
