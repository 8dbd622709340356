//! An optimizer's rule: which state it keeps, and how a list of parameters is updated.
//!
//! A rule is written once, on lists (`_foreach_*` ops). The single-tensor form is the same rule on lists of one; the fused
//! form, where there is one, is a kernel that passes over memory once.

use super::Settings;
use firebrand_core::{Error, Result, Tensor, ops};

/// How steps are computed. All give the same results up to rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Implementation {
    /// The fastest one that supports the parameters' dtype.
    #[default]
    Auto,
    /// Parameter by parameter, op by op.
    Single,
    /// Op by op, each over all parameters.
    Foreach,
    /// One pass over memory for each parameter; f32 and f64.
    Fused,
}

/// A tensor of state kept for every parameter.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// PyTorch's name of it.
    pub name: &'static str,
    /// Its initial value.
    pub initial: f64,
    /// Its shape.
    pub extent: Extent,
}

/// The shape of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// That of the parameter, and its dtype.
    Parameter,
    /// One f32 value, as the number of steps.
    Number,
    /// One value for each row of a matrix; the last dimension of the parameter is 1. Vectors have none.
    Rows,
    /// One value for each column of a matrix; the dimension before the last is 1. Vectors have none.
    Columns,
    /// That of the parameter, which is a vector or a number. Matrices have none.
    Vector,
}

impl Slot {
    /// Shaped like the parameter, initially zeros.
    pub(super) fn zeros(name: &'static str) -> Slot {
        Slot::filled(name, 0.0)
    }

    /// Shaped like the parameter.
    pub(super) fn filled(name: &'static str, initial: f64) -> Slot {
        Slot { name, initial, extent: Extent::Parameter }
    }

    /// One value.
    pub(super) fn number(name: &'static str, initial: f64) -> Slot {
        Slot { name, initial, extent: Extent::Number }
    }

    /// Whether this parameter has such a state.
    pub(super) fn applies(&self, parameter: &Tensor) -> bool {
        match self.extent {
            Extent::Parameter | Extent::Number => true,
            Extent::Rows | Extent::Columns => parameter.ndim() > 1,
            Extent::Vector => parameter.ndim() <= 1,
        }
    }

    /// The state of a parameter before its first step; empty if it has none.
    pub(super) fn start(&self, parameter: &Tensor) -> Result<Tensor> {
        if !self.applies(parameter) {
            return ops::new_empty(parameter, &[0.into()], None, None);
        }
        let mut sizes = parameter.sym_sizes();
        let n = sizes.len();
        match self.extent {
            Extent::Number => return Ok(Tensor::scalar(self.initial as f32)),
            Extent::Parameter | Extent::Vector => {
                return ops::full_like(parameter, self.initial.into(), None, None, None);
            }
            Extent::Rows => sizes[n - 1] = 1.into(),
            Extent::Columns => sizes[n - 2] = 1.into(),
        }
        ops::new_full(parameter, &sizes, self.initial.into(), None, None)
    }
}

/// States of one value each, as numbers.
pub(super) fn numbers(states: &[Tensor]) -> Result<Vec<f64>> {
    states.iter().map(|s| s.try_item::<f32>().map(f64::from)).collect()
}

/// Parameters that step together. Everything is by position.
#[derive(Debug)]
pub struct Batch {
    /// Parameters.
    pub params: Vec<Tensor>,
    /// Their gradients.
    pub grads: Vec<Tensor>,
    /// State: one list for every slot.
    pub slots: Vec<Vec<Tensor>>,
    /// The number of this step for every parameter, from 1, as a tensor.
    pub steps: Vec<Tensor>,
    /// The same as numbers.
    pub counts: Vec<f64>,
}

impl Batch {
    /// The parameters at some positions.
    pub fn select(&self, positions: &[usize]) -> Batch {
        let of = |v: &Vec<Tensor>| positions.iter().map(|&i| v[i].clone()).collect();
        Batch {
            params: of(&self.params),
            grads: of(&self.grads),
            slots: self.slots.iter().map(of).collect(),
            steps: of(&self.steps),
            counts: positions.iter().map(|&i| self.counts[i]).collect(),
        }
    }

    /// How many parameters.
    pub fn len(&self) -> usize {
        self.params.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.params.is_empty()
    }
}

/// The rule of an optimizer. A value holds the settings of a group of parameters.
pub trait Algorithm: Clone + Send + 'static {
    /// PyTorch's name.
    const NAME: &'static str;
    /// Whether the number of steps is part of the state that is saved.
    const COUNTS: bool;

    /// Returns an error if settings are invalid.
    fn validate(&self) -> Result<()>;
    /// An error if the rule is not for such a parameter.
    fn accepts(&self, _parameter: &Tensor) -> Result<()> {
        Ok(())
    }
    /// The settings by name.
    fn settings(&self) -> Settings;
    /// Sets settings by name; missing ones stay unchanged.
    fn load_settings(&mut self, from: &Settings) -> Result<()>;
    /// Learning rate.
    fn lr(&self) -> f64;
    /// Sets the learning rate.
    fn set_lr(&mut self, lr: f64);
    /// Momentum or first beta.
    fn momentum(&self) -> Option<f64> {
        None
    }
    /// Sets momentum or first beta.
    fn set_momentum(&mut self, _momentum: f64) {}
    /// Which implementation is requested.
    fn implementation(&self) -> Implementation;
    /// The state that these settings need.
    fn slots(&self) -> Vec<Slot>;
    /// Updates the parameters, op by op.
    fn update(&self, batch: &Batch) -> Result<()>;
    /// Updates parameters whose gradients are sparse.
    fn update_sparse(&self, _batch: &Batch) -> Result<()> {
        let message =
            "there is no rule for sparse gradients; SGD and SparseAdam have one, or use a layer with sparse=false";
        Err(Error::argument(Self::NAME, message))
    }
    /// Updates the parameters in one pass; `None` if the rule has no fused form.
    fn update_fused(&self, _batch: &Batch) -> Option<Result<()>> {
        None
    }
}

/// Returns an error unless the value is a number in a range.
pub(super) fn need(
    name: &'static str,
    setting: &str,
    ok: bool,
    found: impl std::fmt::Debug,
    range: &str,
) -> Result<()> {
    if ok {
        return Ok(());
    }
    Err(Error::argument(name, format!("expected {setting} {range}, found {found:?}")))
}

/// `-grads` if maximizing, plus `weight_decay * params` if there is any; the gradients themselves are not written.
pub(super) fn effective_grads(batch: &Batch, maximize: bool, weight_decay: f64) -> Result<Vec<Tensor>> {
    let grads = if maximize { ops::foreach_neg(&batch.grads)? } else { batch.grads.clone() };
    if weight_decay == 0.0 { Ok(grads) } else { ops::foreach_add(&grads, &batch.params, weight_decay.into()) }
}
