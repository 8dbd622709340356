//! The convolution and its input gradient: transform the weights once, then block by block of 16 or 32 tiles transform the
//! patches of all channels, multiply at each of the 16 positions, and transform the sums back.
//!
//! A block's patches stay in the second cache, or the first if channels are few; the sums of eight output channels in the
//! first.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::super::ConvShape;
use super::tiles::{Rows, Tiling};
use super::transform::{self, POSITIONS};
use crate::parallel;
use crate::real::{Ptr, Scratch};
use crate::sets::{self, LANES, TileKernel, Vector};
use std::ops::Range;

/// Output channels whose weights lie side by side.
const MR: usize = 8;
/// Up to this many input channels a block is one vector of tiles, so that its patches stay in the first cache; beyond, two,
/// so that weights are read half as often.
const FEW: usize = 32;

pub(in super::super) fn forward(s: &ConvShape, x: &[f32], w: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
    let row = s.group_in() * 9;
    run(&Tiling::new(s), s.groups, x, &Weights { w, to_m: row, to_c: 9, turned: false }, bias, out);
}

pub(in super::super) fn grad_input(s: &ConvShape, dy: &[f32], w: &[f32], bias: Option<&[f32]>, dx: &mut [f32]) {
    let row = s.group_in() * 9;
    run(&Tiling::transposed(s), s.groups, dy, &Weights { w, to_m: 9, to_c: row, turned: true }, bias, dx);
}

/// 3 x 3 kernels, `to_m` apart from output to output channel of a group and `to_c` from input to input channel.
struct Weights<'a> {
    w: &'a [f32],
    to_m: usize,
    to_c: usize,
    /// Whether taps are in opposite order.
    turned: bool,
}

impl Weights<'_> {
    /// The transformed weights as `[group][m / 8][position][c][8]`, zero beyond the last output channel.
    fn transform(&self, t: &Tiling, groups: usize) -> Scratch<f32> {
        let bands = t.m.div_ceil(MR);
        let len = band_len(t);
        let mut u = Scratch::<f32>::new(groups * bands * len);
        let to = Ptr::new(&mut u);
        parallel::split(groups * bands, (1 << 14) / len + 1, |r| {
            for i in r {
                let (g, m0) = (i / bands, i % bands * MR);
                let w = &self.w[g * t.m * t.c * 9..][..t.m * t.c * 9];
                // SAFETY: bands are disjoint; weights are read inside the group, whose size `run` has checked.
                unsafe { sets::tiles(Band { all: self, t, w, m0, to: to.slice(i * len, len) }) };
            }
        });
        u
    }
}

/// The transformed weights of eight output channels of a group, whose weights are `w`.
struct Band<'a> {
    all: &'a Weights<'a>,
    t: &'a Tiling,
    w: &'a [f32],
    m0: usize,
    to: &'a mut [f32],
}

impl TileKernel for Band<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let Band { all, t, w, m0, to } = self;
        // Two input channels of eight output channels are a vector.
        let mut offsets = [0; LANES];
        for l in 0..LANES {
            offsets[l] = ((l % MR) * all.to_m + (l / MR) * all.to_c) as i32;
        }
        let rows = (1u32 << MR.min(t.m - m0)) - 1;
        let step = to.len() / POSITIONS;
        for c in (0..t.c).step_by(2) {
            let keep = if c + 1 < t.c { rows | rows << MR } else { rows } as u16;
            let from = &w[m0 * all.to_m + c * all.to_c..];
            let mut taps = [[V::zero(); 3]; 3];
            for i in 0..9 {
                let tap = if all.turned { 8 - i } else { i };
                // SAFETY: lanes of channels that do not exist are masked off.
                taps[i / 3][i % 3] = unsafe { V::gather(keep, from.as_ptr().wrapping_add(tap), &offsets) };
            }
            for (i, u) in transform::kernels(taps).into_iter().enumerate() {
                // SAFETY: a band holds an even number of channels.
                unsafe { u.store(to.as_mut_ptr().add(i * step + c * MR)) };
            }
        }
    }
}

/// Transformed weights of eight output channels.
fn band_len(t: &Tiling) -> usize {
    POSITIONS * t.c.next_multiple_of(2) * MR
}

