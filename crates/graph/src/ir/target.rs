//! The target of a `call_function` node: an op overload, a higher-order op, or one of a few plain functions.
//!
//! Op overloads are resolved to the op table of `firebrand_core` once, when a program is built; names that the table
//! does not have are kept as they are, so that a program can be read, printed and rewritten without running it.

use super::Name;
use firebrand_core::dispatch::{Op, Tags};
use std::fmt;

/// What a call calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An op such as `aten.add.Tensor`.
    Op(OpOverload),
    /// A higher-order op, which takes sub-graphs.
    Hop(Hop),
    /// A plain function.
    Function(Function),
}

/// An op overload: known to this build, or only a name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OpOverload(Overload);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Overload {
    Known(Op),
    Named(Name),
}

impl OpOverload {
    /// From `aten::add.Tensor`; `.default` may be written or left out.
    pub fn new(qualified: &str) -> OpOverload {
        OpOverload(match Op::from_name(qualified) {
            Some(op) => Overload::Known(op),
            // Only where it is the whole overload: `a.default.default` is another name than `a.default`.
            None => {
                let base = qualified.strip_suffix(".default").filter(|base| !base.contains('.'));
                Overload::Named(base.unwrap_or(qualified).into())
            }
        })
    }

    /// The entry of the op table, if this build has the op.
    pub fn op(&self) -> Option<Op> {
        match &self.0 {
            Overload::Known(op) => Some(*op),
            Overload::Named(_) => None,
        }
    }

    /// Whether it draws random numbers.
    pub fn draws(&self) -> bool {
        self.op().is_some_and(|op| op.has(Tags::NONDETERMINISTIC_SEEDED))
    }

    /// `aten::add.Tensor`, without `.default`.
    pub fn qualified(&self) -> &str {
        match &self.0 {
            Overload::Known(op) => op.name(),
            Overload::Named(name) => name,
        }
    }

    /// `aten`.
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// `add`.
    pub fn base(&self) -> &str {
        self.parts().1
    }

    /// `Tensor`, or `default`.
    pub fn overload(&self) -> &str {
        self.parts().2
    }

    fn parts(&self) -> (&str, &str, &str) {
        let (namespace, rest) = self.qualified().split_once("::").unwrap_or(("", self.qualified()));
        let (base, overload) = rest.split_once('.').unwrap_or((rest, "default"));
        (namespace, base, overload)
    }

    /// Whether it is this op.
    pub fn is(&self, op: Op) -> bool {
        self.op() == Some(op)
    }
}

impl From<Op> for OpOverload {
    fn from(op: Op) -> OpOverload {
        OpOverload(Overload::Known(op))
    }
}

impl fmt::Debug for OpOverload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `aten.add.Tensor`.
impl fmt::Display for OpOverload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, base, overload) = self.parts();
        write!(f, "{namespace}.{base}.{overload}")
    }
}

