//! An operator as emission sees it: its declaration with the Rust types of arguments and results.
//!
//! Guarantees that every type and default has a Rust spelling. Knows nothing of derivatives.

use super::foreach;
use super::types::Ty;
use crate::api::rust::is_dropped;
use crate::dialect::is_ident;
use crate::error::{CodegenError, Kind, Refusal, Result, Stage};
use crate::native::{Form, NativeFunction, RustFunction};
use crate::schema::{Argument, FunctionSchema, Return, Type};
use std::rc::Rc;

/// One argument of a Rust function.
#[derive(Clone, Debug)]
pub(super) struct Arg {
    /// As in the schema.
    pub(super) name: String,
    /// As in Rust.
    pub(super) ident: String,
    pub(super) ty: Ty,
    /// The default in Rust.
    pub(super) default: Option<String>,
    /// The default as data, if there is one other than none.
    pub(super) given: Option<String>,
    pub(super) keyword: bool,
}

/// What a function gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    Nothing,
    Tensor,
    /// Several tensors, by name.
    Tensors(Vec<String>),
    List,
    /// Tensors and lists of tensors, of an op that is called with boxed arguments only.
    Mixed(Vec<Ty>),
    Value(Ty),
}

/// One operator.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) native: Rc<NativeFunction>,
    pub(super) rust: RustFunction,
    /// Every argument of the schema but out arguments, dropped ones included.
    pub(super) all_args: Vec<Arg>,
    pub(super) outs: Vec<Arg>,
    pub(super) returns: Returns,
    /// How it calls its reference, if it is a foreach op.
    pub(super) foreach: Option<foreach::Call>,
}

/// Rust's spelling of an argument name.
pub(super) fn ident(name: &str) -> String {
    match name {
        "self" | "a" | "type" | "in" | "where" | "mod" | "ref" | "move" | "loop" | "match" | "fn" | "use" | "box"
        | "unsafe" => {
            format!("{name}_")
        }
        _ => name.to_owned(),
    }
}

fn constant(schema: &FunctionSchema) -> String {
    schema.name.to_string().replace('.', "_").to_uppercase()
}

/// Every operator, in file order.
pub(super) fn read<'a>(functions: impl IntoIterator<Item = &'a Rc<NativeFunction>>) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    for f in functions {
        let Some(rust) = &f.rust else { continue };
        let op = Op::new(f, rust).map_err(|e| e.at_stage(Stage::Native).at(f.line, &f.text))?;
        ops.push(op);
    }
    foreach::resolve(&mut ops)?;
    Ok(ops)
}

impl Op {
    fn new(native: &Rc<NativeFunction>, rust: &RustFunction) -> Result<Op, Refusal> {
        let arguments = &native.func.arguments;
        let op_constant = constant(&native.func);
        if !is_ident(&op_constant) {
            return refuse(
                Kind::NameEmpty,
                format!("`{op_constant}`, made from the operator's name, is not a valid Rust name"),
            );
        }
        let positional = arguments.flat_positional().map(|a| argument(a, false));
        Ok(Op {
            all_args: positional
                .chain(arguments.flat_kwarg_only().map(|a| argument(a, true)))
                .collect::<Result<_, _>>()?,
            outs: arguments.out.iter().map(|a| argument(a, true)).collect::<Result<_, _>>()?,
            returns: returns(&native.func, rust.boxed)?,
            native: Rc::clone(native),
            rust: rust.clone(),
            foreach: None,
        })
    }

    /// The arguments that Rust functions take.
    pub(super) fn args(&self) -> impl Iterator<Item = &Arg> {
        self.all_args.iter().filter(|a| a.ty != Ty::Dropped)
    }

    /// `mul.Tensor`.
    pub(super) fn name(&self) -> String {
        self.native.func.name.to_string()
    }

    /// `mul`, as error messages of the running program name it.
    pub(super) fn base(&self) -> String {
        self.native.func.name.name.to_string()
    }

    /// The constant of its id: `MUL_TENSOR`.
    pub(super) fn constant(&self) -> String {
        constant(&self.native.func)
    }

