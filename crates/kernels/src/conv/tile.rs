//! Implicit matrix product in f32: pack a small panel of patches, multiply while it is in L1.
//!
//! A *panel* is `depth x 32`: 32 output pixels (two vectors), one row per (channel, tap). Pixels are numbered over the
//! whole batch, so small planes still fill panels. Weights are broadcast where they lie, at most eight output channels at a time: as
//! many as the instruction set has registers for.
//! Guarantee: an output's sum depends on its own patch and the fixed depth of a panel only, so any split of pixels or
//! channels over threads gives the same bits.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::taps::TapConv;
use crate::parallel;
use crate::real::{Ptr, Scratch};
use crate::sets::{self, LANES, TileKernel, Vector, first};
use std::ops::Range;

/// Pixels in a panel.
pub(super) const NR: usize = 2 * LANES;
/// Output channels computed from a panel before the next ones.
const MR: usize = 8;
/// Target panel depth: 192 x 32 x 4 B = 24 kB, half to three quarters of L1.
const KC: usize = 192;

/// Every other lane.
const EVEN: u16 = 0x5555;

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

/// How one run is read under one tap, the same for every channel. With stride 2 it is read in two parts.
pub(super) struct Piece {
    /// From the channel's plane in the first image.
    from: isize,
    /// The second part: what follows the first, or another run of eight pixels.
    far: isize,
    /// In the channel's rows of the panel.
    to: usize,
    /// Which input columns from there on lie inside the input (stride 1 and 2: sixteen for each part), or which lanes (other
    /// strides).
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
        let read = |r: &Run| {
            let [iz, iy, ix] = [0, 1, 2].map(|d| (r.g[d] * tc.si[d]) as isize + tap[d]);
            let inside = if iz < 0 || iz >= depth || iy < 0 || iy >= height {
                0
            } else if sx <= 2 {
                lanes(-ix, (width - ix).min((r.len * sx) as isize))
            } else {
                let column = |l: usize| ix + (l * sx) as isize;
                (0..r.len).fold(0, |m, l| m | u32::from((0..width).contains(&column(l))) << l)
            };
            ((r.img * tc.in_image) as isize + (iz * height + iy) * width + ix, inside)
        };
        let mut rest = runs.iter().peekable();
        while let Some(r) = rest.next() {
            let ((from, inside), to) = (read(r), t * NR + r.off);
            let keep = if r.off + 16 <= NR { 0xffff } else { lanes(0, r.len as isize) as u16 };
            // Two runs of eight pixels fill one vector.
            let both = |next: &&Run| sx == 2 && (r.len, next.len) == (8, 8);
            let (far, inside) = match rest.next_if(both).map(&read) {
                Some((far, other)) => (far, inside | other << 16),
                None => (from + LANES as isize, inside),
            };
            out.push(Piece { from, far, to, inside, keep });
        }
    }
}

/// Fills rows of channels `cr` of a panel; row `(c - cr.start) * taps + t`. Channel by channel: planes may lie a multiple
/// of 4 kB apart, so that lines of many channels do not fit the first cache together.
///
/// # Safety
/// `src` is the group's first channel of the whole input; `dst` holds `cr.len() * taps * NR` floats.
#[inline(always)]
pub(super) unsafe fn pack<V: Vector>(tc: &TapConv, pieces: &[Piece], cr: Range<usize>, src: *const f32, dst: *mut f32) {
    let (plane, rows) = (tc.in_plane(), tc.taps.len() * NR);
    let sx = tc.si[2];
    let mut step = [0; LANES];
    for l in 0..LANES {
        step[l] = (l * sx) as i32;
    }
    for (i, c) in cr.enumerate() {
        let (s, d) = (src.wrapping_add(c * plane), dst.wrapping_add(i * rows));
        for p in pieces {
            let (s, far) = (s.wrapping_offset(p.from), s.wrapping_offset(p.far));
            // SAFETY: masked-off lanes are not accessed; the others are inside their rows and the panel.
            unsafe {
                let v = match sx {
                    1 => V::load_some(p.inside as u16, s),
                    2 => {
                        let near = V::load_some(p.inside as u16, s);
                        near.unzip(V::load_some((p.inside >> 16) as u16, far))[0]
                    }
                    _ => V::gather(p.inside as u16, s, &step),
                };
                v.store_some(p.keep, d.wrapping_add(p.to));
            }
        }
    }
}

