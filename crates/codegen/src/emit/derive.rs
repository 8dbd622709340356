//! From the model and its plans to the derivative of every op: what a node keeps, computes and is called.
//!
//! Guarantees that every op that could carry a gradient has formulas, is built of ops that have, or says that nothing
//! flows through it; so no gradient is lost silently. Formulas are already rewritten to Rust; this file makes no text
//! of its own.

use super::formula::{Formula, uses};
use super::op::{Arg, Op, Returns, ident};
use super::rewrite::{OpIndex, rewrite};
use super::types::Ty;
use crate::error::{CodegenError, Kind, Result};
use crate::formula::tokens::Lexed;
use crate::load::derivatives_file;
use crate::model::{
    DEFAULT_KEY, DifferentiabilityInfo, ForwardDerivative, FunctionWithInfo, MatchRule, SavedAttribute,
};
use crate::native::{Form, Implementation};
use crate::outputs::differentiable_outputs;
use crate::pipeline::{Model, NATIVE_FILE};
use crate::plan::{Guard, NodePlan, Plans, Wrapper};
use std::collections::HashMap;
use std::rc::Rc;
use syn::Expr;

/// A value that a node keeps.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    /// As users ask for it: `self`, `self_sym_sizes`.
    pub(super) name: String,
    pub(super) ty: Ty,
    /// The argument or result it is, or is read from.
    pub(super) of: String,
    /// Text that reads an attribute; `$` stands for the tensor. None for the whole value.
    pub(super) read: Option<String>,
    /// Kept only if the input at this position needs a gradient.
    pub(super) guard: Option<usize>,
    /// It is, or is read from, the result at this position.
    pub(super) output: Option<usize>,
}

impl Saved {
    /// The field of the node.
    pub(super) fn field(&self) -> String {
        ident(&self.name)
    }
}

/// One backward formula.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Positions among the inputs of the derivative.
    pub(super) inputs: Vec<usize>,
    pub(super) expr: Expr,
    pub(super) uses_mask: bool,
}

/// One forward formula.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    /// Which result.
    pub(super) output: usize,
    pub(super) expr: Expr,
    /// Names of arguments whose tangent it uses.
    pub(super) tangents: Vec<String>,
    /// Names of arguments whose value it uses under the name `x_p`.
    pub(super) primals: Vec<String>,
}

/// The derivative of an op.
#[derive(Clone, Debug)]
pub(super) struct Derivative {
    /// The Rust name of the op whose entry it is; an in-place form shares that of its functional form.
    pub(super) owner: String,
    /// `MulBackward0`.
    pub(super) node: String,
    /// Arguments with a formula, in argument order: one edge each (a list has one per tensor).
    pub(super) inputs: Vec<Arg>,
    pub(super) steps: Vec<Step>,
    pub(super) saved: Vec<Saved>,
    pub(super) uses_grad: bool,
    /// Name and position among differentiable results.
    pub(super) named_gradients: Vec<(String, usize)>,
    /// Positions of results that have history.
    pub(super) outputs: Vec<usize>,
    pub(super) forward: Vec<Forward>,
}

impl Derivative {
    /// Position of the input that is a list of tensors; there is at most one.
    pub(super) fn list_input(&self) -> Option<usize> {
        self.inputs.iter().position(|a| a.ty.is_tensor_list())
    }

    /// Position of a result among those with history.
    pub(super) fn slot(&self, output: usize) -> Option<usize> {
        self.outputs.iter().position(|&o| o == output)
    }
}

/// How gradients of an op come about.
#[derive(Clone, Debug)]
pub(super) enum Differentiation {
    Formula(Rc<Derivative>),
    /// The op's own business; the name of its node.
    Manual(String),
    Composite,
    None,
}

