//! Targets of readers of arrays, images, tables, checkpoints and random states: any bytes are a tensor or an error, within
//! the memory they justify, and what is accepted can be written and read again.

use crate::counting::{SPARE, measured};
use firebrand_core::Tensor;
use firebrand_core::random::Generator;
use firebrand_io::{Budget, npy, npz};
use firebrand_nn::data::{CsvOptions, parse_csv, parse_idx_within, parse_jpeg_within, parse_png_within, parse_pnm};
use firebrand_nn::train::Progress;
use std::cell::OnceCell;

fn budget(data: &[u8]) -> Budget {
    Budget::with_spare(data.len() as u64, SPARE)
}

/// Elements can be read, and no more than the bytes justify.
fn check(t: &Tensor) {
    assert_eq!(t.try_contiguous().expect("a tensor that fits").numel(), t.numel());
}

/// An array that is read is written and read as the same.
pub(crate) fn fuzz_npy(data: &[u8]) -> bool {
    let budget = budget(data);
    let Ok(t) = measured(data.len(), || npy::from_bytes_within(data, &budget)) else { return false };
    let written = npy::to_bytes(&t).expect("a tensor can be written");
    let again = npy::from_bytes(&written).expect("what we write, we read");
    assert_eq!((again.shape(), again.dtype()), (t.shape(), t.dtype()));
    assert!(npy::to_bytes(&again).expect("and write again") == written);
    true
}

/// Any bytes are named arrays or an error.
pub(crate) fn fuzz_npz(data: &[u8]) -> bool {
    let budget = budget(data);
    let Ok(tensors) = measured(data.len(), || npz::from_bytes_within(data, &budget)) else { return false };
    tensors.values().for_each(check);
    true
}

/// Any content of an entry, compressed and with the right checksum, is an array or an error.
pub(crate) fn fuzz_npz_entry(data: &[u8]) -> bool {
    let Some(bytes) = crate::programs::deflated(&[("x.npy", data)]) else { return false };
    fuzz_npz(&bytes)
}

/// Any bytes are a tensor or an error, compressed ones too.
pub(crate) fn fuzz_idx(data: &[u8]) -> bool {
    let budget = budget(data);
    measured(data.len(), || parse_idx_within(data, &budget)).inspect(check).is_ok()
}

/// Any bytes are an image or an error; half of the inputs get right checksums, so that more than the first chunk is seen.
pub(crate) fn fuzz_png(data: &[u8]) -> bool {
    let mut data = data.to_vec();
    if data.len().is_multiple_of(2) {
        let mut at = 8;
        while let Some(length) = data.get(at..at + 4) {
            let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let Some(content) = at.checked_add(8 + length).and_then(|end| data.get(at + 4..end)) else { break };
            let sum = crc32fast::hash(content).to_be_bytes();
            at += 8 + length;
            let Some(place) = data.get_mut(at..at + 4) else { break };
            place.copy_from_slice(&sum);
            at += 4;
        }
    }
    let budget = budget(&data);
    measured(data.len(), || parse_png_within(&data, &budget)).inspect(check).is_ok()
}

/// Any bytes are an image or an error.
pub(crate) fn fuzz_jpeg(data: &[u8]) -> bool {
    let budget = budget(data);
    measured(data.len(), || parse_jpeg_within(data, &budget)).inspect(check).is_ok()
}

/// Any bytes are an image or an error.
pub(crate) fn fuzz_pnm(data: &[u8]) -> bool {
    measured(data.len(), || parse_pnm(data)).inspect(check).is_ok()
}

/// Any text is a table or an error.
pub(crate) fn fuzz_csv(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let options = CsvOptions { header: data.len().is_multiple_of(2), ..CsvOptions::default() };
    let Ok((names, table)) = measured(data.len(), || parse_csv(text, &options)) else { return false };
    assert!(names.is_empty() || table.shape()[1] == names.len());
    true
}

/// Any document in a checkpoint is how far a run has come, or an error.
pub(crate) fn fuzz_checkpoint(data: &[u8]) -> bool {
    thread_local! {
        static STATE: OnceCell<Vec<u8>> = const { OnceCell::new() };
    }
    let bytes = STATE.with(|state| {
        let state = state.get_or_init(|| Generator::new(1).to_bytes());
        let entry = |name: &str, begin: usize, n: usize| {
            format!(r#""{name}":{{"dtype":"U8","shape":[{n}],"data_offsets":[{begin},{}]}}"#, begin + n)
        };
        let (n, m) = (state.len(), data.len());
        let entries = [entry("rng.now", 0, n), entry("rng.epoch_start", n, n), entry("progress.json", 2 * n, m)];
        let header = format!("{{{}}}", entries.join(","));
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), state, state, data].concat()
    });
    measured(bytes.len(), || Progress::from_checkpoint(&bytes)).is_ok()
}

/// A state that is taken gives numbers, and is saved as it was. The input is the front of a state, whose words are random.
pub(crate) fn fuzz_generator(data: &[u8]) -> bool {
    let mut bytes = Generator::new(5).to_bytes();
    let n = data.len().min(bytes.len());
    bytes[..n].copy_from_slice(&data[..n]);
    let Ok(mut generator) = measured(bytes.len(), || Generator::from_bytes(&bytes)) else { return false };
    assert_eq!(Generator::from_bytes(&generator.to_bytes()).as_ref(), Ok(&generator));
    (0..630).for_each(|_| _ = generator.random());
    true
}
