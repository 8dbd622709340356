//! The training benches: whole steps of a perceptron, a transformer and a residual net, with the fused optimizer.

use super::models::{ConvNet, Gpt};
use super::{Bench, Done, Measured, workloads::normal};
use firebrand::autograd::{SavedHooksGuard, save_compressed};
use firebrand::graph::{NamedTensor, ProgramModule};
use firebrand::nn::layers::{Linear, ReLU, Sequential};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::nn::sequential;
use firebrand::ops;
use firebrand::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::*;
use firebrand::{memory_stats, reset_peak_memory, save_on_disk};

const SECONDS: f64 = 2.0;
const LR: f64 = 1e-4;

pub(super) fn classes(below: i64, sizes: &[usize]) -> Result<Tensor> {
    let sizes: Vec<firebrand::SymInt> = sizes.iter().map(|&n| n.into()).collect();
    ops::randint(below.into(), &sizes, Some(DType::I64), None)
}

/// Megabytes that a step needs at its peak beyond what lives between steps.
fn peak(mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    step()?;
    reset_peak_memory();
    let before = memory_stats().live;
    step()?;
    Ok((memory_stats().peak - before) as f64 / 1e6)
}

/// What a training step works on: a model, its optimizer, a batch with targets.
pub(super) struct Training<'a, O> {
    pub(super) model: &'a dyn Forward<Tensor, Output = Tensor>,
    pub(super) optimizer: O,
    pub(super) batch: (Tensor, Tensor),
}

impl<O: Optimizer> Training<'_, O> {
    /// A whole step: forward, backward, step, no gradients.
    fn step(&mut self) -> Result<()> {
        // Nothing holds the scores during backward, as in the peers' step.
        let scores = ops::flatten(&self.model.try_call(&self.batch.0)?, 0, -2)?;
        let loss = CrossEntropyLoss::new().loss(&scores, &ops::flatten(&self.batch.1, 0, -1)?)?;
        drop(scores);
        loss.try_backward(&BackwardOptions::default())?;
        self.optimizer.step()?;
        self.optimizer.zero_grad();
        Ok(())
    }

    /// Measures whole steps, each counting as this many units.
    pub(super) fn speed(&mut self, bench: &Bench, case: &str, worth: f64, unit: &str) -> Done {
        let step = bench.measure(SECONDS, || self.step())?;
        bench.emit_measured(case, worth / step.seconds, unit, step)
    }

    /// Measures whole steps, each counting as this many units, and their peak of memory.
    fn measure(mut self, bench: &Bench, case: &str, worth: f64, unit: &str) -> Done {
        self.speed(bench, case, worth, unit)?;
        bench.emit(&format!("{case}.peak"), peak(|| self.step())?, "MB")
    }
}

/// Measures whole steps with forward and backward compiled, and their peak of memory. The model is captured with its loss;
/// its parameters are copies. Gives the step and megabytes.
fn compiled_step<O: Optimizer>(
    bench: &Bench,
    model: &dyn Forward<Tensor, Output = Tensor>,
    optimizer: impl FnOnce(Vec<Parameter>) -> Result<O>,
    (x, y): &(Tensor, Tensor),
) -> Done<(Measured, f64)> {
    let (module, inputs) = compiled_loss(bench, model, (x, y))?;
    let mut optimizer = optimizer(module.parameters())?;
    let mut step = || {
        let results = module.run(&inputs).map_err(Error::user)?;
        results[0].tensor().map_err(Error::user)?.try_backward(&BackwardOptions::default())?;
        optimizer.step()?;
        optimizer.zero_grad();
        Ok(())
    };
    Ok((bench.measure(SECONDS, &mut step)?, peak(step)?))
}

/// A model captured with its loss and compiled, with its inputs; its parameters are copies.
pub(super) fn compiled_loss(
    bench: &Bench,
    model: &dyn Forward<Tensor, Output = Tensor>,
    (x, y): (&Tensor, &Tensor),
) -> Done<(ProgramModule, [Tensor; 2])> {
    let mut state = Vec::new();
    for (name, p) in model.named_parameters() {
        state.push(NamedTensor { name, tensor: p.tensor().clone(), is_parameter: true });
    }
    for (name, tensor) in model.named_buffers() {
        state.push(NamedTensor { name, tensor, is_parameter: false });
    }
    let loss = |i: &[Tensor]| {
        let scores = ops::flatten(&model.try_call(&i[0])?, 0, -2)?;
        Ok(vec![CrossEntropyLoss::new().loss(&scores, &i[1])?])
    };
    let inputs = [x.clone(), ops::flatten(y, 0, -1)?];
    let program = firebrand::graph::export(loss, &inputs, &state)?;
    let mut module = program.module()?;
    module.set_evaluator((bench.compiled)());
    Ok((module, inputs))
}

