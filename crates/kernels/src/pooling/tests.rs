//! Against plain loops over padded windows, and against numbers from PyTorch where its rules are subtle.
use super::*;
use crate::DType;
use crate::testing::{Tensor, assert_close, everywhere, noise, tolerance};

/// The data of the committed numbers.
fn pattern(i: usize) -> f64 {
    ((i * i * 3 + i * 5) % 17) as f64 - 8.0
}

fn tensor(len: usize) -> Tensor {
    Tensor::new(DType::F32, &[len], pattern)
}

#[test]
fn average_in_ceil_mode_counts_as_pytorch_does() {
    let s = PoolShape::new(1, (&[6, 8], &[4, 5]), &[3, 3], &[2, 2], &[1, 1], &[1, 1]);
    type Case = (bool, Option<i64>, &'static [f64], &'static [f64]);
    let cases: [Case; 3] = [
        (
            true,
            None,
            &[
                0.333333, 1.0, 1.333333, 0.666667, -0.333333, 1.888889, 1.555556, 1.555556, 1.0, -1.333333, 0.666667,
                3.0, 2.333333, 3.0, 2.333333, -0.333333, 2.5, 2.0, 2.166667, 0.75,
            ],
            &[
                -0.888889, -0.888889, 0.0, -0.333333, -0.333333, -0.333333, 0.0, -1.333333, -0.111111, -0.777778,
                -0.666667, -0.555556, 0.111111, 0.444444, 0.333333, 0.333333, 0.777778, 0.111111, -0.666667, -0.222222,
                0.444444, 0.777778, 0.333333, 1.666667, 1.0, 0.555556, -0.444444, 0.888889, 1.333333, 2.0, 0.666667,
                2.666667, 0.222222, 0.444444, 0.222222, 1.111111, 0.888889, 1.222222, 0.333333, 1.0, -0.777778,
                0.611111, 1.388889, 0.944444, -0.444444, -0.111111, 0.333333, 0.25,
            ],
        ),
        (
            false,
            None,
            &[
                0.75, 1.5, 2.0, 1.0, -1.0, 2.833333, 1.555556, 1.555556, 1.0, -2.666667, 1.0, 3.0, 2.333333, 3.0,
                4.666667, -1.0, 5.0, 4.0, 4.333333, 3.0,
            ],
            &[
                -2.0, -2.0, 0.0, -0.5, -0.5, -0.5, 0.0, -4.0, -0.833333, -1.5, -0.666667, -0.722222, -0.055556,
                0.277778, 0.333333, -1.0, 1.166667, 0.5, -0.666667, -0.222222, 0.444444, 0.777778, 0.333333, 3.0, 1.5,
                1.055556, -0.444444, 0.888889, 1.333333, 2.0, 0.666667, 4.666667, 0.333333, 0.555556, 0.222222,
                1.111111, 0.888889, 1.222222, 0.333333, 1.666667, -2.666667, -0.111111, 2.555556, 0.777778, -1.777778,
                -1.444444, 0.333333, -1.333333,
            ],
        ),
        (
            true,
            Some(5),
            &[0.6, 1.8, 2.4, 1.2, -0.4, 3.4, 2.8, 2.8, 1.8, -1.6, 1.2, 5.4, 4.2, 5.4, 2.8, -0.4, 3.0, 2.4, 2.6, 0.6],
            &[
                -1.6, -1.6, 0.0, -0.6, -0.6, -0.6, 0.0, -1.6, -0.2, -1.4, -1.2, -1.0, 0.2, 0.8, 0.6, 0.6, 1.4, 0.2,
                -1.2, -0.4, 0.8, 1.4, 0.6, 2.2, 1.8, 1.0, -0.8, 1.6, 2.4, 3.6, 1.2, 3.6, 0.4, 0.8, 0.4, 2.0, 1.6, 2.2,
                0.6, 1.4, -0.8, 1.0, 1.8, 1.8, 0.0, 0.6, 0.6, 0.8,
            ],
        ),
    ];
    for (include, divisor, y, dx) in cases {
        let (out, grad) = (tensor(20), tensor(48));
        avg_pool(&s, include, divisor, tensor(48).view(), out.view_mut());
        avg_pool_backward(&s, include, divisor, tensor(20).view(), grad.view_mut());
        assert_close(&out.values(), y, 1e-6, "average");
        assert_close(&grad.values(), dx, 1e-6, "gradient of average");
    }
}

