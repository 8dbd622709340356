//! Capture: runs a function once on meta tensors and records what it does.
//!
//! A session is the layer and tracer of one such run. As long as nothing asks for numbers, the whole function becomes one
//! graph. When something does (a break), the graph so far is compiled and run with the real inputs, and a new one begins;
//! the function then goes on with what it asked for. `effects` holds what must be repeated at every call, `segment`
//! runs graphs in the middle of a function, `finish` turns a session without breaks into something that can be replayed,
//! `pure` traces hooks that are part of the graph, `transform` is about function transforms in it.

mod checkpoint;
mod dynamic;
mod effect;
mod finish;
mod places;
mod pure;
mod segment;
mod tracer;
mod transform;

use checkpoint::Checkpoints;
pub(crate) use dynamic::{Dynamics, Plan};
pub(crate) use effect::{Blank, Effect, FromBinding, bound_hook};
pub(crate) use finish::{HookTemplate, Recording, Slot, with_regions};
pub(crate) use pure::register_pure_hook;
use segment::Segment;
pub(crate) use segment::SegmentRunner;
use transform::Transforms;

use crate::breaks::{BreakKind, GraphBreak};
use crate::error::Error;
use crate::front::binding::Binding;
use crate::front::guard::{EnvironmentGuard, LookGuard, ModuleGuard};
use crate::front::source::Source;
use firebrand_core::Number;
use firebrand_core::autograd::{Function, RegionCasts, RemovableHandle, is_grad_enabled};
use firebrand_core::capture::{self as core_capture, Caller, StandIns, TensorCell, TensorHookFn};
use firebrand_core::tree::{Host, Leaf, Rebuild, TensorTree};
use firebrand_core::{Result, Scalar, Storage, Tensor, WeakTensor, func};
use firebrand_graph::ir::{NodeId, Val};
use firebrand_graph::trace::{Free, Trace, TraceStack, outline_like};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// The session of this thread, if a function is currently being captured.
pub(crate) fn session() -> Option<Arc<Session>> {
    core_capture::tracer()?.into_any().downcast().ok()
}

/// Runs an effect: at every call of the function currently being captured, or at once.
pub(crate) fn effect(f: impl Fn() + Send + Sync + 'static) {
    match session() {
        Some(session) => session.push_effect(Effect::Host(Arc::new(f))),
        None => f(),
    }
}

/// A hook on a value inside the function.
pub(crate) struct HookNode {
    pub(crate) node: NodeId,
    pub(crate) hook: TensorHookFn,
    pub(crate) handle: u64,
}

/// What is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// The function itself.
    Function,
    /// A hook that must only compute.
    PureHook,
    /// A side of a conditional, which must only compute.
    Branch,
}

impl Body {
    /// What a body that must only compute is called, and the break that anything else in it is.
    fn pure(self) -> Option<(&'static str, BreakKind)> {
        match self {
            Body::Function => None,
            Body::PureHook => Some(("a pure hook", BreakKind::ImpureHook)),
            Body::Branch => Some(("a side of cond", BreakKind::ImpureBranch)),
        }
    }
}

impl State {
    /// The trace of the function: inputs are inputs of it, wherever they are met.
    pub(crate) fn function_trace(&mut self) -> &mut Trace {
        self.trace.outermost()
    }

    /// What is traced.
    pub(crate) fn body(&self) -> Body {
        match (self.in_pure_hook.is_some(), self.trace.in_branch()) {
            (true, _) => Body::PureHook,
            (false, true) => Body::Branch,
            (false, false) => Body::Function,
        }
    }
}

impl AsMut<TraceStack> for State {
    fn as_mut(&mut self) -> &mut TraceStack {
        &mut self.trace
    }
}

/// The body of a pure hook, while it is traced.
pub(crate) struct HookBody {
    /// The gradient it takes.
    pub(crate) grad: Tensor,
    /// The tensor it is on.
    pub(crate) on: Tensor,
    /// The trace of the function, which continues afterwards.
    pub(crate) outer: Trace,
}

