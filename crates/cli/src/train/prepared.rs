//! Everything a run needs, checked as far as it can be before the first step.

use super::data::{self, Samples};
use super::evaluate::{Evaluation, Pass};
use super::objective::Objective;
use super::options::Options;
use super::report;
use super::run_folder::{Facts, SCHEMA};
use super::subject::{self, Subject};
use crate::refusal::{Done, Refusal, note};
use firebrand::data::{DataLoader, Dataset, LoaderOptions};
use firebrand::digits;
use firebrand::prelude::*;
use std::path::Path;

/// Default number of samples per forward pass.
const BATCH: usize = 32;

/// Everything a run needs, checked as far as it can be before the first step.
pub(super) struct Prepared {
    pub(super) subject: Subject,
    pub(super) train: Samples,
    pub(super) val: Option<Samples>,
    pub(super) objective: Objective,
    /// Parameters that this run froze.
    pub(super) frozen: Vec<Parameter>,
    pub(super) batch: usize,
    /// Parts of a batch that are computed on their own.
    pub(super) shards: usize,
    /// Whether the last, smaller batch of an epoch is skipped because the program does not accept it.
    drop_last: bool,
}

impl Prepared {
    pub(super) fn new(options: &Options, shards: usize) -> Done<Prepared> {
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
        let batch = batch_size(options, &subject, train.len(), shards)?;
        if options.batch_size.is_some() && batch > train.len() {
            note!(
                "--batch-size {batch}: there are only {} training samples, so an epoch is one batch of these",
                train.len()
            );
        }
        let passes = train.len().div_ceil(batch);
        if options.accumulate as usize > passes {
            note!(
                "--accumulate {}: an epoch has only {}, and a step does not reach beyond it",
                options.accumulate,
                if passes == 1 { "1 forward pass".into() } else { format!("{passes} forward passes") }
            );
        }
        let (least, _) = subject.batch_range()?;
        let rest = train.len() % batch;
        // Parts without samples are not computed; others must be large enough.
        let drop_last = rest > 0 && least > 1 && rest / shards < least;
        if drop_last {
            note!(
                "the program only accepts batches of {least}: {rest} of {} samples are skipped in each epoch",
                train.len()
            );
        }
        Ok(Prepared { subject, train, val, objective, frozen, batch, shards, drop_last })
    }

    pub(super) fn loader(&self, options: &Options) -> DataLoader<Samples> {
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
    pub(super) fn evaluate(&self, stop: Option<&std::sync::atomic::AtomicBool>) -> Done<Option<Evaluation>> {
        let Some(data) = &self.val else { return Ok(None) };
        let batch_size = self.batch.div_ceil(self.shards);
        let pass = Pass { subject: &self.subject, objective: &self.objective, data, batch_size, stop };
        pass.run().map(Some)
    }

    pub(super) fn facts(&self, options: &Options, steps_per_epoch: usize, groups: Vec<String>) -> Done<Facts> {
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
            shards: self.shards,
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

/// The batch size that is asked for, if the program takes its parts; otherwise one that it takes.
fn batch_size(options: &Options, subject: &Subject, samples: usize, shards: usize) -> Done<usize> {
    let (least, most) = subject.batch_range()?;
    let (least, most) = (least * if least > 1 { shards } else { 1 }, most.saturating_mul(shards));
    if least > most || least > samples {
        let message = format!("the program needs batches of at least {least} samples, the data has {samples}");
        return Err(Refusal::because(message));
    }
    let each = if shards > 1 { format!(" (in {shards} shards)") } else { String::new() };
    let allowed = match (least, most) {
        (a, b) if a == b => format!("batches of {a}{each}"),
        (a, usize::MAX) => format!("batches of at least {a}{each}"),
        (a, b) => format!("batches of {a} to {b}{each}"),
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
