//! Names that are treated specially, as data: the generator's history in one file.
//!
//! Every list is sorted, so that [`contains`] can search it; a test checks that.

/// Whether a sorted list holds a name.
pub fn contains(list: &[&str], name: &str) -> bool {
    list.binary_search(&name).is_ok()
}

/// The view whose base is `values` and not `self`.
pub const VIEW_OF_VALUES: &str = "sparse_coo_tensor_with_dims_and_tensors";

/// Base names of operators that need no derivative.
#[rustfmt::skip]
pub const NEEDS_NO_DERIVATIVE: &[&str] = &[
    "__and__", "__iand__", "__ilshift__", "__ior__", "__irshift__", "__ixor__", "__lshift__", "__or__", "__rshift__",
    "__xor__", "_coalesced_", "_nested_tensor_size", "_nested_tensor_storage_offsets", "_nested_tensor_strides",
    "_sobol_engine_draw", "_sobol_engine_ff", "_sobol_engine_initialize_state_", "_sobol_engine_scramble_",
    "allclose", "argmax", "argmin", "argsort", "bucketize", "empty_like", "full_like", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "logical_and", "logical_not", "logical_or", "logical_xor", "new_empty",
    "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones_like", "quantize_per_channel",
    "quantize_per_tensor", "rand_like", "randn_like", "record_stream", "searchsorted", "signbit", "zeros_like",
];

/// Base names of views; all of `self` but [`VIEW_OF_VALUES`].
#[rustfmt::skip]
pub const VIEWS_OF_SELF: &[&str] = &[
    "_conj", "_indices", "_neg_view", "_nested_get_values", "_nested_view_from_buffer", "_nested_view_from_jagged",
    "_reshape_alias", "_test_autograd_multiple_dispatch_view", "_values", "alias", "as_strided", "ccol_indices",
    "col_indices", "crow_indices", "diagonal", "expand", "flatten", "indices", "numpy_T", "permute", "row_indices",
    "select", "slice", "slice_inverse", "sparse_coo_tensor_with_dims_and_tensors", "split", "split_with_sizes",
    "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "values", "view", "view_as_complex", "view_as_real",
];

/// Base names of composite operators that return a view of `self`.
#[rustfmt::skip]
pub const FURTHER_VIEWS_OF_SELF: &[&str] = &[
    "adjoint", "chunk", "contiguous", "detach", "expand_as", "imag", "mH", "mT", "matrix_H", "movedim", "narrow",
    "real", "reshape", "reshape_as", "swapaxes", "swapdims", "tensor_split", "view_as",
];

/// Printed base names of operators that reset the gradient accumulator.
#[rustfmt::skip]
pub const RESETS_ACCUMULATOR: &[&str] = &[
    "resize_", "set_",
];

/// C++ names of operators that may change the storage of their inputs.
#[rustfmt::skip]
pub const MAY_CHANGE_INPUT_STORAGE: &[&str] = &[
    "_cudnn_rnn_flatten_weight", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "set_",
];

/// C++ names with `_overload` of operators whose outputs may share storage.
#[rustfmt::skip]
pub const OUTPUTS_MAY_BE_SHARED: &[&str] = &[
    "_cudnn_rnn", "_cudnn_rnn_backward", "_embedding_bag", "_embedding_bag_forward_only", "_nested_tensor_size",
    "_nested_tensor_storage_offsets", "_nested_tensor_strides", "_slow_conv2d_forward", "channel_shuffle",
    "dequantize_self", "lift", "lift_fresh", "lift_fresh_copy", "lu_unpack", "q_per_channel_scales",
    "q_per_channel_zero_points", "slow_conv3d_forward",
];

/// C++ names that must have `manual_kernel_registration`.
#[rustfmt::skip]
pub const MANUAL_KERNEL: &[&str] = &[
    "_backward", "_version", "data", "is_leaf", "options", "output_nr", "requires_grad_", "retain_grad", "set_data",
];

/// In-place foreach operators (base.overload) that may have no info.
#[rustfmt::skip]
pub const INPLACE_FOREACH_WITHOUT_INFO: &[&str] = &[
    "_foreach_addcdiv.Tensor", "_foreach_addcmul.Tensor", "_foreach_copy.", "_foreach_maximum.Scalar",
    "_foreach_maximum.ScalarList", "_foreach_minimum.Scalar", "_foreach_minimum.ScalarList",
];

