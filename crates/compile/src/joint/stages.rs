//! Stages: a graph cut where the caller can see into it.
//!
//! A compiled graph is one node of the caller's graph. A value that the caller can differentiate by, or that has a hook, must
//! be where the caller's engine passes: so a graph is cut behind every result, and behind every value with a hook that comes
//! with the call. Each stage is a node of its own, and what crosses a cut is a tensor between two nodes.
//!
//! A stage is a stretch of the program, and no stretch overlaps another. An eager run executes the nodes that gradients reach in
//! the reverse of the order in which they were recorded, so the nodes of a stretch run one after another there too, and what a stage
//! passes on arrives when it does there. All ops of a stage that gradients flow through are reached by the same results:
//! whichever of them are differentiated, either all of these ops run or none does, and no input is reached that an eager run does not
//! reach. A value that only a view without history shows (`Reach::shown`) counts as a result that nobody differentiates.

use crate::backend::{Call, Executable, Interpreted, Value};
use crate::error::{Error, Result};
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::dispatch::Op;
use firebrand_graph::ir::{Argument, Function, GraphModule, Hop, Kind, NodeId, Target, Val};
use firebrand_graph::schema::Schema;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// More stages than this are not worth their nodes: the graph is interpreted.
const MOST: usize = 12;

/// One stage.
pub(super) struct Piece {
    pub(super) graph: GraphModule,
    /// The values it takes, in the order of its placeholders.
    inputs: Vec<NodeId>,
    /// The values it gives.
    outputs: Vec<NodeId>,
}

fn is_call(graph: &GraphModule, n: NodeId, function: &Function) -> bool {
    graph.graph[n].target().is_some_and(|t| t.is_function(function))
}

fn is_hook(graph: &GraphModule, n: NodeId) -> bool {
    is_call(graph, n, &Function::RegisterHook)
}

/// The value that a chain of hooks is on.
fn hooked(graph: &GraphModule, mut n: NodeId) -> NodeId {
    while let Some(of) = graph.graph[n].args().first().and_then(Argument::node).filter(|_| is_hook(graph, n)) {
        n = of;
    }
    n
}

/// What a value is a part of, if it is one.
fn part_of(graph: &GraphModule, n: NodeId) -> Option<NodeId> {
    graph.graph[n].args().first().and_then(Argument::node).filter(|_| is_call(graph, n, &Function::GetItem))
}

/// Whether gradients may flow through a value.
pub(super) fn is_recorded(graph: &GraphModule, n: NodeId) -> bool {
    matches!(&graph.graph[n].meta().val, Some(Val::Tensor(meta)) if meta.requires_grad)
}

/// Results through which gradients may flow, without the hooks on them.
fn visible(graph: &GraphModule) -> Vec<NodeId> {
    let returned = graph.graph.result().and_then(Argument::items).unwrap_or(&[]);
    let mut values: Vec<NodeId> = returned.iter().filter_map(Argument::node).map(|n| hooked(graph, n)).collect();
    values.retain(|&n| !graph.graph[n].is_placeholder() && is_recorded(graph, n));
    values.sort_by_key(|n| n.index());
    values.dedup();
    values
}

/// Whether a hook gives the same for a gradient as for its parts, one by one. Derivatives of a gradient reach a value inside a node in
/// parts: those of the gradient itself, and those of results.
pub(super) fn is_linear_hook(graph: &GraphModule, hook: NodeId) -> bool {
    let body = graph.graph[hook].args().get(1).and_then(Argument::node).and_then(|n| graph.graph[n].attr_path());
    body.and_then(|path| graph.subgraph(path)).is_some_and(|body| is_linear(body))
}

