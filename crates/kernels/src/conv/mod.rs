//! Convolution in one to three dimensions: forward, gradient with respect to the input and gradient with respect to the weight.
//!
//! Any stride, padding, dilation and groups, for every float dtype (half types compute in f32). A transposed
//! convolution is [`grad_input`]. Memory is contiguous: `[batch, channels, spatial..]`, weights `[out, in / groups, kernel..]`.
//! Five ways, chosen by shape and dtype: `depthwise` (one input channel per group: loops along rows); in f32 `direct` (little
//! or no depth: shifted planes), `winograd` (3 x 3 of stride 1; [`set_winograd`] turns it off) and `tile`
//! (implicit matrix product); in f64 `columns` (im2col, then a matrix product).
//! Guarantees: bitwise equal for any number of threads. The bias gradient is not here (it is a sum).

mod columns;
mod depthwise;
mod direct;
mod taps;
mod tile;
mod tile_weight;
mod winograd;

use crate::real::{Real, RealsMut, Scratch, f32s, f32s_mut, reals, with_real};
use crate::{DType, Element, View, ViewMut, parallel};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Sizes of a convolution, with three spatial dimensions: missing leading ones are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Channels of the input, over all groups.
    pub in_channels: usize,
    /// Channels of the output, over all groups.
    pub out_channels: usize,
    /// Independent convolutions side by side; divides both channel counts.
    pub groups: usize,
    /// Spatial sizes of the input.
    pub input: [usize; 3],
    /// Spatial sizes of the kernel.
    pub kernel: [usize; 3],
    /// Steps of the kernel over the input.
    pub stride: [usize; 3],
    /// Zeros before and after each dimension of the input.
    pub padding: [usize; 3],
    /// Distances between taps of the kernel.
    pub dilation: [usize; 3],
    /// Spatial sizes of the output.
    pub output: [usize; 3],
}

