//! Products against plain f64 loops, over layouts, dtypes and sizes on both sides of every limit.
use super::*;
use crate::cpu::{Isa, available, isa, set_isa};
use crate::real::alone;
use crate::{Storage, with_element};

struct Tensor {
    memory: Storage,
    dtype: DType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl Tensor {
    /// Small numbers (exact sums in integers) in memory laid out in the given order of dimensions, with gaps.
    fn new(dtype: DType, sizes: &[usize], order: &[usize], gap: usize, seed: u32) -> Tensor {
        let mut strides = vec![0; sizes.len()];
        let mut len = 1 + gap;
        for &d in order.iter().rev() {
            strides[d] = len;
            len *= sizes[d].max(1);
        }
        let memory = Storage::new((len + 1) * dtype.size()).expect("memory");
        let mut s = seed.wrapping_mul(2654435761) | 1;
        with_element!(dtype, T => {
            let p = memory.view_mut(dtype, 0, &[len], &[1]).ptr::<T>();
            for i in 0..len {
                s ^= s << 13;
                s ^= s >> 17;
                s ^= s << 5;
                let v = if dtype.is_floating_point() { (s >> 8) as f64 / (1 << 24) as f64 - 0.5 } else { (s >> 28) as f64 - 3.0 };
                // SAFETY: inside the storage.
                unsafe { *p.add(i) = T::from_f64(v) };
            }
        });
        Tensor { memory, dtype, sizes: sizes.to_vec(), strides }
    }
    fn view(&self) -> View<'_> {
        self.memory.view(self.dtype, 0, &self.sizes, &self.strides)
    }
    fn view_mut(&self) -> ViewMut<'_> {
        self.memory.view_mut(self.dtype, 0, &self.sizes, &self.strides)
    }
    fn values(&self) -> Vec<f64> {
        let n: usize = self.sizes.iter().product();
        (0..n)
            .map(|mut i| {
                let mut at = 0;
                for d in (0..self.sizes.len()).rev() {
                    at += i % self.sizes[d] * self.strides[d];
                    i /= self.sizes[d];
                }
                // SAFETY: inside the storage.
                with_element!(self.dtype, T => unsafe { (*self.view().ptr::<T>().add(at)).to_f64() })
            })
            .collect()
    }
}

fn naive(a: &Tensor, b: &Tensor, old: &[f64], alpha: f64, beta: f64) -> Vec<f64> {
    let nd = a.sizes.len();
    let (m, k, n) = (a.sizes[nd - 2], a.sizes[nd - 1], b.sizes[nd - 1]);
    let (a, b) = (a.values(), b.values());
    (0..old.len())
        .map(|i| {
            let (z, r, c) = (i / (m * n), i / n % m, i % n);
            let sum: f64 = (0..k).map(|l| a[(z * m + r) * k + l] * b[(z * k + l) * n + c]).sum();
            alpha * sum + if beta == 0.0 { 0.0 } else { beta * old[i] }
        })
        .collect()
}

fn check(dtype: DType, batch: &[usize], (m, n, k): (usize, usize, usize), alpha: f64, beta: f64, tolerance: f64) {
    let sizes = |r, c| batch.iter().copied().chain([r, c]).collect::<Vec<_>>();
    let nd = batch.len() + 2;
    let plain: Vec<usize> = (0..nd).collect();
    let mut turned = plain.clone();
    turned.swap(nd - 2, nd - 1);
    for layout in 0..8 {
        let order = |bit: usize| if layout >> bit & 1 == 0 { &plain } else { &turned };
        let a = Tensor::new(dtype, &sizes(m, k), order(0), 0, 1);
        let b = Tensor::new(dtype, &sizes(k, n), order(1), usize::from(layout == 5), 2);
        let out = Tensor::new(dtype, &sizes(m, n), order(2), usize::from(layout == 3), 3);
        let expected = naive(&a, &b, &out.values(), alpha, beta);
        matmul(a.view(), b.view(), out.view_mut(), alpha, beta);
        let agrees = |out: &Tensor, expected: &[f64]| {
            for (i, (got, want)) in out.values().iter().zip(expected).enumerate() {
                let want = if dtype.is_floating_point() {
                    *want
                } else {
                    with_element!(dtype, T => T::from_f64(*want).to_f64())
                };
                assert!(
                    (got - want).abs() <= tolerance,
                    "{dtype} {batch:?} {m} {n} {k} layout {layout} [{i}]: {got} {want}"
                );
            }
        };
        agrees(&out, &expected);
        let term = Tensor::new(dtype, &sizes(m, n), order(layout % 3), 0, 4);
        addmm(term.view(), a.view(), b.view(), out.view_mut(), alpha, beta);
        agrees(&out, &naive(&a, &b, &term.values(), alpha, beta));
    }
}