/// Whether a graph is linear in its first input.
fn is_linear(body: &GraphModule) -> bool {
    let g = &body.graph;
    let mut depends: HashSet<NodeId> = g.placeholders().take(1).collect();
    for n in g.nodes().filter(|&n| g[n].target().is_some()) {
        let given: Vec<bool> = g[n].args().iter().filter_map(Argument::node).map(|a| depends.contains(&a)).collect();
        if !g.input_nodes(n).any(|a| depends.contains(&a)) {
            continue;
        }
        let is = |ops: &[Op]| g[n].target().is_some_and(|t| ops.iter().any(|op| t.is_op(*op)));
        let linear = match given[..] {
            [true] => is(&[Op::NEG, Op::MUL_SCALAR, Op::DIV_SCALAR, Op::CLONE, Op::ALIAS]),
            [true, false] => is(&[Op::MUL_TENSOR, Op::DIV_TENSOR]),
            [false, true] => is(&[Op::MUL_TENSOR]),
            [true, true] => is(&[Op::ADD_TENSOR, Op::SUB_TENSOR]),
            _ => false,
        };
        if !linear {
            return false;
        }
        depends.insert(n);
    }
    true
}

/// Behind which values the graph is cut.
fn cuts(graph: &GraphModule, visible: &[NodeId]) -> HashSet<NodeId> {
    let g = &graph.graph;
    let mut values: HashSet<NodeId> = visible.iter().copied().collect();
    for n in g.nodes().filter(|&n| is_hook(graph, n) && matches!(g[n].args().get(1), Some(Argument::Int(_)))) {
        values.insert(hooked(graph, n));
    }
    values.retain(|&n| !g[n].is_placeholder() && is_recorded(graph, n));
    values
}

/// How nodes of a graph share memory.
struct Memory<'a> {
    graph: &'a GraphModule,
}

impl Memory<'_> {
    fn schema(&self, n: NodeId) -> Option<&'static Schema> {
        self.graph.graph[n].target().and_then(Target::overload).and_then(|o| o.schema())
    }

    fn is_view(&self, n: NodeId) -> bool {
        self.schema(n).is_some_and(|s| s.is_view())
    }

    /// The value in whose memory this one lies.
    fn root(&self, mut n: NodeId) -> NodeId {
        let g = &self.graph.graph;
        let passes = |n: NodeId| is_hook(self.graph, n) || self.schema(n).is_some_and(|s| s.mutates() || s.is_view());
        while let Some(of) = g[n].args().first().and_then(Argument::node).filter(|_| passes(n)) {
            n = of;
        }
        n
    }

    /// The memory that a node has to do with.
    fn touched(&self, n: NodeId) -> Vec<NodeId> {
        self.graph.graph.input_nodes(n).chain([n]).map(|of| self.root(of)).collect()
    }

    /// Whether it writes some of that.
    fn writes(&self, n: NodeId) -> bool {
        self.schema(n).is_some_and(|s| s.mutates()) || self.is_writing_region(n)
    }

    /// Whether it runs a sub-graph that writes.
    fn is_writing_region(&self, n: NodeId) -> bool {
        regions(self.graph, n).any(|region| writes(region))
    }
}

/// The sub-graphs that a node runs.
fn regions(graph: &GraphModule, n: NodeId) -> impl Iterator<Item = &Arc<GraphModule>> {
    let g = &graph.graph;
    g.input_nodes(n).filter_map(|i| g[i].attr_path().and_then(|p| graph.subgraph(p)))
}

/// Whether a graph writes memory.
pub(super) fn writes(module: &GraphModule) -> bool {
    let (g, memory) = (&module.graph, Memory { graph: module });
    g.nodes().any(|n| memory.schema(n).is_some_and(|s| s.mutates())) || module.subgraphs().any(|(_, g)| writes(g))
}

/// Whether the graph writes something that gradients flow through. The history that a write gives belongs to the caller's
/// tensor, and to the tensor between two stages.
pub(super) fn writes_recorded(graph: &GraphModule, everywhere: bool) -> bool {
    let g = &graph.graph;
    let memory = Memory { graph };
    g.nodes().any(|n| {
        if memory.schema(n).is_some_and(|s| s.mutates()) {
            let of = memory.root(n);
            return (everywhere || g[of].is_placeholder()) && (is_recorded(graph, n) || is_recorded(graph, of));
        }
        everywhere && memory.is_writing_region(n) && g.input_nodes(n).any(|i| is_recorded(graph, i))
    })
}

