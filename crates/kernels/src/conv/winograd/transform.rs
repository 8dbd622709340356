//! The transforms of F(2 x 2, 3 x 3): patches, weights, and sums back to outputs, sixteen at a time.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::tiles::Rows;
use crate::sets::Vector;

/// Positions in the transformed domain.
pub(super) const POSITIONS: usize = 16;

/// `Bt d B` of sixteen patches of a channel, its sixteen positions `step` apart.
///
/// # Safety
/// `plane` is the channel's plane in the first image; `to` holds the positions.
#[inline(always)]
pub(super) unsafe fn patches<V: Vector>(rows: &Rows<4>, plane: *const f32, to: *mut f32, step: usize) {
    let mut t = [[V::zero(); 4]; 4];
    for r in 0..4 {
        // SAFETY: by contract.
        let [a, b, c, d] = unsafe { rows.patch_row::<V>(r, plane) };
        t[r] = [a.sub(c), b.add(c), c.sub(b), b.sub(d)];
    }
    for j in 0..4 {
        let [a, b, c, d] = [t[0][j], t[1][j], t[2][j], t[3][j]];
        let v = [a.sub(c), b.add(c), c.sub(b), b.sub(d)];
        for i in 0..4 {
            // SAFETY: by contract.
            unsafe { v[i].store(to.add((4 * i + j) * step)) };
        }
    }
}

/// `At m A + bias` of sixteen tiles of a channel, whose positions lie `step` apart, written to its plane.
///
/// # Safety
/// Like [`patches`]; nothing else uses these tiles of the plane.
#[inline(always)]
pub(super) unsafe fn outputs<V: Vector>(m: *const f32, step: usize, bias: f32, rows: &Rows<2>, plane: *mut f32) {
    let mut t = [[V::zero(); 2]; 4];
    for i in 0..4 {
        // SAFETY: by contract.
        let [a, b, c, d] = [0, 1, 2, 3].map(|j| unsafe { V::load(m.add((4 * i + j) * step)) });
        t[i] = [a.add(b).add(c), b.sub(c).sub(d)];
    }
    let bias = V::splat(bias);
    let mut y = [[bias; 2]; 2];
    for j in 0..2 {
        let [a, b, c, d] = [t[0][j], t[1][j], t[2][j], t[3][j]];
        y[0][j] = y[0][j].add(a.add(b).add(c));
        y[1][j] = y[1][j].add(b.sub(c).sub(d));
    }
    for r in 0..2 {
        // SAFETY: by contract.
        unsafe { rows.write(r, y[r], plane) };
    }
}

/// `G g Gt` of sixteen kernels whose nine taps are `g`.
#[inline(always)]
pub(super) fn kernels<V: Vector>(g: [[V; 3]; 3]) -> [V; POSITIONS] {
    let half = V::splat(0.5);
    let three = |a: V, b: V, c: V| {
        let (s, b) = (a.add(c).mul(half), b.mul(half));
        [a, s.add(b), s.sub(b), c]
    };
    let mut u = [V::zero(); POSITIONS];
    let down = [0, 1, 2].map(|j| three(g[0][j], g[1][j], g[2][j]));
    for i in 0..4 {
        let row = three(down[0][i], down[1][i], down[2][i]);
        u[4 * i..4 * i + 4].copy_from_slice(&row);
    }
    u
}

/// `A y At` of sixteen tiles whose four outputs are `y`, its positions `step` apart.
///
/// # Safety
/// `to` holds the positions.
#[inline(always)]
pub(super) unsafe fn gradients<V: Vector>(y: [V; 4], to: *mut f32, step: usize) {
    let four = |a: V, b: V| [a, a.add(b), a.sub(b), V::zero().sub(b)];
    let (left, right) = (four(y[0], y[2]), four(y[1], y[3]));
    for i in 0..4 {
        for (j, v) in four(left[i], right[i]).into_iter().enumerate() {
            // SAFETY: by contract.
            unsafe { v.store(to.add((4 * i + j) * step)) };
        }
    }
}

/// `Gt u G` of sixteen kernels whose positions lie `step` apart: nine taps, `row` apart.
///
/// # Safety
/// `u` and `to` hold them.
#[inline(always)]
pub(super) unsafe fn taps<V: Vector>(u: *const f32, step: usize, to: *mut f32, row: usize) {
    let half = V::splat(0.5);
    let three = |[a, b, c, d]: [V; 4]| {
        let (s, t) = (b.add(c).mul(half), b.sub(c).mul(half));
        [a.add(s), t, s.add(d)]
    };
    // SAFETY: by contract.
    unsafe {
        let down = [0, 1, 2, 3].map(|j| three([0, 1, 2, 3].map(|i| V::load(u.add((4 * i + j) * step)))));
        for i in 0..3 {
            for (j, v) in three([0, 1, 2, 3].map(|j| down[j][i])).into_iter().enumerate() {
                v.store(to.add((3 * i + j) * row));
            }
        }
    }
}