macro_rules! named {
    ($(#[$doc:meta])* $ty:ident { $($(#[$vdoc:meta])* $variant:ident = $name:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $ty {
            $($(#[$vdoc])* $variant,)*
            /// One that this build has no rule for.
            Other(Name),
        }

        impl $ty {
            /// The name, as text.
            pub fn name(&self) -> &str {
                match self { $($ty::$variant => $name,)* $ty::Other(name) => name }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> $ty {
                match name { $($name => $ty::$variant,)* _ => $ty::Other(name.into()) }
            }
        }
    };
}

named! {
    /// A higher-order op.
    Hop {
        /// Runs one of two sub-graphs.
        Cond = "cond",
        /// Runs a body while a condition holds.
        WhileLoop = "while_loop",
        /// Runs a body on every slice along the first dimension.
        MapImpl = "map_impl",
        /// Runs a body along a dimension with a carry.
        Scan = "scan",
        /// Runs a body with grad mode on or off.
        WrapWithSetGradEnabled = "wrap_with_set_grad_enabled",
        /// Runs a body under an autocast state.
        WrapWithAutocast = "wrap_with_autocast",
        /// A mutating op in functional form (`auto_functionalized`).
        AutoFunctionalized = "auto_functionalized",
        /// The newer version of it.
        AutoFunctionalizedV2 = "auto_functionalized_v2",
        /// An op ordered by tokens.
        WithEffects = "with_effects",
        /// A call of a sub-graph that several callers share.
        InvokeSubgraph = "invoke_subgraph",
        /// The value of the second argument with the history of the first: a write with grad mode off.
        WithData = "with_data",
        /// Marks where a module call begins or ends.
        ExportTracepoint = "_export_tracepoint",
    }
}

named! {
    /// A plain function: unpacks tuples, changes modes, or computes with symbolic numbers.
    ///
    /// Names are those of the text form: `operator.getitem`, `torch._set_grad_enabled`, `torch.sym_max`, `math.trunc`.
    Function {
        /// One element of a tuple or list.
        GetItem = "operator.getitem",
        /// Sets grad mode from here on.
        SetGradEnabled = "torch._set_grad_enabled",
        /// Starts an autocast region.
        EnterAutocast = "torch._enter_autocast",
        /// Ends one.
        ExitAutocast = "torch._exit_autocast",
        /// Registers a hook on the gradient of its first argument and returns that: `register_hook(tensor, body, *free)`, where
        /// `body` is a sub-graph (of the gradient and the free values) or the number of a hook that comes with the call.
        RegisterHook = "torch.register_hook",
        /// Calls a hook that comes with the call on a gradient: `call_hook(slot, grad)`.
        CallHook = "torch.call_hook",
        /// Applies a custom function that comes with the call: `autograd_function_apply(slot, *inputs)`.
        ApplyFunction = "torch.autograd_function_apply",
        /// Calls what comes with the run of a compiled backward pass, and may do anything:
        /// `call_host(kind, slot, values, sizes, dtypes)`. Its result is a tuple, with a tensor of each of these sizes and
        /// dtypes, or none where they are none.
        CallHost = "torch.call_host",
        /// `a == b`
        Eq = "operator.eq",
        /// `a != b`
        Ne = "operator.ne",
        /// `a <= b`
        Le = "operator.le",
        /// `a >= b`
        Ge = "operator.ge",
        /// `a < b`
        Lt = "operator.lt",
        /// `a > b`
        Gt = "operator.gt",
        /// `-a`
        Neg = "operator.neg",
        /// `+a`
        Pos = "operator.pos",
        /// `a + b`
        Add = "operator.add",
        /// `a - b`
        Sub = "operator.sub",
        /// `a * b`
        Mul = "operator.mul",
        /// `a // b`, rounded down
        FloorDiv = "operator.floordiv",
        /// `a % b`, with the sign of `b`
        Mod = "operator.mod",
        /// `a ** b`
        Pow = "operator.pow",
        /// `a / b`
        TrueDiv = "operator.truediv",
        /// `a & b`
        And = "operator.and_",
        /// `a | b`
        Or = "operator.or_",
        /// `a << b`
        LShift = "operator.lshift",
        /// `a >> b`
        RShift = "operator.rshift",
        /// Rounds towards zero.
        Trunc = "math.trunc",
        /// Rounds up.
        Ceil = "math.ceil",
        /// Rounds down.
        Floor = "math.floor",
        /// `not a`
        SymNot = "torch.sym_not",
        /// To an integer, truncating.
        SymInt = "torch.sym_int",
        /// To a float.
        SymFloat = "torch.sym_float",
        /// `b if a else c`
        SymIte = "torch.sym_ite",
        /// The larger one.
        SymMax = "torch.sym_max",
        /// The smaller one.
        SymMin = "torch.sym_min",
        /// The square root.
        SymSqrt = "torch._sym_sqrt",
    }
}

impl Target {
    /// From the text form: `aten.add.Tensor`, `hop.cond`, `operator.mul`, `torch.sym_max`. None if it has too few parts.
    pub fn parse(text: &str) -> Option<Target> {
        let word = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let parts: Vec<&str> = text.split('.').collect();
        if !parts.iter().all(|p| word(p)) {
            return None;
        }
        match parts.as_slice() {
            ["hop", name] => Some(Target::Hop(Hop::from_name(name))),
            ["operator" | "torch" | "math", _] => Some(Target::Function(Function::from_name(text))),
            [namespace, base, "default"] => Some(OpOverload::new(&format!("{namespace}::{base}")).into()),
            [namespace, base, overload] => Some(OpOverload::new(&format!("{namespace}::{base}.{overload}")).into()),
            _ => None,
        }
    }

    /// An ATen overload such as `add.Tensor` or `sin.default`.
    pub fn aten(name: &str) -> Target {
        OpOverload::new(&format!("aten::{name}")).into()
    }

    /// The op overload, if it is one.
    pub fn overload(&self) -> Option<&OpOverload> {
        match self {
            Target::Op(op) => Some(op),
            _ => None,
        }
    }

    /// Whether it is this op.
    pub fn is_op(&self, op: Op) -> bool {
        self.overload().is_some_and(|overload| overload.is(op))
    }

    /// Whether it is the op of ATen with this name, such as `add.Tensor` without `.default`: for ops that programs name and
    /// this build may not have.
    pub fn is_aten(&self, name: &str) -> bool {
        self.overload().is_some_and(|op| op.qualified().strip_prefix("aten::") == Some(name))
    }

    /// Whether it is this plain function.
    pub fn is_function(&self, function: &Function) -> bool {
        matches!(self, Target::Function(f) if f == function)
    }

    /// What a new node is called by default, before it is made a name: `add.Tensor`, `cond`, `getitem`.
    pub(crate) fn default_name(&self) -> String {
        match self {
            Target::Op(op) => format!("{}.{}", op.base(), op.overload()),
            Target::Hop(hop) => hop.name().to_string(),
            Target::Function(f) => f.name().rsplit('.').next().unwrap_or_default().to_string(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Op(op) => op.fmt(f),
            Target::Hop(hop) => write!(f, "hop.{}", hop.name()),
            Target::Function(function) => f.write_str(function.name()),
        }
    }
}

impl From<OpOverload> for Target {
    fn from(op: OpOverload) -> Target {
        Target::Op(op)
    }
}
impl From<Hop> for Target {
    fn from(hop: Hop) -> Target {
        Target::Hop(hop)
    }
}
impl From<Function> for Target {
    fn from(function: Function) -> Target {
        Target::Function(function)
    }
}
