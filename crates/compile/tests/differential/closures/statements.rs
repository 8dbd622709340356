//! Runs the statements of a random closure: values, functions, scopes and transforms. Hooks are in `hooks`.

use super::program::{Outside, Program, Statement, Statement::*};
use super::{Log, OWN_ERROR};
use firebrand_compile::{Backend, Options, Shared, compile_with, graph_break};
use firebrand_core::autograd::{
    BackwardOptions, CheckpointOptions, CheckpointPolicy, Context, Function, GradOptions, RemovableHandle,
    SelectiveContext, ViewReplay, autocast, checkpoint, create_selective_checkpoint_contexts, dual_level,
    enforce_grad_layout_policy, grad, inference_mode, make_dual, no_grad, saved_tensors_hooks, set_fwd_grad_enabled,
    set_grad_enabled, set_multithreading_enabled, unpack_dual,
};
use firebrand_core::capture::real;
use firebrand_core::dispatch::{Op, Value};
use firebrand_core::module::{Buffer, Forward, Module as _};
use firebrand_core::{DType, Error, Number, Result, Tensor, TensorOptions, func, set_default_dtype};
use firebrand_graph::cond;
use firebrand_nn::layers::Dropout;
use std::sync::Arc;

/// `x * n / (n + 1)` for a vector of `n`, with a derivative that says so in another way.
struct BySizes;

impl Function for BySizes {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        let n = inputs[0].numel() as f64;
        Ok(vec![&inputs[0] * (n / (n + 1.0))])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let n = ctx.saved_tensors()?[0].as_ref().map_or(0.0, |t| t.numel() as f64);
        Ok(vec![grads[0].as_ref().map(|g| g * n / (n + 1.0))])
    }
    fn jvp(&self, ctx: &Context, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let _ = ctx;
        Ok(vec![tangents[0].as_ref().map(|t| t * (t.numel() as f64 / (t.numel() as f64 + 1.0)))])
    }
    fn setup_context(&self, ctx: &mut Context, inputs: &[Tensor], _: &[Tensor]) -> Result<()> {
        ctx.save_for_backward(&[Some(&inputs[0])]);
        Ok(())
    }
}

/// Product and sine, which says which gradients arrive.
struct Two(Log, usize);

impl Function for Two {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.set_materialize_grads(false);
        ctx.save_for_backward(&[Some(&inputs[0]), Some(&inputs[1])]);
        Ok(vec![&inputs[0] * &inputs[1], inputs[1].sin()])
    }
    fn backward(&self, ctx: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        grads.iter().for_each(|g| self.0.see(format!("{} two", self.1), g.as_ref()));
        let saved = ctx.saved_tensors()?;
        let (Some(a), Some(b)) = (&saved[0], &saved[1]) else { return Ok(vec![None, None]) };
        let of_product = grads[0].as_ref().map(|g| (g * b, g * a));
        let of_sine = grads[1].as_ref().map(|g| g * b.cos());
        let (first, second) = of_product.map_or((None, None), |(a, b)| (Some(a), Some(b)));
        let second = match (second, of_sine) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        Ok(vec![first, second])
    }
}

/// Doubles its operand in place.
struct Doubling;

impl Function for Doubling {
    fn forward(&self, ctx: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        inputs[0].try_mul_scalar_(2.0)?;
        ctx.mark_dirty(&[&inputs[0]]);
        Ok(vec![inputs[0].clone()])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads[0].as_ref().map(|g| g * 2.0)])
    }
}

/// Its operand, a view of it, and a product.
struct AsIs;

impl Function for AsIs {
    fn forward(&self, _: &mut Context, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone(), inputs[0].try_view([-1i64])?, inputs[0].try_mul_scalar(2.0)?])
    }
    fn backward(&self, _: &Context, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads.iter().flatten().cloned().reduce(|a, b| a + b)])
    }
}

/// What a function has captured, for all its calls.
pub(super) struct World {
    pub(super) leaf: Tensor,
    pub(super) plain: Tensor,
    pub(super) buffer: Buffer,
    weight: Tensor,
    module: Dropout,
    /// Another function, compiled if this one is.
    inner: Inner,
}

type Inner = Box<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;

