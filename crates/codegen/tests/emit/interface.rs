//! What callers see: boxed calls, methods and functions, the table of ops.

use crate::common::check;
use expect_test::expect;

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
            pub(super) fn layer(a: &Args<'_>, below: bool) -> Result<Outputs> {
                let input = a.tensor(0, "input")?;
                let bias = a.opt_tensor(1, "bias")?;
                let result = if below {
                    composite::layer(input, bias)?
                } else {
                    functions::layer(input, bias)?
                };
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
                OpInfo { name: "aten::blend.Tensor",
                    schema: Schema { text: "aten::blend.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", args: &A0, returns: &[Type::Tensor], returns_written: false },
                    in_place: Some(Op::BLEND__TENSOR), out: Some(Op::BLEND_OUT), tags: Tags::CORE.and(Tags::POINTWISE),
                    derivative: Derivative::Formula("BlendBackward0"), forward: true, vmap: Rule::Pointwise, cost: Cost::Cheap,
                    decomposition: Decomposition::Kept, call: |a| boxed::blend(a, false), below: |a| boxed::blend(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::blend_.Tensor",
                    schema: Schema { text: "aten::blend_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", args: &A1, returns: &[Type::Tensor], returns_written: true },
                    kind: Kind::InPlace, functional: Some(Op::BLEND_TENSOR), tags: Tags::CORE.and(Tags::POINTWISE),
                    derivative: Derivative::Formula("BlendBackward0"), forward: true, vmap: Rule::Pointwise, cost: Cost::Cheap,
                    decomposition: Decomposition::Functional, call: |a| boxed::blend_(a, false), below: |a| boxed::blend_(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::blend.out",
                    schema: Schema { text: "aten::blend.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", args: &A2, returns: &[Type::Tensor], returns_written: true },
                    kind: Kind::Out, functional: Some(Op::BLEND_TENSOR), tags: Tags::CORE.and(Tags::POINTWISE), vmap: Rule::Refuse,
                    cost: Cost::Cheap, decomposition: Decomposition::Functional,
                    call: |a| boxed::blend_out(a, false), below: |a| boxed::blend_out(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::best",
                    schema: Schema { text: "aten::best(Tensor self, int dim=-1) -> (Tensor values, Tensor indices)", args: &A3, returns: &[Type::Tensor, Type::Tensor], returns_written: false },
                    tags: Tags::REDUCTION, derivative: Derivative::Formula("BestBackward0"), forward: true,
                    autocast: Autocast::Full, vmap: Rule::Along(&[1]),
                    call: |a| boxed::best(a, false), below: |a| boxed::best(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::pieces",
                    schema: Schema { text: "aten::pieces(Tensor(a -> *) self, SymInt size, int dim=0) -> Tensor(a)[]", args: &A4, returns: &[Type::Tensors], returns_written: false },
                    tags: Tags::VIEW, derivative: Derivative::Formula("PiecesBackward0"), vmap: Rule::Own(rules::view::pieces),
                    cost: Cost::Free, call: |a| boxed::pieces(a, false), below: |a| boxed::pieces(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::glue",
                    schema: Schema { text: "aten::glue(Tensor[] tensors, int dim=0) -> Tensor", args: &A5, returns: &[Type::Tensor], returns_written: false },
                    derivative: Derivative::Formula("GlueBackward0"), forward: true, vmap: Rule::Loop, cost: Cost::Cheap,
                    decomposition: Decomposition::Kept, devices: Devices::Cpu(0b1),
                    call: |a| boxed::glue(a, false), below: |a| boxed::glue(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::_foreach_blend.ScalarList",
                    schema: Schema { text: "aten::_foreach_blend.ScalarList(Tensor[] self, Tensor other, Scalar[] scalars) -> Tensor[]", args: &A6, returns: &[Type::Tensors], returns_written: false },
                    in_place: Some(Op::_FOREACH_BLEND__SCALARLIST), tags: Tags::FOREACH, derivative: Derivative::Composite,
                    forward: true, vmap: Rule::Parts, decomposition: Decomposition::Parts,
                    call: |a| boxed::foreach_blend_scalars(a, false), below: |a| boxed::foreach_blend_scalars(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::_foreach_blend_.ScalarList",
                    schema: Schema { text: "aten::_foreach_blend_.ScalarList(Tensor(a!)[] self, Tensor other, Scalar[] scalars) -> ()", args: &A7, returns: &[], returns_written: false },
                    kind: Kind::InPlace, functional: Some(Op::_FOREACH_BLEND_SCALARLIST), tags: Tags::FOREACH,
                    derivative: Derivative::Composite, forward: true, vmap: Rule::Parts, decomposition: Decomposition::Functional,
                    call: |a| boxed::foreach_blend_scalars_(a, false), below: |a| boxed::foreach_blend_scalars_(a, true),
                    ..PLAIN },
                OpInfo { name: "aten::layer",
                    schema: Schema { text: "aten::layer(Tensor input, Tensor? bias=None, Generator? generator=None) -> Tensor", args: &A8, returns: &[Type::Tensor], returns_written: false },
                    tags: Tags::NONDETERMINISTIC_SEEDED, derivative: Derivative::Composite, forward: true, vmap: Rule::Parts,
                    decomposition: Decomposition::Parts, call: |a| boxed::layer(a, false), below: |a| boxed::layer(a, true),
                    ..PLAIN },
            ];
        "#]],
    );
}
