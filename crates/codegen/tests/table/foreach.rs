//! Foreach operators: infos derived from the operator they apply to each element.

use crate::common::{Built, build, entry, function, json, native, outputs, saved, show};
use firebrand_codegen::model::Origin;

const TENSOR: &str = "blend.Tensor(Tensor self, Tensor other) -> Tensor";
const SCALAR: &str = "blend.Scalar(Tensor self, Scalar other) -> Tensor";

fn blend_entries(forward: bool) -> String {
    let of_tensor = [
        "self: bb(grad, other, self.scalar_type())",
        "other: bb(grad, self, other.scalar_type())",
        "result: other_t * self_p + self_t * other_p",
    ];
    let of_scalar = ["self: bb(grad, other, self.scalar_type())", "result: self_t * other"];
    let cut = usize::from(!forward);
    entry(TENSOR, &of_tensor[..3 - cut]) + &entry(SCALAR, &of_scalar[..2 - cut])
}

/// The info made for the one foreach operator.
fn made(built: &Built) -> String {
    let operator = built.model.infos.values().find(|operator| operator.origin == Origin::Foreach);
    let info = &operator.expect("a foreach info").by_key[0];
    let mut formulas: Vec<_> =
        info.derivatives.iter().map(|d| format!("\"{}\": \"{}\"", d.var_names.join(", "), d.formula)).collect();
    formulas.sort();
    let saved = saved(&info.all_saved_inputs);
    let saved = if saved == "none" { "`none`".to_owned() } else { saved };
    format!(
        "op {}; formulas {{{}}}; saved {saved}; forward {}",
        info.op.as_deref().unwrap_or("null"),
        formulas.join(", "),
        json(info.forward_derivatives.iter().map(|f| &f.formula))
    )
}

