//! Nodes: what they keep, and what formulas become.

use crate::common::check;
use expect_test::expect;

#[test]
fn nodes_keep_sizes_rather_than_tensors() {
    check(
        "nodes.rs",
        "pub(crate) static BestBackward0",
        expect![[r#"
            pub(crate) static BestBackward0: Formula<(i64, SymInt, SymInts, SavedTensor)> = Formula {
                name: "BestBackward0",
                names: &["dim", "self_sym_argsize_minus_1", "self_sym_sizes", "indices"],
                apply: |
                    node,
                    (dim, self_sym_argsize_minus_1, self_sym_sizes, indices),
                    grads,
                    needs,
                    gradients|
                {
                    let Some(grad) = grads.first().and_then(Option::as_ref) else { return Ok(()) };
                    let dim = dim;
                    let self_sym_argsize_minus_1 = self_sym_argsize_minus_1;
                    let self_sym_sizes = &self_sym_sizes[..];
                    let indices = &indices.unpack_some(node)?;
                    if needs.get(0) {
                        put(
                            &mut gradients[0],
                            formulas::spread(
                                grad,
                                dim,
                                indices,
                                self_sym_sizes,
                                self_sym_argsize_minus_1,
                            )?,
                        );
                    }
                    Ok(())
                },
            };
        "#]],
    );
    check(
        "nodes.rs",
        "pub(crate) static GlueBackward0",
        expect![[r#"
            pub(crate) static GlueBackward0: Formula<(i64, Vec<SymInts>)> = Formula {
                name: "GlueBackward0",
                names: &["dim", "tensors_args_sizes"],
                apply: |node, (dim, tensors_args_sizes), grads, needs, gradients| {
                    let Some(grad) = grads.first().and_then(Option::as_ref) else { return Ok(()) };
                    let dim = dim;
                    let tensors_args_sizes = &tensors_args_sizes[..];
                    if needs.any(0..needs.len()) {
                        put_all(
                            &mut gradients[0..needs.len()],
                            formulas::glue_backward(grad, tensors_args_sizes, dim)?,
                        );
                    }
                    Ok(())
                },
            };
        "#]],
    );
}

#[test]
fn formulas_become_calls_that_can_fail() {
    check(
        "nodes.rs",
        "pub(crate) static BlendBackward0",
        expect![[r#"
            pub(crate) static BlendBackward0: Formula<(Scalar, SavedTensor, SavedTensor)> = Formula {
                name: "BlendBackward0",
                names: &["alpha", "other", "self"],
                apply: |node, (alpha, other, self_), grads, needs, gradients| {
                    let Some(grad) = grads.first().and_then(Option::as_ref) else { return Ok(()) };
                    let alpha = alpha;
                    if needs.get(0) {
                        let other = &other.unpack_some(node)?;
                        put(
                            &mut gradients[0],
                            arith::mul_conj(&arith::mul(grad, &arith::sub(&1.0, &alpha)?)?, other)?,
                        );
                    }
                    if needs.get(1) {
                        let self_ = &self_.unpack_some(node)?;
                        put(
                            &mut gradients[1],
                            arith::add(
                                &arith::neg(&ops::best(grad, 0)?.0)?,
                                &ops::blend(grad, self_, Scalar::Int(1))?,
                            )?,
                        );
                    }
                    Ok(())
                },
            };
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
