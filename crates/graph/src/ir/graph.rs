//! Graph: an ordered list of nodes, with users, names and an insertion point.
//!
//! List order is execution order. Nodes live in an arena and are named by dense ids that are never reused; order is a
//! doubly linked list over the arena, so insertion and erasure take constant time anywhere. Who uses a node is a linked
//! list too: one link per (value, user) pair, so a value with a million users loses one of them in constant time.
//! Users are kept in the order in which the references were made; assigning new arguments renews a node's references.
//!
//! The graph does not check itself: `verify` does. It does not hold attribute values: those belong to the module.

use super::hooks::Hooks;
use super::names::{Namespace, snake_case};
use super::{Argument, Meta, Name, Target};
use foldhash::HashSet;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The id of a node. Ids of a graph stay valid in its clones, and are meaningless in any other graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    pub(super) graph: u32,
    pub(super) index: u32,
}

impl NodeId {
    /// A dense number, for tables indexed by node: below [`Graph::capacity`].
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl std::fmt::Debug for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "n{}@{}", self.index, self.graph)
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// An input; the target may start with `*` to take all remaining ones.
    Placeholder(Name),
    /// An attribute of the owning module, by dotted path.
    GetAttr(Name),
    /// A call.
    CallFunction(Target),
    /// A call of a method of the first argument; never in exported programs.
    CallMethod(Name),
    /// A call of a sub-module, by dotted path; only between splitting and inlining.
    CallModule(Name),
    /// What the graph returns: one argument.
    Output,
}

/// No index.
pub(super) const NIL: u32 = u32::MAX;

/// One node. All of it is read through the graph, and changed through the graph.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) name: Name,
    pub(super) kind: Kind,
    pub(super) args: Box<[Argument]>,
    pub(super) kwargs: Box<[(Name, Argument)]>,
    pub(super) meta: Meta,
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The links to the values it uses, in order of first mention.
    pub(super) inputs: SmallVec<[u32; 4]>,
    /// Its own users, as a list of links.
    pub(super) first_user: u32,
    pub(super) last_user: u32,
    pub(super) num_users: u32,
    pub(super) erased: bool,
}

impl Node {
    /// Its name, unique in the graph.
    pub fn name(&self) -> &Name {
        &self.name
    }
    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }
    /// Positional arguments.
    pub fn args(&self) -> &[Argument] {
        &self.args
    }
    /// Keyword arguments, in order.
    pub fn kwargs(&self) -> &[(Name, Argument)] {
        &self.kwargs
    }
    /// Its metadata.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }
    /// How many nodes use it.
    pub fn num_users(&self) -> usize {
        self.num_users as usize
    }
    /// Whether it was erased from its graph.
    pub fn is_erased(&self) -> bool {
        self.erased
    }
    /// What it calls, if it is a call of a function.
    pub fn target(&self) -> Option<&Target> {
        match &self.kind {
            Kind::CallFunction(target) => Some(target),
            _ => None,
        }
    }
    /// Whether it is an input.
    pub fn is_placeholder(&self) -> bool {
        matches!(self.kind, Kind::Placeholder(_))
    }
    /// Whether it is the return of the graph.
    pub fn is_output(&self) -> bool {
        matches!(self.kind, Kind::Output)
    }
    /// The path, if it reads an attribute.
    pub fn attr_path(&self) -> Option<&Name> {
        match &self.kind {
            Kind::GetAttr(path) => Some(path),
            _ => None,
        }
    }
    /// Every argument, positional ones first.
    pub fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.args.iter().chain(self.kwargs.iter().map(|(_, a)| a))
    }
}

/// That `user` mentions `producer`.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) producer: u32,
    pub(super) user: u32,
    pub(super) prev: u32,
    pub(super) next: u32,
}

/// Where new nodes are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertPoint {
    /// After everything, even the output.
    End,
    /// Before everything; several new nodes keep their order.
    Front,
    /// Before this node; several new nodes keep their order.
    Before(NodeId),
    /// Directly after this node; several new nodes end up in reverse order.
    After(NodeId),
}

/// How a program is called: the structure of its arguments and results, as archives print it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSpec {
    /// Structure of the inputs.
    pub in_spec: String,
    /// Structure of the outputs.
    pub out_spec: String,
    /// Names of the arguments.
    pub forward_arg_names: Vec<String>,
}

