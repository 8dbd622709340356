//! The formulas of one operator under one key: each is rewritten as it is read, all are checked together.

use super::{Outputs, fail, not_text};
use crate::api::{Binding, TypeStyle, cpp};
use crate::ctype::CType;
use crate::dialect::Dialect;
use crate::error::{Kind, Refusal, Result, Stage};
use crate::formula;
use crate::forward::{self, Scope};
use crate::model::{Derivative, DifferentiabilityInfo, SavedAttribute};
use crate::native::NativeFunction;
use crate::yaml::Node;
use std::rc::Rc;

/// Outputs as formulas see them, with their types.
fn returns(f: &NativeFunction) -> Result<Vec<(String, CType)>, Refusal> {
    let shown = |name: String| if name == "self" { "result".to_owned() } else { name };
    let names = cpp::return_names(f).into_iter().map(shown);
    let style = TypeStyle::of(f);
    let one = |(name, r): (String, &crate::schema::Return)| {
        Ok((name, cpp::return_type(&r.ty, r.is_write(), style)?.remove_const_ref()))
    };
    names.zip(&f.func.returns).map(one).collect()
}

/// What all keys of an entry share.
pub(super) struct Operator<'a> {
    pub(super) func: &'a Rc<NativeFunction>,
    pub(super) name: &'a str,
    pub(super) arguments: &'a [Binding],
    pub(super) outputs: &'a Outputs,
    /// The name of its node, if the entry pins it.
    pub(super) node: Option<&'a str>,
}

/// The formulas of one key, as they are read.
pub(super) struct SetUp<'a> {
    operator: &'a Operator<'a>,
    dialect: Dialect,
    arguments: Vec<(&'a str, CType)>,
    available_named_gradients: Vec<String>,
    derivatives: Vec<Derivative>,
    forward: Vec<forward::Definition>,
    non_differentiable: Vec<String>,
}

impl<'a> SetUp<'a> {
    pub(super) fn new(operator: &'a Operator<'a>, dialect: Dialect) -> Self {
        SetUp {
            operator,
            dialect,
            arguments: operator.arguments.iter().map(|a| (a.binds.as_str(), a.ty.remove_const_ref())).collect(),
            available_named_gradients: dialect
                .named_gradients(operator.func, operator.outputs.differentiable.as_deref()),
            derivatives: Vec::new(),
            forward: Vec::new(),
            non_differentiable: Vec::new(),
        }
    }

    /// One key and its formula.
    pub(super) fn formula(&mut self, raw_names: &str, node: &Node) -> Result<()> {
        let names: Vec<String> = raw_names.split(',').map(|name| name.trim().to_owned()).collect();
        let refused = |e: Refusal| e.at_stage(Stage::Derivatives);
        let is_argument = |name: &String| self.operator.arguments.iter().any(|a| a.name == *name);
        let returns = &self.operator.func.func.returns;
        let is_return = |name: &String| returns.iter().any(|r| r.name.as_ref() == Some(name));
        if let Some(name) = names.iter().find(|name| is_argument(name) && is_return(name)) {
            let message = format!("`{name}` is both an argument and a return");
            return Err(refused(Refusal::new(Kind::NameInputAndReturn, message)));
        }
        let text = node.as_str().ok_or_else(|| not_text(node.line, "a formula is text"));
        if !is_argument(&names[0]) {
            let var_types = forward::output_types(&self.operator.func.func, &names).map_err(refused)?;
            let formula = text?;
            if !forward::is_automatic(formula) {
                self.dialect.check(formula).map_err(refused)?;
            }
            let (formula, line) = (formula.to_owned(), node.line);
            self.forward.push(forward::Definition { formula, var_names: names, var_types, line });
        } else if text.clone()?.to_lowercase().trim() == "non_differentiable" {
            self.non_differentiable.extend(names);
        } else {
            let derivative = self.derivative(text?, node.line, names).map_err(refused)?;
            self.derivatives.push(derivative);
        }
        Ok(())
    }

