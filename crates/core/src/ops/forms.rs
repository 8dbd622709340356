//! Variants and aliases that are only data: `cos.out`, `multiply_`, `special_expit`.
//!
//! The generator writes one row for each: its schema as text and the op it is derived from. A row has no function of its
//! own; it is called with boxed arguments, by name or id, and runs its op. Records are created from rows on first
//! use. It guarantees the same as variants with their own functions: nothing is written before everything is computed, results
//! must match their targets, `out=` variants never lose a gradient. It knows nothing of particular ops.

use crate::autograd::{NoGrad, forward};
use crate::dispatch::{self, Args, Outputs, Value};
use crate::dtype::can_cast;
use crate::func::rules::Rule;
use crate::ops::generated::schema::{FORMS, TABLE};
use crate::ops::inplace::LOST_TANGENT;
use crate::record::{Decomposition, Derivative, Devices, Kind, Op, OpInfo, PLAIN, Run, Tags};
use crate::schema::{Schema, Type};
use crate::{Error, ErrorKind, Result, Spec, Tensor, library, ops, state};
use std::sync::OnceLock;

/// What a row does with its op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Writes its results into tensors given.
    Out,
    /// Writes its result into the first argument.
    InPlace,
    /// Is the op, under another name.
    Alias,
    /// Is the op, with numbers in the place of tensors.
    Numbers,
    /// Runs the op for every position of lists.
    Foreach,
}

/// One form: what it does, with which op, and its schema.
pub(crate) struct FormRow(pub(crate) Way, pub(crate) Op, pub(crate) &'static str);

/// The record of the form with this id, if it is one.
pub(crate) fn by_id(op: Op) -> Option<&'static OpInfo> {
    static RECORDS: OnceLock<Vec<OpInfo>> = OnceLock::new();
    let k = (op.0 as usize).checked_sub(TABLE.len())?;
    if k >= FORMS.len() {
        return None;
    }
    let records = RECORDS.get_or_init(|| {
        let mut records: Vec<OpInfo> = Vec::with_capacity(FORMS.len());
        for (k, row) in FORMS.iter().enumerate() {
            let of = match TABLE.get(row.1.0 as usize) {
                Some(of) => of,
                None => &records[row.1.0 as usize - TABLE.len()],
            };
            let record = record(k, row, of);
            records.push(record);
        }
        records
    });
    records.get(k)
}

/// What follows for a form from its op. The forms of a second name stand behind it.
fn record(k: usize, row: &FormRow, of: &OpInfo) -> OpInfo {
    let &FormRow(way, op, text) = row;
    let (name, schema) = library::parse(text).expect("the generator wrote the schema");
    let find = |way| {
        let here = Op((TABLE.len() + k) as u32);
        let place = FORMS.iter().position(|row| row.0 == way && row.1 == here)?;
        Some(Op((TABLE.len() + place) as u32))
    };
    let base = OpInfo { name, schema, devices: Devices::Any, run: Run::Form(way, op), ..PLAIN };
    let derivative = match of.derivative {
        Derivative::NonDifferentiable => Derivative::NonDifferentiable,
        _ => Derivative::Composite,
    };
    match way {
        Way::Alias | Way::Numbers | Way::Foreach => OpInfo {
            alias: Some(op).filter(|_| way == Way::Alias),
            kind: of.kind,
            in_place: find(Way::InPlace),
            out: find(Way::Out),
            tags: match way {
                Way::Foreach => Tags::FOREACH,
                _ => of.tags.without(Tags::CORE),
            },
            derivative,
            forward: of.forward,
            vmap: Rule::Parts,
            cost: of.cost,
            decomposition: Decomposition::Parts,
            training: of.training,
            ..base
        },
        Way::InPlace => OpInfo {
            kind: Kind::InPlace,
            functional: Some(op),
            tags: of.tags.without(Tags::CORE),
            derivative,
            forward: of.forward,
            vmap: Rule::Parts,
            cost: of.cost,
            decomposition: Decomposition::Functional,
            training: of.training,
            ..base
        },
        Way::Out => {
            // What a factory makes is said by the tensor given, so no call without it takes its place.
            let functional = Some(op).filter(|_| of.schema.args.iter().all(|a| schema.position(a.name).is_some()));
            OpInfo {
                kind: Kind::Out,
                functional,
                tags: of.tags.without(Tags::CORE),
                vmap: Rule::Refuse,
                cost: of.cost,
                decomposition: functional.map_or(Decomposition::Kept, |_| Decomposition::Functional),
                training: of.training,
                ..base
            }
        }
    }
}

