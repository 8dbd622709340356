//! Saved attributes: what a backward formula becomes and what it captures.

use crate::common::{build, entry, first_derivative, native, show};

const BLEND: &str = "blend(Tensor self, Tensor other, int dim, Scalar alpha) -> Tensor";

#[test]
fn rewriting() {
    #[rustfmt::skip]
    let table = [
        ("T-47", BLEND, "self", "grad * other", "formula `grad * other`; inputs `(other; at::Tensor; other)`; outputs none"),
        ("T-48", BLEND, "self", "g(grad, self.sym_sizes())", "formula `g(grad, self_sym_sizes)`; inputs `(self_sym_sizes; c10::SymIntArrayRef; self.sym_sizes())`; outputs none"),
        ("T-49", BLEND, "self", "g(grad, self.sym_size(0))", "formula `g(grad, self_sym_argsize_0)`; inputs `(self_sym_argsize_0; c10::SymInt; self.sym_size(0))`; outputs none"),
        ("T-50", BLEND, "self", "g(grad, self.sym_size(-1))", "formula `g(grad, self_sym_argsize_minus_1)`; inputs `(self_sym_argsize_minus_1; c10::SymInt; self.sym_size(-1))`; outputs none"),
        ("T-51", BLEND, "self", "g(grad, self.sym_size(dim))", "formula `g(grad, self_sym_argsize_dim)`; inputs `(self_sym_argsize_dim; c10::SymInt; self.sym_size(dim))`; outputs none"),
        ("T-52", BLEND, "self", "g(grad, self.sym_size(dim + 1))", "formula `g(grad, self.sym_size(dim + 1))`; inputs `(self; at::Tensor; self), (dim; int64_t; dim)`; outputs none"),
        ("T-53", BLEND, "self", "g(grad, self.numel())", "formula `g(grad, self_numel)`; inputs `(self_numel; int64_t; self.numel())`; outputs none"),
        ("T-54", BLEND, "self", "g(grad, self.sym_numel())", "formula `g(grad, self_sym_numel)`; inputs `(self_sym_numel; c10::SymInt; self.sym_numel())`; outputs none"),
        ("T-55", BLEND, "self", "g(grad, self.options())", "formula `g(grad, self_options)`; inputs `(self_options; at::TensorOptions; self.options())`; outputs none"),
        ("T-56", BLEND, "self", "grad + zeros_like(self)", "formula `grad + self_info.zeros()`; inputs `(self_info; torch::autograd::generated::TypeAndSize; self)`; outputs none"),
        ("T-57", BLEND, "self", "g(grad, TensorGeometry(self))", "formula `g(grad, self_geometry)`; inputs `(self_geometry; at::TensorGeometry; TensorGeometry(self))`; outputs none"),
        ("T-58", BLEND, "self", "g(grad, self.scalar_type())", "formula `g(grad, self_scalar_type)`; inputs `(self_scalar_type; at::ScalarType; self.scalar_type())`; outputs none"),
        ("T-59", BLEND, "self", "g(grad, self.dim())", "formula `g(grad, self_dim)`; inputs `(self_dim; int64_t; self.dim())`; outputs none"),
        ("T-60", BLEND, "self", "g(grad, self.sym_strides())", r#"formula `g(grad, self_sym_strides)`; inputs `(self_sym_strides; c10::SymIntArrayRef; strides_or_error(self, "self"))`; outputs none"#),
        ("T-61", BLEND, "self", "g(grad, other.sym_strides())", "error derivatives/formula_strides_scope"),
        ("T-62", BLEND, "self", "g(grad, self.layout())", "formula `g(grad, self_layout)`; inputs `(self_layout; at::Layout; self.layout())`; outputs none"),
        ("T-63", BLEND, "self", "g(grad, self.is_conj())", "formula `g(grad, self_conjugate)`; inputs `(self_conjugate; bool; self.is_conj())`; outputs none"),
        ("T-64", BLEND, "self", "g(grad, self.sym_blocksize())", "formula `g(grad, self_self_sym_blocksize_opt)`; inputs `(self_self_sym_blocksize_opt; ::std::optional<c10::SymIntArrayRef>; at::sparse_csr::getSymIntBlockSize(self))`; outputs none"),
        ("T-65", BLEND, "self", "g(grad, self.sizes())", "error derivatives/formula_sizes"),
        ("T-66", BLEND, "self", "g(grad, self.size(-1))", "error derivatives/formula_size_int"),
        ("T-67", BLEND, "self", "g(grad, self.size(dim))", "formula `g(grad, self.size(dim))`; inputs `(self; at::Tensor; self), (dim; int64_t; dim)`; outputs none"),
        ("T-68", BLEND, "self", "g(grad, self.strides())", "error derivatives/formula_strides"),
        ("T-69", BLEND, "self", "g(grad, self.scalar_type(), self.scalar_type())", "formula `g(grad, self_scalar_type, self_scalar_type)`; inputs `(self_scalar_type; at::ScalarType; self.scalar_type()), (self_scalar_type; at::ScalarType; self.scalar_type())`; outputs none"),
        ("T-70", BLEND, "self", "g(grad, self, self.scalar_type())", "formula `g(grad, self, self_scalar_type)`; inputs `(self_scalar_type; at::ScalarType; self.scalar_type()), (self; at::Tensor; self)`; outputs none"),
        ("T-71", BLEND, "self", "g(grad, selfish)", "formula `g(grad, selfish)`; inputs none; outputs none"),
        ("T-72", BLEND, "self", "g(grad.dim())", "formula `g(grad.dim())`; inputs `(dim; int64_t; dim)`; outputs none"),
        ("T-73", BLEND, "self", "g(grad, self.device())", "formula `g(grad, self.device())`; inputs `(self; at::Tensor; self)`; outputs none"),
        ("T-74", BLEND, "self", "g(grad, self.sym_sizes ())", "formula `g(grad, self.sym_sizes ())`; inputs `(self; at::Tensor; self)`; outputs none"),
        ("T-75", BLEND, "self", "grad * result", "formula `grad * result`; inputs none; outputs `(result; at::Tensor; result)`"),
        ("T-76", BLEND, "self", "g(grad, result.scalar_type())", "formula `g(grad, result_scalar_type)`; inputs none; outputs `(result_scalar_type; at::ScalarType; result.scalar_type())`"),
        ("T-77", BLEND, "self", "g(grad, zeros_like(result))", "formula `g(grad, result_info.zeros())`; inputs none; outputs `(result_info; torch::autograd::generated::TypeAndSize; result)`"),
        ("T-78", "pack(Tensor[] tensors, int dim) -> Tensor", "tensors", "g(grad, to_args_sizes(tensors))", "formula `g(grad, tensors_args_sizes)`; inputs `(tensors_args_sizes; ::std::vector<::std::vector<int64_t>>; to_args_sizes(tensors))`; outputs none"),
        ("T-79", "pack(Tensor[] tensors, int dim) -> Tensor", "tensors", "g(grad, to_args_sizes_symint(tensors), dim)", "formula `g(grad, tensors_args_sizes_symint, dim)`; inputs `(tensors_args_sizes_symint; ::std::vector<::std::vector<c10::SymInt>>; to_args_sizes_symint(tensors)), (dim; int64_t; dim)`; outputs none"),
        ("T-80", "pack(Tensor[] tensors, int dim) -> Tensor", "tensors", "g(grad, to_args_scalartypes(tensors))", "formula `g(grad, tensors_args_scalartypes)`; inputs `(tensors_args_scalartypes; ::std::vector<at::ScalarType>; to_args_scalartypes(tensors))`; outputs none"),
        ("T-81", "pack(Tensor[] tensors, int dim) -> Tensor", "tensors", "g(grad, tensors)", "formula `g(grad, tensors)`; inputs `(tensors; at::TensorList; tensors)`; outputs none"),
        ("T-82", "blend(Tensor self, Tensor? bias) -> Tensor", "self", "g(grad, bias->sym_sizes())", "formula `g(grad, bias_sym_sizes_opt)`; inputs `(bias_sym_sizes_opt; ::std::optional<c10::SymIntArrayRef>; bias.has_value() ? std::optional<c10::SymIntArrayRef>(bias->sym_sizes()) : std::nullopt)`; outputs none"),
        ("T-83", "blend(Tensor self, Tensor? bias) -> Tensor", "self", "g(grad, bias)", "formula `g(grad, bias)`; inputs `(bias; ::std::optional<at::Tensor>; bias)`; outputs none"),
        ("T-84", "blend(Tensor self, Tensor? bias) -> Tensor", "self", "g(grad, bias->sizes())", "error derivatives/formula_sizes"),
        ("T-85", "blend(Tensor self, str? mode, str how) -> Tensor", "self", "g(grad, mode, how)", "formula `g(grad, mode.has_value() ? std::optional<std::string_view>(mode.value()) : std::nullopt, how)`; inputs `(mode; ::std::optional<c10::string_view>; mode), (how; c10::string_view; how)`; outputs none"),
        ("T-86", "blend(Tensor f, Tensor self) -> Tensor", "self", "g(grad, self.sym_sizes())", "formula `g(grad, self_sym_sizes)`; inputs `(f_sym_sizes; c10::SymIntArrayRef; f.sym_sizes())`; outputs none"),
        ("T-87", "blend(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor", "self", "g(grad, memory_format, options)", "formula `g(grad, memory_format, options)`; inputs `(options; at::TensorOptions; options)`; outputs none"),
        ("T-88", "blend(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", "self", "g(grad, memory_format)", "formula `g(grad, memory_format)`; inputs `(memory_format; ::std::optional<at::MemoryFormat>; memory_format)`; outputs none"),
    ];
    for (id, schema, key, formula, expected) in table {
        let formula = formula.replace('\'', "''");
        let derivatives = entry(schema, &[&format!("{key}: '{formula}'")]);
        let found = show(build(&native(&[schema]), &derivatives, false), first_derivative);
        assert_eq!(found, expected, "{id}: {formula}");
    }
}
