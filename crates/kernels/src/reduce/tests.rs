use super::*;
use crate::testing::{Tensor, assert_close, everywhere, noise, tolerance};

/// Row-major lists of the elements of each output.
fn groups(t: &Tensor, dims: &[usize]) -> Vec<Vec<f64>> {
    let outputs: usize = (0..t.sizes.len()).filter(|d| !dims.contains(d)).map(|d| t.sizes[d]).product();
    let mut groups = vec![Vec::new(); outputs];
    for (i, v) in t.values().into_iter().enumerate() {
        let (mut rest, mut k, mut scale) = (i, 0, 1);
        for d in (0..t.sizes.len()).rev() {
            if !dims.contains(&d) {
                k += rest % t.sizes[d] * scale;
                scale *= t.sizes[d];
            }
            rest /= t.sizes[d];
        }
        groups[k].push(v)
    }
    groups
}

fn naive(op: Reduce, xs: &[f64]) -> f64 {
    let n = xs.len() as f64;
    let nan_or = |m: f64| if xs.iter().any(|x| x.is_nan()) { f64::NAN } else { m };
    let norm = |p: f64| xs.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p);
    let var = |correction: f64| {
        let mean = xs.iter().sum::<f64>() / n;
        xs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - correction).max(0.0)
    };
    match op {
        Reduce::Sum => xs.iter().sum(),
        Reduce::Mean => xs.iter().sum::<f64>() / n,
        Reduce::Prod => xs.iter().product(),
        Reduce::Max => nan_or(xs.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        Reduce::Min => nan_or(xs.iter().copied().fold(f64::INFINITY, f64::min)),
        Reduce::Any => f64::from(xs.iter().any(|&x| x != 0.0)),
        Reduce::All => f64::from(xs.iter().all(|&x| x != 0.0)),
        Reduce::SumSquares => xs.iter().map(|x| x * x).sum(),
        Reduce::Norm(0.0) => xs.iter().filter(|&&x| x != 0.0).count() as f64,
        Reduce::Norm(f64::INFINITY) => nan_or(xs.iter().fold(0.0, |a, x| x.abs().max(a))),
        Reduce::Norm(f64::NEG_INFINITY) => nan_or(xs.iter().fold(f64::INFINITY, |a, x| x.abs().min(a))),
        Reduce::Norm(p) => norm(p),
        Reduce::LogSumExp => {
            let m = naive(Reduce::Max, xs);
            if m.is_infinite() { m } else { xs.iter().map(|x| (x - m).exp()).sum::<f64>().ln() + m }
        }
        Reduce::Var { correction } => var(correction),
        Reduce::Std { correction } => var(correction).sqrt(),
    }
}

const OPS: [Reduce; 17] = [
    Reduce::Sum,
    Reduce::Mean,
    Reduce::Prod,
    Reduce::Max,
    Reduce::Min,
    Reduce::Any,
    Reduce::All,
    Reduce::SumSquares,
    Reduce::Norm(0.0),
    Reduce::Norm(1.0),
    Reduce::Norm(2.0),
    Reduce::Norm(3.5),
    Reduce::Norm(f64::INFINITY),
    Reduce::Norm(f64::NEG_INFINITY),
    Reduce::LogSumExp,
    Reduce::Var { correction: 1.0 },
    Reduce::Std { correction: 0.0 },
];

fn out_sizes(t: &Tensor, dims: &[usize]) -> Vec<usize> {
    t.sizes.iter().enumerate().map(|(d, &n)| if dims.contains(&d) { 1 } else { n }).collect()
}

fn result(op: Reduce, t: &Tensor, dims: &[usize], dtype: DType) -> Vec<f64> {
    let out = Tensor::zeros(dtype, &out_sizes(t, dims));
    reduce(op, t.view(), dims, out.view_mut());
    out.values()
}