/// What a session knows.
pub(crate) struct State {
    pub(crate) trace: TraceStack,
    /// The pure hook whose body is traced.
    pub(crate) in_pure_hook: Option<HookBody>,
    /// Placeholders and where their values come from.
    pub(crate) inputs: Vec<(NodeId, Source)>,
    /// Meta tensors that stand for sources, in no graph yet or in any.
    pub(crate) sources: Vec<(Tensor, Source)>,
    /// Meta tensors and the real ones behind them, as far as known.
    pub(crate) reals: HashMap<usize, (Tensor, Tensor)>,
    pub(crate) hooks: Vec<HookNode>,
    pub(crate) functions: Vec<Arc<dyn Function>>,
    pub(crate) effects: Vec<Effect>,
    /// Cells that were read or written: what they hold now.
    cells: HashMap<usize, Box<dyn Any + Send>>,
    /// Cells that recorded effects change otherwise than by storing a value.
    changed_cells: HashSet<usize>,
    pub(crate) tensor_cells: Vec<(Arc<dyn TensorCell>, Tensor)>,
    pub(crate) environment: Vec<EnvironmentGuard>,
    pub(crate) modules: Vec<ModuleGuard>,
    /// Flags of the caller's tensors that were looked at.
    pub(crate) looked_at: Vec<LookGuard>,
    /// Parameters that an autocast region has cast.
    casts: Vec<(RegionCasts, Tensor, Tensor)>,
    /// Memory with an alias whose writes nobody is to see; holding it keeps its address from being used again.
    unseen: HashMap<usize, Storage>,
    /// Numbers that are inputs: outline, value, placeholder.
    pub(crate) numbers: Vec<(Tensor, Scalar, Source)>,
    pub(crate) numbers_read: Vec<usize>,
    /// Sizes of intermediates that were requested: symbol number, node, dimension.
    pub(crate) derived: Vec<(u32, NodeId, usize)>,
    /// Hooks whose body is in the graph.
    pub(crate) pure_hooks: Vec<pure::PureHook>,
    /// Values inside the function that keep their gradients.
    pub(crate) retained: Vec<WeakTensor>,
    /// What the placeholders of sources are in the call that is captured.
    pub(crate) placeholder_values: Vec<(NodeId, Tensor)>,
    /// Tensors that the function created from host data.
    pub(crate) made: Vec<Tensor>,
    pub(crate) handles: Vec<Arc<tracer::HandleProxy>>,
    pub(crate) breaks: Vec<GraphBreak>,
    pub(crate) error: Option<Error>,
    transforms: Transforms,
    checkpoints: Checkpoints,
    /// Whether a graph of the function has run already.
    flushed: bool,
}

/// Where a capture must end, because the code after it does something that no graph can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plainly {
    /// At the first function transform.
    pub(crate) transforms: bool,
    /// At the first checkpoint.
    pub(crate) checkpoints: bool,
    /// At the first alias whose writes nobody is to see.
    pub(crate) aliases: bool,
    /// Before it begins.
    pub(crate) whole: bool,
}

/// The payload of the silent unwinding that leaves a function whose capture starts over.
struct Anew;

/// One run of a function under capture.
pub(crate) struct Session {
    state: Mutex<State>,
    pub(crate) plan: Plan,
    pub(crate) fullgraph: bool,
    pub(crate) ambient_grad: bool,
    pub(crate) binding: Arc<Binding>,
    runner: Arc<dyn SegmentRunner>,
    /// Whether graphs in the middle of the function are interpreted.
    interpret: bool,
    /// How many levels of transforms there are around the function.
    levels: u8,
    plainly: Plainly,
    /// Whether the rest of the function runs eagerly.
    left: AtomicBool,
    /// What the capture has to start over with.
    anew: Mutex<Option<Plainly>>,
    /// Which numbers in cells have been seen to vary.
    environment: Arc<Mutex<HashMap<(usize, usize), SeenNumber>>>,
}

/// What is known of a number that calls have brought.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SeenNumber {
    /// Always this.
    Is(Scalar),
    /// More than one value.
    Varies,
}

impl SeenNumber {
    /// Takes note of a value; says whether it varies.
    pub(crate) fn note(&mut self, value: Scalar) -> bool {
        match *self {
            SeenNumber::Is(seen) if crate::front::guard::same_number(seen, value) => false,
            _ => {
                *self = SeenNumber::Varies;
                true
            }
        }
    }
}

