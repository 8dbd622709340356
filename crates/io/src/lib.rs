//! Tensors in files: NumPy's `.npy` and `.npz`, safetensors, `torch.save` files, and the zip archives PyTorch stores
//! programs in; atomic file writes; and saved tensors of autograd on disk.
//!
//! Readers treat every file as hostile: they never panic, read regular files only, and allocate no more than
//! [`FACTOR`] times the size of the file plus [`SPARE`]; see [`Budget`].
//! bfloat16, which NumPy does not have, is stored as its bits, in `uint16`. Nothing here knows of graphs.
//!
//! ```
//! use firebrand_core::Tensor;
//! let bytes = firebrand_io::npy::to_bytes(&Tensor::new(&[1.0f32, 2.0]))?;
//! assert_eq!(firebrand_io::npy::from_bytes(&bytes)?.to_vec::<f32>(), [1.0, 2.0]);
//! # Ok::<(), firebrand_io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod archive;
mod atomic;
mod budget;
mod chrome_trace;
mod elements;
mod error;
mod header;
mod input;
pub mod npy;
pub mod npz;
pub mod place;
mod rows;
pub mod safetensors;
mod spill;
pub mod torch_save;
mod weights;

pub use archive::{Archive, ArchiveWriter, Memory, ReadOptions};
pub use atomic::{Output, check_outputs, remove_unfinished, write_atomic, write_text};
pub use budget::{Budget, FACTOR, SPARE};
pub use chrome_trace::{chrome_trace, export_chrome_trace};
pub use error::{Error, Result, plain};
pub use input::{open_regular, read_regular, read_text};
pub use npy::{read_npy, write_npy};
pub use npz::{read_npz, read_npz_rows, stage_npz, write_npz};
pub use rows::Rows;
pub use safetensors::{read_safetensors, read_safetensors_with, stage_safetensors, write_safetensors};
pub use spill::{SpillFile, save_on_disk};
pub use torch_save::{read_torch_save, stage_torch_save, torch_object_to_bytes, write_torch_object, write_torch_save};
pub use weights::read_weights;
