//! Convolutions as lists of taps: forward, and grad-input as one stride-1 convolution per phase of the stride.
//!
//! A [`TapConv`] is what the tiles run: any set of offsets into the input, written to any regular grid of the output.
//! Stride, dilation and padding exist only here.

use super::{ConvShape, fill_bias, tile};
use crate::parallel;
use crate::real::{Ptr, Scratch};

/// `out[n, m, g * so + at] = sum over c, t of w[m, c, t] * input[n, c, g * si + taps[t]]` for every position `g` of the
/// grid, componentwise; reads outside the input are zero. One group: images lie `*_image` elements apart.
pub(super) struct TapConv {
    pub(super) n: usize,
    pub(super) c: usize,
    pub(super) m: usize,
    pub(super) input: [usize; 3],
    pub(super) in_image: usize,
    pub(super) grid: [usize; 3],
    pub(super) si: [usize; 3],
    pub(super) so: [usize; 3],
    pub(super) at: [usize; 3],
    pub(super) output: [usize; 3],
    pub(super) out_image: usize,
    pub(super) taps: Vec<[isize; 3]>,
}

impl TapConv {
    pub(super) fn in_plane(&self) -> usize {
        self.input.iter().product()
    }
    pub(super) fn out_plane(&self) -> usize {
        self.output.iter().product()
    }
    /// Positions of the grid over the whole batch.
    pub(super) fn pixels(&self) -> usize {
        self.n * self.grid.iter().product::<usize>()
    }
    /// Whether the grid is the whole output, so that neighbors in one are neighbors in the other.
    pub(super) fn is_dense(&self) -> bool {
        self.so == [1; 3] && self.grid == self.output
    }
}

/// The taps of the convolution itself.
pub(super) fn forward_taps(s: &ConvShape) -> TapConv {
    let taps = (0..s.taps())
        .map(|t| {
            let k = s.tap(t);
            [0, 1, 2].map(|d| (k[d] * s.dilation[d]) as isize - s.padding[d] as isize)
        })
        .collect();
    TapConv {
        n: s.batch,
        c: s.group_in(),
        m: s.group_out(),
        input: s.input,
        in_image: s.in_channels * s.in_plane(),
        grid: s.output,
        si: s.stride,
        so: [1; 3],
        at: [0; 3],
        output: s.output,
        out_image: s.out_channels * s.out_plane(),
        taps,
    }
}

pub(super) fn forward(s: &ConvShape, x: &[f32], w: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
    tile::run(&forward_taps(s), s.groups, x, w, bias, out);
}

/// Strides split the input in phases; each is a stride-1 convolution of `dy` with the taps that reach it.
/// For stride 1 that is the flipped, channel-swapped convolution.
pub(super) fn grad_input(s: &ConvShape, dy: &[f32], w: &[f32], bias: Option<&[f32]>, dx: &mut [f32]) {
    let (taps, mg, cg) = (s.taps(), s.group_out(), s.group_in());
    let mut phases = Vec::new();
    // A phase that begins beyond the input has no elements.
    let [starts, sh, sw] = [0, 1, 2].map(|d| s.stride[d].min(s.input[d]));
    for i in 0..starts * sh * sw {
        let at = [i / (sh * sw), i / sw % sh, i % sw];
        // Tap k reaches input `at + stride * g` from output `g + (at + padding - k * dilation) / stride`, if that divides.
        let reach = |t: usize| -> Option<[isize; 3]> {
            let (k, mut from) = (s.tap(t), [0; 3]);
            for d in 0..3 {
                let v = (at[d] + s.padding[d]) as isize - (k[d] * s.dilation[d]) as isize;
                let stride = s.stride[d] as isize;
                if v.rem_euclid(stride) != 0 {
                    return None;
                }
                from[d] = v.div_euclid(stride);
            }
            Some(from)
        };
        let kept: Vec<(usize, [isize; 3])> = (0..taps).filter_map(|t| Some((t, reach(t)?))).collect();
        phases.push((at, kept));
    }
    if phases.iter().any(|(_, kept)| kept.is_empty()) {
        fill_bias(dx, bias, s.in_channels, s.in_plane());
    }
    let mut turned = Scratch::<f32>::new(s.weight_len());
    for (at, kept) in phases.into_iter().filter(|(_, kept)| !kept.is_empty()) {
        // Weights of this phase as [in channel][out channel of the group][tap].
        let row = mg * kept.len();
        let to = Ptr::new(&mut turned);
        // Sixteen channels at a time, so that each output channel is read in long pieces.
        parallel::split(s.in_channels, 16, |r| {
            for m in 0..mg {
                for i in r.clone() {
                    let (g, c) = (i / cg, i % cg);
                    let from = &w[((g * mg + m) * cg + c) * taps..][..taps];
                    // SAFETY: one row an input channel; they are disjoint.
                    #[allow(unsafe_code)]
                    let to = unsafe { to.slice(i * row + m * kept.len(), kept.len()) };
                    for (to, &(t, _)) in to.iter_mut().zip(&kept) {
                        *to = from[t];
                    }
                }
            }
        });
        let tc = TapConv {
            n: s.batch,
            c: mg,
            m: cg,
            input: s.output,
            in_image: s.out_channels * s.out_plane(),
            grid: [0, 1, 2].map(|d| (s.input[d] - at[d]).div_ceil(s.stride[d])),
            si: [1; 3],
            so: s.stride,
            at,
            output: s.input,
            out_image: s.in_channels * s.in_plane(),
            taps: kept.iter().map(|k| k.1).collect(),
        };
        tile::run(&tc, s.groups, dy, &turned[..s.in_channels * row], bias, dx);
    }
}
