//! Training on several ranks, here threads: the number of shards decides about the bits, not the number of ranks; every sample
//! is seen once; and one process without shards comes to the same weights up to rounding.

use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Result, Tensor};
use firebrand_dist::{DdpOptions, DistributedDataParallel, World, threads};
use firebrand_nn::data::{DataLoader, LoaderOptions, TensorDataset};
use firebrand_nn::layers::{BatchNorm1d, Dropout, Forward, Linear, Module, ReLU, Sequential};
use firebrand_nn::losses::{CrossEntropyLoss, Loss};
use firebrand_nn::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use firebrand_nn::sequential;
use firebrand_nn::train::{BatchLoss, Callback, Finish, Metrics, Step, TrainOptions, Trainer};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const IGNORED: i64 = -100;

/// What a run is made of.
#[derive(Clone)]
struct Run {
    shards: Option<usize>,
    zero: bool,
    accumulate: usize,
    optimizer: &'static str,
    dtype: DType,
    /// Dropout and batch norm, which make single samples depend on their shard.
    noisy: bool,
    workers: usize,
    checkpoint: Option<PathBuf>,
    stop_at: Option<u64>,
    epochs: usize,
    samples: usize,
    batch: usize,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            shards: None,
            zero: false,
            accumulate: 1,
            optimizer: "adamw",
            dtype: DType::F32,
            noisy: true,
            workers: 0,
            checkpoint: None,
            stop_at: None,
            epochs: 3,
            samples: 107,
            batch: 16,
        }
    }
}

fn data(run: &Run) -> Result<TensorDataset<3>> {
    let (n, dtype) = (run.samples as i64, run.dtype);
    let x = Tensor::randn([n, 5], dtype);
    // Every seventh label does not count.
    let labels: Vec<i64> = (0..n).map(|i| if i % 7 == 3 { IGNORED } else { i * i % 4 }).collect();
    TensorDataset::new([x, Tensor::new(&labels), Tensor::arange(0, n, 1, DType::I64)])
}

fn model(run: &Run) -> Sequential {
    let made = match run.noisy {
        true => sequential![Linear::new(5, 8), BatchNorm1d::new(8), ReLU::new(), Dropout::new(0.3), Linear::new(8, 4)],
        false => sequential![Linear::new(5, 8), ReLU::new(), Linear::new(8, 4)],
    };
    made.to_dtype(run.dtype).expect("float parameters");
    made
}

fn optimizer(run: &Run, model: &Sequential) -> Result<Box<dyn Optimizer>> {
    let p = model.parameters();
    Ok(match run.optimizer {
        "sgd" => Box::new(SGD::new(p, SGDOptions { lr: 0.05, momentum: 0.9, ..Default::default() })?),
        "adam" => Box::new(Adam::new(p, AdamOptions { lr: 0.01, ..Default::default() })?),
        _ => Box::new(AdamW::new(p, AdamWOptions { lr: 0.01, ..Default::default() })?),
    })
}

struct StopAt(u64, Arc<AtomicBool>);

impl Callback for StopAt {
    fn step(&mut self, step: &Step) -> Result<()> {
        if step.step == self.0 {
            self.1.store(true, Relaxed);
        }
        Ok(())
    }
}

/// What a rank ends with: every number of the state, losses, and which samples it saw, by epoch.
#[derive(Debug, Default)]
struct End {
    finish: Option<Finish>,
    state: Vec<f64>,
    losses: Vec<f64>,
    seen: Vec<i64>,
    state_bytes: usize,
}

fn train(world: Option<&World>, run: &Run) -> Result<End> {
    with_generator(Generator::new(7), || {
        let (model, set) = (model(run), data(run)?);
        let options = LoaderOptions { shuffle: true, num_workers: run.workers, ..LoaderOptions::new(run.batch) };
        let loader = DataLoader::new(set, options);
        let ddp = world.map(|w| DistributedDataParallel::new(&model, w, DdpOptions::default())).transpose()?;
        // Rank 1 alone is told to stop, and all do.
        let stop = Arc::new(AtomicBool::new(false));
        let told = world.is_none_or(|w| w.rank() == w.size() - 1);
        let stop_at = run.stop_at.filter(|_| told).unwrap_or(u64::MAX);
        let settings = TrainOptions {
            epochs: run.epochs,
            accumulate: run.accumulate,
            clip_norm: Some(1.0),
            ema: Some(0.9),
            shards: run.shards,
            zero: run.zero,
            checkpoint: run.checkpoint.clone(),
            stop: stop.clone(),
            ..Default::default()
        };
        let seen = Mutex::new(Vec::new());
        let mut trainer = Trainer::new(&model, optimizer(run, &model)?, settings).watch(StopAt(stop_at, stop));
        if let Some(ddp) = &ddp {
            trainer = trainer.distributed(ddp);
        }
        trainer.resume()?;
        let loss = |[x, labels, index]: &[Tensor; 3]| {
            seen.lock().expect("one thread").extend(index.to_vec::<i64>());
            let count = labels.to_vec::<i64>().iter().filter(|l| **l != IGNORED).count() as f64;
            Ok(BatchLoss { mean: CrossEntropyLoss::new().loss(&model.try_call(x)?, labels)?, count })
        };
        let finish = trainer.fit(&loader, loss, || Ok(Metrics::new()))?;
        let losses = trainer.progress().history.iter().flat_map(|m| m.values().copied()).collect();
        let numbers = |t: &Tensor| t.to_dtype(DType::F64).to_vec::<f64>();
        let state_bytes =
            trainer.optimizer().state_dict().tensors().values().map(|t| t.numel() * t.dtype().size()).sum();
        let mut state: Vec<f64> = model.state_dict().values().flat_map(numbers).collect();
        trainer.swap_average()?;
        state.extend(model.state_dict().values().flat_map(numbers));
        Ok(End { finish: Some(finish), state, losses, seen: seen.into_inner().expect("one thread"), state_bytes })
    })
}

