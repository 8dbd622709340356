//! The engine: one run of a graph from its roots, node by node in descending sequence number. Accumulate nodes share the highest:
//! those that are ready at once run in the order in which their last gradients arrived, so what else there is in the graph does
//! not matter.
//!
//! No hashing and no reference counting per node: edges never change after creation, so a run borrows the graph from its
//! roots, and each node carries a stamp (task id, index into this run's table). A node that another running backward has
//! stamped falls back to a map, so several threads may differentiate one graph at once. Nothing here recurses; a backward
//! started inside a node or hook is a nested run, moved to another thread before the stack gets deep.

use super::early::EarlyScope;
use super::function::BufferScope;
use super::hooks;
use super::node::{Edge, Gradients, Needs, Node, Wishes};
use super::runner::{self, Defined, GraphTask, Outcome, Place};
use super::stamp::Claims;
use super::{anomaly, logging, mode};
use crate::layout::same_sizes;
use crate::slot::Slot;
use crate::tensor::sparse;
use crate::{Error, ErrorKind, Result, Tensor, ops, state};
use firebrand_kernels::parallel::HAVE_THREADS;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc as StdArc, Mutex};

/// Maximum number of nested runs on one stack before the next one moves to another thread.
const MAX_DEPTH: u32 = 60;

/// The stack of such a thread. Compiled passes and formulas in other languages need more than the default; it is reserved, not used.
const STACK: usize = 16 << 20;

/// What a run is for.
pub(crate) enum Wanted {
    /// Every leaf that the roots reach.
    All,
    /// Only these nodes (and what leads to them) run.
    Nodes(Vec<Node>),
    /// The gradients that arrive at these edges are returned.
    Captures(Vec<Edge>),
}

/// One run to execute.
pub(crate) struct Run {
    pub(crate) roots: Vec<(Edge, Tensor)>,
    pub(crate) keep_graph: bool,
    pub(crate) create_graph: bool,
    pub(crate) wanted: Wanted,
}

type Callback = Box<dyn FnOnce() -> Result<()> + Send>;

/// What hooks can query about the current run.
pub(crate) struct TaskInfo {
    claims: Claims,
    is_capture: bool,
    /// Per node of the run: bit 0 if it is executed, bit 1 if something is captured there. Empty: all run.
    state: Vec<u8>,
    roots: Vec<Node>,
    keep_graph: bool,
    /// The index of the running node; `u32::MAX` if none is.
    executing: AtomicU32,
    callbacks: Mutex<Vec<Callback>>,
}

const EXECUTE: u8 = 1;
const CAPTURE: u8 = 2;

/// The backward runs that this code is part of, innermost last.
static CURRENT: Slot<Vec<StdArc<TaskInfo>>> = Slot::new(Vec::new);

