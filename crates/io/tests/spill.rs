//! Saved tensors on disk: right gradients, no file left, no disk needed beyond the graph's life.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::save_in_store;
use firebrand_core::{DType, Tensor, collect_warnings, memory_stats, reset_peak_memory};
use firebrand_io::{SpillFile, save_on_disk};

const N: i64 = 1 << 16;

fn chain(x: &Tensor) -> Tensor {
    (0..8).fold(x.clone(), |y, k| if k % 2 == 0 { y.sin() } else { y.exp() })
}

fn gradient_of(x: &Tensor, y: &Tensor) -> Vec<f32> {
    y.sum().backward();
    let g = x.grad().unwrap().to_vec();
    x.zero_grad();
    g
}

fn leaf() -> Tensor {
    Tensor::linspace(0.0, 1.0, N, DType::F32).requires_grad_()
}

/// Nothing has a name, even while the graph lives; memory holds a fraction of it.
#[test]
fn on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let x = leaf();
    let peak = |f: &dyn Fn() -> Tensor| {
        reset_peak_memory();
        let before = memory_stats().live;
        let y = f();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let g = gradient_of(&x, &y);
        (memory_stats().peak - before, g)
    };
    let (plain_peak, plain) = peak(&|| chain(&x));
    let (disk_peak, disk) = peak(&|| {
        let _on_disk = save_on_disk(dir.path()).unwrap();
        chain(&x)
    });
    assert_eq!(plain, disk);
    assert!(disk_peak < plain_peak, "{disk_peak} {plain_peak}");
}

/// Space is used again, and given back to the disk when the graph is gone.
#[test]
fn space_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let (x, file) = (leaf(), SpillFile::new(dir.path()).unwrap());
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let y = {
            let _scope = save_in_store(file.clone(), 0).unwrap();
            chain(&x)
        };
        sizes.push(file.len());
        gradient_of(&x, &y);
        drop(y);
        assert!(file.is_empty());
    }
    assert!(sizes[0] > 0 && sizes.iter().all(|s| *s == sizes[0]), "{sizes:?}");
}

/// When the disk is full, what no longer fits stays in memory and every gradient is right.
#[test]
fn a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let x = leaf();
    let plain = gradient_of(&x, &chain(&x));
    let file = SpillFile::with_limit(dir.path(), 3 * 4 * N as u64).unwrap();
    let (y, warnings) = collect_warnings(|| {
        let _scope = save_in_store(file.clone(), 0).unwrap();
        chain(&x)
    });
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(file.len(), 3 * 4 * N as u64);
    assert_eq!(gradient_of(&x, &y), plain);
    // A folder that is not there is said at once.
    let error = save_on_disk(dir.path().join("missing")).expect_err("no folder").to_string();
    assert!(error.contains("missing"), "{error}");
}
