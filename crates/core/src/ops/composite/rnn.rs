//! Recurrent layers: LSTM, GRU and plain cells, stacked, in one or both directions.
//!
//! The products of the inputs with the weights are taken for all time steps at once; what depends on the step before
//! is one small product per step.

use crate::{DType, Error, Result, Scalar, SymInt, Tensor, ops, races};

/// Which cell.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The weights of one layer in one direction.
struct Weights<'a> {
    input: &'a Tensor,
    hidden: &'a Tensor,
    input_bias: Option<&'a Tensor>,
    hidden_bias: Option<&'a Tensor>,
}

/// The state that a cell carries from step to step; only an LSTM has the second part.
#[derive(Clone)]
struct State {
    h: Tensor,
    c: Option<Tensor>,
}

fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ops::add(a, b, Scalar::Int(1))
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// One step, given the input's share of the gates.
    fn step(self, from_input: &Tensor, state: &State, w: &Weights<'_>) -> Result<State> {
        let from_hidden = ops::linear(&state.h, w.hidden, w.hidden_bias)?;
        let hidden = *state.h.shape().last().unwrap_or(&1);
        let cut = |t: &Tensor| ops::split(t, hidden.into(), 1);
        match self {
            Cell::Lstm => {
                let gates = cut(&add(from_input, &from_hidden)?)?;
                let (i, f) = (ops::sigmoid(&gates[0])?, ops::sigmoid(&gates[1])?);
                let (g, o) = (ops::tanh(&gates[2])?, ops::sigmoid(&gates[3])?);
                let kept = state.c.as_ref().map(|c| ops::mul(&f, c)).transpose()?;
                let new = ops::mul(&i, &g)?;
                let c = kept.map_or_else(|| Ok(new.clone()), |k| add(&k, &new))?;
                Ok(State { h: ops::mul(&o, &ops::tanh(&c)?)?, c: Some(c) })
            }
            Cell::Gru => {
                let (x, h) = (cut(from_input)?, cut(&from_hidden)?);
                let (r, z) = (ops::sigmoid(&add(&x[0], &h[0])?)?, ops::sigmoid(&add(&x[1], &h[1])?)?);
                let n = ops::tanh(&add(&x[2], &ops::mul(&r, &h[2])?)?)?;
                let kept = ops::mul(&z, &ops::sub(&state.h, &n, Scalar::Int(1))?)?;
                Ok(State { h: add(&n, &kept)?, c: None })
            }
            Cell::Tanh => Ok(State { h: ops::tanh(&add(from_input, &from_hidden)?)?, c: None }),
            Cell::Relu => Ok(State { h: ops::relu(&add(from_input, &from_hidden)?)?, c: None }),
        }
    }

    /// All steps over `input` (time first): the outputs in order of time, and the last state.
    fn run(self, input: &Tensor, mut state: State, w: &Weights<'_>, backwards: bool) -> Result<(Tensor, State)> {
        let from_input = ops::unbind(&ops::linear(input, w.input, w.input_bias)?, 0)?;
        let mut outputs = Vec::with_capacity(from_input.len());
        let mut steps: Vec<&Tensor> = from_input.iter().collect();
        if backwards {
            steps.reverse();
        }
        for x in steps {
            state = self.step(x, &state, w)?;
            outputs.push(state.h.clone());
        }
        if backwards {
            outputs.reverse();
        }
        Ok((ops::stack(&outputs, 0)?, state))
    }

    /// All steps over packed sequences: step `t` has the first `sizes[t]` samples, whose rows stand one below the other. Samples
    /// that end keep their state; backwards they join with the state they begin with.
    fn run_packed(
        self,
        input: &Tensor,
        sizes: &[usize],
        initial: State,
        w: &Weights<'_>,
        backwards: bool,
    ) -> Result<(Tensor, State)> {
        let lengths: Vec<SymInt> = sizes.iter().map(|&n| n.into()).collect();
        let from_input = ops::split_with_sizes(&ops::linear(input, w.input, w.input_bias)?, &lengths, 0)?;
        let mut outputs = Vec::with_capacity(sizes.len());
        if backwards {
            let mut now = *sizes.last().unwrap_or(&0);
            let mut state = initial.rows(0, now)?;
            for (x, &n) in from_input.iter().zip(sizes).rev() {
                if n > now {
                    state = State::joined(&[state, initial.rows(now, n)?])?;
                    now = n;
                }
                state = self.step(x, &state, w)?;
                outputs.push(state.h.clone());
            }
            outputs.reverse();
            return Ok((ops::cat(&outputs, 0)?, state));
        }
        let (mut state, mut ended) = (initial, Vec::new());
        let mut now = sizes.first().copied().unwrap_or(0);
        for (x, &n) in from_input.iter().zip(sizes) {
            if n < now {
                ended.push(state.rows(n, now)?);
                state = state.rows(0, n)?;
                now = n;
            }
            state = self.step(x, &state, w)?;
            outputs.push(state.h.clone());
        }
        ended.push(state);
        ended.reverse();
        Ok((ops::cat(&outputs, 0)?, State::joined(&ended)?))
    }
}

