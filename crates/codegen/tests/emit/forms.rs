//! Forms and second names that are rows of data: which schemas follow, and which names are refused.

use crate::common::refused;
use expect_test::expect;
use firebrand_codegen::Kind;
use firebrand_codegen::emit::{Source, generate};

const MIX: &str = "\
- func: mix(Tensor self, Tensor by, Scalar amount=1) -> Tensor
  shape: mix
  kernel: pointwise::mix
  non_differentiable: true
  tags: [pointwise]
";

fn rows(ops: &str) -> String {
    let source = |name, text| Source { name, text };
    let files = generate(source("ops.yaml", ops), source("derivatives.yaml", "[]")).unwrap();
    let schema = files.iter().find(|f| f.name == "schema.rs").unwrap();
    schema
        .text
        .lines()
        .map(str::trim_start)
        .filter(|line| line.contains("FormRow(") || line.contains("Some(Op("))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_row_follows_from_its_name() {
    let listed = "  forms: [mix.out, mix_, blur, blur.out, 'mix.numbers[by]', mix.numbers_out, '_foreach_mix.ScalarList[amount=amounts]', _foreach_mix_.ScalarList]\n";
    expect![[r#"
        in_place: Some(Op(2)), out: Some(Op(1)), tags: Tags::POINTWISE, vmap: Rule::Pointwise, cost: Cost::Cheap,
        FormRow(Way::Out, Op::MIX, "aten::mix.out(Tensor self, Tensor by, Scalar amount=1, *, Tensor(a!) out) -> Tensor(a!)"),
        FormRow(Way::InPlace, Op::MIX, "aten::mix_(Tensor(a!) self, Tensor by, Scalar amount=1) -> Tensor(a!)"),
        FormRow(Way::Alias, Op::MIX, "aten::blur(Tensor self, Tensor by, Scalar amount=1) -> Tensor"),
        FormRow(Way::Out, Op(3), "aten::blur.out(Tensor self, Tensor by, Scalar amount=1, *, Tensor(a!) out) -> Tensor(a!)"),
        FormRow(Way::Numbers, Op::MIX, "aten::mix.numbers(Tensor self, Scalar by, Scalar amount=1) -> Tensor"),
        FormRow(Way::Out, Op(5), "aten::mix.numbers_out(Tensor self, Scalar by, Scalar amount=1, *, Tensor(a!) out) -> Tensor(a!)"),
        FormRow(Way::Foreach, Op::MIX, "aten::_foreach_mix.ScalarList(Tensor[] self, Tensor[] by, Scalar[] amounts=1) -> Tensor[]"),
        FormRow(Way::InPlace, Op(7), "aten::_foreach_mix_.ScalarList(Tensor(a!)[] self, Tensor[] by, Scalar[] amounts=1) -> ()"),"#]]
    .assert_eq(&rows(&(MIX.to_owned() + listed)));
}

#[test]
fn a_factory_takes_its_options_from_the_tensor_given() {
    let fresh = "- func: fresh(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
  direct: creation::fresh
  forms: [fresh.out]
  non_differentiable: true
  tags: [factory]
  decomposition: kept
";
    expect![[r#"
        out: Some(Op(1)), tags: Tags::FACTORY, vmap: Rule::Parts, decomposition: Decomposition::Kept,
        FormRow(Way::Out, Op::FRESH, "aten::fresh.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)"),"#]]
    .assert_eq(&rows(fresh));
}

#[test]
fn what_is_no_form_is_refused() {
    let listed = |forms: &str| format!("{MIX}  forms: [{forms}]\n");
    refused(
        &listed("blur.out"),
        "[]",
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:1: `blur.out` is neither a form of this op nor of a second name listed before it (native/field_value)
          in mix(Tensor self, Tensor by, Scalar amount=1) -> Tensor
    "#]],
    );
    refused(
        &listed("mix.out, mix.out"),
        "[]",
        Kind::DuplicateOperator,
        expect![[r#"
        ops.yaml:1: `mix.out` is declared already (native/duplicate_operator)
          in mix(Tensor self, Tensor by, Scalar amount=1) -> Tensor
    "#]],
    );
    refused(
        &listed("'mix.numbers[amount]'"),
        "[]",
        Kind::FieldValue,
        expect![[r#"
        ops.yaml:1: `amount` is not a tensor argument that could be a number (native/field_value)
          in mix(Tensor self, Tensor by, Scalar amount=1) -> Tensor
    "#]],
    );
}
