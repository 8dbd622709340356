//! The plan of a node: fields, release, and one step per derivative.

use super::{Field, NodePlan, Step, StepMode, Storage};
use crate::ctype::{CBase, CType};
use crate::error::{Kind, Refusal};
use crate::model::{Derivative, DifferentiabilityInfo, SavedAttribute};
use crate::names;
use crate::outputs::{uses_retain_variables, uses_single_grad};
use crate::schema::Type;

/// Plans the node of an info that has derivatives.
pub fn plan_node(info: &DifferentiabilityInfo) -> Result<NodePlan, Refusal> {
    let mut fields = Vec::with_capacity(info.all_saved_inputs.len() + info.all_saved_outputs.len());
    for (saved, is_output) in [(&info.all_saved_inputs, false), (&info.all_saved_outputs, true)] {
        for saved in super::saves::sorted(saved) {
            fields.push(field(saved, is_output, info)?);
        }
    }
    let named = |name: &String| {
        let index = info.available_named_gradients.iter().position(|available| available == name);
        index.map(|index| (name.clone(), index))
    };
    let grad_aliases = if uses_single_grad(Some(info)) {
        vec![("grad".to_owned(), 0)]
    } else {
        info.used_named_gradients.iter().filter_map(named).collect()
    };
    Ok(NodePlan {
        op: info.op.clone().unwrap_or_default(),
        traceable: !names::contains(names::VIEWS_OF_SELF, &info.name),
        fields,
        ranges: info.args_with_derivatives.iter().map(|a| (a.name.clone(), a.ty.is_tensor_list_like())).collect(),
        retain_variables: uses_retain_variables(Some(info)),
        grad_aliases,
        steps: info.derivatives.iter().map(|d| step(d, info)).collect::<Result<_, _>>()?,
    })
}

fn field(saved: &SavedAttribute, is_output: bool, info: &DifferentiabilityInfo) -> Result<Field, Refusal> {
    let (storage, cpp_storage) = storage(saved, is_output, info)?;
    let name = match storage {
        Storage::Tensor | Storage::TensorList => format!("{}_", saved.name),
        Storage::ScalarList | Storage::Value => saved.name.clone(),
    };
    Ok(Field { saved: saved.clone(), storage, cpp_storage, name, is_output })
}

/// How a value of some type is kept, and the C++ type of the field.
fn storage(
    saved: &SavedAttribute,
    is_output: bool,
    info: &DifferentiabilityInfo,
) -> Result<(Storage, String), Refusal> {
    let value = |cpp: &str| Ok((Storage::Value, cpp.to_owned()));
    let tensor_list = || Ok((Storage::TensorList, "std::vector<SavedVariable>".to_owned()));
    let is = |ty: &CType, base: CBase| *ty == CType::Base(base);
    match &saved.ty {
        CType::Base(CBase::Tensor) => Ok((Storage::Tensor, "SavedVariable".to_owned())),
        CType::Optional(elem) if is(elem, CBase::Tensor) => Ok((Storage::Tensor, "SavedVariable".to_owned())),
        CType::Base(CBase::Scalar) if is_output => Ok((Storage::Tensor, "SavedVariable".to_owned())),
        CType::Base(CBase::TensorList | CBase::ITensorListRef) => tensor_list(),
        CType::Vector(elem) if is(elem, CBase::Tensor) => {
            if !(is_output && info.func.func.base().starts_with("_foreach")) {
                let message = format!("the list `{}` can be saved only by foreach operators", saved.name);
                return Err(Refusal::new(Kind::EmitListResult, message));
            }
            tensor_list()
        }
        CType::List(elem) if **elem == CType::from(CBase::Tensor).optional() => tensor_list(),
        CType::ArrayRef(elem) if is(elem, CBase::Scalar) => {
            Ok((Storage::ScalarList, "std::vector<at::Scalar>".to_owned()))
        }
        CType::Base(CBase::IntArrayRef) => value("std::vector<int64_t>"),
        CType::Base(CBase::SymIntArrayRef) => value("std::vector<c10::SymInt>"),
        CType::Base(CBase::OptionalIntArrayRef) => value("c10::OptionalArray<int64_t>"),
        CType::Base(CBase::OptionalSymIntArrayRef) => value("c10::OptionalArray<c10::SymInt>"),
        CType::Optional(elem) if is(elem, CBase::SymIntArrayRef) => value("c10::OptionalArray<c10::SymInt>"),
        CType::Optional(elem) if is(elem, CBase::IntArrayRef) => value("c10::OptionalArray<int64_t>"),
        CType::Optional(elem) if **elem == CType::ArrayRef(Box::new(CBase::Double.into())) => {
            value("c10::OptionalArray<double>")
        }
        CType::Base(CBase::StringView) => value("std::string"),
        CType::Optional(elem) if is(elem, CBase::StringView) => value("std::optional<std::string>"),
        other => {
            let text = other.cpp_type();
            let lower = text.to_lowercase();
            if ["ref", "view", "*", "&"].iter().any(|borrowed| lower.contains(borrowed)) {
                let message = format!("`{}` of type {text} would be borrowed by the node", saved.name);
                return Err(Refusal::new(Kind::EmitBorrowedField, message));
            }
            value(&text)
        }
    }
}

fn step(derivative: &Derivative, info: &DifferentiabilityInfo) -> Result<Step, Refusal> {
    let position = |name: &String| {
        info.args_with_derivatives.iter().position(|a| a.name == *name).ok_or_else(|| {
            Refusal::new(
                Kind::EmitUnknownVar,
                format!("`{name}` has a formula but is not an argument of `{}`", info.name),
            )
        })
    };
    let inputs = derivative.var_names.iter().map(position).collect::<Result<Vec<_>, _>>()?;
    let mode = match derivative.var_names.as_slice() {
        [_] if info.name.starts_with("_foreach_") => StepMode::Foreach,
        [_] => StepMode::Single,
        _ => StepMode::Multi,
    };
    let is_tensor = |name: &String| {
        let mut arguments = info.func.func.arguments.flat_all();
        arguments.any(|a| a.name == *name && (a.ty == Type::TENSOR || a.ty == Type::Optional(Box::new(Type::TENSOR))))
    };
    let undefined_guard = mode != StepMode::Multi
        && !derivative.formula.contains("not_implemented")
        && derivative.var_names.iter().all(is_tensor);
    Ok(Step {
        mode,
        vars: derivative.var_names.clone(),
        inputs,
        mask: mode == StepMode::Multi && derivative.formula.contains("grad_input_mask"),
        undefined_guard,
        formula: derivative.formula.clone(),
    })
}
