//! The hand-over between backward passes and communication, run through random schedules by `shuttle`: no deadlock, no lost
//! and no doubled gradient, no rank that waits for one that has failed. `cargo test -p firebrand-dist --features shuttle --lib
//! schedules` explores `SCHEDULES` (10,000) of them for each test.
//!
//! Ranks, their communication threads and where they meet are the real ones. Only the engine is left out, whose scopes belong to
//! threads of the system: gradients arrive one by one, as its hooks tell them.

use crate::ddp::{DdpOptions, DistributedDataParallel};
use crate::world::World;
use crate::{Error, Result, threads};
use firebrand_core::Tensor;
use firebrand_core::module::{Module, ModuleCore, Parameter};
use std::time::Duration;

fn explore(test: impl Fn() + Send + Sync + 'static) {
    let schedules = std::env::var("SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    shuttle::check_random(test, schedules);
}

/// Nobody waits for real here.
const EVER: Duration = Duration::from_secs(100_000);

#[derive(Module)]
struct Weights {
    a: Parameter,
    b: Parameter,
    c: Parameter,
    core: ModuleCore,
}

fn weights() -> Weights {
    let one = |v: f32| Parameter::new(Tensor::new(&[v]));
    Weights { a: one(1.0), b: one(2.0), c: one(3.0), core: ModuleCore::new() }
}

/// Every gradient in a bucket of its own, as few as there are.
fn small() -> DdpOptions {
    DdpOptions::default().first_bucket_bytes(1).bucket_bytes(1).average(false).broadcast_buffers(false)
}

/// A pass in which these gradients arrive, in this order; the others are not reached.
fn pass(ddp: &DistributedDataParallel, model: &Weights, order: &[usize], value: f32) -> Result<()> {
    let parameters = [&model.a, &model.b, &model.c];
    let mut used = vec![false; parameters.len()];
    order.iter().for_each(|&i| used[i] = true);
    ddp.replica().begin(used)?;
    for &i in order {
        parameters[i].set_grad(Some(&Tensor::new(&[value * (i + 1) as f32])));
        ddp.replica().hand_over(i, parameters[i])?;
    }
    ddp.replica().finish()
}

fn gradients(model: &Weights) -> Vec<Option<f32>> {
    [&model.a, &model.b, &model.c].map(|p| p.grad().map(|g| g.to_vec::<f32>()[0])).to_vec()
}

/// Gradients arrive in another order on each rank, and some on one rank only; buckets follow the first order from the second pass on.
#[test]
fn gradients_arrive_in_any_order() {
    explore(|| {
        let ends = threads::run(2, EVER, |world: &World| {
            let model = weights();
            let ddp = DistributedDataParallel::new(&model, world, small())?;
            let first = world.rank() == 0;
            pass(&ddp, &model, if first { &[2, 1, 0] } else { &[0, 2, 1] }, if first { 1.0 } else { 10.0 })?;
            let all = gradients(&model);
            for p in [&model.a, &model.b, &model.c] {
                p.set_grad(None);
            }
            pass(&ddp, &model, if first { &[1] } else { &[] }, 1.0)?;
            Ok((all, gradients(&model)))
        });
        for end in ends {
            let (all, one) = end.expect("no rank fails");
            assert_eq!(all, [Some(11.0), Some(22.0), Some(33.0)]);
            assert_eq!(one, [None, Some(2.0), None]);
        }
    });
}

/// A rank that fails in the middle of a pass, its communication under way, ends the pass of the others with its reason.
#[test]
fn a_rank_fails_in_the_middle() {
    explore(|| {
        let ends = threads::run(2, EVER, |world: &World| {
            let model = weights();
            let ddp = DistributedDataParallel::new(&model, world, small())?;
            if world.rank() == 1 {
                ddp.replica().begin(vec![true; 3])?;
                model.c.set_grad(Some(&Tensor::new(&[1.0f32])));
                ddp.replica().hand_over(2, &model.c)?;
                return Err(Error::Argument("out of luck".into()));
            }
            pass(&ddp, &model, &[2, 1, 0], 1.0)
        });
        let [Err(first), Err(second)] = &ends[..] else { panic!("both ranks fail") };
        assert!(matches!(first, Error::Peer { rank: 1, reason } if reason == "out of luck"), "{first}");
        assert!(matches!(second, Error::Argument(_)), "{second}");
    });
}

/// Handles that go while their jobs are under way neither block nor lose the others' answers.
#[test]
fn handles_go_while_jobs_are_under_way() {
    explore(|| {
        let ends = threads::run(3, EVER, |world: &World| {
            let sum = {
                let clone = world.clone();
                crate::sync::thread::spawn(move || clone.all_reduce(&Tensor::new(&[clone.rank() as f32])))
            };
            let sum = sum.join().map_err(|_| Error::Closed)??;
            Ok(sum.to_vec::<f32>()[0])
        });
        ends.into_iter().for_each(|end| assert_eq!(end.expect("no rank fails"), 3.0));
    });
}
