//! The same computation for every matrix of a batch.
#![allow(unsafe_code)]

use crate::real::Ptr;
use crate::{Element, parallel};

/// Calls `f` for each of `count` items with its index and its part of every input and output, on several threads, and returns what
/// `f` returned for each. Inputs and outputs come with the number of elements of one item; `others` are outputs of another type.
///
/// # Panics
/// If a slice does not hold exactly `count` items.
pub fn batched<T: Element, R: Element, const I: usize, const O: usize, const P: usize>(
    count: usize,
    inputs: [(&[T], usize); I],
    outputs: [(&mut [T], usize); O],
    others: [(&mut [R], usize); P],
    f: impl Fn(usize, [&[T]; I], [&mut [T]; O], [&mut [R]; P]) -> i32 + Sync,
) -> Vec<i32> {
    batched_dyn(count, inputs, outputs, others, &f)
}

type OfEach<'a, T, R, const I: usize, const O: usize, const P: usize> =
    &'a (dyn Fn(usize, [&[T]; I], [&mut [T]; O], [&mut [R]; P]) -> i32 + Sync);

/// [`batched`], compiled once for all computations of one kind.
fn batched_dyn<T: Element, R: Element, const I: usize, const O: usize, const P: usize>(
    count: usize,
    inputs: [(&[T], usize); I],
    outputs: [(&mut [T], usize); O],
    others: [(&mut [R], usize); P],
    f: OfEach<'_, T, R, I, O, P>,
) -> Vec<i32> {
    assert!(inputs.iter().all(|(s, each)| s.len() == count * each), "inputs hold one part an item");
    assert!(outputs.iter().all(|(s, each)| s.len() == count * each), "outputs hold one part an item");
    assert!(others.iter().all(|(s, each)| s.len() == count * each), "outputs hold one part an item");
    let mut said = crate::scratch::filled(0, count);
    let say = Ptr::new(&mut said);
    let outputs = outputs.map(|(s, each)| (Ptr::new(s), each));
    let others = others.map(|(s, each)| (Ptr::new(s), each));
    let one = |i: usize| {
        let parts = inputs.map(|(s, each)| &s[i * each..(i + 1) * each]);
        // SAFETY: item i alone uses these ranges; they lie inside by the assertions above.
        let targets = outputs.map(|(p, each)| unsafe { p.slice(i * each, each) });
        // SAFETY: as above.
        let beside = others.map(|(p, each)| unsafe { p.slice(i * each, each) });
        let result = f(i, parts, targets, beside);
        // SAFETY: item i alone writes element i of `count`.
        unsafe { say.slice(i, 1) }.fill(result);
    };
    // Small items go to a thread in groups: handing over each would cost more than computing it.
    let size = inputs.iter().map(|(_, each)| *each).chain(outputs.iter().map(|(_, each)| *each)).max().unwrap_or(1);
    parallel::split(count, (4096 / size.max(1)).max(1), |items| items.for_each(&one));
    said
}
