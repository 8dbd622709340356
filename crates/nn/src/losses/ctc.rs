//! Connectionist temporal classification: the loss of a sequence of scores against a shorter sequence of classes, summed
//! over every way to stretch the one to the other.
//!
//! Written in ops, by the forward recursion over time for the whole batch at once, so that it has derivatives of any order.
//! Where PyTorch's own kernel differs: its gradient takes log-probabilities to be normalized, this one does not; after
//! `log_softmax` they agree.

use super::{Reduction, reduced};
use firebrand_core::module::{Module, ModuleCore};
use firebrand_core::{DType, Error, Result, Tensor, ops};

/// The logarithm of zero probability: finite, so that the difference of two of them is not NaN.
const IMPOSSIBLE: f64 = -1e30;

/// Connectionist temporal classification loss: negative log-likelihood of a target sequence, summed over all alignments.
#[derive(Module)]
pub struct CTCLoss {
    /// Index of the blank class.
    pub blank: usize,
    /// Whether losses of targets that are too long for their input are zero instead of infinite.
    pub zero_infinity: bool,
    /// How the losses of the sequences are reduced; the mean first divides each by the length of its target.
    #[module(skip)]
    pub reduction: Reduction,
    core: ModuleCore,
}

impl Default for CTCLoss {
    fn default() -> CTCLoss {
        CTCLoss::new()
    }
}

impl CTCLoss {
    /// Creates it with PyTorch's defaults; set the public fields to change them.
    pub fn new() -> CTCLoss {
        CTCLoss { blank: 0, zero_infinity: false, reduction: Reduction::Mean, core: ModuleCore::new() }
    }

    /// The loss of log-probabilities `[time, batch, classes]` against targets `[batch, longest]` with these lengths.
    pub fn loss(
        &self,
        log_probs: &Tensor,
        targets: &Tensor,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor> {
        let (&[time, batch, classes], &[rows, longest]) = (log_probs.shape(), targets.shape()) else {
            let message = format!(
                "expected log-probabilities [time, batch, classes] and targets [batch, longest], found {:?} and {:?}",
                log_probs.shape(),
                targets.shape()
            );
            return Err(Error::argument("CTCLoss", message));
        };
        let fits = |lengths: &[usize], most: usize| lengths.len() == batch && lengths.iter().all(|&n| n <= most);
        if rows != batch || !fits(input_lengths, time) || !fits(target_lengths, longest) || self.blank >= classes {
            let message = format!(
                "expected {batch} rows of targets, {batch} input lengths up to {time}, {batch} target lengths up to \
                 {longest} and a blank below {classes}; found {rows} rows, {input_lengths:?}, {target_lengths:?} and {}",
                self.blank
            );
            return Err(Error::argument("CTCLoss", message));
        }
        let states = States::new(targets, self.blank)?;
        let last = states.run(log_probs, input_lengths)?;
        let losses = ops::neg(&ending(&last, target_lengths)?)?;
        let infinite = ops::gt_scalar(&losses, (-0.5 * IMPOSSIBLE).into())?;
        let losses = ops::masked_fill(&losses, &infinite, if self.zero_infinity { 0.0 } else { f64::INFINITY }.into())?;
        if self.reduction != Reduction::Mean {
            return reduced(&losses, self.reduction);
        }
        let lengths: Vec<f64> = target_lengths.iter().map(|&n| n.max(1) as f64).collect();
        ops::mean(&ops::div(&losses, &Tensor::new(&lengths).try_to_dtype(losses.dtype())?)?, None)
    }
}

/// The states of the recursion: blanks at even positions, the classes of the target between them.
struct States {
    /// i64, `[batch, states]`.
    classes: Tensor,
    /// Where the preceding blank may be skipped: between two different classes.
    skips: Tensor,
    count: usize,
}

impl States {
    fn new(targets: &Tensor, blank: usize) -> Result<States> {
        let targets = targets.try_to_dtype(DType::I64)?;
        let [batch, longest] = *targets.shape() else { unreachable!("checked by the caller") };
        let count = 2 * longest + 1;
        let blanks = Tensor::try_full([batch, longest], blank as i64, DType::I64)?;
        let pairs = ops::stack(&[blanks, targets], 2)?.try_reshape([batch as i64, 2 * longest as i64])?;
        let classes = ops::pad(&pairs, &[0.into(), 1.into()], "constant", Some(blank as f64))?;
        let before = shifted(&classes, 2, blank as f64)?;
        let is_class = ops::ne_scalar(&classes, (blank as i64).into())?;
        let skips = ops::logical_and(&is_class, &ops::ne(&classes, &before)?)?;
        Ok(States { classes, skips, count })
    }

    /// The logarithm of the probability of every state at the end of each input.
    fn run(&self, log_probs: &Tensor, input_lengths: &[usize]) -> Result<Tensor> {
        let [time, batch, _] = *log_probs.shape() else { unreachable!("checked by the caller") };
        let each =
            ops::expand(&ops::unsqueeze(&self.classes, 0)?, &[time.into(), batch.into(), self.count.into()], false)?;
        let said = ops::gather(log_probs, 2, &each, false)?;
        // Before the first time, the first state lies just ahead.
        let start = Tensor::try_full([batch, self.count], IMPOSSIBLE, log_probs.dtype())?;
        ops::fill_(&ops::select(&start, 1, 0.into())?, 0.into())?;
        let mut states = start;
        for t in 0..time {
            let step = shifted(&states, 1, IMPOSSIBLE)?;
            let skip = ops::masked_fill(
                &shifted(&states, 2, IMPOSSIBLE)?,
                &ops::logical_not(&self.skips)?,
                IMPOSSIBLE.into(),
            )?;
            let ways = ops::stack(&[states.clone(), step, skip], 0)?;
            let next = ops::add(&ops::logsumexp(&ways, &[0], false)?, &ops::select(&said, 0, t.into())?, 1.into())?;
            let running: Vec<bool> = input_lengths.iter().map(|&n| t < n).collect();
            states = ops::where_self(&Tensor::from_slice(&running, [batch, 1]), &next, &states)?;
        }
        Ok(states)
    }
}

/// A row shifted to the right, with one value in front.
fn shifted(rows: &Tensor, by: usize, with: f64) -> Result<Tensor> {
    let by = by as i64;
    ops::pad(rows, &[by.into(), (-by).into()], "constant", Some(with))
}

/// A target is complete when its last class or the blank after it is reached.
fn ending(states: &Tensor, target_lengths: &[usize]) -> Result<Tensor> {
    let at = |places: Vec<i64>| ops::gather(states, 1, &Tensor::from_slice(&places, [places.len(), 1]), false);
    let blank = at(target_lengths.iter().map(|&n| 2 * n as i64).collect())?;
    let class = at(target_lengths.iter().map(|&n| (2 * n as i64 - 1).max(0)).collect())?;
    // An empty target ends at its only blank, which must not count twice.
    let empty: Vec<bool> = target_lengths.iter().map(|&n| n == 0).collect();
    let class = ops::masked_fill(&class, &Tensor::from_slice(&empty, [empty.len(), 1]), IMPOSSIBLE.into())?;
    ops::squeeze_dim(&ops::logaddexp(&blank, &class)?, 1)
}
