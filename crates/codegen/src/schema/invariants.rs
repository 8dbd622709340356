//! Rules for schemas beyond the grammar: how arguments, annotations and returns belong together.

use super::parse::{Result, fail};
use super::{Arguments, FunctionSchema, SchemaKind, Type, is_scratch};
use crate::error::Kind;

impl FunctionSchema {
    /// The invariants every schema obeys.
    pub(crate) fn check(&self) -> Result<()> {
        let Arguments { out, self_arg, post_self_positional, .. } = &self.arguments;
        if let Some((a, _)) = out.iter().zip(&self.returns).find(|(a, r)| a.annotation != r.annotation) {
            return fail(Kind::OutAliasMismatch, format!("out argument `{a}` and its return disagree in annotation"));
        }
        let mut mutable_positional = post_self_positional.iter().filter(|a| a.is_write());
        if let Some(a) = mutable_positional.find(|a| self.returns.iter().any(|r| r.annotation == a.annotation)) {
            return fail(Kind::MutableArgReturned, format!("mutable positional argument `{a}` is returned"));
        }
        let mutable_returns = self.returns.iter().filter(|r| r.is_write()).count();
        if mutable_returns != 0 && mutable_returns != self.returns.len() {
            return fail(
                Kind::ReturnsMixedMutability,
                format!("`{self}`: returns are neither all mutable nor all new"),
            );
        }
        let named_self = self.arguments.flat_positional().filter(|a| a.name == "self");
        let targets: Vec<_> = out.iter().chain(named_self).collect();
        if mutable_returns > 0
            && let Some(r) = self.returns.iter().find(|r| !targets.iter().any(|a| a.annotation == r.annotation))
        {
            return fail(Kind::ReturnAliasUnbound, format!("mutable return `{r}` is neither an out argument nor self"));
        }
        if out.iter().any(|a| a.ty != Type::TENSOR) {
            if !self.returns.is_empty() {
                return fail(Kind::OutListReturns, format!("`{self}`: out lists are not returned"));
            }
        } else if !out.is_empty() && out.iter().filter(|a| !is_scratch(a)).count() != self.returns.len() {
            return fail(Kind::OutReturnCount, format!("`{self}`: every out argument is returned, and nothing else"));
        }
        if self.name.name.inplace {
            let Some(self_arg) = self_arg.as_ref().filter(|a| a.is_write()) else {
                return fail(Kind::InplaceSelfNotMutable, format!("in-place `{}` needs a mutable self", self.name));
            };
            let returns_self = matches!(self.returns.as_slice(), [r] if r.annotation == self_arg.annotation);
            if self_arg.ty == Type::TENSOR && !returns_self {
                return fail(Kind::InplaceMustReturnSelf, format!("in-place `{}` must return self", self.name));
            }
            if self_arg.ty != Type::TENSOR && !self.returns.is_empty() {
                return fail(Kind::InplaceListReturns, format!("in-place `{}` on a list returns nothing", self.name));
            }
            if !out.is_empty() {
                return fail(Kind::OutAndInplace, format!("`{}` is both in-place and out", self.name));
            }
        }
        if self.arguments.tensor_options.is_some() && self.kind() != SchemaKind::Functional {
            return fail(Kind::OptionsNotFunctional, format!("`{self}`: tensor options only on functional operators"));
        }
        if self.is_functional_fn() && self.kind() != SchemaKind::Functional {
            return fail(Kind::OverloadSaysFunctional, format!("`{self}`: its overload says functional, it is not"));
        }
        Ok(())
    }
}