impl State {
    /// The samples from one to another.
    fn rows(&self, from: usize, to: usize) -> Result<State> {
        let cut = |t: &Tensor| ops::slice(t, 0, Some(from.into()), Some(to.into()), 1.into());
        Ok(State { h: cut(&self.h)?, c: self.c.as_ref().map(cut).transpose()? })
    }

    /// The samples of several, in order.
    fn joined(states: &[State]) -> Result<State> {
        let h: Vec<Tensor> = states.iter().map(|s| s.h.clone()).collect();
        let c: Option<Vec<Tensor>> = states.iter().map(|s| s.c.clone()).collect();
        Ok(State { h: ops::cat(&h, 0)?, c: c.map(|c| ops::cat(&c, 0)).transpose()? })
    }
}

/// How layers are stacked.
struct Stack<'a> {
    op: &'static str,
    cell: Cell,
    params: &'a [Tensor],
    has_biases: bool,
    num_layers: i64,
    dropout: f64,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
}

impl Stack<'_> {
    fn refuse<T>(&self, message: String) -> Result<T> {
        Err(Error::argument(self.op, message))
    }

    /// The weights of layer and direction `k`, checked for inputs of `features` and states of `hidden` numbers.
    fn weights(&self, k: usize, features: usize, hidden: usize) -> Result<Weights<'_>> {
        let per = if self.has_biases { 4 } else { 2 };
        let p = &self.params[k * per..][..per];
        let rows = self.cell.gates() * hidden;
        let expected: [&[usize]; 4] = [&[rows, features], &[rows, hidden], &[rows], &[rows]];
        for (t, sizes) in p.iter().zip(expected) {
            if t.shape() != sizes {
                return self.refuse(format!("a weight should have shape {sizes:?}, found {:?}", t.shape()));
            }
        }
        Ok(Weights { input: &p[0], hidden: &p[1], input_bias: p.get(2), hidden_bias: p.get(3) })
    }

    /// Over sequences of one length.
    fn run(&self, input: &Tensor, hx: &Tensor, cx: Option<&Tensor>) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        if input.ndim() != 3 {
            return self.refuse(format!("expected time, samples and features, found shape {:?}", input.shape()));
        }
        let x = if self.batch_first { ops::transpose(input, 0, 1)? } else { input.clone() };
        if x.shape()[0] == 0 {
            return self.refuse("expected at least one time step".to_owned());
        }
        let (x, h, c) = self.layers(&x, None, hx, cx)?;
        Ok((if self.batch_first { ops::transpose(&x, 0, 1)? } else { x }, h, c))
    }

    /// Over packed sequences, as `_pack_padded_sequence` makes them.
    fn run_packed(
        &self,
        data: &Tensor,
        batch_sizes: &Tensor,
        hx: &Tensor,
        cx: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        if batch_sizes.ndim() != 1 || batch_sizes.dtype() != DType::I64 || batch_sizes.numel() == 0 {
            let m = format!("expected a vector of i64 sizes, found {} {:?}", batch_sizes.dtype(), batch_sizes.shape());
            return self.refuse(m);
        }
        batch_sizes.need_data(self.op)?;
        let sizes: Vec<i64> = {
            races::op!(self.op, batch_sizes);
            ops::cpu::reduce::elements(&batch_sizes.try_detach()?)?
        };
        let falls = sizes.windows(2).all(|w| w[0] >= w[1]) && sizes.iter().all(|&n| n > 0);
        let total = sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(n));
        if !falls || data.ndim() != 2 || total != Some(data.shape()[0] as i64) {
            let m = format!("expected rows for positive, non-increasing sizes, found {:?} for {sizes:?}", data.shape());
            return self.refuse(m);
        }
        let sizes: Vec<usize> = sizes.iter().map(|&n| n as usize).collect();
        self.layers(data, Some(&sizes), hx, cx)
    }

    /// The layers, one above the other. `sizes` are the samples at every step of packed sequences.
    fn layers(
        &self,
        input: &Tensor,
        sizes: Option<&[usize]>,
        hx: &Tensor,
        cx: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        let last_dim = input.ndim() - 1;
        let directions = if self.bidirectional { 2 } else { 1 };
        let Some(layers) = usize::try_from(self.num_layers).ok().filter(|&n| n > 0) else {
            return self.refuse(format!("expected at least one layer, found {}", self.num_layers));
        };
        let wanted = layers.saturating_mul(directions * if self.has_biases { 4 } else { 2 });
        if self.params.len() != wanted {
            return self.refuse(format!("expected {wanted} weights, found {}", self.params.len()));
        }
        let mut x = input.clone();
        let batch = sizes.map_or_else(|| x.shape()[1], |sizes| sizes[0]);
        let Some(&hidden) = hx.shape().last() else {
            return self.refuse("the state has no dimensions".to_owned());
        };
        for s in [Some(hx), cx].into_iter().flatten() {
            if s.shape() != [layers * directions, batch, hidden] {
                let expected = [layers * directions, batch, hidden];
                return self.refuse(format!("a state should have shape {expected:?}, found {:?}", s.shape()));
            }
        }
        let initial = ops::unbind(hx, 0)?;
        let initial_c = cx.map(|c| ops::unbind(c, 0)).transpose()?;
        let mut last = Vec::with_capacity(initial.len());
        for layer in 0..layers {
            let mut outputs = Vec::with_capacity(directions);
            for direction in 0..directions {
                let k = layer * directions + direction;
                let w = self.weights(k, x.shape()[last_dim], hidden)?;
                let state = State { h: initial[k].clone(), c: initial_c.as_ref().map(|c| c[k].clone()) };
                let (out, state) = match sizes {
                    None => self.cell.run(&x, state, &w, direction == 1)?,
                    Some(sizes) => self.cell.run_packed(&x, sizes, state, &w, direction == 1)?,
                };
                outputs.push(out);
                last.push(state);
            }
            x = if directions == 1 { outputs.remove(0) } else { ops::cat(&outputs, last_dim as i64)? };
            if self.train && self.dropout > 0.0 && layer + 1 < layers {
                x = ops::dropout(&x, self.dropout, true)?;
            }
        }
        let h = ops::stack(&last.iter().map(|s| s.h.clone()).collect::<Vec<_>>(), 0)?;
        let c: Option<Vec<Tensor>> = last.into_iter().map(|s| s.c).collect();
        let c = c.map(|c| ops::stack(&c, 0)).transpose()?;
        Ok((x, h, c))
    }
}