thread_local! {
    /// Number of runs on this thread's stack; unlike a scope it does not move with the work to another stack.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The run this thread is in.
pub(crate) fn current() -> Option<StdArc<TaskInfo>> {
    CURRENT.with(|c| c.last().cloned())
}

/// The id of the backward run this thread is in; -1 outside. Ids count up by one over all runs.
pub fn current_graph_task_id() -> i64 {
    current().map_or(-1, |t| i64::from(t.claims.run()))
}

/// Whether the backward run this thread is in retains the graph; true outside a run, as in PyTorch.
pub fn current_graph_task_keep_graph() -> bool {
    current().is_none_or(|t| t.keep_graph)
}

/// The node that the backward run of this thread is executing, for its hooks and for ops that it calls; `None` outside.
pub fn current_node() -> Option<Node> {
    let task = current()?;
    let wanted = Some(task.executing.load(Relaxed)).filter(|i| *i != u32::MAX)?;
    // Asked rarely: the run itself keeps no list that others could read.
    let mut seen: HashMap<usize, ()> = HashMap::new();
    let mut list: Vec<&Node> = task.roots.iter().collect();
    while let Some(node) = list.pop() {
        if task.index_of(node) == Some(wanted) {
            return Some(node.clone());
        }
        if seen.insert(address(node), ()).is_none() {
            list.extend(node.edges().iter().flatten().map(|e| &e.node));
        }
    }
    None
}

/// Whether every run that this thread is in is an ordinary backward over the whole graph.
pub(crate) fn all_runs_are_plain() -> bool {
    CURRENT.with(|c| c.iter().all(|t| t.state.is_empty()))
}

/// Runs `f` at the end of the current backward pass, in the order of the calls. `f` may queue more.
pub fn queue_callback(f: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let task = current().ok_or_else(|| Error::from(ErrorKind::CallbackOutsideBackward))?;
    task.callbacks.lock().unwrap_or_else(|e| e.into_inner()).push(Box::new(f));
    Ok(())
}

/// While it lives, another node of the current run is the one that executes.
pub(super) struct Executing(Option<(StdArc<TaskInfo>, u32)>);

impl Executing {
    pub(super) fn enter(index: u32) -> Executing {
        Executing(current().map(|task| {
            let before = task.executing.swap(index, Relaxed);
            (task, before)
        }))
    }

    /// The same for a node that is looked up.
    pub(super) fn node(node: &Node) -> Executing {
        current().and_then(|task| task.index_of(node)).map_or(Executing(None), Executing::enter)
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        if let Some((task, before)) = &self.0 {
            task.executing.store(*before, Relaxed);
        }
    }
}

impl TaskInfo {
    fn index_of(&self, node: &Node) -> Option<u32> {
        self.claims.find(node.stamp(), address(node))
    }
}

/// Whether the current run executes this node (hooks ask).
pub fn will_engine_execute_node(node: &Node) -> Result<bool> {
    let task = current().ok_or_else(|| Error::from(ErrorKind::NotInBackward))?;
    if task.is_capture && node.variable().is_some() {
        return Err(ErrorKind::LeafInGradCall.into());
    }
    let Some(i) = task.index_of(node) else { return Ok(false) };
    Ok(task.state.is_empty() || task.state[i as usize] != 0)
}

/// The nodes the current run executes, in order, with those whose gradients it captures. Needs multithreading to be off.
pub fn current_graph_task_execution_order() -> Result<Vec<Node>> {
    let task = current().ok_or_else(|| Error::from(ErrorKind::NotInBackward))?;
    if mode::uses_threads() {
        return Err(ErrorKind::MultithreadingMustBeOff.into());
    }
    // Nodes whose gradient is captured are among them.
    let wanted = |n: &Node| task.state.is_empty() || task.index_of(n).is_some_and(|i| task.state[i as usize] != 0);
    let mut waiting: HashMap<usize, usize> = HashMap::new();
    let mut seen: HashMap<usize, ()> = HashMap::new();
    let mut list: Vec<&Node> = Vec::new();
    for r in &task.roots {
        *waiting.entry(address(r)).or_default() += 1;
        if seen.insert(address(r), ()).is_none() {
            list.push(r)
        }
    }
    let mut at = 0;
    while at < list.len() {
        for e in list[at].edges().iter().flatten() {
            *waiting.entry(address(&e.node)).or_default() += 1;
            if seen.insert(address(&e.node), ()).is_none() {
                list.push(&e.node)
            }
        }
        at += 1;
    }
    let mut ready = Ready::default();
    let position: HashMap<usize, usize> = list.iter().enumerate().map(|(i, n)| (address(n), i)).collect();
    let mut arrive = |n: &Node, ready: &mut Ready| {
        if let Some(w) = waiting.get_mut(&address(n)) {
            *w -= 1;
            if *w == 0 {
                ready.push(n, position[&address(n)] as u32)
            }
        }
    };
    task.roots.iter().for_each(|r| arrive(r, &mut ready));
    let mut order = Vec::new();
    while let Some(i) = ready.pop() {
        let i = i as usize;
        if wanted(list[i]) {
            order.push(list[i].clone());
        }
        list[i].edges().iter().flatten().for_each(|e| arrive(&e.node, &mut ready));
    }
    Ok(order)
}

#[inline]
fn address(node: &Node) -> usize {
    node.addr()
}

/// The nodes that have got all their gradients: the one with the highest sequence number is next, among equals the first.
struct Ready {
    heap: BinaryHeap<(u64, Reverse<u32>, u32)>,
    /// How many there have been.
    count: u32,
}

impl Default for Ready {
    fn default() -> Ready {
        Ready { heap: BinaryHeap::with_capacity(16), count: 0 }
    }
}

impl Ready {
    #[inline]
    fn push(&mut self, node: &Node, index: u32) {
        self.heap.push((node.sequence_nr(), Reverse(self.count), index));
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.heap.pop().map(|(_, _, index)| index)
    }
}

struct Entry<'g> {
    node: &'g Node,
    waiting: u32,
    grads: Gradients,
}

