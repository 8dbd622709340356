//! Reads `ops.yaml`: every operator with its Rust name, argument types and what implements it.
//!
//! Guarantees for everything read: the schema is valid, every type has a Rust spelling, exactly one implementation is
//! named, Rust names are unique. The in-place and `out=` forms that an entry asks for are made here and look like
//! declared ones from then on. Knows nothing of derivatives.

use super::foreach;
use super::types::Ty;
use crate::error::{CodegenError, Kind, Refusal, Result, Stage};
use crate::schema::{Annotation, Argument, FunctionSchema, Return, Type};
use crate::yaml::{self, Node};
use std::collections::HashMap;

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
    pub(super) keyword: bool,
}

/// What runs when the op is called. Paths are relative to the module that holds such functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Implementation {
    /// A shape function and a kernel that writes into allocated results.
    Structured { shape: String, kernel: String },
    /// A function from arguments to the layout of an alias.
    View(String),
    /// Built of other ops.
    Composite(String),
    /// Allocates its results itself.
    Direct(String),
    /// Another op for every position of lists; its Rust name, and once known one text per argument.
    Foreach { reference: String, arguments: Vec<String> },
    /// Written by hand, history included; the name of its node if it makes one.
    Manual(String, Option<String>),
}

impl Implementation {
    /// Whether it has a part below autograd, rather than being made of ops that have.
    pub(super) fn has_below(&self) -> bool {
        !matches!(self, Implementation::Composite(_) | Implementation::Foreach { .. } | Implementation::Manual(..))
    }
}

/// Which form of an operator this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Functional,
    /// Made from the entry at this index.
    Inplace(usize),
    /// Made from the entry at this index.
    Out(usize),
}

/// What a function gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    Nothing,
    Tensor,
    /// Several tensors, by name.
    Tensors(Vec<String>),
    List,
    Value(Ty),
}

/// One operator.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) schema: FunctionSchema,
    pub(super) line: usize,
    pub(super) rust: String,
    /// The name of the method, where it differs.
    method_name: Option<String>,
    pub(super) implementation: Implementation,
    pub(super) form: Form,
    pub(super) tags: Vec<String>,
    pub(super) method: bool,
    pub(super) function: bool,
    /// Every argument of the schema but out arguments, dropped ones included.
    pub(super) all_args: Vec<Arg>,
    pub(super) outs: Vec<Arg>,
    pub(super) returns: Returns,
    /// The entry says that nothing flows through it.
    pub(super) non_differentiable: bool,
    /// The kernel does right when `out` is `self` itself.
    pub(super) in_place_kernel: bool,
}

impl Op {
    /// The arguments that Rust functions take.
    pub(super) fn args(&self) -> impl Iterator<Item = &Arg> {
        self.all_args.iter().filter(|a| a.ty != Ty::Dropped)
    }

    /// `mul.Tensor`.
    pub(super) fn name(&self) -> String {
        self.schema.name.to_string()
    }

    /// `mul`, as error messages of the running program name it.
    pub(super) fn base(&self) -> String {
        self.schema.name.name.to_string()
    }

    /// The constant of its id: `MUL_TENSOR`.
    pub(super) fn constant(&self) -> String {
        self.name().replace('.', "_").to_uppercase()
    }

    /// The names of its results, as formulas and Rust code call them.
    pub(super) fn result_names(&self) -> Vec<String> {
        match &self.returns {
            Returns::Tensors(names) => names.clone(),
            Returns::Tensor | Returns::List => vec!["result".to_owned()],
            Returns::Nothing | Returns::Value(_) => Vec::new(),
        }
    }

    /// The name of its method.
    pub(super) fn method_name(&self) -> String {
        let name = self.method_name.clone().unwrap_or_else(|| self.rust.clone());
        match self.form {
            Form::Inplace(_) if self.method_name.is_some() => format!("{name}_"),
            _ => name,
        }
    }

