//! Compiled: a function with its compiled graphs.

use crate::backend::Executable;
use crate::backend::count_ops;
use crate::breaks::{BreakKind, GraphBreak};
use crate::error::{Error, Result};
use crate::front::binding::Binding;
use crate::front::capture::{
    Blank, Dynamics, EnvironmentNumbers, FromBinding, Plainly, Plan, Recording, SegmentRunner, Session, with_regions,
};
use crate::front::entry::{Body, Entry, Whole};
use crate::front::guard::{Ambient, Dim, Guards, Symbols, TensorGuard, same_objects};
use crate::front::leaves::Leaves;
use crate::front::options::{Options, Stance, stance};
use crate::front::source::Source;
use crate::front::stats;
use crate::times::{Stage, timed};
use firebrand_core::Number;
use firebrand_core::autograd::is_grad_enabled;
use firebrand_core::capture as core_capture;
use firebrand_core::module::ModuleWatch;
use firebrand_core::tree::{Leaf, Outcome, Rebuild, TensorTree};
use firebrand_core::{Scalar, SymInt, Tensor};
use firebrand_core::{func, sym};
use firebrand_graph::ir::GraphModule;
use std::any::TypeId;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

type Body_<I, O> = dyn Fn(&I) -> firebrand_core::Result<O> + Send + Sync;

/// A compiled function that takes an `I`. Cloning the handle shares the compiled graphs.
pub struct Compiled<I, O> {
    f: Arc<Body_<I, O>>,
    inner: Arc<Inner<O>>,
}

impl<I, O> Clone for Compiled<I, O> {
    fn clone(&self) -> Self {
        Compiled { f: self.f.clone(), inner: self.inner.clone() }
    }
}

/// What belongs to a function besides its code.
struct Inner<O> {
    entries: RwLock<Vec<Arc<Entry<O>>>>,
    dynamics: Mutex<Dynamics>,
    environment: EnvironmentNumbers,
    compiler: Arc<Compiler>,
}

/// What graphs of a function are compiled with.
pub(crate) struct Compiler {
    pub(crate) options: Options,
    pub(crate) name: String,
    code: TypeId,
    id: u64,
    segments: Mutex<HashMap<String, Arc<dyn Executable>>>,
    breaks: Mutex<Vec<GraphBreak>>,
    /// Whether a call has gone on plainly in the middle of the function: then its graphs before that are interpreted.
    leaves: AtomicBool,
    /// Where its captures end.
    plainly: Mutex<Plainly>,
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Compiles a function of tensors with default options. The first call compiles; see [`compile_with`].
///
/// ```
/// use firebrand_compile::compile;
/// use firebrand_core::Tensor;
///
/// let f = compile(|(x, y): &(Tensor, Tensor)| (x * y).relu());
/// let (x, y) = (Tensor::new(&[1.0f32, -2.0]).requires_grad_(), Tensor::new(&[3.0f32, 4.0]));
/// let z = f.call(&(x.clone(), y));
/// assert_eq!(z.to_vec::<f32>(), [3.0, 0.0]);
/// z.sum().backward();
/// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [3.0, 0.0]);
/// ```
pub fn compile<I, R, F>(f: F) -> Compiled<I, R::Tree>
where
    I: TensorTree,
    R: Outcome,
    F: Fn(&I) -> R + Send + Sync + 'static,
{
    compile_with(f, Options::default())
}

/// Compiles a function of tensors.
///
/// The function is run once per compilation, on meta tensors; its tensor operations become a graph. Host
/// code in it therefore also runs once per compilation: anything that must happen at every call goes through
/// [`effects`](crate::front::effects), [`Shared`](crate::Shared) cells, hooks or module buffers.
pub fn compile_with<I, R, F>(f: F, options: Options) -> Compiled<I, R::Tree>
where
    I: TensorTree,
    R: Outcome,
    F: Fn(&I) -> R + Send + Sync + 'static,
{
    let name = options.name.clone().unwrap_or_else(|| std::any::type_name::<F>().to_string());
    let compiler = Compiler {
        options,
        name,
        code: TypeId::of::<F>(),
        id: stats::next_function_id(),
        segments: Mutex::default(),
        breaks: Mutex::default(),
        leaves: AtomicBool::new(false),
        plainly: Mutex::default(),
    };
    let inner = Inner {
        entries: RwLock::default(),
        dynamics: Mutex::default(),
        environment: EnvironmentNumbers::default(),
        compiler: Arc::new(compiler),
    };
    Compiled { f: Arc::new(move |input| f(input).outcome()), inner: Arc::new(inner) }
}

impl<I: TensorTree, O: TensorTree + Send + Sync> Compiled<I, O> {
    /// Calls the function.
    ///
    /// # Panics
    /// If it fails; see [`Compiled::try_call`].
    #[track_caller]
    pub fn call(&self, input: &I) -> O {
        self.try_call(input).unwrap_or_else(|e| match e {
            Error::Core(e) => e.raise(),
            e => panic!("{e}"),
        })
    }

