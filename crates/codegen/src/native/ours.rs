//! Our own declarations: the Rust name of an operator and its implementation.
//!
//! Guarantees for everything read: exactly one implementation is named, names and paths are Rust's, the schema says of
//! views that they are, and the in-place and `out=` forms an entry asks for follow it and look like declared ones from
//! then on. Whether the functions exist is left to the Rust compiler. Knows nothing of derivatives.

use super::NativeFunction;
use super::check::check_whole;
use super::dispatch::{COMPOSITE_IMPLICIT, DispatchKey};
use super::forms::{self, Row};
use super::read::{Check, Fields, bad_value, refuse, split_namespace};
use super::record::{Record, record};
use crate::dialect::is_ident;
use crate::error::{CodegenError, Kind, Result, Stage};
use crate::schema::FunctionSchema;
use crate::yaml::Node;
use std::collections::HashMap;

/// What runs when an operator is called. Paths are relative to the module that holds such functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// A shape function and a kernel that writes into allocated results.
    Structured {
        /// Its function from arguments to shapes.
        shape: String,
        /// Its kernel.
        kernel: String,
    },
    /// A function from arguments to the layout of an alias.
    View(String),
    /// Built of other operators.
    Composite(String),
    /// Allocates its results itself.
    Direct(String),
    /// Another operator, by its Rust name, for every position of lists.
    Foreach(String),
    /// Written by hand, history included; the name of its node if it makes one.
    Manual(String, Option<String>),
}

impl Implementation {
    /// Whether it has a part below autograd, rather than being made of operators that have.
    pub fn has_below(&self) -> bool {
        !matches!(self, Implementation::Composite(_) | Implementation::Foreach(_) | Implementation::Manual(..))
    }

    /// As a kernel under a dispatch key.
    fn kernel(&self) -> (DispatchKey, String) {
        match self {
            Implementation::Composite(f) | Implementation::Foreach(f) => (COMPOSITE_IMPLICIT, f.clone()),
            Implementation::Structured { kernel: f, .. }
            | Implementation::View(f)
            | Implementation::Direct(f)
            | Implementation::Manual(f, _) => ("CPU", f.clone()),
        }
    }

    fn paths(&self) -> Vec<&str> {
        match self {
            Implementation::Structured { shape, kernel } => vec![shape, kernel],
            Implementation::View(f)
            | Implementation::Composite(f)
            | Implementation::Direct(f)
            | Implementation::Foreach(f)
            | Implementation::Manual(f, _) => vec![f],
        }
    }
}

/// How an operator came to be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By an entry of its own.
    Declared,
    /// As the in-place form of an entry.
    Inplace,
    /// As the `out=` form of an entry.
    Out,
}

/// What our declarations say beyond PyTorch's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RustFunction {
    /// The name of the Rust function.
    pub name: String,
    /// The name of the method, where it differs.
    pub method_name: Option<String>,
    /// What implements it.
    pub implementation: Implementation,
    /// Whether an entry declares it or asks for it.
    pub form: Form,
    /// The entry says that nothing flows through it.
    pub non_differentiable: bool,
    /// The kernel does right when `out` is `self` itself.
    pub in_place_kernel: bool,
    /// Whether its kernel may write over the first operand, though not over the others.
    pub in_place_term: bool,
    /// The kernel takes complex numbers; others refuse them.
    pub complex: bool,
    /// An `out=` tensor must have the dtype of the result; others take results that can be cast.
    pub exact_out: bool,
    /// What the entry says for the op's record.
    pub record: Record,
    /// The derivatives, if they are written in the entry itself.
    pub derivative: Option<Node>,
    /// Forms and second names that are only data.
    pub rows: Vec<Row>,
    /// It has no typed function: it is called with boxed arguments only.
    pub boxed: bool,
}

const FIELDS: &[&str] = &[
    "func",
    "shape",
    "kernel",
    "view",
    "composite",
    "direct",
    "foreach",
    "manual",
    "differentiable",
    "node",
    "non_differentiable",
    "inplace",
    "in_place_kernel",
    "in_place_term",
    "complex",
    "out",
    "out_args",
    "out_dtype",
    "forms",
    "tags",
    "rust",
    "method",
    "variants",
    "derivative",
    "autocast",
    "vmap",
    "cost",
    "decomposition",
    "training",
    "devices",
    "feature",
    "doc",
    "example",
];

