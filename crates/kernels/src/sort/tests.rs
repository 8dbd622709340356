//! Against the standard library's stable sort with PyTorch's order of floats.

use super::*;
use crate::test_tensors::{LIES, Lie, Tensor, any_threads, coordinates, linear, with};
use std::cmp::Ordering;

/// NaN largest, zeros equal.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x == y || x.is_nan() && y.is_nan())
}

/// Positions of a lane in stable order.
fn sorted_positions(lane: &[f64], descending: bool) -> Vec<usize> {
    let mut at: Vec<usize> = (0..lane.len()).collect();
    at.sort_by(|&a, &b| if descending { order(lane[b], lane[a]) } else { order(lane[a], lane[b]) });
    at
}

fn sample(dtype: DType, sizes: &[usize], lie: Lie) -> Tensor {
    let low = if matches!(dtype, DType::Bool | DType::U8) { 0 } else { -20 };
    let plain = Tensor::random(3, dtype, sizes, lie, low, 20);
    if !dtype.is_floating_point() {
        return plain;
    }
    let odd: Vec<f64> = plain
        .values()
        .iter()
        .map(|&v| {
            if v == 7.0 {
                f64::NAN
            } else if v == 3.0 {
                -0.0
            } else {
                v
            }
        })
        .collect();
    Tensor::new(dtype, sizes, lie, &odd)
}

