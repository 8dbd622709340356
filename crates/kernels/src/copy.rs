//! Copying between strided memory, with a cast if the dtypes differ, and filling.
//!
//! Same-dtype copies move bytes and never look at them; transposed ones go block by block, so that each cache line is
//! read once. Casts are PyTorch's: floats truncate to integers, integers wrap, bool is `!= 0`, complex
//! numbers lose their imaginary part.
#![allow(unsafe_code)]

use crate::geometry::Geometry;
use crate::moves::move2d;
use crate::pointwise::{Op, Value, record, unary};
use crate::{Complex, DType, Element, View, ViewMut, parallel, with_element};

/// Elements of a tile of rows: about what a thread should take at once.
const TILE: usize = 16 * 1024;
/// Side of a block when the source is transposed.
const SIDE: usize = 64;

/// Copies `src` to `dst`, which has the same sizes; a stride of 0 in `src` repeats.
///
/// The two do not overlap, unless they are the same memory with the same strides and dtype.
pub fn copy(src: View, dst: ViewMut) {
    assert_eq!(src.sizes(), dst.sizes(), "copy between different sizes");
    if record::active() {
        return record::note_copy(src, &dst);
    }
    if src.dtype() != dst.dtype() {
        return unary(Op::Copy, src.dtype().compute(), src, dst);
    }
    if std::ptr::eq(src.as_ptr(), dst.as_ptr()) && src.strides() == dst.strides() {
        return;
    }
    let (n, size) = (dst.numel(), dst.dtype().size());
    if n == 0 {
        return;
    }
    let geometry = Geometry::new(dst.sizes(), &[dst.strides(), src.strides()], 0);
    if geometry.is_flat() {
        return parallel::split(n * size, 128 << 10, |r| {
            // SAFETY: `r` lies inside both.
            unsafe { std::ptr::copy(src.as_ptr().add(r.start), dst.as_ptr().add(r.start), r.len()) }
        });
    }
    let tiles = geometry.tiles(TILE, SIDE);
    let grain = (2 * TILE / tiles.capacity()).max(1);
    parallel::split(tiles.count, grain, |range| {
        for t in range {
            let tile = tiles.tile(t);
            // SAFETY: the tile lies inside both views.
            unsafe {
                let from = src.as_ptr().add(tiles.offset(&tile, 1) * size);
                let to = dst.as_ptr().add(tiles.offset(&tile, 0) * size);
                move2d(size, from, tiles.strides(1), to, tiles.strides(0), tile.rows, tile.cols)
            }
        }
    })
}

/// Sets every element of `dst` to `value`, converted to its dtype.
pub fn fill(dst: ViewMut, value: Value) {
    if record::active() {
        return record::note_fill(&dst, value);
    }
    let mut word = [0u64; 2];
    with_element!(dst.dtype(), T => {
        let v = match value {
            Value::Float(_) | Value::Complex(_) => T::from_f64(value.to_f64()),
            other => T::from_i64(other.to_i64()),
        };
        // SAFETY: two words hold any element and are aligned for it.
        unsafe { *word.as_mut_ptr().cast::<T>() = v }
    });
    let Complex { re, im } = value.to_complex();
    match dst.dtype() {
        DType::C64 => word[0] = u64::from((re as f32).to_bits()) | u64::from((im as f32).to_bits()) << 32,
        DType::C128 => word = [re.to_bits(), im.to_bits()],
        _ => {}
    }
    let strides = [0; 8];
    let zeros: smallvec::SmallVec<[usize; 8]>;
    let strides = if dst.ndim() <= 8 {
        &strides[..dst.ndim()]
    } else {
        zeros = smallvec::SmallVec::from_elem(0, dst.ndim());
        &zeros
    };
    // SAFETY: all strides are 0, so only the word is read.
    copy(unsafe { View::new(word.as_ptr().cast(), dst.dtype(), dst.sizes(), strides) }, dst)
}
