//! Recurrent layers one step at a time.

use super::options::{built, parameter};
use crate::init;
use firebrand_core::module::{ExtraRepr, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{Result, SymInt, Tensor, ops};

macro_rules! cell {
    ($(#[$doc:meta])* $name:ident, $gates:literal) => {
        $(#[$doc])*
        #[derive(Module)]
        #[module(extra_repr = Self::arguments)]
        pub struct $name {
            /// Weight of the input.
            pub weight_ih: Parameter,
            /// Weight of the state.
            pub weight_hh: Parameter,
            /// Bias of the input's term.
            pub bias_ih: Option<Parameter>,
            /// Bias of the state's term.
            pub bias_hh: Option<Parameter>,
            hidden_size: usize,
            core: ModuleCore,
        }

        impl $name {
            /// Creates the layer with biases.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize) -> $name {
                built($name::with(input_size, hidden_size, true))
            }

            /// Creates the layer with or without biases; initial values come from the default generator.
            pub fn with(input_size: usize, hidden_size: usize, bias: bool) -> Result<$name> {
                let rows = $gates * hidden_size;
                let bias = || bias.then(|| parameter(&[rows])).transpose();
                let cell = $name {
                    weight_ih: parameter(&[rows, input_size])?,
                    weight_hh: parameter(&[rows, hidden_size])?,
                    bias_ih: bias()?,
                    bias_hh: bias()?,
                    hidden_size,
                    core: ModuleCore::new(),
                };
                let bound = if hidden_size > 0 { 1.0 / (hidden_size as f64).sqrt() } else { 0.0 };
                cell.parameters().iter().try_for_each(|p| init::uniform_(p, -bound, bound))?;
                Ok(cell)
            }

            fn zeros(&self, x: &Tensor) -> Result<Tensor> {
                let mut sizes = x.sym_sizes();
                if let Some(last) = sizes.last_mut() {
                    *last = SymInt::from(self.hidden_size);
                }
                ops::new_zeros(x, &sizes, None, None)
            }

            fn arguments(&self) -> String {
                let sizes = ExtraRepr::new().value(self.weight_ih.shape()[1]).value(self.hidden_size);
                sizes.field_unless("bias", self.bias_ih.is_some(), true).finish()
            }

            fn biases(&self) -> (Option<&Tensor>, Option<&Tensor>) {
                (self.bias_ih.as_deref(), self.bias_hh.as_deref())
            }
        }
    };
}
cell!(
    /// `h ← tanh(W x + U h + b)`; a call without a state starts from zeros.
    RNNCell, 1
);
cell!(
    /// One step of long short-term memory; returns the hidden and cell states.
    LSTMCell, 4
);
cell!(
    /// One step of a gated recurrent unit.
    GRUCell, 3
);

macro_rules! simple_state {
    ($($name:ident $op:ident),*) => {$(
        impl Forward<(Tensor, Tensor)> for $name {
            type Output = Tensor;
            fn forward(&self, (x, h): &(Tensor, Tensor)) -> Result<Tensor> {
                let (b_ih, b_hh) = self.biases();
                ops::$op(x, h, &self.weight_ih, &self.weight_hh, b_ih, b_hh)
            }
        }

        impl Forward for $name {
            type Output = Tensor;
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.forward(&(x.clone(), self.zeros(x)?))
            }
        }
    )*};
}
simple_state!(RNNCell rnn_tanh_cell, GRUCell gru_cell);

impl Forward<(Tensor, (Tensor, Tensor))> for LSTMCell {
    type Output = (Tensor, Tensor);
    fn forward(&self, (x, (h, c)): &(Tensor, (Tensor, Tensor))) -> Result<(Tensor, Tensor)> {
        let (b_ih, b_hh) = self.biases();
        ops::lstm_cell(x, &[h.clone(), c.clone()], &self.weight_ih, &self.weight_hh, b_ih, b_hh)
    }
}

impl Forward for LSTMCell {
    type Output = (Tensor, Tensor);
    fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let zeros = self.zeros(x)?;
        self.forward(&(x.clone(), (zeros.clone(), zeros)))
    }
}
