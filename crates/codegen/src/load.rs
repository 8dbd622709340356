//! Derivative entries: from `derivatives.yaml` to one [`DifferentiabilityInfo`] per operator and key.
//!
//! Guarantees file order and the reference's order of checks. Knows the declared operators only through
//! their schemas; which other operators will use an info is decided in `matching`.

mod ours;
mod setup;

#[cfg(feature = "emit")]
pub(crate) use ours::derivatives_file;

use crate::api::cpp;
use crate::dialect::Dialect;
use crate::error::{CodegenError, Kind, Refusal, Result, Stage};
use crate::hash::QuickMap;
use crate::model::{DEFAULT_KEY, DifferentiabilityInfo, Infos, InfosByKey, OperatorInfos, Origin};
use crate::native::{self, NativeFunction, dispatch};
use crate::pipeline::NATIVE_FILE;
use crate::schema::FunctionSchema;
use crate::yaml::{Node, Value};
use setup::{Operator, SetUp};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// What the derivatives file says.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// All infos: entries in file order, then view copies.
    pub infos: Infos,
    /// Autograd keys that some entry has formulas for.
    pub used_dispatch_keys: BTreeSet<String>,
}

/// Reads the entries of a derivatives file against the declared functions.
pub fn load(functions: &[Rc<NativeFunction>], root: &Node, dialect: Dialect) -> Result<Loaded> {
    let (functions, view_groups) = match dialect {
        Dialect::Cpp => native::group_views(functions)?,
        // The copies of our own views are made of ops that have derivatives.
        Dialect::Rust => (functions.to_vec(), Vec::new()),
    };
    let mut loader = Loader::new(&functions, dialect)?;
    let entries = match &root.value {
        Value::List(items) => items.as_slice(),
        Value::Map(pairs) if pairs.is_empty() => &[],
        Value::Null if dialect == Dialect::Rust => &[],
        _ => return Err(not_text(root.line, "derivatives are a list of entries")),
    };
    let inline = functions.iter().filter_map(|f| ours::inline_entry(f)).collect::<Result<Vec<_>>>()?;
    let mut infos = Infos::with_capacity(entries.len() + inline.len());
    let mut add = |entry: &Node| {
        let (func, by_key) = loader.entry(entry)?;
        let info = OperatorInfos { func: Rc::clone(&func), origin: Origin::Entry, by_key };
        if infos.insert(func.text.clone(), info).is_some() && dialect == Dialect::Rust {
            let message = "this op has an entry already";
            let error = CodegenError::new(Stage::Derivatives, Kind::DuplicateSchema, message);
            return Err(error.at(entry.line, &func.text));
        }
        Ok(())
    };
    entries.iter().try_for_each(&mut add)?;
    inline.iter().try_for_each(&mut add).map_err(|e| e.in_file(NATIVE_FILE))?;
    if dialect == Dialect::Rust {
        ours::check_nodes(&infos)?;
    }
    crate::view_copy::add(&mut infos, &view_groups);
    Ok(Loaded { infos, used_dispatch_keys: loader.used_keys })
}

fn not_text(line: usize, message: &str) -> CodegenError {
    let mut error = CodegenError::new(Stage::Derivatives, Kind::FormulaNotString, message);
    error.line = Some(line);
    error
}

fn fail<T>(kind: Kind, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(kind, message))
}

struct Loader<'a> {
    dialect: Dialect,
    by_schema: QuickMap<&'a str, &'a Rc<NativeFunction>>,
    by_signature: QuickMap<&'a FunctionSchema, Vec<&'a Rc<NativeFunction>>>,
    op_counter: HashMap<String, usize>,
    used_keys: BTreeSet<String>,
}

impl<'a> Loader<'a> {
    fn new(functions: &'a [Rc<NativeFunction>], dialect: Dialect) -> Result<Self> {
        let mut by_schema = QuickMap::default();
        let mut by_signature: QuickMap<_, Vec<_>> = QuickMap::default();
        by_schema.reserve(functions.len());
        by_signature.reserve(functions.len());
        for f in functions {
            by_signature.entry(&f.signature).or_default().push(f);
            if by_schema.insert(f.text.as_str(), f).is_some() {
                let message = "the schema is declared twice";
                return Err(CodegenError::new(Stage::Derivatives, Kind::DuplicateSchema, message).at(f.line, &f.text));
            }
        }
        let (op_counter, used_keys) = (HashMap::new(), BTreeSet::new());
        Ok(Loader { dialect, by_schema, by_signature, op_counter, used_keys })
    }

