//! Autocast on the CPU: which ops run in lower precision inside a region, which in f32, which in the widest type given.
//!
//! Only floating point tensors that are not f64 are cast, and only for ops that are listed; every other op takes what it
//! is given. A cast is an ordinary op, so gradients flow through it.

use crate::error::Result;
use crate::interpret::Value;
use firebrand_core::{DType, Tensor};

/// Matrix products and convolutions.
const LOWER: &[&str] = &[
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "bmm",
    "mm",
    "mv",
    "addmv",
    "addr",
    "baddbmm",
    "addmm",
    "addbmm",
    "linear",
    "matmul",
    "scaled_dot_product_attention",
    "chain_matmul",
    "linalg_multi_dot",
];
/// Losses and what needs range or precision.
const FULL: &[&str] = &[
    "avg_pool3d",
    "binary_cross_entropy",
    "grid_sampler",
    "prod",
    "quantile",
    "nanquantile",
    "cdist",
    "trace",
    "mse_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "cross_entropy_loss",
    "l1_loss",
    "huber_loss",
    "margin_ranking_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "ctc_loss",
    "kl_div",
    "multilabel_margin_loss",
    "binary_cross_entropy_with_logits",
    "max_unpool2d",
    "max_unpool3d",
    "adaptive_avg_pool3d",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
];
/// Joins, which need one type.
const WIDEST: &[&str] = &["stack", "cat", "index_copy"];

/// What happens to the arguments of an op.
enum Policy {
    To(DType),
    Widest,
    Keep,
}

fn policy(base: &str, lower: DType) -> Policy {
    if LOWER.contains(&base) {
        Policy::To(lower)
    } else if FULL.contains(&base) {
        Policy::To(DType::F32)
    } else if WIDEST.contains(&base) {
        Policy::Widest
    } else {
        Policy::Keep
    }
}

fn eligible(t: &Tensor) -> bool {
    t.is_floating_point() && t.dtype() != DType::F64
}

/// Casts the arguments of an op (`linear`, without overload) as a region of this type does.
pub(super) fn cast<'a>(base: &str, lower: DType, args: impl Iterator<Item = &'a mut Value>) -> Result<()> {
    let policy = policy(base, lower);
    if let Policy::Keep = policy {
        return Ok(());
    }
    let args: Vec<&mut Value> = args.collect();
    let to = match policy {
        Policy::To(dtype) => dtype,
        _ => {
            let given = args.iter().flat_map(|v| v.tensors()).filter(|t| eligible(t));
            given.map(Tensor::dtype).fold(lower, firebrand_core::dtype::promote)
        }
    };
    args.into_iter().try_for_each(|value| cast_value(value, to))
}

fn cast_value(value: &mut Value, to: DType) -> Result<()> {
    match value {
        Value::Tensor(t) if eligible(t) && t.dtype() != to => *t = t.try_to_dtype(to)?,
        Value::List(items) => items.iter_mut().try_for_each(|item| cast_value(item, to))?,
        _ => {}
    }
    Ok(())
}
