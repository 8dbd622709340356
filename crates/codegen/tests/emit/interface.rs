//! What callers see: boxed calls, methods, the table of ops.

use crate::common::check;
use expect_test::expect;

#[test]
fn boxed_calls_skip_what_rust_does_not_take() {
    check(
        "boxed.rs",
        "fn s0(",
        expect![[r#"
            fn s0(
                a: &Args<'_>,
                below: bool,
                f: fn(&Tensor, &Tensor, Scalar) -> Result<Tensor>,
                g: fn(u32, &Tensor, &Tensor, Scalar) -> Result<Tensor>,
            ) -> Result<Outputs> {
                let x0: &Tensor = a.get(0)?;
                let x1: &Tensor = a.get(1)?;
                let x2: Scalar = a.get(2)?;
                let result = if below { g(0, x0, x1, x2)? } else { f(x0, x1, x2)? };
                Ok(result.boxed())
            }
        "#]],
    );
    check(
        "boxed.rs",
        "fn s8(",
        expect![[r#"
            fn s8(
                a: &Args<'_>,
                below: bool,
                f: fn(&Tensor, Option<&Tensor>) -> Result<Tensor>,
                g: fn(&Tensor, Option<&Tensor>) -> Result<Tensor>,
            ) -> Result<Outputs> {
                let x0: &Tensor = a.get(0)?;
                let x1: Option<&Tensor> = a.get(1)?;
                let result = if below { g(x0, x1)? } else { f(x0, x1)? };
                Ok(result.boxed())
            }
        "#]],
    );
}

#[test]
fn users_get_methods() {
    check(
        "methods.rs",
        "impl Tensor {",
        expect![[r#"
            impl Tensor {
                /// `aten::blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`
                ///
                /// # Panics
                /// If [`Tensor::try_blend`] returns an error.
                #[must_use]
                #[inline]
                #[track_caller]
                pub fn blend(&self, other: &Tensor) -> Tensor {
                    expect_ok(self.try_blend(other))
                }
                /// `aten::blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`
                #[inline]
                pub fn try_blend(&self, other: &Tensor) -> Result<Tensor> {
                    ops::blend(self, other, Scalar::Int(1))
                }
                /// `aten::blend_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`
                ///
                /// # Panics
                /// If [`Tensor::try_blend_`] returns an error.
                #[inline]
                #[track_caller]
                pub fn blend_(&self, other: &Tensor) -> &Tensor {
                    expect_ok(self.try_blend_(other))
                }
                /// `aten::blend_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`
                #[inline]
                pub fn try_blend_(&self, other: &Tensor) -> Result<&Tensor> {
                    ops::blend_(self, other, Scalar::Int(1))
                }
                /// `aten::best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)`
                ///
                /// # Panics
                /// If [`Tensor::try_best`] returns an error.
                #[must_use]
                #[inline]
                #[track_caller]
                pub fn best(&self, dim: i64) -> (Tensor, Tensor) {
                    expect_ok(self.try_best(dim))
                }
                /// `aten::best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)`
                #[inline]
                pub fn try_best(&self, dim: i64) -> Result<(Tensor, Tensor)> {
                    ops::best(self, dim)
                }
                /// `aten::pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]`
                ///
                /// # Panics
                /// If [`Tensor::try_pieces`] returns an error.
                #[must_use]
                #[inline]
                #[track_caller]
                pub fn pieces(&self, size: impl Into<SymInt>, dim: i64) -> Vec<Tensor> {
                    expect_ok(self.try_pieces(size, dim))
                }
                /// `aten::pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]`
                #[inline]
                pub fn try_pieces(&self, size: impl Into<SymInt>, dim: i64) -> Result<Vec<Tensor>> {
                    ops::pieces(self, size.into(), dim)
                }
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
                OpInfo { name: "aten::blend.Tensor",
                    schema: Schema { text: "aten::blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", args: &A0, returns: &[Type::Tensor], returns_written: false },
                    in_place: Some(Op::BLEND__TENSOR), out: Some(Op::BLEND_OUT), tags: Tags::CORE.and(Tags::POINTWISE),
                    derivative: Derivative::Formula("BlendBackward0"), forward: true, vmap: Rule::Pointwise, cost: Cost::Cheap,
                    decomposition: Decomposition::Kept,
                    run: Run::Typed(boxed::Typed::S0(functions::blend, below::blend), &[(2, Given::Int(1))]),
                    ..PLAIN },
                OpInfo { name: "aten::blend_.Tensor",
                    schema: Schema { text: "aten::blend_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", args: &A1, returns: &[Type::Tensor], returns_written: true },
                    kind: Kind::InPlace, functional: Some(Op::BLEND_TENSOR), tags: Tags::CORE.and(Tags::POINTWISE),
                    derivative: Derivative::Formula("BlendBackward0"), forward: true, vmap: Rule::Pointwise, cost: Cost::Cheap,
                    decomposition: Decomposition::Functional,
                    run: Run::Typed(boxed::Typed::S1(functions::blend_, below::blend_), &[(2, Given::Int(1))]),
                    ..PLAIN },
                OpInfo { name: "aten::blend.out",
                    schema: Schema { text: "aten::blend.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", args: &A2, returns: &[Type::Tensor], returns_written: true },
                    kind: Kind::Out, functional: Some(Op::BLEND_TENSOR), tags: Tags::CORE.and(Tags::POINTWISE), vmap: Rule::Refuse,
                    cost: Cost::Cheap, decomposition: Decomposition::Functional,
                    run: Run::Typed(boxed::Typed::S2(functions::blend_out, below::blend_out), &[(2, Given::Int(1))]),
                    ..PLAIN },
                OpInfo { name: "aten::best",
                    schema: Schema { text: "aten::best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)", args: &A3, returns: &[Type::Tensor, Type::Tensor], returns_written: false },
                    tags: Tags::REDUCTION, derivative: Derivative::Formula("BestBackward0"), forward: true,
                    autocast: Autocast::Full, vmap: Rule::Along(&[1]),
                    run: Run::Typed(boxed::Typed::S3(functions::best, below::best), &[(1, Given::Int(-1))]),
                    ..PLAIN },
                OpInfo { name: "aten::pieces",
                    schema: Schema { text: "aten::pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]", args: &A4, returns: &[Type::Tensors], returns_written: false },
                    tags: Tags::VIEW, derivative: Derivative::Formula("PiecesBackward0"), vmap: Rule::own(rules::view::pieces),
                    cost: Cost::Free, run: Run::Typed(boxed::Typed::S4(functions::pieces, below::pieces), &[(2, Given::Int(0))]),
                    ..PLAIN },
                OpInfo { name: "aten::glue",
                    schema: Schema { text: "aten::glue(Tensor[] tensors, int dim=0) -> Tensor", args: &A5, returns: &[Type::Tensor], returns_written: false },
                    derivative: Derivative::Formula("GlueBackward0"), forward: true, vmap: Rule::Loop, cost: Cost::Cheap,
                    decomposition: Decomposition::Kept, devices: Devices::Cpu(0b1),
                    run: Run::Typed(boxed::Typed::S5(functions::glue, below::glue), &[(1, Given::Int(0))]),
                    ..PLAIN },
                OpInfo { name: "aten::_foreach_blend.ScalarList",
                    schema: Schema { text: "aten::_foreach_blend.ScalarList(Tensor[] self, Tensor other, Scalar[] scalars) -> Tensor[]", args: &A6, returns: &[Type::Tensors], returns_written: false },
                    in_place: Some(Op::_FOREACH_BLEND__SCALARLIST), tags: Tags::FOREACH, derivative: Derivative::Composite,
                    forward: true, vmap: Rule::Parts, decomposition: Decomposition::Parts,
                    run: Run::Typed(boxed::Typed::S6(functions::foreach_blend_scalars), &[]),
                    ..PLAIN },
                OpInfo { name: "aten::_foreach_blend_.ScalarList",
                    schema: Schema { text: "aten::_foreach_blend_.ScalarList(Tensor(a!)[] self, Tensor other, Scalar[] scalars) -> ()", args: &A7, returns: &[], returns_written: false },
                    kind: Kind::InPlace, functional: Some(Op::_FOREACH_BLEND_SCALARLIST), tags: Tags::FOREACH,
                    derivative: Derivative::Composite, forward: true, vmap: Rule::Parts, decomposition: Decomposition::Functional,
                    run: Run::Typed(boxed::Typed::S7(functions::foreach_blend_scalars_), &[]),
                    ..PLAIN },
                OpInfo { name: "aten::layer",
                    schema: Schema { text: "aten::layer(Tensor input, Tensor? bias=None, Generator? generator=None) -> Tensor", args: &A8, returns: &[Type::Tensor], returns_written: false },
                    tags: Tags::NONDETERMINISTIC_SEEDED, derivative: Derivative::Composite, forward: true, vmap: Rule::Parts,
                    decomposition: Decomposition::Parts,
                    run: Run::Typed(boxed::Typed::S8(functions::layer, composite::layer), &[]),
                    ..PLAIN },
            ];
        "#]],
    );
}