    /// One entry: the canonical function and its infos.
    fn entry(&mut self, entry: &Node) -> Result<(Rc<NativeFunction>, InfosByKey)> {
        let fields = entry.as_map().ok_or_else(|| not_text(entry.line, "an entry is a mapping"))?;
        let Some(name) = entry.get("name") else {
            let mut error = CodegenError::new(Stage::Derivatives, Kind::EntryNoName, "an entry needs a name");
            error.line = Some(entry.line);
            return Err(error);
        };
        let text = name.as_str().ok_or_else(|| not_text(name.line, "the name of an entry is a schema"))?;
        self.named_entry(fields, entry, text).map_err(|e| e.at(entry.line, text))
    }

    fn named_entry(
        &mut self,
        fields: &[(Node, Node)],
        entry: &Node,
        text: &str,
    ) -> Result<(Rc<NativeFunction>, InfosByKey)> {
        let refused = |e: Refusal| e.at_stage(Stage::Derivatives);
        let name = operator_word(text).map_err(refused)?;
        let keyed = entry.get("dispatch");
        let outputs = entry.get("output_differentiability");
        let outputs = Outputs::read(outputs, keyed.is_none())?;
        let func = self.canonical(text, name).map_err(refused)?;
        let arguments = self.dialect.arguments(&func).map_err(refused)?;
        for (reserved, kind) in [("grad_input_mask", Kind::ArgNamedGradInputMask), ("result", Kind::ArgNamedResult)] {
            if arguments.iter().any(|a| a.name == reserved) {
                return Err(refused(Refusal::new(kind, format!("an argument may not be called `{reserved}`"))));
            }
        }
        let node = match self.dialect {
            Dialect::Cpp => None,
            Dialect::Rust => ours::check_entry(&func, entry).map_err(refused)?,
        };
        let operator = Operator { func: &func, name, arguments: &arguments, outputs: &outputs, node };
        let mut by_key = InfosByKey::new();
        let plain: Vec<_> = match keyed {
            None => {
                let ours = self.dialect == Dialect::Rust;
                let formulas = |(k, _): &&(Node, Node)| match k.as_str() {
                    Some("name" | "output_differentiability") => false,
                    Some("node") => !ours,
                    _ => true,
                };
                let info = self.info(&operator, DEFAULT_KEY, fields.iter().filter(formulas).collect())?;
                by_key.insert(DEFAULT_KEY.to_owned(), Rc::new(info));
                return Ok((func, by_key));
            }
            Some(node) => node.as_map().ok_or_else(|| not_text(node.line, "`dispatch` is a mapping"))?.iter().collect(),
        };
        for (key, formulas) in plain {
            let Some(key) = key.as_str().filter(|key| dispatch::is_autograd_key(key)) else {
                let message = format!("`{}` is not an autograd key", key.as_str().unwrap_or("?"));
                let error = CodegenError::new(Stage::Derivatives, Kind::EntryDispatchKey, message);
                return Err(error.at(key.line, text));
            };
            let pairs = formulas.as_map().ok_or_else(|| not_text(formulas.line, "formulas are a mapping"))?;
            let info = self.info(&operator, key, pairs.iter().collect())?;
            by_key.insert(key.to_owned(), Rc::new(info));
        }
        Ok((func, by_key))
    }

    /// The function an entry describes: an entry for an out operator describes the functional one.
    fn canonical(&self, text: &str, name: &str) -> Result<Rc<NativeFunction>, Refusal> {
        let Some(function) = self.by_schema.get(text) else {
            // Nearly right is the usual fault, so show what is.
            let full = text.split('(').next().unwrap_or(text);
            let named = self.by_schema.values().filter(|f| f.func.name.to_string() == full);
            let near = named.min_by_key(|f| (f.line, &f.text));
            let hint = near.map_or(String::new(), |f| format!("; `{full}` is declared as\n    {}", f.text));
            return fail(Kind::EntrySchemaUnknown, format!("no operator is declared as `{text}`{hint}"));
        };
        let variants = &self.by_signature[&function.signature];
        let fits = |f: &&&Rc<NativeFunction>| {
            !f.func.is_functional_fn() && !f.func.is_out_fn() && f.func.name.name.to_string() == name
        };
        if let Some(f) = variants.iter().find(fits) {
            return Ok(Rc::clone(f));
        }
        match variants.first() {
            Some(f) if cpp::name(&f.func) == format!("{name}_") => Ok(Rc::clone(f)),
            _ => fail(Kind::EntryNoCanonical, format!("no function of the group of `{text}` can carry the entry")),
        }
    }

