//! What the repository holds: the example of its README, and the committed files.

use crate::common::{DERIVATIVES, OPS, item_of, run};
use expect_test::{Expect, expect};

/// The block of `schema/README.md` whose opening line names a file.
fn readme(file: &str) -> String {
    let text = include_str!("../../../../schema/README.md");
    let mut lines = text.lines().skip_while(|line| !line.trim_start().ends_with(&format!(" {file}")));
    let fence = lines.next().unwrap_or_else(|| panic!("schema/README.md has no block for {file}"));
    let indent = fence.len() - fence.trim_start().len();
    let block = lines.take_while(|line| line.trim() != "```");
    block.map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect()
}

#[test]
fn the_example_of_the_readme_is_generated() {
    let files = run(&readme("schema/ops.yaml"), "").expect("the example is in order");
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
                if word & state::INNER != 0
                    || devices::of(self_) | devices::of(out) == devices::MIXED
                {
                    return dispatch::call_apart(word, Op::CUBE_OUT, &[self_.into(), out.into()])
                        .map(drop);
                }
                shape::need_real("cube", &[self_])?;
                races::op!("cube", self_, out);
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
                        gradients[0] = arith::mul_conj(
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
                    let saved = self.0.get(node)?;
                    Ok(Vec::from([("self", saved.self_.unpack(node)?.into())]))
                }
                fn visit_saved(&self, node: &Node, visitor: &mut dyn SavedVisitor) -> Result<bool> {
                    let s = self.0.get(node)?;
                    s.self_.visit(visitor)?;
                    Ok(true)
                }
                fn outlined(
                    &self,
                    node: &Node,
                    outline: &mut dyn FnMut(&SavedTensor) -> Result<SavedTensor>,
                ) -> Result<Option<Box<dyn Backward>>> {
                    let mut s = self.0.get(node)?;
                    s.self_ = outline(&s.self_)?;
                    Ok(Some(Box::new(CubeBackward0(SavedSlot::new(s)))))
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
        "pub(crate) fn cube(",
        expect![[r#"
            pub(crate) fn cube(self_: &Tensor, result: &Tensor) -> Result<Option<Tensor>> {
                if !any_tangent(&[self_]) {
                    return Ok(None);
                }
                let _off = ModeGuard::new(0, state::DUAL);
                let self_t = &tangent_or_zeros(self_)?;
                let self_p = self_;
                Ok(
                    Some(
                        formulas::conj(
                            &arith::mul_conj(
                                &arith::mul(&formulas::conj(self_t)?, &3.0)?,
                                &arith::mul(self_p, self_p)?,
                            )?,
                        )?,
                    ),
                )
            }
        "#]],
    );
}

#[test]
fn equal_input_gives_equal_text() {
    assert_eq!(run(OPS, DERIVATIVES), run(OPS, DERIVATIVES));
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
