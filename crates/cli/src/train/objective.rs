//! The loss and its metrics: a loss by name, a loss program (`LOSS.pt2`), or an output of the program itself. Labels are
//! converted to the form the loss expects, and invalid ones are reported before the first step.

use super::data::{Batch, Samples};
use super::subject::Subject;
use crate::program::WeightOptions;
use crate::refusal::{Done, Refusal};
use clap::ValueEnum;
use firebrand::autograd::is_grad_enabled;
use firebrand::data::Dataset;
use firebrand::graph::ProgramModule;
use firebrand::graph::interpret::Value;
use firebrand::io::plain;
use firebrand::nn::losses::cross_entropy_of_classes;
use firebrand::ops;
use firebrand::prelude::*;
use firebrand::train::{BatchLoss, Binary, Classification, Regression};
use std::path::PathBuf;

/// Losses by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum LossName {
    /// Mean squared error
    Mse,
    /// Mean absolute error
    L1,
    /// Smooth L1: quadratic near zero, linear elsewhere
    SmoothL1,
    /// Cross entropy of logits, reshaped to (-1, C), with class indices or probabilities
    CrossEntropy,
    /// Binary cross entropy of logits
    BceWithLogits,
    /// Negative log likelihood of log-probabilities, reshaped to (-1, C), with class indices
    Nll,
}

/// What is minimized.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LossChoice {
    /// A loss of an output and labels.
    Named(LossName),
    /// An output of the program.
    Output,
    /// The result of another program.
    Program(PathBuf),
}

impl std::str::FromStr for LossChoice {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<LossChoice, String> {
        if let Ok(name) = LossName::from_str(text, false) {
            return Ok(LossChoice::Named(name));
        }
        if text == "output" {
            return Ok(LossChoice::Output);
        }
        if text.ends_with(".pt2") {
            return Ok(LossChoice::Program(text.into()));
        }
        let names: Vec<String> = LossName::value_variants()
            .iter()
            .filter_map(|v| Some(v.to_possible_value()?.get_name().to_string()))
            .collect();
        Err(format!("expected {}, output, or a program LOSS.pt2", names.join(", ")))
    }
}

/// Options for the loss.
#[derive(Clone, clap::Args)]
pub(crate) struct ObjectiveOptions {
    /// Loss to minimize: mse, l1, smooth_l1, cross_entropy, bce_with_logits, nll; output (the program returns its loss); or LOSS.pt2, a program that takes outputs and labels
    #[arg(long, value_name = "L", help_heading = "Loss and metrics")]
    pub(crate) loss: Option<LossChoice>,
    /// Output to compute the loss from, by name or zero-based position [default: the first floating-point output]
    #[arg(long, value_name = "NAME|I", help_heading = "Loss and metrics")]
    pub(crate) loss_output: Option<String>,
    /// Label smoothing for cross_entropy
    #[arg(long, value_name = "X", help_heading = "Loss and metrics", value_parser = super::options::share)]
    pub(crate) label_smoothing: Option<f64>,
    /// Class weights for cross_entropy and nll; `balanced` weights classes by inverse frequency
    #[arg(long, value_name = "W,W,…|balanced", help_heading = "Loss and metrics")]
    pub(crate) class_weights: Option<ClassWeights>,
    /// K for the top-K accuracy, which is reported if there are more than K classes
    #[arg(long, value_name = "K", help_heading = "Loss and metrics", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top_k: u32,
}

/// Weights of classes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClassWeights {
    /// These.
    Given(Vec<f64>),
    /// Weighted by inverse frequency.
    Balanced,
}

impl std::str::FromStr for ClassWeights {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<ClassWeights, String> {
        if text == "balanced" {
            return Ok(ClassWeights::Balanced);
        }
        let weight = |v: &str| v.trim().parse::<f64>().ok().filter(|w| *w >= 0.0 && w.is_finite());
        let list: Option<Vec<f64>> = text.split(',').map(weight).collect();
        list.map(ClassWeights::Given)
            .ok_or_else(|| "expected numbers of at least 0, such as 1,2,0.5, or `balanced`".into())
    }
}

