//! `firebrand train`: trains the built-in model on the bundled digits, or an exported program on data; one loop for both.
//!
//! The same seed gives the same results for any number of threads, and also when the run was interrupted (by a signal, by
//! `kill -9`, by a power failure) and continued with `--resume`. Progress goes to standard error.

pub(crate) mod config;
pub(crate) mod data;
mod dry_run;
pub(crate) mod evaluate;
pub(crate) mod live;
mod model;
pub(crate) mod objective;
mod optimizer;
mod options;
pub(crate) mod report;
pub(crate) mod run_folder;
pub(crate) mod subject;

pub(crate) use options::Options;

use crate::refusal::{Done, Refusal, note, say};
use config::Settings;
use data::{Batch, Samples};
use evaluate::{Evaluation, Pass, blame};
use firebrand::autograd::GraphView;
use firebrand::data::{DataLoader, Dataset, LoaderOptions};
use firebrand::digits;
use firebrand::graph::SaveOptions;
use firebrand::io::{Output, check_outputs, read_safetensors};
use firebrand::prelude::*;
use firebrand::train::{Finish, Metrics, TrainOptions, Trainer};
use live::{Live, metric_text};
use objective::Objective;
use run_folder::{Facts, RunFolder, SCHEMA, Writer};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Instant;
use subject::Subject;

/// Default number of samples per forward pass.
const BATCH: usize = 32;

/// Everything a run needs, checked as far as it can be before the first step.
struct Prepared {
    subject: Subject,
    train: Samples,
    val: Option<Samples>,
    objective: Objective,
    /// Parameters that this run froze.
    frozen: Vec<Parameter>,
    batch: usize,
    /// Whether the last, smaller batch of an epoch is skipped because the program does not accept it.
    drop_last: bool,
}

impl Prepared {
    fn new(options: &Options) -> Done<Prepared> {
        data::seed(options.seed);
        let subject = subject::load(options)?;
        let (train, val) = samples(options, &subject)?;
        for text in &train.notes {
            note!("{text}");
        }
        let objective = Objective::new(&options.objective, &subject, &train)?;
        for text in &objective.notes {
            note!("{text}");
        }
        let frozen = subject::freeze(options, subject.module())?;
        let batch = batch_size(options, &subject, train.len())?;
        let (least, _) = subject.batch_range()?;
        let rest = train.len() % batch;
        let drop_last = rest > 0 && rest < least;
        if drop_last {
            note!(
                "the program only accepts batches of {least}: {rest} of {} samples are skipped in each epoch",
                train.len()
            );
        }
        Ok(Prepared { subject, train, val, objective, frozen, batch, drop_last })
    }

    fn loader(&self, options: &Options) -> DataLoader<Samples> {
        DataLoader::new(
            self.train.clone(),
            LoaderOptions {
                shuffle: true,
                drop_last: self.drop_last,
                num_workers: options.workers as usize,
                ..LoaderOptions::new(self.batch)
            },
        )
    }

    /// A pass over the validation samples.
    fn evaluate(&self, stop: Option<&std::sync::atomic::AtomicBool>) -> Done<Option<Evaluation>> {
        let Some(data) = &self.val else { return Ok(None) };
        let pass = Pass { subject: &self.subject, objective: &self.objective, data, batch_size: self.batch, stop };
        pass.run().map(Some)
    }

    fn facts(&self, options: &Options, steps_per_epoch: usize, groups: Vec<String>) -> Done<Facts> {
        let count = |trained: bool| {
            let all = self.subject.module().parameters();
            all.iter().filter(|p| !trained || p.requires_grad()).map(|p| p.numel()).sum()
        };
        let data = options.data.data.as_ref().map_or("bundled digits, 8x8".into(), |p| p.display().to_string());
        Ok(Facts {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            model: self.subject.description(options),
            data,
            train_samples: self.train.len(),
            val_samples: self.val.as_ref().map_or(0, Dataset::len),
            batch_size: self.batch,
            steps_per_epoch,
            parameters: count(false),
            trainable: count(true),
            groups,
            threads: firebrand::num_threads(),
            cpu: report::cpu(),
            model_checksum: options.model.as_deref().map(file_checksum).transpose()?.unwrap_or_default(),
            data_checksum: {
                let val = self.val.as_ref().map(Samples::fingerprint).transpose()?.unwrap_or(0);
                format!("{:016x}", self.train.fingerprint()? ^ val.rotate_left(1))
            },
        })
    }
}

