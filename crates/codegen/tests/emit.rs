//! Our own generator: what it writes for a few invented ops, what it refuses, and that the committed files are its own.
#![allow(clippy::unwrap_used)]

use expect_test::{Expect, expect};
use firebrand_codegen::emit::{GeneratedFile, Source, generate};
use firebrand_codegen::{CodegenError, Kind};

const OPS: &str = "\
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
- func: pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]
  view: pieces
- func: glue(Tensor[] tensors, int dim=0) -> Tensor
  direct: join::glue
- func: _foreach_blend.ScalarList(Tensor[] self, Tensor other, Scalar[] scalars) -> Tensor[]
  foreach: blend
  inplace: true
- func: layer(Tensor input, Tensor? bias=None, Generator? generator=None) -> Tensor
  composite: layer
";

const DERIVATIVES: &str = "\
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

fn run(ops: &str, derivatives: &str) -> Result<Vec<GeneratedFile>, CodegenError> {
    generate(Source { name: "ops.yaml", text: ops }, Source { name: "derivatives.yaml", text: derivatives })
}

/// The block of `schema/README.md` whose opening line names a file.
fn readme(file: &str) -> String {
    let text = include_str!("../../../schema/README.md");
    let mut lines = text.lines().skip_while(|line| !line.trim_start().ends_with(&format!(" {file}")));
    let fence = lines.next().unwrap_or_else(|| panic!("schema/README.md has no block for {file}"));
    let indent = fence.len() - fence.trim_start().len();
    let block = lines.take_while(|line| line.trim() != "```");
    block.map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect()
}

fn text(name: &str) -> String {
    let files = run(OPS, DERIVATIVES).expect("the invented ops are in order");
    files.into_iter().find(|f| f.name == name).expect("a file of that name").text
}

/// The item that begins with `head`, up to the next blank line.
fn item(file: &str, head: &str) -> String {
    item_of(&text(file), file, head)
}

fn item_of(text: &str, file: &str, head: &str) -> String {
    let at = text.find(head).unwrap_or_else(|| panic!("{file} has no `{head}`:\n{text}"));
    let rest = &text[at..];
    format!("{}\n", rest.split("\n\n").next().unwrap_or(rest).trim_end())
}

fn check(file: &str, head: &str, expected: Expect) {
    expected.assert_eq(&item(file, head));
}

fn refused(ops: &str, derivatives: &str, kind: Kind, expected: Expect) {
    let error = run(ops, derivatives).expect_err("it should be refused");
    assert_eq!(error.kind, kind, "{error}");
    expected.assert_eq(&format!("{error}\n"));
}

