//! Entry: one compiled graph of a function, with its guards and what a call does around it.

use crate::backend::HookSlot;
use crate::backend::{Call, Executable, Value};
use crate::error::{Error, Result};
use crate::front::binding::{Binding, KeptSizes};
use crate::front::capture::{Effect, HookTemplate, Recording, Slot, bound_hook};
use crate::front::guard::{Guards, Symbols};
use crate::front::leaves::Leaves;
use crate::front::source::Source;
use firebrand_core::autograd::{AutocastGuard, AutocastOptions, Function, RemovableHandle, no_grad, set_grad_enabled};
use firebrand_core::capture::StandIns;
use firebrand_core::tree::SharedRef;
use firebrand_core::tree::{Rebuild, TensorTree};
use firebrand_core::{Number, SymInt, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a function does where its guards hold.
pub(crate) struct Entry<O> {
    pub(crate) guards: Guards,
    pub(crate) body: Body<O>,
}

/// How an entry is run.
pub(crate) enum Body<O> {
    /// The function itself is run at every call; its graphs are kept apart.
    Segments,
    /// One graph, and what is around it.
    Whole(Box<Whole<O>>),
}

/// A function that is one graph.
pub(crate) struct Whole<O> {
    executable: Option<Arc<dyn Executable>>,
    inputs: Vec<Source>,
    results: Vec<Slot>,
    /// The result without its tensors.
    template: O,
    effects: Vec<Effect<Slot>>,
    held: Vec<(Tensor, Slot)>,
    /// Numbers that vary and that closures or the result hold.
    numbers: Vec<(Tensor, Source)>,
    sizes: Arc<KeptSizes>,
    locals: Vec<Tensor>,
    hooks: Vec<HookTemplate>,
    functions: Arc<[Arc<dyn Function>]>,
    cells: Vec<SharedRef>,
    grad_after: Option<bool>,
    autocast: bool,
}

impl<O: TensorTree> Whole<O> {
    pub(crate) fn new(
        recording: Recording,
        executable: Option<Arc<dyn Executable>>,
        template: O,
        cells: Vec<SharedRef>,
        autocast: bool,
    ) -> Whole<O> {
        let Recording { inputs, results, effects, held, numbers, sizes, locals, hooks, functions, grad_after, .. } =
            recording;
        Whole {
            executable,
            inputs,
            results,
            template,
            effects,
            held,
            numbers,
            sizes: Arc::new(sizes),
            locals,
            hooks,
            functions,
            cells,
            grad_after,
            autocast,
        }
    }

    /// Runs one call. `first` says that this is the call that was captured, whose module hooks are in place already.
    pub(crate) fn run(&self, leaves: &Leaves<'_>, symbols: &Symbols, replay: bool, first: bool) -> Result<O> {
        let closures = !self.hooks.is_empty() || !self.effects.is_empty() || !self.functions.is_empty();
        let bound = closures || !self.cells.is_empty() || !self.numbers.is_empty() || !self.sizes.sizes.is_empty();
        let kept = match bound {
            true => Some(self.binding(leaves, symbols)?),
            false => None,
        };
        let mut locals: SmallVec<[Tensor; 2]> = SmallVec::new();
        for template in &self.locals {
            locals.push(own_copy(template)?);
        }
        let outputs = match &self.executable {
            None => Vec::new(),
            Some(executable) => {
                let call = self.call(kept.as_ref());
                // Custom functions run in the graph: what they hold of the caller's they find there already.
                for (captured, slot) in self.held.iter().filter(|_| !self.functions.is_empty()) {
                    if let (Some(kept), Some(real)) = (&kept, source(slot, leaves, &locals)?) {
                        kept.bind(captured, real);
                    }
                }
                let mut inputs: SmallVec<[Value; 8]> = SmallVec::with_capacity(self.inputs.len());
                let mut read = || -> Result<()> {
                    for source in &self.inputs {
                        inputs.push(value(source, leaves, symbols, &locals)?);
                    }
                    Ok(())
                };
                // Cells that are read are those of the call.
                match &kept {
                    Some(kept) if !self.cells.is_empty() => kept.enter(read)?,
                    _ => read()?,
                }
                // Casts of an autocast region are part of the graph.
                let _plain = self
                    .autocast
                    .then(|| AutocastGuard::new(AutocastOptions { enabled: false, ..AutocastOptions::default() }));
                executable.run(&inputs, &call).map_err(Error::of_the_program)?
            }
        };
        let tensor = |slot: &Slot| -> Result<Tensor> {
            if let Some(t) = source(slot, leaves, &locals)? {
                return Ok(t);
            }
            match slot {
                Slot::Source(_) => Err(Error::internal("a source is not a tensor")),
                Slot::Output(k) => match outputs.get(*k) {
                    Some(value) => Ok(value.tensor()?.clone()),
                    None => Err(Error::internal(format!("the graph has no result {k}"))),
                },
            }
        };
        let mut binding = None;
        if let Some(kept) = kept {
            let full = self.binding(leaves, symbols)?;
            for (captured, slot) in &self.held {
                let real = tensor(slot)?;
                kept.bind(captured, real.clone());
                full.bind(captured, real);
            }
            full.share_handles(&kept);
            if replay {
                for effect in &self.effects {
                    match effect {
                        Effect::Register { handle, .. } if first => full.bind_handle(handle.key(), handle.clone()),
                        effect => effect.run(&tensor, &full, &kept)?,
                    }
                }
                // A hook may remove another.
                kept.share_handles(&full);
            }
            binding = Some(full);
        }
        let mut make = Results { next: self.results.iter(), tensor: &tensor, binding: binding.clone(), failed: None };
        let mut rebuild = || self.template.rebuild(&mut make);
        let result = match &binding {
            Some(binding) => binding.enter(rebuild),
            None => rebuild(),
        };
        if let Some(e) = make.failed {
            return Err(e);
        }
        if let Some(on) = self.grad_after {
            let _ = set_grad_enabled(on);
        }
        Ok(result)
    }

    /// What stands for what in a call, as far as that is known before the graph runs and no closure asks for more.
    fn binding(&self, leaves: &Leaves<'_>, symbols: &Symbols) -> Result<Arc<Binding>> {
        let binding = Binding::new(&self.cells, &leaves.cells).with_sizes(&self.sizes, symbols);
        for (captured, source) in &self.numbers {
            let value = value(source, leaves, symbols, &[])?;
            let number = value.scalar()?;
            binding.bind(captured, Number::new(number).tensor().clone());
        }
        Ok(Arc::new(binding))
    }

    fn call(&self, kept: Option<&Arc<Binding>>) -> Call {
        let slots: Vec<Arc<HookSlot>> = match kept {
            None => Vec::new(),
            Some(kept) => self
                .hooks
                .iter()
                .map(|h| {
                    let slot = HookSlot::new(bound_hook(h.hook.clone(), kept.clone()));
                    kept.bind_handle(h.handle, slot.handle());
                    slot
                })
                .collect(),
        };
        if slots.is_empty() && self.functions.is_empty() {
            return Call::default();
        }
        let call = Call::new(slots, self.functions.clone());
        match kept {
            Some(kept) if !self.functions.is_empty() => {
                let computed = self.held.iter().filter_map(|(t, slot)| match slot {
                    Slot::Output(k) => Some((*k, t.clone())),
                    Slot::Source(_) => None,
                });
                call.within(kept.clone(), computed.collect::<Vec<_>>())
            }
            _ => call,
        }
    }
}

/// The tensor of a slot that is not computed by the graph.
fn source(slot: &Slot, leaves: &Leaves<'_>, locals: &[Tensor]) -> Result<Option<Tensor>> {
    match slot {
        Slot::Source(Source::Local(k)) => Ok(Some(locals[*k].clone())),
        Slot::Source(source) => {
            source.tensor(leaves).map(Some).ok_or_else(|| Error::internal("a source is not a tensor"))
        }
        Slot::Output(_) => Ok(None),
    }
}

/// What a call has of a tensor that the function makes of host data.
fn own_copy(template: &Tensor) -> Result<Tensor> {
    let copy = no_grad(|| template.try_clone_tensor())?;
    Ok(copy.try_requires_grad_(template.requires_grad())?)
}

fn value(source: &Source, leaves: &Leaves<'_>, symbols: &Symbols, locals: &[Tensor]) -> Result<Value> {
    Ok(match source {
        Source::Number(i) => Value::Scalar(leaves.numbers[*i].peek()),
        Source::ReadNumber(read) => Value::Scalar(read()),
        Source::Symbol(s) => Value::Scalar(symbols[*s as usize].into()),
        Source::Local(k) => Value::Tensor(locals[*k].clone()),
        other => Value::Tensor(other.tensor(leaves).ok_or_else(|| Error::internal("a source is not a tensor"))?),
    })
}

/// Puts the tensors and handles of a call in the place of those captured.
struct Results<'a> {
    next: std::slice::Iter<'a, Slot>,
    tensor: &'a dyn Fn(&Slot) -> Result<Tensor>,
    binding: Option<Arc<Binding>>,
    failed: Option<Error>,
}

impl Rebuild for Results<'_> {
    fn tensor(&mut self, t: &Tensor) -> Tensor {
        let found = self.next.next().ok_or_else(|| Error::internal("the result has more tensors than were captured"));
        found.and_then(self.tensor).unwrap_or_else(|e| {
            self.failed.get_or_insert(e);
            t.clone()
        })
    }

    fn handle(&mut self, h: &RemovableHandle) -> RemovableHandle {
        self.binding.as_ref().map_or_else(|| h.clone(), |b| b.handle(h))
    }

    fn number(&mut self, n: &Number) -> Number {
        n.here()
    }

    fn size(&mut self, n: SymInt) -> SymInt {
        n.here()
    }
}

impl<O> Entry<O> {
    pub(crate) fn new(guards: Guards, body: Body<O>) -> Entry<O> {
        Entry { guards, body }
    }
}