const SIZES: [(usize, usize, usize); 20] = [
    (1, 1, 1),
    (1, 1, 700),
    (4, 4, 4),
    (1, 33, 70),
    (300, 1, 65),
    (2, 3, 0),
    (17, 19, 23),
    (5, 70, 2),
    (64, 64, 64),
    (65, 63, 600),
    (3, 200, 90),
    (130, 2, 40),
    (97, 101, 103),
    (16, 16, 600),
    (7, 9, 16),
    (195, 530, 40),
    (8, 300, 600),
    (16, 550, 20),
    (300, 8, 40),
    (150, 6, 600),
];

#[test]
fn floats_agree_with_plain_loops_on_every_instruction_set() {
    let _turn = alone();
    let best = isa();
    for wish in available() {
        set_isa(wish);
        for size in SIZES {
            check(DType::F32, &[], size, 1.0, 0.0, 3e-5);
            check(DType::F64, &[2], size, 0.5, -1.5, 1e-13);
        }
    }
    set_isa(best);
    check(DType::F32, &[3, 2], (5, 6, 7), -2.0, 1.0, 3e-6);
    check(DType::F32, &[0], (5, 6, 7), 1.0, 0.0, 0.0);
}

#[test]
fn half_types_round_once() {
    let _turn = alone();
    let best = isa();
    for wish in available() {
        set_isa(wish);
        // Odd depths, more than one block of it, and edges of tiles on both sides.
        for size in SIZES.into_iter().chain([(9, 33, 1031), (2, 2, 300), (1, 300, 513), (200, 40, 7)]) {
            check(DType::F16, &[2], size, 1.0, 0.0, 8e-3);
            check(DType::BF16, &[], size, 0.5, 1.0, 6e-2);
        }
        check(DType::BF16, &[3], (9, 18, 31), -1.0, 0.0, 4e-2);
    }
    set_isa(best);
}

#[test]
fn integers_wrap_and_bool_is_or_of_ands() {
    let _turn = alone();
    let best = isa();
    for wish in [Isa::Portable, best] {
        set_isa(wish);
        for dtype in [DType::Bool, DType::U8, DType::I8, DType::I16, DType::I32, DType::I64] {
            for size in [(1, 1, 1), (4, 4, 4), (70, 3, 20), (3, 130, 9), (2, 2, 0), (17, 9, 65)] {
                check(dtype, &[2], size, 1.0, if dtype == DType::Bool { 1.0 } else { 3.0 }, 0.0);
            }
        }
    }
    set_isa(best);
    let a = Tensor::new(DType::U8, &[1, 1], &[0, 1], 0, 1);
    let (b, out) = (Tensor::new(DType::U8, &[1, 1], &[0, 1], 0, 1), Tensor::new(DType::U8, &[1, 1], &[0, 1], 0, 1));
    // SAFETY: one element each.
    unsafe {
        *a.view_mut().ptr::<u8>() = 200;
        *b.view_mut().ptr::<u8>() = 3;
    }
    matmul(a.view(), b.view(), out.view_mut(), 1.0, 0.0);
    assert_eq!(out.values(), [f64::from(600u16 as u8)]);
}

#[test]
fn broadcast_batches_and_old_nans() {
    let a = Tensor::new(DType::F32, &[1, 6, 8], &[0, 1, 2], 0, 1);
    let b = Tensor::new(DType::F32, &[4, 8, 5], &[0, 1, 2], 0, 2);
    let out = Tensor::new(DType::F32, &[4, 6, 5], &[0, 1, 2], 0, 3);
    // SAFETY: one element.
    unsafe { *out.view_mut().ptr::<f32>() = f32::NAN };
    let (sizes, strides) = ([4, 6, 8], [0, 8, 1]);
    matmul(a.memory.view(DType::F32, 0, &sizes, &strides), b.view(), out.view_mut(), 1.0, 0.0);
    let a4 = Tensor { memory: a.memory.clone(), dtype: DType::F32, sizes: sizes.into(), strides: strides.into() };
    let expected = naive(&a4, &b, &[0.0; 120], 1.0, 0.0);
    assert!(out.values().iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-6));
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let _turn = alone();
    let threads = parallel::num_threads();
    let sizes = SIZES.into_iter().chain([
        (64, 64, 300),
        (200, 33, 700),
        (33, 200, 1030),
        (96, 60, 1500),
        (257, 31, 64),
        (500, 500, 2),
        (1000, 1, 900),
        (130, 1100, 70),
    ]);
    for (m, n, k) in sizes {
        for layout in 0..8 {
            for (dtype, batch) in [(DType::F32, 1), (DType::F64, 1), (DType::F32, 3), (DType::BF16, 1), (DType::F16, 2)]
            {
                let order = |bit: usize| if layout >> bit & 1 == 0 { [0, 1, 2] } else { [0, 2, 1] };
                let a = Tensor::new(dtype, &[batch, m, k], &order(0), 0, 1);
                let b = Tensor::new(dtype, &[batch, k, n], &order(1), 0, 2);
                let results: Vec<Vec<f64>> = [1, 2, 3, 5]
                    .into_iter()
                    .map(|t| {
                        parallel::set_num_threads(t);
                        let out = Tensor::new(dtype, &[batch, m, n], &order(2), 0, 3);
                        matmul(a.view(), b.view(), out.view_mut(), 0.7, 1.3);
                        out.values()
                    })
                    .collect();
                assert!(results.windows(2).all(|w| w[0] == w[1]), "{dtype} {m} {n} {k} layout {layout}");
            }
        }
    }
    parallel::set_num_threads(threads);
}

