//! The signature of a schema: the one functional schema that all variants of an operator share.
//!
//! Two operators are variants of one another exactly when their signatures are equal.

use super::{Argument, Arguments, BaseOperatorName, FunctionSchema, OperatorName, Return};

/// What a signature keeps or drops beyond the usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SignatureOptions {
    /// Drop defaults.
    pub strip_default: bool,
    /// Map `x_copy` to `x` and `x_scatter` to `x_inverse`.
    pub strip_view_copy_name: bool,
    /// Keep return names; returns made of mutable arguments are called `<argument>_out`.
    pub keep_return_names: bool,
}

impl FunctionSchema {
    /// The signature with defaults kept.
    pub fn signature(&self) -> FunctionSchema {
        self.signature_with(SignatureOptions::default())
    }

    /// The signature without defaults.
    pub fn signature_without_defaults(&self) -> FunctionSchema {
        self.signature_with(SignatureOptions { strip_default: true, ..Default::default() })
    }

    /// The signature a view shares with its copy.
    pub fn view_signature(&self) -> FunctionSchema {
        self.signature_with(SignatureOptions { strip_view_copy_name: true, ..Default::default() })
    }

    /// The functional schema this operator is a variant of.
    pub fn signature_with(&self, options: SignatureOptions) -> FunctionSchema {
        let mut base = self.base().to_owned();
        if options.strip_view_copy_name {
            if base.ends_with("_copy") {
                base = base.replace("_copy", "");
            } else if base.ends_with("_scatter") {
                base = base.replace("scatter", "inverse");
            }
        }
        let mut arguments = self.arguments.signature(options.strip_default);
        // History: the functional form takes no default, its variants all do.
        if self.base() == "bernoulli" && !self.name.name.inplace && self.name.overload_name == "p" {
            for a in arguments.post_self_positional.iter_mut().filter(|a| a.name == "p" && a.default.is_none()) {
                a.default = Some("0.5".to_owned());
            }
        }
        FunctionSchema {
            name: OperatorName {
                name: BaseOperatorName {
                    base,
                    inplace: false,
                    dunder_method: self.name.name.dunder_method,
                    functional_overload: false,
                },
                overload_name: String::new(),
            },
            arguments,
            returns: self.signature_returns(options.keep_return_names),
        }
    }

    /// The returns, then every mutable argument that is not returned already.
    fn signature_returns(&self, keep_names: bool) -> Vec<Return> {
        let written = (self.arguments.self_arg.iter())
            .chain(&self.arguments.out)
            .chain(&self.arguments.post_self_positional)
            .filter(|a| a.is_write() && !self.returns.iter().any(|r| r.annotation == a.annotation));
        let kept = self.returns.iter().map(|r| Return {
            name: r.name.clone().filter(|_| keep_names),
            ty: r.ty.clone(),
            annotation: None,
        });
        let added = written.map(|a| Return {
            name: keep_names.then(|| format!("{}_out", a.name)),
            ty: a.ty.clone(),
            annotation: None,
        });
        kept.chain(added).collect()
    }
}

impl Arguments {
    /// Arguments without annotations, tensor options and out arguments.
    pub fn signature(&self, strip_default: bool) -> Arguments {
        let strip = |a: &Argument| Argument {
            name: a.name.clone(),
            ty: a.ty.clone(),
            default: a.default.clone().filter(|_| !strip_default),
            annotation: None,
        };
        let strip_all = |list: &[Argument]| list.iter().map(strip).collect::<Vec<_>>();
        let mut kwarg_only = strip_all(&self.pre_tensor_options_kwarg_only);
        kwarg_only.extend(self.post_tensor_options_kwarg_only.iter().map(strip));
        Arguments {
            pre_self_positional: strip_all(&self.pre_self_positional),
            self_arg: self.self_arg.as_ref().map(strip),
            post_self_positional: strip_all(&self.post_self_positional),
            pre_tensor_options_kwarg_only: kwarg_only,
            tensor_options: None,
            post_tensor_options_kwarg_only: Vec::new(),
            out: Vec::new(),
        }
    }
}
