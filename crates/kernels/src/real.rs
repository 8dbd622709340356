//! Shared parts of float kernels: the two types they compute in, widening of half types, scratch memory, instruction sets.
//!
//! A kernel is written once over [`Real`] (f32 and f64). Half types are widened to f32 as a whole, computed, and
//! rounded once at the end: [`reals`] and [`RealsMut`] do that, so no kernel is compiled for them.
#![allow(unsafe_code)]

use crate::vmath::{from_bf16, to_bf16};
use crate::{DType, Element, OutOfMemory, Storage, View, ViewMut, bf16, f16, parallel};
use half::slice::HalfFloatSliceExt;
use std::marker::PhantomData;
use std::ops::{Add, AddAssign, Deref, DerefMut, Div, Mul, Neg, Sub};

/// A type that kernels compute in.
pub(crate) trait Real:
    Element
    + PartialOrd
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
{
    const ZERO: Self;
    const ONE: Self;
    const NEG_INFINITY: Self;
    /// Square root.
    fn root(self) -> Self;
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const NEG_INFINITY: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn root(self) -> f32 {
        self.sqrt()
    }
}
impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const NEG_INFINITY: f64 = f64::NEG_INFINITY;
    #[inline(always)]
    fn root(self) -> f64 {
        self.sqrt()
    }
}

/// Runs `$body` with `$t` standing for the type that arithmetic on the float type `$dtype` is done in.
macro_rules! with_real {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F64 => {
                type $t = f64;
                $body
            }
            d => {
                assert!(d.is_floating_point(), "a kernel for floats was given {d}");
                type $t = f32;
                $body
            }
        }
    };
}
pub(crate) use with_real;

/// A function over [`Real`], or another trait, compiled once per instruction set; a call takes the one in use.
/// The body must be plain loops: what it calls is compiled along only if it is `#[inline(always)]`.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<T: $bound:ident>)?($($arg:ident: $ty:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name $(<T: $bound>)?($($arg: $ty),*) $(-> $result)? {
            #[inline(always)]
            fn body $(<T: $bound>)?($($arg: $ty),*) $(-> $result)? $body
            #[cfg(all(target_arch = "x86_64", feature = "avx2"))]
            {
                $crate::sets::avx2::for_avx2! {
                    fn avx2 $(<T: $bound>)?($($arg: $ty),*) $(-> $result)? {
                        body($($arg),*)
                    }
                }
                #[cfg(feature = "avx512")]
                $crate::sets::avx512::for_avx512! {
                    fn avx512 $(<T: $bound>)?($($arg: $ty),*) $(-> $result)? {
                        body($($arg),*)
                    }
                }
                match $crate::cpu::isa() {
                    // SAFETY: `isa` names a set only if the machine has it.
                    #[cfg(feature = "avx512")]
                    $crate::cpu::Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::cpu::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    _ => {}
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use per_isa;

/// Tests that change the number of threads or the instruction set take turns.
#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

/// The same values, known to be f32.
pub(crate) fn f32s<T: Real>(s: &[T]) -> &[f32] {
    assert_eq!(T::DTYPE, DType::F32);
    // SAFETY: `f32` is the one type of this dtype.
    unsafe { std::slice::from_raw_parts(s.as_ptr().cast(), s.len()) }
}

/// Like [`f32s`], to write.
pub(crate) fn f32s_mut<T: Real>(s: &mut [T]) -> &mut [f32] {
    assert_eq!(T::DTYPE, DType::F32);
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(s.as_mut_ptr().cast(), s.len()) }
}

/// A pointer that crosses threads; who makes one sees to it that the threads write disjoint elements.
#[derive(Clone, Copy)]
pub(crate) struct Ptr<T>(*mut T);
// SAFETY: only a pointer; every use is an unsafe block of its own.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    pub(crate) fn new(s: &mut [T]) -> Ptr<T> {
        Ptr(s.as_mut_ptr())
    }

    pub(crate) fn at_address(p: *mut T) -> Ptr<T> {
        Ptr(p)
    }

    /// # Safety
    /// The range lies in the slice this was made of, and nothing else uses it while the result lives.
    #[inline(always)]
    pub(crate) unsafe fn slice<'a>(self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }

    /// The address of element `i`, which may lie outside as long as it is not used.
    #[inline(always)]
    pub(crate) fn at(self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// Temporary numbers on a 64-byte boundary, from the caching allocator: no fresh pages, arbitrary old content.
pub struct Scratch<T> {
    memory: Storage,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Element> Scratch<T> {
    /// Room for `len` numbers, for callers outside of kernels.
    pub fn try_new(len: usize) -> Result<Scratch<T>, OutOfMemory> {
        Ok(Scratch { memory: Storage::new(len.saturating_mul(size_of::<T>()))?, len, of: PhantomData })
    }

    pub(crate) fn new(len: usize) -> Scratch<T> {
        Scratch::try_new(len).unwrap_or_else(|e| crate::scratch::raise(e))
    }

    /// The same numbers.
    pub(crate) fn copy_of(numbers: &[T]) -> Scratch<T> {
        let mut s = Scratch::new(numbers.len());
        s.copy_from_slice(numbers);
        s
    }

    pub(crate) fn zeroed(len: usize) -> Scratch<T>
    where
        T: Default,
    {
        let mut s = Scratch::new(len);
        s.fill(T::default());
        s
    }

    fn ptr(&self) -> *mut T {
        self.memory.view_mut(T::DTYPE, 0, &[self.len], &[1]).ptr()
    }
}

impl<T> std::fmt::Debug for Scratch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Element> Deref for Scratch<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the storage holds `len` initialized elements and is ours alone.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.len) }
    }
}
impl<T: Element> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(), self.len) }
    }
}

