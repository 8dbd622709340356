//! `firebrand train --dry-run`: what a run will need, from three real steps that leave nothing behind.

use super::live::bytes;
use super::optimizer;
use super::options::Options;
use super::prepared::Prepared;
use crate::refusal::{Done, Refusal, say};
use cpu_time::ProcessTime;
use firebrand::autograd::autocast;
use firebrand::data::Dataset;
use firebrand::prelude::*;
use std::time::Instant;

/// How many steps are measured.
const STEPS: usize = 3;

/// Measures, and prints.
pub(super) fn run(options: &Options, prepared: &Prepared) -> Done {
    let module = prepared.subject.module();
    module.train();
    let parameters = module.named_parameters();
    let size = |t: &Tensor| t.numel() * t.dtype().size();
    let sum = |trained: Option<bool>, f: &dyn Fn(&Tensor) -> usize| -> usize {
        let wanted = |p: &Tensor| trained.is_none_or(|t| p.requires_grad() == t);
        parameters.iter().map(|(_, p)| p.tensor()).filter(|p| wanted(p)).map(f).sum()
    };
    let (mut optimizer, groups) = optimizer::optimizer(options, module)?;
    let loader = prepared.loader(options);
    let per_epoch = loader.len().div_ceil(options.accumulate as usize);
    let steps = per_epoch * options.epochs as usize;
    let before = firebrand::memory_stats().live;
    firebrand::reset_peak_memory();
    let (mut times, mut busy) = (Vec::new(), Vec::new());
    let (mut activations, mut loss) = (0, f64::NAN);
    let mut batches = loader.iter();
    for _ in 0..STEPS {
        let (began, began_cpu) = (Instant::now(), ProcessTime::now());
        for _ in 0..options.accumulate {
            // A small set is iterated again.
            let batch = match batches.next() {
                Some(batch) => batch?,
                None => {
                    batches = loader.iter();
                    batches.next().ok_or_else(|| Refusal::because("the data has no complete batch to train on"))??
                }
            };
            let forward = || -> Done<Tensor> {
                let outputs = prepared.subject.forward(&batch)?;
                Ok(prepared.objective.compute(&outputs, &batch)?.loss.mean)
            };
            let start = firebrand::memory_stats().live;
            let mean = if options.bf16 { autocast(DType::BF16, forward)? } else { forward()? };
            activations = activations.max(firebrand::memory_stats().live.saturating_sub(start));
            loss = firebrand::ops::item(&mean)?.to_f64();
            mean.try_backward(&BackwardOptions::default())?;
        }
        optimizer.step()?;
        optimizer.zero_grad();
        times.push(began.elapsed().as_secs_f64());
        busy.push(began_cpu.elapsed().as_secs_f64());
    }
    let peak = firebrand::memory_stats().peak.saturating_sub(before);
    let state: usize = optimizer.state_dict().tensors().values().map(size).sum();
    let average = if options.ema.is_some() { sum(Some(true), &size) } else { 0 };
    let gradients = sum(Some(true), &size);
    let weights = sum(None, &size);
    let buffers: usize = module.named_buffers().iter().map(|(_, b)| size(b)).sum();
    // The first step also allocates and compiles.
    let best = |list: &[f64]| list.iter().copied().skip(usize::from(list.len() > 1)).fold(f64::INFINITY, f64::min);
    let (step, cpu) = (best(&times), best(&busy));
    let (all, trained) = (sum(None, &|t| t.numel()), sum(Some(true), &|t| t.numel()));
    if options.json {
        let value = serde_json::json!({
            "schema": "firebrand.dry_run/1",
            "parameters": all, "trainable": trained,
            "bytes": {
                "weights": weights, "buffers": buffers, "gradients": gradients, "optimizer": state, "average": average,
                "activations": activations, "measured_peak": peak,
            },
            "train_samples": prepared.train.len(), "val_samples": prepared.val.as_ref().map_or(0, Dataset::len),
            "batch_size": prepared.batch, "accumulate": options.accumulate,
            "steps_per_epoch": per_epoch, "steps": steps,
            "seconds_per_step": step, "cpu_seconds_per_step": cpu, "seconds": step * steps as f64, "first_loss": loss, "groups": groups,
        });
        return Ok(say!("{}", serde_json::to_string_pretty(&value).map_err(Refusal::because)?)?);
    }
    say!("parameters    {all}, {trained} trainable ({:.2}%)", 100.0 * trained as f64 / all.max(1) as f64)?;
    for g in &groups {
        let shown: String = g.chars().take(100).collect();
        say!("              {shown}{}", if shown.len() < g.len() { "…" } else { "" })?;
    }
    let val = prepared.val.as_ref().map_or(String::new(), |v| format!(", {} for validation", v.len()));
    say!("samples       {}{val}", prepared.train.len())?;
    say!(
        "steps         {steps}: {} epochs of {per_epoch}, {} samples each",
        options.epochs,
        prepared.batch * options.accumulate as usize
    )?;
    say!("memory        weights {}", bytes(weights))?;
    if buffers > 0 {
        say!("              buffers {}", bytes(buffers))?;
    }
    say!("              gradients {}", bytes(gradients))?;
    say!("              optimizer {}", bytes(state))?;
    if average > 0 {
        say!("              average {}", bytes(average))?;
    }
    say!("              activations {} per forward pass", bytes(activations))?;
    say!(
        "              peak {}, measured over {} steps, on top of the mapped weights and the data",
        bytes(peak + average),
        times.len()
    )?;
    say!("time          {:.1} ms per step, {} in total without validation", 1e3 * step, duration(step * steps as f64))?;
    Ok(say!("loss          {loss:.4} in step {}; nothing was written", times.len())?)
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
