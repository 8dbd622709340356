//! Moving a two-dimensional piece of memory without looking at what it holds.
#![allow(unsafe_code)]

/// Copies `rows * cols` elements of `size` bytes between strided memory.
///
/// # Safety
/// Every element at the strides (in elements) is readable in `src` and writable in `dst`. If the two overlap, what is
/// written is unspecified.
pub(crate) unsafe fn move2d(
    size: usize,
    src: *const u8,
    from: [usize; 2],
    dst: *mut u8,
    to: [usize; 2],
    rows: usize,
    cols: usize,
) {
    // SAFETY: passed on; any alignment the dtype has is one of these.
    unsafe {
        match size {
            1 => typed::<u8>(src, from, dst, to, rows, cols),
            2 => typed::<u16>(src.cast(), from, dst.cast(), to, rows, cols),
            4 => typed::<u32>(src.cast(), from, dst.cast(), to, rows, cols),
            16 => typed::<[u64; 2]>(src.cast(), from, dst.cast(), to, rows, cols),
            _ => typed::<u64>(src.cast(), from, dst.cast(), to, rows, cols),
        }
    }
}

/// Elements of a square that is turned in registers or L1: one cache line of f32.
const SQUARE: usize = 16;
/// Of batches of small matrices.
const HALF: usize = 8;

/// Transposes a square.
///
/// # Safety
/// As for [`move2d`], for `N` rows and columns whose elements lie side by side.
#[inline(always)]
unsafe fn turn<T: Copy + Default, const N: usize>(src: *const T, from: usize, dst: *mut T, to: usize) {
    let mut square = [[T::default(); N]; N];
    for (j, line) in square.iter_mut().enumerate() {
        // SAFETY: line `j` of `N` elements.
        *line = unsafe { src.add(j * from).cast::<[T; N]>().read_unaligned() };
    }
    let mut row = [T::default(); N];
    for i in 0..N {
        row.iter_mut().zip(&square).for_each(|(d, line)| *d = line[i]);
        // SAFETY: row `i` of `N` elements.
        unsafe { dst.add(i * to).cast::<[T; N]>().write_unaligned(row) };
    }
}

/// # Safety
/// As for [`move2d`].
unsafe fn typed<T: Copy + Default>(
    src: *const T,
    [fr, fc]: [usize; 2],
    dst: *mut T,
    [tr, tc]: [usize; 2],
    rows: usize,
    cols: usize,
) {
    // SAFETY: every index is within rows and cols.
    unsafe {
        if tc == 1 && fr == 1 && fc > 1 && rows > 1 {
            // Transposed: read along the columns of the source, a line at a time.
            let mut r = 0;
            while r < rows {
                let h = SQUARE.min(rows - r);
                let mut c = 0;
                while c < cols {
                    let w = SQUARE.min(cols - c);
                    let (from, to) = (src.add(r + c * fc), dst.add(r * tr + c));
                    if h == SQUARE && w == SQUARE {
                        turn::<T, SQUARE>(from, fc, to, tr)
                    } else if h == HALF && w == HALF {
                        turn::<T, HALF>(from, fc, to, tr)
                    } else {
                        for i in 0..h {
                            for j in 0..w {
                                *dst.add((r + i) * tr + c + j) = *src.add(r + i + (c + j) * fc)
                            }
                        }
                    }
                    c += w;
                }
                r += h;
            }
            return;
        }
        for r in 0..rows {
            let (src, dst) = (src.add(r * fr), dst.add(r * tr));
            match (fc, tc) {
                (1, 1) => std::ptr::copy(src, dst, cols),
                (0, 1) => {
                    let v = *src;
                    std::slice::from_raw_parts_mut(dst, cols).fill(v)
                }
                (_, 1) => (0..cols).for_each(|c| *dst.add(c) = *src.add(c * fc)),
                _ => (0..cols).for_each(|c| *dst.add(c * tc) = *src.add(c * fc)),
            }
        }
    }
}

/// Copies bytes past the cache where the target is aligned; for results larger than the cache. Call [`settle`] before
/// another thread may read them.
///
/// # Safety
/// `n` bytes readable in `src`, writable in `dst`, not overlapping.
pub(crate) unsafe fn stream(src: *const u8, dst: *mut u8, n: usize) {
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if (dst as usize).is_multiple_of(16) {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
            let lines = n / 64;
            for i in 0..lines {
                let (from, to) = (src.add(i * 64).cast::<__m128i>(), dst.add(i * 64).cast::<__m128i>());
                for k in 0..4 {
                    _mm_stream_si128(to.add(k), _mm_loadu_si128(from.add(k)))
                }
            }
            return std::ptr::copy_nonoverlapping(src.add(lines * 64), dst.add(lines * 64), n - lines * 64);
        }
        std::ptr::copy_nonoverlapping(src, dst, n);
    }
}

/// Orders what was streamed before everything that follows.
#[inline]
pub(crate) fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}