impl ConvShape {
    /// A convolution in one to three dimensions, with the output size that follows.
    ///
    /// # Panics
    /// If the lengths disagree, a stride is 0 or the kernel does not fit: the caller has checked them.
    pub fn new(
        (batch, in_channels, out_channels, groups): (usize, usize, usize, usize),
        input: &[usize],
        kernel: &[usize],
        stride: &[usize],
        padding: &[usize],
        dilation: &[usize],
    ) -> ConvShape {
        let wide = |s: &[usize], fill: usize| {
            let mut a = [fill; 3];
            a[3 - s.len()..].copy_from_slice(s);
            a
        };
        let (input, kernel, padding) = (wide(input, 1), wide(kernel, 1), wide(padding, 0));
        let (stride, dilation) = (wide(stride, 1), wide(dilation, 1));
        let output = [0, 1, 2].map(|d| (input[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1);
        ConvShape { batch, in_channels, out_channels, groups, input, kernel, stride, padding, dilation, output }
    }

    fn group_in(&self) -> usize {
        self.in_channels / self.groups
    }
    fn group_out(&self) -> usize {
        self.out_channels / self.groups
    }
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
    /// Pixels of an input plane.
    fn in_plane(&self) -> usize {
        self.input.iter().product()
    }
    /// Pixels of an output plane.
    fn out_plane(&self) -> usize {
        self.output.iter().product()
    }
    fn in_len(&self) -> usize {
        self.batch * self.in_channels * self.in_plane()
    }
    fn out_len(&self) -> usize {
        self.batch * self.out_channels * self.out_plane()
    }
    fn weight_len(&self) -> usize {
        self.out_channels * self.group_in() * self.taps()
    }
    fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.group_in() == 1 && self.group_out() <= 4
    }

    /// The kernel positions of tap `t`.
    fn tap(&self, t: usize) -> [usize; 3] {
        let [_, kh, kw] = self.kernel;
        [t / (kh * kw), t / kw % kh, t % kw]
    }

    /// Output positions `lo..hi` along dimension `d` whose input under tap position `k` lies inside.
    fn reach(&self, d: usize, k: usize) -> (usize, usize) {
        let (s, p, at) = (self.stride[d], self.padding[d], k * self.dilation[d]);
        let hi = (self.input[d] + p).saturating_sub(at).div_ceil(s).min(self.output[d]);
        (p.saturating_sub(at).div_ceil(s).min(hi), hi)
    }
}

/// `out = conv(x, w) + bias`, with one bias value per output channel.
pub fn forward(shape: &ConvShape, x: View<'_>, w: View<'_>, bias: Option<View<'_>>, out: ViewMut<'_>) {
    assert!(x.numel() == shape.in_len() && w.numel() == shape.weight_len() && out.numel() == shape.out_len());
    with_real!(x.dtype(), T => {
        let (x, w, bias) = (reals::<T>(x), reals::<T>(w), bias.map(reals::<T>));
        let mut out = RealsMut::<T>::new(out);
        let bias = bias.as_deref();
        if shape.in_len() == 0 || shape.weight_len() == 0 {
            fill_bias(&mut out, bias, shape.out_channels, shape.out_plane());
        } else if T::DTYPE == DType::F32 && shape.is_depthwise() && direct::serves_depthwise(shape) {
            direct::depthwise(shape, f32s(&x), f32s(&w), bias.map(f32s), f32s_mut(&mut out));
        } else if shape.is_depthwise() {
            depthwise::forward(shape, &x, &w, bias, &mut out);
        } else if T::DTYPE == DType::F32 {
            let run = if winograd::serves(shape) { winograd::forward::forward } else { taps::forward };
            run(shape, f32s(&x), f32s(&w), bias.map(f32s), f32s_mut(&mut out));
        } else {
            columns::forward(shape, &x, &w, bias, &mut out);
        }
        out.finish();
    })
}

/// The gradient of [`forward`] with respect to its input, or the transposed convolution of `dy` (then with its bias, one value per
/// channel of `dx`).
pub fn grad_input(shape: &ConvShape, dy: View<'_>, w: View<'_>, bias: Option<View<'_>>, dx: ViewMut<'_>) {
    assert!(dy.numel() == shape.out_len() && w.numel() == shape.weight_len() && dx.numel() == shape.in_len());
    with_real!(dy.dtype(), T => {
        let (dy, w, bias) = (reals::<T>(dy), reals::<T>(w), bias.map(reals::<T>));
        let mut dx = RealsMut::<T>::new(dx);
        let bias = bias.as_deref();
        if shape.out_len() == 0 || shape.weight_len() == 0 {
            fill_bias(&mut dx, bias, shape.in_channels, shape.in_plane());
        } else if T::DTYPE == DType::F32 && shape.is_depthwise() && direct::serves_depthwise_grad(shape) {
            direct::depthwise_grad_input(shape, f32s(&dy), f32s(&w), bias.map(f32s), f32s_mut(&mut dx));
        } else if shape.is_depthwise() {
            depthwise::grad_input(shape, &dy, &w, bias, &mut dx);
        } else if T::DTYPE == DType::F32 {
            let run = if winograd::serves(shape) { winograd::forward::grad_input } else { taps::grad_input };
            run(shape, f32s(&dy), f32s(&w), bias.map(f32s), f32s_mut(&mut dx));
        } else {
            columns::grad_input(shape, &dy, &w, bias, &mut dx);
        }
        dx.finish();
    })
}

/// The gradient of [`forward`] with respect to its weight.
pub fn grad_weight(shape: &ConvShape, x: View<'_>, dy: View<'_>, dw: ViewMut<'_>) {
    assert!(x.numel() == shape.in_len() && dy.numel() == shape.out_len() && dw.numel() == shape.weight_len());
    with_real!(x.dtype(), T => {
        let (x, dy) = (reals::<T>(x), reals::<T>(dy));
        let mut dw = RealsMut::<T>::new(dw);
        if shape.out_len() == 0 || shape.in_len() == 0 {
            dw.fill(T::ZERO);
        } else if T::DTYPE == DType::F32 && direct::serves_weight(shape) {
            direct::grad_weight(shape, f32s(&x), f32s(&dy), f32s_mut(&mut dw));
        } else if shape.is_depthwise() {
            depthwise::grad_weight(shape, &x, &dy, &mut dw);
        } else if T::DTYPE == DType::F32 {
            let run = if winograd::serves_weight(shape) { winograd::weight::grad_weight } else { tile_weight::grad_weight };
            run(shape, f32s(&x), f32s(&dy), f32s_mut(&mut dw));
        } else {
            columns::grad_weight(shape, &x, &dy, &mut dw);
        }
        dw.finish();
    })
}

static WINOGRAD: AtomicBool = AtomicBool::new(true);

/// Sets whether 3 x 3 convolutions of stride 1 in f32 may be computed by Winograd's algorithm, process-wide.
/// They are by default: it takes 16 multiplications where the direct sum takes 36, and is equally accurate. It differs where
/// values are not finite: an infinity or NaN in the input reaches all outputs of a tile of 2 x 2 as NaN, not only those
/// whose window contains it; and inputs beyond about 1e37 may overflow.
pub fn set_winograd(on: bool) {
    WINOGRAD.store(on, Relaxed);
}

/// Whether convolutions may be computed by Winograd's algorithm; see [`set_winograd`].
pub fn winograd() -> bool {
    WINOGRAD.load(Relaxed)
}

/// Fills `[batch, channels, plane]` with the bias, or zero.
fn fill_bias<T: Real>(out: &mut [T], bias: Option<&[T]>, channels: usize, plane: usize) {
    if plane == 0 {
        return;
    }
    for (i, row) in out.chunks_exact_mut(plane).enumerate() {
        row.fill(bias.map_or(T::ZERO, |b| b[i % channels]));
    }
}

/// How many partial sums of `len` values a weight gradient keeps: by the sizes only, so that the sum is the same for
/// any number of threads. `units` is the amount of work to distribute.
fn partial_sums(units: usize, len: usize) -> usize {
    units.min(16).min((8 << 20) / len.max(1)).max(1)
}

/// Adds parts `1..` of equal length to the first, in order.
fn sum_parts<T: Real>(parts: &mut Scratch<T>, len: usize) {
    let (sum, rest) = parts.split_at_mut(len);
    let to = crate::real::Ptr::new(sum);
    parallel::split(len, 1 << 13, |r| {
        // SAFETY: the ranges are disjoint.
        #[allow(unsafe_code)]
        let to = unsafe { to.slice(r.start, r.len()) };
        for part in rest.chunks_exact(len) {
            for (a, &b) in to.iter_mut().zip(&part[r.clone()]) {
                *a += b;
            }
        }
    });
}

#[cfg(test)]
mod tests;
