//! Nodes: what they keep, and what formulas become.

use crate::common::check;
use expect_test::expect;

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
                    let saved = self.0.get(node)?;
                    Ok(
                        Vec::from([
                            ("dim", saved.dim.into()),
                            ("self_sym_argsize_minus_1", saved.self_sym_argsize_minus_1.into()),
                            ("self_sym_sizes", saved.self_sym_sizes.into()),
                            ("indices", saved.indices.unpack(node)?.into()),
                        ]),
                    )
                }
                fn visit_saved(&self, node: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
                    let s = self.0.get(node)?;
                    s.dim.visit(visitor)?;
                    s.self_sym_argsize_minus_1.visit(visitor)?;
                    s.self_sym_sizes.visit(visitor)?;
                    s.indices.visit(visitor)?;
                    Ok(true)
                }
                fn outlined(
                    &self,
                    node: &Node,
                    outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
                ) -> Result<Option<Box<dyn Backward>>> {
                    let mut s = self.0.get(node)?;
                    s.indices = outline(&s.indices)?;
                    Ok(Some(Box::new(BestBackward0(SavedSlot::new(s)))))
                }
                fn hook_saved(
                    &self,
                    at: SavedAt<'_>,
                    hooks: std::sync::Arc<SavedHooks>,
                ) -> Result<bool> {
                    self.0
                        .hook(
                            hooks,
                            |s| match at {
                                ("indices", None) => Some(&mut s.indices),
                                _ => None,
                            },
                        )
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
                    let saved = self.0.get(node)?;
                    Ok(
                        Vec::from([
                            ("dim", saved.dim.into()),
                            ("tensors_args_sizes", saved.tensors_args_sizes.into()),
                        ]),
                    )
                }
                fn visit_saved(&self, node: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
                    let s = self.0.get(node)?;
                    s.dim.visit(visitor)?;
                    s.tensors_args_sizes.visit(visitor)?;
                    Ok(true)
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
                        gradients[0] = arith::mul_conj(
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
                    let saved = self.0.get(node)?;
                    Ok(
                        Vec::from([
                            ("alpha", saved.alpha.into()),
                            ("other", saved.other.unpack(node)?.into()),
                            ("self", saved.self_.unpack(node)?.into()),
                        ]),
                    )
                }
                fn visit_saved(&self, node: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
                    let s = self.0.get(node)?;
                    s.alpha.visit(visitor)?;
                    s.other.visit(visitor)?;
                    s.self_.visit(visitor)?;
                    Ok(true)
                }
                fn outlined(
                    &self,
                    node: &Node,
                    outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
                ) -> Result<Option<Box<dyn Backward>>> {
                    let mut s = self.0.get(node)?;
                    s.other = outline(&s.other)?;
                    s.self_ = outline(&s.self_)?;
                    Ok(Some(Box::new(BlendBackward0(SavedSlot::new(s)))))
                }
                fn hook_saved(
                    &self,
                    at: SavedAt<'_>,
                    hooks: std::sync::Arc<SavedHooks>,
                ) -> Result<bool> {
                    self.0
                        .hook(
                            hooks,
                            |s| match at {
                                ("other", None) => Some(&mut s.other),
                                ("self", None) => Some(&mut s.self_),
                                _ => None,
                            },
                        )
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
