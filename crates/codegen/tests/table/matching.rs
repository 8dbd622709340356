//! Matching: variants share infos, in-place functions get their forward formula rewritten, view copies.

use crate::common::{Built, build, entry, first, function, in_place_forward, json, native, outputs, rule, saved, show};

const B: &str = "b(Tensor self, Tensor o) -> Tensor";
const B_: &str = "b_(Tensor(a!) self, Tensor o) -> Tensor(a!)";

#[test]
fn in_place_sees_the_formula_rewritten() {
    #[rustfmt::skip]
    let table = [
        ("T-151", "self_t * self_p", r#"`self_t_raw.defined() ? self_t_raw.copy_(original_self_t * original_self_p) : original_self_t * original_self_p`; primals ["self"]; original_self true; reusing true"#),
        ("T-152", "self_t * result", r#"`self_t_raw.defined() ? self_t_raw.copy_(self_t * self_p) : self_t * self_p`; primals ["self"]; original_self false; reusing true"#),
        ("T-153", "self_t.b(o)", "`self_t_raw.defined() ? self_t_raw.b_(o) : self_t.b(o)`; primals []; original_self false; reusing true"),
        ("T-154", "self_t.c(1)", "`self_t_raw.defined() ? self_t_raw.copy_(self_t.c(1)) : self_t.c(1)`; primals []; original_self false; reusing true"),
        ("T-155", "self_t.b(x).b(y)", "`self_t_raw.defined() ? self_t_raw.copy_(self_t.b(x).b(y)) : self_t.b(x).b(y)`; primals []; original_self false; reusing true"),
        ("T-156", "self_t.b(f(o_p))", "`self_t_raw.defined() ? self_t_raw.b_(f(o_p)) : self_t.b(f(o_p))`; primals []; original_self false; reusing true"),
        ("T-157", "(self_t.b())", "`self_t_raw.defined() ? self_t_raw.copy_((self_t.b())) : (self_t.b())`; primals []; original_self false; reusing true"),
        ("T-158", "auto_linear", "`self_t_raw.defined() ? self_t_raw.copy_(at::b(self_t, o)) : at::b(self_t, o)`; primals []; original_self false; reusing true"),
        ("T-159", "self_t*self_p*self_p", r#"`self_t_raw.defined() ? self_t_raw.copy_(original_self_t*original_self_p*self_p) : original_self_t*original_self_p*self_p`; primals ["self", "self"]; original_self true; reusing true"#),
        ("T-160", "self_t * self_p * result", r#"`self_t_raw.defined() ? self_t_raw.copy_(original_self_t * original_self_p * self_p) : original_self_t * original_self_p * self_p`; primals ["self", "self"]; original_self true; reusing true"#),
    ];
    for (id, formula, expected) in table {
        let derivatives = entry(B, &["self: grad", &format!("result: {formula}")]);
        let seen = |built: &Built| in_place_forward(&function(built, "b_").forward("Default")[0]);
        assert_eq!(show(build(&native(&[B, B_]), &derivatives, false), seen), expected, "{id}");
    }
}

#[test]
fn entries_for_the_in_place_operator() {
    let seen = |built: &Built| {
        let f = &function(built, "b_").forward("Default")[0];
        format!(
            "forward `{}`, primals {}, reusing {}; b (functional) match_rule {}; saved outputs {}",
            f.formula,
            json(&f.required_inputs_primal),
            f.is_reusing_outplace_formula,
            rule(built, "b"),
            saved(&first(built).all_saved_outputs)
        )
    };
    let table: [(&str, &[&str], &str); 2] = [
        ("T-161", &["self: grad", "result: self_t * self_p"], "error match/inplace_self_primal"),
        (
            "T-162",
            &["self: grad * result", "result: self_t.mul_(result)"],
            r#"forward `self_t.mul_(self_p)`, primals ["self"], reusing false; b (functional) match_rule none; saved outputs `(result; at::Tensor; result)`"#,
        ),
    ];
    for (id, fields, expected) in table {
        assert_eq!(show(build(&native(&[B, B_]), &entry(B_, fields), false), seen), expected, "{id}");
    }
}

#[test]
fn in_place_twins_refuse_some_formulas() {
    let table: [(&str, &[&str], &str); 2] = [
        ("T-163", &["self: g(grad, self.sym_strides())"], "error match/inplace_strides"),
        ("T-164", &["output_differentiability: [false]", "self: grad"], "error outputs/outdiff_inplace"),
    ];
    for (id, fields, expected) in table {
        let found = show(build(&native(&[B, B_]), &entry(B, fields), false), |_| "ok".to_owned());
        assert_eq!(found, expected, "{id}");
    }
    let ops = ["b(Tensor self, int d=1) -> Tensor", "b_(Tensor(a!) self, int d=2) -> Tensor(a!)"];
    let found = show(build(&native(&ops), &entry(ops[0], &["self: grad"]), false), |b| rule(b, "b_").to_owned());
    assert_eq!(found, "functional_signature", "T-165");
}

#[test]
fn generated_variants_of_mutable_operators() {
    let rules = |built: &Built| {
        let one = |name| {
            let f = function(built, name);
            format!("`{}` {}", f.func.text, f.rule.as_str())
        };
        ["m", "m_functional", "m.out"].map(one).join("; ")
    };
    let op = "m(Tensor x, Tensor(a!) stat) -> Tensor";
    let ops = native(&["m(Tensor x, Tensor(a!) stat) -> Tensor | autogen: m_functional, m.out"]);
    assert_eq!(
        show(build(&ops, &entry(op, &["x: grad * stat"]), false), rules),
        "`m(Tensor x, Tensor(a!) stat) -> Tensor` exact; \
         `m_functional(Tensor x, Tensor stat) -> (Tensor, Tensor stat_out)` mutable_for_generated; \
         `m.out(Tensor x, Tensor(a!) stat, *, Tensor(b!) out) -> Tensor(b!)` none",
        "T-166"
    );
    let op = "m(Tensor yself, Tensor(a!) stat) -> Tensor";
    let ops = native(&["m(Tensor yself, Tensor(a!) stat) -> Tensor | autogen: m_functional, m.out"]);
    let found = show(build(&ops, &entry(op, &["yself: grad * yself"]), false), rules);
    assert_eq!(found, "error match/mutable_formula_self", "T-167");
}

#[test]
fn a_generated_functional_inherits_from_in_place() {
    let op = "z_.how(Tensor(a!) self, Scalar s) -> Tensor(a!)";
    let ops = native(&["z_.how(Tensor(a!) self, Scalar s) -> Tensor(a!) | autogen: z.how, z.how_out"]);
    let seen = |built: &Built| {
        let one = |name| {
            let f = function(built, name);
            let forward = json(f.forward("Default").iter().map(|f| &f.formula));
            format!("`{}` {}, forward {forward}", f.func.text, f.rule.as_str())
        };
        ["z.how", "z_.how", "z.how_out"].map(one).join("; ")
    };
    assert_eq!(
        show(build(&ops, &entry(op, &["self: grad * s", "result: self_t.mul_(s)"]), false), seen),
        r#"`z.how(Tensor self, Scalar s) -> Tensor` mutable_for_generated, forward ["self_t.mul_(s)"]; `z_.how(Tensor(a!) self, Scalar s) -> Tensor(a!)` exact, forward ["self_t.mul_(s)"]; `z.how_out(Tensor self, Scalar s, *, Tensor(a!) out) -> Tensor(a!)` none, forward []"#,
        "T-269"
    );
}

#[test]
fn who_gets_a_wrapper() {
    let ops = native(&[
        "!q(Tensor self) -> Tensor",
        "!w(Tensor self) -> Tensor",
        "!u(Tensor self) -> Tensor | dispatch: {CompositeExplicitAutograd: u}",
        "!v(Tensor self) -> Tensor | dispatch: {CompositeImplicitAutograd: v, CPU: v_cpu}",
    ]);
    let strategies = |built: &Built| {
        let of = |name| if function(built, name).use_derived() { "use_derived" } else { "use_type" };
        ["q", "u", "v", "w"].map(|name| format!("{name} {}", of(name))).join("; ")
    };
    assert_eq!(
        show(build(&ops, &entry("q(Tensor self) -> Tensor", &["self: grad"]), false), strategies),
        "q use_derived; u use_derived; v use_derived; w use_type",
        "T-168"
    );
}

#[test]
fn differentiable_outputs() {
    let op = "b(Tensor self) -> (Tensor, Tensor, int)";
    let table: [(&str, &[&str], &str); 3] = [
        ("T-169", &["self: grad"], r#"["result0"]"#),
        ("T-170", &["self: g(grads[0], grads[1])"], r#"["result0", "result1"]"#),
        (
            "T-171",
            &["self: g(grads[0], grads[1])", "output_differentiability: [true, false, true]"],
            r#"["result0", "result2"]"#,
        ),
    ];
    for (id, fields, expected) in table {
        assert_eq!(show(build(&native(&[op]), &entry(op, fields), false), |b| outputs(b, "b")), expected, "{id}");
    }
}

#[test]
fn view_copies() {
    let view = "warp.dim(Tensor(a) self, SymInt n) -> Tensor(a)";
    let copy = "warp_copy.dim(Tensor self, SymInt n) -> Tensor";
    let both = native(&[view, "warp_copy.dim(Tensor self, SymInt n) -> Tensor | tags: view_copy"]);
    let of_view = entry(view, &["self: unwarp(grad, n)", "result: auto_linear"]);
    let second = |built: &Built| {
        let operator = &built.model.infos[1];
        let info = &operator.by_key[0];
        format!(
            "second info: origin {}; name `{}`; op {}; forward `{}`",
            operator.origin.as_str(),
            info.name,
            info.op.as_deref().unwrap_or("null"),
            info.forward_derivatives[0].formula
        )
    };
    assert_eq!(
        show(build(&both, &of_view, false), second),
        "second info: origin view_copy; name `warp_copy.`; op WarpBackward0_copy; forward `at::warp_symint(self_t, n)`",
        "T-188"
    );
    let own = of_view.clone() + &entry(copy, &["self: grad"]);
    let count = |built: &Built| {
        let op = built.model.infos[1].by_key[0].op.clone().unwrap_or_default();
        format!("{} infos; op of the copy {op}", built.model.infos.len())
    };
    assert_eq!(show(build(&both, &own, false), count), "2 infos; op of the copy WarpCopyBackward0", "T-189");
    assert_eq!(show(build(&native(&[view]), &of_view, false), second), "error derivatives/view_copy_missing", "T-190");
    let cuda = entry(view, &["dispatch: {AutogradCUDA: {self: 'unwarp(grad, n)'}}"]);
    let keyed = |built: &Built| {
        let (key, info) = built.model.infos[1].by_key.first().expect("one key");
        format!("copy keyed {{\"{key}\": \"{}\"}}", info.op.as_deref().unwrap_or("null"))
    };
    let expected = r#"copy keyed {"AutogradCUDA": "WarpBackwardAutogradCUDA0_copy"}"#;
    assert_eq!(show(build(&both, &cuda, false), keyed), expected, "T-191");
}
