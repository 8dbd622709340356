//! placeholder_naming_pass: names inputs after their role, and renames other nodes where they collide.
//!
//! The caller's inputs keep their names (in lower case) and win collisions; state is called `p_`, `b_`, `c_` or `obj_`
//! and its qualified name; other nodes keep theirs if they can. Bodies of higher-order calls take the names of their
//! operands.

use super::{Context, Report};
use crate::error::Result;
use crate::ir::*;
use crate::program::ExportedProgram;
use crate::signature::{GraphSignature, InputKind, OutputKind};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Runs the pass.
pub fn placeholder_naming_pass(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    let signature = program.signature()?;
    let graph = &program.module.graph;
    let mut names = Names::default();
    let placeholders: Vec<NodeId> = graph.placeholders().collect();
    for user in [true, false] {
        for (&n, spec) in placeholders.iter().zip(&signature.inputs) {
            if (spec.kind == InputKind::UserInput) == user {
                let wanted = wanted_name(&spec.kind, graph[n].name());
                names.give(n, &wanted, true);
            }
        }
    }
    // Inputs that the signature does not tell of keep their names too, if they can.
    for n in graph.nodes() {
        if !names.given.contains_key(&n) {
            names.give(n, graph[n].name(), false);
        }
    }
    let renamed: HashMap<Name, Name> =
        names.given.iter().map(|(n, new)| (graph[*n].name().clone(), new.clone())).collect();
    let mut module = (*program.module).clone();
    let mut count = apply(&mut module.graph, &names);
    count += name_bodies(&mut module);
    if count == 0 {
        return Ok((program.clone(), Report::default()));
    }
    let mut result = program.clone();
    result.module = Arc::new(module);
    result.signature = Some(Arc::new(rename_specs(signature, &renamed)));
    Ok((result, Report::of(count)))
}

fn wanted_name(kind: &InputKind, current: &str) -> String {
    let plain = |s: &str| s.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
    let prefix = match kind {
        InputKind::UserInput => return current.to_lowercase(),
        InputKind::Token => return "token".to_string(),
        InputKind::Parameter(_) => "p_",
        InputKind::Buffer { .. } => "b_",
        InputKind::ConstantTensor(_) => "c_",
        InputKind::CustomObj(_) => "obj_",
    };
    let target = kind.target().map_or("", |t| t);
    // A constant that was lifted under a name like its kind keeps one prefix.
    format!("{prefix}{}", plain(target)).to_lowercase()
}

/// Names given so far, and the highest suffix seen for each base.
#[derive(Default)]
struct Names {
    given: HashMap<NodeId, Name>,
    used: HashSet<Name>,
    highest: HashMap<String, u64>,
}

impl Names {
    fn give(&mut self, n: NodeId, wanted: &str, placeholder: bool) {
        let (base, suffix) = split_suffix(wanted);
        let key = if placeholder || suffix.is_none() { wanted } else { base };
        let mut name: Name = wanted.into();
        while self.used.contains(&name) {
            let next = self.highest.get(key).map_or(0, |n| n + 1).max(1);
            self.highest.insert(key.to_string(), next);
            name = format!("{key}_{next}").into();
        }
        if let (base, Some(n)) = split_suffix(&name) {
            let highest = self.highest.entry(base.to_string()).or_insert(0);
            *highest = (*highest).max(n);
        }
        self.used.insert(name.clone());
        self.given.insert(n, name);
    }
}

/// Gives nodes their names; returns how many changed.
fn apply(graph: &mut Graph, names: &Names) -> usize {
    let changed: Vec<(NodeId, Name)> =
        names.given.iter().filter(|(n, name)| graph[**n].name() != *name).map(|(n, name)| (*n, name.clone())).collect();
    let count = changed.len();
    graph.set_names(changed);
    let placeholders: Vec<NodeId> = graph.placeholders().collect();
    for n in placeholders {
        let name = graph[n].name().clone();
        if !matches!(graph[n].kind(), Kind::Placeholder(t) if t.starts_with('*')) {
            graph.set_kind(n, Kind::Placeholder(name));
        }
    }
    count
}

/// Names the placeholders of bodies after the operands they take, level by level.
fn name_bodies(module: &mut GraphModule) -> usize {
    let mut wanted: Vec<(Name, Vec<Name>)> = Vec::new();
    let graph = &module.graph;
    for n in graph.nodes() {
        let Some(Target::Hop(hop)) = graph[n].target() else { continue };
        let args = graph[n].args();
        let (bodies, operands): (&[Argument], Vec<Argument>) = match (hop, args) {
            (Hop::Cond, [_, _, _, operands]) => (&args[1..3], operands.items().unwrap_or(&[]).to_vec()),
            (Hop::WrapWithSetGradEnabled, [_, _, operands @ ..]) => (&args[1..2], operands.to_vec()),
            (Hop::MapImpl, [_, xs, extra]) => {
                let items = [xs, extra].into_iter().flat_map(|a| a.items().unwrap_or(&[]));
                (&args[..1], items.cloned().collect())
            }
            _ => continue,
        };
        let names: Vec<Name> = operands.iter().filter_map(Argument::node).map(|n| graph[n].name().clone()).collect();
        for body in bodies {
            if let Some(path) = body.node().and_then(|n| graph[n].attr_path()) {
                wanted.push((path.clone(), names.clone()));
            }
        }
    }
    let mut count = 0;
    for (path, operands) in wanted {
        let Some(body) = module.subgraph(&path) else { continue };
        let mut body = (**body).clone();
        let mut names = Names::default();
        let placeholders: Vec<NodeId> = body.graph.placeholders().collect();
        if placeholders.len() == operands.len() {
            for (&n, name) in placeholders.iter().zip(&operands) {
                names.give(n, name, true);
            }
            for n in body.graph.nodes() {
                if !body.graph[n].is_placeholder() {
                    names.give(n, body.graph[n].name(), false);
                }
            }
            count += apply(&mut body.graph, &names);
        }
        count += name_bodies(&mut body);
        module.attributes.set(&path, Attribute::Graph(Arc::new(body)));
    }
    count
}

fn rename_specs(signature: &GraphSignature, renamed: &HashMap<Name, Name>) -> GraphSignature {
    let mut signature = signature.clone();
    let args = signature.inputs.iter_mut().map(|s| &mut s.arg).chain(signature.outputs.iter_mut().map(|s| &mut s.arg));
    for arg in args {
        if let Some(new) = renamed.get(arg.name()) {
            arg.set_name(new.clone());
        }
    }
    for spec in &mut signature.outputs {
        if let OutputKind::UserInputMutation(t) | OutputKind::GradientToUserInput(t) = &mut spec.kind
            && let Some(new) = renamed.get(t)
        {
            *t = new.clone();
        }
    }
    signature
}
