//! Checks of results: values, refusals, writing forms, shapes on the meta device, memory order, thread counts.

use crate::call::{Call, Outcome, Place, flatten};
use crate::compare::{bits, same_kind, same_numbers, same_results, same_tensor, tolerance};
use crate::deviations::writes;
use crate::in_place_form;
use crate::row::{Argument, Numbers, Row, TensorData};
use firebrand_core::autograd::{GradOptions, grad, no_grad};
use firebrand_core::dispatch::{Op, Value};
use firebrand_core::dtype::can_cast;
use firebrand_core::schema::Type;
use firebrand_core::{Device, Spec, Tensor, set_num_threads};
use std::sync::Mutex;

fn refused(e: impl std::fmt::Display) -> String {
    format!("refused: {e}")
}

/// Results, writes to other arguments, and nothing else written.
pub(crate) fn forward(op: Op, row: &Row, place: Place) -> Outcome {
    let call = Call::new(op, row, place, false)?;
    let schema = op.schema();
    let kept: Vec<(&Tensor, Vec<u64>, u32)> = call
        .args
        .iter()
        .zip(schema.args)
        .filter(|(_, p)| !p.written && !row.after.iter().any(|(name, _)| *name == p.name))
        .flat_map(|(a, _)| match a {
            Value::Tensor(t) => std::slice::from_ref(t),
            Value::Tensors(list) => list,
            _ => &[],
        })
        .map(|t| (t, bits(t), t.version()))
        .collect();
    let target = call.args.iter().zip(schema.args).find_map(|(a, p)| match a {
        Value::Tensor(t) if p.written && schema.returns_written => Some((t, t.version())),
        _ => None,
    });
    let out = flatten(no_grad(|| call.run()).map_err(refused)?);
    same_results(&out, &row.out)?;
    for (name, want) in &row.after {
        written(call.argument(name), want).map_err(|e| format!("{name} after the call: {e}"))?;
    }
    if kept.iter().any(|(t, before, version)| t.version() != *version || bits(t) != *before) {
        return Err("an argument was written to that the schema does not name".to_string());
    }
    match (target, out.first()) {
        (Some((t, before)), Some(Value::Tensor(r))) => written_once(op, t, r, before),
        _ => Ok(()),
    }
}

/// An argument that the op wrote to, against what it should hold now.
fn written(found: Option<&Value>, want: &Argument) -> Outcome {
    match (found, want) {
        (Some(Value::Tensor(t)), Argument::Tensor(want)) => same_tensor(t, want),
        (Some(Value::Tensors(list)), Argument::Tensors(wants)) if list.len() == wants.len() => {
            for (k, (t, want)) in list.iter().zip(wants).enumerate() {
                let want = want.as_ref().ok_or("a list of tensors has no gaps")?;
                same_tensor(t, want).map_err(|e| format!("at {k}: {e}"))?;
            }
            Ok(())
        }
        (found, want) => Err(format!("{found:?}, expected {want:?}")),
    }
}

fn written_once(op: Op, target: &Tensor, result: &Tensor, before: u32) -> Outcome {
    if !target.is_same(result) {
        return Err("the result is not the tensor written to".to_string());
    }
    let (found, expected) = (target.version() - before, writes(op.name()));
    match expected.contains(&found) {
        true => Ok(()),
        false => Err(format!("the version went up by {found}, expected {expected:?}")),
    }
}

/// The call is refused.
pub(crate) fn refusal(op: Op, row: &Row) -> Outcome {
    // What cannot even be expressed as arguments is refused as well.
    let Ok(call) = Call::new(op, row, Place::AsListed, false) else { return Ok(()) };
    match no_grad(|| call.run()) {
        Err(_) => Ok(()),
        Ok(out) => Err(format!("accepted, with result {:?}", flatten(out))),
    }
}

