//! Against numbers from PyTorch, and gradients against the transposed forward map.
use super::*;
use crate::DType;
use crate::testing::{Tensor, assert_close, everywhere, noise};

/// The data of the committed numbers.
fn pattern(i: usize) -> f64 {
    ((i * i * 3 + i * 5) % 17) as f64 - 8.0
}

fn check(mode: Mode, input: &[usize], output: &[usize], scales: &[Option<f64>], y: &[f64], dx: &[f64]) {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-6), (DType::F16, 4e-3), (DType::BF16, 3e-2)] {
        let (x, dy) = (Tensor::new(dtype, input, pattern), Tensor::new(dtype, output, pattern));
        let (out, grad) = (Tensor::zeros(dtype, output), Tensor::zeros(dtype, input));
        upsample(mode, 1, input, output, scales, x.view(), out.view_mut());
        upsample_backward(mode, 1, input, output, scales, dy.view(), grad.view_mut());
        assert_close(&out.values(), y, tolerance, &format!("{mode:?} {output:?} {dtype}"));
        assert_close(&grad.values(), dx, tolerance, &format!("gradient of {mode:?} {output:?} {dtype}"));
    }
}

#[test]
fn planes_agree_with_pytorch() {
    type Case = (Mode, [usize; 2], [Option<f64>; 2], &'static [f64], &'static [f64]);
    let cases: &[Case] = &[
        (
            Mode::Nearest,
            [5, 7],
            [None, None],
            &[
                -8.0, -8.0, 0.0, 0.0, -3.0, -3.0, 0.0, -8.0, -8.0, 0.0, 0.0, -3.0, -3.0, 0.0, -8.0, -8.0, 7.0, 7.0,
                -6.0, -6.0, 4.0, -8.0, -8.0, 7.0, 7.0, -6.0, -6.0, 4.0, 3.0, 3.0, 8.0, 8.0, 2.0, 2.0, 2.0,
            ],
            &[-1.0, 7.0, 9.0, -3.0, -3.0, -3.0, 8.0, 2.0, 10.0, 7.0, 1.0, -8.0],
        ),
        (
            Mode::NearestExact,
            [5, 7],
            [None, None],
            &[
                -8.0, -8.0, 0.0, -3.0, -3.0, 0.0, 0.0, -8.0, -8.0, 0.0, -3.0, -3.0, 0.0, 0.0, -8.0, -8.0, 7.0, -6.0,
                -6.0, 4.0, 4.0, 3.0, 3.0, 8.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 8.0, 2.0, 2.0, 2.0, 2.0,
            ],
            &[-1.0, 5.0, -4.0, 12.0, -2.0, 7.0, -8.0, -3.0, 9.0, -3.0, 5.0, 9.0],
        ),
        (
            Mode::Linear { align_corners: false },
            [5, 7],
            [None, None],
            &[
                -8.0, -5.142857, -0.571429, -1.5, -2.785714, -1.071429, 0.0, -8.0, -4.142857, 2.028571, -0.7,
                -3.785714, -0.471429, 1.6, -8.0, -2.642857, 5.928571, 0.5, -5.285714, 0.428571, 4.0, -1.4, 1.814286,
                6.957143, 3.2, -0.914286, 1.371429, 2.8, 3.0, 4.785714, 7.642857, 5.0, 2.0, 2.0, 2.0,
            ],
            &[-4.314286, 2.914286, -1.5, 2.9, 1.671429, 3.728571, 0.271429, 4.328571, 5.0, 7.0, 3.514286, 0.485714],
        ),
        (
            Mode::Linear { align_corners: true },
            [5, 7],
            [None, None],
            &[
                -8.0, -4.0, 0.0, -1.5, -3.0, -1.5, 0.0, -8.0, -2.25, 3.5, -0.5, -4.5, -1.25, 2.0, -8.0, -0.5, 7.0, 0.5,
                -6.0, -1.0, 4.0, -2.5, 2.5, 7.5, 2.75, -2.0, 0.5, 3.0, 3.0, 5.5, 8.0, 5.0, 2.0, 2.0, 2.0,
            ],
            &[-5.25, 2.25, -1.0, 1.0, 1.5, 5.0, 2.5, 5.0, 3.75, 8.75, 4.0, -1.5],
        ),
        (
            Mode::Linear { align_corners: false },
            [5, 5],
            [Some(1.7), Some(1.3)],
            &[
                -8.0, -2.769231, -1.269231, -2.423077, -0.115385, -8.0, -1.019231, -0.210407, -3.05543, 1.311086, -8.0,
                1.673077, 1.418552, -4.028281, 3.505656, -1.852941, 4.300905, 3.713801, -0.680995, 2.71267, 3.0,
                6.269231, 5.461538, 2.0, 2.0,
            ],
            &[
                -4.88009, -2.554299, 1.330317, -2.454751, 2.917421, 5.114253, 5.933258, 6.182127, -4.7681, -1.213801,
                -3.686652, 1.080317,
            ],
        ),
        (
            Mode::Cubic { align_corners: false },
            [4, 6],
            [None, None],
            &[
                -8.65083, -4.037262, -0.222514, -2.543762, -1.749847, -0.070307, -10.386983, -1.467392, 3.93833,
                -4.847672, -2.462784, 3.52278, -5.092168, 3.131897, 7.399633, -2.196183, -0.94928, 4.340758, 3.41783,
                6.44606, 7.666958, 3.499871, 1.699936, 1.794139,
            ],
            &[
                -11.905672, 0.618841, -3.086931, 5.318098, 4.47405, 7.909608, 6.766741, -1.831551, 2.667733, -3.574745,
                -3.886986, -4.469186,
            ],
        ),
        (
            Mode::Cubic { align_corners: true },
            [4, 6],
            [None, None],
            &[
                -8.0, -2.78, 0.168, -2.568, -2.16, 0.0, -9.222222, 0.437111, 3.935704, -4.594963, -3.63637, 2.962963,
                -4.537037, 4.478296, 7.026222, -2.148444, -2.140519, 3.814815, 3.0, 6.708, 7.424, 3.176, 1.352, 2.0,
            ],
            &[
                -10.254963, -0.116296, -3.536296, 5.111259, 3.182, 8.686, 7.138, -2.283778, 2.384963, -4.073704,
                -2.993704, -4.243481,
            ],
        ),
        (
            Mode::Cubic { align_corners: false },
            [4, 2],
            [Some(1.5), Some(0.6)],
            &[-5.554334, -2.739583, -4.634838, -5.25, -1.244963, -5.112269, 3.884238, 0.799769],
            &[
                -6.437886, -3.479938, -0.155093, 0.0, -6.576668, -3.554955, 7.779771, 0.0, -4.115076, -2.224366,
                4.76421, 0.0,
            ],
        ),
        (
            Mode::Nearest,
            [5, 10],
            [Some(1.7), Some(2.6)],
            &[
                -8.0, -8.0, -8.0, 0.0, 0.0, 0.0, -3.0, -3.0, 0.0, 0.0, -8.0, -8.0, -8.0, 0.0, 0.0, 0.0, -3.0, -3.0,
                0.0, 0.0, -8.0, -8.0, -8.0, 7.0, 7.0, 7.0, -6.0, -6.0, 4.0, 4.0, -8.0, -8.0, -8.0, 7.0, 7.0, 7.0, -6.0,
                -6.0, 4.0, 4.0, 3.0, 3.0, 3.0, 8.0, 8.0, 8.0, 2.0, 2.0, 2.0, 2.0,
            ],
            &[1.0, 0.0, -3.0, 8.0, 0.0, 0.0, 7.0, 9.0, 1.0, 12.0, 11.0, -2.0],
        ),
        (
            Mode::Linear { align_corners: false },
            [2, 2],
            [None, None],
            &[-3.125, -1.375, 4.0, 1.25],
            &[-3.0, -3.0, 0.0, 0.0, -1.375, -1.375, 0.0, 0.0, -1.125, -1.125, 0.0, 0.0],
        ),
    ];
    for &(mode, output, scales, y, dx) in cases {
        check(mode, &[3, 4], &output, &scales, y, dx);
    }
}

