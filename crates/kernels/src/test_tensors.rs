//! Helpers of the kernel tests: small tensors of any dtype and layout, and walks over coordinates.

use crate::random::Generator;
use crate::walk::for_runs;
use crate::{DType, Element, Storage, View, ViewMut, with_element};

/// The memory layout of a test tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lie {
    /// Row-major without gaps.
    Contiguous,
    /// The first dimension fastest, with a gap between neighbors.
    Reversed,
}

pub(crate) const LIES: [Lie; 2] = [Lie::Contiguous, Lie::Reversed];

#[derive(Clone)]
pub(crate) struct Tensor {
    storage: Storage,
    dtype: DType,
    pub(crate) sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl Tensor {
    pub(crate) fn new(dtype: DType, sizes: &[usize], lie: Lie, values: &[f64]) -> Tensor {
        let mut strides = vec![0; sizes.len()];
        let mut step = if lie == Lie::Reversed { 2 } else { 1 };
        let mut place = |k: usize| {
            strides[k] = step;
            step *= sizes[k].max(1);
        };
        match lie {
            Lie::Contiguous => (0..sizes.len()).rev().for_each(&mut place),
            Lie::Reversed => (0..sizes.len()).for_each(&mut place),
        }
        let t = Tensor {
            storage: Storage::zeroed(step * dtype.size()).expect("small"),
            dtype,
            sizes: sizes.to_vec(),
            strides,
        };
        let mut values = values.iter().copied();
        with_element!(dtype, T => crate::random::fill::<T>(&t.view_mut(), || T::from_f64(values.next().unwrap_or(0.0))));
        t
    }

    pub(crate) fn zeros(dtype: DType, sizes: &[usize], lie: Lie) -> Tensor {
        Tensor::new(dtype, sizes, lie, &[])
    }

    /// Small integers from `low` up to `high`, which every dtype that can hold them holds exactly.
    pub(crate) fn random(seed: u64, dtype: DType, sizes: &[usize], lie: Lie, low: i64, high: i64) -> Tensor {
        let t = Tensor::zeros(dtype, sizes, lie);
        Generator::new(seed).random_from_to(&t.view_mut(), low, high);
        t
    }

    pub(crate) fn view(&self) -> View<'_> {
        self.storage.view(self.dtype, 0, &self.sizes, &self.strides)
    }

    pub(crate) fn view_mut(&self) -> ViewMut<'_> {
        self.storage.view_mut(self.dtype, 0, &self.sizes, &self.strides)
    }

    /// The elements in logical order.
    pub(crate) fn values(&self) -> Vec<f64> {
        let count = [self.storage.nbytes() / self.dtype.size()];
        let all = self.storage.view(self.dtype, 0, &count, &[1]);
        let mut values = Vec::new();
        with_element!(self.dtype, T => {
            let all = all.as_slice::<T>().expect("contiguous");
            let step = crate::walk::last(&self.strides);
            for_runs(&self.sizes, [&self.strides], 0..self.sizes.iter().product(), |[at], len| {
                values.extend((0..len).map(|i| all[at + i * step].to_f64()))
            })
        });
        values
    }
}

/// The position of coordinates in logical order.
pub(crate) fn linear(sizes: &[usize], coordinates: &[usize]) -> usize {
    sizes.iter().zip(coordinates).fold(0, |at, (&n, &c)| at * n + c)
}

/// All coordinates of these sizes, in logical order.
pub(crate) fn coordinates(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let sizes = sizes.to_vec();
    (0..sizes.iter().product::<usize>()).map(move |mut at| {
        let mut c: Vec<usize> = sizes.iter().rev().map(|&n| (at % n, at /= n).0).collect();
        c.reverse();
        c
    })
}

/// `sizes` or coordinates with entry `dim` replaced.
pub(crate) fn with(values: &[usize], dim: usize, value: usize) -> Vec<usize> {
    let mut v = values.to_vec();
    v[dim] = value;
    v
}

/// Runs `f` with one and with two threads and checks that the results agree.
pub(crate) fn any_threads<R: PartialEq + std::fmt::Debug>(f: impl Fn() -> R) -> R {
    let _guard = crate::real::alone();
    let before = crate::parallel::num_threads();
    crate::parallel::set_num_threads(1);
    let one = f();
    crate::parallel::set_num_threads(2);
    assert_eq!(one, f());
    crate::parallel::set_num_threads(before);
    one
}
