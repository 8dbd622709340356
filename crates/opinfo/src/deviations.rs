//! Known deviations from the table, with reasons. Every entry is a decision; an entry that matches no row is stale.

use crate::Check;
use crate::row::{Argument, Numbers, Row};
use firebrand_core::DType;

/// A known difference.
#[derive(Debug)]
pub struct Deviation {
    /// The ops, by how their name begins; empty for all.
    pub ops: &'static [&'static str],
    /// The checks that are not run; empty for all.
    pub checks: &'static [Check],
    /// The rows.
    pub rows: fn(&Row) -> bool,
    /// Why.
    pub reason: &'static str,
}

fn channels_last(row: &Row) -> bool {
    row.arguments().any(|a| matches!(a, Argument::MemoryFormat(m) if m == "channels_last"))
}

fn minus_infinity(row: &Row) -> bool {
    row.arguments().any(|a| {
        matches!(a, Argument::Tensor(t) if matches!(&t.data, Some(Numbers::Floats(f)) if f.contains(&f64::NEG_INFINITY)))
    })
}

fn double(row: &Row) -> bool {
    matches!(row.args.first(), Some(Argument::Tensor(t)) if t.dtype == DType::F64)
}

fn ties(row: &Row) -> bool {
    let Some(Argument::Tensor(t)) = row.args.first() else { return false };
    match &t.data {
        Some(Numbers::Ints(n)) => (1..n.len()).any(|k| n[..k].contains(&n[k])),
        Some(Numbers::Floats(f)) => (1..f.len()).any(|k| f[..k].contains(&f[k])),
        Some(Numbers::Complex(_)) | None => false,
    }
}

fn every(_: &Row) -> bool {
    true
}

/// Ops that look at the numbers of each sample, which `vmap` refuses if they differ from sample to sample. Their rows are mapped all
/// the same: what is not refused by name must be right.
const LOOK_AT_NUMBERS: &[&str] = &[
    "aten::argwhere.",
    "aten::one_hot.",
    "aten::embedding_renorm_.",
    "aten::embedding_bag.",
    "aten::_embedding_bag",
    "aten::allclose.",
    "aten::equal.",
    "aten::nonzero_numpy.",
    "aten::masked_select.",
    "aten::repeat_interleave.self_Tensor",
    "aten::repeat_interleave.Tensor",
    "aten::_fused_",
    "aten::masked_scatter_backward.",
    "aten::ctc_loss.Tensor",
    "aten::_ctc_loss.Tensor",
    "aten::_ctc_loss_backward.Tensor",
    "aten::lstm.data",
    "aten::gru.data",
    "aten::rnn_tanh.data",
    "aten::rnn_relu.data",
    "aten::_pack_padded_sequence",
    "aten::_pad_packed_sequence.",
    "aten::segment_reduce.",
    "aten::_segment_reduce_backward.",
    "aten::histogram",
    "aten::_histogramdd",
    "aten::narrow.Tensor",
    "aten::tensor_split.tensor_indices_or_sections",
    "aten::_reshape_from_tensor.",
    "aten::linspace.",
    "aten::logspace.",
    "aten::_foreach_addcmul.Tensor",
    "aten::_foreach_addcmul_.Tensor",
    "aten::_foreach_addcdiv.Tensor",
    "aten::_foreach_addcdiv_.Tensor",
    "aten::where.default",
    "aten::_unique.",
    "aten::unique_dim_consecutive.",
    "aten::_amp_update_scale_.",
];

/// Whether `vmap` may refuse this row, see `LOOK_AT_NUMBERS`.
pub fn looks_at_numbers(row: &Row) -> bool {
    let windows_differ = row.op.starts_with("aten::istft.") && row.args.get(4).is_some();
    windows_differ || LOOK_AT_NUMBERS.iter().any(|op| row.op.starts_with(op))
}

