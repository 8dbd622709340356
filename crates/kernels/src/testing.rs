//! For tests of the kernels that work along dimensions: small strided tensors of `f64` values in any dtype, and a loop
//! over instruction sets and thread counts.

use crate::cpu::{available, isa, set_isa};
use crate::real::alone;
use crate::{DType, Element, Storage, View, ViewMut, parallel, with_element};

/// A strided tensor; values go in and out as `f64` in row-major order.
#[derive(Clone)]
pub(crate) struct Tensor {
    storage: Storage,
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// Row-major strides.
fn contiguous(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i].max(1);
    }
    strides
}

#[expect(unsafe_code)]
impl Tensor {
    pub(crate) fn new(dtype: DType, sizes: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
        let n: usize = sizes.iter().product();
        let storage = Storage::new(n * dtype.size()).expect("small");
        let t = Tensor { storage, dtype, sizes: sizes.to_vec(), strides: contiguous(sizes) };
        let ptr = t.view_mut().as_ptr();
        for i in 0..n {
            // SAFETY: `i` lies inside the fresh storage.
            with_element!(dtype, T => unsafe { *ptr.cast::<T>().add(i) = T::from_f64(value(i)) })
        }
        t
    }

    pub(crate) fn zeros(dtype: DType, sizes: &[usize]) -> Tensor {
        Tensor::new(dtype, sizes, |_| 0.0)
    }

    /// The same memory with dimensions in another order.
    pub(crate) fn permute(&self, order: &[usize]) -> Tensor {
        let pick = |v: &[usize]| order.iter().map(|&d| v[d]).collect();
        Tensor { sizes: pick(&self.sizes), strides: pick(&self.strides), ..self.clone() }
    }

    /// The same memory with dimension `d` (of size 1) repeated.
    pub(crate) fn expand(&self, d: usize, size: usize) -> Tensor {
        let mut t = self.clone();
        assert_eq!(t.sizes[d], 1);
        (t.sizes[d], t.strides[d]) = (size, 0);
        t
    }

    /// Every second element along `d`.
    pub(crate) fn halve(&self, d: usize) -> Tensor {
        let mut t = self.clone();
        (t.sizes[d], t.strides[d]) = (t.sizes[d] / 2, t.strides[d] * 2);
        t
    }

    pub(crate) fn view(&self) -> View<'_> {
        self.storage.view(self.dtype, 0, &self.sizes, &self.strides)
    }

    pub(crate) fn view_mut(&self) -> ViewMut<'_> {
        self.storage.view_mut(self.dtype, 0, &self.sizes, &self.strides)
    }

    /// All values in row-major order.
    pub(crate) fn values(&self) -> Vec<f64> {
        let n: usize = self.sizes.iter().product();
        let view = self.view();
        let at = |mut i: usize| {
            let mut at = 0;
            for (&n, &s) in self.sizes.iter().zip(&self.strides).rev() {
                at += i % n * s;
                i /= n;
            }
            at
        };
        // SAFETY: an index within the sizes lies inside.
        (0..n).map(|i| with_element!(self.dtype, T => unsafe { *view.ptr::<T>().add(at(i)) }.to_f64())).collect()
    }
}

/// Reproducible numbers between -1 and 1.
pub(crate) fn noise(i: usize) -> f64 {
    let mut x = (i as u64).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Calls `f` for every instruction set the machine has, with one, two and three threads, and checks that the threads
/// change no bit.
pub(crate) fn everywhere(f: impl Fn() -> Vec<f64>) {
    let _guard = alone();
    let (best, before) = (isa(), parallel::num_threads());
    for isa in available() {
        set_isa(isa);
        parallel::set_num_threads(1);
        let alone = f();
        for threads in [2, 3] {
            parallel::set_num_threads(threads);
            let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&f()) == bits(&alone), "{threads} threads change the result on {isa:?}");
        }
    }
    set_isa(best);
    parallel::set_num_threads(before);
}

/// Largest error relative to `1 + |expected|`; equal infinities and NaN agree.
#[track_caller]
pub(crate) fn assert_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&g, &e)) in got.iter().zip(expected).enumerate() {
        let same = g == e || (g.is_nan() && e.is_nan()) || (g - e).abs() <= tolerance * (1.0 + e.abs());
        assert!(same, "{what}: element {i} is {g}, expected {e}");
    }
}

/// A relative error that results of this dtype may have.
pub(crate) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        DType::F32 => 1e-6,
        DType::F64 => 1e-13,
        _ => 0.0,
    }
}
