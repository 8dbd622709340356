//! Groups of parameters with their own settings and lazily created state: everything in an optimizer except its rule.

use super::algorithm::{Algorithm, Batch, Implementation};
use super::{GroupDict, Optimizer, StateDict};
use firebrand_core::autograd::no_grad;
use firebrand_core::{DType, Error, Result, Tensor, TensorMap, capture, ops};
use indexmap::IndexMap;

/// State of one parameter, created at its first step.
struct State {
    /// Number of steps taken: a 0-dim f32 tensor, as in PyTorch.
    step: Tensor,
    slots: Vec<Tensor>,
}

struct Group<A> {
    params: Vec<Tensor>,
    state: Vec<Option<State>>,
    options: A,
}

/// An optimizer over groups of parameters that share one rule.
pub struct Grouped<A: Algorithm> {
    groups: Vec<Group<A>>,
}

/// What an optimizer accepts as parameters: tensors or module parameters, owned or by reference.
pub trait IntoParams {
    /// The tensors.
    fn into_params(self) -> Vec<Tensor>;
}

impl<I> IntoParams for I
where
    I: IntoIterator,
    I::Item: AsRef<Tensor>,
{
    fn into_params(self) -> Vec<Tensor> {
        self.into_iter().map(|t| t.as_ref().clone()).collect()
    }
}

impl<A: Algorithm> Grouped<A> {
    /// Creates an optimizer with one group with these settings.
    pub fn new(params: impl IntoParams, options: A) -> Result<Grouped<A>> {
        let mut all = Grouped { groups: Vec::new() };
        all.add_group(params, options)?;
        Ok(all)
    }

    /// Adds a group with its own settings.
    pub fn add_group(&mut self, params: impl IntoParams, options: A) -> Result<()> {
        options.validate()?;
        let params = params.into_params();
        if params.is_empty() {
            return Err(Error::argument(A::NAME, "expected at least one parameter, found an empty list"));
        }
        let mut known = TensorMap::new();
        self.groups.iter().flat_map(|g| &g.params).for_each(|p| _ = known.insert(p, ()));
        for (k, p) in params.iter().enumerate() {
            if !p.is_leaf() {
                let message = format!("parameter {k} was computed by an op; only leaves can be optimized");
                return Err(Error::argument(A::NAME, message));
            }
            options.accepts(p)?;
            if known.insert(p, ()).is_some() {
                return Err(Error::argument(A::NAME, format!("parameter {k} occurs more than once")));
            }
        }
        let state = params.iter().map(|_| None).collect();
        self.groups.push(Group { params, state, options });
        Ok(())
    }

    /// Settings of a group.
    pub fn options(&self, group: usize) -> &A {
        &self.groups[group].options
    }

    /// Mutable settings of a group.
    pub fn options_mut(&mut self, group: usize) -> &mut A {
        &mut self.groups[group].options
    }
}

impl<A: Algorithm> Group<A> {
    /// Counts a step for every parameter with a gradient, and collects them.
    fn gather(&mut self) -> Result<Batch> {
        let slots = self.options.slots();
        let none = || Vec::with_capacity(self.params.len());
        let mut batch = Batch {
            params: none(),
            grads: none(),
            slots: slots.iter().map(|_| none()).collect(),
            steps: none(),
            counts: Vec::with_capacity(self.params.len()),
        };
        for (p, state) in self.params.iter().zip(&mut self.state) {
            let Some(grad) = p.grad() else { continue };
            let state = match state {
                // Settings may ask for more state than before (momentum switched on later).
                Some(s) if s.slots.len() == slots.len() => s,
                other => {
                    let step = other.take().map_or_else(|| Tensor::scalar(0f32), |s| s.step);
                    other.insert(State { step, slots: slots.iter().map(|s| s.start(p)).collect::<Result<_>>()? })
                }
            };
            ops::add_scalar_(&state.step, 1.into(), 1.into())?;
            batch.params.push(p.clone());
            batch.grads.push(grad.detach());
            batch.slots.iter_mut().zip(&state.slots).for_each(|(all, one)| all.push(one.clone()));
            batch.steps.push(state.step.clone());
            batch.counts.push(state.step.try_item::<f32>()?.into());
        }
        Ok(batch)
    }

