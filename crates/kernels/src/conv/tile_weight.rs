//! Gradient of the weight in f32: the packed panels of forward, multiplied with transposed slices of `dy`.
//!
//! `dw[m, c, t]` is the sum over pixels of `dy[m, pixel] * patch[c, t, pixel]`, computed as vectors of 16 output channels
//! times broadcast patch values, so there are no horizontal sums. Pixels are shared out in parts whose number depends on
//! the sizes only; the parts are added in order.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::taps::{TapConv, forward_taps};
use super::tile::{NR, Run, channel_block, pack, pieces, runs};
use super::{ConvShape, partial_sums, sum_parts};
use crate::parallel;
use crate::real::{Ptr, Scratch};
use crate::sets::{self, LANES, TileKernel, Vector, transpose16};
use std::ops::Range;

/// Rows a kernel may compute beyond the last one.
pub(super) const SLACK: usize = 32;

pub(super) fn grad_weight(s: &ConvShape, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    let tc = forward_taps(s);
    let (panels, nt) = (tc.pixels().div_ceil(NR), tc.taps.len());
    let (mp, depth) = (tc.m.next_multiple_of(16), tc.c * nt);
    let len = depth * mp;
    // Each part takes at least 32 panels, so that adding the parts is nothing beside computing them.
    let parts = partial_sums(panels / 32, len * s.groups);
    // Channels are cut so that the sums of one job stay in L2.
    let cb = channel_block(&tc);
    let blocks_a_job = (1 << 16) / (cb * nt * mp) + 1;
    let jobs = tc.c.div_ceil(cb).div_ceil(blocks_a_job);
    let mut sums = Scratch::<f32>::new(parts * s.groups * len);
    let to = Ptr::new(&mut sums);
    parallel::run(parts * s.groups * jobs, &|i| {
        let (part, g, job) = (i / jobs / s.groups, i / jobs % s.groups, i % jobs);
        let cr = job * blocks_a_job * cb..((job + 1) * blocks_a_job * cb).min(tc.c);
        let pr = panels * part / parts..panels * (part + 1) / parts;
        let (x, dy) = (&x[g * tc.c * tc.in_plane()..], &dy[g * tc.m * tc.out_plane()..]);
        let mut panel = Scratch::<f32>::zeroed((cb * nt + SLACK) * NR);
        let mut turned = Scratch::<f32>::new(NR * mp);
        // SAFETY: slices begin at the group's channels; jobs write disjoint sums.
        unsafe {
            let sum = to.slice((part * s.groups + g) * len + cr.start * nt * mp, cr.len() * nt * mp);
            sets::tiles(Part { tc: &tc, x, dy, mp, cr, panels: pr, sum, panel: &mut panel, turned: &mut turned });
        }
    });
    collect(&mut sums, s.groups, depth, tc.m, dw);
}

/// Adds the parts of `[group][depth][m]`, rows of m padded to whole vectors, and turns the sum to `[group][m][depth]`.
pub(super) fn collect(sums: &mut Scratch<f32>, groups: usize, depth: usize, m: usize, dw: &mut [f32]) {
    let mp = m.next_multiple_of(16);
    let len = depth * mp;
    sum_parts(sums, groups * len);
    assert_eq!(dw.len(), groups * m * depth);
    let to = Ptr::new(dw);
    let stripes = mp / 16;
    parallel::split(groups * stripes, (1 << 10) / depth + 1, |r| {
        for (g, m0) in r.map(|i| (i / stripes, i % stripes * 16)) {
            let from = &sums[g * len..][..len];
            for k0 in (0..depth).step_by(16) {
                let (rows, channels) = (16.min(depth - k0), 16.min(m - m0));
                let to = to.at((g * m + m0) * depth + k0);
                if rows == 16 && channels == 16 {
                    // SAFETY: 16 rows of 16 in both; stripes are disjoint.
                    unsafe { sets::tiles(Transpose { from: from[k0 * mp + m0..].as_ptr(), mp, to, depth }) };
                    continue;
                }
                for (k, i) in (0..rows).flat_map(|k| (0..channels).map(move |i| (k, i))) {
                    // SAFETY: inside the row of its output channel; stripes are disjoint.
                    unsafe { *to.add(i * depth + k) = from[(k0 + k) * mp + m0 + i] };
                }
            }
        }
    });
}

/// A block of 16 × 16 sums, turned; to be run with both in bounds.
struct Transpose {
    from: *const f32,
    mp: usize,
    to: *mut f32,
    depth: usize,
}

impl TileKernel for Transpose {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        // SAFETY: the caller's promise.
        unsafe { transpose16::<V>(self.from, self.mp, self.to, self.depth) }
    }
}

/// `sum[c, t][m]` for channels `cr` over some panels. To be run with `x` and `dy` that begin at the group's first channel of
/// the whole tensors of `tc`, and scratch for a panel with [`SLACK`] and a turned slice of `dy`.
struct Part<'a> {
    tc: &'a TapConv,
    x: &'a [f32],
    dy: &'a [f32],
    mp: usize,
    cr: Range<usize>,
    panels: Range<usize>,
    sum: &'a mut [f32],
    panel: &'a mut [f32],
    turned: &'a mut [f32],
}

