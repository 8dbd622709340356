//! Recurrent layers over whole sequences: RNN, LSTM and GRU, stacked and in both directions.
//!
//! Input is `[length, batch, size]`, or `[batch, length, size]` with `batch_first`; the batch may be missing. A call
//! without a state starts from zeros. Parameters are called `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`,
//! with the suffix `_reverse` for the second direction. `packed_rnn` runs the same layers over packed sequences.

use super::options::{built, options, parameter};
use crate::init;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, ModuleVisitor, Parameter, fmt_module};
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

options! {
    /// Options of a recurrent layer.
    pub struct RecurrentOptions(
        /// Size of each element of the sequence.
        input_size: usize,
        /// Size of the state.
        hidden_size: usize,
    ) {
        /// Number of stacked layers.
        num_layers: usize = 1,
        /// Whether to add a learnable bias.
        bias: bool = true,
        /// Whether inputs have the batch as their first dimension.
        batch_first: bool = false,
        /// Dropout probability between layers.
        dropout: f64 = 0.0,
        /// Whether to also read the sequence backwards.
        bidirectional: bool = false,
        /// RNN only: ReLU instead of tanh.
        relu: bool = false,
    }
}

/// Parameters of all layers and directions, in PyTorch's order, with their names.
struct Weights {
    names: Vec<String>,
    parameters: Vec<Parameter>,
}

impl Weights {
    fn new(o: &RecurrentOptions, gates: usize) -> Result<Weights> {
        let mut weights = Weights { names: Vec::new(), parameters: Vec::new() };
        let (directions, hidden) = (1 + usize::from(o.bidirectional), o.hidden_size);
        for layer in 0..o.num_layers {
            let inputs = if layer == 0 { o.input_size } else { hidden * directions };
            for suffix in ["", "_reverse"].iter().take(directions) {
                let mut add = |kind: &str, sizes: &[usize]| -> Result<()> {
                    weights.names.push(format!("{kind}_l{layer}{suffix}"));
                    weights.parameters.push(parameter(sizes)?);
                    Ok(())
                };
                add("weight_ih", &[gates * hidden, inputs])?;
                add("weight_hh", &[gates * hidden, hidden])?;
                if o.bias {
                    add("bias_ih", &[gates * hidden])?;
                    add("bias_hh", &[gates * hidden])?;
                }
            }
        }
        let bound = if hidden > 0 { 1.0 / (hidden as f64).sqrt() } else { 0.0 };
        weights.parameters.iter().try_for_each(|p| init::uniform_(p, -bound, bound))?;
        Ok(weights)
    }

    fn tensors(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|p| p.tensor().clone()).collect()
    }
}

impl RecurrentOptions {
    fn arguments(&self) -> String {
        let sizes = ExtraRepr::new().value(self.input_size).value(self.hidden_size);
        let layers = sizes.field_unless("num_layers", self.num_layers, 1).field_unless("bias", self.bias, true);
        let order = layers.field_unless("batch_first", self.batch_first, false);
        order
            .field_unless("dropout", self.dropout, 0.0)
            .field_unless("bidirectional", self.bidirectional, false)
            .finish()
    }

    /// Zeros for the state of this (batched) input.
    fn initial(&self, x: &Tensor) -> Result<Tensor> {
        let layers = self.num_layers * (1 + usize::from(self.bidirectional));
        let batch = x.size(if self.batch_first { 0 } else { 1 });
        ops::new_zeros(x, &[layers.into(), batch, SymInt::from(self.hidden_size)], None, None)
    }

    fn check(&self, layer: &'static str, x: &Tensor) -> Result<()> {
        if matches!(x.ndim(), 2 | 3) && x.shape()[x.ndim() - 1] == self.input_size {
            return Ok(());
        }
        let message = format!(
            "expected sequences of size {} with 2 or 3 dimensions, found shape {:?}",
            self.input_size,
            x.shape()
        );
        Err(Error::argument(layer, message))
    }

    /// Which dimension a missing batch takes.
    fn batch_dim(&self) -> i64 {
        if self.batch_first { 0 } else { 1 }
    }

    /// Runs `f` on a batched input, adding and removing the batch dimension if it is missing.
    fn batched<const S: usize>(
        &self,
        layer: &'static str,
        x: &Tensor,
        state: Option<[&Tensor; S]>,
        f: impl FnOnce(&Tensor, [Tensor; S]) -> Result<(Tensor, [Tensor; S])>,
    ) -> Result<(Tensor, [Tensor; S])> {
        self.check(layer, x)?;
        let single = x.ndim() == 2;
        let x = if single { ops::unsqueeze(x, self.batch_dim())? } else { x.clone() };
        let zeros = self.initial(&x)?;
        let mut start = [(); S].map(|()| zeros.clone());
        if let Some(state) = state {
            for (slot, s) in start.iter_mut().zip(state) {
                *slot = if single { ops::unsqueeze(s, 1)? } else { s.clone() };
            }
        }
        let (y, mut end) = f(&x, start)?;
        if !single {
            return Ok((y, end));
        }
        for s in &mut end {
            *s = ops::squeeze_dim(s, 1)?;
        }
        Ok((ops::squeeze_dim(&y, self.batch_dim())?, end))
    }
}

