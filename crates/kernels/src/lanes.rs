//! Shared parts of the row kernels (reductions, scans, softmax, norms): one dispatch over instruction sets, the three
//! compute types, and loads and stores that convert between them and any dtype.
//!
//! Guarantees: a [`Kernel`] body is compiled once per instruction set and sees `FMA` as a constant; loads of the compute
//! type itself at stride 1 copy nothing; stores round once. It knows nothing of ops and shapes.
#![allow(unsafe_code)]

pub(crate) use crate::sets::rows as dispatch;
use crate::{DType, Element, bf16, f16, with_element};
use half::slice::HalfFloatSliceExt;
use std::mem::MaybeUninit;

/// A loop body to be compiled for every instruction set. `run` must be `#[inline(always)]`.
pub(crate) trait Kernel {
    /// What it computes.
    type Out;
    /// The body. `FMA` says whether fused multiply-add is an instruction here.
    fn run<const FMA: bool>(self) -> Self::Out;
}

/// A type that arithmetic is done in: f32 (also for the half types), f64, i64 (for all integers and bool).
pub(crate) trait Compute: Element + PartialOrd {
    /// The type of totals: f64 for floats.
    type Wide: Compute;
    const FLOAT: bool;
    const ZERO: Self;
    const ONE: Self;
    /// Below or equal to everything.
    const LOWEST: Self;
    /// Above or equal to everything.
    const HIGHEST: Self;
    fn of<T: Element>(v: T) -> Self;
    fn widen(self) -> Self::Wide;
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn abs(self) -> Self;
    /// `self * b + c`, rounded once if `FMA`.
    fn mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self;
    fn exp<const FMA: bool>(self) -> Self;
    fn is_nan(self) -> bool;
    /// The larger; NaN if either is.
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        if self > o || self.is_nan() { self } else { o }
    }
    /// An integer with the same order as the float: a maximum is found faster among those, because the compiler may take
    /// integers in any order. NaN is beyond both infinities, by its sign.
    type Rank: Ord + Copy;
    fn rank(self) -> Self::Rank;
    fn of_rank(rank: Self::Rank) -> Self;
    /// The smaller; NaN if either is.
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        if self < o || self.is_nan() { self } else { o }
    }
    /// Stores as an element, rounding once.
    fn store<T: Element>(self) -> T;
}

