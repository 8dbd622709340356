//! Derivative formulas: mathematical Rust expressions, read with `syn`.
//!
//! Knows names and attributes: which names a formula uses, and which attributes of tensors it asks for, so that nodes
//! keep sizes instead of tensors. What becomes of operators and calls is `rewrite`.

use super::types::Ty;
use crate::error::{CodegenError, Kind, Result, Stage};
use std::collections::BTreeSet;
use syn::visit::Visit;
use syn::visit_mut::VisitMut;
use syn::{Expr, Pat, parse_quote};

/// A formula as written.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) expr: Expr,
}

impl Formula {
    /// Reads a formula that stands on `line`; a syntax error says where in the text.
    pub(super) fn parse(text: &str, line: usize) -> Result<Formula> {
        match syn::parse_str::<Expr>(text) {
            Ok(expr) => Ok(Formula { line, text: text.to_owned(), expr }),
            Err(e) => {
                let at = e.span().start();
                let shown = text.lines().nth(at.line.saturating_sub(1)).unwrap_or(text);
                let caret = format!("{}^", " ".repeat(at.column));
                let message = format!("the formula is no Rust expression: {e}\n    {shown}\n    {caret}");
                let mut error = CodegenError::new(Stage::Derivatives, Kind::FormulaSyntax, message);
                error.line = Some(line);
                Err(error)
            }
        }
    }

    /// An error about this formula.
    pub(super) fn error(&self, kind: Kind, message: impl std::fmt::Display) -> CodegenError {
        let message = format!("{message}\n    {}", self.text);
        let mut error = CodegenError::new(Stage::Derivatives, kind, message);
        error.line = Some(self.line);
        error
    }

    /// Whether a name occurs as a value.
    pub(super) fn uses(&self, name: &str) -> bool {
        uses(&self.expr, name)
    }
}

/// The name, if the expression is nothing but a name.
pub(super) fn as_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(p) if p.qself.is_none() => p.path.get_ident().map(ToString::to_string),
        Expr::Paren(p) => as_name(&p.expr),
        _ => None,
    }
}

/// A name as an expression.
pub(super) fn name(text: &str) -> Expr {
    let ident = quote::format_ident!("{text}");
    parse_quote!(#ident)
}

/// The arguments of `vec![..]`, the one macro that formulas may use.
pub(super) fn vec_items(mac: &syn::Macro) -> Option<Vec<Expr>> {
    let items = mac.parse_body_with(syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated);
    items.ok().filter(|_| mac.path.is_ident("vec")).map(|p| p.into_iter().collect())
}

/// Every single name that occurs as a value (not as a function, method or field).
pub(super) fn names(expr: &Expr) -> BTreeSet<String> {
    struct Names(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_expr_path(&mut self, p: &'ast syn::ExprPath) {
            self.0.extend(p.path.get_ident().map(ToString::to_string));
        }
        fn visit_expr_call(&mut self, c: &'ast syn::ExprCall) {
            if as_name(&c.func).is_none() {
                self.visit_expr(&c.func);
            }
            c.args.iter().for_each(|a| self.visit_expr(a));
        }
        fn visit_macro(&mut self, mac: &'ast syn::Macro) {
            for item in vec_items(mac).unwrap_or_default() {
                self.0.extend(names(&item));
            }
        }
    }
    let mut found = Names(BTreeSet::new());
    found.visit_expr(expr);
    found.0
}

/// Whether a name occurs as a value.
pub(super) fn uses(expr: &Expr, name: &str) -> bool {
    names(expr).contains(name)
}

/// Names that the formula binds itself: closure parameters and `let`.
pub(super) fn locals(expr: &Expr) -> BTreeSet<String> {
    struct Locals(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Locals {
        fn visit_pat(&mut self, p: &'ast Pat) {
            if let Pat::Ident(i) = p {
                self.0.insert(i.ident.to_string());
            }
            syn::visit::visit_pat(self, p);
        }
    }
    let mut found = Locals(BTreeSet::new());
    found.visit_expr(expr);
    found.0
}

/// Replaces names by expressions.
pub(super) fn substitute(expr: &mut Expr, with: &dyn Fn(&str) -> Option<Expr>) {
    struct Replace<'a>(&'a dyn Fn(&str) -> Option<Expr>);
    impl VisitMut for Replace<'_> {
        fn visit_expr_mut(&mut self, e: &mut Expr) {
            if let Some(new) = as_name(e).and_then(|n| (self.0)(&n)) {
                *e = new;
                return;
            }
            if let Expr::Macro(m) = e
                && let Some(mut items) = vec_items(&m.mac)
            {
                items.iter_mut().for_each(|i| self.visit_expr_mut(i));
                *e = parse_quote!(vec![#(#items),*]);
                return;
            }
            syn::visit_mut::visit_expr_mut(self, e);
        }
    }
    Replace(with).visit_expr_mut(expr);
}

/// A part of an argument or result that a node keeps instead of the whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attribute {
    /// Of which argument or result.
    pub(super) of: String,
    /// The name of the saved value.
    pub(super) name: String,
    pub(super) ty: Ty,
    /// Text that reads it; `$` stands for the tensor.
    pub(super) read: String,
}

/// Methods of a tensor whose value is saved instead of the tensor: suffix of the saved name, type, text that reads it.
const METHODS: &[(&str, &str, Ty, &str)] = &[
    ("sym_sizes", "sym_sizes", Ty::SymInts, "$.sym_sizes()"),
    ("sym_strides", "sym_strides", Ty::SymInts, "$.strides().iter().map(|&n| n.into()).collect()"),
    ("numel", "numel", Ty::Usize, "$.numel()"),
    ("dtype", "scalar_type", Ty::DType, "$.dtype()"),
    ("device", "device", Ty::Device, "$.device()"),
    ("ndim", "dim", Ty::Usize, "$.ndim()"),
    ("spec", "spec", Ty::Spec, "$.spec().clone()"),
    ("layout", "layout", Ty::Layout, "$.layout().clone()"),
];

/// Replaces the attributes of the named tensors by saved names; `tensors` gives names with their types.
pub(super) fn take_attributes(expr: &mut Expr, tensors: &[(String, Ty)]) -> Vec<Attribute> {
    let mut take = Take { tensors, found: Vec::new() };
    take.visit_expr_mut(expr);
    take.found
}

struct Take<'a> {
    tensors: &'a [(String, Ty)],
    found: Vec<Attribute>,
}