/// Shapes and dtypes without data.
pub(crate) fn meta(op: Op, row: &Row) -> Outcome {
    let call = Call::new(op, row, Place::Meta, false)?;
    let out = flatten(no_grad(|| call.run()).map_err(refused)?);
    if out.len() < row.out.len() {
        return Err(format!("{} results, expected {}", out.len(), row.out.len()));
    }
    for (k, (g, w)) in out.iter().zip(&row.out).enumerate() {
        match (g, w) {
            (Value::Tensor(t), Argument::Tensor(_)) if !t.is_meta() => {
                return Err(format!("result {k} is on {}", t.device()));
            }
            (Value::Tensor(t), Argument::Tensor(w)) => same_kind(t, w).map_err(|e| format!("result {k}: {e}"))?,
            (Value::None, Argument::None) => {}
            (Value::Tensor(t), Argument::None) if t.numel() == 0 => {}
            (g, w) => return Err(format!("result {k}: {g:?}, expected {w:?}")),
        }
    }
    Ok(())
}

/// What a tensor of this kind holds after the listed numbers were stored in it.
fn stored(want: &TensorData, dtype: firebrand_core::DType) -> Outcome<Option<Numbers>> {
    let Some(data) = &want.data else { return Ok(None) };
    let listed = TensorData { dtype, data: Some(data.clone()), strides: None, ..want.clone() };
    let t = listed.tensor(Place::AsListed)?;
    Ok(Some(match dtype {
        d if d.is_complex() => Numbers::Complex(t.to_vec()),
        d if d.is_floating_point() => Numbers::Floats(t.to_vec()),
        _ => Numbers::Ints(t.to_vec()),
    }))
}

/// `op_` does what `op` does, in the memory of its first argument; refuses what does not fit there.
pub(crate) fn inplace(op: Op, row: &Row) -> Outcome {
    let form = in_place_form(op).ok_or("no in-place form")?;
    let (Some(Argument::Tensor(target)), Some(Argument::Tensor(want))) = (row.args.first(), row.out.first()) else {
        return Err("the row has no tensor to write to".to_string());
    };
    let call = Call::new(form, row, Place::AsListed, false)?;
    let Some(Value::Tensor(self_)) = call.args.first() else { return Err("no tensor to write to".to_string()) };
    let before = self_.version();
    let result = no_grad(|| call.run());
    let fits = want.shape == target.shape && can_cast(want.dtype, target.dtype);
    if !fits || self_.layout().has_internal_overlap() {
        return match result {
            Err(_) => Ok(()),
            Ok(_) => Err("accepted a result that does not fit its target".to_string()),
        };
    }
    let out = flatten(result.map_err(refused)?);
    let Some(Value::Tensor(result)) = out.first() else { return Err("no tensor returned".to_string()) };
    if self_.dtype() != target.dtype || self_.shape() != target.shape {
        return Err(format!("the target became {self_:?}"));
    }
    if let Some(numbers) = stored(want, target.dtype)? {
        same_numbers(self_, &numbers, tolerance(target.dtype).max(tolerance(want.dtype)))?;
    }
    written_once(form, self_, result, before)?;
    if row.grads.is_some() && want.dtype == target.dtype {
        gradients(form, row, Place::AsListed).map_err(|e| format!("with gradients: {e}"))?;
    }
    Ok(())
}

/// `op(out=)` stores what `op` returns.
pub(crate) fn out(op: Op, row: &Row) -> Outcome {
    let form = op.info().out.ok_or("no out= form")?;
    let wants: Vec<&TensorData> =
        row.out.iter().filter_map(|w| if let Argument::Tensor(t) = w { Some(t) } else { None }).collect();
    // Results that rows do not list are taken for what the op itself returns.
    let returned = flatten(no_grad(|| Call::new(op, row, Place::AsListed, false)?.run().map_err(refused))?);
    let made: Vec<&Tensor> =
        returned.iter().filter_map(|v| if let Value::Tensor(t) = v { Some(t) } else { None }).collect();
    // Once with a fitting tensor, once with an empty one that takes any shape.
    for empty in [false, true] {
        let mut call = Call::new(op, row, Place::AsListed, false)?;
        let mut targets = Vec::new();
        let given = std::mem::take(&mut call.args);
        let target = |k: usize| {
            let made = made.get(k).ok_or("fewer results than out= arguments")?;
            let (shape, dtype) =
                wants.get(k).map_or((made.shape(), made.dtype()), |want| (&want.shape[..], want.dtype));
            let shape = if empty { &[0][..] } else { shape };
            Spec::new(shape, dtype, Device::Cpu).and_then(Tensor::try_empty).map_err(|e| e.to_string())
        };
        for p in form.schema().args {
            call.args.push(if p.written && p.ty == Type::Tensors {
                let list = (0..made.len()).map(target).collect::<Outcome<Vec<_>>>()?;
                targets.extend(list.iter().map(|t| (t.clone(), t.version())));
                Value::Tensors(list)
            } else if p.written {
                let t = target(targets.len())?;
                targets.push((t.clone(), t.version()));
                Value::Tensor(t)
            } else {
                op.schema().position(p.name).and_then(|k| given.get(k)).cloned().unwrap_or_default()
            });
        }
        call.op = form;
        let results = flatten(no_grad(|| call.run()).map_err(refused)?);
        for (k, ((t, before), want)) in targets.iter().zip(&wants).enumerate() {
            same_tensor(t, want).map_err(|e| format!("out {k}: {e}"))?;
            match results.get(k) {
                None if form.schema().returns.is_empty() => {}
                Some(Value::Tensor(r)) if r.is_same(t) => {}
                _ => return Err(format!("result {k} is not the tensor given as out")),
            }
            if t.version() == *before {
                return Err(format!("the version of out {k} did not go up"));
            }
        }
    }
    Ok(())
}

