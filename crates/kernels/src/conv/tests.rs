//! All three operations against plain f64 loops on odd shapes, on every instruction set, and over thread counts.
mod winograd;

use super::*;
use crate::cpu::{available, isa, set_isa};
use crate::real::alone;
use crate::{Storage, bf16, f16, with_element};

fn random(len: usize, seed: u32) -> Vec<f64> {
    let mut s = seed.wrapping_mul(2654435761) | 1;
    (0..len)
        .map(|_| {
            s ^= s << 13;
            s ^= s >> 17;
            s ^= s << 5;
            f64::from(s >> 24) / 256.0 - 0.5 // exact in every float type
        })
        .collect()
}

/// Numbers with full mantissas, so that products and sums round: those of [`random`] add up exactly.
fn thirds(len: usize, seed: u32) -> Vec<f64> {
    random(len, seed).into_iter().map(|v| f64::from((v / 3.0) as f32)).collect()
}

/// Makes `len` numbers of a seed.
type Numbers = fn(usize, u32) -> Vec<f64>;

fn store(dtype: DType, v: &[f64]) -> Storage {
    let s = Storage::new(v.len() * dtype.size()).expect("memory");
    with_element!(dtype, T => {
        let p = s.view_mut(dtype, 0, &[v.len()], &[1]).ptr::<T>();
        for (i, &v) in v.iter().enumerate() {
            // SAFETY: inside the storage.
            #[allow(unsafe_code)]
            unsafe { *p.add(i) = T::from_f64(v) };
        }
    });
    s
}

fn load(dtype: DType, s: &Storage, len: usize) -> Vec<f64> {
    with_element!(dtype, T => {
        let sizes = [len];
        s.view(dtype, 0, &sizes, &[1]).as_slice::<T>().expect("contiguous").iter().map(|v| v.to_f64()).collect()
    })
}

/// Output, input gradient and weight gradient, with a bias on the first two if `bias`.
fn run(s: &ConvShape, dtype: DType, bias: bool) -> [Vec<f64>; 3] {
    run_on(s, dtype, bias, random)
}

fn run_on(s: &ConvShape, dtype: DType, bias: bool, numbers: Numbers) -> [Vec<f64>; 3] {
    let (lx, lw, ly) = (s.in_len(), s.weight_len(), s.out_len());
    let sizes = [lx, lw, ly, s.out_channels, s.in_channels];
    let data: [Vec<f64>; 5] = std::array::from_fn(|i| numbers(sizes[i], i as u32 + 1));
    let [x, w, dy, by, bx] = data.each_ref().map(|v| store(dtype, v));
    let nan = |n| store(dtype, &vec![f64::NAN; n]);
    let (y, dx, dw) = (nan(ly), nan(lx), nan(lw));
    let (sx, sw, sy, so, si) = ([lx], [lw], [ly], [s.out_channels], [s.in_channels]);
    let bias_of = |b| if bias { Some(b) } else { None };
    let (by, bx) = (by.view(dtype, 0, &so, &[1]), bx.view(dtype, 0, &si, &[1]));
    let (x, w, dy) = (x.view(dtype, 0, &sx, &[1]), w.view(dtype, 0, &sw, &[1]), dy.view(dtype, 0, &sy, &[1]));
    forward(s, x, w, bias_of(by), y.view_mut(dtype, 0, &sy, &[1]));
    grad_input(s, dy, w, bias_of(bx), dx.view_mut(dtype, 0, &sx, &[1]));
    grad_weight(s, x, dy, dw.view_mut(dtype, 0, &sw, &[1]));
    [load(dtype, &y, ly), load(dtype, &dx, lx), load(dtype, &dw, lw)]
}

fn naive(s: &ConvShape, bias: bool, numbers: Numbers) -> [Vec<f64>; 3] {
    let (x, w, dy) = (numbers(s.in_len(), 1), numbers(s.weight_len(), 2), numbers(s.out_len(), 3));
    let (by, bx) = (numbers(s.out_channels, 4), numbers(s.in_channels, 5));
    let plane = |b: &[f64], i: usize, len: usize| if bias { b[i / len % b.len()] } else { 0.0 };
    let mut y: Vec<f64> = (0..s.out_len()).map(|i| plane(&by, i, s.out_plane())).collect();
    let mut dx: Vec<f64> = (0..s.in_len()).map(|i| plane(&bx, i, s.in_plane())).collect();
    let mut dw = vec![0.0; s.weight_len()];
    let (cg, mg) = (s.group_in(), s.group_out());
    for yi in 0..s.out_len() {
        let (n, m) = (yi / s.out_plane() / s.out_channels, yi / s.out_plane() % s.out_channels);
        let q = yi % s.out_plane();
        let o = [q / (s.output[1] * s.output[2]), q / s.output[2] % s.output[1], q % s.output[2]];
        for c in 0..cg {
            for t in 0..s.taps() {
                let k = s.tap(t);
                let i = [0, 1, 2].map(|d| (o[d] * s.stride[d] + k[d] * s.dilation[d]).wrapping_sub(s.padding[d]));
                if (0..3).any(|d| i[d] >= s.input[d]) {
                    continue;
                }
                let xi = (n * s.in_channels + m / mg * cg + c) * s.in_plane()
                    + (i[0] * s.input[1] + i[1]) * s.input[2]
                    + i[2];
                let wi = (m * cg + c) * s.taps() + t;
                y[yi] += x[xi] * w[wi];
                dx[xi] += dy[yi] * w[wi];
                dw[wi] += dy[yi] * x[xi];
            }
        }
    }
    [y, dx, dw]
}