/// The nodes of one run. Stamps are cleared when it is dropped, also on error and unwind.
struct Table<'g> {
    claims: Claims,
    entries: Vec<Entry<'g>>,
}

impl<'g> Table<'g> {
    /// Index of a node in this run, if it has one.
    #[inline]
    fn find(&self, node: &Node) -> Option<u32> {
        self.claims.find(node.stamp(), address(node))
    }

    /// Index of a node, giving it one on first sight.
    #[inline]
    fn enter(&mut self, node: &'g Node) -> u32 {
        if let Some(i) = self.find(node) {
            return i;
        }
        let i = self.entries.len() as u32;
        self.entries.push(Entry { node, waiting: 0, grads: Gradients::new() });
        self.claims.claim(node.stamp(), address(node), i);
        i
    }

    /// Counts, for every reachable node, how many gradients it must wait for. The table doubles as the work list.
    fn discover(&mut self, roots: &'g [(Edge, Tensor)]) {
        for (e, _) in roots {
            let i = self.enter(&e.node);
            self.entries[i as usize].waiting += 1;
        }
        let mut at = 0;
        while at < self.entries.len() {
            let node = self.entries[at].node;
            for e in node.edges().iter().flatten() {
                let i = self.enter(&e.node);
                self.entries[i as usize].waiting += 1;
            }
            at += 1;
        }
    }

    /// Which nodes run: the requested ones, and all that lead to them. Iterative depth-first walk, children first.
    fn mark(&self, mut state: Vec<u8>, roots: &[(Edge, Tensor)]) -> Vec<u8> {
        let mut done = vec![false; self.entries.len()];
        let mut stack: Vec<(u32, usize)> = Vec::new();
        for (e, _) in roots {
            let i = self.find(&e.node).expect("roots are in the table");
            if !std::mem::replace(&mut done[i as usize], true) {
                stack.push((i, 0));
            }
            while let Some((i, k)) = stack.pop() {
                let edges = self.entries[i as usize].node.edges();
                match edges.get(k) {
                    None => {
                        let leads =
                            edges.iter().flatten().any(|e| self.find(&e.node).is_some_and(|c| state[c as usize] != 0));
                        if leads {
                            state[i as usize] |= EXECUTE
                        }
                    }
                    Some(e) => {
                        stack.push((i, k + 1));
                        if let Some(e) = e {
                            let c = self.find(&e.node).expect("the counting pass saw every edge");
                            if !std::mem::replace(&mut done[c as usize], true) {
                                stack.push((c, 0));
                            }
                        }
                    }
                }
            }
        }
        state
    }
}

impl Table<'_> {
    /// The gradients accumulated so far for the inputs of a node, not visible elsewhere.
    fn buffers(&mut self, node: &Node) -> Vec<Option<Tensor>> {
        let places: Vec<_> = node
            .edges()
            .iter()
            .map(|e| e.as_ref().and_then(|e| Some((self.find(&e.node)?, e.slot as usize))))
            .collect();
        let own = |t: &mut Tensor| !t.is_view_here() && t.layout().is_non_overlapping_and_dense() && t.is_sole_owner();
        let mut buffer = |(i, slot): (u32, usize)| {
            let held = self.entries[i as usize].grads.get_mut(slot)?.as_mut()?;
            own(held).then(|| held.clone())
        };
        places.into_iter().map(|p| p.and_then(&mut buffer)).collect()
    }
}

impl Table<'_> {
    /// The accumulate node behind an edge, with its index, if it takes its gradient early and waits for nothing else.
    fn lone_leaf(&self, edge: &Edge, marks: &[u8]) -> Option<(Node, u32)> {
        edge.node.variable().filter(|leaf| leaf.takes_early_grad())?;
        let i = self.find(&edge.node)?;
        let entry = &self.entries[i as usize];
        let alone = entry.waiting == 1 && entry.grads.iter().all(Option::is_none);
        let runs = marks.get(i as usize).is_none_or(|m| *m == EXECUTE);
        (alone && runs).then(|| (edge.node.clone(), i))
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        self.entries.iter().for_each(|e| self.claims.release(e.node.stamp()))
    }
}

