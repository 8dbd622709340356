//! Linear algebra where PyTorch's own numbers do not decide: eigenvectors and singular vectors (known up to their
//! sign), matrices that stand for symmetric ones, gradients at singular matrices, and what errors say.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::{GradcheckOptions, gradcheck, gradgradcheck};
use firebrand_core::{DType, Device, ErrorKind, Result, Tensor, ops};

/// Numbers in -1..1 without a pattern.
fn matrix(sizes: &[usize]) -> Tensor {
    let n: usize = sizes.iter().product();
    let numbers: Vec<f64> = (0..n).map(|k| ((k as f64 + 1.0) * 12.9898).sin() * 437.585 % 1.0).collect();
    Tensor::try_from_vec(numbers, sizes).unwrap()
}

fn transposed(t: &Tensor) -> Tensor {
    t.transpose(-2, -1)
}

/// First and second derivatives, reverse and forward.
#[track_caller]
fn check(f: impl Fn(&Tensor) -> Result<Vec<Tensor>>, x: Tensor) {
    let inputs = [x.requires_grad_()];
    let options = GradcheckOptions { check_forward_ad: true, ..Default::default() };
    let f = |x: &[Tensor]| f(&x[0]);
    assert!(gradcheck(f, &inputs, &options).unwrap());
    assert!(gradgradcheck(f, &inputs, None, &options).unwrap());
}

#[track_caller]
fn close(a: &Tensor, b: &Tensor) {
    let (x, y) = (a.to_vec::<f64>(), b.to_vec::<f64>());
    assert_eq!(a.shape(), b.shape());
    assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-10), "{x:?} {y:?}");
}

#[test]
fn eigenvectors_multiply_back() {
    for sizes in [&[1, 1][..], &[4, 4], &[2, 3, 3]] {
        let a = matrix(sizes);
        let a = &a + &transposed(&a);
        let (values, vectors) = ops::linalg_eigh(&a, "L").unwrap();
        close(&(&vectors * &values.unsqueeze(-2)).matmul(&transposed(&vectors)), &a);
        close(&ops::linalg_eigvalsh(&a, "U").unwrap(), &values);
    }
}

#[test]
fn singular_vectors_multiply_back() {
    for sizes in [&[4, 2][..], &[2, 4], &[3, 3], &[2, 3, 2]] {
        let a = matrix(sizes);
        let (u, s, vh) = ops::linalg_svd(&a, false, None).unwrap();
        close(&(&u * &s.unsqueeze(-2)).matmul(&vh), &a);
        let (u, _, vh) = ops::linalg_svd(&a, true, None).unwrap();
        for q in [u, transposed(&vh)] {
            let n = q.shape()[q.ndim() - 1];
            let one = Tensor::eye(n, q.dtype());
            let mut sizes = q.shape().to_vec();
            sizes[q.ndim() - 2] = n;
            close(&transposed(&q).matmul(&q), &one.expand(&sizes[..]));
        }
    }
}

/// Squares of the components do not depend on signs.
#[test]
fn derivatives_of_eigenvectors() {
    let f = |a: &Tensor| {
        let (values, vectors) = ops::linalg_eigh(&(a + &transposed(a)), "L")?;
        Ok(vec![values, &vectors * &vectors])
    };
    check(f, matrix(&[3, 3]));
    check(f, matrix(&[2, 2, 2]));
}

#[test]
fn derivatives_of_singular_vectors() {
    let f = |a: &Tensor| {
        let (u, s, vh) = ops::linalg_svd(a, false, None)?;
        Ok(vec![&u * &u, &vh * &vh, s.clone(), u.matmul(&vh)])
    };
    for sizes in [&[3, 3][..], &[4, 2], &[2, 3], &[2, 2, 2]] {
        check(f, matrix(sizes));
    }
    // With the vectors that complete a basis.
    let whole = |a: &Tensor| {
        let (u, s, vh) = ops::linalg_svd(a, true, None)?;
        let own = ops::narrow(&vh, -2, 0.into(), 2.into())?;
        Ok(vec![&u * &u, s, &own * &own])
    };
    check(whole, matrix(&[2, 3]));
}

#[test]
fn derivatives_of_cholesky() {
    for upper in [false, true] {
        let f = |a: &Tensor| {
            let one = Tensor::eye(3, a.dtype());
            let definite = a.matmul(&transposed(a)) + one;
            Ok(vec![ops::linalg_cholesky(&definite, upper)?])
        };
        check(f, matrix(&[3, 3]));
    }
    check(|l| Ok(vec![ops::cholesky_solve(&matrix(&[3, 2]), l, false)?]), matrix(&[3, 3]) + 2.0);
}