    fn step(&mut self) -> Result<()> {
        let mut batch = self.gather()?;
        let (sparse, dense): (Vec<usize>, Vec<usize>) = (0..batch.len()).partition(|&i| batch.grads[i].is_sparse());
        if !sparse.is_empty() {
            self.options.update_sparse(&batch.select(&sparse))?;
            batch = batch.select(&dense);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let fusible = || batch.params.iter().all(|p| matches!(p.dtype(), DType::F32 | DType::F64));
        match self.options.implementation() {
            Implementation::Single => (0..batch.len()).try_for_each(|i| self.options.update(&batch.select(&[i]))),
            Implementation::Auto if !fusible() => self.options.update(&batch),
            Implementation::Auto | Implementation::Fused => {
                self.options.update_fused(&batch).unwrap_or_else(|| self.options.update(&batch))
            }
            Implementation::Foreach => self.options.update(&batch),
        }
    }
}

fn refused<A: Algorithm>(message: String) -> Error {
    Error::argument(A::NAME, format!("the state does not match: {message}"))
}

impl<A: Algorithm> Optimizer for Grouped<A> {
    fn step(&mut self) -> Result<()> {
        // Counts and averages are state of the optimizer, which no graph sees.
        capture::leave("an optimizer's step")?;
        no_grad(|| self.groups.iter_mut().try_for_each(Group::step))
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.groups.iter().flat_map(|g| g.params.iter().cloned()).collect()
    }

    fn groups(&self) -> usize {
        self.groups.len()
    }

    fn lr(&self, group: usize) -> f64 {
        self.groups[group].options.lr()
    }

    fn set_lr(&mut self, group: usize, lr: f64) {
        self.groups[group].options.set_lr(lr);
    }

    fn momentum(&self, group: usize) -> Option<f64> {
        self.groups[group].options.momentum()
    }

    fn set_momentum(&mut self, group: usize, momentum: f64) {
        self.groups[group].options.set_momentum(momentum);
    }

    fn state_dict(&self) -> StateDict {
        let mut dict = StateDict::default();
        let mut first = 0;
        for g in &self.groups {
            let names = g.options.slots();
            for (k, state) in g.state.iter().enumerate() {
                let Some(s) = state else { continue };
                let mut tensors = IndexMap::new();
                if A::COUNTS {
                    tensors.insert("step".to_string(), s.step.clone());
                }
                let own = names.iter().zip(&s.slots).filter(|(slot, _)| slot.applies(&g.params[k]));
                tensors.extend(own.map(|(slot, t)| (slot.name.to_string(), t.clone())));
                if !tensors.is_empty() {
                    dict.state.insert(first + k, tensors);
                }
            }
            let params = (first..first + g.params.len()).collect();
            dict.param_groups.push(GroupDict { settings: g.options.settings(), params });
            first += g.params.len();
        }
        dict
    }

    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        let counts = |v: Vec<usize>| v.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let own: Vec<usize> = self.groups.iter().map(|g| g.params.len()).collect();
        let theirs: Vec<usize> = dict.param_groups.iter().map(|g| g.params.len()).collect();
        if own != theirs {
            let message = format!("expected groups of {} parameters, found {}", counts(own), counts(theirs));
            return Err(refused::<A>(message));
        }
        // Everything is checked and copied before anything changes.
        let mut ready = Vec::new();
        for (g, from) in self.groups.iter().zip(&dict.param_groups) {
            let mut options = g.options.clone();
            options.load_settings(&from.settings)?;
            options.validate()?;
            let states = g.params.iter().zip(&from.params).map(|(p, at)| match dict.state.get(at) {
                None => Ok(None),
                Some(tensors) => load_state(&options, p, *at, tensors).map(Some),
            });
            let states = states.collect::<Result<Vec<_>>>()?;
            ready.push((options, states));
        }
        for (g, (options, state)) in self.groups.iter_mut().zip(ready) {
            (g.options, g.state) = (options, state);
        }
        Ok(())
    }
}

fn load_state<A: Algorithm>(options: &A, p: &Tensor, at: usize, from: &IndexMap<String, Tensor>) -> Result<State> {
    let slots = options.slots().into_iter().map(|slot| {
        let start = slot.start(p)?;
        let Some(t) = from.get(slot.name) else { return Ok(start) };
        if t.shape() != start.shape() {
            let (expected, found) = (start.shape(), t.shape());
            let message = format!("expected `{}` of parameter {at} of shape {expected:?}, found {found:?}", slot.name);
            return Err(refused::<A>(message));
        }
        t.try_to_dtype(start.dtype())?.detach().try_deep_copy()
    });
    let slots = slots.collect::<Result<Vec<_>>>()?;
    let count = match from.get("step") {
        Some(t) => t.try_to_dtype(DType::F32)?.try_item::<f32>()?,
        // A rule that does not count has seen a step as soon as it has state.
        None => 1.0,
    };
    Ok(State { step: Tensor::scalar(count), slots })
}
