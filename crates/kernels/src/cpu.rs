//! Which instruction set kernels use: chosen once, on first use.
//!
//! `FIREBRAND_CPU=avx512|avx2|portable` forces a lower one; asking for more than the machine has is ignored.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// The baseline of this architecture.
    Portable = 1,
    /// 256-bit vectors with fused multiply-add.
    Avx2 = 2,
    /// 512-bit vectors (F, VL, DQ, BW) with fused multiply-add.
    Avx512 = 3,
}

static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The instruction set in use.
#[inline]
pub fn isa() -> Isa {
    match CHOSEN.load(Relaxed) {
        1 => Isa::Portable,
        2 => Isa::Avx2,
        3 => Isa::Avx512,
        _ => choose(),
    }
}

#[cold]
fn choose() -> Isa {
    let best = detect();
    let wish = match std::env::var("FIREBRAND_CPU").as_deref() {
        Ok("portable") => Isa::Portable,
        Ok("avx2") => Isa::Avx2,
        _ => Isa::Avx512,
    };
    let isa = best.min(wish);
    CHOSEN.store(isa as u8, Relaxed);
    isa
}

/// The best instruction set of this machine.
pub fn detect() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        let fma =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2");
        if fma
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
        {
            return Isa::Avx512;
        }
        if fma {
            return Isa::Avx2;
        }
    }
    Isa::Portable
}

/// Uses `isa` (or the best the machine has below it) from now on, for tests of every path. Returns what was set.
pub fn set_isa(isa: Isa) -> Isa {
    let isa = isa.min(detect());
    CHOSEN.store(isa as u8, Relaxed);
    isa
}