/// Whether it is a region where nothing is recorded. Its results may be views of something that is: their history ends there.
fn is_quiet(graph: &GraphModule, n: NodeId) -> bool {
    let node = &graph.graph[n];
    node.target() == Some(&Hop::WrapWithSetGradEnabled.into()) && node.args().first() == Some(&Argument::Bool(false))
}

/// The operand of such a region that a part of its result is: written there or handed through, it has the history that it had.
fn passed_through(graph: &GraphModule, part: NodeId) -> Option<NodeId> {
    let g = &graph.graph;
    let of = part_of(graph, part).filter(|&of| is_quiet(graph, of))?;
    let region = regions(graph, of).next()?;
    let place = match g[part].args().get(1)? {
        Argument::Int(k) => usize::try_from(*k).ok()?,
        _ => return None,
    };
    let mut at = region.graph.result().and_then(Argument::items)?.get(place)?.node()?;
    let inner = Memory { graph: region };
    while !region.graph[at].is_placeholder() {
        let written = region.graph[at].args().first().and_then(Argument::node);
        let written = written.filter(|_| inner.schema(at).is_some_and(|s| s.mutates()));
        at = written.or_else(|| passed_through(region, at))?;
    }
    let operand = region.graph.placeholders().position(|p| p == at)?;
    g[of].args().get(2 + operand)?.node()
}

/// Which nodes matter to the caller.
struct Reach {
    /// The results whose gradients reach a node, and the shown values that it leads to, one bit each; none for a node that has no
    /// history.
    found: HashMap<NodeId, u64>,
    /// The bits of results.
    differentiable: u64,
    /// What a view made where nothing is recorded is of. The view has no history, and requires grad if its base does.
    shown: HashSet<NodeId>,
}

impl Reach {
    /// None where there are too many results.
    fn of(graph: &GraphModule, visible: &[NodeId]) -> Option<Reach> {
        let g = &graph.graph;
        let is_given = |n: NodeId| is_quiet(graph, n) && g.users(n).any(|part| is_recorded(graph, part));
        let is_viewed = |&n: &NodeId| is_recorded(graph, n) && g.users(n).any(is_given);
        let counted: Vec<NodeId> = visible.iter().copied().chain(g.nodes().filter(is_viewed)).collect();
        if counted.len() >= 64 {
            return None;
        }
        let order: Vec<NodeId> = g.nodes().collect();
        let mut bit: HashMap<NodeId, u64> = HashMap::new();
        counted.iter().enumerate().for_each(|(k, &n)| *bit.entry(n).or_default() |= 1 << k);
        let mut found: HashMap<NodeId, u64> = HashMap::new();
        let mut passed: HashMap<NodeId, u64> = HashMap::new();
        let mut shown: HashSet<NodeId> = HashSet::new();
        for &n in order.iter().rev() {
            if is_viewed(&n) || (is_recorded(graph, n) && g.users(n).any(|u| shown.contains(&u))) {
                shown.insert(n);
            }
            let parts = |u: &NodeId| part_of(graph, *u).is_some();
            let recorded = is_recorded(graph, n) || g.users(n).filter(parts).any(|u| is_recorded(graph, u));
            let operand = passed_through(graph, n);
            let ends = is_quiet(graph, n) || part_of(graph, n).is_some_and(|of| is_quiet(graph, of));
            if recorded && (!ends || operand.is_some()) {
                let own = bit.get(&n).copied().unwrap_or(0) | passed.get(&n).copied().unwrap_or(0);
                let results = g.users(n).filter_map(|u| found.get(&u)).fold(own, |a, b| a | b);
                found.insert(n, results);
                operand.into_iter().for_each(|of| *passed.entry(of).or_default() |= results);
            }
        }
        Some(Reach { found, differentiable: (1 << visible.len()) - 1, shown })
    }