/// Runs the convolution of every group.
fn run(t: &Tiling, groups: usize, x: &[f32], w: &Weights<'_>, bias: Option<&[f32]>, y: &mut [f32]) {
    assert_eq!(w.w.len(), groups * t.m * t.c * 9);
    assert!(x.len() == t.images * t.input.image && t.input.image == groups * t.c * t.input.len());
    assert!(y.len() == t.images * t.output.image && t.output.image == groups * t.m * t.output.len());
    let u = w.transform(t, groups);
    let vectors = if t.c <= FEW { 1 } else { 2 };
    let (blocks, bands) = (t.tiles().div_ceil(vectors * LANES), t.m.div_ceil(MR));
    let threads = parallel::num_threads();
    // Many blocks: share out blocks. Few (one image, deep layers): share out the output channels.
    let by_block = blocks >= 4 * threads;
    let len = if by_block { blocks } else { bands };
    // A thread is worth waking for some 2^16 products.
    let worth = t.tiles() * POSITIONS * t.m * t.c / (1 << 16);
    let parts = (if by_block { 2 * threads } else { threads }).min(len).min(worth).max(1);
    let out = Ptr::new(y);
    let job = |i: usize| {
        let (g, i) = (i / parts, i % parts);
        let cut = len * i / parts..len * (i + 1) / parts;
        let (br, mr) = if by_block { (cut, 0..bands) } else { (0..blocks, cut) };
        let (x, u) = (&x[g * t.c * t.input.len()..], &u[g * bands * band_len(t)..][..bands * band_len(t)]);
        let bias = bias.map(|b| &b[g * t.m..][..t.m]);
        let y = out.at(g * t.m * t.output.len());
        // One line more than the channels take, so that the positions of a channel do not fall on one set of the cache.
        let step = (t.c * vectors + 1) * LANES;
        let mut patches = Scratch::<f32>::new(POSITIONS * step);
        let mut sums = Scratch::<f32>::new(POSITIONS * MR * vectors * LANES);
        let part = Part { t, x, u, bias, y, blocks: br, bands: mr, step, patches: &mut patches, sums: &mut sums };
        // SAFETY: sizes are asserted above; the jobs' outputs are disjoint.
        unsafe { if vectors == 1 { sets::tiles(Blocks::<1>(part)) } else { sets::tiles(Blocks::<2>(part)) } }
    };
    if groups * worth < 4 { (0..groups * parts).for_each(job) } else { parallel::run(groups * parts, &job) }
}

/// Some blocks of tiles, and bands of eight output channels, of a group. To be run with slices and `y` that begin at the group's first
/// channel, as [`run`] asserts, and scratch for all channels of a block and a band's sums; nothing else writes these blocks and channels.
struct Part<'a> {
    t: &'a Tiling,
    x: &'a [f32],
    u: &'a [f32],
    bias: Option<&'a [f32]>,
    y: *mut f32,
    blocks: Range<usize>,
    bands: Range<usize>,
    /// Between positions of the patches.
    step: usize,
    patches: &'a mut [f32],
    sums: &'a mut [f32],
}

/// A part whose blocks are B vectors of tiles.
struct Blocks<'a, const B: usize>(Part<'a>);

impl<const B: usize> TileKernel for Blocks<'_, B> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let Part { t, x, u, bias, y, blocks, bands, step, patches, sums } = self.0;
        let (patches, sums) = (patches.as_mut_ptr(), sums.as_mut_ptr());
        let mut rows: [(Rows<4>, Rows<2>); B] = std::array::from_fn(|_| Default::default());
        let (len, row) = (band_len(t), t.c.next_multiple_of(2) * MR);
        for block in blocks {
            for (v, (patches, outputs)) in rows.iter_mut().enumerate() {
                t.find((block * B + v) * LANES, patches, outputs);
            }
            // SAFETY: by contract; scratch is sized for all channels of a block, and for a band's sums.
            unsafe {
                for c in 0..t.c {
                    for (v, (from, _)) in rows.iter().enumerate() {
                        let plane = x.as_ptr().add(c * t.input.len());
                        transform::patches::<V>(from, plane, patches.add((c * B + v) * LANES), step);
                    }
                }
                for band in bands.clone() {
                    let u = u.as_ptr().add(band * len);
                    for p in 0..POSITIONS {
                        let (u, v, sums) = (u.add(p * row), patches.add(p * step), sums.add(p * MR * B * LANES));
                        // As much of eight channels by B vectors as the registers hold.
                        if B == N {
                            product::<V, R, N, B>(t.c, u, v, sums);
                        } else {
                            product::<V, R, 1, B>(t.c, u, v, sums);
                        }
                    }
                    for m in band * MR..((band + 1) * MR).min(t.m) {
                        let bias = bias.map_or(0.0, |b| b[m]);
                        for (v, (_, to)) in rows.iter().enumerate() {
                            let sums = sums.add(((m - band * MR) * B + v) * LANES);
                            transform::outputs::<V>(sums, MR * B * LANES, bias, to, y.add(m * t.output.len()));
                        }
                    }
                }
            }
        }
    }
}

/// `sums[0..8][0..16B] = sum over c of u[c][0..8] * v[c][0..16B]`, R rows of N vectors at a time.
///
/// # Safety
/// All rows are in bounds.
#[inline(always)]
unsafe fn product<V: Vector, const R: usize, const N: usize, const B: usize>(
    c: usize,
    u: *const f32,
    v: *const f32,
    sums: *mut f32,
) {
    for up in (0..MR).step_by(R) {
        for across in (0..B).step_by(N) {
            let mut acc = [[V::zero(); N]; R];
            // SAFETY: by contract.
            unsafe {
                for k in 0..c {
                    let mut b = [V::zero(); N];
                    for j in 0..N {
                        b[j] = V::load(v.add((k * B + across + j) * LANES));
                    }
                    for i in 0..R {
                        let a = V::splat(*u.add(k * MR + up + i));
                        for j in 0..N {
                            acc[i][j] = a.mul_add(b[j], acc[i][j]);
                        }
                    }
                }
                for i in 0..R {
                    for j in 0..N {
                        acc[i][j].store(sums.add(((up + i) * B + across + j) * LANES));
                    }
                }
            }
        }
    }
}
