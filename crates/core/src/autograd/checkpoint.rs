//! Checkpointing: values saved for backward are dropped and recomputed when backward needs them.
//!
//! *Non-reentrant* (recommended): the function runs once as usual, but saved tensors are replaced by placeholders; the
//! first placeholder that is read reruns the function, which fills them in order, and stops at the last one it needs.
//! *Reentrant*: the function runs unrecorded inside a custom function whose backward reruns it and starts a nested run.
//! Both rerun under the random state and the autocast options the function first saw.
//!
//! A rerun is stopped by an error value ([`ErrorKind::CheckpointEarlyStop`]): saving the last tensor fails with it, so the op
//! fails, so the function returns it, and the rerun treats any outcome as success once it has everything it needs. Layers, custom
//! functions and foreign code see an ordinary error. Only a form without `try_` turns it into an unwinding
//! ([`Error::raise`]), which begins in that form, passes the frames of the function (Rust code that chose that form) and ends
//! in `rerun`; no panic hook runs.

use super::autocast::{self, AutocastGuard, AutocastOptions};
use super::engine::{all_runs_are_plain, current_graph_task_id};
use super::function::{Context, Function};
use super::mode::{EnableGrad, NoGrad, is_grad_enabled};
use super::node::InputMetadata;
use super::saved::SavedTensor;
use super::saved_scopes::faithful_hooks;
use super::{BackwardOptions, api};
use crate::capture::{self, Bound};
use crate::dispatch::{Interpreter, Next, Op, Outputs, Value, push_inner_layer};
use crate::error::expect_ok;
use crate::generator::{self, Generator};
use crate::ops::devices;
use crate::slot::{Slot, SlotGuard};
use crate::state::{self, ModeGuard};
use crate::warnings::warn;
use crate::{Error, ErrorKind, Result, Tensor};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A function to be checkpointed: any closure of this shape.
pub trait Recompute: Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static {}
impl<F: Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static> Recompute for F {}

/// Which differences between the first run and the rerun are errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeterminismCheck {
    /// Shape, dtype and device of every saved tensor must agree.
    #[default]
    Default,
    /// Only their number must.
    None,
}

/// Contexts around the runs of a checkpointed function: layers, scopes, measurements.
pub trait CheckpointContexts: Send + Sync + 'static {
    /// Around the first run.
    fn forward(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        run()
    }
    /// Around a rerun.
    fn recompute(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        run()
    }
}

/// Makes the contexts of a checkpoint, once for each call of [`checkpoint`].
#[derive(Clone)]
pub struct ContextFn(Arc<dyn Fn() -> Arc<dyn CheckpointContexts> + Send + Sync>);

impl ContextFn {
    /// A factory of contexts.
    pub fn new<C: CheckpointContexts>(make: impl Fn() -> C + Send + Sync + 'static) -> ContextFn {
        ContextFn(Arc::new(move || Arc::new(make())))
    }
}

/// Options of [`checkpoint`].
#[derive(Clone, Debug)]
pub struct CheckpointOptions {
    /// Which variant to use; `None` warns and means reentrant, as in PyTorch.
    pub use_reentrant: Option<bool>,
    /// Rerun under the random state of the first run.
    pub preserve_rng_state: bool,
    /// What to compare between the first run and the rerun.
    pub determinism_check: DeterminismCheck,
    /// Stop the rerun once the last needed value is saved: the op that saves it fails with
    /// [`ErrorKind::CheckpointEarlyStop`], which the function propagates. [`set_checkpoint_early_stop`] takes precedence.
    pub early_stop: bool,
    /// Contexts around the first run and reruns; only for the non-reentrant variant.
    pub context_fn: Option<ContextFn>,
    /// Keep the names of the ops of both runs, and show them if the runs differ; only for the non-reentrant variant.
    pub debug: bool,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        CheckpointOptions {
            use_reentrant: Some(false),
            preserve_rng_state: true,
            determinism_check: DeterminismCheck::Default,
            early_stop: true,
            context_fn: None,
            debug: false,
        }
    }
}

/// Writes down the ops of a run, for messages.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Interpreter for Journal {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        if op == Op::DETACH {
            return next.call(op, args); // saving a tensor detaches it; the function does not
        }
        let shape = |v: &Value| match v {
            Value::Tensor(t) => format!("{}{:?}", t.dtype(), t.shape()),
            other => format!("{other:?}"),
        };
        let line = format!("{}({})", op.name(), args.iter().map(shape).collect::<Vec<_>>().join(", "));
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(line);
        next.call(op, args)
    }
}

