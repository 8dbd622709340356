//! L-BFGS: a quasi-Newton step from the last few changes of parameters and gradients.
//!
//! A step evaluates the loss several times, so it needs a closure ([`Optimizer::step_with`]). All parameters form one
//! vector and one group. State is saved under position 0 with PyTorch's names; lists get a number each (`old_dirs.0`).

use super::grouped::IntoParams;
use super::line_search::{Point, strong_wolfe};
use super::state_dict::{SettingValue, load};
use super::{GroupDict, Optimizer, Setting, Settings, StateDict};
use firebrand_core::autograd::{enable_grad, no_grad};
use firebrand_core::{DType, Error, Result, Tensor, capture, ops};
use indexmap::IndexMap;
use std::collections::VecDeque;

const NAME: &str = "LBFGS";

/// Line search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineSearch {
    /// None: the step length is the learning rate.
    #[default]
    Fixed,
    /// Strong Wolfe conditions.
    StrongWolfe,
}

/// Settings of [`LBFGS`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct LBFGSOptions {
    /// Learning rate.
    pub lr: f64,
    /// Iterations per step.
    pub max_iter: usize,
    /// Loss evaluations per step; 1.25 · `max_iter` if not given.
    pub max_eval: Option<usize>,
    /// Stop when no gradient element is larger.
    pub tolerance_grad: f64,
    /// Stop when loss and parameters change less.
    pub tolerance_change: f64,
    /// History size.
    pub history_size: usize,
    /// Line search.
    pub line_search: LineSearch,
}

impl Default for LBFGSOptions {
    fn default() -> LBFGSOptions {
        LBFGSOptions {
            lr: 1.0,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            line_search: LineSearch::Fixed,
        }
    }
}

/// A remembered change: of the gradient, of the parameters, and one over their product.
struct Change {
    grad: Tensor,
    step: Tensor,
    ro: f64,
}

/// What is known after the first iteration.
struct Memory {
    direction: Tensor,
    t: f64,
    scale: f64,
    grad: Tensor,
    loss: f64,
}

/// The L-BFGS optimizer.
pub struct LBFGS {
    params: Vec<Tensor>,
    options: LBFGSOptions,
    changes: VecDeque<Change>,
    memory: Option<Memory>,
    iterations: usize,
    evaluations: usize,
}

fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    Ok(ops::item(&ops::dot(a, b)?)?.to_f64())
}

fn largest(t: &Tensor) -> Result<f64> {
    Ok(ops::item(&ops::max(&ops::abs(t)?)?)?.to_f64())
}

impl LBFGS {
    /// Creates it for these parameters, all of one dtype.
    pub fn new(params: impl IntoParams, options: LBFGSOptions) -> Result<LBFGS> {
        let params = params.into_params();
        let Some(first) = params.first() else {
            return Err(Error::argument(NAME, "expected at least one parameter, found an empty list"));
        };
        if params.iter().any(|p| p.dtype() != first.dtype()) {
            return Err(Error::argument(NAME, "expected parameters of one dtype"));
        }
        Ok(LBFGS { params, options, changes: VecDeque::new(), memory: None, iterations: 0, evaluations: 0 })
    }

    /// All gradients as one vector; missing ones are zero.
    fn flat_grad(&self) -> Result<Tensor> {
        let flat = |p: &Tensor| {
            let g = p.grad().map_or_else(|| ops::zeros_like(p, None, None, None), |g| Ok(g.detach()))?;
            ops::reshape(&g, &[(-1i64).into()])
        };
        ops::cat(&self.params.iter().map(flat).collect::<Result<Vec<_>>>()?, 0)
    }

    /// Parameters += t * direction.
    fn walk(&self, t: f64, direction: &Tensor) -> Result<()> {
        let sizes: Vec<_> = self.params.iter().map(|p| p.numel().into()).collect();
        for (p, d) in self.params.iter().zip(ops::split_with_sizes(direction, &sizes, 0)?) {
            ops::add_(p, &ops::view_as(&d, p)?, t.into())?;
        }
        Ok(())
    }

    fn restore(&self, values: &[Tensor]) -> Result<()> {
        ops::foreach_copy_(&self.params, values, false)
    }

