//! Layers, losses, optimisers, data and a training loop, with PyTorch's names, defaults and numbers.
//!
//! The same seed gives the same initial weights, the same order of samples and the same steps as PyTorch does on the CPU.
//! This crate knows tensors and files; it knows no graph as data, no compiler and no terminal.
#![forbid(unsafe_code)]

pub mod data;
pub mod init;
pub mod layers;
pub mod losses;
pub mod optim;
pub mod parametrizations;
pub mod train;
pub mod utils;
