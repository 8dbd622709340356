//! The checks that an op must have rows for, and the exceptions, with reasons. Every entry is a decision; one that excuses nothing is stale.

use crate::check::Check;
use firebrand_core::dispatch::{Derivative, Kind, Op, Tags};
use firebrand_core::func::Batching;
use firebrand_core::schema::Type;

/// Checks that ops have no row for.
#[derive(Debug)]
pub struct Excuse {
    /// The ops, by name and overload without `aten::`, separated by spaces.
    pub ops: &'static str,
    /// The checks.
    pub checks: &'static [Check],
    /// Why, and what checks them instead.
    pub reason: &'static str,
}

const DERIVED: &[Check] = &[
    Check::Gradients,
    Check::Gradcheck,
    Check::Gradgradcheck,
    Check::ForwardMode,
    Check::BatchedGradients,
    Check::Transforms,
];

/// Every excuse.
pub const EXCUSES: &[Excuse] = &[
    Excuse {
        ops: "special_polygamma",
        checks: &[Check::Forward],
        reason: "its rows are those that PyTorch rounds to f32 (deviations.rs): checked as polygamma",
    },
    Excuse {
        ops: "can_cast allclose equal numel sym_size.int sym_numel sym_storage_offset sym_stride.int is_leaf is_floating_point is_complex is_signed \
              is_inference retains_grad dim storage_offset output_nr is_conj is_neg _is_zerotensor is_distributed get_device is_pinned \
              is_same_size is_set_to _has_same_storage_numel size.int stride.int is_contiguous is_contiguous.memory_format \
              _debug_has_internal_overlap _shape_as_tensor",
        checks: &[Check::Meta],
        reason: "the result is not a tensor with a shape",
    },
    Excuse {
        ops: "bincount nonzero_numpy lstm.data gru.data rnn_tanh.data rnn_relu.data",
        checks: &[Check::Meta],
        reason: "sizes are values; meta tensors are refused by name",
    },
    Excuse {
        ops: "view _unsafe_view view_as view.dtype view_as_complex view_as_complex_copy as_strided as_strided_copy as_strided_scatter \
              _reshape_alias _reshape_alias_copy _assert_tensor_metadata stride.int sym_stride.int is_contiguous \
              is_contiguous.memory_format _debug_has_internal_overlap",
        checks: &[Check::Layouts, Check::Vmap],
        reason: "asks for strides, which the check changes",
    },
    Excuse {
        ops: "item _local_scalar_dense is_nonzero _assert_async _assert_async.msg trace_backward _functional_assert_scalar \
              _functional_assert_async.msg _functional_sym_constrain_range _functional_sym_constrain_range_for_size \
              linspace.Tensor_Tensor logspace.Tensor_Tensor linspace.Tensor_Scalar logspace.Tensor_Scalar linspace.Scalar_Tensor \
              logspace.Scalar_Tensor",
        checks: &[Check::Layouts],
        reason: "takes tensors of one element, which have one layout",
    },
    Excuse {
        ops: "special_polygamma special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 \
              hardsigmoid_backward",
        checks: &[Check::Layouts],
        reason: "the rows are those of f64, where PyTorch's values are less precise (deviations.rs)",
    },
    Excuse {
        ops: "svd linalg_eigh linalg_svd linalg_eig",
        checks: &[Check::Layouts, Check::Threads, Check::Vmap],
        reason: "signs of vectors are open: tests/linalg.rs multiplies back",
    },
    Excuse {
        ops: "empty_like new_empty new_empty_strided",
        checks: &[Check::Layouts, Check::Threads, Check::Vmap],
        reason: "uninitialized values",
    },
    Excuse {
        ops: "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit.no_stats \
              _native_batch_norm_legit_no_training _native_batch_norm_legit_functional _batch_norm_with_update \
              _batch_norm_with_update_functional instance_norm",
        checks: &[Check::Vmap, Check::Transforms],
        reason: "running statistics are one for all samples (deviations.rs); tests/vmap_rules.rs",
    },
    Excuse {
        ops: "cumprod_backward",
        checks: &[Check::Vmap],
        reason: "reads products that the check does not keep (deviations.rs)",
    },
    Excuse {
        ops: "pdist _pdist_forward",
        checks: &[Check::Threads],
        reason: "the enlarged sample would take minutes (deviations.rs)",
    },
    Excuse {
        ops: "floor_divide floor_divide.Scalar remainder.Scalar_Tensor silu_backward mish_backward log_sigmoid_backward \
              hardsigmoid_backward copy _grouped_mm linalg_ldl_factor_ex linalg_ldl_solve _linalg_eigvals geqrf _unique2 \
              unique_consecutive unique_dim _standard_gamma_grad",
        checks: DERIVED,
        reason: "PyTorch has no derivative of it on the CPU, or refuses the one it declares; where ours has one, second derivatives of \
                 the op it belongs to or core's tests check it",
    },
    Excuse {
        ops: "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward grid_sampler_2d_backward \
              grid_sampler_3d_backward _ctc_loss_backward",
        checks: DERIVED,
        reason: "arguments depend on each other, so finite differences do not apply: second derivatives of the op itself check it",
    },
    Excuse {
        ops: "_linalg_svd linalg_eig _linalg_eigh linalg_matrix_sqrth _ctc_loss",
        checks: DERIVED,
        reason: "vectors are open up to a sign, or a second result has no meaning: what is made of it has rows (linalg_svdvals, \
                 linalg_eigvals, linalg_eigvalsh, ctc_loss), and tests/linalg.rs checks gradients of the vectors",
    },
    Excuse {
        ops: "bernoulli poisson _standard_gamma native_dropout",
        checks: DERIVED,
        reason: "random: tests of the random stream and of its gradients check it",
    },
    Excuse { ops: "mode nextafter", checks: DERIVED, reason: "not smooth anywhere near its samples" },
    Excuse {
        ops: "special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 digamma hardsigmoid",
        checks: &[Check::Gradients, Check::Gradgradcheck, Check::ForwardMode],
        reason: "PyTorch's values are less precise, or kinks are too near (deviations.rs); finite differences of the values remain",
    },
    Excuse {
        ops: "norm.Scalar huber_loss_backward ormqr lift_fresh index_reduce native_dropout_backward",
        checks: &[Check::ForwardMode],
        reason: "PyTorch has no tangent of it",
    },
    Excuse {
        ops: "linalg_cholesky_ex sort.stable",
        checks: &[Check::Transforms],
        reason: "its first samples are not smooth; linalg_cholesky and sort have rows",
    },
];

