//! A [`Vector`] of several narrower registers. A set with such registers implements [`Register`] and nothing else.
#![allow(unsafe_code)]
// Registers are indexed by constants on purpose: that is what gets unrolled.
#![allow(clippy::needless_range_loop)]

use super::{LANES, Vector};

/// A register of a power of two f32, at most eight. As with [`Vector`], only code inside an entry of the set handles them.
pub(super) trait Register: Copy {
    /// How many values it holds.
    const LANES: usize;
    fn splat(v: f32) -> Self;
    /// # Safety
    /// Its lanes are readable.
    unsafe fn load(from: *const f32) -> Self;
    /// # Safety
    /// Its lanes are writable.
    unsafe fn store(self, to: *mut f32);
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// `self * b + c`, rounded once where that is an instruction.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// The even lanes of both, and the odd ones.
    fn unzip(self, o: Self) -> [Self; 2];
    /// The inverse of [`Register::unzip`].
    fn zip(self, o: Self) -> [Self; 2];

    /// The lanes of the mask, which is neither empty nor full; the others are those of `self`.
    ///
    /// # Safety
    /// The lanes of the mask are readable.
    #[inline(always)]
    unsafe fn load_over(self, mask: u16, from: *const f32) -> Self {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller's promise; a register has at most sixteen lanes.
        unsafe {
            self.store(lanes.as_mut_ptr());
            for l in 0..Self::LANES {
                if mask >> l & 1 != 0 {
                    lanes[l] = *from.add(l);
                }
            }
            Self::load(lanes.as_ptr())
        }
    }

    /// Stores the lanes of the mask, which is neither empty nor full.
    ///
    /// # Safety
    /// The lanes of the mask are writable.
    #[inline(always)]
    unsafe fn store_some(self, mask: u16, to: *mut f32) {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller's promise; a register has at most sixteen lanes.
        unsafe {
            self.store(lanes.as_mut_ptr());
            for l in 0..Self::LANES {
                if mask >> l & 1 != 0 {
                    *to.add(l) = lanes[l];
                }
            }
        }
    }
}

/// `N` registers, sixteen lanes in all.
#[derive(Clone, Copy)]
pub(super) struct Wide<R, const N: usize>([R; N]);

impl<R: Register, const N: usize> Wide<R, N> {
    /// All lanes of one register.
    const FULL: u16 = ((1u32 << R::LANES) - 1) as u16;

    #[inline(always)]
    fn map2(self, o: Self, f: impl Fn(R, R) -> R) -> Self {
        let mut out = self.0;
        for i in 0..N {
            out[i] = f(self.0[i], o.0[i]);
        }
        Wide(out)
    }
}

impl<R: Register, const N: usize> Vector for Wide<R, N> {
    #[inline(always)]
    fn splat(v: f32) -> Self {
        const { assert!(R::LANES * N == LANES && N > 1) };
        Wide([R::splat(v); N])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        let mut out = Self::zero();
        for i in 0..N {
            // SAFETY: the caller's promise.
            out.0[i] = unsafe { R::load(from.add(i * R::LANES)) };
        }
        out
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        for i in 0..N {
            // SAFETY: the caller's promise.
            unsafe { self.0[i].store(to.add(i * R::LANES)) };
        }
    }

    #[inline(always)]
    unsafe fn load_over(self, mask: u16, from: *const f32) -> Self {
        let mut out = self;
        for i in 0..N {
            let (mask, from) = (mask >> (i * R::LANES) & Self::FULL, from.wrapping_add(i * R::LANES));
            // SAFETY: the caller's promise.
            unsafe {
                if mask == Self::FULL {
                    out.0[i] = R::load(from);
                } else if mask != 0 {
                    out.0[i] = out.0[i].load_over(mask, from);
                }
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn store_some(self, mask: u16, to: *mut f32) {
        for i in 0..N {
            let (mask, to) = (mask >> (i * R::LANES) & Self::FULL, to.wrapping_add(i * R::LANES));
            // SAFETY: the caller's promise.
            unsafe {
                if mask == Self::FULL {
                    self.0[i].store(to);
                } else if mask != 0 {
                    self.0[i].store_some(mask, to);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn gather(mask: u16, from: *const f32, offsets: &[i32; LANES]) -> Self {
        let mut lanes = [0.0; LANES];
        for l in 0..LANES {
            if mask >> l & 1 != 0 {
                // SAFETY: the caller's promise.
                lanes[l] = unsafe { *from.offset(offsets[l] as isize) };
            }
        }
        // SAFETY: sixteen values.
        unsafe { Self::load(lanes.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store_halves(self, low: *mut f32, high: *mut f32) {
        for i in 0..N / 2 {
            // SAFETY: the caller's promise.
            unsafe {
                self.0[i].store(low.add(i * R::LANES));
                self.0[i + N / 2].store(high.add(i * R::LANES));
            }
        }
    }

    #[inline(always)]
    fn add(self, o: Self) -> Self {
        self.map2(o, R::add)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        self.map2(o, R::sub)
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        self.map2(o, R::mul)
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        let mut out = c;
        for i in 0..N {
            out.0[i] = self.0[i].mul_add(b.0[i], c.0[i]);
        }
        out
    }

    #[inline(always)]
    fn unzip(self, o: Self) -> [Self; 2] {
        let mut out = [self, o];
        for i in 0..N / 2 {
            for (half, from) in [self, o].into_iter().enumerate() {
                let [even, odd] = from.0[2 * i].unzip(from.0[2 * i + 1]);
                out[0].0[half * N / 2 + i] = even;
                out[1].0[half * N / 2 + i] = odd;
            }
        }
        out
    }

    #[inline(always)]
    fn zip(self, o: Self) -> [Self; 2] {
        let mut out = [self, o];
        for i in 0..N / 2 {
            for (half, to) in out.iter_mut().enumerate() {
                let [low, high] = self.0[half * N / 2 + i].zip(o.0[half * N / 2 + i]);
                to.0[2 * i] = low;
                to.0[2 * i + 1] = high;
            }
        }
        out
    }

    /// Through memory, 4 × 4 at a time: the whole does not fit the registers of such a set.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, step: usize, rows: usize, mask: u16, mut put: impl FnMut(usize, Self)) {
        let mut turned = [[0.0; LANES]; LANES];
        // SAFETY: the caller's promise: the whole square is there, or rows and lanes are looked at one by one.
        unsafe {
            if rows >= LANES && mask == u16::MAX {
                for i in (0..LANES).step_by(4) {
                    for j in (0..LANES).step_by(4) {
                        let row = |r: usize| from.add((i + r) * step + j).cast::<[f32; 4]>().read_unaligned();
                        let square = [row(0), row(1), row(2), row(3)];
                        for l in 0..4 {
                            let column = [square[0][l], square[1][l], square[2][l], square[3][l]];
                            turned[j + l][i..i + 4].copy_from_slice(&column);
                        }
                    }
                }
            } else {
                for i in 0..rows.min(LANES) {
                    for j in 0..LANES {
                        if mask >> j & 1 != 0 {
                            turned[j][i] = *from.add(i * step + j);
                        }
                    }
                }
            }
            for (l, v) in turned.iter().enumerate() {
                put(l, Self::load(v.as_ptr()));
            }
        }
    }
}