fn on_ranks(ranks: usize, run: &Run) -> Vec<End> {
    let ends = threads::run(ranks, PATIENCE, |world| Ok(train(Some(world), run)?));
    ends.into_iter().map(|e| e.expect("no rank fails")).collect()
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|v| v.to_bits()).collect()
}

#[track_caller]
fn same(found: &End, expected: &End, what: &str) {
    assert!(bits(&found.state) == bits(&expected.state), "{what}: weights differ");
    assert!(bits(&found.losses) == bits(&expected.losses), "{what}: losses differ");
}

/// Four shards on one, two and four ranks, six on three and six: with dropout, batch norm, accumulation, clipping, an average,
/// each optimizer, with and without workers, and with the optimizer's state in parts.
#[test]
fn shards_decide_about_the_bits() {
    for optimizer in ["sgd", "adam", "adamw"] {
        for (accumulate, workers) in [(1, 0), (3, 2)] {
            for (shards, worlds) in [(4, &[1, 2, 4][..]), (6, &[3, 6])] {
                let run = Run { shards: Some(shards), accumulate, workers, optimizer, ..Run::default() };
                let expected = on_ranks(worlds[0], &run).swap_remove(0);
                for &ranks in worlds {
                    for zero in [false, true] {
                        let ends = on_ranks(ranks, &Run { zero, ..run.clone() });
                        for (rank, end) in ends.iter().enumerate() {
                            let what = format!("{optimizer}, {shards} shards, {ranks} ranks, zero {zero}, rank {rank}");
                            same(end, &expected, &what);
                        }
                        let held: usize = ends.iter().map(|e| e.state_bytes).sum();
                        let whole = expected.state_bytes;
                        assert_eq!(held, if zero { whole } else { whole * ranks }, "{optimizer}, {ranks} ranks");
                    }
                }
            }
        }
    }
}

/// Without what depends on the cut, shards change nothing but rounding.
#[test]
fn shards_are_the_whole_batch() {
    for optimizer in ["sgd", "adam", "adamw"] {
        let run = Run { optimizer, dtype: DType::F64, noisy: false, accumulate: 2, ..Run::default() };
        // Batches of 64 of 1,003 samples, the last of which has 43: shares of eleven and ten.
        let long = Run { accumulate: 1, samples: 1003, batch: 64, epochs: 2, ..run.clone() };
        let [short_end, long_end] = [&run, &long].map(|run| train(None, run).expect("one process"));
        for (ranks, shards, run, expected) in [
            (1, 4, &run, &short_end),
            (2, 2, &run, &short_end),
            (3, 6, &run, &short_end),
            (4, 4, &run, &short_end),
            (4, 4, &long, &long_end),
        ] {
            let end = on_ranks(ranks, &Run { shards: Some(shards), ..run.clone() }).swap_remove(0);
            for (a, b) in end.state.iter().zip(&expected.state) {
                assert!((a - b).abs() < 1e-12, "{optimizer}, {ranks} ranks, {shards} shards: {a} {b}");
            }
            for (a, b) in end.losses.iter().zip(&expected.losses) {
                assert!((a - b).abs() < 1e-12, "{optimizer}: {a} {b}");
            }
        }
    }
}

/// Every sample once an epoch, on whichever rank; the last batch has fewer samples than there are shards.
#[test]
fn no_sample_is_seen_twice() {
    for (ranks, shards, samples, batch) in
        [(1, 16, 107, 16), (4, 4, 107, 16), (4, 16, 107, 16), (3, 12, 107, 16), (4, 4, 1003, 64)]
    {
        let run = Run { shards: Some(shards), noisy: false, samples, batch, ..Run::default() };
        let mut seen: Vec<i64> = on_ranks(ranks, &run).into_iter().flat_map(|e| e.seen).collect();
        seen.sort_unstable();
        let expected: Vec<i64> = (0..samples as i64).flat_map(|i| vec![i; run.epochs]).collect();
        assert_eq!(seen, expected, "{ranks} ranks, {shards} shards");
    }
}

