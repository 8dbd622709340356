//! Stamps: how a backward run finds its own record of a node without hashing.
//!
//! A node carries one word, (run, index). A run claims it with one compare-exchange; a node that another run holds goes
//! into the run's own map. The other run may end, and clear its stamp, at any time: so the map counts even if the stamp
//! is free by now.

use crate::sync::{AtomicU64, Ordering::Relaxed};
use std::collections::HashMap;

/// Which run holds a node, and under which index.
#[derive(Default)]
pub(crate) struct Stamp(AtomicU64);

/// The nodes of one run: those stamped, and those another run held when this one met them.
#[derive(Clone)]
pub(crate) struct Claims {
    /// Not zero: that is a free stamp.
    run: u32,
    contested: HashMap<usize, u32>,
}

impl Claims {
    pub(crate) fn new(run: u32) -> Claims {
        Claims { run, contested: HashMap::new() }
    }

    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    /// The index of a node in this run, if it has one. `address` identifies the node.
    #[inline]
    pub(crate) fn find(&self, stamp: &Stamp, address: usize) -> Option<u32> {
        let s = stamp.0.load(Relaxed);
        if (s >> 32) as u32 == self.run {
            return Some(s as u32);
        }
        if self.contested.is_empty() {
            return None;
        }
        self.contested.get(&address).copied()
    }

    /// Gives a node that has none an index in this run.
    #[inline]
    pub(crate) fn claim(&mut self, stamp: &Stamp, address: usize, index: u32) {
        let mine = u64::from(self.run) << 32 | u64::from(index);
        if stamp.0.compare_exchange(0, mine, Relaxed, Relaxed).is_err() {
            self.contested.insert(address, index);
        }
    }

    /// Takes the stamp back, if it is this run's.
    #[inline]
    pub(crate) fn release(&self, stamp: &Stamp) {
        if (stamp.0.load(Relaxed) >> 32) as u32 == self.run {
            stamp.0.store(0, Relaxed)
        }
    }
}
