//! Convolutions of stride 1, and depthwise ones of stride 2, over planes with zeros around them, in f32: every tap is the plane, shifted.
//!
//! A plane is copied once into room with its padding and a few columns more, so that vectors of a row never ask where it ends. Then
//! the depthwise convolution keeps rows of outputs in registers while it walks over the taps, and the gradient of the
//! weight keeps one sum for each of several taps and output channels while it walks over the pixels. That is the faster way
//! where there is little or no depth to multiply over: depthwise kernels, and the first layer of a net.
//!
//! Guarantees: jobs are planes, or parts of the batch whose number depends on the sizes only, so results do not depend on the number of threads.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::{ConvShape, partial_sums};
use crate::parallel;
use crate::real::{Ptr, Scratch};
use crate::sets::{self, LANES, TileKernel, Vector, first};

/// Taps whose sums are in registers at once.
const TAPS: usize = 6;
/// Output channels likewise.
const CHANNELS: usize = 4;
/// Rows of outputs likewise.
const ROWS: usize = 4;

/// Whether there are at most two dimensions, and no gaps.
fn is_planar(s: &ConvShape) -> bool {
    s.dilation == [1; 3] && s.kernel[0] == 1 && s.input[0] == 1 && s.padding[0] == 0 && s.stride[0] == 1
}

/// Whether the outputs are the input's plane, shifted: no steps either.
fn is_shifted(s: &ConvShape) -> bool {
    is_planar(s) && s.stride == [1; 3]
}

/// Whether a depthwise convolution is worth the copy of its planes: small kernels are not.
fn pays(s: &ConvShape) -> bool {
    s.taps() >= 9 && s.output[2] >= 4 && s.padding[1] < s.kernel[1] && s.padding[2] < s.kernel[2]
}

/// Whether [`depthwise`] takes this depthwise convolution, and is the better choice.
pub(super) fn serves_depthwise(s: &ConvShape) -> bool {
    is_planar(s) && matches!(s.stride, [1, 1, 1] | [1, 2, 2]) && pays(s)
}

/// The same of [`depthwise_grad_input`].
pub(super) fn serves_depthwise_grad(s: &ConvShape) -> bool {
    is_shifted(s) && pays(s)
}

/// Whether [`grad_weight`] takes this convolution, and is the better choice.
pub(super) fn serves_weight(s: &ConvShape) -> bool {
    is_shifted(s) && s.taps() >= 9 && s.group_in() <= 4 && s.output[2] >= 8
}

/// A plane with room around it.
#[derive(Clone, Copy)]
struct Frame {
    height: usize,
    /// From one row to the next.
    step: usize,
}

impl Frame {
    /// For outputs of these sizes under a kernel that moves by a stride: whole vectors of outputs read no further.
    fn new(output: [usize; 3], kernel: [usize; 3], stride: usize) -> Frame {
        let step = (stride * output[2].next_multiple_of(2 * LANES) + kernel[2] - 1).next_multiple_of(LANES);
        Frame { height: stride * (output[1] - 1) + kernel[1], step }
    }

    fn len(&self) -> usize {
        self.height * self.step
    }

    /// Copies a plane of rows of `width` to its place behind the padding; the rest of the room is zero already.
    fn fill(&self, plane: &[f32], width: usize, [_, top, left]: [usize; 3], to: &mut [f32]) {
        for (row, to) in plane.chunks_exact(width).zip(to[top * self.step..].chunks_mut(self.step)) {
            to[left..left + width].copy_from_slice(row);
        }
    }
}

/// The convolution of one plane with one kernel.
struct Plane<'a> {
    frame: Frame,
    from: &'a [f32],
    kernel: [usize; 2],
    /// 1 or 2, in both dimensions.
    stride: usize,
    weight: &'a [f32],
    bias: f32,
    output: [usize; 2],
    out: Ptr<f32>,
    /// Whether to add to what is in `out`, in place of the bias.
    add: bool,
}

impl TileKernel for Plane<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        // SAFETY: the caller's promise.
        unsafe {
            match (N, self.stride) {
                (1, 1) => self.tiles::<V, 2, 1>(),
                (1, _) => self.steps::<V, 2, 1>(),
                (_, 1) if self.output[1] <= LANES => self.tiles::<V, ROWS, 1>(),
                (_, 1) => self.tiles::<V, ROWS, 2>(),
                _ if self.output[1] <= LANES => self.steps::<V, ROWS, 1>(),
                _ => self.steps::<V, ROWS, 2>(),
            }
        }
    }
}