/// One rank is told to stop: all stop after the same step, and the run goes on with another number of ranks as if nothing
/// had been.
#[test]
fn a_stopped_run_goes_on_with_other_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    for zero in [false, true] {
        let run = Run { shards: Some(4), accumulate: 2, zero, ..Run::default() };
        let path = |name: &str| -> Option<PathBuf> { Some(Path::new(folder.path()).join(format!("{name}{zero}"))) };
        let expected = on_ranks(4, &Run { checkpoint: path("whole"), ..run.clone() }).swap_remove(0);
        let cut = Run { checkpoint: path("cut"), ..run };
        for (ranks, stop_at, finish) in
            [(4, Some(2), Finish::Stopped), (2, Some(6), Finish::Stopped), (1, None, Finish::Done)]
        {
            let ends = on_ranks(ranks, &Run { stop_at, ..cut.clone() });
            assert!(ends.iter().all(|e| e.finish == Some(finish)), "{ranks} ranks: {finish:?}");
            if finish == Finish::Done {
                same(&ends[0], &expected, "after two stops");
            }
        }
        let bytes = |name: &str| std::fs::read(path(name).expect("a name")).expect("written");
        assert!(bytes("cut") == bytes("whole"), "the checkpoints are the same file");
    }
}

/// A loss that is not finite on one rank ends all; a number of shards that does not fit is refused.
#[test]
fn failures_end_all_ranks() {
    let ends = threads::run(2, PATIENCE, |world| {
        let run = Run { shards: Some(3), ..Run::default() };
        Ok(train(Some(world), &run)?)
    });
    for end in ends {
        let message = end.expect_err("three shards on two ranks").to_string();
        assert!(message.contains("(2, 4, 8, 16, …), found 3") || message.contains("failed"), "{message}");
    }
    let ends = threads::run(2, PATIENCE, |world| {
        with_generator(Generator::new(0), || {
            let model = sequential![Linear::new(1, 1)];
            let values: Vec<f32> = (0..8).map(|i| if i == 7 { f32::NAN } else { i as f32 }).collect();
            let set = TensorDataset::new([Tensor::from_slice(&values, [8, 1])])?;
            let loader = DataLoader::new(set, LoaderOptions::new(8));
            let ddp = DistributedDataParallel::new(&model, world, DdpOptions::default())?;
            let sgd = SGD::new(model.parameters(), SGDOptions::default())?;
            let mut trainer = Trainer::new(&model, sgd, TrainOptions::default()).distributed(&ddp);
            Ok(trainer.fit(&loader, |[x]| Ok(model.try_call(x)?.sum()), || Ok(Metrics::new()))?)
        })
    });
    let messages: Vec<String> = ends.into_iter().map(|e| e.expect_err("a NaN").to_string()).collect();
    assert!(messages[1].contains("the loss became NaN at step 1"), "{messages:?}");
    assert!(messages[0].contains("rank 1 failed") && messages[0].contains("NaN"), "{messages:?}");
}

/// Writes a weight of its rank alone.
struct Spoil(Tensor, bool);

impl Callback for Spoil {
    fn step(&mut self, step: &Step) -> Result<()> {
        if self.1 && step.step == 2 {
            firebrand_core::autograd::no_grad(|| self.0.try_mul_(1.0 + 1e-6).map(drop))?;
        }
        Ok(())
    }
}

/// Replicas that agree pass the comparison after every step; one that was changed is named with its tensor.
#[test]
fn replicas_are_compared() {
    for (ranks, zero, spoiled) in [(2, false, false), (3, true, false), (3, false, true)] {
        let ends = threads::run(ranks, PATIENCE, |world| {
            with_generator(Generator::new(5), || {
                let run = Run::default();
                let (model, loader) = (model(&run), DataLoader::new(data(&run)?, LoaderOptions::new(run.batch)));
                let ddp = DistributedDataParallel::new(&model, world, DdpOptions::default())?;
                let options = TrainOptions { zero, compare_replicas: Some(1), ..Default::default() };
                let weight = model.parameters()[0].tensor().clone();
                let mut trainer = Trainer::new(&model, optimizer(&run, &model)?, options)
                    .distributed(&ddp)
                    .watch(Spoil(weight, spoiled && world.rank() == 2));
                let loss = |[x, y, _]: &[Tensor; 3]| CrossEntropyLoss::new().loss(&model.try_call(x)?, y);
                Ok(trainer.fit(&loader, loss, || Ok(Metrics::new()))?)
            })
        });
        for end in ends {
            match spoiled {
                false => assert_eq!(end.expect("replicas agree"), Finish::Done),
                true => {
                    let message = end.expect_err("a weight was changed").to_string();
                    assert!(message.contains("0.weight on rank 2 is not the 0.weight of rank 0"), "{message}");
                }
            }
        }
    }
}
