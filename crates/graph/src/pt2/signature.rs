//! Signature and call structure, both ways between the file and the program.

use super::read::{self, Place};
use super::schema;
use crate::error::Result;
use crate::ir::{Argument, CallSpec, Name};
use crate::program::{ModuleCallEntry, ModuleCallSignature};
use crate::signature::{GraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, SpecArg};

fn name(text: &str) -> Name {
    text.into()
}

fn named(n: &Name) -> schema::Named {
    schema::Named { name: n.to_string() }
}

fn constant(value: &schema::ConstantValue) -> Argument {
    use schema::ConstantValue as C;
    match value {
        C::AsNone(_) => Argument::None,
        C::AsInt(v) => Argument::Int(*v),
        C::AsFloat(v) => Argument::Float(v.0),
        C::AsString(v) => Argument::Str(v.as_str().into()),
        C::AsBool(v) => Argument::Bool(*v),
    }
}

/// What an argument of the signature stands for.
fn spec_arg(place: Place<'_>, arg: &schema::Argument) -> Result<SpecArg> {
    use schema::Argument as A;
    Ok(match arg {
        A::AsTensor(t) => SpecArg::Tensor(name(&t.name)),
        A::AsSymInt(schema::SymArg::AsName(n)) => SpecArg::SymInt(name(n)),
        A::AsSymFloat(schema::SymArg::AsName(n)) => SpecArg::SymFloat(name(n)),
        A::AsSymBool(schema::SymArg::AsName(n)) => SpecArg::SymBool(name(n)),
        A::AsCustomObj(o) => SpecArg::CustomObj { name: name(&o.name), class_fqn: name(&o.class_fqn) },
        A::AsSymInt(schema::SymArg::AsInt(v)) => SpecArg::Constant { name: name(""), value: Argument::Int(*v) },
        other => {
            let value = read::plain(other);
            let value = value.ok_or_else(|| place.refuse("the signature names something that is not a value"))?;
            SpecArg::Constant { name: name(""), value }
        }
    })
}

/// The argument of the file for what a spec stands for; none if the format has no way to say it.
pub(super) fn argument(arg: &SpecArg) -> Option<schema::Argument> {
    use schema::Argument as A;
    Some(match arg {
        SpecArg::Tensor(n) | SpecArg::Token(n) => A::AsTensor(named(n)),
        SpecArg::SymInt(n) => A::AsSymInt(schema::SymArg::AsName(n.to_string())),
        SpecArg::SymFloat(n) => A::AsSymFloat(schema::SymArg::AsName(n.to_string())),
        SpecArg::SymBool(n) => A::AsSymBool(schema::SymArg::AsName(n.to_string())),
        SpecArg::CustomObj { name, class_fqn } => {
            A::AsCustomObj(schema::CustomObj { name: name.to_string(), class_fqn: class_fqn.to_string() })
        }
        SpecArg::Constant { value, .. } => match value {
            Argument::None => A::AsNone(true),
            Argument::Int(v) => A::AsInt(*v),
            Argument::Float(v) => A::AsFloat(schema::Float(*v)),
            Argument::Bool(v) => A::AsBool(*v),
            Argument::Str(v) => A::AsString(v.to_string()),
            _ => return None,
        },
    })
}

/// Names of the placeholders that stand for constants, which the graph itself does not know.
pub(super) fn constant_names(source: &schema::Signature) -> Vec<Option<Name>> {
    let of = |spec: &schema::InputSpec| match spec {
        schema::InputSpec::ConstantInput { name, .. } => Some(name.as_str().into()),
        _ => None,
    };
    source.input_specs.iter().map(of).collect()
}

/// The signature of the program.
pub(super) fn read(place: Place<'_>, source: &schema::Signature) -> Result<GraphSignature> {
    use schema::{InputSpec as I, OutputSpec as O};
    let input = |spec: &I| -> Result<InputSpec> {
        let tensor = |n: &schema::Named| SpecArg::Tensor(name(&n.name));
        let (kind, arg) = match spec {
            I::UserInput { arg } => (InputKind::UserInput, spec_arg(place, arg)?),
            I::Parameter { arg, parameter_name } => (InputKind::Parameter(name(parameter_name)), tensor(arg)),
            I::Buffer { arg, buffer_name, persistent } => {
                (InputKind::Buffer { target: name(buffer_name), persistent: *persistent }, tensor(arg))
            }
            I::TensorConstant { arg, tensor_constant_name } => {
                (InputKind::ConstantTensor(name(tensor_constant_name)), tensor(arg))
            }
            I::CustomObj { arg, custom_obj_name } => {
                let arg = SpecArg::CustomObj { name: name(&arg.name), class_fqn: name(&arg.class_fqn) };
                (InputKind::CustomObj(name(custom_obj_name)), arg)
            }
            I::Token { arg } => (InputKind::Token, SpecArg::Token(name(&arg.name))),
            I::ConstantInput { name: n, value } => {
                (InputKind::UserInput, SpecArg::Constant { name: name(n), value: constant(value) })
            }
        };
        Ok(InputSpec { kind, arg })
    };
    let output = |spec: &O| -> Result<OutputSpec> {
        let (kind, arg) = match spec {
            O::UserOutput { arg } => {
                return Ok(OutputSpec { kind: OutputKind::UserOutput, arg: spec_arg(place, arg)? });
            }
            O::LossOutput { arg } => (OutputKind::LossOutput, arg),
            O::BufferMutation { arg, buffer_name } => (OutputKind::BufferMutation(name(buffer_name)), arg),
            O::ParameterMutation { arg, parameter_name } => (OutputKind::ParameterMutation(name(parameter_name)), arg),
            O::GradientToParameter { arg, parameter_name } => {
                (OutputKind::GradientToParameter(name(parameter_name)), arg)
            }
            O::GradientToUserInput { arg, user_input_name } => {
                (OutputKind::GradientToUserInput(name(user_input_name)), arg)
            }
            O::UserInputMutation { arg, user_input_name } => {
                (OutputKind::UserInputMutation(name(user_input_name)), arg)
            }
            O::Token { arg } => (OutputKind::Token, arg),
        };
        let n = name(&arg.name);
        let arg = if kind == OutputKind::Token { SpecArg::Token(n) } else { SpecArg::Tensor(n) };
        Ok(OutputSpec { kind, arg })
    };
    Ok(GraphSignature {
        inputs: source.input_specs.iter().map(input).collect::<Result<_>>()?,
        outputs: source.output_specs.iter().map(output).collect::<Result<_>>()?,
    })
}

