//! Replicas stay equal, and averaged gradients are those of the whole batch.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{BackwardOptions, CheckpointOptions, GradOptions, checkpoint, grad, no_grad};
use firebrand_core::module::{Buffer, Forward, Module, ModuleCore, Parameter};
use firebrand_core::{DType, Result, Tensor, random};
use firebrand_dist::{DdpOptions, DistributedDataParallel, World, functional, threads};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Two layers, one of them with a branch that may go unused, and a counter of calls.
#[derive(Module)]
struct Net {
    first: Parameter,
    second: Parameter,
    side: Parameter,
    frozen: Parameter,
    calls: Buffer,
    core: ModuleCore,
}

impl Net {
    fn new(seed: u64, dtype: DType) -> Net {
        // A generator of its own: ranks are threads here, and share the process's.
        random::with_generator(random::Generator::new(seed), || Net::drawn(dtype))
    }

    fn drawn(dtype: DType) -> Net {
        let random = |sizes: [i64; 2]| Tensor::randn(sizes, dtype);
        Net {
            first: Parameter::new(random([6, 5])),
            second: Parameter::new(random([5, 3])),
            side: Parameter::new(random([6, 3])),
            frozen: Parameter::frozen(random([3, 3])),
            calls: Buffer::new(Tensor::zeros([1], DType::F32)),
            core: ModuleCore::new(),
        }
    }

    fn loss(&self, x: &Tensor, side: bool) -> Tensor {
        let y = self.call(x);
        let y = if side { y + x.matmul(&self.side) } else { y };
        (&y * &y).mean()
    }

    fn step(&self, lr: f64) {
        no_grad(|| {
            for p in self.parameters() {
                if let Some(g) = p.grad() {
                    p.sub_(&(g * lr));
                }
            }
        });
        self.zero_grad();
    }

    fn bits(&self) -> Vec<Vec<f64>> {
        let list = |t: &Tensor| t.to_dtype(DType::F64).to_vec::<f64>();
        self.state_dict().iter().map(|(_, t)| list(t)).collect()
    }
}

impl Forward for Net {
    type Output = Tensor;
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        no_grad(|| self.calls.get().try_add_(1.0).map(drop))?;
        Ok(x.matmul(&self.first).tanh().matmul(&self.second).matmul(&self.frozen))
    }
}

/// Whole batches, the same on every rank.
fn batches(n: usize, dtype: DType) -> Vec<Tensor> {
    random::manual_seed(99);
    (0..n).map(|_| Tensor::randn([24, 6], dtype)).collect()
}

fn share(x: &Tensor, world: &World) -> Tensor {
    let n = 24 / world.size();
    x.narrow(0, world.rank() * n, n)
}

/// Every rank starts from its own weights; after the start and after each step all have the same.
#[test]
fn replicas_are_equal_and_follow_the_whole_batch() {
    let data = batches(10, DType::F64);
    let alone = Net::new(0, DType::F64);
    for x in &data {
        alone.loss(x, true).backward();
        alone.step(0.05);
    }
    // Several buckets, and one that holds all.
    for bucket in [64, 1 << 20] {
        for ranks in [1, 2, 3, 4] {
            let states = threads::run(ranks, SOON, |world| {
                let net = Net::new(world.rank() as u64, DType::F64);
                let options = DdpOptions::default().bucket_bytes(bucket).first_bucket_bytes(bucket);
                let _ddp = DistributedDataParallel::new(&net, world, options)?;
                let mut all = Vec::new();
                for x in &data {
                    net.loss(&share(x, world), true).backward();
                    net.step(0.05);
                    all.push(net.bits());
                }
                Ok(all)
            });
            let states: Vec<_> = states.into_iter().map(|s| s.unwrap()).collect();
            for s in &states {
                assert!(*s == states[0], "{ranks} ranks, buckets of {bucket} bytes: replicas differ");
            }
            for (ours, whole) in states[0][9].iter().zip(alone.bits()) {
                for (a, b) in ours.iter().zip(whole) {
                    assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{ranks} ranks: {a} against {b}");
                }
            }
        }
    }
}

