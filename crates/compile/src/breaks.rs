//! Graph breaks: why a function cannot be one graph, in terms that a user can act on.

use std::fmt;
use std::panic::Location;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $explanation:literal, $hint:literal;)*) => {
        /// Why a graph ends in the middle of a function. Names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum BreakKind { $($(#[$doc])* $kind),* }

        impl BreakKind {
            /// Its stable name.
            pub fn name(self) -> &'static str {
                match self { $(BreakKind::$kind => $name),* }
            }

            fn explanation(self) -> &'static str {
                match self { $(BreakKind::$kind => $explanation),* }
            }

            fn hint(self) -> &'static str {
                match self { $(BreakKind::$kind => $hint),* }
            }
        }
    };
}

kinds! {
    /// A branch on the value of a tensor.
    DataDependentBranch = "data-dependent branching",
        "host code branched on the value of a tensor, which is only known when the graph runs",
        "use where_self or cond so that both branches are part of the graph, or drop fullgraph";
    /// A scalar was read from a tensor.
    ScalarRead = "scalar read",
        "a tensor was converted to a host value, which is only known when the graph runs",
        "keep it as a zero-dimensional tensor, or drop fullgraph";
    /// Tensor data was copied to the host.
    DataRead = "data read",
        "the values of a tensor were copied to the host, and they are only known when the graph runs",
        "read them after the compiled function has returned, use effects::record, or drop fullgraph";
    /// An op whose result's size depends on values.
    DynamicShape = "data-dependent output shape",
        "the size of this op's result depends on the values of its input",
        "use a masked variant with a fixed size (where_self), move the op out of the function, or drop fullgraph";
    /// Requested with `graph_break()`.
    Explicit = "explicit graph break",
        "graph_break() was called",
        "remove the call, or drop fullgraph";
    /// A function that must not be compiled.
    Disabled = "disabled function",
        "a function marked with disable() was called",
        "remove the mark, or drop fullgraph";
    /// `backward` or `grad` inside the function.
    Backward = "backward inside the region",
        "gradients were computed inside the function, which needs the graph's results",
        "call backward on what the function returns, or drop fullgraph";
    /// An op or call that cannot be part of a graph.
    Unsupported = "unsupported call",
        "this call cannot be recorded in a graph",
        "move it out of the function, or drop fullgraph";
    /// Something that concerns tensor objects themselves, or how ops are executed; the rest of the call runs eagerly.
    Plain = "left to a plain run",
        "this concerns a tensor's history, flags or version, a hook of another call, or how ops are executed; none of that is part of a graph, so the rest of the function runs op by op",
        "do it around the compiled function, or drop fullgraph";
    /// A branch of a conditional with side effects.
    ImpureBranch = "a side of cond with effects",
        "the branches of a cond op are part of the graph and may only compute with tensors",
        "move the effect out of the branch, or return what it needs from the branch";
    /// A hook that was declared pure and is not.
    ImpureHook = "unsafe side effect in a pure hook",
        "a hook that was declared pure did something other than compute with tensors",
        "register it with register_hook: it is then called with real gradients at every backward";
    /// Saved-tensor hooks that the function enables itself.
    SavedHooks = "saved-tensor hooks inside the region",
        "saved-tensor hooks are host code; ops inside their scope run one by one, with the hooks",
        "enable the hooks around the call of the compiled function, or drop fullgraph";
    /// The id of a handle that exists only when the graph runs.
    HandleId = "id of a handle born in this capture",
        "the id of a handle was read, but every call creates a new handle",
        "read it after the compiled function has returned, or drop fullgraph";
}

/// One break: its kind, what exactly happened, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphBreak {
    /// Why.
    pub kind: BreakKind,
    /// What was called.
    pub what: String,
    /// The location in the user's source, if known.
    pub location: Option<&'static Location<'static>>,
}

impl GraphBreak {
    /// An explanation of the kind.
    pub fn explanation(&self) -> &'static str {
        self.kind.explanation()
    }

    /// A hint on how to avoid it.
    pub fn hint(&self) -> &'static str {
        self.kind.hint()
    }
}

impl fmt::Display for GraphBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}. Hint: {}", self.kind.name(), self.what, self.explanation(), self.hint())?;
        self.location.map_or(Ok(()), |at| write!(f, ". At {}:{}:{}", at.file(), at.line(), at.column()))
    }
}