/// PyTorch returns zeros here unless a graph is made; cofactors are right either way.
#[test]
fn gradient_of_the_determinant_of_a_singular_matrix() {
    let a = Tensor::try_from_vec(vec![1.0, 2.0, 2.0, 4.0], [2, 2]).unwrap().requires_grad_();
    a.det().backward();
    close(&a.grad().unwrap(), &Tensor::try_from_vec(vec![4.0, -2.0, -2.0, 1.0], [2, 2]).unwrap());
}

#[test]
fn a_singular_matrix_is_named() {
    let one = Tensor::eye(2, DType::F64);
    let zero = Tensor::try_from_vec(vec![1.0, 2.0, 2.0, 4.0], [2, 2]).unwrap();
    let both = ops::stack(&[one.clone(), zero.clone()], 0).unwrap();
    let found = |e: Result<Tensor>| match e.unwrap_err().kind() {
        ErrorKind::Linalg { op, batch, .. } => (*op, *batch),
        other => panic!("{other:?}"),
    };
    assert_eq!(found(ops::linalg_inv(&both)), ("linalg_inv", Some(1)));
    assert_eq!(found(ops::linalg_inv(&zero)), ("linalg_inv", None));
    assert_eq!(found(ops::linalg_solve(&both, &one, true)), ("linalg_solve", Some(1)));
    assert_eq!(found(ops::linalg_cholesky(&(&both * &both * -1.0), false)), ("linalg_cholesky", Some(0)));
    let message = ops::linalg_inv(&both).unwrap_err().to_string();
    assert_eq!(
        message,
        "linalg_inv: (batch element 1): the matrix is singular: element 2 of the diagonal of its factor U is zero"
    );
}

/// Where PyTorch refuses a derivative of QR, so do we, and say what to do.
#[test]
fn modes_of_qr_without_derivative() {
    for (mode, says) in [("complete", "more rows than columns"), ("r", "mode 'r' leaves out")] {
        let a = matrix(&[4, 2]).requires_grad_();
        let (_, r) = ops::linalg_qr(&a, mode).unwrap();
        let e = r.sum().try_backward(&Default::default()).unwrap_err().to_string();
        assert!(e.contains(says) && e.contains("use mode 'reduced'"), "{e}");
    }
}

/// Complex numbers in the square around zero without a pattern.
fn complex_matrix(sizes: &[usize]) -> Tensor {
    let both = matrix(&[&[2], sizes].concat());
    ops::complex(&both.select(0, 0), &both.select(0, 1)).unwrap()
}

#[track_caller]
fn close_complex(a: &Tensor, b: &Tensor) {
    let parts =
        |t: &Tensor| if t.is_complex() { ops::view_as_real(&ops::clone(t, None).unwrap()).unwrap() } else { t.clone() };
    close(&parts(a), &parts(b));
}

#[test]
fn eigenvectors_of_any_matrix_multiply_back() {
    for a in [matrix(&[1, 1]), matrix(&[2, 4, 4]), matrix(&[40, 40]), complex_matrix(&[3, 3])] {
        let (values, vectors) = ops::linalg_eig(&a).unwrap();
        let wide = a.to_dtype(DType::C128);
        close_complex(&wide.matmul(&vectors), &(&vectors * &values.unsqueeze(-2)));
        let _plain = firebrand_core::autograd::NoGrad::new();
        close_complex(&ops::linalg_eigvals(&a).unwrap(), &values);
    }
}

/// Absolute values of the components do not depend on the angle of a vector.
#[test]
fn derivatives_of_eigenvectors_of_any_matrix() {
    let f = |a: &Tensor| {
        let (values, vectors) = ops::linalg_eig(a)?;
        Ok(vec![ops::abs(&values)?, ops::abs(&vectors)?])
    };
    check(f, matrix(&[3, 3]));
    check(f, complex_matrix(&[2, 2]));
}

#[test]
fn derivatives_of_complex_vectors() {
    let eigh = |a: &Tensor| {
        let (values, vectors) = ops::linalg_eigh(&(a + &ops::adjoint(a)?), "L")?;
        Ok(vec![values, ops::abs(&vectors)?])
    };
    check(eigh, complex_matrix(&[3, 3]));
    for sizes in [&[2, 2][..], &[3, 2], &[2, 3]] {
        let svd = |a: &Tensor| {
            let (u, s, vh) = ops::linalg_svd(a, false, None)?;
            Ok(vec![ops::abs(&u)?, s, ops::abs(&vh)?, ops::abs(&u.matmul(&vh))?])
        };
        check(svd, complex_matrix(sizes));
    }
}

