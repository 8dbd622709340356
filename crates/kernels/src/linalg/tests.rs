//! Each decomposition multiplies back to the matrix, and its factors have the structure they promise: real and complex, on
//! either side of the sizes from which the library serves instead of the plain loops.

use super::*;
use crate::Complex;

type C = Complex<f64>;

/// Makes a number from its parts.
trait Tested: Number {
    fn from_parts(re: f64, im: f64) -> Self;
}
impl Tested for f64 {
    fn from_parts(re: f64, _: f64) -> f64 {
        re
    }
}
impl Tested for C {
    fn from_parts(re: f64, im: f64) -> C {
        C::new(re, im)
    }
}

/// Numbers in -1..1 that follow from the seed.
fn numbers<T: Tested>(seed: u64, count: usize) -> Vec<T> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| T::from_parts(next(), next())).collect()
}

/// Column-major product.
fn product<T: Number>(a: &[T], b: &[T], inner: usize) -> Vec<T> {
    let (m, n) = (a.len() / inner.max(1), b.len() / inner.max(1));
    let at = |k: usize| (0..inner).fold(T::ZERO, |s, t| s + a[t * m + k % m] * b[k / m * inner + t]);
    (0..m * n).map(at).collect()
}

fn adjoint<T: Number>(a: &[T], rows: usize) -> Vec<T> {
    let columns = a.len() / rows.max(1);
    (0..a.len()).map(|k| a[(k % columns) * rows + k / columns].conj()).collect()
}

fn identity<T: Number>(n: usize) -> Vec<T> {
    let mut a = vec![T::ZERO; n * n];
    fill_identity(&mut a, n);
    a
}

#[track_caller]
fn assert_close<T: Number>(a: &[T], b: &[T]) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(a, b)| (*a - *b).size()).fold(0.0, f64::max);
    assert!(worst < 1e-10, "differs by {worst}");
}

#[track_caller]
fn assert_orthonormal_columns<T: Number>(q: &[T], m: usize) {
    let k = q.len() / m;
    assert_close(&product(&adjoint(q, m), q, m), &identity(k));
}

/// Both sides of every threshold.
const SIZES: [usize; 7] = [1, 2, 3, 8, 17, 33, 70];

fn systems<T: Tested>() {
    for n in SIZES {
        let a: Vec<T> = numbers(n as u64, n * n);
        let mut out = vec![T::ZERO; n * n];
        assert_eq!(inverse(&a, n, &mut out), 0);
        assert_close(&product(&a, &out, n), &identity(n));
        let b: Vec<T> = numbers(7, n * 3);
        let (mut lu, mut pivots) = (a.clone(), vec![0; n]);
        factor(&mut lu, n, n, &mut pivots);
        for (matrix, turned) in [(a.clone(), false), (adjoint(&a, n), true)] {
            let mut x = b.clone();
            solve_factored(&lu, &pivots, n, turned, &mut x, 3);
            assert_close(&product(&matrix, &x, n), &b);
        }
        let (sign, log, det) = log_abs_determinant(&lu, &pivots, n);
        assert!((sign * T::real(log.exp()) - det).size() <= 1e-12 * det.size());
        // No element of L is larger than the pivot it was divided by.
        let limit = if T::COMPLEX { 2f64.sqrt() } else { 1.0 } + 1e-12;
        assert!((0..n * n).filter(|k| k % n > k / n).all(|k| lu[k].size() <= limit));
    }
}

#[test]
fn systems_and_inverses() {
    systems::<f64>();
    systems::<C>();
    assert_eq!(inverse(&[1.0, 2.0, 2.0, 4.0], 2, &mut [0.0; 4]), 2);
    assert_eq!(inverse(&[0.0; 4], 2, &mut [0.0; 4]), 1);
    // Singular and large: the first of them counts.
    let mut a = identity::<f64>(70);
    a[50 * 71] = 0.0;
    a[60 * 71] = 0.0;
    assert_eq!(factor(&mut a, 70, 70, &mut [0; 70]), 51);
}

