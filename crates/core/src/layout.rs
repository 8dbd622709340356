//! Layout: sizes, strides and offset of a tensor, and queries on them.
//!
//! Every layout is valid: as many strides as sizes, at most [`MAX_DIMS`] of them, and neither the number of
//! elements nor the position of the last one exceeds [`MAX_ELEMENTS`], so that no later arithmetic on them overflows, in bytes
//! of the largest element type either. The constructors check this and nothing after them has to.
//! Up to five dimensions are stored inline. It is independent of storage and dtype.

use crate::{Error, ErrorKind, Result};
use smallvec::SmallVec;

pub use crate::limits::{MAX_DIMS, MAX_ELEMENTS};

/// Dimensions stored without allocation.
const INLINE: usize = 5;

/// A list of sizes, dims or strides; inline up to five.
pub type Dims = SmallVec<[usize; INLINE]>;

#[derive(Clone, Debug)]
enum Repr {
    Inline {
        sizes: [usize; INLINE],
        strides: [usize; INLINE],
    },
    /// Sizes, then strides.
    Heap(Box<[usize]>),
}

/// Sizes, strides (in elements, never negative) and the offset of the first element.
#[derive(Clone, Debug)]
pub struct Layout {
    rank: u8,
    contiguous: bool,
    /// Contiguous with exactly the strides of a new tensor: those of dimensions of size 1 fit too.
    canonical: bool,
    offset: usize,
    numel: usize,
    repr: Repr,
}

impl Layout {
    /// Row-major without gaps; an error for more dimensions or elements than a tensor can have.
    #[inline]
    pub fn contiguous(sizes: &[usize]) -> Result<Layout> {
        if sizes.len() <= INLINE {
            let (mut s, mut t) = ([1; INLINE], [0; INLINE]);
            let (mut step, mut numel) = (1usize, 1usize);
            for k in (0..sizes.len()).rev() {
                s[k] = sizes[k];
                t[k] = step;
                numel = numel.saturating_mul(sizes[k]);
                step = step.saturating_mul(sizes[k].max(1));
            }
            if step > MAX_ELEMENTS {
                return Err(too_large(sizes));
            }
            return Ok(Layout {
                rank: sizes.len() as u8,
                contiguous: true,
                canonical: true,
                offset: 0,
                numel,
                repr: Repr::Inline { sizes: s, strides: t },
            });
        }
        Layout::strided(sizes, &contiguous_strides(sizes), 0)
    }

    /// Any sizes, strides and offset; an error if an element would lie outside addressable memory.
    ///
    /// The stride of a dimension of size 1 or 0 is irrelevant; an absurd one is clamped to [`MAX_ELEMENTS`].
    pub fn strided(sizes: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
        if sizes.len() != strides.len() {
            return Err(ErrorKind::LayoutRank { sizes: sizes.len(), strides: strides.len() }.into());
        }
        if sizes.len() > MAX_DIMS {
            return Err(ErrorKind::TooManyDims { ndim: sizes.len() }.into());
        }
        let numel = checked_numel(sizes).ok_or_else(|| too_large(sizes))?;
        let step = |(&n, &s): (&usize, &usize)| n.saturating_sub(1).saturating_mul(s);
        let last = sizes.iter().zip(strides).map(step).fold(offset, usize::saturating_add);
        if last >= MAX_ELEMENTS {
            let (sizes, strides) = (sizes.to_vec(), strides.to_vec());
            return Err(ErrorKind::LayoutOverflow { sizes, strides, offset }.into());
        }
        let contiguous = firebrand_kernels::is_contiguous(sizes, strides);
        let canonical = contiguous && strides == &contiguous_strides(sizes)[..];
        let cut = |s: &usize| (*s).min(MAX_ELEMENTS);
        let repr = if sizes.len() <= INLINE {
            let (mut s, mut t) = ([1; INLINE], [0; INLINE]);
            s[..sizes.len()].copy_from_slice(sizes);
            t.iter_mut().zip(strides).for_each(|(t, s)| *t = cut(s));
            Repr::Inline { sizes: s, strides: t }
        } else {
            Repr::Heap(sizes.iter().copied().chain(strides.iter().map(cut)).collect())
        };
        Ok(Layout { rank: sizes.len() as u8, contiguous, canonical, offset, numel, repr })
    }

