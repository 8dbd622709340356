//! `firebrand train MODEL.pt2`: fine-tunes an exported program on arrays and writes it back.
//!
//! Samples are stacked along the first dimension. A program exported for one batch size is trained with it; one with a
//! symbolic first dimension takes any size in its range. The last, smaller batch of an epoch is used if the program
//! accepts it. The same seed gives the same weights for any number of threads. Progress goes to standard error; with
//! `--out`, metrics and a report are written as for the built-in model.

use super::loss::TrainLoss;
use super::{TARGET, WeightOptions, float_outputs, load};
use crate::refusal::{Done, Refusal, say};
use crate::train::progress::Progress;
use crate::train::run_folder::{RunFolder, Writer};
use crate::train::{Config, report};
use clap::ValueEnum;
use firebrand::autograd::GraphView;
use firebrand::graph::{ProgramModule, SaveOptions};
use firebrand::io::npz::Tensors;
use firebrand::io::{Output, check_outputs, read_npz};
use firebrand::optim::schedule::{CosineAnnealingLR, LRScheduler, LinearLR, OneCycleLR};
use firebrand::optim::{
    Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamWOptions, Adamax, AdamaxOptions,
    Optimizer, RAdam, RAdamOptions, RMSprop, RMSpropOptions, SGD, SGDOptions,
};
use firebrand::prelude::{BackwardOptions, Module, Tensor, manual_seed};
use firebrand::train::{Callback, Metrics, Step};
use firebrand::{DType, ops};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Optimizers by name.
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

/// Learning-rate schedules, applied per step.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ScheduleName {
    /// Constant
    Constant,
    /// Half-cosine decay to zero
    Cosine,
    /// Linear decay to zero
    Linear,
    /// One cycle: rise to the peak, then decay
    OneCycle,
}

impl ScheduleName {
    fn over(self, steps: u64, lr: f64, optimizer: &mut dyn Optimizer) -> Option<LRScheduler> {
        match self {
            ScheduleName::Constant => None,
            ScheduleName::Cosine => Some(LRScheduler::new(CosineAnnealingLR { t_max: steps, eta_min: 0.0 }, optimizer)),
            ScheduleName::Linear => {
                let line = LinearLR { start_factor: 1.0, end_factor: 0.0, total_iters: steps };
                Some(LRScheduler::new(line, optimizer))
            }
            ScheduleName::OneCycle => {
                Some(LRScheduler::new(OneCycleLR { momentum: None, ..OneCycleLR::new(lr, steps) }, optimizer))
            }
        }
    }
}

/// What is asked for.
pub(crate) struct Task<'a> {
    pub(crate) model: &'a Path,
    pub(crate) data: &'a Path,
    pub(crate) output: &'a PathBuf,
    pub(crate) loss: TrainLoss,
    pub(crate) optimizer: OptimizerName,
    pub(crate) schedule: ScheduleName,
    pub(crate) lr: f64,
    pub(crate) epochs: u32,
    pub(crate) batch_size: usize,
    pub(crate) seed: u64,
    /// Whether forward and backward go through the compiler.
    pub(crate) compile: bool,
    /// Whether weights are mapped or copied.
    pub(crate) weights: WeightOptions,
    /// Where metrics and the report go, if anywhere.
    pub(crate) folder: Option<&'a Path>,
}

impl Task<'_> {
    fn config(&self, samples: usize, parameters: usize, batch_size: usize) -> Config {
        let name = |v: Option<clap::builder::PossibleValue>| v.map_or(String::new(), |v| v.get_name().to_string());
        let (optimizer, schedule) = (name(self.optimizer.to_possible_value()), name(self.schedule.to_possible_value()));
        Config {
            version: env!("CARGO_PKG_VERSION").into(),
            data: self.data.display().to_string(),
            train_samples: samples,
            test_samples: 0,
            model: self.model.display().to_string(),
            parameters,
            optimizer: format!("{optimizer}, {schedule} learning rate"),
            epochs: self.epochs,
            lr: self.lr,
            batch_size: batch_size as u32,
            seed: self.seed,
            bf16: false,
            threads: firebrand::num_threads(),
        }
    }
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
        .ok_or_else(|| Refusal::because(format!("{}: no labels: add an array `{TARGET}`", path.display())))?;
    let samples = target.shape().first().copied().unwrap_or(0);
    for (name, t) in &inputs {
        let n = t.shape().first().copied().unwrap_or(0);
        if n != samples {
            return Err(Refusal::because(format!("input {name} has {n} samples, `{TARGET}` has {samples}")));
        }
    }
    if samples == 0 {
        return Err(Refusal::because(format!("{}: no samples", path.display())));
    }
    Ok(Data { inputs, target, samples })
}

/// The smallest and largest batch size a program accepts.
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