    pub(super) fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|t| t == tag)
    }

    /// An error about this entry.
    pub(super) fn error(&self, kind: Kind, message: impl Into<String>) -> CodegenError {
        CodegenError::new(Stage::Native, kind, message).at(self.line, &self.schema.to_string())
    }
}

const TAGS: &[&str] = &[
    "core",
    "pointwise",
    "reduction",
    "view",
    "inplace_view",
    "nondeterministic_seeded",
    "dynamic_output_shape",
    "data_dependent_output",
    "factory",
];

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
    "out",
    "out_args",
    "tags",
    "rust",
    "method",
    "variants",
];

/// Rust's spelling of an argument name.
pub(super) fn ident(name: &str) -> String {
    match name {
        "self" | "a" | "type" | "in" | "where" | "mod" | "ref" | "move" | "loop" | "match" | "fn" | "use" | "box" => {
            format!("{name}_")
        }
        _ => name.to_owned(),
    }
}

/// Reads the file. Errors carry line and entry.
pub(super) fn read(text: &str) -> Result<Vec<Op>> {
    let document = yaml::parse(text, Stage::Native)?;
    let shape = |node: &Node, message: &str| {
        let mut e = CodegenError::new(Stage::Native, Kind::YamlShape, message);
        e.line = Some(node.line);
        e
    };
    let Some(entries) = document.as_list() else {
        return Err(shape(&document, "the file is a list of entries, each beginning with `- func:`"));
    };
    let mut ops = Vec::new();
    for entry in entries {
        let Some(func) = entry.get("func").and_then(Node::as_str) else {
            return Err(shape(entry, "an entry is a mapping with the key `func`"));
        };
        let mut made = read_entry(entry, func, ops.len()).map_err(|e| e.at(entry.line, func))?;
        ops.append(&mut made);
    }
    check_unique(&ops)?;
    foreach::resolve(&mut ops)?;
    Ok(ops)
}

fn refuse(kind: Kind, message: impl Into<String>) -> CodegenError {
    CodegenError::new(Stage::Native, kind, message)
}