#[test]
fn ldl_factors_solve() {
    for (a, hermitian) in
        [(matrix(&[2, 5, 5]), false), (complex_matrix(&[4, 4]), false), (complex_matrix(&[4, 4]), true)]
    {
        let turned = if hermitian { ops::adjoint(&a).unwrap() } else { transposed(&a) };
        let a = &a + &turned;
        let b = if a.is_complex() { complex_matrix(&[4, 2]) } else { matrix(&[2, 5, 3]) };
        let (ld, pivots) = ops::linalg_ldl_factor(&a, hermitian).unwrap();
        let x = ops::linalg_ldl_solve(&ld, &pivots, &b, hermitian).unwrap();
        close_complex(&a.matmul(&x), &b);
    }
}

#[test]
fn least_squares_without_full_rank() {
    let (a, b) = (Tensor::ones([3, 2], DType::F64), matrix(&[3, 1]));
    let mean = b.mean();
    for driver in [None, Some("gelsd"), Some("gelss")] {
        let (x, residuals, rank, values) = ops::linalg_lstsq(&a, &b, None, driver).unwrap();
        close(&x, &(Tensor::ones([2, 1], DType::F64) * &mean * 0.5));
        assert_eq!((residuals.numel(), rank.item::<i64>()), (0, 1));
        assert_eq!(values.numel(), if driver.is_some() { 2 } else { 0 });
    }
    let e = ops::linalg_lstsq(&(&a * 0.0), &b, None, Some("gels")).unwrap_err().to_string();
    assert!(e.contains("full rank") && e.contains("'gelsd'"), "{e}");
}

/// Whatever the numbers, an answer or an error; sizes of meta tensors cost nothing.
#[test]
fn numbers_that_are_not_finite_and_sizes_that_are_huge() {
    type Call = (&'static str, fn(&Tensor) -> Result<Tensor>);
    let calls: [Call; 14] = [
        ("inv", |a| Ok(ops::linalg_inv_ex(a, false)?.0)),
        ("solve", |a| ops::linalg_solve(a, a, true)),
        ("det", ops::linalg_det),
        ("cholesky", |a| Ok(ops::linalg_cholesky_ex(a, false, false)?.0)),
        ("qr", |a| Ok(ops::linalg_qr(a, "reduced")?.1)),
        ("eigh", |a| Ok(ops::linalg_eigh(a, "L")?.0)),
        ("svd", |a| Ok(ops::linalg_svd(a, true, None)?.1)),
        ("eig", |a| Ok(ops::linalg_eig(a)?.0)),
        ("lu", |a| Ok(ops::linalg_lu(a, true)?.2)),
        ("ldl", |a| Ok(ops::linalg_ldl_factor_ex(a, false, false)?.0)),
        ("lstsq", |a| Ok(ops::linalg_lstsq(a, a, None, None)?.0)),
        ("pinv", |a| ops::linalg_pinv_atol_rtol_tensor(a, None, None, false)),
        ("matrix_exp", ops::linalg_matrix_exp),
        ("geqrf", |a| Ok(ops::geqrf(a)?.0)),
    ];
    for n in [0usize, 1, 3, 40] {
        for bad in [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE / 4.0, 0.0] {
            for dtype in [DType::F32, DType::F64, DType::C64, DType::C128] {
                let spoilt = ops::full(&[n.into(), n.into()], bad.into(), Some(DType::F64), None).unwrap();
                let one = (matrix(&[n, n]) + &ops::tril(&spoilt, 0.into()).unwrap()).to_dtype(dtype);
                for a in [spoilt.to_dtype(dtype), one] {
                    for (name, call) in calls {
                        if let Ok(out) = call(&a) {
                            assert_eq!(out.shape().last(), Some(&n).filter(|_| name != "det"), "{name}");
                        }
                    }
                }
            }
        }
    }
    let sizes = [if usize::BITS == 64 { 1i64 << 30 } else { 4 }, 1 << 10, 1 << 10].map(|n| n.into());
    let huge = ops::zeros(&sizes, Some(DType::F64), Some(Device::Meta)).unwrap();
    for (name, call) in calls {
        assert!(call(&huge).is_ok(), "{name}");
    }
}
