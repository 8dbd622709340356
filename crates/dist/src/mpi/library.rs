//! An MPI library: its functions, and the three handles in which implementations differ.
//!
//! Handles are pointers in Open MPI and in the standard interface, and C integers in MPICH's own. Both are passed as machine
//! words: on the 64-bit targets this is built for, a callee that expects an integer reads the low half of the register.
#![allow(unsafe_code)]

use crate::{Error, Result};
use firebrand_core::Tensor;
use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

/// A handle of the library: a pointer, or an integer in its low half.
type Handle = *mut c_void;

/// The thread level requested from MPI_Init_thread: only the thread that calls it will call MPI.
const FUNNELED: c_int = 1;
const FUNNELED_STANDARD: c_int = 1024;
/// More than any implementation writes.
const TEXT: usize = 8192;
/// The code a job ends with when a rank fails.
const FAILED: c_int = 3;

/// A collective under way. The tensors it reads and writes are held until it is done or the process ends.
pub(super) struct Request {
    handle: Handle,
    _buffers: [Tensor; 2],
}

/// How an implementation spells its constants.
struct Constants {
    world: Handle,
    byte: Handle,
    errors_return: Handle,
    threads: c_int,
}

// Names and signatures are those of the MPI standard, chapter by chapter.
type Init = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_int) -> c_int;
type SetHandler = unsafe extern "C" fn(Handle, Handle) -> c_int;
type Ask = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Text = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type ErrorText = unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int;
type Exchange =
    unsafe extern "C" fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Handle) -> c_int;
