//! Entries: gradients by name and number, keys, conditions, names that are refused, op names.

use crate::common::{Built, build, entry, first, first_derivative, first_op, json, native, rule, show};

const P: &str = "pair(Tensor self, Tensor other) -> (Tensor, Tensor)";
const T: &str = "tri(Tensor self, Tensor other) -> (Tensor values, Tensor indices, Tensor extra)";
const B: &str = "b(Tensor self) -> Tensor";
const BX: &str = "b(Tensor self, Tensor x) -> (Tensor x, Tensor y)";

fn gradients(built: &Built) -> String {
    let info = first(built);
    format!("available {}; used {}", json(&info.available_named_gradients), json(&info.used_named_gradients))
}

fn output_flags(built: &Built) -> String {
    let info = first(built);
    let flags = match &info.output_differentiability {
        Some(flags) => format!("{flags:?}"),
        None => "null".to_owned(),
    };
    let conditions = info.output_differentiability_conditions.as_ref().map_or("null".to_owned(), json);
    format!("output_differentiability {flags}; conditions {conditions}")
}

#[test]
fn formulas_of_one_operator() {
    type Row = (&'static str, &'static str, &'static [&'static str], fn(&Built) -> String, &'static str);
    #[rustfmt::skip]
    let table: &[Row] = &[
        ("T-89", T, &["output_differentiability: [true, false, true]", "self: g(grad_values, grad_extra)"], gradients,
            r#"available ["grad_values", "grad_extra"]; used ["grad_extra", "grad_values"]"#),
        ("T-90", T, &["output_differentiability: [true, false, true]", "self: g(grad_values, grad_indices)"], gradients,
            r#"available ["grad_values", "grad_extra"]; used ["grad_values"]"#),
        ("T-91", T, &["self: g(grad_values, grad)"], first_op, "error derivatives/named_and_plain_grads"),
        ("T-92", P, &["self: g(grad, grads[1])"], first_op, "error derivatives/grad_and_grads"),
        ("T-93", P, &["self: g(grads[0])"], first_op, "error derivatives/grads0_only"),
        ("T-94", P, &["self: g(grads[0], grads)"], first_op,
            r#"op PairBackward0; vars [["self"]]; args ["self"]; non-differentiable []"#),
        ("T-95", P, &["self: g(grads[2])"], first_op, "error derivatives/grads_out_of_bounds"),
        ("T-96", P, &["self: g(grads[0])", "other: h(grads[1])"], first_op,
            r#"op PairBackward0; vars [["other"], ["self"]]; args ["self", "other"]; non-differentiable []"#),
        ("T-97", P, &["self, other: g(grads[0], grads[1], grad_input_mask)"], first_op,
            r#"op PairBackward0; vars [["self", "other"]]; args ["self", "other"]; non-differentiable []"#),
        ("T-98", "b(Tensor zed, Tensor alpha, Tensor Mid) -> Tensor", &["zed: grad", "alpha: grad", "Mid: grad"], first_op,
            r#"op BBackward0; vars [["Mid"], ["alpha"], ["zed"]]; args ["zed", "alpha", "Mid"]; non-differentiable []"#),
        ("T-99", P, &["self: g(grads[0], grads[1], result0)"], first_derivative,
            "formula `g(grads[0], grads[1], result0)`; inputs none; outputs `(result0; at::Tensor; result0)`"),
        ("T-100", T, &["self: g(grad, values)"], first_derivative,
            "formula `g(grad, values)`; inputs none; outputs `(values; at::Tensor; values)`"),
        ("T-101", BX, &["self: g(grad, x_return)"], first_derivative,
            "formula `g(grad, x_return)`; inputs none; outputs `(x_return; at::Tensor; x_return)`"),
        ("T-102", BX, &["x: grad"], first_op, "error derivatives/name_input_and_return"),
        ("T-103", P, &["self: grad", "other: ' Non_Differentiable '"], first_op,
            r#"op PairBackward0; vars [["self"]]; args ["self"]; non-differentiable ["other"]"#),
        ("T-104", P, &["self: non_differentiable", "other: non_differentiable"], first_op,
            r#"op null; vars []; args []; non-differentiable ["other", "self"]"#),
        ("T-105", P, &["self: grad", "self, other: non_differentiable"], first_op, "error derivatives/nondiff_overlap"),
        ("T-106", P, &["bogus: grad"], first_op, "error derivatives/fw_no_output"),
        ("T-107", P, &["self, bogus: grad"], first_op,
            r#"op PairBackward0; vars [["self", "bogus"]]; args ["self"]; non-differentiable []"#),
        ("T-108", P, &["bogus, self: grad"], first_op, "error derivatives/fw_no_output"),
        ("T-109", B, &["output_differentiability: ['self.ok()']", "self: grad"], output_flags,
            r#"output_differentiability [true]; conditions ["self.ok()"]"#),
        ("T-110", P, &["output_differentiability: ['self.ok()', true]", "self: grad"], output_flags,
            "error derivatives/condition_multi_output"),
        ("T-111", P, &["output_differentiability: []", "self: grad"], output_flags,
            "output_differentiability null; conditions null"),
        ("T-112", P, &["output_differentiability: [false]", "self: grad"], output_flags, "error outputs/outdiff_length"),
        ("T-116", B, &["self: 0"], first_op, "error derivatives/formula_not_string"),
        ("T-117", B, &["self: grad", "self: grad"], first_op, "error derivatives/yaml_duplicate_key"),
        ("T-118", "b(Tensor self, bool[2] grad_input_mask) -> Tensor", &["self: grad"], first_op,
            "error derivatives/arg_named_grad_input_mask"),
        ("T-119", "b(Tensor self, Tensor result) -> Tensor", &["self: grad"], first_op, "error derivatives/arg_named_result"),
        ("T-123", B, &["dispatch: {Autograd: {self: grad}}"], first_op, "error derivatives/entry_dispatch_key"),
        ("T-261", "b.functional(Tensor self) -> Tensor", &["self: grad"], first_op, "error derivatives/entry_no_canonical"),
        ("T-277", B, &["self: yes"], first_op, "error derivatives/formula_not_string"),
        ("T-278", B, &["self: grad *", "  two   *", "  three"], first_derivative,
            "formula `grad * two   * three`; inputs none; outputs none"),
    ];
    for (id, schema, fields, what, expected) in table {
        let found = show(build(&native(&[schema]), &entry(schema, fields), false), *what);
        assert_eq!(found, *expected, "{id}");
    }
}

#[test]
fn names_of_entries() {
    let with_default = "b(Tensor self, int d=1) -> Tensor";
    let table = [
        ("T-113", B, "- name: b\n  self: grad\n".to_owned(), "error derivatives/entry_name_syntax"),
        ("T-114", B, "- self: grad\n".to_owned(), "error derivatives/entry_no_name"),
        (
            "T-115",
            with_default,
            entry("b(Tensor self, int d) -> Tensor", &["self: grad"]),
            "error derivatives/entry_schema_unknown",
        ),
    ];
    for (id, schema, derivatives, expected) in table {
        assert_eq!(show(build(&native(&[schema]), &derivatives, false), first_op), expected, "{id}");
    }
}

#[test]
fn op_names_count_per_prefix() {
    let ops = ["b.two(Tensor self, int x) -> Tensor", B, "b_.three(Tensor(a!) self, float y) -> Tensor(a!)"];
    let derivatives: String = ops.iter().map(|op| entry(op, &["self: grad"])).collect();
    let all_ops = |built: &Built| {
        let infos = built.model.infos.values().map(|operator| &operator.by_key[0]);
        infos.filter_map(|info| info.op.clone()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(show(build(&native(&ops), &derivatives, false), all_ops), "BBackward0, BBackward1, BBackward2", "T-120");
    let names = ["conv2d_forward", "_thnn_fused_x", "foo_bar_", "a1b_c2", "__and__", "fooBar", "x_forward_backward"];
    assert_eq!(
        names.map(firebrand_codegen::load::op_prefix).join(", "),
        "Conv2DBackward, ThnnFusedXBackward, FooBarBackward, A1BC2Backward, AndBackward, FoobarBackward, \
         XBackwardBackward",
        "T-121"
    );
}

#[test]
fn keys_replace_top_level_formulas() {
    let schema = "b(Tensor self, Tensor o) -> Tensor";
    let fields = ["dispatch: {Default: {self: grad}, AutogradCUDA: {self: grad * 2, o: grad}}", "self: ignored"];
    let by_key = |built: &Built| {
        let infos = built.model.infos[0].by_key.iter().map(|(key, info)| {
            let formulas = json(info.derivatives.iter().map(|d| &d.formula));
            format!("{key}: {} {formulas}", info.op.as_deref().unwrap_or("null"))
        });
        infos.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        show(build(&native(&[schema]), &entry(schema, &fields), false), by_key),
        r#"Default: BBackward0 ["grad"]; AutogradCUDA: BBackwardAutogradCUDA0 ["grad", "grad * 2"]"#,
        "T-122"
    );
}

#[test]
fn an_entry_describes_its_canonical_function() {
    let inplace = "b_(Tensor(a!) self) -> Tensor(a!)";
    let out = "b.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)";
    let ops = native(&[B, inplace, out]);
    let keyed = |built: &Built| {
        let rules = ["b", "b_", "b.out"].map(|name| format!("{name}={}", rule(built, name)));
        format!("info keyed by `{}`; matches: {}", built.model.infos[0].func.text, rules.join(", "))
    };
    let table = [
        ("T-124", inplace, "info keyed by `b_(Tensor(a!) self) -> Tensor(a!)`; matches: b=none, b_=exact, b.out=none"),
        (
            "T-125",
            out,
            "info keyed by `b(Tensor self) -> Tensor`; matches: b=exact, b_=functional_signature, b.out=functional_signature",
        ),
    ];
    for (id, schema, expected) in table {
        assert_eq!(show(build(&ops, &entry(schema, &["self: grad"]), false), keyed), expected, "{id}");
    }
    let both = entry(B, &["self: grad"]) + &entry(out, &["self: grad * 9"]);
    let last = |built: &Built| {
        let info = first(built);
        let op = info.op.as_deref().unwrap_or("null");
        format!("{} info; op {op}; formula `{}`", built.model.infos.len(), info.derivatives[0].formula)
    };
    assert_eq!(show(build(&ops, &both, false), last), "1 info; op BBackward1; formula `grad * 9`", "T-126");
}
