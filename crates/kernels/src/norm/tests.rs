//! Against plain f64 code; derivatives against central differences of it.

use super::*;
use crate::DType;
use crate::testing::{Tensor, assert_close, everywhere, noise, tolerance};

const EPS: f64 = 1e-5;
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Normalizes the elements of each class of `class(i)`; returns output, mean and reciprocal deviation.
fn naive(
    x: &[f64],
    class: impl Fn(usize) -> usize,
    at: impl Fn(usize) -> usize,
    w: &[f64],
    b: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let classes = (0..x.len()).map(&class).max().map_or(0, |m| m + 1);
    let mut members = vec![Vec::new(); classes];
    x.iter().enumerate().for_each(|(i, &v)| members[class(i)].push(v));
    let mean: Vec<f64> = members.iter().map(|m| m.iter().sum::<f64>() / m.len() as f64).collect();
    let rstd: Vec<f64> = members
        .iter()
        .zip(&mean)
        .map(|(m, mu)| {
            let var = m.iter().map(|v| (v - mu).powi(2)).sum::<f64>() / m.len() as f64;
            1.0 / (var + EPS).sqrt()
        })
        .collect();
    let out = x.iter().enumerate().map(|(i, v)| (v - mean[class(i)]) * rstd[class(i)] * w[at(i)] + b[at(i)]);
    (out.collect(), mean, rstd)
}

/// The gradient of `sum(f(x) * g)` with respect to `x`, by central differences.
fn differences(x: &[f64], g: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let value = |x: &[f64]| f(x).iter().zip(g).map(|(y, g)| y * g).sum::<f64>();
    let mut x = x.to_vec();
    (0..x.len())
        .map(|i| {
            let (old, h) = (x[i], 1e-5);
            x[i] = old + h;
            let up = value(&x);
            x[i] = old - h;
            let down = value(&x);
            x[i] = old;
            (up - down) / (2.0 * h)
        })
        .collect()
}

/// Statistics are kept in f32 for half types.
fn stats_dtype(dtype: DType) -> DType {
    dtype.compute()
}

#[test]
fn layer_norm_rows() {
    everywhere(|| {
        let mut all = Vec::new();
        for dtype in FLOATS {
            for (rows, n) in [(1, 1), (3, 7), (40, 65), (2, 5000), (0, 4), (600, 33)] {
                let x = Tensor::new(dtype, &[rows, n], |i| noise(i) * 3.0 + 1.0);
                let (w, b) = (Tensor::new(dtype, &[n], |i| noise(i + 7)), Tensor::new(dtype, &[n], |i| noise(i + 8)));
                let out = Tensor::zeros(dtype, &[rows, n]);
                let sd = stats_dtype(dtype);
                let (mean, rstd) = (Tensor::zeros(sd, &[rows]), Tensor::zeros(sd, &[rows]));
                for affine in [true, false] {
                    let of = |t: &Tensor, plain: f64| if affine { t.values() } else { vec![plain; n] };
                    let (wv, bv) = (affine.then(|| w.view()), affine.then(|| b.view()));
                    layer_norm(x.view(), n, wv, bv, EPS, out.view_mut(), mean.view_mut(), rstd.view_mut());
                    let (y, m, r) = naive(&x.values(), |i| i / n, |i| i % n, &of(&w, 1.0), &of(&b, 0.0));
                    // A row of one element divides rounding errors by the root of eps.
                    let tol = tolerance(dtype) * 4.0;
                    assert_close(&out.values(), &y, tol, "y");
                    assert_close(&mean.values(), &m, tol, "mean");
                    assert_close(&rstd.values(), &r, tol, "rstd");
                    all.extend(out.values());
                }
            }
        }
        all
    });
}