impl Journal {
    /// Both runs side by side, as far as they are equal and one op further.
    fn compared(&self, rerun: &Journal) -> String {
        let list = |j: &Journal| j.0.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let (first, second) = (list(self), list(rerun));
        let same = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
        let rest = |l: &[String]| l.get(same).map_or("nothing more", String::as_str).to_string();
        let common: Vec<String> = first[..same].iter().map(|line| format!("\n  {line}")).collect();
        let (a, b) = (rest(&first), rest(&second));
        format!("\nops of both runs:{}\nthen the first run: {a}\nthen the rerun: {b}", common.concat())
    }
}

static EARLY_STOP: Slot<Option<bool>> = Slot::new(|| None);

/// Restores the previous choice when dropped.
#[derive(Debug)]
#[must_use = "the choice lasts while the guard lives"]
pub struct EarlyStopGuard(#[allow(dead_code)] SlotGuard<Option<bool>>);

/// Whether reruns stop early, for checkpoints created while the guard lives.
#[track_caller]
pub fn set_checkpoint_early_stop(on: bool) -> EarlyStopGuard {
    expect_ok(capture::leave("set_checkpoint_early_stop"));
    EarlyStopGuard(EARLY_STOP.enter(Some(on)))
}

/// Runs `f` without saving tensors for backward; they are recomputed during backward.
#[track_caller]
pub fn checkpoint(f: impl Recompute, inputs: &[&Tensor], options: &CheckpointOptions) -> Result<Vec<Tensor>> {
    let reentrant = options.use_reentrant.unwrap_or_else(|| {
        warn("checkpoint: use_reentrant was not given and defaults to true; false is recommended");
        true
    });
    if reentrant && (options.context_fn.is_some() || options.debug) {
        let message = "context_fn and debug need use_reentrant: Some(false)";
        return Err(Error::argument("checkpoint", message));
    }
    if reentrant {
        return reentrant_checkpoint(f, inputs, options);
    }
    let inputs: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
    if !is_grad_enabled() {
        return f(&inputs);
    }
    if let Some(tracer) = capture::tracer() {
        match options.preserve_rng_state {
            true => tracer.begin_checkpoint(Location::caller())?,
            // It computes other values when it runs again.
            false => tracer.leave("a checkpoint that does not keep the random state", Location::caller())?,
        }
    }
    // What is kept is version-checked: the tensors themselves.
    let inputs: Vec<Tensor> = inputs.iter().map(capture::real).collect();
    let frame = Arc::new(Frame {
        inputs: inputs.iter().map(SavedTensor::input).collect::<Result<_>>()?,
        function: Box::new(f),
        rng: options.preserve_rng_state.then(generator::current),
        bound: Bound::here(),
        determinism_check: options.determinism_check,
        autocast: autocast::current(),
        early_stop: EARLY_STOP.get().unwrap_or(options.early_stop),
        contexts: options.context_fn.as_ref().map(|make| (make.0)()),
        journal: options.debug.then(Journal::default),
        saves: Mutex::default(),
        recomputed: Mutex::default(),
        completed: AtomicBool::new(false),
    });
    let packing = frame.clone();
    let _scope = faithful_hooks(
        move |t| {
            let meta = InputMetadata::of(t);
            let mut saves = packing.saves.lock().unwrap_or_else(|e| e.into_inner());
            saves.push(meta);
            Ok(Placeholder { frame: packing.clone(), index: saves.len() - 1 })
        },
        Placeholder::read,
    )?;
    let mut outputs = Vec::new();
    let mut run = || {
        let _journal = frame.journal.clone().map(|j| push_inner_layer(Arc::new(j)));
        outputs = (frame.function)(&inputs)?;
        Ok(())
    };
    match &frame.contexts {
        Some(contexts) => contexts.forward(&mut run)?,
        None => run()?,
    }
    frame.completed.store(true, Relaxed);
    Ok(outputs)
}

type Closure = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

struct Frame {
    function: Box<Closure>,
    inputs: Vec<SavedTensor>,
    rng: Option<Generator>,
    /// The tensors that the function's stand-ins refer to.
    bound: Bound,
    autocast: AutocastOptions,
    determinism_check: DeterminismCheck,
    early_stop: bool,
    contexts: Option<Arc<dyn CheckpointContexts>>,
    /// The ops of the first run.
    journal: Option<Journal>,
    /// What the first run saved, in order.
    saves: Mutex<Vec<InputMetadata>>,
    /// Per backward run, the values of one rerun; each is handed out once.
    recomputed: Mutex<Vec<(i64, Vec<Option<Tensor>>)>>,
    /// Whether the first run has ended; a gradient taken inside the function reruns it before.
    completed: AtomicBool,
}

struct Placeholder {
    frame: Arc<Frame>,
    index: usize,
}

impl Placeholder {
    fn read(&self) -> Result<Tensor> {
        let (frame, run) = (&self.frame, current_graph_task_id());
        let taken = |list: &mut Vec<(i64, Vec<Option<Tensor>>)>| {
            list.iter_mut().find(|(id, _)| *id == run && run >= 0).map(|(_, values)| values[self.index].take())
        };
        let found = taken(&mut frame.recomputed.lock().unwrap_or_else(|e| e.into_inner()));
        if let Some(found) = found {
            return found.ok_or_else(|| Error::from(ErrorKind::CheckpointDoubleUnpack));
        }
        let mut values = frame.rerun()?;
        let mine = values[self.index].take().ok_or_else(|| Error::from(ErrorKind::CheckpointDoubleUnpack))?;
        let mut list = frame.recomputed.lock().unwrap_or_else(|e| e.into_inner());
        // Finished runs left only unread values; they are dropped outside the lock.
        let ended: Vec<_> = list.extract_if(.., |(id, _)| *id <= run - 64).collect();
        if run >= 0 {
            list.push((run, values));
        }
        drop(list);
        drop(ended);
        Ok(mine)
    }
}

/// Runs `f` under the random state and the autocast options that a checkpoint keeps, recording.
fn as_first_run<R>(rng: &Option<Generator>, options: AutocastOptions, f: impl FnOnce() -> R) -> R {
    let now = autocast::current();
    let same = (now.enabled, now.dtype, now.cache_enabled) == (options.enabled, options.dtype, options.cache_enabled);
    let _region = (!same).then(|| AutocastGuard::new(options));
    let _grad = EnableGrad::new();
    match rng {
        Some(state) => generator::within(state.clone(), f),
        None => f(),
    }
}

impl Frame {
    fn rerun(self: &Arc<Self>) -> Result<Vec<Option<Tensor>>> {
        let inputs: Vec<Tensor> = self
            .inputs
            .iter()
            .map(|s| s.clone().unpack_input()?.ok_or_else(|| Error::from(ErrorKind::CheckpointDoubleUnpack)))
            .collect::<Result<_>>()?;
        let expected = self.saves.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let found: Arc<Mutex<Recomputed>> = Arc::default();
        let (list, needed) = (found.clone(), expected.len());
        let stop = self.early_stop && cfg!(panic = "unwind");
        let scope = faithful_hooks(
            move |t| {
                let saved = recomputed(t);
                let mut list = list.lock().unwrap_or_else(|e| e.into_inner());
                if !stop || list.len() < needed {
                    list.push(saved);
                }
                let full = list.len() >= needed;
                drop(list);
                if stop && full { Err(ErrorKind::CheckpointEarlyStop.into()) } else { Ok(t.detach()) }
            },
            |t: &Tensor| Ok(t.clone()),
        )?;
        let journal = self.journal.as_ref().map(|_| Journal::default());
        let mut run = || {
            let watched = stop && state::is(state::INNER);
            let _journal = journal.clone().map(|j| push_inner_layer(Arc::new(j)));
            let _last = watched.then(|| push_inner_layer(Arc::new(LastOp { found: found.clone(), needed })));
            self.bound.run(|| (self.function)(&inputs)).map(drop)
        };
        let call = || {
            as_first_run(&self.rng, self.autocast, || match &self.contexts {
                Some(contexts) => contexts.recompute(&mut run),
                None => run(),
            })
        };
        let outcome = catch_unwind(AssertUnwindSafe(call));
        drop(scope);
        let mut found = std::mem::take(&mut *found.lock().unwrap_or_else(|e| e.into_inner()));
        if !self.completed.load(Relaxed) {
            // The first run has not come as far as the rerun.
            found.truncate(needed);
        }
        match outcome {
            // It was told to stop; how it did so does not matter.
            _ if stop && found.len() == needed => {}
            Ok(result) => result?,
            Err(payload) => resume_unwind(payload),
        }
        self.compare(&expected, &found).map_err(|e| match (e.kind(), &self.journal, &journal) {
            (ErrorKind::CheckpointMismatch { message }, Some(first), Some(second)) => {
                ErrorKind::CheckpointMismatch { message: format!("{message}{}", first.compared(second)) }.into()
            }
            _ => e,
        })?;
        Ok(found.into_iter().map(|(_, t)| Some(t)).collect())
    }

    fn compare(&self, expected: &[InputMetadata], found: &[(InputMetadata, Tensor)]) -> Result<()> {
        let mismatch = |message: String| Err(Error::from(ErrorKind::CheckpointMismatch { message }));
        if expected.len() != found.len() {
            let more = if found.len() > expected.len() {
                "trying to save more tensors during recomputation than during the original forward pass. "
            } else {
                ""
            };
            return mismatch(format!(
                "{more}A different number of tensors was saved during the original forward and recomputation: {} and {}. The function \
                 must do the same both times",
                expected.len(),
                found.len()
            ));
        }
        if self.determinism_check == DeterminismCheck::Default
            && let Some(k) = (0..expected.len()).find(|&k| expected[k] != found[k].0)
        {
            let show = |m: &InputMetadata| format!("{} {:?} on {}", m.dtype, m.shape.as_slice(), m.device);
            return mismatch(format!(
                "Recomputed values for the following tensors have different metadata than during the forward pass: the tensor at \
                 position {k} was {} and is {}",
                show(&expected[k]),
                show(&found[k].0)
            ));
        }
        Ok(())
    }
}

/// What a rerun saved so far, in order.
type Recomputed = Vec<(InputMetadata, Tensor)>;

/// A tensor as a rerun keeps it. What has no history is handed out as it is: a custom function finds the very tensor that it saved.
fn recomputed(t: &Tensor) -> (InputMetadata, Tensor) {
    (InputMetadata::of(t), if t.requires_grad() { t.detach() } else { t.clone() })
}

/// Stops a rerun before an op of which only the inputs are needed, so that no layer below autograd sees an op whose result nothing
/// reads. Without such layers it is not there: the op then runs, and saving its inputs stops the rerun.
struct LastOp {
    found: Arc<Mutex<Recomputed>>,
    needed: usize,
}

impl Interpreter for LastOp {
    fn call(&self, op: Op, args: &[Value], next: Next<'_>) -> Result<Outputs> {
        let missing = self.needed.saturating_sub(self.found.lock().unwrap_or_else(|e| e.into_inner()).len());
        let inputs = tensors_of(args);
        if missing > 0
            && missing <= inputs.len()
            && is_grad_enabled()
            && let Some(saved) = saved_inputs(op, args, &inputs)
            && missing <= saved.len()
        {
            let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
            found.extend(saved[..missing].iter().map(|&k| recomputed(inputs[k])));
            return Err(ErrorKind::CheckpointEarlyStop.into());
        }
        next.call(op, args)
    }
}

/// The tensors among arguments, in order.
fn tensors_of(args: &[Value]) -> Vec<&Tensor> {
    let mut all = Vec::new();
    for arg in args {
        match arg {
            Value::Tensor(t) => all.push(t),
            Value::Tensors(list) => all.extend(list),
            Value::OptTensors(list) => all.extend(list.iter().flatten()),
            _ => {}
        }
    }
    all
}

/// Which inputs an op saves before anything else, found by recording it on tensors without data; `None` if that cannot be told: the
/// op writes its inputs, is registered from outside (its code must not run more often than asked for), is called inside a transform,
/// or does what depends on values. Nobody notices: neither layers, hooks and profiler nor the random state.
fn saved_inputs(op: Op, args: &[Value], inputs: &[&Tensor]) -> Option<Vec<usize>> {
    let foreign = !op.name().starts_with("aten::") || state::is(state::LEVEL);
    if foreign || op.schema().mutates() || !inputs.iter().any(|t| t.requires_grad()) {
        return None;
    }
    let mut outlines = Vec::with_capacity(inputs.len());
    let mut outline = |t: &Tensor| -> Option<Tensor> {
        let made = devices::outline(t).ok()?.try_requires_grad_(t.requires_grad()).ok()?;
        outlines.push(made.clone());
        Some(made)
    };
    let mut on_meta = Vec::with_capacity(args.len());
    for arg in args {
        on_meta.push(match arg {
            Value::Tensor(t) => Value::Tensor(outline(t)?),
            Value::Tensors(list) => Value::Tensors(list.iter().map(&mut outline).collect::<Option<_>>()?),
            Value::OptTensors(list) => Value::OptTensors(
                list.iter().map(|t| t.as_ref().map_or(Some(None), |t| outline(t).map(Some))).collect::<Option<_>>()?,
            ),
            other => other.clone(),
        });
    }
    // Positions among the outlines; `None` for what is no input.
    let saved: Arc<Mutex<Vec<Option<usize>>>> = Arc::default();
    let (list, known) = (saved.clone(), outlines.clone());
    let scope = faithful_hooks(
        move |t| {
            list.lock().unwrap_or_else(|e| e.into_inner()).push(known.iter().position(|o| o.is_same(t)));
            Ok(t.detach())
        },
        |t: &Tensor| Ok(t.clone()),
    );
    let _scope = scope.ok()?;
    let _alone = ModeGuard::new(0, state::LAYERS | state::APART | state::CREATION | state::DUAL);
    generator::within(generator::current(), || op.info().call(&on_meta)).ok()?;
    let saved = std::mem::take(&mut *saved.lock().unwrap_or_else(|e| e.into_inner()));
    Some(saved.into_iter().map_while(|k| k).collect())
}

/// The reentrant variant as a custom function.
struct CheckpointFunction<F> {
    function: F,
    preserve_rng_state: bool,
    autocast: AutocastOptions,
}

impl<F: Recompute> Function for CheckpointFunction<F> {
    fn name(&self) -> String {
        "CheckpointFunction".to_string()
    }

    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let all: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
        ctx.save_for_backward(&all);
        if self.preserve_rng_state {
            ctx.keep_random_state();
        }
        let _plain = NoGrad::new();
        (self.function)(inputs)
    }

    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        if !all_runs_are_plain() {
            return Err(ErrorKind::CheckpointReentrantInputs.into());
        }
        let inputs = ctx
            .saved_tensors()?
            .into_iter()
            .flatten()
            .map(|t| {
                let wanted = t.requires_grad();
                t.detach().try_requires_grad_(wanted && t.dtype().is_differentiable())
            })
            .collect::<Result<Vec<_>>>()?;
        let outputs = as_first_run(ctx.random_state(), self.autocast, || (self.function)(&inputs))?;
        let (mut roots, mut seeds) = (Vec::new(), Vec::new());
        for (out, g) in outputs.iter().zip(grads) {
            if out.requires_grad() {
                roots.push(out);
                seeds.push(g.clone());
            }
        }
        if roots.is_empty() {
            return Err(ErrorKind::CheckpointNoGradOutput.into());
        }
        api::backward(roots, &BackwardOptions { grad_tensors: seeds, ..Default::default() })?;
        Ok(inputs.iter().map(|t| if t.requires_grad() { t.grad() } else { None }).collect())
    }
}