/// Executes a run; returns the captured gradients in the order of `Wanted::Captures`.
pub(crate) fn run(run: Run) -> Result<Vec<Option<Tensor>>> {
    struct Depth;
    impl Drop for Depth {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1)
        }
    }
    // Without threads there is no other stack.
    if DEPTH.get() < MAX_DEPTH || !HAVE_THREADS {
        DEPTH.set(DEPTH.get() + 1);
        let _depth = Depth;
        return run_here(run);
    }
    // Too deep for this stack: continue on a fresh one, in the same state.
    let here = state::ThreadState::capture();
    let name = "firebrand-backward".into();
    let worker = std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || here.run(|| self::run(run)));
    let failed = |message: String| Error::from(ErrorKind::EngineThread { message });
    worker.map_err(|e| failed(e.to_string()))?.join().unwrap_or_else(|_| Err(failed("a node or hook panicked".into())))
}

fn next_task_id() -> u32 {
    static IDS: AtomicU32 = AtomicU32::new(0);
    loop {
        let id = IDS.fetch_add(1, Relaxed).wrapping_add(1);
        if id != 0 {
            return id;
        }
    }
}

fn run_here(run: Run) -> Result<Vec<Option<Tensor>>> {
    let _logged = logging::for_run(run.roots.iter().map(|(e, _)| &e.node));
    let mut table = Table { claims: Claims::new(next_task_id()), entries: Vec::with_capacity(32) };
    table.discover(&run.roots);

    // (node index, slot, place in the answer)
    let mut captures: Vec<(u32, u32, usize)> = Vec::new();
    let mut marks = Vec::new();
    let mut answer = Vec::new();
    match &run.wanted {
        Wanted::All => {}
        Wanted::Nodes(nodes) => {
            marks = vec![0; table.entries.len()];
            nodes.iter().filter_map(|n| table.find(n)).for_each(|i| marks[i as usize] |= EXECUTE);
            marks = table.mark(marks, &run.roots);
        }
        Wanted::Captures(edges) => {
            marks = vec![0; table.entries.len()];
            answer = vec![None; edges.len()];
            for (k, e) in edges.iter().enumerate() {
                if let Some(i) = table.find(&e.node) {
                    marks[i as usize] |= CAPTURE;
                    captures.push((i, e.slot, k));
                }
            }
            marks = table.mark(marks, &run.roots);
        }
    }
    let info = StdArc::new(TaskInfo {
        claims: table.claims.clone(),
        is_capture: matches!(run.wanted, Wanted::Captures(_)),
        state: marks,
        roots: run.roots.iter().map(|(e, _)| e.node.clone()).collect(),
        keep_graph: run.keep_graph,
        executing: AtomicU32::new(u32::MAX),
        callbacks: Mutex::new(Vec::new()),
    });
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            drop(CURRENT.with(Vec::pop));
        }
    }
    CURRENT.with(|c| c.push(info.clone()));
    let _leave = Leave;

    'made: {
        let graph = run.roots.iter().map(|(e, _)| e.node.level()).max().unwrap_or(0);
        let _mode = state::EngineMode::new(run.create_graph, graph);
        let mut observer = None;
        if state::is(state::RUNNER)
            && let Some(runner) = runner::active(run.create_graph)
        {
            let laid = Laid::new(&table, &run, &info.state, &captures, answer.len());
            match runner.run(&GraphTask { laid })? {
                Outcome::Done(made) => {
                    answer = made;
                    break 'made;
                }
                Outcome::Plain => {}
                Outcome::Observe(tell) => observer = Some((tell, Vec::new())),
            }
        }
        let mut ready = Ready::default();
        for (e, seed) in &run.roots {
            let i = table.find(&e.node).expect("roots are in the table");
            deliver(&mut table.entries[i as usize], e.slot, Some(seed.clone()))?;
            arrived(&mut table.entries[i as usize], i, &mut ready);
        }
        while let Some(i) = ready.pop() {
            let mark = info.state.get(i as usize).copied();
            if mark == Some(0) {
                continue;
            }
            let observed = observer.as_mut().map(|(_, seen)| seen);
            info.executing.store(i, Relaxed);
            evaluate(&mut table, i, mark, &info, &run, &captures, &mut answer, &mut ready, observed)?;
        }
        info.executing.store(u32::MAX, Relaxed);
        if let Some((tell, seen)) = observer {
            tell(&seen)?;
        }
    }
    finish(&info)?;
    Ok(answer)
}