/// A checksum of a file's content.
fn file_checksum(path: &Path) -> Done<String> {
    use std::hash::Hasher;
    use std::io::Read;
    let (mut file, _) = firebrand::io::open_regular(path)?;
    let (mut hash, mut buffer) = (data::Fnv(0), vec![0; 1 << 16]);
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(format!("{:016x}", hash.finish()));
        }
        hash.write(&buffer[..n]);
    }
}

/// The samples to train and to validate with.
fn samples(options: &Options, subject: &Subject) -> Done<(Samples, Option<Samples>)> {
    let Some(path) = &options.data.data else {
        let of = |d: digits::Digits| -> Done<Samples> {
            let names = (0..digits::CLASSES).map(|c| c.to_string()).collect();
            Ok(Samples::of_arrays(vec![d.images.try_view([-1, 1, 8, 8])?], Some(d.labels), Some(names)))
        };
        return Ok((of(digits::train())?, Some(of(digits::test())?)));
    };
    let inputs = subject.inputs()?;
    let labels = Objective::needs_labels(options.objective.loss.as_ref());
    let train = Samples::read(path, &options.data, &inputs, labels)?;
    if let Some(share) = options.val_split {
        let (train, val) = train.split(share, options.seed)?;
        return Ok((train, Some(val)));
    }
    let val = options.val_data.as_ref().map(|p| Samples::read(p, &options.data, &inputs, labels)).transpose()?;
    if let (Some(val), Some(names)) = (&val, &train.classes)
        && val.classes.as_ref() != Some(names)
    {
        let shown = |n: &Option<Vec<String>>| n.as_ref().map_or(String::new(), |n| n.join(", "));
        let message =
            format!("--val-data has different classes ({}) than --data ({})", shown(&val.classes), names.join(", "));
        return Err(Refusal::because(message));
    }
    Ok((train, val.map(Samples::for_evaluation)))
}

/// The requested batch size, if the program accepts it; without a request, one that it accepts.
fn batch_size(options: &Options, subject: &Subject, samples: usize) -> Done<usize> {
    let (least, most) = subject.batch_range()?;
    if least > most || least > samples {
        let message = format!("the program needs batches of at least {least} samples, the data has {samples}");
        return Err(Refusal::because(message));
    }
    let allowed = match (least, most) {
        (a, b) if a == b => format!("batches of {a}"),
        (a, usize::MAX) => format!("batches of at least {a}"),
        (a, b) => format!("batches of {a} to {b}"),
    };
    match options.batch_size.map(|n| n as usize) {
        Some(n) if n < least || n > most => {
            let way = if least == most { format!("--batch-size {least}") } else { "a size in this range".into() };
            let more = if options.accumulate == 1 { ", with --accumulate K for larger steps" } else { "" };
            Err(Refusal::because(format!("--batch-size {n}: the program was exported for {allowed}; use {way}{more}")))
        }
        Some(n) => Ok(n),
        None => {
            let n = BATCH.clamp(least, most);
            if n != BATCH {
                note!("the program was exported for {allowed}: using a batch size of {n}");
            }
            Ok(n)
        }
    }
}