macro_rules! float {
    ($t:ident, $int:ident, $exp:expr) => {
        impl Compute for $t {
            type Wide = f64;
            const FLOAT: bool = true;
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const LOWEST: $t = $t::NEG_INFINITY;
            const HIGHEST: $t = $t::INFINITY;
            #[inline(always)]
            fn of<T: Element>(v: T) -> $t {
                if matches!(T::DTYPE, DType::I64) { v.to_i64() as $t } else { v.to_f64() as $t }
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn add(self, o: $t) -> $t {
                self + o
            }
            #[inline(always)]
            fn sub(self, o: $t) -> $t {
                self - o
            }
            #[inline(always)]
            fn mul(self, o: $t) -> $t {
                self * o
            }
            #[inline(always)]
            fn abs(self) -> $t {
                self.abs()
            }
            #[inline(always)]
            fn mul_add<const FMA: bool>(self, b: $t, c: $t) -> $t {
                if FMA { $t::mul_add(self, b, c) } else { self * b + c }
            }
            #[inline(always)]
            fn exp<const FMA: bool>(self) -> $t {
                $exp(self)
            }
            type Rank = $int;
            #[inline(always)]
            fn rank(self) -> $int {
                let bits = self.to_bits() as $int;
                bits ^ ((bits >> ($int::BITS - 1)) & $int::MAX)
            }
            #[inline(always)]
            fn of_rank(rank: $int) -> $t {
                $t::from_bits((rank ^ ((rank >> ($int::BITS - 1)) & $int::MAX)) as _)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
            #[inline(always)]
            fn store<T: Element>(self) -> T {
                T::from_f64(self as f64)
            }
        }
    };
}
float!(f32, i32, crate::vmath::exp::<FMA>);
float!(f64, i64, crate::vmath64::exp::<FMA>);

impl Compute for i64 {
    type Wide = i64;
    const FLOAT: bool = false;
    const ZERO: i64 = 0;
    const ONE: i64 = 1;
    const LOWEST: i64 = i64::MIN;
    const HIGHEST: i64 = i64::MAX;
    #[inline(always)]
    fn of<T: Element>(v: T) -> i64 {
        v.to_i64()
    }
    #[inline(always)]
    fn widen(self) -> i64 {
        self
    }
    #[inline(always)]
    fn add(self, o: i64) -> i64 {
        self.wrapping_add(o)
    }
    #[inline(always)]
    fn sub(self, o: i64) -> i64 {
        self.wrapping_sub(o)
    }
    #[inline(always)]
    fn mul(self, o: i64) -> i64 {
        self.wrapping_mul(o)
    }
    #[inline(always)]
    fn abs(self) -> i64 {
        self.wrapping_abs()
    }
    #[inline(always)]
    fn mul_add<const FMA: bool>(self, b: i64, c: i64) -> i64 {
        self.wrapping_mul(b).wrapping_add(c)
    }
    #[inline(always)]
    fn exp<const FMA: bool>(self) -> i64 {
        (self as f64).exp() as i64
    }
    type Rank = i64;
    #[inline(always)]
    fn rank(self) -> i64 {
        self
    }
    #[inline(always)]
    fn of_rank(rank: i64) -> i64 {
        rank
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
    #[inline(always)]
    fn store<T: Element>(self) -> T {
        T::from_i64(self)
    }
}

/// Uninitialised stack space; only what is used is touched, so small calls stay cheap.
pub(crate) struct Buffer<X, const N: usize>([MaybeUninit<X>; N]);

impl<X: Compute, const N: usize> Buffer<X, N> {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Buffer([const { MaybeUninit::uninit() }; N])
    }
    /// The first `n` elements, set to `v`.
    #[inline(always)]
    pub(crate) fn filled(&mut self, n: usize, v: X) -> &mut [X] {
        let s = &mut self.0[..n];
        for e in s.iter_mut() {
            e.write(v);
        }
        // SAFETY: just written.
        unsafe { std::slice::from_raw_parts_mut(s.as_mut_ptr().cast(), n) }
    }
    /// Where to write; nothing is initialized.
    #[inline(always)]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut X {
        self.0.as_mut_ptr().cast()
    }
}

/// `n` elements of `dtype` from `ptr` at `stride`, as `X`: in place if they are that already, else converted into `buf`.
///
/// # Safety
/// The elements are readable for `'a`, and `buf` has room for `n`.
#[inline(always)]
pub(crate) unsafe fn load<'a, X: Compute>(
    ptr: *const u8,
    dtype: DType,
    stride: usize,
    n: usize,
    buf: *mut X,
) -> &'a [X] {
    // SAFETY: the caller's promise; `load_into` fills what the slice covers.
    unsafe {
        if dtype == X::DTYPE && (stride == 1 || n <= 1) {
            return std::slice::from_raw_parts(ptr.cast(), n);
        }
        load_into(ptr, dtype, stride, n, buf);
        std::slice::from_raw_parts(buf, n)
    }
}

/// Like [`load`], always into `dst`.
///
/// # Safety
/// As for [`load`]; `dst` does not overlap the source.
#[inline]
pub(crate) unsafe fn load_into<X: Compute>(ptr: *const u8, dtype: DType, stride: usize, n: usize, dst: *mut X) {
    dispatch(Load { ptr, dtype, stride, n, dst })
}

struct Load<X> {
    ptr: *const u8,
    dtype: DType,
    stride: usize,
    n: usize,
    dst: *mut X,
}