/// The factors by halves multiply back, choose the pivots that the plain loops choose, and do not depend on threads.
fn factors_of<T: Tested>() {
    let shapes = [(33, 33), (70, 40), (40, 70), (64, 64), (100, 35), (129, 200), (200, 129), (257, 257)];
    for (m, n) in if cfg!(miri) { &shapes[..1] } else { &shapes[..] } {
        let (m, n, steps) = (*m, *n, *m.min(n));
        let a: Vec<T> = numbers((m * n) as u64, m * n);
        let factored = |threads: usize| {
            crate::parallel::set_num_threads(threads);
            let (mut lu, mut pivots) = (a.clone(), vec![0; steps]);
            assert_eq!(factor(&mut lu, m, n, &mut pivots), 0);
            (lu, pivots)
        };
        let (lu, pivots) = factored(1);
        for threads in [2, 3, 5] {
            let again = factored(threads);
            assert!(again.1 == pivots && again.0 == lu, "{m} × {n} on {threads} threads");
        }
        let (mut plain, mut chosen) = (a.clone(), vec![0; steps]);
        super::lu::one_by_one(&mut plain, m, 0, &mut chosen, &mut 0);
        assert_eq!(chosen, pivots, "{m} × {n}");
        assert_close(&lu, &plain);
        let (mut l, mut u, mut moved) = (vec![T::ZERO; m * steps], vec![T::ZERO; steps * n], a);
        for j in 0..steps {
            l[j * m + j] = T::ONE;
            l[j * m + j + 1..(j + 1) * m].copy_from_slice(&lu[j * m + j + 1..(j + 1) * m]);
        }
        for j in 0..n {
            let kept = (j + 1).min(steps);
            u[j * steps..j * steps + kept].copy_from_slice(&lu[j * m..j * m + kept]);
        }
        for column in moved.chunks_exact_mut(m) {
            pivots.iter().enumerate().for_each(|(k, p)| column.swap(k, *p as usize - 1));
        }
        assert_close(&product(&l, &u, steps), &moved);
    }
}

#[test]
fn factors_of_every_shape() {
    let _alone = crate::real::alone();
    let before = crate::parallel::num_threads();
    factors_of::<f64>();
    factors_of::<C>();
    crate::parallel::set_num_threads(before);
}

/// Pivots are the first of the largest; what cannot be compared is one only in the first place.
#[test]
fn heaviest_numbers() {
    fn check<T: Number + std::fmt::Debug>(x: &[T]) {
        let plain = (0..x.len()).fold(0, |most, i| if x[i].weight() > x[most].weight() { i } else { most });
        assert_eq!(T::heaviest(x), plain, "{x:?}");
    }
    for len in 0..100 {
        let mut x: Vec<f64> = numbers::<f64>(len as u64 + 1, len).iter().map(|x| (x * 4.0).round()).collect();
        for at in [len, len / 2, len.saturating_sub(1), 0] {
            if let Some(x) = x.get_mut(at) {
                *x = f64::NAN;
            }
            check(&x);
            check(&x.iter().map(|x| *x as f32).collect::<Vec<_>>());
            check(&x.iter().map(|x| C::new(*x, -*x)).collect::<Vec<_>>());
        }
        check(&vec![0.0f32; len]);
        check(&vec![f64::NEG_INFINITY; len]);
    }
}

fn definite<T: Tested>(n: usize) -> Vec<T> {
    let b: Vec<T> = numbers(n as u64, n * n);
    let mut a = product(&b, &adjoint(&b, n), n);
    a.iter_mut().step_by(n + 1).for_each(|d| *d = *d + T::ONE);
    a
}