fn check(op: Reduce, t: &Tensor, dims: &[usize], dtype: DType) -> Vec<f64> {
    let got = result(op, t, dims, dtype);
    let expected: Vec<f64> = groups(t, dims).iter().map(|g| naive(op, g)).collect();
    let tol = 8.0 * tolerance(t.dtype).max(tolerance(dtype));
    assert_close(&got, &expected, tol, &format!("{op:?} of {:?} {:?} over {dims:?}", t.dtype, t.sizes));
    got
}

/// Contiguous, transposed, with gaps, expanded, and sizes around the block boundaries.
fn layouts(dtype: DType, value: impl Fn(usize) -> f64 + Copy) -> Vec<(Tensor, Vec<Vec<usize>>)> {
    let t = |sizes: &[usize]| Tensor::new(dtype, sizes, value);
    vec![
        (t(&[]), vec![vec![]]),
        (t(&[4]), vec![vec![0], vec![]]),
        (t(&[7, 9]), vec![vec![0], vec![1], vec![0, 1], vec![]]),
        (t(&[7, 9]).permute(&[1, 0]), vec![vec![0], vec![1], vec![0, 1]]),
        (t(&[5, 40, 33]), vec![vec![0], vec![1], vec![2], vec![0, 2], vec![1, 2], vec![0, 1], vec![0, 1, 2]]),
        (t(&[6, 40, 34]).halve(2).permute(&[2, 0, 1]), vec![vec![0], vec![1], vec![2], vec![0, 2], vec![0, 1, 2]]),
        (t(&[12, 1, 17]).expand(1, 11), vec![vec![0], vec![1], vec![2], vec![1, 2], vec![0, 1, 2]]),
        (t(&[3, 2047]), vec![vec![1]]),
        (t(&[2, 2049]), vec![vec![0], vec![1]]),
        (t(&[600, 100]), vec![vec![0], vec![1], vec![0, 1]]),
        (t(&[40, 1030]), vec![vec![0]]),
        (t(&[0, 3]), vec![vec![1]]),
        (t(&[2, 1, 70_003]), vec![vec![2], vec![0, 2]]),
    ]
}

#[test]
fn every_op_layout_and_float() {
    everywhere(|| {
        let mut all = Vec::new();
        for dtype in [DType::F32, DType::F64] {
            for (t, dims) in layouts(dtype, |i| noise(i) * 2.0) {
                for (op, d) in OPS.iter().flat_map(|&op| dims.iter().map(move |d| (op, d))) {
                    let to = if matches!(op, Reduce::Any | Reduce::All) { DType::Bool } else { dtype };
                    all.extend(check(op, &t, d, to))
                }
            }
        }
        all
    });
}

#[test]
fn half_types_and_integers() {
    for dtype in DType::reals() {
        for (t, dims) in layouts(dtype, |i| (noise(i) * 5.0).round()) {
            for d in &dims {
                let wide = if dtype.is_floating_point() { dtype } else { DType::I64 };
                check(Reduce::Sum, &t, d, wide);
                check(Reduce::Max, &t, d, dtype);
                check(Reduce::Min, &t, d, dtype);
                check(Reduce::Any, &t, d, DType::Bool);
                check(Reduce::All, &t, d, DType::Bool);
                check(Reduce::Mean, &t, d, DType::F32);
                check(Reduce::Sum, &t, d, DType::F64);
                if dtype.is_floating_point() {
                    check(Reduce::LogSumExp, &t, d, dtype);
                    check(Reduce::Norm(2.0), &t, d, dtype);
                }
            }
        }
    }
}

#[test]
fn integer_products_wrap() {
    let t = Tensor::new(DType::I32, &[70], |_| 3.0);
    let out = Tensor::zeros(DType::I64, &[1]);
    reduce(Reduce::Prod, t.view(), &[0], out.view_mut());
    assert_eq!(out.view().as_slice::<i64>(), Some(&[3i64.wrapping_pow(70)][..]));
}

