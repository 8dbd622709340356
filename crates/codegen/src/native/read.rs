//! One declaration from YAML to [`NativeFunction`], with the checks that need nothing but itself.
//!
//! Fields are read in a fixed order and the first problem is reported; what is left over is unknown.

use super::NativeFunction;
use super::check::check_whole;
use super::dispatch::{COMPOSITE_IMPLICIT, COMPOSITE_IMPLICIT_NESTED, STRUCTURED};
use super::kernels::{check_composites, implicit_kernel, kernels};
use super::ours;
use crate::api::ufunc;
use crate::dialect::Dialect;
use crate::error::{CodegenError, Kind, Refusal, Result, Stage};
use crate::hash::QuickSet;
use crate::schema::{Argument, FunctionSchema, OperatorName};
use crate::yaml::{self, Node, Value};
use std::collections::BTreeSet;

pub(super) type Check<T = ()> = std::result::Result<T, Refusal>;

/// Arguments that a structured kernel receives computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Precompute {
    /// Arguments replaced by others.
    pub replace: Vec<(String, Vec<Argument>)>,
    /// Arguments added at the end.
    pub add: Vec<Argument>,
}

/// Reads every declaration of a file.
pub(super) fn read(text: &str, tags: &[&str], dialect: Dialect) -> Result<Vec<NativeFunction>> {
    let root = yaml::parse(text, Stage::Native)?;
    let shape = |line, message| {
        let mut error = CodegenError::new(Stage::Native, Kind::YamlShape, message);
        error.line = Some(line);
        error
    };
    let items = root.as_list().ok_or_else(|| shape(root.line, "declarations are a list"))?;
    let mut functions = Vec::with_capacity(items.len());
    let mut kernels = QuickSet::default();
    for item in items {
        let fields = item.as_map().ok_or_else(|| shape(item.line, "a declaration is a mapping"))?;
        let func = item.get("func").ok_or_else(|| shape(item.line, "a declaration needs `func`"))?;
        let entry = func.as_str().ok_or_else(|| shape(func.line, "`func` is text"))?;
        let declared = match dialect {
            Dialect::Cpp => declaration(fields, entry, item.line, tags).map(|function| vec![function]),
            Dialect::Rust => ours::declaration(fields, entry, item.line, tags),
        };
        for function in declared.map_err(|e| e.at_stage(Stage::Native).at(item.line, entry))? {
            for (key, _) in &function.dispatch {
                if !kernels.insert((*key, function.func.name.clone())) {
                    let message = format!("operator `{}` is declared twice", function.func.name);
                    return Err(CodegenError::new(Stage::Native, Kind::DuplicateOperator, message).at(item.line, entry));
                }
            }
            functions.push(function);
        }
    }
    Ok(functions)
}

/// The fields of a declaration, marked as they are read.
pub(super) struct Fields<'a> {
    pairs: &'a [(Node, Node)],
    taken: Vec<bool>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(pairs: &'a [(Node, Node)]) -> Self {
        Fields { pairs, taken: vec![false; pairs.len()] }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<&'a Node> {
        let at = self.pairs.iter().position(|(k, _)| k.as_str() == Some(name))?;
        self.taken[at] = true;
        Some(&self.pairs[at].1)
    }

    pub(super) fn text(&mut self, name: &str) -> Check<Option<&'a str>> {
        match self.take(name) {
            None | Some(Node { value: Value::Null, .. }) => Ok(None),
            Some(node) => node.as_str().map(Some).ok_or_else(|| bad_value(name, "text").on(node.line)),
        }
    }

    pub(super) fn flag(&mut self, name: &str, default: bool) -> Check<bool> {
        let Some(node) = self.take(name) else { return Ok(default) };
        node.as_bool().ok_or_else(|| bad_value(name, "true or false").on(node.line))
    }

    pub(super) fn texts(&mut self, name: &str) -> Check<Vec<String>> {
        let Some(node) = self.take(name) else { return Ok(Vec::new()) };
        texts(node).ok_or_else(|| bad_value(name, "a list of names").on(node.line))
    }

    /// The tags of an operator, with the automatic ones.
    pub(super) fn tags(&mut self, func: &FunctionSchema, namespace: &str, known: &[&str]) -> Check<BTreeSet<String>> {
        let mut tags = BTreeSet::new();
        let given = match self.take("tags") {
            None => &[],
            Some(node) if node.as_str().is_some() => std::slice::from_ref(node),
            Some(node) => node.as_list().ok_or_else(|| bad_value("tags", "a tag or a list of tags").on(node.line))?,
        };
        for node in given {
            let tag = node.as_str().unwrap_or("?");
            if !known.contains(&tag) {
                let message = format!("unknown tag `{tag}`; known are {}", known.join(", "));
                return refuse(Kind::TagUnknown, message).map_err(|e| e.on(node.line));
            }
            tags.insert(tag.to_owned());
        }
        let automatic = [
            ("pt2_compliant_tag", namespace == "aten"),
            ("out", func.is_out_fn()),
            ("inplace", func.name.name.inplace),
        ];
        for (tag, fits) in automatic {
            if fits && known.contains(&tag) {
                tags.insert(tag.to_owned());
            }
        }
        Ok(tags)
    }
}

