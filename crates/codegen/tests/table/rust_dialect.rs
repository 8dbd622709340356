//! Our own formulas: Rust expressions, read by tokens, with the same model as PyTorch's.

use crate::common::{entry, saved};
use firebrand_codegen::{CodegenError, Dialect, Model, Sources};

const B: &str = "b(Tensor self, Tensor other, int dim, Tensor? bias, Tensor[] more) -> Tensor";

/// The model of `B`, its in-place form and an entry in which the arguments without a formula say that they have none.
fn model(fields: &[&str]) -> Result<Model, CodegenError> {
    let ops = format!("- func: {B}\n  shape: s\n  kernel: k\n  inplace: true\n");
    let given = |name: &str| fields.iter().any(|field| field.starts_with(&format!("{name}:")));
    let missing = ["self", "other", "bias", "more"].into_iter().filter(|name| !given(name));
    let missing: String = missing.map(|name| format!("  {name}: non_differentiable\n")).collect();
    let derivatives = entry(B, fields) + &missing;
    Sources { native: &ops, derivatives: &derivatives, tags: None, dialect: Dialect::Rust }.model()
}

#[test]
fn saved_attributes() {
    #[rustfmt::skip]
    let table = [
        ("grad * other", "grad * other", "`(other; at::Tensor; other)`"),
        ("g(grad, self.sym_sizes())", "g(grad, self_sym_sizes)", "`(self_sym_sizes; c10::SymIntArrayRef; self.sym_sizes())`"),
        ("g(grad, self.sym_size(0), self.sym_size(-1))", "g(grad, self_sym_argsize_0, self_sym_argsize_minus_1)",
            "`(self_sym_argsize_0; c10::SymInt; formulas::sym_size(self, 0)?), (self_sym_argsize_minus_1; c10::SymInt; formulas::sym_size(self, -1)?)`"),
        ("g(grad, self.sym_size(dim))", "g(grad, self_sym_argsize_dim)", "`(self_sym_argsize_dim; c10::SymInt; formulas::sym_size(self, dim)?)`"),
        ("g(grad, self.sym_size(dim + 1))", "g(grad, self.sym_size(dim + 1))", "`(self; at::Tensor; self), (dim; int64_t; dim)`"),
        ("g(grad, self.dtype(), self)", "g(grad, self_scalar_type, self)", "`(self_scalar_type; at::ScalarType; self.dtype()), (self; at::Tensor; self)`"),
        ("g(grad, self . ndim ( ))", "g(grad, self_dim)", "`(self_dim; int64_t; self.ndim())`"),
        ("g(grad, self.spec(), other.layout())", "g(grad, self_spec, other_layout)",
            "`(self_spec; torch::autograd::generated::TypeAndSize; self.spec().clone()), (other_layout; at::TensorGeometry; other.layout().clone())`"),
        ("grad + zeros_like(self) + zeros_like(&other)", "grad + zeros_of(self_info) + zeros_of(other_info)",
            "`(self_info; torch::autograd::generated::TypeAndSize; self.spec().clone()), (other_info; torch::autograd::generated::TypeAndSize; other.spec().clone())`"),
        ("g(grad, bias.map(|t| t.sym_sizes()))", "g(grad, bias_sym_sizes_opt)",
            "`(bias_sym_sizes_opt; ::std::optional<c10::SymIntArrayRef>; bias.map(|t| t.sym_sizes()))`"),
        ("g(grad, bias.as_ref().map(|b| b.sym_sizes()))", "g(grad, bias_sym_sizes_opt)",
            "`(bias_sym_sizes_opt; ::std::optional<c10::SymIntArrayRef>; bias.map(|t| t.sym_sizes()))`"),
        ("g(grad, to_args_sizes(more), to_args_dtypes(more))", "g(grad, more_args_sizes, more_args_scalartypes)",
            "`(more_args_sizes; ::std::vector<::std::vector<c10::SymInt>>; more.iter().map(|t| t.sym_sizes()).collect()), (more_args_scalartypes; ::std::vector<at::ScalarType>; more.iter().map(|t| t.dtype()).collect())`"),
        // Only tensors have such parts.
        ("g(grad, dim.numel())", "g(grad, dim.numel())", "`(dim; int64_t; dim)`"),
        // A method called like an argument is not a use of it, and neither is a word in a string.
        ("grad.sum(grad.dim())", "grad.sum(grad.dim())", "none"),
        ("not_implemented(\"other\")", "not_implemented(\"other\")", "none"),
        ("g(grad, 0..dim)", "g(grad, 0..dim)", "`(dim; int64_t; dim)`"),
    ];
    for (formula, rewritten, expected) in table {
        let model = model(&[&format!("self: '{formula}'")]).expect(formula);
        let derivative = &model.infos[0].by_key[0].derivatives[0];
        let found = (derivative.formula.as_str(), saved(&derivative.saved_inputs));
        assert_eq!(found, (rewritten, expected.to_owned()), "{formula}");
    }
}

#[test]
fn forward_formulas() {
    #[rustfmt::skip]
    let table = [
        ("auto_linear", "b(self_t, other, dim, bias, more)", "if self_t_raw.defined() { self_t_raw.copy_(b(self_t, other, dim, bias, more)) } else { b(self_t, other, dim, bias, more) }"),
        // Adjacent uses are all replaced: tokens share no separators.
        ("auto_element_wise", "(self_t.conj()*self_p*self_p).conj()",
            "if self_t_raw.defined() { self_t_raw.copy_((original_self_t.conj()*original_self_p*original_self_p).conj()) } else { (original_self_t.conj()*original_self_p*original_self_p).conj() }"),
        ("self_t.b(other)", "self_t.b(other)", "if self_t_raw.defined() { self_t_raw.b_(other) } else { self_t.b(other) }"),
    ];
    for (formula, expected, in_place) in table {
        let model = model(&["self: grad*self*self", &format!("result: {formula}")]).expect(formula);
        assert_eq!(model.infos[0].by_key[0].forward_derivatives[0].formula, expected);
        let twin = model.functions.iter().find(|f| f.func.func.name.name.inplace).expect("the twin");
        assert_eq!(twin.forward("Default")[0].formula, in_place);
    }
}

#[test]
fn formulas_that_are_no_rust_are_refused_with_their_line() {
    let error = model(&["self: grad", "other: 'grad ? 1 : 2'"]).expect_err("not Rust");
    assert_eq!((error.kind.as_str(), error.line), ("formula_syntax", Some(3)));
    assert_eq!(error.file.as_deref(), Some("derivatives.yaml"));
    assert!(error.message.contains("column"), "{error}");
    let error = model(&["other: g(grad, self.sym_strides())"]).expect_err("strides of another argument");
    assert_eq!(error.kind.as_str(), "formula_strides_scope");
    // An in-place form has lost the strides that its formula would read.
    let error = model(&["self: g(grad, self.sym_strides())"]).expect_err("strides of what is overwritten");
    assert_eq!((error.stage.as_str(), error.kind.as_str()), ("match", "inplace_strides"));
}
