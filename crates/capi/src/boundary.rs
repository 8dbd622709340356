//! The boundary between C and Rust: pointers are checked, panics are caught, and errors become messages of the calling thread.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What kind of failure it was, as in `fb_error_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorKind {
    /// Nothing failed.
    None = 0,
    /// A pointer, index, name or value that the function does not accept.
    Argument = 1,
    /// A file that cannot be read or written.
    File = 2,
    /// Content that is damaged, or not what it should be.
    Format = 3,
    /// Something that this build cannot do.
    Unsupported = 4,
    /// Memory that cannot be allocated.
    Memory = 5,
    /// An op or a program that failed on its operands.
    Run = 6,
    /// The caller's callback asked to stop.
    Stopped = 7,
    /// A fault of the library.
    Internal = 8,
}

/// Why a function of the interface failed.
pub(crate) struct Refusal {
    kind: ErrorKind,
    message: String,
}

impl Refusal {
    /// An argument that is not accepted.
    pub(crate) fn because(message: impl std::fmt::Display) -> Refusal {
        Refusal::of(ErrorKind::Argument, message)
    }

    pub(crate) fn of(kind: ErrorKind, message: impl std::fmt::Display) -> Refusal {
        Refusal { kind, message: message.to_string() }
    }
}

/// The caller reads the error text of the other crates unchanged.
impl<E: std::error::Error + 'static> From<E> for Refusal {
    fn from(e: E) -> Refusal {
        Refusal::of(kind_of(&e), e)
    }
}

fn kind_of(e: &(dyn std::error::Error + 'static)) -> ErrorKind {
    if let Some(e) = e.downcast_ref::<firebrand::Error>() {
        return match e.kind() {
            firebrand::ErrorKind::OutOfMemory { .. } => ErrorKind::Memory,
            firebrand::ErrorKind::User(inner) => kind_of(&**inner),
            _ if e.kind().class() == firebrand::Class::NotImplemented => ErrorKind::Unsupported,
            _ => ErrorKind::Run,
        };
    }
    if let Some(e) = e.downcast_ref::<firebrand::graph::Error>() {
        use firebrand::graph::Error;
        return match e {
            Error::Io(e) => kind_of(e),
            Error::Core(e) => kind_of(e),
            Error::Run { source, .. } => kind_of(&**source),
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Value(_) | Error::Input { .. } | Error::Pass { .. } => ErrorKind::Argument,
            _ => ErrorKind::Format,
        };
    }
    if let Some(e) = e.downcast_ref::<firebrand::io::Error>() {
        use firebrand::io::Error;
        return match e {
            Error::System(e) if e.kind() == std::io::ErrorKind::OutOfMemory => ErrorKind::Memory,
            Error::System(_) | Error::NotRegular { .. } | Error::Output { .. } => ErrorKind::File,
            Error::File { source, .. } | Error::Array { source, .. } | Error::Entry { source, .. } => {
                kind_of(&**source)
            }
            Error::Tensor(e) => kind_of(e),
            _ => ErrorKind::Format,
        };
    }
    ErrorKind::Argument
}

pub(crate) type Answer<T> = Result<T, Refusal>;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
    static LAST_KIND: Cell<ErrorKind> = const { Cell::new(ErrorKind::None) };
}

/// Runs a function of the interface: returns its result, or `None` and a message for `fb_last_error`.
pub(crate) fn guard<T>(f: impl FnOnce() -> Answer<T>) -> Option<T> {
    // Nothing that a panic could leave half-done is looked at again: the caller is told to free its objects.
    let Refusal { kind, message } = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(refusal)) => refusal,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            let message = format!("internal error: {text}; free the objects of this call, their state is unknown");
            Refusal::of(ErrorKind::Internal, message)
        }
    };
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| last.replace(message));
    LAST_KIND.set(kind);
    None
}

/// Like [`guard`], for functions that return 0 or -1.
pub(crate) fn status(f: impl FnOnce() -> Answer<()>) -> i32 {
    guard(f).map_or(-1, |()| 0)
}

