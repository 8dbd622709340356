//! What is refused, with file, line, entry, kind and what to do.

use crate::common::refused;
use expect_test::expect;
use firebrand_codegen::Kind;

const SCALE: &str = "- func: scale(Tensor self, Tensor by) -> Tensor\n  shape: binary\n  kernel: pointwise::scale\n";
const SCALE_NAME: &str = "- name: scale(Tensor self, Tensor by) -> Tensor\n";

#[test]
fn a_lost_gradient_is_refused() {
    refused(
        SCALE,
        "",
        Kind::LostGradient,
        expect![[r#"
        ops.yaml:1: could lose a gradient silently: add an entry to derivatives.yaml, build it of other ops with `composite`, or say `non_differentiable: true` (native/lost_gradient)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        SCALE,
        &format!("{SCALE_NAME}  self: grad\n"),
        Kind::LostGradient,
        expect![[r#"
        derivatives.yaml:1: could lose a gradient silently: `by` has no formula; add one or say `by: non_differentiable` (derivatives/lost_gradient)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    let comparison = SCALE.to_owned() + "  inplace: true\n  non_differentiable: true\n";
    refused(
        &comparison,
        "",
        Kind::LostGradient,
        expect![[r#"
        ops.yaml:1: writing into a tensor that has history would lose a gradient silently: give the in-place form an entry of its own in derivatives.yaml
            - name: scale_(Tensor(a!) self, Tensor by) -> Tensor(a!)
              self: zeros_like(grad) (native/lost_gradient)
          in scale_(Tensor(a!) self, Tensor by) -> Tensor(a!)
    "#]],
    );
    refused(
        "- func: peek(Tensor self) -> Tensor\n  manual: peek\n",
        "",
        Kind::LostGradient,
        expect![[r#"
        ops.yaml:1: a manual op says `differentiable: manual` or `differentiable: non_differentiable` (native/lost_gradient)
          in peek(Tensor self) -> Tensor
    "#]],
    );
}

#[test]
fn a_wrong_name_is_refused_with_those_that_are_right() {
    let entry = |formulas: &str| format!("{SCALE_NAME}{formulas}");
    refused(
        SCALE,
        &entry("  self: grad * othr\n  by: grad\n"),
        Kind::FormulaUnknownName,
        expect![[r#"
        derivatives.yaml:2: unknown name `othr`; in scope are by, grad, grad_result, result, self
            grad * othr (derivatives/formula_unknown_name)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        SCALE,
        &entry("  slef: grad\n"),
        Kind::FwNoOutput,
        expect![[r#"
            derivatives.yaml:2: `slef` names neither an argument (self, by) nor an output (derivatives/fw_no_output)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
    refused(
        SCALE,
        &entry("  self: grad\n  by: grad\n  result: self * 2\n"),
        Kind::FwBaseName,
        expect![[r#"
            derivatives.yaml:4: `self` is ambiguous: write `self_p` for its value or `self_t` for its tangent
                self * 2 (derivatives/fw_base_name)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
    let unknown = "- name: scale(Tensor self, Tensor to) -> Tensor\n  self: grad\n";
    refused(
        SCALE,
        unknown,
        Kind::EntrySchemaUnknown,
        expect![[r#"
            derivatives.yaml:1: no operator is declared as `scale(Tensor self, Tensor to) -> Tensor`; `scale` is declared as
                scale(Tensor self, Tensor by) -> Tensor (derivatives/entry_schema_unknown)
              in scale(Tensor self, Tensor to) -> Tensor
        "#]],
    );
}

#[test]
fn a_formula_that_does_not_parse_says_where() {
    let entry = format!("{SCALE_NAME}  self: grad\n  by: grad * (self +\n");
    refused(
        SCALE,
        &entry,
        Kind::FormulaSyntax,
        expect![[r#"
            derivatives.yaml:3: the formula is not a valid Rust expression: cannot parse string into token stream (line 1 column 8)
                grad * (self +
                       ^ (derivatives/formula_syntax)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
    let entry = format!("{SCALE_NAME}  self: grad\n  by: scale(grad)\n");
    refused(
        SCALE,
        &entry,
        Kind::FormulaCall,
        expect![[r#"
        derivatives.yaml:3: `scale` needs the argument `by`: scale(Tensor self, Tensor by) -> Tensor
            scale(grad) (derivatives/formula_call)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    let entry = format!("{SCALE_NAME}  self: grad\n  by: format!(\"\")\n");
    refused(
        SCALE,
        &entry,
        Kind::FormulaMacro,
        expect![[r#"
        derivatives.yaml:3: formulas may use no macro but `vec![a, b]`
            format!("") (derivatives/formula_macro)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
}

#[test]
fn an_entry_that_is_not_clear_is_refused() {
    let twice = SCALE.to_owned() + "- func: scale.Tensor(Tensor self) -> Tensor\n  composite: scale\n";
    let rule = format!("{SCALE_NAME}  self: grad\n  by: grad\n");
    refused(
        &twice,
        &rule,
        Kind::DuplicateRustName,
        expect![[r#"
        ops.yaml:4: the Rust name `scale` is taken by `scale` on line 1; give one of them another with `rust:` (native/duplicate_rust_name)
          in scale.Tensor(Tensor self) -> Tensor
    "#]],
    );
    refused(
        &(SCALE.to_owned() + "  composite: scale\n"),
        "",
        Kind::ImplementationUnclear,
        expect![[r#"
            ops.yaml:1: more than one implementation: keep `shape` and `kernel`, or one of `view`, `composite`, `direct`, `foreach`, `manual` (native/implementation_unclear)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
    refused(
        &(SCALE.to_owned() + "  kernal: x\n"),
        "",
        Kind::FieldUnknown,
        expect![[r#"
            ops.yaml:4: unknown key `kernal`; known are func, shape, kernel, view, composite, direct, foreach, manual, differentiable, node, non_differentiable, inplace, in_place_kernel, in_place_term, complex, out, out_args, out_dtype, forms, tags, rust, method, variants, derivative, autocast, vmap, cost, decomposition, training, devices, feature, doc, example (native/field_unknown)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
    let alias = "- func: cut(Tensor(a) self) -> Tensor(a)\n  shape: unary\n  kernel: copy::cut\n";
    refused(
        alias,
        "",
        Kind::AliasPosition,
        expect![[r#"
        ops.yaml:1: the schema says that the result shares memory with an argument; implement it with `view:` (native/alias_position)
          in cut(Tensor(a) self) -> Tensor(a)
    "#]],
    );
    let composite = "- func: scale(Tensor self, Tensor by) -> Tensor\n  composite: scale\n";
    refused(
        composite,
        &rule,
        Kind::CompositeDerivative,
        expect![[r#"
            derivatives.yaml:1: a composite, foreach or manual op is differentiated through its parts; remove this entry (derivatives/composite_derivative)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
}

/// Keys of the record: values that are not known, gaps, and what is said twice.
#[test]
fn a_record_that_is_not_clear_is_refused() {
    let rule = format!("{SCALE_NAME}  self: grad\n  by: grad\n");
    let with = |keys: &str| format!("{SCALE}{keys}");
    refused(
        SCALE,
        &rule,
        Kind::RecordIncomplete,
        expect![[r#"
        ops.yaml:1: says nothing of batches: add `vmap:` with the arguments that name dimensions, a rule, or `loop`; the tag `pointwise` is an answer too (native/record_incomplete)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &with("  vmap: sideways\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:4: `vmap: sideways` is not known; it is one of pointwise, along(argument, …), merge(dimensions), random, refuse, loop, or a function of func::rules such as norm::layer_norm (native/field_value)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &with("  vmap: along(dim)\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:4: `vmap`: there is no argument `dim`; there are self, by (native/field_value)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &with("  vmap: loop\n  autocast: half\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
            ops.yaml:5: the field `autocast` must be one of `lower`, `full`, `widest`, `whole` (native/field_value)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
    refused(
        &with("  vmap: loop\n  cost: heavy\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:1: remove `cost`: ops that are not pointwise are heavy (native/field_value)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &with("  tags: [pointwise]\n  vmap: pointwise\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:1: remove `vmap`: it follows from the tag `pointwise` (native/field_value)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &with("  vmap: loop\n  devices: [elsewhere]\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:5: `devices`: there is no argument `elsewhere`; there are self, by (native/field_value)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &with("  vmap: loop\n  doc: Scales\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:5: the field `doc` must be a sentence that ends with a full stop (native/field_value)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &with("  vmap: loop\n  example: let y = x.scale(&x);\n"),
        &rule,
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:5: the field `example` must be lines of Rust with an assertion (native/field_value)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    let composite = "- func: mix(Tensor self) -> Tensor\n  composite: mix\n  vmap: loop\n";
    refused(
        composite,
        "",
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:1: remove `vmap`: an op that consists of others is batched through them (native/field_value)
          in mix(Tensor self) -> Tensor
    "#]],
    );
    let drops = "- func: drop(Tensor self, bool train) -> Tensor\n  composite: drop\n";
    refused(
        drops,
        "",
        Kind::RecordIncomplete,
        expect![[r#"
        ops.yaml:1: says nothing of its flag `train`: add `training: train`, or `training: fixed` (native/record_incomplete)
          in drop(Tensor self, bool train) -> Tensor
    "#]],
    );
    refused(
        &format!("{SCALE}  tags: [pointwise]\n  feature: faster\n"),
        "",
        Kind::FieldValue,
        expect![[r#"
            ops.yaml:5: the field `feature` must be one of `decompositions`, `fft`, `special` (native/field_value)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
}

/// Derivatives in the declaration itself: errors name the file they stand in.
#[test]
fn an_inline_derivative_is_checked_like_any_other() {
    let inline = |formulas: &str| format!("{SCALE}  tags: [pointwise]\n  derivative:\n{formulas}");
    refused(
        &inline("    self: grad * othr\n    by: grad\n"),
        "",
        Kind::FormulaUnknownName,
        expect![[r#"
        ops.yaml:6: unknown name `othr`; in scope are by, grad, grad_result, result, self
            grad * othr (derivatives/formula_unknown_name)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        &inline("    self: grad\n"),
        "",
        Kind::LostGradient,
        expect![[r#"
        ops.yaml:6: could lose a gradient silently: `by` has no formula; add one or say `by: non_differentiable` (derivatives/lost_gradient)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    let both = format!("{SCALE_NAME}  self: grad\n  by: grad\n");
    refused(
        &inline("    self: grad\n    by: grad\n"),
        &both,
        Kind::DuplicateSchema,
        expect![[r#"
        ops.yaml:6: this op has an entry already (derivatives/duplicate_schema)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
}