/// Callbacks see finished gradients and the caller's modes; one may queue more.
fn finish(info: &TaskInfo) -> Result<()> {
    loop {
        let batch = std::mem::take(&mut *info.callbacks.lock().unwrap_or_else(|e| e.into_inner()));
        if batch.is_empty() {
            return Ok(());
        }
        for f in batch {
            f()?;
        }
    }
}

/// A run laid out: its nodes in the order of execution, which depends on the graph alone.
pub(super) struct Laid<'a> {
    table: &'a Table<'a>,
    run: &'a Run,
    marks: &'a [u8],
    captured: &'a [(u32, u32, usize)],
    /// Indices of the table.
    pub(super) order: Vec<u32>,
    /// For each index of the table, its place in the order.
    position: Vec<u32>,
    pub(super) answers: usize,
    pub(super) keep_graph: bool,
}

impl<'a> Laid<'a> {
    fn new(
        table: &'a Table<'a>,
        run: &'a Run,
        marks: &'a [u8],
        captured: &'a [(u32, u32, usize)],
        answers: usize,
    ) -> Laid<'a> {
        let mut waiting: Vec<u32> = table.entries.iter().map(|e| e.waiting).collect();
        let mut ready = Ready::default();
        let mut arrive = |i: u32, ready: &mut Ready| {
            waiting[i as usize] -= 1;
            if waiting[i as usize] == 0 {
                ready.push(table.entries[i as usize].node, i)
            }
        };
        let takes_part = |i: u32| marks.is_empty() || marks[i as usize] != 0;
        let runs = |i: u32| marks.is_empty() || marks[i as usize] & EXECUTE != 0;
        let (mut order, mut position) = (Vec::with_capacity(table.entries.len()), vec![u32::MAX; table.entries.len()]);
        for (e, _) in &run.roots {
            arrive(table.find(&e.node).expect("roots are in the table"), &mut ready);
        }
        while let Some(i) = ready.pop() {
            if !takes_part(i) {
                continue;
            }
            position[i as usize] = order.len() as u32;
            order.push(i);
            if !runs(i) {
                continue;
            }
            for e in table.entries[i as usize].node.edges().iter().flatten() {
                let c = table.find(&e.node).expect("the counting pass saw every edge");
                if takes_part(c) {
                    arrive(c, &mut ready);
                }
            }
        }
        Laid { table, run, marks, captured, order, position, answers, keep_graph: run.keep_graph }
    }

    #[inline]
    pub(super) fn node(&self, step: usize) -> &'a Node {
        self.table.entries[self.order[step] as usize].node
    }

    #[inline]
    pub(super) fn executes(&self, step: usize) -> bool {
        self.marks.is_empty() || self.marks[self.order[step] as usize] & EXECUTE != 0
    }

    #[inline]
    pub(super) fn target(&self, step: usize, k: usize) -> Option<Place> {
        let edge = self.node(step).edges()[k].as_ref()?;
        self.place(edge)
    }

    #[inline]
    fn place(&self, edge: &Edge) -> Option<Place> {
        let at = self.position[self.table.find(&edge.node)? as usize];
        (at != u32::MAX).then_some((at as usize, edge.slot as usize))
    }

    pub(super) fn seeds(&self) -> impl Iterator<Item = (Place, &'a Tensor)> + '_ {
        self.run.roots.iter().filter_map(|(e, seed)| Some((self.place(e)?, seed)))
    }

    #[inline]
    pub(super) fn captures(&self, step: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let i = self.order[step];
        self.captured.iter().filter(move |c| c.0 == i).map(|(_, slot, k)| (*slot as usize, *k))
    }
}

#[inline]
fn arrived(entry: &mut Entry<'_>, i: u32, ready: &mut Ready) {
    entry.waiting -= 1;
    if entry.waiting == 0 {
        ready.push(entry.node, i)
    }
}

