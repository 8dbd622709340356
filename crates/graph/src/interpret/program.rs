//! Running an exported program: inputs are checked against what the program promises, state is bound by the signature,
//! and values the program returns for its own state are written back.

use super::{Eager, NodeRunner, Value, run_module};
use crate::error::{Error, Result};
use crate::ir::*;
use crate::program::ExportedProgram;
use crate::signature::{GraphSignature, InputKind, OutputKind, SpecArg};
use firebrand_core::autograd::no_grad;
use firebrand_core::dispatch::{self, Value as Boxed};
use firebrand_core::{Scalar, Tensor};
use std::collections::HashMap;

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// What is returned to the caller, flattened, in order.
    pub outputs: Vec<Value>,
    /// Everything the graph returned, one for each output spec.
    pub all: Vec<Value>,
}

impl ExportedProgram {
    /// Runs the program on the caller's inputs, flattened. State that the program changes is changed.
    pub fn call(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        Ok(self.call_with(&mut Eager::default(), inputs)?.outputs)
    }

    /// As [`ExportedProgram::call`], with another runner.
    pub fn call_with(&self, runner: &mut dyn NodeRunner, inputs: &[Value]) -> Result<Outcome> {
        let signature = self.signature()?;
        self.check_inputs(signature, inputs)?;
        let mut user = inputs.iter();
        let bound = signature.inputs.iter().map(|spec| match (&spec.kind, spec.kind.target()) {
            (InputKind::UserInput, _) => Ok(user.next().cloned().unwrap_or(Value::NONE)),
            (InputKind::Token, _) => Ok(Value::NONE),
            (kind, Some(target)) => match self.state(target) {
                Some(tensor) => Ok(Value::Tensor(tensor.clone())),
                None => Err(Error::Value(format!("{} {target} has no value in this program", kind.name()))),
            },
            (kind, None) => Err(Error::Value(format!("{} without a name", kind.name()))),
        });
        let bound = bound.collect::<Result<Vec<_>>>()?;
        let result = run_module(runner, &self.module, &bound)?;
        let all = match result {
            Value::List(items) => items,
            one => vec![one],
        };
        if all.len() != signature.outputs.len() {
            let (found, expected) = (all.len(), signature.outputs.len());
            return Err(Error::Value(format!("the graph returned {found} values for {expected} output specs")));
        }
        self.write_back(signature, inputs, &all)?;
        let outputs = signature.user_outputs().map(|(i, _)| all[i].clone()).collect();
        Ok(Outcome { outputs, all })
    }

    /// Copies new values of buffers, parameters and inputs to where they belong.
    fn write_back(&self, signature: &GraphSignature, inputs: &[Value], all: &[Value]) -> Result<()> {
        for (spec, value) in signature.outputs.iter().zip(all) {
            let into: &Tensor = match &spec.kind {
                OutputKind::BufferMutation(target) | OutputKind::ParameterMutation(target) => {
                    let missing = || Error::Value(format!("{target} is changed, but has no value in this program"));
                    self.state(target).ok_or_else(missing)?
                }
                OutputKind::UserInputMutation(target) => {
                    let at = signature.user_inputs().position(|s| s.arg.name() == target);
                    let missing = || Error::Value(format!("{target} is changed, but is no input"));
                    inputs.get(at.ok_or_else(missing)?).ok_or_else(missing)?.tensor()?
                }
                _ => continue,
            };
            let args: [Boxed; 2] = [into.into(), value.tensor()?.into()];
            no_grad(|| dispatch::call_by_name("aten::copy_", &args))?;
        }
        Ok(())
    }

