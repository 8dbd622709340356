//! Checks of function transforms: a mapped op against a loop, and pairs of transforms against the plain gradient.
//!
//! A batch has two samples: the row's tensors, and the same with every float halved (integers stay: they are often
//! positions). So a rule that mixes samples is seen.

use crate::call::{Call, Outcome, Place, flatten};
use crate::compare::{same_numbers, tolerance};
use crate::deviations::looks_at_numbers;
use crate::row::{Numbers, Row};
use firebrand_core::autograd::{GradOptions, grad as gradient, no_grad};
use firebrand_core::dispatch::{self, Op, Value};
use firebrand_core::{DType, Error, ErrorKind, Result, Tensor, func, ops};

fn failed(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// The tensors of a call, in order, and a way to put others in their places.
struct Slots<'a> {
    call: &'a Call,
    tensors: Vec<Tensor>,
    /// Written by the op.
    written: Vec<bool>,
}

impl<'a> Slots<'a> {
    fn of(call: &'a Call) -> Slots<'a> {
        let (mut tensors, mut written) = (Vec::new(), Vec::new());
        for (a, p) in call.args.iter().zip(call.op.schema().args) {
            let list: Vec<Tensor> = match a {
                Value::Tensor(t) => vec![t.clone()],
                Value::Tensors(list) => list.clone(),
                Value::OptTensors(list) => list.iter().flatten().cloned().collect(),
                _ => Vec::new(),
            };
            written.extend(list.iter().map(|_| p.written));
            tensors.extend(list);
        }
        Slots { call, tensors, written }
    }

    /// The tensor results of the op with other tensors; what it writes is copied first. An op without results is known
    /// by what it wrote.
    fn run(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut next = tensors.iter().zip(&self.written);
        let mut copies = Vec::new();
        let mut swap = || -> Result<Tensor> {
            match next.next() {
                Some((t, true)) => {
                    let copy = ops::clone(t, None)?;
                    copies.push(copy.clone());
                    Ok(copy)
                }
                Some((t, false)) => Ok(t.clone()),
                None => unreachable!("one tensor a slot"),
            }
        };
        let args = self.call.args.iter().map(|a| {
            Ok(match a {
                Value::Tensor(_) => Value::Tensor(swap()?),
                Value::Tensors(list) => Value::Tensors(list.iter().map(|_| swap()).collect::<Result<_>>()?),
                Value::OptTensors(list) => Value::OptTensors(
                    list.iter().map(|t| t.as_ref().map(|_| swap()).transpose()).collect::<Result<_>>()?,
                ),
                other => other.clone(),
            })
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        let out = flatten(dispatch::call(self.call.op, &args)?);
        if out.is_empty() {
            return Ok(copies);
        }
        Ok(out.into_iter().filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect())
    }

    /// Slots that may have a batch: plain numbers have none.
    fn open(&self) -> Vec<usize> {
        (0..self.tensors.len()).filter(|&k| !self.tensors[k].is_wrapped_number()).collect()
    }
}

/// The second sample of a tensor.
fn other(t: &Tensor) -> Result<Tensor> {
    if t.dtype().is_differentiable() { ops::mul_scalar(&t.detach(), 0.5.into()) } else { Ok(t.clone()) }
}

fn batch(t: &Tensor, dim: i64) -> Result<Tensor> {
    ops::stack(&[t.detach(), other(t)?], dim)
}

fn same(what: &str, found: &Tensor, expected: &Tensor) -> Outcome {
    if found.shape() != expected.shape() || found.dtype() != expected.dtype() {
        return Err(format!(
            "{what}: {} {:?}, expected {} {:?}",
            found.dtype(),
            found.shape(),
            expected.dtype(),
            expected.shape()
        ));
    }
    // Sums may run in another order.
    let tolerance = 10.0 * tolerance(expected.dtype());
    let want = if expected.is_complex() {
        Numbers::Complex(expected.try_to_vec().map_err(failed)?)
    } else if expected.is_floating_point() {
        Numbers::Floats(expected.try_to_vec().map_err(failed)?)
    } else {
        Numbers::Ints(expected.try_to_vec().map_err(failed)?)
    };
    same_numbers(found, &want, tolerance).map_err(|e| format!("{what}: {e}"))
}

/// Whether `vmap` says, by name, that it does not map this.
fn refused(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Vmap { .. } | ErrorKind::BatchedData { .. })
}

/// The first sample of every batch, in the batch's memory.
fn slices(args: &[Tensor], dims: &[Option<i64>]) -> Vec<Tensor> {
    args.iter().zip(dims).map(|(t, dim)| dim.map_or_else(|| t.clone(), |d| t.select(d, 0))).collect()
}

/// `vmap` of the op, with all tensors batched and with each alone, against a loop over the samples.
pub(crate) fn mapped(op: Op, row: &Row) -> Outcome {
    let call = Call::new(op, row, Place::AsListed, false)?;
    let slots = Slots::of(&call);
    let open = slots.open();
    let mut choices: Vec<(Vec<usize>, i64)> = vec![(open.clone(), 0), (open.clone(), -1)];
    if open.len() > 1 {
        choices.extend(open.iter().map(|&k| (vec![k], 0)));
    }
    // What is written must have the batch.
    choices.retain(|(chosen, _)| (0..slots.written.len()).all(|k| !slots.written[k] || chosen.contains(&k)));
    no_grad(|| {
        for (chosen, dim) in choices {
            let what = format!("batch in {chosen:?} at {dim}");
            let has = |k: usize| chosen.contains(&k);
            let args =
                slots.tensors.iter().enumerate().map(|(k, t)| if has(k) { batch(t, dim) } else { Ok(t.clone()) });
            let args = args.collect::<Result<Vec<_>>>().map_err(failed)?;
            let dims: Vec<Option<i64>> = (0..args.len()).map(|k| has(k).then_some(dim)).collect();
            let f = |ts: &Vec<Tensor>| slots.run(ts);
            let found = match func::vmap(f).in_dims(dims.clone()).call(&args) {
                Err(e) if looks_at_numbers(row) && refused(&e) => continue,
                // Views depend on strides: what the loop refuses of the samples as they lie in the batch, vmap refuses.
                Err(_) if slots.run(&slices(&args, &dims)).is_err() => continue,
                found => found.map_err(|e| format!("{what}: {e}"))?,
            };
            for sample in 0..2i64 {
                let cut = |(k, t): (usize, &Tensor)| match (has(k), sample) {
                    (true, 1) => other(t),
                    _ => Ok(t.clone()),
                };
                let one = slots.tensors.iter().enumerate().map(cut).collect::<Result<Vec<_>>>().map_err(failed)?;
                let expected = slots.run(&one).map_err(|e| format!("sample {sample}: {e}"))?;
                for (n, (f, e)) in found.iter().zip(&expected).enumerate() {
                    same(&format!("{what}, sample {sample}, result {n}"), &f.select(0, sample), e)?;
                }
            }
        }
        Ok(())
    })
}

/// The call with copies of what it writes, whatever level that is from.
fn copied(mut call: Call) -> Result<Call> {
    for (a, p) in call.args.iter_mut().zip(call.op.schema().args) {
        if let (Value::Tensor(t), true) = (&*a, p.written) {
            *a = ops::clone(t, None)?.into();
        }
    }
    Ok(call)
}

/// Σ seed·result, as a function of the tensors that require grad.
fn weighted<'a>(call: &'a Call, row: &'a Row) -> impl Fn(&Vec<Tensor>) -> Result<Tensor> + 'a {
    move |leaves| {
        let out = flatten(copied(call.with_leaves(leaves))?.run()?);
        let mut total = Tensor::scalar(0.0f64);
        for (v, seed) in out.into_iter().zip(&row.seeds) {
            if let (Value::Tensor(t), Some(seed)) = (v, seed) {
                let seed = seed.tensor(Place::AsListed).map_err(firebrand_core::Error::user)?;
                // Of complex numbers, what a real loss weighs by the seed's parts.
                let product = if seed.is_complex() { ops::real(&ops::mul(&t, &ops::conj(&seed)?)?)? } else { t * seed };
                total = total + product.sum();
            }
        }
        Ok(total)
    }
}

/// A batch of gradients pulled back in one run, against one run each.
pub(crate) fn batched_gradients(op: Op, row: &Row) -> Outcome {
    let call = Call::new(op, row, Place::AsListed, true)?;
    let run = || -> Outcome<Vec<(Tensor, Tensor)>> {
        let out = flatten(call.with_leaves(&call.leaves).own_written().map_err(failed)?.run().map_err(failed)?);
        crate::results::seeded(&out, row)
    };
    let (outputs, seeds): (Vec<Tensor>, Vec<Tensor>) = run()?.into_iter().unzip();
    let options = |seeds: Vec<Tensor>, is_grads_batched| GradOptions {
        grad_outputs: seeds.into_iter().map(Some).collect(),
        retain_graph: Some(true),
        allow_unused: Some(true),
        is_grads_batched,
        ..Default::default()
    };
    let stacked = seeds.iter().map(|s| batch(s, 0)).collect::<Result<_>>().map_err(failed)?;
    let found = gradient(&outputs[..], &call.leaves[..], &options(stacked, true)).map_err(failed)?;
    for sample in 0..2i64 {
        let one = seeds.iter().map(|s| if sample == 1 { other(s) } else { Ok(s.clone()) });
        let one = one.collect::<Result<_>>().map_err(failed)?;
        let expected = gradient(&outputs[..], &call.leaves[..], &options(one, false)).map_err(failed)?;
        for (k, (f, e)) in found.iter().zip(&expected).enumerate() {
            match (f, e) {
                (Some(f), Some(e)) => same(&format!("sample {sample}, gradient {k}"), &f.select(0, sample), e)?,
                (None, None) => {}
                _ => return Err(format!("gradient {k} exists in one of both only")),
            }
        }
    }
    Ok(())
}

fn dot(a: &[Tensor], b: &[Tensor]) -> Result<f64> {
    let mut total = 0.0;
    for (a, b) in a.iter().zip(b) {
        let (a, b) = match a.is_complex() {
            true => (ops::view_as_real(a)?, ops::view_as_real(b)?),
            false => (a.clone(), b.clone()),
        };
        total += (a.to_dtype(DType::F64) * b.to_dtype(DType::F64)).sum().try_item::<f64>()?;
    }
    Ok(total)
}

/// vmap of grad, grad of vmap, jvp of vmap and vmap of vmap of grad, all against the plain gradient of each sample.
pub(crate) fn pairs(op: Op, row: &Row) -> Outcome {
    let call = Call::new(op, row, Place::AsListed, true)?;
    let f = weighted(&call, row);
    let samples: Vec<Vec<Tensor>> = vec![
        call.leaves.iter().map(Tensor::detach).collect(),
        call.leaves.iter().map(other).collect::<Result<_>>().map_err(failed)?,
    ];
    let expected: Vec<Vec<Tensor>> =
        samples.iter().map(|x| func::grad(&f)(x)).collect::<Result<_>>().map_err(|e| format!("grad: {e}"))?;
    let stacked = |lists: &[Vec<Tensor>]| -> Result<Vec<Tensor>> {
        (0..call.leaves.len()).map(|k| ops::stack(&lists.iter().map(|l| l[k].clone()).collect::<Vec<_>>(), 0)).collect()
    };
    let (x, g) = (stacked(&samples).map_err(failed)?, stacked(&expected).map_err(failed)?);
    let compare = |what: &str, found: Result<Vec<Tensor>>, expected: &[Tensor]| -> Outcome {
        let found = match found {
            Err(e) if looks_at_numbers(row) && refused(&e) => return Ok(()),
            found => found.map_err(|e| format!("{what}: {e}"))?,
        };
        found.iter().zip(expected).enumerate().try_for_each(|(k, (f, e))| same(&format!("{what}, input {k}"), f, e))
    };
    compare("vmap of grad", func::vmap(func::grad(&f)).call(&x), &g)?;
    let total = |x: &Vec<Tensor>| -> Result<Tensor> { Ok(func::vmap(&f).call(x)?.sum()) };
    compare("grad of vmap", func::grad(total)(&x), &g)?;
    let twice = |x: &Vec<Tensor>| func::vmap(func::grad(&f)).call(x);
    let (xx, gg) =
        (stacked(&[x.clone(), x.clone()]).map_err(failed)?, stacked(&[g.clone(), g.clone()]).map_err(failed)?);
    compare("vmap of vmap of grad", func::vmap(twice).call(&xx), &gg)?;
    if row.has("no_forward_ad") {
        return Ok(());
    }
    let direction: Vec<Tensor> = x
        .iter()
        .map(|t| ops::add_scalar(&ops::mul_scalar(t, 0.3.into())?, 0.1.into(), 1i64.into()))
        .collect::<Result<_>>()
        .map_err(failed)?;
    let along = match func::jvp(total, &x, &direction) {
        Err(e) if looks_at_numbers(row) && refused(&e) => return Ok(()),
        along => along.map_err(|e| format!("jvp of vmap: {e}"))?.1,
    };
    let want = dot(&g, &direction).map_err(failed)?;
    let found: f64 = along.try_item().map_err(failed)?;
    if (found - want).abs() > 1e-8 * (1.0 + want.abs()) {
        return Err(format!("jvp of vmap: {found}, the gradients say {want}"));
    }
    Ok(())
}
