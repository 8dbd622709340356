//! quantize: stores frozen weights of linear layers as integers of 8 or 4 bits (QLoRA).
//!
//! Each row is divided into groups; a group is stored as its largest magnitude and integers of that many bits, and is dequantized
//! where it is used, in the forward and in the backward pass. Only weights that do not require grad are quantized, and only
//! if linear layers are their only users: everything else is unchanged. `pass lora,quantize` is QLoRA.

use super::Report;
use super::lora::linear_weights;
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::{ExportedProgram, State};
use crate::signature::{InputKind, InputSpec, SpecArg};
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::Op;
use firebrand_core::{DType, SymInt as Size, Tensor, ops};
use std::sync::Arc;

const PASS: &str = "quantize";

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizeOptions {
    /// Number of bits: 8 or 4.
    pub bits: u8,
    /// Number of columns that share a scale. A row that is not a multiple of it is one group.
    pub group: usize,
}

impl Default for QuantizeOptions {
    fn default() -> QuantizeOptions {
        QuantizeOptions { bits: 8, group: 64 }
    }
}

/// Runs the pass. Frozen weights must be f32 or f64.
///
/// # Errors
/// If there is nothing to do: no linear layer has an unshared frozen weight.
pub fn quantize(program: &ExportedProgram, options: &QuantizeOptions) -> Result<(ExportedProgram, Report)> {
    let refuse = |message: String| Err(Error::Pass { pass: PASS, message });
    if !matches!(options.bits, 4 | 8) || options.group == 0 || !options.group.is_multiple_of(2) {
        let message = format!("expected 4 or 8 bits and an even group, found {} and {}", options.bits, options.group);
        return refuse(message);
    }
    let mut result = program.clone();
    let mut module = (*program.module).clone();
    let mut signature = program.signature()?.clone();
    let mut count = 0;
    for (name, placeholder, calls) in linear_weights(program)? {
        let state = &program.state_dict[&name];
        let tied = program.state_dict.iter().any(|(n, s)| *n != name && s.tensor.is_same(&state.tensor));
        let known = matches!(state.tensor.dtype(), DType::F32 | DType::F64) && state.tensor.ndim() == 2;
        let columns = state.tensor.shape().last().copied().unwrap_or(0);
        let odd = options.bits == 4 && !columns.is_multiple_of(2);
        let all_readers = module.graph.users(placeholder).all(|u| calls.contains(&u));
        if state.tensor.requires_grad() || tied || !known || odd || columns == 0 || !all_readers {
            continue;
        }
        let (integers, scale) = no_grad(|| quantized(&state.tensor.detach(), *options))?;
        // The integers take the place of the weight, the scales come behind all parameters and buffers there are.
        let integers_name = format!("{name}.integers");
        let scale_name = format!("{name}.scale");
        let scale_input = buffer(&mut module, &mut signature, &scale_name, &scale);
        result.state_dict.insert(scale_name, State { tensor: scale.clone(), is_parameter: false });
        let integers_input = buffer(&mut module, &mut signature, &integers_name, &integers);
        result.state_dict.insert(integers_name, State { tensor: integers.clone(), is_parameter: false });
        for call in calls {
            let args = module.graph[call].args();
            let bias = args.get(2).cloned().unwrap_or(Argument::None);
            let args =
                [args[0].clone(), integers_input.into(), scale_input.into(), bias, i64::from(options.bits).into()];
            module.graph.set_kind(call, Kind::CallFunction(OpOverload::from(Op::_LINEAR_QUANTIZED).into()));
            module.graph.set_arguments(call, args, []);
        }
        module.graph.erase(placeholder)?;
        signature.inputs.retain(|s| !matches!(&s.kind, InputKind::Parameter(t) if **t == *name));
        result.state_dict.shift_remove(&name);
        count += 1;
    }
    if count == 0 {
        return refuse("no linear layer has an unshared, frozen f32 or f64 weight; run `lora` first".to_string());
    }
    result.module = Arc::new(module);
    result.signature = Some(Arc::new(signature));
    Ok((result, Report::of(count)))
}

/// Adds a buffer to the inputs.
fn buffer(module: &mut GraphModule, signature: &mut crate::GraphSignature, name: &str, value: &Tensor) -> NodeId {
    let before_rest =
        |s: &&InputSpec| matches!(s.kind, InputKind::Parameter(_) | InputKind::Token | InputKind::Buffer { .. });
    let at = signature.inputs.iter().take_while(before_rest).count();
    let new = super::lora::state_input(&mut module.graph, at, "b_", name, value);
    let arg = SpecArg::Tensor(module.graph[new].name().clone());
    let kind = InputKind::Buffer { target: name.into(), persistent: true };
    signature.inputs.insert(at, InputSpec { kind, arg });
    new
}

/// Integers and scales of a matrix.
fn quantized(weight: &Tensor, options: QuantizeOptions) -> Result<(Tensor, Tensor)> {
    let &[rows, columns] = weight.shape() else { unreachable!("only matrices come here") };
    let group = if columns.is_multiple_of(options.group) { options.group } else { columns };
    let largest = if options.bits == 4 { 7.0 } else { 127.0 };
    let sizes: [Size; 3] = [rows.into(), (columns / group).into(), group.into()];
    let groups = ops::reshape(weight, &sizes)?;
    let magnitude = ops::amax(&ops::abs(&groups)?, &[-1], true)?;
    let scale = ops::div_scalar(&magnitude, largest.into())?;
    // A group of zeros stays one, whatever it is divided by.
    let divisor = ops::masked_fill(&scale, &ops::eq_scalar(&scale, 0.into())?, 1.into())?;
    let integers = ops::round(&ops::div(&groups, &divisor)?)?;
    let matrix: [Size; 2] = [rows.into(), columns.into()];
    let integers = ops::reshape(&integers, &matrix)?;
    let scale = ops::reshape(&scale, &[rows.into(), (columns / group).into()])?;
    if options.bits == 8 {
        return Ok((integers.try_to_dtype(DType::I8)?, scale));
    }
    let shifted = ops::add_scalar(&integers, 8.into(), 1.into())?;
    let every_second = |from: i64| ops::slice(&shifted, 1, Some(from.into()), None, 2.into());
    let bytes = ops::add(&every_second(0)?, &every_second(1)?, 16.into())?;
    Ok((bytes.try_to_dtype(DType::U8)?, scale))
}
