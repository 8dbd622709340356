//! Batch norm over several ranks equals batch norm over the whole batch: results, gradients of both orders, running statistics.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::autograd::{GradOptions, grad, gradcheck, gradgradcheck};
use firebrand_core::module::{Forward, Module};
use firebrand_core::random::{Generator, with_generator};
use firebrand_core::{DType, Tensor};
use firebrand_dist::{World, threads};
use firebrand_nn::layers::{BatchNorm2d, BatchNorm2dOptions, SyncBatchNorm, SyncBatchNormOptions};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let (found, expected) = (found.to_dtype(DType::F64).to_vec::<f64>(), expected.to_dtype(DType::F64).to_vec::<f64>());
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-11 * b.abs().max(1.0), "{what}: {a} against {b}");
    }
}

/// Result, gradients of input, scale and shift, gradient of a function of the first gradient, running mean and variance.
fn run(layer: &dyn Forward<Output = Tensor>, x: &Tensor, weights: &Tensor) -> Vec<Tensor> {
    let x = x.detach().requires_grad_();
    let y = layer.call(&x);
    let inputs: Vec<Tensor> =
        std::iter::once(x.clone()).chain(layer.parameters().iter().map(|p| p.tensor().clone())).collect();
    let loss = (&y * &y * weights).sum();
    let first = grad(&loss, &inputs[..], &GradOptions::create_graph()).unwrap();
    let first: Vec<Tensor> = first.into_iter().map(|g| g.unwrap()).collect();
    let second = grad(&(&first[0] * &first[0]).sum(), &x, &GradOptions::default()).unwrap()[0].clone().unwrap();
    let mut all = vec![y];
    all.extend(first);
    all.push(second);
    all.extend(layer.named_buffers().into_iter().map(|(_, b)| b));
    all.iter().map(Tensor::detach).collect()
}

#[test]
fn ranks_normalize_as_one() {
    let (x, weights) = with_generator(Generator::new(3), || {
        (Tensor::randn([6, 3, 2, 2], DType::F64) * 2.0 + 5.0, Tensor::rand([6, 3, 2, 2], DType::F64))
    });
    for momentum in [Some(0.3), None] {
        let whole = BatchNorm2dOptions::new(3).momentum(momentum).build().unwrap();
        whole.to_dtype(DType::F64).unwrap();
        let expected = run(&whole, &x, &weights);
        // The last share is empty.
        for shares in [vec![6], vec![3, 3], vec![1, 4, 1], vec![4, 2, 0]] {
            let parts = threads::run(shares.len(), PATIENCE, |world| {
                let layer = SyncBatchNormOptions::new(3).momentum(momentum).build(world)?;
                layer.to_dtype(DType::F64).unwrap();
                let (from, n): (usize, usize) = (shares[..world.rank()].iter().sum(), shares[world.rank()]);
                Ok(run(&layer, &x.narrow(0, from, n), &weights.narrow(0, from, n)))
            });
            let parts: Vec<Vec<Tensor>> = parts.into_iter().map(|p| p.unwrap()).collect();
            for (k, expected) in expected.iter().enumerate() {
                let of_ranks: Vec<Tensor> = parts.iter().map(|p| p[k].clone()).collect();
                let what =
                    format!("{}, shares {shares:?}", ["y", "dx", "dw", "db", "second"].get(k).unwrap_or(&"buffer"));
                match k {
                    // Parts of the whole.
                    0 | 1 | 4 => close(&Tensor::cat(&of_ranks, 0), expected, &what),
                    // Each rank's share of a sum: data parallelism adds them up.
                    2 | 3 => close(&of_ranks[1..].iter().fold(of_ranks[0].clone(), |sum, t| sum + t), expected, &what),
                    _ => of_ranks.iter().for_each(|t| close(t, expected, &what)),
                }
            }
        }
    }
}

#[test]
fn derivatives_and_evaluation() {
    let world = World::single();
    let layer = SyncBatchNormOptions::new(2).track_running_stats(false).build(&world).unwrap();
    layer.to_dtype(DType::F64).unwrap();
    let x = with_generator(Generator::new(5), || Tensor::randn([4, 2, 3], DType::F64)).requires_grad_();
    let f = |inputs: &[Tensor]| Ok(vec![layer.try_call(&inputs[0])?]);
    gradcheck(f, std::slice::from_ref(&x), &Default::default()).unwrap();
    gradgradcheck(f, std::slice::from_ref(&x), None, &Default::default()).unwrap();

    let (sync, plain) = (SyncBatchNorm::new(2, &world), BatchNorm2d::new(2));
    let x = with_generator(Generator::new(6), || Tensor::randn([4, 2, 3, 3], DType::F32));
    for layer in [&sync as &dyn Forward<Output = Tensor>, &plain] {
        layer.call(&x);
        layer.eval();
    }
    let (a, b) = (sync.call(&x), plain.call(&x));
    assert!((a - b).abs().max().item::<f32>() < 1e-6);
    assert_eq!(format!("{sync:?}"), "SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)");
}

#[test]
fn refusals() {
    let layer = SyncBatchNorm::new(3, &World::single());
    for (shape, message) in [
        (vec![4, 2, 5], "expected [batch, 3, ...], found shape [4, 2, 5]"),
        (vec![3], "expected [batch, 3, ...], found shape [3]"),
        (vec![1, 3], "expected more than one value per channel over all ranks, found 1"),
    ] {
        let error = layer.try_call(&Tensor::zeros(shape, DType::F32)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}