    /// Some of the elements of a layout that exists, whose place needs no second check.
    ///
    /// # Panics
    /// If they are not: the caller's claim was wrong.
    pub(crate) fn derived(sizes: &[usize], strides: &[usize], offset: usize) -> Layout {
        Layout::strided(sizes, strides, offset).expect("elements of a layout lie where memory can be")
    }

    /// One element at the start of its memory.
    pub fn scalar() -> Layout {
        let repr = Repr::Inline { sizes: [1; INLINE], strides: [0; INLINE] };
        Layout { rank: 0, contiguous: true, canonical: true, offset: 0, numel: 1, repr }
    }

    /// As many elements in one dimension, row-major from the start of their memory.
    pub fn flattened(&self) -> Layout {
        Layout::derived(&[self.numel], &[1], 0)
    }

    /// A new row-major layout of the same sizes.
    pub fn to_contiguous(&self) -> Layout {
        Layout::contiguous(self.sizes()).expect("sizes of a layout fit memory in row-major order")
    }

    /// Number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.rank as usize
    }

    /// Sizes of the dimensions.
    #[inline]
    pub fn sizes(&self) -> &[usize] {
        match &self.repr {
            Repr::Inline { sizes, .. } => &sizes[..self.rank as usize],
            Repr::Heap(b) => &b[..self.rank as usize],
        }
    }

    /// Strides in elements.
    #[inline]
    pub fn strides(&self) -> &[usize] {
        match &self.repr {
            Repr::Inline { strides, .. } => &strides[..self.rank as usize],
            Repr::Heap(b) => &b[self.rank as usize..],
        }
    }

    /// Position of the first element in the storage, in elements.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The same sizes and strides elsewhere in the storage; an error if no memory reaches that far.
    pub fn with_offset(&self, offset: usize) -> Result<Layout> {
        if offset.saturating_add(self.reach()) >= MAX_ELEMENTS {
            let (sizes, strides) = (self.sizes().to_vec(), self.strides().to_vec());
            return Err(ErrorKind::LayoutOverflow { sizes, strides, offset }.into());
        }
        Ok(Layout { offset, ..self.clone() })
    }

    /// The same sizes and strides from the start of a storage.
    #[inline]
    pub fn from_start(&self) -> Layout {
        Layout { offset: 0, ..self.clone() }
    }

    /// Steps from the first element to the last.
    fn reach(&self) -> usize {
        self.sizes().iter().zip(self.strides()).map(|(n, s)| n.saturating_sub(1) * s).sum()
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Row-major without gaps (the offset does not matter).
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Whether a new row-major tensor of these sizes has these strides.
    #[inline]
    pub(crate) fn is_canonical(&self) -> bool {
        self.canonical
    }

    /// Whether sizes and strides are equal (the offset does not matter).
    #[inline]
    pub fn same_geometry(&self, other: &Layout) -> bool {
        self.rank == other.rank
            && same_sizes(self.sizes(), other.sizes())
            && (self.contiguous && other.contiguous || self.strides() == other.strides())
    }

    /// Elements from the start of the storage to just past the last element; 0 if empty.
    pub fn end(&self) -> usize {
        if self.sizes().contains(&0) {
            return 0;
        }
        self.offset + 1 + self.reach()
    }

    /// Some permutation of it is contiguous: every element of its memory range is used exactly once.
    pub fn is_non_overlapping_and_dense(&self) -> bool {
        if self.contiguous {
            return true;
        }
        let mut dims: SmallVec<[(usize, usize); 8]> =
            self.strides().iter().zip(self.sizes()).filter(|(_, n)| **n != 1).map(|(s, n)| (*s, *n)).collect();
        if self.sizes().contains(&0) {
            return true;
        }
        dims.sort_unstable();
        let mut step = 1;
        for (s, n) in dims {
            if s != step {
                return false;
            }
            step *= n;
        }
        true
    }

    /// Two indices may reach one element. Exact for zero strides and for layouts made by slicing dense memory;
    /// if in doubt it answers no, as PyTorch does.
    pub fn has_internal_overlap(&self) -> bool {
        if self.is_non_overlapping_and_dense() {
            return false;
        }
        if self.sizes().iter().zip(self.strides()).any(|(&n, &s)| n > 1 && s == 0) {
            return true;
        }
        let mut dims: SmallVec<[(usize, usize); 8]> =
            self.strides().iter().zip(self.sizes()).filter(|(_, n)| **n > 1).map(|(s, n)| (*s, *n)).collect();
        dims.sort_unstable();
        // Sorted by stride, each dimension must step over everything below it; if not, it may overlap (unfold does).
        let mut reach = 0;
        for (s, n) in dims {
            if s <= reach {
                return true;
            }
            reach += s * (n - 1);
        }
        false
    }

    /// The strides a new dense tensor of these sizes gets to keep this memory order (as `preserve_format`).
    pub fn dense_like(&self) -> Layout {
        if self.contiguous {
            return self.to_contiguous();
        }
        if self.is_non_overlapping_and_dense() {
            return self.from_start();
        }
        let n = self.ndim();
        // Dims in memory order, outermost first: larger strides first, ties in the given order.
        let mut order: Dims = (0..n).collect();
        order.sort_by(|&a, &b| self.strides()[b].cmp(&self.strides()[a]));
        if self.sizes().iter().zip(self.strides()).any(|(&n, &s)| n > 1 && s == 0) {
            order = (0..n).collect();
        }
        let mut strides: Dims = smallvec::smallvec![0; n];
        let mut step = 1;
        for &d in order.iter().rev() {
            strides[d] = step;
            step *= self.sizes()[d].max(1);
        }
        Layout::strided(self.sizes(), &strides, 0).expect("sizes of a layout fit memory in any dense order")
    }

    /// Strides that view the same elements as `sizes`; `None` if that needs a copy.
    pub fn view_strides(&self, sizes: &[usize]) -> Option<Dims> {
        if self.contiguous {
            return Some(contiguous_strides(sizes));
        }
        if self.numel() == 0 {
            return (sizes.iter().product::<usize>() == 0).then(|| contiguous_strides(sizes));
        }
        // Walk both shapes from the right; a run of old dims that is contiguous within itself may be cut freely.
        let mut out: Dims = smallvec::smallvec![0; sizes.len()];
        let (mut new, old) = (sizes.len(), self.sizes());
        let mut base = *self.strides().last()?;
        let (mut old_count, mut new_count) = (1, 1);
        for d in (0..old.len()).rev() {
            old_count *= old[d];
            let run_ends = d == 0 || (old[d - 1] != 1 && self.strides()[d - 1] != old_count * base);
            if run_ends {
                while new > 0 && (new_count < old_count || sizes[new - 1] == 1) {
                    new -= 1;
                    out[new] = new_count * base;
                    new_count *= sizes[new];
                }
                if new_count != old_count {
                    return None;
                }
                if d > 0 {
                    base = self.strides()[d - 1];
                    (old_count, new_count) = (1, 1);
                }
            }
        }
        (new == 0).then_some(out)
    }
}

