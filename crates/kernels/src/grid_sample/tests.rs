//! Against numbers from PyTorch, in every dtype, and over thread counts and instruction sets.
use super::Interpolation::*;
use super::Padding::*;
use super::*;
use crate::DType;
use crate::testing::{Tensor, assert_close, everywhere, noise};

/// The data of the committed numbers.
fn pattern(i: usize) -> f64 {
    ((i * i * 3 + i * 5) % 17) as f64 - 8.0
}

/// Points inside and outside of the input.
fn place(i: usize) -> f64 {
    (i * 37 % 29) as f64 / 29.0 * 2.8 - 1.37
}

#[test]
fn points_agree_with_pytorch() {
    type Case = (usize, Interpolation, Padding, bool, &'static [f64], &'static [f64], &'static [f64]);
    let cases: &[Case] = &[
        (
            2,
            Linear,
            Zeros,
            false,
            &[0.0, 1.6807, -2.71448, 0.28931, 0.0, 2.74791, 2.5319, 0.20591],
            &[
                -0.47018, 0.0, 0.0, 0.0, -0.54775, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.94036, 0.0, 0.0, 0.0, -1.0955,
                0.0, 0.0, 0.0, 0.0, 0.60949, 3.77489, 0.24821,
            ],
            &[0.0, 0.0, 121.61897, -49.82069, -41.54276, 3.05379, -15.04414, -8.54069],
        ),
        (
            2,
            Linear,
            Border,
            true,
            &[-8.0, 3.09229, -8.0, 2.0, 7.59759, 3.15212, 7.30793, 4.44259],
            &[
                -5.70448, 0.0, 0.0, 0.0, -5.29552, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -6.62828, 0.0, 0.0, 0.0,
                -7.37172, 0.08781, 0.2815, 0.0, 0.0, 1.5765, 8.26729, 0.7869,
            ],
            &[-0.0, 8.0, 153.62224, 37.34983, 0.0, 6.0, -78.0, -0.0],
        ),
        (
            2,
            Linear,
            Reflection,
            false,
            &[-5.90592, 2.90207, -8.0, 2.0, 6.44769, 4.74483, 7.4619, 1.42345],
            &[
                -6.83568, -1.72105, 0.0, 0.0, -2.24432, -0.19895, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -8.22137, -1.72105,
                0.0, 0.0, -3.85863, -0.19895, 0.0, 0.0, 0.0, 1.05241, 8.23172, 1.71586,
            ],
            &[43.02621, 20.64, 210.0, -0.0, 0.0, 9.0, -104.0, -0.0],
        ),
        (
            2,
            Linear,
            Reflection,
            true,
            &[-1.99662, 3.09229, -6.45202, 0.57086, 2.58919, 3.15212, 5.87128, 3.25034],
            &[
                -2.93987, -2.76462, 0.0, 0.0, -3.25858, -2.03694, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -3.75233, -2.87595,
                0.0, 0.0, -5.08457, -2.19935, 1.04268, 0.18641, 0.0, 1.5765, 7.50612, 0.60048,
            ],
            &[21.5131, 21.32, 153.62224, 37.34983, -49.48603, 10.70017, -63.78621, -20.13103],
        ),
        (
            2,
            Nearest,
            Zeros,
            true,
            &[0.0, 2.0, -8.0, 2.0, 0.0, 7.0, 7.0, 7.0],
            &[
                0.0, 0.0, 0.0, 0.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -6.0, 0.0, 0.0, 0.0,
                0.0, 0.0, 11.0, 0.0,
            ],
            &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ),
        (
            2,
            Cubic,
            Zeros,
            false,
            &[0.89194, 2.4952, -3.91593, 0.24618, -0.88008, 4.28919, 3.50245, 0.36776],
            &[
                0.19618, 0.09298, 0.0, 0.0, -0.65312, 0.11007, 0.0, 0.0, 0.10785, -0.01717, 0.0, 0.0, -0.42045,
                0.18596, 0.0, 0.0, -1.37245, 0.12024, -0.7433, 0.03353, 0.15167, 0.60106, 5.00862, -0.12414,
            ],
            &[0.29133, -1.76465, 93.22834, -78.95592, -65.9565, 1.23533, -18.78194, -18.16403],
        ),
        (
            2,
            Cubic,
            Reflection,
            false,
            &[-6.07634, 4.26118, -11.25601, 1.79108, 6.63789, 7.30586, 10.03075, 3.4379],
            &[
                -7.33752, -1.59254, 0.24027, 0.0, -2.83336, 0.14019, 0.02428, 0.0, 0.39678, -0.03621, -0.0019, 0.0,
                -8.9396, -1.36195, 0.24027, 0.0, -5.06877, 0.3213, -1.44983, -0.05183, 0.62904, 0.63377, 10.88451,
                1.16308,
            ],
            &[53.98847, 21.10024, 158.41933, 8.74834, -13.67842, -3.51094, -139.89145, -11.29475],
        ),
        (
            2,
            Cubic,
            Border,
            true,
            &[-9.74303, 3.14285, -10.20213, 2.1467, 8.89342, 4.58418, 8.96364, 6.79658],
            &[
                -6.19905, 0.46209, 0.0, 0.0, -6.65365, 0.47813, 0.0, 0.0, 0.98353, -0.07106, 0.0, 0.0, -7.12129,
                0.51898, -0.01231, 0.00143, -9.3056, 0.76529, -0.11049, -0.10309, 1.12177, 1.13802, 10.03984, 0.06746,
            ],
            &[5.44835, 14.81816, 156.35349, 42.40155, 22.18266, 3.89057, -59.82188, 3.93339],
        ),
        (
            3,
            Linear,
            Zeros,
            false,
            &[0.0, -0.44903, 0.45738],
            &[0.0, 0.0, 0.0, 0.0, -0.16979, -0.39007, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -12.59698, 5.21527, -1.93449],
        ),
        (
            3,
            Linear,
            Reflection,
            false,
            &[-6.13611, -1.84759, 2.45086],
            &[-2.4583, -0.14308, 0.0, 0.0, -0.90983, -2.09017, -5.1017, -0.29692, 0.0, 0.0, 0.0, 0.0],
            &[112.19586, -0.0, -16.88, 0.0, -0.0, 0.0, -67.5, -0.0, 0.0],
        ),
    ];
    for &(dims, interpolation, padding, align_corners, y, dx, dgrid) in cases {
        let (channels, input, points) = if dims == 2 { (2, [1, 3, 4], 4) } else { (1, [2, 2, 3], 3) };
        let s = GridSample { batch: 1, channels, dims, input, points, interpolation, padding, align_corners };
        for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F64, 1e-5)] {
            let tensor = |len| Tensor::new(dtype, &[len], pattern);
            let (x, grid) = (tensor(dx.len()), Tensor::new(dtype, &[dgrid.len()], place));
            let (out, gx, gg) = (tensor(y.len()), tensor(dx.len()), tensor(dgrid.len()));
            grid_sample(&s, [0; 3], x.view(), grid.view(), out.view_mut());
            let dy = tensor(y.len());
            grid_sample_grad_input(&s, [0; 3], dy.view(), grid.view(), gx.view_mut());
            grid_sample_grad_grid(&s, [0; 3], dy.view(), x.view(), grid.view(), gg.view_mut());
            assert_close(&out.values(), y, tolerance, &format!("{s:?}"));
            assert_close(&gx.values(), dx, tolerance, &format!("by the input, {s:?}"));
            assert_close(&gg.values(), dgrid, tolerance, &format!("by the grid, {s:?}"));
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits_and_no_point_reads_outside() {
    let s = GridSample {
        batch: 2,
        channels: 7,
        dims: 2,
        input: [1, 9, 11],
        points: 700,
        interpolation: Linear,
        padding: Reflection,
        align_corners: false,
    };
    let x = Tensor::new(DType::F32, &[2 * 7 * 99], noise);
    let dy = Tensor::new(DType::F32, &[2 * 7 * 700], |i| noise(i + 9999));
    let strange = |i: usize| match i {
        3 => f64::NAN,
        8 => f64::INFINITY,
        17 => 1e30,
        _ => 2.0 * noise(i + 77),
    };
    let grid = Tensor::new(DType::F32, &[2 * 700 * 2], strange);
    everywhere(|| {
        let tensors = [x.sizes[0], dy.sizes[0], grid.sizes[0]].map(|n| Tensor::zeros(DType::F32, &[n]));
        let [dx, y, dgrid] = tensors;
        grid_sample(&s, [0; 3], x.view(), grid.view(), y.view_mut());
        grid_sample_grad_input(&s, [0; 3], dy.view(), grid.view(), dx.view_mut());
        grid_sample_grad_grid(&s, [0; 3], dy.view(), x.view(), grid.view(), dgrid.view_mut());
        [y.values(), dx.values(), dgrid.values()].concat()
    });
}
