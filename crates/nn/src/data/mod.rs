//! Datasets, and loaders that turn them into batches.
//!
//! Readers of files take regular files only, never panic, and allocate no more than a [`firebrand_io::Budget`] allows.
//! With the same seed a shuffling loader visits samples in the order PyTorch's does; see [`DataLoader`].
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::{DType, Tensor, random::manual_seed};
//! use firebrand::data::{DataLoader, LoaderOptions, TensorDataset};
//!
//! manual_seed(0);
//! let (x, y) = (Tensor::rand([10, 3], DType::F32), Tensor::arange(0, 10, 1, DType::I64));
//! let loader = DataLoader::new(TensorDataset::new([x, y])?, LoaderOptions { shuffle: true, ..LoaderOptions::new(4) });
//! let sizes: Vec<usize> = loader.iter().map(|batch| batch.map(|[x, _]| x.shape()[0])).collect::<Result<_, _>>()?;
//! assert_eq!(sizes, [4, 4, 2]);
//! # Ok::<(), firebrand::Error>(())
//! ```

mod csv;
mod dataset;
mod idx;
mod image;
mod image_folder;
mod jpeg;
mod loader;
#[cfg(feature = "parquet")]
mod parquet;
mod png;
mod pnm;
mod resample;
mod sampler;
pub mod text;
mod transform;

pub use csv::{CsvOptions, parse_csv, read_csv};
pub use dataset::{Collate, Dataset, Map, Subset, TensorDataset, random_split};
pub use idx::{parse_idx, parse_idx_within, read_idx};
pub use image_folder::ImageFolder;
pub use jpeg::{parse_jpeg, parse_jpeg_within, read_jpeg};
pub use loader::{Batches, DataLoader, LoaderOptions, Shard, Shards};
#[cfg(feature = "parquet")]
pub use parquet::{parse_parquet, read_parquet};
pub use png::{encode_png, parse_png, parse_png_within, read_png};
pub use pnm::{parse_pnm, read_pnm};
pub use sampler::DistributedSampler;
pub use transform::{Transform, Transforms};

use firebrand_core::{Error, Result};
use firebrand_io::Budget;
use std::path::Path;

/// Reads a regular file and parses its bytes; errors name the file.
fn read_file<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    let bytes = firebrand_io::read_regular(path).map_err(Error::user)?;
    let in_file = |e| Error::user(format!("{}: {e}", firebrand_io::plain(&path.display().to_string())));
    parse(&bytes).map_err(in_file)
}

/// The memory budget for parsing these bytes.
fn budget(bytes: &[u8]) -> Budget {
    Budget::for_input(bytes.len() as u64)
}
