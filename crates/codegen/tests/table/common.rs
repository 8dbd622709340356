//! What the table tests share: short ways to write inputs, and ways to say what came out.

use firebrand_codegen::model::{DifferentiabilityInfo, ForwardDerivative, FunctionWithInfo, SavedAttribute};
use firebrand_codegen::outputs::differentiable_outputs;
use firebrand_codegen::plan::Plans;
use firebrand_codegen::{CodegenError, Dialect, Model, Sources};

/// A model with its plans, when the stage was asked for.
pub(crate) struct Built {
    pub(crate) model: Model,
    pub(crate) plans: Option<Plans>,
}

/// Declarations with a CPU kernel each. What follows a `|` is added to the declaration; a `!` before the
/// schema leaves the kernel out.
pub(crate) fn native(ops: &[&str]) -> String {
    let mut text = String::new();
    for op in ops {
        let (schema, extra) = op.split_once(" | ").unwrap_or((op, ""));
        let (schema, kernel) = match schema.strip_prefix('!') {
            Some(schema) => (schema, ""),
            None => (schema, "  dispatch: {CPU: k}\n"),
        };
        let foreach = if schema.starts_with("_foreach") { "  device_check: NoCheck\n" } else { "" };
        text += &format!("- func: {schema}\n{kernel}{foreach}");
        for line in extra.split(" | ").filter(|line| !line.is_empty()) {
            text += &format!("  {line}\n");
        }
    }
    text
}

/// One entry. Fields are YAML lines.
pub(crate) fn entry(schema: &str, fields: &[&str]) -> String {
    let mut text = format!("- name: {schema}\n");
    for field in fields {
        text += &format!("  {field}\n");
    }
    text
}

/// Runs the stages in order.
pub(crate) fn build(native: &str, derivatives: &str, plan: bool) -> Result<Built, CodegenError> {
    let sources = Sources { native, derivatives, tags: None, dialect: Dialect::Cpp };
    // The dump runs every stage that can refuse the input.
    sources.dump(plan)?;
    let model = sources.model()?;
    let plans = if plan { Some(model.plans()?) } else { None };
    Ok(Built { model, plans })
}

/// What a row shows of a result; errors are `error stage/kind`.
pub(crate) fn show(built: Result<Built, CodegenError>, what: fn(&Built) -> String) -> String {
    match built {
        Ok(built) => what(&built),
        Err(e) => format!("error {}/{}", e.stage, e.kind),
    }
}

/// A list as JSON.
pub(crate) fn json<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// The first info of the model.
pub(crate) fn first(built: &Built) -> &DifferentiabilityInfo {
    &built.model.infos[0].by_key[0]
}

/// The function of that name.
pub(crate) fn function<'a>(built: &'a Built, name: &str) -> &'a FunctionWithInfo {
    let found = built.model.functions.iter().find(|f| f.func.func.name.to_string() == name);
    found.unwrap_or_else(|| panic!("no function {name}"))
}

/// Saved attributes as `(name; type; expression)`.
pub(crate) fn saved(list: &[SavedAttribute]) -> String {
    let items: Vec<_> = list.iter().map(|s| format!("({}; {}; {})", s.name, s.ty, s.expr)).collect();
    if items.is_empty() { "none".to_owned() } else { format!("`{}`", items.join(", ")) }
}

/// The first derivative: formula and what it saves.
pub(crate) fn first_derivative(built: &Built) -> String {
    let d = &first(built).derivatives[0];
    format!("formula `{}`; inputs {}; outputs {}", d.formula, saved(&d.saved_inputs), saved(&d.saved_outputs))
}

/// The first info: op, variables, arguments.
pub(crate) fn first_op(built: &Built) -> String {
    let info = first(built);
    let vars: Vec<_> = info.derivatives.iter().map(|d| json(&d.var_names)).collect();
    format!(
        "op {}; vars [{}]; args {}; non-differentiable {}",
        info.op.as_deref().unwrap_or("null"),
        vars.join(", "),
        json(info.args_with_derivatives.iter().map(|a| &a.name)),
        json(&info.non_differentiable_arg_names)
    )
}

/// The forward formulas of the first info.
pub(crate) fn first_forward(built: &Built) -> String {
    let list = &first(built).forward_derivatives;
    let f = &list[0];
    let op = if first(built).op.is_none() { "; op null" } else { "" };
    format!(
        "{} forward; vars {}; types {}; formula `{}`; tangents {}; primals {}{op}",
        list.len(),
        json(&f.var_names),
        json(f.var_types.iter().map(ToString::to_string)),
        f.formula,
        json(sorted(&f.required_inputs_fw_grad)),
        json(sorted(&f.required_inputs_primal)),
    )
}

/// A forward formula as an in-place function sees it.
pub(crate) fn in_place_forward(f: &ForwardDerivative) -> String {
    format!(
        "`{}`; primals {}; original_self {}; reusing {}",
        f.formula,
        json(sorted(&f.required_inputs_primal)),
        f.required_original_self_value,
        f.is_reusing_outplace_formula
    )
}

pub(crate) fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

/// How a function was matched.
pub(crate) fn rule(built: &Built, name: &str) -> &'static str {
    function(built, name).rule.as_str()
}

/// Names of the differentiable outputs of a function under its first key.
pub(crate) fn outputs(built: &Built, name: &str) -> String {
    let f = function(built, name);
    let info = f.keys()[0].1.map(|info| &**info);
    json(differentiable_outputs(f, info).expect("outputs").into_iter().map(|o| o.name))
}