/// Adds a gradient to the buffer of a node.
#[inline]
fn deliver(entry: &mut Entry<'_>, slot: u32, g: Option<Tensor>) -> Result<()> {
    let Some(g) = g else { return Ok(()) };
    let slot = slot as usize;
    if entry.grads.len() <= slot {
        entry.grads.resize(slot + 1, None)
    }
    entry.grads[slot] = Some(match entry.grads[slot].take() {
        None => g,
        Some(old) => add_into(old, g)?,
    });
    Ok(())
}

/// The sum, in the memory of the first if nothing else can see it and no graph is needed.
fn add_into(mut old: Tensor, g: Tensor) -> Result<Tensor> {
    if sparse::either(&old, &g) {
        return sparse::sum_gradients(&old, &g, false);
    }
    if !state::is(state::GRAD | state::LAYERS | state::INNER | state::DUAL)
        && old.shape() == g.shape()
        && old.dtype() == g.dtype()
        && !old.is_view_here()
        && old.layout().is_non_overlapping_and_dense()
        && old.is_sole_owner()
    {
        ops::formulas::add_in_place(&old, &g)?;
        return Ok(old);
    }
    ops::formulas::add_tensors(&old, &g)
}

/// What few nodes ask for while they run: to hand over gradients early, and the gradients collected so far.
#[cold]
fn offers(
    table: &mut Table<'_>,
    node: &Node,
    wishes: Wishes,
    plain: bool,
    early: bool,
    info: &TaskInfo,
) -> (Option<EarlyScope>, Option<BufferScope>) {
    let early = (wishes.early_leaves && early)
        .then(|| EarlyScope::new(node, node.edges().iter().map(|e| table.lone_leaf(e.as_ref()?, &info.state))));
    let buffers = wishes.input_buffers.then(|| {
        BufferScope::new(if plain {
            Ok(table.buffers(node))
        } else {
            Err("not in a run that is recorded, in anomaly mode, or with post-hooks on the node")
        })
    });
    (early, buffers)
}

#[inline]
fn evaluate(
    table: &mut Table<'_>,
    i: u32,
    mark: Option<u8>,
    info: &TaskInfo,
    run: &Run,
    captures: &[(u32, u32, usize)],
    answer: &mut [Option<Tensor>],
    ready: &mut Ready,
    mut observed: Option<&mut Vec<Defined>>,
) -> Result<()> {
    let entry = &mut table.entries[i as usize];
    let node = entry.node;
    let mut grads = std::mem::take(&mut entry.grads);
    if grads.len() < node.input_metadata().len() {
        grads.resize(node.input_metadata().len(), None)
    }
    hooks::run_tensor_pre_hooks(node, &mut grads)?;
    if let Some(m) = mark {
        if m & CAPTURE != 0 {
            for (_, slot, k) in captures.iter().filter(|c| c.0 == i) {
                answer[*k] = grads[*slot as usize].clone();
            }
        }
        if m & EXECUTE == 0 {
            observed.into_iter().for_each(|o| o.push(Defined::new()));
            return Ok(());
        }
    }
    hooks::run_pre_hooks(node, &mut grads)?;

    let mut unwanted = 0u64;
    if mark.is_some() {
        for (k, e) in node.edges().iter().enumerate().take(64) {
            if let Some(e) = e
                && table.find(&e.node).is_none_or(|c| info.state[c as usize] == 0)
            {
                unwanted |= 1 << k;
            }
        }
    }
    let keep_incoming = hooks::has_post_hooks(node).then(|| grads.clone());
    // Post-hooks may still read saved values, so those outlive the call then; a node without gradients reads none.
    let take =
        !run.keep_graph && keep_incoming.is_none() && node.formula().takes_saved() && grads.iter().any(Option::is_some);
    let anomaly_on = state::is(state::ANOMALY);
    let wishes = node.formula().wishes();
    let offers = (wishes.input_buffers || wishes.early_leaves).then(|| {
        let plain = !run.create_graph && !anomaly_on && keep_incoming.is_none();
        offers(table, node, wishes, plain, plain && observed.is_none(), info)
    });
    let outs = {
        let _executing = anomaly_on.then(|| anomaly::executing(node));
        node.formula().apply(node, grads, &Needs::without(node.edges(), unwanted).last_run(take))
    };
    let result = outs.and_then(|mut outs| {
        validate(node, &mut outs)?;
        observed.iter_mut().for_each(|o| o.push(outs.iter().map(Option::is_some).collect()));
        // Hooks that were registered while the node ran (by an unpack hook) run too; the gradients it got are gone by then.
        if hooks::has_post_hooks(node) {
            let incoming = keep_incoming.as_ref().map_or(&[][..], |g| &g[..]);
            hooks::run_post_hooks(node, &mut outs, incoming)?;
        }
        if !run.keep_graph && !take {
            node.formula().release();
        }
        if anomaly_on && state::is(state::CHECK_NAN) {
            for (k, g) in outs.iter().enumerate() {
                if g.as_ref().map_or(Ok(false), ops::formulas::has_nan)? {
                    return Err(ErrorKind::NanGradient { node: node.name().to_string(), output: k }.into());
                }
            }
        }
        Ok(outs)
    });
    let outs = match result {
        Ok(outs) => outs,
        Err(e) => {
            if anomaly_on {
                anomaly::report(node);
            }
            return Err(e);
        }
    };
    let early = offers.as_ref().and_then(|(early, _)| early.as_ref());
    for (k, (edge, g)) in node.edges().iter().zip(outs).enumerate() {
        let Some(edge) = edge else { continue };
        if early.is_some_and(|early| early.has(k)) {
            continue;
        }
        let c = table.find(&edge.node).expect("the counting pass saw every edge");
        if info.state.get(c as usize) == Some(&0) {
            continue;
        }
        let target = &mut table.entries[c as usize];
        deliver(target, edge.slot, g)?;
        arrived(target, c, ready);
    }
    Ok(())
}