impl Take<'_> {
    /// The name and type, if the expression names a tensor of the op.
    fn tensor(&self, expr: &Expr) -> Option<(String, Ty)> {
        let n = as_name(expr)?;
        self.tensors.iter().find(|(name, _)| *name == n).cloned()
    }

    fn attribute(&self, e: &Expr) -> Option<Attribute> {
        match e {
            Expr::Call(c) => {
                let (function, arg) = (as_name(&c.func)?, c.args.first().filter(|_| c.args.len() == 1)?);
                let (of, ty) = self.tensor(strip_reference(arg))?;
                let (suffix, kept, read) = match (function.as_str(), ty) {
                    ("zeros_like", Ty::Tensor) => ("info", Ty::Spec, "$.spec().clone()"),
                    ("to_args_sizes", Ty::Tensors) => {
                        ("args_sizes", Ty::SizesList, "$.iter().map(|t| t.sym_sizes()).collect()")
                    }
                    ("to_args_dtypes", Ty::Tensors) => {
                        ("args_scalartypes", Ty::DTypes, "$.iter().map(|t| t.dtype()).collect()")
                    }
                    _ => return None,
                };
                Some(Attribute { name: format!("{of}_{suffix}"), of, ty: kept, read: read.to_owned() })
            }
            Expr::MethodCall(m) => {
                let method = m.method.to_string();
                let row = METHODS.iter().find(|r| r.0 == method);
                if let (Some((of, Ty::Tensor)), Some((_, suffix, ty, read)), true) =
                    (self.tensor(&m.receiver), row, m.args.is_empty())
                {
                    return Some(Attribute { name: format!("{of}_{suffix}"), of, ty: *ty, read: (*read).to_owned() });
                }
                if let (Some((of, Ty::Tensor)), "sym_size", Some(dim)) =
                    (self.tensor(&m.receiver), method.as_str(), m.args.first())
                {
                    let dim = quote::quote!(#dim).to_string().replace(' ', "");
                    let name = format!("{of}_sym_argsize_{}", dim.replace('-', "minus_"));
                    return Some(Attribute {
                        of,
                        name,
                        ty: Ty::SymInt,
                        read: format!("formulas::sym_size($, {dim})?"),
                    });
                }
                // `x.map(|t| t.sym_sizes())` of an optional tensor.
                if let ("map", Some(Expr::Closure(c))) = (method.as_str(), m.args.first()) {
                    let receiver = match &*m.receiver {
                        Expr::MethodCall(inner) if inner.method == "as_ref" => &inner.receiver,
                        other => other,
                    };
                    let (Some((of, Ty::OptTensor)), Expr::MethodCall(body)) = (self.tensor(receiver), &*c.body) else {
                        return None;
                    };
                    if body.method == "sym_sizes" && body.args.is_empty() {
                        let read = "$.map(|t| t.sym_sizes())".to_owned();
                        return Some(Attribute { name: format!("{of}_sym_sizes_opt"), of, ty: Ty::OptSymInts, read });
                    }
                }
                None
            }
            _ => None,
        }
    }
}

impl VisitMut for Take<'_> {
    fn visit_expr_mut(&mut self, e: &mut Expr) {
        if let Some(found) = self.attribute(e) {
            let saved = name(&found.name);
            let zeros = matches!(e, Expr::Call(_)) && found.ty == Ty::Spec;
            *e = if zeros { parse_quote!(zeros_of(#saved)) } else { saved };
            if !self.found.contains(&found) {
                self.found.push(found);
            }
            return;
        }
        if let Expr::Macro(m) = e
            && let Some(mut items) = vec_items(&m.mac)
        {
            items.iter_mut().for_each(|i| self.visit_expr_mut(i));
            *e = parse_quote!(vec![#(#items),*]);
            return;
        }
        syn::visit_mut::visit_expr_mut(self, e);
    }
}

fn strip_reference(e: &Expr) -> &Expr {
    match e {
        Expr::Reference(r) => strip_reference(&r.expr),
        Expr::Paren(p) => strip_reference(&p.expr),
        e => e,
    }
}
