//! Data-parallel training steps on the ranks of `mpirun`, beside the same steps without communication: what a rank costs, and
//! how much of the communication the backward pass hides. Every rank has the whole batch of the other training benches, so a step of
//! n ranks is worth n steps of one. `bench/ddp.py` has the same in PyTorch.
//!
//! Wall time, and the fastest of many steps: ranks wait for each other, so processor time says little.

use super::models::{ConvNet, Gpt};
use super::training::{classes, compiled_loss, perceptron, perceptron_batch};
use super::workloads::normal;
use super::{Bench, Done};
use firebrand::dist::{DdpOptions, DistributedDataParallel, World};
use firebrand::nn::losses::{CrossEntropyLoss, Loss};
use firebrand::ops;
use firebrand::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer};
use firebrand::prelude::*;
use firebrand::{memory_stats, reset_peak_memory};
use std::time::Instant;

const SECONDS: f64 = 2.0;
const AT_LEAST: usize = 5;
const LR: f64 = 1e-4;

/// Seconds of the fastest call; all ranks begin each together, and rank 0 says when it is enough.
fn fastest(world: &World, mut f: impl FnMut() -> Done) -> Done<f64> {
    f()?;
    f()?;
    let (began, mut best, mut calls) = (Instant::now(), f64::INFINITY, 0);
    loop {
        world.barrier()?;
        let start = Instant::now();
        f()?;
        best = best.min(start.elapsed().as_secs_f64());
        calls += 1;
        let more = calls < AT_LEAST || began.elapsed().as_secs_f64() < SECONDS;
        let more = Tensor::new(&[i64::from(more)]);
        world.broadcast(&more, 0)?;
        if more.to_vec::<i64>()[0] == 0 {
            return Ok(best);
        }
    }
}

/// What is trained.
trait Steps {
    fn loss(&self) -> Result<Tensor>;
}

struct Eager<'a> {
    model: &'a dyn Forward<Tensor, Output = Tensor>,
    batch: &'a (Tensor, Tensor),
}

impl Steps for Eager<'_> {
    fn loss(&self) -> Result<Tensor> {
        let scores = ops::flatten(&self.model.try_call(&self.batch.0)?, 0, -2)?;
        CrossEntropyLoss::new().loss(&scores, &ops::flatten(&self.batch.1, 0, -1)?)
    }
}

struct Compiled {
    module: firebrand::graph::ProgramModule,
    inputs: [Tensor; 2],
}

impl Steps for Compiled {
    fn loss(&self) -> Result<Tensor> {
        let results = self.module.run(&self.inputs).map_err(Error::user)?;
        results[0].tensor().cloned().map_err(Error::user)
    }
}

/// Measures steps with and without communication, the communication alone, and memory.
fn steps(
    bench: &Bench,
    world: &World,
    case: &str,
    of: &dyn Steps,
    module: &dyn Module,
    mut optimizer: impl Optimizer,
) -> Done {
    let alone = world.size() == 1;
    let mut step = || -> Result<()> {
        of.loss()?.try_backward(&BackwardOptions::default())?;
        optimizer.step()?;
        optimizer.zero_grad();
        Ok(())
    };
    let bytes: usize = module.parameters().iter().map(|p| p.numel() * p.dtype().size()).sum();
    let plain_peak = highest(&mut step)?;
    let ddp = DistributedDataParallel::new(module, world, DdpOptions::default())?;
    let compute = fastest(world, || Ok(ddp.no_sync(&mut step)?))?;
    // What no_sync left in `.grad` is gone; the passes from here on communicate.
    let whole = if alone { compute } else { fastest(world, || Ok(step()?))? };
    let ddp_peak = highest(&mut step)?;
    if !world.is_main() {
        // The others take part in what follows.
        if !alone {
            wire(world, bytes)?;
        }
        return Ok(());
    }
    let ranks = world.size();
    bench.emit(&format!("{case}.{ranks}_ranks"), 1e3 * whole, "ms")?;
    if alone {
        return Ok(());
    }
    let wire = wire(world, bytes)?;
    bench.emit(&format!("{case}.no_sync"), 1e3 * compute, "ms")?;
    bench.emit(&format!("{case}.wire"), 1e3 * wire, "ms")?;
    bench.emit(&format!("{case}.hidden"), 100.0 * (compute + wire - whole) / compute.min(wire), "%")?;
    bench.emit(&format!("{case}.gradients"), bytes as f64 / 1e6, "MB")?;
    bench.emit(&format!("{case}.extra_peak"), ddp_peak - plain_peak, "MB")
}

/// Seconds to add up just as many bytes over all ranks, with nothing else to do, in buckets as large as the default.
fn wire(world: &World, bytes: usize) -> Done<f64> {
    let bucket = DdpOptions::default().bucket_bytes_on(world.size());
    let buckets: Vec<Tensor> = (0..bytes)
        .step_by(bucket)
        .map(|at| Tensor::ones([((bytes - at).min(bucket) / 4) as i64], DType::F32))
        .collect();
    fastest(world, || {
        for t in &buckets {
            world.all_reduce(t)?;
        }
        Ok(())
    })
}

/// Megabytes that live at once at the most, all of the process together.
fn highest(mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    step()?;
    reset_peak_memory();
    step()?;
    Ok(memory_stats().peak as f64 / 1e6)
}

fn both(
    bench: &Bench,
    world: &World,
    model: &dyn Forward<Tensor, Output = Tensor>,
    batch: &(Tensor, Tensor),
    optimizer: &dyn Fn(Vec<Parameter>) -> Result<Box<dyn Optimizer>>,
) -> Done {
    let (module, inputs) = compiled_loss(bench, model, (&batch.0, &batch.1))?;
    steps(bench, world, "eager", &Eager { model, batch }, model.as_module(), optimizer(model.parameters())?)?;
    let compiled = Compiled { module, inputs };
    let parameters = compiled.module.parameters();
    steps(bench, world, "compiled", &compiled, &compiled.module, optimizer(parameters)?)
}

fn adam(p: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
    Ok(Box::new(Adam::new(p, AdamOptions { lr: LR, ..Default::default() })?))
}

fn adamw(p: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
    Ok(Box::new(AdamW::new(p, AdamWOptions { lr: LR, ..Default::default() })?))
}

/// `times` is how many of the usual batches make one.
pub(super) fn mlp(bench: &Bench, world: &World, times: u32) -> Done {
    both(bench, world, &perceptron(), &perceptron_batch(128 * times as usize)?, &adam)
}

pub(super) fn gpt(bench: &Bench, world: &World, times: u32) -> Done {
    let shape = [8 * times as usize, 128];
    both(bench, world, &Gpt::new()?, &(classes(1000, &shape)?, classes(1000, &shape)?), &adamw)
}

pub(super) fn convnet(bench: &Bench, world: &World, times: u32) -> Done {
    let n = 64 * times as usize;
    both(bench, world, &ConvNet::new()?, &(normal(&[n, 3, 32, 32])?, classes(10, &[n])?), &adam)
}

/// What a sum over ranks costs, by its bytes: the smallest is the cost of messages, the slope of the rest that of bytes.
pub(super) fn collectives(bench: &Bench, world: &World) -> Done {
    for kib in [0usize, 4, 64, 1024, 4096, 16384] {
        let t = Tensor::ones([(kib * 256).max(1) as i64], DType::F32);
        let seconds = fastest(world, || Ok(world.all_reduce(&t).map(drop)?))?;
        if world.is_main() {
            bench.emit(&format!("all_reduce.{kib}KiB.{}_ranks", world.size()), 1e6 * seconds, "us")?;
        }
    }
    Ok(())
}
