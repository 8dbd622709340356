//! The weight gradient: transformed patches times transformed gradients of the output, summed over tiles at each of the 16
//! positions, and the sums transformed back to nine taps.
//!
//! Gradients are turned so that a vector holds 16 output channels of one tile: no sum runs across a vector. Tiles are
//! shared out in parts whose number depends on the sizes only; the parts are added in order.
#![allow(unsafe_code)]

use super::super::tile::NR as BLOCK;
use super::super::tile_weight::{self, SLACK};
use super::super::{ConvShape, partial_sums};
use super::tiles::{Rows, Tiling};
use super::transform::{self, POSITIONS};
use crate::parallel;
use crate::real::{Ptr, Scratch};
use crate::sets::{self, LANES, TileKernel, Vector, transpose16};
use std::ops::Range;

/// Sums that one job keeps in the second cache.
const SUMS: usize = 1 << 17;

pub(in super::super) fn grad_weight(s: &ConvShape, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    let t = Tiling::new(s);
    assert!(x.len() == t.images * t.input.image && dy.len() == t.images * t.output.image);
    let (blocks, mp) = (t.tiles().div_ceil(BLOCK), t.m.next_multiple_of(LANES));
    let len = t.c * 9 * mp;
    // Each part takes at least 8 blocks, so that adding the parts is little beside computing them.
    let parts = partial_sums(blocks / 8, len * s.groups);
    let channels = (SUMS / (POSITIONS * mp)).clamp(1, t.c);
    let jobs = t.c.div_ceil(channels);
    let mut sums = Scratch::<f32>::new(parts * s.groups * len);
    let to = Ptr::new(&mut sums);
    parallel::run(parts * s.groups * jobs, &|i| {
        let (part, g, job) = (i / jobs / s.groups, i / jobs % s.groups, i % jobs);
        let cr = job * channels..((job + 1) * channels).min(t.c);
        let br = blocks * part / parts..blocks * (part + 1) / parts;
        let (x, dy) = (&x[g * t.c * t.input.len()..], &dy[g * t.m * t.output.len()..]);
        // SAFETY: slices begin at the group's channels; jobs write disjoint sums.
        unsafe {
            let to = to.slice((part * s.groups + g) * len + cr.start * 9 * mp, cr.len() * 9 * mp);
            self::part(&t, x, dy, cr, br, mp, to);
        }
    });
    tile_weight::collect(&mut sums, s.groups, t.c * 9, t.m, dw);
}

/// `to[c, tap][m]` for channels `cr` over some blocks.
///
/// # Safety
/// `x` and `dy` begin at the group's first channel of the whole tensors.
unsafe fn part(t: &Tiling, x: &[f32], dy: &[f32], cr: Range<usize>, blocks: Range<usize>, mp: usize, to: &mut [f32]) {
    // A line more than needed from position to position: they must not fall on one set of the cache.
    let (step, turned_step) = (cr.len() * BLOCK + LANES, BLOCK * mp + LANES);
    let mut patches = Scratch::<f32>::zeroed(POSITIONS * step + SLACK * BLOCK);
    let mut turned = Scratch::<f32>::new(POSITIONS * turned_step);
    let mut sums = Scratch::<f32>::zeroed(POSITIONS * cr.len() * mp);
    let (patches, turned, sums) = (patches.as_mut_ptr(), turned.as_mut_ptr(), sums.as_mut_ptr());
    // SAFETY: the caller's promise; scratch is sized for the channels of a block.
    unsafe { sets::tiles(Part { t, x, dy, cr, blocks, mp, to, step, turned_step, patches, turned, sums }) }
}

/// What [`part`] computes, with its scratch and the steps between positions. To be run as [`part`] says.
struct Part<'a> {
    t: &'a Tiling,
    x: &'a [f32],
    dy: &'a [f32],
    cr: Range<usize>,
    blocks: Range<usize>,
    mp: usize,
    to: &'a mut [f32],
    step: usize,
    turned_step: usize,
    patches: *mut f32,
    turned: *mut f32,
    sums: *mut f32,
}

impl TileKernel for Part<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let Part { t, x, dy, cr, blocks, mp, to, step, turned_step, patches, turned, sums } = self;
        let (mut from, mut under) = (Rows::<4>::default(), Rows::<2>::default());
        let mut squares = [[0.0; SQUARE]; 8];
        for block in blocks {
            // SAFETY: by contract.
            unsafe {
                for v in 0..BLOCK / LANES {
                    t.find(block * BLOCK + v * LANES, &mut from, &mut under);
                    for (i, c) in cr.clone().enumerate() {
                        let plane = x.as_ptr().add(c * t.input.len());
                        transform::patches::<V>(&from, plane, patches.add(i * BLOCK + v * LANES), step);
                    }
                    for m in (0..t.m).step_by(LANES) {
                        let planes = dy.as_ptr().add(m * t.output.len());
                        let to = turned.add(v * LANES * mp + m);
                        let channels = LANES.min(t.m - m);
                        gradients::<V>(&under, planes, t.output.len(), channels, &mut squares, to, mp, turned_step);
                    }
                }
                for p in 0..POSITIONS {
                    let (a, b) = (turned.add(p * turned_step), patches.add(p * step));
                    tile_weight::add_products::<V, R, N>(cr.len(), mp, a, b, sums.add(p * cr.len() * mp));
                }
            }
        }
        for (i, to) in to.chunks_exact_mut(9 * mp).enumerate() {
            for m in (0..mp).step_by(LANES) {
                // SAFETY: sixteen of `mp` channels, in the sums and in the result.
                unsafe { transform::taps::<V>(sums.add(i * mp + m), cr.len() * mp, to.as_mut_ptr().add(m), mp) };
            }
        }
    }
}

/// Sixteen tiles of sixteen channels.
const SQUARE: usize = LANES * LANES;

/// `A dy At` of sixteen tiles for up to sixteen channels: `to[tile][channel]`, rows `row` and positions `step` apart.
/// Of channels that do not exist it makes what `squares` held, which ends in sums that nothing reads.
///
/// # Safety
/// `planes` are those of the channels in the first image, `plane` elements apart.
#[inline(always)]
unsafe fn gradients<V: Vector>(
    under: &Rows<2>,
    planes: *const f32,
    plane: usize,
    channels: usize,
    squares: &mut [[f32; SQUARE]; 8],
    to: *mut f32,
    row: usize,
    step: usize,
) {
    // The four outputs of a tile, as [output][channel][tile] and turned.
    let (y, turned) = squares.split_at_mut(4);
    // SAFETY: by contract.
    unsafe {
        for m in 0..channels {
            for r in 0..2 {
                let [even, odd] = under.read::<V>(r, planes.add(m * plane));
                even.store(y[2 * r].as_mut_ptr().add(m * LANES));
                odd.store(y[2 * r + 1].as_mut_ptr().add(m * LANES));
            }
        }
        for (y, turned) in y.iter().zip(&mut *turned) {
            transpose16::<V>(y.as_ptr(), LANES, turned.as_mut_ptr(), LANES);
        }
        for tile in 0..LANES {
            let y = [0, 1, 2, 3].map(|i| V::load(turned[i].as_ptr().add(tile * LANES)));
            transform::gradients(y, to.add(tile * row), step);
        }
    }
}