    /// Calls the function: with a compiled graph that matches, by compiling one, or eagerly.
    pub fn try_call(&self, input: &I) -> Result<O> {
        // Inside another capture the function is a part of that.
        let plain = self.options().disable || stance() == Stance::ForcePlain;
        if plain || core_capture::is_capturing() {
            return Ok((self.f)(input)?);
        }
        if core_capture::has_stand_ins() {
            let real = input.rebuild(&mut Here);
            return core_capture::without_stand_ins(|| self.call_here(&real));
        }
        self.call_here(input)
    }

    fn call_here(&self, input: &I) -> Result<O> {
        let leaves = Leaves::of(input);
        let ambient = Ambient::now();
        let mut symbols = Symbols::new();
        if let Some(entry) = self.fitting(&leaves, &ambient, &mut symbols) {
            stats::hit();
            return match &entry.body {
                Body::Whole(whole) => whole.run(&leaves, &symbols, self.options().replay_effects, false),
                Body::Segments => self.capture(input, &leaves, &ambient, Some(&entry)),
            };
        }
        let entries = self.inner.entries.read().unwrap_or_else(|e| e.into_inner()).clone();
        if !entries.is_empty() {
            let reasons = self.reasons(&entries, &leaves, &ambient);
            if let Some(result) = self.forbidden(input, &entries, reasons)? {
                return Ok(result);
            }
        }
        stats::miss();
        self.capture(input, &leaves, &ambient, None)
    }

    /// The newest entry whose guards hold.
    fn fitting(&self, leaves: &Leaves<'_>, ambient: &Ambient, symbols: &mut Symbols) -> Option<Arc<Entry<O>>> {
        let entries = self.inner.entries.read().unwrap_or_else(|e| e.into_inner());
        entries.iter().rev().find(|e| e.guards.failure(leaves, ambient, symbols).is_none()).cloned()
    }

    /// Whether a call with this input would find a compiled graph: only the guard check of a call.
    pub fn is_compiled_for(&self, input: &I) -> bool {
        self.fitting(&Leaves::of(input), &Ambient::now(), &mut Symbols::new()).is_some()
    }

    /// How the function was compiled.
    pub fn options(&self) -> &Options {
        &self.inner.compiler.options
    }

    /// The number of compiled entries.
    pub fn entries(&self) -> usize {
        self.inner.entries.read().unwrap_or_else(|e| e.into_inner()).len()
    }

    /// The guards of every entry, as text.
    pub fn guards(&self) -> Vec<Vec<String>> {
        let entries = self.inner.entries.read().unwrap_or_else(|e| e.into_inner());
        entries.iter().map(|e| e.guards.list()).collect()
    }

    /// The graph breaks of the function so far.
    pub fn graph_breaks(&self) -> Vec<GraphBreak> {
        lock(&self.inner.compiler.breaks).clone()
    }

    /// Discards all compiled graphs.
    pub fn reset(&self) {
        self.inner.entries.write().unwrap_or_else(|e| e.into_inner()).clear();
        *lock(&self.inner.dynamics) = Dynamics::default();
        lock(&self.inner.environment).clear();
        lock(&self.inner.compiler.segments).clear();
        lock(&self.inner.compiler.breaks).clear();
    }

    /// Why each entry does not match.
    fn reasons(&self, entries: &[Arc<Entry<O>>], leaves: &Leaves<'_>, ambient: &Ambient) -> Vec<String> {
        let mut symbols = Symbols::new();
        let reason = |(i, entry): (usize, &Arc<Entry<O>>)| {
            let failure = entry.guards.failure(leaves, ambient, &mut symbols)?;
            Some(format!("entry {i}: {}", entry.guards.describe(failure, leaves, ambient)))
        };
        entries.iter().enumerate().filter_map(reason).collect()
    }