fn shapes() -> Vec<ConvShape> {
    let two = |c: (usize, usize, usize, usize), h: usize, w: usize, k: usize, s: usize, p: usize, d: usize| {
        ConvShape::new(c, &[h, w], &[k, k], &[s, s], &[p, p], &[d, d])
    };
    let mut padded_output = two((2, 3, 5, 1), 11, 10, 3, 3, 1, 1);
    padded_output.input = [1, 13, 12]; // what output_padding does to a transposed convolution
    vec![
        two((2, 5, 7, 1), 9, 9, 3, 1, 1, 1),
        two((3, 4, 18, 1), 11, 13, 5, 2, 2, 1),
        two((1, 20, 33, 1), 7, 7, 3, 3, 0, 1),
        two((5, 130, 48, 1), 7, 7, 3, 1, 1, 1),
        two((1, 3, 16, 1), 33, 33, 7, 2, 3, 1),
        two((2, 16, 32, 1), 16, 16, 1, 2, 0, 1),
        two((2, 16, 8, 1), 9, 8, 1, 1, 0, 1),
        two((2, 6, 9, 3), 10, 37, 3, 1, 2, 2),
        two((2, 8, 8, 2), 12, 12, 3, 2, 1, 3),
        two((2, 6, 6, 6), 12, 70, 3, 1, 1, 1),
        two((3, 4, 8, 4), 11, 9, 5, 2, 2, 1),
        two((1, 4, 32, 4), 11, 9, 3, 1, 1, 1),
        two((0, 4, 8, 1), 8, 8, 3, 1, 1, 1),
        two((2, 3, 4, 1), 3, 3, 3, 1, 4, 1),
        two((9, 16, 16, 1), 32, 32, 3, 1, 1, 1),
        ConvShape::new((3, 5, 6, 1), &[50], &[4], &[3], &[2], &[2]),
        ConvShape::new((2, 4, 4, 4), &[50], &[7], &[1], &[3], &[1]),
        ConvShape::new((2, 3, 5, 1), &[5, 6, 7], &[3, 2, 3], &[1, 2, 1], &[1, 0, 1], &[1, 1, 2]),
        ConvShape::new((1, 4, 4, 2), &[6, 5, 9], &[2, 3, 1], &[2, 1, 3], &[1, 1, 0], &[2, 1, 1]),
        ConvShape::new((2, 3, 3, 3), &[4, 6, 7], &[3, 3, 3], &[1, 1, 2], &[1, 1, 1], &[1, 1, 1]),
        two((2, 5, 5, 5), 20, 37, 9, 1, 4, 1),
        two((2, 4, 8, 4), 13, 18, 7, 1, 1, 1),
        two((9, 3, 18, 1), 11, 34, 3, 1, 1, 1),
        // Depthwise: steps of two over one vector of outputs and several, an even and an odd rest; planes smaller than a vector.
        two((2, 6, 6, 6), 12, 70, 3, 2, 1, 1),
        two((2, 4, 8, 4), 13, 37, 5, 2, 2, 1),
        two((1, 2, 2, 2), 15, 75, 7, 2, 3, 1),
        two((2, 3, 3, 3), 14, 14, 3, 2, 1, 1),
        two((2, 3, 3, 3), 15, 16, 3, 2, 0, 1),
        two((1, 5, 5, 5), 7, 7, 5, 1, 2, 1),
        two((2, 3, 3, 3), 9, 5, 3, 1, 1, 1),
        two((2, 6, 9, 3), 12, 16, 5, 1, 2, 1),
        two((3, 5, 17, 1), 16, 16, 3, 2, 1, 1),
        two((2, 3, 9, 1), 9, 15, 5, 2, 2, 1),
        padded_output,
    ]
}

fn close(got: &[Vec<f64>; 3], want: &[Vec<f64>; 3], tolerance: f64, what: &str) {
    for (op, (got, want)) in ["forward", "grad_input", "grad_weight"].iter().zip(got.iter().zip(want)) {
        let scale = want.iter().fold(1e-3f64, |m, v| m.max(v.abs()));
        for (i, (a, b)) in got.iter().zip(want).enumerate() {
            assert!((a - b).abs() <= tolerance * scale, "{op} {what} [{i}]: {a} instead of {b}");
        }
    }
}

#[test]
fn every_path_agrees_with_plain_loops() {
    let _turn = alone();
    let best = isa();
    for s in shapes() {
        let (plain, with_bias) = (naive(&s, false, random), naive(&s, true, random));
        for wish in available() {
            set_isa(wish);
            close(&run(&s, DType::F32, false), &plain, 3e-6, &format!("{wish:?} {s:?}"));
            close(&run(&s, DType::F32, true), &with_bias, 3e-6, &format!("bias {wish:?} {s:?}"));
            close(&run(&s, DType::F64, true), &with_bias, 1e-14, &format!("f64 {wish:?} {s:?}"));
        }
        set_isa(best);
        close(&run(&s, DType::F16, true), &with_bias, f16::EPSILON.to_f64(), &format!("f16 {s:?}"));
        close(&run(&s, DType::BF16, true), &with_bias, bf16::EPSILON.to_f64(), &format!("bf16 {s:?}"));
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let _turn = alone();
    let (best, threads) = (isa(), parallel::num_threads());
    for s in shapes() {
        for (wish, dtype) in available().map(|set| (set, DType::F32)).chain([(best, DType::F64)]) {
            set_isa(wish);
            let results = [1, 2, 3].map(|t| {
                parallel::set_num_threads(t);
                run_on(&s, dtype, false, thirds)
            });
            assert!(results.windows(2).all(|r| r[0] == r[1]), "{dtype} {wish:?} {s:?}");
        }
    }
    set_isa(best);
    parallel::set_num_threads(threads);
}
