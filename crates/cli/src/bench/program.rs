//! An exported program: inference, or whole training steps. `bench/pt2.py` gives PyTorch the same work.

use super::Bench;
use crate::program::loss::TrainLoss;
use crate::program::{TARGET, call, float_outputs, load};
use crate::refusal::{Done, Refusal};
use firebrand::io::read_npz;
use firebrand::optim::{AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::*;
use std::path::Path;

const SECONDS: f64 = 3.0;
const LR: f64 = 1e-4;

/// Measures milliseconds of a call, or with a loss, of a step: zero gradients, forward, backward, AdamW.
pub(super) fn run(bench: &Bench, model: &Path, inputs: &Path, loss: Option<TrainLoss>) -> Done {
    let module = load(model, Default::default())?;
    let inputs = read_npz(inputs)?;
    let case = model.file_stem().and_then(|s| s.to_str()).unwrap_or("program");
    // The clock takes what the library may refuse; what a program refuses is said in the same words.
    let refused = |e: Refusal| Error::from(e);
    let Some(loss) = loss else {
        module.eval();
        let run = no_grad(|| bench.measure(SECONDS, || call(&module, &inputs).map(drop).map_err(refused)))?;
        return bench.emit_ms(&format!("{case}.inference"), run);
    };
    let target = inputs.get(TARGET).ok_or_else(|| Refusal::because(format!("no labels: add an array `{TARGET}`")))?;
    module.train();
    let wanted: Vec<Tensor> =
        module.parameters().iter().map(|p| p.tensor().clone()).filter(Tensor::requires_grad).collect();
    let mut optimizer = AdamW::new(&wanted, AdamWOptions { lr: LR, ..Default::default() })?;
    let step = bench.measure(SECONDS, || {
        optimizer.zero_grad();
        let outputs = call(&module, &inputs).map_err(refused)?;
        let loss = loss.of(&float_outputs(&outputs), target).map_err(refused)?;
        loss.try_backward(&BackwardOptions::default())?;
        optimizer.step()
    })?;
    bench.emit_ms(&format!("{case}.training_step"), step)
}