    fn evaluate(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<(Tensor, f64, Tensor)> {
        let loss = enable_grad(closure)?;
        self.evaluations += 1;
        let value = ops::item(&loss)?.to_f64();
        Ok((loss, value, self.flat_grad()?))
    }

    /// The direction from the remembered changes: the inverse Hessian's estimate times the negative gradient.
    fn direction(&self, grad: &Tensor, scale: f64) -> Result<Tensor> {
        let q = ops::neg(grad)?;
        let mut shares = Vec::with_capacity(self.changes.len());
        for c in self.changes.iter().rev() {
            let share = dot(&c.step, &q)? * c.ro;
            ops::add_(&q, &c.grad, (-share).into())?;
            shares.push(share);
        }
        ops::mul_scalar_(&q, scale.into())?;
        for (c, share) in self.changes.iter().zip(shares.iter().rev()) {
            let back = dot(&c.grad, &q)? * c.ro;
            ops::add_(&q, &c.step, (share - back).into())?;
        }
        Ok(q)
    }

    /// Remembers the last change, if the curvature along it was positive; the new scale of the estimate.
    fn remember(&mut self, m: &Memory, grad: &Tensor) -> Result<f64> {
        let y = ops::sub(grad, &m.grad, 1.into())?;
        let s = ops::mul_scalar(&m.direction, m.t.into())?;
        let ys = dot(&y, &s)?;
        if ys <= 1e-10 {
            return Ok(m.scale);
        }
        if self.changes.len() == self.options.history_size {
            self.changes.pop_front();
        }
        let scale = ys / dot(&y, &y)?;
        self.changes.push_back(Change { grad: y, step: s, ro: 1.0 / ys });
        Ok(scale)
    }

    fn run(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        let o = self.options;
        let max_eval = o.max_eval.unwrap_or(o.max_iter * 5 / 4);
        let evaluations_before = self.evaluations;
        let (first_loss, mut loss, mut grad) = self.evaluate(closure)?;
        if largest(&grad)? <= o.tolerance_grad {
            return Ok(first_loss);
        }
        for iteration in 1..=o.max_iter {
            self.iterations += 1;
            let (direction, scale, mut t) = match self.memory.take() {
                None => {
                    let sum = ops::item(&ops::sum(&ops::abs(&grad)?, None)?)?.to_f64();
                    (ops::neg(&grad)?, 1.0, (1.0f64).min(1.0 / sum) * o.lr)
                }
                Some(m) => {
                    let scale = self.remember(&m, &grad)?;
                    (self.direction(&grad, scale)?, scale, o.lr)
                }
            };
            let (last_grad, last_loss) = (ops::clone(&grad, None)?, loss);
            let slope = dot(&grad, &direction)?;
            let keep = |t| Memory { direction: direction.clone(), t, scale, grad: last_grad.clone(), loss: last_loss };
            if slope > -o.tolerance_change {
                self.memory = Some(keep(t));
                break;
            }
            match o.line_search {
                LineSearch::StrongWolfe => {
                    let here = self.params.iter().map(|p| ops::clone(p, None)).collect::<Result<Vec<_>>>()?;
                    let start = Point { t: 0.0, loss, grad: grad.clone(), slope };
                    let reach = largest(&direction)?;
                    let (found, _) = strong_wolfe(start, t, reach, o.tolerance_change, &mut |t| {
                        self.walk(t, &direction)?;
                        let (_, loss, grad) = self.evaluate(closure)?;
                        self.restore(&here)?;
                        let slope = dot(&grad, &direction)?;
                        Ok(Point { t, loss, grad, slope })
                    })?;
                    (t, loss, grad) = (found.t, found.loss, found.grad);
                    self.walk(t, &direction)?;
                }
                LineSearch::Fixed => {
                    self.walk(t, &direction)?;
                    // The last gradient of a step would not be used.
                    if iteration < o.max_iter {
                        (_, loss, grad) = self.evaluate(closure)?;
                    }
                }
            }
            self.memory = Some(keep(t));
            if self.evaluations - evaluations_before >= max_eval
                || largest(&grad)? <= o.tolerance_grad
                || largest(&direction)? * t.abs() <= o.tolerance_change
                || (loss - last_loss).abs() < o.tolerance_change
            {
                break;
            }
        }
        Ok(first_loss)
    }
}

impl Optimizer for LBFGS {
    fn step(&mut self) -> Result<()> {
        Err(Error::argument(NAME, "a step evaluates the loss several times; call step_with and give it a closure"))
    }

    fn step_with(&mut self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        // Counts and averages are state of the optimizer, which no graph sees.
        capture::leave("an optimizer's step")?;
        no_grad(|| self.run(closure))
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.params.clone()
    }

    fn groups(&self) -> usize {
        1
    }

    fn lr(&self, _group: usize) -> f64 {
        self.options.lr
    }

    fn set_lr(&mut self, _group: usize, lr: f64) {
        self.options.lr = lr;
    }