impl ObjectiveOptions {
    /// Checks which options can be combined.
    pub(crate) fn check(&self) -> Done {
        let classes = matches!(self.loss, None | Some(LossChoice::Named(LossName::CrossEntropy | LossName::Nll)));
        if self.class_weights.is_some() && !classes {
            return Err(Refusal::Usage("--class-weights is for cross_entropy and nll".into()));
        }
        let smooth = matches!(self.loss, None | Some(LossChoice::Named(LossName::CrossEntropy)));
        if self.label_smoothing.is_some() && !smooth {
            return Err(Refusal::Usage("--label-smoothing is for cross_entropy".into()));
        }
        Ok(())
    }
}

/// ATen's numbers for the reductions.
const NONE: i64 = 0;
const MEAN: i64 = 1;
/// The label that is ignored, as in PyTorch.
pub(crate) const IGNORE: i64 = -100;

/// The loss, ready to compute.
pub(crate) struct Objective {
    choice: LossChoice,
    program: Option<ProgramModule>,
    output: usize,
    smoothing: f64,
    weights: Option<Tensor>,
    top_k: usize,
    form: Form,
    pub(crate) notes: Vec<String>,
}

/// The form of the class labels, decided once for all the data.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Indices,
    OneHot,
    Probabilities,
}

/// The results of a batch.
pub(crate) struct Computed {
    pub(crate) loss: BatchLoss,
    /// The output the loss was computed from, as rows of class scores, and the labels in the same form.
    pub(crate) read: Tensor,
    pub(crate) labels: Option<Tensor>,
}

impl Objective {
    /// For a program and its data.
    pub(crate) fn new(options: &ObjectiveOptions, subject: &Subject, data: &Samples) -> Done<Objective> {
        let choice = options.loss.clone().unwrap_or(LossChoice::Named(LossName::CrossEntropy));
        let mut notes = Vec::new();
        let output = pick_output(options, subject, &mut notes)?;
        let program = match &choice {
            LossChoice::Program(path) => {
                let module = crate::program::load(path, WeightOptions::default())?;
                module.requires_grad_(false);
                Some(module)
            }
            _ => None,
        };
        let mut objective = Objective {
            choice,
            program,
            output,
            smoothing: options.label_smoothing.unwrap_or(0.0),
            weights: None,
            top_k: options.top_k as usize,
            form: Form::Indices,
            notes,
        };
        objective.prepare(options, subject, data)?;
        Ok(objective)
    }

    /// Whether labels are class indices.
    pub(crate) fn is_classification(&self) -> bool {
        matches!(self.choice, LossChoice::Named(LossName::CrossEntropy | LossName::Nll))
    }

    /// Whether the loss of some samples can be computed from the outputs of a larger batch: not if the program returns the loss.
    pub(crate) fn splits(&self) -> bool {
        self.choice != LossChoice::Output
    }

    /// Whether the loss needs labels among the data.
    pub(crate) fn needs_labels(choice: Option<&LossChoice>) -> bool {
        matches!(choice, None | Some(LossChoice::Named(_)))
    }

    /// Checks all labels against the number of classes, and sets the weights of the classes. The number of classes is that
    /// of the first sample's scores.
    fn prepare(&mut self, options: &ObjectiveOptions, subject: &Subject, data: &Samples) -> Done {
        if !self.is_classification() {
            return Ok(());
        }
        if let Some(largest) = data.largest_token() {
            return self.prepare_tokens(options, self.count_classes(subject, data)?, largest);
        }
        let Some(labels) = data.labels()? else { return Ok(()) };
        let classes = self.count_classes(subject, data)?;
        let note;
        (self.form, note) = form(&labels, classes)?;
        self.notes.extend(note);
        let labels = class_labels(self.form, &labels, classes)?;
        if self.form == Form::Probabilities {
            return match options.class_weights {
                Some(ClassWeights::Balanced) => {
                    Err(Refusal::because("--class-weights balanced needs class indices as labels"))
                }
                _ => self.set_weights(options, classes, &[]),
            };
        }
        let per_sample = (labels.numel() / data.len().max(1)).max(1);
        let labels = labels.try_to_vec::<i64>()?;
        if let Some(at) = labels.iter().position(|&l| l != IGNORE && !(0..classes as i64).contains(&l)) {
            let sample = data.name(data.row(at / per_sample));
            let message = format!(
                "{}: the label is {}, expected 0 to {} because the program's output has {classes} classes (or {IGNORE}, which is ignored)",
                plain(&sample),
                labels[at],
                classes - 1,
            );
            return Err(Refusal::because(message));
        }
        if let Some(names) = data.classes.as_ref().filter(|n| n.len() > classes) {
            let message = format!("the data has {} classes, the program's output has {classes}", names.len());
            return Err(Refusal::because(message));
        }
        self.set_weights(options, classes, &labels)
    }