/// Ranks that do not use a parameter add nothing to its gradient; where no rank does, it has none.
#[test]
fn unused_parameters() {
    let x = &batches(1, DType::F64)[0];
    for users in [vec![], vec![1], vec![0, 2], vec![0, 1, 2]] {
        let grads = threads::run(3, SOON, |world| {
            let net = Net::new(0, DType::F64);
            let _ddp = DistributedDataParallel::new(&net, world, DdpOptions::default())?;
            net.loss(x, users.contains(&world.rank())).backward();
            Ok((net.side.grad().map(|g| g.to_vec::<f64>()), net.first.grad().is_some(), net.frozen.grad().is_some()))
        });
        let net = Net::new(0, DType::F64);
        net.loss(x, true).backward();
        let full = net.side.grad().unwrap().to_vec::<f64>();
        for grad in grads {
            let (side, first, frozen) = grad.unwrap();
            assert!(first && !frozen, "users {users:?}");
            match side {
                None => assert!(users.is_empty(), "users {users:?}"),
                Some(side) => {
                    let scale = users.len() as f64 / 3.0;
                    assert!(!users.is_empty());
                    for (a, b) in side.iter().zip(&full) {
                        assert!((a - b * scale).abs() < 1e-12, "users {users:?}: {a} against {}", b * scale);
                    }
                }
            }
        }
    }
}

/// Gradients that were added up without communication are averaged by the first pass with it, and a rank without data takes
/// part.
#[test]
fn accumulation_and_empty_shares() {
    let data = batches(3, DType::F64);
    let alone = Net::new(0, DType::F64);
    for x in &data {
        alone.loss(x, true).backward();
    }
    let expected = alone.first.grad().unwrap().to_vec::<f64>();
    let grads = threads::run(2, SOON, |world| {
        let net = Net::new(0, DType::F64);
        let ddp = DistributedDataParallel::new(&net, world, DdpOptions::default())?;
        let mut seen = Vec::new();
        // Twice: the second time gradients start as views of buckets that were averaged.
        for _ in 0..2 {
            net.zero_grad();
            ddp.no_sync(|| data[..2].iter().for_each(|x| net.loss(&share(x, world), true).backward()));
            net.loss(&share(&data[2], world), true).backward();
            seen.push(net.first.grad().unwrap().to_vec::<f64>());
        }
        net.zero_grad();
        match world.rank() {
            0 => net.loss(&data[0], true).backward(),
            _ => ddp.backward_of_nothing()?,
        }
        seen.push(net.first.grad().unwrap().to_vec::<f64>());
        Ok(seen)
    });
    alone.zero_grad();
    alone.loss(&data[0], true).backward();
    let half: Vec<f64> = alone.first.grad().unwrap().to_vec::<f64>().iter().map(|g| g / 2.0).collect();
    for seen in grads {
        for (k, (seen, expected)) in seen.unwrap().iter().zip([&expected, &expected, &half]).enumerate() {
            for (a, b) in seen.iter().zip(expected) {
                assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "pass {k}: {a} against {b}");
            }
        }
    }
}

/// Without zero_grad, a pass adds to the averaged gradient in place, on every rank alike.
#[test]
fn gradients_accumulate_over_averaged_passes() {
    let x = &batches(1, DType::F32)[0];
    let grads = threads::run(2, SOON, |world| {
        let net = Net::new(0, DType::F32);
        let _ddp = DistributedDataParallel::new(&net, world, DdpOptions::default())?;
        net.loss(x, true).backward();
        let once = net.second.grad().unwrap().to_vec::<f32>();
        net.loss(x, true).backward();
        Ok((once, net.second.grad().unwrap().to_vec::<f32>()))
    });
    let mut last = None;
    for grad in grads {
        let (once, twice) = grad.unwrap();
        for (a, b) in once.iter().zip(&twice) {
            assert!((2.0 * a - b).abs() <= 1e-6 * a.abs().max(1.0), "{a} twice is {b}");
        }
        assert!(*last.get_or_insert(twice.clone()) == twice, "ranks differ");
    }
}

