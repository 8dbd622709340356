//! The emission plan: what autograd code must do, as data and without the code around it.
//!
//! A [`NodePlan`] describes the backward node of an info, a [`WrapperPlan`] the function that records it.
//! Both follow from the model alone; `emit` turns them into Rust, `dump` prints them.

mod node;
mod saves;
mod wrapper;

pub use node::plan_node;
pub use wrapper::plan_wrapper;

use crate::error::{Result, Stage};
use crate::model::{FunctionWithInfo, Infos, SavedAttribute};

/// How a node keeps a saved value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// A tensor, packed so that saved-tensor hooks see it and in-place changes are noticed.
    Tensor,
    /// A list of such tensors with a flag that says it was released.
    TensorList,
    /// A list of scalars with such a flag, which nothing checks.
    ScalarList,
    /// Anything else, by value.
    Value,
}

/// A field of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// What is saved in it.
    pub saved: SavedAttribute,
    /// How it is kept.
    pub storage: Storage,
    /// The C++ type of the field.
    pub cpp_storage: String,
    /// Its name: tensors have a final underscore.
    pub name: String,
    /// Whether it holds an output of the operator, which must not keep the node alive.
    pub is_output: bool,
}

/// How one derivative is evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepMode {
    /// One argument.
    Single,
    /// Several arguments at once; the formula is a tuple.
    Multi,
    /// One list argument, element by element.
    Foreach,
}

impl StepMode {
    /// The mode as printed in dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
            Self::Foreach => "foreach",
        }
    }
}

/// The evaluation of one derivative.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// How.
    pub mode: StepMode,
    /// The arguments it computes gradients for.
    pub vars: Vec<String>,
    /// Their positions among the arguments with derivatives.
    pub inputs: Vec<usize>,
    /// Whether `grad_input_mask` is in scope.
    pub mask: bool,
    /// Whether the formula is evaluated only when some gradient is defined.
    pub undefined_guard: bool,
    /// The formula, without the guard.
    pub formula: String,
}

/// The node of one info.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePlan {
    /// Its name.
    pub op: String,
    /// Whether compiled autograd may trace through it.
    pub traceable: bool,
    /// Its fields, inputs first, each part sorted by name.
    pub fields: Vec<Field>,
    /// Every argument with derivatives, and whether it is a list with a saved size.
    pub ranges: Vec<(String, bool)>,
    /// Whether it tells formulas if saved values must survive.
    pub retain_variables: bool,
    /// Names of gradients and their indices.
    pub grad_aliases: Vec<(String, usize)>,
    /// One per derivative.
    pub steps: Vec<Step>,
}

impl NodePlan {
    /// Whether any field is released, and the node therefore locked.
    pub fn locks(&self) -> bool {
        self.fields.iter().any(|field| field.storage != Storage::Value)
    }

    /// Whether some step asks if any gradient is defined.
    pub fn any_grad_defined(&self) -> bool {
        self.steps.iter().any(|step| step.undefined_guard)
    }
}

/// What a wrapper does with tangents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForwardAd {
    /// Evaluates formulas.
    Formula,
    /// Refuses them.
    Forbidden,
    /// Differentiates a registered decomposition.
    Decomposition,
    /// Ignores them: there is nothing to differentiate.
    None,
}

impl ForwardAd {
    /// The value as printed in dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Formula => "formula",
            Self::Forbidden => "forbidden",
            Self::Decomposition => "decomposition",
            Self::None => "none",
        }
    }
}

/// How outputs get their history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum History {
    /// They are new.
    Set,
    /// They were there before and changed.
    Rebase,
    /// They get none.
    None,
}

impl History {
    /// The value as printed in dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Rebase => "rebase",
            Self::None => "none",
        }
    }
}

/// The condition under which a saved value will be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guard {
    /// The argument with derivatives at this position needs a gradient.
    Needs(usize),
    /// C++ text.
    Condition(String),
}

impl Guard {
    /// The guard as C++ text.
    pub fn cpp(&self) -> String {
        match self {
            Guard::Needs(position) => format!("grad_fn->should_compute_output({position})"),
            Guard::Condition(text) => text.clone(),
        }
    }
}

/// A statement that fills a field of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Save {
    /// The field.
    pub field: String,
    /// The value.
    pub expr: String,
    /// The condition under which it is needed.
    pub guard: Option<Guard>,
}

/// A generated wrapper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeneratedWrapper {
    /// What it does with tangents.
    pub forward_ad: ForwardAd,
    /// How outputs get their history.
    pub history: History,
    /// Outputs that must allow being written in place.
    pub check_inplace: Vec<String>,
    /// Arguments that make it record a node.
    pub requires_grad_of: Vec<String>,
    /// A further condition for recording.
    pub extra_condition: Option<String>,
    /// Tensor arguments without a formula.
    pub must_not_require_grad: Vec<String>,
    /// `self` is cloned before the call because a forward formula needs it.
    pub clone_self_for_forward: bool,
    /// `self` is cloned before the call because it is saved.
    pub clone_self_for_save: bool,
    /// What is saved: inputs, then outputs.
    pub saves: Vec<Save>,
    /// Names in the two checks that out operators make.
    pub out_checks: Vec<String>,
    /// The gradient accumulator of `self` is forgotten.
    pub resets_accumulator: bool,
}

/// The wrapper of one function under one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrapper {
    /// A generic fallback that records "not implemented".
    NotImplementedFallback,
    /// Generated code.
    Generated(Box<GeneratedWrapper>),
}

/// The wrappers of one function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrapperPlan {
    /// The function's schema.
    pub schema: String,
    /// One wrapper per key.
    pub by_key: Vec<(String, Wrapper)>,
}

/// All plans of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plans {
    /// One node per info with an op, in model order.
    pub nodes: Vec<NodePlan>,
    /// One wrapper per function that needs one, in match order.
    pub wrappers: Vec<WrapperPlan>,
}

/// Plans everything: nodes first, then wrappers.
pub fn plan(infos: &Infos, functions: &[FunctionWithInfo]) -> Result<Plans> {
    let all = infos.values().flat_map(|operator| operator.by_key.values());
    let with_op = all.filter(|info| info.has_derivatives());
    let nodes =
        with_op.map(|info| plan_node(info).map_err(|e| e.at_stage(Stage::Emit).at(info.func.line, &info.func.text)));
    let nodes = nodes.collect::<Result<_>>()?;
    let wrapped = functions.iter().filter(|f| wrapper::needs_wrapper(f));
    let wrappers = wrapped.map(|f| plan_wrapper(f).map_err(|e| e.at_stage(Stage::Emit).at(f.func.line, &f.func.text)));
    Ok(Plans { nodes, wrappers: wrappers.collect::<Result<_>>()? })
}
