//! `firebrand train MODEL.pt2`: fine-tunes an exported program on arrays and writes it back.
//!
//! Samples lie along the first dimension. A program that was exported for one batch size is trained with it; one with a
//! symbolic first dimension takes any that its range allows. What is left over at the end of an epoch is used if the
//! program takes it. The same seed gives the same weights, whatever the number of threads.

use super::loss::TrainLoss;
use super::{TARGET, float_outputs, load};
use crate::refusal::{Done, Refusal, say};
use clap::ValueEnum;
use firebrand::graph::ProgramModule;
use firebrand::io::npz::Tensors;
use firebrand::io::read_npz;
use firebrand::optim::{
    Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamWOptions, Adamax, AdamaxOptions,
    Optimizer, RAdam, RAdamOptions, RMSprop, RMSpropOptions, SGD, SGDOptions,
};
use firebrand::prelude::{BackwardOptions, Module, Tensor, manual_seed};
use firebrand::{DType, ops};
use std::path::{Path, PathBuf};

/// Optimisers by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum OptimizerName {
    /// Adam with decoupled weight decay
    Adamw,
    /// Adam
    Adam,
    /// Gradient descent with momentum 0.9
    Sgd,
    /// RMSprop
    Rmsprop,
    /// Adagrad
    Adagrad,
    /// Adadelta
    Adadelta,
    /// Adamax
    Adamax,
    /// Rectified Adam
    Radam,
}

impl OptimizerName {
    fn over(self, parameters: &[Tensor], lr: f64) -> Done<Box<dyn Optimizer>> {
        Ok(match self {
            OptimizerName::Adamw => Box::new(AdamW::new(parameters, AdamWOptions { lr, ..Default::default() })?),
            OptimizerName::Adam => Box::new(Adam::new(parameters, AdamOptions { lr, ..Default::default() })?),
            OptimizerName::Sgd => {
                Box::new(SGD::new(parameters, SGDOptions { lr, momentum: 0.9, ..Default::default() })?)
            }
            OptimizerName::Rmsprop => Box::new(RMSprop::new(parameters, RMSpropOptions { lr, ..Default::default() })?),
            OptimizerName::Adagrad => Box::new(Adagrad::new(parameters, AdagradOptions { lr, ..Default::default() })?),
            OptimizerName::Adadelta => {
                Box::new(Adadelta::new(parameters, AdadeltaOptions { lr, ..Default::default() })?)
            }
            OptimizerName::Adamax => Box::new(Adamax::new(parameters, AdamaxOptions { lr, ..Default::default() })?),
            OptimizerName::Radam => Box::new(RAdam::new(parameters, RAdamOptions { lr, ..Default::default() })?),
        })
    }
}

/// What is asked for.
pub(crate) struct Task<'a> {
    pub(crate) model: &'a Path,
    pub(crate) data: &'a Path,
    pub(crate) output: &'a PathBuf,
    pub(crate) loss: TrainLoss,
    pub(crate) optimizer: OptimizerName,
    pub(crate) lr: f64,
    pub(crate) epochs: u32,
    pub(crate) batch_size: usize,
    pub(crate) seed: u64,
    /// Whether forward and backward go through the compiler.
    pub(crate) compile: bool,
}

/// The data as the program takes it: inputs by name, labels, number of samples.
struct Data {
    inputs: Tensors,
    target: Tensor,
    samples: usize,
}

fn read_data(path: &Path) -> Done<Data> {
    let mut inputs = read_npz(path)?;
    let target = inputs
        .shift_remove(TARGET)
        .ok_or_else(|| Refusal::because(format!("{}: labels are needed: add an array `{TARGET}`", path.display())))?;
    let samples = target.shape().first().copied().unwrap_or(0);
    for (name, t) in &inputs {
        let n = t.shape().first().copied().unwrap_or(0);
        if n != samples {
            return Err(Refusal::because(format!("input {name} has {n} samples, `{TARGET}` has {samples}")));
        }
    }
    if samples == 0 {
        return Err(Refusal::because(format!("{}: there are no samples", path.display())));
    }
    Ok(Data { inputs, target, samples })
}

/// How many samples a program takes at a time: smallest and largest number.
fn batch_range(module: &ProgramModule) -> Done<(usize, usize)> {
    let program = module.program();
    let (mut least, mut most) = (1, usize::MAX);
    for (_, meta) in module.tensor_inputs().map_err(Refusal::because)? {
        let Some(size) = meta.sizes.first() else { continue };
        let symbol = size.expr().and_then(|e| e.symbol()).and_then(|s| program.range_constraints.get(s));
        let (min, max) = match (size.known(), symbol) {
            (Some(n), _) => (Some(n), Some(n)),
            (None, Some(range)) => (range.min, range.max),
            (None, None) => (None, None),
        };
        least = least.max(min.and_then(|n| usize::try_from(n).ok()).unwrap_or(1));
        most = most.min(max.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX));
    }
    Ok((least, most))
}

/// One pass over the samples in random order; the mean loss.
fn epoch(
    module: &ProgramModule,
    data: &Data,
    loss: TrainLoss,
    optimizer: &mut dyn Optimizer,
    (least, batch): (usize, usize),
) -> Done<f64> {
    let (mut total, mut seen) = (0.0, 0);
    let order = ops::randperm((data.samples as i64).into(), Some(DType::I64), None)?;
    for index in ops::split(&order, (batch as i64).into(), 0)? {
        let n = index.numel();
        if n < least {
            continue;
        }
        let mut inputs = Tensors::new();
        for (name, t) in &data.inputs {
            inputs.insert(name.clone(), ops::index_select(t, 0, &index)?);
        }
        let target = ops::index_select(&data.target, 0, &index)?;
        let outputs = super::call(module, &inputs)?;
        let loss = loss.of(&float_outputs(&outputs), &target)?;
        optimizer.zero_grad();
        loss.try_backward(&BackwardOptions::default())?;
        optimizer.step()?;
        total += loss.try_item::<f64>()? * n as f64;
        seen += n;
    }
    Ok(total / seen as f64)
}

/// Trains and writes the program.
pub(crate) fn run(task: &Task<'_>) -> Done {
    manual_seed(task.seed);
    let mut module = load(task.model)?;
    if task.compile {
        module.set_evaluator(super::compiled());
    }
    let data = read_data(task.data)?;
    let (least, most) = batch_range(&module)?;
    if least > data.samples || least > most {
        return Err(Refusal::because(format!(
            "the program takes {least} samples at a time, there are {}",
            data.samples
        )));
    }
    let batch = task.batch_size.clamp(least, most);
    module.train();
    let parameters: Vec<Tensor> =
        module.parameters().iter().map(|p| p.tensor().clone()).filter(Tensor::requires_grad).collect();
    if parameters.is_empty() {
        return Err(Refusal::because("the program has no parameter that wants gradients"));
    }
    let mut optimizer = task.optimizer.over(&parameters, task.lr)?;
    let mut last = f64::NAN;
    for number in 1..=task.epochs {
        last = epoch(&module, &data, task.loss, &mut *optimizer, (least, batch))?;
        if !last.is_finite() {
            return Err(Refusal::because(format!("the loss is {last} in epoch {number}; nothing was written")));
        }
        say!("epoch {number}/{}  loss {last:.6}", task.epochs)?;
    }
    module.program().save(task.output).map_err(Refusal::because)?;
    say!("{}: loss {last:.6} after {} epochs", task.output.display(), task.epochs)?;
    Ok(())
}