fn reentrant_checkpoint(f: impl Recompute, inputs: &[&Tensor], options: &CheckpointOptions) -> Result<Vec<Tensor>> {
    if is_grad_enabled() && !inputs.iter().any(|t| t.requires_grad()) {
        warn("checkpoint: no input requires grad, so the reentrant variant records nothing; gradients will be None");
    }
    let preserve_rng_state = options.preserve_rng_state;
    CheckpointFunction { function: f, preserve_rng_state, autocast: autocast::current() }.apply(inputs)
}

/// Runs a chain of functions, the first `segments - 1` parts of it checkpointed.
pub fn checkpoint_sequential<F>(
    functions: &[F],
    segments: usize,
    input: &Tensor,
    options: &CheckpointOptions,
) -> Result<Tensor>
where
    F: Fn(&Tensor) -> Result<Tensor> + Clone + Send + Sync + 'static,
{
    let segments = segments.clamp(1, functions.len().max(1));
    let length = (functions.len() / segments).max(1);
    let chain = |list: &[F], x: &Tensor| list.iter().try_fold(x.clone(), |x, f| f(&x));
    let mut x = input.clone();
    for k in 0..segments - 1 {
        let part: Vec<F> = functions[k * length..(k + 1) * length].to_vec();
        let run = move |inputs: &[Tensor]| Ok(vec![part.iter().try_fold(inputs[0].clone(), |x, f| f(&x))?]);
        x = checkpoint(run, &[&x], options)?.remove(0);
    }
    chain(&functions[(segments - 1) * length..], &x)
}
