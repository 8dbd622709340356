//! The convolution and its input gradient: transform the weights once, then block by block of 16 or 32 tiles transform the
//! patches of all channels, multiply at each of the 16 positions, and transform the sums back.
//!
//! A block's patches stay in the second cache, or the first if channels are few; the sums of eight output channels in the
//! first.
#![allow(unsafe_code)]
// Register tiles are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::super::ConvShape;
use super::tiles::{LANES, Rows, Tiling};
use super::transform::{self, POSITIONS};
use crate::parallel;
use crate::real::{Ptr, Scratch};
use std::arch::x86_64::*;
use std::ops::Range;

/// Output channels multiplied at once.
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
                // SAFETY: bands are disjoint; weights are read inside the group, whose size `run` has checked. This path
                // is taken only with AVX-512.
                unsafe { self.band(t, &self.w[g * t.m * t.c * 9..][..t.m * t.c * 9], m0, to.slice(i * len, len)) };
            }
        });
        u
    }

    /// # Safety
    /// AVX-512F present; `w` holds the group.
    #[target_feature(enable = "avx512f")]
    unsafe fn band(&self, t: &Tiling, w: &[f32], m0: usize, to: &mut [f32]) {
        // Two input channels of eight output channels are a vector.
        let offset = |l: usize| ((l % MR) * self.to_m + (l / MR) * self.to_c) as i32;
        let offsets: [i32; LANES] = std::array::from_fn(offset);
        let rows = (1u32 << MR.min(t.m - m0)) - 1;
        let step = to.len() / POSITIONS;
        for c in (0..t.c).step_by(2) {
            let keep = if c + 1 < t.c { rows | rows << MR } else { rows } as u16;
            let from = &w[m0 * self.to_m + c * self.to_c..];
            // SAFETY: lanes of channels that do not exist are masked off; a band holds an even number of channels.
            unsafe {
                let offsets = _mm512_loadu_si512(offsets.as_ptr().cast());
                let tap = |i: usize| {
                    let i = if self.turned { 8 - i } else { i };
                    _mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), keep, offsets, from.as_ptr().wrapping_add(i))
                };
                let u =
                    transform::kernels([[tap(0), tap(1), tap(2)], [tap(3), tap(4), tap(5)], [tap(6), tap(7), tap(8)]]);
                for (i, u) in u.into_iter().enumerate() {
                    _mm512_storeu_ps(to.as_mut_ptr().add(i * step + c * MR), u);
                }
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
        // SAFETY: sizes are asserted above; the jobs' outputs are disjoint; this path is taken only with AVX-512.
        unsafe {
            let y = out.at(g * t.m * t.output.len());
            if vectors == 1 { range::<1>(t, x, u, bias, y, br, mr) } else { range::<2>(t, x, u, bias, y, br, mr) }
        }
    };
    if groups * worth < 4 { (0..groups * parts).for_each(job) } else { parallel::run(groups * parts, &job) }
}

/// Some blocks of V vectors of tiles, and bands of eight output channels, of a group.
///
/// # Safety
/// AVX-512F present; slices and `y` begin at the group's first channel, as [`run`] asserts; nothing else writes these blocks
/// and channels.
#[target_feature(enable = "avx512f")]
unsafe fn range<const V: usize>(
    t: &Tiling,
    x: &[f32],
    u: &[f32],
    bias: Option<&[f32]>,
    y: *mut f32,
    blocks: Range<usize>,
    bands: Range<usize>,
) {
    // One line more than the channels take, so that the positions of a channel do not fall on one set of the cache.
    let step = (t.c * V + 1) * LANES;
    let (mut patches, mut sums) =
        (Scratch::<f32>::new(POSITIONS * step), Scratch::<f32>::new(POSITIONS * MR * V * LANES));
    let (patches, sums) = (patches.as_mut_ptr(), sums.as_mut_ptr());
    let mut rows: [(Rows<4>, Rows<2>); V] = std::array::from_fn(|_| Default::default());
    let (len, row) = (band_len(t), t.c.next_multiple_of(2) * MR);
    for block in blocks {
        for (v, (patches, outputs)) in rows.iter_mut().enumerate() {
            t.find((block * V + v) * LANES, patches, outputs);
        }
        // SAFETY: by contract; scratch is sized for all channels of a block, and for a band's sums.
        unsafe {
            for c in 0..t.c {
                for (v, (from, _)) in rows.iter().enumerate() {
                    let plane = x.as_ptr().add(c * t.input.len());
                    transform::patches(from, plane, patches.add((c * V + v) * LANES), step);
                }
            }
            for band in bands.clone() {
                let u = u.as_ptr().add(band * len);
                for p in 0..POSITIONS {
                    product::<V>(t.c, u.add(p * row), patches.add(p * step), sums.add(p * MR * V * LANES));
                }
                for m in band * MR..((band + 1) * MR).min(t.m) {
                    let bias = bias.map_or(0.0, |b| b[m]);
                    for (v, (_, to)) in rows.iter().enumerate() {
                        let sums = sums.add(((m - band * MR) * V + v) * LANES);
                        transform::outputs(sums, MR * V * LANES, bias, to, y.add(m * t.output.len()));
                    }
                }
            }
        }
    }
}

/// `sums[0..8][0..16V] = sum over c of u[c][0..8] * v[c][0..16V]`.
///
/// # Safety
/// AVX-512F present; all rows are in bounds.
#[target_feature(enable = "avx512f")]
unsafe fn product<const V: usize>(c: usize, u: *const f32, v: *const f32, sums: *mut f32) {
    let mut acc = [[_mm512_setzero_ps(); V]; MR];
    // SAFETY: by contract.
    unsafe {
        for k in 0..c {
            let b: [__m512; V] = std::array::from_fn(|j| _mm512_loadu_ps(v.add((k * V + j) * LANES)));
            for i in 0..MR {
                let a = _mm512_set1_ps(*u.add(k * MR + i));
                for j in 0..V {
                    acc[i][j] = _mm512_fmadd_ps(a, b[j], acc[i][j]);
                }
            }
        }
        for i in 0..MR {
            for j in 0..V {
                _mm512_storeu_ps(sums.add((i * V + j) * LANES), acc[i][j]);
            }
        }
    }
}