    /// What to do when recompiling is forbidden; `None` if it is allowed.
    fn forbidden(&self, input: &I, entries: &[Arc<Entry<O>>], reasons: Vec<String>) -> Result<Option<O>> {
        let compiler = &self.inner.compiler;
        let function = compiler.name.clone();
        for reason in &reasons {
            tracing::debug!(target: "firebrand::recompiles", function = %function, "{reason}");
        }
        match stance() {
            Stance::PlainOnRecompile => return Ok(Some((self.f)(input)?)),
            Stance::FailOnRecompile => return Err(Error::Recompile { function, why: "by the stance", reasons }),
            _ => {}
        }
        if compiler.options.error_on_recompile {
            return Err(Error::Recompile { function, why: "error_on_recompile is set", reasons });
        }
        let limit = compiler.options.cache_limit;
        if entries.len() >= limit || stats::entries() >= stats::LIMIT {
            if compiler.options.fullgraph {
                return Err(Error::CacheLimit { function, limit, reasons });
            }
            tracing::warn!(target: "firebrand::recompiles", function = %function, limit, "cache limit reached, running eagerly");
            return Ok(Some((self.f)(input)?));
        }
        Ok(None)
    }

    /// Runs the function under capture. With `segments` its graphs are known to be several; otherwise a new entry is made.
    fn capture(&self, input: &I, leaves: &Leaves<'_>, ambient: &Ambient, segments: Option<&Entry<O>>) -> Result<O> {
        let compiler = self.inner.compiler.clone();
        let plainly = *lock(&compiler.plainly);
        if plainly.whole {
            return Ok((self.f)(input)?);
        }
        let plan = match segments {
            Some(_) => Plan::fixed(leaves),
            None => lock(&self.inner.dynamics).plan(leaves, compiler.options.dynamic),
        };
        let binding = Arc::new(Binding::new(&leaves.cells, &leaves.cells));
        let environment = self.inner.environment.clone();
        let interpret = segments.is_none() || compiler.leaves.load(Relaxed);
        let fullgraph = compiler.options.fullgraph;
        let session = Session::new(plan, fullgraph, binding, compiler.clone(), interpret, plainly, environment);
        let global_hooks = ModuleWatch::global_hook_ids();
        let before = is_grad_enabled();
        let captured = || {
            let stand_in = session.arguments(input, leaves)?;
            let run = || session.run(|| (self.f)(&stand_in));
            let outcome = catch_unwind(AssertUnwindSafe(run));
            drop(stand_in);
            session.check_keepers();
            if session.anew().is_some() {
                return Err(Error::internal("a capture starts over"));
            }
            if let Some(error) = session.lock().error.take() {
                return Err(error);
            }
            if !matches!(outcome, Ok(Ok(_))) {
                session.happened()?;
            }
            Ok(outcome.unwrap_or_else(|panic| resume_unwind(panic))?)
        };
        let (outcome, record) = timed(Stage::Capture, || sym::record(captured));
        let after = is_grad_enabled();
        if after != before {
            let _ = firebrand_core::autograd::set_grad_enabled(before);
        }
        if let Some(plainly) = session.anew() {
            session.undo();
            *lock(&compiler.plainly) = plainly;
            return self.capture(input, leaves, ambient, segments);
        }
        let template = match outcome {
            Ok(template) => template,
            Err(e @ Error::Backend { .. }) if compiler.options.suppress_errors => {
                tracing::warn!(target: "firebrand::graph_breaks", "{e}; running plainly");
                return Ok((self.f)(input)?);
            }
            Err(e) => return Err(e),
        };
        if !session.lock().breaks.is_empty() {
            return self.end_segments(&session, template, leaves, ambient, segments, after, global_hooks);
        }
        if session.sees_foreign(&template) {
            session.note_break(
                BreakKind::Plain,
                "a tensor that no op of the function gave, or one on another thread",
                None,
            )?;
            session.undo();
            lock(&compiler.plainly).whole = true;
            return Ok((self.f)(input)?);
        }
        let (tensors, blank) = Blank::split(&template)?;
        drop(template);
        let mut sizes = false;
        blank.visit(&mut |leaf| sizes |= matches!(leaf, Leaf::Size(_)));
        let mut recording = session.finish(tensors, sizes, &record, after)?;
        let guards = guards(&session.plan, &mut recording, leaves, ambient, global_hooks);
        let executable = match recording.graph.take() {
            None => None,
            Some(graph) => match compiler.compile(graph, &recording.examples) {
                Ok(executable) => Some(executable),
                Err(e) if compiler.options.suppress_errors => {
                    tracing::warn!(target: "firebrand::graph_breaks", "{e}; running plainly");
                    return Ok((self.f)(input)?);
                }
                Err(e) => return Err(e),
            },
        };
        let symbols: Symbols = session.plan.symbols.iter().map(|s| s.hint).collect();
        let whole = Whole::new(recording, executable, blank, leaves.cells.to_vec(), ambient.autocast.is_some());
        let entry = Arc::new(Entry::new(guards, Body::Whole(Box::new(whole))));
        self.add(entry.clone());
        let Body::Whole(whole) = &entry.body else { return Err(Error::internal("just made as one graph")) };
        whole.run(leaves, &symbols, compiler.options.replay_effects, true)
    }

