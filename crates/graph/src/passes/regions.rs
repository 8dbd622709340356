//! Shared parts of the two region passes: cut a graph at markers, turn each part into a region or inline it, and do the same
//! in every sub-graph.

use super::inline::{FreeNames, inline_body};
use super::split::Cut;
use super::{Context, Report};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::ExportedProgram;
use crate::signature::{GraphSignature, SpecArg};
use foldhash::HashSet;
use std::sync::Arc;

/// What distinguishes one region pass from the other.
pub(super) trait Regions {
    /// The pass, for messages.
    const PASS: &'static str;
    /// What a region becomes.
    const HOP: Hop;
    /// The class of that op in PyTorch.
    const CLASS: &'static str;

    /// Whether this node is a marker.
    fn is_marker(node: &Node) -> bool;
    /// Cuts a graph that has markers.
    fn cut(module: &GraphModule) -> Result<Cut<'_>>;
    /// The marker that makes a part a region, if it is one; `own` is the first node of the part that decides.
    fn region(part: &Graph, own: NodeId, ambient: bool) -> Result<Option<NodeId>>;
    /// Takes the markers out of a part that became a region, given the one that made it so.
    fn strip_region(part: &mut Graph, marker: NodeId) -> Result<()>;
    /// Takes markers out of a part that is put back.
    fn strip_inlined(part: &mut Graph) -> Result<()>;
    /// The mode inside the body of a call that takes sub-graphs, given the mode around it.
    fn ambient_inside(call: &Node, ambient: bool) -> bool;
}

/// Runs a region pass on a program.
pub(super) fn run<R: Regions>(program: &ExportedProgram, context: &Context) -> Result<(ExportedProgram, Report)> {
    let mut rewrites = 0;
    let graph = &program.module.graph;
    let typed = graph.placeholders().any(|n| graph[n].meta().val.is_some());
    let pass = Pass::<R> { context: *context, typed, regions: std::marker::PhantomData };
    let module = pass.module(&program.module, context.ambient_grad, program.signature.as_deref(), &mut rewrites, 0)?;
    let mut result = program.clone();
    if let (Some(signature), true) = (&program.signature, rewrites > 0) {
        result.signature = Some(Arc::new(renamed(signature, &module.graph)));
    }
    result.module = module;
    Ok((result, Report::of(rewrites)))
}

/// The signature with the names that the outputs have now.
fn renamed(signature: &GraphSignature, graph: &Graph) -> GraphSignature {
    let mut signature = signature.clone();
    let items = graph.result().and_then(Argument::items).unwrap_or(&[]);
    for (spec, item) in signature.outputs.iter_mut().zip(items) {
        if let Some(n) = item.node()
            && spec.arg.node().is_some()
        {
            spec.arg.set_name(graph[n].name().clone());
        }
    }
    signature
}

/// How deep sub-graphs may nest.
const MAX_DEPTH: usize = 256;

struct Pass<R> {
    context: Context,
    /// Whether nodes carry values; a bare graph in text form has none.
    typed: bool,
    regions: std::marker::PhantomData<R>,
}

impl<R: Regions> Pass<R> {
    fn module(
        &self,
        module: &Arc<GraphModule>,
        ambient: bool,
        signature: Option<&GraphSignature>,
        rewrites: &mut usize,
        depth: usize,
    ) -> Result<Arc<GraphModule>> {
        if depth > MAX_DEPTH {
            let message = format!("sub-graphs nest deeper than {MAX_DEPTH} levels");
            return Err(Error::Pass { pass: R::PASS, message });
        }
        let graph = &module.graph;
        let mut result = Arc::clone(module);
        if graph.nodes().any(|n| R::is_marker(&graph[n])) {
            *rewrites += 1;
            result = Arc::new(self.one_level(module, ambient, signature)?);
        }
        self.sub_graphs(result, ambient, rewrites, depth)
    }

    /// Runs the pass on every sub-graph an attribute read names, in node order.
    fn sub_graphs(
        &self,
        mut module: Arc<GraphModule>,
        ambient: bool,
        rewrites: &mut usize,
        depth: usize,
    ) -> Result<Arc<GraphModule>> {
        let graph = &module.graph;
        let mut seen: HashSet<Name> = HashSet::default();
        let mut replaced: Vec<(Name, Arc<GraphModule>)> = Vec::new();
        for n in graph.nodes() {
            let Some(path) = graph[n].attr_path() else { continue };
            let Some(inner) = module.subgraph(path) else { continue };
            if !seen.insert(path.clone()) {
                continue;
            }
            // The mode in a body is that of its region; PyTorch judges by the outermost mode (R9).
            let inside = match graph.users(n).next() {
                Some(user) if !self.context.compat => R::ambient_inside(&graph[user], ambient),
                _ => ambient,
            };
            let new = self.module(inner, inside, None, rewrites, depth + 1)?;
            if !Arc::ptr_eq(&new, inner) {
                replaced.push((path.clone(), new));
            }
        }
        if !replaced.is_empty() {
            let module = Arc::make_mut(&mut module);
            for (path, new) in replaced {
                module.attributes.set(&path, Attribute::Graph(new));
            }
        }
        Ok(module)
    }