    fn set_weights(&mut self, options: &ObjectiveOptions, classes: usize, labels: &[i64]) -> Done {
        let weights: Vec<f64> = match &options.class_weights {
            None => return Ok(()),
            Some(ClassWeights::Given(list)) => {
                if list.len() != classes {
                    let message = format!(
                        "--class-weights has {} weights, the program's output has {classes} classes",
                        list.len()
                    );
                    return Err(Refusal::because(message));
                }
                list.clone()
            }
            Some(ClassWeights::Balanced) => {
                let mut counts = vec![0usize; classes];
                labels.iter().filter(|l| **l != IGNORE).for_each(|&l| counts[l as usize] += 1);
                let (total, seen) =
                    (counts.iter().sum::<usize>() as f64, counts.iter().filter(|n| **n > 0).count() as f64);
                counts.iter().map(|&n| if n == 0 { 0.0 } else { total / (seen * n as f64) }).collect()
            }
        };
        self.weights = Some(Tensor::new(&weights));
        Ok(())
    }

    /// Checks tokens against the vocabulary of the program.
    fn prepare_tokens(&mut self, options: &ObjectiveOptions, vocabulary: usize, largest: i64) -> Done {
        if largest >= vocabulary as i64 {
            return Err(Refusal::because(format!(
                "the texts have token {largest}, the program's output has logits for {vocabulary} (0 to {}); use the tokenizer that belongs to the program",
                vocabulary.saturating_sub(1)
            )));
        }
        match options.class_weights {
            Some(ClassWeights::Balanced) => Err(Refusal::because("--class-weights balanced is not for texts")),
            _ => self.set_weights(options, vocabulary, &[]),
        }
    }

    /// The number of classes: the last dimension of the output, from the program's metadata if it is known there; otherwise
    /// from a run that leaves the program's state unchanged.
    fn count_classes(&self, subject: &Subject, data: &Samples) -> Done<usize> {
        if let Subject::Digits(_) = subject {
            return Ok(firebrand::digits::CLASSES);
        }
        if let Subject::Program(module) = subject
            && let Some(n) = module.output_meta(self.output).and_then(|m| m.sizes.last()?.known())
        {
            return Ok(usize::try_from(n).unwrap_or(1));
        }
        let (least, _) = subject.batch_range()?;
        let rows: Vec<usize> = (0..least.min(data.len())).collect();
        let random = firebrand::random::get_rng_state();
        let training = subject.module().is_training();
        subject.module().eval();
        let outputs = no_grad(|| subject.forward(&data.batch(&rows)?));
        subject.module().set_training(training);
        firebrand::random::set_rng_state(random);
        let outputs = outputs?;
        let output = outputs.get(self.output).and_then(Option::as_ref);
        Ok(output.and_then(|t| t.shape().last().copied()).unwrap_or(1))
    }

    /// The loss of a batch, given the outputs of the program.
    pub(crate) fn compute(&self, outputs: &[Option<Tensor>], batch: &Batch) -> Done<Computed> {
        let output = outputs.get(self.output).and_then(Option::as_ref);
        let output = output.filter(|t| t.is_floating_point()).ok_or_else(|| {
            Refusal::because(format!(
                "output {} is not a floating-point tensor; choose another with --loss-output",
                self.output
            ))
        })?;
        let samples = batch.index.len() as f64;
        let whole = |mean: Tensor| Computed {
            loss: BatchLoss { mean, count: samples },
            read: output.clone(),
            labels: batch.target.clone(),
        };
        let name = match &self.choice {
            LossChoice::Named(name) => *name,
            LossChoice::Output => {
                let mean = if output.numel() == 1 { output.try_reshape([0i64; 0])? } else { output.try_mean()? };
                if output.shape().len() > 1 && output.numel() > 1 {
                    let message = format!(
                        "--loss output: expected a scalar loss, or one value per sample, found shape {:?}; choose an output with --loss-output",
                        output.shape()
                    );
                    return Err(Refusal::because(message));
                }
                return Ok(whole(mean));
            }
            LossChoice::Program(_) => return Ok(whole(self.by_program(outputs, batch)?)),
        };
        let target = batch.target.as_ref().ok_or_else(|| Refusal::because("this loss needs labels"))?;
        if matches!(name, LossName::CrossEntropy | LossName::Nll) {
            return self.of_classes(name, output, target);
        }
        let target = alike(output, target)?;
        let mean = match name {
            LossName::Mse => ops::mse_loss(output, &target, MEAN)?,
            LossName::L1 => ops::l1_loss(output, &target, MEAN)?,
            LossName::SmoothL1 => ops::smooth_l1_loss(output, &target, MEAN, 1.0)?,
            _ => ops::binary_cross_entropy_with_logits(output, &target, None, None, MEAN)?,
        };
        let count = output.numel() as f64;
        Ok(Computed { loss: BatchLoss { mean, count }, read: output.clone(), labels: Some(target) })
    }

