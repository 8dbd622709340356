//! Collectives between threads: results, their bits, and what happens when a rank fails.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use firebrand_core::{DType, Tensor};
use firebrand_dist::{Error, World, threads};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Runs all ranks, which must end well.
fn all<R: Send>(ranks: usize, f: impl Fn(&World) -> firebrand_dist::Result<R> + Sync) -> Vec<R> {
    threads::run(ranks, SOON, f).into_iter().map(|r| r.unwrap()).collect()
}

#[test]
fn collectives() {
    for ranks in 1..=5 {
        let done = all(ranks, |world| {
            let mine = Tensor::new(&[[world.rank() as f64, 1.0, 2.0], [0.5, -1.0, 0.25]]);
            let sum = world.all_reduce(&mine)?;
            let gathered = world.all_gather(&mine)?;
            let root = ranks - 1;
            let copied = mine.clone_tensor();
            world.broadcast(&copied, root)?;
            world.barrier()?;
            let texts = world.gather_text(&"x".repeat(world.rank()))?;
            Ok((sum, gathered, copied, texts))
        });
        let n = ranks as f64;
        for (sum, gathered, copied, texts) in done {
            assert_eq!(sum.shape(), [2, 3], "{ranks} ranks");
            assert_eq!(sum.to_vec::<f64>(), [n * (n - 1.0) / 2.0, n, 2.0 * n, 0.5 * n, -n, 0.25 * n], "{ranks} ranks");
            let first: Vec<f64> = gathered.iter().map(|t| t.to_vec::<f64>()[0]).collect();
            assert_eq!(first, (0..ranks).map(|r| r as f64).collect::<Vec<_>>(), "{ranks} ranks");
            assert_eq!(copied.to_vec::<f64>()[0], n - 1.0, "{ranks} ranks");
            assert_eq!(texts, (0..ranks).map(|r| "x".repeat(r)).collect::<Vec<_>>(), "{ranks} ranks");
        }
    }
}

/// A sum over ranks has the bits of the tree, on every rank and every time.
#[test]
fn sums_have_the_bits_of_the_tree() {
    for ranks in [2, 3, 4, 6] {
        let terms: Vec<Tensor> = {
            firebrand_core::random::manual_seed(7);
            (0..ranks).map(|_| Tensor::randn([1001], DType::F32) * 1e4).collect()
        };
        let whole: Vec<Tensor> = terms.iter().map(|t| t.clone_tensor()).collect();
        firebrand_dist::tree::sum_into_first(&whole).unwrap();
        for _ in 0..3 {
            for sum in all(ranks, |world| world.all_reduce(&terms[world.rank()])) {
                assert_eq!(sum.to_vec::<f32>(), whole[0].to_vec::<f32>(), "{ranks} ranks");
            }
        }
    }
}

#[test]
fn a_failing_rank_ends_the_wait_of_the_others() {
    let ended = threads::run(3, SOON, |world| {
        if world.rank() == 1 {
            return Err(Error::Argument("no data".into()));
        }
        world.barrier()
    });
    assert_eq!(ended[1].as_ref().unwrap_err().to_string(), "no data");
    for rank in [0, 2] {
        assert_eq!(ended[rank].as_ref().unwrap_err().to_string(), "rank 1 failed: no data");
    }
    let panicked = std::panic::catch_unwind(|| {
        threads::run(2, SOON, |world| if world.rank() == 0 { panic!("a bug") } else { world.barrier() })
    });
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"a bug"));
}

#[test]
fn a_rank_that_does_not_come_is_waited_for_until_the_time_out() {
    let ended = threads::run(2, Duration::from_millis(50), |world| match world.rank() {
        0 => world.barrier(),
        _ => Ok(()),
    });
    let text = ended[0].as_ref().unwrap_err().to_string();
    assert!(text.starts_with("rank 0 waited 0.0") && text.contains("in an all-gather"), "{text}");
}

#[test]
fn a_world_of_one_needs_nobody() {
    let world = World::single();
    assert_eq!((world.rank(), world.size(), world.is_main(), world.engine()), (0, 1, true, "one process"));
    assert_eq!(world.all_reduce(&Tensor::new(&[2.0f32])).unwrap().to_vec::<f32>(), [2.0]);
    let e = world.broadcast(&Tensor::new(&[2.0f32]), 1).unwrap_err();
    assert_eq!(e.to_string(), "expected a rank below 1, found 1");
}