impl<X: Compute> Kernel for Load<X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Load { ptr, dtype, stride, n, dst } = self;
        // SAFETY: `load_into`'s caller gives `n` readable elements and room for as many.
        unsafe {
            match dtype {
                // Through the half crate's slice conversion, which knows the machine's instruction for it.
                DType::F16 => {
                    let (mut narrow, mut wide) = ([f16::ZERO; 128], [0f32; 128]);
                    for at in (0..n).step_by(128) {
                        let m = (n - at).min(128);
                        for (i, h) in narrow[..m].iter_mut().enumerate() {
                            *h = *ptr.cast::<f16>().add((at + i) * stride)
                        }
                        narrow[..m].convert_to_f32_slice(&mut wide[..m]);
                        for (i, &v) in wide[..m].iter().enumerate() {
                            *dst.add(at + i) = X::of(v)
                        }
                    }
                }
                DType::BF16 => copy(ptr.cast::<bf16>(), stride, n, dst, |v: bf16| {
                    X::of(f32::from_bits(u32::from(v.to_bits()) << 16))
                }),
                _ => with_element!(dtype, T => copy(ptr.cast::<T>(), stride, n, dst, X::of::<T>)),
            }
        }
    }
}

#[inline(always)]
unsafe fn copy<T: Copy, X: Copy>(src: *const T, stride: usize, n: usize, dst: *mut X, f: impl Fn(T) -> X) {
    // SAFETY: the caller's promise.
    unsafe {
        if stride == 1 {
            for i in 0..n {
                *dst.add(i) = f(*src.add(i))
            }
        } else {
            for i in 0..n {
                *dst.add(i) = f(*src.add(i * stride))
            }
        }
    }
}

/// Writes `src` as elements of `dtype` at `stride`.
///
/// # Safety
/// The elements are writable and do not overlap `src`.
#[inline]
pub(crate) unsafe fn store<X: Compute>(src: &[X], ptr: *mut u8, dtype: DType, stride: usize) {
    dispatch(Store { src, ptr, dtype, stride })
}

/// Writes one value.
///
/// # Safety
/// The element is writable.
#[inline(always)]
pub(crate) unsafe fn store_one<X: Compute>(v: X, ptr: *mut u8, dtype: DType) {
    // SAFETY: the caller's promise.
    unsafe { with_element!(dtype, T => *ptr.cast::<T>() = v.store()) }
}

struct Store<'a, X> {
    src: &'a [X],
    ptr: *mut u8,
    dtype: DType,
    stride: usize,
}

impl<X: Compute> Kernel for Store<'_, X> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Store { src, ptr, dtype, stride } = self;
        let n = src.len();
        // SAFETY: `store`'s caller gives `n` writable elements.
        unsafe {
            match dtype {
                DType::F16 if X::DTYPE == DType::F32 => {
                    let mut narrow = [f16::ZERO; 128];
                    let src = std::slice::from_raw_parts(src.as_ptr().cast::<f32>(), n);
                    for (k, part) in src.chunks(128).enumerate() {
                        narrow[..part.len()].convert_from_f32_slice(part);
                        for (i, &h) in narrow[..part.len()].iter().enumerate() {
                            *ptr.cast::<f16>().add((k * 128 + i) * stride) = h
                        }
                    }
                }
                DType::BF16 if X::DTYPE == DType::F32 => {
                    for (i, &v) in src.iter().enumerate() {
                        let x = *(&raw const v).cast::<f32>();
                        let b = x.to_bits();
                        let nearest = b.wrapping_add(0x7fff + ((b >> 16) & 1)) >> 16; // ties to even
                        let quiet = (b >> 16) | 0x40;
                        *ptr.cast::<bf16>().add(i * stride) =
                            bf16::from_bits(if x.is_nan() { quiet } else { nearest } as u16)
                    }
                }
                _ => with_element!(dtype, T => {
                    let dst = ptr.cast::<T>();
                    if stride == 1 {
                        for (i, &v) in src.iter().enumerate() {
                            *dst.add(i) = v.store()
                        }
                    } else {
                        for (i, &v) in src.iter().enumerate() {
                            *dst.add(i * stride) = v.store()
                        }
                    }
                }),
            }
        }
    }
}

/// Folds a slice with independent lanes, then pairwise: wide accumulators hide the latency of the operation, and the
/// error of a sum grows with `n / 64`. A short slice uses fewer lanes.
#[inline(always)]
pub(crate) fn fold<X: Copy>(xs: &[X], unit: X, map: impl Fn(X) -> X + Copy, merge: impl Fn(X, X) -> X + Copy) -> X {
    if xs.len() < 8 {
        return xs.iter().fold(unit, |a, &x| merge(a, map(x)));
    }
    if xs.len() < 128 { fold_lanes::<X, 8>(xs, unit, map, merge) } else { fold_lanes::<X, 64>(xs, unit, map, merge) }
}

