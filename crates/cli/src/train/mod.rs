//! `firebrand train`: trains the built-in model on the bundled digits, or an exported program on data; one loop for both.
//!
//! The same seed gives the same results for any number of threads, and also when the run was interrupted (by a signal, by
//! `kill -9`, by a power failure) and continued with `--resume`. Progress goes to standard error.

pub(crate) mod config;
pub(crate) mod data;
mod dry_run;
pub(crate) mod evaluate;
mod finished;
pub(crate) mod live;
mod model;
pub(crate) mod objective;
mod optimizer;
mod options;
mod prepared;
mod ranks;
pub(crate) mod report;
pub(crate) mod run_folder;
pub(crate) mod subject;

pub(crate) use options::Options;
pub(crate) use ranks::JoinOptions;

use crate::refusal::{Done, Refusal};
use config::Settings;
use data::{Batch, Samples};
use evaluate::blame;
use finished::Finished;
use firebrand::autograd::GraphView;
use firebrand::data::DataLoader;
use firebrand::dist::DistributedDataParallel;
use firebrand::io::{check_outputs, read_safetensors};
use firebrand::optim::Optimizer;
use firebrand::prelude::*;
use firebrand::train::{Finish, Metrics, TrainOptions, Trainer};
use live::Live;
use prepared::Prepared;
use ranks::Ranks;
use run_folder::{Facts, RunFolder, Writer};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// How the command was called, beside its own arguments.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// No progress.
    pub(crate) quiet: bool,
    /// The number of threads is given.
    pub(crate) threads: bool,
}

/// Trains, and writes the model and the report.
pub(crate) fn run(options: &Options, settings: &Settings, command: &clap::Command, call: Call) -> Done {
    let _saved = options.adapt.saved()?;
    options.check()?;
    // Set up first: a signal while data is being read stops the run before its first step.
    let stop = crate::signals::stop_on_interrupt();
    let ranks = Ranks::join(&options.ranks, call.threads)?;
    let begun = ranks.together(Begun::new(options, settings, command, &ranks))?;
    let Some(begun) = begun else { return Ok(()) };
    let folder = begun.folder.clone();
    begun.train(options, &ranks, call.quiet, &stop).map_err(|e| match e {
        Refusal::Stopped(_) if !ranks.is_main() => Refusal::Said(crate::signals::exit_code()),
        Refusal::Stopped(_) | Refusal::ReaderGone => e,
        e => {
            folder.iter().for_each(RunFolder::abandon);
            ranks.failed(e)
        }
    })
}

/// A run that can take its first step.
struct Begun {
    prepared: Prepared,
    loader: DataLoader<Samples>,
    optimizer: Box<dyn Optimizer>,
    steps: u64,
    /// The folder, on rank 0.
    folder: Option<RunFolder>,
    output: Option<PathBuf>,
    facts: Facts,
}

impl Begun {
    /// Reads and checks everything, and begins the folder; `None` if that was all that is wanted.
    fn new(options: &Options, settings: &Settings, command: &clap::Command, ranks: &Ranks) -> Done<Option<Begun>> {
        if options.dry_run && ranks.are_many() {
            return Err(Refusal::Usage("--dry-run is for one process: start it without mpirun".into()));
        }
        if let (Some(path), true) = (&options.output, ranks.is_main()) {
            check_outputs([path])?;
        }
        if let (Some(path), false, false, true) = (&options.out, options.resume, options.dry_run, ranks.is_main()) {
            RunFolder::check_unused(path)?;
        }
        let prepared = Prepared::new(options, shards(options, ranks)?)?;
        if options.dry_run {
            return dry_run::run(options, &prepared).map(|()| None);
        }
        let loader = prepared.loader(options);
        let steps_per_epoch = loader.len().div_ceil(options.accumulate as usize);
        let steps = steps_per_epoch as u64 * u64::from(options.epochs);
        let (optimizer, groups) = optimizer::optimizer(options, prepared.subject.module())?;
        let facts = prepared.facts(options, steps_per_epoch, groups)?;
        let mut begun =
            Begun { prepared, loader, optimizer, steps, folder: None, output: options.output.clone(), facts };
        if !ranks.is_main() {
            return Ok(Some(begun));
        }
        let folder = match (&options.out, options.resume) {
            (out, true) => Some(RunFolder::existing(out.as_deref())?),
            (None, false) if options.model.is_some() => None,
            (out, false) => Some(RunFolder::make(out.as_deref())?),
        };
        if let (None, Some(folder), true) = (&begun.output, &folder, options.model.is_some()) {
            begun.output = Some(folder.file("model.pt2"));
        }
        if let Some(folder) = &folder {
            check_outputs(begun.output.clone().into_iter().chain([folder.file("report.html")]))?;
            if options.resume {
                same_inputs(&folder.facts()?, &begun.facts)?;
                folder.clean();
            }
            folder.begin(settings, command, &begun.facts)?;
        }
        Ok(Some(Begun { folder, ..begun }))
    }

