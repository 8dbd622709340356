//! Lint: places where text means something else to a reader than to the generator, and entries without effect.
//!
//! Most hazards are known traps of formulas that are read as plain text; PyTorch's own files step around them.
//! Our formulas are read by tokens, so few traps are left there. Works on any of PyTorch's declarations that have
//! a `func` field and refuses only files it cannot read: everything else is a finding.

mod entry;
mod formulas;

use crate::dialect::Dialect;
use crate::error::{CodegenError, Kind, Result, Stage};
use crate::pipeline::{DERIVATIVES_FILE, NATIVE_FILE, Sources};
use crate::schema::FunctionSchema;
use crate::yaml::{self, Node, Value};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Declares [`Hazard`] with its printed names.
macro_rules! hazards {
    ($($variant:ident $name:literal $doc:literal)*) => {
        /// What a finding is about.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub enum Hazard { $(#[doc = $doc] $variant,)* }

        impl Hazard {
            /// Every hazard.
            pub const ALL: &[Hazard] = &[$(Hazard::$variant,)*];

            /// A short stable name.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

hazards! {
    NameIsSuffix "name_is_suffix" "A saved-attribute rule takes the end of a longer word for an argument."
    DotIsAnything "dot_is_anything" "A saved-attribute rule takes another character for the dot."
    SharedSeparator "shared_separator" "Two uses one character apart: only the first is replaced."
    MethodIsArgument "method_is_argument" "A method or path has the name of an argument, which is saved for it."
    ForeachPlainText "foreach_plain_text" "A foreach operator's formula is made by replacing text inside longer words."
    EntryReplaced "entry_replaced" "A later entry for the same function replaces this one."
    UnknownName "unknown_name" "A name in a key, after the first, is not an argument or output."
    MemoryFormatNotSaved "memory_format_not_saved" "`memory_format` beside tensor options is never saved."
    TangentModified "tangent_modified" "A generated functional operator would modify the tangent in place."
    ForeachInplaceMethod "foreach_inplace_method" "An in-place method in the forward formula of a foreach reference."
    MaskIndex "mask_index" "A `wrap_opt_if` mask index is a position in the key, read as a position among arguments."
    NamedGradientIndex "named_gradient_index" "An unnamed differentiable return shifts the index of a named gradient."
    SelfTwice "self_twice" "`self` is required twice after in-place rewriting."
    ForeachMarkLost "foreach_mark_lost" "A mark on the reference is not carried over to the foreach operator."
    WrapOptIfCut "wrap_opt_if_cut" "The condition of a `wrap_opt_if` loses text."
    LettersCollide "letters_collide" "Annotation letters out of order: a generated out argument may reuse one."
    ReadingsDiffer "readings_differ" "The two readings disagree whether a name is used."
    FormulaIgnored "formula_ignored" "A formula beside `dispatch` is ignored."
    EntryUnused "entry_unused" "The entry is for an operator that is not declared."
    FormulaSyntax "formula_syntax" "A Rust formula that does not parse."
    LocalIsArgument "local_is_argument" "A function or local of a Rust formula has the name of an argument, which is saved for it."
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it is about.
    pub hazard: Hazard,
    /// The line in the derivatives file; for declarations, in theirs.
    pub line: usize,
    /// The entry.
    pub entry: String,
    /// What was found and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}\n  in {}", self.line, self.hazard.as_str(), self.message, self.entry)
    }
}

/// All findings, and how much was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// In file order.
    pub findings: Vec<Finding>,
    /// How many entries there are.
    pub entries: usize,
    /// How many formulas there are.
    pub formulas: usize,
}

impl Report {
    /// How many findings of a kind there are.
    pub fn count(&self, hazard: Hazard) -> usize {
        self.findings.iter().filter(|f| f.hazard == hazard).count()
    }

    fn add(&mut self, hazard: Hazard, line: usize, entry: &str, message: String) {
        self.findings.push(Finding { hazard, line, entry: entry.to_owned(), message });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let found = self.findings.len();
        write!(f, "{} entries, {} formulas, {found} findings", self.entries, self.formulas)
    }
}

/// A declared operator, as far as lint looks.
struct Declared {
    schema: FunctionSchema,
    line: usize,
    autogen: Vec<String>,
}

/// What is declared, ready to be asked.
struct Declarations {
    list: Vec<Declared>,
    by_text: HashMap<String, usize>,
    /// Bases of the operators from which foreach operators get their formulas.
    foreach: HashSet<String>,
    /// Bases that have an in-place form.
    inplace: HashSet<String>,
}

impl Declarations {
    fn new() -> Self {
        Declarations { list: Vec::new(), by_text: HashMap::new(), foreach: HashSet::new(), inplace: HashSet::new() }
    }

    fn add(&mut self, schema: FunctionSchema, line: usize, autogen: Vec<String>) {
        if schema.name.name.inplace {
            self.inplace.insert(schema.base().to_owned());
        }
        self.by_text.insert(schema.to_string(), self.list.len());
        self.list.push(Declared { schema, line, autogen });
    }

    /// Our own declarations, with the forms they ask for.
    fn ours(native: &str) -> Result<Self> {
        let sources = Sources { native, derivatives: "", tags: None, dialect: Dialect::Rust };
        let mut declarations = Self::new();
        for f in sources.functions()? {
            declarations.add(f.func.clone(), f.line, Vec::new());
        }
        Ok(declarations)
    }

    /// PyTorch's declarations, as far as they can be read.
    fn theirs(text: &str) -> Result<Self> {
        let root = yaml::parse(text, Stage::Native)?;
        let shape = |line, message| {
            let mut error = CodegenError::new(Stage::Native, Kind::YamlShape, message);
            error.line = Some(line);
            error
        };
        let items = root.as_list().ok_or_else(|| shape(root.line, "declarations are a list"))?;
        let mut declarations = Self::new();
        for item in items {
            let text = item.get("func").and_then(Node::as_str);
            let text = text.ok_or_else(|| shape(item.line, "a declaration needs `func`"))?;
            let text = text.rsplit("::").next().unwrap_or(text);
            let schema: FunctionSchema =
                text.parse().map_err(|e: crate::error::Refusal| e.at_stage(Stage::Native).at(item.line, text))?;
            let autogen = item.get("autogen").and_then(Node::as_str).unwrap_or_default();
            let autogen = autogen.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            declarations.add(schema, item.line, autogen);
        }
        Ok(declarations)
    }

    /// Notes which foreach operators have no entry of their own.
    fn find_references(&mut self, entries: &[Node]) {
        let own: HashSet<&str> = entries.iter().filter_map(|entry| entry.get("name")?.as_str()).collect();
        let without = self.by_text.iter().filter(|(text, _)| !own.contains(text.as_str()));
        let bases = without.filter_map(|(_, at)| self.list[*at].schema.base().strip_prefix("_foreach_"));
        self.foreach = bases.map(str::to_owned).collect();
    }

    fn find(&self, text: &str) -> Option<&Declared> {
        self.by_text.get(text).map(|at| &self.list[*at])
    }

    /// An operator that will be generated: its schema is the one the entry gives.
    fn generated(&self, text: &str, line: usize) -> Option<Declared> {
        let schema: FunctionSchema = text.parse().ok()?;
        let name = schema.name.to_string();
        let wanted = self.list.iter().any(|declared| declared.autogen.contains(&name));
        wanted.then_some(Declared { schema, line, autogen: Vec::new() })
    }
}

/// Looks for hazards in derivative entries and in the declarations they belong to.
pub fn lint(native: &str, derivatives: &str, dialect: Dialect) -> Result<Report> {
    let mut declarations = match dialect {
        Dialect::Cpp => Declarations::theirs(native).map_err(|e| e.in_file(NATIVE_FILE))?,
        Dialect::Rust => Declarations::ours(native)?,
    };
    let root = yaml::parse(derivatives, Stage::Derivatives).map_err(|e| e.in_file(DERIVATIVES_FILE))?;
    let mut entries = root.as_list().unwrap_or_default().to_vec();
    if dialect == Dialect::Rust {
        entries.extend(inline(&yaml::parse(native, Stage::Native).map_err(|e| e.in_file(NATIVE_FILE))?));
    }
    let entries = &entries[..];
    declarations.find_references(entries);
    let mut report = Report::default();
    for declared in &declarations.list {
        letters(declared, &mut report);
    }
    let mut by_function: HashMap<(FunctionSchema, String), (usize, String)> = HashMap::new();
    for entry in entries {
        let Some(name) = entry.get("name").and_then(Node::as_str) else { continue };
        report.entries += 1;
        let generated = declarations.generated(name, entry.line);
        let Some(declared) = declarations.find(name).or(generated.as_ref()) else {
            let message = "no such operator is declared: the entry has no effect".to_owned();
            report.add(Hazard::EntryUnused, entry.line, name, message);
            continue;
        };
        // Out forms describe the functional operator, in-place forms only themselves.
        let canonical = (declared.schema.signature(), declared.schema.name.name.to_string());
        if let Some((line, earlier)) = by_function.insert(canonical, (entry.line, name.to_owned())) {
            let message = format!("the entry at line {} replaces this one", entry.line);
            report.add(Hazard::EntryReplaced, line, &earlier, message);
        }
        entry::check(entry, declared, &declarations, dialect, &mut report);
    }
    Ok(report)
}

/// The derivatives that declarations of ours hold themselves, as entries; their lines are those of the declarations.
fn inline(root: &Node) -> Vec<Node> {
    let one = |item: &Node| {
        let (func, formulas) = (item.get("func")?, item.get("derivative")?);
        let name = (Node { line: func.line, value: Value::Str("name".to_owned()) }, func.clone());
        let pairs = std::iter::once(name).chain(formulas.as_map()?.iter().cloned()).collect();
        Some(Node { line: formulas.line, value: Value::Map(pairs) })
    };
    root.as_list().unwrap_or_default().iter().filter_map(one).collect()
}

/// Out variants take the letters that are free; letters out of order are not noticed.
fn letters(declared: &Declared, report: &mut Report) {
    let used = declared.schema.arguments.flat_all().filter_map(|a| a.annotation.as_ref());
    let used: Vec<char> = used.flat_map(|a| a.alias_set.iter().copied()).collect();
    if !used.is_sorted() && declared.autogen.iter().any(|name| name.contains("out")) {
        let message = "alias letters are not in rising order: a generated out argument may reuse one".to_owned();
        report.add(Hazard::LettersCollide, declared.line, &declared.schema.to_string(), message);
    }
}
