//! Turns a formula into Rust that computes it: operators and op calls become fallible function calls.
//!
//! `a * b` becomes `arith::mul(&a, &b)?`, `x.sum()` and `sum(x)` become `ops::sum(&x, ..)?` with defaults filled in,
//! any other lower-case call is a helper in `formulas`. Plain numbers keep Rust's own operators. Guarantees that every
//! name in the result is in scope; whether helpers exist and types fit is the Rust compiler's to say.

use super::formula::{Formula, as_name, locals, name, vec_items};
use super::op::{Op, Returns, ident};
use super::types::Ty;
use crate::error::{CodegenError, Kind, Result};
use std::collections::{BTreeSet, HashMap};
use syn::visit_mut::VisitMut;
use syn::{BinOp, Expr, Lit, UnOp, parse_quote};

/// Ops by Rust name.
pub(super) struct OpIndex<'a>(HashMap<&'a str, &'a Op>);

impl<'a> OpIndex<'a> {
    pub(super) fn new(ops: &'a [Op]) -> Self {
        OpIndex(ops.iter().map(|op| (op.rust.name.as_str(), op)).collect())
    }
}

/// What is known of the value of a sub-expression.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Known {
    /// A name in scope, passed as functions take that type.
    Bound(Ty),
    /// A number with Rust's own operators.
    Plain,
    /// A tensor by value.
    Tensor,
    /// A reference that the author wrote.
    Reference,
    Unknown,
}

/// Rewrites a formula in which the names of `scope` may occur.
pub(super) fn rewrite(formula: Formula, scope: &[(String, Ty)], ops: &OpIndex<'_>) -> Result<Expr> {
    let mut expr = formula.expr.clone();
    let mut rewriter = Rewriter { formula: &formula, scope, locals: locals(&expr), ops, error: None };
    rewriter.expr(&mut expr);
    match rewriter.error {
        Some(e) => Err(e),
        None => Ok(expr),
    }
}

struct Rewriter<'a> {
    formula: &'a Formula,
    scope: &'a [(String, Ty)],
    locals: BTreeSet<String>,
    ops: &'a OpIndex<'a>,
    error: Option<CodegenError>,
}

impl VisitMut for Rewriter<'_> {
    fn visit_expr_mut(&mut self, e: &mut Expr) {
        self.expr(e);
    }
}