/// All of them.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        ops: &[],
        checks: &[],
        rows: channels_last,
        reason: "channels-last is not a separate memory format: strides express it, and kernels read any strides",
    },
    Deviation {
        ops: &[
            "aten::as_strided",
            "aten::view_as_complex",
            "aten::view.",
            "aten::view_as.",
            "aten::_unsafe_view.",
            "aten::set_",
            "aten::_reshape_alias",
            "aten::resize_",
        ],
        checks: &[Check::Layouts],
        rows: every,
        reason: "means something else when the input's strides change",
    },
    Deviation {
        ops: &["aten::silu.", "aten::mish.", "aten::gelu."],
        checks: &[Check::Forward, Check::Inplace, Check::Out, Check::Layouts],
        rows: minus_infinity,
        reason: "PyTorch multiplies minus infinity by zero and gets NaN; here it is the limit, zero",
    },
    Deviation {
        ops: &["aten::hardsigmoid"],
        checks: &[Check::Forward, Check::Gradients, Check::Inplace, Check::Out, Check::Layouts],
        rows: |row| double(row) && (row.grads.is_some() || row.op.contains("backward")),
        reason: "PyTorch's gradient uses one sixth rounded to f32 even in f64; finite differences check this one",
    },
    Deviation {
        ops: &["aten::digamma"],
        checks: &[Check::Gradients, Check::Inplace, Check::Layouts],
        rows: |row| row.grads.is_some(),
        reason: "PyTorch's trigamma is good to nine digits only; finite differences check this one",
    },
    Deviation {
        ops: &["aten::polygamma", "aten::special_polygamma."],
        checks: &[Check::Forward, Check::Out, Check::Layouts, Check::Gradients],
        rows: |row| row.grads.is_some() && row.args.iter().any(|a| matches!(a, Argument::Int(1))),
        reason: "PyTorch's trigamma is good to nine digits only; it is the slope of digamma, which finite differences check",
    },
    Deviation {
        ops: &["aten::special_bessel_", "aten::special_airy_ai."],
        checks: &[Check::Forward, Check::Out, Check::Layouts, Check::Gradients, Check::ForwardMode],
        rows: double,
        reason: "PyTorch's are good to seven digits in places; rows of f32, finite differences and the kernels' own tests \
                 check these",
    },
    Deviation {
        ops: &["aten::igamma"],
        checks: &[Check::Forward, Check::Out, Check::Inplace, Check::Layouts],
        rows: |row| matches!(row.args.first(), Some(Argument::Tensor(t)) if t.shape == [9]),
        reason: "PyTorch's are good to nine digits near large orders; the kernels' own tests check these",
    },
    Deviation {
        ops: &["aten::special_log_ndtr."],
        checks: &[Check::Gradients, Check::ForwardMode, Check::Layouts],
        rows: |row| matches!(row.args.first(), Some(Argument::Tensor(t)) if t.shape == [6]),
        reason: "PyTorch's slope is good to six digits far below zero; finite differences check this one nearer to it",
    },
    Deviation {
        ops: &["aten::cumprod."],
        checks: &[Check::Gradients, Check::Layouts],
        rows: |row| row.grads.is_some() && row.arguments().any(|a| matches!(a, Argument::DType(DType::F32))),
        reason: "the result is f32 and so is the arithmetic of its gradient: the last bit differs",
    },
    Deviation {
        ops: &["aten::bincount.", "aten::nonzero_numpy."],
        checks: &[Check::Meta],
        rows: every,
        reason: "the shape of the result depends on the numbers",
    },
    Deviation {
        ops: &[
            "aten::_assert_tensor_metadata.",
            "aten::sym_stride.",
            "aten::stride.",
            "aten::is_contiguous.",
            "aten::_debug_has_internal_overlap.",
        ],
        checks: &[Check::Layouts],
        rows: every,
        reason: "asks for what the check changes",
    },
    Deviation {
        ops: &["aten::lstm.data", "aten::gru.data", "aten::rnn_tanh.data", "aten::rnn_relu.data"],
        checks: &[Check::Meta],
        rows: every,
        reason: "the sizes of the batches are values; on meta they are refused by name",
    },
    Deviation {
        ops: &["aten::_shape_as_tensor."],
        checks: &[Check::Meta],
        rows: every,
        reason: "sizes are known: the result holds them, on the CPU",
    },
    Deviation {
        ops: &["aten::cumprod_backward."],
        checks: &[Check::Vmap],
        rows: every,
        reason: "reads the products it is given where no factor is zero; those of the check are none",
    },
    Deviation {
        ops: &["aten::topk."],
        checks: &[Check::Forward, Check::Out],
        rows: ties,
        reason: "which of equal elements is taken is chance in PyTorch; here it is the first",
    },
    Deviation {
        ops: &["aten::embedding_dense_backward.", "aten::embedding_backward."],
        checks: &[Check::Gradients, Check::Layouts],
        rows: |row| matches!(row.args.get(4), Some(Argument::Bool(true))),
        reason: "PyTorch forgets to divide by the frequencies when it differentiates again",
    },
    Deviation {
        ops: &[
            "aten::as_strided",
            "aten::_assert_tensor_metadata.",
            "aten::sym_stride.",
            "aten::_reshape_alias",
            "aten::view.dtype",
        ],
        checks: &[Check::Vmap],
        rows: every,
        reason: "asks for the strides of a sample, which the place of the batch changes",
    },
    Deviation {
        ops: &["aten::pdist."],
        checks: &[Check::Threads],
        rows: every,
        reason: "pairs grow with the square of the rows, so the enlarged sample would take minutes; the ops it is built of \
                 are checked",
    },
    Deviation {
        ops: &[
            "aten::batch_norm.",
            "aten::native_batch_norm.",
            "aten::instance_norm.",
            "aten::_native_batch_norm_legit",
        ],
        checks: &[Check::Vmap, Check::Transforms],
        rows: every,
        reason: "writes running statistics that are one for all samples, which vmap and grad refuse as PyTorch does; \
                 tests/vmap_rules.rs checks it without them",
    },
    Deviation {
        ops: &["aten::_batch_norm_with_update"],
        checks: &[Check::Vmap, Check::Transforms],
        rows: every,
        reason: "writes running statistics that are one for all samples, which vmap and grad refuse as PyTorch does",
    },
];

/// How often an in-place call of this op may count as a write: once, but for a few where PyTorch counts otherwise.
pub fn writes(op: &str) -> &'static [u32] {
    match op {
        "aten::detach_" => &[0],           // changes history, no number
        "aten::dropout_" => &[0, 1],       // outside of training nothing is written
        "aten::fill_diagonal_" => &[1, 2], // a tall matrix has a second diagonal
        _ => &[1],
    }
}

impl Deviation {
    /// Whether this check of this row is not run.
    pub fn covers(&self, check: Check, row: &Row) -> bool {
        (self.ops.is_empty() || self.ops.iter().any(|op| row.op.starts_with(op)))
            && (self.checks.is_empty() || self.checks.contains(&check))
            && (self.rows)(row)
    }
}

/// The first deviation that applies.
pub fn known(check: Check, row: &Row) -> Option<&'static Deviation> {
    DEVIATIONS.iter().find(|d| d.covers(check, row))
}