    fn of_classes(&self, name: LossName, output: &Tensor, target: &Tensor) -> Done<Computed> {
        let classes = *output
            .shape()
            .last()
            .ok_or_else(|| Refusal::because("the output is a scalar and has no class dimension"))?;
        let rows = output.try_reshape([-1, classes as i64])?;
        let labels = class_labels(self.form, target, classes)?;
        if self.form == Form::Probabilities {
            if name == LossName::Nll {
                return Err(Refusal::because(
                    "nll takes class indices as labels, found probabilities; use cross_entropy",
                ));
            }
            let labels = labels.try_to_dtype(rows.dtype())?;
            let weights = self.weights.as_ref().map(|w| w.try_to_dtype(rows.dtype())).transpose()?;
            let mean = ops::cross_entropy_loss(&rows, &labels, weights.as_ref(), MEAN, IGNORE.into(), self.smoothing)?;
            let best = ops::argmax(&labels, Some(-1), false)?;
            let count = rows.shape()[0] as f64;
            return Ok(Computed { loss: BatchLoss { mean, count }, read: rows, labels: Some(best) });
        }
        let labels = labels.try_reshape([-1])?;
        if labels.numel() != rows.shape()[0] {
            let (n, m) = (labels.numel(), rows.shape()[0]);
            let message = format!(
                "there are {n} labels for {m} rows of {classes} classes; labels are class indices, one for each row"
            );
            return Err(Refusal::because(message));
        }
        // Outputs in reduced precision (autocast) are converted to full precision before they are summed, as in PyTorch's losses.
        let weights = self
            .weights
            .as_ref()
            .map(|w| w.try_to_dtype(if rows.dtype() == DType::F64 { DType::F64 } else { DType::F32 }))
            .transpose()?;
        let rows = if weights.is_some() && !matches!(rows.dtype(), DType::F32 | DType::F64) {
            rows.try_to_dtype(DType::F32)?
        } else {
            rows
        };
        let plain = weights.is_none() && self.smoothing == 0.0 && matches!(output.dtype(), DType::F32 | DType::F64);
        let mean = match name {
            LossName::CrossEntropy if plain && is_grad_enabled() && output.requires_grad() => {
                cross_entropy_of_classes(output, &labels, IGNORE)?
            }
            LossName::Nll => ops::nll_loss_nd(&rows, &labels, weights.as_ref(), MEAN, IGNORE.into())?,
            _ => ops::cross_entropy_loss(&rows, &labels, weights.as_ref(), MEAN, IGNORE.into(), self.smoothing)?,
        };
        let count = self.weigh(&labels.try_to_vec::<i64>()?)?;
        Ok(Computed { loss: BatchLoss { mean, count }, read: rows, labels: Some(labels) })
    }

    /// PyTorch's denominator: the number of labels that are not ignored, each weighted by its class.
    fn weigh(&self, labels: &[i64]) -> Done<f64> {
        let counted = labels.iter().filter(|l| **l != IGNORE);
        Ok(match &self.weights {
            None => counted.count() as f64,
            Some(w) => {
                let w = w.try_to_vec::<f64>()?;
                counted.map(|&l| usize::try_from(l).ok().and_then(|l| w.get(l)).copied().unwrap_or(0.0)).sum()
            }
        })
    }

