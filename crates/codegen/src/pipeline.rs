//! The stages in order: from the text of two files to a model, plans and a dump.

use crate::dialect::Dialect;
use crate::dump::{self, OutputsByKey};
use crate::error::{Kind, Result, Stage};
use crate::model::{FunctionWithInfo, Infos};
use crate::native::NativeFunction;
use crate::outputs::differentiable_outputs;
use crate::plan::{self, Plans};
use crate::{CodegenError, load, matching, names, native, yaml};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The inputs of the generator.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// Operator declarations.
    pub native: &'a str,
    /// Derivative entries.
    pub derivatives: &'a str,
    /// A list of tags that replaces the known ones.
    pub tags: Option<&'a str>,
    /// The language of formulas.
    pub dialect: Dialect,
}

/// Everything known about all operators.
#[derive(Clone, Debug)]
pub struct Model {
    /// Infos by printed schema: entries, view copies, foreach operators.
    pub infos: Infos,
    /// Every function with the infos it uses, in the order of C++ names.
    pub functions: Vec<FunctionWithInfo>,
    /// Autograd keys that some entry has formulas for.
    pub used_dispatch_keys: BTreeSet<String>,
}

/// How errors name the declarations file until a caller knows better.
pub const NATIVE_FILE: &str = "native_functions.yaml";
/// How errors name the derivatives file until a caller knows better.
pub const DERIVATIVES_FILE: &str = "derivatives.yaml";

impl Sources<'_> {
    /// Reads the declarations.
    pub fn functions(&self) -> Result<Vec<Rc<NativeFunction>>> {
        let tags = self.tags.map(read_tags).transpose()?;
        let tags = tags.as_ref().map(|tags| tags.iter().map(String::as_str).collect::<Vec<_>>());
        let known = match self.dialect {
            Dialect::Cpp => names::TAGS,
            Dialect::Rust => names::RUST_TAGS,
        };
        native::parse(self.native, tags.as_deref().unwrap_or(known), self.dialect).map_err(|e| e.in_file(NATIVE_FILE))
    }

    /// The JSON of the declarations as they were understood, with the generated variants: what `firebrand codegen declarations` prints.
    pub fn declarations(&self) -> Result<String> {
        Ok(crate::declarations::print(&self.functions()?))
    }

    /// Builds the model.
    pub fn model(&self) -> Result<Model> {
        // A third of all the work is reading YAML, and the two files know nothing of each other.
        let (functions, entries) = std::thread::scope(|scope| {
            let entries = scope.spawn(|| yaml::parse(self.derivatives, Stage::Derivatives));
            (self.functions(), entries.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let functions = functions?;
        let loaded = entries.and_then(|entries| load::load(&functions, &entries, self.dialect));
        let loaded = loaded.map_err(|e| e.in_file(DERIVATIVES_FILE))?;
        let mut infos = loaded.infos;
        let functions =
            matching::match_functions(&functions, &mut infos, self.dialect).map_err(|e| e.in_file(NATIVE_FILE))?;
        Ok(Model { infos, functions, used_dispatch_keys: loaded.used_dispatch_keys })
    }

    /// The canonical JSON of the model, with the plans if wanted.
    pub fn dump(&self, with_plan: bool) -> Result<String> {
        let model = self.model()?;
        let outputs = model.outputs()?;
        let plans = if with_plan { Some(model.plans()?) } else { None };
        Ok(dump::print(&model, &outputs, plans.as_ref()))
    }
}

impl Model {
    /// Plans nodes and wrappers.
    pub fn plans(&self) -> Result<Plans> {
        plan::plan(&self.infos, &self.functions).map_err(|e| e.in_file(NATIVE_FILE))
    }

    /// Differentiable outputs of every function that gets a wrapper.
    fn outputs(&self) -> Result<Vec<OutputsByKey>> {
        self.functions.iter().map(|f| outputs_of(f).map_err(|e| e.in_file(NATIVE_FILE))).collect()
    }
}

fn outputs_of(f: &FunctionWithInfo) -> Result<OutputsByKey> {
    if !f.use_derived() {
        return Ok(None);
    }
    let one = |(key, info): (&str, Option<&Rc<_>>)| {
        let outputs = differentiable_outputs(f, info.map(|info| &**info));
        let outputs = outputs.map_err(|e| e.at_stage(Stage::Outputs).at(f.func.line, &f.func.text))?;
        Ok((key.to_owned(), outputs))
    };
    f.keys().into_iter().map(one).collect::<Result<Vec<_>>>().map(Some)
}

/// Reads a tags file: a list of mappings with the key `tag`.
fn read_tags(text: &str) -> Result<Vec<String>> {
    let root = yaml::parse(text, Stage::Native)?;
    let tag = |item: &yaml::Node| Some(item.get("tag")?.as_str()?.to_owned());
    let tags = root.as_list().and_then(|items| items.iter().map(tag).collect());
    tags.ok_or_else(|| CodegenError::new(Stage::Native, Kind::YamlShape, "tags are a list of `tag: name`"))
}

/// The canonical JSON for PyTorch's dialect: what `firebrand codegen dump` prints.
pub fn dump(native: &str, derivatives: &str, plan: bool) -> Result<String> {
    Sources { native, derivatives, tags: None, dialect: Dialect::Cpp }.dump(plan)
}

/// The canonical JSON of an error.
pub fn error_json(error: &CodegenError) -> String {
    dump::print_error(error)
}
