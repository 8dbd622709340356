//! Derivative formulas of the model as Rust expressions, read with `syn`: which names each uses and binds.
//!
//! What becomes of operators and calls is `rewrite`.

use crate::error::{CodegenError, Kind, Result, Stage};
use std::collections::BTreeSet;
use std::fmt::Display;
use syn::visit::Visit;
use syn::{Expr, Pat, parse_quote};

/// A formula as written.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) expr: Expr,
}

impl Formula {
    /// Reads a formula in which saved attributes are named already; errors show it as `written` on `line`.
    pub(super) fn parse(formula: &str, written: &str, line: usize) -> Result<Formula> {
        match syn::parse_str(formula) {
            Ok(expr) => Ok(Formula { line, text: written.to_owned(), expr }),
            Err(e) => Err(error(Kind::FormulaSyntax, e, written, line)),
        }
    }

    /// An error about this formula.
    pub(super) fn error(&self, kind: Kind, message: impl Display) -> CodegenError {
        error(kind, message, &self.text, self.line)
    }
}

fn error(kind: Kind, message: impl Display, written: &str, line: usize) -> CodegenError {
    let message = format!("{message}\n    {written}");
    CodegenError { line: Some(line), ..CodegenError::new(Stage::Derivatives, kind, message) }
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