#[test]
fn lines_and_volumes_agree_with_pytorch() {
    let mode = Mode::Linear { align_corners: false };
    check(
        mode,
        &[2, 2, 3],
        &[3, 3, 2],
        &[],
        &[-6.0, -2.25, -4.0, 0.5, -2.0, 3.25, -4.75, 0.5, -1.25, 1.5625, 2.25, 2.625, -3.5, 3.25, 1.5, 2.625, 6.5, 2.0],
        &[-8.8125, -1.9375, 3.0, -5.8125, 0.5625, 7.5, 5.8125, 2.9375, 3.0, 8.0625, 0.6875, -6.0],
    );
    check(
        mode,
        &[4],
        &[7],
        &[None],
        &[-8.0, -5.142857, -0.571429, -1.5, -2.785714, -1.071429, 0.0],
        &[-8.214286, -2.785714, -4.928571, -2.071429],
    );
}

/// Sizes where a differently rounded product gives another pixel, found by search in PyTorch.
#[test]
fn nearest_rounds_where_pytorch_rounds() {
    let modes = [Mode::Nearest, Mode::NearestExact];
    for (input, output) in [(3, 3), (3, 6), (5, 3), (1, 4)] {
        let got = modes.map(|m| Axis::<f32>::new(m, input, output, None).at.iter().map(|a| a.0[0]).collect::<Vec<_>>());
        let whole = |o: usize| (o * input / output, ((2 * o + 1) * input / (2 * output)).min(input - 1));
        assert_eq!(got[0], (0..output).map(|o| whole(o).0).collect::<Vec<_>>());
        assert_eq!(got[1], (0..output).map(|o| whole(o).1).collect::<Vec<_>>());
    }
    let at = |mode, output, o: usize| Axis::<f32>::new(mode, 2, output, None).at[o].0[0];
    assert_eq!([(82, 41), (94, 47), (110, 55)].map(|(n, o)| at(Mode::Nearest, n, o)), [0; 3]);
    assert_eq!([(41, 20), (47, 23), (55, 27)].map(|(n, o)| at(Mode::NearestExact, n, o)), [1; 3]);
}

#[test]
fn gradients_are_the_transposed_map_for_any_number_of_threads() {
    let modes =
        [Mode::Nearest, Mode::NearestExact, Mode::Linear { align_corners: true }, Mode::Cubic { align_corners: false }];
    let (input, output) = ([9, 13], [17, 8]);
    for mode in modes {
        let x = Tensor::new(DType::F64, &[7, 9, 13], noise);
        let dy = Tensor::new(DType::F64, &[7, 17, 8], |i| noise(i + 5000));
        everywhere(|| {
            let (y, dx) = (Tensor::zeros(DType::F64, &[7, 17, 8]), Tensor::zeros(DType::F64, &[7, 9, 13]));
            upsample(mode, 7, &input, &output, &[], x.view(), y.view_mut());
            upsample_backward(mode, 7, &input, &output, &[], dy.view(), dx.view_mut());
            let dot = |a: &Tensor, b: &Tensor| a.values().iter().zip(b.values()).map(|(a, b)| a * b).sum::<f64>();
            assert!((dot(&y, &dy) - dot(&x, &dx)).abs() < 1e-9);
            [y.values(), dx.values()].concat()
        });
    }
}
