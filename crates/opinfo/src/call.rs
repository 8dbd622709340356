//! From a row to a call: tensors in the wished memory order or on the meta device, arguments in schema order, results
//! flattened as the rows list them.

use crate::row::{Argument, Numbers, Row, TensorData};
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::{self, MemoryFormat, Op, Outputs, Value};
use firebrand_core::layout::contiguous_strides;
use firebrand_core::schema::Type;
use firebrand_core::{Device, Layout, Scalar, Spec, SymInt, Tensor};

/// What a check says of a row: a message if it fails.
pub type Outcome<T = ()> = Result<T, String>;

/// Where the tensors of a call are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As the row says.
    AsListed,
    /// On the meta device.
    Meta,
    /// With the first dimension innermost in memory.
    Reversed,
    /// With gaps between elements.
    Gaps,
}

impl Place {
    fn layout(self, shape: &[usize], listed: &Option<Vec<usize>>) -> firebrand_core::Result<Layout> {
        let dense = contiguous_strides(shape).to_vec();
        let strides = match self {
            Place::AsListed | Place::Meta => listed.clone().unwrap_or(dense),
            Place::Reversed => {
                let mut sizes = shape.to_vec();
                sizes.reverse();
                let mut strides = contiguous_strides(&sizes).to_vec();
                strides.reverse();
                strides
            }
            Place::Gaps => dense.iter().map(|s| 2 * s).collect(),
        };
        Layout::strided(shape, &strides, 0)
    }
}

/// The arguments of one call.
#[derive(Debug)]
pub struct Call {
    /// The op.
    pub op: Op,
    /// One value per argument of the schema.
    pub args: Vec<Value>,
    /// The tensors that require grad, in the order of the row's gradients.
    pub leaves: Vec<Tensor>,
}

fn failed(e: impl std::fmt::Display) -> String {
    format!("setting up: {e}")
}

/// The row-major tensor of these numbers.
fn dense(data: &Numbers, shape: &[usize], dtype: firebrand_core::DType) -> Outcome<Tensor> {
    let source = match data {
        Numbers::Ints(v) => Tensor::try_from_slice(v, shape),
        Numbers::Floats(v) => Tensor::try_from_slice(v, shape),
        Numbers::Complex(v) => Tensor::try_from_slice(v, shape),
    }
    .map_err(failed)?;
    if source.dtype() == dtype {
        return Ok(source);
    }
    let t = Spec::new(shape, dtype, Device::Cpu).and_then(Tensor::try_empty).map_err(failed)?;
    firebrand_core::ops::copy_(&t, &source, false).map_err(failed)?;
    Ok(t)
}

impl TensorData {
    /// The tensor, as a leaf without the wish for gradients.
    pub fn tensor(&self, place: Place) -> Outcome<Tensor> {
        let layout = place.layout(&self.shape, &self.strides).map_err(failed)?;
        let device = if place == Place::Meta { Device::Meta } else { Device::Cpu };
        if place == Place::Meta {
            return Tensor::try_empty(Spec { layout, dtype: self.dtype, device }).map_err(failed);
        }
        let data = self.data.as_ref().ok_or("setting up: a tensor without data")?;
        let source = dense(data, &self.shape, self.dtype)?;
        if layout.is_contiguous() {
            return Ok(source);
        }
        if layout.has_internal_overlap() {
            return self.overlapping(&source, &layout);
        }
        let t = Tensor::try_empty(Spec { layout, dtype: self.dtype, device }).map_err(failed)?;
        firebrand_core::ops::copy_(&t, &source, false).map_err(failed)?;
        Ok(t)
    }

    /// Elements that share memory: made dense first, shown through `as_strided`.
    fn overlapping(&self, source: &Tensor, layout: &Layout) -> Outcome<Tensor> {
        let from: Vec<f64> = source.to_vec();
        let mut memory = vec![0.0; layout.end()];
        for (k, v) in from.into_iter().enumerate() {
            let mut rest = k;
            let at: usize = (0..layout.ndim())
                .rev()
                .map(|d| {
                    let i = rest % self.shape[d];
                    rest /= self.shape[d];
                    i * layout.strides()[d]
                })
                .sum();
            memory[at] = v;
        }
        let n = memory.len();
        let flat = dense(&Numbers::Floats(memory), &[n], self.dtype)?;
        let ints = |v: &[usize]| Value::Ints(v.iter().map(|&n| SymInt::from(n)).collect());
        let args = [flat.into(), ints(layout.sizes()), ints(layout.strides()), 0i64.into()];
        let view = no_grad(|| run("aten::as_strided", &args)).map_err(failed)?;
        run("aten::detach", &[view.into()]).map_err(failed)
    }
}

/// Calls an op with one tensor result.
pub(crate) fn run(name: &str, args: &[Value]) -> Outcome<Tensor> {
    let mut out = dispatch::call_by_name(name, args).map_err(|e| format!("{name}: {e}"))?;
    match out.pop() {
        Some(Value::Tensor(t)) => Ok(t),
        other => Err(format!("{name} returned {other:?}")),
    }
}

struct Builder {
    place: Place,
    grad: bool,
    leaves: Vec<Tensor>,
}

impl Builder {
    fn tensor(&mut self, t: &TensorData) -> Outcome<Tensor> {
        let made = t.tensor(self.place)?;
        if !(self.grad && t.grad) {
            return Ok(made);
        }
        let leaf = made.try_requires_grad_(true).map_err(failed)?;
        self.leaves.push(leaf.clone());
        Ok(leaf)
    }

