//! Declarations: fields that are refused, and variants that are generated.

use crate::common::{Built, build, entry, native, show};
use firebrand_codegen::{Dialect, Sources};

#[test]
fn refused_declarations() {
    #[rustfmt::skip]
    let table: &[(&str, &[&str], &str)] = &[
        ("T-210", &["b(Tensor self) -> Tensor | tags: nope"], "tag_unknown"),
        ("T-211", &["b(Tensor self) -> Tensor | colour: red"], "field_unknown"),
        ("T-212", &["b(Tensor self) -> Tensor | variants: free"], "variant_unknown"),
        ("T-213", &["!b(Tensor self) -> Tensor | dispatch: {Banana: k}"], "dispatch_key_unknown"),
        ("T-214", &["!b(Tensor self) -> Tensor | dispatch: {CompositeImplicitAutograd: b}"], "dispatch_redundant"),
        ("T-215", &["!b(Tensor self) -> Tensor | dispatch: {CompositeImplicitAutograd: b_impl}"], "dispatch_singleton_name"),
        ("T-216", &["!b(Tensor self) -> Tensor | dispatch: {CompositeExplicitAutograd: x, CompositeImplicitAutograd: y}"], "dispatch_two_composites"),
        ("T-217", &["b(Tensor self, Generator? generator=None) -> Tensor"], "tag_seeded_missing"),
        ("T-218", &["!new_b(Tensor self) -> Tensor"], "factory_needs_dispatch"),
        ("T-219", &["b.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!) | variants: method"], "out_variant_method"),
        ("T-221", &["b(Tensor self, int lambda) -> Tensor"], "arg_reserved_word"),
        ("T-222", &["b.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"], "out_without_base"),
        ("T-223", &["b(Tensor self) -> Tensor", "b.again(Tensor self) -> Tensor"], "duplicate_variant"),
    ];
    for (id, ops, expected) in table {
        let found = show(build(&native(ops), "[]", false), |_| "ok".to_owned());
        assert_eq!(found, format!("error native/{expected}"), "{id}");
    }
    let foreach = "- func: _foreach_b(Tensor[] self) -> Tensor[]\n  dispatch: {CPU: k}\n";
    let found = show(build(foreach, "[]", false), |_| "ok".to_owned());
    assert_eq!(found, "error native/foreach_device_check", "T-220");
}

#[test]
fn generated_out_variants() {
    let generated = |built: &Built| {
        let mut functions = built.model.functions.iter().map(|f| &f.func);
        let out = functions.find(|f| f.is_generated() && f.func.is_out_fn());
        out.map_or("none".to_owned(), |f| f.text.clone())
    };
    #[rustfmt::skip]
    let table = [
        ("T-266", "m(Tensor x, Tensor(a!) q, Tensor(b!) r) -> Tensor | autogen: m_functional, m.out",
            "m.out(Tensor x, Tensor(a!) q, Tensor(b!) r, *, Tensor(c!) out) -> Tensor(c!)"),
        ("T-267", "m(Tensor x, Tensor(b!) q, Tensor(a!) r) -> Tensor | autogen: m_functional, m.out",
            "error native/mutable_arg_returned"),
        ("T-268", "m(Tensor x, Tensor(b!) q) -> (Tensor, Tensor) | autogen: m_functional, m.out",
            "error native/mutable_arg_returned"),
        ("T-270", "fork(Tensor self, SymInt n) -> (Tensor l, Tensor[] r) | autogen: fork.out",
            "fork.out(Tensor self, SymInt n, *, Tensor(a!) out0, Tensor(b!)[] out1) -> ()"),
    ];
    for (id, op, expected) in table {
        assert_eq!(show(build(&native(&[op]), "[]", false), generated), expected, "{id}");
    }
}

#[test]
fn a_tags_file_replaces_the_known_tags() {
    let ops = native(&["b(Tensor self) -> Tensor | tags: mine"]);
    let with = |tags| {
        let sources = Sources { native: &ops, derivatives: "[]", tags, dialect: Dialect::Cpp };
        sources.functions().map(|functions| functions[0].has_tag("mine")).map_err(|e| e.kind.as_str())
    };
    assert_eq!(with(None), Err("tag_unknown"));
    assert_eq!(with(Some("- tag: mine\n  desc: ours\n- tag: pt2_compliant_tag\n  desc: automatic\n")), Ok(true));
    assert_eq!(with(Some("mine")), Err("yaml_shape"));
}

#[test]
fn errors_say_where_they_are() {
    let ops = native(&["b(Tensor self) -> Tensor", "c(Tensor self, int lambda) -> Tensor"]);
    let error = build(&ops, "[]", false).err().expect("a reserved word");
    assert_eq!((error.file.as_deref(), error.line), (Some("native_functions.yaml"), Some(3)));
    assert_eq!(
        error.to_string(),
        "native_functions.yaml:3: argument `lambda` of `c` is a Python keyword (native/arg_reserved_word)\n  \
         in c(Tensor self, int lambda) -> Tensor"
    );
    let ops = native(&["b(Tensor self) -> Tensor"]);
    let derivatives = entry("b(Tensor self) -> Tensor", &["result: self_t", "self: g(grad, self.sizes())"]);
    let error = build(&ops, &derivatives, false).err().expect("concrete sizes");
    assert_eq!((error.file.as_deref(), error.line), (Some("derivatives.yaml"), Some(3)));
}
