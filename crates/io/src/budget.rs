//! The memory budget for reading one input: [`FACTOR`] times its bytes, plus [`SPARE`].
//!
//! Every reader makes one budget from the length of the outermost input and draws on it before it allocates: inflated
//! entries, copies, values of a pickle, elements of JSON. Archives inside archives draw on the budget of the outer one,
//! so no nesting multiplies it. What is used in place of a mapped file costs nothing. Nothing is given back: a budget
//! bounds everything that one read allocates, and so its peak.

use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of memory allowed per byte of input.
pub const FACTOR: u64 = 32;
/// Bytes of memory allowed for any input, however short: arrays of zeros legitimately compress to nearly nothing.
pub const SPARE: u64 = 64 << 20;

/// The remaining memory budget of one input. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    input: u64,
    limit: u64,
    spent: Arc<AtomicU64>,
}

impl Budget {
    /// The budget of an input of this many bytes.
    pub fn for_input(bytes: u64) -> Budget {
        Budget::with_spare(bytes, SPARE)
    }

    /// Like [`Budget::for_input`], with another constant than [`SPARE`].
    pub fn with_spare(bytes: u64, spare: u64) -> Budget {
        let limit = bytes.saturating_mul(FACTOR).saturating_add(spare);
        Budget { input: bytes, limit, spent: Arc::default() }
    }

    /// The maximum that may be allocated.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Charges this many bytes; returns an error, and charges nothing, if fewer are left.
    pub fn take(&self, bytes: u64) -> Result<()> {
        let fits = |spent: u64| spent.checked_add(bytes).filter(|&s| s <= self.limit);
        match self.spent.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Budget { input: self.input, limit: self.limit }),
        }
    }

    /// Charges the memory that the values of a JSON text take once parsed, which can be many times the text (`[0,0,0]`).
    pub fn take_json(&self, text: &str) -> Result<()> {
        self.take(json_cost(text.as_bytes()))
    }
}

/// An estimate from above of what the values of a JSON text take in memory. It counts what values begin with or are
/// divided by; inside strings these are counted too, which only makes text with much punctuation cost more.
fn json_cost(text: &[u8]) -> u64 {
    /// An object: a map, or a node of a graph with what belongs to it.
    const OBJECT: u64 = 256;
    /// A list, or an element of one.
    const ELEMENT: u64 = 64;
    let (mut objects, mut elements) = (0u64, 0u64);
    for chunk in text.chunks(1 << 12) {
        objects += chunk.iter().map(|b| u64::from(*b == b'{')).sum::<u64>();
        elements += chunk.iter().map(|b| u64::from(matches!(b, b',' | b'['))).sum::<u64>();
    }
    text.len() as u64 + OBJECT * objects + ELEMENT * elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_draw_on_one_amount() {
        let budget = Budget::with_spare(10, 100);
        assert_eq!(budget.limit(), 10 * FACTOR + 100);
        let other = budget.clone();
        budget.take(400).expect("there is enough");
        assert!(matches!(other.take(21), Err(Error::Budget { input: 10, limit: 420 })), "the clone drew on its own");
        other.take(20).expect("a refusal takes nothing");
        assert!(budget.take(1).is_err());
        assert!(Budget::for_input(u64::MAX).take(u64::MAX).is_ok(), "no overflow");
    }

    /// What torch.export writes, here at its densest, costs less than it may.
    #[test]
    fn honest_json_is_cheap_and_dense_json_dear() {
        let honest =
            r#"{"name": "linear", "arg": {"as_tensor": {"name": "x"}}, "sizes": [{"as_int": 4}, {"as_int": 5}]}"#;
        let (cost, limit) = (json_cost(honest.as_bytes()), FACTOR * honest.len() as u64);
        assert!(cost < limit, "{cost} of {limit}");
        assert!(json_cost(b"[[],[],[],[]]") > 13 * 32);
    }
}
