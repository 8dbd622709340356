//! `firebrand inspect`: a program's signature, graph and calls, and the ops this build cannot run.

use crate::program_file;
use crate::refusal::{Done, Refusal, say};
use firebrand::graph::ir::{GraphModule, Kind, Val};
use firebrand::graph::text::{self, Form};
use firebrand::graph::{ExportedProgram, GraphSignature, InputKind, LoadOptions};
use firebrand::io::plain;
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `firebrand inspect`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exported program, or a graph in text format
    #[arg(value_name = "MODEL.pt2")]
    model: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// How often each target is called, at any depth; most frequent first.
fn count_calls(module: &GraphModule) -> IndexMap<String, usize> {
    fn see(module: &GraphModule, counts: &mut IndexMap<String, usize>) {
        for id in module.graph.nodes() {
            if let Kind::CallFunction(target) = module.graph[id].kind() {
                *counts.entry(target.to_string()).or_default() += 1;
            }
        }
        module.subgraphs().for_each(|(_, g)| see(g, counts));
    }
    let mut counts = IndexMap::new();
    see(module, &mut counts);
    counts.sort_by(|a, n, b, m| m.cmp(n).then_with(|| a.cmp(b)));
    counts
}

fn inputs(program: &ExportedProgram, signature: &GraphSignature) -> Vec<Value> {
    let graph = &program.module.graph;
    let one = |(id, spec): (_, &firebrand::graph::InputSpec)| {
        let node = &graph[id];
        let mut entry = json!({
            "name": &**node.name(), "kind": spec.kind.name(), "type": node.meta().val.as_ref().map_or_else(|| "unknown".to_string(), Val::to_string),
        });
        if let Some(target) = spec.kind.target() {
            entry["target"] = json!(&**target);
        }
        if let InputKind::Buffer { persistent, .. } = &spec.kind {
            entry["persistent"] = json!(persistent);
        }
        entry
    };
    graph.placeholders().zip(&signature.inputs).map(one).collect()
}

/// Prints the program; returns an error if it contains unsupported ops.
pub(crate) fn run(options: &Options) -> Done {
    let (program, _) = program_file::read(&options.model, &LoadOptions::structure())?;
    let calls = count_calls(&program.module);
    let missing: IndexMap<String, usize> = program.unsupported().into_iter().map(|(t, n)| (t, n.len())).collect();
    let signature = program.signature.as_deref().cloned().unwrap_or_default();
    let inputs = inputs(&program, &signature);
    let outputs: Vec<Value> = signature
        .outputs
        .iter()
        .map(|o| {
            let mut entry = json!({"name": &**o.arg.name(), "kind": o.kind.name()});
            if let Some(target) = o.kind.target() {
                entry["target"] = json!(&**target);
            }
            entry
        })
        .collect();
    let ranges: serde_json::Map<String, Value> =
        program.range_constraints.iter().map(|(s, r)| (s.clone(), json!({"min": r.min, "max": r.max}))).collect();
    let torch = program.extras.as_ref().map_or("", |e| e.torch_version.as_str());
    if options.json {
        let all = json!({
            "schema": "firebrand.inspect/1", "dialect": program.dialect.name(), "torch_version": torch, "inputs": inputs, "outputs": outputs,
            "range_constraints": ranges, "ops": calls, "unsupported": missing,
            "graph": text::print_module(&program.module, Form::Short),
        });
        say!("{}", serde_json::to_string_pretty(&all).map_err(Refusal::because)?)?;
    } else {
        let source = if torch.is_empty() { String::new() } else { format!(" of PyTorch {}", plain(torch)) };
        say!("{}: {} program{source}", options.model.display(), program.dialect.name())?;
        for input in &inputs {
            let target = input["target"].as_str().map(|t| format!("  {t}")).unwrap_or_default();
            let [name, kind, ty] = ["name", "kind", "type"].map(|k| input[k].as_str().unwrap_or_default());
            say!("  {}", plain(&format!("{name}: {kind} {ty}{target}")))?;
        }
        for (symbol, range) in &ranges {
            say!("  {} in {}..{}", plain(symbol), range["min"], range["max"])?;
        }
        say!("\n{}", text::print(&program, Form::Short).trim_end())?;
        say!("\ncalls")?;
        for (target, n) in &calls {
            say!("{n:>6}  {}{}", plain(target), if missing.contains_key(target) { "  (not supported)" } else { "" })?;
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = missing.iter().map(|(t, n)| format!("{t} ({n})")).collect();
    Err(Refusal::because(format!("this build cannot run: {}", list.join(", "))))
}
