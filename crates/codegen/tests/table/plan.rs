//! Plans: fields, steps and guards of nodes; history, checks and saves of wrappers.

use crate::common::{Built, build, entry, first, json, native, saved, show};
use firebrand_codegen::plan::{GeneratedWrapper, Guard, NodePlan, StepMode, Wrapper};

const BOWD: &str = "b(Tensor self, Tensor o, Tensor? w, int d) -> Tensor";
const B: &str = "b(Tensor self) -> Tensor";
const P: &str = "pair(Tensor self, Tensor other) -> (Tensor, Tensor)";

fn node(built: &Built) -> &NodePlan {
    &built.plans.as_ref().expect("plans").nodes[0]
}

fn wrapper<'a>(built: &'a Built, schema: &str) -> &'a GeneratedWrapper {
    let plans = built.plans.as_ref().expect("plans");
    let plan = plans.wrappers.iter().find(|w| w.schema.starts_with(schema)).expect("a wrapper");
    match &plan.by_key[0].1 {
        Wrapper::Generated(wrapper) => wrapper,
        Wrapper::NotImplementedFallback => panic!("{schema} is a fallback"),
    }
}

fn fields(built: &Built) -> String {
    let one = |f: &firebrand_codegen::plan::Field| {
        let output = if f.is_output { " (output)" } else { "" };
        format!("{} {}{output}", f.cpp_storage, f.name)
    };
    node(built).fields.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn guards(built: &Built) -> String {
    let quote = |guard: &Option<Guard>| guard.as_ref().map_or("null".to_owned(), |g| format!("\"{}\"", g.cpp()));
    let saves = wrapper(built, "b").saves.iter().map(|s| format!("\"{}\": {}", s.field, quote(&s.guard)));
    format!("{{{}}}", saves.collect::<Vec<_>>().join(", "))
}

fn saves(wrapper: &GeneratedWrapper) -> String {
    let saves = wrapper.saves.iter().map(|s| format!("\"{}\": \"{}\"", s.field, s.expr));
    format!("`{{{}}}`", saves.collect::<Vec<_>>().join(", "))
}

fn recording(wrapper: &GeneratedWrapper) -> String {
    format!("history {}, forward {}, saves {}", wrapper.history.as_str(), wrapper.forward_ad.as_str(), saves(wrapper))
}

fn step(built: &Built) -> String {
    let step = node(built).steps.iter().find(|s| s.vars[0] == "self").expect("a step");
    let formula = match step.undefined_guard {
        true => format!("any_grad_defined ? ({}) : Tensor()", step.formula),
        false => step.formula.clone(),
    };
    format!("`{formula}`, input {:?}", step.inputs)
}

fn multi_step(built: &Built) -> String {
    let step = &node(built).steps[0];
    let guard = if step.undefined_guard { "undefined guard" } else { "no undefined guard" };
    format!("step mode {}, mask {}, {guard}; guards `{}`", step.mode.as_str(), step.mask, guards(built))
}

fn op_and_guards(built: &Built) -> String {
    format!("op {}; guards `{}`", node(built).op, guards(built))
}

fn lists(built: &Built) -> String {
    let node = node(built);
    let of_lists = |suffix: &str| {
        let lists = node.ranges.iter().filter(|(_, list)| *list);
        lists.map(|(name, _)| format!("{name}{suffix}")).collect::<Vec<_>>()
    };
    let ranges = node.ranges.iter().map(|(name, list)| {
        let size = if *list { format!("{name}_size_") } else { "1".to_owned() };
        format!("[\"{name}\", \"{size}\"]")
    });
    let guarded = node.steps.iter().filter(|s| s.undefined_guard).map(|s| s.vars.join(",")).collect::<Vec<_>>();
    format!(
        "list sizes {}; ranges [{}]; undefined guard only on {}",
        json(of_lists("")),
        ranges.collect::<Vec<_>>().join(", "),
        guarded.join(",")
    )
}

fn retain(built: &Built) -> String {
    let names: Vec<_> = node(built).fields.iter().map(|f| f.name.as_str()).collect();
    format!("retain_variables {}; fields `{}`", node(built).retain_variables, names.join(", "))
}

fn bare(built: &Built) -> String {
    let node = node(built);
    format!(
        "{} fields, lock {}, grad aliases {:?}, undefined guard {}",
        node.fields.len(),
        node.locks(),
        node.grad_aliases,
        node.any_grad_defined()
    )
}

fn aliases(built: &Built) -> String {
    format!("grad aliases {:?}", node(built).grad_aliases)
}

fn must_not(built: &Built) -> String {
    format!("must not require grad: {}", json(&wrapper(built, "b").must_not_require_grad))
}

fn guard_of_o(built: &Built) -> String {
    let save = wrapper(built, "b").saves.iter().find(|s| s.field == "o_").expect("a save");
    save.guard.as_ref().map_or("null".to_owned(), |guard| format!("\"{}\"", guard.cpp()))
}

const THREE: &[&str] = &["self: grad * o", "o: grad * self * result", "w: g(grad, self, d)"];

#[test]
fn one_operator() {
    type Row = (&'static str, &'static str, &'static [&'static str], fn(&Built) -> String, &'static str);
    #[rustfmt::skip]
    let table: &[Row] = &[
        ("T-192", BOWD, THREE, fields, "int64_t d, SavedVariable o_, SavedVariable self_, SavedVariable result_ (output)"),
        ("T-193", BOWD, THREE, guards, r#"{"d": null, "o_": "grad_fn->should_compute_output(0)", "self_": null, "result_": null}"#),
        ("T-194", BOWD, THREE, step, "`any_grad_defined ? (grad * o) : Tensor()`, input [0]"),
        ("T-195", BOWD, &["self, o, w: bb(grad, wrap_opt_if(o, grad_input_mask[0] || grad_input_mask[2]), self, grad_input_mask)"], multi_step,
            r#"step mode multi, mask true, no undefined guard; guards `{"o_": "grad_fn->should_compute_output(0) || grad_fn->should_compute_output(2)", "self_": null}`"#),
        ("T-196", "b_backward(Tensor grad_output, Tensor self) -> Tensor", &["grad_output: grad * self", "self: grad * grad_output"], op_and_guards,
            r#"op BBackwardBackward0; guards `{"grad_output_": null, "self_": null}`"#),
        ("T-197", "p(Tensor[] ts, Tensor x, int d) -> Tensor", &["ts: g(grad, ts, d)", "x: grad * x"], lists,
            r#"list sizes ["ts"]; ranges [["ts", "ts_size_"], ["x", "1"]]; undefined guard only on x"#),
        ("T-198", B, &["self: g(grad, self, retain_variables)"], retain, "retain_variables true; fields `self_`"),
        ("T-199", B, &["self: not_implemented(\"b\")"], bare, "0 fields, lock false, grad aliases [], undefined guard false"),
        ("T-200", "s(Tensor self) -> (Tensor values, Tensor extra)", &["self: g(grad_extra, values)"], aliases,
            r#"grad aliases [("grad_extra", 1)]"#),
        ("T-201", "b(Tensor self, Tensor idx, Tensor output) -> Tensor", &["self: grad"], must_not, r#"must not require grad: ["idx"]"#),
        ("T-203", "!b(Tensor self) -> Tensor", &["self: grad"], bare, "error emit/emit_needs_dispatch"),
        ("T-204", P, &["self: g(grads[0], grads[1])", "result0: self_t"], bare, "error emit/emit_forward_count"),
        ("T-205", B, &["self: grad", "result: zeros()"], bare, "error emit/emit_no_tangent"),
        ("T-206", P, &["self, bogus: grad"], bare, "error emit/emit_unknown_var"),
        ("T-207", B, &["self: grad", "output_differentiability: [false]"], bare, "error emit/emit_derivative_ignored"),
        ("T-208", "z(Tensor self, float[] z) -> Tensor", &["self: g(grad, z)"], bare, "error emit/emit_borrowed_field"),
        ("T-262", BOWD, &["self, o, w: bb(grad, wrap_opt_if(o,grad_input_mask[0]), grad_input_mask)"], guard_of_o, r#""rad_input_mask[0]""#),
        ("T-263", BOWD, &["self, o, w: bb(grad, wrap_opt_if( o, grad_input_mask[0]), grad_input_mask)"], guard_of_o, "null"),
        ("T-264", BOWD, &["self, o, w: bb(grad, wrap_opt_if(o , grad_input_mask[0]), grad_input_mask)"], guard_of_o, "error emit/emit_wrap_opt_if"),
        ("T-265", BOWD, &["self, o, w: bb(grad, wrap_opt_if(o, (grad_input_mask[0] && d > 1) || grad_input_mask[1]), grad_input_mask)"], guard_of_o,
            r#""(grad_fn->should_compute_output(0) && d > 1""#),
    ];
    for (id, op, formulas, what, expected) in table {
        let schema = op.trim_start_matches('!');
        let found = show(build(&native(&[op]), &entry(schema, formulas), true), *what);
        assert_eq!(found, *expected, "{id}");
    }
}

#[test]
fn release_of_lists() {
    let op = "p(Tensor[] ts, Tensor x, int d) -> Tensor";
    let text = firebrand_codegen::dump(&native(&[op]), &entry(op, &["ts: g(grad, ts, d)", "x: grad * x"]), true);
    let text = text.expect("T-197");
    let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(r#""release": [ "ts_.clear();", "ts_released_ = true;", "x_.reset_data();" ]"#), "T-197");
    assert!(flat.contains(r#""released_checks": [ "ts" ]"#), "T-197");
}

#[test]
fn variants_of_one_operator() {
    let ops = native(&[B, "b_(Tensor(a!) self) -> Tensor(a!)", "b.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"]);
    let derivatives = entry(B, &["self: grad * self * result", "result: self_t * self_p"]);
    let built = build(&ops, &derivatives, true).expect("T-202");
    let table = [
        (
            "b(",
            r#"history set, forward formula, saves `{"self_": "SavedVariable(self, false)", "result_": "SavedVariable(result, true)"}`"#,
        ),
        (
            "b_(",
            r#"history rebase, forward formula, saves `{"self_": "SavedVariable(original_self.value(), false)", "result_": "SavedVariable(self, true, self.is_view())"}`"#,
        ),
        ("b.out(", "history rebase, forward forbidden, saves `{}`"),
    ];
    for (schema, expected) in table {
        assert_eq!(recording(wrapper(&built, schema)), expected, "T-202 {schema}");
    }
}

#[test]
fn views_are_not_traceable() {
    let view = "view.x(Tensor(a) self, SymInt[] n) -> Tensor(a)";
    let ops = native(&[view, "view_copy.x(Tensor self, SymInt[] n) -> Tensor | tags: view_copy"]);
    let built = build(&ops, &entry(view, &["self: grad.reshape(self.sym_sizes())"]), true).expect("T-209");
    let nodes = &built.plans.as_ref().expect("plans").nodes;
    let found: Vec<_> = nodes.iter().map(|n| (n.op.as_str(), n.traceable)).collect();
    assert_eq!(found, [("ViewBackward0", false), ("ViewBackward0_copy", true)], "T-209");
}

#[test]
fn types_of_arguments_and_outputs() {
    let out = "bun.out(Tensor[] items, int dim=0, *, Tensor(a!) out) -> Tensor(a!)";
    let op = "bun(Tensor[] items, int dim=0) -> Tensor";
    let ops = native(&[
        "!bun(Tensor[] items, int dim=0) -> Tensor | structured_delegate: bun.out",
        &format!("{out} | structured: True"),
    ]);
    let built = build(&ops, &entry(op, &["items: un(grad, items, dim)", "result: jvp(items)"]), false).expect("T-271");
    let info = first(&built);
    assert_eq!(info.args_with_derivatives[0].ty.cpp_type(), "const at::ITensorListRef &", "T-271");
    assert_eq!(saved(&info.all_saved_inputs), "`(items; at::ITensorListRef; items), (dim; int64_t; dim)`", "T-271");
    assert!(info.forward_derivatives[0].required_inputs_fw_grad.is_empty(), "T-271");

    let op = "rub_(Tensor(a!) self, Tensor other) -> Tensor(a!)";
    let ops = native(&[&format!("{op} | use_const_ref_for_mutable_tensors: True")]);
    let built = build(&ops, &entry(op, &["self: grad"]), false).expect("T-272");
    let info = first(&built);
    let f = &built.model.functions[0];
    let outputs = firebrand_codegen::outputs::differentiable_outputs(f, Some(info)).expect("T-272");
    let found = (info.args_with_derivatives[0].ty.cpp_type(), outputs[0].cpp_type.cpp_type());
    assert_eq!(found, ("const at::Tensor &".to_owned(), "const at::Tensor &".to_owned()), "T-272");
}

#[test]
fn foreach_nodes_and_wrappers() {
    let op = "bexp(Tensor self) -> Tensor";
    let ops = native(&[op, "_foreach_bexp(Tensor[] self) -> Tensor[]", "_foreach_bexp_(Tensor(a!)[] self) -> ()"]);
    let derivatives = entry(op, &["self: grad * result * self", "result: self_t * self_p * result"]);
    let built = build(&ops, &derivatives, true).expect("T-273");
    let table = [
        (
            "T-273",
            "_foreach_bexp(",
            r#"history set, forward formula, saves `{"self_": "make_saved_variable_list(self, false)", "result_": "make_saved_variable_list(result, true)"}`"#,
        ),
        (
            "T-274",
            "_foreach_bexp_(",
            r#"history rebase, forward formula, saves `{"self_": "SavedVariable(original_selfs[i].value(), false)", "result_": "SavedVariable(self[i], true, self[i].is_view())"}`"#,
        ),
    ];
    for (id, schema, expected) in table {
        assert_eq!(recording(wrapper(&built, schema)), expected, "{id}");
    }
    let node = &built.plans.as_ref().expect("plans").nodes[1];
    assert_eq!(node.op, "ForeachBexpBackward0", "T-275");
    let fields: Vec<_> = node.fields.iter().map(|f| format!("{} {}", f.cpp_storage, f.name)).collect();
    assert_eq!(fields, ["std::vector<SavedVariable> self_", "std::vector<SavedVariable> result_"], "T-275");
    assert_eq!(node.steps[0].mode, StepMode::Foreach, "T-275");
    assert_eq!(node.ranges, [("self".to_owned(), true)], "T-275");
}

#[test]
fn functions_without_entries() {
    let ops = native(&[B, "d(Tensor self) -> Tensor", "argmax(Tensor self) -> Tensor"]);
    let built = build(&ops, &entry(B, &["self: grad"]), true).expect("T-276");
    let styles = built.plans.as_ref().expect("plans").wrappers.iter().map(|w| {
        let style = match w.by_key[0].1 {
            Wrapper::Generated(_) => "generated",
            Wrapper::NotImplementedFallback => "not_implemented_fallback",
        };
        format!("{} {style}", w.schema.split('(').next().unwrap_or_default())
    });
    let styles = styles.collect::<Vec<_>>().join("; ");
    assert_eq!(styles, "argmax generated; b generated; d not_implemented_fallback", "T-276");
}
