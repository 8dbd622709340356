//! Changing a graph: arguments, names, uses, order, erasure, copies.

use super::graph::{Graph, Kind, Node, NodeId};
use super::{Argument, Meta, Name};
use crate::error::{Error, Result};
use std::collections::HashMap;

type Arguments = (Box<[Argument]>, Box<[(Name, Argument)]>);

/// The arguments of a node with every node in them replaced by what `map` says.
fn mapped(node: &Node, map: &mut impl FnMut(NodeId) -> Argument) -> Arguments {
    let args = node.args.iter().map(|a| a.map_nodes(map)).collect();
    let kwargs = node.kwargs.iter().map(|(k, a)| (k.clone(), a.map_nodes(map))).collect();
    (args, kwargs)
}

impl Graph {
    fn own(&self, id: NodeId, what: &'static str) -> Result<u32> {
        if self.owns(id) { Ok(id.index) } else { Err(Error::WrongGraph { node: format!("{id:?}"), what }) }
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        assert!(self.owns(id), "a node id is used with the graph that made it");
        &mut self.nodes[id.index as usize]
    }

    /// The metadata of a node, mutable.
    pub fn meta_mut(&mut self, id: NodeId) -> &mut Meta {
        &mut self.node_mut(id).meta
    }

    /// Gives a node another target or kind; its arguments stay.
    pub fn set_kind(&mut self, id: NodeId, kind: Kind) {
        self.node_mut(id).kind = kind;
    }

    /// Replaces a node's positional arguments and its references.
    pub fn set_args(&mut self, id: NodeId, args: impl Into<Box<[Argument]>>) {
        let kwargs = std::mem::take(&mut self.node_mut(id).kwargs);
        self.set_arguments(id, args, kwargs);
    }

    /// Replaces a node's arguments and its references.
    pub fn set_arguments(
        &mut self,
        id: NodeId,
        args: impl Into<Box<[Argument]>>,
        kwargs: impl Into<Box<[(Name, Argument)]>>,
    ) {
        self.unlink_inputs(id.index);
        let node = self.node_mut(id);
        node.args = args.into();
        node.kwargs = kwargs.into();
        self.link_inputs(id.index);
    }

    /// Renames a node; does nothing if it already has that name. The old name stays reserved.
    pub fn rename(&mut self, id: NodeId, candidate: &str) -> Name {
        if &**self[id].name() != candidate {
            let name = self.names_mut().create_name(candidate);
            if self.has_hooks() {
                self.users(id).collect::<Vec<_>>().into_iter().for_each(|user| self.replacing(id, Some(&name), user));
            }
            self.node_mut(id).name = name;
        }
        self[id].name().clone()
    }

    /// Renames nodes to exactly these names and forgets unused names: for passes that rename everything.
    pub(crate) fn set_names(&mut self, names: impl IntoIterator<Item = (NodeId, Name)>) {
        for (id, name) in names {
            self.node_mut(id).name = name;
        }
        let mut space = super::Namespace::default();
        for n in self.nodes() {
            space.take(self[n].name());
        }
        self.set_namespace(space);
    }

    /// Erases an unused node. Returns whether it did: erasing twice is harmless.
    pub fn erase(&mut self, id: NodeId) -> Result<bool> {
        let index = self.own(id, "erase it")?;
        let node = &self[id];
        if node.erased {
            return Ok(false);
        }
        if node.num_users > 0 {
            let users: Vec<_> = self.users(id).take(8).map(|u| format!("%{}", self[u].name())).collect();
            return Err(Error::StillUsed {
                node: node.name.to_string(),
                count: node.num_users(),
                users: users.join(", "),
            });
        }
        self.erasing(id);
        self.unlink_inputs(index);
        self.unlink(index);
        let (args, kwargs) = mapped(&self[id], &mut |_| Argument::None);
        let node = self.node_mut(id);
        node.erased = true;
        (node.args, node.kwargs) = (args, kwargs);
        Ok(true)
    }

    /// Replaces all uses of `old` by `new`, in users order; returns the changed users. If `new` itself uses `old`, it ends
    /// up using itself: [`Graph::replace_uses_if`] can leave it out.
    pub fn replace_all_uses_with(&mut self, old: NodeId, new: impl Into<Argument>) -> Vec<NodeId> {
        self.replace_uses_if(old, new, |_, _| true)
    }

    /// Like [`Graph::replace_all_uses_with`], only in users that `wanted` accepts.
    pub fn replace_uses_if(
        &mut self,
        old: NodeId,
        new: impl Into<Argument>,
        mut wanted: impl FnMut(&Graph, NodeId) -> bool,
    ) -> Vec<NodeId> {
        let new = new.into();
        let users: Vec<NodeId> = self.users(old).collect();
        let users: Vec<NodeId> = users.into_iter().filter(|&u| wanted(self, u)).collect();
        let name = new.node().filter(|&n| self.owns(n) && self.has_hooks()).map(|n| self[n].name().clone());
        for &user in &users {
            self.replacing(old, name.as_deref(), user);
            self.replace_input(user, old, &new);
        }
        users
    }

    /// Puts `new` in place of `old` in the arguments of one node.
    pub fn replace_input(&mut self, user: NodeId, old: NodeId, new: &Argument) {
        let mut swap = |n| if n == old { new.clone() } else { Argument::Node(n) };
        let (args, kwargs) = mapped(&self[user], &mut swap);
        self.set_arguments(user, args, kwargs);
    }

    /// Moves a node in front of another one.
    pub fn move_before(&mut self, id: NodeId, before: NodeId) -> Result<()> {
        let (index, before) = (self.own(id, "move it")?, self.own(before, "move a node before it")?);
        if index != before {
            self.unlink(index);
            self.link_before(index, before);
        }
        Ok(())
    }

    /// Copies a node of any graph to the insertion point: arguments are mapped, its name is the candidate, and its metadata
    /// is copied.
    pub fn node_copy(&mut self, node: &Node, mut map: impl FnMut(NodeId) -> Argument) -> NodeId {
        let (args, kwargs) = mapped(node, &mut map);
        let id = self.create_like(node.kind.clone(), args, kwargs, &node.name);
        self.node_mut(id).meta = node.meta.clone();
        id
    }

    /// Like [`Graph::node_copy`], by [`Graph::create_unique`].
    pub(crate) fn node_copy_unique(&mut self, node: &Node, mut map: impl FnMut(NodeId) -> Argument) -> NodeId {
        let (args, kwargs) = mapped(node, &mut map);
        let id = self.create_unique(node.kind.clone(), args, kwargs, &node.name);
        self.node_mut(id).meta = node.meta.clone();
        id
    }

    /// Copies all nodes of another graph but its output to the insertion point, and returns what it returns, in terms of
    /// the copies. `values` maps nodes that are given already, such as placeholders, and receives the copies.
    pub fn graph_copy(&mut self, other: &Graph, values: &mut HashMap<NodeId, Argument>) -> Option<Argument> {
        for n in other.nodes() {
            if other[n].is_output() {
                return Some(other[n].args[0].map_nodes(&mut |n| values[&n].clone()));
            }
            if !values.contains_key(&n) {
                let copy = self.node_copy(&other[n], |n| values[&n].clone());
                values.insert(n, copy.into());
            }
        }
        None
    }
}
