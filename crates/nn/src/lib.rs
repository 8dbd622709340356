//! Layers, losses, optimizers, data loading and a training loop, with PyTorch's names, defaults and results.
//!
//! The same seed gives the same initial weights, the same order of samples and the same steps as PyTorch on the CPU.
//! This crate depends on tensors and files; it knows nothing of graphs as data, the compiler or terminals.
#![forbid(unsafe_code)]

pub mod data;
mod debug;
pub mod generate;
pub mod init;
pub mod layers;
pub mod losses;
pub mod optim;
pub mod parametrizations;
pub mod train;
pub mod utils;
