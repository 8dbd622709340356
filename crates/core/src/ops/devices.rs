//! The operands of one call must be on one device: the test every generated op makes, and what follows when they are not.
//!
//! The test is an OR of one bit per operand, so a call that is in order pays nothing else. A mix of meta and CPU
//! operands is one error that names op, operand and device. What PyTorch accepts is accepted here: a 0-dim CPU tensor
//! with meta operands of a pointwise op, CPU indices into a meta tensor, and operands of which only the shape matters.
//! Such a call runs with every operand on meta, so no kernel and no shape function ever sees a mix. A sparse operand has the bits of
//! all devices, so it ends here too.

use crate::dispatch::{Lent, Op, Outputs, Value, values};
use crate::record::{Devices, OpInfo, Tags};
use crate::tensor::sparse;
use crate::tensor::{DEVICES, WRAPPED_NUMBER};
use crate::{DType, Device, ErrorKind, Result, Spec, Tensor, races, state};

/// The bits of both devices.
pub(crate) const MIXED: u32 = DEVICES;

/// The bit of a tensor's device.
#[inline(always)]
pub(crate) fn of(t: &Tensor) -> u32 {
    t.flags() & DEVICES
}

/// The bit of an optional tensor's device.
#[inline(always)]
pub(crate) fn of_opt(t: Option<&Tensor>) -> u32 {
    t.map_or(0, of)
}

/// The bits of the devices of a list.
#[inline]
pub(crate) fn of_list(ts: &[Tensor]) -> u32 {
    ts.iter().fold(0, |bits, t| bits | of(t))
}

/// The bits of the devices of a list with gaps.
#[inline]
pub(crate) fn of_opts(ts: &[Option<Tensor>]) -> u32 {
    ts.iter().fold(0, |bits, t| bits | of_opt(t.as_ref()))
}

/// One tensor operand of a call.
struct Operand<'a> {
    /// As the schema calls it; a list's element has its position.
    argument: &'static str,
    /// The argument's place in the schema.
    place: usize,
    position: Option<usize>,
    written: bool,
    tensor: &'a Tensor,
}

impl Operand<'_> {
    fn name(&self) -> String {
        match self.position {
            Some(k) => format!("{}[{k}]", self.argument),
            None => self.argument.to_owned(),
        }
    }
}

fn operands(op: Op, args: &[Value]) -> Vec<Operand<'_>> {
    let mut found = Vec::new();
    for (place, (arg, value)) in op.schema().args.iter().zip(args).enumerate() {
        let one = |position, tensor| Operand { argument: arg.name, place, position, written: arg.written, tensor };
        match value {
            Value::Tensor(t) => found.push(one(None, t)),
            Value::Tensors(list) => found.extend(list.iter().enumerate().map(|(k, t)| one(Some(k), t))),
            Value::OptTensors(list) => {
                found.extend(list.iter().enumerate().filter_map(|(k, t)| Some(one(Some(k), t.as_ref()?))))
            }
            _ => {}
        }
    }
    found
}

/// Whether this operand may be on the CPU beside meta ones: it is only read, and PyTorch lets it pass.
fn may_differ(op: Op, o: &Operand<'_>, zero_dim: bool) -> bool {
    let zero_dim = zero_dim && o.position.is_none();
    let single = o.tensor.ndim() == 0 && (zero_dim || o.tensor.is_wrapped_number() || op.has(Tags::POINTWISE));
    let listed = matches!(op.info().devices, Devices::Cpu(places) if places >> o.place & 1 == 1);
    !o.written && o.tensor.device() == Device::Cpu && (single || listed)
}

/// Refuses a mix of devices, but for operands that may differ.
pub(crate) fn refuse(op: Op, args: &[Value]) -> Result<()> {
    refuse_unless(op, args, false)
}