/// Calls a form.
pub(crate) fn call(info: &'static OpInfo, way: Way, op: Op, values: &[Value]) -> Result<Outputs> {
    match way {
        Way::Alias => dispatch::call(op, values),
        Way::Numbers => {
            let tensor = |(k, v): (usize, &Value)| match (op.schema().args.get(k), v) {
                (Some(a), Value::Scalar(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_))
                    if a.ty == Type::Tensor =>
                {
                    Ok(Tensor::try_wrapped_number(Args::new(info.name, values).scalar(k, a.name)?)?.into())
                }
                _ => Ok(v.clone()),
            };
            dispatch::call(op, &values.iter().enumerate().map(tensor).collect::<Result<Vec<Value>>>()?)
        }
        Way::Foreach => foreach(info, op, values),
        Way::InPlace => in_place(info, op, values),
        Way::Out => out(info, op, values),
    }
}

/// `cos_`, without namespace and overload.
fn short(info: &'static OpInfo) -> &'static str {
    let name = info.name.split_once("::").map_or(info.name, |(_, name)| name);
    name.split_once('.').map_or(name, |(base, _)| base)
}

/// The op for each position; an argument that is not a list is used for all of them.
fn foreach(info: &'static OpInfo, op: Op, values: &[Value]) -> Result<Outputs> {
    let args = Args::new(info.name, values);
    let (mut lists, mut lengths) = (Vec::with_capacity(values.len()), Vec::new());
    for (k, a) in info.schema.args.iter().enumerate().take(values.len()) {
        let list: Option<Vec<Value>> = match a.ty {
            Type::Tensors => Some(args.tensors(k, a.name)?.into_iter().map(Value::from).collect()),
            Type::Scalars => Some(args.scalars(k, a.name)?.into_iter().map(Value::from).collect()),
            _ => None,
        };
        lengths.extend(list.as_ref().map(Vec::len));
        lists.push(list);
    }
    ops::foreach::check(short(info), &lengths, &[])?;
    let one = |i: usize| {
        let given: Vec<Value> =
            lists.iter().zip(values).map(|(l, v)| l.as_ref().map_or(v, |l| &l[i]).clone()).collect();
        dispatch::one_tensor(dispatch::call(op, &given)?)
    };
    let results = (0..lengths[0]).map(one).collect::<Result<Vec<Tensor>>>()?;
    Ok(smallvec::smallvec![Value::Tensors(results)])
}

fn in_place(info: &'static OpInfo, op: Op, values: &[Value]) -> Result<Outputs> {
    let args = Args::new(info.name, values);
    let (name, is_list) = (short(info), info.schema.args[0].ty == Type::Tensors);
    let targets = if is_list { args.tensors(0, "self")? } else { vec![args.tensor(0, "self")?.clone()] };
    targets.iter().try_for_each(|target| target.check_writable(name))?;
    let mut given = values.to_vec();
    // What derivatives keep must be as it was before the write.
    if state::is(state::GRAD) || state::is(state::DUAL) {
        let copies = targets.iter().map(|target| ops::clone(target, None)).collect::<Result<Vec<Tensor>>>()?;
        given[0] = if is_list { copies.into() } else { copies[0].clone().into() };
    }
    let results = dispatch::call(op, &given)?;
    let results: Vec<&Tensor> = results.iter().flat_map(tensors).collect();
    if results.len() != targets.len() {
        let message = format!("expected {} results, found {}", targets.len(), results.len());
        return Err(Error::argument(name, message));
    }
    targets.iter().zip(&results).try_for_each(|(target, result)| fits(info, target, result))?;
    targets.iter().zip(&results).try_for_each(|(target, result)| store(target, result))?;
    Ok(info.schema.returns.iter().zip(targets).map(|(_, target)| Value::Tensor(target)).collect())
}

/// Whether a value holds a tensor on another device than `t`.
fn is_elsewhere(value: &Value, t: &Tensor) -> bool {
    let differs = |other: &Tensor| other.device() != t.device();
    match value {
        Value::OptTensors(list) => list.iter().flatten().any(differs),
        value => tensors(value).iter().any(differs),
    }
}

/// The tensors of a value.
fn tensors(value: &Value) -> &[Tensor] {
    match value {
        Value::Tensor(t) => std::slice::from_ref(t),
        Value::Tensors(list) => list,
        _ => &[],
    }
}

fn out(info: &'static OpInfo, op: Op, values: &[Value]) -> Result<Outputs> {
    let (name, schema) = (short(info), &info.schema);
    let first = schema.args.iter().take_while(|a| !a.is_out()).count();
    let args = Args::new(info.name, values);
    for (k, a) in schema.args.iter().enumerate().skip(first) {
        if !matches!(values.get(k), Some(Value::Tensor(_) | Value::Tensors(_))) {
            return args.wrong(k, a.name, "a tensor that takes a result");
        }
    }
    let recorded = |value: &Value| match value {
        Value::OptTensors(list) => list.iter().flatten().any(Tensor::requires_grad),
        value => tensors(value).iter().any(Tensor::requires_grad),
    };
    if state::is(state::GRAD) && values.iter().any(recorded) {
        return Err(Error::argument(
            name,
            "out= variants do not record gradients, but one of the arguments requires grad; call it under no_grad, or use the functional variant",
        ));
    }
    if state::is(state::DUAL) && values.iter().flat_map(tensors).any(|t| forward::tangent(t).is_some()) {
        return Err(Error::argument(name, LOST_TANGENT));
    }
    if state::is(state::LEVEL) {
        let message = format!("{}: out= variants do not batch; use the functional variant", info.name);
        return Err(ErrorKind::Vmap { message }.into());
    }
    let targets: Vec<&Tensor> = values[first..].iter().flat_map(tensors).collect();
    // What is computed from other operands says nothing about the tensors that take it.
    if op.info().devices != Devices::Any
        && targets.iter().any(|t| t.device() != targets[0].device() || values.iter().any(|v| is_elsewhere(v, t)))
        && let Some(form) = Op::from_name(info.name)
    {
        ops::devices::refuse(form, values)?;
    }
    let results = {
        let _unrecorded = NoGrad::new();
        dispatch::call(op, &without_outs(schema, op.schema(), values, targets.first()))?
    };
    let results: Vec<&Tensor> = results.iter().flat_map(tensors).collect();
    if results.len() != targets.len() {
        let message = format!("expected {} tensors for its results, found {}", results.len(), targets.len());
        return Err(Error::argument(name, message));
    }
    // An empty tensor takes any shape, but none does before all of them are known to fit.
    let mut resized = Vec::with_capacity(targets.len());
    for (target, result) in targets.iter().zip(&results) {
        let spec = Spec { layout: result.layout().to_contiguous(), ..result.spec().clone() };
        let fresh = ops::inplace::prepare_out(name, target, &spec, &[])?;
        if op.info().tags.has(Tags::EXACT_OUT) {
            ops::inplace::need_dtype(name, target, result.dtype())?;
        }
        fits(info, fresh.as_ref().unwrap_or(target), result)?;
        resized.push(fresh);
    }
    let _unrecorded = NoGrad::new();
    for ((target, result), fresh) in targets.iter().zip(results).zip(resized) {
        store(fresh.as_ref().unwrap_or(target), result)?;
        ops::inplace::adopt(target, fresh);
    }
    Ok(values[first..].iter().take(schema.returns.len()).cloned().collect())
}

/// The arguments of the op, found by name: a factory's options are those of the tensor that takes its result.
fn without_outs(form: &Schema, op: &Schema, values: &[Value], target: Option<&&Tensor>) -> Vec<Value> {
    let one = |a: &crate::schema::SchemaArg| match (form.position(a.name), a.name, target) {
        (Some(k), _, _) => values.get(k).cloned().unwrap_or_default(),
        (None, "dtype", Some(t)) => t.dtype().into(),
        (None, "device", Some(t)) => t.device().into(),
        _ => Value::None,
    };
    op.args.iter().map(one).collect()
}

fn fits(info: &'static OpInfo, target: &Tensor, result: &Tensor) -> Result<()> {
    let op = short(info);
    if target.shape() != result.shape() {
        let (result, target) = (result.shape().to_vec(), target.shape().to_vec());
        return Err(ErrorKind::InplaceShape { op, result, target }.into());
    }
    if !can_cast(result.dtype(), target.dtype()) {
        return Err(ErrorKind::CannotCast { op, from: result.dtype(), to: target.dtype() }.into());
    }
    Ok(())
}

fn store(target: &Tensor, result: &Tensor) -> Result<()> {
    match result.is_beside(target) {
        true => ops::copy_(target, &ops::clone(result, None)?, false)?,
        false => ops::copy_(target, result, false)?,
    };
    Ok(())
}
