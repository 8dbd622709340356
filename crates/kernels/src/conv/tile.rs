//! Implicit matrix product on AVX-512: pack a small panel of patches, multiply while it is in L1.
//!
//! A *panel* is `depth x 32`: 32 output pixels (two vectors), one row per (channel, tap). Pixels are numbered over the
//! whole batch, so small planes still fill panels. Weights are broadcast where they lie, eight output channels at a time.
//! Guarantee: an output's sum depends on its own patch and the fixed depth of a panel only, so any split of pixels or
//! channels over threads gives the same bits.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::taps::TapConv;
use crate::parallel;
use crate::real::{Ptr, Scratch};
use std::arch::x86_64::*;
use std::ops::Range;

/// Pixels in a panel.
pub(super) const NR: usize = 32;
/// Output channels computed at once: 8 x 2 vectors = 16 accumulators.
const MR: usize = 8;
/// Target panel depth: 192 x 32 x 4 B = 24 kB, half to three quarters of L1.
const KC: usize = 192;

/// A stretch of at most 16 pixels of one row inside a panel.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) img: usize,
    pub(super) g: [usize; 3],
    pub(super) len: usize,
    pub(super) off: usize,
}

/// How many channels a panel holds.
pub(super) fn channel_block(tc: &TapConv) -> usize {
    (KC / tc.taps.len()).clamp(1, tc.c)
}

/// The row stretches that make up panel `p`.
pub(super) fn runs(tc: &TapConv, p: usize, out: &mut Vec<Run>) {
    out.clear();
    let [gd, gh, gw] = tc.grid;
    let (mut at, end) = (p * NR, ((p + 1) * NR).min(tc.pixels()));
    while at < end {
        let (img, q) = (at / (gd * gh * gw), at % (gd * gh * gw));
        let g = [q / (gh * gw), q / gw % gh, q % gw];
        let len = (gw - g[2]).min(end - at).min(16);
        out.push(Run { img, g, len, off: at - p * NR });
        at += len;
    }
}

/// Bits `lo..hi` of a lane mask, clamped to 0..=32.
#[inline(always)]
fn lanes(lo: isize, hi: isize) -> u32 {
    let ones = |n: isize| match n {
        ..=0 => 0,
        32.. => u32::MAX,
        n => (1u32 << n) - 1,
    };
    ones(hi) & !ones(lo)
}

/// How one run is read under one tap, the same for every channel.
pub(super) struct Piece {
    /// From the channel's plane in the first image.
    from: isize,
    /// In the channel's rows of the panel.
    to: usize,
    /// Which input columns from there on lie inside the input (stride 1 and 2), or which lanes (other strides).
    inside: u32,
    /// Lanes to write. A full-width store may spill into the next run, written later; it must not leave the row.
    keep: u16,
}

/// What [`pack`] copies for the runs of a panel.
pub(super) fn pieces(tc: &TapConv, runs: &[Run], out: &mut Vec<Piece>) {
    out.clear();
    let [depth, height, width] = tc.input.map(|v| v as isize);
    let sx = tc.si[2];
    for (t, tap) in tc.taps.iter().enumerate() {
        for r in runs {
            let [iz, iy, ix] = [0, 1, 2].map(|d| (r.g[d] * tc.si[d]) as isize + tap[d]);
            let inside = if iz < 0 || iz >= depth || iy < 0 || iy >= height {
                0
            } else if sx <= 2 {
                lanes(-ix, (width - ix).min((r.len * sx) as isize))
            } else {
                let column = |l: usize| ix + (l * sx) as isize;
                (0..r.len).fold(0, |m, l| m | u32::from((0..width).contains(&column(l))) << l)
            };
            out.push(Piece {
                from: (r.img * tc.in_image) as isize + (iz * height + iy) * width + ix,
                to: t * NR + r.off,
                inside,
                keep: if r.off + 16 <= NR { 0xffff } else { lanes(0, r.len as isize) as u16 },
            });
        }
    }
}

