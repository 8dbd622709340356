//! Random numbers: the thread-safe default generator, bit for bit PyTorch's CPU generator.