/// Trains and writes the program.
pub(crate) fn run(task: &Task<'_>) -> Done {
    manual_seed(task.seed);
    check_outputs([task.output])?;
    let mut module = load(task.model, task.weights)?;
    if task.compile {
        module.set_evaluator(super::compiled());
    }
    let data = read_data(task.data)?;
    let (least, most) = batch_range(&module)?;
    if least > data.samples || least > most {
        return Err(Refusal::because(format!(
            "the program needs batches of at least {least} samples, the data has {}",
            data.samples
        )));
    }
    let batch = task.batch_size.clamp(least, most);
    module.train();
    let parameters: Vec<Tensor> =
        module.parameters().iter().map(|p| p.tensor().clone()).filter(Tensor::requires_grad).collect();
    if parameters.is_empty() {
        return Err(Refusal::because("the program has no parameter that requires grad"));
    }
    let mut optimizer = task.optimizer.over(&parameters, task.lr)?;
    // The rest of an epoch is a step if the program accepts its size.
    let (whole, rest) = (data.samples / batch, data.samples % batch);
    let steps = (whole + usize::from(rest >= least)) * task.epochs as usize;
    let mut scheduler = task.schedule.over(steps as u64, task.lr, &mut *optimizer);
    let folder = task.folder.map(|path| RunFolder::make(Some(path))).transpose()?;
    if let Some(folder) = &folder {
        check_outputs([task.output.as_path(), &folder.path().join("report.html")])?;
    }
    let config = task.config(data.samples, parameters.iter().map(Tensor::numel).sum(), batch);
    let progress = Progress::new(steps, task.epochs as usize, data.samples);
    let mut watchers: Vec<Box<dyn Callback>> = vec![Box::new(progress.clone())];
    watchers.extend(folder.as_ref().map(|f| Box::new(Writer::new(f, &config)) as Box<dyn Callback>));
    let (began, mut step, mut history, mut graph) = (Instant::now(), 0, Vec::<Metrics>::new(), None);
    for epoch in 1..=task.epochs as usize {
        let (mut total, mut seen) = (0.0, 0);
        let order = ops::randperm((data.samples as i64).into(), Some(DType::I64), None)?;
        for index in ops::split(&order, (batch as i64).into(), 0)? {
            let n = index.numel();
            if n < least {
                continue;
            }
            let loss = loss_of(task, &module, &data, &index)?;
            optimizer.zero_grad();
            if graph.is_none() && folder.is_some() {
                let names = module.named_parameters();
                graph = Some(GraphView::of(&[&loss]).all_named(names.iter().map(|(n, p)| (n.as_str(), p.tensor()))));
            }
            loss.try_backward(&BackwardOptions::default())?;
            let lr = optimizer.lr(0);
            optimizer.step()?;
            if let Some(s) = &mut scheduler {
                s.step(&mut *optimizer);
            }
            step += 1;
            let loss = loss.try_item::<f64>()?;
            total += loss * n as f64;
            seen += n;
            for w in &mut watchers {
                w.step(&Step { epoch, step, loss, lr })?;
            }
        }
        let loss = total / seen as f64;
        if !loss.is_finite() {
            progress.finish();
            return Err(Refusal::because(format!("the loss is {loss} in epoch {epoch}; nothing was written")));
        }
        history.push(Metrics::from_iter([("train_loss".to_string(), loss)]));
        for w in &mut watchers {
            w.epoch(epoch, &history)?;
        }
    }
    progress.finish();
    // Program and report appear together, once both are written.
    let mut outputs = vec![module.program().stage_with(task.output, SaveOptions::default()).map_err(Refusal::because)?];
    if let (Some(folder), Some(graph)) = (&folder, &graph) {
        let seconds = began.elapsed().as_secs_f64();
        outputs.push(folder.stage_report(&report::program_page(&config, &history, graph, seconds))?);
    }
    Output::commit_all(outputs)?;
    if let (Some(folder), Some(_)) = (&folder, &graph) {
        say!("report {}", folder.path().join("report.html").display())?;
    }
    let last = history.last().and_then(|m| m.get("train_loss")).copied().unwrap_or(f64::NAN);
    let plural = if task.epochs == 1 { "" } else { "s" };
    say!("{}: loss {last:.6} after {} epoch{plural}", task.output.display(), task.epochs)?;
    Ok(())
}

/// The loss of the samples at these indices.
fn loss_of(task: &Task<'_>, module: &ProgramModule, data: &Data, index: &Tensor) -> Done<Tensor> {
    let mut inputs = Tensors::new();
    for (name, t) in &data.inputs {
        inputs.insert(name.clone(), ops::index_select(t, 0, index)?);
    }
    let target = ops::index_select(&data.target, 0, index)?;
    let outputs = super::call(module, &inputs)?;
    task.loss.of(&float_outputs(&outputs), &target)
}
