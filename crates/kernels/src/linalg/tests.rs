//! Each decomposition multiplies back to the matrix, and its factors have the structure they promise.

use super::*;

/// Numbers in -1..1 that follow from the seed.
fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn product(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
    let (m, n) = (a.len() / inner.max(1), b.len() / inner.max(1));
    (0..m * n).map(|k| (0..inner).map(|t| a[k / n * inner + t] * b[t * n + k % n]).sum()).collect()
}

fn transposed(a: &[f64], columns: usize) -> Vec<f64> {
    let rows = a.len() / columns.max(1);
    (0..a.len()).map(|k| a[(k % rows) * columns + k / rows]).collect()
}

#[track_caller]
fn assert_close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-11, "differs by {worst}");
}

#[track_caller]
fn assert_orthonormal_columns(q: &[f64], k: usize) {
    assert_close(&product(&transposed(q, k), q, q.len() / k), &identity(k));
}

const SIZES: [usize; 6] = [1, 2, 3, 8, 17, 40];

#[test]
fn systems_and_inverses() {
    for n in SIZES {
        let a = numbers(n as u64, n * n);
        let mut out = vec![0.0; n * n];
        assert_eq!(inverse(&a, n, &mut out), 0);
        assert_close(&product(&a, &out, n), &identity(n));
        let b = numbers(7, n * 3);
        let (mut lu, mut pivots, mut x) = (a.clone(), vec![0.0; n], b.clone());
        factor(&mut lu, n, &mut pivots);
        solve_factored(&lu, &pivots, n, &mut x, 3);
        assert_close(&product(&a, &x, n), &b);
        let (sign, log, det) = log_abs_determinant(&lu, &pivots, n);
        assert!((sign * log.exp() - det).abs() <= 1e-12 * det.abs());
    }
    assert_eq!(inverse(&[1.0, 2.0, 2.0, 4.0], 2, &mut [0.0; 4]), 2);
    assert_eq!(inverse(&[0.0; 4], 2, &mut [0.0; 4]), 1);
}

#[test]
fn cholesky_factors() {
    for n in SIZES {
        let b = numbers(n as u64, n * n);
        let mut a = product(&b, &transposed(&b, n), n);
        a.iter_mut().step_by(n + 1).for_each(|d| *d += 1.0);
        let mut l = vec![0.0; n * n];
        assert_eq!(cholesky(&a, n, &mut l), 0);
        assert_close(&product(&l, &transposed(&l, n), n), &a);
        a[(n - 1) * (n + 1)] = -1.0;
        assert_eq!(cholesky(&a, n, &mut l), n as i32);
    }
}

#[test]
fn qr_of_every_shape() {
    for (m, n) in [(1, 1), (3, 3), (5, 2), (2, 5), (20, 7), (7, 20)] {
        let a = numbers((m * n) as u64, m * n);
        for k in [m.min(n), m] {
            let (mut q, mut r) = (vec![0.0; m * k], vec![0.0; k * n]);
            qr(&a, m, n, &mut q, &mut r);
            assert_orthonormal_columns(&q, k);
            assert!((0..k * n).all(|e| e / n <= e % n || r[e] == 0.0));
            assert_close(&product(&q, &r, k), &a);
        }
    }
}

#[test]
fn eigenvectors() {
    for n in SIZES {
        let b = numbers(n as u64, n * n);
        let a: Vec<f64> = b.iter().zip(transposed(&b, n)).map(|(x, y)| x + y).collect();
        let (mut values, mut vectors) = (vec![0.0; n], vec![0.0; n * n]);
        assert_eq!(eigh(&a, n, &mut values, &mut vectors), 0);
        assert!(values.is_sorted());
        assert_orthonormal_columns(&vectors, n);
        let scaled: Vec<f64> = vectors.iter().enumerate().map(|(k, v)| v * values[k % n]).collect();
        assert_close(&product(&scaled, &transposed(&vectors, n), n), &a);
        let mut alone = vec![0.0; n];
        eigh(&a, n, &mut alone, &mut []);
        assert_close(&alone, &values);
    }
    // Repeated and zero eigenvalues, and a matrix that is diagonal already.
    for a in [[0.0; 9], [2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, -1.0], [1.0; 9]] {
        let (mut values, mut vectors) = ([0.0; 3], [0.0; 9]);
        assert_eq!(eigh(&a, 3, &mut values, &mut vectors), 0);
        assert_orthonormal_columns(&vectors, 3);
        assert!((values.iter().sum::<f64>() - (a[0] + a[4] + a[8])).abs() < 1e-12);
    }
}

fn check_svd(a: &[f64], m: usize, n: usize) -> Vec<f64> {
    let k = m.min(n);
    let mut s = vec![0.0; k];
    for (p, q) in [(k, k), (m, n)] {
        let (mut u, mut vt) = (vec![0.0; m * p], vec![0.0; q * n]);
        assert_eq!(svd(a, m, n, &mut u, &mut s, &mut vt), 0);
        assert_orthonormal_columns(&u, p);
        assert_orthonormal_columns(&transposed(&vt, n), q);
        assert!(s.is_sorted_by(|a, b| a >= b) && s.iter().all(|s| *s >= 0.0));
        let us: Vec<f64> = (0..m * k).map(|e| u[e / k * p + e % k] * s[e % k]).collect();
        assert_close(&product(&us, &vt[..k * n], k), a);
    }
    s
}

#[test]
fn singular_values() {
    for (m, n) in [(1, 1), (3, 3), (5, 2), (2, 5), (20, 7), (7, 20), (40, 40)] {
        check_svd(&numbers((m + n) as u64, m * n), m, n);
    }
    // Of rank one and of rank zero: the missing vectors complete the basis.
    let s = check_svd(&[1.0; 12], 4, 3);
    assert!((s[0] - 12f64.sqrt()).abs() < 1e-12 && s[1] < 1e-12);
    check_svd(&[0.0; 12], 3, 4);
    assert_eq!(svd(&[f64::NAN; 4], 2, 2, &mut [], &mut [0.0; 2], &mut []), 1);
}

/// A batch gives what its matrices give one by one, for any number of threads.
#[test]
fn batches() {
    let _guard = crate::real::alone();
    let a = numbers(3, 9 * 50);
    let run = || {
        let mut out = vec![0.0; a.len()];
        let info = batched(50, [(&a, 9)], [(&mut out, 9)], |[a], [out]| inverse(a, 3, out));
        assert_eq!(info, [0; 50]);
        out
    };
    let threads = crate::parallel::num_threads();
    let each: Vec<Vec<f64>> = [1, 2, 5]
        .map(|n| {
            crate::parallel::set_num_threads(n);
            run()
        })
        .into();
    crate::parallel::set_num_threads(threads);
    assert!(each.iter().all(|e| *e == each[0]));
}
