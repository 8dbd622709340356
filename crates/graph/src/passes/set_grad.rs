//! replace_set_grad_with_hop_pass: turns `_set_grad_enabled` markers into `wrap_with_set_grad_enabled` calls, so that the
//! graph has no hidden state.
//!
//! A part of the graph that runs in another mode than the ambient one becomes a region; everything else stays inline. Linear
//! in nodes and references.

use super::regions::{self, Regions};
use super::split::Cut;
use super::{Context, Report};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::ExportedProgram;

/// Runs the pass on a program and all its sub-graphs. Without markers it returns the same module.
pub fn replace_set_grad_with_hop_pass(
    program: &ExportedProgram,
    context: &Context,
) -> Result<(ExportedProgram, Report)> {
    regions::run::<SetGrad>(program, context)
}

struct SetGrad;

fn is_toggle(node: &Node) -> bool {
    node.target().is_some_and(|t| t.is_function(&Function::SetGradEnabled))
}

fn erase_toggles(part: &mut Graph) -> Result<usize> {
    let toggles: Vec<NodeId> = part.nodes().filter(|&n| is_toggle(&part[n])).collect();
    for &n in &toggles {
        part.erase(n)?;
    }
    Ok(toggles.len())
}

impl Regions for SetGrad {
    const PASS: &'static str = "replace_set_grad_with_hop_pass";
    const HOP: Hop = Hop::WrapWithSetGradEnabled;
    const CLASS: &'static str = "WrapWithSetGradEnabled.wrap_with_set_grad_enabled";

    fn is_marker(node: &Node) -> bool {
        is_toggle(node)
    }

    fn cut(module: &GraphModule) -> Result<Cut<'_>> {
        Cut::new(module, |graph, n| is_toggle(&graph[n]))
    }

    fn region(part: &Graph, own: NodeId, ambient: bool) -> Result<Option<NodeId>> {
        let node = &part[own];
        let differs = is_toggle(node) && matches!(node.args(), [Argument::Bool(on)] if *on != ambient);
        Ok(differs.then_some(own))
    }

    fn strip_region(part: &mut Graph, marker: NodeId) -> Result<()> {
        let node = part[marker].name().to_string();
        match erase_toggles(part)? {
            1 => Ok(()),
            n => Err(Error::PassNode { pass: Self::PASS, node, message: format!("its part has {n} markers, not one") }),
        }
    }

    fn strip_inlined(part: &mut Graph) -> Result<()> {
        erase_toggles(part).map(|_| ())
    }

    fn ambient_inside(call: &Node, ambient: bool) -> bool {
        match (call.target(), call.args().first()) {
            (Some(Target::Hop(Hop::WrapWithSetGradEnabled)), Some(Argument::Bool(on))) => *on,
            _ => ambient,
        }
    }
}