pub(crate) fn lstm(
    input: &Tensor,
    hx: &[Tensor],
    params: &[Tensor],
    has_biases: bool,
    num_layers: i64,
    dropout: f64,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "lstm";
    let [h, c] = hx else {
        return Err(Error::argument(OP, format!("expected two states, found {}", hx.len())));
    };
    let stack =
        Stack { op: OP, cell: Cell::Lstm, params, has_biases, num_layers, dropout, train, bidirectional, batch_first };
    let (out, h, c) = stack.run(input, h, Some(c))?;
    Ok((out, h, c.expect("an LSTM carries a cell")))
}

pub(crate) fn lstm_packed(
    data: &Tensor,
    batch_sizes: &Tensor,
    hx: &[Tensor],
    params: &[Tensor],
    has_biases: bool,
    num_layers: i64,
    dropout: f64,
    train: bool,
    bidirectional: bool,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "lstm";
    let [h, c] = hx else {
        return Err(Error::argument(OP, format!("expected two states, found {}", hx.len())));
    };
    let (cell, batch_first) = (Cell::Lstm, false);
    let stack = Stack { op: OP, cell, params, has_biases, num_layers, dropout, train, bidirectional, batch_first };
    let (out, h, c) = stack.run_packed(data, batch_sizes, h, Some(c))?;
    Ok((out, h, c.expect("an LSTM carries a cell")))
}

