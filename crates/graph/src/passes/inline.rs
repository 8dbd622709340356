//! node_inline_: replaces a call of a sub-module by its body.

use crate::error::{Error, Result};
use crate::ir::*;
use std::sync::Arc;

const PASS: &str = "node_inline_";

/// Inlines a `call_module` node and deletes unused sub-modules. The sub-module itself is copied, so
/// another call of it still works.
pub fn node_inline_(module: &mut GraphModule, call: NodeId) -> Result<()> {
    inline_call(module, call, &mut FreeNames::default())?;
    module.delete_all_unused_submodules();
    Ok(())
}

/// Finds the first free `submod_<i>`, i = 1, 2, …, without starting over each time.
pub(super) struct FreeNames {
    lowest: usize,
}

impl Default for FreeNames {
    fn default() -> FreeNames {
        FreeNames { lowest: 1 }
    }
}

impl FreeNames {
    fn next(&mut self, attributes: &Attributes) -> String {
        loop {
            let name = format!("submod_{}", self.lowest);
            if attributes.get(&name).is_none() {
                return name;
            }
            self.lowest += 1;
        }
    }

    /// That this name is free again.
    pub(super) fn release(&mut self, name: &str) {
        if let Some(i) = name.strip_prefix("submod_").and_then(|i| i.parse().ok()) {
            self.lowest = self.lowest.min(i).max(1);
        }
    }
}

fn fail(module: &GraphModule, call: NodeId, message: impl Into<String>) -> Error {
    Error::PassNode { pass: PASS, node: module.graph[call].name().to_string(), message: message.into() }
}

/// Inlines a call; the sub-module stays an attribute.
fn inline_call(module: &mut GraphModule, call: NodeId, free: &mut FreeNames) -> Result<()> {
    let Kind::CallModule(path) = module.graph[call].kind() else {
        return Err(fail(module, call, "is not a call of a module"));
    };
    let Some(sub) = module.subgraph(path).map(Arc::clone) else {
        return Err(fail(module, call, format!("the module has no sub-graph {path}")));
    };
    inline_body(module, call, &sub, free)
}

/// Puts this body in place of a call.
pub(super) fn inline_body(
    module: &mut GraphModule,
    call: NodeId,
    sub: &GraphModule,
    free: &mut FreeNames,
) -> Result<()> {
    let body = &sub.graph;
    let mut values = vec![Argument::None; body.capacity()];
    for (i, placeholder) in body.placeholders().enumerate() {
        match module.graph[call].args().get(i) {
            Some(Argument::Node(n)) => values[placeholder.index()] = (*n).into(),
            _ => {
                let name = body[placeholder].name();
                return Err(fail(
                    module,
                    call,
                    format!("argument {i} for %{name} is not a node; constants cannot be inlined"),
                ));
            }
        };
    }
    let before = module.graph.set_insert_point(InsertPoint::Before(call));
    for n in body.nodes() {
        if matches!(body[n].kind(), Kind::Placeholder(_) | Kind::Output) {
            continue;
        }
        let copy = module.graph.node_copy(&body[n], |n| values[n.index()].clone());
        if let Kind::GetAttr(path) | Kind::CallModule(path) = body[n].kind()
            && let Some(attribute) = sub.attributes.get(path)
        {
            let taken = module.attributes.get(path).is_some();
            let name: Name = if taken { free.next(&module.attributes).into() } else { path.clone() };
            module.attributes.set(&name, attribute.clone());
            let kind = match body[n].kind() {
                Kind::GetAttr(_) => Kind::GetAttr(name),
                _ => Kind::CallModule(name),
            };
            module.graph.set_kind(copy, kind);
        }
        values[n.index()] = copy.into();
    }
    module.graph.set_insert_point(before);
    let result = body.result().map(|r| r.map_nodes(&mut |n| values[n.index()].clone()));
    match result {
        None => {}
        Some(Argument::Node(n)) => {
            module.graph.replace_all_uses_with(call, n);
        }
        Some(Argument::Tuple(items) | Argument::List(items)) => {
            let users: Vec<NodeId> = module.graph.users(call).collect();
            for user in users {
                let node = &module.graph[user];
                let item = match (node.target(), node.args()) {
                    (Some(Target::Function(Function::GetItem)), [_, Argument::Int(i)]) => {
                        usize::try_from(*i).ok().and_then(|i| items.get(i)).cloned()
                    }
                    _ => None,
                };
                let Some(item) = item else {
                    return Err(fail(module, call, "its result is a tuple that is used other than by getitem"));
                };
                module.graph.replace_all_uses_with(user, item);
                module.graph.erase(user)?;
            }
        }
        Some(_) => return Err(fail(module, call, "the sub-module returns neither a value nor a tuple of values")),
    }
    module.graph.erase(call)?;
    Ok(())
}