fn cholesky_of<T: Tested>() {
    for n in SIZES.into_iter().chain([64, 65, 200]) {
        // Row by row.
        let turned = |a: &[T]| -> Vec<T> { (0..n * n).map(|k| a[k % n * n + k / n]).collect() };
        let a: Vec<T> = definite(n);
        let mut rows = turned(&a);
        assert_eq!(cholesky(&mut rows, n), 0);
        let l = turned(&rows);
        assert!((0..n * n).filter(|k| k % n < k / n).all(|k| l[k] == T::ZERO));
        assert_close(&product(&l, &adjoint(&l, n), n), &a);
        let mut rows = turned(&a);
        rows[(n - 1) * (n + 1)] = -T::ONE;
        assert_eq!(cholesky(&mut rows, n), n as i32);
    }
}

#[test]
fn cholesky_factors() {
    cholesky_of::<f64>();
    cholesky_of::<C>();
}

fn qr_of<T: Tested>() {
    for (m, n) in [(1, 1), (3, 3), (5, 2), (2, 5), (20, 7), (7, 20), (60, 40), (40, 60), (40, 40)] {
        let a: Vec<T> = numbers((m * n) as u64, m * n);
        for k in [m.min(n), m] {
            let (mut q, mut r) = (vec![T::ZERO; m * k], vec![T::ZERO; k * n]);
            qr(&a, m, n, &mut q, &mut r, k);
            assert_close(&product(&q, &r, k), &a);
            assert_orthonormal_columns(&q, m);
            // LAPACK's signs: the diagonal is real, and negative where the column above began with a positive number.
            assert!((0..k.min(n)).all(|i| r[i * k + i].im() == 0.0));
            assert_eq!(
                r[0].re() < 0.0,
                m > 1 && a[0].re() >= 0.0 || m == 1 && a[0].re() < 0.0 || T::COMPLEX && a[0].re() >= 0.0
            );
        }
        let (mut packed, mut tau) = (a.clone(), vec![T::ZERO; m.min(n)]);
        let mut turned = a.clone();
        reflections(&mut packed, m, n, &mut tau, Some(&mut turned));
        let mut q = vec![T::ZERO; m * m];
        orthogonal(&packed, m, &tau, &mut q);
        let mut c = a.clone();
        multiply_by_q(&packed, m, &tau, true, &mut c);
        assert_close(&product(&adjoint(&q, m), &a, m), &c);
        assert_close(&turned, &c);
        multiply_by_q(&packed, m, &tau, false, &mut c);
        assert_close(&c, &a);
    }
}

#[test]
fn qr_of_every_shape() {
    qr_of::<f64>();
    qr_of::<C>();
}

fn eigh_of<T: Tested>() {
    for n in SIZES {
        let a: Vec<T> = definite(n);
        let (mut values, mut vectors) = (vec![0.0; n], vec![T::ZERO; n * n]);
        // The upper triangle is not read.
        let lower: Vec<T> = (0..n * n).map(|k| if k % n < k / n { T::real(9.0) } else { a[k] }).collect();
        assert_eq!(eigh(&lower, n, &mut values, &mut vectors), 0);
        assert!(values.is_sorted());
        assert_orthonormal_columns(&vectors, n);
        let scaled: Vec<T> = (0..n * n).map(|k| vectors[k] * T::real(values[k / n])).collect();
        assert_close(&product(&scaled, &adjoint(&vectors, n), n), &a);
        let mut alone = vec![0.0; n];
        assert_eq!(eigh(&lower, n, &mut alone, &mut []), 0);
        assert_close(&alone, &values);
    }
}

#[test]
fn eigenvectors_of_self_adjoint_matrices() {
    eigh_of::<f64>();
    eigh_of::<C>();
    let (mut values, mut vectors) = ([0.0; 2], [0.0; 4]);
    eigh(&[f64::NAN, 1.0, 1.0, 1.0], 2, &mut values, &mut vectors);
    assert!(values.iter().chain(&vectors).all(|x| x.is_nan()));
}