/// Values of a contiguous float view as `T`: borrowed, or widened from a half type.
pub(crate) enum Reals<'a, T> {
    Borrowed(&'a [T]),
    Widened(Scratch<T>),
}

impl<T: Element> Deref for Reals<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Reals::Borrowed(s) => s,
            Reals::Widened(s) => s,
        }
    }
}

per_isa! {
    fn widen(from: &[bf16], to: &mut [f32]) {
        for (from, to) in from.iter().zip(to) {
            *to = from_bf16(from.to_bits());
        }
    }
}

per_isa! {
    fn narrow(from: &[f32], to: &mut [bf16]) {
        for (from, to) in from.iter().zip(to) {
            *to = bf16::from_bits(to_bf16(*from));
        }
    }
}

/// How many elements a thread converts at once.
const GRAIN: usize = 1 << 15;

/// The elements of a contiguous view whose dtype computes in `T`.
pub(crate) fn reals<'a, T: Real>(v: View<'a>) -> Reals<'a, T> {
    if v.dtype() == T::DTYPE {
        return Reals::Borrowed(v.as_slice().expect("a contiguous view"));
    }
    let mut out = Scratch::<T>::new(v.numel());
    let to = Ptr::new(&mut out);
    parallel::split(v.numel(), GRAIN, |r| {
        // SAFETY: the ranges are disjoint and inside; every element is written.
        let to = unsafe { to.slice(r.start, r.len()) };
        // Only f32 is ever asked for from another dtype, so the bits are right.
        // SAFETY: `T` is f32: f64 has no narrower dtype that computes in it.
        let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<f32>(), to.len()) };
        match v.dtype() {
            DType::F16 => v.as_slice::<f16>().expect("a contiguous view")[r].convert_to_f32_slice(to),
            DType::BF16 => widen(&v.as_slice::<bf16>().expect("a contiguous view")[r], to),
            d => unreachable!("{d} does not compute in {}", T::DTYPE),
        }
    });
    Reals::Widened(out)
}

/// Numbers to be written to a contiguous float view; call [`RealsMut::finish`] to round them into a half type.
pub(crate) struct RealsMut<'a, T> {
    view: ViewMut<'a>,
    wide: Option<Scratch<T>>,
}

impl<'a, T: Real> RealsMut<'a, T> {
    /// Content is unspecified: the kernel writes every element.
    pub(crate) fn new(view: ViewMut<'a>) -> RealsMut<'a, T> {
        assert!(view.is_contiguous(), "a contiguous view");
        let wide = (view.dtype() != T::DTYPE).then(|| Scratch::new(view.numel()));
        RealsMut { view, wide }
    }

    /// All zeros, for kernels that add.
    pub(crate) fn zeroed(view: ViewMut<'a>) -> RealsMut<'a, T> {
        let mut r = RealsMut::new(view);
        let n = r.len();
        let to = Ptr::new(&mut r);
        // SAFETY: the ranges are disjoint and inside.
        parallel::split(n, GRAIN, |r| unsafe { to.slice(r.start, r.len()) }.fill(T::ZERO));
        r
    }

    pub(crate) fn finish(self) {
        let Some(wide) = self.wide else { return };
        parallel::split(wide.len(), GRAIN, |r| {
            // SAFETY: `T` is f32, as a half type computes in it.
            let from = unsafe { std::slice::from_raw_parts(wide[r.clone()].as_ptr().cast::<f32>(), r.len()) };
            // SAFETY: contiguous elements of the view; the ranges are disjoint.
            unsafe {
                match self.view.dtype() {
                    DType::F16 => std::slice::from_raw_parts_mut(self.view.ptr::<f16>().add(r.start), r.len())
                        .convert_from_f32_slice(from),
                    DType::BF16 => {
                        narrow(from, std::slice::from_raw_parts_mut(self.view.ptr::<bf16>().add(r.start), r.len()))
                    }
                    d => unreachable!("{d} does not compute in f32"),
                }
            }
        });
    }
}

impl<T: Real> Deref for RealsMut<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.wide {
            Some(w) => w,
            // SAFETY: contiguous elements of this type, by `new`.
            None => unsafe { std::slice::from_raw_parts(self.view.ptr(), self.view.numel()) },
        }
    }
}
impl<T: Real> DerefMut for RealsMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.wide {
            Some(w) => w,
            // SAFETY: contiguous elements of this type, by `new`; outputs of a kernel do not alias its inputs.
            None => unsafe { std::slice::from_raw_parts_mut(self.view.ptr(), self.view.numel()) },
        }
    }
}
