//! Forward formulas: the types of their outputs, the inputs they need, the automatic ones.
//!
//! In a forward formula `x_t` is the tangent and `x_p` the primal of a differentiable argument `x`.

use crate::api::Binding;
use crate::dialect::Dialect;
use crate::error::{Kind, Refusal};
use crate::model::{Derivative, ForwardDerivative};
use crate::native::NativeFunction;
use crate::schema::{FunctionSchema, Type};

type Check<T> = std::result::Result<T, Refusal>;

fn fail<T>(kind: Kind, message: impl Into<String>) -> Check<T> {
    Err(Refusal::new(kind, message))
}

/// The formula of an operator that acts on each element alone: the conjugated backward formula.
pub const AUTO_ELEMENT_WISE: &str = "auto_element_wise";
/// The formula of a linear operator: the operator itself, on tangents.
pub const AUTO_LINEAR: &str = "auto_linear";

/// Whether a formula is one of the two automatic ones.
pub fn is_automatic(formula: &str) -> bool {
    matches!(formula, AUTO_ELEMENT_WISE | AUTO_LINEAR)
}

/// A forward formula as written.
pub(crate) struct Definition {
    pub(crate) formula: String,
    pub(crate) var_names: Vec<String>,
    pub(crate) var_types: Vec<Type>,
    pub(crate) line: usize,
}

/// What forward formulas are completed from.
pub(crate) struct Scope<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) func: &'a NativeFunction,
    /// The info's name, which automatic linear formulas call.
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a [Binding],
    pub(crate) args_with_derivatives: &'a [Binding],
    pub(crate) derivatives: &'a [Derivative],
}

/// The types of the outputs a forward key names.
pub(crate) fn output_types(func: &FunctionSchema, names: &[String]) -> Check<Vec<Type>> {
    let named = |name: &Option<String>| name.as_ref().is_some_and(|name| names.contains(name));
    let mut types: Vec<Type> = func.returns.iter().filter(|r| named(&r.name)).map(|r| r.ty.clone()).collect();
    if !types.is_empty() {
        return Ok(types);
    }
    if names == ["result"] {
        return match func.returns.as_slice() {
            [only] => Ok(vec![only.ty.clone()]),
            several => {
                let count = several.len();
                fail(Kind::FwResultMultiReturn, format!("`result` of an operator with {count} returns"))
            }
        };
    }
    for name in names {
        let Some(digits) = name.strip_prefix("result") else { continue };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        match digits.parse::<usize>().ok().and_then(|i| func.returns.get(i)) {
            Some(r) => types.push(r.ty.clone()),
            None => return fail(Kind::FwResultIndex, format!("`{name}`: there are {} returns", func.returns.len())),
        }
    }
    if types.is_empty() {
        let arguments: Vec<&str> = func.arguments.flat_non_out().map(|a| a.name.as_str()).collect();
        let message =
            format!("`{}` names neither an argument ({}) nor an output", names.join(", "), arguments.join(", "));
        return fail(Kind::FwNoOutput, message);
    }
    Ok(types)
}

/// Completes all forward formulas of one key.
pub(crate) fn complete(scope: &Scope<'_>, definitions: &[Definition]) -> Check<Vec<ForwardDerivative>> {
    let single = matches!(definitions, [only] if only.var_names.len() == 1);
    let one = |definition: &Definition| -> Check<ForwardDerivative> {
        let mut tangents = scope.required_inputs(&definition.formula, "_t")?;
        let mut formula = definition.formula.clone();
        if formula == AUTO_ELEMENT_WISE {
            formula = scope.element_wise(single)?;
            tangents = scope.arguments.iter().map(|a| a.name.clone()).collect();
        } else if formula == AUTO_LINEAR {
            formula = scope.linear(single)?;
            tangents = scope.args_with_derivatives.iter().map(|a| a.name.clone()).collect();
        }
        Ok(ForwardDerivative {
            required_inputs_primal: scope.required_inputs(&formula, "_p")?,
            formula,
            var_names: definition.var_names.clone(),
            var_types: definition.var_types.clone(),
            required_inputs_fw_grad: tangents,
            required_original_self_value: false,
            is_reusing_outplace_formula: false,
            line: definition.line,
        })
    };
    definitions.iter().map(|definition| one(definition).map_err(|e| e.on(definition.line))).collect()
}

impl Scope<'_> {
    /// The differentiable arguments a formula uses with a suffix. Without one their meaning is unclear.
    fn required_inputs(&self, formula: &str, suffix: &str) -> Check<Vec<String>> {
        let mut required = Vec::new();
        for a in self.args_with_derivatives {
            let is_list = a.ty.is_tensor_list() && !self.func.is_foreach();
            // C++ formulas take tensor lists whole, tangents and primals together.
            if is_list && self.dialect == Dialect::Cpp {
                continue;
            }
            if !is_list && self.dialect.uses(formula, &a.name) {
                let message = format!(
                    "`{0}` is ambiguous: write `{0}_p` for its value or `{0}_t` for its tangent\n    {formula}",
                    a.name
                );
                return fail(Kind::FwBaseName, message);
            }
            if self.dialect.uses(formula, &format!("{}{suffix}", a.name)) {
                required.push(a.name.clone());
            }
        }
        Ok(required)
    }

    fn element_wise(&self, single: bool) -> Check<String> {
        if self.func.func.name.name.inplace {
            let message = format!("{AUTO_ELEMENT_WISE} on an in-place operator: write the formula");
            return fail(Kind::AutoElemInplace, message);
        }
        let ([input], true) = (self.args_with_derivatives, single) else {
            let message = format!("{AUTO_ELEMENT_WISE} needs one differentiable argument and one output");
            return fail(Kind::AutoElemArity, message);
        };
        let [backward] = self.derivatives else {
            return fail(Kind::AutoElemNoBackward, format!("{AUTO_ELEMENT_WISE} needs one backward formula"));
        };
        let name = &input.name;
        let formula = self.dialect.replace(&backward.original_formula, "grad", &format!("{name}_t.conj()"));
        let formula = self.dialect.replace(&formula, name, &format!("{name}_p"));
        Ok(format!("({formula}).conj()"))
    }

    fn linear(&self, single: bool) -> Check<String> {
        if !single {
            return fail(Kind::AutoLinearOutputs, format!("{AUTO_LINEAR} needs one output"));
        }
        if self.args_with_derivatives.is_empty() {
            return fail(Kind::AutoLinearNoInput, format!("{AUTO_LINEAR} needs a differentiable argument"));
        }
        let differentiable = |name: &str| self.args_with_derivatives.iter().any(|a| a.name == name);
        let on_tangent = |a: &Binding| if differentiable(&a.name) { format!("{}_t", a.name) } else { a.name.clone() };
        let arguments: Vec<String> = self.arguments.iter().map(on_tangent).collect();
        Ok(self.dialect.call(self.func, self.name, &arguments))
    }
}