fn svd_of<T: Tested>() {
    for (m, n) in [(1, 1), (3, 3), (5, 2), (2, 5), (20, 7), (7, 20), (60, 40), (40, 60), (40, 40), (0, 3), (3, 0)] {
        let a: Vec<T> = numbers((m * n) as u64 + 3, m * n);
        let k = m.min(n);
        for (columns, rows) in [(k, k), (m, n)] {
            let (mut u, mut s, mut v) = (vec![T::ZERO; m * columns], vec![0.0; k], vec![T::ZERO; n * rows]);
            assert_eq!(svd(&a, m, n, &mut u, &mut s, &mut v), 0);
            assert!(s.is_sorted_by(|a, b| a >= b));
            if m > 0 {
                assert_orthonormal_columns(&u, m);
            }
            if n > 0 {
                assert_orthonormal_columns(&v, n);
            }
            let scaled: Vec<T> = (0..m * k).map(|i| u[i] * T::real(s[i / m])).collect();
            let vh: Vec<T> = (0..k * n).map(|i| v[(i % k) * n + i / k]).collect();
            assert_close(&product(&scaled, &vh, k), &a);
        }
    }
}

#[test]
fn singular_vectors_of_every_shape() {
    svd_of::<f64>();
    svd_of::<C>();
    assert_eq!(svd(&[f64::INFINITY], 1, 1, &mut [0.0], &mut [0.0], &mut [0.0]), 1);
    // Numbers whose squares overflow or vanish.
    for size in [1e-200, 1e200] {
        let a: Vec<f64> = numbers::<f64>(5, 40 * 40).iter().map(|x| x * size).collect();
        let mut s = vec![0.0; 40];
        assert_eq!(svd(&a, 40, 40, &mut [], &mut s, &mut []), 0);
        assert!(s[0] > size && s[0] < 100.0 * size, "{}", s[0]);
    }
}

fn eig_of<T: Tested>() {
    // Beyond the usual sizes: the iteration changes its windows at 150 and 300 rows.
    for n in SIZES.into_iter().chain([151, 310]) {
        let a: Vec<T> = numbers(n as u64 + 9, n * n);
        let (mut values, mut vectors) = (vec![C::ZERO; n], vec![C::ZERO; n * n]);
        assert_eq!(eig(&a, n, &mut values, &mut vectors), 0);
        let wide: Vec<C> = a.iter().map(|x| C::new(x.re(), x.im())).collect();
        let scaled: Vec<C> = (0..n * n).map(|k| vectors[k] * values[k / n]).collect();
        assert_close(&product(&wide, &vectors, n), &scaled);
        for (vector, value) in vectors.chunks_exact(n).zip(&values) {
            assert!((dot(vector, vector).re - 1.0).abs() < 1e-12);
            let largest = vector.iter().max_by(|a, b| a.norm_sqr().total_cmp(&b.norm_sqr())).expect("a component");
            assert!(value.im == 0.0 && !T::COMPLEX || largest.im.abs() < 1e-12);
        }
    }
}

#[test]
fn eigenvectors_of_any_matrix() {
    eig_of::<f64>();
    eig_of::<C>();
    assert_eq!(eig(&[f64::NAN], 1, &mut [C::ZERO], &mut []), 1);
}

/// A Jordan block whose vectors overflow in the library has no result rather than one that is not finite.
/// In f32 too a value times its vector is the matrix times the vector, on either side of where the library serves.
#[test]
fn eigenvectors_in_single_precision() {
    for n in [1usize, 2, 5, 16, 17, 40, 64, 80, 81] {
        let a: Vec<f32> = numbers::<f64>(n as u64, n * n).iter().map(|x| *x as f32).collect();
        let (mut values, mut vectors) = (vec![C::ZERO; n], vec![C::ZERO; n * n]);
        assert_eq!(eig(&a, n, &mut values, &mut vectors), 0);
        for (value, vector) in values.iter().zip(vectors.chunks_exact(n)) {
            for i in 0..n {
                let image: C = (0..n).map(|j| vector[j] * a[j * n + i] as f64).sum();
                let off = (image - value * vector[i]).norm();
                assert!(off < 1e-5 * (n as f64).sqrt(), "{n} rows: off by {off}");
            }
        }
        let mut alone = vec![C::ZERO; n];
        assert_eq!(eig(&a, n, &mut alone, &mut []), 0);
        let trace: f64 = (0..n).map(|i| a[i * n + i] as f64).sum();
        assert!((alone.iter().sum::<C>() - trace).norm() < 1e-5 * n as f64);
    }
}