/// The tensors that have a cotangent, with it.
pub(crate) fn seeded(out: &[Value], row: &Row) -> Outcome<Vec<(Tensor, Tensor)>> {
    let mut pairs = Vec::new();
    for (k, (v, seed)) in out.iter().zip(&row.seeds).enumerate() {
        let Some(seed) = seed else { continue };
        match v {
            Value::Tensor(t) => pairs.push((t.clone(), seed.tensor(Place::AsListed)?)),
            other => return Err(format!("result {k} is {other:?}, but has a gradient")),
        }
    }
    Ok(pairs)
}

/// The gradients of the call's leaves, from the row's cotangents.
fn pulled_back(call: &Call, out: &[Value], row: &Row) -> Outcome<Vec<Option<Tensor>>> {
    let (outs, seeds): (Vec<Tensor>, Vec<Option<Tensor>>) =
        seeded(out, row)?.into_iter().map(|(o, s)| (o, Some(s))).unzip();
    let options = GradOptions { grad_outputs: seeds, allow_unused: Some(true), ..Default::default() };
    grad(outs, call.leaves.clone(), &options).map_err(|e| format!("backward: {e}"))
}

/// Gradients equal PyTorch's.
pub(crate) fn gradients(op: Op, row: &Row, place: Place) -> Outcome {
    let wants = row.grads.as_ref().ok_or("the row has no gradients")?;
    let call = Call::new(op, row, place, true)?.own_written().map_err(refused)?;
    let out = flatten(call.run().map_err(refused)?);
    let grads = pulled_back(&call, &out, row)?;
    if grads.len() != wants.len() {
        return Err(format!("{} gradients, expected {}", grads.len(), wants.len()));
    }
    for (k, (g, w)) in grads.iter().zip(wants).enumerate() {
        let g = g.as_ref().ok_or_else(|| format!("gradient {k} is missing"))?;
        same_tensor(g, w).map_err(|e| format!("gradient {k}: {e}"))?;
    }
    Ok(())
}

/// What a row's call gives: results in the order rows list them, and gradients, if the row has seeds, of the tensors that
/// want one.
pub fn evaluate(op: Op, row: &Row) -> Outcome<(Vec<Value>, Vec<Option<Tensor>>)> {
    let backward = row.seeds.iter().any(Option::is_some);
    let call = Call::new(op, row, Place::AsListed, backward)?.own_written().map_err(refused)?;
    let out = flatten(call.run().map_err(refused)?);
    if !backward {
        return Ok((out, Vec::new()));
    }
    let grads = pulled_back(&call, &out, row)?;
    Ok((out, grads))
}

/// The same results and gradients for any memory layout.
pub(crate) fn layouts(op: Op, row: &Row) -> Outcome {
    for place in [Place::Reversed, Place::Gaps] {
        forward(op, row, place).map_err(|e| format!("{place:?}: {e}"))?;
        if row.grads.is_some() {
            gradients(op, row, place).map_err(|e| format!("{place:?}: {e}"))?;
        }
    }
    Ok(())
}

