//! Loose views: made where nothing is recorded, of something that requires grad.
//!
//! Such a view requires grad as its base does, but no gradient reaches the base through it. What an eager run computes from
//! it while recording has a history that ends there. A view chain made anew from its base would not end, so a graph that
//! goes on from a loose view runs node by node; and so does one that returns a loose view of a value which it computes: of its own
//! that value has a history only where a gradient may arrive.

use super::stages::is_recorded;
use super::trace::Input;
use firebrand_graph::ir::{Argument, Function, GraphModule, Hop, NodeId, OpOverload, Target};
use firebrand_graph::schema::Schema;
use std::collections::HashSet;

/// What a graph does with loose views while it records.
pub(super) enum Loose {
    /// It continues from one.
    GoesOn,
    /// These of its results are loose views, by their places.
    Results(Vec<usize>),
}

impl Loose {
    pub(super) fn of(graph: &GraphModule, inputs: &[Input]) -> Loose {
        let wants = |i: &Input| matches!(i, Input::Tensor(meta) if meta.requires_grad);
        let mut walk = Walk::default();
        let placeholders = graph.graph.placeholders().zip(inputs);
        walk.grad.extend(placeholders.filter(|(_, i)| wants(i)).map(|(n, _)| n));
        if walk.run(graph, true) {
            return Loose::GoesOn;
        }
        let results = graph.graph.result().and_then(Argument::items).unwrap_or(&[]).iter().enumerate();
        let is_loose = |a: &Argument| a.node().is_some_and(|n| walk.loose.contains(&n) && is_recorded(graph, n));
        Loose::Results(results.filter(|(_, a)| is_loose(a)).map(|(place, _)| place).collect())
    }
}

#[derive(Default)]
struct Walk {
    /// What may require grad.
    grad: HashSet<NodeId>,
    loose: HashSet<NodeId>,
}

impl Walk {
    fn run(&mut self, graph: &GraphModule, mut recording: bool) -> bool {
        let g = &graph.graph;
        for n in g.nodes() {
            let node = &g[n];
            let Some(target) = node.target() else { continue };
            if target.is_function(&Function::SetGradEnabled) {
                recording = node.args().first() != Some(&Argument::Bool(false));
                continue;
            }
            let of = |set: &HashSet<NodeId>| g.input_nodes(n).any(|i| set.contains(&i));
            if recording && of(&self.loose) {
                return true;
            }
            if !of(&self.grad) {
                continue;
            }
            let quiet = *target == Target::from(Hop::WrapWithSetGradEnabled)
                && node.args().first() == Some(&Argument::Bool(false));
            let region = || g.input_nodes(n).find_map(|i| graph.subgraph(g[i].attr_path()?));
            let passes = target.is_function(&Function::GetItem) || target.is_function(&Function::RegisterHook);
            let kept = if passes || writes(target) {
                of(&self.loose)
            } else if quiet {
                region().is_none_or(|region| gives_views(region))
            } else {
                !recording && is_view(target)
            };
            if kept {
                self.loose.insert(n);
            }
            if recording || kept || writes(target) {
                self.grad.insert(n);
            }
        }
        false
    }
}

/// Whether a region returns a view of what it was given.
fn gives_views(region: &GraphModule) -> bool {
    let g = &region.graph;
    let rooted = |mut at: NodeId| {
        let mut views = 0;
        while let Some(target) = g[at].target() {
            let passes = target.is_function(&Function::GetItem) || writes(target);
            if !passes && !is_view(target) {
                return false;
            }
            views += usize::from(!passes);
            let Some(of) = g.input_nodes(at).next() else { return false };
            at = of;
        }
        views > 0 && g[at].is_placeholder()
    };
    let results = g.result().and_then(Argument::items).unwrap_or(&[]);
    results.iter().filter_map(Argument::node).any(rooted)
}

fn schema(target: &Target) -> Option<&Schema> {
    target.overload().and_then(OpOverload::schema)
}

fn is_view(target: &Target) -> bool {
    let detaches = target.overload().is_some_and(|op| op.base().starts_with("detach"));
    !detaches && schema(target).is_some_and(Schema::is_view)
}

fn writes(target: &Target) -> bool {
    schema(target).is_some_and(Schema::mutates)
}