#[test]
fn buffers_are_rank_zeros() {
    let x = &batches(1, DType::F32)[0];
    let calls = threads::run(2, SOON, |world| {
        let net = Net::new(0, DType::F32);
        let _ddp = DistributedDataParallel::new(&net, world, DdpOptions::default())?;
        if world.rank() == 1 {
            net.call(x);
        }
        net.loss(x, true).backward();
        Ok(net.calls.get().to_vec::<f32>())
    });
    for (rank, calls) in calls.into_iter().enumerate() {
        assert_eq!(calls.unwrap(), [1.0], "rank {rank}");
    }
}

/// A hook that averages gives what averaging gives; it sees every parameter once, in buckets that are numbered.
#[test]
fn communication_hooks() {
    let x = &batches(1, DType::F64)[0];
    let seen = threads::run(3, SOON, |world| {
        let grads = |hook: bool| {
            let net = Net::new(0, DType::F64);
            let options = DdpOptions::default().bucket_bytes(64).first_bucket_bytes(64);
            let ddp = DistributedDataParallel::new(&net, world, options)?;
            let buckets = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
            if hook {
                let told = buckets.clone();
                ddp.register_comm_hook(move |bucket, ranks| {
                    told.lock().unwrap().push((bucket.index, bucket.is_last, bucket.parameters.clone()));
                    Ok(ranks.all_reduce(&bucket.buffer)? / ranks.size() as f64)
                })?;
                let again = ddp.register_comm_hook(|bucket, _| Ok(bucket.buffer.clone())).unwrap_err();
                assert!(again.to_string().contains("there can be only one"), "{again}");
            }
            net.loss(&share(x, world), true).backward();
            let list = [&net.first, &net.second, &net.side].map(|p| p.grad().unwrap().to_vec::<f64>());
            let buckets = buckets.lock().unwrap().clone();
            Ok::<_, firebrand_dist::Error>((list, buckets))
        };
        Ok((grads(false)?.0, grads(true)?))
    });
    for seen in seen {
        let (plain, (hooked, buckets)) = seen.unwrap();
        for (a, b) in plain.iter().flatten().zip(hooked.iter().flatten()) {
            assert!((a - b).abs() < 1e-13, "{a} against {b}");
        }
        let order: Vec<_> = buckets.iter().map(|(index, last, _)| (*index, *last)).collect();
        assert_eq!(order, [(0, false), (1, false), (2, true)]);
        let mut names: Vec<_> = buckets.into_iter().flat_map(|(_, _, names)| names).collect();
        names.sort();
        assert_eq!(names, ["first", "second", "side"]);
    }
    for (text, wrong) in [("expected float64", false), ("a communication hook panicked: no luck", true)] {
        let ended = threads::run(2, SOON, |world| {
            let net = Net::new(0, DType::F64);
            let ddp = DistributedDataParallel::new(&net, world, DdpOptions::default())?;
            ddp.register_comm_hook(
                move |_, _| if wrong { panic!("no luck") } else { Ok(Tensor::zeros([1], DType::F32)) },
            )?;
            Ok(net.loss(x, true).try_backward(&BackwardOptions::default())?)
        });
        let errors: Vec<String> = ended.into_iter().map(|e| e.unwrap_err().to_string()).collect();
        assert!(errors.iter().any(|e| e.contains(text)), "{errors:?}");
    }
}

