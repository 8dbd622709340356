//! replace_autocast_with_hop_pass: turns `_enter_autocast` … `_exit_autocast` into `wrap_with_autocast` calls.
//!
//! Only outermost regions are cut here; nested ones lie in the body and are cut there, which gives a call in a call.
//! There is no comparison with an ambient state: a region that turns autocast off is kept too.

use super::regions::{self, Regions};
use super::split::Cut;
use super::{Context, Report};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::ExportedProgram;

/// Runs the pass on a program and all its sub-graphs. Without markers it returns the same module.
pub fn replace_autocast_with_hop_pass(
    program: &ExportedProgram,
    context: &Context,
) -> Result<(ExportedProgram, Report)> {
    regions::run::<Autocast>(program, context)
}

struct Autocast;

fn is(node: &Node, function: Function) -> bool {
    node.target().is_some_and(|t| t.is_function(&function))
}

fn is_marker(node: &Node) -> bool {
    is(node, Function::EnterAutocast) || is(node, Function::ExitAutocast)
}

fn fail<T>(graph: &Graph, n: NodeId, message: &str) -> Result<T> {
    let node = graph[n].name().to_string();
    Err(Error::PassNode { pass: Autocast::PASS, node, message: message.to_string() })
}

/// Regions must nest: an exit ends the innermost open region.
fn check_nesting(graph: &Graph) -> Result<()> {
    let mut open: Vec<NodeId> = Vec::new();
    for n in graph.nodes() {
        if is(&graph[n], Function::EnterAutocast) {
            open.push(n);
        } else if is(&graph[n], Function::ExitAutocast) {
            match (open.pop(), graph[n].args().first().and_then(Argument::node)) {
                (Some(enter), Some(named)) if enter == named => {}
                (None, _) => return fail(graph, n, "ends an autocast region, but none is open"),
                _ => return fail(graph, n, "does not end the innermost open autocast region"),
            }
        }
    }
    open.first().map_or(Ok(()), |&n| fail(graph, n, "this autocast region never ends"))
}

impl Regions for Autocast {
    const PASS: &'static str = "replace_autocast_with_hop_pass";
    const HOP: Hop = Hop::WrapWithAutocast;
    const CLASS: &'static str = "WrapWithAutocast.wrap_with_autocast";

    fn is_marker(node: &Node) -> bool {
        is_marker(node)
    }

    fn cut(module: &GraphModule) -> Result<Cut<'_>> {
        check_nesting(&module.graph)?;
        let (mut depth, mut ended) = (0usize, false);
        Cut::new(module, |graph, n| {
            let enters = is(&graph[n], Function::EnterAutocast);
            let cut = std::mem::take(&mut ended) || (depth == 0 && enters);
            if enters {
                depth += 1;
            } else if is(&graph[n], Function::ExitAutocast) {
                depth -= 1;
                ended = depth == 0;
            }
            cut
        })
    }

    fn region(part: &Graph, own: NodeId, _: bool) -> Result<Option<NodeId>> {
        Ok(is(&part[own], Function::EnterAutocast).then_some(own))
    }

    fn strip_region(part: &mut Graph, marker: NodeId) -> Result<()> {
        let exit = part.nodes().rev().find(|&n| is_marker(&part[n]));
        match exit {
            Some(exit) if part[exit].args().first() == Some(&marker.into()) => {
                part.erase(exit)?;
                part.erase(marker)?;
                Ok(())
            }
            _ => fail(part, marker, "the last marker of its part does not end it"),
        }
    }

    fn strip_inlined(_: &mut Graph) -> Result<()> {
        Ok(())
    }

    fn ambient_inside(_: &Node, ambient: bool) -> bool {
        ambient
    }
}