fn read_entry(entry: &Node, func: &str, index: usize) -> Result<Vec<Op>> {
    for (key, _) in entry.as_map().unwrap_or_default() {
        let name = key.as_str().unwrap_or("?");
        if !FIELDS.contains(&name) {
            let e = refuse(Kind::FieldUnknown, format!("unknown key `{name}`; known are {}", FIELDS.join(", ")));
            return Err(e.at(key.line, func));
        }
    }
    let schema: FunctionSchema = func.parse().map_err(|e: Refusal| e.at_stage(Stage::Native))?;
    let text = |key: &str| -> Result<Option<String>> {
        let Some(node) = entry.get(key) else { return Ok(None) };
        let text = node.as_str().map(str::to_owned);
        let e = || refuse(Kind::FieldValue, format!("`{key}` is a name")).at(node.line, func);
        text.map(Some).ok_or_else(e)
    };
    let flag = |key: &str| -> Result<bool> {
        let Some(node) = entry.get(key) else { return Ok(false) };
        node.as_bool().ok_or_else(|| refuse(Kind::FieldValue, format!("`{key}` is true or false")).at(node.line, func))
    };
    let list = |key: &str| -> Result<Vec<String>> {
        let Some(node) = entry.get(key) else { return Ok(Vec::new()) };
        let items = node.as_list().and_then(|l| l.iter().map(|n| n.as_str().map(str::to_owned)).collect());
        items.ok_or_else(|| refuse(Kind::FieldValue, format!("`{key}` is a list of names: [a, b]")).at(node.line, func))
    };

    let tags = list("tags")?;
    if let Some(tag) = tags.iter().find(|t| !TAGS.contains(&t.as_str())) {
        return Err(refuse(Kind::TagUnknown, format!("unknown tag `{tag}`; known are {}", TAGS.join(", "))));
    }
    let implementation = implementation(&text)?;
    let is_foreach = matches!(implementation, Implementation::Foreach { .. });
    let rust = match text("rust")? {
        Some(name) => name,
        None => default_rust_name(&schema),
    };
    if syn::parse_str::<syn::Ident>(&rust).is_err() {
        let message = format!("`{rust}` is no Rust name; choose one with `rust:`");
        return Err(refuse(Kind::FieldValue, message));
    }
    let has_self = schema.arguments.self_arg.is_some();
    let self_first = has_self && schema.arguments.pre_self_positional.is_empty();
    let (method, function) = match text("variants")?.as_deref() {
        None => (self_first && !is_foreach, !self_first || is_foreach),
        Some("method") if has_self => (true, false),
        Some("both") if has_self => (true, true),
        Some("method" | "both") => {
            return Err(refuse(Kind::VariantUnknown, "a method needs an argument called `self`"));
        }
        Some("function") => (false, true),
        Some(other) => {
            let message = format!("variants is `{other}`; it may be function, method or both");
            return Err(refuse(Kind::VariantUnknown, message));
        }
    };
    let base = Op {
        all_args: arguments(&schema)?,
        outs: Vec::new(),
        returns: returns(&schema)?,
        line: entry.line,
        rust,
        method_name: text("method")?,
        implementation,
        form: Form::Functional,
        tags,
        method,
        function,
        in_place_kernel: flag("in_place_kernel")?,
        non_differentiable: flag("non_differentiable")?
            || text("differentiable")?.as_deref() == Some("non_differentiable"),
        schema,
    };
    let is_view = matches!(base.implementation, Implementation::View(_));
    if is_view != base.schema.returns.iter().any(|r| r.annotation.as_ref().is_some_and(|a| !a.is_write))
        && !matches!(base.implementation, Implementation::Manual(..) | Implementation::Composite(_))
    {
        let message = if is_view {
            "a view's return shares memory with its argument: write `Tensor(a) self` and `-> Tensor(a)`"
        } else {
            "the schema says that the result shares memory with an argument; implement it with `view:`"
        };
        return Err(refuse(Kind::AliasPosition, message));
    }
    let structured = matches!(base.implementation, Implementation::Structured { .. });
    let mut made = Vec::new();
    // `true`, or the overload of the in-place form where that is another.
    let inplace = match entry.get("inplace") {
        Some(node) if node.as_str().is_some() => text("inplace")?,
        _ => flag("inplace")?.then(|| base.schema.name.overload_name.clone()),
    };
    if let Some(overload) = inplace {
        if !structured && !is_foreach {
            return Err(refuse(
                Kind::FieldValue,
                "`inplace: true` needs an op with `shape` and `kernel`, or `foreach`",
            ));
        }
        made.push(inplace_form(&base, index, overload)?);
    }
    if let Some(overload) = text("out")? {
        if !structured {
            return Err(refuse(Kind::FieldValue, "`out` needs an op with `shape` and `kernel`"));
        }
        made.push(out_form(&base, index, &overload, &list("out_args")?)?);
    }
    made.insert(0, base);
    Ok(made)
}