/// One entry: the operator it declares, then the forms it asks for.
pub(super) fn declaration(
    pairs: &[(Node, Node)],
    entry: &str,
    line: usize,
    known_tags: &[&str],
) -> Check<Vec<NativeFunction>> {
    let mut fields = Fields::new(pairs);
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !key.as_str().is_some_and(|key| FIELDS.contains(&key))) {
        let name = key.as_str().unwrap_or("?");
        let message = format!("unknown key `{name}`; known are {}", FIELDS.join(", "));
        return refuse(Kind::FieldUnknown, message).map_err(|e| e.on(key.line));
    }
    let (namespace, schema) = split_namespace(entry)?;
    let func: FunctionSchema = schema.parse()?;
    let tags = fields.tags(&func, namespace, known_tags)?;
    let implementation = implementation(&mut fields)?;
    let text = fields.text("variants")?;
    let boxed = text == Some("boxed");
    let name = fields.text("rust")?.map_or_else(|| default_rust_name(&func, boxed), str::to_owned);
    if !is_ident(&name) {
        return refuse(Kind::FieldValue, format!("`{name}` is not a valid Rust name; choose one with `rust:`"));
    }
    let is_foreach = matches!(implementation, Implementation::Foreach(_));
    if boxed && !matches!(implementation, Implementation::Composite(_)) {
        return refuse(Kind::VariantUnknown, "only a composite op can be called with boxed arguments alone");
    }
    let (variant_method, variant_function) = variants(text.filter(|_| !boxed), &func, is_foreach)?;
    let (variant_method, variant_function) = (variant_method && !boxed, variant_function || boxed);
    check_alias(&func, &implementation)?;
    let declared_not = fields.text("differentiable")? == Some("non_differentiable");
    let rust = RustFunction {
        name,
        method_name: fields.text("method")?.map(str::to_owned),
        form: Form::Declared,
        non_differentiable: fields.flag("non_differentiable", false)? || declared_not,
        in_place_kernel: fields.flag("in_place_kernel", false)?,
        in_place_term: fields.flag("in_place_term", false)?,
        complex: fields.flag("complex", false)?,
        exact_out: match fields.text("out_dtype")? {
            None => false,
            Some("same") => true,
            Some(_) => return Err(bad_value("out_dtype", "same")),
        },
        record: record(&mut fields, &func)?,
        derivative: fields.take("derivative").cloned(),
        rows: forms::rows(&fields.texts("forms")?, &func)?,
        boxed,
        implementation,
    };
    let base = NativeFunction {
        variant_function,
        variant_method,
        dispatch: vec![rust.implementation.kernel()],
        is_abstract: rust.implementation.kernel().0 != COMPOSITE_IMPLICIT,
        tags,
        // Tensors of a list may be on several devices.
        device_check: !func.base().starts_with("_foreach"),
        rust: Some(rust),
        ..NativeFunction::bare(func, schema.to_owned(), namespace, line)
    };
    let mut made = vec![base];
    forms::add(&mut fields, &mut made)?;
    for function in &made {
        check_whole(function, true, false)?;
    }
    Ok(made)
}

