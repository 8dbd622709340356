//! A box whose memory comes from the thread's lists of small objects.
//!
//! Every recorded op makes one object of a type its node does not know. The system's allocator keeps seven of a size at
//! hand and a recorded graph holds thousands, so a `Box` would cost a node more than its derivative's arithmetic.
//! What it leaves out: coercion by the compiler, which stable Rust does not offer; [`Owned::erase`] takes its place.
#![allow(unsafe_code)]

use crate::small;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, drop_in_place};

/// The owner of a `T`.
pub struct Owned<T: ?Sized>(NonNull<T>, PhantomData<T>);

// SAFETY: it owns its value, as a box does.
unsafe impl<T: Send + ?Sized> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + ?Sized> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Moves a value into memory of its own; a value without a size needs none.
    #[inline]
    pub fn new(value: T) -> Owned<T> {
        Owned::make(|| value)
    }

    /// Like [`Owned::new`], of a value that is built where it stays. If `value` panics, the memory is not used again.
    #[inline(always)]
    pub fn make(value: impl FnOnce() -> T) -> Owned<T> {
        let layout = Layout::new::<T>();
        let p = if layout.size() == 0 { NonNull::dangling() } else { small::take(layout).cast::<T>() };
        // SAFETY: fresh memory of this layout, or a value without a size.
        unsafe { p.write(value()) };
        Owned(p, PhantomData)
    }

    /// The same value behind another type: `Owned::new(3).erase(|v| v as &mut dyn Debug)`.
    ///
    /// # Panics
    /// If `coerce` answers with anything but the whole value.
    #[inline]
    pub fn erase<U: ?Sized>(self, coerce: for<'a> fn(&'a mut T) -> &'a mut U) -> Owned<U> {
        let mut this = std::mem::ManuallyDrop::new(self);
        let p = this.0;
        let erased = coerce(&mut **this);
        // The same memory with the same layout: what is freed later is what was taken.
        let same = std::ptr::addr_eq(&raw const *erased, p.as_ptr()) && Layout::for_value(erased) == Layout::new::<T>();
        assert!(same, "Owned::erase: expected another type of the same value");
        Owned(NonNull::from(erased), PhantomData)
    }
}

impl<T: ?Sized> std::ops::Deref for Owned<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: alive as long as its owner.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> std::ops::DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: alive as long as its owner, which is borrowed exclusively.
        unsafe { self.0.as_mut() }
    }
}

impl<T: std::fmt::Debug + ?Sized> std::fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Drop for Owned<T> {
    #[inline]
    fn drop(&mut self) {
        let layout = Layout::for_value(&**self);
        // SAFETY: the owner goes, and with it the last access; `erase` kept the layout the memory was taken with.
        unsafe {
            drop_in_place(self.0.as_ptr());
            if layout.size() != 0 {
                small::give(self.0.cast(), layout)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fmt::Debug;

    struct Counts<'a>(&'a Cell<u32>, [u64; 3]);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    trait Sum {
        fn sum(&self) -> u64;
    }
    impl Sum for Counts<'_> {
        fn sum(&self) -> u64 {
            self.1.iter().sum()
        }
    }

    #[test]
    fn an_erased_value_is_dropped_once_and_whole() {
        let dropped = Cell::new(0);
        let owned = Owned::new(Counts(&dropped, [1, 2, 3])).erase(|v| v as &mut dyn Sum);
        assert_eq!((owned.sum(), dropped.get()), (6, 0));
        drop(owned);
        assert_eq!(dropped.get(), 1);
    }

    #[test]
    fn values_without_a_size_and_large_ones() {
        let nothing = Owned::new(()).erase(|v| v as &mut dyn Debug);
        assert_eq!(format!("{:?}", &*nothing), "()");
        let mut large = Owned::new([7u8; 4096]).erase(|v| v as &mut [u8]);
        large[4095] = 9;
        assert_eq!(large.iter().map(|v| u64::from(*v)).sum::<u64>(), 7 * 4095 + 9);
    }

    #[test]
    #[should_panic(expected = "expected another type of the same value")]
    fn a_part_of_the_value_is_refused() {
        drop(Owned::new([1u64, 2]).erase(|v| &mut v[1..]));
    }

    #[test]
    fn freed_on_another_thread() {
        let owned = Owned::new(vec![1, 2, 3]);
        std::thread::spawn(move || assert_eq!(owned.len(), 3)).join().expect("the thread ends well");
    }
}