    /// The results whose gradients reach it, and the shown values that it leads to.
    fn leads_to(&self, n: NodeId) -> u64 {
        self.found.get(&n).copied().unwrap_or(0)
    }

    /// The results whose gradients reach it.
    fn results(&self, n: NodeId) -> u64 {
        self.leads_to(n) & self.differentiable
    }
}

/// How a graph is run where something is recorded.
pub(super) enum Cut {
    /// As one node.
    One,
    /// As several.
    Stages(Vec<Piece>),
    /// Op by op: no stages are right.
    Ops,
}

/// The stages of a graph.
pub(super) fn cut(graph: &GraphModule) -> Cut {
    let g = &graph.graph;
    let visible = visible(graph);
    let cuts = cuts(graph, &visible);
    // With a custom function in it the graph is interpreted, and has no need of stages.
    if cuts.is_empty() || g.nodes().any(|n| is_call(graph, n, &Function::ApplyFunction)) {
        return Cut::One;
    }
    // A mode that is switched on is on in later stages too; hooks in regions are not seen here.
    let hooks = |m: &GraphModule| m.graph.nodes().any(|n| is_hook(m, n));
    let hides = |n: NodeId| {
        is_call(graph, n, &Function::SetGradEnabled) || (!is_hook(graph, n) && regions(graph, n).any(|r| hooks(r)))
    };
    if g.nodes().any(hides) {
        return Cut::Ops;
    }
    let Some(reach) = Reach::of(graph, &visible) else { return Cut::Ops };
    let place = places_of_nodes(graph, cuts, &reach);
    match place.values().max().map_or(0, |last| last + 1) {
        0 | 1 => Cut::One,
        count if count > MOST || overwrites(graph, &place) => Cut::Ops,
        count => Cut::Stages((0..count).map(|k| piece(graph, &place, k, &reach)).collect()),
    }
}

/// Whether a stage writes memory that an earlier one has to do with: that may keep it for its backward, where an eager run keeps
/// something else.
fn overwrites(graph: &GraphModule, place: &HashMap<NodeId, usize>) -> bool {
    let (g, memory) = (&graph.graph, Memory { graph });
    let mut first: HashMap<NodeId, usize> = HashMap::new();
    for n in g.nodes() {
        let Some(&at) = place.get(&n) else { continue };
        let touched = memory.touched(n);
        if memory.writes(n) && touched.iter().any(|r| first.get(r).is_some_and(|&stage| stage < at)) {
            return true;
        }
        for root in touched {
            first.entry(root).or_insert(at);
        }
    }
    false
}

/// The inputs that a graph writes, by position.
fn written_inputs(graph: &GraphModule) -> Vec<usize> {
    let (g, memory) = (&graph.graph, Memory { graph });
    let written: HashSet<NodeId> = g.nodes().filter(|&n| memory.writes(n)).flat_map(|n| memory.touched(n)).collect();
    g.placeholders().enumerate().filter(|(_, p)| written.contains(p)).map(|(k, _)| k).collect()
}

/// The stage of every call.
fn places_of_nodes(graph: &GraphModule, mut cuts: HashSet<NodeId>, reach: &Reach) -> HashMap<NodeId, usize> {
    let (g, memory) = (&graph.graph, Memory { graph });
    let mut apart: HashSet<NodeId> = HashSet::new();
    loop {
        let place = in_stretches(graph, &cuts, reach, &apart);
        let before = cuts.len() + apart.len();
        // Views of inputs are made by the caller's ops: where others see them, they are in stages of their own.
        let leaves = |n: NodeId| g.users(n).any(|u| place.get(&u) != place.get(&n));
        let given = |n: NodeId| place.get(&memory.root(n)) != place.get(&n);
        apart.extend(g.nodes().filter(|&n| memory.is_view(n) && reach.results(n) != 0 && given(n) && leaves(n)));
        // A hook that is not in the stage of its value is on the tensor behind it, which all gradients must pass.
        let late = |h: &NodeId| is_hook(graph, *h) && place.get(h) != place.get(&hooked(graph, *h));
        let on = g.nodes().filter(late).map(|h| hooked(graph, h));
        cuts.extend(on.filter(|&n| !g[n].is_placeholder() && reach.results(n) != 0));
        if cuts.len() + apart.len() == before {
            return place;
        }
    }
}

