//! The loops: one instruction over one stretch of elements, compiled per instruction set and chosen at run time.
//!
//! Every arm is a loop that LLVM vectorises for the caller's instruction set. A scalar operand is a chunk of equal
//! elements that is read again and again, so most ops have one loop and not one per mix of scalars and tiles.
//! The destination never overlaps an operand.
#![allow(unsafe_code)]

use super::pair::{self, First, Then};
use super::{Op, complex, convert};
#[cfg(any(all(target_arch = "x86_64", feature = "avx2"), target_arch = "aarch64"))]
use crate::cpu::Isa;
use crate::cpu::isa;
#[cfg(all(target_arch = "x86_64", feature = "avx2"))]
use crate::sets::avx2::for_avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::sets::avx512::for_avx512;
use crate::{DType, vmath, vmath64};

/// A scalar operand is a chunk of this many equal elements.
pub(super) const CHUNK: usize = 64;

/// An operand of a loop.
#[derive(Clone, Copy)]
pub(super) struct Arg {
    pub(super) ptr: *const u8,
    /// 1, or 0 for a scalar.
    pub(super) step: usize,
}

// SAFETY: the pointers come from views, which are Sync, or from a stack or scratch that outlives the loop.
unsafe impl Sync for Arg {}

impl Arg {
    /// Contiguous elements.
    #[inline(always)]
    pub(super) fn tile(ptr: *const u8) -> Arg {
        Arg { ptr, step: 1 }
    }

    /// One chunk of equal elements (fewer if the loop is shorter).
    #[inline(always)]
    pub(super) fn splat(ptr: *const u8) -> Arg {
        Arg { ptr, step: 0 }
    }

    /// `n` elements from `from` on.
    ///
    /// # Safety
    /// They are readable as `T`, and nothing writes them during `'a`.
    #[inline(always)]
    unsafe fn piece<'a, T>(self, from: usize, n: usize) -> &'a [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.ptr.cast::<T>().add(from * self.step), n) }
    }

    /// All `n` elements of a tile.
    ///
    /// # Safety
    /// As for [`Arg::piece`].
    #[inline(always)]
    pub(super) unsafe fn tile_of<'a, T>(self, n: usize) -> &'a [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), n) }
    }

    /// The first element, which is all of a scalar.
    ///
    /// # Safety
    /// It is readable as `T`.
    #[inline(always)]
    pub(super) unsafe fn first<T: Copy>(self) -> T {
        // SAFETY: the caller's promise.
        unsafe { *self.ptr.cast() }
    }
}

/// `step(op, d, args, n)`: runs `op` on `n` elements.
///
/// # Safety
/// `d` is writable and the first `arity` args are readable for `n` elements of their types (for a splat: `min(n, CHUNK)`);
/// `d` overlaps none of them; this machine has the instruction set.
pub(super) type Step = unsafe fn(Op, *mut u8, &[Arg; 3], usize);
/// `pair(first, then, d, args, n)`: as a [`Step`], for the pairs of `pair.rs`.
pub(super) type Pair = unsafe fn(First, Then, *mut u8, &[Arg; 3], usize);
/// `convert(dtype, d, a, n)`: between storage and registers.
pub(super) type Convert = unsafe fn(DType, *mut u8, Arg, usize);
/// `cast(from, to, d, a, n)`: between registers.
pub(super) type Cast = unsafe fn(DType, DType, *mut u8, Arg, usize);

/// The loops of one instruction set.
pub(super) struct Loops {
    f32: Step,
    f64: Step,
    i64: Step,
    bool: Step,
    c64: Step,
    c128: Step,
    /// Two instructions on f32 as one pass.
    pub(super) pair: Pair,
    /// Storage of `dtype` to its registers.
    pub(super) load: Convert,
    /// Registers to storage of `dtype`.
    pub(super) store: Convert,
    /// Registers to registers.
    pub(super) cast: Cast,
}