pub(crate) type EnvironmentNumbers = Arc<Mutex<HashMap<(usize, usize), SeenNumber>>>;

impl Session {
    pub(crate) fn new(
        plan: Plan,
        fullgraph: bool,
        binding: Arc<Binding>,
        runner: Arc<dyn SegmentRunner>,
        interpret: bool,
        plainly: Plainly,
        environment: EnvironmentNumbers,
    ) -> Arc<Session> {
        let ambient_grad = is_grad_enabled();
        let state = State {
            trace: TraceStack::new(Trace::new(ambient_grad, Free::Input)),
            in_pure_hook: None,
            inputs: Vec::new(),
            sources: Vec::new(),
            reals: HashMap::new(),
            hooks: Vec::new(),
            functions: Vec::new(),
            effects: Vec::new(),
            cells: HashMap::new(),
            changed_cells: HashSet::new(),
            tensor_cells: Vec::new(),
            environment: Vec::new(),
            modules: Vec::new(),
            looked_at: Vec::new(),
            casts: Vec::new(),
            unseen: HashMap::new(),
            numbers: Vec::new(),
            numbers_read: Vec::new(),
            derived: Vec::new(),
            pure_hooks: Vec::new(),
            retained: Vec::new(),
            placeholder_values: Vec::new(),
            made: Vec::new(),
            handles: Vec::new(),
            breaks: Vec::new(),
            error: None,
            transforms: Transforms::default(),
            checkpoints: Checkpoints::default(),
            flushed: false,
        };
        Arc::new(Session {
            state: Mutex::new(state),
            plan,
            fullgraph,
            ambient_grad,
            binding,
            runner,
            interpret,
            levels: func::active().levels,
            plainly,
            left: AtomicBool::new(false),
            anew: Mutex::new(None),
            environment,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Runs `f` under capture.
    pub(crate) fn run<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let _scope = core_capture::CaptureScope::new(self.clone());
        f()
    }

    /// Notes a break; an error if the function must be one graph.
    pub(crate) fn note_break(&self, kind: BreakKind, what: impl Into<String>, at: Option<Caller>) -> Result<()> {
        let found = GraphBreak { kind, what: what.into(), location: at };
        let mut state = self.lock();
        let pure = state.body().pure();
        if self.fullgraph || kind == BreakKind::ImpureHook || pure.is_some() {
            let found = match pure {
                Some((_, pure)) => GraphBreak { kind: pure, what: format!("{}: {}", kind.name(), found.what), ..found },
                None => found,
            };
            let error = Error::GraphBreak(found.clone());
            let told = firebrand_core::Error::user(error.to_string());
            state.error.get_or_insert(error);
            return Err(told);
        }
        tracing::debug!(target: "firebrand::graph_breaks", "{found}");
        state.breaks.push(found);
        Ok(())
    }

    /// Ends the graph so far: runs it, and the effects up to here.
    pub(crate) fn break_here(&self, kind: BreakKind, what: impl Into<String>, at: Option<Caller>) -> Result<()> {
        let what = what.into();
        self.can_end(&what, at)?;
        self.note_break(kind, what, at)?;
        self.flush().map_err(|e| self.fail(e))
    }

    /// A graph is about to end here. If what it has in it may not be cut off from what follows, the capture starts over.
    fn can_end(&self, what: &str, at: Option<Caller>) -> Result<()> {
        self.only_ops(what, at)?;
        if self.lock().checkpoints.any() {
            self.begin_anew("a break behind a checkpoint", at, Plainly { checkpoints: true, ..self.plainly })?;
        }
        if !self.lock().unseen.is_empty() {
            self.begin_anew("a break behind data()", at, Plainly { aliases: true, ..self.plainly })?;
        }
        Ok(())
    }

    /// The capture cannot go on: it starts over, and ends earlier then. Nothing of it has happened yet.
    pub(super) fn begin_anew(&self, what: &str, at: Option<Caller>, plainly: Plainly) -> Result<()> {
        self.note_break(BreakKind::Plain, what, at)?;
        self.lock_anew().get_or_insert(plainly);
        resume_unwind(Box::new(Anew));
    }

    fn lock_anew(&self) -> MutexGuard<'_, Option<Plainly>> {
        self.anew.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What the capture has to start over with, if it has to.
    pub(crate) fn anew(&self) -> Option<Plainly> {
        *self.lock_anew()
    }

    /// Takes back what a capture that starts over has done.
    pub(crate) fn undo(&self) {
        for effect in std::mem::take(&mut self.lock().effects) {
            if let Effect::Register { handle, .. } = effect {
                handle.remove();
            }
        }
    }

    /// The function has failed: what it did before that happens, as it does plainly.
    pub(crate) fn happened(&self) -> Result<()> {
        if !self.has_left() && self.lock().body() == Body::Function {
            self.flush_as(Segment::Plain)?;
        }
        self.release();
        Ok(())
    }

    /// Whether the function has used, or returns, a meta tensor that neither an op of the capture has given nor an earlier one: its
    /// own, or one that an op has given on another thread.
    pub(crate) fn sees_foreign<T: TensorTree>(&self, result: &T) -> bool {
        let mut state = self.lock();
        let made: Vec<usize> = state.made.iter().map(Tensor::id).collect();
        let strange = |t: &Tensor| t.is_meta() && !t.is_stand_in() && !t.is_wrapped_number() && !made.contains(&t.id());
        let mut found = state.trace.captured().iter().any(|(t, _)| strange(t));
        result.visit(&mut |leaf| {
            if let Leaf::Tensor(t) | Leaf::Index(t) = leaf {
                found |= strange(t) && state.trace.is_lost(t);
            }
        });
        found
    }

    /// Whether the rest of the function runs eagerly.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Ends the capture: the graph so far runs, op by op, so that every tensor has the history of an eager run, and the
    /// function continues without being captured.
    pub(crate) fn go_on_plainly(&self, what: &'static str, at: Caller) -> Result<()> {
        self.can_end(what, Some(at))?;
        self.note_break(BreakKind::Plain, what, Some(at))?;
        self.flush_as(Segment::Plain).map_err(|e| self.fail(e))?;
        let casts = std::mem::take(&mut self.lock().casts);
        for (region, of, cast) in casts {
            if let (Some(of), Some(cast)) = (self.real(&of), self.real(&cast)) {
                region.keep(&of, cast);
            }
        }
        self.left.store(true, Relaxed);
        core_capture::end(self.binding.clone());
        self.release();
        Ok(())
    }

    /// Lets go of everything the capture holds: from now on a tensor of the call lives only if the caller or a closure of the
    /// function holds it or its stand-in.
    pub(crate) fn release(&self) {
        let held = {
            let mut state = self.lock();
            let trace = TraceStack::new(Trace::new(self.ambient_grad, Free::Input));
            (
                std::mem::take(&mut state.reals),
                std::mem::take(&mut state.sources),
                std::mem::take(&mut state.placeholder_values),
                std::mem::take(&mut state.cells),
                std::mem::take(&mut state.tensor_cells),
                std::mem::take(&mut state.made),
                std::mem::take(&mut state.casts),
                std::mem::replace(&mut state.trace, trace),
            )
        };
        drop(held);
        self.binding.prune();
    }

    /// Remembers an error so that the caller of the function gets it as it is.
    pub(crate) fn fail(&self, error: Error) -> firebrand_core::Error {
        let told = firebrand_core::Error::user(error.to_string());
        self.lock().error.get_or_insert(error);
        told
    }

    pub(crate) fn push_effect(&self, effect: Effect) {
        let pure = self.lock().body().pure();
        if let Some((body, kind)) = pure {
            let _ = self.note_break(kind, format!("an effect inside {body}"), None);
            return;
        }
        if self.transforms() && self.only_ops("an effect", None).is_err() {
            return; // the error is noted
        }
        if core_capture::in_checkpoint() && self.begins_anew_at_checkpoints("an effect in a checkpoint").is_err() {
            return; // the error is noted
        }
        self.lock().effects.push(effect);
    }

    /// An effect with values of the function.
    pub(crate) fn effect_with<T: TensorTree + Send + Sync>(&self, value: T, f: impl Fn(T) + Send + Sync + 'static) {
        match Blank::split(&value) {
            Ok((tensors, value)) => {
                let run = Arc::new(move |make: &mut dyn Rebuild| f(value.rebuild(make)));
                self.push_effect(Effect::With { tensors, run });
            }
            Err(e) => _ = self.fail(e.into()),
        }
    }

    /// Adds a source: its outline is an input of the graph that uses it.
    pub(crate) fn source(&self, state: &mut State, name: &str, real: &Tensor, source: Source) -> Result<Tensor> {
        let stand_in = outline_like(real)?;
        let node = state.function_trace().input(name, &stand_in);
        state.inputs.push((node, source.clone()));
        state.placeholder_values.push((node, real.clone()));
        state.sources.push((stand_in.clone(), source));
        state.reals.insert(stand_in.id(), (stand_in.clone(), real.clone()));
        self.binding.bind(&stand_in, real.clone());
        Ok(stand_in)
    }

    /// Adds a number that is an input.
    pub(crate) fn number(&self, state: &mut State, name: &str, value: Scalar, source: Source) -> Result<Number> {
        let number = Number::outline(value)?;
        let val = match value {
            Scalar::Float(v) => Val::SymFloat(firebrand_graph::ir::Symbolic::Known(v)),
            other => Val::SymInt(other.to_i64().into()),
        };
        let node = state.function_trace().number(name, val);
        state.function_trace().bind(number.tensor(), node);
        state.inputs.push((node, source.clone()));
        state.numbers.push((number.tensor().clone(), value, source));
        // For closures that hold it and run in this call: hooks of graphs in the middle of the function, and the rest of it.
        self.binding.bind(number.tensor(), Number::new(value).tensor().clone());
        Ok(number)
    }

    /// Reads a cell: its tensors become inputs, its host values guards.
    pub(crate) fn load_cell<T: TensorTree + Send>(&self, address: usize, read: Arc<dyn Fn() -> T + Send + Sync>) -> T {
        let behind = self.lock().changed_cells.contains(&address);
        if behind && self.break_here(BreakKind::DataRead, "a cell that an effect changes", None).is_err() {
            return core_capture::suspended(|| read()); // the error is noted
        }
        let mut state = self.lock();
        if let Some(held) = state.cells.get(&address).and_then(|c| c.downcast_ref::<T>()) {
            return held.clone();
        }
        let value = core_capture::suspended(|| read());
        let again = read.clone();
        let guard = Arc::new(move || Host::Int(structure(&again())));
        let what = "what a cell holds".to_string();
        state.environment.push(EnvironmentGuard { what, read: guard, expected: Host::Int(structure(&value)) });
        let (mut hosts, mut number) = (0, 0);
        value.visit(&mut |leaf| {
            if let Leaf::Host(expected) = leaf {
                let (read, k) = (read.clone(), hosts);
                hosts += 1;
                let read = Arc::new(move || nth_host(&read(), k));
                let what = format!("host value {k} of a cell");
                state.environment.push(EnvironmentGuard { what, read, expected: expected.to_owned() });
            }
        });
        let mut make = LoadLeaves {
            session: self,
            state: &mut state,
            address,
            read: read.clone(),
            tensors: 0,
            numbers: &mut number,
        };
        let held = value.rebuild(&mut make);
        let result = held.clone();
        state.cells.insert(address, Box::new(held));
        result
    }

    /// An effect that is about to be recorded changes a cell.
    pub(crate) fn change_cell(&self, address: usize) {
        let mut state = self.lock();
        state.changed_cells.insert(address);
        state.cells.remove(&address);
    }

    /// Writes a cell, at every call.
    pub(crate) fn store_cell<T: TensorTree + Send + Sync>(
        &self,
        address: usize,
        value: T,
        store: impl Fn(T) + Send + Sync + 'static,
    ) {
        if self.transforms() && self.only_ops("a write of a cell", None).is_err() {
            return; // the error is noted
        }
        let copy = value.clone();
        {
            let mut state = self.lock();
            state.changed_cells.remove(&address);
            state.cells.insert(address, Box::new(copy));
        }
        self.effect_with(value, store);
    }

    /// The real tensor behind one, if it is known.
    pub(crate) fn real(&self, t: &Tensor) -> Option<Tensor> {
        if !t.is_meta() {
            return Some(t.clone());
        }
        self.lock().reals.get(&t.id()).map(|(_, real)| real.clone())
    }

    /// Whether a tensor is one the caller owns, not one the function made.
    pub(crate) fn is_source(&self, t: &Tensor) -> bool {
        !t.is_meta() || self.lock().reals.contains_key(&t.id())
    }

    pub(crate) fn proxy_handle(self: &Arc<Self>) -> RemovableHandle {
        let proxy = Arc::new(tracer::HandleProxy { session: Arc::downgrade(self) });
        let handle = RemovableHandle::new(&proxy);
        self.lock().handles.push(proxy);
        handle
    }
}

/// Which kinds of leaves a tree has, as a number: what is absent in one and there in another differs.
fn structure<T: TensorTree>(tree: &T) -> i64 {
    let mut found = 0i64;
    tree.visit(&mut |leaf| {
        let kind = match leaf {
            Leaf::Tensor(_) | Leaf::Index(_) => 1,
            Leaf::Number(_) => 2,
            Leaf::Size(_) => 3,
            Leaf::Host(_) => 4,
            Leaf::Handle(_) => 5,
            Leaf::Shared(_) => 6,
            _ => 7,
        };
        found = found.wrapping_mul(31).wrapping_add(kind);
    });
    found
}

/// The host value at one place of a tree.
fn nth_host<T: TensorTree>(tree: &T, k: usize) -> Host<'static> {
    let (mut at, mut found) = (0, Host::None);
    tree.visit(&mut |leaf| {
        if let Leaf::Host(h) = leaf {
            if at == k {
                found = h.to_owned();
            }
            at += 1;
        }
    });
    found
}

/// Turns what a cell holds into inputs.
struct LoadLeaves<'a, T> {
    session: &'a Session,
    state: &'a mut State,
    address: usize,
    read: Arc<dyn Fn() -> T + Send + Sync>,
    tensors: usize,
    numbers: &'a mut usize,
}