    /// The info of one operator under one key.
    fn info(
        &mut self,
        operator: &Operator<'_>,
        key: &str,
        mut formulas: Vec<&(Node, Node)>,
    ) -> Result<DifferentiabilityInfo> {
        self.used_keys.insert(key.to_owned());
        if let Some((odd, _)) = formulas.iter().find(|(k, _)| k.as_str().is_none()) {
            return Err(not_text(odd.line, "the key of a formula is text"));
        }
        formulas.sort_by_key(|(k, _)| k.as_str());
        let mut setup = SetUp::new(operator, self.dialect);
        for (names, formula) in formulas {
            let names = names.as_str().unwrap_or_default();
            setup.formula(names, formula).map_err(|mut e| {
                e.line.get_or_insert(formula.line);
                e
            })?;
        }
        let mut info = setup.finish().map_err(|e| e.at_stage(Stage::Derivatives))?;
        if self.dialect == Dialect::Rust {
            ours::check_info(&info).map_err(|e| e.at_stage(Stage::Derivatives))?;
        }
        if let (Some(node), true) = (operator.node, info.has_derivatives()) {
            info.op = Some(node.to_owned());
        } else if info.has_derivatives() {
            let mut prefix = op_prefix(operator.name);
            if key != DEFAULT_KEY {
                prefix.push_str(key);
            }
            let count = self.op_counter.entry(prefix.clone()).or_default();
            info.op = Some(format!("{prefix}{count}"));
            *count += 1;
        }
        Ok(info)
    }
}

/// The first word of an entry's name, which must look like `word[.word](…)`.
fn operator_word(text: &str) -> Result<&str, Refusal> {
    let word_len = |t: &str| t.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(t.len());
    let (name, mut rest) = text.split_at(word_len(text));
    if let Some(overload) = rest.strip_prefix('.') {
        let len = word_len(overload);
        rest = if len > 0 { &overload[len..] } else { rest };
    }
    if name.is_empty() || !rest.starts_with('(') || !rest.contains(')') {
        return fail(Kind::EntryNameSyntax, format!("`{text}` is not a schema"));
    }
    Ok(name)
}

/// `conv2d_forward` → `Conv2DBackward`.
pub fn op_prefix(name: &str) -> String {
    let mut prefix = String::new();
    for piece in name.split('_') {
        let mut after_letter = false;
        for c in piece.chars() {
            if after_letter {
                prefix.extend(c.to_lowercase());
            } else {
                prefix.extend(c.to_uppercase());
            }
            after_letter = c.is_alphabetic();
        }
    }
    prefix.push_str("Backward");
    prefix.replace("ForwardBackward", "Backward")
}

/// `output_differentiability` of an entry.
struct Outputs {
    differentiable: Option<Vec<bool>>,
    conditions: Option<Vec<String>>,
}

impl Outputs {
    fn read(node: Option<&Node>, empty_is_absent: bool) -> Result<Self> {
        let absent = Outputs { differentiable: None, conditions: None };
        let Some(node) = node.filter(|n| n.value != Value::Null) else { return Ok(absent) };
        let multi = || {
            let message = "a condition is supported only for a single output";
            let mut error = CodegenError::new(Stage::Derivatives, Kind::ConditionMultiOutput, message);
            error.line = Some(node.line);
            error
        };
        let items = match &node.value {
            Value::List(items) => items,
            Value::Str(text) if text.chars().count() > 1 => return Err(multi()),
            _ => return Err(not_text(node.line, "`output_differentiability` is a list")),
        };
        if items.is_empty() && empty_is_absent {
            return Ok(absent);
        }
        match items.as_slice() {
            [Node { value: Value::Str(condition), .. }] => {
                Ok(Outputs { differentiable: Some(vec![true]), conditions: Some(vec![condition.clone()]) })
            }
            items if items.iter().any(|item| item.as_str().is_some()) => Err(multi()),
            items => match items.iter().map(Node::as_bool).collect() {
                Some(flags) => Ok(Outputs { differentiable: Some(flags), conditions: None }),
                None => Err(not_text(node.line, "`output_differentiability` holds true, false or one condition")),
            },
        }
    }
}