#[test]
fn eigenvectors_are_finite_or_refused() {
    for n in [24usize, 40] {
        let block: Vec<f64> = (0..n * n).map(|k| f64::from(k % n == k / n) + f64::from(k % n + 1 == k / n)).collect();
        let (mut values, mut vectors) = (vec![C::ZERO; n], vec![C::ZERO; n * n]);
        let info = eig(&block, n, &mut values, &mut vectors);
        assert!(info != 0 || vectors.iter().all(|v| v.is_finite()), "{n}");
    }
}

/// What an iteration stumbles over: nothing to do, values that coincide, cycles that plain shifts leave as they are, sizes far apart.
#[test]
fn eigenvectors_of_awkward_matrices() {
    for n in [1usize, 2, 3, 4, 5, 8, 16, 17] {
        let matrix = |f: &dyn Fn(usize, usize) -> f64| -> Vec<f64> { (0..n * n).map(|k| f(k % n, k / n)).collect() };
        let cases = [
            matrix(&|_, _| 0.0),
            matrix(&|i, j| f64::from(i == j)),
            matrix(&|i, j| f64::from(i == j) + f64::from(i + 1 == j)),
            matrix(&|i, j| f64::from(i == (j + 1) % n)),
            matrix(&|i, j| if i == (j + 1) % n { 1.0 } else { 0.0 } + f64::from(i == 0) * 0.5),
            matrix(&|_, _| 1.0),
            matrix(&|i, j| if i / 2 == j / 2 { [[0.0, -1.0], [1.0, 0.0]][i % 2][j % 2] } else { 0.0 }),
            matrix(&|i, j| 10f64.powi(i as i32 - j as i32) * ((i * 7 + j * 3) % 5) as f64),
            matrix(&|i, j| if i <= j { (1 + i + 2 * j) as f64 } else { 0.0 }),
        ];
        for (which, a) in cases.iter().enumerate() {
            let (mut values, mut vectors) = (vec![C::ZERO; n], vec![C::ZERO; n * n]);
            assert_eq!(eig(a, n, &mut values, &mut vectors), 0, "matrix {which} of {n}");
            let wide: Vec<C> = a.iter().map(|x| C::new(*x, 0.0)).collect();
            let (left, norm) = (product(&wide, &vectors, n), a.iter().map(|x| x * x).sum::<f64>().sqrt());
            for k in 0..n * n {
                let error = (left[k] - vectors[k] * values[k / n]).norm();
                assert!(error <= 1e-13 * norm.max(1.0) * n as f64, "matrix {which} of {n}: {error}");
            }
            let trace: f64 = a.iter().step_by(n + 1).sum();
            let sum: C = values.iter().sum();
            assert!((sum - trace).norm() <= 1e-12 * norm.max(1.0), "matrix {which} of {n}: {sum}, {trace}");
            let mut alone = vec![C::ZERO; n];
            assert_eq!(eig(a, n, &mut alone, &mut []), 0);
            assert_eq!(alone, values, "matrix {which} of {n}");
        }
    }
}

