//! Sequences of different lengths in one tensor, as recurrent layers take them.
//!
//! A packed sequence holds the elements step by step: first those of step 0 of all sequences, longest sequence first, then
//! those of step 1 of the sequences that are long enough, and so on. Nothing is computed for padding.
//!
//! ```
//! # mod firebrand { pub use firebrand_core::*; pub use firebrand_nn::{data, optim, train}; pub use firebrand_nn as nn; }
//! use firebrand::{DType, Tensor};
//! use firebrand::nn::layers::{Forward, LSTM, pack_padded_sequence, pad_packed_sequence};
//!
//! let padded = Tensor::ones([5, 2, 3], DType::F32); // length, batch, size
//! let packed = pack_padded_sequence(&padded, &[3, 5], false, false)?;
//! assert_eq!(packed.batch_sizes, [2, 2, 2, 1, 1]);
//! let (output, (_hidden, _cell)) = LSTM::new(3, 4).call(&packed);
//! let (output, lengths) = pad_packed_sequence(&output, false, 0.0, None)?;
//! assert_eq!((output.shape(), lengths), (&[5, 2, 4][..], vec![3, 5]));
//! # Ok::<(), firebrand::Error>(())
//! ```

use firebrand_core::tree::{Host, Leaf, Rebuild, TensorTree};
use firebrand_core::{Error, Result, SymInt, Tensor, ops};

/// Sequences of different lengths. [`pack_padded_sequence`] and [`pack_sequence`] make one.
#[derive(Clone, Debug)]
pub struct PackedSequence {
    /// The elements of all sequences, step by step.
    pub data: Tensor,
    /// How many sequences have an element at each step; never more than at the step before.
    pub batch_sizes: Vec<usize>,
    /// Where each sequence, longest first, was in the batch; `None` if the batch was in that order.
    pub sorted_indices: Option<Tensor>,
    /// Where each sequence of the batch is now.
    pub unsorted_indices: Option<Tensor>,
}

/// Gradients and hooks see the data; the compiler also sees its layout.
impl TensorTree for PackedSequence {
    type With<X> = X;
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        see(Leaf::Tensor(&self.data));
        see(Leaf::Host(Host::Len(self.batch_sizes.len())));
        self.batch_sizes.iter().for_each(|&n| see(Leaf::Host(Host::Len(n))));
        for indices in [&self.sorted_indices, &self.unsorted_indices] {
            match indices {
                Some(t) => see(Leaf::Index(t)),
                None => see(Leaf::Host(Host::Len(0))),
            }
        }
    }
    fn rebuild(&self, make: &mut dyn Rebuild) -> PackedSequence {
        PackedSequence {
            data: make.tensor(&self.data),
            batch_sizes: self.batch_sizes.clone(),
            sorted_indices: self.sorted_indices.as_ref().map(|t| make.index(t)),
            unsorted_indices: self.unsorted_indices.as_ref().map(|t| make.index(t)),
        }
    }
    fn map_leaves<X>(&self, f: &mut impl FnMut(&Tensor) -> Result<X>) -> Result<X> {
        f(&self.data)
    }
}

impl PackedSequence {
    /// The same sequences with other elements.
    pub(super) fn with_data(&self, data: Tensor) -> PackedSequence {
        PackedSequence { data, ..self.clone() }
    }

    /// The length of each sequence, longest first.
    fn sorted_lengths(&self) -> Vec<usize> {
        let sequences = self.batch_sizes.first().copied().unwrap_or(0);
        (0..sequences).map(|k| self.batch_sizes.iter().take_while(|&&n| n > k).count()).collect()
    }
}

/// The part of a tensor from `start` on along its first dimension.
pub(super) fn rows(t: &Tensor, start: usize, length: usize) -> Result<Tensor> {
    ops::narrow(t, 0, SymInt::from(start), SymInt::from(length))
}

fn indices(numbers: &[usize]) -> Result<Tensor> {
    Tensor::try_from_vec(numbers.iter().map(|&n| n as i64).collect(), [numbers.len()])
}

/// Packs a padded batch, `[length, batch, …]` or `[batch, length, …]`, of sequences with these lengths.
/// With `enforce_sorted` the longest must come first; without, they are sorted here and the layers' results sorted back.
pub fn pack_padded_sequence(
    input: &Tensor,
    lengths: &[usize],
    batch_first: bool,
    enforce_sorted: bool,
) -> Result<PackedSequence> {
    const OP: &str = "pack_padded_sequence";
    let refuse = |message: String| Err(Error::argument(OP, message));
    if input.ndim() < 2 {
        return refuse(format!("expected a batch of sequences, found shape {:?}", input.shape()));
    }
    let steps_first = if batch_first { ops::transpose(input, 0, 1)? } else { input.clone() };
    let (steps, batch) = (steps_first.shape()[0], steps_first.shape()[1]);
    if lengths.len() != batch {
        return refuse(format!("expected {batch} lengths, one for each sequence, found {}", lengths.len()));
    }
    if let Some(length) = lengths.iter().find(|n| !(1..=steps).contains(*n)) {
        return refuse(format!("expected lengths from 1 to {steps}, found {length}"));
    }
    let sorted = lengths.is_sorted_by(|a, b| a >= b);
    if enforce_sorted && !sorted {
        return refuse(format!(
            "expected the longest sequence first, found lengths {lengths:?}; or pass enforce_sorted = false"
        ));
    }
    let mut order: Vec<usize> = (0..batch).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(lengths[k]));
    let mut places = vec![0; batch];
    order.iter().enumerate().for_each(|(place, &k)| places[k] = place);
    let (sorted_indices, unsorted_indices) =
        if enforce_sorted { (None, None) } else { (Some(indices(&order)?), Some(indices(&places)?)) };
    let by_length = match &sorted_indices {
        Some(order) => ops::index_select(&steps_first, 1, order)?,
        None => steps_first,
    };
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let batch_sizes: Vec<usize> = (0..longest).map(|t| lengths.iter().filter(|&&n| n > t).count()).collect();
    let step = |(t, &n): (usize, &usize)| rows(&ops::select(&by_length, 0, SymInt::from(t))?, 0, n);
    let parts = batch_sizes.iter().enumerate().map(step).collect::<Result<Vec<_>>>()?;
    Ok(PackedSequence { data: ops::cat(&parts, 0)?, batch_sizes, sorted_indices, unsorted_indices })
}

