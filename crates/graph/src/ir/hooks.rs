//! Hooks of a graph: called when a node is created, is about to be erased, or is about to be replaced in a user.
//!
//! A graph without hooks pays one test. While hooks run they are disabled, so that their own changes trigger
//! none. Clones of a graph keep its hooks.

use super::graph::{Graph, NodeId};
use std::sync::Arc;

/// Called with a new node, which it may complete.
type CreateHook = Arc<dyn Fn(&mut Graph, NodeId) + Send + Sync>;
/// Called with a node that is about to be erased.
type EraseHook = Arc<dyn Fn(&Graph, NodeId) + Send + Sync>;
/// Called with a node that is about to be replaced, or renamed, in one of its users.
type ReplaceHook = Arc<dyn Fn(&Graph, Replacement<'_>) + Send + Sync>;

/// A replacement that is about to happen.
#[derive(Clone, Copy, Debug)]
pub struct Replacement<'a> {
    /// The node that is replaced or renamed.
    pub old: NodeId,
    /// The name that replaces it; `None` for a constant.
    pub new: Option<&'a str>,
    /// The node whose arguments change.
    pub user: NodeId,
}

/// Identifies a hook, for removing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

#[derive(Clone)]
enum Hook {
    Create(CreateHook),
    Erase(EraseHook),
    Replace(ReplaceHook),
}

/// The hooks of a graph, in the order in which they were registered.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    next: u64,
    list: Vec<(HookId, Hook)>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} hooks", self.list.len())
    }
}

impl Graph {
    fn register(&mut self, hook: Hook) -> HookId {
        let hooks = self.hooks.get_or_insert_default();
        let id = HookId(hooks.next);
        hooks.next += 1;
        hooks.list.push((id, hook));
        id
    }

    /// Calls `hook` with every node made from now on, after it has its arguments and its name.
    pub fn register_create_node_hook(&mut self, hook: impl Fn(&mut Graph, NodeId) + Send + Sync + 'static) -> HookId {
        self.register(Hook::Create(Arc::new(hook)))
    }

    /// Calls `hook` with every node about to be erased, while it still has its arguments.
    pub fn register_erase_node_hook(&mut self, hook: impl Fn(&Graph, NodeId) + Send + Sync + 'static) -> HookId {
        self.register(Hook::Erase(Arc::new(hook)))
    }

    /// Calls `hook` for every user in which a node is replaced, and for every user of a node that is renamed, before it
    /// happens.
    pub fn register_replace_node_hook(
        &mut self,
        hook: impl Fn(&Graph, Replacement<'_>) + Send + Sync + 'static,
    ) -> HookId {
        self.register(Hook::Replace(Arc::new(hook)))
    }

    /// Removes a hook; returns whether there was one.
    pub fn remove_hook(&mut self, id: HookId) -> bool {
        let Some(hooks) = &mut self.hooks else { return false };
        let before = hooks.list.len();
        hooks.list.retain(|(i, _)| *i != id);
        hooks.list.len() < before
    }

    /// Runs `see` on every hook, while the graph has none.
    fn each_hook(&mut self, see: impl Fn(&mut Graph, &Hook)) {
        if let Some(hooks) = self.hooks.take() {
            hooks.list.iter().for_each(|(_, hook)| see(self, hook));
            self.hooks = Some(hooks);
        }
    }

    pub(super) fn created(&mut self, node: NodeId) {
        self.each_hook(|graph, hook| {
            if let Hook::Create(f) = hook {
                f(graph, node);
            }
        });
    }

    pub(super) fn erasing(&mut self, node: NodeId) {
        self.each_hook(|graph, hook| {
            if let Hook::Erase(f) = hook {
                f(graph, node);
            }
        });
    }

    pub(super) fn replacing(&mut self, old: NodeId, new: Option<&str>, user: NodeId) {
        self.each_hook(|graph, hook| {
            if let Hook::Replace(f) = hook {
                f(graph, Replacement { old, new, user });
            }
        });
    }

    /// Whether there are any hooks.
    pub(super) fn has_hooks(&self) -> bool {
        self.hooks.is_some()
    }
}