#[test]
fn nan_and_infinities() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for n in [1, 3, 70, 3000] {
        for (special, at) in [(nan, 0), (nan, n - 1), (inf, n / 2), (-inf, n / 2)] {
            let t = Tensor::new(DType::F32, &[n], |i| if i == at { special } else { 1.0 });
            for op in OPS {
                if !matches!(op, Reduce::Var { .. } | Reduce::Std { .. } | Reduce::Norm(_)) {
                    check(op, &t, &[0], DType::F32);
                }
            }
        }
        let t = Tensor::new(DType::F32, &[n], |_| -inf);
        assert_eq!(result(Reduce::LogSumExp, &t, &[0], DType::F32), [-inf]);
        let t = Tensor::new(DType::F32, &[n], |i| if i == 0 { nan } else { inf });
        assert!(result(Reduce::Norm(inf), &t, &[0], DType::F32)[0].is_nan());
        assert!(result(Reduce::Var { correction: 1.0 }, &t, &[0], DType::F32)[0].is_nan());
    }
    let big = Tensor::new(DType::F32, &[4], |_| 1000.0);
    assert_close(&result(Reduce::LogSumExp, &big, &[0], DType::F32), &[1000.0 + 4f64.ln()], 1e-7, "no overflow");
}

#[test]
fn no_elements_give_the_identity() {
    let t = Tensor::zeros(DType::F32, &[3, 0]);
    let is = |op, v: f64| assert_eq!(result(op, &t, &[1], DType::F32), [v; 3], "{op:?}");
    is(Reduce::Sum, 0.0);
    is(Reduce::Prod, 1.0);
    is(Reduce::Any, 0.0);
    is(Reduce::All, 1.0);
    is(Reduce::Norm(2.0), 0.0);
    is(Reduce::LogSumExp, f64::NEG_INFINITY);
    assert!(result(Reduce::Mean, &t, &[1], DType::F32).iter().all(|v| v.is_nan()));
    assert!(result(Reduce::Var { correction: 1.0 }, &t, &[1], DType::F32).iter().all(|v| v.is_nan()));
    assert!(result(Reduce::Sum, &t, &[0], DType::F32).is_empty());
}

#[test]
fn variance_of_a_shifted_row_and_both_outputs() {
    let t = Tensor::new(DType::F32, &[3, 5000], |i| 1000.0 + noise(i));
    let (var, mean) = (Tensor::zeros(DType::F32, &[3, 1]), Tensor::zeros(DType::F32, &[3, 1]));
    var_mean(t.view(), &[1], 1.0, var.view_mut(), mean.view_mut());
    let rows = groups(&t, &[1]);
    let expected = |op| rows.iter().map(|g| naive(op, g)).collect::<Vec<_>>();
    assert_close(&var.values(), &expected(Reduce::Var { correction: 1.0 }), 1e-7, "var");
    assert_close(&mean.values(), &expected(Reduce::Mean), 1e-7, "mean");
    let one = Tensor::new(DType::F32, &[1], |_| 3.0);
    assert!(result(Reduce::Var { correction: 1.0 }, &one, &[0], DType::F32)[0].is_nan());
}

#[test]
fn a_long_sum_is_right_to_the_last_bit() {
    let t = Tensor::new(DType::F32, &[10_000_000], |i| noise(i) + 1.0);
    let exact: f64 = t.values().iter().sum();
    everywhere(|| {
        let got = result(Reduce::Sum, &t, &[0], DType::F32);
        assert!((got[0] - exact).abs() <= exact * 1.2e-7, "{} against {exact}", got[0]);
        got
    });
}