impl Plane<'_> {
    /// # Safety
    /// The machine has the instruction set of `V`; the frame holds the plane, and `out` the output.
    #[inline(always)]
    unsafe fn tiles<V: Vector, const R: usize, const N: usize>(self) {
        let Plane { frame, from, kernel: [kh, kw], weight, output: [height, width], .. } = self;
        assert!(from.len() >= frame.len() && weight.len() >= kh * kw);
        assert!(frame.height >= height + kh - 1 && frame.step >= width.next_multiple_of(2 * LANES) + kw - 1);
        for y in (0..height).step_by(R) {
            for x in (0..width).step_by(N * LANES) {
                let mut sums = [[V::zero(); N]; R];
                let last = (R + kh - 1).min(frame.height - y);
                for row in 0..last {
                    let at = from.as_ptr().wrapping_add((y + row) * frame.step + x);
                    // SAFETY: rows and columns are inside the frame by the assertion; weights by theirs.
                    unsafe {
                        if row + 1 >= R && row < kh {
                            // Every output row of the tile has a tap here.
                            for k in 0..kw {
                                let mut v = [V::zero(); N];
                                for h in 0..N {
                                    v[h] = V::load(at.add(k + h * LANES));
                                }
                                for r in 0..R {
                                    let w = V::splat(*weight.as_ptr().add((row - r) * kw + k));
                                    for h in 0..N {
                                        sums[r][h] = w.mul_add(v[h], sums[r][h]);
                                    }
                                }
                            }
                            continue;
                        }
                        for r in 0..R {
                            let tap = row.wrapping_sub(r);
                            if tap < kh {
                                for k in 0..kw {
                                    let w = V::splat(*weight.as_ptr().add(tap * kw + k));
                                    for h in 0..N {
                                        sums[r][h] = w.mul_add(V::load(at.add(k + h * LANES)), sums[r][h]);
                                    }
                                }
                            }
                        }
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { self.put([y, x], sums) }
            }
        }
    }

    /// Like [`Plane::tiles`] for a stride of 2: every other column of the frame, taken from two vectors.
    ///
    /// # Safety
    /// Like [`Plane::tiles`].
    #[inline(always)]
    unsafe fn steps<V: Vector, const R: usize, const N: usize>(self) {
        const S: usize = 2;
        let Plane { frame, from, kernel: [kh, kw], weight, output: [height, width], .. } = self;
        assert!(from.len() >= frame.len() && weight.len() >= kh * kw);
        assert!(frame.height >= S * (height - 1) + kh && frame.step >= S * width.next_multiple_of(2 * LANES) + kw - 1);
        for y in (0..height).step_by(R) {
            for x in (0..width).step_by(N * LANES) {
                let mut sums = [[V::zero(); N]; R];
                let last = (S * (R - 1) + kh).min(frame.height - S * y);
                for row in 0..last {
                    let at = from.as_ptr().wrapping_add((S * y + row) * frame.step + S * x);
                    for k in 0..kw {
                        // SAFETY: rows and columns are inside the frame by the assertion; weights by theirs.
                        unsafe {
                            let mut v = [V::zero(); N];
                            for h in 0..N {
                                let at = at.add(k + h * S * LANES);
                                v[h] = V::load(at).unzip(V::load(at.add(LANES)))[0];
                            }
                            for r in 0..R {
                                let tap = row.wrapping_sub(S * r);
                                if tap < kh {
                                    let w = V::splat(*weight.as_ptr().add(tap * kw + k));
                                    for h in 0..N {
                                        sums[r][h] = w.mul_add(v[h], sums[r][h]);
                                    }
                                }
                            }
                        }
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { self.put([y, x], sums) }
            }
        }
    }

    /// Writes finished sums from a row and a column of the output on.
    ///
    /// # Safety
    /// Like [`Plane::tiles`].
    #[inline(always)]
    unsafe fn put<V: Vector, const R: usize, const N: usize>(&self, [y, x]: [usize; 2], sums: [[V; N]; R]) {
        let Plane { bias, output: [height, width], out, add, .. } = *self;
        for r in 0..R {
            if y + r == height {
                break;
            }
            for h in 0..N {
                let mask = first(width.saturating_sub(x + h * LANES));
                let to = out.at((y + r) * width + x + h * LANES);
                // SAFETY: the mask keeps to the row.
                unsafe {
                    let start = if add { V::load_some(mask, to) } else { V::splat(bias) };
                    sums[r][h].add(start).store_some(mask, to);
                }
            }
        }
    }
}

/// The forward of a depthwise convolution that [`serves_depthwise`] has accepted.
pub(super) fn depthwise(s: &ConvShape, x: &[f32], w: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
    let (pixels, plane, mg, taps) = (s.out_plane(), s.in_plane(), s.group_out(), s.taps());
    let frame = Frame::new(s.output, s.kernel, s.stride[1]);
    let to = Ptr::new(out);
    parallel::split(s.batch * s.in_channels, grain(s), |r| {
        let mut room = Scratch::<f32>::zeroed(frame.len());
        for i in r {
            let (n, c) = (i / s.in_channels, i % s.in_channels);
            frame.fill(&x[i * plane..][..plane], s.input[2], s.padding, &mut room);
            for m in c * mg..(c + 1) * mg {
                // SAFETY: each input plane has output planes of its own; the frame was made for these sizes.
                unsafe {
                    sets::tiles(Plane {
                        frame,
                        from: &room,
                        kernel: [s.kernel[1], s.kernel[2]],
                        stride: s.stride[1],
                        weight: &w[m * taps..][..taps],
                        bias: bias.map_or(0.0, |b| b[m]),
                        output: [s.output[1], s.output[2]],
                        out: Ptr::at_address(to.at((n * s.out_channels + m) * pixels)),
                        add: false,
                    });
                }
            }
        }
    });
}

/// The gradient of [`depthwise`] with respect to its input: a convolution of `dy` with the kernel turned around.
pub(super) fn depthwise_grad_input(s: &ConvShape, dy: &[f32], w: &[f32], bias: Option<&[f32]>, dx: &mut [f32]) {
    let (pixels, plane, mg, taps) = (s.out_plane(), s.in_plane(), s.group_out(), s.taps());
    let frame = Frame::new(s.input, s.kernel, 1);
    let around = [0, s.kernel[1] - 1 - s.padding[1], s.kernel[2] - 1 - s.padding[2]];
    let mut turned = Scratch::<f32>::copy_of(w);
    turned.chunks_exact_mut(taps).for_each(<[f32]>::reverse);
    let to = Ptr::new(dx);
    parallel::split(s.batch * s.in_channels, grain(s), |r| {
        let mut room = Scratch::<f32>::zeroed(frame.len());
        for i in r {
            let (n, c) = (i / s.in_channels, i % s.in_channels);
            for m in c * mg..(c + 1) * mg {
                let from = &dy[(n * s.out_channels + m) * pixels..][..pixels];
                frame.fill(from, s.output[2], around, &mut room);
                // SAFETY: one input plane a step; the frame was made for these sizes.
                unsafe {
                    sets::tiles(Plane {
                        frame,
                        from: &room,
                        kernel: [s.kernel[1], s.kernel[2]],
                        stride: 1,
                        weight: &turned[m * taps..][..taps],
                        bias: bias.map_or(0.0, |b| b[c]),
                        output: [s.input[1], s.input[2]],
                        out: Ptr::at_address(to.at(i * plane)),
                        add: m > c * mg,
                    });
                }
            }
        }
    });
}

fn grain(s: &ConvShape) -> usize {
    (1 << 18) / (s.taps() * s.out_plane()) + 1
}

/// The gradient of the weight of a convolution that [`serves_weight`] has accepted.
pub(super) fn grad_weight(s: &ConvShape, x: &[f32], dy: &[f32], dw: &mut [f32]) {
    let (cg, mg, taps, plane, pixels) = (s.group_in(), s.group_out(), s.taps(), s.in_plane(), s.out_plane());
    let frame = Frame::new(s.output, s.kernel, 1);
    let depth = cg * taps;
    let parts = partial_sums(s.batch, s.weight_len());
    let mut sums = Scratch::<f32>::new(parts * s.weight_len());
    let to = Ptr::new(&mut sums);
    parallel::run(parts * s.groups, &|job| {
        let (part, g) = (job / s.groups, job % s.groups);
        let mut room = Scratch::<f32>::zeroed(cg * frame.len());
        let mut lanes = Scratch::<f32>::zeroed(mg * depth * LANES);
        for n in s.batch * part / parts..s.batch * (part + 1) / parts {
            for c in 0..cg {
                let from = &x[(n * s.in_channels + g * cg + c) * plane..][..plane];
                frame.fill(from, s.input[2], s.padding, &mut room[c * frame.len()..][..frame.len()]);
            }
            let dy = &dy[(n * s.out_channels + g * mg) * pixels..][..mg * pixels];
            // SAFETY: planes, frames and sums have the sizes of the shape.
            unsafe { sets::tiles(Image { s, frame, from: &room, dy, lanes: Ptr::new(&mut lanes) }) };
        }
        // SAFETY: each job has sums of its own.
        let to = unsafe { to.slice((part * s.groups + g) * mg * depth, mg * depth) };
        for (to, lanes) in to.iter_mut().zip(lanes.as_chunks::<LANES>().0) {
            let mut half = [0.0; 8];
            for l in 0..8 {
                half[l] = lanes[l] + lanes[l + 8];
            }
            *to = ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]));
        }
    });
    super::sum_parts(&mut sums, s.weight_len());
    dw.copy_from_slice(&sums[..s.weight_len()]);
}

