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
                    tags: &["nondeterministic_seeded"],
                    derivative: Derivative::Composite,
                    forward: true,
                    call: |a| boxed::layer(a, false),
                    below: |a| boxed::layer(a, true),
                },
            ];
        "#]],
    );
}