/// How every op is differentiated, in the order of `ops`.
pub(super) fn derive(model: &Model, ops: &[Op]) -> Result<Vec<Differentiation>> {
    let plans = model.plans()?;
    let index = OpIndex::new(ops);
    let functions: HashMap<&str, &FunctionWithInfo> = model.functions.iter().map(|f| (&*f.func.text, f)).collect();
    let by_schema: HashMap<&str, &Op> = ops.iter().map(|op| (&*op.native.text, op)).collect();
    let mut derivatives: HashMap<&str, Rc<Derivative>> = HashMap::new();
    let infos = model.infos.values().flat_map(|operator| operator.by_key.values());
    for (info, node) in infos.filter(|info| info.has_derivatives()).zip(&plans.nodes) {
        let schema = &*info.func.text;
        let maker =
            Maker { op: by_schema[schema], info, node, guards: guards(&plans, schema), function: functions[schema] };
        let made =
            maker.derivative(&index).map_err(|e| e.at(info.func.line, schema).in_file(derivatives_file(&info.func)))?;
        derivatives.insert(schema, Rc::new(made));
    }
    let one = |op| differentiation(op, functions[&*op.native.text], &derivatives).map_err(|e| e.in_file(NATIVE_FILE));
    ops.iter().map(one).collect()
}

/// Per saved value, the position of the input whose gradient alone needs it.
fn guards(plans: &Plans, schema: &str) -> Vec<Option<usize>> {
    let wrapper = plans.wrappers.iter().find(|wrapper| wrapper.schema == schema);
    match wrapper.and_then(|wrapper| wrapper.by_key.first()) {
        Some((_, Wrapper::Generated(wrapper))) => {
            let position = |guard: &Option<Guard>| match guard {
                Some(Guard::Needs(position)) => Some(*position),
                _ => None,
            };
            wrapper.saves.iter().map(|save| position(&save.guard)).collect()
        }
        _ => Vec::new(),
    }
}

fn differentiation(
    op: &Op,
    function: &FunctionWithInfo,
    derivatives: &HashMap<&str, Rc<Derivative>>,
) -> Result<Differentiation> {
    match &op.rust.implementation {
        Implementation::Composite(_) | Implementation::Foreach(_) => return Ok(Differentiation::Composite),
        Implementation::Manual(_, Some(node)) => return Ok(Differentiation::Manual(node.clone())),
        Implementation::Manual(_, None) => return Ok(Differentiation::None),
        _ => {}
    }
    let info = function.info.as_ref().and_then(|infos| infos.get(DEFAULT_KEY));
    let in_place = op.rust.form == Form::Inplace;
    if let Some(derivative) = info.and_then(|info| derivatives.get(&*info.func.text)) {
        // An in-place form has a derivative even so: what it overwrites had one.
        if op.rust.non_differentiable && op.rust.form == Form::Declared && function.rule == MatchRule::Exact {
            return Err(op.error(Kind::NondiffOverlap, "`non_differentiable: true`, yet derivatives.yaml has formulas"));
        }
        if in_place && derivative.inputs.first().is_none_or(|a| a.name != "self") {
            let message =
                "the in-place form needs a formula for `self`, and `self` must be the first argument that has one";
            return Err(op.error(Kind::LostGradient, message));
        }
        return Ok(Differentiation::Formula(Rc::clone(derivative)));
    }
    if in_place {
        let message = format!(
            "writing into a tensor that has history would lose a gradient silently: give the in-place form an entry of \
             its own in derivatives.yaml\n    - name: {}\n      self: zeros_like(grad)",
            op.native.text
        );
        return Err(op.error(Kind::LostGradient, message));
    }
    let tensors_in = op.args().any(|a| a.ty.is_tensor());
    let tensors_out = !matches!(op.returns, Returns::Nothing | Returns::Value(_));
    if tensors_in && tensors_out && !op.rust.non_differentiable && info.is_none() {
        let message = "could lose a gradient silently: add an entry to derivatives.yaml, build it of other ops with \
                       `composite`, or say `non_differentiable: true`";
        return Err(op.error(Kind::LostGradient, message));
    }
    Ok(Differentiation::None)
}

/// One info with all that is known of it.
struct Maker<'a> {
    op: &'a Op,
    info: &'a DifferentiabilityInfo,
    node: &'a NodePlan,
    guards: Vec<Option<usize>>,
    function: &'a FunctionWithInfo,
}