impl Loops {
    /// The loops of the instruction set in use.
    #[inline]
    pub(super) fn get() -> &'static Loops {
        match isa() {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Isa::Avx512 => const { &avx512::LOOPS },
            #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
            Isa::Avx2 => const { &avx2::LOOPS },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => const { &neon::LOOPS },
            _ => const { &portable::LOOPS },
        }
    }

    /// Runs one instruction; a result of a narrow integer type is wrapped to its width.
    ///
    /// # Safety
    /// As for [`Step`].
    #[inline]
    pub(super) unsafe fn step(&self, op: Op, dtype: DType, d: *mut u8, args: &[Arg; 3], n: usize) {
        let step = match dtype.compute() {
            DType::F64 => self.f64,
            DType::I64 => self.i64,
            DType::Bool => self.bool,
            DType::C64 => self.c64,
            DType::C128 => self.c128,
            _ => self.f32,
        };
        // SAFETY: passed on.
        unsafe {
            step(op, d, args, n);
            if dtype.is_integer() && dtype != DType::I64 && !op.yields_bool() {
                convert::wrap(dtype, d, n)
            }
        }
    }
}

/// Compiles a function for the baseline.
macro_rules! for_baseline {
    ($($function:tt)*) => { $($function)* };
}

macro_rules! instruction_set {
    ($name:ident, $fma:literal, $compiled:ident) => {
        mod $name {
            use super::*;
            $compiled! {
                unsafe fn f32(op: Op, d: *mut u8, a: &[Arg; 3], n: usize) {
                    // SAFETY: passed on.
                    unsafe { step_f32::<$fma>(op, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn f64(op: Op, d: *mut u8, a: &[Arg; 3], n: usize) {
                    // SAFETY: passed on.
                    unsafe { step_f64::<$fma>(op, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn i64(op: Op, d: *mut u8, a: &[Arg; 3], n: usize) {
                    // SAFETY: passed on.
                    unsafe { step_i64(op, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn bool(op: Op, d: *mut u8, a: &[Arg; 3], n: usize) {
                    // SAFETY: passed on.
                    unsafe { step_bool(op, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn c64(op: Op, d: *mut u8, a: &[Arg; 3], n: usize) {
                    // SAFETY: passed on.
                    unsafe { complex::step_c64(op, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn c128(op: Op, d: *mut u8, a: &[Arg; 3], n: usize) {
                    // SAFETY: passed on.
                    unsafe { complex::step_c128(op, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn pair(first: First, then: Then, d: *mut u8, a: &[Arg; 3], n: usize) {
                    // SAFETY: passed on.
                    unsafe { pair::step::<$fma>(first, then, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn load(dtype: DType, d: *mut u8, a: Arg, n: usize) {
                    // SAFETY: passed on.
                    unsafe { convert::load(dtype, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn store(dtype: DType, d: *mut u8, a: Arg, n: usize) {
                    // SAFETY: passed on.
                    unsafe { convert::store(dtype, d, a, n) }
                }
            }
            $compiled! {
                unsafe fn cast(from: DType, to: DType, d: *mut u8, a: Arg, n: usize) {
                    // SAFETY: passed on.
                    unsafe { convert::cast(from, to, d, a, n) }
                }
            }
            pub(super) const LOOPS: Loops = Loops { f32, f64, i64, bool, c64, c128, pair, load, store, cast };
        }
    };
}
instruction_set!(portable, false, for_baseline);
#[cfg(target_arch = "aarch64")]
instruction_set!(neon, true, for_baseline);
#[cfg(all(target_arch = "x86_64", feature = "avx2"))]
instruction_set!(avx2, true, for_avx2);

/// Wider vectors pay where the arithmetic is; the rest is the AVX2 code, whose results are the same to the bit.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod avx512 {
    use super::*;
    for_avx512! {
        unsafe fn f32(op: Op, d: *mut u8, a: &[Arg; 3], n: usize) {
            // SAFETY: passed on.
            unsafe { step_f32::<true>(op, d, a, n) }
        }
    }
    for_avx512! {
        unsafe fn pair(first: First, then: Then, d: *mut u8, a: &[Arg; 3], n: usize) {
            // SAFETY: passed on.
            unsafe { pair::step::<true>(first, then, d, a, n) }
        }
    }
    pub(super) const LOOPS: Loops = Loops { f32, pair, ..avx2::LOOPS };
}

/// Cuts `0..n` so that a scalar operand is read within its chunk: one piece if there is none.
///
/// One loop serves every mix of scalars and tiles, and whatever the compiler checks before it is checked once a piece.
#[inline(always)]
fn pieces(n: usize, args: &[Arg]) -> impl Iterator<Item = (usize, usize)> {
    let piece = if args.iter().all(|a| a.step != 0) { n.max(1) } else { CHUNK };
    (0..n).step_by(piece).map(move |from| (from, piece.min(n - from)))
}

/// `d[i] = f(a[i])`.
///
/// # Safety
/// As for [`Step`], with these types.
#[inline(always)]
pub(super) unsafe fn map1<A: Copy, D>(d: *mut u8, a: Arg, n: usize, f: impl Fn(A) -> D) {
    for (from, m) in pieces(n, &[a]) {
        // SAFETY: `m` elements are left; the destination overlaps no operand.
        let (d, a) = unsafe { (std::slice::from_raw_parts_mut(d.cast::<D>().add(from), m), a.piece::<A>(from, m)) };
        for (d, &a) in d.iter_mut().zip(a) {
            *d = f(a)
        }
    }
}

/// `d[i] = f(a[i], b[i])`.
///
/// # Safety
/// As for [`Step`], with these types.
#[inline(always)]
pub(super) unsafe fn map2<A: Copy, B: Copy, D>(d: *mut u8, a: Arg, b: Arg, n: usize, f: impl Fn(A, B) -> D) {
    for (from, m) in pieces(n, &[a, b]) {
        // SAFETY: `m` elements are left; the destination overlaps no operand.
        let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<D>().add(from), m) };
        // SAFETY: as above.
        let (a, b) = unsafe { (a.piece::<A>(from, m), b.piece::<B>(from, m)) };
        for ((d, &a), &b) in d.iter_mut().zip(a).zip(b) {
            *d = f(a, b)
        }
    }
}

/// `d[i] = f(a[i], b[i], c[i])`.
///
/// # Safety
/// As for [`Step`], with these types.
#[inline(always)]
pub(super) unsafe fn map3<A: Copy, B: Copy, D>(d: *mut u8, args: &[Arg; 3], n: usize, f: impl Fn(A, B, B) -> D) {
    for (from, m) in pieces(n, args) {
        // SAFETY: `m` elements are left; the destination overlaps no operand.
        let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<D>().add(from), m) };
        // SAFETY: as above.
        let (a, b, c) =
            unsafe { (args[0].piece::<A>(from, m), args[1].piece::<B>(from, m), args[2].piece::<B>(from, m)) };
        for (((d, &a), &b), &c) in d.iter_mut().zip(a).zip(b).zip(c) {
            *d = f(a, b, c)
        }
    }
}

/// Like [`map2`], with a loop of its own for each mix of tile and scalar: for light ops, whose time is that of the loop.
///
/// # Safety
/// As for [`Step`], with these types.
#[inline(always)]
pub(super) unsafe fn mixed2<T: Copy, D>(d: *mut u8, a: Arg, b: Arg, n: usize, f: impl Fn(T, T) -> D) {
    // SAFETY: `n` elements of each tile; the destination overlaps no operand.
    // Plain loops: an iterator's fold might be compiled without the instruction set.
    unsafe {
        let out = std::slice::from_raw_parts_mut(d.cast::<D>(), n);
        match (a.step, b.step) {
            (1, 1) => {
                for ((d, &a), &b) in out.iter_mut().zip(a.tile_of::<T>(n)).zip(b.tile_of::<T>(n)) {
                    *d = f(a, b)
                }
            }
            (1, _) => {
                let b = b.first();
                for (d, &a) in out.iter_mut().zip(a.tile_of::<T>(n)) {
                    *d = f(a, b)
                }
            }
            (_, 1) => {
                let a = a.first();
                for (d, &b) in out.iter_mut().zip(b.tile_of::<T>(n)) {
                    *d = f(a, b)
                }
            }
            _ => {
                let (a, b) = (a.first(), b.first());
                for d in out {
                    *d = f(a, b)
                }
            }
        }
    }
}

/// Like [`map3`], with a loop of its own for each mix of tile and scalar whose first operand is a tile.
///
/// # Safety
/// As for [`Step`], with these types.
#[inline(always)]
pub(super) unsafe fn mixed3<A: Copy, T: Copy, D>(d: *mut u8, args: &[Arg; 3], n: usize, f: impl Fn(A, T, T) -> D) {
    let [a, b, c] = *args;
    // SAFETY: as for `mixed2`.
    unsafe {
        if a.step == 0 {
            return map3(d, args, n, f);
        }
        let out = std::slice::from_raw_parts_mut(d.cast::<D>(), n);
        match (b.step, c.step) {
            (1, 1) => {
                let (a, b, c) = (a.tile_of::<A>(n), b.tile_of::<T>(n), c.tile_of::<T>(n));
                for (((d, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
                    *d = f(a, b, c)
                }
            }
            (1, _) => {
                let c = c.first();
                for ((d, &a), &b) in out.iter_mut().zip(a.tile_of::<A>(n)).zip(b.tile_of::<T>(n)) {
                    *d = f(a, b, c)
                }
            }
            (_, 1) => {
                let b = b.first();
                for ((d, &a), &c) in out.iter_mut().zip(a.tile_of::<A>(n)).zip(c.tile_of::<T>(n)) {
                    *d = f(a, b, c)
                }
            }
            _ => {
                let (b, c) = (b.first(), c.first());
                for (d, &a) in out.iter_mut().zip(a.tile_of::<A>(n)) {
                    *d = f(a, b, c)
                }
            }
        }
    }
}

/// A loop over a function that is a library call anyway: compiled once, for no instruction set in particular.
///
/// # Safety
/// As for [`Step`], with these types.
#[inline(never)]
pub(super) unsafe fn call1<T: Copy>(d: *mut u8, a: Arg, n: usize, f: fn(T) -> T) {
    // SAFETY: passed on.
    unsafe { map1(d, a, n, f) }
}

/// Like [`call1`], for two operands.
///
/// # Safety
/// As for [`Step`], with these types.
#[inline(never)]
pub(super) unsafe fn call2<T: Copy>(d: *mut u8, a: Arg, b: Arg, n: usize, f: fn(T, T) -> T) {
    // SAFETY: passed on.
    unsafe { map2(d, a, b, n, f) }
}

/// Recomputes the elements whose argument was too large for the vectorised reduction.
///
/// # Safety
/// As for [`Step`], with f32.
#[inline(never)]
unsafe fn repair_trig(d: *mut u8, a: Arg, n: usize, f: fn(f64) -> f64) {
    for i in 0..n {
        // SAFETY: element `i` of both; a splat repeats its chunk.
        unsafe {
            let x = *a.ptr.cast::<f32>().add(if a.step == 0 { i % CHUNK } else { i });
            if x.abs() > vmath::TRIG_LIMIT {
                *d.cast::<f32>().add(i) = f(f64::from(x)) as f32
            }
        }
    }
}

/// Whether an argument is too large for the vectorised reduction.
///
/// # Safety
/// As for [`Step`], with f32.
#[inline(always)]
unsafe fn needs_repair(a: Arg, n: usize) -> bool {
    let n = if a.step == 0 { n.min(CHUNK) } else { n };
    // SAFETY: `n` elements are readable.
    let a = unsafe { std::slice::from_raw_parts(a.ptr.cast::<f32>(), n) };
    a.iter().fold(false, |any, x| any | (x.abs() > vmath::TRIG_LIMIT))
}

#[cold]
pub(super) fn undefined(op: Op, dtype: DType) -> ! {
    panic!("{op:?} is not defined for {dtype}")
}

fn fmod<T: std::ops::Rem<Output = T>>(a: T, b: T) -> T {
    a % b
}

macro_rules! float_step {
    ($step:ident, $t:ident, $math:path, $dtype:expr, $sin:ident) => {
        /// # Safety
        /// As for [`Step`].
        #[inline(always)]
        unsafe fn $step<const F: bool>(op: Op, d: *mut u8, args: &[Arg; 3], n: usize) {
            use $math as m;
            type T = $t;
            fn remainder(a: T, b: T) -> T {
                let r = a % b;
                if r != 0.0 && (b < 0.0) != (r < 0.0) { r + b } else { r }
            }
            fn floor_divide(a: T, b: T) -> T {
                if b == 0.0 {
                    return a / b;
                }
                // Through the exact remainder: the quotient itself may round up to the next integer.
                let r = a % b;
                let q = (a - r) / b;
                let q = if r != 0.0 && (b < 0.0) != (r < 0.0) { q - 1.0 } else { q };
                if q == 0.0 {
                    return T::copysign(0.0, a / b);
                }
                let f = q.floor();
                if q - f > 0.5 { f + 1.0 } else { f }
            }
            // Zeros of either sign are equal, and of equals the first is kept: clamping -0.0 to [0, 1] leaves -0.0.
            #[inline(always)]
            fn maximum(x: T, y: T) -> T {
                if x >= y || x.is_nan() { x } else { y }
            }
            #[inline(always)]
            fn minimum(x: T, y: T) -> T {
                if x <= y || x.is_nan() { x } else { y }
            }
            let [a, b, _] = *args;
            // SAFETY: passed on from the caller; the closures name the types of this register.
            unsafe {
                match op {
                    Op::Copy => map1(d, a, n, |x: T| x),
                    Op::Neg => map1(d, a, n, |x: T| -x),
                    Op::Abs => map1(d, a, n, T::abs),
                    Op::Sign => map1(d, a, n, |x: T| {
                        if x > 0.0 {
                            1.0
                        } else if x < 0.0 {
                            -1.0
                        } else {
                            0.0 as T
                        }
                    }),
                    Op::Square => map1(d, a, n, |x: T| x * x),
                    Op::Relu => map1(d, a, n, |x: T| if x < 0.0 { 0.0 } else { x }),
                    Op::Sqrt => map1(d, a, n, T::sqrt),
                    Op::Rsqrt => map1(d, a, n, |x: T| 1.0 / x.sqrt()),
                    Op::Reciprocal => map1(d, a, n, |x: T| 1.0 / x),
                    Op::Exp => map1(d, a, n, m::exp::<F>),
                    Op::Exp2 => map1(d, a, n, m::exp2::<F>),
                    Op::Expm1 => map1(d, a, n, m::expm1::<F>),
                    Op::Log => map1(d, a, n, m::log::<F>),
                    Op::Log2 => map1(d, a, n, m::log2::<F>),
                    Op::Log10 => map1(d, a, n, m::log10::<F>),
                    Op::Log1p => map1(d, a, n, m::log1p::<F>),
                    Op::Sin => $sin(d, a, n, m::sin::<F>, f64::sin),
                    Op::Cos => $sin(d, a, n, m::cos::<F>, f64::cos),
                    Op::Tan => $sin(d, a, n, m::tan::<F>, f64::tan),
                    Op::Asin => map1(d, a, n, m::asin::<F>),
                    Op::Acos => map1(d, a, n, m::acos::<F>),
                    Op::Atan => map1(d, a, n, m::atan::<F>),
                    Op::Sinh => map1(d, a, n, m::sinh::<F>),
                    Op::Cosh => map1(d, a, n, m::cosh::<F>),
                    Op::Tanh => map1(d, a, n, m::tanh::<F>),
                    Op::Asinh => map1(d, a, n, m::asinh::<F>),
                    Op::Acosh => map1(d, a, n, m::acosh::<F>),
                    Op::Atanh => map1(d, a, n, m::atanh::<F>),
                    Op::Sigmoid => map1(d, a, n, m::sigmoid::<F>),
                    Op::LogSigmoid => map1(d, a, n, m::logsigmoid::<F>),
                    Op::Erf => map1(d, a, n, m::erf::<F>),
                    Op::Erfc => call1(d, a, n, m::erfc::<false>),
                    Op::Erfinv => call1(d, a, n, m::erfinv::<false>),
                    Op::Lgamma => call1(d, a, n, m::lgamma::<false>),
                    Op::Digamma => call1(d, a, n, m::digamma::<false>),
                    Op::Floor => map1(d, a, n, T::floor),
                    Op::Ceil => map1(d, a, n, T::ceil),
                    Op::Round => map1(d, a, n, T::round_ties_even),
                    Op::Trunc => map1(d, a, n, T::trunc),
                    Op::Frac => map1(d, a, n, |x: T| x - x.trunc()),
                    Op::Gelu => map1(d, a, n, m::gelu_erf::<F>),
                    Op::GeluTanh => map1(d, a, n, m::gelu_tanh::<F>),
                    Op::Silu => map1(d, a, n, m::silu::<F>),
                    Op::Mish => map1(d, a, n, m::mish::<F>),
                    Op::Angle => map1(d, a, n, |x: T| {
                        if x.is_nan() {
                            x
                        } else if x < 0.0 {
                            std::f64::consts::PI as T
                        } else {
                            0.0
                        }
                    }),
                    Op::Isnan => map1(d, a, n, |x: T| x.is_nan()),
                    Op::Isinf => map1(d, a, n, |x: T| x.is_infinite()),
                    Op::Isfinite => map1(d, a, n, |x: T| x.is_finite()),
                    Op::Signbit => map1(d, a, n, |x: T| x.is_sign_negative()),
                    Op::LogicalNot => map1(d, a, n, |x: T| x == 0.0),
                    Op::Add => mixed2(d, a, b, n, |x: T, y: T| x + y),
                    Op::Sub => mixed2(d, a, b, n, |x: T, y: T| x - y),
                    Op::Mul => mixed2(d, a, b, n, |x: T, y: T| x * y),
                    Op::Div => mixed2(d, a, b, n, |x: T, y: T| x / y),
                    Op::FloorDivide => call2(d, a, b, n, floor_divide),
                    Op::TruncDivide => map2(d, a, b, n, |x: T, y: T| (x / y).trunc()),
                    Op::Fmod => call2(d, a, b, n, fmod::<T>),
                    Op::Remainder => call2(d, a, b, n, remainder),
                    Op::Pow => map2(d, a, b, n, m::pow::<F>),
                    Op::Maximum => mixed2(d, a, b, n, maximum),
                    Op::Minimum => mixed2(d, a, b, n, minimum),
                    Op::Fmax => mixed2(d, a, b, n, |x: T, y: T| if x >= y || y.is_nan() { x } else { y }),
                    Op::Fmin => mixed2(d, a, b, n, |x: T, y: T| if x <= y || y.is_nan() { x } else { y }),
                    Op::Atan2 => map2(d, a, b, n, m::atan2::<F>),
                    Op::Hypot => map2(d, a, b, n, m::hypot::<F>),
                    Op::Zeta => call2(d, a, b, n, m::zeta::<false>),
                    Op::Copysign => map2(d, a, b, n, T::copysign),
                    Op::Eq => mixed2(d, a, b, n, |x: T, y: T| x == y),
                    Op::Ne => mixed2(d, a, b, n, |x: T, y: T| x != y),
                    Op::Lt => mixed2(d, a, b, n, |x: T, y: T| x < y),
                    Op::Le => mixed2(d, a, b, n, |x: T, y: T| x <= y),
                    Op::Gt => mixed2(d, a, b, n, |x: T, y: T| x > y),
                    Op::Ge => mixed2(d, a, b, n, |x: T, y: T| x >= y),
                    Op::LogicalAnd => map2(d, a, b, n, |x: T, y: T| (x != 0.0) & (y != 0.0)),
                    Op::LogicalOr => map2(d, a, b, n, |x: T, y: T| (x != 0.0) | (y != 0.0)),
                    Op::LogicalXor => map2(d, a, b, n, |x: T, y: T| (x != 0.0) ^ (y != 0.0)),
                    Op::MulAdd => mixed3(d, args, n, m::fma::<F>),
                    Op::Lerp => map3(d, args, n, |x: T, y: T, w: T| {
                        let near = w.abs() < 0.5;
                        m::fma::<F>(if near { w } else { w - 1.0 }, y - x, if near { x } else { y })
                    }),
                    Op::Clamp => mixed3(d, args, n, |x: T, lo: T, hi: T| minimum(maximum(x, lo), hi)),
                    Op::Softplus => map3(d, args, n, m::softplus::<F>),
                    Op::Where => mixed3(d, args, n, |w: u8, x: T, y: T| if w != 0 { x } else { y }),
                    Op::Conj
                    | Op::BitwiseNot
                    | Op::BitwiseAnd
                    | Op::BitwiseOr
                    | Op::BitwiseXor
                    | Op::ShiftLeft
                    | Op::ShiftRight => undefined(op, $dtype),
                }
            }
        }
    };
}
float_step!(step_f32, f32, vmath, DType::F32, trig_f32);
float_step!(step_f64, f64, vmath64::full, DType::F64, trig_f64);

/// # Safety
/// As for [`Step`].
#[inline(always)]
unsafe fn trig_f32(d: *mut u8, a: Arg, n: usize, f: impl Fn(f32) -> f32, exact: fn(f64) -> f64) {
    // SAFETY: passed on.
    unsafe {
        map1(d, a, n, f);
        if needs_repair(a, n) {
            repair_trig(d, a, n, exact)
        }
    }
}

/// # Safety
/// As for [`Step`].
#[inline(always)]
unsafe fn trig_f64(d: *mut u8, a: Arg, n: usize, _: impl Fn(f64) -> f64, exact: fn(f64) -> f64) {
    // SAFETY: passed on.
    unsafe { call1(d, a, n, exact) }
}

/// Integer powers wrap; a negative exponent leaves only the powers of 1 and -1.
fn powi(a: i64, b: i64) -> i64 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut e, mut y) = (a, b, 1i64);
    while e > 0 {
        if e & 1 == 1 {
            y = y.wrapping_mul(base)
        }
        base = base.wrapping_mul(base);
        e >>= 1;
    }
    y
}

fn trunc_divide(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

fn floor_divide(a: i64, b: i64) -> i64 {
    let (q, r) = (trunc_divide(a, b), fmod_int(a, b));
    if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
}

fn fmod_int(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_rem(b) }
}

fn remainder(a: i64, b: i64) -> i64 {
    let r = fmod_int(a, b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

/// # Safety
/// As for [`Step`].
#[inline(always)]
unsafe fn step_i64(op: Op, d: *mut u8, args: &[Arg; 3], n: usize) {
    let [a, b, _] = *args;
    // SAFETY: passed on; the closures name the types of this register.
    unsafe {
        match op {
            Op::Copy | Op::Floor | Op::Ceil | Op::Round | Op::Trunc => map1(d, a, n, |x: i64| x),
            Op::Neg => map1(d, a, n, i64::wrapping_neg),
            Op::Abs => map1(d, a, n, i64::wrapping_abs),
            Op::Sign => map1(d, a, n, |x: i64| i64::from(x > 0) - i64::from(x < 0)),
            Op::Square => map1(d, a, n, |x: i64| x.wrapping_mul(x)),
            Op::Relu => map1(d, a, n, |x: i64| x.max(0)),
            Op::BitwiseNot => map1(d, a, n, |x: i64| !x),
            Op::Isnan | Op::Isinf => map1(d, a, n, |_: i64| false),
            Op::Isfinite => map1(d, a, n, |_: i64| true),
            Op::Signbit => map1(d, a, n, |x: i64| x < 0),
            Op::LogicalNot => map1(d, a, n, |x: i64| x == 0),
            Op::Add => map2(d, a, b, n, i64::wrapping_add),
            Op::Sub => map2(d, a, b, n, i64::wrapping_sub),
            Op::Mul => map2(d, a, b, n, i64::wrapping_mul),
            Op::FloorDivide => call2(d, a, b, n, floor_divide),
            Op::TruncDivide => call2(d, a, b, n, trunc_divide),
            Op::Fmod => call2(d, a, b, n, fmod_int),
            Op::Remainder => call2(d, a, b, n, remainder),
            Op::Pow => call2(d, a, b, n, powi),
            Op::Maximum | Op::Fmax => map2(d, a, b, n, |x: i64, y: i64| if x > y { x } else { y }),
            Op::Minimum | Op::Fmin => map2(d, a, b, n, |x: i64, y: i64| if x < y { x } else { y }),
            Op::BitwiseAnd => map2(d, a, b, n, |x: i64, y: i64| x & y),
            Op::BitwiseOr => map2(d, a, b, n, |x: i64, y: i64| x | y),
            Op::BitwiseXor => map2(d, a, b, n, |x: i64, y: i64| x ^ y),
            Op::ShiftLeft => map2(d, a, b, n, |x: i64, y: i64| if y as u64 > 63 { 0 } else { x << (y & 63) }),
            Op::ShiftRight => map2(d, a, b, n, |x: i64, y: i64| x >> if y as u64 > 63 { 63 } else { y }),
            Op::Eq => map2(d, a, b, n, |x: i64, y: i64| x == y),
            Op::Ne => map2(d, a, b, n, |x: i64, y: i64| x != y),
            Op::Lt => map2(d, a, b, n, |x: i64, y: i64| x < y),
            Op::Le => map2(d, a, b, n, |x: i64, y: i64| x <= y),
            Op::Gt => map2(d, a, b, n, |x: i64, y: i64| x > y),
            Op::Ge => map2(d, a, b, n, |x: i64, y: i64| x >= y),
            Op::LogicalAnd => map2(d, a, b, n, |x: i64, y: i64| (x != 0) & (y != 0)),
            Op::LogicalOr => map2(d, a, b, n, |x: i64, y: i64| (x != 0) | (y != 0)),
            Op::LogicalXor => map2(d, a, b, n, |x: i64, y: i64| (x != 0) ^ (y != 0)),
            Op::MulAdd => map3(d, args, n, |x: i64, y: i64, z: i64| x.wrapping_mul(y).wrapping_add(z)),
            Op::Clamp => map3(d, args, n, |x: i64, lo: i64, hi: i64| x.max(lo).min(hi)),
            Op::Where => map3(d, args, n, |w: u8, x: i64, y: i64| if w != 0 { x } else { y }),
            _ => undefined(op, DType::I64),
        }
    }
}

/// Any byte but 0 is true; results are 0 or 1.
///
/// # Safety
/// As for [`Step`].
#[inline(always)]
unsafe fn step_bool(op: Op, d: *mut u8, args: &[Arg; 3], n: usize) {
    let [a, b, _] = *args;
    let t = |x: u8| x.min(1);
    // SAFETY: passed on; a truth value is a byte.
    unsafe {
        match op {
            Op::Copy | Op::Abs | Op::Sign | Op::Square | Op::Relu => map1(d, a, n, t),
            Op::BitwiseNot | Op::LogicalNot => map1(d, a, n, |x: u8| t(x) ^ 1),
            Op::Isnan | Op::Isinf | Op::Signbit => map1(d, a, n, |_: u8| 0u8),
            Op::Isfinite => map1(d, a, n, |_: u8| 1u8),
            Op::Add | Op::Maximum | Op::Fmax | Op::BitwiseOr | Op::LogicalOr => {
                map2(d, a, b, n, |x: u8, y: u8| t(x | y))
            }
            Op::Mul | Op::Minimum | Op::Fmin | Op::BitwiseAnd | Op::LogicalAnd => {
                map2(d, a, b, n, |x: u8, y: u8| t(x) & t(y))
            }
            Op::BitwiseXor | Op::LogicalXor | Op::Ne => map2(d, a, b, n, |x: u8, y: u8| t(x) ^ t(y)),
            Op::Eq => map2(d, a, b, n, |x: u8, y: u8| t(x) ^ t(y) ^ 1),
            Op::Lt => map2(d, a, b, n, |x: u8, y: u8| (t(x) ^ 1) & t(y)),
            Op::Le => map2(d, a, b, n, |x: u8, y: u8| (t(x) ^ 1) | t(y)),
            Op::Gt => map2(d, a, b, n, |x: u8, y: u8| t(x) & (t(y) ^ 1)),
            Op::Ge => map2(d, a, b, n, |x: u8, y: u8| t(x) | (t(y) ^ 1)),
            Op::Clamp => map3(d, args, n, |x: u8, lo: u8, hi: u8| t(x | lo) & t(hi)),
            Op::Where => map3(d, args, n, |w: u8, x: u8, y: u8| t(if w != 0 { x } else { y })),
            _ => undefined(op, DType::Bool),
        }
    }
}