/// The layers with one state.
macro_rules! layers {
    ($($name:ident $packed:ident $cell:ident),*) => {$(
        pub(crate) fn $name(
            input: &Tensor,
            hx: &Tensor,
            params: &[Tensor],
            has_biases: bool,
            num_layers: i64,
            dropout: f64,
            train: bool,
            bidirectional: bool,
            batch_first: bool,
        ) -> Result<(Tensor, Tensor)> {
            let (op, cell) = (stringify!($name), Cell::$cell);
            let stack = Stack { op, cell, params, has_biases, num_layers, dropout, train, bidirectional, batch_first };
            let (out, h, _) = stack.run(input, hx, None)?;
            Ok((out, h))
        }

        pub(crate) fn $packed(
            data: &Tensor,
            batch_sizes: &Tensor,
            hx: &Tensor,
            params: &[Tensor],
            has_biases: bool,
            num_layers: i64,
            dropout: f64,
            train: bool,
            bidirectional: bool,
        ) -> Result<(Tensor, Tensor)> {
            let (op, cell, batch_first) = (stringify!($name), Cell::$cell, false);
            let stack = Stack { op, cell, params, has_biases, num_layers, dropout, train, bidirectional, batch_first };
            let (out, h, _) = stack.run_packed(data, batch_sizes, hx, None)?;
            Ok((out, h))
        }
    )*};
}
layers!(gru gru_packed Gru, rnn_tanh rnn_tanh_packed Tanh, rnn_relu rnn_relu_packed Relu);

/// One step of a cell by itself.
fn single(op: &'static str, cell: Cell, input: &Tensor, state: State, weights: Weights<'_>) -> Result<State> {
    let ([_, features], [_, hidden]) = (input.shape(), state.h.shape()) else {
        let m = format!("expected samples in rows, found {:?} and {:?}", input.shape(), state.h.shape());
        return Err(Error::argument(op, m));
    };
    let rows = cell.gates() * hidden;
    let fits = weights.input.shape() == [rows, *features] && weights.hidden.shape() == [rows, *hidden];
    if !fits || input.shape()[0] != state.h.shape()[0] {
        let m = format!(
            "input {:?}, state {:?} and weights {:?} and {:?} do not fit",
            input.shape(),
            state.h.shape(),
            weights.input.shape(),
            weights.hidden.shape()
        );
        return Err(Error::argument(op, m));
    }
    cell.step(&ops::linear(input, weights.input, weights.input_bias)?, &state, &weights)
}

pub(crate) fn lstm_cell(
    input: &Tensor,
    hx: &[Tensor],
    w_ih: &Tensor,
    w_hh: &Tensor,
    b_ih: Option<&Tensor>,
    b_hh: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "lstm_cell";
    let [h, c] = hx else {
        return Err(Error::argument(OP, format!("expected two states, found {}", hx.len())));
    };
    if h.shape() != c.shape() {
        return Err(Error::argument(OP, format!("states of one shape, found {:?} and {:?}", h.shape(), c.shape())));
    }
    let weights = Weights { input: w_ih, hidden: w_hh, input_bias: b_ih, hidden_bias: b_hh };
    let out = single(OP, Cell::Lstm, input, State { h: h.clone(), c: Some(c.clone()) }, weights)?;
    Ok((out.h, out.c.expect("an LSTM carries a cell")))
}

/// The cells with one state.
macro_rules! cells {
    ($($name:ident $cell:ident),*) => {$(
        pub(crate) fn $name(
            input: &Tensor,
            hx: &Tensor,
            w_ih: &Tensor,
            w_hh: &Tensor,
            b_ih: Option<&Tensor>,
            b_hh: Option<&Tensor>,
        ) -> Result<Tensor> {
            let weights = Weights { input: w_ih, hidden: w_hh, input_bias: b_ih, hidden_bias: b_hh };
            Ok(single(stringify!($name), Cell::$cell, input, State { h: hx.clone(), c: None }, weights)?.h)
        }
    )*};
}
cells!(gru_cell Gru, rnn_tanh_cell Tanh, rnn_relu_cell Relu);