/// Trains, and writes the model and the report.
pub(crate) fn run(options: &Options, settings: &Settings, command: &clap::Command, quiet: bool) -> Done {
    let _saved = options.adapt.saved()?;
    options.check()?;
    // Set up first: a signal while data is being read stops the run before its first step.
    let stop = crate::signals::stop_on_interrupt();
    if let Some(path) = &options.output {
        check_outputs([path])?;
    }
    if let (Some(path), false, false) = (&options.out, options.resume, options.dry_run) {
        RunFolder::check_unused(path)?;
    }
    let prepared = Prepared::new(options)?;
    if options.dry_run {
        return dry_run::run(options, &prepared);
    }
    let module = prepared.subject.module();
    let loader = prepared.loader(options);
    let steps_per_epoch = loader.len().div_ceil(options.accumulate as usize);
    let steps = steps_per_epoch as u64 * u64::from(options.epochs);
    let (optimizer, groups) = optimizer::optimizer(options, module)?;
    let folder = match (&options.out, options.resume) {
        (out, true) => Some(RunFolder::existing(out.as_deref())?),
        (None, false) if options.model.is_some() => None,
        (out, false) => Some(RunFolder::make(out.as_deref())?),
    };
    let output = match (&options.model, &options.output, &folder) {
        (None, ..) => None,
        (_, Some(path), _) => Some(path.clone()),
        (_, None, folder) => folder.as_ref().map(|f| f.file("model.pt2")),
    };
    let facts = prepared.facts(options, steps_per_epoch, groups)?;
    if let Some(folder) = &folder {
        check_outputs(output.clone().into_iter().chain([folder.file("report.html")]))?;
        if options.resume {
            same_inputs(&folder.facts()?, &facts)?;
            folder.clean();
        }
        folder.begin(settings, command, &facts)?;
    }
    let watch = options.watch.clone().unwrap_or_else(|| "val_loss".into());
    let lower = ["loss", "mae", "rmse", "perplexity"].iter().any(|m| watch.ends_with(m));
    let settings = TrainOptions {
        epochs: options.epochs as usize,
        accumulate: options.accumulate as usize,
        clip_norm: options.clip,
        autocast: options.bf16.then_some(DType::BF16),
        ema: options.ema,
        schedule_every_step: true,
        checkpoint: folder.as_ref().map(RunFolder::checkpoint),
        checkpoint_every: options.checkpoint_every,
        checkpoint_frozen: false,
        best: folder.as_ref().filter(|_| prepared.val.is_some()).map(|f| f.file("best.safetensors")),
        patience: options.patience.map(|n| n as usize),
        watch: (watch.clone(), lower),
        stop: stop.clone(),
    };
    let began = Instant::now();
    let live = Live::new(
        quiet,
        steps,
        options.epochs as usize,
        prepared.batch,
        options.accumulate as usize,
        facts.train_samples,
    );
    let mut trainer =
        Trainer::new(module, optimizer, settings).schedule(optimizer::schedule(options, steps)).watch(live.clone());
    if let Some(folder) = &folder {
        trainer = trainer.watch(Writer::new(folder)?);
    }
    if options.resume {
        trainer.resume()?;
    }
    let (graph, trouble) = (RefCell::new(None), RefCell::new(None));
    let wants_graph = folder.is_some();
    let loss = |batch: &Batch| {
        let outputs = prepared.subject.forward(batch)?;
        let computed = prepared.objective.compute(&outputs, batch)?;
        let mean = &computed.loss.mean;
        if !mean.requires_grad() {
            return Err(Error::user("the loss does not depend on any trainable parameter"));
        }
        // Drawn before the backward pass frees the saved tensors.
        if wants_graph && graph.borrow().is_none() {
            let names = module.named_parameters();
            let view = GraphView::of(&[mean]).all_named(names.iter().map(|(n, p)| (n.as_str(), p.tensor())));
            *graph.borrow_mut() = Some(report::graph(&view));
        }
        if computed.loss.count > 0.0 && !firebrand::ops::item(mean)?.to_f64().is_finite() {
            *trouble.borrow_mut() = Some(blame(&prepared.objective, &computed, batch, &prepared.train)?);
        }
        Ok(computed.loss)
    };
    let validate = || {
        let Some(found) = prepared.evaluate(Some(&stop))? else { return Ok(Metrics::new()) };
        let metrics: Metrics = found.metrics.into_iter().map(|(name, v)| (format!("val_{name}"), v)).collect();
        if !metrics.contains_key(&watch) {
            let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
            return Err(Error::user(format!(
                "--watch {watch}: there is no such metric; there are {}",
                names.join(", ")
            )));
        }
        Ok(metrics)
    };
    let finish = trainer.fit(&loader, loss, validate);
    live.finish();
    let finish = finish.map_err(|e| match trouble.take() {
        Some(where_) => Refusal::because(format!("{e} ({where_})")),
        None => Refusal::from(e),
    })?;
    let progress = trainer.progress().clone();
    if finish == Finish::Stopped {
        let advice = match &folder {
            Some(f) => format!(
                "stopped after step {}; continue with the same command and --resume (run {})",
                progress.step,
                f.path().display()
            ),
            None => "stopped; nothing was saved, because no --out DIR was given".into(),
        };
        return Err(Refusal::Stopped(advice));
    }
    trainer.swap_average()?;
    let mut written_epoch = progress.epoch;
    if let (true, Some(folder), Some(epoch)) = (options.best, &folder, progress.best_epoch) {
        module.load_state_dict(&read_safetensors(folder.file("best.safetensors"))?, false)?;
        written_epoch = epoch;
    }
    let done = Finished {
        options,
        facts: &facts,
        prepared: &prepared,
        folder: folder.as_ref(),
        output,
        history: &progress.history,
        graph: graph.take(),
        seconds: began.elapsed().as_secs_f64(),
        early: finish == Finish::Early,
        written_epoch,
        best: progress.best.zip(progress.best_epoch),
        watch: &watch,
    };
    done.write()
}