    fn train(self, options: &Options, ranks: &Ranks, quiet: bool, stop: &Arc<AtomicBool>) -> Done {
        let Begun { prepared, loader, optimizer, steps, folder, output, facts } = self;
        let module = prepared.subject.module();
        // All ranks know where the checkpoint is, and rank 0 writes it.
        let place = folder.as_ref().map_or(String::new(), |f| f.path().display().to_string());
        let place = Some(ranks.text_of_main(&place)?).filter(|p| !p.is_empty());
        let shared = place.map(|p| RunFolder::at(Path::new(&p)));
        let watch = options.watch.clone().unwrap_or_else(|| "val_loss".into());
        let lower = ["loss", "mae", "rmse", "perplexity"].iter().any(|m| watch.ends_with(m));
        let settings = TrainOptions {
            epochs: options.epochs as usize,
            accumulate: options.accumulate as usize,
            clip_norm: options.clip,
            autocast: options.bf16.then_some(DType::BF16),
            ema: options.ema,
            schedule_every_step: true,
            checkpoint: shared.as_ref().map(RunFolder::checkpoint),
            checkpoint_every: options.checkpoint_every,
            checkpoint_frozen: false,
            best: shared.as_ref().filter(|_| prepared.val.is_some()).map(|f| f.file("best.safetensors")),
            patience: options.patience.map(|n| n as usize),
            watch: (watch.clone(), lower),
            shards: Some(prepared.shards),
            zero: options.ranks.zero == "1",
            compare_replicas: options.ranks.check_replicas,
            stop: stop.clone(),
            ..Default::default()
        };
        let began = Instant::now();
        let (epochs, accumulate) = (options.epochs as usize, options.accumulate as usize);
        let quiet = quiet || !ranks.is_main();
        let live = Live::new(quiet, steps, epochs, prepared.batch, accumulate, facts.train_samples);
        let shared_out = ranks.are_many() || prepared.shards > 1;
        if options.ranks.wire.is_some() && !shared_out {
            let why = "--wire rounds gradients that are added up, and this run has one shard";
            return Err(Refusal::because(format!("{why}: start it with mpirun, or give --shards")));
        }
        if options.ranks.check_replicas.is_some() && !ranks.are_many() {
            let why = "--check-replicas compares processes, and this run has one";
            return Err(Refusal::because(format!("{why}: start it with mpirun, or leave it out")));
        }
        let ddp = shared_out
            .then(|| DistributedDataParallel::new(module, &ranks.world, options.ranks.ddp()))
            .transpose()
            .map_err(Refusal::because)?;
        let mut trainer = Trainer::new(module, optimizer, settings)
            .schedule(optimizer::schedule(options, steps))
            .watch(ranks.counter())
            .watch(live.clone());
        if let Some(ddp) = &ddp {
            trainer = trainer.distributed(ddp);
        }
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
        // Ranks end a validation together.
        let stops = (!ranks.are_many()).then_some(&**stop);
        let validate = || {
            let Some(found) = prepared.evaluate(stops)? else { return Ok(Metrics::new()) };
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
            is_main: ranks.is_main(),
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
}

/// The number of shards: of the run that is resumed, as asked for, or one for each rank.
fn shards(options: &Options, ranks: &Ranks) -> Done<usize> {
    let asked = options.ranks.shards.map(|n| n as usize);
    let mut shards = asked.unwrap_or(ranks.world.size());
    if options.resume {
        let before = RunFolder::existing(options.out.as_deref())?.facts()?.shards;
        if asked.is_some_and(|n| n != before) {
            return Err(Refusal::because(format!(
                "--shards was {before} in the run that is resumed, and is {shards} now; leave it out, or start another run in another directory"
            )));
        }
        shards = before;
    }
    firebrand::dist::check_shards(shards, ranks.world.size()).map_err(Refusal::because)?;
    Ok(shards)
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
