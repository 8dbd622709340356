//! The model to train: the built-in one or an exported program, and which of its parameters are frozen.

use super::data::Batch;
use super::model;
use super::options::Options;
use crate::program::{WeightOptions, compiled, load_program};
use crate::refusal::{Done, Refusal};
use firebrand::digits;
use firebrand::graph::interpret::Value;
use firebrand::graph::ir::Symbolic;
use firebrand::graph::{ExportedProgram, ProgramModule};
use firebrand::io::plain;
use firebrand::nn::layers::Sequential;
use firebrand::prelude::*;
use std::path::Path;

/// An input of a program.
#[derive(Clone, Debug)]
pub(crate) struct InputSpec {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// Sizes, `None` where they are free; the first is the batch.
    pub(crate) sizes: Vec<Option<usize>>,
    /// The least and the most of every size.
    pub(crate) ranges: Vec<(usize, usize)>,
}

impl InputSpec {
    /// The shape of one sample, if it is fixed.
    pub(crate) fn sample_shape(&self) -> Option<Vec<usize>> {
        self.sizes.get(1..)?.iter().copied().collect()
    }

    /// The dtype in which the program takes an array: floats are converted to the input's, with a note; anything else must match.
    pub(crate) fn fit(
        &self,
        shape: &[usize],
        found: DType,
        notes: &mut Vec<String>,
    ) -> std::result::Result<DType, String> {
        let name = plain(&self.name);
        if shape.len() != self.sizes.len() {
            let shown: Vec<String> = self.sizes.iter().map(|s| s.map_or("*".into(), |n| n.to_string())).collect();
            return Err(format!("input `{name}`: expected shape [{}], found {:?}", shown.join(", "), shape));
        }
        for (k, (found, expected)) in shape.iter().zip(&self.sizes).enumerate().skip(1) {
            if let Some(expected) = expected
                && expected != found
            {
                return Err(format!("input `{name}`: expected {expected} in dimension {k}, found shape {shape:?}"));
            }
        }
        let expected = self.dtype;
        if found == expected {
            return Ok(found);
        }
        if (found.is_floating_point() && expected.is_floating_point()) || (found.is_integer() && expected.is_integer())
        {
            notes.push(format!("input `{name}`: {found} is converted to {expected}"));
            return Ok(expected);
        }
        Err(format!("input `{name}`: expected {expected}, found {found}; convert it with .astype(\"{expected}\")"))
    }
}

/// What is trained.
pub(crate) enum Subject {
    /// The built-in model.
    Digits(Sequential),
    /// An exported program.
    Program(Box<ProgramModule>),
}

/// Loads the program to train, or makes the built-in model. What changes a program before it is trained (adapters,
/// other weights) belongs here, between loading and `ExportedProgram::module`.
pub(super) fn load(options: &Options) -> Done<Subject> {
    let Some(path) = &options.model else { return Ok(Subject::Digits(model::convolutional()?)) };
    let mut subject = Subject::Program(Box::new(options.adapt.load(path, options.weights)?));
    if let (true, Subject::Program(module)) = (options.compile, &mut subject) {
        module.set_evaluator(compiled());
    }
    Ok(subject)
}

impl Subject {
    /// A program with its own copy of the state.
    pub(crate) fn program(path: &Path, weights: WeightOptions) -> Done<Subject> {
        let program = load_program(path, weights)?;
        Ok(Subject::Program(Box::new(program.module().map_err(Refusal::because)?)))
    }

    /// As a module.
    pub(crate) fn module(&self) -> &dyn Module {
        match self {
            Subject::Digits(model) => model,
            Subject::Program(program) => &**program,
        }
    }

    /// The inputs, in order.
    pub(crate) fn inputs(&self) -> Done<Vec<InputSpec>> {
        match self {
            Subject::Digits(_) => {
                let sizes = vec![None, Some(1), Some(8), Some(8)];
                let ranges = vec![(1, usize::MAX), (1, 1), (8, 8), (8, 8)];
                Ok(vec![InputSpec { name: "image".into(), dtype: DType::F32, sizes, ranges }])
            }
            Subject::Program(module) => {
                let (program, inputs) = (module.program(), module.tensor_inputs().map_err(Refusal::because)?);
                let spec = |(name, meta): (&str, &firebrand::graph::ir::TensorMeta)| {
                    let dtype = meta
                        .dtype
                        .dtype()
                        .ok_or_else(|| Refusal::because(format!("input `{}` has an unsupported dtype", plain(name))))?;
                    let sizes = meta.sizes.iter().map(|s| s.known().and_then(|n| usize::try_from(n).ok())).collect();
                    let ranges = meta.sizes.iter().map(|s| range(&program, s)).collect();
                    Ok(InputSpec { name: name.to_string(), dtype, sizes, ranges })
                };
                inputs.into_iter().map(spec).collect()
            }
        }
    }

