//! Which bytes of a storage a layout shows, and whether two layouts show a common one. Exact for every layout whose
//! dimensions nest, as all slices and transposes of dense memory do; others count with the gaps between their elements.

use crate::layout::Layout;
use smallvec::SmallVec;

/// A dimension: how many, and how many bytes apart.
type Dim = (usize, usize);

/// Elements in the memory of one storage.
pub(super) struct Region {
    storage: usize,
    /// The first byte.
    start: usize,
    /// Bytes from the first to behind the last.
    extent: usize,
    size: usize,
    layout: Layout,
}

impl Region {
    /// What `layout` shows of a storage, `offset` elements of `size` bytes further on.
    pub(super) fn new(storage: usize, layout: &Layout, offset: usize, size: usize) -> Region {
        let (start, end) = ((offset + layout.offset()) * size, (offset + layout.end()) * size);
        Region { storage, start, extent: end - start, size, layout: layout.clone() }
    }

    pub(super) fn overlaps(&self, other: &Region) -> bool {
        if self.storage != other.storage
            || self.start >= other.start + other.extent
            || other.start >= self.start + self.extent
        {
            return false;
        }
        let (a, b) = (Runs::of(self), Runs::of(other));
        let (few, many) = if a.count() <= b.count() { (a, b) } else { (b, a) };
        few.any(|start, end| many.meets(start, end))
    }
}

/// Runs of bytes without a gap, along dimensions that nest: each steps over all of those after it.
struct Runs {
    start: usize,
    /// Bytes of one run.
    length: usize,
    dims: SmallVec<[Dim; 8]>,
}

/// Bytes from the first to behind the last of runs along `dims`.
fn extent(dims: &[Dim], length: usize) -> usize {
    dims.iter().map(|(n, step)| (n - 1) * step).sum::<usize>() + length
}

impl Runs {
    fn of(r: &Region) -> Runs {
        let dims = r.layout.sizes().iter().zip(r.layout.strides());
        let mut dims: SmallVec<[Dim; 8]> =
            dims.filter(|&(&n, &s)| n > 1 && s > 0).map(|(&n, &s)| (n, s * r.size)).collect();
        dims.sort_unstable_by_key(|&(_, step)| std::cmp::Reverse(step));
        if (0..dims.len()).any(|k| dims[k].1 < extent(&dims[k + 1..], r.size)) {
            return Runs { start: r.start, length: r.extent, dims: SmallVec::new() };
        }
        let mut length = r.size;
        while let Some(&(n, step)) = dims.last()
            && step == length
        {
            length *= n;
            dims.pop();
        }
        Runs { start: r.start, length, dims }
    }

    fn count(&self) -> usize {
        self.dims.iter().map(|(n, _)| n).product()
    }

    /// Whether `f` holds for the first and last byte (behind it) of some run.
    fn any(&self, f: impl Fn(usize, usize) -> bool) -> bool {
        (0..self.count()).any(|k| {
            let (mut rest, mut at) = (k, self.start);
            for &(n, step) in self.dims.iter().rev() {
                at += rest % n * step;
                rest /= n;
            }
            f(at, at + self.length)
        })
    }

    /// Whether a byte from `low` to before `high` is in some run.
    fn meets(&self, low: usize, high: usize) -> bool {
        fn meets(start: usize, dims: &[Dim], length: usize, low: usize, high: usize) -> bool {
            let inner = extent(dims.get(1..).unwrap_or(&[]), length);
            let Some(&(n, step)) = dims.first() else { return start < high && low < start + length };
            if high <= start {
                return false;
            }
            // The steps whose bytes, gaps included, meet the range. All between the first and last lie inside it.
            let first = (low + 1).saturating_sub(start + inner).div_ceil(step);
            let last = ((high - 1 - start) / step).min(n - 1);
            let at = |k: usize| meets(start + k * step, &dims[1..], length, low, high);
            first <= last && (last - first >= 2 || at(first) || at(last))
        }
        meets(self.start, &self.dims, self.length, low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn bytes(l: &Layout, size: usize) -> BTreeSet<usize> {
        let mut at = vec![l.offset()];
        for (&n, &s) in l.sizes().iter().zip(l.strides()) {
            at = at.iter().flat_map(|a| (0..n).map(move |k| a + k * s)).collect();
        }
        at.into_iter().flat_map(|e| e * size..(e + 1) * size).collect()
    }

    /// Against the sets of bytes, for slices with steps, transposes, repeated and single elements in every pairing.
    #[test]
    fn overlap_is_that_of_the_bytes() {
        let shapes: &[(&[usize], &[usize])] = &[
            (&[24], &[1]),
            (&[], &[]),
            (&[4, 3], &[6, 1]),
            (&[3, 4], &[1, 6]),
            (&[4, 2], &[6, 3]),
            (&[2, 2, 2], &[12, 6, 2]),
            (&[2, 3, 2], &[12, 2, 1]),
            (&[6], &[4]),
            (&[5, 2], &[0, 7]),
            (&[8], &[3]),
            (&[1, 1], &[100, 100]),
        ];
        let mut counts = [0, 0];
        for (sizes_a, strides_a) in shapes {
            for (sizes_b, strides_b) in shapes {
                for (offset, size_a, size_b) in (0..26).flat_map(|o| [(o, 4, 4), (o, 8, 4), (o, 1, 2)]) {
                    let a = Layout::strided(sizes_a, strides_a, 3).expect("a small layout");
                    let b = Layout::strided(sizes_b, strides_b, offset).expect("a small layout");
                    let expected = !bytes(&a, size_a).is_disjoint(&bytes(&b, size_b));
                    let (ra, rb) = (Region::new(1, &a, 0, size_a), Region::new(1, &b, 0, size_b));
                    assert_eq!(ra.overlaps(&rb), expected, "{a:?} of {size_a} bytes, {b:?} of {size_b}");
                    assert_eq!(rb.overlaps(&ra), expected, "the other way round");
                    counts[usize::from(expected)] += 1;
                }
            }
        }
        assert!(counts[0] > 1000 && counts[1] > 1000, "both answers occur: {counts:?}");
    }

    /// Windows overlap themselves: their gaps count.
    #[test]
    fn dimensions_that_do_not_nest_count_as_a_whole() {
        let windows = Layout::strided(&[3, 4], &[2, 1], 0).expect("a small layout");
        let behind = Layout::strided(&[2], &[1], 7).expect("a small layout");
        let further = Layout::strided(&[2], &[1], 8).expect("a small layout");
        let region = |l| Region::new(1, l, 0, 4);
        assert!(region(&windows).overlaps(&region(&behind)) && !region(&windows).overlaps(&region(&further)));
        assert!(!region(&windows).overlaps(&Region::new(2, &behind, 0, 4)), "another storage");
        assert!(!region(&windows).overlaps(&Region::new(1, &behind, 1, 4)), "one further on");
    }
}
