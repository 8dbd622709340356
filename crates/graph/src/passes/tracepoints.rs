//! collect_tracepoints_pass: moves module calls from markers to the module call graph, and removes the markers.

use super::{Context, Report};
use crate::error::Result;
use crate::ir::*;
use crate::program::{ExportedProgram, ModuleCallEntry, ModuleCallSignature};
use crate::signature::SpecArg;
use std::sync::Arc;

/// Runs the pass on the top graph.
pub fn collect_tracepoints_pass(program: &ExportedProgram, _: &Context) -> Result<(ExportedProgram, Report)> {
    let target = Target::from(Hop::ExportTracepoint);
    let markers: Vec<NodeId> = program.module.graph.find_calls(&target).collect();
    if markers.is_empty() {
        return Ok((program.clone(), Report::default()));
    }
    let mut result = program.clone();
    let module = Arc::make_mut(&mut result.module);
    for &marker in &markers {
        let args: Vec<Argument> = module.graph[marker].args().to_vec();
        record(&mut result.module_call_graph, &module.graph, marker, &args);
        let users: Vec<NodeId> = module.graph.users(marker).collect();
        for user in users {
            if let [_, Argument::Int(i)] = module.graph[user].args()
                && let Some(value) = usize::try_from(*i).ok().and_then(|i| args.get(i)).cloned()
            {
                rename_outputs(&mut result.signature, &module.graph, user, &value);
                module.graph.replace_all_uses_with(user, value);
                module.graph.erase(user)?;
            }
        }
        module.graph.erase(marker)?;
    }
    Ok((result, Report::of(markers.len())))
}

fn rename_outputs(
    signature: &mut Option<Arc<crate::signature::GraphSignature>>,
    graph: &Graph,
    old: NodeId,
    new: &Argument,
) {
    if let (Some(signature), Some(new)) = (signature, new.node()) {
        Arc::make_mut(signature).replace_all_uses(graph[old].name(), graph[new].name());
    }
}

fn record(entries: &mut Vec<ModuleCallEntry>, graph: &Graph, marker: NodeId, args: &[Argument]) {
    let text = |key: &str| {
        let value = graph[marker].kwargs().iter().find(|(k, _)| &**k == key).map(|(_, a)| a);
        if let Some(Argument::Str(s)) = value { s.to_string() } else { String::new() }
    };
    let (kind, path) = (text("kind"), text("path"));
    let spec = |a: &Argument| match a.node() {
        None => SpecArg::Constant { name: "".into(), value: a.clone() },
        Some(n) => match graph[n].meta().val {
            Some(Val::SymInt(_)) => SpecArg::SymInt(graph[n].name().clone()),
            _ => SpecArg::Tensor(graph[n].name().clone()),
        },
    };
    let at = entries.iter().position(|e| e.fqn == path).unwrap_or_else(|| {
        entries.push(ModuleCallEntry { fqn: path.clone(), signature: None });
        entries.len() - 1
    });
    let signature = entries[at].signature.get_or_insert_with(ModuleCallSignature::default);
    let specs = args.iter().map(spec).collect();
    match kind.as_str() {
        "module_call_inputs" => signature.inputs = specs,
        _ => signature.outputs = specs,
    }
}
