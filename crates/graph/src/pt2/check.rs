//! Checks of a program that was read: the signature fits the graph, and the state exists. Symbols without a range get one.

use super::read::Place;
use crate::error::Result;
use crate::ir::{Expr, Kind, SymInt, TensorMeta, Val};
use crate::program::ExportedProgram;
use crate::signature::InputKind;
use firebrand_core::Tensor;
use indexmap::IndexMap;
use std::collections::HashSet;

/// As many specs as inputs and outputs, and the same names.
pub(super) fn check_signature(program: &ExportedProgram, place: Place<'_>) -> Result<()> {
    let (graph, signature) = (&program.module.graph, program.signature()?);
    let placeholders: Vec<_> = graph.placeholders().collect();
    if placeholders.len() != signature.inputs.len() {
        let (found, specs) = (placeholders.len(), signature.inputs.len());
        return Err(place.refuse(format!("{found} inputs of the graph, {specs} in the signature")));
    }
    for (id, spec) in placeholders.iter().zip(&signature.inputs) {
        if spec.arg.name() != graph[*id].name() {
            let (a, b) = (graph[*id].name(), spec.arg.name());
            return Err(place.refuse(format!("the graph calls an input {a:?}, the signature {b:?}")));
        }
    }
    let results = graph.result().and_then(|r| r.items()).map_or(0, <[_]>::len);
    if results != signature.outputs.len() {
        let specs = signature.outputs.len();
        return Err(place.refuse(format!("{results} outputs of the graph, {specs} in the signature")));
    }
    let names: HashSet<&str> = graph.nodes().map(|id| &**graph[id].name()).collect();
    for spec in &signature.outputs {
        if let Some(name) = spec.arg.node()
            && !names.contains(&**name)
        {
            return Err(place.refuse(format!("the signature names the output {name:?}, which is not a value")));
        }
    }
    Ok(())
}

/// Gives every symbol that an input binds a range: PyTorch writes none for one that nothing constrains.
pub(super) fn complete_ranges(program: &mut ExportedProgram) {
    let graph = &program.module.graph;
    let mut open = Vec::new();
    let mut see = |e: &Expr| e.for_each_symbol(&mut |s| open.push(s.to_string()));
    for id in graph.placeholders() {
        match &graph[id].meta().val {
            Some(Val::Tensor(t)) => t.sizes.iter().filter_map(SymInt::expr).for_each(&mut see),
            Some(Val::SymInt(s)) => s.expr().into_iter().for_each(&mut see),
            _ => {}
        }
    }
    for symbol in open {
        program.range_constraints.entry(symbol).or_default();
    }
}

/// Everything the signature names is there, where it belongs, and is what the graph was traced with.
pub(super) fn check_state(program: &ExportedProgram, place: Place<'_>) -> Result<()> {
    let graph = &program.module.graph;
    for (id, spec) in graph.placeholders().zip(&program.signature()?.inputs) {
        let found = match &spec.kind {
            InputKind::Parameter(t) => program.state_dict.contains_key(&**t),
            InputKind::Buffer { target, persistent: true } => program.state_dict.contains_key(&**target),
            InputKind::Buffer { target, persistent: false } => program.constants.contains_key(&**target),
            InputKind::ConstantTensor(t) | InputKind::CustomObj(t) => program.constants.contains_key(&**t),
            InputKind::UserInput | InputKind::Token => true,
        };
        let Some(target) = spec.kind.target() else { continue };
        if !found {
            let kind = spec.kind.name();
            return Err(
                place.refuse(format!("the signature names the {kind} {target:?}, which the archive does not hold"))
            );
        }
        if let (Some(tensor), Some(Val::Tensor(meta))) = (program.state(target), &graph[id].meta().val)
            && !fits(tensor, meta)
        {
            let sizes: Vec<Option<i64>> = meta.sizes.iter().map(SymInt::hint).collect();
            return Err(place.refuse(format!(
                "{target}: the graph expects {} of {sizes:?}, the archive holds {} of {:?}",
                meta.dtype,
                tensor.dtype(),
                tensor.shape()
            )));
        }
    }
    Ok(())
}

/// Whether a tensor has the element type and the sizes that are known.
fn fits(tensor: &Tensor, meta: &TensorMeta) -> bool {
    let same = |(size, expected): (&usize, &SymInt)| expected.known().is_none_or(|n| n == *size as i64);
    meta.dtype.dtype() == Some(tensor.dtype())
        && meta.sizes.len() == tensor.ndim()
        && tensor.shape().iter().zip(&meta.sizes).all(same)
}

impl ExportedProgram {
    /// The unsupported targets that the program calls, with the names of the nodes, at any depth.
    pub fn unsupported(&self) -> Vec<(String, Vec<String>)> {
        let mut found: IndexMap<String, Vec<String>> = IndexMap::new();
        let mut stack = vec![self.module.clone()];
        while let Some(module) = stack.pop() {
            for id in module.graph.nodes() {
                let node = &module.graph[id];
                if let Kind::CallFunction(target) = node.kind()
                    && !super::is_supported(target)
                {
                    found.entry(target.to_string()).or_default().push(node.name().to_string());
                }
            }
            stack.extend(module.subgraphs().map(|(_, g)| g.clone()));
        }
        found.into_iter().collect()
    }
}
