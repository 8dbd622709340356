//! Where tiles lie: the tiles of a whole batch in one row, sixteen to a vector, and how vectors of them are read and written.
//!
//! Tiles are numbered through rows, planes and images, so that small planes still fill vectors. Sixteen tiles are one or
//! more *stretches* of a row of tiles; what must be loaded for them is found once and used for every channel. It knows
//! planes and masks, but no weights and no sums.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::super::ConvShape;
pub(super) use crate::sets::LANES;
use crate::sets::Vector;

/// The planes of one side of a convolution.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Elements from image to image.
    pub(super) image: usize,
}

impl Planes {
    pub(super) fn len(&self) -> usize {
        self.height * self.width
    }
}

/// `out[n, m, y, x] = sum over c, i, j of w[m, c, i, j] * input[n, c, y + i - pad, x + j - pad]` for one group, in tiles.
pub(super) struct Tiling {
    pub(super) images: usize,
    pub(super) c: usize,
    pub(super) m: usize,
    pub(super) input: Planes,
    pub(super) output: Planes,
    pub(super) pad: [isize; 2],
    down: usize,
    across: usize,
}

impl Tiling {
    pub(super) fn new(s: &ConvShape) -> Tiling {
        let side = |d: [usize; 3], channels| Planes { height: d[1], width: d[2], image: channels * d[1] * d[2] };
        Tiling {
            images: s.batch,
            c: s.group_in(),
            m: s.group_out(),
            input: side(s.input, s.in_channels),
            output: side(s.output, s.out_channels),
            pad: [s.padding[1] as isize, s.padding[2] as isize],
            down: s.output[1].div_ceil(2),
            across: s.output[2].div_ceil(2),
        }
    }

    /// The convolution that maps the gradient of the output to that of the input, with weights rotated by 180 degrees.
    pub(super) fn transposed(s: &ConvShape) -> Tiling {
        let t = Tiling::new(s);
        Tiling {
            c: t.m,
            m: t.c,
            input: t.output,
            output: t.input,
            pad: t.pad.map(|p| 2 - p),
            down: s.input[1].div_ceil(2),
            across: s.input[2].div_ceil(2),
            ..t
        }
    }

    pub(super) fn tiles(&self) -> usize {
        self.images * self.down * self.across
    }

    /// Where the sixteen tiles from `first` on lie: how to read their patches, and how to read or write their outputs.
    pub(super) fn find(&self, first: usize, patches: &mut Rows<4>, outputs: &mut Rows<2>) {
        let end = (first + LANES).min(self.tiles());
        let (mut stretches, mut count) = ([Stretch::default(); LANES], 0);
        let mut at = first;
        while at < end {
            let (line, x) = (at / self.across, at % self.across);
            let (image, y) = (line / self.down, line % self.down);
            let len = (self.across - x).min(end - at);
            stretches[count] = Stretch { image, y, x, lane: at - first, len };
            (at, count) = (at + len, count + 1);
        }
        patches.find(&stretches[..count], &self.input, self.pad);
        outputs.find(&stretches[..count], &self.output, [0, 0]);
    }
}

/// Tiles of one row of tiles, in lanes `lane..lane + len`.
#[derive(Clone, Copy, Default)]
struct Stretch {
    image: usize,
    y: usize,
    x: usize,
    lane: usize,
    len: usize,
}

/// A piece of a row of a plane: what one half of a vector of pairs takes from one stretch.
#[derive(Clone, Copy)]
struct Piece {
    /// From the channel's plane in the first image; may point outside where masks are empty.
    at: isize,
    /// Which of the sixteen elements from there on belong to the stretch and lie inside the plane.
    near: u16,
    /// The same of the elements two further on.
    far: u16,
}

/// `R` consecutive rows under sixteen tiles. Lane `l` has the columns `2l`, `2l + 1` and, for patches, `2l + 2` and
/// `2l + 3` of a row: pairs of elements, in two halves of sixteen.
#[derive(Default)]
pub(super) struct Rows<const R: usize> {
    /// By row, then half, then stretch.
    pieces: Vec<Piece>,
    /// The same of one row, with the first row of each stretch: room for [`Rows::find`].
    columns: Vec<(isize, Piece)>,
    /// Stretches that touch each half.
    count: [usize; 2],
}

