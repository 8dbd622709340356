//! A quick hasher for tables keyed by schemas: thousands of long keys, from files that people wrote.
//!
//! Deliberately not protected against chosen collisions; what is read there is source code.

use std::hash::{BuildHasherDefault, Hasher};

/// Hash tables with the quick hasher.
pub(crate) type QuickMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Quick>>;
/// Sets with the quick hasher.
pub(crate) type QuickSet<K> = std::collections::HashSet<K, BuildHasherDefault<Quick>>;
/// Ordered tables with the quick hasher.
pub(crate) type QuickIndexMap<K, V> = indexmap::IndexMap<K, V, BuildHasherDefault<Quick>>;

/// Multiplies and rotates, eight bytes at a time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Quick(u64);

impl Quick {
    fn add(&mut self, word: u64) {
        // An odd number with as many ones as zeros, without a pattern.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.add(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.add(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.add(n as u64);
    }

    fn finish(&self) -> u64 {
        // Tables take their bucket from the low bits, and a product has its entropy in the high ones.
        self.0.rotate_left(26)
    }
}
