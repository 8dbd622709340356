//! The interface for compilers: the semantics of pointwise ops, and kernels on memory it has planned itself.
//!
//! [`formula`] runs the eager kernel of an op with recording on, so a compiled op means what the eager one does, to the bit.
//! [`run`] runs a program on parts of tensors. Nothing here records gradients; the caller is below autograd.

use crate::dispatch::{Op, Tags, Value};
use crate::layout::Layout;
use crate::profiler::{self, EventKind, Work};
use crate::state::{self, ModeGuard};
use crate::tensor::WRAPPED_NUMBER;
use crate::{Device, Result, Scalar, Spec, Tensor, races};
use firebrand_kernels::pointwise::{self, Operand, Program, Source, Step};
use smallvec::SmallVec;
use std::collections::HashMap;

pub use crate::ops::attention::{WholeAttention, keep_whole as keep_attention_whole};

/// A pointwise op as code. In its sources, `Memory(k)` is the k-th tensor among the arguments.
#[derive(Clone, Debug)]
pub struct Formula {
    /// Instructions in order.
    pub steps: Vec<Step>,
    /// Where the results are.
    pub results: Vec<Source>,
}

/// Maximum number of instructions; a longer op is left to its own kernel.
const LONGEST: usize = 128;

/// What a pointwise op computes for each element, or `None` if it cannot be recorded: it is not pointwise,
/// takes lists, or checks values. Tensors among the arguments may be meta tensors.
pub fn formula(op: Op, args: &[Value]) -> Option<Formula> {
    let info = op.info();
    // The kernel of an op registered at run time is anyone's code: it is not called on made-up tensors.
    let foreign = op.0 as usize >= Op::generated();
    if foreign || !info.tags.has(Tags::POINTWISE) || info.tags.has(Tags::NONDETERMINISTIC_SEEDED) {
        return None;
    }
    // One element of each argument stands for all.
    let mut numbers: HashMap<usize, usize> = HashMap::new();
    let mut stand_ins: Vec<Value> = Vec::with_capacity(args.len());
    for arg in args {
        stand_ins.push(match arg {
            Value::Tensor(t) if t.dtype().is_complex() => return None, // registers hold real numbers
            Value::Tensor(t) => {
                let one = stand_in(t).ok()?;
                numbers.insert(address(&one), numbers.len());
                Value::Tensor(one)
            }
            Value::Tensors(_) | Value::OptTensors(_) => return None,
            other => other.clone(),
        });
    }
    let _plain = ModeGuard::new(0, state::GRAD | state::LAYERS | state::INNER);
    let (outputs, tape) = pointwise::record(|| info.call(&stand_ins));
    let number = |s: Source| match s {
        Source::Memory(at) => numbers.get(&at).map(|&k| Source::Memory(k)),
        other => Some(other),
    };
    let mut results = Vec::new();
    let mut integral = false;
    for output in outputs.ok()? {
        let Value::Tensor(t) = output else { return None };
        if t.dtype().is_complex() {
            return None;
        }
        integral |= !t.is_floating_point();
        results.push(number(tape.at(address(&t))?)?);
    }
    // These read their divisors before they divide integers.
    let checked = ["floor_divide", "remainder", "fmod", "div"];
    let base = info.name.trim_start_matches("aten::").split('.').next().unwrap_or_default();
    if tape.steps.len() > LONGEST || integral && checked.contains(&base) {
        return None;
    }
    let mut steps = tape.steps;
    for step in &mut steps {
        for arg in &mut step.args {
            *arg = number(*arg)?;
        }
    }
    Some(Formula { steps, results })
}

fn stand_in(t: &Tensor) -> Result<Tensor> {
    let one: SmallVec<[usize; 8]> = SmallVec::from_elem(1, t.ndim());
    let stand_in = Tensor::try_empty(Spec::new(&one, t.dtype(), Device::Cpu)?)?;
    if t.is_wrapped_number() {
        stand_in.set_flag(WRAPPED_NUMBER);
    }
    Ok(stand_in)
}

fn address(t: &Tensor) -> usize {
    let l = t.layout();
    t.storage().view(t.dtype(), l.offset(), l.sizes(), l.strides()).as_ptr() as usize
}

/// Some elements of a tensor: a layout whose offset counts from the tensor's own first element.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Whose memory.
    pub tensor: &'a Tensor,
    /// Which elements.
    pub layout: &'a Layout,
}

/// What a program reads.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Elements.
    Part(Part<'a>),
    /// One value for all.
    Number(Scalar),
}

/// As many operands as most programs have.
const FEW: usize = 32;

/// Runs a program on parts that all have one size. An error if another thread uses the memory, where that is checked. Who writes what
/// others see counts that ([`count_write`]).
///
/// # Panics
/// If a part reaches outside of its tensor's memory, or sizes and counts are not those of the program.
pub fn run(program: &Program, inputs: &[Input<'_>], outputs: &[Part<'_>]) -> Result<()> {
    races::op!("fused kernel", inputs, outputs);
    // Filled where they are: to collect results would move kilobytes for a few numbers.
    let mut read: SmallVec<[_; FEW]> = SmallVec::new();
    for input in inputs {
        read.push(match input {
            Input::Part(p) => Some(p.tensor.read_part(p.layout)?),
            Input::Number(_) => None,
        });
    }
    let mut operands: SmallVec<[Operand<'_>; FEW]> = SmallVec::new();
    for (input, access) in inputs.iter().zip(&read) {
        operands.push(match (input, access) {
            (Input::Part(p), Some(access)) => Operand::View(access.part(p.layout)),
            (Input::Part(_), None) => unreachable!("parts have access"),
            (Input::Number(s), _) => Operand::Value((*s).into()),
        });
    }
    let mut written: SmallVec<[_; 2]> = SmallVec::new();
    for p in outputs {
        written.push(p.tensor.write_part(p.layout)?);
    }
    let mut targets: SmallVec<[_; 2]> = SmallVec::new();
    for (p, access) in outputs.iter().zip(&written) {
        targets.push(access.part_mut(p.layout));
    }
    profiler::kernel(
        EventKind::Compiled,
        || program.summary(),
        || {
            let read = inputs.iter().filter_map(|i| if let Input::Part(p) = i { Some(*p) } else { None });
            Work::moving(read.chain(outputs.iter().copied()).map(|p| (p.layout, p.tensor.dtype())))
        },
        || Ok(firebrand_kernels::scratch::attempt(|| program.run(&operands, &targets))?),
    )?;
    Ok(())
}

/// Counts a write in the version of a tensor.
pub fn count_write(t: &Tensor) {
    t.bump_version();
}

/// The part as a separate tensor over the same memory: without history, with the same version. An error if it reaches
/// further than memory can.
pub fn alias(part: Part<'_>) -> Result<Tensor> {
    let offset = part.tensor.layout().offset() + part.layout.offset();
    Ok(part.tensor.alias_with(part.layout.with_offset(offset)?))
}

/// Whether nothing else holds the tensor or shares its memory, so that it may be overwritten unobserved.
pub fn is_sole_owner(t: &mut Tensor) -> bool {
    t.is_sole_owner()
}
