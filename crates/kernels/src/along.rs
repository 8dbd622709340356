//! Operands of kernels that work along one dimension: the dimension itself, and all others merged.
//!
//! Knows sizes and strides only. The others are sorted by the first operand's stride, so neighbors in memory are
//! neighbors in the walk.

use smallvec::SmallVec;

/// `N` operands of one shape, with one dimension singled out.
pub(crate) struct Along<const N: usize> {
    /// Size of the dimension.
    pub(crate) len: usize,
    /// Steps along it.
    pub(crate) step: [usize; N],
    /// How many lines there are.
    pub(crate) lines: usize,
    /// The innermost of the other dimensions.
    pub(crate) inner: Dim<N>,
    outer: SmallVec<[Dim<N>; 6]>,
}

/// One dimension: its size and the operands' steps.
#[derive(Clone, Copy)]
pub(crate) struct Dim<const N: usize> {
    pub(crate) size: usize,
    pub(crate) step: [usize; N],
}

impl<const N: usize> Along<N> {
    /// A tensor without dimensions is one line of one element.
    pub(crate) fn new(sizes: &[usize], strides: [&[usize]; N], dim: usize) -> Along<N> {
        let step_of = |d: usize| strides.map(|s| s[d]);
        let mut dims: SmallVec<[Dim<N>; 6]> = (0..sizes.len())
            .filter(|&d| d != dim && sizes[d] != 1)
            .map(|d| Dim { size: sizes[d], step: step_of(d) })
            .collect();
        dims.sort_by_key(|d| std::cmp::Reverse(d.step[0].wrapping_sub(1)));
        let mut kept = 0;
        for i in 1..dims.len() {
            let (a, b) = (dims[kept], dims[i]);
            if a.step == b.step.map(|s| s * b.size) {
                dims[kept] = Dim { size: a.size * b.size, ..b };
            } else {
                kept += 1;
                dims[kept] = b;
            }
        }
        dims.truncate(kept + 1);
        let lines = dims.iter().map(|d| d.size).product();
        let inner = dims.pop().unwrap_or(Dim { size: 1, step: [1; N] });
        let (len, step) = if sizes.is_empty() { (1, [1; N]) } else { (sizes[dim], step_of(dim)) };
        Along { len, step, lines, inner, outer: dims }
    }

    /// Where line `k` starts in each operand.
    #[inline]
    pub(crate) fn line(&self, k: usize) -> [usize; N] {
        let (o, i) = (k / self.inner.size, k % self.inner.size);
        let mut at = self.inner.step.map(|s| s * i);
        let mut rest = o;
        for d in self.outer.iter().rev() {
            let i = rest % d.size;
            rest /= d.size;
            at.iter_mut().zip(d.step).for_each(|(a, s)| *a += i * s);
        }
        at
    }

    /// Whether to work on neighboring lines together rather than along each.
    pub(crate) fn beside(&self) -> bool {
        self.inner.size >= 8 && self.inner.step[0] < self.step[0] && self.inner.step[0] != 0
    }

    /// Blocks of at most `width` neighboring lines: how many, and of block `b` the first line and their number.
    pub(crate) fn blocks(&self, width: usize) -> (usize, impl Fn(usize) -> (usize, usize) + Sync + use<N>) {
        let size = self.inner.size;
        let per = size.div_ceil(width);
        let place = move |b: usize| {
            let first = b % per * width;
            (b / per * size + first, width.min(size - first))
        };
        (self.lines / size.max(1) * per, place)
    }
}