fn implementation(fields: &mut Fields<'_>) -> Check<Implementation> {
    let mut text = |key: &str| Ok(fields.text(key)?.map(str::to_owned));
    let mut found = Vec::new();
    match (text("shape")?, text("kernel")?) {
        (Some(shape), Some(kernel)) => found.push(Implementation::Structured { shape, kernel }),
        (None, None) => {}
        _ => return refuse(Kind::ImplementationUnclear, "`shape` and `kernel` come together"),
    }
    found.extend(text("view")?.map(Implementation::View));
    found.extend(text("composite")?.map(Implementation::Composite));
    found.extend(text("direct")?.map(Implementation::Direct));
    found.extend(text("foreach")?.map(Implementation::Foreach));
    let (differentiable, node) = (text("differentiable")?, text("node")?);
    if let Some(function) = text("manual")? {
        let node = match differentiable.as_deref() {
            Some("manual") => Some(node.unwrap_or_else(|| function.clone())),
            Some("non_differentiable") => None,
            _ => {
                let message = "a manual op says `differentiable: manual` or `differentiable: non_differentiable`";
                return refuse(Kind::LostGradient, message);
            }
        };
        found.push(Implementation::Manual(function, node));
    } else if differentiable.is_some() || node.is_some() {
        return refuse(Kind::FieldValue, "`differentiable` and `node` belong to ops with `manual`");
    }
    const ONE: &str = "`shape` and `kernel`, or one of `view`, `composite`, `direct`, `foreach`, `manual`";
    let one = match found.len() {
        1 => found.remove(0),
        0 => return refuse(Kind::ImplementationUnclear, format!("nothing implements this op: give {ONE}")),
        _ => return refuse(Kind::ImplementationUnclear, format!("more than one implementation: keep {ONE}")),
    };
    match one.paths().into_iter().find(|path| !path.split("::").all(is_ident)) {
        Some(path) => refuse(Kind::FieldValue, format!("`{path}` is not a path of a Rust function")),
        None => Ok(one),
    }
}

/// `base` for the overloads `` and `Tensor`, else `base_overload`. What has no function is told apart by it only.
fn default_rust_name(func: &FunctionSchema, boxed: bool) -> String {
    let (base, overload) = (func.name.name.to_string(), func.name.overload_name.as_str());
    if let Some(base) = base.strip_prefix('_').filter(|base| base.starts_with("foreach_")) {
        return match overload {
            "" | "List" => base.to_owned(),
            "ScalarList" => format!("{base}_scalars"),
            _ => format!("{base}_{}", overload.to_lowercase()),
        };
    }
    match overload {
        _ if boxed => format!("boxed_{}", func.name.to_string().replace('.', "_")),
        "" | "Tensor" => base,
        _ => format!("{base}_{}", overload.to_lowercase()),
    }
}

/// Whether it is a method and whether it is a function.
fn variants(text: Option<&str>, func: &FunctionSchema, is_foreach: bool) -> Check<(bool, bool)> {
    let has_self = func.arguments.self_arg.is_some();
    let self_first = has_self && func.arguments.pre_self_positional.is_empty();
    match text {
        None => Ok((self_first && !is_foreach, !self_first || is_foreach)),
        Some("method") if has_self => Ok((true, false)),
        Some("both") if has_self => Ok((true, true)),
        Some("method" | "both") => refuse(Kind::VariantUnknown, "a method needs an argument called `self`"),
        Some("function") => Ok((false, true)),
        Some(other) => {
            refuse(Kind::VariantUnknown, format!("variants is `{other}`; it may be function, method, both or boxed"))
        }
    }
}

/// The schema says of a view that it is one, and of nothing else.
fn check_alias(func: &FunctionSchema, implementation: &Implementation) -> Check {
    let aliases = func.returns.iter().any(|r| r.annotation.as_ref().is_some_and(|a| !a.is_write));
    match implementation {
        Implementation::Manual(..) | Implementation::Composite(_) => Ok(()),
        Implementation::View(_) if !aliases => refuse(
            Kind::AliasPosition,
            "a view's return shares memory with its argument: write `Tensor(a) self` and `-> Tensor(a)`",
        ),
        Implementation::View(_) => Ok(()),
        _ if aliases => refuse(
            Kind::AliasPosition,
            "the schema says that the result shares memory with an argument; implement it with `view:`",
        ),
        _ => Ok(()),
    }
}

/// No two operators have one Rust name.
pub(super) fn check_rust_names(functions: &[NativeFunction]) -> Result<()> {
    let mut by_rust: HashMap<&str, &NativeFunction> = HashMap::with_capacity(functions.len());
    for f in functions {
        let Some(rust) = &f.rust else { continue };
        if let Some(first) = by_rust.insert(&rust.name, f) {
            let message = format!(
                "the Rust name `{}` is taken by `{}` on line {}; give one of them another with `rust:`",
                rust.name, first.func.name, first.line
            );
            return Err(CodegenError::new(Stage::Native, Kind::DuplicateRustName, message).at(f.line, &f.text));
        }
    }
    Ok(())
}