/// Rounded gradients are close to the exact ones, equal on all ranks, and the same bits for any number of ranks that share four shards.
#[test]
fn gradients_travel_in_half_precision() {
    let x = &batches(1, DType::F32)[0];
    let run = |ranks: usize, wire: Option<DType>| {
        let states = threads::run(ranks, SOON, |world| {
            let net = Net::new(0, DType::F32);
            let ddp = DistributedDataParallel::new(&net, world, DdpOptions::default().wire(wire))?;
            ddp.set_managed(true);
            let each = 4 / ranks;
            for k in 0..each {
                let part = x.narrow(0, (world.rank() * each + k) * 6, 6);
                let backward = || (net.loss(&part, true) * 0.25).backward();
                if k + 1 < each {
                    ddp.no_sync(backward)
                } else {
                    backward()
                }
                ddp.end_shard(k + 1 == each)?;
            }
            Ok([&net.first, &net.second, &net.side].map(|p| p.grad().unwrap().to_vec::<f32>()))
        });
        let states: Vec<_> = states.into_iter().map(|s| s.unwrap()).collect();
        assert!(states.iter().all(|s| *s == states[0]), "{ranks} ranks, wire {wire:?}");
        states[0].clone()
    };
    let exact = run(4, None);
    for (wire, close) in [(DType::BF16, 1.0 / 64.0), (DType::F16, 1.0 / 512.0)] {
        let rounded = run(4, Some(wire));
        assert!(rounded != exact, "{wire}: nothing was rounded");
        let largest = exact.iter().flatten().fold(0f32, |m, g| m.max(g.abs()));
        for (a, b) in rounded.iter().flatten().zip(exact.iter().flatten()) {
            assert!((a - b).abs() <= close * largest, "{wire}: {a} against {b}");
        }
        for ranks in [1, 2] {
            assert!(run(ranks, Some(wire)) == rounded, "{wire}: {ranks} ranks differ from four");
        }
    }
    let refused =
        DistributedDataParallel::new(&Net::new(0, DType::F32), &World::single(), DdpOptions::default().wire(DType::I8));
    assert!(refused.unwrap_err().to_string().contains("found int8"));
}

/// The gradient of a sum over ranks is a sum over ranks, of any order.
#[test]
fn sums_are_differentiable() {
    let found = threads::run(3, SOON, |world| {
        let x = Tensor::scalar(world.rank() as f64 + 1.0).requires_grad_();
        let sum = functional::all_reduce(world, &x)?; // 6
        let y = &sum * &sum * &x; // d/dx over all ranks: 2 * 6 * (1 + 2 + 3) + 36
        let first = grad(&y, &x, &GradOptions::create_graph())?[0].clone().unwrap();
        // The first gradient is 2 * sum * all_reduce(x) + sum^2 = 3 * sum^2.
        let second = grad(&first, &x, &GradOptions::default())?[0].clone().unwrap();
        Ok((first.item::<f64>(), second.item::<f64>()))
    });
    for (rank, found) in found.into_iter().enumerate() {
        assert_eq!(found.unwrap(), (108.0, 108.0), "rank {rank}");
    }
}

#[test]
fn refusals() {
    let x = &batches(1, DType::F64)[0];
    let ended = threads::run(2, SOON, |world| {
        let dtype = if world.rank() == 1 { DType::F32 } else { DType::F64 };
        DistributedDataParallel::new(&Net::new(0, dtype), world, DdpOptions::default()).map(drop)
    });
    for e in ended {
        assert_eq!(
            e.unwrap_err().to_string(),
            "rank 1 has parameter first: float32 [6, 5], rank 0 has parameter first: float64 [6, 5]: every rank must build \
             the same model"
        );
    }
    let history = threads::run(2, SOON, |world| {
        let net = Net::new(0, DType::F64);
        let _ddp = DistributedDataParallel::new(&net, world, DdpOptions::default())?;
        let options = BackwardOptions { create_graph: true, ..Default::default() };
        Ok(net.loss(x, true).try_backward(&options)?)
    });
    for e in history {
        let text = e.unwrap_err().to_string();
        assert!(text.contains("has a history (create_graph)") || text.starts_with("rank "), "{text}");
    }
    let reentrant = threads::run(2, SOON, |world| {
        let net = Net::new(0, DType::F64);
        let _ddp = DistributedDataParallel::new(&net, world, DdpOptions::default())?;
        let options = CheckpointOptions { use_reentrant: Some(true), ..Default::default() };
        let weight = net.first.tensor().clone();
        let layer = move |x: &[Tensor]| Ok(vec![x[0].matmul(&weight).tanh()]);
        let h = checkpoint(layer, &[&x.detach().requires_grad_()], &options)?;
        Ok(h[0].matmul(&net.second).sum().try_backward(&BackwardOptions::default())?)
    });
    for e in reentrant {
        let text = e.unwrap_err().to_string();
        assert!(text.contains("reentrant") || text.starts_with("rank "), "{text}");
    }
}