/// One image of a group: adds to `lanes`, which has sixteen partial sums for each `[m][c][tap]`.
struct Image<'a> {
    s: &'a ConvShape,
    frame: Frame,
    from: &'a [f32],
    dy: &'a [f32],
    lanes: Ptr<f32>,
}

impl TileKernel for Image<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Vector, const R: usize, const N: usize>(self) {
        let (depth, mg) = (self.s.group_in() * self.s.taps(), self.s.group_out());
        assert!(self.dy.len() == mg * self.s.out_plane() && self.from.len() == self.s.group_in() * self.frame.len());
        let mut m = 0;
        while m < mg {
            let count = if N == 1 || mg - m < CHANNELS { 1 } else { CHANNELS };
            for t in (0..depth).step_by(TAPS) {
                // SAFETY: the caller's promise.
                unsafe {
                    match count {
                        1 => self.correlate::<V, 1>(m, t),
                        _ => self.correlate::<V, CHANNELS>(m, t),
                    }
                }
            }
            m += count;
        }
    }
}

impl Image<'_> {
    /// Sums of M output channels from `m` on and [`TAPS`] taps from `t` on. Taps that do not exist are the last one, and not kept.
    ///
    /// # Safety
    /// The channels exist, and all slices have the sizes of the shape.
    #[inline(always)]
    unsafe fn correlate<V: Vector, const M: usize>(&self, m: usize, t: usize) {
        let (taps, frame, [_, height, width]) = (self.s.taps(), self.frame, self.s.output);
        let (kw, plane, depth) = (self.s.kernel[2], height * width, self.s.group_in() * taps);
        let mut at = [self.from.as_ptr(); TAPS];
        for i in 0..TAPS {
            let tap = (t + i).min(depth - 1);
            let (c, k) = (tap / taps, tap % taps);
            at[i] = at[i].wrapping_add(c * frame.len() + k / kw * frame.step + k % kw);
        }
        let dy = self.dy.as_ptr().wrapping_add(m * plane);
        // SAFETY: whole vectors of outputs stay inside the frame, masks inside the rows of `dy`.
        unsafe {
            let mut sums = [[V::zero(); TAPS]; M];
            for y in 0..height {
                for x in (0..width).step_by(LANES) {
                    let (row, from) = (y * width + x, y * frame.step + x);
                    let mut d = [V::zero(); M];
                    for r in 0..M {
                        d[r] = match width - x >= LANES {
                            true => V::load(dy.add(r * plane + row)),
                            false => V::load_some(first(width - x), dy.add(r * plane + row)),
                        };
                    }
                    for i in 0..TAPS {
                        let v = V::load(at[i].add(from));
                        for r in 0..M {
                            sums[r][i] = d[r].mul_add(v, sums[r][i]);
                        }
                    }
                }
            }
            for r in 0..M {
                for i in 0..TAPS {
                    if t + i < depth {
                        let to = self.lanes.at(((m + r) * depth + t + i) * LANES);
                        V::load(to).add(sums[r][i]).store(to);
                    }
                }
            }
        }
    }
}