impl TileKernel for Part<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let Part { tc, x, dy, mp, cr, panels, sum, panel, turned } = self;
        let nt = tc.taps.len();
        let cb = channel_block(tc);
        sum.fill(0.0);
        let panel = panel.as_mut_ptr();
        let (mut stretches, mut copies) = (Vec::with_capacity(NR), Vec::with_capacity(2 * nt));
        for p in panels {
            runs(tc, p, &mut stretches);
            pieces(tc, &stretches, &mut copies);
            // SAFETY: see the contract; a run of `dy` is one row of its plane, so it stays in bounds.
            unsafe {
                transpose::<V>(tc, &stretches, p, dy, turned, mp);
                for c0 in cr.clone().step_by(cb) {
                    let c1 = (c0 + cb).min(cr.end);
                    let rows = (c1 - c0) * nt;
                    pack::<V>(tc, &copies, c0..c1, x.as_ptr(), panel);
                    let (b, s) = (panel.cast_const(), sum.as_mut_ptr().add((c0 - cr.start) * nt * mp));
                    add_products::<V, R, N>(rows, mp, turned.as_ptr(), b, s);
                }
            }
        }
    }
}

/// The slice of `dy` under panel `p` as `[pixel][m]`; zero where there is no pixel or channel.
///
/// # Safety
/// `dy` begins at the group's first channel; `turned` holds `NR * mp`.
#[inline(always)]
unsafe fn transpose<V: Vector>(tc: &TapConv, runs: &[Run], p: usize, dy: &[f32], turned: &mut [f32], mp: usize) {
    let plane = tc.out_plane();
    let (first, last) = (p * NR, p * NR + NR - 1);
    if first / plane == last / plane && last < tc.pixels() && tc.m.is_multiple_of(16) {
        for m in (0..tc.m).step_by(16) {
            // SAFETY: 32 pixels of one plane for 16 channels, and 32 rows of `turned`.
            unsafe {
                let s = dy.as_ptr().add(first / plane * tc.out_image + m * plane + first % plane);
                transpose16::<V>(s, plane, turned.as_mut_ptr().add(m), mp);
                transpose16::<V>(s.add(16), plane, turned.as_mut_ptr().add(16 * mp + m), mp);
            }
        }
        return;
    }
    turned.fill(0.0);
    let [_, height, width] = tc.output;
    for r in runs {
        for m in 0..tc.m {
            let s = r.img * tc.out_image + m * plane + (r.g[0] * height + r.g[1]) * width + r.g[2];
            for (l, &v) in dy[s..s + r.len].iter().enumerate() {
                turned[(r.off + l) * mp + m] = v;
            }
        }
    }
}

/// `s[k][0..mp] += sum over 32 pixels of b[k][pixel] * a[pixel][0..mp]`.
///
/// # Safety
/// `b` has `SLACK` rows beyond the last.
#[inline(always)]
pub(super) unsafe fn add_products<V: Vector, const R: usize, const N: usize>(
    rows: usize,
    mp: usize,
    a: *const f32,
    b: *const f32,
    s: *mut f32,
) {
    let mut m = 0;
    while m < mp {
        // SAFETY: by contract.
        m += unsafe {
            let (a, s) = (a.add(m), s.add(m));
            if N == 1 {
                outer::<V, 1, R>(rows, a, mp, b, s)
            } else {
                // Many registers. Wide vectors first; the row count keeps 24 to 28 accumulators busy.
                match mp - m {
                    64.. if rows.is_multiple_of(4) && !rows.is_multiple_of(6) => outer::<V, 4, 4>(rows, a, mp, b, s),
                    64.. => outer::<V, 4, 6>(rows, a, mp, b, s),
                    48.. => outer::<V, 3, 9>(rows, a, mp, b, s),
                    32.. if rows.is_multiple_of(8) && !rows.is_multiple_of(12) => outer::<V, 2, 8>(rows, a, mp, b, s),
                    32.. => outer::<V, 2, 12>(rows, a, mp, b, s),
                    _ if rows.is_multiple_of(16) && !rows.is_multiple_of(24) => outer::<V, 1, 16>(rows, a, mp, b, s),
                    _ if rows <= 28 && rows != 24 => outer::<V, 1, 28>(rows, a, mp, b, s),
                    _ => outer::<V, 1, 24>(rows, a, mp, b, s),
                }
            }
        };
    }
}

/// `s[k][0..16W] += sum over 32 pixels of b[k][pixel] * a[pixel][0..16W]`, R rows k at a time; returns 16W.
///
/// # Safety
/// `b` has R - 1 rows of slack.
#[inline(always)]
unsafe fn outer<V: Vector, const W: usize, const R: usize>(
    rows: usize,
    a: *const f32,
    mp: usize,
    b: *const f32,
    s: *mut f32,
) -> usize {
    for k in (0..rows).step_by(R) {
        // SAFETY: by contract.
        unsafe {
            let (bk, sk) = (b.add(k * NR), s.add(k * mp));
            let mut acc = [[V::zero(); W]; R];
            for px in 0..NR {
                let mut av = [V::zero(); W];
                for v in 0..W {
                    av[v] = V::load(a.add(px * mp + LANES * v));
                }
                for r in 0..R {
                    let w = V::splat(*bk.add(r * NR + px));
                    for v in 0..W {
                        acc[r][v] = w.mul_add(av[v], acc[r][v]);
                    }
                }
            }
            for r in 0..R {
                if r == rows - k {
                    break;
                }
                for v in 0..W {
                    let d = sk.add(r * mp + LANES * v);
                    V::load(d).add(acc[r][v]).store(d);
                }
            }
        }
    }
    LANES * W
}