fn ldl_of<T: Tested>(hermitian: bool) {
    for n in SIZES {
        let b: Vec<T> = numbers(n as u64, n * n);
        let half = if hermitian { adjoint(&b, n) } else { (0..n * n).map(|k| b[(k % n) * n + k / n]).collect() };
        let a: Vec<T> = b.iter().zip(&half).map(|(x, y)| *x + *y).collect();
        let (mut ld, mut pivots) = (a.clone(), vec![0; n]);
        assert_eq!(ldl(&mut ld, n, hermitian, &mut pivots), 0);
        let b: Vec<T> = numbers(7, n * 2);
        let mut x = b.clone();
        solve_ldl(&ld, &pivots, n, hermitian, &mut x);
        assert_close(&product(&a, &x, n), &b);
    }
}

#[test]
fn indefinite_systems() {
    ldl_of::<f64>(false);
    ldl_of::<C>(false);
    ldl_of::<C>(true);
}

fn least_squares_of<T: Tested>() {
    for (m, n) in [(1, 1), (5, 2), (2, 5), (60, 40), (40, 60), (40, 40)] {
        let (a, b): (Vec<T>, Vec<T>) = (numbers((m + n) as u64, m * n), numbers(2, m * 2));
        let mut x = vec![T::ZERO; n * 2];
        assert_eq!(least_squares(&a, &b, (m, n, 2), &mut x, None, 1e-15, false), Some(m.min(n)));
        // What is left is orthogonal to the columns.
        let left: Vec<T> = product(&a, &x, n).iter().zip(&b).map(|(x, b)| *x - *b).collect();
        assert_close(&product(&adjoint(&a, m), &left, m), &vec![T::ZERO; n * 2]);
        // The same by singular values.
        let (mut y, mut s) = (vec![T::ZERO; n * 2], vec![0.0; m.min(n)]);
        assert_eq!(least_squares(&a, &b, (m, n, 2), &mut y, Some(&mut s), 1e-15, false), Some(m.min(n)));
        assert_close(&x, &y);
    }
    let ones = vec![T::ONE; 9];
    let mut x = vec![T::ZERO; 3];
    assert_eq!(least_squares(&ones, &[T::ONE; 3], (3, 3, 1), &mut x, None, 1e-15, false), Some(1));
    assert_close(&x, &[T::real(1.0 / 3.0); 3]);
    assert_eq!(least_squares(&[T::ZERO; 4], &[T::ONE; 2], (2, 2, 1), &mut x[..2], None, 1e-15, true), None);
}

fn condition_of<T: Tested>() {
    for n in [1, 2, 5, 40, 90] {
        let mut r: Vec<T> = numbers(n as u64 + 3, n * n);
        (0..n).for_each(|j| r[j * n + j + 1..(j + 1) * n].fill(T::ZERO));
        (0..n).for_each(|j| r[j * n + j] = r[j * n + j] + T::real(n as f64));
        let mut s = vec![0.0; n];
        assert_eq!(svd(&r, n, n, &mut [], &mut s, &mut []), 0);
        let (found, exact) = (lstsq::condition(&r, n), s[0] / s[n - 1]);
        assert!(found <= exact * 1.000_001 && found > 0.8 * exact, "{found} of {exact}, {n} rows");
    }
}

#[test]
fn conditions_of_triangles() {
    condition_of::<f64>();
    condition_of::<C>();
}

#[test]
fn systems_of_least_squares() {
    least_squares_of::<f64>();
    least_squares_of::<C>();
}

fn pseudo_inverse_of<T: Tested>() {
    let none = Cutoff { absolute: 0.0, relative: 1e-14 };
    for (m, n) in [(1, 1), (5, 2), (2, 5), (60, 40), (40, 60)] {
        let a: Vec<T> = numbers((m * n) as u64, m * n);
        let mut x = vec![T::ZERO; n * m];
        assert_eq!(pseudo_inverse(&a, (m, n), none, false, &mut x), 0);
        assert_close(&product(&product(&a, &x, n), &a, m), &a);
        assert_close(&product(&product(&x, &a, m), &x, n), &x);
        let ax = product(&a, &x, n);
        assert_close(&adjoint(&ax, m), &ax);
    }
    let a: Vec<T> = definite(7);
    let (mut x, mut y) = (vec![T::ZERO; 49], vec![T::ZERO; 49]);
    assert_eq!(pseudo_inverse(&a, (7, 7), none, false, &mut x), 0);
    assert_eq!(pseudo_inverse(&a, (7, 7), none, true, &mut y), 0);
    assert_close(&x, &y);
}