/// Fills rows of channels `cr` of a panel; row `(c - cr.start) * taps + t`. Channel by channel: planes may lie a multiple
/// of 4 kB apart, so that lines of many channels do not fit the first cache together.
///
/// # Safety
/// AVX-512F present; `src` is the group's first channel of the whole input; `dst` holds `cr.len() * taps * NR` floats.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn pack(tc: &TapConv, pieces: &[Piece], cr: Range<usize>, src: *const f32, dst: *mut f32) {
    let (plane, rows) = (tc.in_plane(), tc.taps.len() * NR);
    let sx = tc.si[2];
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let step = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(sx as i32),
    );
    for (i, c) in cr.enumerate() {
        let (s, d) = (src.wrapping_add(c * plane), dst.wrapping_add(i * rows));
        for p in pieces {
            let s = s.wrapping_offset(p.from);
            // SAFETY: masked-off lanes are not accessed; the others are inside the row and the panel.
            unsafe {
                let v = match sx {
                    1 => _mm512_maskz_loadu_ps(p.inside as u16, s),
                    2 => _mm512_permutex2var_ps(
                        _mm512_maskz_loadu_ps(p.inside as u16, s),
                        even,
                        _mm512_maskz_loadu_ps((p.inside >> 16) as u16, s.wrapping_add(16)),
                    ),
                    _ => _mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), p.inside as u16, step, s),
                };
                _mm512_mask_storeu_ps(d.wrapping_add(p.to), p.keep, v);
            }
        }
    }
}

/// `c[0..8][0..32] = start + a[0..8][0..kc] * panel[0..kc][0..32]`, where start is what `c` holds, or a number a row.
///
/// # Safety
/// AVX-512F present; all rows are in bounds.
#[target_feature(enable = "avx512f")]
unsafe fn kernel(
    kc: usize,
    a: [*const f32; MR],
    panel: *const f32,
    c: [*mut f32; MR],
    rows: usize,
    start: Option<[f32; MR]>,
) {
    // SAFETY: by contract.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); 2]; MR];
        for k in 0..kc {
            let b0 = _mm512_loadu_ps(panel.add(k * NR));
            let b1 = _mm512_loadu_ps(panel.add(k * NR + 16));
            for i in 0..MR {
                let w = _mm512_set1_ps(*a[i].add(k));
                acc[i][0] = _mm512_fmadd_ps(w, b0, acc[i][0]);
                acc[i][1] = _mm512_fmadd_ps(w, b1, acc[i][1]);
            }
        }
        for i in 0..rows {
            let (p0, p1) = (c[i], c[i].add(16));
            let (s0, s1) = match start {
                Some(s) => (_mm512_set1_ps(s[i]), _mm512_set1_ps(s[i])),
                None => (_mm512_loadu_ps(p0), _mm512_loadu_ps(p1)),
            };
            _mm512_storeu_ps(p0, _mm512_add_ps(acc[i][0], s0));
            _mm512_storeu_ps(p1, _mm512_add_ps(acc[i][1], s1));
        }
    }
}

/// Runs a tap convolution for every group; `w` is `[group][m][c][taps]`, the bias one number per group and m.
pub(super) fn run(tc: &TapConv, groups: usize, x: &[f32], w: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
    let nt = tc.taps.len();
    assert!(nt > 0 && tc.c > 0 && tc.m > 0);
    assert!(x.len() == tc.n * tc.in_image && tc.in_image == groups * tc.c * tc.in_plane());
    assert!(y.len() == tc.n * tc.out_image && tc.out_image == groups * tc.m * tc.out_plane());
    assert_eq!(w.len(), groups * tc.m * tc.c * nt);
    let panels = tc.pixels().div_ceil(NR);
    let threads = parallel::num_threads();
    // Many panels: split the pixels. Few (batch 1, deep layers): split the output channels.
    let by_pixel = panels >= 8 * threads;
    let (len, unit) = if by_pixel { (panels, 8) } else { (tc.m, MR) };
    let worth = panels * NR * tc.m * tc.c * nt / (1 << 16);
    let parts = (if by_pixel { 2 * threads } else { threads }).min(len.div_ceil(unit)).min(worth).max(1);
    let cut = |i: usize| (len.div_ceil(unit) * i / parts * unit).min(len);
    let out = Ptr::new(y);
    let job = |i: usize| {
        let (g, i) = (i / parts, i % parts);
        let (pr, mr) = if by_pixel { (cut(i)..cut(i + 1), 0..tc.m) } else { (0..panels, cut(i)..cut(i + 1)) };
        let (x, w) = (&x[g * tc.c * tc.in_plane()..], &w[g * tc.m * tc.c * nt..][..tc.m * tc.c * nt]);
        let bias = bias.map(|b| &b[g * tc.m..][..tc.m]);
        // SAFETY: bounds are asserted above; the jobs' outputs are disjoint; this path is taken only with AVX-512.
        unsafe { range(tc, x, w, bias, out.at(g * tc.m * tc.out_plane()), pr, mr) }
    };
    if groups * worth < 4 { (0..groups * parts).for_each(job) } else { parallel::run(groups * parts, &job) }
}