#[test]
fn maxima_and_adaptive_pools_agree_with_pytorch() {
    let s = PoolShape::new(1, (&[6, 8], &[3, 4]), &[3, 3], &[2, 2], &[1, 1], &[2, 2]);
    let (out, at) = (tensor(12), Tensor::zeros(DType::I64, &[12]));
    max_pool(&s, tensor(48).view(), out.view_mut(), at.view_mut());
    assert_close(&out.values(), &[8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0], 0.0, "max");
    assert_close(&at.values(), &[9, 9, 29, 29, 9, 9, 29, 29, 43, 29, 29, 29].map(f64::from), 0.0, "its indices");
    adaptive_max_pool(1, &[5, 7], &[3, 4], tensor(35).view(), out.view_mut(), at.view_mut());
    assert_close(&out.values(), &[4.0, 8.0, 8.0, 8.0, 7.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0], 0.0, "adaptive max");
    assert_close(&at.values(), &[7, 9, 12, 12, 22, 9, 12, 12, 29, 29, 26, 26].map(f64::from), 0.0, "its indices");
    adaptive_avg_pool(1, &[5, 7], &[3, 4], tensor(35).view(), out.view_mut());
    let dx = tensor(35);
    adaptive_avg_pool_backward(1, &[5, 7], &[3, 4], tensor(12).view(), dx.view_mut());
    assert_close(
        &out.values(),
        &[-0.25, 1.666667, 1.833333, 3.0, 0.666667, 1.222222, 1.777778, 3.0, 2.25, 3.333333, 3.333333, 2.25],
        1e-6,
        "adaptive average",
    );
    assert_close(
        &dx.values(),
        &[
            -2.0, -2.0, 0.0, -0.5, -0.5, -0.5, 0.0, -3.333333, -2.555556, 0.777778, -0.388889, -1.166667, -0.5,
            0.666667, -1.333333, -0.555556, 0.777778, 0.111111, -0.666667, 0.0, 0.666667, -0.583333, 1.527778,
            2.111111, 1.777778, -0.333333, 0.833333, 1.166667, 0.75, 2.083333, 1.333333, 1.666667, 0.333333, 0.833333,
            0.5,
        ],
        1e-6,
        "its gradient",
    );
}

#[test]
fn nan_wins_and_its_last_place_is_told() {
    let x = Tensor::new(DType::F32, &[1, 6], |i| if i == 1 || i == 2 { f64::NAN } else { i as f64 });
    let (out, at) = (Tensor::zeros(DType::F32, &[2]), Tensor::zeros(DType::I64, &[2]));
    max_pool(&PoolShape::new(1, (&[6], &[2]), &[3], &[3], &[0], &[1]), x.view(), out.view_mut(), at.view_mut());
    assert!(out.values()[0].is_nan() && out.values()[1] == 5.0);
    assert_eq!(at.values(), [2.0, 5.0]);
}

#[test]
fn side_by_side_every_lane_has_its_own_nan_infinity_and_first_of_equals() {
    const WIDTH: usize = 90;
    let value = |i: usize| match i % WIDTH {
        17 | 40 => f64::NAN,
        20..=30 => f64::NEG_INFINITY,
        60..=70 => 1.0,
        i => ((i * 7) % 13) as f64,
    };
    for (stride, dilation) in [(1, 1), (1, 2), (2, 1), (2, 3), (3, 1)] {
        let outputs = (WIDTH - 2 * dilation - 1) / stride + 1;
        let x = Tensor::new(DType::F32, &[2, WIDTH], value);
        let (mut best, mut place) = (Vec::new(), Vec::new());
        for o in 0..2 * outputs {
            let window = (0..3).map(|k| o % outputs * stride + k * dilation);
            let last_nan = window.clone().rfind(|&i| value(i).is_nan());
            let largest = || window.clone().reduce(|a, b| if value(b) > value(a) { b } else { a }).unwrap();
            place.push(last_nan.unwrap_or_else(largest) as f64);
            best.push(value(*place.last().unwrap() as usize));
        }
        everywhere(|| {
            let (out, at) = (Tensor::zeros(DType::F32, &[2, outputs]), Tensor::zeros(DType::I64, &[2, outputs]));
            let shape = PoolShape::new(2, (&[WIDTH], &[outputs]), &[3], &[stride], &[0], &[dilation]);
            max_pool(&shape, x.view(), out.view_mut(), at.view_mut());
            assert_eq!(at.values(), place, "stride {stride}, dilation {dilation}");
            assert!(out.values().iter().zip(&best).all(|(a, b)| a == b || a.is_nan() && b.is_nan()));
            at.values()
        });
    }
}