fn refuse_unless(op: Op, args: &[Value], zero_dim: bool) -> Result<()> {
    let operands = operands(op, args);
    if let Some(o) = operands.iter().find(|o| o.tensor.is_sparse()) {
        return Err(sparse::refused(op.base(), &o.name()));
    }
    let mut counted = operands.iter().filter(|o| !may_differ(op, o, zero_dim));
    let Some(first) = counted.next() else { return Ok(()) };
    match counted.find(|o| o.tensor.device() != first.tensor.device()) {
        None => Ok(()),
        Some(other) => Err(ErrorKind::DeviceMismatch {
            op: op.base(),
            argument: other.name(),
            device: other.tensor.device(),
            reference: first.name(),
            expected: first.tensor.device(),
        }
        .into()),
    }
}

/// Refuses a mix of devices in a call of a composite or hand-written op, unless the op copies between devices or looks at
/// each tensor alone. Whether a 0-dim CPU tensor passes is decided by the ops it consists of, except for elements of lists.
#[cold]
#[inline(never)]
pub(crate) fn check(op: Op, args: &[Lent<'_>]) -> Result<()> {
    if op.info().devices == Devices::Any { Ok(()) } else { refuse_unless(op, &values(args), true) }
}

/// Like [`check`], for an op that is called with boxed arguments only. A layer below autograd may show tensors of another
/// device than those it computes with, so the ops that this one consists of decide.
pub(crate) fn check_boxed(info: &'static OpInfo, args: &[Value]) -> Result<()> {
    let bits = args.iter().fold(0, |bits, value| {
        bits | match value {
            Value::Tensor(t) => of(t),
            Value::Tensors(list) => of_list(list),
            Value::OptTensors(list) => of_opts(list),
            _ => 0,
        }
    });
    if bits != MIXED || info.devices == Devices::Any || state::is(state::INNER) {
        return Ok(());
    }
    Op::from_name(info.name).map_or(Ok(()), |op| refuse_unless(op, args, true))
}

/// Refuses a mix of devices, or runs the call below autograd with every operand on meta.
#[cold]
pub(crate) fn settle(op: Op, args: &[Value]) -> Result<Outputs> {
    if let Some(outputs) = sparse::call(op, args)? {
        return Ok(outputs);
    }
    refuse(op, args)?;
    let moved = args.iter().map(|a| on_meta(op, args, a)).collect::<Result<Vec<_>>>()?;
    op.info().below(&moved)
}

fn on_meta(op: Op, args: &[Value], value: &Value) -> Result<Value> {
    Ok(match value {
        Value::Tensor(t) => Value::Tensor(outline(t)?),
        Value::Tensors(list) => Value::Tensors(list.iter().map(outline).collect::<Result<_>>()?),
        Value::OptTensors(list) => {
            let mut moved = Vec::with_capacity(list.len());
            for t in list {
                match (t, args.first()) {
                    (Some(mask), Some(Value::Tensor(of))) if is_mask(mask) => {
                        moved.extend(positions(op, of, moved.len(), mask)?)
                    }
                    (t, _) => moved.push(t.as_ref().map(outline).transpose()?),
                }
            }
            Value::OptTensors(moved)
        }
        other => other.clone(),
    })
}

/// A mask among indices whose values are there: they decide the size of the result.
fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8) && t.device() == Device::Cpu
}

/// The outlines of the positions that a mask names in dimensions from `at` on, one list for each.
fn positions(op: Op, of: &Tensor, at: usize, mask: &Tensor) -> Result<Vec<Option<Tensor>>> {
    races::op!(op.base(), mask);
    super::cpu::index::need_mask(op.base(), of, at, mask)?;
    let found = super::cpu::index::nonzero(mask)?.shape()[0];
    (0..mask.ndim()).map(|_| Tensor::try_empty(Spec::new(&[found], DType::I64, Device::Meta)?).map(Some)).collect()
}

pub(crate) fn outline(t: &Tensor) -> Result<Tensor> {
    if t.is_meta() {
        return Ok(t.clone());
    }
    let outline = Tensor::try_empty(Spec { layout: t.layout().from_start(), dtype: t.dtype(), device: Device::Meta })?;
    if t.is_wrapped_number() {
        outline.set_flag(WRAPPED_NUMBER);
    }
    Ok(outline)
}
