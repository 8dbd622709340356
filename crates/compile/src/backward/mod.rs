//! Compiled backward: a backward pass of the engine as a graph.
//!
//! Inside the scope that [`enable`] opens, every backward pass of this thread that records nothing is captured once per
//! structure, compiled with a backend and used again. It does what an eager run does, in the same order: hooks of every
//! kind, accumulation as soon as a gradient is ready, callbacks at the end. Saved tensors, seeds, sizes and numbers are
//! inputs; pure hooks (`register_pure_hook`) are part of the graph; everything else that is user code is
//! called from it (`call_host` nodes). Runs that create a graph, and runs under transforms, autocast, anomaly or inference
//! mode, are run by the engine.
//!
//! `key` describes a run, `walk` traces it, `fit` combines two traces into one graph, `frame` finds the graph of a run, `host`
//! does what is not in the graph.

mod fit;
mod frame;
mod host;
mod key;
mod walk;

use crate::backend::Backend;
use crate::backends;
use crate::error::Error;
use firebrand_core::Result;
use firebrand_core::autograd::runner::{self, BackwardRunner, Defined, GraphTask, Outcome, RunnerScope};
use fit::Flat;
use frame::{Frame, Structure};
use key::Key;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use walk::{PureHooks, Walk};

/// How backward passes are compiled.
#[derive(Clone)]
pub struct Options {
    /// The backend; `firebrand`, the optimizing one, if not given.
    pub backend: Arc<dyn Backend>,
    /// Whether sizes are inputs from the first capture on. Otherwise the first capture is specialized to its sizes; a second one
    /// with others is for all.
    pub dynamic: bool,
    /// Whether the graph of a second capture is compiled for all sizes at once. Otherwise it is compiled for those of its first run,
    /// and for all at the next, as `torch.compile` does unless it is told that sizes vary.
    pub dynamic_graphs: bool,
    /// Whether a pure hook that cannot be traced is an error; otherwise it is called like other hooks.
    pub fullgraph: bool,
    /// The maximum number of graphs per structure; beyond that, passes that match none are run by the engine.
    pub cache_limit: usize,
}

impl Default for Options {
    fn default() -> Options {
        let backend = backends::firebrand();
        Options { backend, dynamic: true, dynamic_graphs: false, fullgraph: false, cache_limit: 16 }
    }
}

impl Options {
    /// The default options with this backend.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Options {
        Options { backend, ..Options::default() }
    }
}

/// Compiles backward passes of this thread while the guard lives. Scopes nest; the innermost one applies.
pub fn enable(options: Options) -> Guard {
    CompiledBackward::new(options).enable()
}

/// Disables compiled backward on this thread while the guard lives, whatever the enclosing scope.
pub fn disable() -> Guard {
    Guard { compiler: None, _scope: RunnerScope::new(None) }
}

/// Ends its scope when dropped. What was captured is dropped with the last [`CompiledBackward`] that holds it.
#[must_use = "the scope lasts while the guard lives"]
pub struct Guard {
    compiler: Option<CompiledBackward>,
    _scope: RunnerScope,
}

impl Guard {
    /// The number of structures captured so far.
    pub fn captures(&self) -> usize {
        self.compiler.as_ref().map_or(0, CompiledBackward::captures)
    }
}

/// A cache of compiled backward passes: it can be used for any number of scopes. Cloning shares it.
#[derive(Clone)]
pub struct CompiledBackward(Arc<Compiler>);

impl CompiledBackward {
    /// An empty cache.
    pub fn new(options: Options) -> CompiledBackward {
        CompiledBackward(Arc::new(Compiler { options, captured: AtomicUsize::new(0), cache: Mutex::default() }))
    }

    /// Opens a scope for this thread.
    pub fn enable(&self) -> Guard {
        Guard { compiler: Some(self.clone()), _scope: RunnerScope::new(Some(Arc::new(self.clone()))) }
    }

    /// The number of structures captured so far.
    pub fn captures(&self) -> usize {
        self.0.captured.load(Relaxed)
    }
}

/// Entries that are found by one comparison, over all structures.
const SEEN: usize = 1024;
/// Structures whose graphs are kept; the oldest goes first.
const CAPTURES: usize = 256;
/// Graphs of one structure for different pure hooks; then these are called.
const HOOKS: usize = 4;

