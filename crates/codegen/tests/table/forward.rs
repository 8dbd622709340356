//! Forward formulas: outputs they name, inputs they need, the automatic ones.

use crate::common::{build, entry, first_forward, native, show};

const P: &str = "pair(Tensor self, Tensor other) -> (Tensor, Tensor)";
const T: &str = "tri(Tensor self, Tensor other) -> (Tensor values, Tensor indices, Tensor extra)";
const B: &str = "b(Tensor self) -> Tensor";
const BO: &str = "b(Tensor self, Tensor o) -> Tensor";
const BD: &str = "b(Tensor self, int d) -> Tensor";
const BON: &str = "b(Tensor self, Tensor o, Tensor n) -> Tensor";

#[test]
fn forward_formulas() {
    #[rustfmt::skip]
    let table: &[(&str, &str, &[&str], &str)] = &[
        ("T-127", BO, &["self: grad", "o: grad", "result: self_t * o_p"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `self_t * o_p`; tangents ["self"]; primals ["o"]"#),
        ("T-128", BO, &["self: grad", "o: grad", "result: self_t * self"], "error derivatives/fw_base_name"),
        ("T-129", BO, &["self: grad", "result: self_t * o"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `self_t * o`; tangents ["self"]; primals []"#),
        ("T-130", B, &["result: self_t"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `self_t`; tangents []; primals []; op null"#),
        ("T-131", P, &["result: self_t"], "error derivatives/fw_result_multi_return"),
        ("T-132", P, &["result0, result1: g(self_t)", "self: grad"],
            r#"1 forward; vars ["result0", "result1"]; types ["Tensor", "Tensor"]; formula `g(self_t)`; tangents ["self"]; primals []"#),
        ("T-133", P, &["result7: self_t"], "error derivatives/fw_result_index"),
        ("T-134", T, &["values, extra: f(self_t)", "self: grad"],
            r#"1 forward; vars ["values", "extra"]; types ["Tensor", "Tensor"]; formula `f(self_t)`; tangents ["self"]; primals []"#),
        ("T-135", T, &["values, bogus: f(self_t)", "self: grad"],
            r#"1 forward; vars ["values", "bogus"]; types ["Tensor"]; formula `f(self_t)`; tangents ["self"]; primals []"#),
        ("T-136", "b(Tensor[] xs, int d) -> Tensor", &["xs: grad", "result: jvp(xs, d)"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `jvp(xs, d)`; tangents []; primals []"#),
        ("T-137", BD, &["self: grad", "result: auto_linear"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `at::b(self_t, d)`; tangents ["self"]; primals []"#),
        ("T-138", "b(Tensor self, SymInt d) -> Tensor", &["self: grad", "result: auto_linear"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `at::b_symint(self_t, d)`; tangents ["self"]; primals []"#),
        ("T-139", "b(Tensor self, int d) -> Tensor | variants: method", &["self: grad", "result: auto_linear"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `self_t.b(d)`; tangents ["self"]; primals []"#),
        ("T-140", BON, &["self: grad", "o: grad", "result: auto_linear"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `at::b(self_t, o_t, n)`; tangents ["o", "self"]; primals []"#),
        ("T-141", B, &["result: auto_linear"], "error derivatives/auto_linear_no_input"),
        ("T-142", P, &["result0, result1: auto_linear", "self: grad"], "error derivatives/auto_linear_outputs"),
        ("T-143", BD, &["self: grad * self.exp() * d", "result: auto_element_wise"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `(self_t.conj() * self_p.exp() * d).conj()`; tangents ["d", "self"]; primals ["self"]"#),
        ("T-144", B, &["self: grad*grad + self", "result: auto_element_wise"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `(self_t.conj()*grad + self_p).conj()`; tangents ["self"]; primals ["self"]"#),
        ("T-145", B, &["self: grad*self*self", "result: auto_element_wise"], "error derivatives/fw_base_name"),
        ("T-146", BO, &["self: grad", "o: grad", "result: auto_element_wise"], "error derivatives/auto_elem_arity"),
        ("T-147", B, &["result: auto_element_wise"], "error derivatives/auto_elem_arity"),
        ("T-148", B, &["self: grad", "self, bogus: grad", "result: auto_element_wise"], "error derivatives/auto_elem_no_backward"),
        ("T-149", B, &["result: AUTO_LINEAR", "self: grad"],
            r#"1 forward; vars ["result"]; types ["Tensor"]; formula `AUTO_LINEAR`; tangents []; primals []"#),
        ("T-150", "b_(Tensor(a!) self) -> Tensor(a!)", &["self: grad", "result: auto_element_wise"], "error derivatives/auto_elem_inplace"),
    ];
    for (id, op, fields, expected) in table {
        let schema = op.split(" | ").next().expect("a schema");
        let found = show(build(&native(&[op]), &entry(schema, fields), false), first_forward);
        assert_eq!(found, *expected, "{id}");
    }
}