/// Bits `lo..hi`, clamped to 0..=16.
fn bits(lo: isize, hi: isize) -> u16 {
    let ones = |n: isize| (1u32 << n.clamp(0, 16)) - 1;
    (ones(hi) & !ones(lo)) as u16
}

impl<const R: usize> Rows<R> {
    fn find(&mut self, stretches: &[Stretch], planes: &Planes, pad: [isize; 2]) {
        let (height, width) = (planes.height as isize, planes.width as isize);
        self.pieces.clear();
        // What lies under a half is the same in every row, but for rows outside of the plane.
        for half in 0..2 {
            let before = self.columns.len();
            for s in stretches {
                // The stretch takes positions 2 lane..2 (lane + len) of 32; counted from the first of this half:
                let lo = 2 * s.lane as isize - 16 * half;
                let hi = lo + 2 * s.len as isize;
                if hi <= 0 || lo >= 16 {
                    continue;
                }
                let (top, x) = (2 * s.y as isize - pad[0], 2 * s.x as isize - pad[1] - lo);
                let window = |x: isize| bits(lo.max(-x), hi.min(width - x));
                let at = (s.image * planes.image) as isize + top * width + x;
                self.columns.push((top, Piece { at, near: window(x), far: window(x + 2) }));
            }
            self.count[half as usize] = self.columns.len() - before;
        }
        for row in 0..R as isize {
            for &(top, Piece { at, near, far }) in &self.columns {
                let inside = if (0..height).contains(&(top + row)) { u16::MAX } else { 0 };
                self.pieces.push(Piece { at: at + row * width, near: near & inside, far: far & inside });
            }
        }
        self.columns.clear();
    }

    /// The pieces of both halves of a row.
    #[inline(always)]
    fn row(&self, r: usize) -> [&[Piece]; 2] {
        let [a, b] = self.count;
        let both = &self.pieces[r * (a + b)..][..a + b];
        [&both[..a], &both[a..]]
    }
}

impl Rows<4> {
    /// The four columns of row `r` of sixteen patches; zero outside the plane.
    ///
    /// # Safety
    /// `plane` is the channel's plane in the first image.
    #[inline(always)]
    pub(super) unsafe fn patch_row<V: Vector>(&self, r: usize, plane: *const f32) -> [V; 4] {
        let (mut near, mut far) = ([V::zero(); 2], [V::zero(); 2]);
        let halves = self.row(r);
        for h in 0..2 {
            for p in halves[h] {
                let from = plane.wrapping_offset(p.at);
                // SAFETY: elements that a mask leaves out are not touched; the others are inside the plane.
                unsafe {
                    near[h] = near[h].load_over(p.near, from);
                    far[h] = far[h].load_over(p.far, from.wrapping_add(2));
                }
            }
        }
        let ([a, b], [c, d]) = (near[0].unzip(near[1]), far[0].unzip(far[1]));
        [a, b, c, d]
    }
}

impl Rows<2> {
    /// The even and the odd columns of row `r` of sixteen tiles; zero outside the plane.
    ///
    /// # Safety
    /// `plane` is the channel's plane in the first image.
    #[inline(always)]
    pub(super) unsafe fn read<V: Vector>(&self, r: usize, plane: *const f32) -> [V; 2] {
        let mut near = [V::zero(); 2];
        let halves = self.row(r);
        for h in 0..2 {
            for p in halves[h] {
                // SAFETY: elements that the mask leaves out are not touched; the others are inside the plane.
                near[h] = unsafe { near[h].load_over(p.near, plane.wrapping_offset(p.at)) };
            }
        }
        near[0].unzip(near[1])
    }

    /// Writes the even and the odd columns of row `r` of sixteen tiles.
    ///
    /// # Safety
    /// `plane` is the channel's plane in the first image, and nothing else uses these tiles of it.
    #[inline(always)]
    pub(super) unsafe fn write<V: Vector>(&self, r: usize, y: [V; 2], plane: *mut f32) {
        let both = y[0].zip(y[1]);
        let halves = self.row(r);
        for h in 0..2 {
            for p in halves[h] {
                // SAFETY: the mask keeps inside the plane and the tiles.
                unsafe { both[h].store_some(p.near, plane.wrapping_offset(p.at)) };
            }
        }
    }
}