    /// The loss program takes the outputs in order, the one that was chosen first, and then the labels, as many as it has
    /// inputs.
    fn by_program(&self, outputs: &[Option<Tensor>], batch: &Batch) -> Done<Tensor> {
        let program = self.program.as_ref().expect("it was loaded");
        let wanted = program.tensor_inputs().map_err(Refusal::because)?.len();
        let chosen = outputs.get(self.output).into_iter().flatten();
        let others = outputs.iter().enumerate().filter(|(k, _)| *k != self.output).filter_map(|(_, t)| t.as_ref());
        let from_model = wanted.saturating_sub(usize::from(batch.target.is_some()));
        let mut inputs: Vec<Tensor> = chosen.chain(others).take(from_model).cloned().collect();
        inputs.extend(batch.target.clone());
        if inputs.len() != wanted {
            let message = format!(
                "the loss program takes {wanted} tensors: outputs of the program, then labels; there are {}",
                inputs.len()
            );
            return Err(Refusal::because(message));
        }
        let results = program.run(&inputs).map_err(|e| Refusal::because(format!("the loss program: {e}")))?;
        match results.first() {
            Some(Value::Tensor(t)) if t.numel() == 1 && t.is_floating_point() => Ok(t.try_reshape([0i64; 0])?),
            _ => Err(Refusal::because("the first result of the loss program must be a floating-point scalar")),
        }
    }

    /// The loss of every sample of a batch, where it can be computed.
    pub(crate) fn by_sample(&self, computed: &Computed, samples: usize) -> Done<Option<Vec<f64>>> {
        let LossChoice::Named(name) = self.choice else { return Ok(None) };
        let Some(labels) = &computed.labels else { return Ok(None) };
        let read = computed.read.try_detach()?;
        let each = no_grad(|| match name {
            LossName::CrossEntropy => {
                let rows = read.try_to_dtype(DType::F32)?;
                ops::cross_entropy_loss(&rows, labels, None, NONE, IGNORE.into(), 0.0)
            }
            LossName::Nll => ops::nll_loss_nd(&read.try_to_dtype(DType::F32)?, labels, None, NONE, IGNORE.into()),
            LossName::Mse => ops::mse_loss(&read, labels, NONE),
            LossName::L1 => ops::l1_loss(&read, labels, NONE),
            LossName::SmoothL1 => ops::smooth_l1_loss(&read, labels, NONE, 1.0),
            LossName::BceWithLogits => ops::binary_cross_entropy_with_logits(&read, labels, None, None, NONE),
        })?;
        let each = each.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?;
        if samples == 0 || !each.len().is_multiple_of(samples) {
            return Ok(None);
        }
        let width = (each.len() / samples).max(1);
        // Labels that are ignored have no loss, and do not make a sample easier.
        let counts = |k: usize| -> Done<f64> {
            let part = labels.try_reshape([-1])?.try_narrow(0, k * width, width)?;
            if part.dtype() != DType::I64 {
                return Ok(width as f64);
            }
            Ok(part.try_to_vec::<i64>()?.iter().filter(|l| **l != IGNORE).count().max(1) as f64)
        };
        let mean = |(k, c): (usize, &[f64])| Ok(c.iter().sum::<f64>() / if width > 1 { counts(k)? } else { 1.0 });
        Ok(Some(each.chunks(width).enumerate().map(mean).collect::<Done<_>>()?))
    }

    /// An accumulator for the metrics of this loss; the first batch determines the number of classes.
    pub(crate) fn tally(&self) -> Tally {
        match self.choice {
            LossChoice::Named(LossName::CrossEntropy | LossName::Nll) => Tally::Classes(None),
            LossChoice::Named(LossName::BceWithLogits) => Tally::YesNo(Binary::new()),
            LossChoice::Named(_) => Tally::Numbers(Regression::new()),
            _ => Tally::LossOnly,
        }
    }

    /// Adds a batch to the accumulator and returns the predicted classes, if there are classes.
    pub(crate) fn observe(&self, tally: &mut Tally, computed: &Computed) -> Done<Option<Vec<i64>>> {
        let Some(labels) = &computed.labels else { return Ok(None) };
        match tally {
            Tally::Classes(all) => {
                let classes = computed.read.shape()[1];
                let all = all.get_or_insert_with(|| Classification::new(classes, self.top_k));
                Ok(Some(all.update(&computed.read, labels, IGNORE)?))
            }
            Tally::YesNo(all) => Ok(all.update(&computed.read, labels).map(|()| None)?),
            Tally::Numbers(all) => Ok(all.update(&computed.read, labels).map(|()| None)?),
            Tally::LossOnly => Ok(None),
        }
    }
}

/// Metrics of a pass, accumulated batch by batch.
pub(crate) enum Tally {
    /// One class out of several.
    Classes(Option<Classification>),
    /// Independent labels.
    YesNo(Binary),
    /// Numbers.
    Numbers(Regression),
    /// Nothing but the loss.
    LossOnly,
}