/// Makes results match what the next nodes expect: summed down to the shape, cast to the dtype.
#[inline]
pub(super) fn validate(node: &Node, outs: &mut Gradients) -> Result<()> {
    let edges = node.edges();
    if outs.len() != edges.len() {
        if node.variable().is_some() {
            return Ok(());
        }
        return Err(ErrorKind::NodeGradCount {
            node: node.name().to_string(),
            expected: edges.len(),
            found: outs.len(),
        }
        .into());
    }
    for (k, (edge, out)) in edges.iter().zip(outs.iter_mut()).enumerate() {
        fit(node, k, edge, out)?;
    }
    Ok(())
}

/// Makes result `k` match what the next node expects.
#[inline(always)]
pub(super) fn fit(node: &Node, k: usize, edge: &Option<Edge>, out: &mut Option<Tensor>) -> Result<()> {
    // What leads nowhere is not looked at, but post-hooks see it.
    let (Some(edge), Some(g)) = (edge, out.as_ref()) else { return Ok(()) };
    let Some(meta) = edge.node.input_metadata().get(edge.slot as usize) else { return Ok(()) };
    if !same_sizes(g.shape(), &meta.shape) {
        if !ops::shape::is_expandable_to(&meta.shape, g.shape()) {
            return Err(ErrorKind::FnGradShape {
                function: node.name().to_string(),
                position: k,
                expected: meta.shape.to_vec(),
                found: g.shape().to_vec(),
            }
            .into());
        }
        *out = Some(ops::formulas::sum_to_size(g, &meta.dims())?);
    }
    if let Some(g) = out.as_ref()
        && g.device() != meta.device
    {
        *out = Some(super::api::on_device(g, meta.device, Some(node), k)?);
    }
    if let Some(g) = out.as_ref()
        && g.dtype() != meta.dtype
        && !meta.any_dtype
    {
        // What a real number does to a real loss is the real part. Formulas of our own leave that to us; a custom
        // function that hands out a complex gradient for a real input is mistaken.
        let to_real = g.dtype().is_complex() && !meta.dtype.is_complex();
        if to_real && node.formula().as_any().is_some() {
            return Err(ErrorKind::FnGradComplex { function: node.name().to_string(), position: k }.into());
        }
        let g = if to_real { ops::real(g)? } else { g.clone() };
        *out = Some(ops::formulas::cast(&g, meta.dtype)?);
    }
    Ok(())
}