    /// Checks number, dtype, rank and sizes of the inputs, and that sizes that share a symbol agree and lie in range.
    fn check_inputs(&self, signature: &GraphSignature, inputs: &[Value]) -> Result<()> {
        let expected = signature.user_inputs().count();
        if inputs.len() != expected {
            return Err(Error::Value(format!("the program takes {expected} inputs, found {}", inputs.len())));
        }
        let mut vals: HashMap<&str, &Val> = HashMap::new();
        for n in self.module.graph.placeholders() {
            let node = &self.module.graph[n];
            if let Some(val) = &node.meta().val {
                vals.insert(node.name(), val);
            }
        }
        let mut symbols: HashMap<&str, (i64, String)> = HashMap::new();
        for (spec, input) in signature.user_inputs().zip(inputs) {
            let name = spec.arg.name();
            if let SpecArg::Constant { value, .. } = &spec.arg {
                check_constant(name, value, input)?;
            }
            match (vals.get(&**name), input) {
                (Some(Val::Tensor(meta)), Value::Tensor(tensor)) => {
                    self.check_tensor(name, meta, tensor, &mut symbols)?;
                }
                (Some(Val::Tensor(_)), other) => {
                    return Err(Error::Value(format!("input {name}: expected a tensor, found {}", other.kind())));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_tensor<'a>(
        &self,
        name: &str,
        meta: &'a TensorMeta,
        tensor: &Tensor,
        symbols: &mut HashMap<&'a str, (i64, String)>,
    ) -> Result<()> {
        let fail = |message: String| Err(Error::Value(format!("input {name}: {message}")));
        if meta.dtype.dtype() != Some(tensor.dtype()) {
            return fail(format!("expected dtype {}, found {}", meta.dtype, tensor.dtype()));
        }
        if meta.sizes.len() != tensor.ndim() {
            return fail(format!("expected {} dimensions, found {}", meta.sizes.len(), tensor.ndim()));
        }
        for (d, (size, &found)) in meta.sizes.iter().zip(tensor.shape()).enumerate() {
            let (found, here) = (found as i64, format!("{name}.size()[{d}]"));
            match size {
                Symbolic::Known(expected) if *expected != found => {
                    return fail(format!("guard failed: {here} == {expected}, found {found}"));
                }
                Symbolic::Known(_) => {}
                Symbolic::Expr { expr, .. } => match expr.symbol() {
                    Some(symbol) => match symbols.get(symbol) {
                        Some((value, there)) if *value != found => {
                            return fail(format!("guard failed: {here} == {there}, found {found} and {value}"));
                        }
                        Some(_) => {}
                        None => {
                            self.check_range(name, symbol, &here, found)?;
                            symbols.insert(symbol, (found, here));
                        }
                    },
                    None => {
                        let known = |s: &str| symbols.get(s).map(|(v, _)| *v);
                        if let Some(expected) = expr.evaluate(&known)?.filter(|e| e.to_i64() != found) {
                            return fail(format!("guard failed: {here} == {}, found {found}", expected.to_i64()));
                        }
                    }
                },
            }
        }
        Ok(())
    }

    fn check_range(&self, name: &str, symbol: &str, here: &str, found: i64) -> Result<()> {
        let Some(range) = self.range_constraints.get(symbol) else { return Ok(()) };
        let fail = |relation: &str, bound: i64| {
            Err(Error::Value(format!("input {name}: guard failed: {here} {relation} {bound}, found {found}")))
        };
        match (range.min, range.max) {
            (Some(min), _) if found < min => fail(">=", min),
            (_, Some(max)) if found > max => fail("<=", max),
            _ => Ok(()),
        }
    }
}

/// An input that was baked in must be given as it was.
fn check_constant(name: &str, expected: &Argument, found: &Value) -> Result<()> {
    let same = match (expected, found) {
        (Argument::None, v) => v.is_none(),
        (Argument::Bool(a), Value::Scalar(Scalar::Bool(b))) => a == b,
        (Argument::Int(a), Value::Scalar(Scalar::Int(b))) => a == b,
        (Argument::Float(a), Value::Scalar(s)) => *a == s.to_f64(),
        (a, Value::Constant(b)) => a == b,
        _ => false,
    };
    match same {
        true => Ok(()),
        false => {
            Err(Error::Value(format!("input {name}: guard failed: {name} == {expected:?}, which was fixed at export")))
        }
    }
}
