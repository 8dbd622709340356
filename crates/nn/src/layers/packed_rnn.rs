//! Recurrent layers over packed sequences: step by step, each step for the sequences that are long enough.
//!
//! The state of a sequence that has ended is kept until all have; in the reverse direction, a sequence joins at its last element.

use super::packed::{PackedSequence, rows};
use super::rnn::{GRU, LSTM, RNN, RecurrentOptions};
use firebrand_core::module::{Forward, Module};
use firebrand_core::{Result, Tensor, ops};

/// A state of one or two tensors, `[sequences, size]`, or `[layers, sequences, size]` for all layers.
type State<const S: usize> = [Tensor; S];

/// Applies `f` to every tensor of a state.
fn each<const S: usize>(state: &State<S>, mut f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<State<S>> {
    let mut out = state.clone();
    for t in &mut out {
        *t = f(t)?;
    }
    Ok(out)
}

/// States of some sequences above those of others.
fn joined<const S: usize>(parts: &[State<S>]) -> Result<State<S>> {
    let mut out = parts[0].clone();
    for (k, t) in out.iter_mut().enumerate() {
        *t = ops::cat(&parts.iter().map(|p| p[k].clone()).collect::<Vec<_>>(), 0)?;
    }
    Ok(out)
}

/// One layer in one direction: its outputs, step by step, and the last state of every sequence.
fn direction<const S: usize>(
    data: &Tensor,
    batch_sizes: &[usize],
    start: &State<S>,
    backwards: bool,
    step: &dyn Fn(&Tensor, &State<S>) -> Result<State<S>>,
) -> Result<(Tensor, State<S>)> {
    let first = if backwards { batch_sizes.last() } else { batch_sizes.first() };
    let mut present = first.copied().unwrap_or(0);
    let mut state = each(start, |t| rows(t, 0, present))?;
    let mut ended: Vec<State<S>> = Vec::new();
    let mut outputs = Vec::with_capacity(batch_sizes.len());
    let mut at = if backwards { batch_sizes.iter().sum() } else { 0 };
    for k in 0..batch_sizes.len() {
        let n = batch_sizes[if backwards { batch_sizes.len() - 1 - k } else { k }];
        if n < present {
            ended.push(each(&state, |t| rows(t, n, present - n))?);
            state = each(&state, |t| rows(t, 0, n))?;
        } else if n > present {
            let joining = each(start, |t| rows(t, present, n - present))?;
            state = joined(&[state, joining])?;
        }
        present = n;
        at = if backwards { at - n } else { at };
        state = step(&rows(data, at, n)?, &state)?;
        at = if backwards { at } else { at + n };
        outputs.push(state[0].clone());
    }
    if backwards {
        outputs.reverse();
    }
    // Those that ended last are the longest but for those that are still there.
    ended.push(state);
    ended.reverse();
    Ok((ops::cat(&outputs, 0)?, joined(&ended)?))
}

type Cell<const S: usize> = dyn Fn(&Tensor, &State<S>, &[Tensor]) -> Result<State<S>>;

/// All layers; `cell` gets the weights of its layer and direction.
fn stack<const S: usize>(
    o: &RecurrentOptions,
    weights: &[Tensor],
    train: bool,
    sequence: &PackedSequence,
    state: Option<State<S>>,
    cell: &Cell<S>,
) -> Result<(PackedSequence, State<S>)> {
    let (directions, per) = (1 + usize::from(o.bidirectional), if o.bias { 4 } else { 2 });
    let sequences = sequence.batch_sizes.first().copied().unwrap_or(0);
    let state = match (state, &sequence.sorted_indices) {
        (None, _) => {
            let sizes = [o.num_layers * directions, sequences, o.hidden_size].map(Into::into);
            let zeros = ops::new_zeros(&sequence.data, &sizes, None, None)?;
            [(); S].map(|()| zeros.clone())
        }
        (Some(state), Some(order)) => each(&state, |t| ops::index_select(t, 1, order))?,
        (Some(state), None) => state,
    };
    let mut data = sequence.data.clone();
    let mut last: [Vec<Tensor>; S] = [(); S].map(|()| Vec::new());
    for layer in 0..o.num_layers {
        let mut outputs = Vec::with_capacity(directions);
        for backwards in [false, true].into_iter().take(directions) {
            let k = layer * directions + usize::from(backwards);
            let start = each(&state, |t| ops::select(t, 0, k.into()))?;
            let own = &weights[k * per..][..per];
            let step = |x: &Tensor, s: &State<S>| cell(x, s, own);
            let (output, end) = direction(&data, &sequence.batch_sizes, &start, backwards, &step)?;
            outputs.push(output);
            last.iter_mut().zip(end).for_each(|(all, one)| all.push(one));
        }
        data = if directions == 1 { outputs.remove(0) } else { ops::cat(&outputs, -1)? };
        if train && o.dropout > 0.0 && layer + 1 < o.num_layers {
            data = ops::dropout(&data, o.dropout, true)?;
        }
    }
    let mut end = state;
    for (slot, parts) in end.iter_mut().zip(last) {
        let stacked = ops::stack(&parts, 0)?;
        *slot = match &sequence.unsorted_indices {
            Some(places) => ops::index_select(&stacked, 1, places)?,
            None => stacked,
        };
    }
    Ok((sequence.with_data(data), end))
}

macro_rules! one_state {
    ($($name:ident |$options:ident| $cell:expr;)*) => {$(
        impl $name {
            fn run_packed(&self, x: &PackedSequence, h: Option<&Tensor>) -> Result<(PackedSequence, Tensor)> {
                let $options = self.options();
                let op = $cell;
                let cell =
                    move |x: &Tensor, [h]: &State<1>, w: &[Tensor]| Ok([op(x, h, &w[0], &w[1], w.get(2), w.get(3))?]);
                let state = h.map(|h| [h.clone()]);
                stack(self.options(), &self.weights(), self.is_training(), x, state, &cell).map(|(y, [h])| (y, h))
            }
        }

        /// Starts from a zero state.
        impl Forward<PackedSequence> for $name {
            type Output = (PackedSequence, Tensor);
            fn forward(&self, x: &PackedSequence) -> Result<Self::Output> {
                self.run_packed(x, None)
            }
        }

        /// Starts from a state `[layers, sequences, size]`.
        impl Forward<(PackedSequence, Tensor)> for $name {
            type Output = (PackedSequence, Tensor);
            fn forward(&self, (x, h): &(PackedSequence, Tensor)) -> Result<Self::Output> {
                self.run_packed(x, Some(h))
            }
        }
    )*};
}
one_state! {
    RNN |options| if options.relu { ops::rnn_relu_cell } else { ops::rnn_tanh_cell };
    GRU |_options| ops::gru_cell;
}

type Pair = (Tensor, Tensor);

impl LSTM {
    fn run_packed(&self, x: &PackedSequence, state: Option<&Pair>) -> Result<(PackedSequence, Pair)> {
        let cell = |x: &Tensor, state: &State<2>, w: &[Tensor]| {
            let (h, c) = ops::lstm_cell(x, state, &w[0], &w[1], w.get(2), w.get(3))?;
            Ok([h, c])
        };
        let state = state.map(|(h, c)| [h.clone(), c.clone()]);
        let (y, [h, c]) = stack(self.options(), &self.weights(), self.is_training(), x, state, &cell)?;
        Ok((y, (h, c)))
    }
}

/// Starts from a zero state.
impl Forward<PackedSequence> for LSTM {
    type Output = (PackedSequence, Pair);
    fn forward(&self, x: &PackedSequence) -> Result<Self::Output> {
        self.run_packed(x, None)
    }
}

/// Starts from a hidden and a cell state.
impl Forward<(PackedSequence, Pair)> for LSTM {
    type Output = (PackedSequence, Pair);
    fn forward(&self, (x, state): &(PackedSequence, Pair)) -> Result<Self::Output> {
        self.run_packed(x, Some(state))
    }
}
