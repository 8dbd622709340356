//! What the repository holds: the example of its README, and the committed files.

use crate::common::{DERIVATIVES, OPS, item_of, run};
use expect_test::{Expect, expect};
use firebrand_codegen::emit::{Source, python_table};

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
                    return dispatch::layers(Op::CUBE, &[self_.into()]);
                }
                let mut result = below::cube(word, self_)?;
                if word & state::GRAD != 0 && record::any_requires_grad(&[self_])
                    && result.dtype().is_differentiable()
                {
                    let edges = record::edges([self_])?;
                    let saved = (SavedTensor::input(self_)?,);
                    record::finish(&mut result, edges, nodes::CubeBackward0.keep(saved))?;
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
                    dispatch::layers::<()>(Op::CUBE_, &[self_.into()])?;
                    return Ok(self_);
                }
                self_.check_writable("cube_")?;
                let recorded: record::Before = if word & state::GRAD != 0
                    && record::any_requires_grad(&[self_]) && self_.dtype().is_differentiable()
                {
                    self_.check_inplace("cube_")?;
                    let edges = record::edges([self_])?;
                    let original = clone(self_, None)?;
                    let saved = (SavedTensor::input(&original)?,);
                    Some((edges, nodes::CubeBackward0.keep(saved)))
                } else {
                    None
                };
                let primal = if word & state::DUAL != 0 { Some(clone(self_, None)?) } else { None };
                below::cube_(word, self_)?;
                if let Some((edges, formula)) = recorded {
                    record::finish_inplace(self_, edges, formula)?;
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
                if word & state::APART != 0
                    || devices::of(self_) | devices::of(out) == devices::MIXED
                {
                    return dispatch::apart(word, Op::CUBE_OUT, &[self_.into(), out.into()]);
                }
                shape::need_real("cube", &[self_])?;
                races::op!("cube", self_, out);
                let spec = shape::unary("cube", self_)?;
                inplace::write_out(
                    "cube",
                    out,
                    spec.into(),
                    &[self_],
                    &|out| cpu::pointwise::cube(self_, out),
                )
            }
        "#]],
    );
    check(
        "nodes.rs",
        "pub(crate) static CubeBackward0",
        expect![[r#"
            pub(crate) static CubeBackward0: Formula<(SavedTensor,)> = Formula {
                name: "CubeBackward0",
                names: &["self"],
                apply: |node, (self_,), grads, needs, gradients| {
                    let Some(grad) = grads.first().and_then(Option::as_ref) else { return Ok(()) };
                    let self_ = &self_.unpack_some(node)?;
                    if needs.get(0) {
                        put(
                            &mut gradients[0],
                            arith::mul_conj(&arith::mul(grad, &3.0)?, &arith::mul(self_, self_)?)?,
                        );
                    }
                    Ok(())
                },
            };
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
    let names = read("schema/python.yaml");
    let source = |name, text| Source { name, text };
    let table =
        python_table(source("ops.yaml", &ops), source("derivatives.yaml", &derivatives), source("python.yaml", &names));
    let table = table.expect("the schema is in order");
    let committed = read(&format!("crates/python/src/generated/{}", table.name));
    assert!(committed == table.text, "{} is stale; run `cargo xtask codegen`", table.name);
}

/// How many ops whose names do not begin with `_` have a `doc:`. New ones should have one too; the list says which do not.
/// Ops without a typed function have no page it could stand on.
#[test]
fn public_ops_are_documented() {
    let entries = include_str!("../../../../schema/ops.yaml").split("\n- func: ").skip(1);
    let public: Vec<&str> =
        entries.filter(|entry| !entry.starts_with('_') && !entry.contains("\n  variants: boxed")).collect();
    let bare: Vec<&str> = public
        .iter()
        .filter(|entry| !entry.contains("\n  doc: "))
        .map(|entry| entry.split('(').next().unwrap_or_default())
        .collect();
    let documented = public.len() - bare.len();
    assert!(
        documented * 100 >= public.len() * 95,
        "{documented} of {} public ops are documented; without `doc:` are {bare:?}",
        public.len()
    );
}

#[test]
fn an_example_is_shown_above_the_method_that_panics_only() {
    let entry = "- func: halve(Tensor self) -> Tensor\n  composite: halve\n  doc: Halves.\n  example: |\n    let x = 1;\n    assert_eq!(x, 1);\n";
    let files = run(entry, "").expect("the entry is in order");
    let count = |file: &str| {
        let text = &files.iter().find(|f| f.name == file).expect("a file of that name").text;
        (text.matches("/// Halves.").count(), text.matches("/// assert_eq!(x, 1);").count())
    };
    assert_eq!((count("methods.rs"), count("functions.rs")), ((2, 1), (1, 0)));
}
