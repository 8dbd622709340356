//! The training benches: whole steps of a perceptron, a transformer and a residual net, with the fused optimiser.

use super::models::{ConvNet, Gpt};
use super::{Bench, workloads::normal};
use crate::refusal::Done;
use firebrand::nn::layers::{Linear, ReLU};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::nn::sequential;
use firebrand::ops;
use firebrand::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::*;

const SECONDS: f64 = 2.0;
const LR: f64 = 1e-4;

fn classes(below: i64, sizes: &[usize]) -> Result<Tensor> {
    let sizes: Vec<firebrand::SymInt> = sizes.iter().map(|&n| n.into()).collect();
    ops::randint(below.into(), &sizes, Some(DType::I64), None)
}

/// Fastest whole step: zero gradients, forward, backward, step.
fn step(
    bench: &Bench,
    model: &dyn Forward<Tensor, Output = Tensor>,
    mut optimizer: impl Optimizer,
    x: &Tensor,
    y: &Tensor,
) -> Result<f64> {
    let criterion = CrossEntropyLoss::new();
    let y = ops::flatten(y, 0, -1)?;
    bench.clock.best(SECONDS, || {
        optimizer.zero_grad();
        let scores = ops::flatten(&model.try_call(x)?, 0, -2)?;
        criterion.loss(&scores, &y)?.try_backward(&BackwardOptions::default())?;
        optimizer.step()
    })
}

pub(super) fn mlp(bench: &Bench) -> Done {
    let model =
        sequential![Linear::new(784, 512), ReLU::new(), Linear::new(512, 512), ReLU::new(), Linear::new(512, 10)];
    let adam = Adam::new(model.parameters(), AdamOptions { lr: LR, ..Default::default() })?;
    let seconds = step(bench, &model, adam, &normal(&[128, 784])?, &classes(10, &[128])?)?;
    bench.emit("adam", 1.0 / seconds, "steps/s")
}

pub(super) fn gpt(bench: &Bench) -> Done {
    let model = Gpt::new()?;
    let adamw = AdamW::new(model.parameters(), AdamWOptions { lr: LR, ..Default::default() })?;
    let seconds = step(bench, &model, adamw, &classes(1000, &[8, 128])?, &classes(1000, &[8, 128])?)?;
    bench.emit("adamw", 1024.0 / seconds, "tokens/s")
}

pub(super) fn convnet(bench: &Bench) -> Done {
    let model = ConvNet::new()?;
    let adam = Adam::new(model.parameters(), AdamOptions { lr: LR, ..Default::default() })?;
    let seconds = step(bench, &model, adam, &normal(&[64, 3, 32, 32])?, &classes(10, &[64])?)?;
    bench.emit("adam", 64.0 / seconds, "images/s")
}