fn in_stretches(
    graph: &GraphModule,
    cuts: &HashSet<NodeId>,
    reach: &Reach,
    apart: &HashSet<NodeId>,
) -> HashMap<NodeId, usize> {
    let g = &graph.graph;
    let mut place: HashMap<NodeId, usize> = HashMap::new();
    let mut at = 0;
    // What the ops of the stage have in common, once it has one; and whether it ends here.
    let (mut common, mut ends) = (None, false);
    for n in g.nodes().filter(|n| matches!(g[*n].kind(), Kind::CallFunction(_))) {
        // Parts of a result have one node with it, in an eager run too.
        if let Some(&own) = part_of(graph, n).and_then(|of| place.get(&of)) {
            place.insert(n, own);
            ends |= own == at && cuts.contains(&n);
            continue;
        }
        let kind = (reach.leads_to(n), apart.contains(&n));
        let is_op = kind.0 != 0 && !is_hook(graph, n);
        // A hook is on the tensor between two stages. What has no part in any gradient goes anywhere.
        if (ends && (is_op || is_hook(graph, n))) || (is_op && common.is_some_and(|c| c != kind)) {
            at += 1;
            (common, ends) = (None, false);
        }
        if is_op {
            common = Some(kind);
        }
        place.insert(n, at);
        ends |= cuts.contains(&n);
    }
    place
}

fn piece(module: &GraphModule, stage_of: &HashMap<NodeId, usize>, stage: usize, reach: &Reach) -> Piece {
    let g = &module.graph;
    // A hook on what leads to no result is never called; what the caller does with an argument is not known here.
    let is_idle = |n: NodeId| {
        let on = hooked(module, n);
        is_hook(module, n) && !g[on].is_placeholder() && reach.results(on) == 0
    };
    let own: Vec<NodeId> = g.nodes().filter(|n| stage_of.get(n) == Some(&stage)).collect();
    let is_own: HashSet<NodeId> = own.iter().copied().collect();
    let mut part = GraphModule::default();
    let mut copies: HashMap<NodeId, Argument> = HashMap::new();
    let mut inputs = Vec::new();
    for n in own.iter().flat_map(|&n| g.input_nodes(n)).filter(|n| !is_own.contains(n)) {
        if copies.contains_key(&n) || g[n].attr_path().is_some() {
            continue;
        }
        let placeholder = part.graph.placeholder(g[n].name());
        part.graph.meta_mut(placeholder).val = g[n].meta().val.clone();
        copies.insert(n, placeholder.into());
        inputs.push(n);
    }
    for &n in &own {
        for a in g.input_nodes(n) {
            if let Some(path) = g[a].attr_path().filter(|_| !copies.contains_key(&a)) {
                if let Some(attribute) = module.attributes.get(path) {
                    part.attributes.set(path, attribute.clone());
                }
                copies.insert(a, part.graph.get_attr(path).into());
            }
        }
        let of = g[n].args().first().and_then(Argument::node).filter(|_| is_idle(n));
        let copy = match of {
            Some(of) => copies[&of].clone(),
            None => part.graph.node_copy(&g[n], |i| copies[&i].clone()).into(),
        };
        copies.insert(n, copy);
    }
    let leaves = |n: NodeId| g.users(n).any(|u| !is_own.contains(&u));
    let outputs: Vec<NodeId> = own.into_iter().filter(|&n| leaves(n)).collect();
    // What later stages use as a constant, or for nothing that is returned, leaves this one as a constant: no gradient arrives for it.
    let constant = |n: NodeId| {
        let hooks = |u: NodeId| is_hook(module, u) && !is_idle(u);
        let in_vain = |u: NodeId| !g[u].is_output() && !hooks(u) && reach.results(u) == 0;
        is_recorded(module, n) && !reach.shown.contains(&n) && g.users(n).filter(|u| !is_own.contains(u)).all(in_vain)
    };
    for &n in outputs.iter().filter(|&&n| constant(n)) {
        let detached = part.graph.call_function(Target::aten("detach.default"), [copies[&n].clone()]);
        part.graph.meta_mut(detached).val = g[n].meta().val.clone();
        copies.insert(n, detached.into());
    }
    part.graph.output(Argument::tuple(outputs.iter().map(|n| copies[n].clone())));
    Piece { graph: part, inputs, outputs }
}