pub(super) fn bad_value(field: &str, wanted: &str) -> Refusal {
    Refusal::new(Kind::FieldValue, format!("the field `{field}` must be {wanted}"))
}

pub(super) fn refuse<T>(kind: Kind, message: impl Into<String>) -> Check<T> {
    Err(Refusal::new(kind, message))
}

fn declaration(pairs: &[(Node, Node)], entry: &str, line: usize, known_tags: &[&str]) -> Check<NativeFunction> {
    let mut fields = Fields::new(pairs);
    fields.take("func");
    let (namespace, schema_text) = split_namespace(entry)?;
    let func: FunctionSchema = schema_text.parse()?;
    let cpp_no_default_args = fields.texts("cpp_no_default_args")?;
    let use_const_ref_for_mutable_tensors = fields.flag("use_const_ref_for_mutable_tensors", false)?;
    if use_const_ref_for_mutable_tensors && func.is_out_fn() {
        return Err(bad_value("use_const_ref_for_mutable_tensors", "absent on out operators"));
    }
    let (variant_function, variant_method) = variants(fields.take("variants"))?;
    let manual_kernel_registration = fields.flag("manual_kernel_registration", false)?;
    let manual_cpp_binding = fields.flag("manual_cpp_binding", false)?;
    let device_guard = fields.flag("device_guard", true)?;
    let device_check = match fields.text("device_check")? {
        None | Some("ExactSame") => true,
        Some("NoCheck") => false,
        Some(_) => return Err(bad_value("device_check", "NoCheck or ExactSame")),
    };
    let structured = fields.flag("structured", false)?;
    let structured_delegate = match fields.text("structured_delegate")? {
        Some(name) if name.contains("::") => return Err(bad_value("structured_delegate", "without a namespace")),
        Some(name) => Some(name.parse::<OperatorName>()?),
        None => None,
    };
    let structured_inherits = fields.text("structured_inherits")?;
    let python_module = fields.text("python_module")?.map(str::to_owned);
    if python_module.is_some() && variant_method {
        return refuse(Kind::ModuleMethod, "an operator in a module cannot be a method");
    }
    fields.text("category_override")?;
    let precomputed = match fields.take("precomputed").filter(|node| node.value != Value::Null) {
        Some(_) if !structured => return Err(bad_value("precomputed", "absent unless structured")),
        Some(node) => Some(precompute(node)?),
        None => None,
    };
    let tags = fields.tags(&func, namespace, known_tags)?;
    let implicit = !structured && structured_delegate.is_none();
    let raw_dispatch = fields.take("dispatch");
    let mut dispatch = match raw_dispatch.filter(|node| node.value != Value::Null) {
        Some(_) if manual_kernel_registration => {
            return refuse(Kind::DispatchManual, "a manually registered operator has no dispatch section");
        }
        Some(node) => kernels(node, &func, structured_delegate.is_some())?,
        None if implicit => implicit_kernel(&func)?,
        None => Vec::new(),
    };
    check_composites(&dispatch)?;
    let autogen = match fields.take("autogen") {
        Some(node) => node.as_str().ok_or_else(|| bad_value("autogen", "text"))?,
        None => "",
    };
    let autogen = autogen.split(", ").filter(|_| !autogen.is_empty()).map(str::parse).collect::<Check<Vec<_>>>()?;
    let ufunc_inner_loop = inner_loops(fields.take("ufunc_inner_loop"))?;
    if !ufunc_inner_loop.is_empty() {
        if !structured {
            return Err(bad_value("ufunc_inner_loop", "absent unless structured"));
        }
        for key in ["CPU", "CUDA"] {
            if dispatch.iter().any(|(k, _)| *k == key) {
                return Err(bad_value("ufunc_inner_loop", "without a kernel for CPU or CUDA"));
            }
            dispatch.push((key, ufunc::schema_kernel_name(&func, key)));
        }
    }
    if let Some(at) = fields.taken.iter().position(|taken| !taken) {
        let key = &fields.pairs[at].0;
        let message = format!("unknown field `{}`", key.as_str().unwrap_or("?"));
        return refuse(Kind::FieldUnknown, message).map_err(|e| e.on(key.line));
    }
    if structured_delegate.is_some()
        && let Some((key, _)) = dispatch.iter().find(|(k, _)| STRUCTURED.contains(k))
    {
        return refuse(Kind::DelegateHasKernel, format!("a delegating operator has a kernel for {key}"));
    }
    let only_implicit = !dispatch.is_empty()
        && dispatch.iter().all(|(k, _)| [COMPOSITE_IMPLICIT, COMPOSITE_IMPLICIT_NESTED].contains(k));
    let function = NativeFunction {
        variant_function,
        variant_method,
        is_abstract: structured_delegate.is_some() || !only_implicit,
        dispatch,
        structured,
        structured_delegate,
        precomputed,
        autogen,
        ufunc_inner_loop,
        tags,
        manual_kernel_registration,
        manual_cpp_binding,
        cpp_no_default_args,
        use_const_ref_for_mutable_tensors,
        device_check,
        python_module,
        ..NativeFunction::bare(func, schema_text.to_owned(), namespace, line)
    };
    check_whole(&function, device_guard, structured_inherits.is_some())?;
    Ok(function)
}