/// The signature as the file has it.
pub(super) fn write(signature: &GraphSignature) -> Result<schema::Signature, String> {
    use schema::{InputSpec as I, OutputSpec as O};
    let input = |spec: &InputSpec| -> Result<I, String> {
        let arg = named(spec.arg.name());
        Ok(match (&spec.kind, &spec.arg) {
            (InputKind::UserInput, SpecArg::Constant { name, value }) => {
                use schema::ConstantValue as C;
                let value = match value {
                    Argument::None => C::AsNone(true),
                    Argument::Int(v) => C::AsInt(*v),
                    Argument::Float(v) => C::AsFloat(schema::Float(*v)),
                    Argument::Str(v) => C::AsString(v.to_string()),
                    Argument::Bool(v) => C::AsBool(*v),
                    _ => return Err(format!("the constant input {name} cannot be written")),
                };
                I::ConstantInput { name: name.to_string(), value }
            }
            (InputKind::UserInput, arg) => {
                I::UserInput { arg: argument(arg).ok_or("an input that cannot be written")? }
            }
            (InputKind::Parameter(t), _) => I::Parameter { arg, parameter_name: t.to_string() },
            (InputKind::Buffer { target, persistent }, _) => {
                I::Buffer { arg, buffer_name: target.to_string(), persistent: *persistent }
            }
            (InputKind::ConstantTensor(t), _) => I::TensorConstant { arg, tensor_constant_name: t.to_string() },
            (InputKind::CustomObj(t), SpecArg::CustomObj { name, class_fqn }) => I::CustomObj {
                arg: schema::CustomObj { name: name.to_string(), class_fqn: class_fqn.to_string() },
                custom_obj_name: t.to_string(),
            },
            (InputKind::CustomObj(t), _) => return Err(format!("the object {t} cannot be written")),
            (InputKind::Token, _) => I::Token { arg },
        })
    };
    let output = |spec: &OutputSpec| -> Result<O, String> {
        let arg = named(spec.arg.name());
        Ok(match &spec.kind {
            OutputKind::UserOutput => {
                if let SpecArg::SymBool(n) = &spec.arg {
                    return Err(format!("the output {n} is a symbolic bool, which no reader of the format accepts"));
                }
                O::UserOutput { arg: argument(&spec.arg).ok_or("an output that cannot be written")? }
            }
            OutputKind::LossOutput => O::LossOutput { arg },
            OutputKind::BufferMutation(t) => O::BufferMutation { arg, buffer_name: t.to_string() },
            OutputKind::ParameterMutation(t) => O::ParameterMutation { arg, parameter_name: t.to_string() },
            OutputKind::GradientToParameter(t) => O::GradientToParameter { arg, parameter_name: t.to_string() },
            OutputKind::GradientToUserInput(t) => O::GradientToUserInput { arg, user_input_name: t.to_string() },
            OutputKind::UserInputMutation(t) => O::UserInputMutation { arg, user_input_name: t.to_string() },
            OutputKind::Token => O::Token { arg },
        })
    };
    Ok(schema::Signature {
        input_specs: signature.inputs.iter().map(input).collect::<Result<_, _>>()?,
        output_specs: signature.outputs.iter().map(output).collect::<Result<_, _>>()?,
    })
}

/// How modules were called.
pub(super) fn read_calls(place: Place<'_>, calls: &[schema::ModuleCall]) -> Result<Vec<ModuleCallEntry>> {
    let args = |list: &[schema::Argument]| list.iter().map(|a| spec_arg(place, a)).collect::<Result<Vec<_>>>();
    let entry = |call: &schema::ModuleCall| -> Result<ModuleCallEntry> {
        let signature = match &call.signature {
            None => None,
            Some(s) => Some(ModuleCallSignature {
                inputs: args(&s.inputs)?,
                outputs: args(&s.outputs)?,
                call_spec: CallSpec {
                    in_spec: s.in_spec.clone(),
                    out_spec: s.out_spec.clone(),
                    forward_arg_names: s.forward_arg_names.clone().unwrap_or_default(),
                },
            }),
        };
        Ok(ModuleCallEntry { fqn: call.fqn.clone(), signature })
    };
    calls.iter().map(entry).collect()
}

/// How modules were called, as the file has it.
pub(super) fn write_calls(calls: &[ModuleCallEntry]) -> Vec<schema::ModuleCall> {
    let args = |list: &[SpecArg]| list.iter().filter_map(argument).collect();
    let entry = |call: &ModuleCallEntry| schema::ModuleCall {
        fqn: call.fqn.clone(),
        signature: call.signature.as_ref().map(|s| schema::ModuleCallSignature {
            inputs: args(&s.inputs),
            outputs: args(&s.outputs),
            in_spec: s.call_spec.in_spec.clone(),
            out_spec: s.call_spec.out_spec.clone(),
            forward_arg_names: Some(s.call_spec.forward_arg_names.clone()).filter(|names| !names.is_empty()),
        }),
    };
    calls.iter().map(entry).collect()
}