    fn one_level(
        &self,
        module: &GraphModule,
        ambient: bool,
        signature: Option<&GraphSignature>,
    ) -> Result<GraphModule> {
        let mut cut = R::cut(module)?;
        if let Some(signature) = signature {
            check_signature::<R>(&cut.base.graph, signature)?;
        }
        let mut free = FreeNames::default();
        for k in 0..cut.calls.len() {
            // Built here and gone before the next one, unless it becomes a region.
            let mut part = cut.body(k);
            let (call, path, repeated) = (cut.calls[k], cut.name(k), cut.prelude(k));
            let marker = match self.deciding_node(&part.graph, repeated) {
                Some(own) => R::region(&part.graph, own, ambient)?,
                None => None,
            };
            match marker {
                Some(marker) => {
                    self.wrap(&mut cut.base.graph, call, &path, &mut part.graph, marker)?;
                    R::strip_region(&mut part.graph, marker)?;
                    cut.base.attributes.set(&path, Attribute::Graph(Arc::new(part)));
                }
                None => {
                    R::strip_inlined(&mut part.graph)?;
                    inline_body(&mut cut.base, call, &part, &mut free)?;
                    cut.base.attributes.remove(&path);
                    free.release(&path);
                }
            }
        }
        Ok(cut.base)
    }

    /// The node that decides what becomes of a part. PyTorch looks at the first one that is not a placeholder, and
    /// so loses regions that begin with the read of a sub-graph (R1) or with a repeated marker (R2).
    fn deciding_node(&self, part: &Graph, repeated: usize) -> Option<NodeId> {
        let mut nodes = part.nodes();
        match self.context.compat {
            true => nodes.find(|&n| !part[n].is_placeholder()),
            false => nodes.skip(repeated).find(|&n| matches!(part[n].kind(), Kind::CallFunction(_))),
        }
    }

    /// Puts a higher-order call in place of the call of a part.
    fn wrap(&self, base: &mut Graph, call: NodeId, path: &Name, part: &mut Graph, marker: NodeId) -> Result<()> {
        let stack = part[marker].meta().nn_module_stack.clone().unwrap_or_default();
        let output = part.output_node().expect("a part has an output");
        let before = base.set_insert_point(InsertPoint::Before(call));
        let body = base.get_attr(path);
        base.meta_mut(body).nn_module_stack = Some(stack.clone());
        let mut arguments: Vec<Argument> = part[marker].args().to_vec();
        arguments.push(body.into());
        arguments.extend_from_slice(base[call].args());
        let result = part[output].args()[0].clone();
        let single = result.node();
        let name = single.map(|n| part[n].name().clone());
        let hop = base.create_node(Kind::CallFunction(R::HOP.into()), arguments, [], name.as_deref());
        let elements: Vec<NodeId> = match single {
            Some(n) => vec![n],
            None => result.items().unwrap_or(&[]).iter().filter_map(Argument::node).collect(),
        };
        let val = if self.typed { Some(Val::Tuple(values(R::PASS, part, &elements)?)) } else { None };
        let meta = base.meta_mut(hop);
        meta.nn_module_stack = Some(stack);
        meta.torch_fn = Some(Arc::new((R::HOP.name().to_string(), R::CLASS.to_string())));
        meta.val = val;
        match single {
            Some(n) => {
                part.set_args(output, [Argument::tuple([n.into()])]);
                let item = base.call_function(Function::GetItem, [hop.into(), 0i64.into()]);
                *base.meta_mut(item) = part[n].meta().clone();
                base.replace_all_uses_with(call, item);
                base.erase(call)?;
            }
            None => {
                base.replace_all_uses_with(call, hop);
                base.erase(call)?;
                let users: Vec<NodeId> = base.users(hop).collect();
                for user in users {
                    if let [_, Argument::Int(i)] = base[user].args()
                        && let Some(&element) = elements.get(*i as usize)
                    {
                        base.rename(user, part[element].name());
                        *base.meta_mut(user) = part[element].meta().clone();
                    }
                }
            }
        }
        base.set_insert_point(before);
        Ok(())
    }
}

/// The abstract values of what leaves a region.
fn values(pass: &'static str, part: &Graph, elements: &[NodeId]) -> Result<Arc<[Val]>> {
    let val = |n: &NodeId| {
        let message = "leaves a region but has no abstract value (`val`)".to_string();
        let missing = || Error::PassNode { pass, node: part[*n].name().to_string(), message };
        part[*n].meta().val.clone().ok_or_else(missing)
    };
    elements.iter().map(val).collect()
}

/// Outputs and their specs must agree before anything is renamed.
fn check_signature<R: Regions>(graph: &Graph, signature: &GraphSignature) -> Result<()> {
    let fail = |message: String| Err(Error::Pass { pass: R::PASS, message });
    let items = graph.result().and_then(Argument::items);
    let (found, expected) = (items.map_or(0, <[_]>::len), signature.outputs.len());
    let Some(items) = items.filter(|_| found == expected) else {
        return fail(format!("the graph returns {found} values, the signature has {expected} output specs"));
    };
    for (i, (item, spec)) in items.iter().zip(&signature.outputs).enumerate() {
        let none = matches!(&spec.arg, SpecArg::Constant { value: Argument::None, .. });
        if *item == Argument::None && !none {
            return fail(format!("output {i} is None, but its spec says {:?}", spec.arg));
        }
    }
    Ok(())
}