/// What rows there must be for an op: its own, or those of the op whose form it is.
fn required(op: Op) -> Vec<Check> {
    let info = op.info();
    match info.kind {
        Kind::InPlace => return vec![Check::Inplace],
        Kind::Out => return vec![Check::Out],
        Kind::Functional | Kind::Mutable => {}
    }
    let takes_tensors =
        info.schema.args.iter().any(|a| matches!(a.ty, Type::Tensor | Type::Tensors | Type::OptTensors));
    let mut checks = vec![Check::Forward];
    if !op.has(Tags::DATA_DEPENDENT_OUTPUT) && !op.has(Tags::DYNAMIC_OUTPUT_SHAPE) {
        checks.push(Check::Meta);
    }
    if takes_tensors && !op.has(Tags::NONDETERMINISTIC_SEEDED) {
        checks.extend([Check::Layouts, Check::Threads]);
        if op.batching() != Batching::Refused {
            checks.push(Check::Vmap);
        }
    }
    if matches!(info.derivative, Derivative::Formula(_)) {
        checks.extend(DERIVED.iter().filter(|c| info.forward || **c != Check::ForwardMode));
    }
    checks
}

/// Whether an entry excuses the op from the check.
fn excused(op: Op, check: Check) -> impl Iterator<Item = usize> {
    let name = op.name().trim_start_matches("aten::");
    let covers = move |e: &Excuse| e.checks.contains(&check) && e.ops.split_whitespace().any(|o| o == name);
    EXCUSES.iter().enumerate().filter(move |(_, e)| covers(e)).map(|(k, _)| k)
}

/// Checks without a row and without an excuse, and excuses that no op needs, one line each.
pub fn gaps() -> Vec<String> {
    let (counts, mut used, mut found) = (crate::coverage(), vec![false; EXCUSES.len()], Vec::new());
    for op in Op::all() {
        // Second names, and ops that need no rows, are looked at elsewhere.
        let Some(have) = counts.get(op.name()) else { continue };
        let has = |check: Check| Check::ALL.iter().zip(have).any(|(c, n)| *c == check && *n > 0);
        // A form that has rows of its own is as good.
        let missing =
            |check: &Check| !(has(*check) || matches!(check, Check::Inplace | Check::Out) && has(Check::Forward));
        for check in required(op).into_iter().filter(missing) {
            match excused(op, check).next() {
                Some(k) => used[k] = true,
                None => found.push(format!("{} has no row for {check:?}", op.name())),
            }
        }
    }
    found.extend(EXCUSES.iter().zip(used).filter(|(_, used)| !used).map(|(e, _)| format!("not needed: {}", e.reason)));
    found
}
