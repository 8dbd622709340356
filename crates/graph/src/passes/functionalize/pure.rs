//! The op that computes what a writing op writes: `add_` and `add.out` become `add`.

use crate::ir::OpOverload;
use crate::schema::{Schema, SchemaArg};
use firebrand_core::dispatch::Op;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Ops that change how a tensor shows its memory, and not the memory.
pub(super) fn is_relayout(op: &OpOverload) -> bool {
    matches!(op.base(), "t_" | "transpose_" | "squeeze_" | "unsqueeze_")
}

fn is_out(arg: &SchemaArg) -> bool {
    arg.written && arg.kwarg_only
}

/// The op without writes that takes the same arguments, apart from those that only receive results.
pub(super) fn form(op: Op) -> Option<Op> {
    static TABLE: OnceLock<HashMap<Op, Op>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut pure: HashMap<String, Vec<Op>> = HashMap::new();
        for op in Op::all().filter(|&op| !Schema::of_op(op).mutates()) {
            pure.entry(OpOverload::from(op).base().to_string()).or_default().push(op);
        }
        let same = |a: &Schema, b: &Schema| {
            let given = |s: &Schema| s.args.iter().filter(|a| !is_out(a)).map(|a| a.ty).collect::<Vec<_>>();
            given(a) == given(b)
        };
        Op::all()
            .filter(|&op| Schema::of_op(op).mutates())
            .filter_map(|op| {
                let overload = OpOverload::from(op);
                let base = overload.base();
                // Out forms share the name of the op, in-place forms end in an underscore.
                let name = if Schema::of_op(op).args.iter().any(is_out) { base } else { base.strip_suffix('_')? };
                let found = pure.get(name)?.iter().find(|p| same(Schema::of_op(**p), Schema::of_op(op)));
                Some((op, *found?))
            })
            .collect()
    });
    table.get(&op).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            .filter(|&op| Schema::of_op(op).mutates() && form(op).is_none())
            .map(Op::name)
            .filter(|n| !n.contains("foreach") && !n.contains("_fused_"))
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
        ];
        let unknown: Vec<_> = none.iter().filter(|n| !known.contains(n)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
