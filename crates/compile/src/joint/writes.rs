//! Counts how often a graph writes each of its inputs: a tensor's version counts writes, and a compiled graph writes each input once.

use firebrand_graph::ir::{Argument, Function, GraphModule, Hop, NodeId, OpOverload, Target};
use std::collections::HashMap;

/// The writes of a graph, and whose memory its results are.
pub(super) struct Writes {
    /// For each input.
    pub(super) counts: Vec<usize>,
    /// For each result, the input in whose memory it lies.
    results: Vec<Option<usize>>,
}

impl Writes {
    pub(super) fn of(module: &GraphModule) -> Writes {
        let g = &module.graph;
        // The input in whose memory a value lies, and those of the results of regions.
        let mut roots: HashMap<NodeId, usize> = g.placeholders().enumerate().map(|(k, n)| (n, k)).collect();
        let mut parts: HashMap<NodeId, Vec<Option<usize>>> = HashMap::new();
        let mut counts = vec![0; roots.len()];
        for n in g.nodes() {
            let Some(target) = g[n].target() else { continue };
            let first = g[n].args().first().and_then(Argument::node);
            let root = first.and_then(|of| roots.get(&of).copied());
            if let Some(region) = region(module, n, target) {
                let operand = |k: usize| g[n].args().get(region.operands + k).and_then(Argument::node);
                let of = |k: usize| operand(k).and_then(|n| roots.get(&n).copied());
                let inner = Writes::of(region.graph);
                for (k, count) in inner.counts.iter().enumerate() {
                    if let Some(input) = of(k) {
                        counts[input] += count;
                    }
                }
                parts.insert(n, inner.results.iter().map(|r| r.and_then(of)).collect());
                continue;
            }
            let part = || match (first.and_then(|of| parts.get(&of)), g[n].args().get(1)) {
                (Some(list), Some(Argument::Int(k))) => list.get(usize::try_from(*k).ok()?).copied().flatten(),
                _ => root,
            };
            let schema = target.overload().and_then(OpOverload::schema);
            let (view, write) = schema.map_or((false, false), |s| (s.is_view(), s.mutates()));
            let found = match target {
                _ if target.is_function(&Function::GetItem) => part(),
                _ if view || write || target.is_function(&Function::RegisterHook) => root,
                _ => None,
            };
            if let Some(input) = found {
                roots.insert(n, input);
                counts[input] += usize::from(write);
            }
        }
        let returned = g.result().and_then(Argument::items).unwrap_or(&[]);
        let results = returned.iter().map(|a| a.node().and_then(|n| roots.get(&n).copied())).collect();
        Writes { counts, results }
    }
}

/// A sub-graph that a node runs once, and where its operands begin among the arguments.
struct Region<'a> {
    graph: &'a GraphModule,
    operands: usize,
}

fn region<'a>(module: &'a GraphModule, n: NodeId, target: &Target) -> Option<Region<'a>> {
    let operands = match target {
        Target::Hop(Hop::WrapWithSetGradEnabled) => 2,
        Target::Hop(Hop::WrapWithAutocast) => 5,
        _ => return None,
    };
    let body = module.graph[n].args().get(operands - 1).and_then(Argument::node)?;
    let graph = module.graph[body].attr_path().and_then(|path| module.subgraph(path))?;
    Some(Region { graph, operands })
}