#[test]
fn arg_reduce_finds_the_first() {
    let naive = |op: ArgReduce, xs: &[f64]| {
        let mut best = 0;
        for (i, &x) in xs.iter().enumerate() {
            let b = xs[best];
            let more = if op == ArgReduce::Max { x > b } else { x < b };
            if more || (x.is_nan() && !b.is_nan()) {
                best = i
            }
        }
        best as f64
    };
    let check = |t: &Tensor, op: ArgReduce, d: Option<usize>| {
        let dims: Vec<usize> = d.map_or((0..t.sizes.len()).collect(), |d| vec![d]);
        let sizes = out_sizes(t, &dims);
        let (values, indices) = (Tensor::zeros(t.dtype, &sizes), Tensor::zeros(DType::I64, &sizes));
        arg_reduce(op, t.view(), d, Some(values.view_mut()), indices.view_mut());
        let lists = groups(t, &dims);
        let expected: Vec<f64> = lists.iter().map(|g| naive(op, g)).collect();
        let what = format!("{op:?} of {} {:?} {:?} along {d:?}", t.dtype, t.sizes, t.strides);
        assert_close(&indices.values(), &expected, 0.0, &what);
        let picked: Vec<f64> = lists.iter().zip(&expected).map(|(g, &i)| g[i as usize]).collect();
        assert_close(&values.values(), &picked, 0.0, &what);
        expected
    };
    everywhere(|| {
        let mut all = Vec::new();
        for dtype in DType::reals() {
            for (t, _) in layouts(dtype, |i| if i % 97 == 50 { f64::NAN } else { (noise(i) * 9.0).round() }) {
                if t.sizes.contains(&0) {
                    continue;
                }
                for d in (0..t.sizes.len()).map(Some).chain([None]) {
                    all.extend(check(&t, ArgReduce::Max, d));
                    all.extend(check(&t, ArgReduce::Min, d));
                }
            }
        }
        let long = Tensor::new(DType::F32, &[300_000], |i| (noise(i) * 1e4).round());
        all.extend(check(&long, ArgReduce::Max, None));
        all
    });
}

/// Sums of f32 were joined in f32 over blocks of 2048 elements or 256 rows, and squares were taken around a rounded mean: on
/// data away from zero that cost digits which PyTorch keeps. Bounds are PyTorch 2.15's own largest errors on these data, and
/// an ulp: PyTorch adds variances up in f64 alone.
#[test]
fn sums_and_variances_of_f32_are_as_near_to_the_truth_as_pytorchs() {
    /// Sizes, reduced dimensions, distance from zero; PyTorch's errors of sum, mean, unbiased variance and 2-norm, in ulps.
    type Case = (&'static [usize], &'static [usize], f64, [f64; 4]);
    const CASES: [Case; 9] = [
        (&[8, 30000], &[1], 0.0, [3.55, 3.56, 0.43, 2.99]),
        (&[8, 30000], &[1], 100.0, [0.89, 0.86, 0.41, 2.25]),
        (&[8, 30000], &[1], 1e4, [0.97, 0.77, 0.34, 31.41]),
        (&[3000, 40], &[0], 0.0, [1.21, 1.60, 0.48, 6.98]),
        (&[3000, 40], &[0], 100.0, [1.19, 1.88, 0.50, 14.75]),
        (&[3000, 40], &[0], 1e4, [2.14, 1.88, 0.50, 9.05]),
        (&[6, 5, 49], &[0, 2], 0.0, [0.45, 0.34, 0.46, 1.24]),
        (&[6, 5, 49], &[0, 2], 100.0, [1.04, 0.94, 0.43, 2.72]),
        (&[6, 5, 49], &[0, 2], 1e4, [0.79, 0.77, 0.48, 2.48]),
    ];
    let ops = [Reduce::Sum, Reduce::Mean, Reduce::Var { correction: 1.0 }, Reduce::Norm(2.0)];
    everywhere(|| {
        let mut all = Vec::new();
        for (sizes, dims, distance, bounds) in CASES {
            let t = Tensor::new(DType::F32, sizes, |i| distance + noise(i));
            for (op, bound) in ops.into_iter().zip(bounds) {
                let expected: Vec<f64> = groups(&t, dims).iter().map(|xs| naive(op, xs)).collect();
                let largest = expected.iter().fold(0f64, |a, x| a.max(x.abs())) as f32;
                let ulp = f64::from(largest.next_up() - largest);
                let found = result(op, &t, dims, DType::F32);
                let error = found.iter().zip(&expected).fold(0f64, |a, (x, y)| a.max((x - y).abs() / ulp));
                let bound = (1.5 * bound).max(bound + 1.2);
                assert!(error <= bound, "{op:?} of {sizes:?} around {distance}: {error:.2} ulp, at most {bound:.2}");
                all.extend(found);
            }
        }
        all
    });
}
