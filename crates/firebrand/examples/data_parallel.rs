//! Data-parallel training: every rank trains on its share of each batch, and all hold the same weights.
//!
//! ```sh
//! cargo run --release -p firebrand --example data_parallel                      # one process
//! mpirun -n 2 target/release/examples/data_parallel                            # two, on MPI
//! cargo run --release -p firebrand --example data_parallel -- --threads 2      # two threads that act as processes
//! ```

use firebrand::digits;
use firebrand::dist::{self, DdpOptions, DistributedDataParallel, World};
use firebrand::nn::layers::{Linear, ReLU};
use firebrand::nn::losses::CrossEntropyLoss;
use firebrand::nn::sequential;
use firebrand::optim::{AdamW, AdamWOptions};
use firebrand::prelude::*;
use firebrand::random::{Generator, with_generator};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Samples per step, over all ranks.
const BATCH: usize = 96;
const STEPS: usize = 150;

/// Trains on this rank's share. Returns the accuracy on the test samples and a fingerprint of the weights.
fn train(world: &World) -> dist::Result<(f64, u64)> {
    // A separate generator, because ranks may be threads of one process.
    let model =
        with_generator(Generator::new(0), || sequential![Linear::new(64, 48), ReLU::new(), Linear::new(48, 10)]);
    // Losses are scaled by this rank's share of the samples below, so the sum of gradients is the gradient of the whole batch.
    let ddp = DistributedDataParallel::new(&model, world, DdpOptions::default().average(false))?;
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions { lr: 5e-3, ..Default::default() })?;
    let (train, test) = (digits::train(), digits::test());
    let (samples, criterion) = (train.labels.numel(), CrossEntropyLoss::new());
    for step in 0..STEPS {
        let first = step * BATCH % (samples - BATCH);
        // Shares are as even as they can be; with more ranks than samples some would be empty.
        let (from, to) = (world.rank() * BATCH / world.size(), (world.rank() + 1) * BATCH / world.size());
        optimizer.zero_grad();
        if from == to {
            ddp.backward_of_nothing()?;
        } else {
            let share = |t: &Tensor| t.narrow(0, first + from, to - from);
            let loss = criterion.loss(&model.try_call(&share(&train.images))?, &share(&train.labels))?;
            (loss * ((to - from) as f64 / BATCH as f64)).backward();
        }
        optimizer.step()?;
    }
    let logits = no_grad(|| model.try_call(&test.images))?;
    let mut hash = DefaultHasher::new();
    for p in model.parameters() {
        p.to_vec::<f32>().iter().for_each(|v| v.to_bits().hash(&mut hash));
    }
    Ok((firebrand::train::accuracy(&logits, &test.labels)?, hash.finish()))
}

fn report(world: &World) -> dist::Result<()> {
    let (accuracy, hash) = train(world)?;
    let all = world.gather_text(&format!("{hash:016x}"))?;
    if world.is_main() {
        println!("{}: {} ranks, accuracy {accuracy:.3}, weights {}", world.engine(), world.size(), all[0]);
    }
    assert!(all.iter().all(|h| *h == all[0]), "replicas differ: {all:?}");
    assert!(accuracy > 0.9, "{accuracy}");
    Ok(())
}

pub(crate) fn main() -> dist::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, n] = &arguments[..]
        && flag == "--threads"
        && let Ok(n) = n.parse()
    {
        return dist::threads::run(n, Duration::from_secs(120), report).into_iter().collect();
    }
    report(&World::from_env()?)
}
