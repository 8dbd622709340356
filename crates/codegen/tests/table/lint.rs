//! Lint: every hazard is found where it is, and nowhere else; coverage.

use crate::common::{entry, native};
use firebrand_codegen::Dialect;
use firebrand_codegen::coverage::coverage;
use firebrand_codegen::lint::{Hazard, lint};

const B: &str = "b(Tensor self, Tensor o, int dim) -> Tensor";
const BO_: &str = "b_(Tensor(a!) self, Tensor o, int dim) -> Tensor(a!)";
const EACH: &str = "_foreach_b(Tensor[] self, Tensor[] o, int dim) -> Tensor[]";
const ZERO: &str = "zero_(Tensor(a!) self) -> Tensor(a!)";

#[test]
fn every_hazard_is_found() {
    let options = "n(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor";
    let b = |fields: &[&str]| entry(B, fields);
    #[rustfmt::skip]
    let table: Vec<(Hazard, Vec<&str>, String)> = vec![
        (Hazard::NameIsSuffix, vec!["b(Tensor f, Tensor self) -> Tensor"],
            entry("b(Tensor f, Tensor self) -> Tensor", &["f: g(grad, self.sym_sizes())"])),
        (Hazard::DotIsAnything, vec![B], b(&["self: g(grad, self+dim())"])),
        (Hazard::SharedSeparator, vec![B], b(&["self: grad*grad"])),
        (Hazard::MethodIsArgument, vec![B], b(&["self: g(grad.dim())"])),
        (Hazard::ForeachPlainText, vec![B, EACH], b(&["self: gradual(grad)"])),
        (Hazard::EntryReplaced, vec![B], b(&["self: grad"]) + &b(&["self: grad * 2"])),
        (Hazard::UnknownName, vec![B], b(&["self, bogus: g(grad, grad_input_mask)"])),
        (Hazard::MemoryFormatNotSaved, vec![options], entry(options, &["self: g(grad, memory_format)"])),
        (Hazard::TangentModified, vec!["zero_(Tensor(a!) self) -> Tensor(a!) | autogen: zero, zero.out"],
            entry(ZERO, &["self: grad", "result: self_t.zero_()"])),
        (Hazard::ForeachInplaceMethod, vec![ZERO, "_foreach_zero_(Tensor(a!)[] self) -> ()"],
            entry(ZERO, &["self: grad", "result: self_t.zero_()"])),
        (Hazard::MaskIndex, vec![B], b(&["o: grad", "self: not_implemented(\"b\")", "o, dim: g(grad, wrap_opt_if(o, grad_input_mask[0]))"])),
        (Hazard::NamedGradientIndex, vec!["s(Tensor self) -> (Tensor, Tensor y)"],
            entry("s(Tensor self) -> (Tensor, Tensor y)", &["self: g(grad_y)"])),
        (Hazard::SelfTwice, vec![B, BO_], b(&["self: grad", "result: self_t * self_p + result"])),
        (Hazard::ForeachMarkLost, vec![B, EACH], b(&["self: grad", "o: non_differentiable"])),
        (Hazard::WrapOptIfCut, vec![B], b(&["self, o: g(grad, wrap_opt_if(o,grad_input_mask[0]))"])),
        (Hazard::LettersCollide, vec!["m(Tensor x, Tensor(b!) q, Tensor(a!) r) -> Tensor | autogen: m.out"], "[]".to_owned()),
        (Hazard::ReadingsDiffer, vec![B], b(&["self: \"not_implemented(\\\"b of o\\\")\""])),
        (Hazard::FormulaIgnored, vec![B], b(&["dispatch: {Default: {self: grad}}", "o: ignored"])),
        (Hazard::EntryUnused, vec![B], entry("c(Tensor self) -> Tensor", &["self: grad"])),
    ];
    // Two are of Rust formulas only; see below.
    let mut shown: Vec<Hazard> = vec![Hazard::FormulaSyntax, Hazard::LocalIsArgument];
    for (hazard, ops, derivatives) in table {
        let report = lint(&native(&ops), &derivatives, Dialect::Cpp).expect("readable files");
        let found: Vec<_> = report.findings.iter().map(|f| f.hazard).collect();
        assert_eq!(found, [hazard], "{}\n{report}", hazard.as_str());
        shown.push(hazard);
    }
    shown.sort();
    assert_eq!(shown, Hazard::ALL);
}

