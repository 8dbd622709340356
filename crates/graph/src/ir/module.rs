//! GraphModule: a graph and the attributes it reads.
//!
//! Attributes keep insertion order; paths are dotted and walk through sub-modules. Sub-graphs are shared until changed:
//! cloning a module is cheap in the number of its sub-graphs.

use super::ordered::OrderedMap;
use super::{Graph, Kind, Name, TensorMeta};
use firebrand_core::Tensor;
use indexmap::IndexMap;
use std::collections::HashSet;
use std::sync::Arc;

/// An attribute of a module.
#[derive(Clone, Debug)]
pub enum Attribute {
    /// A tensor that is neither parameter nor buffer.
    Tensor(Tensor),
    /// A parameter.
    Parameter(Tensor),
    /// A buffer.
    Buffer {
        /// Its value.
        tensor: Tensor,
        /// Whether it belongs to the state dict.
        persistent: bool,
    },
    /// A sub-graph.
    Graph(Arc<GraphModule>),
    /// A module without a graph: it only holds others.
    Module(Box<Attributes>),
    /// An object of a class that only PyTorch can construct; kept by name.
    Object {
        /// The class.
        class_fqn: Name,
    },
    /// An attribute without a value: a graph in text format only names it. The type may be known.
    Unbound(Option<Arc<TensorMeta>>),
}

impl Attribute {
    /// The tensor, whatever its role.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Attribute::Tensor(t) | Attribute::Parameter(t) | Attribute::Buffer { tensor: t, .. } => Some(t),
            _ => None,
        }
    }

    /// The sub-graph.
    pub fn graph(&self) -> Option<&Arc<GraphModule>> {
        match self {
            Attribute::Graph(g) => Some(g),
            _ => None,
        }
    }

    fn children(&self) -> Option<&Attributes> {
        match self {
            Attribute::Module(m) => Some(m),
            Attribute::Graph(g) => Some(&g.attributes),
            _ => None,
        }
    }

    fn children_mut(&mut self) -> Option<&mut Attributes> {
        match self {
            Attribute::Module(m) => Some(m),
            Attribute::Graph(g) => Some(&mut Arc::make_mut(g).attributes),
            _ => None,
        }
    }

    fn is_module(&self) -> bool {
        matches!(self, Attribute::Module(_) | Attribute::Graph(_))
    }
}

/// Attributes by name, in insertion order.
#[derive(Clone, Debug, Default)]
pub struct Attributes(OrderedMap<Attribute>);

impl Attributes {
    /// The attribute at a dotted path.
    pub fn get(&self, path: &str) -> Option<&Attribute> {
        match path.split_once('.') {
            None => self.0.get(path),
            Some((first, rest)) => self.0.get(first)?.children()?.get(rest),
        }
    }

    fn get_mut(&mut self, path: &str) -> Option<&mut Attribute> {
        match path.split_once('.') {
            None => self.0.get_mut(path),
            Some((first, rest)) => self.0.get_mut(first)?.children_mut()?.get_mut(rest),
        }
    }

    /// Puts an attribute at a dotted path, making missing modules on the way. An existing one keeps its position.
    /// Returns false if a part of the path is something that has no attributes.
    pub fn set(&mut self, path: &str, value: Attribute) -> bool {
        let Some((first, rest)) = path.split_once('.') else {
            self.0.insert(path.into(), value);
            return true;
        };
        if !self.0.contains(first) {
            self.0.insert(first.into(), Attribute::Module(Box::default()));
        }
        let inner = self.0.get_mut(first).and_then(Attribute::children_mut);
        inner.is_some_and(|inner| inner.set(rest, value))
    }

    /// Removes the attribute at a dotted path.
    pub fn remove(&mut self, path: &str) -> Option<Attribute> {
        match path.rsplit_once('.') {
            None => self.0.remove(path),
            Some((parent, last)) => self.get_mut(parent)?.children_mut()?.0.remove(last),
        }
    }

    /// All attributes of this level, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Attribute)> {
        self.0.iter()
    }

    /// The number of attributes on this level.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A graph and its attributes.
#[derive(Clone, Debug, Default)]
pub struct GraphModule {
    /// The graph.
    pub graph: Graph,
    /// The attributes it reads.
    pub attributes: Attributes,
    /// Anything known of the module, as text.
    pub meta: IndexMap<String, String>,
}

impl GraphModule {
    /// A module of this graph without attributes.
    pub fn new(graph: Graph) -> GraphModule {
        GraphModule { graph, ..GraphModule::default() }
    }

    /// The sub-graph at a path.
    pub fn subgraph(&self, path: &str) -> Option<&Arc<GraphModule>> {
        self.attributes.get(path)?.graph()
    }

    /// The sub-graphs directly below, in attribute order.
    pub fn subgraphs(&self) -> impl Iterator<Item = (&Name, &Arc<GraphModule>)> {
        self.attributes.iter().filter_map(|(name, a)| a.graph().map(|g| (name, g)))
    }

    /// Deletes modules that no `get_attr` or `call_module` node refers to. Submodules of a used one stay.
    pub fn delete_all_unused_submodules(&mut self) {
        let mut used: HashSet<&str> = HashSet::new();
        for n in self.graph.nodes() {
            if let Kind::GetAttr(path) | Kind::CallModule(path) = self.graph[n].kind() {
                used.extend(path.match_indices('.').map(|(i, _)| &path[..i]));
                used.insert(path);
            }
        }
        let mut unused = Vec::new();
        collect_unused(&self.attributes, "", &used, &mut unused);
        for path in unused {
            self.attributes.remove(&path);
        }
    }
}

fn collect_unused(attributes: &Attributes, prefix: &str, used: &HashSet<&str>, unused: &mut Vec<String>) {
    for (name, attribute) in attributes.iter().filter(|(_, a)| a.is_module()) {
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        if !used.contains(path.as_str()) {
            unused.push(path);
        } else if let Attribute::Module(inner) = attribute {
            // Below a plain container only what is named is used; below a graph its own nodes decide.
            collect_unused(inner, &path, used, unused);
        }
    }
}