/// What is known so far.
#[derive(Default)]
struct Cache {
    captures: Vec<Structure>,
    /// By a hash of structure and numbers.
    seen: HashMap<u64, Vec<Arc<Seen>>>,
    /// The one that was found last: a loop of steps needs no hash.
    last: Option<Arc<Seen>>,
    count: usize,
    /// Hashes of what cannot be recorded. A collision costs time only.
    plain: HashSet<u64>,
}

struct Seen {
    structure: Vec<u64>,
    numbers: Vec<u64>,
    frame: Arc<Frame>,
}

impl Seen {
    fn is_for(&self, key: &Key) -> bool {
        self.structure == key.structure && self.numbers == key.numbers
    }
}

struct Compiler {
    options: Options,
    captured: AtomicUsize,
    cache: Mutex<Cache>,
}

impl Compiler {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn seen(&self, key: &Key, hash: u64) -> Option<Arc<Frame>> {
        let mut cache = self.cache();
        let found = cache.seen.get(&hash)?.iter().find(|s| s.is_for(key))?.clone();
        let frame = found.frame.clone();
        let before = cache.last.replace(found);
        drop(cache);
        drop(before);
        Some(frame)
    }

    /// The frame of the last run that was found, if this one is like it.
    fn last(&self, key: &Key) -> Option<Arc<Frame>> {
        self.cache().last.as_ref().filter(|s| s.is_for(key)).map(|s| s.frame.clone())
    }

    /// Whether pure hooks of runs like this are called.
    fn calls_hooks(&self, key: &Key) -> bool {
        key.has_pure_hooks && self.cache().captures.iter().any(|c| c.calls_hooks && c.is_for(key))
    }

    /// What was seen of the gradients of runs like this, if formulas are called in them.
    fn defined(&self, key: &Key) -> Option<Vec<Defined>> {
        self.cache().captures.iter().find(|c| c.is_for(key)).and_then(|c| c.defined.clone())
    }

    /// What is known of runs like this, which are captured now if nothing is.
    fn frames(&self, key: &Key, defined: Option<&[Defined]>) -> Vec<Arc<Frame>> {
        let mut cache = self.cache();
        let Some(c) = cache.captures.iter_mut().find(|c| c.is_for(key)) else {
            drop(cache);
            return self.add_capture(key, defined);
        };
        if c.defined.is_none() {
            c.defined = defined.map(<[Defined]>::to_vec);
        }
        // Hooks that are others at every run are not worth a graph each.
        c.calls_hooks |= c.frames.iter().filter(|f| key.has_other_hooks(&f.numbers)).count() >= HOOKS;
        c.frames.clone()
    }

    /// The frame of a run that was traced; none if there are too many. User code runs in here, so nothing is locked.
    fn frame(&self, key: &Key, traced: walk::WalkTrace, defined: Option<&[Defined]>) -> Result<Option<Arc<Frame>>> {
        let flat = Flat::new(&traced.graph);
        let frames = self.frames(key, defined);
        let frame = match frame::find(&frames, &traced, &flat, key) {
            Some(frame) => frame,
            None if frames.len() >= self.options.cache_limit => {
                tracing::warn!(
                    target: "firebrand::compile::backward",
                    limit = self.options.cache_limit,
                    "the limit of compiled backward graphs is reached; this pass is run by the engine"
                );
                return Ok(None);
            }
            None => {
                let frame = Arc::new(frame::compile(&frames, traced, flat, key, &*self.options.backend)?);
                if let Some(c) = self.cache().captures.iter_mut().find(|c| c.is_for(key)) {
                    c.frames.push(frame.clone());
                }
                frame
            }
        };
        let mut cache = self.cache();
        if cache.count >= SEEN {
            cache.seen.clear();
            cache.last = None;
            cache.plain.clear();
            cache.count = 0;
        }
        cache.count += 1;
        let seen = Seen { structure: key.structure.clone(), numbers: key.numbers.clone(), frame: frame.clone() };
        cache.seen.entry(key.hash()).or_default().push(Arc::new(seen));
        Ok(Some(frame))
    }