    fn momentum(&self, _group: usize) -> Option<f64> {
        None
    }

    fn set_momentum(&mut self, _group: usize, _momentum: f64) {}

    fn state_dict(&self) -> StateDict {
        let o = &self.options;
        let search = match o.line_search {
            LineSearch::Fixed => Setting::None,
            LineSearch::StrongWolfe => Setting::Text("strong_wolfe".into()),
        };
        let settings: Settings = [
            ("lr", o.lr.to_setting()),
            ("max_iter", o.max_iter.to_setting()),
            ("max_eval", o.max_eval.map_or(Setting::None, |n| n.to_setting())),
            ("tolerance_grad", o.tolerance_grad.to_setting()),
            ("tolerance_change", o.tolerance_change.to_setting()),
            ("history_size", o.history_size.to_setting()),
            ("line_search_fn", search),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_string(), v))
        .collect();
        let mut state: IndexMap<String, Tensor> = IndexMap::new();
        let mut put = |name: String, t: Tensor| state.insert(name, t);
        put("n_iter".into(), Tensor::scalar(self.iterations as i64));
        put("func_evals".into(), Tensor::scalar(self.evaluations as i64));
        if let Some(m) = &self.memory {
            put("d".into(), m.direction.clone());
            put("t".into(), Tensor::scalar(m.t));
            put("H_diag".into(), Tensor::scalar(m.scale));
            put("prev_flat_grad".into(), m.grad.clone());
            put("prev_loss".into(), Tensor::scalar(m.loss));
        }
        for (k, c) in self.changes.iter().enumerate() {
            put(format!("old_dirs.{k}"), c.grad.clone());
            put(format!("old_stps.{k}"), c.step.clone());
            put(format!("ro.{k}"), Tensor::scalar(c.ro));
        }
        let group = GroupDict { settings, params: (0..self.params.len()).collect() };
        StateDict { state: [(0, state)].into_iter().collect(), param_groups: vec![group] }
    }

    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        let [group] = &dict.param_groups[..] else {
            return Err(Error::argument(NAME, "the state does not match: expected one group"));
        };
        if group.params.len() != self.params.len() {
            return Err(Error::argument(NAME, "the state does not match: the number of parameters differs"));
        }
        let mut o = self.options;
        load(&group.settings, "lr", &mut o.lr)?;
        load(&group.settings, "max_iter", &mut o.max_iter)?;
        load(&group.settings, "tolerance_grad", &mut o.tolerance_grad)?;
        load(&group.settings, "tolerance_change", &mut o.tolerance_change)?;
        load(&group.settings, "history_size", &mut o.history_size)?;
        o.max_eval = group.settings.get("max_eval").and_then(usize::from_setting);
        o.line_search = match group.settings.get("line_search_fn") {
            Some(Setting::Text(name)) if name == "strong_wolfe" => LineSearch::StrongWolfe,
            _ => LineSearch::Fixed,
        };
        let none = IndexMap::new();
        let state = dict.state.get(&0).unwrap_or(&none);
        let numel: usize = self.params.iter().map(Tensor::numel).sum();
        let vector = |name: &str| -> Result<Option<Tensor>> {
            let Some(t) = state.get(name) else { return Ok(None) };
            if t.shape() != [numel] {
                let message =
                    format!("the state does not match: `{name}` has shape {:?}, expected [{numel}]", t.shape());
                return Err(Error::argument(NAME, message));
            }
            Ok(Some(t.detach().try_to_dtype(self.params[0].dtype())?.try_deep_copy()?))
        };
        let number = |name: &str| -> Result<f64> {
            state.get(name).map_or(Ok(0.0), |t| t.try_to_dtype(DType::F64)?.try_item::<f64>())
        };
        let memory = match (vector("d")?, vector("prev_flat_grad")?) {
            (Some(direction), Some(grad)) => {
                Some(Memory { direction, grad, t: number("t")?, scale: number("H_diag")?, loss: number("prev_loss")? })
            }
            _ => None,
        };
        let mut changes = VecDeque::new();
        while let (Some(grad), Some(step)) =
            (vector(&format!("old_dirs.{}", changes.len()))?, vector(&format!("old_stps.{}", changes.len()))?)
        {
            let ro = number(&format!("ro.{}", changes.len()))?;
            changes.push_back(Change { grad, step, ro });
        }
        (self.iterations, self.evaluations) = (number("n_iter")? as usize, number("func_evals")? as usize);
        (self.options, self.memory, self.changes) = (o, memory, changes);
        Ok(())
    }
}