/// Row-major strides.
pub fn contiguous_strides(sizes: &[usize]) -> Dims {
    let mut out: Dims = smallvec::smallvec![0; sizes.len()];
    let mut step = 1;
    for k in (0..sizes.len()).rev() {
        out[k] = step;
        step = step.saturating_mul(sizes[k].max(1));
    }
    out
}

#[cold]
fn too_large(sizes: &[usize]) -> Error {
    ErrorKind::SizeOverflow { shape: sizes.to_vec() }.into()
}

/// Whether two shapes are equal. Shapes are short: a loop beats a call of `memcmp`.
#[inline]
pub fn same_sizes(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x == y)
}

/// A dimension counted from the start. A 0-dim tensor accepts 0 and -1.
#[inline]
pub(crate) fn wrap_dim(op: &'static str, dim: i64, ndim: usize) -> Result<usize> {
    let n = ndim.max(1) as i64;
    if dim < -n || dim >= n {
        return Err(ErrorKind::DimOutOfRange { op, dim, ndim }.into());
    }
    Ok(if dim < 0 { dim + n } else { dim } as usize)
}

/// The number of elements, unless it exceeds [`MAX_ELEMENTS`].
pub fn checked_numel(sizes: &[usize]) -> Option<usize> {
    // A zero anywhere makes the tensor empty, but the strides of the others must still be representable.
    let total = sizes.iter().filter(|n| **n != 0).try_fold(1usize, |a, &n| a.checked_mul(n))?;
    (total <= MAX_ELEMENTS).then(|| if sizes.contains(&0) { 0 } else { total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguity_density_and_overlap() {
        let t = Layout::strided(&[3, 2], &[1, 3], 0).unwrap();
        assert!(!t.is_contiguous() && t.is_non_overlapping_and_dense() && !t.has_internal_overlap());
        let e = Layout::strided(&[2, 3], &[0, 1], 0).unwrap();
        assert!(e.has_internal_overlap() && !e.is_non_overlapping_and_dense());
        let unfolded = Layout::strided(&[3, 2], &[1, 1], 0).unwrap();
        assert!(unfolded.has_internal_overlap());
        let sliced = Layout::strided(&[2, 2], &[4, 1], 1).unwrap();
        assert!(!sliced.has_internal_overlap() && sliced.end() == 7);
    }

    #[test]
    fn views_without_copies() {
        let sliced = Layout::strided(&[2, 4], &[8, 1], 0).unwrap();
        assert_eq!(sliced.view_strides(&[2, 2, 2]).as_deref(), Some(&[8, 2, 1][..]));
        assert_eq!(sliced.view_strides(&[8]), None);
        assert_eq!(sliced.view_strides(&[2, 1, 4]).as_deref(), Some(&[8, 4, 1][..]));
        let t = Layout::strided(&[3, 2], &[1, 3], 0).unwrap();
        assert_eq!(t.view_strides(&[6]), None);
        assert_eq!(Layout::contiguous(&[2, 3]).unwrap().view_strides(&[6, 1]).as_deref(), Some(&[1, 1][..]));
    }

    #[test]
    fn dense_like_keeps_memory_order() {
        let l = Layout::strided(&[2, 3], &[1, 4], 0).unwrap(); // a column-major slice
        assert_eq!(l.dense_like().strides(), &[1, 2]);
    }

    #[test]
    fn more_than_five_dimensions() {
        let l = Layout::contiguous(&[1, 2, 1, 3, 1, 2, 2]).unwrap();
        assert_eq!(l.numel(), 24);
        assert_eq!(l.strides(), &[24, 12, 12, 4, 4, 2, 1]);
        assert!(l.is_contiguous());
    }

    #[test]
    fn overflow_is_seen() {
        const LARGE: usize = 1 << (usize::BITS / 2 + 8);
        assert_eq!(checked_numel(&[LARGE, LARGE]), None);
        assert_eq!(checked_numel(&[LARGE, 0, 4]), Some(0));
    }

    /// Any request gives a layout whose arithmetic does not overflow, or an error.
    #[test]
    fn layouts_beyond_memory_are_refused() {
        const HUGE: usize = usize::MAX;
        let far = 1usize << (usize::BITS - 3);
        let refused: &[(&[usize], &[usize], usize)] = &[
            (&[2], &[0usize.wrapping_sub(1000)], 1000), // the end wraps to 1
            (&[2, 2], &[HUGE / 2 + 1; 2], 0),           // both wrap to 0
            (&[3], &[HUGE / 2 + 1], 0),
            (&[2], &[far], 0), // fits in elements, not in bytes of complex numbers
            (&[1], &[1], HUGE),
            (&[], &[], far),
            (&[0], &[1], HUGE),
            (&[1 << (usize::BITS / 2); 2], &[0, 0], 0), // an expanded tensor with one element more than there are addresses
            (&[HUGE], &[0], 0),
            (&[0, HUGE, HUGE], &[0, 0, 0], 0),
            (&[1, 1], &[1], 0),
            (&[1; 65], &[1; 65], 0),
        ];
        for &(sizes, strides, offset) in refused {
            assert!(Layout::strided(sizes, strides, offset).is_err(), "{sizes:?} {strides:?} {offset}");
        }
        for sizes in [&[HUGE][..], &[1 << 30, 1 << 30], &[0, HUGE, 2], &[2; 64], &[1; 65], &[1; 300]] {
            assert!(Layout::contiguous(sizes).is_err(), "{sizes:?}");
        }
        assert_eq!(Layout::contiguous(&[1; 64]).unwrap().numel(), 1);
        let edge = Layout::contiguous(&[MAX_ELEMENTS]).unwrap();
        assert!(edge.end().checked_mul(16).is_some() && edge.with_offset(1).is_err());
        assert!(Layout::scalar().with_offset(HUGE).is_err());
        let one = Layout::strided(&[1, 0], &[HUGE, HUGE], 3).unwrap();
        assert_eq!((one.strides(), one.end()), (&[MAX_ELEMENTS, MAX_ELEMENTS][..], 0));
    }
}