/// Like [`fold`], for merges that round: four elements at a time are merged in the compute type, their results in lanes of the
/// wide one (by `join`). So a sum of f32 loses nothing that grows with its length, at little more than the price of adding
/// in f32 alone.
#[inline(always)]
pub(crate) fn fold_wide<X: Compute>(
    xs: &[X],
    unit: X::Wide,
    map: impl Fn(X) -> X + Copy,
    merge: impl Fn(X, X) -> X + Copy,
    join: impl Fn(X::Wide, X::Wide) -> X::Wide + Copy,
) -> X::Wide {
    const L: usize = 16;
    let mut total = unit;
    let mut rest = xs;
    if xs.len() >= L {
        let mut wide = [unit; L];
        let (fours, more) = xs.as_chunks::<{ 4 * L }>();
        for c in fours {
            for i in 0..L {
                let (a, b) = (merge(map(c[i]), map(c[i + L])), merge(map(c[i + 2 * L]), map(c[i + 3 * L])));
                wide[i] = join(wide[i], merge(a, b).widen())
            }
        }
        let (ones, few) = more.as_chunks::<L>();
        for c in ones {
            for i in 0..L {
                wide[i] = join(wide[i], map(c[i]).widen())
            }
        }
        for w in apart(wide) {
            total = join(total, w)
        }
        rest = few;
    }
    for &x in rest {
        total = join(total, map(x).widen())
    }
    total
}

/// The sum of a slice, every element added in the wide type.
#[inline(always)]
pub(crate) fn sum_wide<X: Compute>(xs: &[X]) -> X::Wide {
    let mut wide = [X::Wide::ZERO; 16];
    let (chunks, rest) = xs.as_chunks::<16>();
    for c in chunks {
        for i in 0..16 {
            wide[i] = wide[i].add(c[i].widen())
        }
    }
    let mut total = X::Wide::ZERO;
    for w in apart(wide) {
        total = total.add(w)
    }
    for &x in rest {
        total = total.add(x.widen())
    }
    total
}

/// A copy that the compiler does not see through: the lanes it was made of stay in registers although the copy is indexed by
/// a variable or borrowed.
#[inline(always)]
pub(crate) fn apart<X: Copy, const L: usize>(lanes: [X; L]) -> [X; L] {
    std::hint::black_box(lanes)
}

#[inline(always)]
fn fold_lanes<X: Copy, const L: usize>(
    xs: &[X],
    unit: X,
    map: impl Fn(X) -> X + Copy,
    merge: impl Fn(X, X) -> X + Copy,
) -> X {
    let mut wide = [unit; L];
    let (chunks, rest) = xs.as_chunks::<L>();
    for c in chunks {
        for i in 0..L {
            wide[i] = merge(wide[i], map(c[i]))
        }
    }
    let mut lanes = apart(wide);
    for (l, &x) in lanes.iter_mut().zip(rest) {
        *l = merge(*l, map(x))
    }
    let mut n = L / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] = merge(lanes[i], lanes[i + n])
        }
        n /= 2;
    }
    lanes[0]
}

/// Folds what `map` makes of two slices of one length into a sum, in 64 lanes.
#[inline(always)]
pub(crate) fn sum_of<X: Compute>(a: &[X], b: &[X], map: impl Fn(X, X, X) -> X + Copy) -> f64 {
    let mut wide = [X::ZERO; 64];
    let ((ac, ar), (bc, br)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    for (a, b) in ac.iter().zip(bc) {
        for i in 0..64 {
            wide[i] = map(wide[i], a[i], b[i]);
        }
    }
    let lanes = apart(wide);
    let mut sum = fold_wide(&lanes, X::Wide::ZERO, |x| x, X::add, X::Wide::add).to_f64();
    for (&a, &b) in ar.iter().zip(br) {
        sum += map(X::ZERO, a, b).to_f64()
    }
    sum
}
