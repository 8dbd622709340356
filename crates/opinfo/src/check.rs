//! The list of checks, and how many rows of the op table drive each: all that is known without the samples.
//!
//! `coverage.txt` has the counts, so that a program can show them without carrying the table; a test says when it is stale.

use std::collections::BTreeMap;

/// What is asked of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Results equal PyTorch's; nothing else is written.
    Forward,
    /// The in-place form does the same in the memory of its first argument.
    Inplace,
    /// The out= form stores the same.
    Out,
    /// What PyTorch refuses is refused.
    Refusal,
    /// Shapes and dtypes on the meta device.
    Meta,
    /// The same for any memory layout.
    Layouts,
    /// Bit-equal for any number of threads.
    Threads,
    /// Gradients equal PyTorch's.
    Gradients,
    /// Gradients equal finite differences.
    Gradcheck,
    /// Second derivatives equal finite differences of gradients.
    Gradgradcheck,
    /// Tangents agree with gradients.
    ForwardMode,
    /// The mapped op equals a loop over the samples.
    Vmap,
    /// A batch of gradients pulled back at once equals one run each.
    BatchedGradients,
    /// Pairs of transforms equal the gradient of each sample.
    Transforms,
}

impl Check {
    /// Every check.
    pub const ALL: [Check; 14] = [
        Check::Forward,
        Check::Inplace,
        Check::Out,
        Check::Refusal,
        Check::Meta,
        Check::Layouts,
        Check::Threads,
        Check::Gradients,
        Check::Gradcheck,
        Check::Gradgradcheck,
        Check::ForwardMode,
        Check::Vmap,
        Check::BatchedGradients,
        Check::Transforms,
    ];
}

/// How many rows of each check an op has, in the order of [`Check::ALL`].
pub type Counts = [usize; Check::ALL.len()];

/// Ops that need no row of their own, and why.
pub const UNLISTED: &[(&str, &str)] = &[
    ("aten::_attention", "our own: checked through scaled_dot_product_attention, and in core's tests/attention.rs"),
    ("aten::_dequantize_groups", "our own: crates/core/tests/quantized.rs"),
    ("aten::_linear_quantized", "our own: crates/core/tests/quantized.rs"),
    ("aten::_attention_backward", "our own: checked through gradients of scaled_dot_product_attention"),
    ("aten::_grid_sampler_derivative", "our own: checked through second derivatives of grid_sampler"),
    ("aten::_grid_sampler_derivative_backward", "our own: checked through second derivatives of grid_sampler"),
    ("aten::log_sigmoid_forward", "its buffer is each implementation's own affair: checked through log_sigmoid"),
    ("aten::log_sigmoid_forward.output", "as log_sigmoid_forward"),
    ("aten::special_polygamma.out", "its rows are those that PyTorch rounds to f32: checked as polygamma.out"),
];

/// [`coverage`](crate::coverage) as `coverage.txt` has it: how many rows drive each check of an op.
pub fn recorded_coverage() -> BTreeMap<&'static str, Counts> {
    let read = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut counts = Counts::default();
        for (count, word) in counts.iter_mut().zip(words) {
            *count = word.parse().ok()?;
        }
        Some((name, counts))
    };
    include_str!("../coverage.txt").lines().filter_map(read).collect()
}
