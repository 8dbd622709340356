//! The differentiability model: what is known about the derivatives of every operator, as plain data.
//!
//! Built by `load`, completed by `matching`, read by `plan`, `dump` and emission. Nothing here computes.

use crate::api::Binding;
use crate::ctype::CType;
use crate::dialect::Dialect;
use crate::native::NativeFunction;
use crate::schema::Type;
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The key of formulas that hold for every backend.
pub const DEFAULT_KEY: &str = "Default";

/// A value captured when the forward runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SavedAttribute {
    /// What the formula calls it.
    pub name: String,
    /// Its type, without references.
    pub ty: CType,
    /// The argument or output it is, or is read from.
    pub of: String,
    /// The expression read at save time.
    pub expr: String,
}

impl SavedAttribute {
    /// A value that is saved whole.
    pub fn whole(name: &str, ty: CType) -> Self {
        SavedAttribute { name: name.to_owned(), ty, of: name.to_owned(), expr: name.to_owned() }
    }

    /// Whether the value is saved whole.
    pub fn is_whole(&self) -> bool {
        self.name == self.of
    }
}

/// One backward formula.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Derivative {
    /// The formula over saved values.
    pub formula: String,
    /// The formula as written.
    pub original_formula: String,
    /// The arguments whose gradients it computes.
    pub var_names: Vec<String>,
    /// What it saves of the inputs, repeats included.
    pub saved_inputs: Vec<SavedAttribute>,
    /// What it saves of the outputs, repeats included.
    pub saved_outputs: Vec<SavedAttribute>,
    /// The gradients it uses by name.
    pub named_gradients: BTreeSet<String>,
    /// Where it was written, from 1.
    pub line: usize,
}

/// One forward formula.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForwardDerivative {
    /// The formula over tangents `x_t` and primals `x_p`.
    pub formula: String,
    /// The outputs whose tangents it computes.
    pub var_names: Vec<String>,
    /// The types of those outputs.
    pub var_types: Vec<Type>,
    /// Inputs whose tangent it needs.
    pub required_inputs_fw_grad: Vec<String>,
    /// Inputs whose primal it needs; `self` may come twice.
    pub required_inputs_primal: Vec<String>,
    /// It needs the value of `self` before the operator changed it.
    pub required_original_self_value: bool,
    /// An out-of-place formula that an in-place operator uses.
    pub is_reusing_outplace_formula: bool,
    /// Where it was written, from 1.
    pub line: usize,
}

/// Everything known about one operator under one autograd key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DifferentiabilityInfo {
    /// The entry's operator name, without overload.
    pub name: String,
    /// The language of its formulas.
    pub dialect: Dialect,
    /// The canonical function.
    pub func: Rc<NativeFunction>,
    /// The name of its node; `None` when nothing is differentiable.
    pub op: Option<String>,
    /// Backward formulas.
    pub derivatives: Vec<Derivative>,
    /// Forward formulas.
    pub forward_derivatives: Vec<ForwardDerivative>,
    /// What all backward formulas save of the inputs, without repeats.
    pub all_saved_inputs: Vec<SavedAttribute>,
    /// What all backward formulas save of the outputs, without repeats.
    pub all_saved_outputs: Vec<SavedAttribute>,
    /// Gradients that formulas may use by name; the position is the index into `grads`.
    pub available_named_gradients: Vec<String>,
    /// Gradients that formulas do use by name.
    pub used_named_gradients: BTreeSet<String>,
    /// Arguments with a backward formula, in argument order.
    pub args_with_derivatives: Vec<Binding>,
    /// Arguments declared not differentiable.
    pub non_differentiable_arg_names: Vec<String>,
    /// Per return, whether it is differentiable, if the entry says so.
    pub output_differentiability: Option<Vec<bool>>,
    /// The condition under which the only output is differentiable.
    pub output_differentiability_conditions: Option<Vec<String>>,
}

impl DifferentiabilityInfo {
    /// Whether some argument has a backward formula.
    pub fn has_derivatives(&self) -> bool {
        !self.args_with_derivatives.is_empty()
    }
}

/// Infos of one operator by autograd key, in file order.
pub type InfosByKey = IndexMap<String, Rc<DifferentiabilityInfo>>;

/// Where the infos of an operator come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// An entry of the derivatives file.
    Entry,
    /// The copy of a view that has one.
    ViewCopy,
    /// Made for a foreach operator from its reference.
    Foreach,
}

impl Origin {
    /// The origin as printed in dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::ViewCopy => "view_copy",
            Self::Foreach => "foreach",
        }
    }
}

/// The infos of one operator.
#[derive(Clone, Debug)]
pub struct OperatorInfos {
    /// The operator.
    pub func: Rc<NativeFunction>,
    /// Where they come from.
    pub origin: Origin,
    /// The infos.
    pub by_key: InfosByKey,
}

/// All infos, by printed schema, in model order.
pub type Infos = IndexMap<String, OperatorInfos>;

/// How a function found its infos.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatchRule {
    /// An info for this very schema.
    Exact,
    /// The info of the functional operator with the same signature.
    FunctionalSignature,
    /// A generated variant of an operator that is not functional.
    MutableForGenerated,
    /// Made for this foreach operator.
    ForeachGenerated,
    /// The reference's own info, used element by element.
    ForeachReuse,
    /// No info.
    None,
}

impl MatchRule {
    /// The rule as printed in dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::FunctionalSignature => "functional_signature",
            Self::MutableForGenerated => "mutable_for_generated",
            Self::ForeachGenerated => "foreach_generated",
            Self::ForeachReuse => "foreach_reuse",
            Self::None => "none",
        }
    }
}

/// One declared or generated operator with the infos it uses.
#[derive(Clone, Debug)]
pub struct FunctionWithInfo {
    /// The operator.
    pub func: Rc<NativeFunction>,
    /// Its infos, if it has any.
    pub info: Option<InfosByKey>,
    /// Its forward formulas by key; `None` without infos.
    pub fw_derivatives: Option<IndexMap<String, Rc<[ForwardDerivative]>>>,
    /// How the infos were found.
    pub rule: MatchRule,
}

impl FunctionWithInfo {
    /// Whether the infos were made for this very operator.
    pub fn is_exact(&self) -> bool {
        matches!(self.rule, MatchRule::Exact | MatchRule::ForeachGenerated)
    }

    /// The keys wrappers are made for, each with its info: `Default` without one when there are no infos.
    pub fn keys(&self) -> Vec<(&str, Option<&Rc<DifferentiabilityInfo>>)> {
        match &self.info {
            Some(infos) => infos.iter().map(|(key, info)| (key.as_str(), Some(info))).collect(),
            None => vec![(DEFAULT_KEY, None)],
        }
    }

    /// The forward formulas under a key.
    pub fn forward(&self, key: &str) -> &[ForwardDerivative] {
        self.fw_derivatives.as_ref().and_then(|by_key| by_key.get(key)).map_or(&[], |list| list)
    }

    /// Whether a wrapper is needed: there are kernels below autograd or a formula.
    pub fn use_derived(&self) -> bool {
        let has_derivatives = || self.info.iter().flat_map(IndexMap::values).any(|i| i.has_derivatives());
        self.func.is_abstract || has_derivatives()
    }
}
