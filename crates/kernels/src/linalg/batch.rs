//! The same computation for every matrix of a batch.
#![allow(unsafe_code)]

use crate::parallel;
use crate::real::Ptr;

/// Calls `f` for each of `count` items with its part of every input and output, on several threads, and returns what
/// `f` said of each. Inputs and outputs come with the number of elements of one item.
///
/// # Panics
/// If a slice does not hold exactly `count` items.
pub fn batched<const I: usize, const O: usize>(
    count: usize,
    inputs: [(&[f64], usize); I],
    outputs: [(&mut [f64], usize); O],
    f: impl Fn([&[f64]; I], [&mut [f64]; O]) -> i32 + Sync,
) -> Vec<i32> {
    assert!(inputs.iter().all(|(s, each)| s.len() == count * each), "inputs hold one part an item");
    assert!(outputs.iter().all(|(s, each)| s.len() == count * each), "outputs hold one part an item");
    let mut said = crate::scratch::filled(0, count);
    let say = Ptr::new(&mut said);
    let outputs = outputs.map(|(s, each)| (Ptr::new(s), each));
    parallel::run(count, &|i| {
        let parts = inputs.map(|(s, each)| &s[i * each..(i + 1) * each]);
        // SAFETY: item i alone uses these ranges; they lie inside by the assertions above.
        let targets = outputs.map(|(p, each)| unsafe { p.slice(i * each, each) });
        let result = f(parts, targets);
        // SAFETY: item i alone writes element i of `count`.
        unsafe { say.slice(i, 1) }.fill(result);
    });
    said
}