/// `c[0..8][0..32] = start + a[0..8][0..kc] * panel[0..kc][0..32]`, where start is what `c` holds, or a number a row.
///
/// # Safety
/// All rows are in bounds.
#[inline(always)]
unsafe fn kernel<V: Vector, const R: usize, const N: usize>(
    kc: usize,
    a: &[*const f32; MR],
    panel: *const f32,
    c: &[*mut f32; MR],
    rows: usize,
    start: Option<[f32; MR]>,
) {
    for up in (0..rows).step_by(R) {
        for across in (0..NR).step_by(N * LANES) {
            let mut a_rows = [a[0]; R];
            a_rows.copy_from_slice(&a[up..up + R]);
            // SAFETY: by contract.
            unsafe {
                let panel = panel.add(across);
                let mut acc = [[V::zero(); N]; R];
                for k in 0..kc {
                    let mut b = [V::zero(); N];
                    for h in 0..N {
                        b[h] = V::load(panel.add(k * NR + h * LANES));
                    }
                    for i in 0..R {
                        let w = V::splat(*a_rows[i].add(k));
                        for h in 0..N {
                            acc[i][h] = w.mul_add(b[h], acc[i][h]);
                        }
                    }
                }
                for i in 0..R {
                    if up + i == rows {
                        break;
                    }
                    for h in 0..N {
                        let to = c[up + i].add(across + h * LANES);
                        let from = match start {
                            Some(s) => V::splat(s[up + i]),
                            None => V::load(to),
                        };
                        acc[i][h].add(from).store(to);
                    }
                }
            }
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
        let y = out.at(g * tc.m * tc.out_plane());
        // SAFETY: bounds are asserted above; the jobs' outputs are disjoint.
        unsafe { part(tc, x, w, bias, y, pr, mr) }
    };
    if groups * worth < 4 { (0..groups * parts).for_each(job) } else { parallel::run(groups * parts, &job) }
}

/// Some panels and output channels of a group.
///
/// # Safety
/// Slices and `y` begin at the group's first channel, as [`run`] asserts; nothing else writes these panels and channels.
unsafe fn part(
    tc: &TapConv,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: *mut f32,
    panels: Range<usize>,
    mr: Range<usize>,
) {
    // Panels whose 32 pixels are not contiguous in the output go through `side` (mr.len() x 32 each).
    let group = (64 * 1024 / (mr.len().max(1) * NR)).clamp(1, 16);
    let mut side = Scratch::new(group * mr.len() * NR);
    let mut panel = Scratch::new(channel_block(tc) * tc.taps.len() * NR);
    let (side, panel) = (side.as_mut_ptr(), panel.as_mut_ptr());
    // SAFETY: the caller's promise.
    unsafe { sets::tiles(Part { tc, x, w, bias, y, panels, mr, group, side, panel }) }
}

/// What [`part`] computes, with its scratch. To be run as [`part`] says.
struct Part<'a> {
    tc: &'a TapConv,
    x: &'a [f32],
    w: &'a [f32],
    bias: Option<&'a [f32]>,
    y: *mut f32,
    panels: Range<usize>,
    mr: Range<usize>,
    group: usize,
    side: *mut f32,
    panel: *mut f32,
}

impl TileKernel for Part<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let Part { tc, x, w, bias, y, panels, mr, group, side, panel } = self;
        let nt = tc.taps.len();
        let lda = tc.c * nt;
        let cb = channel_block(tc);
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
                        pack::<V>(tc, &copies, c0..c1, x.as_ptr(), panel);
                        for m0 in mr.clone().step_by(MR) {
                            let rows = MR.min(mr.end - m0);
                            let (mut a, mut c, mut start) = ([w.as_ptr(); MR], [y; MR], [0.0; MR]);
                            for i in 0..MR {
                                // Rows beyond the last compute the last one again, and are not stored.
                                let m = m0 + i.min(rows - 1);
                                a[i] = w.as_ptr().add(m * lda + c0 * nt);
                                c[i] = if direct {
                                    y.add(first / plane * tc.out_image + m * plane + first % plane)
                                } else {
                                    side.add(((p - p0) * mr.len() + m - mr.start) * NR)
                                };
                                start[i] = bias.map_or(0.0, |b| b[m]);
                            }
                            kernel::<V, R, N>((c1 - c0) * nt, &a, panel, &c, rows, (c0 == 0).then_some(start));
                        }
                        if !direct && c1 == tc.c {
                            spread::<V>(tc, &stretches, side.add((p - p0) * mr.len() * NR), y, mr.clone());
                        }
                    }
                }
            }
        }
    }
}

/// Copies a side panel to its places in the output.
///
/// # Safety
/// Like [`part`].
#[inline(always)]
unsafe fn spread<V: Vector>(tc: &TapConv, runs: &[Run], side: *const f32, y: *mut f32, mr: Range<usize>) {
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
                match step {
                    1 => V::load_some(keep, s).store_some(keep, d),
                    2 => {
                        let [low, high] = V::load_some(keep, s).zip(V::zero());
                        low.store_some(first(2 * r.len) & EVEN, d);
                        high.store_some(first((2 * r.len).saturating_sub(LANES)) & EVEN, d.wrapping_add(LANES));
                    }
                    _ => (0..r.len).for_each(|l| *d.add(l * step) = *s.add(l)),
                }
            }
        }
    }
}