    /// The names of its results, as formulas and Rust code call them.
    pub(super) fn result_names(&self) -> Vec<String> {
        match &self.returns {
            Returns::Tensors(names) => names.clone(),
            Returns::Tensor | Returns::List => vec!["result".to_owned()],
            Returns::Nothing | Returns::Mixed(_) | Returns::Value(_) => Vec::new(),
        }
    }

    /// The name of its method.
    pub(super) fn method_name(&self) -> String {
        match (&self.rust.method_name, self.rust.form) {
            (Some(name), Form::Inplace) => format!("{name}_"),
            (Some(name), _) => name.clone(),
            (None, _) => self.rust.name.clone(),
        }
    }

    /// An error about its declaration.
    pub(super) fn error(&self, kind: Kind, message: impl Into<String>) -> CodegenError {
        CodegenError::new(Stage::Native, kind, message).at(self.native.line, &self.native.text)
    }
}

fn refuse<T>(kind: Kind, message: String) -> Result<T, Refusal> {
    Err(Refusal::new(kind, message))
}

fn argument(a: &Argument, keyword: bool) -> Result<Arg, Refusal> {
    let ty = if is_dropped(a) { Some(Ty::Dropped) } else { Ty::of(&a.ty) };
    let Some(ty) = ty else {
        return refuse(Kind::TypeUnknown, format!("`{}`: the type `{}` has no Rust form yet", a.name, a.ty));
    };
    if !is_ident(&ident(&a.name)) {
        return refuse(Kind::ArgReservedWord, format!("the argument `{}` cannot be called so in Rust", a.name));
    }
    let size = match &a.ty {
        Type::List(_, size) => *size,
        Type::Optional(inner) => inner.as_list().and_then(|(_, size)| size),
        _ => None,
    };
    let default = match &a.default {
        Some(text) if ty != Ty::Dropped => match ty.default(text, size) {
            Some(default) if syn::parse_str::<syn::Expr>(&default).is_ok() => Some(default),
            _ => {
                let message = format!("`{}`: the default `{text}` has no Rust form", a.name);
                return refuse(Kind::DefaultUnsupported, message);
            }
        },
        _ => None,
    };
    let given = a.default.as_deref().filter(|text| *text != "None" && ty != Ty::Dropped);
    let given = given.and_then(|text| ty.given(text, size));
    Ok(Arg { name: a.name.clone(), ident: ident(&a.name), ty, default, given, keyword })
}

fn returns(schema: &FunctionSchema, boxed: bool) -> Result<Returns, Refusal> {
    let unsupported =
        |r: &Return| Refusal::new(Kind::ReturnUnsupported, format!("the return `{r}` has no Rust form yet"));
    Ok(match schema.returns.as_slice() {
        [] => Returns::Nothing,
        [only] => match Ty::of(&only.ty).ok_or_else(|| unsupported(only))? {
            Ty::Tensor => Returns::Tensor,
            Ty::Tensors => Returns::List,
            value @ (Ty::Scalar | Ty::Int | Ty::SymInt | Ty::Float | Ty::Bool) => Returns::Value(value),
            value @ Ty::DType if boxed => Returns::Value(value),
            _ => return Err(unsupported(only)),
        },
        several if boxed && several.iter().any(|r| Ty::of(&r.ty) == Some(Ty::Tensors)) => {
            let part = |r: &Return| {
                let ty = Ty::of(&r.ty).filter(|ty| matches!(ty, Ty::Tensor | Ty::Tensors));
                ty.ok_or_else(|| unsupported(r))
            };
            Returns::Mixed(several.iter().map(part).collect::<Result<_, _>>()?)
        }
        several => {
            let named = |r: &Return| r.name.as_ref().is_none_or(|name| is_ident(&ident(name)));
            if let Some(r) = several.iter().find(|r| Ty::of(&r.ty) != Some(Ty::Tensor) || !named(r)) {
                return Err(unsupported(r));
            }
            let name = |(k, r): (usize, &Return)| r.name.clone().map_or_else(|| format!("result{k}"), |n| ident(&n));
            Returns::Tensors(several.iter().enumerate().map(name).collect())
        }
    })
}