/// Returns an error if a run is resumed with a different program or different data than it started with.
fn same_inputs(before: &Facts, now: &Facts) -> Done {
    for (what, a, b) in [
        ("the program", &before.model_checksum, &now.model_checksum),
        ("the data", &before.data_checksum, &now.data_checksum),
    ] {
        if a != b {
            let message = format!(
                "{what} has changed since the run started; restore it, or start a new run in another directory"
            );
            return Err(Refusal::because(message));
        }
    }
    Ok(())
}

/// A finished run.
struct Finished<'a> {
    options: &'a Options,
    facts: &'a Facts,
    prepared: &'a Prepared,
    folder: Option<&'a RunFolder>,
    output: Option<PathBuf>,
    history: &'a [Metrics],
    graph: Option<String>,
    seconds: f64,
    early: bool,
    /// The epoch whose weights are written.
    written_epoch: usize,
    /// Best watched metric, and its epoch.
    best: Option<(f64, usize)>,
    watch: &'a str,
}

impl Finished<'_> {
    /// Writes the model and the report, which appear together, and prints a summary.
    fn write(self) -> Done {
        let Finished { options, prepared, history, .. } = self;
        let module = prepared.subject.module();
        module.eval();
        let evaluated = no_grad(|| match options.bf16 {
            true => firebrand::autograd::autocast(DType::BF16, || prepared.evaluate(None)),
            false => prepared.evaluate(None),
        })?;
        for p in &prepared.frozen {
            p.try_set_requires_grad(true)?;
        }
        let mut outputs = Vec::new();
        if let (Some(path), Subject::Program(program)) = (&self.output, &prepared.subject) {
            outputs.push(program.program().stage_with(path, SaveOptions::default()).map_err(Refusal::because)?);
        }
        if let Some(folder) = self.folder {
            if let Subject::Digits(model) = &prepared.subject {
                let state = model.state_dict();
                outputs.push(firebrand::io::stage_safetensors(folder.file("model.safetensors"), state.iter())?);
            }
            let page = report::Page {
                facts: self.facts,
                settings: &config::Settings::read(&folder.file(config::FILE), &crate::train_command())?,
                history,
                evaluated: evaluated.as_ref(),
                data: prepared.val.as_ref(),
                parameters: &module
                    .named_parameters()
                    .iter()
                    .map(|(n, p)| report::ParameterRow::new(n, p, &prepared.frozen))
                    .collect::<Vec<_>>(),
                graph: self.graph.as_deref(),
                seconds: self.seconds,
                written_epoch: self.written_epoch,
            };
            outputs.push(folder.stage_report(&report::page(&page)?)?);
        }
        Output::commit_all(outputs)?;
        self.say(evaluated.as_ref())
    }

    fn say(&self, evaluated: Option<&Evaluation>) -> Done {
        let last = self.history.last();
        let report = self.folder.map(|f| f.file("report.html"));
        if self.options.json {
            let shown = |p: &Option<PathBuf>| p.as_ref().map(|p| p.display().to_string());
            let value = serde_json::json!({
                "schema": "firebrand.train/1",
                "finish": if self.early { "early" } else { "done" },
                "epochs": self.history.len(),
                "written_epoch": self.written_epoch,
                "seconds": self.seconds,
                "metrics": last,
                "best": self.best.map(|(v, epoch)| serde_json::json!({"metric": self.watch, "value": v, "epoch": epoch})),
                "evaluation": evaluated.map(|e| &e.metrics),
                "output": shown(&self.output),
                "report": shown(&report),
            });
            return Ok(say!("{}", serde_json::to_string_pretty(&value).map_err(Refusal::because)?)?);
        }
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let epochs = self.history.len();
        let early = if self.early { " (stopped early)" } else { "" };
        let loss = last.and_then(|m| m.get("train_loss")).copied().unwrap_or(f64::NAN);
        let mut line = match &self.output {
            Some(path) => format!("{}: loss {loss:.6}", path.display()),
            None => format!("loss {loss:.6}"),
        };
        if let Some(e) = evaluated {
            for (name, v) in &e.metrics {
                line += &format!(", val_{name} {}", metric_text(name, *v));
            }
        }
        say!("{line} after {epochs} epoch{}{early} in {:.1} s", plural(epochs), self.seconds)?;
        if self.options.best {
            say!("weights of epoch {}, the best by {}", self.written_epoch, self.watch)?;
        }
        if let Some(path) = report {
            say!("report {}", path.display())?;
        }
        Ok(())
    }
}