/// Elements of an enlarged tensor, about: enough to be split over threads.
const ENLARGED: usize = 80_000;

/// The dimension along which tensors of an op are repeated. Recurrent layers take the first one step by step, which no
/// threads share; their batch is the second one of tensors with three.
fn repeated_dimension(op: Op) -> usize {
    let base = op.name().trim_start_matches("aten::");
    usize::from(["lstm", "gru", "rnn_relu", "rnn_tanh"].iter().any(|layer| base.starts_with(layer)))
}

/// The tensor repeated along one of its dimensions.
fn enlarged(t: &TensorData, dim: usize) -> TensorData {
    let n: usize = t.shape.iter().product();
    if t.shape.is_empty() || n == 0 || t.strides.is_some() || (dim == 1 && t.shape.len() != 3) {
        return t.clone();
    }
    // The batch is that of several tensors.
    let times = if dim == 1 { 1_000 } else { ENLARGED.div_ceil(n) };
    let block = n / t.shape[..dim].iter().product::<usize>();
    fn repeat<T: Copy>(v: &[T], block: usize, times: usize) -> Vec<T> {
        v.chunks(block).flat_map(|part| part.repeat(times)).collect()
    }
    let mut shape = t.shape.clone();
    shape[dim] *= times;
    let data = t.data.as_ref().map(|d| match d {
        Numbers::Ints(v) => Numbers::Ints(repeat(v, block, times)),
        Numbers::Floats(v) => Numbers::Floats(repeat(v, block, times)),
        Numbers::Complex(v) => Numbers::Complex(repeat(v, block, times)),
    });
    TensorData { shape, data, ..t.clone() }
}

/// Bit-equal results for one thread and two: of the row, and of the row with larger tensors where the op takes them.
pub(crate) fn threads(op: Op, row: &Row) -> Outcome {
    // The number of threads is the process's; one check at a time may say what it is.
    static LOCK: Mutex<()> = Mutex::new(());
    let _guard = LOCK.lock().unwrap_or_else(|e| e.into_inner());
    let before = firebrand_core::num_threads();
    let result = threads_locked(op, row);
    set_num_threads(before);
    result
}

/// Whether the results (which may grow faster than the arguments) are small enough to compute.
fn is_affordable(op: Op, row: &Row) -> bool {
    let Ok(call) = Call::new(op, row, Place::Meta, false) else { return false };
    let Ok(out) = no_grad(|| call.run()) else { return false };
    let elements = flatten(out).iter().map(|v| if let Value::Tensor(t) = v { t.numel() } else { 1 }).sum::<usize>();
    elements <= 20 * ENLARGED
}

fn threads_locked(op: Op, row: &Row) -> Outcome {
    let dim = repeated_dimension(op);
    let grow = |which: fn(usize) -> bool| {
        let args = row.args.iter().enumerate().map(|(k, a)| match a {
            Argument::Tensor(t) if which(k) => Argument::Tensor(enlarged(t, dim)),
            Argument::Tensors(list) if which(k) && dim == 1 => {
                Argument::Tensors(list.iter().map(|t| t.as_ref().map(|t| enlarged(t, dim))).collect())
            }
            a => a.clone(),
        });
        Row { args: args.collect(), ..row.clone() }
    };
    for (variant, larger) in [(grow(|_| false), false), (grow(|_| true), true), (grow(|k| k == 0), true)] {
        if larger && !is_affordable(op, &variant) {
            continue;
        }
        let run = |threads: usize| -> Outcome<Result<Vec<Vec<u64>>, String>> {
            set_num_threads(threads);
            let call = Call::new(op, &variant, Place::AsListed, false)?;
            Ok(no_grad(|| call.run()).map_err(refused).map(|out| {
                flatten(out)
                    .iter()
                    .filter_map(|v| if let Value::Tensor(t) = v { Some(bits(t)) } else { None })
                    .collect()
            }))
        };
        match (run(1)?, run(2)?) {
            (Ok(one), Ok(two)) if one != two => return Err("results differ between one thread and two".to_string()),
            (Ok(_), Ok(_)) => {}
            (Err(_), Err(_)) if larger => {}
            (Err(e), _) | (_, Err(e)) => return Err(e),
        }
    }
    Ok(())
}