/// The position of the output the loss is computed from.
fn pick_output(options: &ObjectiveOptions, subject: &Subject, notes: &mut Vec<String>) -> Done<usize> {
    let names = subject.outputs();
    let floats: Vec<usize> = match subject {
        Subject::Digits(_) => vec![0],
        Subject::Program(m) => (0..names.len())
            .filter(|k| m.output_meta(*k).is_some_and(|t| t.dtype.dtype().is_some_and(DType::is_floating_point)))
            .collect(),
    };
    let shown = || names.iter().enumerate().map(|(k, n)| format!("{k} ({})", plain(n))).collect::<Vec<_>>().join(", ");
    let Some(wanted) = &options.loss_output else {
        let Some(first) = floats.first() else {
            return Err(Refusal::because("the program has no floating-point output"));
        };
        if floats.len() > 1 {
            notes.push(format!(
                "the loss is computed from output {first} ({}) of {}; use --loss-output to choose another",
                plain(&names[*first]),
                shown()
            ));
        }
        return Ok(*first);
    };
    let position = wanted.parse::<usize>().ok().filter(|k| *k < names.len());
    position.or_else(|| names.iter().position(|n| n == wanted)).ok_or_else(|| {
        Refusal::because(format!("--loss-output {}: the program has no such output; it has {}", plain(wanted), shown()))
    })
}

/// Labels in the shape and dtype of the output.
fn alike(output: &Tensor, target: &Tensor) -> Done<Tensor> {
    if target.numel() != output.numel() {
        let (t, o) = (target.shape(), output.shape());
        return Err(Refusal::because(format!(
            "expected labels of the output's shape, {o:?}, found {t:?}; class indices need --loss cross_entropy or nll"
        )));
    }
    let sizes: Vec<i64> = output.shape().iter().map(|&n| n as i64).collect();
    Ok(target.try_reshape(sizes)?.try_to_dtype(output.dtype())?)
}

/// How to interpret these labels, and a note for the user where that is not obvious.
fn form(target: &Tensor, classes: usize) -> Done<(Form, Option<String>)> {
    let rows = target.shape().len() > 1 && target.shape().last() == Some(&classes) && classes > 1;
    let recognized = format!("labels are one-hot rows of {classes} classes; converted to class indices");
    match target.dtype() {
        found if found.is_integer() || found == DType::Bool => {
            if rows && is_one_hot(target)? {
                return Ok((Form::OneHot, Some(recognized)));
            }
            let converted = !matches!(target.dtype(), DType::I64 | DType::U8);
            Ok((Form::Indices, converted.then(|| format!("labels are converted from {} to int64", target.dtype()))))
        }
        dtype if dtype.is_floating_point() && rows => Ok(match is_one_hot(target)? {
            true => (Form::OneHot, Some(recognized)),
            false => (Form::Probabilities, Some("labels are probabilities of the classes".into())),
        }),
        dtype => Err(Refusal::because(format!(
            "expected class indices (integers), one-hot rows or probabilities [samples, {classes}] as labels, found {dtype} {:?}; convert them with .astype(\"int64\")",
            target.shape()
        ))),
    }
}

/// Labels as class indices, or as rows of probabilities.
fn class_labels(form: Form, target: &Tensor, classes: usize) -> Done<Tensor> {
    match form {
        Form::Indices => Ok(target.try_to_dtype(DType::I64)?),
        Form::Probabilities => Ok(target.try_reshape([-1, classes as i64])?),
        Form::OneHot if target.shape().last() == Some(&classes) && is_one_hot(target)? => {
            Ok(ops::argmax(&target.try_to_dtype(DType::F32)?, Some(-1), false)?)
        }
        Form::OneHot => Err(Refusal::because(format!(
            "expected one-hot rows of {classes} classes as labels, as in the training data, found {} {:?}",
            target.dtype(),
            target.shape()
        ))),
    }
}

/// Whether every row has a single one and otherwise zeros.
fn is_one_hot(target: &Tensor) -> Done<bool> {
    let classes = target.shape().last().copied().unwrap_or(1);
    let values = target.try_to_dtype(DType::F64)?.try_to_vec::<f64>()?;
    let hot = |row: &[f64]| row.iter().all(|v| *v == 0.0 || *v == 1.0) && row.iter().sum::<f64>() == 1.0;
    Ok(!values.is_empty() && values.chunks(classes).all(hot))
}
