//! The model as canonical JSON: the contract by which two generators are compared.
//!
//! Keys are sorted, sets are sorted, everything else keeps the order of the model. Nothing is decided
//! here; two models that print alike are alike.

use crate::json::{Json, Object};
use crate::model::{
    Derivative, DifferentiabilityInfo, ForwardDerivative, FunctionWithInfo, OperatorInfos, SavedAttribute,
};
use crate::outputs::DifferentiableOutput;
use crate::pipeline::Model;
use crate::plan::{Field, GeneratedWrapper, Guard, NodePlan, Plans, Step, Storage, Wrapper, WrapperPlan};
use crate::schema::FunctionSchema;

/// Differentiable outputs of one function by key; `None` for functions without a wrapper.
pub(crate) type OutputsByKey = Option<Vec<(String, Vec<DifferentiableOutput>)>>;

/// Prints a model, and the plans if there are any.
pub(crate) fn print(model: &Model, outputs: &[OutputsByKey], plans: Option<&Plans>) -> String {
    Json::document(|o| {
        o.key("format").int(1);
        o.key("functions").list(model.functions.iter().zip(outputs), |json, (f, outputs)| {
            json.object(|o| function(o, f, outputs));
        });
        o.key("infos").list(model.infos.values(), |json, operator| json.object(|o| infos(o, operator)));
        if let Some(plans) = plans {
            o.key("nodes").list(&plans.nodes, |json, plan| json.object(|o| node(o, plan)));
        }
        o.strs("used_dispatch_keys", &model.used_dispatch_keys);
        if let Some(plans) = plans {
            o.key("wrappers").list(&plans.wrappers, |json, plan| json.object(|o| wrappers(o, plan)));
        }
    })
}

/// An error as JSON.
pub(crate) fn print_error(error: &crate::CodegenError) -> String {
    Json::document(|o| {
        o.key("error").object(|o| {
            o.str("kind", error.kind.as_str());
            o.str("stage", error.stage.as_str());
        });
    })
}

/// Pairs sorted by key, as objects need them.
fn by_key<'a, K: AsRef<str> + 'a, V: 'a>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, V)> {
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
    pairs
}

fn function(o: &mut Object<'_>, f: &FunctionWithInfo, outputs: &OutputsByKey) {
    match outputs {
        None => o.key("differentiable_outputs").null(),
        Some(pairs) => o.key("differentiable_outputs").object(|o| {
            for (key, list) in by_key(pairs.iter().map(|(k, v)| (k, v))) {
                o.key(key).list(list, |json, output| {
                    json.object(|o| {
                        o.str("cpp_type", &output.cpp_type.cpp_type());
                        o.str("name", &output.name);
                        o.str("type", &output.ty.to_string());
                    });
                });
            }
        }),
    }
    o.str("dispatch_strategy", if f.use_derived() { "use_derived" } else { "use_type" });
    match &f.fw_derivatives {
        None => o.key("fw_derivatives").null(),
        Some(pairs) => o.key("fw_derivatives").object(|o| {
            for (key, list) in by_key(pairs) {
                forward_list(o, key, list);
            }
        }),
    }
    o.bool("generated", f.func.is_generated());
    match &f.info {
        None => o.key("info").null(),
        Some(pairs) => o.key("info").object(|o| {
            for (key, info) in by_key(pairs) {
                o.key(key).object(|o| {
                    o.str("func", &info.func.text);
                    o.str("name", &info.name);
                    o.opt_str("op", info.op.as_deref());
                });
            }
        }),
    }
    o.bool("is_abstract", f.func.is_abstract);
    o.bool("is_exact", f.is_exact());
    o.str("kind", kind(&f.func.func));
    o.str("match_rule", f.rule.as_str());
    o.str("schema", &f.func.text);
}

fn kind(schema: &FunctionSchema) -> &'static str {
    schema.kind().as_str()
}

fn infos(o: &mut Object<'_>, operator: &OperatorInfos) {
    o.key("by_key").object(|o| {
        for (key, one) in by_key(&operator.by_key) {
            o.key(key).object(|o| info(o, one));
        }
    });
    o.str("kind", kind(&operator.func.func));
    o.str("origin", operator.origin.as_str());
    o.str("schema", &operator.func.text);
}

fn info(o: &mut Object<'_>, info: &DifferentiabilityInfo) {
    saved_list(o, "all_saved_inputs", &info.all_saved_inputs);
    saved_list(o, "all_saved_outputs", &info.all_saved_outputs);
    o.strs("args_with_derivatives", info.args_with_derivatives.iter().map(|a| &a.name));
    o.strs("args_with_derivatives_types", info.args_with_derivatives.iter().map(|a| a.ty.cpp_type()));
    o.strs("available_named_gradients", &info.available_named_gradients);
    o.key("derivatives").list(&info.derivatives, |json, d| json.object(|o| derivative(o, d)));
    forward_list(o, "forward_derivatives", &info.forward_derivatives);
    o.str("func", &info.func.text);
    o.str("name", &info.name);
    o.strs("non_differentiable_arg_names", &info.non_differentiable_arg_names);
    o.opt_str("op", info.op.as_deref());
    match &info.output_differentiability {
        None => o.key("output_differentiability").null(),
        Some(flags) => o.key("output_differentiability").list(flags, |json, flag| json.bool(*flag)),
    }
    match &info.output_differentiability_conditions {
        None => o.key("output_differentiability_conditions").null(),
        Some(conditions) => o.strs("output_differentiability_conditions", conditions),
    }
    o.strs("used_named_gradients", &info.used_named_gradients);
}