#[test]
fn layer_norm_gradients() {
    everywhere(|| {
        let mut all = Vec::new();
        for (dtype, tol) in [(DType::F64, 1e-6), (DType::F32, 2e-5), (DType::BF16, 2e-2)] {
            for (rows, n) in [(3, 7), (35, 40), (1, 2)] {
                let x = Tensor::new(dtype, &[rows, n], |i| noise(i) * 2.0);
                let g = Tensor::new(dtype, &[rows, n], |i| noise(i + 99));
                let w = Tensor::new(dtype, &[n], |i| noise(i + 7) + 1.5);
                let (xv, gv, wv) = (x.values(), g.values(), w.values());
                let zeros = vec![0.0; n];
                let (_, m, r) = naive(&xv, |i| i / n, |i| i % n, &wv, &zeros);
                let sd = stats_dtype(dtype);
                let (mean, rstd) = (Tensor::new(sd, &[rows], |i| m[i]), Tensor::new(sd, &[rows], |i| r[i]));
                let (gx, gw, gb) =
                    (Tensor::zeros(dtype, &[rows, n]), Tensor::zeros(dtype, &[n]), Tensor::zeros(dtype, &[n]));
                layer_norm_backward(
                    g.view(),
                    x.view(),
                    n,
                    mean.view(),
                    rstd.view(),
                    Some(w.view()),
                    Some(gx.view_mut()),
                    Some(gw.view_mut()),
                    Some(gb.view_mut()),
                );
                let by_x = differences(&xv, &gv, |x| naive(x, |i| i / n, |i| i % n, &wv, &zeros).0);
                let by_w = differences(&wv, &gv, |w| naive(&xv, |i| i / n, |i| i % n, w, &zeros).0);
                let by_b = differences(&zeros, &gv, |b| naive(&xv, |i| i / n, |i| i % n, &wv, b).0);
                assert_close(&gx.values(), &by_x, tol, "grad_input");
                assert_close(&gw.values(), &by_w, tol, "grad_weight");
                assert_close(&gb.values(), &by_b, tol, "grad_bias");
                all.extend(gx.values().into_iter().chain(gw.values()).chain(gb.values()));
            }
        }
        all
    });
}

#[test]
fn group_norm_and_its_gradients() {
    everywhere(|| {
        let mut all = Vec::new();
        for (dtype, tol) in [(DType::F64, 1e-6), (DType::F32, 2e-5), (DType::F16, 1e-2)] {
            for (n, c, s, groups) in [(2, 4, 5, 2), (3, 6, 1, 3), (1, 4, 70, 1), (2, 3, 4, 3)] {
                let x = Tensor::new(dtype, &[n, c, s], |i| noise(i) * 2.0);
                let g = Tensor::new(dtype, &[n, c, s], |i| noise(i + 99));
                let (w, b) = (Tensor::new(dtype, &[c], |i| noise(i) + 1.5), Tensor::new(dtype, &[c], noise));
                let (xv, gv, wv, bv) = (x.values(), g.values(), w.values(), b.values());
                let (class, at) = (|i: usize| i / (c / groups * s), |i: usize| i / s % c);
                let sd = stats_dtype(dtype);
                let (mean, rstd) = (Tensor::zeros(sd, &[n, groups]), Tensor::zeros(sd, &[n, groups]));
                let (out, gx) = (Tensor::zeros(dtype, &[n, c, s]), Tensor::zeros(dtype, &[n, c, s]));
                let (gw, gb) = (Tensor::zeros(dtype, &[c]), Tensor::zeros(dtype, &[c]));
                let (wo, bo) = (Some(w.view()), Some(b.view()));
                group_norm(x.view(), groups, wo, bo, EPS, out.view_mut(), mean.view_mut(), rstd.view_mut());
                let (y, m, r) = naive(&xv, class, at, &wv, &bv);
                assert_close(&out.values(), &y, tol, "y");
                assert_close(&mean.values(), &m, tol, "mean");
                assert_close(&rstd.values(), &r, tol, "rstd");
                group_norm_backward(
                    g.view(),
                    x.view(),
                    groups,
                    mean.view(),
                    rstd.view(),
                    wo,
                    Some(gx.view_mut()),
                    Some(gw.view_mut()),
                    Some(gb.view_mut()),
                );
                let by_x = differences(&xv, &gv, |x| naive(x, class, at, &wv, &bv).0);
                let by_w = differences(&wv, &gv, |w| naive(&xv, class, at, w, &bv).0);
                let by_b = differences(&bv, &gv, |b| naive(&xv, class, at, &wv, b).0);
                assert_close(&gx.values(), &by_x, tol, "grad_input");
                assert_close(&gw.values(), &by_w, tol, "grad_weight");
                assert_close(&gb.values(), &by_b, tol, "grad_bias");
                all.extend(gx.values().into_iter().chain(out.values()).chain(gw.values()));
            }
        }
        all
    });
}

