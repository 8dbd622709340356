//! The table of Python names: the order of overloads, their `out=` forms, fixed lists, and what is left out.

use expect_test::expect;
use firebrand_codegen::emit::{Source, python_table};

const OPS: &str = "\
- func: mix.Scalar(Tensor self, Scalar by) -> Tensor
  shape: mix
  kernel: pointwise::mix_scalar
  non_differentiable: true
  tags: [pointwise]
- func: mix.Tensor(Tensor self, Tensor by) -> Tensor
  shape: mix
  kernel: pointwise::mix
  out: out
  non_differentiable: true
  tags: [pointwise]
- func: mix.sizes(Tensor self, int[2] by) -> Tensor
  shape: mix
  kernel: pointwise::mix_sizes
  non_differentiable: true
  tags: [pointwise]
- func: hidden(Tensor self) -> Tensor
  shape: unary
  kernel: pointwise::hidden
  non_differentiable: true
  tags: [pointwise]
";

fn rows(ops: &str, names: &str) -> String {
    let source = |name, text| Source { name, text };
    let file = python_table(source("ops.yaml", ops), source("derivatives.yaml", "[]"), source("python.yaml", names));
    let text = file.unwrap().text;
    text.lines().map(str::trim).filter(|line| line.starts_with("Name(")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_tensor_is_tried_before_a_number() {
    expect![[r#"Name("mix", METHOD | FUNCTION, &[Overload { op: "aten::mix.sizes", out: "", sizes: &[(1, 2)] }, Overload { op: "aten::mix.Tensor", out: "aten::mix.out", sizes: &[] }, Overload { op: "aten::mix.Scalar", out: "", sizes: &[] }, ]),"#]]
    .assert_eq(&rows(OPS, "mix: [method, function]\n"));
}

#[test]
fn numbers_of_the_four_operators_become_tensors() {
    let ops = OPS.replace("mix.", "mul.").replace("::mix", "::mul");
    assert!(!rows(&ops, "mul: [method]\n").contains("aten::mul.Scalar"));
}