impl World {
    pub(super) fn new(backend: Option<&Arc<dyn Backend>>) -> World {
        let body = |t: &Tensor| -> Result<Tensor> {
            let t = t.try_sin()?;
            graph_break();
            t.try_mul_scalar(1.5)?.try_tanh()
        };
        let inner: Inner = match backend {
            None => Box::new(body),
            Some(backend) => {
                let compiled = compile_with(body, Options::with_backend(backend.clone()));
                Box::new(move |t| compiled.try_call(t).map_err(|e| Error::user(e.to_string())))
            }
        };
        let leaf = Tensor::new(&[0.7]).requires_grad_();
        let weight = Tensor::new(&[[0.3f32, -0.7], [1.1, 0.4]]).requires_grad_();
        let buffer = Buffer::new(Tensor::new(&[0.2]));
        World { leaf, plain: Tensor::new(&[1.3]), buffer, weight, module: Dropout::new(0.5), inner }
    }
}

/// Takes back what a program has switched.
pub(super) fn switch_back() {
    set_grad_enabled(true);
    set_default_dtype(DType::F32);
}

/// Tensors, a cell, a number, and the handle of a hook of the caller's.
pub(super) type Arguments = (Tensor, Tensor, Tensor, Shared<Tensor>, Number, RemovableHandle);

/// A run of a program.
pub(super) struct Frame<'a> {
    pub(super) program: &'a Program,
    pub(super) world: &'a World,
    pub(super) log: &'a Log,
    pub(super) arguments: [Tensor; 3],
    pub(super) cell: &'a Shared<Tensor>,
    pub(super) number: &'a Number,
    pub(super) given: &'a RemovableHandle,
    pub(super) values: Vec<Tensor>,
    pub(super) handles: Vec<RemovableHandle>,
}

/// Runs the statements.
pub(super) fn run(program: &Program, world: &World, given: &Arguments, log: &Log) -> Result<Vec<Tensor>> {
    let (x, y, w, cell, number, given) = given;
    let arguments = [x.clone(), y.clone(), w.clone()];
    let values = arguments.to_vec();
    let mut frame = Frame { program, world, log, arguments, cell, number, given, values, handles: Vec::new() };
    for (k, s) in program.statements.iter().enumerate() {
        frame.step(k, *s)?;
    }
    let values = &frame.values;
    Ok(program.results.iter().map(|&i| values[i % values.len()].clone()).collect())
}