    fn value(&mut self, a: &Argument, ty: Type) -> Outcome<Value> {
        let number = match a {
            Argument::Int(i) => Some(Scalar::Int(*i)),
            Argument::Float(f) => Some(Scalar::Float(*f)),
            Argument::Complex(c) => Some(Scalar::Complex(*c)),
            Argument::Bool(b) => Some(Scalar::Bool(*b)),
            _ => None,
        };
        if let Some(n) = number {
            if matches!(ty, Type::Tensor | Type::Tensors | Type::OptTensors) {
                return Tensor::try_wrapped_number(n).map(Value::Tensor).map_err(failed);
            }
            if matches!(ty, Type::Scalar | Type::Scalars) {
                return Ok(Value::Scalar(n));
            }
        }
        Ok(match a {
            Argument::None => Value::None,
            Argument::Tensor(t) => Value::Tensor(self.tensor(t)?),
            Argument::Tensors(list) => {
                let made =
                    list.iter().map(|t| t.as_ref().map(|t| self.tensor(t)).transpose()).collect::<Outcome<Vec<_>>>()?;
                if ty == Type::OptTensors {
                    Value::OptTensors(made)
                } else {
                    Value::Tensors(made.into_iter().flatten().collect())
                }
            }
            Argument::Int(i) => Value::Int((*i).into()),
            Argument::Float(f) => Value::Float(*f),
            Argument::Complex(c) => Value::Scalar(Scalar::Complex(*c)),
            Argument::Bool(b) => Value::Bool(*b),
            Argument::Str(s) => Value::Str(s.clone()),
            Argument::Ints(v) => Value::Ints(v.iter().map(|&i| i.into()).collect()),
            Argument::Floats(v) => Value::Floats(v.clone()),
            Argument::Bools(v) => Value::Bools(v.clone()),
            Argument::DType(d) => Value::DType(*d),
            Argument::MemoryFormat(m) if m == "preserve_format" => Value::MemoryFormat(MemoryFormat::Preserve),
            Argument::MemoryFormat(m) if m == "contiguous_format" => Value::MemoryFormat(MemoryFormat::Contiguous),
            Argument::MemoryFormat(m) => return Err(format!("setting up: no memory format {m}")),
            Argument::Layout => Value::None,
            Argument::Device if self.place == Place::Meta => Value::Device(Device::Meta),
            Argument::Device => Value::Device(Device::Cpu),
        })
    }
}

impl Call {
    /// The call of a row. With `grad`, tensors that require grad say so.
    pub fn new(op: Op, row: &Row, place: Place, grad: bool) -> Outcome<Call> {
        let schema = op.schema();
        let mut builder = Builder { place, grad, leaves: Vec::new() };
        let mut args = vec![Value::None; schema.args.len()];
        for (k, a) in row.args.iter().enumerate() {
            let p = schema.args.get(k).ok_or("setting up: more arguments than the schema has")?;
            args[k] = builder.value(a, p.ty)?;
        }
        for (name, a) in &row.kwargs {
            let k = schema.position(name);
            let k = k.ok_or_else(|| format!("setting up: the schema has no argument '{name}'"))?;
            args[k] = builder.value(a, schema.args[k].ty)?;
        }
        // A factory has nothing but this argument to say where its result goes.
        if place == Place::Meta
            && let Some(k) = schema.args.iter().position(|p| p.ty == Type::Device && p.optional)
            && row.tensors().next().is_none()
        {
            args[k] = Value::Device(Device::Meta);
        }
        Ok(Call { op, args, leaves: builder.leaves })
    }

    /// The same call with other leaves.
    pub fn with_leaves(&self, leaves: &[Tensor]) -> Call {
        let swap = |t: &Tensor| match self.leaves.iter().position(|l| l.is_same(t)) {
            Some(k) => leaves[k].clone(),
            None => t.clone(),
        };
        let args = self.args.iter().map(|a| match a {
            Value::Tensor(t) => Value::Tensor(swap(t)),
            Value::Tensors(v) => Value::Tensors(v.iter().map(swap).collect()),
            Value::OptTensors(v) => Value::OptTensors(v.iter().map(|t| t.as_ref().map(swap)).collect()),
            other => other.clone(),
        });
        Call { op: self.op, args: args.collect(), leaves: leaves.to_vec() }
    }

    /// Replaces tensors the op writes to and that want gradients by clones, so that leaves stay as they are.
    pub fn own_written(mut self) -> firebrand_core::Result<Call> {
        for (a, p) in self.args.iter_mut().zip(self.op.schema().args) {
            if let Value::Tensor(t) = a
                && p.written
                && t.requires_grad()
            {
                let mut out = dispatch::call_by_name("aten::clone", &[(&*t).into()])?;
                *a = out.pop().unwrap_or_default();
            }
        }
        Ok(self)
    }

    /// Runs it.
    pub fn run(&self) -> firebrand_core::Result<Outputs> {
        dispatch::call(self.op, &self.args)
    }

    /// The argument of this name.
    pub fn argument(&self, name: &str) -> Option<&Value> {
        let k = self.op.schema().position(name)?;
        self.args.get(k)
    }
}

/// Results in the order the rows list them: lists one by one.
pub(crate) fn flatten(out: Outputs) -> Vec<Value> {
    out.into_iter()
        .flat_map(|v| match v {
            Value::Tensors(list) => list.into_iter().map(Value::Tensor).collect(),
            Value::OptTensors(list) => list.into_iter().map(Value::from).collect(),
            v => vec![v],
        })
        .collect()
}