#[test]
fn pseudo_inverses() {
    pseudo_inverse_of::<f64>();
    pseudo_inverse_of::<C>();
    assert_eq!(pseudo_inverse(&[f64::NAN], (1, 1), Cutoff { absolute: 0.0, relative: 0.0 }, false, &mut [0.0]), 1);
}

#[test]
fn exponentials() {
    // A rotation, by an angle that needs squaring.
    for n in [2, 6, 40] {
        let mut a = vec![0.0; n * n];
        (a[1], a[n]) = (20.0, -20.0);
        let mut out = vec![0.0; n * n];
        matrix_exp(&a, n, &mut out);
        let mut expected = identity(n);
        (expected[0], expected[n + 1], expected[1], expected[n]) =
            (20f64.cos(), 20f64.cos(), 20f64.sin(), -20f64.sin());
        assert_close(&out, &expected);
    }
    for norm in [1e-9, 1e-5, 1e-3, 0.02, 0.1, 0.5] {
        let a = C::new(0.0, norm);
        let mut out = [C::ZERO];
        matrix_exp(&[a], 1, &mut out);
        assert!((out[0] - a.exp()).norm() < 1e-15, "{norm}");
    }
    let mut out = [0.0];
    matrix_exp(&[f64::INFINITY], 1, &mut out);
    assert!(out[0].is_nan());
}

#[test]
fn triangular_systems() {
    for n in SIZES {
        let mut a: Vec<C> = numbers(n as u64, n * n);
        a.iter_mut().step_by(n + 1).for_each(|d| *d += 4.0);
        let b: Vec<C> = numbers(3, n * 2);
        for case in 0..16 {
            let [upper, unit, transposed, conjugated] = [1, 2, 4, 8].map(|bit| case & bit != 0);
            let triangle = Triangle { upper, unit, transposed, conjugated };
            let meant: Vec<C> = (0..n * n)
                .map(|k| {
                    let (i, j) = (k % n, k / n);
                    let stored = if transposed { a[i * n + j] } else { a[k] };
                    match (i == j, (i < j) == upper) {
                        (true, _) if unit => C::ONE,
                        (false, false) => C::ZERO,
                        _ => {
                            if conjugated {
                                stored.conj()
                            } else {
                                stored
                            }
                        }
                    }
                })
                .collect();
            // Off the diagonal small, so that ones on it do not make the system ill-conditioned.
            let (a, meant): (Vec<C>, Vec<C>) = (
                a.iter().enumerate().map(|(k, x)| if k % (n + 1) == 0 { *x } else { x * 0.05 }).collect(),
                meant.iter().enumerate().map(|(k, x)| if k % (n + 1) == 0 { *x } else { x * 0.05 }).collect(),
            );
            let mut x = b.clone();
            solve_triangular(&a, n, triangle, &mut x, 2);
            assert_close(&product(&meant, &x, n), &b);
        }
    }
}

#[test]
fn batches_answer_for_each() {
    let a: Vec<f64> = (0..1000).map(f64::from).collect();
    let (mut out, mut beside) = (vec![0.0; 1000], vec![0i32; 500]);
    let info = batched(500, [(&a, 2)], [(&mut out, 2)], [(&mut beside, 1)], |i, [a], [out], [beside]| {
        assert_eq!(a[0], 2.0 * i as f64);
        out.copy_from_slice(a);
        beside[0] = a[1] as i32;
        a[0] as i32
    });
    assert_eq!((out, beside[499], info[499]), (a, 999, 998));
}