impl Frame<'_> {
    pub(super) fn value(&self, i: usize) -> Tensor {
        self.values[i % self.values.len()].clone()
    }

    pub(super) fn logged(&self, k: usize, name: &str) -> impl Fn(Option<&Tensor>) + Send + Sync + Clone + 'static {
        let (log, name) = (self.log.clone(), format!("{k} {name}"));
        move |g: Option<&Tensor>| log.see(name.clone(), g)
    }

    fn step(&mut self, k: usize, s: Statement) -> Result<()> {
        match self.computed(s)? {
            Some(t) => self.values.push(t),
            None => {
                self.scope(k, s)?;
                self.transform(s)?;
                self.hook(k, s)?;
            }
        }
        Ok(())
    }

    /// The value that a statement gives.
    fn computed(&self, s: Statement) -> Result<Option<Tensor>> {
        let v = |i: usize| self.value(i);
        Ok(Some(match s {
            Unary(op, a) => match op {
                0 => v(a).try_sin()?,
                1 => v(a).try_tanh()?,
                2 => v(a).try_neg()?,
                3 => v(a).try_cos()?,
                _ => v(a).try_mul_scalar(1.5)?,
            },
            Binary(op, a, b) => match op {
                0 => v(a).try_add(&v(b))?,
                1 => v(a).try_sub(&v(b))?,
                _ => v(a).try_mul(&v(b))?.try_tanh()?,
            },
            Spread(a) => v(a).try_add(&v(a).try_sum()?)?.try_sin()?,
            Detach(a) => v(a).detach(),
            Tail(a) => {
                let t = v(a);
                let tail = t.slice(0, Some(1.into()), None, 1);
                tail.clone().try_sum()?.try_add(&t)?.try_tanh()?
            }
            View(a) => v(a).try_view([-1i64])?,
            LooseView(a) => no_grad(|| v(a).try_view([-1i64]))?,
            ViewOfViews(kind, a) => {
                let t = v(a);
                match kind {
                    0 => t.try_unsqueeze(0)?.try_select(0, 0)?,
                    1 => t.unsqueeze(0).expand([2.into(), t.size(0)]).try_select(0, 1)?,
                    _ => t.slice(0, Some(0.into()), None, 1),
                }
            }
            Matrix(a, b) => {
                let (column, row) = (v(a).unsqueeze(1), v(b).unsqueeze(0));
                column.try_matmul(&row)?.sum_dim(0, false).try_tanh()?
            }
            Cond(a, b) => {
                let pred = v(a).detach().try_sum()?.gt_scalar(0.2);
                let yes = |x: &[Tensor]| Ok(vec![x[0].try_mul(&x[1])?.try_sin()?]);
                let no = |x: &[Tensor]| Ok(vec![x[0].try_tanh()?]);
                cond(&pred, yes, no, &[&v(a), &v(b)])?.remove(0)
            }
            Dropout(a) => firebrand_core::ops::dropout(&v(a), 0.5, true)?,
            BySize(op, a) => {
                let t = v(a);
                let n = t.size(0);
                match op {
                    0 => (&t * n).try_sin()?,
                    1 => t.reshape([n, 1.into()]).expand([n, n]).sum_dim(1, false).try_tanh()?,
                    2 => (&t + n).try_sin()?,
                    3 => (&t / (n * 2 + 1)).try_cos()?,
                    _ if n > 3 => &t * 2.0,
                    _ => &t * 0.5,
                }
            }
            ByNumber(op, a) => match op {
                0 => v(a).try_mul(self.number.tensor())?.try_sin()?,
                _ if self.number.value().to_f64() > 2.0 => v(a).try_mul_scalar(0.5)?,
                _ => v(a).try_tanh()?,
            },
            WhereNothingIsRecorded(a) => no_grad(|| v(a).try_sin()?.try_mul_scalar(2.0))?,
            NewLeaf(a) => {
                let leaf = v(a).detach().try_requires_grad_(true)?;
                self.log.leaves.lock().unwrap().push(real(&leaf));
                leaf
            }
            Made(a) => {
                let made = Tensor::new(&[0.5, -1.5]);
                v(a).try_mul(&made.try_sum()?)?
            }
            Custom(a) => BySizes.apply(&[&v(a)])?.remove(0),
            CustomBySize(a) => {
                let t = BySizes.apply(&[&v(a)])?.remove(0);
                let n = t.size(0);
                (t.reshape([1.into(), n]).expand([n, n]) / (n + 1)).sum_dim(0, false).try_tanh()?
            }
            Ask(kind, a, b) => {
                let (t, other) = (v(a), v(b));
                let yes = match kind {
                    0 => t.is_leaf(),
                    1 => t.is_view(),
                    2 => t.shares_storage(&other),
                    3 => t.storage_offset() > 0,
                    4 => t.retains_grad(),
                    5 => t.is_inference(),
                    6 => t.is_same(&other),
                    _ => t.strides() == [1],
                };
                if yes { t.try_sin()? } else { t.try_mul_scalar(0.5)? }
            }
            Refused(a, b) => match v(a).try_mul(&Tensor::new(&[1.0, 2.0, 3.0])) {
                Ok(t) => v(b).try_mul(&t.try_sum()?)?.try_tanh()?,
                Err(_) => v(b).try_cos()?,
            },
            Masked(a) => {
                let t = v(a);
                let some = t.try_masked_select(&t.gt_scalar(0.0))?;
                t.try_mul(&some.try_sum()?)?.try_tanh()? * some.size(0)
            }
            Inference(a, b) => {
                let made = inference_mode(|| v(b).detach().try_cos())?;
                v(a).try_add(&made.try_clone_tensor()?)?
            }
            Autocast(a, breaks) => {
                let t = v(a).detach().try_mean()?.try_to_dtype(DType::F32)?;
                let by = self.world.weight.detach().try_requires_grad_(true)?;
                let rows = t.expand([2i64, 2]);
                let y = autocast(DType::BF16, || -> Result<Tensor> {
                    let y = rows.try_matmul(&by)?;
                    if breaks {
                        graph_break();
                    }
                    y.try_matmul(&by)
                })?;
                v(a).try_mul(&y.try_to_dtype(DType::F64)?.try_mean()?)?.try_tanh()?
            }
            Captured(kind, a) => v(a).try_mul([&self.world.leaf, &self.world.plain][kind])?.try_sin()?,
            Compiled(a) => (self.world.inner)(&v(a))?,
            Pieces(kind, a) => {
                let t = v(a);
                let mut pieces = match kind {
                    0 => t.try_unbind(0)?,
                    1 => t.try_split(2, 0)?,
                    2 => t.try_chunk(2, 0)?,
                    _ => t.try_tensor_split(2, 0)?,
                };
                let last = pieces.pop().ok_or_else(|| Error::user("no pieces"))?;
                t.try_mul(&last.try_sum()?)?.try_tanh()? * pieces.len() as f64
            }
            InScope(kind, a) => {
                let _threads = (kind == 0).then(|| set_multithreading_enabled(false));
                let _forward = (kind == 1).then(|| set_fwd_grad_enabled(false));
                let _replay = (kind == 2).then(|| ViewReplay::new(true));
                let _layout = (kind == 3).then(|| enforce_grad_layout_policy(false));
                v(a).try_view([-1i64])?.try_sin()?
            }
            OfDefaultDtype(a) => {
                let third = Tensor::full([1], 1.0 / 3.0, TensorOptions::default());
                v(a).try_mul(&third.try_to_dtype(DType::F64)?)?
            }
            _ => return Ok(None),
        }))
    }

    /// Writes, functions and scopes.
    fn scope(&mut self, k: usize, s: Statement) -> Result<()> {
        let is_free = |t: &Tensor| !t.requires_grad() || !t.is_leaf();
        let of_pass = self.program.outside.accumulates();
        match s {
            Write(op, a) => {
                let t = self.value(a);
                match op {
                    _ if !is_free(&t) => no_grad(|| t.try_mul_scalar_(1.25).map(drop))?,
                    0 => drop(t.try_add_scalar_(0.5, 1)?),
                    1 => drop(t.try_mul_scalar_(0.75)?),
                    2 => drop(t.try_sin_()?),
                    _ => no_grad(|| t.try_add_scalar_(0.25, 1).map(drop))?,
                }
            }
            WriteSlice(a) if is_free(&self.value(a)) => {
                self.value(a).slice(0, Some(1.into()), None, 1).try_mul_scalar_(0.5)?;
            }
            WriteValue(a, b) if is_free(&self.value(a)) => drop(self.value(a).try_mul_(&self.value(b).try_cos()?)?),
            CustomTwo(a, b) if self.program.outside.is_plain() => {
                let results = Two(self.log.clone(), k).apply(&[&self.value(a), &self.value(b)])?;
                self.values.extend(results);
            }
            CustomWriting(a) if self.program.outside.is_plain() => {
                let t = self.value(a).try_mul_scalar(1.0)?;
                self.values.push(Doubling.apply(&[&t])?.remove(0));
            }
            Checkpoint(a, reentrant) if !reentrant || of_pass => {
                let options = CheckpointOptions { use_reentrant: Some(reentrant), ..CheckpointOptions::default() };
                let body = |i: &[Tensor]| {
                    let t = firebrand_core::ops::dropout(&i[0], 0.5, true)?;
                    Ok(vec![t.try_sin()?.try_mul(&i[0])?])
                };
                self.values.push(checkpoint(body, &[&self.value(a)], &options)?.remove(0));
            }
            CheckpointHolding(a, b) if of_pass => {
                let options = CheckpointOptions { use_reentrant: Some(b % 2 == 0), ..CheckpointOptions::default() };
                let held = self.value(b).detach();
                let body = move |i: &[Tensor]| Ok(vec![i[0].try_mul(&held)?.try_sin()?]);
                self.values.push(checkpoint(body, &[&self.value(a)], &options)?.remove(0));
            }
            CheckpointWithHook(a, reentrant) if of_pass => {
                let options = CheckpointOptions { use_reentrant: Some(reentrant), ..CheckpointOptions::default() };
                let see = self.logged(k, "in a checkpoint");
                let body = move |i: &[Tensor]| {
                    let t = i[0].try_sin()?;
                    if t.requires_grad() {
                        let see = see.clone();
                        t.try_register_hook(move |g: &Tensor| {
                            see(Some(g));
                            g * 0.5
                        })?;
                    }
                    Ok(vec![t.try_mul(&i[0])?])
                };
                self.values.push(checkpoint(body, &[&self.value(a)], &options)?.remove(0));
            }
            SavedScope(a, b) if self.program.outside.is_plain() => {
                let see = self.logged(k, "packed");
                let pack = move |t: &Tensor| {
                    see(Some(t));
                    Ok(t.detach())
                };
                let _scope = saved_tensors_hooks(pack, |t: &Tensor| Ok(t.clone()))?;
                let t = self.value(a).try_mul(&self.value(b))?;
                self.values.push(t.try_tanh()?);
            }
            SavedScaled(a, b) if of_pass => {
                let (packed, unpacked) = (self.logged(k, "packed"), self.logged(k, "unpacked"));
                let pack = move |t: &Tensor| {
                    packed(Some(t));
                    Ok(t.detach() * 2.0)
                };
                let unpack = move |t: &Tensor| {
                    unpacked(Some(t));
                    Ok(t * 0.25)
                };
                let _scope = saved_tensors_hooks(pack, unpack)?;
                let t = self.value(a).try_sin()?.try_mul(&self.value(b))?;
                self.values.push(t);
            }
            CheckpointDrawing(a) if of_pass => {
                let options = CheckpointOptions {
                    use_reentrant: Some(false),
                    preserve_rng_state: false,
                    ..CheckpointOptions::default()
                };
                let body =
                    |i: &[Tensor]| Ok(vec![firebrand_core::ops::dropout(&i[0].try_sin()?, 0.5, true)?.try_exp()?]);
                self.values.push(checkpoint(body, &[&self.value(a)], &options)?.remove(0));
            }
            WriteData(a) if is_free(&self.value(a)) => drop(self.value(a).data().try_mul_scalar_(0.5)?),
            DetachInPlace(a) if is_free(&self.value(a)) && !self.value(a).is_view() => {
                self.value(a).try_detach_()?;
            }
            CheckpointWriting(a) if of_pass => {
                let held = self.world.plain.clone();
                let body = move |i: &[Tensor]| {
                    no_grad(|| held.try_mul_scalar_(0.5).map(drop))?;
                    Ok(vec![i[0].try_sin()?.try_mul(&held.try_mul_scalar(1.0)?)?])
                };
                self.values.push(checkpoint(body, &[&self.value(a)], &CheckpointOptions::default())?.remove(0));
            }
            CheckpointNested(a, breaks) if of_pass => {
                let see = self.logged(k, "in a checkpoint");
                let body = move |i: &[Tensor]| {
                    if breaks {
                        graph_break();
                    }
                    let t = i[0].try_sin()?;
                    if t.requires_grad() {
                        let see = see.clone();
                        t.try_register_hook(move |g: &Tensor| see(Some(g)))?;
                    }
                    let inner = |j: &[Tensor]| Ok(vec![j[0].try_cos()?.try_mul(&j[0])?]);
                    checkpoint(inner, &[&t], &CheckpointOptions::default())
                };
                self.values.push(checkpoint(body, &[&self.value(a)], &CheckpointOptions::default())?.remove(0));
            }
            CheckpointSelective(a) if of_pass => {
                let policy = |_: &SelectiveContext, op: Op, _: &[Value]| match op {
                    Op::SIN => CheckpointPolicy::Save,
                    _ => CheckpointPolicy::Recompute,
                };
                let context_fn = Some(create_selective_checkpoint_contexts(policy));
                let options = CheckpointOptions { context_fn, ..CheckpointOptions::default() };
                let body = |i: &[Tensor]| Ok(vec![i[0].try_sin()?.try_cos()?.try_sin()?]);
                self.values.push(checkpoint(body, &[&self.value(a)], &options)?.remove(0));
            }
            CustomAsIs(a) if self.program.outside.is_plain() => {
                self.values.extend(AsIs.apply(&[&self.value(a)])?);
            }
            Replaced(a) if self.program.outside.is_plain() => {
                let held = self.world.buffer.get();
                self.world.buffer.set(held.try_add(&self.value(a).detach().try_mean()?)?.try_tanh()?);
                self.values.push(self.value(a).try_mul(&self.world.buffer.get())?.try_sin()?);
            }
            BackwardInside(a, b) if of_pass => {
                let t = self.value(a);
                if t.requires_grad() {
                    let loss = t.try_sin()?.try_mul(&self.value(b))?.try_sum()?;
                    loss.try_backward(&BackwardOptions::retain_graph())?;
                }
            }
            WriteCaptured(a) if self.program.outside.is_plain() => {
                let by = self.value(a).detach().try_mean()?.try_cos()?;
                self.world.plain.try_mul_(&by)?;
            }
            Layer(a) if self.program.outside.is_plain() => self.values.push(self.world.module.forward(&self.value(a))?),
            Switch(kind) if self.program.outside.is_plain() => match kind {
                0 | 1 => self.world.module.set_training(kind == 0),
                2 => drop(set_grad_enabled(false)),
                _ => set_default_dtype(DType::F64),
            },
            Failing(kind) if self.arguments[0].size(0) == 5 => match kind {
                0 => panic!("{OWN_ERROR}"),
                _ => return Err(Error::user(OWN_ERROR)),
            },
            Cell(a) => {
                let t = self.cell.get().try_add(&self.value(a))?.try_tanh()?;
                self.cell.set(t.detach());
                self.values.push(t);
            }
            Break => graph_break(),
            Read(a) => {
                let first = self.value(a).detach().to_vec::<f64>().first().copied().unwrap_or(0.5);
                let last = self.values[self.values.len() - 1].clone();
                self.values.push(if first > 0.0 { last.try_sin()? } else { last.try_mul_scalar(0.5)? });
            }
            Look(a) if self.program.outside.is_plain() => {
                let t = self.value(a);
                // A compiled function that is called eagerly is a node of its own.
                let calls = self.program.statements.iter().any(|s| matches!(s, Compiled(_)));
                let name = t.grad_fn().map(|n| n.name().to_string()).filter(|_| !calls);
                self.log.say(format!("{k} {name:?} leaf {} version {}", t.is_leaf(), t.version()));
            }
            GradInside(a, b) if self.program.outside.is_plain() => {
                let (of, by) = (self.value(a), self.value(b));
                if of.requires_grad() && by.requires_grad() {
                    let options =
                        GradOptions { allow_unused: Some(true), create_graph: true, ..GradOptions::default() };
                    let found = grad(&of.try_mul(&of)?.try_sum()?, [by], &options)?;
                    self.values.extend(found.into_iter().flatten());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn transform(&mut self, s: Statement) -> Result<()> {
        let v = |i: usize| self.value(i);
        let made = match s {
            Grad(a, b) => {
                let held = v(b);
                func::grad(move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_sum())(&v(a))?
            }
            Jvp(a) => func::jvp(|t: &Tensor| t.try_sin(), &v(a), &v(a).detach())?.1,
            Vmap(a, b) => {
                let held = v(b).try_sum()?;
                func::vmap(move |t: &Tensor| t.try_mul(&held)?.try_tanh()).call(&v(a))?
            }
            Jacrev(a, b) => {
                let held = v(b);
                let rows = func::jacrev(move |t: &Tensor| t.try_mul(&held)?.try_sin())(&v(a))?;
                rows.sum_dim(0, false).try_tanh()?
            }
            Vjp(a, b) => {
                let (y, pull) = func::vjp(|t: &Tensor| t.try_sin()?.try_mul(t), &v(a))?;
                pull.call(&v(b))?.try_add(&pull.call(&y)?)?.try_tanh()?
            }
            Nested(kind, a, b) => {
                let held = v(b);
                let waves = move |t: &Tensor| t.try_mul(&held)?.try_sin()?.try_mul(t)?.try_sum();
                let t = v(a);
                match kind {
                    0 => func::jvp(func::grad(waves), &t, &v(b).detach())?.1.try_tanh()?,
                    1 => func::hessian(waves)(&t)?.sum_dim(0, false).try_tanh()?,
                    _ => {
                        let each = |t: &Tensor| t.try_sin()?.try_mul(t);
                        func::vmap(func::grad(each)).call(&t)?.try_tanh()?
                    }
                }
            }
            Dual(a) if self.program.outside != Outside::Jvp => {
                let t = v(a);
                let tangent = dual_level(|| -> Result<Option<Tensor>> {
                    let dual = make_dual(&t, &t.detach())?;
                    Ok(unpack_dual(&dual.try_tanh()?)?.1)
                })??;
                self.values.extend(tangent);
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.values.push(made);
        Ok(())
    }
}