    /// Captures runs like this; gives what is known of runs of the same structure. One that was specialized to other sizes shares
    /// nothing with it, as in PyTorch (U-78), unless graphs are to be dynamic: then both show together what varies.
    fn add_capture(&self, key: &Key, defined: Option<&[Defined]>) -> Vec<Arc<Frame>> {
        self.captured.fetch_add(1, Relaxed);
        let mut cache = self.cache();
        let earlier: Vec<_> = cache.captures.iter().filter(|c| c.structure == key.structure).collect();
        let fixed = !self.options.dynamic && earlier.is_empty();
        let shared = earlier.into_iter().filter(|_| self.options.dynamic_graphs);
        let frames: Vec<Arc<Frame>> = shared.flat_map(|c| c.frames.iter().cloned()).collect();
        tracing::debug!(target: "firebrand::compile::backward", captures = self.captured.load(Relaxed), "captured");
        if cache.captures.len() >= CAPTURES {
            cache.captures.remove(0);
        }
        cache.captures.push(Structure {
            structure: key.structure.clone(),
            sizes: fixed.then(|| key.sizes()),
            defined: defined.map(<[Defined]>::to_vec),
            calls_hooks: false,
            frames: frames.clone(),
        });
        frames
    }
}

/// Runs a frame; afterwards nodes let go of what they kept, unless another run follows.
fn execute(frame: &Frame, task: &GraphTask<'_>, key: Key) -> Result<Outcome> {
    let answer = frame.run(task, key)?;
    if !task.keeps_graph() {
        (0..task.len()).filter(|i| task.executes(*i)).for_each(|i| runner::release(task.node(i)));
    }
    Ok(Outcome::Done(answer))
}

impl BackwardRunner for CompiledBackward {
    fn run(&self, task: &GraphTask<'_>) -> Result<Outcome> {
        let compiler = &self.0;
        // What a node keeps may have been written or freed: whether this run reads it, only the engine can tell.
        let Ok(mut key) = Key::of(task) else { return Ok(Outcome::Plain) };
        if let Some(frame) = compiler.last(&key) {
            return execute(&frame, task, key);
        }
        if key.has_pure_hooks || compiler.seen(&key, key.hash()).is_none() {
            key = Key::classified(task)?;
        }
        let mut hooks = if compiler.options.fullgraph { PureHooks::Required } else { PureHooks::Traced };
        if compiler.calls_hooks(&key) {
            hooks = PureHooks::Called;
            key.forget_hooks();
        }
        let hash = key.hash();
        if let Some(frame) = compiler.seen(&key, hash) {
            return execute(&frame, task, key);
        }
        if compiler.cache().plain.contains(&hash) {
            return Ok(Outcome::Plain);
        }
        let mut walk = Walk::new(task, &key, hooks)?;
        let defined = compiler.defined(&key);
        let traced = match walk.trace(defined.as_deref()) {
            Ok(traced) => traced,
            Err(e @ (Error::GraphBreak(_) | Error::Core(_))) => return Err(e.into()),
            Err(e) => {
                tracing::info!(target: "firebrand::compile::backward", "a backward pass is run by the engine: {e}");
                compiler.cache().plain.insert(hash);
                return Ok(Outcome::Plain);
            }
        };
        if walk.calls_formulas() && defined.is_none() {
            // Which gradients a formula gives that is called shows only when it is called: the first run is the engine's.
            let this = self.clone();
            return Ok(Outcome::Observe(Box::new(move |seen| {
                if !walk.is_of_now() {
                    tracing::info!(target: "firebrand::compile::backward", "a backward pass that changed its hooks is not compiled");
                    return Ok(());
                }
                let made = walk.trace(Some(seen)).map_err(Into::into);
                if let Err(e) = made.and_then(|traced| this.0.frame(&key, traced, Some(seen))) {
                    // The run itself is made; the next one tries again.
                    tracing::warn!(target: "firebrand::compile::backward", "a backward pass is not compiled: {e}");
                }
                Ok(())
            })));
        }
        match compiler.frame(&key, traced, None)? {
            Some(frame) => execute(&frame, task, key),
            None => Ok(Outcome::Plain),
        }
    }
}