type Broadcast = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle, *mut Handle) -> c_int;
type Barrier = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> c_int;
type Abort = unsafe extern "C" fn(Handle, c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

pub(super) struct Library {
    constants: Constants,
    init: Init,
    set_handler: SetHandler,
    rank: Ask,
    size: Ask,
    version: Text,
    host: Text,
    error_text: ErrorText,
    all_to_all: Exchange,
    all_gather: Exchange,
    broadcast: Broadcast,
    barrier: Barrier,
    test: Test,
    abort: Abort,
    finalize: Finalize,
    // Never closed: MPI registers exit handlers in it.
    _opened: std::mem::ManuallyDrop<Opened>,
}

// SAFETY: functions and constants of a library that stays open. MPI's rule, one thread from beginning to end, is kept by the
// owner: a link moves to its thread before `init` and never leaves it.
unsafe impl Send for Library {}

/// A function of the library by name, as the type that the standard gives it.
macro_rules! function {
    ($opened:expr, $path:expr, $name:literal, $type:ty) => {
        // SAFETY: the type is the function's signature in the MPI standard, for all implementations on 64-bit targets.
        match unsafe { $opened.get::<$type>($name.as_bytes()) } {
            Ok(symbol) => *symbol,
            Err(e) => return Err(Error::Library { library: $path.display().to_string(), reason: e.to_string() }),
        }
    };
}

impl Library {
    /// Opens a library and finds its functions. MPI itself is not started.
    pub(super) fn open(path: &Path) -> Result<Library> {
        // Global, because plug-ins of the library look for its symbols.
        // SAFETY: runs the initializers of an MPI library, which the user or their launcher chose.
        let opened = unsafe { Opened::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        let opened =
            opened.map_err(|e| Error::Library { library: path.display().to_string(), reason: e.to_string() })?;
        Ok(Library {
            constants: Constants::of(&opened, path)?,
            init: function!(opened, path, "MPI_Init_thread", Init),
            set_handler: function!(opened, path, "MPI_Comm_set_errhandler", SetHandler),
            rank: function!(opened, path, "MPI_Comm_rank", Ask),
            size: function!(opened, path, "MPI_Comm_size", Ask),
            version: function!(opened, path, "MPI_Get_library_version", Text),
            host: function!(opened, path, "MPI_Get_processor_name", Text),
            error_text: function!(opened, path, "MPI_Error_string", ErrorText),
            all_to_all: function!(opened, path, "MPI_Ialltoall", Exchange),
            all_gather: function!(opened, path, "MPI_Iallgather", Exchange),
            broadcast: function!(opened, path, "MPI_Ibcast", Broadcast),
            barrier: function!(opened, path, "MPI_Ibarrier", Barrier),
            test: function!(opened, path, "MPI_Test", Test),
            abort: function!(opened, path, "MPI_Abort", Abort),
            finalize: function!(opened, path, "MPI_Finalize", Finalize),
            _opened: std::mem::ManuallyDrop::new(opened),
        })
    }

    /// The library's text for an error code.
    fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut text = [0; TEXT];
        let mut len = 0;
        // SAFETY: the buffer is longer than MPI_MAX_ERROR_STRING of every implementation.
        unsafe { (self.error_text)(code, text.as_mut_ptr(), &mut len) };
        Err(Error::Mpi { call, reason: words(&text, len) })
    }

    pub(super) fn init(&self) -> Result<()> {
        let mut granted = 0;
        // SAFETY: null arguments are allowed; the level is an integer of this implementation.
        let code = unsafe { (self.init)(null_mut(), null_mut(), self.constants.threads, &mut granted) };
        self.check("MPI_Init_thread", code)?;
        // Errors come back as codes instead of ending the process.
        // SAFETY: handles of this implementation, after initialization.
        let code = unsafe { (self.set_handler)(self.constants.world, self.constants.errors_return) };
        self.check("MPI_Comm_set_errhandler", code)
    }

    fn ask(&self, call: &'static str, function: Ask) -> Result<usize> {
        let mut answer = 0;
        // SAFETY: a handle of this implementation and a place for one integer.
        let code = unsafe { function(self.constants.world, &mut answer) };
        self.check(call, code)?;
        usize::try_from(answer).map_err(|_| Error::Mpi { call, reason: format!("it answered {answer}") })
    }

    pub(super) fn rank(&self) -> Result<usize> {
        self.ask("MPI_Comm_rank", self.rank)
    }

    pub(super) fn size(&self) -> Result<usize> {
        self.ask("MPI_Comm_size", self.size)
    }

    fn text(&self, call: &'static str, function: Text) -> Result<String> {
        let mut text = [0; TEXT];
        let mut len = 0;
        // SAFETY: the buffer is as long as MPI_MAX_LIBRARY_VERSION_STRING of the largest implementation, and longer than names.
        let code = unsafe { function(text.as_mut_ptr(), &mut len) };
        self.check(call, code)?;
        Ok(words(&text, len))
    }

    /// Name and version, in one line.
    pub(super) fn version(&self) -> Result<String> {
        let text = self.text("MPI_Get_library_version", self.version)?;
        let line = text.lines().next().unwrap_or_default();
        Ok(line.split(',').next().unwrap_or(line).split_whitespace().collect::<Vec<_>>().join(" "))
    }

    pub(super) fn host(&self) -> Result<String> {
        self.text("MPI_Get_processor_name", self.host)
    }

    pub(super) fn all_to_all(&self, send: &Tensor, receive: &Tensor, size: usize) -> Result<Request> {
        self.exchange("MPI_Ialltoall", self.all_to_all, (send, size), (receive, size))
    }

    pub(super) fn all_gather(&self, send: &Tensor, receive: &Tensor, size: usize) -> Result<Request> {
        self.exchange("MPI_Iallgather", self.all_gather, (send, 1), (receive, size))
    }

    /// Starts an exchange of tensors that hold this many parts.
    fn exchange(
        &self,
        call: &'static str,
        function: Exchange,
        (send, out): (&Tensor, usize),
        (receive, back): (&Tensor, usize),
    ) -> Result<Request> {
        let (from, sent) = bytes(call, send, out)?;
        let (to, received) = bytes(call, receive, back)?;
        if sent != received {
            return Err(Error::Argument(format!("{call}: parts of {sent} bytes are sent and of {received} received")));
        }
        let mut request = Request { handle: null_mut(), _buffers: [send.clone(), receive.clone()] };
        let Constants { world, byte, .. } = self.constants;
        // SAFETY: both buffers hold this many parts of this many bytes (`bytes`), and the request keeps them alive.
        let code = unsafe { function(from.cast(), sent, byte, to.cast(), received, byte, world, &mut request.handle) };
        self.check(call, code)?;
        Ok(request)
    }

    pub(super) fn broadcast(&self, root: usize, tensor: &Tensor) -> Result<Request> {
        let call = "MPI_Ibcast";
        let (data, len) = bytes(call, tensor, 1)?;
        let mut request = Request { handle: null_mut(), _buffers: [tensor.clone(), tensor.clone()] };
        let Constants { world, byte, .. } = self.constants;
        // SAFETY: the buffer holds `len` bytes, and the request keeps it alive; `root` was compared with the size.
        let code = unsafe { (self.broadcast)(data.cast(), len, byte, root as c_int, world, &mut request.handle) };
        self.check(call, code)?;
        Ok(request)
    }

    pub(super) fn barrier(&self) -> Result<Request> {
        let nothing = Tensor::zeros([0], firebrand_core::DType::U8);
        let mut request = Request { handle: null_mut(), _buffers: [nothing.clone(), nothing] };
        // SAFETY: a handle of this implementation.
        let code = unsafe { (self.barrier)(self.constants.world, &mut request.handle) };
        self.check("MPI_Ibarrier", code)?;
        Ok(request)
    }

    /// Whether a request is done.
    pub(super) fn test(&self, request: &mut Request) -> Result<bool> {
        // Larger than MPI_Status of every implementation.
        let mut status = [0u64; 16];
        let mut done = 0;
        // SAFETY: a request that this library started and that has not been reported as done.
        let code = unsafe { (self.test)(&mut request.handle, &mut done, status.as_mut_ptr().cast()) };
        self.check("MPI_Test", code)?;
        Ok(done != 0)
    }

    /// Ends the job, this process included.
    pub(super) fn abort(&self) {
        // SAFETY: a handle of this implementation.
        unsafe { (self.abort)(self.constants.world, FAILED) };
    }

    pub(super) fn finalize(&self) -> Result<()> {
        // SAFETY: on the thread that called `init`; no request is open.
        let code = unsafe { (self.finalize)() };
        self.check("MPI_Finalize", code)
    }
}

impl Constants {
    /// By the symbols of the library, and by its name where the standard interface leaves no other trace.
    fn of(opened: &Opened, path: &Path) -> Result<Constants> {
        let symbol = |name: &str| -> Option<Handle> {
            // SAFETY: the address of an object is used as a handle and never followed.
            unsafe { opened.get::<Handle>(name.as_bytes()) }.ok().map(|s| s.as_raw_ptr())
        };
        let number = |n: usize| std::ptr::without_provenance_mut(n);
        if let Some(world) = symbol("ompi_mpi_comm_world") {
            let (Some(byte), Some(errors_return)) = (symbol("ompi_mpi_byte"), symbol("ompi_mpi_errors_return")) else {
                let reason = "Open MPI without ompi_mpi_byte and ompi_mpi_errors_return".into();
                return Err(Error::Library { library: path.display().to_string(), reason });
            };
            return Ok(Constants { world, byte, errors_return, threads: FUNNELED });
        }
        let standard = path.file_name().is_some_and(|n| n.to_string_lossy().contains("mpi_abi"));
        Ok(match standard {
            true => Constants {
                world: number(0x101),
                byte: number(0x247),
                errors_return: number(0x143),
                threads: FUNNELED_STANDARD,
            },
            false => Constants {
                world: number(0x4400_0000),
                byte: number(0x4c00_010d),
                errors_return: number(0x5400_0001),
                threads: FUNNELED,
            },
        })
    }
}

/// Where a tensor's bytes are, and how many each of its parts has.
fn bytes(call: &'static str, t: &Tensor, parts: usize) -> Result<(*mut u8, c_int)> {
    let refuse = |reason: String| Err(Error::Argument(format!("{call}: {reason}")));
    if t.shape().len() != 1 || !t.is_contiguous() || t.device() != firebrand_core::Device::Cpu {
        return refuse("expected a contiguous row of values in memory".into());
    }
    if !t.shape()[0].is_multiple_of(parts) {
        return refuse(format!("{} elements cannot be cut into {parts} equal parts", t.shape()[0]));
    }
    let len = t.shape()[0] / parts * t.dtype().size();
    let Ok(len) = c_int::try_from(len) else {
        return refuse(format!(
            "a part of {len} bytes is more than MPI's counts hold; use more ranks or smaller tensors"
        ));
    };
    Ok((t.data_ptr(), len))
}

fn words(text: &[c_char], len: c_int) -> String {
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    let bytes: Vec<u8> = text[..len].iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