impl Rewriter<'_> {
    fn refuse(&mut self, kind: Kind, message: impl std::fmt::Display) -> Known {
        self.error.get_or_insert_with(|| self.formula.error(kind, message));
        Known::Unknown
    }

    fn expr(&mut self, e: &mut Expr) -> Known {
        match e {
            Expr::Path(p) => match p.path.get_ident().map(ToString::to_string) {
                Some(n) => self.name(e, &n),
                // Constants such as `std::f64::consts::LN_2`.
                None if is_constant(&p.path) => Known::Plain,
                None => Known::Unknown,
            },
            Expr::Lit(l) => match l.lit {
                Lit::Int(_) | Lit::Float(_) => Known::Plain,
                _ => Known::Unknown,
            },
            Expr::Paren(p) => {
                let known = self.expr(&mut p.expr);
                if known != Known::Plain {
                    *e = (*p.expr).clone();
                }
                known
            }
            Expr::Unary(u) if matches!(u.op, UnOp::Neg(_)) => {
                let known = self.expr(&mut u.expr);
                if plain(known) {
                    return Known::Plain;
                }
                let operand = lend(&u.expr, known);
                *e = parse_quote!(arith::neg(#operand)?);
                Known::Tensor
            }
            Expr::Binary(b) => {
                let function = match b.op {
                    BinOp::Add(_) => "add",
                    BinOp::Sub(_) => "sub",
                    BinOp::Mul(_) => "mul",
                    BinOp::Div(_) => "div",
                    _ => {
                        self.expr(&mut b.left);
                        self.expr(&mut b.right);
                        return Known::Unknown;
                    }
                };
                // `a * b.conj()` is one call, which leaves real numbers alone.
                let conjugated = match &*b.right {
                    Expr::MethodCall(m) if function == "mul" && m.method == "conj" => Some((*m.receiver).clone()),
                    _ => None,
                };
                let function = if conjugated.is_some() { "mul_conj" } else { function };
                if let Some(receiver) = conjugated {
                    *b.right = receiver;
                }
                let (left, right) = (self.expr(&mut b.left), self.expr(&mut b.right));
                if plain(left) && plain(right) {
                    return Known::Plain;
                }
                let (l, r) = (lend(&b.left, left), lend(&b.right, right));
                let function = quote::format_ident!("{function}");
                *e = parse_quote!(arith::#function(#l, #r)?);
                Known::Tensor
            }
            Expr::Call(c) => match as_name(&c.func) {
                Some(f) if f.starts_with(|c: char| c.is_lowercase() || c == '_') && !self.locals.contains(&f) => {
                    let args: Vec<Expr> = c.args.iter().cloned().collect();
                    let op = self.ops.0.get(f.as_str()).copied();
                    let (new, known) = match op {
                        Some(op) => self.op_call(op, None, args),
                        None => self.helper(&f, args),
                    };
                    *e = new;
                    known
                }
                _ => {
                    c.args.iter_mut().for_each(|a| {
                        self.expr(a);
                    });
                    Known::Unknown
                }
            },
            Expr::MethodCall(m) => {
                let method = m.method.to_string();
                let known = self.expr(&mut m.receiver);
                if method == "conj" {
                    return match known {
                        Known::Plain => {
                            *e = (*m.receiver).clone();
                            known
                        }
                        // `Scalar` has the method itself.
                        Known::Bound(Ty::Scalar) => known,
                        _ => {
                            let receiver = lend(&m.receiver, known);
                            *e = parse_quote!(formulas::conj(#receiver)?);
                            Known::Tensor
                        }
                    };
                }
                let tensor = matches!(known, Known::Bound(Ty::Tensor) | Known::Tensor | Known::Unknown);
                if method == "sym_size" && tensor {
                    let (receiver, dim) = (lend(&m.receiver, known), m.args.first().cloned());
                    *e = parse_quote!(formulas::sym_size(#receiver, #dim)?);
                    return Known::Plain;
                }
                // `x.clone()` is another handle, as everywhere in Rust; the op is the function `clone`.
                let op = self.ops.0.get(method.as_str()).copied().filter(|_| tensor && method != "clone");
                if let Some(op) = op {
                    let receiver = ((*m.receiver).clone(), known);
                    let (new, known) = self.op_call(op, Some(receiver), m.args.iter().cloned().collect());
                    *e = new;
                    return known;
                }
                m.args.iter_mut().for_each(|a| {
                    self.expr(a);
                });
                if plain(known) { Known::Plain } else { Known::Unknown }
            }
            Expr::Index(i) if as_name(&i.expr).as_deref() == Some("grads") => {
                let index = i.index.clone();
                self.expr(&mut i.index);
                *e = parse_quote!(grads.get(#index).and_then(Option::as_ref));
                Known::Bound(Ty::OptTensor)
            }
            Expr::Macro(m) => match vec_items(&m.mac) {
                Some(mut items) => {
                    items.iter_mut().for_each(|i| {
                        self.expr(i);
                    });
                    *e = parse_quote!(vec![#(#items),*]);
                    Known::Unknown
                }
                None => self.refuse(Kind::FormulaMacro, "formulas may use no macro but `vec![a, b]`"),
            },
            Expr::Reference(_) => {
                syn::visit_mut::visit_expr_mut(self, e);
                Known::Reference
            }
            _ => {
                syn::visit_mut::visit_expr_mut(self, e);
                Known::Unknown
            }
        }
    }

    fn name(&mut self, e: &mut Expr, n: &str) -> Known {
        if let Some((_, ty)) = self.scope.iter().find(|(name, _)| name == n) {
            let ident = quote::format_ident!("{}", ident(n));
            *e = parse_quote!(#ident);
            return if ty.is_plain() { Known::Plain } else { Known::Bound(*ty) };
        }
        let special = matches!(n, "grads" | "grad_input_mask" | "None");
        if special || self.locals.contains(n) || n.starts_with(char::is_uppercase) {
            return Known::Unknown;
        }
        let mut known: Vec<&str> = self.scope.iter().map(|(name, _)| name.as_str()).collect();
        known.sort_unstable();
        self.refuse(Kind::FormulaUnknownName, format!("unknown name `{n}`; in scope are {}", known.join(", ")))
    }

    /// A call of a helper: tensors made in place are lent, the rest is as written.
    fn helper(&mut self, function: &str, mut args: Vec<Expr>) -> (Expr, Known) {
        for a in &mut args {
            if self.expr(a) == Known::Tensor {
                *a = parse_quote!(&#a);
            }
        }
        let function = quote::format_ident!("{function}");
        (parse_quote!(formulas::#function(#(#args),*)?), Known::Unknown)
    }

    /// A call of an op: arguments in schema order (the receiver stands for `self`), defaults filled in.
    fn op_call(&mut self, op: &Op, receiver: Option<(Expr, Known)>, args: Vec<Expr>) -> (Expr, Known) {
        let given = args.len() + usize::from(receiver.is_some());
        let mut rest = args.into_iter();
        let mut receiver = receiver;
        let mut passed = Vec::new();
        let has_self = op.args().any(|a| a.name == "self");
        for (k, param) in op.args().enumerate() {
            let is_receiver = if has_self { param.name == "self" } else { k == 0 };
            let given = match receiver.take_if(|_| is_receiver) {
                Some(r) => Some(r),
                None => rest.next().map(|mut a| {
                    let known = self.expr(&mut a);
                    (a, known)
                }),
            };
            match (given, &param.default) {
                (Some((a, known)), _) => passed.push(convert(a, known, param.ty)),
                (None, Some(default)) => passed.push(syn::parse_str(default).unwrap_or_else(|_| name("None"))),
                (None, None) => {
                    let message = format!("`{}` needs the argument `{}`: {}", op.rust.name, param.name, op.native.text);
                    let known = self.refuse(Kind::FormulaCall, message);
                    return (name("None"), known);
                }
            }
        }
        if rest.next().is_some() {
            let message =
                format!("`{}` takes {} arguments, {given} are given: {}", op.rust.name, passed.len(), op.native.text);
            self.refuse(Kind::FormulaCall, message);
        }
        let function = quote::format_ident!("{}", op.rust.name);
        let known = if op.returns == Returns::Tensor { Known::Tensor } else { Known::Unknown };
        (parse_quote!(ops::#function(#(#passed),*)?), known)
    }
}

fn plain(known: Known) -> bool {
    known == Known::Plain
}

fn is_constant(path: &syn::Path) -> bool {
    path.segments.last().is_some_and(|s| s.ident.to_string().chars().all(|c| !c.is_lowercase()))
}

/// An operand by reference.
fn lend(e: &Expr, known: Known) -> Expr {
    match known {
        Known::Bound(Ty::Tensor) | Known::Reference => e.clone(),
        _ => parse_quote!(&#e),
    }
}

/// An argument of an op as its parameter type wants it.
fn convert(e: Expr, known: Known, ty: Ty) -> Expr {
    let is_option = match &e {
        Expr::Path(p) => p.path.is_ident("None"),
        Expr::Call(c) => as_name(&c.func).as_deref() == Some("Some"),
        _ => false,
    };
    if known == Known::Bound(ty) || is_option {
        return e;
    }
    let items = match &e {
        Expr::Array(a) => Some(&a.elems),
        _ => None,
    };
    match ty {
        Ty::Tensor => lend(&e, known),
        Ty::OptTensor => {
            let e = lend(&e, known);
            parse_quote!(Some(#e))
        }
        Ty::Tensors | Ty::Ints | Ty::Floats if known != Known::Reference => parse_quote!(&#e),
        Ty::SymInts | Ty::OptSymInts if items.is_some() => {
            let items = items.into_iter().flatten();
            let list: Expr = parse_quote!(&[#(SymInt::from(#items)),*]);
            if ty == Ty::SymInts { list } else { parse_quote!(Some(#list)) }
        }
        Ty::SymInts if known != Known::Reference => parse_quote!(&#e),
        Ty::Scalar => parse_quote!(Scalar::from(#e)),
        Ty::OptScalar => parse_quote!(Some(Scalar::from(#e))),
        Ty::SymInt => parse_quote!(SymInt::from(#e)),
        Ty::OptSymInt => parse_quote!(Some(SymInt::from(#e))),
        Ty::OptInts | Ty::OptSymInts | Ty::OptFloats => match known {
            Known::Bound(_) | Known::Reference => parse_quote!(Some(#e)),
            _ => parse_quote!(Some(&#e)),
        },
        Ty::OptInt | Ty::OptFloat | Ty::OptBool | Ty::OptStr | Ty::OptDType | Ty::OptDevice | Ty::OptMemoryFormat => {
            match known {
                Known::Bound(_) | Known::Plain => parse_quote!(Some(#e)),
                _ => e,
            }
        }
        _ => e,
    }
}