macro_rules! recurrent {
    ($(#[$doc:meta])* $name:ident, $gates:literal) => {
        $(#[$doc])*
        pub struct $name {
            weights: Weights,
            options: RecurrentOptions,
            core: ModuleCore,
        }

        impl $name {
            /// One layer in one direction.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize) -> $name {
                built($name::with(RecurrentOptions::new(input_size, hidden_size)))
            }

            /// Creates the layer with all options; initial values come from the default generator.
            pub fn with(options: RecurrentOptions) -> Result<$name> {
                Ok($name { weights: Weights::new(&options, $gates)?, options, core: ModuleCore::new() })
            }

            pub(super) fn options(&self) -> &RecurrentOptions {
                &self.options
            }

            pub(super) fn weights(&self) -> Vec<Tensor> {
                self.weights.tensors()
            }
        }

        impl Module for $name {
            fn core(&self) -> &ModuleCore {
                &self.core
            }
            fn visit<'a>(&'a self, visitor: &mut dyn ModuleVisitor<'a>) {
                for (name, p) in self.weights.names.iter().zip(&self.weights.parameters) {
                    visitor.parameter(name, p);
                }
            }
            fn extra_repr(&self) -> String {
                self.options.arguments()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                fmt_module(self, f)
            }
        }
    };
}
recurrent!(
    /// `h ← tanh(W x + U h + b)`. Returns the outputs and the last state.
    RNN, 1
);
recurrent!(
    /// Long short-term memory. Returns the outputs and the last hidden and cell states.
    LSTM, 4
);
recurrent!(
    /// Gated recurrent unit. Returns the outputs and the last state.
    GRU, 3
);

impl RNN {
    fn run(&self, x: &Tensor, h: Option<[&Tensor; 1]>) -> Result<(Tensor, Tensor)> {
        let (o, train) = (&self.options, self.is_training());
        let op = if o.relu { ops::rnn_relu } else { ops::rnn_tanh };
        let run = |x: &Tensor, [h]: [Tensor; 1]| {
            let weights = self.weights.tensors();
            let (layers, bidirectional) = (o.num_layers as i64, o.bidirectional);
            let (y, h) = op(x, &h, &weights, o.bias, layers, o.dropout, train, bidirectional, o.batch_first)?;
            Ok((y, [h]))
        };
        o.batched("RNN", x, h, run).map(|(y, [h])| (y, h))
    }
}

impl GRU {
    fn run(&self, x: &Tensor, h: Option<[&Tensor; 1]>) -> Result<(Tensor, Tensor)> {
        let (o, train) = (&self.options, self.is_training());
        let run = |x: &Tensor, [h]: [Tensor; 1]| {
            let weights = self.weights.tensors();
            let (layers, bidirectional) = (o.num_layers as i64, o.bidirectional);
            let (y, h) = ops::gru(x, &h, &weights, o.bias, layers, o.dropout, train, bidirectional, o.batch_first)?;
            Ok((y, [h]))
        };
        o.batched("GRU", x, h, run).map(|(y, [h])| (y, h))
    }
}

impl LSTM {
    fn run(&self, x: &Tensor, state: Option<[&Tensor; 2]>) -> Result<(Tensor, (Tensor, Tensor))> {
        let (o, train) = (&self.options, self.is_training());
        let run = |x: &Tensor, state: [Tensor; 2]| {
            let weights = self.weights.tensors();
            let (layers, bidirectional) = (o.num_layers as i64, o.bidirectional);
            let (y, h, c) =
                ops::lstm(x, &state, &weights, o.bias, layers, o.dropout, train, bidirectional, o.batch_first)?;
            Ok((y, [h, c]))
        };
        o.batched("LSTM", x, state, run).map(|(y, [h, c])| (y, (h, c)))
    }
}

macro_rules! simple_state {
    ($($name:ident),*) => {$(
        impl Forward for $name {
            type Output = (Tensor, Tensor);
            fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
                self.run(x, None)
            }
        }

        impl Forward<(Tensor, Tensor)> for $name {
            type Output = (Tensor, Tensor);
            fn forward(&self, (x, h): &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
                self.run(x, Some([h]))
            }
        }
    )*};
}
simple_state!(RNN, GRU);

impl Forward for LSTM {
    type Output = (Tensor, (Tensor, Tensor));
    fn forward(&self, x: &Tensor) -> Result<Self::Output> {
        self.run(x, None)
    }
}

impl Forward<(Tensor, (Tensor, Tensor))> for LSTM {
    type Output = (Tensor, (Tensor, Tensor));
    fn forward(&self, (x, (h, c)): &(Tensor, (Tensor, Tensor))) -> Result<(Tensor, (Tensor, Tensor))> {
        self.run(x, Some([h, c]))
    }
}
