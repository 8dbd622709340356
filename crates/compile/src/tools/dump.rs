//! Graph drawings, in Graphviz's DOT language.

use firebrand_graph::ir::{GraphModule, Kind, Val};
use std::fmt::Write;

/// The graph in DOT: inputs and results as boxes, calls as ellipses with the sizes that are known.
pub fn dot(module: &GraphModule) -> String {
    let graph = &module.graph;
    let mut text = String::from("digraph {\n  node [fontname=monospace];\n");
    for n in graph.nodes() {
        let node = &graph[n];
        let (label, shape) = match node.kind() {
            Kind::CallFunction(target) => (format!("{}\\n{target}", node.name()), "ellipse"),
            Kind::Output => ("output".to_string(), "box"),
            _ => (node.name().to_string(), "box"),
        };
        let sizes = match node.meta().val.as_ref().and_then(Val::tensor) {
            Some(t) => {
                let sizes: Vec<String> =
                    t.sizes.iter().map(|s| s.hint().map_or("?".to_string(), |n| n.to_string())).collect();
                format!("\\n{}[{}]", t.dtype, sizes.join(", "))
            }
            None => String::new(),
        };
        let _ = writeln!(text, "  n{} [label=\"{label}{sizes}\", shape={shape}];", n.index());
        for input in graph.input_nodes(n) {
            let _ = writeln!(text, "  n{} -> n{};", input.index(), n.index());
        }
    }
    text.push_str("}\n");
    text
}