impl Maker<'_> {
    fn derivative(&self, index: &OpIndex<'_>) -> Result<Derivative> {
        let (info, node, results) = (self.info, self.node, self.op.result_names());
        let uses_grad = node.grad_aliases.iter().any(|(name, _)| name == "grad");
        let mut named_gradients = if uses_grad { Vec::new() } else { node.grad_aliases.clone() };
        named_gradients.sort_by_key(|(_, slot)| *slot);
        let has_formula = |a: &&Arg| info.args_with_derivatives.iter().any(|with| with.name == a.name);
        let fields = node.fields.iter().enumerate();
        Ok(Derivative {
            owner: self.op.rust.name.clone(),
            node: node.op.clone(),
            inputs: self.op.args().filter(has_formula).cloned().collect(),
            steps: self.steps(index)?,
            saved: fields.map(|(k, field)| self.saved(&field.saved, self.guards.get(k).copied().flatten())).collect(),
            uses_grad,
            named_gradients,
            outputs: self.outputs(&results)?,
            forward: self.forward(&results, index)?,
        })
    }

    /// Positions of the results that have history.
    fn outputs(&self, results: &[String]) -> Result<Vec<usize>> {
        let outputs = differentiable_outputs(self.function, Some(self.info));
        let outputs = outputs.map_err(|e| e.at_stage(crate::Stage::Outputs))?;
        // An in-place op hands back `self`, which formulas call its result.
        let shown = |name: &str| if name == "self" { "result".to_owned() } else { ident(name) };
        Ok((0..results.len()).filter(|&k| outputs.iter().any(|output| shown(&output.name) == results[k])).collect())
    }

    /// The type of an argument or result.
    fn type_of(&self, name: &str) -> Ty {
        let argument = self.op.args().find(|a| a.name == name).map(|a| a.ty);
        argument.unwrap_or(if self.op.returns == Returns::List { Ty::Tensors } else { Ty::Tensor })
    }

    fn saved(&self, saved: &SavedAttribute, guard: Option<usize>) -> Saved {
        Saved {
            name: saved.name.clone(),
            ty: if saved.is_whole() { self.type_of(&saved.of) } else { Ty::of_attribute(&saved.ty) },
            of: saved.of.clone(),
            read: (!saved.is_whole()).then(|| Lexed::new(&saved.expr).replace(&saved.of, "$")),
            guard,
            output: self.op.result_names().iter().position(|name| *name == saved.of),
        }
    }

    /// Arguments and results with their types, as formulas name them.
    fn values(&self) -> Vec<(String, Ty)> {
        let results = self.op.result_names().into_iter().map(|name| (name.clone(), self.type_of(&name)));
        self.op.args().map(|a| (a.name.clone(), a.ty)).chain(results).collect()
    }

    fn steps(&self, index: &OpIndex<'_>) -> Result<Vec<Step>> {
        let mut steps = Vec::with_capacity(self.node.steps.len());
        for (step, derivative) in self.node.steps.iter().zip(&self.info.derivatives) {
            let mut scope = self.values();
            for saved in derivative.saved_inputs.iter().chain(&derivative.saved_outputs) {
                scope.push((saved.name.clone(), self.saved(saved, None).ty));
            }
            scope.push(("grad".to_owned(), Ty::Tensor));
            scope.extend(self.info.available_named_gradients.iter().map(|name| (name.clone(), Ty::OptTensor)));
            let formula = Formula::parse(&step.formula, &derivative.original_formula, derivative.line)?;
            let uses_mask = uses(&formula.expr, "grad_input_mask");
            steps.push(Step { inputs: step.inputs.clone(), expr: rewrite(formula, &scope, index)?, uses_mask });
        }
        steps.sort_by_key(|step| step.inputs.first().copied());
        Ok(steps)
    }

    fn forward(&self, results: &[String], index: &OpIndex<'_>) -> Result<Vec<Forward>> {
        let one = |f: &ForwardDerivative| -> Result<Forward> {
            let mut scope = self.values();
            for a in &self.info.args_with_derivatives {
                let ty = self.type_of(&a.name);
                scope.extend(["_t", "_p"].map(|suffix| (format!("{}{suffix}", a.name), ty)));
            }
            let formula = Formula::parse(&f.formula, &f.formula, f.line)?;
            Ok(Forward {
                output: results.iter().position(|r| f.var_names.iter().any(|name| ident(name) == *r)).unwrap_or(0),
                expr: rewrite(formula, &scope, index)?,
                tangents: f.required_inputs_fw_grad.clone(),
                primals: f.required_inputs_primal.clone(),
            })
        };
        let mut forward = self.info.forward_derivatives.iter().map(one).collect::<Result<Vec<_>, CodegenError>>()?;
        forward.sort_by_key(|f| f.output);
        Ok(forward)
    }
}
