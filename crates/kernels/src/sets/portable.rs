//! Plain Rust, compiled for the baseline of the architecture; every other set is checked against it.
#![allow(unsafe_code)]

use super::TileKernel;
use super::wide::{Register, Wide};
use crate::lanes::Kernel;

#[inline(always)]
pub(super) fn rows<K: Kernel>(k: K) -> K::Out {
    k.run::<false>()
}

/// # Safety
/// What the kernel says.
#[inline(always)]
pub(super) unsafe fn tiles<K: TileKernel>(k: K) -> K::Out {
    // SAFETY: the caller's promise.
    unsafe { k.run::<Wide<[f32; 4], 4>, 2, 1>() }
}

impl Register for [f32; 4] {
    const LANES: usize = 4;
    #[inline(always)]
    fn splat(v: f32) -> Self {
        [v; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<Self>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        [self[0] + o[0], self[1] + o[1], self[2] + o[2], self[3] + o[3]]
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        [self[0] - o[0], self[1] - o[1], self[2] - o[2], self[3] - o[3]]
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        [self[0] * o[0], self[1] * o[1], self[2] * o[2], self[3] * o[3]]
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        self.mul(b).add(c)
    }
    #[inline(always)]
    fn unzip(self, o: Self) -> [Self; 2] {
        [[self[0], self[2], o[0], o[2]], [self[1], self[3], o[1], o[3]]]
    }
    #[inline(always)]
    fn zip(self, o: Self) -> [Self; 2] {
        [[self[0], o[0], self[1], o[1]], [self[2], o[2], self[3], o[3]]]
    }
}