#[test]
fn batch_norm_and_its_gradients() {
    everywhere(|| {
        let mut all = Vec::new();
        for (dtype, tol) in [(DType::F64, 1e-6), (DType::F32, 2e-5), (DType::BF16, 3e-2)] {
            for (n, c, s) in [(4, 3, 5), (9, 40, 1), (2, 1, 70), (70, 2, 3)] {
                let x = Tensor::new(dtype, &[n, c, s], |i| noise(i) * 2.0);
                let g = Tensor::new(dtype, &[n, c, s], |i| noise(i + 99));
                let (w, b) = (Tensor::new(dtype, &[c], |i| noise(i) + 1.5), Tensor::new(dtype, &[c], noise));
                let (xv, gv, wv, bv) = (x.values(), g.values(), w.values(), b.values());
                let class = |i: usize| i / s % c;
                let (y, m, r) = naive(&xv, class, class, &wv, &bv);
                let sd = stats_dtype(dtype);
                let (mean, var) = (Tensor::zeros(sd, &[c]), Tensor::zeros(sd, &[c]));
                batch_norm_stats(x.view(), mean.view_mut(), var.view_mut());
                assert_close(&mean.values(), &m, tol, "mean");
                let invstd: Vec<f64> = var.values().iter().map(|v| 1.0 / (v + EPS).sqrt()).collect();
                assert_close(&invstd, &r, tol, "invstd");
                let invstd = Tensor::new(sd, &[c], |i| invstd[i]);
                let (out, gx) = (Tensor::zeros(dtype, &[n, c, s]), Tensor::zeros(dtype, &[n, c, s]));
                let (gw, gb) = (Tensor::zeros(dtype, &[c]), Tensor::zeros(dtype, &[c]));
                let (wo, bo) = (Some(w.view()), Some(b.view()));
                batch_norm(x.view(), mean.view(), invstd.view(), wo, bo, out.view_mut());
                assert_close(&out.values(), &y, tol, "y");
                let back = |train: bool| {
                    let outs = [&gx, &gw, &gb].map(|t| Some(t.view_mut()));
                    let (m, i) = (mean.view(), invstd.view());
                    batch_norm_backward(g.view(), x.view(), m, i, wo, train, outs[0], outs[1], outs[2]);
                    gx.values()
                };
                let eval: Vec<f64> = gv.iter().enumerate().map(|(i, g)| g * wv[class(i)] * r[class(i)]).collect();
                assert_close(&back(false), &eval, tol, "grad_input in eval mode");
                let by_x = differences(&xv, &gv, |x| naive(x, class, class, &wv, &bv).0);
                assert_close(&back(true), &by_x, tol, "grad_input");
                let by_w = differences(&wv, &gv, |w| naive(&xv, class, class, w, &bv).0);
                let by_b = differences(&bv, &gv, |b| naive(&xv, class, class, &wv, b).0);
                assert_close(&gw.values(), &by_w, tol, "grad_weight");
                assert_close(&gb.values(), &by_b, tol, "grad_bias");
                all.extend(gx.values().into_iter().chain(out.values()).chain(gw.values()));
            }
        }
        all
    });
}

/// The largest error in ulps of the largest truth.
fn ulps(found: &[f64], truth: &[f64]) -> f64 {
    let largest = truth.iter().fold(0f64, |a, x| a.max(x.abs())) as f32;
    let ulp = f64::from(largest.next_up() - largest);
    found.iter().zip(truth).fold(0f64, |a, (x, y)| a.max((x - y).abs() / ulp))
}

