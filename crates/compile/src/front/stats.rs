//! Process-wide statistics of compiled graphs: how many there are, and which can be shared.
//!
//! Functions of the same code (the same closure type) whose captures are the very same graph, with the same backend, share
//! what was compiled: ten layers compiled one by one cost one compilation. The weights are inputs, so nothing else differs.

use crate::backend::{Backend, ExampleInput, Executable};
use firebrand_graph::ir::GraphModule;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// How many entries all functions together may have.
pub(crate) const LIMIT: usize = 256;

static ENTRIES: AtomicUsize = AtomicUsize::new(0);
static HITS: AtomicU64 = AtomicU64::new(0);
static MISSES: AtomicU64 = AtomicU64::new(0);
static SHARED: AtomicU64 = AtomicU64::new(0);

/// Process-wide counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Calls that found a compiled entry.
    pub hits: u64,
    /// Calls that found no entry and compiled.
    pub misses: u64,
    /// Graphs that another function of the same code had compiled.
    pub shared: u64,
    /// Current number of entries.
    pub entries: usize,
}

/// The current counters.
pub fn cache_stats() -> CacheStats {
    CacheStats {
        hits: HITS.load(Relaxed),
        misses: MISSES.load(Relaxed),
        shared: SHARED.load(Relaxed),
        entries: entries(),
    }
}

pub(crate) fn hit() {
    HITS.fetch_add(1, Relaxed);
}

pub(crate) fn miss() {
    MISSES.fetch_add(1, Relaxed);
}

pub(crate) fn entries() -> usize {
    ENTRIES.load(Relaxed)
}

pub(crate) fn added() {
    ENTRIES.fetch_add(1, Relaxed);
}

pub(crate) fn removed(count: usize) {
    ENTRIES.fetch_sub(count, Relaxed);
}

pub(crate) fn next_function_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Relaxed)
}

/// A graph with everything below it, as text.
pub(crate) fn graph_text(module: &GraphModule) -> String {
    firebrand_graph::text::print_module(module, firebrand_graph::text::Form::Long)
}

/// What makes two graphs the same for a backend.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct GraphKey {
    code: TypeId,
    backend: usize,
    text: String,
}

impl GraphKey {
    pub(crate) fn new(
        code: TypeId,
        backend: &Arc<dyn Backend>,
        graph: &GraphModule,
        examples: &[ExampleInput],
    ) -> GraphKey {
        let text = format!("{}\n{examples:?}", graph_text(graph));
        GraphKey { code, backend: Arc::as_ptr(backend).addr(), text }
    }
}

type SharedGraphs = HashMap<GraphKey, (u64, Weak<dyn Executable>)>;
static GRAPHS: LazyLock<Mutex<SharedGraphs>> = LazyLock::new(Mutex::default);

/// The same graph, compiled by another function that is still there.
pub(crate) fn shared_graph(key: &GraphKey, function: u64) -> Option<Arc<dyn Executable>> {
    let graphs = GRAPHS.lock().unwrap_or_else(|e| e.into_inner());
    let (owner, executable) = graphs.get(key)?;
    let executable = executable.upgrade().filter(|_| *owner != function)?;
    SHARED.fetch_add(1, Relaxed);
    Some(executable)
}

/// Offers a compiled graph to other functions.
pub(crate) fn share_graph(key: GraphKey, function: u64, executable: &Arc<dyn Executable>) {
    let mut graphs = GRAPHS.lock().unwrap_or_else(|e| e.into_inner());
    graphs.retain(|_, (_, e)| e.strong_count() > 0);
    graphs.insert(key, (function, Arc::downgrade(executable)));
}
