//! Runs a plan.
//!
//! Nothing is recorded for autograd here. A kernel costs its outputs' memory and no other allocation; views are made only for
//! calls and results. What a call returns with other strides than planned is copied to the planned ones.

use super::ir::*;
use super::plan::{Made, Plan, Step};
use crate::backend::{Call, Early, Executable, Value};
use crate::error::{Error, Result};
use firebrand_core::autograd::runner::without_history;
use firebrand_core::autograd::set_grad_enabled;
use firebrand_core::dispatch;
use firebrand_core::{Device, ErrorKind, Tensor, fusion, ops};
use firebrand_graph::interpret::{self, Eager, boxed_arguments};
use firebrand_graph::ir::{Function, GraphModule, Name, Target};
use smallvec::SmallVec;

/// What a call of a plan holds.
struct Frame<'a> {
    plan: &'a Plan,
    module: &'a GraphModule,
    call: &'a Call,
    tensors: SmallVec<[Option<Tensor>; 40]>,
    late: Vec<Option<Value>>,
}

/// Runs the plan on inputs that fit it; `input` gives each of them, once. One that is given away is let go after its last
/// reader, or written over. Results that `early` wants are handed to it when they are final.
pub(super) fn run(
    plan: &Plan,
    module: &GraphModule,
    mut input: impl FnMut(usize) -> Value,
    call: &Call,
    mut early: Option<&mut Early<'_>>,
) -> Result<Vec<Value>> {
    let _plain = set_grad_enabled(false).scoped();
    // Lists are filled where they are: to collect them would move all the room they have.
    let mut f = Frame { plan, module, call, tensors: SmallVec::new(), late: (0..plan.late).map(|_| None).collect() };
    for b in &plan.buffers {
        f.tensors.push(match &b.origin {
            Origin::Input(k) => match input(*k) {
                Value::Tensor(t) => Some(t),
                _ => None,
            },
            Origin::Constant(t) => Some(t.clone()),
            Origin::Made => None,
        });
    }
    for &(k, late) in &plan.late_inputs {
        f.late[late] = Some(input(k));
    }
    let mut handed = Handed { next: 0, places: Vec::new() };
    for (k, (step, dead)) in plan.steps.iter().enumerate() {
        match step {
            Step::Kernel { emitted, made, .. } => {
                made.iter().try_for_each(|m| f.make(m))?;
                let mut inputs: SmallVec<[fusion::Input<'_>; 32]> = SmallVec::new();
                for l in &emitted.inputs {
                    inputs.push(fusion::Input::Part(f.part(l)?));
                }
                let mut outputs: SmallVec<[fusion::Part<'_>; 4]> = SmallVec::new();
                for l in &emitted.outputs {
                    outputs.push(f.part(l)?);
                }
                fusion::run(&emitted.program, &inputs, &outputs)?;
                // Nobody has seen what is made here.
                let is_seen = |l: &&Load| !made.iter().any(|m| m.buffer == l.buffer);
                for l in emitted.outputs.iter().filter(is_seen) {
                    f.tensors[l.buffer].iter().for_each(fusion::count_write);
                }
            }
            Step::Call(opaque) => f.run_call(opaque, dead)?,
        }
        for &b in dead {
            f.tensors[b] = None;
        }
        if let Some(early) = &mut early {
            handed.after(k, &mut f, early)?;
        }
    }
    let mut results = Vec::with_capacity(plan.outputs.len());
    for (place, o) in plan.outputs.iter().enumerate() {
        results.push(match o {
            _ if handed.places.contains(&place) => Value::NONE,
            Output::Tensor(l) if plan.own[place] => Value::Tensor(f.own(l)?),
            Output::Tensor(l) => Value::Tensor(f.tensor(l)?),
            Output::Late(k) => f.late(*k)?,
            Output::Known(v) => v.clone(),
        });
    }
    Ok(results)
}

/// Which results have been handed over.
struct Handed {
    /// The first of the plan's early results that is still to come.
    next: usize,
    places: Vec<usize>,
}

impl Handed {
    /// Hands over what is final after step `k`. The run keeps nothing of it, so that whoever takes it owns it.
    fn after(&mut self, k: usize, f: &mut Frame<'_>, early: &mut Early<'_>) -> Result<()> {
        while let Some((_, place)) = f.plan.early.get(self.next).filter(|(step, _)| *step <= k) {
            self.next += 1;
            let Output::Tensor(l) = &f.plan.outputs[*place] else { continue };
            if !early.wanted.get(*place).is_some_and(|w| *w) {
                continue;
            }
            let result = Value::Tensor(f.tensor(l)?);
            f.tensors[l.buffer] = None;
            self.places.push(*place);
            (early.take)(*place, result)?;
        }
        Ok(())
    }
}

impl Frame<'_> {
    fn make(&mut self, m: &Made) -> Result<()> {
        let given = m.from.and_then(|from| self.tensors[from].as_mut());
        let memory =
            match given.filter(|t| !t.requires_grad()).and_then(|t| fusion::is_sole_owner(t).then(|| t.clone())) {
                Some(t) => t,
                None => Tensor::try_empty(m.spec.clone())?,
            };
        self.tensors[m.buffer] = Some(memory);
        Ok(())
    }

    fn part<'b>(&'b self, l: &'b Load) -> Result<fusion::Part<'b>> {
        let tensor = self.tensors[l.buffer].as_ref().ok_or_else(|| missing(l.buffer))?;
        if tensor.is_meta() {
            return Err(on_meta(l.buffer));
        }
        Ok(fusion::Part { tensor, layout: &l.layout })
    }

    /// Like [`Frame::tensor`], of a buffer that nothing else shows.
    fn own(&mut self, l: &Load) -> Result<Tensor> {
        let is_whole = |t: &mut Tensor| {
            l.layout.offset() == 0 && t.layout().same_geometry(&l.layout) && !t.is_meta() && !t.requires_grad()
        };
        match self.tensors[l.buffer].take_if(is_whole) {
            Some(t) => Ok(t),
            None => self.tensor(l),
        }
    }

    /// The elements as a tensor: the buffer's own if it is all of it.
    fn tensor(&self, l: &Load) -> Result<Tensor> {
        let part = self.part(l)?;
        let whole = l.layout.offset() == 0 && part.tensor.layout().same_geometry(&l.layout);
        Ok(match (whole, part.tensor.requires_grad()) {
            (true, false) => part.tensor.clone(),
            (true, true) => without_history(part.tensor), // an input
            (false, _) => fusion::alias(part)?,
        })
    }

    fn late(&self, k: usize) -> Result<Value> {
        self.late[k].clone().ok_or_else(|| Error::internal(format!("late value {k} is read before it is computed")))
    }

    fn value(&self, a: &Arg) -> Result<Value> {
        Ok(match a {
            Arg::Tensor(l) => Value::Tensor(self.tensor(l)?),
            Arg::Late(k) => self.late(*k)?,
            Arg::List(items) => Value::List(items.iter().map(|a| self.value(a)).collect::<Result<_>>()?),
            Arg::Known(v) => v.clone(),
        })
    }

    /// Runs a call; `dead` is what nothing reads after it.
    fn run_call(&mut self, o: &Opaque, dead: &[BufferId]) -> Result<()> {
        let args: Vec<Value> = o.args.iter().map(|a| self.value(a)).collect::<Result<_>>()?;
        let kwargs: Vec<(Name, Value)> =
            o.kwargs.iter().map(|(k, a)| Ok((k.clone(), self.value(a)?))).collect::<Result<_>>()?;
        if let (Some(sides), [decision, _, _, operands]) = (&o.sides, &args[..]) {
            let side = &sides[usize::from(!decision.scalar()?.to_bool())];
            let results = side.run(operands.items()?, self.call)?;
            return self.take(&o.taken, Value::List(results));
        }
        let result = match (&o.op, self.module.graph[o.node].target()) {
            (Some(op), _) => {
                let (id, boxed) = boxed_arguments(op, &args, &kwargs, None)?;
                interpret::results(id, dispatch::call(id, &boxed)?)?
            }
            (None, Some(Target::Function(Function::CallHook))) => match &args[..] {
                [slot, grad] => self.call.call_hook(slot, grad)?,
                _ => return Err(Error::internal("call_hook takes a slot and a gradient")),
            },
            (None, Some(Target::Function(Function::CallHost))) => {
                dead.iter().for_each(|&b| self.tensors[b] = None);
                self.call.call_host(args)?
            }
            _ => interpret::run_call(
                &mut Eager::default(),
                &interpret::Call { module: self.module, node: o.node, args, kwargs },
            )?,
        };
        self.take(&o.taken, result)
    }

    fn take(&mut self, taken: &Taken, value: Value) -> Result<()> {
        match (taken, value) {
            (Taken::Ignored, _) => {}
            (Taken::Late(k), value) => self.late[*k] = Some(value),
            (Taken::Buffer(b), Value::Tensor(t)) => self.tensors[*b] = Some(self.as_planned(*b, t)?),
            (Taken::List(items), Value::List(values)) if items.len() == values.len() => {
                for (t, v) in items.iter().zip(values) {
                    self.take(t, v)?;
                }
            }
            (_, value) => {
                return Err(Error::internal(format!("a call returned {}, which was not planned", value.kind())));
            }
        }
        Ok(())
    }

    fn as_planned(&self, b: BufferId, t: Tensor) -> Result<Tensor> {
        let planned = &self.plan.buffers[b];
        if t.layout().same_geometry(&planned.layout) && t.dtype() == planned.dtype {
            return Ok(t);
        }
        if t.shape() != planned.layout.sizes() || t.dtype() != planned.dtype {
            let (found, expected) = (t.shape().to_vec(), planned.layout.sizes());
            return Err(Error::internal(format!("a call returned sizes {found:?}, expected {expected:?}")));
        }
        let spec = firebrand_core::Spec { layout: planned.layout.clone(), dtype: planned.dtype, device: t.device() };
        Ok(ops::copy_(&Tensor::try_empty(spec)?, &t, false)?.clone())
    }
}

/// A call, a hook or a branch gave a meta tensor where the plan has memory.
#[cold]
fn on_meta(b: BufferId) -> Error {
    let (argument, reference) = (format!("buffer {b}"), "what it was planned with".to_owned());
    let (device, expected) = (Device::Meta, Device::Cpu);
    firebrand_core::Error::from(ErrorKind::DeviceMismatch {
        op: "compiled graph",
        argument,
        device,
        reference,
        expected,
    })
    .into()
}

#[cold]
fn missing(b: BufferId) -> Error {
    Error::internal(format!("buffer {b} is read before it is written"))
}