/// `namespace::schema`, at most one level.
pub(super) fn split_namespace(text: &str) -> Check<(&str, &str)> {
    // A custom class type holds dots, never `::`, so every `::` belongs to a namespace.
    match text.rfind(':').and_then(|_| text.rsplit_once("::")) {
        None => Ok(("aten", text)),
        Some((namespace, _)) if namespace.contains("::") => Err(bad_value("func", "in at most one namespace")),
        Some(parts) => Ok(parts),
    }
}

fn texts(node: &Node) -> Option<Vec<String>> {
    node.as_list()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

fn variants(node: Option<&Node>) -> Check<(bool, bool)> {
    let Some(node) = node else { return Ok((true, false)) };
    let text = node.as_str().ok_or_else(|| bad_value("variants", "text"))?;
    let (mut function, mut method) = (false, false);
    for variant in text.split(", ") {
        match variant {
            "function" => function = true,
            "method" => method = true,
            other => return refuse(Kind::VariantUnknown, format!("unknown variant `{other}`")),
        }
    }
    Ok((function, method))
}

fn inner_loops(node: Option<&Node>) -> Check<Vec<(String, String)>> {
    const KEYS: [&str; 7] =
        ["CUDAFunctor", "CUDAFunctorOnOther", "CUDAFunctorOnSelf", "CPUScalar", "CPUVector", "ScalarOnly", "Generic"];
    let bad = || bad_value("ufunc_inner_loop", "a loop or a mapping from ufunc keys to loops");
    let Some(node) = node else { return Ok(Vec::new()) };
    if let Some(text) = node.as_str() {
        return Ok(vec![("Generic".to_owned(), text.to_owned())]);
    }
    let pairs = node.as_map().ok_or_else(bad)?;
    let pair = |(key, value): &(Node, Node)| {
        let key = key.as_str().filter(|k| KEYS.contains(k))?;
        Some((key.to_owned(), value.as_str()?.to_owned()))
    };
    pairs.iter().map(pair).collect::<Option<_>>().ok_or_else(bad)
}

fn precompute(node: &Node) -> Check<Precompute> {
    let lines = texts(node).ok_or_else(|| bad_value("precomputed", "a list of lines"))?;
    let list = |text: &str| text.split(',').map(|item| item.trim().parse()).collect::<Check<Vec<Argument>>>();
    let mut precompute = Precompute { replace: Vec::new(), add: Vec::new() };
    for (i, line) in lines.iter().enumerate() {
        match line.split_once(" -> ") {
            Some((name, with)) => precompute.replace.push((name.to_owned(), list(with)?)),
            None if i + 1 == lines.len() => precompute.add = list(line)?,
            None => return Err(bad_value("precomputed", "replacements, then one line of additions")),
        }
    }
    Ok(precompute)
}
