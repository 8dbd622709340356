//! 3 x 3 convolutions of stride 1 by Winograd's F(2 x 2, 3 x 3), in f32: 16 multiplications where the direct sum takes 36.
//!
//! An output is cut in tiles of 2 x 2; each reads a 4 x 4 patch `d` of the input, patches overlap by two. With
//!
//! ```text
//!      1  0 -1  0          1    0    0
//! Bt = 0  1  1  0     G = 1/2  1/2  1/2     At = 1  1  1  0
//!      0 -1  1  0         1/2 -1/2  1/2          0  1 -1 -1
//!      0  1  0 -1          0    0    1
//! ```
//!
//! a tile is `At [sum over channels of (G g Gt) * (Bt d B)] A`: for each of the 16 positions one matrix product, channels
//! by tiles. The input gradient is the same with flipped weights; the weight gradient is the adjoint,
//! `Gt [sum over tiles of (A dy At) * (Bt d B)] G`, with the same matrices.
//!
//! Guarantees: bitwise equal for any number of threads, since a tile's sum depends on its own patch only, and a weight's on
//! parts cut by size. Errors are as small as those of the direct sum: all entries are 0, ±1 and ±1/2, so that only the
//! sums of at most nine values before and after the products round.
//!
//! Differences from the direct sum: a non-finite value reaches all four outputs of each tile whose patch contains
//! it, as NaN, even where the direct sum does not read it, or has an infinity; and a value beyond a quarter of the largest
//! float may overflow. [`set_winograd`](super::set_winograd) turns this path off.

pub(super) mod forward;
mod tiles;
mod transform;
pub(super) mod weight;

use super::ConvShape;

/// Fewer tiles than this are not worth it.
const FEWEST: usize = 32;

/// Whether the algorithm computes this convolution and its input gradient faster. By sizes only, never by threads.
pub(super) fn serves(s: &ConvShape) -> bool {
    // Weights are transformed for few tiles as for many.
    tiles(s) >= FEWEST.max(s.group_in() * s.group_out() / 4096) && s.group_in().min(s.group_out()) >= 3
}

/// The same of the weight gradient, which multiplies up to 24 input channels at once.
pub(super) fn serves_weight(s: &ConvShape) -> bool {
    serves(s) && s.group_in() >= 12
}

/// How many tiles there are on the smaller side; none if this is not a convolution to be tiled.
fn tiles(s: &ConvShape) -> usize {
    let plane = (s.kernel, s.padding[0], s.input[0], s.output[0]) == ([1, 3, 3], 0, 1, 1);
    let every = s.stride == [1; 3] && s.dilation == [1; 3];
    let count = |d: [usize; 3]| s.batch * d[1].div_ceil(2) * d[2].div_ceil(2);
    if super::winograd() && plane && every { count(s.input).min(count(s.output)) } else { 0 }
}
