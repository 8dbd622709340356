//! The choice of an instruction set, made once, on first use. The sets themselves are in `sets`.
//!
//! `FIREBRAND_CPU=avx512|avx2|neon|simd128|portable` forces a lower one; asking for one that the machine does not have gives
//! the best below it.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// The baseline of this architecture, in plain Rust.
    Portable = 1,
    /// WebAssembly's 128-bit vectors, if the build enabled them.
    Simd128 = 2,
    /// ARM's 128-bit vectors with fused multiply-add.
    Neon = 3,
    /// 256-bit vectors with fused multiply-add.
    Avx2 = 4,
    /// 512-bit vectors (F, VL, DQ, BW) with fused multiply-add.
    Avx512 = 5,
}

/// All of them, the best last.
const ALL: [Isa; 5] = [Isa::Portable, Isa::Simd128, Isa::Neon, Isa::Avx2, Isa::Avx512];

static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The instruction set in use.
#[inline]
pub fn isa() -> Isa {
    match CHOSEN.load(Relaxed) {
        1 => Isa::Portable,
        2 => Isa::Simd128,
        3 => Isa::Neon,
        4 => Isa::Avx2,
        5 => Isa::Avx512,
        _ => choose(),
    }
}

#[cold]
fn choose() -> Isa {
    set_isa(match std::env::var("FIREBRAND_CPU").as_deref() {
        Ok("portable") => Isa::Portable,
        Ok("simd128") => Isa::Simd128,
        Ok("neon") => Isa::Neon,
        Ok("avx2") => Isa::Avx2,
        _ => Isa::Avx512,
    })
}

impl Isa {
    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            Isa::Simd128 => cfg!(all(target_arch = "wasm32", target_feature = "simd128")),
            Isa::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
            Isa::Avx2 => crate::sets::avx2::available(),
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Isa::Avx512 => crate::sets::avx512::available(),
            #[allow(unreachable_patterns)] // where all of them are compiled
            _ => false,
        }
    }
}

/// The instruction sets of this machine, the best last.
pub fn available() -> impl DoubleEndedIterator<Item = Isa> {
    ALL.into_iter().filter(|isa| isa.is_available())
}

/// The best instruction set of this machine.
pub fn detect() -> Isa {
    available().next_back().unwrap_or(Isa::Portable)
}

/// Uses `isa` (or the best the machine has below it) from now on, for tests of every path. Returns what was set.
pub fn set_isa(isa: Isa) -> Isa {
    let isa = available().rfind(|&set| set <= isa).unwrap_or(Isa::Portable);
    CHOSEN.store(isa as u8, Relaxed);
    isa
}
