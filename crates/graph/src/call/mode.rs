//! Switches a program between training and evaluation mode: the training flags of dropout, batch norm and recurrent
//! layers are changed in a copy of the graph. Decomposed programs have no such flags and stay unchanged.

use crate::ir::{Argument, Attribute, GraphModule, NodeId};
use firebrand_core::dispatch::Op;
use std::sync::Arc;

/// The op's training flag: position and name.
fn flag(op: Op) -> Option<(usize, &'static str)> {
    let k = usize::from(op.info().training?);
    Some((k, op.schema().args[k].name))
}

/// Nodes with a training flag, and its value.
fn flagged(module: &GraphModule) -> impl Iterator<Item = (NodeId, (usize, &'static str), bool)> + '_ {
    module.graph.nodes().filter_map(|id| {
        let node = &module.graph[id];
        let at = flag(node.target()?.overload()?.op()?)?;
        let value = node.args().get(at.0).or_else(|| node.kwargs().iter().find(|(n, _)| **n == *at.1).map(|(_, v)| v));
        match value {
            Some(Argument::Bool(b)) => Some((id, at, *b)),
            _ => None,
        }
    })
}

/// The mode a program was exported in, if any op depends on it.
pub(crate) fn exported_mode(module: &GraphModule) -> Option<bool> {
    let below = || module.subgraphs().filter_map(|(_, g)| exported_mode(g)).max();
    // One layer that trains is enough: frozen ones do not.
    flagged(module).map(|(.., on)| on).max().or_else(below)
}

/// The same program in the other mode.
pub(crate) fn with_mode(module: &GraphModule, training: bool) -> GraphModule {
    let mut changed = module.clone();
    let nodes: Vec<_> = flagged(module).filter(|(.., on)| *on != training).collect();
    for (id, (k, name), _) in nodes {
        let node = &changed.graph[id];
        let mut args = node.args().to_vec();
        let mut kwargs = node.kwargs().to_vec();
        match args.get_mut(k) {
            Some(arg) => *arg = Argument::Bool(training),
            None => kwargs.iter_mut().filter(|(n, _)| **n == *name).for_each(|(_, v)| *v = Argument::Bool(training)),
        }
        changed.graph.set_arguments(id, args, kwargs);
    }
    let below: Vec<_> = module.subgraphs().map(|(n, g)| (n.clone(), with_mode(g, training))).collect();
    for (name, graph) in below {
        changed.attributes.set(&name, Attribute::Graph(Arc::new(graph)));
    }
    changed
}
