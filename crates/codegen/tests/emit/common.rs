//! What the tests of emission share: a few invented ops, and ways to look at what is written for them.

use expect_test::Expect;
use firebrand_codegen::emit::{GeneratedFile, Source, generate};
use firebrand_codegen::{CodegenError, Kind};

pub(crate) const OPS: &str = "\
- func: blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
  shape: binary_alpha
  kernel: pointwise::blend
  inplace: true
  out: out
  tags: [core, pointwise]
- func: best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)
  shape: best
  kernel: reduce::best
  tags: [reduction]
  vmap: along(dim)
  autocast: full
- func: pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]
  view: pieces
  vmap: view::pieces
- func: glue(Tensor[] tensors, int dim=0) -> Tensor
  direct: join::glue
  vmap: loop
  cost: cheap
  decomposition: kept
  devices: [tensors]
- func: _foreach_blend.ScalarList(Tensor[] self, Tensor other, Scalar[] scalars) -> Tensor[]
  foreach: blend
  inplace: true
- func: layer(Tensor input, Tensor? bias=None, Generator? generator=None) -> Tensor
  composite: layer
  tags: [nondeterministic_seeded]
";

pub(crate) const DERIVATIVES: &str = "\
- name: blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
  self: grad * (1.0 - alpha) * other.conj()
  other: -grad.best(0).0 + blend(grad, self)
  result: self_t * other_p + other_t
- name: best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)
  output_differentiability: [True, False]
  self: spread(grad, dim, indices, self.sym_sizes(), self.sym_size(-1))
  values: gather(self_t, dim, indices)
- name: pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]
  self: pieces_backward(grads, size, dim, self.spec())
- name: glue(Tensor[] tensors, int dim=0) -> Tensor
  tensors: glue_backward(grad, to_args_sizes(tensors), dim)
  result: auto_linear
";

pub(crate) fn run(ops: &str, derivatives: &str) -> Result<Vec<GeneratedFile>, CodegenError> {
    generate(Source { name: "ops.yaml", text: ops }, Source { name: "derivatives.yaml", text: derivatives })
}

pub(crate) fn text(name: &str) -> String {
    let files = run(OPS, DERIVATIVES).expect("the invented ops are in order");
    files.into_iter().find(|f| f.name == name).expect("a file of that name").text
}

/// The item that begins with `head`, up to the next blank line.
pub(crate) fn item(file: &str, head: &str) -> String {
    item_of(&text(file), file, head)
}

pub(crate) fn item_of(text: &str, file: &str, head: &str) -> String {
    let at = text.find(head).unwrap_or_else(|| panic!("{file} has no `{head}`:\n{text}"));
    let rest = &text[at..];
    format!("{}\n", rest.split("\n\n").next().unwrap_or(rest).trim_end())
}

pub(crate) fn check(file: &str, head: &str, expected: Expect) {
    expected.assert_eq(&item(file, head));
}

pub(crate) fn refused(ops: &str, derivatives: &str, kind: Kind, expected: Expect) {
    let error = run(ops, derivatives).expect_err("it should be refused");
    assert_eq!(error.kind, kind, "{error}");
    expected.assert_eq(&format!("{error}\n"));
}