#[test]
fn blend() {
    #[rustfmt::skip]
    let table = [
        ("T-172", "_foreach_blend.List(Tensor[] self, Tensor[] other) -> Tensor[]", true,
            r#"op ForeachBlendBackward0List; formulas {"other": "bb(grads[i], self[i], other[i].scalar_type())", "self": "bb(grads[i], other[i], self[i].scalar_type())"}; saved `(other; at::TensorList; other), (self; at::TensorList; self)`; forward ["other_t * self_p + self_t * other_p"]"#),
        ("T-173", "_foreach_blend.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]", true,
            r#"op ForeachBlendBackward1Scalar; formulas {"self": "bb(grads[i], scalar, self[i].scalar_type())"}; saved `(scalar; at::Scalar; scalar), (self; at::TensorList; self)`; forward ["self_t * scalar"]"#),
        ("T-174", "_foreach_blend.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]", true,
            r#"op ForeachBlendBackward1ScalarList; formulas {"self": "bb(grads[i], scalars[i], self[i].scalar_type())"}; saved `(scalars; at::ArrayRef<at::Scalar>; scalars), (self; at::TensorList; self)`; forward ["self_t * scalars[i]"]"#),
        ("T-175", "_foreach_blend.Tensor(Tensor[] self, Tensor other) -> Tensor[]", true, "error match/foreach_tensor_arg"),
        ("T-176", "_foreach_blend.Tensor(Tensor[] self, Tensor other) -> Tensor[]", false,
            r#"op ForeachBlendBackward0Tensor; formulas {"other": "bb(grads[i], self[i], other.scalar_type())", "self": "bb(grads[i], other, self[i].scalar_type())"}; saved `(other; at::Tensor; other), (self; at::TensorList; self)`; forward []"#),
    ];
    for (id, op, forward, expected) in table {
        let found = show(build(&native(&[TENSOR, SCALAR, op]), &blend_entries(forward), false), made);
        assert_eq!(found, expected, "{id}");
    }
    let in_place = "_foreach_blend_.List(Tensor(a!)[] self, Tensor[] other) -> ()";
    assert_eq!(
        show(build(&native(&[TENSOR, SCALAR, in_place]), &blend_entries(true), false), |b| reused(
            b,
            "_foreach_blend_.List"
        )),
        "foreach_reuse; op BlendBackward0; forward `self_t_raw.defined() ? self_t_raw.copy_(other_t * original_self_p + original_self_t * other_p) : other_t * original_self_p + original_self_t * other_p`; differentiable outputs []",
        "T-177"
    );
}

/// An in-place foreach operator that uses the info of its reference.
fn reused(built: &Built, name: &str) -> String {
    let f = function(built, name);
    let op = f.info.as_ref().and_then(|infos| infos[0].op.clone());
    let forward = f.forward("Default").first().map_or("none", |f| &f.formula);
    format!(
        "{}; op {}; forward `{forward}`; differentiable outputs {}",
        f.rule.as_str(),
        op.unwrap_or_default(),
        outputs(built, name)
    )
}

#[test]
fn bexp() {
    let op = "bexp(Tensor self) -> Tensor";
    let ops = native(&[op, "_foreach_bexp(Tensor[] self) -> Tensor[]"]);
    #[rustfmt::skip]
    let table: [(&str, &[&str], &str); 6] = [
        ("T-178", &["self: grad * result.conj()", "result: auto_element_wise"],
            r#"op ForeachBexpBackward0; formulas {"self": "grads[i] * result[i].conj()"}; saved `none`; forward ["(self_t.conj() * result[i].conj()).conj()"]"#),
        ("T-179", &["self: g(grad, result.scalar_type())"], "error match/foreach_saved_output"),
        ("T-180", &["self: gradual(grad, self)"],
            r#"op ForeachBexpBackward0; formulas {"self": "grads[i]ual(grads[i], self[i])"}; saved `(self; at::TensorList; self)`; forward []"#),
        ("T-181", &["self: g(grad, self.sym_sizes(), zeros_like(self))"],
            r#"op ForeachBexpBackward0; formulas {"self": "g(grads[i], self[i].sym_sizes(), self[i].zeros())"}; saved `(self; at::TensorList; self)`; forward []"#),
        ("T-182", &["dispatch: {AutogradCUDA: {self: grad}}"], "error match/foreach_no_default_key"),
        ("T-183", &["self: non_differentiable"], "op ForeachNone; formulas {}; saved `none`; forward []"),
    ];
    for (id, fields, expected) in table {
        assert_eq!(show(build(&ops, &entry(op, fields), false), made), expected, "{id}");
    }
}

#[test]
fn other_arity_and_in_place_references() {
    let op = "add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor";
    let ops = native(&[op, "_foreach_add.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]"]);
    let table = [
        (
            "T-184",
            "self: h(self.scalar_type(), grad)",
            r#"op ForeachAddBackward0Scalar; formulas {"self": "h(self[i].scalar_type(), grads[i])"}; saved `(self; at::TensorList; self)`; forward []"#,
        ),
        ("T-185", "self: g(grad, alpha)", "error match/foreach_unmapped_arg"),
    ];
    for (id, formula, expected) in table {
        assert_eq!(show(build(&ops, &entry(op, &[formula]), false), made), expected, "{id}");
    }
    for (id, name, expected) in [("T-186", "zap", "none"), ("T-187", "zero", "foreach_reuse, op ZeroBackward0")] {
        let op = format!("{name}_(Tensor(a!) self) -> Tensor(a!)");
        let each = format!("_foreach_{name}_(Tensor(a!)[] self) -> ()");
        let built = build(&native(&[&op, &each]), &entry(&op, &["self: grad"]), false).expect(id);
        let f = function(&built, &format!("_foreach_{name}_"));
        let op = f.info.as_ref().and_then(|infos| infos[0].op.clone());
        let found = op.map_or(f.rule.as_str().to_owned(), |op| format!("{}, op {op}", f.rule.as_str()));
        assert_eq!(found, expected, "{id}");
    }
}