    fn derivative(&self, original: &str, line: usize, var_names: Vec<String>) -> Result<Derivative, Refusal> {
        self.dialect.check(original)?;
        let returns = returns(self.operator.func)?;
        let returns: Vec<_> = returns.iter().map(|(name, ty)| (name.as_str(), ty.clone())).collect();
        let (formula, saved_inputs) = self.dialect.saved_variables(original, &self.arguments, &var_names)?;
        let (formula, saved_outputs) = self.dialect.saved_variables(&formula, &returns, &var_names)?;
        let available = self.available_named_gradients.iter();
        let named_gradients = available.filter(|name| self.dialect.uses(&formula, name)).cloned().collect();
        let count = returns.len();
        if let Some(i) = formula::used_gradient_indices(&formula).into_iter().find(|i| *i >= count) {
            return fail(Kind::GradsOutOfBounds, format!("grads[{i}] of an operator with {count} returns"));
        }
        let original_formula = original.to_owned();
        Ok(Derivative { formula, original_formula, var_names, saved_inputs, saved_outputs, named_gradients, line })
    }

    /// Everything that looks at all formulas of the key together.
    pub(super) fn finish(self) -> Result<DifferentiabilityInfo, Refusal> {
        let has_formula = |name: &str| self.derivatives.iter().any(|d| d.var_names.iter().any(|n| n == name));
        if let Some(name) = self.non_differentiable.iter().find(|name| has_formula(name)) {
            return fail(Kind::NondiffOverlap, format!("`{name}` has a formula and is non_differentiable"));
        }
        let with_derivatives = self.operator.arguments.iter().filter(|a| has_formula(&a.name));
        let args_with_derivatives: Vec<Binding> = with_derivatives.cloned().collect();
        let scope = Scope {
            dialect: self.dialect,
            func: self.operator.func,
            name: self.operator.name,
            arguments: self.operator.arguments,
            args_with_derivatives: &args_with_derivatives,
            derivatives: &self.derivatives,
        };
        let forward_derivatives = forward::complete(&scope, &self.forward)?;
        check_gradients(self.dialect, &self.derivatives)?;
        let union = |of: fn(&Derivative) -> &[SavedAttribute]| {
            let mut all: Vec<SavedAttribute> = Vec::new();
            for attribute in self.derivatives.iter().flat_map(of) {
                if !all.iter().any(|known| known.name == attribute.name) {
                    all.push(attribute.clone());
                }
            }
            all
        };
        Ok(DifferentiabilityInfo {
            name: self.operator.name.to_owned(),
            dialect: self.dialect,
            func: Rc::clone(self.operator.func),
            op: None,
            all_saved_inputs: union(|d| &d.saved_inputs),
            all_saved_outputs: union(|d| &d.saved_outputs),
            used_named_gradients: self.derivatives.iter().flat_map(|d| d.named_gradients.iter().cloned()).collect(),
            derivatives: self.derivatives,
            forward_derivatives,
            available_named_gradients: self.available_named_gradients,
            args_with_derivatives,
            non_differentiable_arg_names: self.non_differentiable,
            output_differentiability: self.operator.outputs.differentiable.clone(),
            output_differentiability_conditions: self.operator.outputs.conditions.clone(),
        })
    }
}

/// The three ways to name gradients do not mix.
fn check_gradients(dialect: Dialect, derivatives: &[Derivative]) -> Result<(), Refusal> {
    let mut grads_uses = 0;
    let mut indices = Vec::new();
    let mut uses_grad = false;
    let mut uses_named = false;
    for derivative in derivatives {
        grads_uses += formula::count_ident(&derivative.formula, "grads");
        indices.extend(formula::used_gradient_indices(&derivative.formula));
        uses_grad |= dialect.uses(&derivative.formula, "grad");
        uses_named |= !derivative.named_gradients.is_empty();
    }
    if grads_uses < indices.len() {
        return fail(Kind::GradsCount, "more `grads[i]` than `grads`");
    }
    if uses_grad && grads_uses > 0 {
        return fail(Kind::GradAndGrads, "`grad` and `grads` cannot both be used");
    }
    if !indices.is_empty() && grads_uses == indices.len() && indices.iter().all(|i| *i == 0) {
        return fail(Kind::Grads0Only, "only `grads[0]` is used: write `grad`");
    }
    if uses_named && (uses_grad || grads_uses > 0) {
        return fail(Kind::NamedAndPlainGrads, "named gradients cannot be used together with `grad` or `grads`");
    }
    Ok(())
}
