//! Decompositions of matrices: one large matrix, and a batch of tiny ones.

use super::{Bench, Done};
use firebrand::{DType, Result, SymInt, Tensor, ops};

/// Seconds of clock for each case.
const SECONDS: f64 = 0.05;

type Case = (&'static str, fn(&Tensor, &Tensor, &Tensor) -> Result<()>);

/// Each gets a matrix, a positive-definite one and right-hand sides.
const CASES: [Case; 10] = [
    ("cholesky", |_, spd, _| ops::linalg_cholesky(spd, false).map(drop)),
    ("solve", |a, _, b| ops::linalg_solve(a, b, true).map(drop)),
    ("inv", |a, _, _| ops::linalg_inv(a).map(drop)),
    ("lu", |a, _, _| ops::linalg_lu_factor(a, true).map(drop)),
    ("qr", |a, _, _| ops::linalg_qr(a, "reduced").map(drop)),
    ("svd", |a, _, _| ops::linalg_svd(a, false, None).map(drop)),
    ("eigh", |_, spd, _| ops::linalg_eigh(spd, "L").map(drop)),
    ("eig", |a, _, _| ops::linalg_eig(a).map(drop)),
    ("lstsq", |a, _, b| ops::linalg_lstsq(a, b, None, None).map(drop)),
    ("matrix_exp", |a, _, _| ops::linalg_matrix_exp(a).map(drop)),
];

pub(super) fn linalg(bench: &Bench) -> Done {
    let _plain = firebrand::autograd::NoGrad::new();
    for (name, lead, n) in [("64", &[][..], 64), ("256", &[], 256), ("1024", &[], 1024), ("1000x8", &[1000], 8)] {
        for dtype in [DType::F32, DType::F64] {
            let normal = |columns: usize| {
                let sizes: Vec<SymInt> = lead.iter().chain(&[n, columns]).map(|&n: &usize| n.into()).collect();
                ops::randn(&sizes, Some(dtype), None)
            };
            let (a, b) = (normal(n)?, normal(8)?);
            let spd = a.matmul(&a.transpose(-2, -1)) + Tensor::eye(n, dtype) * n as f64;
            let kind = if dtype == DType::F32 { "f32" } else { "f64" };
            for (what, call) in CASES {
                let seconds = bench.clock.best(SECONDS, || call(&a, &spd, &b))?;
                bench.emit(&format!("{what}.{name}.{kind}"), seconds * 1e3, "ms")?;
            }
        }
    }
    Ok(())
}