    /// Names of the outputs, flattened.
    pub(crate) fn outputs(&self) -> Vec<String> {
        match self {
            Subject::Digits(_) => vec!["scores".into()],
            Subject::Program(module) => module.output_names(),
        }
    }

    /// Runs on a batch; outputs by position, `None` for those that are not tensors.
    pub(crate) fn forward(&self, batch: &Batch) -> Result<Vec<Option<Tensor>>> {
        match self {
            Subject::Digits(model) => Ok(vec![Some(model.try_call(&batch.inputs[0])?)]),
            Subject::Program(module) => {
                let outputs = module.run(&batch.inputs)?;
                let tensor = |v| if let Value::Tensor(t) = v { Some(t) } else { None };
                Ok(outputs.into_iter().map(tensor).collect())
            }
        }
    }

    /// The smallest and largest batch the program accepts.
    pub(crate) fn batch_range(&self) -> Done<(usize, usize)> {
        let (mut least, mut most) = (1, usize::MAX);
        for (min, max) in self.inputs()?.iter().filter_map(|i| i.ranges.first().copied()) {
            (least, most) = (least.max(min), most.min(max));
        }
        Ok((least, most))
    }

    /// A short description, for the report.
    pub(super) fn description(&self, options: &Options) -> String {
        match &options.model {
            Some(path) => path.display().to_string(),
            None => format!("convolutional network ({}) for {} digits", model::DESCRIPTION, digits::CLASSES),
        }
    }
}

/// The least and the most that a size of a program's input may be.
fn range(program: &ExportedProgram, size: &Symbolic<i64>) -> (usize, usize) {
    let number = |n: Option<i64>| n.and_then(|n| usize::try_from(n).ok());
    if let Some(n) = number(size.known()) {
        return (n, n);
    }
    let range = size.expr().and_then(|e| e.symbol()).and_then(|s| program.range_constraints.get(s));
    (range.and_then(|r| number(r.min)).unwrap_or(1).max(1), range.and_then(|r| number(r.max)).unwrap_or(usize::MAX))
}

/// Whether a name matches a pattern in which `*` matches any text.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Returns an error for a pattern that matches no name.
pub(super) fn check_pattern(option: &str, pattern: &str, names: &[&str]) -> Done {
    if names.iter().any(|n| matches(pattern, n)) {
        return Ok(());
    }
    let shown: Vec<String> = names.iter().take(12).map(|n| plain(n).into_owned()).collect();
    let more = if names.len() > shown.len() { ", …" } else { "" };
    let message = format!("{option} {}: no parameter matches; there are {}{more}", plain(pattern), shown.join(", "));
    Err(Refusal::because(message))
}

/// Freezes what is not to be trained; `*` in a pattern matches any text. Returns what must be undone before the program
/// is saved: freezing only concerns this run.
pub(super) fn freeze(options: &Options, module: &dyn Module) -> Done<Vec<Parameter>> {
    let parameters = module.named_parameters();
    let names: Vec<&str> = parameters.iter().map(|(n, _)| n.as_str()).collect();
    for (option, patterns) in [("--trainable", &options.trainable), ("--freeze", &options.freeze)] {
        patterns.iter().try_for_each(|p| check_pattern(option, p, &names))?;
    }
    let any = |patterns: &[String], name: &str| patterns.iter().any(|p| matches(p, name));
    let mut frozen = Vec::new();
    for (name, p) in &parameters {
        let wanted = options.trainable.is_empty() || any(&options.trainable, name);
        if p.requires_grad() && (!wanted || any(&options.freeze, name)) {
            p.try_set_requires_grad(false)?;
            frozen.push(p.clone());
        }
    }
    if !parameters.iter().any(|(_, p)| p.requires_grad()) {
        return Err(Refusal::because("nothing is left to train: no parameter requires grad"));
    }
    Ok(frozen)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name, expected) in [
            ("head.*", "head.weight", true),
            ("head.*", "body.head.weight", false),
            ("*.bias", "head.bias", true),
            ("*.bias", "head.bias2", false),
            ("layers.*.norm*", "layers.3.norm1.weight", true),
            ("layers.*.norm*.bias", "layers.3.norm1.weight", false),
            ("fc", "fc", true),
            ("fc", "fc1", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
