//! The bench of compiled backward: a pass over many small nodes and a training step, first and later, beside the engine.
//!
//! The forward is plain on both sides: what is measured is the walk. Peers run `torch._dynamo.compiled_autograd` in
//! `bench/peers.py`.

use super::training::{Training, adam, perceptron, perceptron_batch};
use super::workloads::{CHAIN, chain};
use super::{Bench, Done};
use firebrand::prelude::*;
use firebrand_compile::backward::{CompiledBackward, Options};

/// Passes of which the fastest counts.
const PASSES: usize = 150;
/// First passes of which the fastest counts.
const FIRST: usize = 5;

/// Many small nodes: the first pass, one that is known, and the engine's own.
pub(super) fn nodes(bench: &Bench) -> Done {
    let x = Tensor::ones([4], DType::F32).requires_grad_();
    let seed = Tensor::ones([4], DType::F32);
    // Seconds of the fastest backward; the forward is made anew and not counted.
    let fastest = |passes: usize, compiler: &dyn Fn() -> Option<CompiledBackward>| -> Result<f64> {
        let mut seconds = f64::INFINITY;
        for _ in 0..passes {
            let y = chain(&x, &|_| {})?;
            let compiler = compiler();
            let _scope = compiler.as_ref().map(CompiledBackward::enable);
            let options = BackwardOptions { grad_tensors: vec![Some(seed.clone())], ..Default::default() };
            let clock = bench.clock.start();
            y.try_backward(&options)?;
            seconds = seconds.min(clock.seconds());
            x.zero_grad();
        }
        Ok(seconds)
    };
    let kept = CompiledBackward::new(Options::default());
    let per_node = 1e9 / (2 * CHAIN) as f64;
    let new = || Some(CompiledBackward::new(Options::default()));
    bench.emit("nodes_cold", 1e3 * fastest(FIRST, &new)?, "ms")?;
    bench.emit("nodes", per_node * fastest(PASSES, &|| Some(kept.clone()))?, "ns")?;
    bench.emit("nodes_plain", per_node * fastest(PASSES, &|| None)?, "ns")
}

/// Training steps of the perceptron, forward and optimizer plain.
pub(super) fn step(bench: &Bench) -> Done {
    let (model, batch) = (perceptron(), perceptron_batch(128)?);
    let training = |p| Ok::<_, Error>(Training { model: &model, optimizer: adam(p)?, batch: batch.clone() });
    let kept = CompiledBackward::new(Options::default());
    let scope = kept.enable();
    training(model.parameters())?.speed(bench, "adam", 1.0, "steps/s")?;
    drop(scope);
    training(model.parameters())?.speed(bench, "adam_plain", 1.0, "steps/s")
}