/// An ordered list of nodes.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(super) stamp: u32,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    pub(super) free_link: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) len: usize,
    /// The names ever used; absent as long as they are those of the nodes ever made, each made with a name of its own.
    names: OnceLock<Box<Namespace>>,
    pub(super) insert: InsertPoint,
    pub(super) hooks: Option<Box<Hooks>>,
    /// How it is called, if that is more than a list of tensors.
    pub call_spec: Option<Arc<CallSpec>>,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl std::ops::Index<NodeId> for Graph {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        assert!(id.graph == self.stamp, "a node id is used with the graph that made it");
        &self.nodes[id.index as usize]
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Graph {
            stamp: NEXT.fetch_add(1, Relaxed),
            nodes: Vec::new(),
            links: Vec::new(),
            free_link: NIL,
            head: NIL,
            tail: NIL,
            len: 0,
            names: OnceLock::new(),
            insert: InsertPoint::End,
            hooks: None,
            call_spec: None,
        }
    }

    // ---- reading

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more than the largest [`NodeId::index`] there ever was.
    pub fn capacity(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn id(&self, index: u32) -> NodeId {
        NodeId { graph: self.stamp, index }
    }

    fn some(&self, index: u32) -> Option<NodeId> {
        (index != NIL).then(|| self.id(index))
    }

    /// Whether the node was made by this graph (or the one it is a clone of).
    pub fn owns(&self, id: NodeId) -> bool {
        id.graph == self.stamp && id.index() < self.nodes.len()
    }

    /// The node, unless it belongs to another graph or was erased.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        if self.owns(id) { Some(&self[id]).filter(|n| !n.erased) } else { None }
    }

    /// The first node.
    pub fn first(&self) -> Option<NodeId> {
        self.some(self.head)
    }

    /// The last node.
    pub fn last(&self) -> Option<NodeId> {
        self.some(self.tail)
    }

    /// The next node. From an erased node, the walk continues at its old position.
    ///
    /// A loop `while let Some(n) = at { …; at = graph.next(n) }` may change the graph: it skips nodes erased ahead of it
    /// and visits nodes inserted ahead of it.
    pub fn next(&self, id: NodeId) -> Option<NodeId> {
        let mut at = self[id].next;
        while at != NIL && self.nodes[at as usize].erased {
            at = self.nodes[at as usize].next;
        }
        self.some(at)
    }

    /// The node before this one.
    pub fn prev(&self, id: NodeId) -> Option<NodeId> {
        let mut at = self[id].prev;
        while at != NIL && self.nodes[at as usize].erased {
            at = self.nodes[at as usize].prev;
        }
        self.some(at)
    }

    /// All nodes in order; walks from both ends.
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes { graph: self, front: self.head, back: self.tail, left: self.len }
    }

    /// Nodes that use this one, in the order in which they were added.
    pub fn users(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut at = self[id].first_user;
        std::iter::from_fn(move || {
            let link = self.links.get(at as usize)?;
            at = link.next;
            Some(self.id(link.user))
        })
    }

    /// Distinct nodes this one uses, in order of first use.
    pub fn input_nodes(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self[id].inputs.iter().map(|&link| self.id(self.links[link as usize].producer))
    }

    /// The inputs of the graph, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes().filter(|&n| self[n].is_placeholder())
    }

    /// The output node, if the last node is one.
    pub fn output_node(&self) -> Option<NodeId> {
        self.last().filter(|&n| self[n].is_output())
    }

    /// What the graph returns, if the last node is an output.
    pub fn result(&self) -> Option<&Argument> {
        self[self.output_node()?].args.first()
    }

    /// Calls of this target, in graph order.
    pub fn find_calls<'a>(&'a self, target: &'a Target) -> impl Iterator<Item = NodeId> + 'a {
        self.nodes().filter(move |&n| self[n].target() == Some(target))
    }

    /// The node with this name; a walk over all nodes.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes().find(|&n| &*self[n].name == name)
    }

    /// The names ever used.
    pub fn names(&self) -> &Namespace {
        self.names.get_or_init(|| Box::new(Namespace::replay(self.nodes.iter().map(|n| &n.name))))
    }

    pub(super) fn names_mut(&mut self) -> &mut Namespace {
        self.names();
        self.names.get_mut().expect("it was just made")
    }

    pub(super) fn set_namespace(&mut self, names: Namespace) {
        self.names = OnceLock::from(Box::new(names));
    }

    /// A fresh name, which is then reserved.
    pub fn create_name(&mut self, candidate: &str) -> Name {
        self.names_mut().create_name(candidate)
    }

    // ---- building

    /// Where the next node goes.
    pub fn insert_point(&self) -> InsertPoint {
        self.insert
    }

    /// Moves the insertion point; returns where it was.
    pub fn set_insert_point(&mut self, at: InsertPoint) -> InsertPoint {
        std::mem::replace(&mut self.insert, at)
    }

    /// Builds at this point, then restores the insertion point.
    pub fn inserting<R>(&mut self, at: InsertPoint, build: impl FnOnce(&mut Graph) -> R) -> R {
        let before = self.set_insert_point(at);
        let result = build(self);
        self.insert = before;
        result
    }

    /// Adds a node at the insertion point. `name` is a candidate; without one the target gives it.
    pub fn create_node(
        &mut self,
        kind: Kind,
        args: impl Into<Box<[Argument]>>,
        kwargs: impl Into<Box<[(Name, Argument)]>>,
        name: Option<&str>,
    ) -> NodeId {
        let name = match name {
            Some(name) => self.names_mut().create_name(name),
            None => {
                let candidate = match &kind {
                    Kind::Placeholder(t) | Kind::GetAttr(t) | Kind::CallMethod(t) | Kind::CallModule(t) => {
                        snake_case(t)
                    }
                    Kind::CallFunction(target) => snake_case(&target.default_name()),
                    Kind::Output => "output".to_string(),
                };
                self.names_mut().create_name(&candidate)
            }
        };
        self.add(kind, args.into(), kwargs.into(), name)
    }

    /// Like [`Graph::create_node`] with a name that another node has already: it is shared if it is free here.
    pub(crate) fn create_like(
        &mut self,
        kind: Kind,
        args: impl Into<Box<[Argument]>>,
        kwargs: impl Into<Box<[(Name, Argument)]>>,
        name: &Name,
    ) -> NodeId {
        let name = self.names_mut().create_shared(name);
        self.add(kind, args.into(), kwargs.into(), name)
    }

    /// Like [`Graph::create_like`] where all names come from one other graph, and so differ: no table of names is made
    /// for it. If one was made, because a node got a name here, it is used.
    pub(crate) fn create_unique(
        &mut self,
        kind: Kind,
        args: impl Into<Box<[Argument]>>,
        kwargs: impl Into<Box<[(Name, Argument)]>>,
        name: &Name,
    ) -> NodeId {
        match self.names.get_mut() {
            Some(_) => self.create_like(kind, args, kwargs, name),
            None => self.add(kind, args.into(), kwargs.into(), name.clone()),
        }
    }

    /// Adds a node with exactly this name, from a file; `None` if the name is taken.
    pub fn create_named(
        &mut self,
        kind: Kind,
        args: impl Into<Box<[Argument]>>,
        kwargs: impl Into<Box<[(Name, Argument)]>>,
        name: &Name,
    ) -> Option<NodeId> {
        self.names_mut().take(name).then(|| self.add(kind, args.into(), kwargs.into(), name.clone()))
    }

    fn add(&mut self, kind: Kind, args: Box<[Argument]>, kwargs: Box<[(Name, Argument)]>, name: Name) -> NodeId {
        let index = u32::try_from(self.nodes.len()).ok().filter(|&i| i < NIL).expect("fewer than four billion nodes");
        self.nodes.push(Node {
            name,
            kind,
            args,
            kwargs,
            meta: Meta::default(),
            prev: NIL,
            next: NIL,
            inputs: SmallVec::new(),
            first_user: NIL,
            last_user: NIL,
            num_users: 0,
            erased: false,
        });
        let before = match self.insert {
            InsertPoint::End => NIL,
            InsertPoint::Front => self.head,
            InsertPoint::Before(n) => n.index,
            InsertPoint::After(n) => self.nodes[n.index as usize].next,
        };
        self.link_before(index, before);
        // The point moves behind what was put in front, so that several creations keep their order.
        if self.insert == InsertPoint::Front {
            self.insert = match self.nodes[index as usize].next {
                NIL => InsertPoint::End,
                next => InsertPoint::Before(self.id(next)),
            };
        }
        self.link_inputs(index);
        self.created(self.id(index));
        self.id(index)
    }

    /// Adds an input.
    pub fn placeholder(&mut self, target: &str) -> NodeId {
        self.create_node(Kind::Placeholder(target.into()), [], [], None)
    }

    /// Adds a read of an attribute.
    pub fn get_attr(&mut self, path: &str) -> NodeId {
        self.create_node(Kind::GetAttr(path.into()), [], [], None)
    }

    /// Adds a call.
    pub fn call_function(&mut self, target: impl Into<Target>, args: impl Into<Box<[Argument]>>) -> NodeId {
        self.create_node(Kind::CallFunction(target.into()), args, [], None)
    }

    /// Adds the output.
    pub fn output(&mut self, value: impl Into<Argument>) -> NodeId {
        self.create_node(Kind::Output, [value.into()], [], None)
    }

    // ---- lists

    pub(super) fn link_before(&mut self, index: u32, before: u32) {
        let prev = if before == NIL { self.tail } else { self.nodes[before as usize].prev };
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next) = (prev, before);
        if prev == NIL {
            self.head = index
        } else {
            self.nodes[prev as usize].next = index
        }
        if before == NIL {
            self.tail = index
        } else {
            self.nodes[before as usize].prev = index
        }
        self.len += 1;
    }

    /// Takes a node out of the order; its own pointers stay, so that walks standing on it go on.
    pub(super) fn unlink(&mut self, index: u32) {
        let Node { prev, next, .. } = self.nodes[index as usize];
        if prev == NIL {
            self.head = next
        } else {
            self.nodes[prev as usize].next = next
        }
        if next == NIL {
            self.tail = prev
        } else {
            self.nodes[next as usize].prev = prev
        }
        self.len -= 1;
    }

    /// Registers a node as user of what it mentions. Values of other graphs get no link: `verify` reports them.
    pub(super) fn link_inputs(&mut self, index: u32) {
        const FEW: usize = 8;
        let mut distinct: SmallVec<[u32; 4]> = SmallVec::new();
        let mut seen: HashSet<u32> = HashSet::default();
        let (stamp, node) = (self.stamp, &self.nodes[index as usize]);
        for argument in node.arguments() {
            argument.for_each_node(&mut |n| {
                if n.graph != stamp {
                    return;
                }
                // A short list is searched, a long one hashed: the output of a large graph has many.
                let new = if distinct.len() < FEW { !distinct.contains(&n.index) } else { seen.insert(n.index) };
                if new {
                    distinct.push(n.index);
                    if distinct.len() == FEW {
                        seen.extend(distinct.iter().copied());
                    }
                }
            });
        }
        self.nodes[index as usize].inputs = distinct.into_iter().map(|p| self.add_link(p, index)).collect();
    }

    fn add_link(&mut self, producer: u32, user: u32) -> u32 {
        let prev = self.nodes[producer as usize].last_user;
        let link = Link { producer, user, prev, next: NIL };
        let at = match self.free_link {
            NIL => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
            free => {
                self.free_link = self.links[free as usize].next;
                self.links[free as usize] = link;
                free
            }
        };
        if prev == NIL {
            self.nodes[producer as usize].first_user = at
        } else {
            self.links[prev as usize].next = at
        }
        let node = &mut self.nodes[producer as usize];
        node.last_user = at;
        node.num_users += 1;
        at
    }

    /// Forgets that a node uses what it mentions.
    pub(super) fn unlink_inputs(&mut self, index: u32) {
        for at in std::mem::take(&mut self.nodes[index as usize].inputs) {
            let Link { producer, prev, next, .. } = self.links[at as usize];
            let node = &mut self.nodes[producer as usize];
            node.num_users -= 1;
            if prev == NIL {
                node.first_user = next
            }
            if next == NIL {
                node.last_user = prev
            }
            if prev != NIL {
                self.links[prev as usize].next = next
            }
            if next != NIL {
                self.links[next as usize].prev = prev
            }
            self.links[at as usize].next = self.free_link;
            self.free_link = at;
        }
    }
}

/// The nodes of a graph in order.
pub struct Nodes<'a> {
    graph: &'a Graph,
    front: u32,
    back: u32,
    left: usize,
}

impl Iterator for Nodes<'_> {
    type Item = NodeId;
    fn next(&mut self) -> Option<NodeId> {
        self.left = self.left.checked_sub(1)?;
        let at = self.front;
        self.front = self.graph.nodes[at as usize].next;
        Some(self.graph.id(at))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Nodes<'_> {
    fn next_back(&mut self) -> Option<NodeId> {
        self.left = self.left.checked_sub(1)?;
        let at = self.back;
        self.back = self.graph.nodes[at as usize].prev;
        Some(self.graph.id(at))
    }
}

impl ExactSizeIterator for Nodes<'_> {}