/// The perceptron.
pub(super) fn perceptron() -> Sequential {
    sequential![Linear::new(784, 512), ReLU::new(), Linear::new(512, 512), ReLU::new(), Linear::new(512, 10)]
}

/// Samples for it, and their classes.
pub(super) fn perceptron_batch(n: usize) -> Result<(Tensor, Tensor)> {
    Ok((normal(&[n, 784])?, classes(10, &[n])?))
}

/// Its optimizer.
pub(super) fn adam(parameters: Vec<Parameter>) -> Result<Adam> {
    Adam::new(parameters, AdamOptions { lr: LR, ..Default::default() })
}

pub(super) fn mlp(bench: &Bench) -> Done {
    let (model, batch) = (perceptron(), perceptron_batch(128)?);
    let (step, compiled_peak) = compiled_step(bench, &model, adam, &batch)?;
    Training { model: &model, optimizer: adam(model.parameters())?, batch }.measure(bench, "adam", 1.0, "steps/s")?;
    bench.emit_measured("adam_compiled", 1.0 / step.seconds, "steps/s", step)?;
    bench.emit("adam_compiled.peak", compiled_peak, "MB")
}

pub(super) fn gpt(bench: &Bench) -> Done {
    let model = Gpt::new()?;
    let adamw = |p: Vec<Parameter>| AdamW::new(p, AdamWOptions { lr: LR, ..Default::default() });
    let batch = (classes(1000, &[8, 128])?, classes(1000, &[8, 128])?);
    let (step, compiled_peak) = compiled_step(bench, &model, adamw, &batch)?;
    Training { model: &model, optimizer: adamw(model.parameters())?, batch }
        .measure(bench, "adamw", 1024.0, "tokens/s")?;
    bench.emit_measured("adamw_compiled", 1024.0 / step.seconds, "tokens/s", step)?;
    bench.emit("adamw_compiled.peak", compiled_peak, "MB")
}

pub(super) fn convnet(bench: &Bench) -> Done {
    let model = ConvNet::new()?;
    let adam = |p: Vec<Parameter>| Adam::new(p, AdamOptions { lr: LR, ..Default::default() });
    let batch = (normal(&[64, 3, 32, 32])?, classes(10, &[64])?);
    let (step, compiled_peak) = compiled_step(bench, &model, adam, &batch)?;
    Training { model: &model, optimizer: adam(model.parameters())?, batch }.measure(bench, "adam", 64.0, "images/s")?;
    bench.emit_measured("adam_compiled", 64.0 / step.seconds, "images/s", step)?;
    bench.emit("adam_compiled.peak", compiled_peak, "MB")
}

/// What a step of the transformer on 64 sequences needs at its peak beyond weights and optimizer state, and how long it
/// takes, with what the backward pass needs kept in several ways.
pub(super) fn saved_memory(bench: &Bench) -> Done {
    type Scope = fn() -> Result<Option<SavedHooksGuard>>;
    let ways: [(&str, bool, Scope); 4] = [
        ("plain", false, || Ok(None)),
        ("checkpoint", true, || Ok(None)),
        ("saved_bf16", false, || save_compressed(DType::BF16).map(Some)),
        ("saved_on_disk", false, || save_on_disk(std::env::temp_dir()).map(Some).map_err(Error::user)),
    ];
    let (ids, target) = (classes(1000, &[64, 128])?, classes(1000, &[64 * 128])?);
    for (way, checkpointed, scope) in ways {
        let mut model = Gpt::new()?;
        model.checkpointed = checkpointed;
        let mut adamw = AdamW::new(model.parameters(), AdamWOptions { lr: LR, ..Default::default() })?;
        let mut step = || -> Result<()> {
            let loss = {
                let _saved = scope()?;
                CrossEntropyLoss::new().loss(&ops::flatten(&model.try_call(&ids)?, 0, -2)?, &target)?
            };
            adamw.zero_grad();
            loss.try_backward(&BackwardOptions::default())?;
            adamw.step()
        };
        bench.emit(&format!("{way}.peak"), peak(&mut step)?, "MB")?;
        bench.emit(way, bench.clock.best(SECONDS, step)? * 1e3, "ms")?;
    }
    Ok(())
}
