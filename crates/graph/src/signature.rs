//! The signature of an exported program: the role of each input and output.

use crate::ir::{Argument, Name};

/// What an input or output is in the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecArg {
    /// A tensor.
    Tensor(Name),
    /// A symbolic integer.
    SymInt(Name),
    /// A symbolic float.
    SymFloat(Name),
    /// A symbolic bool.
    SymBool(Name),
    /// An object of a class that only PyTorch can construct.
    CustomObj {
        /// The node.
        name: Name,
        /// The class.
        class_fqn: Name,
    },
    /// A token that orders side effects.
    Token(Name),
    /// A constant that is not computed: an input that was baked in, or an output such as none.
    Constant {
        /// The name of the placeholder; empty for outputs.
        name: Name,
        /// Its value.
        value: Argument,
    },
}

impl SpecArg {
    /// Its name: of a node, or of a constant.
    pub fn name(&self) -> &Name {
        match self {
            SpecArg::Tensor(name)
            | SpecArg::SymInt(name)
            | SpecArg::SymFloat(name)
            | SpecArg::SymBool(name)
            | SpecArg::CustomObj { name, .. }
            | SpecArg::Token(name)
            | SpecArg::Constant { name, .. } => name,
        }
    }

    /// The name of the node it stands for; a constant stands for none.
    pub fn node(&self) -> Option<&Name> {
        if let SpecArg::Constant { .. } = self { None } else { Some(self.name()) }
    }

    /// Renames it.
    pub fn set_name(&mut self, new: Name) {
        match self {
            SpecArg::Tensor(name)
            | SpecArg::SymInt(name)
            | SpecArg::SymFloat(name)
            | SpecArg::SymBool(name)
            | SpecArg::CustomObj { name, .. }
            | SpecArg::Token(name)
            | SpecArg::Constant { name, .. } => *name = new,
        }
    }
}

/// The role of an input. Names of state are fully qualified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Passed by the caller.
    UserInput,
    /// A parameter.
    Parameter(Name),
    /// A buffer.
    Buffer {
        /// Its name.
        target: Name,
        /// Whether it belongs to the state dict.
        persistent: bool,
    },
    /// A constant tensor.
    ConstantTensor(Name),
    /// A constant object.
    CustomObj(Name),
    /// A token that orders side effects.
    Token,
}

/// The role of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Returned to the caller.
    UserOutput,
    /// The loss.
    LossOutput,
    /// The new value of a buffer.
    BufferMutation(Name),
    /// The new value of a parameter.
    ParameterMutation(Name),
    /// The gradient of a parameter.
    GradientToParameter(Name),
    /// The gradient of an input.
    GradientToUserInput(Name),
    /// The new value of an input.
    UserInputMutation(Name),
    /// A token that orders side effects.
    Token,
}

impl InputKind {
    /// PyTorch's name.
    pub fn name(&self) -> &'static str {
        match self {
            InputKind::UserInput => "USER_INPUT",
            InputKind::Parameter(_) => "PARAMETER",
            InputKind::Buffer { .. } => "BUFFER",
            InputKind::ConstantTensor(_) => "CONSTANT_TENSOR",
            InputKind::CustomObj(_) => "CUSTOM_OBJ",
            InputKind::Token => "TOKEN",
        }
    }

    /// The name of the state it is.
    pub fn target(&self) -> Option<&Name> {
        match self {
            InputKind::Parameter(t) | InputKind::ConstantTensor(t) | InputKind::CustomObj(t) => Some(t),
            InputKind::Buffer { target, .. } => Some(target),
            InputKind::UserInput | InputKind::Token => None,
        }
    }
}

impl OutputKind {
    /// PyTorch's name.
    pub fn name(&self) -> &'static str {
        match self {
            OutputKind::UserOutput => "USER_OUTPUT",
            OutputKind::LossOutput => "LOSS_OUTPUT",
            OutputKind::BufferMutation(_) => "BUFFER_MUTATION",
            OutputKind::ParameterMutation(_) => "PARAMETER_MUTATION",
            OutputKind::GradientToParameter(_) => "GRADIENT_TO_PARAMETER",
            OutputKind::GradientToUserInput(_) => "GRADIENT_TO_USER_INPUT",
            OutputKind::UserInputMutation(_) => "USER_INPUT_MUTATION",
            OutputKind::Token => "TOKEN",
        }
    }

    /// What it is the new value or gradient of.
    pub fn target(&self) -> Option<&Name> {
        match self {
            OutputKind::BufferMutation(t)
            | OutputKind::ParameterMutation(t)
            | OutputKind::GradientToParameter(t)
            | OutputKind::GradientToUserInput(t)
            | OutputKind::UserInputMutation(t) => Some(t),
            OutputKind::UserOutput | OutputKind::LossOutput | OutputKind::Token => None,
        }
    }
}

/// One input.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// Its role.
    pub kind: InputKind,
    /// What it is in the graph.
    pub arg: SpecArg,
}

/// One output.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// Its role.
    pub kind: OutputKind,
    /// What it is in the graph.
    pub arg: SpecArg,
}

/// One spec per placeholder and one per element of the output, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphSignature {
    /// Inputs: tokens, parameters, buffers, constants, then the caller's.
    pub inputs: Vec<InputSpec>,
    /// Outputs: tokens, mutations, then the caller's, then gradients.
    pub outputs: Vec<OutputSpec>,
}

impl GraphSignature {
    /// Renames a node wherever a spec names it, also as the target of an input mutation or gradient.
    pub fn replace_all_uses(&mut self, old: &str, new: &Name) {
        let args = self.inputs.iter_mut().map(|s| &mut s.arg).chain(self.outputs.iter_mut().map(|s| &mut s.arg));
        for arg in args {
            if arg.node().is_some_and(|n| &**n == old) {
                arg.set_name(new.clone());
            }
        }
        for spec in &mut self.outputs {
            if let OutputKind::UserInputMutation(target) | OutputKind::GradientToUserInput(target) = &mut spec.kind
                && &**target == old
            {
                *target = new.clone();
            }
        }
    }

    /// The names of the caller's inputs, in order.
    pub fn user_inputs(&self) -> impl Iterator<Item = &InputSpec> {
        self.inputs.iter().filter(|s| s.kind == InputKind::UserInput)
    }

    /// What is returned to the caller, with its position among all outputs.
    pub fn user_outputs(&self) -> impl Iterator<Item = (usize, &OutputSpec)> {
        let wanted = |s: &OutputSpec| matches!(s.kind, OutputKind::UserOutput | OutputKind::LossOutput);
        self.outputs.iter().enumerate().filter(move |(_, s)| wanted(s))
    }
}
