//! Ops on lists: what is written for them, and when their reference does not fit.

use crate::common::{DERIVATIVES, OPS, check, refused};
use expect_test::expect;
use firebrand_codegen::Kind;

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
                    return dispatch::layers(
                        Op::_FOREACH_BLEND_SCALARLIST,
                        &[self_.into(), other.into(), scalars.into()],
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
                    return dispatch::layers(
                        Op::_FOREACH_BLEND__SCALARLIST,
                        &[self_.into(), other.into(), scalars.into()],
                    );
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
        "fn s7(",
        expect![[r#"
            fn s7(
                a: &Args<'_>,
                f: fn(&[Tensor], &Tensor, &[Scalar]) -> Result<()>,
            ) -> Result<Outputs> {
                let x0: Vec<Tensor> = a.get(0)?;
                let x1: &Tensor = a.get(1)?;
                let x2: Vec<Scalar> = a.get(2)?;
                let result = f(&x0, x1, &x2)?;
                Ok(result.boxed())
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
            ops.yaml:28: the reference `mix` is the Rust name of no op (native/emit_foreach_no_info)
              in _foreach_mix(Tensor[] self) -> Tensor[]
        "#]],
    );
    refused(
        &with("- func: _foreach_blend.Int(Tensor[] self, int other) -> Tensor[]\n  foreach: blend"),
        DERIVATIVES,
        Kind::EmitForeachArity,
        expect![[r#"
            ops.yaml:28: `other` fits `other` neither as a list nor as it is; its reference is blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor (native/emit_foreach_arity)
              in _foreach_blend.Int(Tensor[] self, int other) -> Tensor[]
        "#]],
    );
}