/// A graph in stages.
pub(super) struct Staged {
    /// What runs where nothing is recorded.
    whole: Arc<dyn Executable>,
    graph: Arc<GraphModule>,
    /// None where the graph has to be interpreted if something is recorded.
    stages: Option<Vec<(Piece, Arc<dyn Executable>)>>,
    /// The inputs that the graph writes.
    written: Vec<usize>,
}

impl Staged {
    pub(super) fn new(
        graph: &GraphModule,
        whole: Arc<dyn Executable>,
        stages: Option<Vec<(Piece, Arc<dyn Executable>)>>,
    ) -> Staged {
        let written = if stages.is_some() { written_inputs(graph) } else { Vec::new() };
        Staged { whole, graph: Arc::new(graph.clone()), stages, written }
    }

    /// Whether an input that is written shares memory with another: a stage may keep that for its backward.
    fn overlaps(&self, inputs: &[Value]) -> bool {
        let shares = |(k, v): (usize, &Value), w: usize| {
            k != w && matches!((v, &inputs[w]), (Value::Tensor(a), Value::Tensor(b)) if a.shares_storage(b))
        };
        self.written.iter().any(|&w| inputs.iter().enumerate().any(|i| shares(i, w)))
    }

    fn run_stages(&self, stages: &[(Piece, Arc<dyn Executable>)], inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let g = &self.graph.graph;
        let mut values: HashMap<NodeId, Value> = g.placeholders().zip(inputs.iter().cloned()).collect();
        let lost = || Error::internal("a stage needs a value that no stage gives");
        for (piece, run) in stages {
            let given = piece.inputs.iter().map(|n| values.get(n).cloned().ok_or_else(lost));
            let given = given.collect::<Result<Vec<_>>>()?;
            let results = run.run(&given, call)?;
            values.extend(piece.outputs.iter().copied().zip(results));
        }
        let returned = g.result().and_then(Argument::items).unwrap_or(&[]);
        let value = |a: &Argument| a.node().and_then(|n| values.get(&n).cloned()).ok_or_else(lost);
        returned.iter().map(value).collect()
    }
}

impl Executable for Staged {
    fn run(&self, inputs: &[Value], call: &Call) -> Result<Vec<Value>> {
        let wanted = |v: &Value| matches!(v, Value::Tensor(t) if t.requires_grad());
        if !(is_grad_enabled() && inputs.iter().any(wanted)) {
            return self.whole.run(inputs, call);
        }
        match &self.stages {
            Some(stages) if !self.overlaps(inputs) => self.run_stages(stages, inputs, call),
            _ => Interpreted { graph: self.graph.clone() }.run(inputs, call),
        }
    }
}

/// Which of a graph's inputs the placeholders of a stage are; none for values of the stages before it.
pub(super) fn places(graph: &GraphModule, piece: &Piece) -> Vec<Option<usize>> {
    let all: Vec<NodeId> = graph.graph.placeholders().collect();
    piece.inputs.iter().map(|n| all.iter().position(|p| p == n)).collect()
}
