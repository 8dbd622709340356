//! Linear algebra where PyTorch's own numbers do not decide: eigenvectors and singular vectors (known up to their
//! sign), matrices that stand for symmetric ones, gradients at singular matrices, and what errors say.
#![allow(clippy::unwrap_used)]

use firebrand_core::autograd::{GradcheckOptions, gradcheck, gradgradcheck};
use firebrand_core::{DType, ErrorKind, Result, Tensor, ops};

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