#[test]
fn windows_agree_with_plain_loops_in_every_dtype_and_thread_count() {
    let shapes = [
        PoolShape::new(3, (&[9], &[5]), &[3], &[2], &[1], &[1]),
        PoolShape::new(5, (&[7, 40], &[6, 20]), &[2, 3], &[1, 2], &[0, 1], &[1, 1]),
        PoolShape::new(2, (&[5, 6, 7], &[3, 2, 4]), &[3, 3, 2], &[2, 3, 2], &[1, 1, 1], &[1, 1, 1]),
        PoolShape::new(0, (&[4, 4], &[2, 2]), &[2, 2], &[2, 2], &[0, 0], &[1, 1]),
        // Rows of one, two and more stretches side by side, that end where the plane does and that do not.
        PoolShape::new(2, (&[5, 11], &[5, 11]), &[3, 3], &[1, 1], &[1, 1], &[1, 1]),
        PoolShape::new(2, (&[3, 90], &[3, 90]), &[3, 3], &[1, 1], &[1, 1], &[1, 1]),
        PoolShape::new(2, (&[6, 14], &[3, 7]), &[3, 3], &[2, 2], &[1, 1], &[1, 1]),
        PoolShape::new(2, (&[4, 36], &[2, 18]), &[2, 2], &[2, 2], &[0, 0], &[1, 1]),
        PoolShape::new(1, (&[4, 136], &[2, 68]), &[3, 3], &[2, 2], &[1, 1], &[1, 1]),
        PoolShape::new(1, (&[4, 37], &[2, 12]), &[2, 4], &[2, 3], &[0, 1], &[1, 1]),
        PoolShape::new(2, (&[1, 8], &[1, 4]), &[1, 1], &[1, 2], &[0, 0], &[1, 1]),
        PoolShape::new(2, (&[1, 7], &[1, 4]), &[1, 1], &[1, 2], &[0, 0], &[1, 1]),
    ];
    for s in shapes {
        let (n, m): (usize, usize) = (s.input.iter().product(), s.output.iter().product());
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let x = Tensor::new(dtype, &[s.planes, n], noise);
            let dy = Tensor::new(dtype, &[s.planes, m], |i| noise(i + 1000));
            let (xs, dys) = (x.values(), dy.values());
            let mut expected = [vec![], vec![], vec![0.0; xs.len()], vec![0.0; xs.len()]];
            for (o, dy) in dys.iter().enumerate() {
                let (p, q) = (o / m, o % m);
                let at = [q / (s.output[1] * s.output[2]), q / s.output[2] % s.output[1], q % s.output[2]];
                let mut inside = vec![];
                for k in 0..s.kernel.iter().product() {
                    let k = [k / (s.kernel[1] * s.kernel[2]), k / s.kernel[2] % s.kernel[1], k % s.kernel[2]];
                    let i = [0, 1, 2].map(|d| (at[d] * s.stride[d] + k[d]).wrapping_sub(s.padding[d]));
                    if (0..3).all(|d| i[d] < s.input[d]) {
                        inside.push(p * n + (i[0] * s.input[1] + i[1]) * s.input[2] + i[2]);
                    }
                }
                let best = inside.iter().copied().reduce(|a, b| if xs[b] > xs[a] { b } else { a }).expect("a pixel");
                expected[0].push(xs[best]);
                expected[1].push(inside.iter().map(|&i| xs[i]).sum::<f64>() / inside.len() as f64);
                expected[2][best] += dy;
                inside.iter().for_each(|&i| expected[3][i] += dy / inside.len() as f64);
            }
            everywhere(|| {
                let (out, at) = (Tensor::zeros(dtype, &[s.planes, m]), Tensor::zeros(DType::I64, &[s.planes, m]));
                let (average, dx, dx_average) = (
                    Tensor::zeros(dtype, &[s.planes, m]),
                    Tensor::zeros(dtype, &[s.planes, n]),
                    Tensor::zeros(dtype, &[s.planes, n]),
                );
                max_pool(&s, x.view(), out.view_mut(), at.view_mut());
                max_pool_backward(s.planes, dy.view(), at.view(), dx.view_mut());
                avg_pool(&s, false, None, x.view(), average.view_mut());
                avg_pool_backward(&s, false, None, dy.view(), dx_average.view_mut());
                let got = [out, average, dx, dx_average].map(|t| t.values());
                for (got, expected) in got.iter().zip(&expected) {
                    assert_close(got, expected, tolerance(dtype), "pool");
                }
                got.concat()
            });
        }
    }
}
