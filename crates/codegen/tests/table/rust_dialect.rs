//! Our own formulas: Rust expressions, read by tokens, with the same model as PyTorch's.

use crate::common::{entry, native, saved};
use firebrand_codegen::{CodegenError, Dialect, Model, Sources};

const B: &str = "b(Tensor self, Tensor other, int dim, Tensor? bias) -> Tensor";

fn model(derivatives: &str) -> Result<Model, CodegenError> {
    let ops = native(&[B, "b_(Tensor(a!) self, Tensor other, int dim, Tensor? bias) -> Tensor(a!)"]);
    Sources { native: &ops, derivatives, tags: None, dialect: Dialect::Rust }.model()
}

#[test]
fn saved_attributes() {
    #[rustfmt::skip]
    let table = [
        ("grad * other", "grad * other", "`(other; at::Tensor; other)`"),
        ("g(grad, self.shape())", "g(grad, self_shape)", "`(self_shape; at::IntArrayRef; self.shape())`"),
        ("g(grad, self.size(0), self.size(-1), self.size(dim))", "g(grad, self_size_0, self_size_minus_1, self_size_dim)",
            "`(self_size_0; c10::SymInt; self.size(0)), (self_size_minus_1; c10::SymInt; self.size(-1)), (self_size_dim; c10::SymInt; self.size(dim))`"),
        ("g(grad, self.size(dim + 1))", "g(grad, self.size(dim + 1))", "`(self; at::Tensor; self), (dim; int64_t; dim)`"),
        ("g(grad, self.dtype(), self)", "g(grad, self_dtype, self)", "`(self_dtype; at::ScalarType; self.dtype()), (self; at::Tensor; self)`"),
        ("g(grad, self . ndim ( ))", "g(grad, self_ndim)", "`(self_ndim; int64_t; self . ndim ( ))`"),
        ("g(grad, self.strides())", "g(grad, self_strides)", "`(self_strides; at::IntArrayRef; self.strides())`"),
        ("grad + zeros_like(self) + zeros_like(&other)", "grad + self_info.zeros() + other_info.zeros()",
            "`(self_info; torch::autograd::generated::TypeAndSize; self), (other_info; torch::autograd::generated::TypeAndSize; other)`"),
        ("g(grad, bias.as_ref().map(|t| t.shape()))", "g(grad, bias_shape_opt)",
            "`(bias_shape_opt; ::std::optional<at::IntArrayRef>; bias.as_ref().map(|t| t.shape()))`"),
        // A method called like an argument is no use of it, and neither is a word in a string.
        ("grad.sum(grad.dim())", "grad.sum(grad.dim())", "none"),
        ("not_implemented(\"other\")", "not_implemented(\"other\")", "none"),
        ("g(grad, 0..dim)", "g(grad, 0..dim)", "`(dim; int64_t; dim)`"),
    ];
    for (formula, rewritten, expected) in table {
        let model = model(&entry(B, &[&format!("self: '{formula}'")])).expect(formula);
        let derivative = &model.infos[0].by_key[0].derivatives[0];
        let found = (derivative.formula.as_str(), saved(&derivative.saved_inputs));
        assert_eq!(found, (rewritten, expected.to_owned()), "{formula}");
    }
}

#[test]
fn forward_formulas() {
    #[rustfmt::skip]
    let table = [
        ("auto_linear", "ops::b(self_t, other, dim, bias)", "if self_t_raw.defined() { self_t_raw.copy_(ops::b(self_t, other, dim, bias)) } else { ops::b(self_t, other, dim, bias) }"),
        // Adjacent uses are all replaced: tokens share no separators.
        ("auto_element_wise", "(self_t.conj()*self_p*self_p).conj()",
            "if self_t_raw.defined() { self_t_raw.copy_((original_self_t.conj()*original_self_p*original_self_p).conj()) } else { (original_self_t.conj()*original_self_p*original_self_p).conj() }"),
        ("self_t.b(other)", "self_t.b(other)", "if self_t_raw.defined() { self_t_raw.b_(other) } else { self_t.b(other) }"),
    ];
    for (formula, expected, in_place) in table {
        let model = model(&entry(B, &["self: grad*self*self", &format!("result: {formula}")])).expect(formula);
        assert_eq!(model.infos[0].by_key[0].forward_derivatives[0].formula, expected);
        let twin = model.functions.iter().find(|f| f.func.func.name.name.inplace).expect("the twin");
        assert_eq!(twin.forward("Default")[0].formula, in_place);
    }
}

#[test]
fn formulas_that_are_no_rust_are_refused_with_their_line() {
    let error = model(&entry(B, &["self: grad", "other: 'grad ? 1 : 2'"])).expect_err("not Rust");
    assert_eq!((error.kind.as_str(), error.line), ("formula_syntax", Some(3)));
    assert_eq!(error.file.as_deref(), Some("derivatives.yaml"));
    assert!(error.message.contains("column"), "{error}");
    let error = model(&entry(B, &["other: g(grad, self.strides())"])).expect_err("strides of another argument");
    assert_eq!(error.kind.as_str(), "formula_strides_scope");
}