#[test]
fn a_function_tests_layers_records_and_sets_tangents() {
    check(
        "functions.rs",
        "pub fn blend(",
        expect![[r#"
        pub fn blend(self_: &Tensor, other: &Tensor, alpha: Scalar) -> Result<Tensor> {
            let word = state::word();
            if word & state::LAYERS != 0 {
                return dispatch::one_tensor(
                    dispatch::call_layers(
                        Op::BLEND_TENSOR,
                        &[self_.into(), other.into(), alpha.into()],
                    )?,
                );
            }
            let mut result = below::blend(word, self_, other, alpha)?;
            if word & state::GRAD != 0 && record::any_requires_grad(&[self_, other])
                && result.dtype().is_differentiable()
            {
                let edges: Edges = smallvec![record::edge(self_)?, record::edge(other)?];
                let saved = nodes::BlendBackward0Saved {
                    alpha,
                    other: if edges[0].is_some() {
                        SavedTensor::input(other)?
                    } else {
                        SavedTensor::NONE
                    },
                    self_: if edges[1].is_some() {
                        SavedTensor::input(self_)?
                    } else {
                        SavedTensor::NONE
                    },
                };
                record::finish(
                    &mut result,
                    edges,
                    Box::new(nodes::BlendBackward0(SavedSlot::new(saved))),
                )?;
            }
            if word & state::DUAL != 0
                && let Some(t) = forward::blend(self_, other, alpha, &result)?
            {
                set_tangent(&result, t)?;
            }
            Ok(result)
        }
    "#]],
    );
}

#[test]
fn an_in_place_form_saves_a_copy_of_self_before_it_writes() {
    check(
        "functions.rs",
        "pub fn blend_<",
        expect![[r#"
        pub fn blend_<'a>(
            self_: &'a Tensor,
            other: &Tensor,
            alpha: Scalar,
        ) -> Result<&'a Tensor> {
            let word = state::word();
            if word & state::LAYERS != 0 {
                dispatch::call_layers(
                    Op::BLEND__TENSOR,
                    &[self_.into(), other.into(), alpha.into()],
                )?;
                return Ok(self_);
            }
            self_.check_writable("blend_")?;
            let recorded = if word & state::GRAD != 0
                && record::any_requires_grad(&[self_, other])
                && self_.dtype().is_differentiable()
            {
                self_.check_inplace("blend_")?;
                let edges: Edges = smallvec![record::edge(self_)?, record::edge(other)?];
                let original = if edges[1].is_some() { Some(clone(self_, None)?) } else { None };
                let saved = nodes::BlendBackward0Saved {
                    alpha,
                    other: if edges[0].is_some() {
                        SavedTensor::input(other)?
                    } else {
                        SavedTensor::NONE
                    },
                    self_: SavedTensor::optional(original.as_ref())?,
                };
                Some((edges, saved))
            } else {
                None
            };
            below::blend_(word, self_, other, alpha)?;
            if let Some((edges, saved)) = recorded {
                record::finish_inplace(
                    self_,
                    edges,
                    Box::new(nodes::BlendBackward0(SavedSlot::new(saved))),
                )?;
            }
            if word & state::DUAL != 0
                && let Some(t) = forward::blend(self_, other, alpha, self_)?
            {
                set_tangent_inplace(self_, t)?;
            }
            Ok(self_)
        }
    "#]],
    );
}

#[test]
fn several_results_share_a_node() {
    check(
        "functions.rs",
        "pub fn best(",
        expect![[r#"
        pub fn best(self_: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
            let word = state::word();
            if word & state::LAYERS != 0 {
                return dispatch::tensors(
                        dispatch::call_layers(Op::BEST, &[self_.into(), dim.into()])?,
                    )
                    .map(|[values, indices]| (values, indices));
            }
            let (mut values, indices) = below::best(word, self_, dim)?;
            if word & state::GRAD != 0 && record::any_requires_grad(&[self_]) {
                let edges: Edges = smallvec![record::edge(self_)?];
                let saved = nodes::BestBackward0Saved {
                    dim,
                    self_sym_argsize_minus_1: formulas::sym_size(self_, -1)?,
                    self_sym_sizes: self_.sym_sizes(),
                    indices: SavedTensor::input(&indices)?,
                };
                record::finish(
                    &mut values,
                    edges,
                    Box::new(nodes::BestBackward0(SavedSlot::new(saved))),
                )?;
            }
            if word & state::DUAL != 0
                && let Some(t) = forward::best(self_, dim, &values, &indices)?
            {
                set_tangent(&values, t)?;
            }
            Ok((values, indices))
        }
    "#]],
    );
}

#[test]
fn the_part_below_autograd_allocates_and_runs_the_kernel() {
    check(
        "below.rs",
        "pub(crate) fn best(",
        expect![[r#"
        pub(crate) fn best(word: u32, self_: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
            if word & state::INNER != 0 {
                return dispatch::tensors(
                        dispatch::call_inner(Op::BEST, &[self_.into(), dim.into()])?,
                    )
                    .map(|[values, indices]| (values, indices));
            }
            let (spec0, spec1) = shape::best("best", self_, dim)?;
            let values = Tensor::try_empty(spec0)?;
            let indices = Tensor::try_empty(spec1)?;
            if !values.is_meta() {
                cpu::reduce::best(self_, dim, &values, &indices)?;
            }
            Ok((values, indices))
        }
    "#]],
    );
    check(
        "below.rs",
        "pub(crate) fn blend_out(",
        expect![[r#"
        pub(crate) fn blend_out(
            word: u32,
            self_: &Tensor,
            other: &Tensor,
            alpha: Scalar,
            out: &Tensor,
        ) -> Result<()> {
            if word & state::INNER != 0 {
                return dispatch::call_inner(
                        Op::BLEND_OUT,
                        &[self_.into(), other.into(), alpha.into(), out.into()],
                    )
                    .map(drop);
            }
            let spec = shape::binary_alpha("blend", self_, other, alpha)?;
            inplace::write_out(
                "blend",
                out,
                spec,
                &[self_, other],
                |out| cpu::pointwise::blend(self_, other, alpha, out),
            )
        }
    "#]],
    );
    check(
        "below.rs",
        "pub(crate) fn pieces(",
        expect![[r#"
        pub(crate) fn pieces(
            word: u32,
            self_: &Tensor,
            size: SymInt,
            dim: i64,
        ) -> Result<Vec<Tensor>> {
            if word & state::INNER != 0 {
                return dispatch::one_list(
                    dispatch::call_inner(Op::PIECES, &[self_.into(), size.into(), dim.into()])?,
                );
            }
            let layouts = shape::view::pieces(self_, size, dim)?;
            Ok(
                layouts
                    .into_iter()
                    .map(|l| self_.make_view(l, CreationKind::MultiOutput))
                    .collect(),
            )
        }
    "#]],
    );
}

#[test]
fn nodes_keep_sizes_rather_than_tensors() {
    check(
        "nodes.rs",
        "#[derive(Clone)]\npub(crate) struct BestBackward0Saved",
        expect![[r##"
            #[derive(Clone)]
            pub(crate) struct BestBackward0Saved {
                pub(crate) dim: i64,
                pub(crate) self_sym_argsize_minus_1: SymInt,
                pub(crate) self_sym_sizes: SymInts,
                pub(crate) indices: SavedTensor,
            }
            pub(crate) struct BestBackward0(pub(crate) SavedSlot<BestBackward0Saved>);
            impl Backward for BestBackward0 {
                fn name(&self) -> &str {
                    "BestBackward0"
                }
                fn apply(
                    &self,
                    node: &Node,
                    grads: Gradients,
                    needs: &Needs<'_>,
                ) -> Result<Gradients> {
                    let mut gradients: Gradients = smallvec![None; needs.len()];
                    let Some(grad) = grads.first().and_then(Option::as_ref) else {
                        return Ok(gradients)
                    };
                    let saved = self.0.take_or_clone(node, needs)?;
                    let dim = saved.dim;
                    let self_sym_argsize_minus_1 = saved.self_sym_argsize_minus_1;
                    let self_sym_sizes = &saved.self_sym_sizes[..];
                    let indices = &saved.indices.unpack_some(node)?;
                    if needs.get(0) {
                        gradients[0] = formulas::spread(
                                grad,
                                dim,
                                indices,
                                self_sym_sizes,
                                self_sym_argsize_minus_1,
                            )?
                            .into_grad();
                    }
                    Ok(gradients)
                }
                fn release(&self) {
                    self.0.release()
                }
                fn takes_saved(&self) -> bool {
                    true
                }
                fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
                    let saved = self.0.read(node, Clone::clone)?;
                    Ok(
                        Vec::from([
                            ("dim", saved.dim.into()),
                            ("self_sym_argsize_minus_1", saved.self_sym_argsize_minus_1.into()),
                            ("self_sym_sizes", saved.self_sym_sizes.into()),
                            ("indices", saved.indices.unpack(node)?.into()),
                        ]),
                    )
                }
                fn hook_saved(&self, name: &str, hooks: std::sync::Arc<SavedHooks>) -> Result<bool> {
                    self.0
                        .change(|s| match name {
                            "indices" => s.indices.register_hooks(hooks).map(|()| true),
                            _ => Ok(false),
                        })
                }
            }
        "##]],
    );
    check(
        "nodes.rs",
        "pub(crate) struct GlueBackward0(",
        expect![[r#"
            pub(crate) struct GlueBackward0(pub(crate) PlainSlot<GlueBackward0Saved>);
            impl Backward for GlueBackward0 {
                fn name(&self) -> &str {
                    "GlueBackward0"
                }
                fn apply(
                    &self,
                    node: &Node,
                    grads: Gradients,
                    needs: &Needs<'_>,
                ) -> Result<Gradients> {
                    let mut gradients: Gradients = smallvec![None; needs.len()];
                    let Some(grad) = grads.first().and_then(Option::as_ref) else {
                        return Ok(gradients)
                    };
                    let saved = self.0.take_or_clone(node, needs)?;
                    let dim = saved.dim;
                    let tensors_args_sizes = &saved.tensors_args_sizes[..];
                    if needs.any(0..needs.len()) {
                        for (slot, g) in gradients[0..needs.len()]
                            .iter_mut()
                            .zip(
                                formulas::glue_backward(grad, tensors_args_sizes, dim)?.into_grads(),
                            )
                        {
                            *slot = g;
                        }
                    }
                    Ok(gradients)
                }
                fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
                    let saved = self.0.read(node, Clone::clone)?;
                    Ok(
                        Vec::from([
                            ("dim", saved.dim.into()),
                            ("tensors_args_sizes", saved.tensors_args_sizes.into()),
                        ]),
                    )
                }
            }
        "#]],
    );
}

#[test]
fn formulas_become_calls_that_can_fail() {
    check(
        "nodes.rs",
        "pub(crate) struct BlendBackward0(",
        expect![[r#"
            pub(crate) struct BlendBackward0(pub(crate) SavedSlot<BlendBackward0Saved>);
            impl Backward for BlendBackward0 {
                fn name(&self) -> &str {
                    "BlendBackward0"
                }
                fn apply(
                    &self,
                    node: &Node,
                    grads: Gradients,
                    needs: &Needs<'_>,
                ) -> Result<Gradients> {
                    let mut gradients: Gradients = smallvec![None; needs.len()];
                    let Some(grad) = grads.first().and_then(Option::as_ref) else {
                        return Ok(gradients)
                    };
                    let saved = self.0.take_or_clone(node, needs)?;
                    let alpha = saved.alpha;
                    if needs.get(0) {
                        let other = &saved.other.unpack_some(node)?;
                        gradients[0] = arith::mul(
                                &arith::mul(grad, &arith::sub(&1.0, &alpha)?)?,
                                other,
                            )?
                            .into_grad();
                    }
                    if needs.get(1) {
                        let self_ = &saved.self_.unpack_some(node)?;
                        gradients[1] = arith::add(
                                &arith::neg(&ops::best(grad, 0)?.0)?,
                                &ops::blend(grad, self_, Scalar::Int(1))?,
                            )?
                            .into_grad();
                    }
                    Ok(gradients)
                }
                fn release(&self) {
                    self.0.release()
                }
                fn takes_saved(&self) -> bool {
                    true
                }
                fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
                    let saved = self.0.read(node, Clone::clone)?;
                    Ok(
                        Vec::from([
                            ("alpha", saved.alpha.into()),
                            ("other", saved.other.unpack(node)?.into()),
                            ("self", saved.self_.unpack(node)?.into()),
                        ]),
                    )
                }
                fn hook_saved(&self, name: &str, hooks: std::sync::Arc<SavedHooks>) -> Result<bool> {
                    self.0
                        .change(|s| match name {
                            "other" => s.other.register_hooks(hooks).map(|()| true),
                            "self" => s.self_.register_hooks(hooks).map(|()| true),
                            _ => Ok(false),
                        })
                }
            }
        "#]],
    );
    check(
        "forward.rs",
        "pub(crate) fn blend(",
        expect![[r#"
        pub(crate) fn blend(
            self_: &Tensor,
            other: &Tensor,
            alpha: Scalar,
            result: &Tensor,
        ) -> Result<Option<Tensor>> {
            if !any_tangent(&[self_, other]) {
                return Ok(None);
            }
            let _off = ModeGuard::new(0, state::DUAL);
            let self_t = &tangent_or_zeros(self_)?;
            let other_t = &tangent_or_zeros(other)?;
            let other_p = other;
            Ok(Some(arith::add(&arith::mul(self_t, other_p)?, other_t)?))
        }
    "#]],
    );
    check(
        "forward.rs",
        "pub(crate) fn glue(",
        expect![[r#"
        pub(crate) fn glue(
            tensors: &[Tensor],
            dim: i64,
            result: &Tensor,
        ) -> Result<Option<Tensor>> {
            if !any_tangent(&std::iter::empty::<&Tensor>().chain(tensors).collect::<Vec<_>>()) {
                return Ok(None);
            }
            let _off = ModeGuard::new(0, state::DUAL);
            let tensors_t = &tangents_or_zeros(tensors)?[..];
            Ok(Some(ops::glue(tensors_t, dim)?))
        }
    "#]],
    );
}

#[test]
fn boxed_calls_fill_in_defaults_and_skip_what_rust_does_not_take() {
    check(
        "boxed.rs",
        "pub(super) fn blend(",
        expect![[r#"
        pub(super) fn blend(a: &Args<'_>, below: bool) -> Result<Outputs> {
            let self_ = a.tensor(0, "self")?;
            let other = a.tensor(1, "other")?;
            let alpha = if a.is_none(2) { Scalar::Int(1) } else { a.scalar(2, "alpha")? };
            let result = if below {
                inner::blend(0, self_, other, alpha)?
            } else {
                functions::blend(self_, other, alpha)?
            };
            Ok(smallvec![result.into()])
        }
    "#]],
    );
    check(
        "boxed.rs",
        "pub(super) fn layer(",
        expect![[r#"
        pub(super) fn layer(a: &Args<'_>, _below: bool) -> Result<Outputs> {
            let input = a.tensor(0, "input")?;
            let bias = a.opt_tensor(1, "bias")?;
            let result = functions::layer(input, bias)?;
            Ok(smallvec![result.into()])
        }
    "#]],
    );
}

#[test]
fn users_get_methods_and_functions() {
    check(
        "methods.rs",
        "impl Tensor {",
        expect![[r#"
        impl Tensor {
            /// `aten::blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`
            ///
            /// # Panics
            /// With the error of [`Tensor::try_blend`].
            #[track_caller]
            pub fn blend(&self, other: &Tensor) -> Tensor {
                expect_ok(self.try_blend(other))
            }
            /// `aten::blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`
            pub fn try_blend(&self, other: &Tensor) -> Result<Tensor> {
                ops::blend(self, other, Scalar::Int(1))
            }
            /// `aten::blend_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`
            ///
            /// # Panics
            /// With the error of [`Tensor::try_blend_`].
            #[track_caller]
            pub fn blend_(&self, other: &Tensor) -> &Tensor {
                expect_ok(self.try_blend_(other))
            }
            /// `aten::blend_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`
            pub fn try_blend_(&self, other: &Tensor) -> Result<&Tensor> {
                ops::blend_(self, other, Scalar::Int(1))
            }
            /// `aten::best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)`
            ///
            /// # Panics
            /// With the error of [`Tensor::try_best`].
            #[track_caller]
            pub fn best(&self, dim: i64) -> (Tensor, Tensor) {
                expect_ok(self.try_best(dim))
            }
            /// `aten::best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)`
            pub fn try_best(&self, dim: i64) -> Result<(Tensor, Tensor)> {
                ops::best(self, dim)
            }
            /// `aten::pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]`
            ///
            /// # Panics
            /// With the error of [`Tensor::try_pieces`].
            #[track_caller]
            pub fn pieces(&self, size: impl Into<SymInt>, dim: i64) -> Vec<Tensor> {
                expect_ok(self.try_pieces(size, dim))
            }
            /// `aten::pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]`
            pub fn try_pieces(&self, size: impl Into<SymInt>, dim: i64) -> Result<Vec<Tensor>> {
                ops::pieces(self, size.into(), dim)
            }
        }
    "#]],
    );
    check(
        "api.rs",
        "/// `aten::layer",
        expect![[r#"
        /// `aten::layer(Tensor input, Tensor? bias=None, Generator? generator=None) -> Tensor`
        ///
        /// # Panics
        /// With the error of [`try_layer`].
        #[track_caller]
        pub fn layer(input: &Tensor, bias: Option<&Tensor>) -> Tensor {
            expect_ok(try_layer(input, bias))
        }
        /// `aten::layer(Tensor input, Tensor? bias=None, Generator? generator=None) -> Tensor`
        pub fn try_layer(input: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
            ops::layer(input, bias)
        }
    "#]],
    );
}

#[test]
fn the_table_names_schema_and_derivative() {
    check(
        "schema.rs",
        "pub(crate) static TABLE",
        expect![[r#"
            pub(crate) static TABLE: [OpInfo; 9] = [
                OpInfo {
                    name: "aten::blend.Tensor",
                    schema: "aten::blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
                    tags: &["core", "pointwise"],
                    derivative: Derivative::Formula("BlendBackward0"),
                    forward: true,
                    call: |a| boxed::blend(a, false),
                    below: |a| boxed::blend(a, true),
                },
                OpInfo {
                    name: "aten::blend_.Tensor",
                    schema: "aten::blend_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
                    tags: &["core", "pointwise"],
                    derivative: Derivative::Formula("BlendBackward0"),
                    forward: true,
                    call: |a| boxed::blend_(a, false),
                    below: |a| boxed::blend_(a, true),
                },
                OpInfo {
                    name: "aten::blend.out",
                    schema: "aten::blend.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
                    tags: &["core", "pointwise"],
                    derivative: Derivative::NonDifferentiable,
                    forward: false,
                    call: |a| boxed::blend_out(a, false),
                    below: |a| boxed::blend_out(a, true),
                },
                OpInfo {
                    name: "aten::best",
                    schema: "aten::best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)",
                    tags: &["reduction"],
                    derivative: Derivative::Formula("BestBackward0"),
                    forward: true,
                    call: |a| boxed::best(a, false),
                    below: |a| boxed::best(a, true),
                },
                OpInfo {
                    name: "aten::pieces",
                    schema: "aten::pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]",
                    tags: &["view"],
                    derivative: Derivative::Formula("PiecesBackward0"),
                    forward: false,
                    call: |a| boxed::pieces(a, false),
                    below: |a| boxed::pieces(a, true),
                },
                OpInfo {
                    name: "aten::glue",
                    schema: "aten::glue(Tensor[] tensors, int dim=0) -> Tensor",
                    tags: &[],
                    derivative: Derivative::Formula("GlueBackward0"),
                    forward: true,
                    call: |a| boxed::glue(a, false),
                    below: |a| boxed::glue(a, true),
                },
                OpInfo {
                    name: "aten::_foreach_blend.ScalarList",
                    schema: "aten::_foreach_blend.ScalarList(Tensor[] self, Tensor other, Scalar[] scalars) -> Tensor[]",
                    tags: &[],
                    derivative: Derivative::Composite,
                    forward: true,
                    call: |a| boxed::foreach_blend_scalars(a, false),
                    below: |a| boxed::foreach_blend_scalars(a, true),
                },
                OpInfo {
                    name: "aten::_foreach_blend_.ScalarList",
                    schema: "aten::_foreach_blend_.ScalarList(Tensor(a!)[] self, Tensor other, Scalar[] scalars) -> ()",
                    tags: &[],
                    derivative: Derivative::Composite,
                    forward: true,
                    call: |a| boxed::foreach_blend_scalars_(a, false),
                    below: |a| boxed::foreach_blend_scalars_(a, true),
                },
                OpInfo {
                    name: "aten::layer",
                    schema: "aten::layer(Tensor input, Tensor? bias=None, Generator? generator=None) -> Tensor",
                    tags: &[],
                    derivative: Derivative::Composite,
                    forward: true,
                    call: |a| boxed::layer(a, false),
                    below: |a| boxed::layer(a, true),
                },
            ];
        "#]],
    );
}

#[test]
fn a_foreach_op_runs_its_reference_for_every_position() {
    check(
        "functions.rs",
        "pub fn foreach_blend_scalars(",
        expect![[r#"
        pub fn foreach_blend_scalars(
            self_: &[Tensor],
            other: &Tensor,
            scalars: &[Scalar],
        ) -> Result<Vec<Tensor>> {
            let word = state::word();
            if word & state::LAYERS != 0 {
                return dispatch::one_list(
                    dispatch::call_layers(
                        Op::_FOREACH_BLEND_SCALARLIST,
                        &[self_.into(), other.into(), scalars.into()],
                    )?,
                );
            }
            foreach::check("_foreach_blend", &[self_.len(), scalars.len()], &[other])?;
            (0..self_.len()).map(|i| blend(&self_[i], other, scalars[i])).collect()
        }
    "#]],
    );
    check(
        "functions.rs",
        "pub fn foreach_blend_scalars_(",
        expect![[r#"
        pub fn foreach_blend_scalars_(
            self_: &[Tensor],
            other: &Tensor,
            scalars: &[Scalar],
        ) -> Result<()> {
            let word = state::word();
            if word & state::LAYERS != 0 {
                return dispatch::call_layers(
                        Op::_FOREACH_BLEND__SCALARLIST,
                        &[self_.into(), other.into(), scalars.into()],
                    )
                    .map(drop);
            }
            foreach::check("_foreach_blend_", &[self_.len(), scalars.len()], &[other])?;
            for i in 0..self_.len() {
                blend_(&self_[i], other, scalars[i])?;
            }
            Ok(())
        }
    "#]],
    );
    check(
        "boxed.rs",
        "pub(super) fn foreach_blend_scalars_(",
        expect![[r#"
        pub(super) fn foreach_blend_scalars_(a: &Args<'_>, _below: bool) -> Result<Outputs> {
            let self_ = a.tensors(0, "self")?;
            let other = a.tensor(1, "other")?;
            let scalars = a.scalars(2, "scalars")?;
            functions::foreach_blend_scalars_(&self_, other, &scalars)?;
            Ok(smallvec![])
        }
    "#]],
    );
}

#[test]
fn a_foreach_op_that_does_not_fit_its_reference_is_refused() {
    let with = |entry: &str| format!("{OPS}{entry}\n");
    refused(
        &with("- func: _foreach_mix(Tensor[] self) -> Tensor[]\n  foreach: mix"),
        DERIVATIVES,
        Kind::EmitForeachNoInfo,
        expect![[r#"
            ops.yaml:20: the reference `mix` is the Rust name of no op (native/emit_foreach_no_info)
              in _foreach_mix(Tensor[] self) -> Tensor[]
        "#]],
    );
    refused(
        &with("- func: _foreach_blend.Int(Tensor[] self, int other) -> Tensor[]\n  foreach: blend"),
        DERIVATIVES,
        Kind::EmitForeachArity,
        expect![[r#"
            ops.yaml:20: `other` fits `other` neither as a list nor as it is; its reference is blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor (native/emit_foreach_arity)
              in _foreach_blend.Int(Tensor[] self, int other) -> Tensor[]
        "#]],
    );
}

#[test]
fn the_example_of_the_readme_is_generated() {
    let files = run(&readme("schema/ops.yaml"), &readme("schema/derivatives.yaml")).expect("the example is in order");
    let check = |file: &str, head: &str, expected: Expect| {
        let text = &files.iter().find(|f| f.name == file).expect("a file of that name").text;
        expected.assert_eq(&item_of(text, file, head));
    };
    check(
        "functions.rs",
        "pub fn cube(",
        expect![[r#"
        pub fn cube(self_: &Tensor) -> Result<Tensor> {
            let word = state::word();
            if word & state::LAYERS != 0 {
                return dispatch::one_tensor(dispatch::call_layers(Op::CUBE, &[self_.into()])?);
            }
            let mut result = below::cube(word, self_)?;
            if word & state::GRAD != 0 && record::any_requires_grad(&[self_])
                && result.dtype().is_differentiable()
            {
                let edges: Edges = smallvec![record::edge(self_)?];
                let saved = nodes::CubeBackward0Saved {
                    self_: SavedTensor::input(self_)?,
                };
                record::finish(
                    &mut result,
                    edges,
                    Box::new(nodes::CubeBackward0(SavedSlot::new(saved))),
                )?;
            }
            if word & state::DUAL != 0 && let Some(t) = forward::cube(self_, &result)? {
                set_tangent(&result, t)?;
            }
            Ok(result)
        }
    "#]],
    );
    check(
        "functions.rs",
        "pub fn cube_<",
        expect![[r#"
        pub fn cube_<'a>(self_: &'a Tensor) -> Result<&'a Tensor> {
            let word = state::word();
            if word & state::LAYERS != 0 {
                dispatch::call_layers(Op::CUBE_, &[self_.into()])?;
                return Ok(self_);
            }
            self_.check_writable("cube_")?;
            let recorded = if word & state::GRAD != 0 && record::any_requires_grad(&[self_])
                && self_.dtype().is_differentiable()
            {
                self_.check_inplace("cube_")?;
                let edges: Edges = smallvec![record::edge(self_)?];
                let original = clone(self_, None)?;
                let saved = nodes::CubeBackward0Saved {
                    self_: SavedTensor::input(&original)?,
                };
                Some((edges, saved))
            } else {
                None
            };
            let primal = if word & state::DUAL != 0 { Some(clone(self_, None)?) } else { None };
            below::cube_(word, self_)?;
            if let Some((edges, saved)) = recorded {
                record::finish_inplace(
                    self_,
                    edges,
                    Box::new(nodes::CubeBackward0(SavedSlot::new(saved))),
                )?;
            }
            if word & state::DUAL != 0
                && let Some(t) = forward::cube(primal.as_ref().unwrap_or(self_), self_)?
            {
                set_tangent_inplace(self_, t)?;
            }
            Ok(self_)
        }
    "#]],
    );
    check(
        "below.rs",
        "pub(crate) fn cube_out(",
        expect![[r#"
        pub(crate) fn cube_out(word: u32, self_: &Tensor, out: &Tensor) -> Result<()> {
            if word & state::INNER != 0 {
                return dispatch::call_inner(Op::CUBE_OUT, &[self_.into(), out.into()]).map(drop);
            }
            let spec = shape::unary("cube", self_)?;
            inplace::write_out(
                "cube",
                out,
                spec,
                &[self_],
                |out| cpu::pointwise::cube(self_, out),
            )
        }
    "#]],
    );
    check(
        "nodes.rs",
        "impl Backward for CubeBackward0",
        expect![[r#"
        impl Backward for CubeBackward0 {
            fn name(&self) -> &str {
                "CubeBackward0"
            }
            fn apply(
                &self,
                node: &Node,
                grads: Gradients,
                needs: &Needs<'_>,
            ) -> Result<Gradients> {
                let mut gradients: Gradients = smallvec![None; needs.len()];
                let Some(grad) = grads.first().and_then(Option::as_ref) else {
                    return Ok(gradients)
                };
                let saved = self.0.take_or_clone(node, needs)?;
                let self_ = &saved.self_.unpack_some(node)?;
                if needs.get(0) {
                    gradients[0] = arith::mul(
                            &arith::mul(grad, &3.0)?,
                            &arith::mul(self_, self_)?,
                        )?
                        .into_grad();
                }
                Ok(gradients)
            }
            fn release(&self) {
                self.0.release()
            }
            fn takes_saved(&self) -> bool {
                true
            }
            fn saved(&self, node: &Node) -> Result<Vec<(&'static str, SavedValue)>> {
                let saved = self.0.read(node, Clone::clone)?;
                Ok(Vec::from([("self", saved.self_.unpack(node)?.into())]))
            }
            fn hook_saved(&self, name: &str, hooks: std::sync::Arc<SavedHooks>) -> Result<bool> {
                self.0
                    .change(|s| match name {
                        "self" => s.self_.register_hooks(hooks).map(|()| true),
                        _ => Ok(false),
                    })
            }
        }
    "#]],
    );
    check(
        "forward.rs",
        "pub(crate) fn cube(",
        expect![[r#"
        pub(crate) fn cube(self_: &Tensor, result: &Tensor) -> Result<Option<Tensor>> {
            if !any_tangent(&[self_]) {
                return Ok(None);
            }
            let _off = ModeGuard::new(0, state::DUAL);
            let self_t = &tangent_or_zeros(self_)?;
            let self_p = self_;
            Ok(Some(arith::mul(&arith::mul(self_t, &3.0)?, &arith::mul(self_p, self_p)?)?))
        }
    "#]],
    );
}

#[test]
fn equal_input_gives_equal_text() {
    assert_eq!(run(OPS, DERIVATIVES), run(OPS, DERIVATIVES));
}

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
        Kind::EmitUnknownVar,
        expect![[r#"
        derivatives.yaml:2: `slef` is neither a tensor argument (self, by) nor a result (result) (derivatives/emit_unknown_var)
          in scale(Tensor self, Tensor by) -> Tensor
    "#]],
    );
    refused(
        SCALE,
        &entry("  self: grad\n  by: grad\n  result: self * 2\n"),
        Kind::FwBaseName,
        expect![[r#"
            derivatives.yaml:4: `self` is ambiguous in a forward formula: write `self_p` for its value or `self_t` for its tangent
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
        derivatives.yaml:1: no op has this schema; it is declared as
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
        derivatives.yaml:3: the formula is no Rust expression: cannot parse string into token stream
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
            ops.yaml:4: unknown key `kernal`; known are func, shape, kernel, view, composite, direct, foreach, manual, differentiable, node, non_differentiable, inplace, in_place_kernel, out, out_args, tags, rust, method, variants (native/field_unknown)
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
            derivatives.yaml:1: a composite, foreach or manual op is differentiated by what it is made of; remove this entry (derivatives/composite_derivative)
              in scale(Tensor self, Tensor by) -> Tensor
        "#]],
    );
}

#[test]
fn committed_files_are_up_to_date() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect("a file of the repository");
    let (ops, derivatives) = (read("schema/ops.yaml"), read("schema/derivatives.yaml"));
    for file in run(&ops, &derivatives).expect("the schema is in order") {
        let committed = read(&format!("crates/core/src/ops/generated/{}", file.name));
        assert!(committed == file.text, "{} is stale; run `cargo xtask codegen`", file.name);
    }
}