/// A sum that bf16 or f16 would lose on the way: a large number, many small ones, and the large one taken away again. And what is
/// not finite stays so, in odd depths too, where the neighbor of the last number is not a part of the product.
#[test]
fn half_types_sum_in_f32_on_every_instruction_set() {
    let _turn = alone();
    let best = isa();
    for (wish, dtype) in available().flat_map(|set| [(set, DType::BF16), (set, DType::F16)]) {
        set_isa(wish);
        let k = 601;
        let [a, b] = [(&[20, k], 1), (&[k, 40], 2)].map(|(sizes, seed)| Tensor::new(dtype, sizes, &[0, 1], 0, seed));
        let out = Tensor::new(dtype, &[20, 40], &[0, 1], 0, 3);
        with_element!(dtype, T => {
            let set = |t: &Tensor, f: &dyn Fn(usize) -> f64| {
                for i in 0..t.sizes[0] * t.sizes[1] {
                    // SAFETY: inside the storage.
                    unsafe { *t.view_mut().ptr::<T>().add(i) = T::from_f64(f(i)) };
                }
            };
            let row = |l: usize| if l == 0 { 1024.0 } else if l == k - 1 { -1024.0 } else { 0.25 };
            set(&a, &|i| if i / k == 7 && i % k == 0 { f64::INFINITY } else { row(i % k) });
            set(&b, &|_| 1.0);
        });
        matmul(a.view(), b.view(), out.view_mut(), 1.0, 0.0);
        for (i, v) in out.values().into_iter().enumerate() {
            let expected = if i / 40 == 7 { f64::INFINITY } else { 0.25 * (k - 2) as f64 };
            assert!((v - expected).abs() <= 0.5 || v == expected, "{wish:?} {dtype} [{i}]: {v} instead of {expected}");
        }
    }
    set_isa(best);
}

/// Sums of many products of bytes leave the range of what they are summed in.
#[test]
fn bytes_of_any_value_wrap_on_every_instruction_set() {
    let _turn = alone();
    let best = isa();
    for dtype in [DType::I8, DType::U8] {
        let [a, b] = [(&[19, 300], 1), (&[300, 21], 2)].map(|(sizes, seed)| {
            let t = Tensor::new(dtype, sizes, &[0, 1], 0, seed);
            let bytes = t.memory.view_mut(DType::U8, 0, &[sizes[0] * sizes[1]], &[1]).ptr::<u8>();
            for i in 0..sizes[0] * sizes[1] {
                // SAFETY: inside the storage.
                unsafe { *bytes.add(i) = (i * 89 + 128 * seed as usize) as u8 };
            }
            t
        });
        let results: Vec<Vec<f64>> = [Isa::Portable, best]
            .into_iter()
            .map(|wish| {
                set_isa(wish);
                let out = Tensor::new(dtype, &[19, 21], &[0, 1], 0, 3);
                matmul(a.view(), b.view(), out.view_mut(), 7.0, 3.0);
                out.values()
            })
            .collect();
        assert_eq!(results[0], results[1], "{dtype}");
        let wide: Vec<i64> = a.values().iter().map(|&v| v as i64).collect();
        let other: Vec<i64> = b.values().iter().map(|&v| v as i64).collect();
        let first: i64 = (0..300).map(|l| wide[l] * other[l * 21]).sum();
        let old = Tensor::new(dtype, &[19, 21], &[0, 1], 0, 3).values()[0] as i64;
        let expected = 7 * first + 3 * old;
        let expected = if dtype == DType::I8 { f64::from(expected as i8) } else { f64::from(expected as u8) };
        assert_eq!(results[0][0], expected, "{dtype}");
    }
    set_isa(best);
}