#[test]
fn clean_files_have_no_findings() {
    let fields = ["self: g(grad, o, self.scalar_type(), dim)", "o: grad * self", "result: self_t * o_p"];
    let report = lint(&native(&[B, BO_, EACH]), &entry(B, &fields), Dialect::Cpp).expect("valid files");
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!((report.entries, report.formulas), (1, 3));
}

#[test]
fn rust_formulas_have_their_own_hazards() {
    let ops = "- func: b(Tensor self, Tensor o) -> Tensor\n  shape: binary\n  kernel: b\n  inplace: true\n";
    let lint = |self_: &str, o: &str| {
        let formulas = [format!("self: '{self_}'"), format!("o: '{o}'")];
        let derivatives = entry("b(Tensor self, Tensor o) -> Tensor", &formulas.each_ref().map(String::as_str));
        let report = lint(ops, &derivatives, Dialect::Rust).expect("readable files");
        report.findings.iter().map(|f| (f.hazard, f.line)).collect::<Vec<_>>()
    };
    assert_eq!(lint("grad * * o", "grad * self)"), [(Hazard::FormulaSyntax, 3)]);
    // A dereferenced name parses, and a method or a word in a string is no argument.
    assert_eq!(lint("g(grad, grad.o(), \"o\")", "{ let x = grad; x.self_() }"), []);
    let local = [(Hazard::LocalIsArgument, 2)];
    assert_eq!(lint("o(grad)", "grad"), local);
    assert_eq!(lint("{ let o = grad; o }", "grad"), local);
    assert_eq!(lint("g(grad, |o| o.exp())", "grad"), local);
}

#[test]
fn forms_of_our_ops_are_declared() {
    let ops = "- func: b(Tensor self) -> Tensor\n  shape: s\n  kernel: k\n  inplace: true\n";
    let derivatives = entry("b_(Tensor(a!) self) -> Tensor(a!)", &["self: zeros_like(grad)"]);
    assert!(lint(ops, &derivatives, Dialect::Rust).expect("readable files").findings.is_empty());
    let unused = entry("b.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", &["self: grad"]);
    assert_eq!(lint(ops, &unused, Dialect::Rust).expect("readable files").count(Hazard::EntryUnused), 1);
}

#[test]
fn our_own_files_are_clean() {
    let ops = include_str!("../../../../schema/ops.yaml");
    let derivatives = include_str!("../../../../schema/derivatives.yaml");
    let report = lint(ops, derivatives, Dialect::Rust).expect("readable files");
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn coverage_compares_operators() {
    let ops = ["b(Tensor self) -> Tensor", "c(Tensor self) -> Tensor", "d.x(Tensor self) -> Tensor"];
    let derivatives: String = ops[..2].iter().map(|op| entry(op, &["self: grad"])).collect();
    let ours = [("b", false), ("d.x", false), ("mine", true)];
    let found = coverage(&native(&ops), &derivatives, &ours, "not wanted:\n- c*\n").expect("valid");
    assert_eq!((found.operators.len(), found.present()), (3, 2));
    assert_eq!(found.without_derivative().collect::<Vec<_>>(), ["b"]);
    assert_eq!(found.missing_differentiable().collect::<Vec<_>>(), ["c"]);
    assert_eq!(found.only_ours, ["mine"]);
    assert_eq!(
        found.entries.iter().map(|(n, here)| (n.as_str(), *here)).collect::<Vec<_>>(),
        [("b", true), ("c", false)]
    );
    assert_eq!(found.out_of_scope["c"], "not wanted");
    assert_eq!(found.owed().count(), 0);
    let owed = coverage(&native(&ops), &derivatives, &ours, "").expect("valid");
    assert_eq!(owed.owed().collect::<Vec<_>>(), ["c"]);
    for (text, said) in [("why:\n- b\n", "`b` names no operator that is missing"), ("- c\n", "expected `reason:`")] {
        let e = coverage(&native(&ops), &derivatives, &ours, text).expect_err(text);
        assert!(e.to_string().contains(said), "{e}");
    }
}

#[test]
fn derivatives_inside_declarations_are_looked_at_too() {
    let ops = "- func: b(Tensor self) -> Tensor\n  shape: s\n  kernel: k\n  derivative:\n    self: grad *\n";
    let report = lint(ops, "", Dialect::Rust).expect("readable files");
    let found: Vec<_> = report.findings.iter().map(|f| (f.hazard, f.line)).collect();
    assert_eq!(found, [(Hazard::FormulaSyntax, 5)], "{report}");
    assert_eq!(report.entries, 1);
}