#[test]
fn sorting_and_selecting_along_every_dimension() {
    // Miri takes its time: it gets an element type of each kind.
    let interpreted = |dtype: &DType| !cfg!(miri) || matches!(dtype, DType::Bool | DType::I16 | DType::F32);
    for dtype in DType::reals().filter(interpreted) {
        for sizes in [&[1][..], &[9], &[4, 7], &[3, 5, 4], if cfg!(miri) { &[8, 20] } else { &[40, 300] }] {
            for dim in 0..sizes.len() {
                for lie in LIES {
                    let input = sample(dtype, sizes, lie);
                    let (from, n) = (input.values(), sizes[dim]);
                    for descending in [false, true] {
                        let k = n.div_ceil(2);
                        let got = any_threads(|| {
                            let shapes = [n, n, k, k, 1, 1].map(|m| with(sizes, dim, m));
                            let types = [dtype, DType::I64, dtype, DType::I64, dtype, DType::I64];
                            let out: Vec<Tensor> = (0..6).map(|i| Tensor::zeros(types[i], &shapes[i], lie)).collect();
                            let o: Vec<ViewMut> = out.iter().map(|t| t.view_mut()).collect();
                            sort(&input.view(), dim, descending, Some(&o[0]), &o[1]);
                            topk(&input.view(), dim, descending, true, &o[2], &o[3]);
                            kthvalue(&input.view(), dim, k, &o[4], &o[5]);
                            // Bit patterns, because NaN differs from itself; its sign and payload are no one's promise.
                            let bits = |v: &f64| if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() };
                            out.iter().map(|t| t.values().iter().map(bits).collect()).collect::<Vec<Vec<u64>>>()
                        });
                        let got: Vec<Vec<f64>> =
                            got.iter().map(|t| t.iter().map(|&b| f64::from_bits(b)).collect()).collect();
                        for lane in coordinates(&with(sizes, dim, 1)) {
                            let element = |i: usize| linear(sizes, &with(&lane, dim, i));
                            let values: Vec<f64> = (0..n).map(|i| from[element(i)]).collect();
                            let at = sorted_positions(&values, descending);
                            let read = |t: usize, m: usize| -> Vec<f64> {
                                (0..m).map(|i| got[t][linear(&with(sizes, dim, m), &with(&lane, dim, i))]).collect()
                            };
                            let want: Vec<f64> = at.iter().map(|&i| values[i]).collect();
                            let positions: Vec<f64> = at.iter().map(|&i| i as f64).collect();
                            assert!(same(&read(0, n), &want), "sort {dtype} {sizes:?} {dim}");
                            assert_eq!(read(1, n), positions);
                            assert!(same(&read(2, k), &want[..k]), "topk {dtype} {sizes:?} {dim}");
                            assert_eq!(read(3, k), positions[..k]);
                            let up = sorted_positions(&values, false)[k - 1];
                            assert!(same(&read(4, 1), &[values[up]]));
                            assert_eq!(read(5, 1), [up as f64]);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn median_and_mode() {
    const NAN: f64 = f64::NAN;
    let run = |values: &[f64], f: &dyn Fn(&View, &ViewMut, &ViewMut)| {
        let input = Tensor::new(DType::F32, &[values.len()], Lie::Reversed, values);
        let (v, i) =
            (Tensor::zeros(DType::F32, &[1], Lie::Contiguous), Tensor::zeros(DType::I64, &[1], Lie::Contiguous));
        f(&input.view(), &v.view_mut(), &i.view_mut());
        (v.values()[0], i.values()[0])
    };
    let plain = |x: &View, v: &ViewMut, i: &ViewMut| median(x, 0, false, v, i);
    let nan = |x: &View, v: &ViewMut, i: &ViewMut| median(x, 0, true, v, i);
    let frequent = |x: &View, v: &ViewMut, i: &ViewMut| mode(x, 0, v, i);
    assert_eq!(run(&[3.0, 1.0, 2.0, 4.0], &plain), (2.0, 2.0));
    let (v, i) = run(&[3.0, NAN, 1.0, NAN], &plain);
    assert!(v.is_nan() && i == 1.0);
    assert_eq!(run(&[3.0, NAN, 1.0, NAN, -0.0, 0.0, 2.0], &nan), (1.0, 2.0));
    assert!(run(&[NAN, NAN], &nan).0.is_nan());
    assert_eq!(run(&[2.0, 1.0, 2.0, 1.0, 3.0, 3.0], &frequent), (1.0, 3.0));
    assert_eq!(run(&[4.0, 1.0, 3.0, 3.0], &frequent), (3.0, 3.0));
}

#[test]
fn unique_elements() {
    let values = [3.0, f64::NAN, 1.0, f64::NAN, 1.0, 1.0];
    for lie in LIES {
        let t = Tensor::new(DType::F32, &[2, 3], lie, &values);
        let u = unique(&t.view(), false);
        assert_eq!((u.positions, u.inverse, u.counts), (vec![2, 0, 1, 3], vec![1, 2, 0, 3, 0, 0], vec![3, 1, 1, 1]));
        let u = unique(&t.view(), true);
        assert_eq!(u.positions, [0, 1, 2, 3, 4]);
        assert_eq!((u.inverse, u.counts), (vec![0, 1, 2, 3, 4, 4], vec![1, 1, 1, 1, 2]));
    }
    assert_eq!(unique(&Tensor::zeros(DType::I64, &[0], Lie::Contiguous).view(), false), Unique::default());
}

#[test]
fn searching_what_is_sorted() {
    let rows = Tensor::new(DType::F32, &[2, 4], Lie::Reversed, &[1.0, 3.0, 3.0, 5.0, 0.0, 0.0, 0.0, 9.0]);
    let values = Tensor::new(DType::F32, &[2, 3], Lie::Reversed, &[3.0, 0.0, f64::NAN, -0.0, 9.0, 4.0]);
    let line = Tensor::new(DType::F32, &[4], Lie::Contiguous, &[1.0, 3.0, 3.0, 5.0]);
    let run = |sorted: &Tensor, right| {
        let out = Tensor::zeros(DType::I64, &[2, 3], Lie::Reversed);
        searchsorted(&sorted.view(), &values.view(), right, &out.view_mut());
        out.values()
    };
    assert_eq!(run(&rows, false), [1.0, 0.0, 4.0, 0.0, 3.0, 3.0]);
    assert_eq!(run(&rows, true), [3.0, 0.0, 4.0, 3.0, 4.0, 3.0]);
    assert_eq!(run(&line, false), [1.0, 0.0, 4.0, 0.0, 4.0, 3.0]);
}

/// Outputs of other sizes or dtypes than the input asks for are refused, in release builds too.
#[test]
fn outputs_that_do_not_fit_are_refused() {
    let of = |dtype, sizes: &[usize]| Tensor::zeros(dtype, sizes, Lie::Contiguous);
    let (input, small) = (of(DType::F32, &[4, 5]), of(DType::F32, &[4, 2]));
    let (values, indices) = (of(DType::F32, &[4, 5]), of(DType::I64, &[4, 5]));
    let (few, short, wide) = (of(DType::I64, &[2, 5]), of(DType::I64, &[4, 2]), of(DType::F64, &[4, 5]));
    let (x, v, i) = (input.view(), values.view_mut(), indices.view_mut());
    type Case<'a> = (&'a str, &'a dyn Fn());
    let cases: [Case; 9] = [
        ("sort: fewer lanes", &|| sort(&x, 1, false, None, &few.view_mut())),
        ("sort: values", &|| sort(&x, 1, false, Some(&small.view_mut()), &i)),
        ("sort: dtype of values", &|| sort(&x, 1, false, Some(&wide.view_mut()), &i)),
        ("sort: dtype of indices", &|| sort(&x, 1, false, None, &v)),
        ("topk: more than there are", &|| topk(&small.view(), 1, true, true, &v, &i)),
        ("topk: values", &|| topk(&x, 1, true, true, &v, &short.view_mut())),
        ("kthvalue: none", &|| kthvalue(&x, 1, 0, &v, &i)),
        ("searchsorted: rows", &|| {
            searchsorted(&small.view(), &of(DType::F32, &[6, 5]).view(), false, &of(DType::I64, &[6, 5]).view_mut())
        }),
        ("searchsorted: output", &|| searchsorted(&of(DType::F32, &[3]).view(), &x, false, &few.view_mut())),
    ];
    for (name, call) in cases {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err(), "{name}");
    }
}