fn implementation(text: &dyn Fn(&str) -> Result<Option<String>>) -> Result<Implementation> {
    let mut found = Vec::new();
    match (text("shape")?, text("kernel")?) {
        (Some(shape), Some(kernel)) => found.push(Implementation::Structured { shape, kernel }),
        (None, None) => {}
        _ => return Err(refuse(Kind::ImplementationUnclear, "`shape` and `kernel` come together")),
    }
    found.extend(text("view")?.map(Implementation::View));
    found.extend(text("composite")?.map(Implementation::Composite));
    found.extend(text("direct")?.map(Implementation::Direct));
    found.extend(text("foreach")?.map(|reference| Implementation::Foreach { reference, arguments: Vec::new() }));
    if let Some(function) = text("manual")? {
        let node = match text("differentiable")?.as_deref() {
            Some("manual") => Some(text("node")?.unwrap_or_else(|| function.clone())),
            Some("non_differentiable") => None,
            _ => {
                let message = "a manual op says `differentiable: manual` or `differentiable: non_differentiable`";
                return Err(refuse(Kind::LostGradient, message));
            }
        };
        found.push(Implementation::Manual(function, node));
    } else if text("differentiable")?.is_some() || text("node")?.is_some() {
        return Err(refuse(Kind::FieldValue, "`differentiable` and `node` belong to ops with `manual`"));
    }
    let paths = found.iter().flat_map(|i| match i {
        Implementation::Structured { shape, kernel } => vec![shape, kernel],
        Implementation::View(f) | Implementation::Composite(f) | Implementation::Direct(f) => vec![f],
        Implementation::Foreach { reference: f, .. } | Implementation::Manual(f, _) => vec![f],
    });
    for path in paths {
        if syn::parse_str::<syn::Path>(path).is_err() {
            return Err(refuse(Kind::FieldValue, format!("`{path}` is no path of a Rust function")));
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(refuse(
            Kind::ImplementationUnclear,
            "nothing implements this op: give `shape` and `kernel`, or one of `view`, `composite`, `direct`, `foreach`, `manual`",
        )),
        _ => Err(refuse(
            Kind::ImplementationUnclear,
            "more than one implementation: keep `shape` and `kernel`, or one of `view`, `composite`, `direct`, `foreach`, `manual`",
        )),
    }
}

fn default_rust_name(schema: &FunctionSchema) -> String {
    let (base, overload) = (schema.name.name.to_string(), &schema.name.overload_name);
    if let Some(base) = base.strip_prefix('_').filter(|base| base.starts_with("foreach_")) {
        return match overload.as_str() {
            "" | "List" => base.to_owned(),
            "ScalarList" => format!("{base}_scalars"),
            _ => format!("{base}_{}", overload.to_lowercase()),
        };
    }
    match overload.as_str() {
        "" | "Tensor" => base,
        _ => format!("{base}_{}", overload.to_lowercase()),
    }
}

fn argument(a: &Argument, keyword: bool) -> Result<Arg> {
    let Some(ty) = Ty::of(&a.ty, &a.name) else {
        return Err(refuse(Kind::TypeUnknown, format!("`{}`: the type `{}` has no Rust form yet", a.name, a.ty)));
    };
    let size = match &a.ty {
        Type::List(_, size) => *size,
        Type::Optional(inner) => inner.as_list().and_then(|(_, size)| size),
        _ => None,
    };
    let default = match &a.default {
        Some(text) if ty != Ty::Dropped => Some(ty.default(text, size).ok_or_else(|| {
            refuse(Kind::DefaultUnsupported, format!("`{}`: the default `{text}` has no Rust form", a.name))
        })?),
        _ => None,
    };
    Ok(Arg { name: a.name.clone(), ident: ident(&a.name), ty, default, keyword })
}

fn arguments(schema: &FunctionSchema) -> Result<Vec<Arg>> {
    let positional = schema.arguments.flat_positional().map(|a| argument(a, false));
    positional.chain(schema.arguments.flat_kwarg_only().map(|a| argument(a, true))).collect()
}

fn returns(schema: &FunctionSchema) -> Result<Returns> {
    let unsupported = |r: &Return| refuse(Kind::ReturnUnsupported, format!("the return `{r}` has no Rust form yet"));
    Ok(match schema.returns.as_slice() {
        [] => Returns::Nothing,
        [only] => match Ty::of(&only.ty, "").ok_or_else(|| unsupported(only))? {
            Ty::Tensor => Returns::Tensor,
            Ty::Tensors => Returns::List,
            value @ (Ty::Scalar | Ty::Int | Ty::SymInt | Ty::Float | Ty::Bool) => Returns::Value(value),
            _ => return Err(unsupported(only)),
        },
        several => {
            if let Some(r) = several.iter().find(|r| Ty::of(&r.ty, "") != Some(Ty::Tensor)) {
                return Err(unsupported(r));
            }
            let name = |(k, r): (usize, &Return)| r.name.clone().map_or_else(|| format!("result{k}"), |n| ident(&n));
            Returns::Tensors(several.iter().enumerate().map(name).collect())
        }
    })
}

fn inplace_form(base: &Op, index: usize, overload: String) -> Result<Op> {
    let mut schema = base.schema.clone();
    let wanted = match base.returns {
        Returns::Tensor => Some(Ty::Tensor),
        Returns::List => Some(Ty::Tensors),
        _ => None,
    };
    let Some(target) = schema.arguments.self_arg.as_mut().filter(|a| Ty::of(&a.ty, "") == wanted) else {
        return Err(refuse(Kind::FieldValue, "an in-place form needs `Tensor self` and one tensor as result"));
    };
    target.annotation = Some(Annotation::mutable('a'));
    schema.name.name.inplace = true;
    schema.name.overload_name = overload;
    match base.returns {
        Returns::List => schema.returns.clear(),
        _ => {
            schema.returns[0].annotation = Some(Annotation::mutable('a'));
            schema.returns[0].name = None;
        }
    }
    schema.check().map_err(|e| e.at_stage(Stage::Native))?;
    let (rust, form, returns) = (format!("{}_", base.rust), Form::Inplace(index), returns(&schema)?);
    // Lists have no methods.
    let function = returns == Returns::Nothing;
    Ok(Op { schema, rust, form, returns, function, ..base.clone() })
}

fn out_form(base: &Op, index: usize, overload: &str, names: &[String]) -> Result<Op> {
    let mut schema = base.schema.clone();
    overload.clone_into(&mut schema.name.overload_name);
    let count = schema.returns.len();
    if !matches!(base.returns, Returns::Tensor | Returns::Tensors(_)) {
        return Err(refuse(Kind::NoOutVariant, "an `out=` form needs tensors as results"));
    }
    if !names.is_empty() && names.len() != count {
        return Err(refuse(Kind::OutReturnCount, format!("`out_args` names {} results of {count}", names.len())));
    }
    let mut letters = 'a'..='z';
    for (k, ret) in schema.returns.iter_mut().enumerate() {
        let name = match (names.get(k), &ret.name) {
            (Some(name), _) => name.clone(),
            (None, Some(name)) => name.clone(),
            (None, None) if count == 1 => "out".to_owned(),
            (None, None) => format!("out{k}"),
        };
        let annotation = letters.next().map(Annotation::mutable);
        ret.annotation = annotation.clone();
        schema.arguments.out.push(Argument { name, ty: Type::TENSOR, default: None, annotation });
    }
    schema.check().map_err(|e| e.at_stage(Stage::Native))?;
    let outs = schema.arguments.out.iter().map(|a| argument(a, true)).collect::<Result<_>>()?;
    let form = Form::Out(index);
    Ok(Op { schema, rust: format!("{}_out", base.rust), form, method: false, outs, ..base.clone() })
}

fn check_unique(ops: &[Op]) -> Result<()> {
    let mut by_name: HashMap<String, &Op> = HashMap::new();
    let mut by_rust: HashMap<&str, &Op> = HashMap::new();
    for op in ops {
        if let Some(first) = by_name.insert(op.name(), op) {
            let message = format!("`{}` is declared twice, first on line {}", op.name(), first.line);
            return Err(op.error(Kind::DuplicateOperator, message));
        }
        if let Some(first) = by_rust.insert(&op.rust, op) {
            let message = format!(
                "the Rust name `{}` is taken by `{}` on line {}; give one of them another with `rust:`",
                op.rust,
                first.name(),
                first.line
            );
            return Err(op.error(Kind::DuplicateRustName, message));
        }
    }
    Ok(())
}