/// The padded batch and the lengths, in the order the sequences had before packing. `total_length` asks for more
/// steps than the longest sequence has.
pub fn pad_packed_sequence(
    sequence: &PackedSequence,
    batch_first: bool,
    padding_value: f64,
    total_length: Option<usize>,
) -> Result<(Tensor, Vec<usize>)> {
    let (data, longest) = (&sequence.data, sequence.batch_sizes.len());
    let total = total_length.unwrap_or(longest);
    if total < longest {
        let message = format!("expected a total length of at least {longest}, that of the longest, found {total}");
        return Err(Error::argument("pad_packed_sequence", message));
    }
    let batch = sequence.batch_sizes.first().copied().unwrap_or(0);
    let padding = |n: usize| {
        let sizes: Vec<SymInt> = [n].iter().chain(&data.shape()[1..]).map(|&n| SymInt::from(n)).collect();
        ops::new_full(data, &sizes, padding_value.into(), None, None)
    };
    let (mut at, mut steps) = (0, Vec::with_capacity(total));
    for &n in &sequence.batch_sizes {
        let present = rows(data, at, n)?;
        at += n;
        steps.push(if n == batch { present } else { ops::cat(&[present, padding(batch - n)?], 0)? });
    }
    for _ in longest..total {
        steps.push(padding(batch)?);
    }
    let mut padded = ops::stack(&steps, 0)?;
    let mut lengths = sequence.sorted_lengths();
    if let Some(places) = &sequence.unsorted_indices {
        padded = ops::index_select(&padded, 1, places)?;
        lengths = places.to_vec::<i64>().into_iter().map(|place| lengths[place as usize]).collect();
    }
    Ok((if batch_first { ops::transpose(&padded, 0, 1)? } else { padded }, lengths))
}

/// Sequences `[length, …]` of different lengths as one padded batch.
pub fn pad_sequence(sequences: &[Tensor], batch_first: bool, padding_value: f64) -> Result<Tensor> {
    let Some(first) = sequences.first() else {
        return Err(Error::argument("pad_sequence", "expected at least one sequence, found an empty list"));
    };
    if let Some(other) = sequences.iter().find(|s| s.ndim() == 0 || s.shape()[1..] != first.shape()[1..]) {
        let message =
            format!("expected sequences that differ only in length, found {:?} and {:?}", first.shape(), other.shape());
        return Err(Error::argument("pad_sequence", message));
    }
    let longest = sequences.iter().map(|s| s.shape()[0]).max().unwrap_or(0);
    let padded = sequences.iter().map(|s| {
        let sizes: Vec<SymInt> =
            [longest - s.shape()[0]].iter().chain(&s.shape()[1..]).map(|&n| SymInt::from(n)).collect();
        ops::cat(&[s.clone(), ops::new_full(s, &sizes, padding_value.into(), None, None)?], 0)
    });
    ops::stack(&padded.collect::<Result<Vec<_>>>()?, if batch_first { 0 } else { 1 })
}

/// The sequences of a padded batch, each with its own length.
pub fn unpad_sequence(padded: &Tensor, lengths: &[usize], batch_first: bool) -> Result<Vec<Tensor>> {
    let sequences = ops::unbind(padded, if batch_first { 0 } else { 1 })?;
    sequences.iter().zip(lengths).map(|(s, &n)| rows(s, 0, n)).collect()
}

/// Packs sequences `[length, …]` of different lengths.
pub fn pack_sequence(sequences: &[Tensor], enforce_sorted: bool) -> Result<PackedSequence> {
    let padded = pad_sequence(sequences, false, 0.0)?;
    let lengths: Vec<usize> = sequences.iter().map(|s| s.shape()[0]).collect();
    pack_padded_sequence(&padded, &lengths, false, enforce_sorted)
}

/// The sequences of a packed one, in the order they had.
pub fn unpack_sequence(sequence: &PackedSequence) -> Result<Vec<Tensor>> {
    let (padded, lengths) = pad_packed_sequence(sequence, false, 0.0, None)?;
    unpad_sequence(&padded, &lengths, false)
}