impl<T: TensorTree + Send> Rebuild for LoadLeaves<'_, T> {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        let (k, read) = (self.tensors, self.read.clone());
        self.tensors += 1;
        if self.state.trace.known(t).is_some() {
            return t.clone(); // the function made the cell
        }
        let nth = move || {
            let (value, mut at, mut found) = (read(), 0, None);
            value.visit(&mut |leaf| {
                if let Leaf::Tensor(t) | Leaf::Index(t) = leaf {
                    if at == k {
                        found = Some(t.clone());
                    }
                    at += 1;
                }
            });
            found.expect("a cell keeps its structure")
        };
        let source = Source::Read(Arc::new(nth));
        let made = core_capture::suspended(|| self.session.source(self.state, "cell", t, source));
        made.unwrap_or_else(|_| t.clone())
    }

    fn number(&mut self, n: &Number) -> Number {
        let (k, read) = (*self.numbers, self.read.clone());
        *self.numbers += 1;
        let nth = move || {
            let (value, mut at, mut found) = (read(), 0, None);
            value.visit(&mut |leaf| {
                if let Leaf::Number(n) = leaf {
                    if at == k {
                        found = Some(n.peek());
                    }
                    at += 1;
                }
            });
            found.expect("a cell keeps its structure")
        };
        let mut seen = self.session.environment.lock().unwrap_or_else(|e| e.into_inner());
        let varies = seen.entry((self.address, k)).or_insert(SeenNumber::Is(n.peek())).note(n.peek());
        if varies {
            let source = Source::ReadNumber(Arc::new(nth));
            return self.session.number(self.state, "cell_number", n.peek(), source).unwrap_or_else(|_| n.clone());
        }
        let read = Arc::new(move || Host::Text(format!("{:?}", nth()).into()));
        let expected = read();
        self.state.environment.push(EnvironmentGuard { what: format!("number {k} of a cell"), read, expected });
        n.clone()
    }
}