/// Statistics were summed in f32: on data away from zero the mean was off by more than its last rounding, and everything
/// after it too. Bounds are PyTorch 2.15's own largest errors on these data.
#[test]
fn batch_norm_of_f32_away_from_zero_is_as_near_to_the_truth_as_pytorchs() {
    let [n, c, s] = [6, 5, 49];
    let sizes = [n, c, s];
    /// What PyTorch loses of output, mean, reciprocal deviation, and the gradients of input, weight and bias.
    const CASES: [(f64, [f64; 6]); 3] = [
        (0.0, [1.15, 0.23, 0.65, 2.13, 1.37, 0.50]),
        (100.0, [51.23, 0.49, 0.75, 9.87, 83.93, 0.50]),
        (1e4, [5806.12, 0.42, 3.75, 1116.60, 9745.30, 0.50]),
    ];
    everywhere(|| {
        let mut all = Vec::new();
        for (distance, bounds) in CASES {
            // The same numbers in both types: what f32 holds.
            let x = Tensor::new(DType::F32, &sizes, |i| distance + noise(i));
            let g = Tensor::new(DType::F32, &sizes, |i| noise(i + n * c * s));
            let (xs, gs) = (x.values(), g.values());
            let results = |dtype: DType| {
                let (x, g) = (Tensor::new(dtype, &sizes, |i| xs[i]), Tensor::new(dtype, &sizes, |i| gs[i]));
                let [mean, var, gw, gb] = [0; 4].map(|_| Tensor::zeros(dtype, &[c]));
                let [out, gx] = [0; 2].map(|_| Tensor::zeros(dtype, &sizes));
                batch_norm_stats(x.view(), mean.view_mut(), var.view_mut());
                let vars = var.values();
                let rstd = Tensor::new(dtype, &[c], |i| 1.0 / (vars[i] + EPS).sqrt());
                batch_norm(x.view(), mean.view(), rstd.view(), None, None, out.view_mut());
                let wanted = [gx.view_mut(), gw.view_mut(), gb.view_mut()].map(Some);
                let [to_x, to_w, to_b] = wanted;
                batch_norm_backward(g.view(), x.view(), mean.view(), rstd.view(), None, true, to_x, to_w, to_b);
                [out, mean, rstd, gx, gw, gb].map(|t| t.values())
            };
            let (found, truth) = (results(DType::F32), results(DType::F64));
            for (k, bound) in bounds.into_iter().enumerate() {
                let (error, bound) = (ulps(&found[k], &truth[k]), (1.5 * bound).max(bound + 0.3));
                assert!(error <= bound, "result {k} around {distance}: {error:.2} ulp, at most {bound:.2}");
            }
            all.extend(found.into_iter().flatten());
        }
        all
    });
}

/// As above, for rows: PyTorch's errors of output, mean and reciprocal deviation.
#[test]
fn layer_norm_of_f32_away_from_zero_is_as_near_to_the_truth_as_pytorchs() {
    let (rows, n) = (8, 3000);
    const CASES: [(f64, [f64; 3]); 3] =
        [(0.0, [1.56, 1.50, 0.84]), (100.0, [105.57, 0.92, 4.97]), (1e4, [19140.33, 1.33, 844.22])];
    everywhere(|| {
        let mut all = Vec::new();
        for (distance, bounds) in CASES {
            let xs = Tensor::new(DType::F32, &[rows, n], |i| distance + noise(i)).values();
            let results = |dtype: DType| {
                let x = Tensor::new(dtype, &[rows, n], |i| xs[i]);
                let (out, mean, rstd) =
                    (Tensor::zeros(dtype, &[rows, n]), Tensor::zeros(dtype, &[rows]), Tensor::zeros(dtype, &[rows]));
                layer_norm(x.view(), n, None, None, EPS, out.view_mut(), mean.view_mut(), rstd.view_mut());
                [out, mean, rstd].map(|t| t.values())
            };
            let (found, truth) = (results(DType::F32), results(DType::F64));
            for (k, bound) in bounds.into_iter().enumerate() {
                let (error, bound) = (ulps(&found[k], &truth[k]), (1.5 * bound).max(bound + 0.3));
                assert!(error <= bound, "result {k} around {distance}: {error:.2} ulp, at most {bound:.2}");
            }
            all.extend(found.into_iter().flatten());
        }
        all
    });
}