fn saved_list(o: &mut Object<'_>, key: &str, list: &[SavedAttribute]) {
    o.key(key).list(list, |json, saved| {
        json.object(|o| {
            o.str("expr", &saved.expr);
            o.str("name", &saved.name);
            o.str("type", &saved.ty.cpp_type());
        });
    });
}

fn derivative(o: &mut Object<'_>, derivative: &Derivative) {
    o.str("formula", &derivative.formula);
    o.strs("named_gradients", &derivative.named_gradients);
    o.str("original_formula", &derivative.original_formula);
    saved_list(o, "saved_inputs", &derivative.saved_inputs);
    saved_list(o, "saved_outputs", &derivative.saved_outputs);
    o.strs("var_names", &derivative.var_names);
}

fn forward_list(o: &mut Object<'_>, key: &str, list: &[ForwardDerivative]) {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    o.key(key).list(list, |json, forward| {
        json.object(|o| {
            o.str("formula", &forward.formula);
            o.bool("is_reusing_outplace_formula", forward.is_reusing_outplace_formula);
            o.strs("required_inputs_fw_grad", sorted(&forward.required_inputs_fw_grad));
            o.strs("required_inputs_primal", sorted(&forward.required_inputs_primal));
            o.bool("required_original_self_value", forward.required_original_self_value);
            o.strs("var_names", &forward.var_names);
            o.strs("var_types", forward.var_types.iter().map(ToString::to_string));
        });
    });
}

fn node(o: &mut Object<'_>, plan: &NodePlan) {
    o.bool("any_grad_defined", plan.any_grad_defined());
    o.key("fields").list(&plan.fields, |json, field| {
        json.object(|o| {
            o.str("field", &field.name);
            o.bool("is_output", field.is_output);
            o.str("storage", &field.cpp_storage);
        });
    });
    o.key("grad_aliases").list(&plan.grad_aliases, |json, (name, index)| json.strs([name, &index.to_string()]));
    o.strs("list_sizes", plan.ranges.iter().filter(|(_, is_list)| *is_list).map(|(name, _)| name));
    o.bool("locks", plan.locks());
    o.str("op", &plan.op);
    o.key("ranges").list(&plan.ranges, |json, (name, is_list)| {
        let size = if *is_list { format!("{name}_size_") } else { "1".to_owned() };
        json.strs([name, &size]);
    });
    o.strs("release", plan.fields.iter().flat_map(release));
    let lists = plan.fields.iter().filter(|field| field.storage == Storage::TensorList);
    o.strs("released_checks", lists.map(|field| &field.saved.name));
    o.bool("retain_variables", plan.retain_variables);
    o.key("steps").list(&plan.steps, |json, one| json.object(|o| step(o, one)));
    o.str("superclass", if plan.traceable { "TraceableFunction" } else { "Node" });
}

/// The statements that release a field.
fn release(field: &Field) -> Vec<String> {
    let name = &field.name;
    match field.storage {
        Storage::Tensor => vec![format!("{name}.reset_data();")],
        Storage::TensorList => vec![format!("{name}.clear();"), format!("{name}released_ = true;")],
        Storage::ScalarList => vec![format!("{name}.clear();")],
        Storage::Value => Vec::new(),
    }
}

fn step(o: &mut Object<'_>, step: &Step) {
    if step.undefined_guard {
        o.str("formula", &format!("any_grad_defined ? ({}) : Tensor()", step.formula));
    } else {
        o.str("formula", &step.formula);
    }
    o.key("inputs").list(&step.inputs, |json, input| json.int(*input));
    o.bool("mask", step.mask);
    o.str("mode", step.mode.as_str());
    o.bool("undefined_guard", step.undefined_guard);
    o.strs("vars", &step.vars);
}

fn wrappers(o: &mut Object<'_>, plan: &WrapperPlan) {
    o.key("by_key").object(|o| {
        for (key, one) in by_key(plan.by_key.iter().map(|(k, w)| (k, w))) {
            o.key(key).object(|o| match one {
                Wrapper::NotImplementedFallback => o.str("style", "not_implemented_fallback"),
                Wrapper::Generated(wrapper) => generated(o, wrapper),
            });
        }
    });
    o.str("schema", &plan.schema);
}

fn generated(o: &mut Object<'_>, wrapper: &GeneratedWrapper) {
    o.strs("check_inplace", &wrapper.check_inplace);
    o.bool("clone_self_for_forward", wrapper.clone_self_for_forward);
    o.bool("clone_self_for_save", wrapper.clone_self_for_save);
    o.opt_str("extra_condition", wrapper.extra_condition.as_deref());
    o.str("forward_ad", wrapper.forward_ad.as_str());
    o.str("history", wrapper.history.as_str());
    o.strs("must_not_require_grad", &wrapper.must_not_require_grad);
    o.strs("out_checks", &wrapper.out_checks);
    o.strs("requires_grad_of", &wrapper.requires_grad_of);
    o.bool("resets_accumulator", wrapper.resets_accumulator);
    o.key("saves").list(&wrapper.saves, |json, save| {
        json.object(|o| {
            o.str("expr", &save.expr);
            o.str("field", &save.field);
            o.opt_str("guard", save.guard.as_ref().map(Guard::cpp).as_deref());
        });
    });
    o.str("style", "generated");
}