/// In-place foreach operators (base.overload) with another arity than their reference.
#[rustfmt::skip]
pub const INPLACE_FOREACH_OTHER_ARITY: &[&str] = &[
    "_foreach_add.Scalar", "_foreach_add.ScalarList", "_foreach_sub.Scalar", "_foreach_sub.ScalarList",
];

/// Out operators (full name) that may be alone in their group.
#[rustfmt::skip]
pub const LONE_OUT: &[&str] = &[
    "_slow_conv2d_backward.grad_input", "adaptive_avg_pool3d_backward.grad_input",
];

/// Mutable operators that get no out variant.
#[rustfmt::skip]
pub const MUTABLE_WITHOUT_OUT: &[&str] = &[
    "_cummax_helper", "_cummin_helper",
];

/// Functional operators (full name) that get no out variant.
#[rustfmt::skip]
pub const FUNCTIONAL_WITHOUT_OUT: &[&str] = &[
    "_assert_async", "_assert_async.msg", "_assert_scalar", "_assert_tensor_metadata",
    "_chunk_grad_outputs_efficient_attention", "_cslt_sparse_mm_search", "_dimI", "_dimV", "_fused_sdp_choice",
    "_has_same_storage_numel", "_linalg_check_errors", "_local_scalar_dense", "_nested_get_ragged_idx",
    "_nested_tensor_from_mask_left_aligned", "_nested_tensor_storage_offsets", "_nnz", "_print", "_sink_tokens",
    "_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor",
    "_validate_compressed_sparse_indices", "allclose", "dense_dim", "equal", "is_coalesced", "is_pinned",
    "is_same_size", "is_set_to", "q_per_channel_axis", "q_scale", "q_zero_point", "qscheme", "record_stream",
    "sparse_dim", "sym_constrain_range", "sym_constrain_range_for_size",
];

/// C++ names of operators whose autograd code is written by hand.
#[rustfmt::skip]
pub const NO_WRAPPER: &[&str] = &[
    "_backward", "_fw_primal", "_make_dual", "_version", "copy_", "data", "detach", "detach_", "is_leaf", "options",
    "output_nr", "requires_grad_", "resize_", "resize_as_", "retain_grad", "set_data",
];

/// Tags a declaration may have, unless a tags file says otherwise.
#[rustfmt::skip]
pub const TAGS: &[&str] = &[
    "core", "cudagraph_unsafe", "data_dependent_output", "dynamic_output_shape", "flexible_layout", "generated",
    "inplace", "inplace_view", "maybe_aliasing_or_mutating", "needs_contiguous_strides", "needs_exact_strides",
    "needs_fixed_stride_order", "nondeterministic_bitwise", "nondeterministic_seeded", "out", "out_variant",
    "pointwise", "pt2_compliant_tag", "reduction", "view_copy",
];

/// Tags one of our own declarations may have.
pub const RUST_TAGS: &[&str] = &[
    "core",
    "pointwise",
    "reduction",
    "view",
    "inplace_view",
    "nondeterministic_seeded",
    "dynamic_output_shape",
    "data_dependent_output",
    "factory",
];

#[cfg(test)]
mod tests {
    #[test]
    fn lists_are_sorted() {
        let lists = [
            super::NEEDS_NO_DERIVATIVE,
            super::VIEWS_OF_SELF,
            super::FURTHER_VIEWS_OF_SELF,
            super::RESETS_ACCUMULATOR,
            super::MAY_CHANGE_INPUT_STORAGE,
            super::OUTPUTS_MAY_BE_SHARED,
            super::MANUAL_KERNEL,
            super::INPLACE_FOREACH_WITHOUT_INFO,
            super::INPLACE_FOREACH_OTHER_ARITY,
            super::LONE_OUT,
            super::MUTABLE_WITHOUT_OUT,
            super::FUNCTIONAL_WITHOUT_OUT,
            super::NO_WRAPPER,
            super::TAGS,
        ];
        for list in lists {
            assert!(list.is_sorted());
        }
    }
}
