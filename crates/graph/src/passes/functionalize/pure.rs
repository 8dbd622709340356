//! The op that computes what a writing op writes: `add_` and `add.out` become `add`.

use crate::ir::OpOverload;
use firebrand_core::dispatch::{Op, Tags};

/// The view op of an op that changes how a tensor shows its memory, and not the memory, such as `squeeze_.dim`.
pub(super) fn relayout(op: &OpOverload) -> Option<Op> {
    let op = op.op().filter(|&op| op.has(Tags::INPLACE_VIEW) && op != Op::DETACH_)?;
    op.info().functional
}

/// The op without writes that takes the same arguments, apart from those that only receive results.
pub(super) fn form(op: Op) -> Option<Op> {
    op.info().functional
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrand_core::dispatch::Kind as OpKind;

    #[test]
    fn in_place_and_out_forms_have_pure_ones() {
        let pure = |name: &str| form(Op::from_name(name).unwrap()).map(Op::name);
        assert_eq!(pure("aten::add_.Tensor"), Some("aten::add.Tensor"));
        assert_eq!(pure("aten::pow_.Scalar"), Some("aten::pow.Tensor_Scalar"));
        assert_eq!(pure("aten::floor_divide_.Tensor"), Some("aten::floor_divide"));
        assert_eq!(pure("aten::mm.out"), Some("aten::mm"));
        assert_eq!(pure("aten::where.self_out"), Some("aten::where.self"));
        assert_eq!(pure("aten::copy_"), Some("aten::copy"));
        assert_eq!(pure("aten::zero_"), Some("aten::zero"));
        assert_eq!(pure("aten::_foreach_add_.Scalar"), Some("aten::_foreach_add.Scalar"));
        assert_eq!(pure("aten::index_put_"), Some("aten::index_put"));
    }

    /// Writing ops that have no pure form here are few and known.
    #[test]
    fn few_have_none() {
        let none: Vec<&str> = Op::all()
            .filter(|&op| op.schema().mutates() && form(op).is_none())
            .map(Op::name)
            .filter(|n| !n.contains("foreach") && !n.contains("_fused_"))
            // A factory takes its options from the tensor given.
            .filter(|n| !Op::from_name(n).is_some_and(|op| op.info().kind == OpKind::Out))
            .collect();
        let known = [
            "aten::_native_batch_norm_legit",
            "aten::_batch_norm_with_update",
            "aten::fill_diagonal_",
            "aten::embedding_renorm_",
            "aten::uniform_",
            "aten::normal_",
            "aten::log_normal_",
            "aten::exponential_",
            "aten::cauchy_",
            "aten::geometric_",
            "aten::random_",
            "aten::random_.to",
            "aten::random_.from",
            "aten::bernoulli_.Tensor",
            "aten::rrelu_with_noise",
            "aten::rrelu_with_noise_",
            // What they do to memory is not a function of values.
            "aten::resize_",
            "aten::resize_as_",
            "aten::set_",
            "aten::set_.source_Tensor",
            "aten::set_.source_Tensor_storage_offset",
            // No functional form is declared for them; functionalization refuses them by name.
            "aten::_index_put_impl_",
            "aten::_amp_update_scale_",
            "aten::polygamma_",
        ];
        let unknown: Vec<_> = none.iter().filter(|n| !known.contains(n)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
