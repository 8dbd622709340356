//! Kernels whose temporary memory does not fit: the op returns the error of the allocator, and the process goes on.
//!
//! The test starts itself again with a limit on its address space. There, for every case, operands are made first, then all
//! memory is taken but what the results need and a little more; the temporary memory of each case is several times that.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use firebrand_core::{DType, ErrorKind, Result, Tensor, empty_cache, ops, set_num_threads};

const MIB: usize = 1 << 20;
/// What is left beside the results.
const SPARE: usize = 6;

/// Takes all memory but `left` MiB.
fn balloon(left: usize) -> Vec<Vec<u8>> {
    empty_cache();
    let mut taken: Vec<Vec<u8>> = Vec::with_capacity(1 << 14);
    loop {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(MIB).is_err() {
            break;
        }
        taken.push(piece);
    }
    taken.truncate(taken.len().saturating_sub(left));
    taken
}

/// An op, how many MiB its results have, and the call on operands that exist already.
type Case = (&'static str, usize, Box<dyn Fn() -> Result<()>>);

fn case(name: &'static str, results: usize, call: impl Fn() -> Result<()> + 'static) -> Case {
    (name, results, Box::new(call))
}

fn zeros(sizes: &[i64], dtype: DType) -> Tensor {
    Tensor::zeros(sizes, dtype)
}

type Make = fn() -> Case;

const CASES: &[Make] = &[
    || {
        let x = zeros(&[4 << 20], DType::F32);
        case("sort", 48, move || ops::sort(&x, 0, false).map(drop))
    },
    || {
        let x = zeros(&[4 << 20], DType::F32);
        case("kthvalue", 0, move || ops::kthvalue(&x, 7.into(), 0, false).map(drop))
    },
    || {
        let x = zeros(&[4 << 20], DType::F32);
        case("unique", 0, move || ops::unique2(&x, true, false, false).map(drop))
    },
    || {
        let x = zeros(&[2 << 20], DType::C64);
        case("fft", 16, move || ops::fft_fft(&x, None, -1, None).map(drop))
    },
    || {
        let (a, b) = (zeros(&[1, 1 << 18], DType::I64), zeros(&[1 << 18, 1], DType::I64));
        case("matmul", 0, move || ops::mm(&a, &b).map(drop))
    },
    || {
        let (q, k) = (zeros(&[1, 1, 64, 8], DType::F32), zeros(&[1, 1, 1 << 20, 8], DType::F32));
        case("attention", 0, move || {
            ops::scaled_dot_product_attention(&q, &k, &k, None, 0.0, false, None, false).map(drop)
        })
    },
    || {
        let (x, w) = (zeros(&[1, 1, 4096, 4096], DType::BF16), zeros(&[1, 1, 1, 1], DType::BF16));
        let (one, none) = (vec![1.into(); 2], vec![0.into(); 2]);
        case("conv", 32, move || ops::conv2d(&x, &w, None, &one, &none, &one, 1.into()).map(drop))
    },
    || {
        let x = zeros(&[1, 1, 4096, 4096], DType::BF16);
        case("avg_pool", 8, move || ops::avg_pool2d(&x, &[2, 2], &[2, 2], &[0, 0], false, true, None).map(drop))
    },
    || {
        let x = zeros(&[1, 16 << 20], DType::BF16);
        case("softmax", 32, move || ops::softmax(&x, 1, None).map(drop))
    },
    || {
        let x = zeros(&[1, 16 << 20], DType::BF16);
        case("layer_norm", 32, move || ops::native_layer_norm(&x, &[(16 << 20).into()], None, None, 1e-5).map(drop))
    },
    || {
        let a = ops::eye(2048.into(), Some(DType::F64), None).unwrap();
        case("inverse", 32, move || ops::linalg_inv_ex(&a, false).map(drop))
    },
    || {
        let a = ops::eye(2048.into(), Some(DType::F64), None).unwrap();
        case("eigh", 32, move || ops::linalg_eigh(&a, "L").map(drop))
    },
    || {
        let (x, at) = (zeros(&[8], DType::U8), zeros(&[8 << 20], DType::I64));
        case("index", 8, move || ops::index(&x, &[Some(at.clone())]).map(drop))
    },
    // Lists that ops make between kernels: there is memory for the first of them, not for the next.
    || {
        let x = zeros(&[4 << 20], DType::F32);
        case("poisson", 80, move || ops::poisson(&x).map(drop))
    },
    || {
        let x = zeros(&[4 << 20], DType::I64);
        case("isin", 64, move || ops::isin(&x, &zeros(&[1], DType::I64), false, false).map(drop))
    },
    || {
        let (x, at) = (zeros(&[4 << 20, 1], DType::F32), zeros(&[4 << 20], DType::I64));
        case("nll_loss", 32, move || ops::nll_loss(&x, &at, None, 0, (-100i64).into()).map(drop))
    },
    || {
        let x = zeros(&[1 << 20, 1], DType::F32);
        case("unique_dim", 24, move || ops::unique_dim(&x, 0, true, true, true).map(drop))
    },
    || {
        let (w, at, bags) = (zeros(&[1, 1], DType::F32), zeros(&[4 << 20], DType::I64), zeros(&[1], DType::I64));
        case("embedding_bag", 16, move || ops::embedding_bag(&w, &at, &bags, false, 0, false, None, false).map(drop))
    },
];

fn child() {
    set_num_threads(1);
    let mut wrong = Vec::new();
    for make in CASES {
        let (name, results, call) = make();
        let taken = balloon(results + SPARE);
        let found = call();
        drop(taken);
        match found {
            Err(e) if matches!(e.kind(), ErrorKind::OutOfMemory { .. }) => {}
            Err(e) => wrong.push(format!("{name}: {e}")),
            Ok(()) => wrong.push(format!("{name}: there was enough memory")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn temporary_memory_that_is_not_there_is_an_error() {
    const CHILD: &str = "FIREBRAND_TEST_EXHAUSTION";
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let program = std::env::current_exe().unwrap();
    // `FIREBRAND_TEST_RUNNER`: the emulator under which this program runs, if it does.
    let run = "ulimit -v 1000000; exec $FIREBRAND_TEST_RUNNER \"$0\" temporary_memory_that_is_not_there_is_an_error --exact --test-threads 1";
    let out = std::process::Command::new("sh").arg("-c").arg(run).arg(program).env(CHILD, "1").output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{}\n{text}\n{errors}", out.status);
}