/// Like [`guard`], for functions that return a new object or null.
pub(crate) fn object<T>(f: impl FnOnce() -> Answer<T>) -> *mut T {
    guard(f).map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

/// Drops an object that [`object`] returned; null is ignored.
///
/// # Safety
/// `pointer` is null, or came from [`object`] and was not freed.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        guard(|| {
            check_pointer(pointer, "the object")?;
            // SAFETY: it came from `Box::into_raw` and was not freed, says the caller.
            drop(unsafe { Box::from_raw(pointer) });
            Ok(())
        });
    }
}

/// The object behind a pointer.
///
/// # Safety
/// `pointer` is null, or points to a `T` that lives and is not changed elsewhere during the call.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T, what: &str) -> Answer<&'a T> {
    check_pointer(pointer, what)?;
    // SAFETY: it is neither null nor misaligned, and points to a `T` that lives and is not changed, says the caller.
    Ok(unsafe { &*pointer })
}

/// The object behind a pointer, mutable.
///
/// # Safety
/// `pointer` is null, or points to a `T` that lives and nothing else uses during the call.
pub(crate) unsafe fn borrow_mut<'a, T>(pointer: *mut T, what: &str) -> Answer<&'a mut T> {
    check_pointer(pointer, what)?;
    // SAFETY: it is neither null nor misaligned, and points to a `T` that lives and nothing else uses, says the caller.
    Ok(unsafe { &mut *pointer })
}

/// Writes a value for the caller; null is ignored.
///
/// # Safety
/// `pointer` is null, or points to memory for a `T` that nothing else uses during the call.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T, what: &str) -> Answer<()> {
    if !pointer.is_null() {
        check_pointer(pointer, what)?;
        // SAFETY: it is aligned, and memory for a `T` that may be written, says the caller; what was there is not read.
        unsafe { pointer.write(value) };
    }
    Ok(())
}

/// The elements of an array; an empty one may be null.
///
/// # Safety
/// `pointer` is null, or points to `count` elements that live and are not changed during the call.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize, what: &str) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_array(pointer, count, what)?;
    // SAFETY: it is neither null nor misaligned nor too long, and holds `count` elements, says the caller.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Memory for the elements of an array, to write. C need not have initialized it, so nothing of it can be read.
///
/// # Safety
/// `pointer` is null, or points to memory for `count` elements that lives and nothing else uses during the call.
pub(crate) unsafe fn array_out<'a, T>(pointer: *mut T, count: usize, what: &str) -> Answer<&'a mut [MaybeUninit<T>]> {
    if count == 0 {
        return Ok(&mut []);
    }
    check_array(pointer, count, what)?;
    // SAFETY: it is neither null nor misaligned nor too long, and memory for `count` elements, says the caller; a
    // `MaybeUninit` may hold anything.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast::<MaybeUninit<T>>(), count) })
}

fn check_pointer<T>(pointer: *const T, what: &str) -> Answer<()> {
    if pointer.is_null() {
        return Err(Refusal::because(format!("{what} is null")));
    }
    if !pointer.is_aligned() {
        return Err(Refusal::because(format!("{what} is not aligned to {} bytes", align_of::<T>())));
    }
    Ok(())
}

fn check_array<T>(pointer: *const T, count: usize, what: &str) -> Answer<()> {
    check_pointer(pointer, what)?;
    if count.checked_mul(size_of::<T>()).is_none_or(|n| n > isize::MAX as usize) {
        return Err(Refusal::because(format!("{what} of {count} elements is larger than memory")));
    }
    Ok(())
}

/// Text of the caller's.
///
/// # Safety
/// `pointer` is null, or points to text that ends with a zero byte and is not changed during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Answer<&'a str> {
    if pointer.is_null() {
        return Err(Refusal::because(format!("{what} is null")));
    }
    // SAFETY: it ends with a zero byte, says the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Refusal::because(format!("{what} is not UTF-8")))
}

/// The message of the last failed call of this thread; empty if none failed. Valid until the next failure.
#[unsafe(no_mangle)]
pub extern "C" fn fb_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

/// The kind of the last failed call of this thread, as in `fb_error_kind`; 0 if none failed.
#[unsafe(no_mangle)]
pub extern "C" fn fb_last_error_kind() -> i32 {
    LAST_KIND.get() as i32
}