    /// The end of a function of several graphs: the last one runs, and the result gets its real tensors.
    fn end_segments(
        &self,
        session: &Arc<Session>,
        template: O,
        leaves: &Leaves<'_>,
        ambient: &Ambient,
        segments: Option<&Entry<O>>,
        grad_after: bool,
        global_hooks: Vec<u64>,
    ) -> Result<O> {
        match session.has_left() {
            true => self.inner.compiler.leaves.store(true, Relaxed),
            false => session.flush()?,
        }
        let mut breaks = lock(&self.inner.compiler.breaks);
        for found in std::mem::take(&mut session.lock().breaks) {
            if !breaks.contains(&found) {
                breaks.push(found);
            }
        }
        drop(breaks);
        if segments.is_none() {
            let mut recording = Recording::of_segments(session);
            let guards = guards(&Plan::fixed(leaves), &mut recording, leaves, ambient, global_hooks);
            self.add(Arc::new(Entry::new(guards, Body::Segments)));
        }
        let result = template.rebuild(&mut FromBinding(&session.binding));
        drop(template);
        session.release();
        if grad_after != is_grad_enabled() {
            let _ = firebrand_core::autograd::set_grad_enabled(grad_after);
        }
        Ok(result)
    }

    fn add(&self, entry: Arc<Entry<O>>) {
        stats::added();
        self.inner.entries.write().unwrap_or_else(|e| e.into_inner()).push(entry);
    }

    /// Runs the function plainly, op by op.
    pub fn call_plain(&self, input: &I) -> Result<O> {
        Ok((self.f)(input)?)
    }
}

impl<O> Drop for Inner<O> {
    fn drop(&mut self) {
        stats::removed(self.entries.get_mut().map_or(0, |e| e.len()));
    }
}

/// Everything the graph of a capture depends on.
fn guards(
    plan: &Plan,
    recording: &mut Recording,
    leaves: &Leaves<'_>,
    ambient: &Ambient,
    global_hooks: Vec<u64>,
) -> Guards {
    let tensors = leaves.tensors.iter().zip(&plan.dims).map(|(t, dims)| TensorGuard::new(t, dims.clone()));
    let number = |(i, n): (usize, &&Number)| -> Option<Scalar> {
        let fixed = recording.fixed_numbers.iter().any(|(k, _)| *k == i);
        (!plan.numbers[i] || fixed).then(|| n.peek())
    };
    Guards {
        ambient: *ambient,
        tensors: tensors.collect(),
        same: same_objects(&leaves.tensors).collect(),
        numbers: leaves.numbers.iter().enumerate().map(number).collect(),
        sizes: plan.sizes.clone(),
        hosts: leaves.hosts.iter().map(|h| h.to_owned()).collect(),
        cells: leaves.cells.to_vec(),
        environment: std::mem::take(&mut recording.environment),
        captured: std::mem::take(&mut recording.captured),
        modules: std::mem::take(&mut recording.modules),
        looked_at: std::mem::take(&mut recording.looked_at),
        global_hooks,
        relations: std::mem::take(&mut recording.relations),
        symbols: plan.symbols.len(),
    }
}

/// Puts the tensors that stand-ins stand for in their place.
struct Here;

impl Rebuild for Here {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        core_capture::real(t)
    }
    fn number(&mut self, n: &Number) -> Number {
        n.here()
    }
    fn size(&mut self, n: SymInt) -> SymInt {
        n.here()
    }
}