/// # Safety
/// AVX-512F present; slices and `y` begin at the group's first channel, as [`run`] asserts; nothing else writes these panels
/// and channels.
#[target_feature(enable = "avx512f")]
unsafe fn range(
    tc: &TapConv,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: *mut f32,
    panels: Range<usize>,
    mr: Range<usize>,
) {
    let nt = tc.taps.len();
    let lda = tc.c * nt;
    let cb = channel_block(tc);
    // Panels whose 32 pixels are not contiguous in the output go through `side` (mr.len() x 32 each).
    let group = (64 * 1024 / (mr.len().max(1) * NR)).clamp(1, 16);
    let (mut side, mut panel) = (Scratch::new(group * mr.len() * NR), Scratch::new(cb * nt * NR));
    let (side, panel): (*mut f32, *mut f32) = (side.as_mut_ptr(), panel.as_mut_ptr());
    let (mut stretches, mut copies) = (Vec::with_capacity(NR), Vec::with_capacity(2 * nt));
    let (plane, dense) = (tc.out_plane(), tc.is_dense());
    for p0 in panels.clone().step_by(group) {
        let p1 = (p0 + group).min(panels.end);
        for c0 in (0..tc.c).step_by(cb) {
            let c1 = (c0 + cb).min(tc.c);
            for p in p0..p1 {
                runs(tc, p, &mut stretches);
                pieces(tc, &stretches, &mut copies);
                let (first, last) = (p * NR, p * NR + NR - 1);
                let direct = dense && first / plane == last / plane && last < tc.pixels();
                // SAFETY: see the function's contract.
                unsafe {
                    pack(tc, &copies, c0..c1, x.as_ptr(), panel);
                    for m0 in mr.clone().step_by(MR) {
                        let rows = MR.min(mr.end - m0);
                        let m = |i: usize| m0 + i.min(rows - 1);
                        let a = std::array::from_fn(|i| w.as_ptr().add(m(i) * lda + c0 * nt));
                        let c = std::array::from_fn(|i| {
                            if direct {
                                y.add(first / plane * tc.out_image + m(i) * plane + first % plane)
                            } else {
                                side.add(((p - p0) * mr.len() + m(i) - mr.start) * NR)
                            }
                        });
                        let start = (c0 == 0).then(|| std::array::from_fn(|i| bias.map_or(0.0, |b| b[m(i)])));
                        kernel((c1 - c0) * nt, a, panel, c, rows, start);
                    }
                    if !direct && c1 == tc.c {
                        spread(tc, &stretches, side.add((p - p0) * mr.len() * NR), y, mr.clone());
                    }
                }
            }
        }
    }
}

/// Copies a side panel to its places in the output.
///
/// # Safety
/// Like [`range`].
#[target_feature(enable = "avx512f")]
unsafe fn spread(tc: &TapConv, runs: &[Run], side: *const f32, y: *mut f32, mr: Range<usize>) {
    let [_, height, width] = tc.output;
    let step = tc.so[2];
    for r in runs {
        let [oz, oy, ox] = [0, 1, 2].map(|d| r.g[d] * tc.so[d] + tc.at[d]);
        let at = r.img * tc.out_image + (oz * height + oy) * width + ox;
        let keep = lanes(0, r.len as isize) as u16;
        for (i, m) in mr.clone().enumerate() {
            // SAFETY: every run lies inside the output row.
            unsafe {
                let s = side.add(i * NR + r.off);
                let d = y.add(m * tc.out_plane() + at);
                if step == 1 {
                    _mm512_mask_storeu_ps(d, keep, _mm512_maskz_loadu_ps(keep, s));
                } else {
                    for l in 0..r.len {
                        *d.add(l * step) = *s.add(l);
                    }
                }
            }
        }
    }
}
