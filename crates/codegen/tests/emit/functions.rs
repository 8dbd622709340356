//! Typed functions, and what they do below autograd.

use crate::common::check;
use expect_test::expect;

#[test]
fn a_function_tests_layers_records_and_sets_tangents() {
    check(
        "functions.rs",
        "pub fn blend(",
        expect![[r#"
            pub fn blend(self_: &Tensor, other: &Tensor, alpha: Scalar) -> Result<Tensor> {
                let word = state::word();
                if word & state::LAYERS != 0 {
                    return dispatch::layers(
                        Op::BLEND_TENSOR,
                        &[self_.into(), other.into(), alpha.into()],
                    );
                }
                let mut result = below::blend(word, self_, other, alpha)?;
                if word & state::GRAD != 0 && record::any_requires_grad(&[self_, other])
                    && result.dtype().is_differentiable()
                {
                    let edges = record::edges([self_, other])?;
                    let saved = (
                        alpha,
                        if edges[0].is_some() {
                            SavedTensor::input(other)?
                        } else {
                            SavedTensor::NONE
                        },
                        if edges[1].is_some() {
                            SavedTensor::input(self_)?
                        } else {
                            SavedTensor::NONE
                        },
                    );
                    record::finish(&mut result, edges, nodes::BlendBackward0.keep(saved))?;
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
                    dispatch::layers::<
                        (),
                    >(Op::BLEND__TENSOR, &[self_.into(), other.into(), alpha.into()])?;
                    return Ok(self_);
                }
                self_.check_writable("blend_")?;
                let recorded: record::Before = if word & state::GRAD != 0
                    && record::any_requires_grad(&[self_, other])
                    && self_.dtype().is_differentiable()
                {
                    self_.check_inplace("blend_")?;
                    let edges = record::edges([self_, other])?;
                    let original = if edges[1].is_some() { Some(clone(self_, None)?) } else { None };
                    let saved = (
                        alpha,
                        if edges[0].is_some() {
                            SavedTensor::input(other)?
                        } else {
                            SavedTensor::NONE
                        },
                        SavedTensor::optional(original.as_ref())?,
                    );
                    Some((edges, nodes::BlendBackward0.keep(saved)))
                } else {
                    None
                };
                below::blend_(word, self_, other, alpha)?;
                if let Some((edges, formula)) = recorded {
                    record::finish_inplace(self_, edges, formula)?;
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
                    return dispatch::layers(Op::BEST, &[self_.into(), dim.into()]);
                }
                let (mut values, indices) = below::best(word, self_, dim)?;
                if word & state::GRAD != 0 && record::any_requires_grad(&[self_]) {
                    let edges = record::edges([self_])?;
                    let saved = (
                        dim,
                        formulas::sym_size(self_, -1)?,
                        self_.sym_sizes(),
                        SavedTensor::input(&indices)?,
                    );
                    record::finish(&mut values, edges, nodes::BestBackward0.keep(saved))?;
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
                if word & state::APART != 0 {
                    return dispatch::inner(Op::BEST, &[self_.into(), dim.into()]);
                }
                shape::need_real("best", &[self_])?;
                races::op!("best", self_);
                let (spec0, spec1) = shape::best("best", self_, dim)?;
                let values = Tensor::try_empty(spec0)?;
                let indices = Tensor::try_empty(spec1)?;
                if !values.is_meta() {
                    cpu::run(&mut || cpu::reduce::best(self_, dim, &values, &indices))?;
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
                if word & state::APART != 0
                    || devices::of(self_) | devices::of(other) | devices::of(out) == devices::MIXED
                {
                    return dispatch::apart(
                        word,
                        Op::BLEND_OUT,
                        &[self_.into(), other.into(), alpha.into(), out.into()],
                    );
                }
                shape::need_real("blend", &[self_, other])?;
                shape::need_real_number("blend", alpha)?;
                races::op!("blend", self_, other, out);
                let spec = shape::binary_alpha("blend", self_, other, alpha)?;
                inplace::write_out(
                    "blend",
                    out,
                    spec.into(),
                    &[self_, other],
                    &|out| cpu::pointwise::blend(self_, other, alpha, out),
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
                if word & state::APART != 0 {
                    return dispatch::inner(Op::PIECES, &[self_.into(), size.into(), dim.into()]);
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