/// Puts stand-ins in the place of arguments.
struct Arguments<'a> {
    session: &'a Session,
    tensors_given: &'a [&'a Tensor],
    /// The stand-in of each tensor argument; one tensor given twice has one.
    stand_ins: Vec<Tensor>,
    tensors: usize,
    numbers: usize,
    sizes: usize,
    failed: Option<firebrand_core::Error>,
}

impl Rebuild for Arguments<'_> {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        let i = self.tensors;
        self.tensors += 1;
        if let Some(at) = self.tensors_given[..i].iter().position(|o| o.is_same(t)) {
            let same = self.stand_ins[at].clone();
            self.stand_ins.push(same.clone());
            return same;
        }
        let made = self.session.source(&mut self.session.lock(), &format!("arg_{i}"), t, Source::Arg(i));
        let made = made.unwrap_or_else(|e| {
            self.failed.get_or_insert(e);
            t.clone()
        });
        if self.session.plan.dims[i].iter().any(|d| matches!(d, Dim::Symbol { .. })) {
            made.mark_symbolic();
        }
        self.stand_ins.push(made.clone());
        made
    }

    fn number(&mut self, n: &Number) -> Number {
        let i = self.numbers;
        self.numbers += 1;
        if !self.session.plan.numbers[i] {
            return n.clone();
        }
        let made = self.session.number(&mut self.session.lock(), &format!("number_{i}"), n.peek(), Source::Number(i));
        made.unwrap_or_else(|_| n.clone())
    }

    fn size(&mut self, n: SymInt) -> SymInt {
        let i = self.sizes;
        self.sizes += 1;
        match self.session.plan.sizes[i] {
            Dim::Is(_) => n,
            Dim::Symbol { symbol, .. } => self.session.input_symbol(&mut self.session.lock(), symbol),
        }
    }
}

impl Session {
    /// The arguments as the function sees them under capture.
    fn arguments<I: TensorTree>(&self, input: &I, leaves: &Leaves<'_>) -> Result<I> {
        let mut make = Arguments {
            session: self,
            tensors_given: &leaves.tensors,
            stand_ins: Vec::new(),
            tensors: 0,
            numbers: 0,
            sizes: 0,
            failed: None,
        };
        let stand_in = input.rebuild(&mut make);
        make.failed.map_or(Ok(stand_in), |e| Err(e.into()))
    }
}

impl Compiler {
    /// Compiles a graph, or takes it from another function of the same code that compiled the very same.
    pub(crate) fn compile(
        &self,
        graph: GraphModule,
        examples: &[crate::backend::ExampleInput],
    ) -> Result<Arc<dyn Executable>> {
        let backend = &self.options.backend;
        if func::is_transforming() {
            return backend.compile_transformed(&graph, examples);
        }
        let key = stats::GraphKey::new(self.code, backend, &graph, examples);
        if let Some(executable) = stats::shared_graph(&key, self.id) {
            return Ok(executable);
        }
        tracing::debug!(target: "firebrand::graphs", function = %self.name, ops = count_ops(&graph), "compiling");
        let failed = |e: Error| Error::Backend {
            backend: backend.name().to_string(),
            stage: "compile",
            function: self.name.clone(),
            source: Box::new(e),
        };
        let executable = timed(Stage::Backend, || backend.compile(&graph, examples)).map_err(failed)?;
        stats::share_graph(key, self.id, &executable);
        Ok(executable)
    }
}

impl SegmentRunner for Compiler {
    fn executable(
        &self,
        graph: GraphModule,
        ambient_grad: bool,
        examples: &[crate::backend::ExampleInput],
    ) -> Result<Arc<dyn Executable>> {
        let graph = with_regions(graph, ambient_grad)?;
        let around = func::is_transforming();
        let key = format!("{ambient_grad} {around}\n{}\n{examples:?}", stats::graph_text(&graph));
        if let Some(known) = lock(&self.segments).get(&key) {
            return Ok(known.clone());
        }
        let executable = self.compile(graph, examples)?;
        lock(&self.segments).insert(key, executable.clone());
        Ok(executable)
    }
}

/// Breaks the graph here: what is recorded so far runs before the function continues. Does nothing outside a capture.
#[track_caller]
pub fn graph_break() {
    if let Some(session) = crate::front::capture::session()
        && let Err(e) = session.break_here(BreakKind::Explicit, "graph_break", Some(std::panic::Location::caller()))
    {
        panic!("{e}");
    }
}

/// Whether a function is currently being captured.
pub fn is_compiling() -> bool {
    core_capture::is_capturing()
}
