//! The errors of this crate, as one enum with fields.
//!
//! An [`Error`] is one pointer wide, so `Result<Tensor>` stays small on the hot path. Messages say what was expected,
//! what was found and what to do. Kinds are the contract (tests match on them); wording is free to improve.

use crate::Device;
use firebrand_kernels::DType;

/// The result of a fallible operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A boxed [`ErrorKind`].
#[derive(Debug)]
pub struct Error(Box<ErrorKind>);

impl Error {
    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// A user error, from a hook or a custom function; the engine passes it through unchanged.
    pub fn user(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        ErrorKind::User(e.into()).into()
    }

    /// Panics with this message: what the methods without `try_` do on error. The end of a recomputation
    /// ([`ErrorKind::CheckpointEarlyStop`]) is not a failure; it unwinds without a message to the checkpoint that recomputes.
    #[cold]
    #[track_caller]
    pub fn raise(self) -> ! {
        let is_tried = matches!(*self.0, ErrorKind::MetaData { .. }) && crate::capture::in_trial();
        if is_tried || matches!(*self.0, ErrorKind::CheckpointEarlyStop) {
            std::panic::resume_unwind(Box::new(self))
        }
        panic!("{self}")
    }

    /// A shape or argument error of an op.
    #[cold]
    pub fn argument(op: &'static str, message: impl Into<String>) -> Error {
        ErrorKind::Argument { op, message: message.into() }.into()
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    fn from(k: ErrorKind) -> Error {
        Error(Box::new(k))
    }
}

/// The I/O error is its source.
impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Error {
        Error::user(e)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            ErrorKind::User(e) => Some(&**e),
            _ => None,
        }
    }
}

/// PyTorch's class of an error, for layers that map errors to other languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A run-time error.
    Runtime,
    /// An argument with a bad value.
    Value,
    /// An argument of a bad type.
    Type,
    /// A failed assertion about the caller's input.
    Assertion,
    /// Something that has no implementation.
    NotImplemented,
    /// An index outside its range.
    Index,
}

fn made_by(op: &Option<(String, usize)>) -> String {
    op.as_ref().map_or(String::new(), |(n, i)| format!(", which is output {i} of {n}"))
}

/// The kinds of error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
pub enum ErrorKind {
    // ---- arguments of ops
    #[error("{op}: {message}")]
    Argument { op: &'static str, message: String },
    #[error("{op}: dimension {dim} is out of range for a tensor with {ndim} dimensions; expected {} to {}", -(*.ndim.max(&1) as i64), *.ndim.max(&1) as i64 - 1)]
    DimOutOfRange { op: &'static str, dim: i64, ndim: usize },
    #[error(
        "{op}: shapes {left:?} and {right:?} cannot be broadcast together: dimension {dim} has sizes {a} and {b}; make them equal or one of them 1"
    )]
    Broadcast { op: &'static str, left: Vec<usize>, right: Vec<usize>, dim: usize, a: usize, b: usize },
    #[error("{op}: dtype {found} is not supported; expected {expected}")]
    DTypeUnsupported { op: &'static str, found: DType, expected: &'static str },
    #[error(
        "{op}: a result of dtype {from} cannot be stored in a tensor of dtype {to}; convert one of them with to_dtype"
    )]
    CannotCast { op: &'static str, from: DType, to: DType },
    #[error("{op}: index {index} is out of range for dimension {dim} with size {size}")]
    IndexOutOfRange { op: &'static str, index: i64, dim: usize, size: usize },
    #[error(
        "{op}: in-place result has shape {result:?}, but the tensor written has shape {target:?}; in-place ops never change the shape of their target"
    )]
    InplaceShape { op: &'static str, result: Vec<usize>, target: Vec<usize> },
    #[error("a tensor of shape {shape:?} has too many elements; the maximum is {}", crate::limits::MAX_ELEMENTS)]
    SizeOverflow { shape: Vec<usize> },
    #[error("a tensor cannot have {ndim} dimensions; the maximum is {}", crate::limits::MAX_DIMS)]
    TooManyDims { ndim: usize },
    #[error("a layout needs one stride per size, found {sizes} sizes and {strides} strides")]
    LayoutRank { sizes: usize, strides: usize },
    #[error(
        "sizes {sizes:?} with strides {strides:?} and offset {offset} exceed the addressable memory; make them smaller"
    )]
    LayoutOverflow { sizes: Vec<usize>, strides: Vec<usize>, offset: usize },
    #[error("cannot allocate {bytes} bytes; free tensors or call empty_cache()")]
    OutOfMemory { bytes: usize },
    #[error(
        "{op}: expected all tensors on the same device, but {argument} is on {device} and {reference} is on {expected}"
    )]
    DeviceMismatch { op: &'static str, argument: String, device: Device, reference: String, expected: Device },
    #[error(
        "{op} {role} its operand {operand} while {other} {other_role} the same memory (its {other_operand}) on another thread: \
         elements may be written only while no other thread uses them. Join the thread, send a message or hold a lock first, or \
         give each thread its own memory with clone_tensor()"
    )]
    DataRace {
        op: &'static str,
        operand: String,
        role: Role,
        other: &'static str,
        other_operand: String,
        other_role: Role,
    },
    #[error("{op}: expected dense tensors, but {argument} is sparse; call to_dense() on it first")]
    SparseOperand { op: &'static str, argument: String },
    #[error(
        "expected a dense tensor, found a sparse one of shape {shape:?}, which this op cannot read or write; call to_dense() first"
    )]
    SparseData { shape: Vec<usize> },
    #[error("{op}: a tensor on the meta device has no data to read")]
    MetaData { op: &'static str },
    #[error("{op}: unknown op; `firebrand ops` lists all ops")]
    UnknownOp { op: String },
    #[error("cannot register `{schema}`: {message}")]
    Registration { schema: String, message: String },
    #[error("{op}: argument {position} ('{name}') should be {expected}, found {found}")]
    ArgumentType { op: String, position: usize, name: String, expected: String, found: String },
    #[error("{op}:{} {message}", batch_element(.batch))]
    Linalg { op: &'static str, batch: Option<usize>, message: String },
    #[error("{op}: not implemented: {what}")]
    NotImplemented { op: String, what: String },
    #[error("the derivative of {op} with respect to '{argument}' is not implemented")]
    DerivativeNotImplemented { op: String, argument: String },
    #[error("forward-mode differentiation of {op} is not implemented")]
    ForwardNotImplemented { op: String },

    // ---- tensors and history (A)
    #[error(
        "only floating point and complex tensors can require gradients, found {dtype}; convert it with to_dtype first"
    )]
    NotDifferentiableDtype { dtype: DType },
    #[error("requires_grad of a non-leaf tensor cannot be turned off; use detach() to get a tensor without history")]
    NonLeafFlag,
    #[error("{op}: cannot write in place to a leaf tensor that requires grad; do it under no_grad, or on a clone")]
    LeafInplace { op: &'static str },
    #[error(
        "{op}: cannot write in place to a view of a leaf tensor that requires grad; do it under no_grad, or on a clone"
    )]
    LeafViewInplace { op: &'static str },
    #[error(
        "{op}: several elements of the tensor to write share one memory location (was it expanded?); call clone_tensor() first"
    )]
    OverlappingWrite { op: &'static str },
    #[error("{op}: the tensor to write partially overlaps an input; call clone_tensor() on the input first")]
    PartialOverlap { op: &'static str },
    #[error("a tensor needed for the gradient was modified by an in-place operation: {dtype} {shape:?}{}, is at version {found}; expected version {expected}. Run the forward under detect_anomaly(true) to see the call whose gradient failed", made_by(.producer))]
    SavedVersionMismatch {
        dtype: DType,
        shape: Vec<usize>,
        producer: Option<(String, usize)>,
        expected: u32,
        found: u32,
    },
    #[error(
        "the saved values of {node} were freed: the graph was run backward a second time, or its saved values were read after it ran. Set retain_graph in the options of the first run to keep them"
    )]
    GraphFreed { node: String },
    #[error("{}", view_inplace("is one of several views that a function such as unbind, split or chunk returns", *.indirect))]
    MultiOutputViewInplace { indirect: bool, of: Option<(String, usize)> },
    #[error("{}", view_inplace("was made with grad mode off", *.indirect))]
    NoGradViewInplace { indirect: bool, of: Option<(String, usize)> },
    #[error("{}", view_inplace("was made in inference mode", *.indirect))]
    InferenceViewInplace { indirect: bool, of: Option<(String, usize)> },
    #[error("{}", view_inplace("is an output of a custom function that returns a view or its input", *.indirect))]
    CustomFnViewInplace { indirect: bool, of: Option<(String, usize)> },
    #[error("{}", view_inplace("is returned by a compiled function and shows a value that the function keeps", *.indirect))]
    CompiledViewInplace { indirect: bool, of: Option<(String, usize)> },
    #[error("{}", view_inplace("reinterprets its base as another dtype", *.indirect))]
    OtherDtypeViewInplace { indirect: bool, of: Option<(String, usize)> },
    #[error("detach_ on a view would detach its base as well; use detach() instead")]
    DetachViewInplace,
    #[error("the assigned gradient has shape {found:?}; expected the tensor's shape, {expected:?}")]
    GradAssignShape { expected: Vec<usize>, found: Vec<usize> },
    #[error("the assigned gradient has dtype {found}; expected {expected}. set_grad_dtype allows another dtype")]
    GradAssignDtype { expected: DType, found: DType },
    #[error("a tensor cannot be its own gradient")]
    GradAssignSelf,
    #[error("retain_grad on a tensor that does not require grad")]
    RetainGradNoGrad,
    #[error("cannot register a hook on a tensor that does not require grad")]
    HookNoGrad,
    #[error("post-accumulate-grad hooks can only be registered on leaf tensors")]
    PostAccNonLeaf,
    #[error("only leaf tensors can be deep-copied; use clone_tensor() or detach() for a non-leaf tensor")]
    DeepCopyNonLeaf,

    // ---- engine (C)
    #[error("element {index} of the tensors to differentiate does not require grad and has no grad_fn")]
    NoGradFn { index: usize },
    #[error(
        "a gradient can be created implicitly only for outputs with one element; this output has shape {shape:?}. Pass a gradient"
    )]
    ImplicitGradNonScalar { shape: Vec<usize> },
    #[error("a gradient can be created implicitly only for real outputs; this output is {dtype}. Pass a gradient")]
    ImplicitGradNotReal { dtype: DType },
    #[error("gradient {index} has shape {found:?}, output {index} has shape {expected:?}; they must be equal")]
    GradShapeMismatch { index: usize, expected: Vec<usize>, found: Vec<usize> },
    #[error(
        "gradient {index} has dtype {found}, output {index} has dtype {expected}: both must be real or both complex"
    )]
    GradComplexMismatch { index: usize, expected: DType, found: DType },
    #[error(
        "{}invalid gradient at index {index} - expected device {expected} but got {found}; make it on that device",
        node.as_ref().map_or(String::new(), |n| format!("node {n} returned an "))
    )]
    GradDevice { node: Option<String>, index: usize, expected: Device, found: Device },
    #[error(
        "batched gradient {index} has shape {found:?}; after the batch dimension it must equal the output's shape {expected:?}"
    )]
    BatchedGradShape { index: usize, expected: Vec<usize>, found: Vec<usize> },
    #[error("the list of inputs is empty: name at least one tensor to differentiate with respect to")]
    EmptyInputs,
    #[error("input {index} was not used in the graph; set allow_unused if that is intended")]
    UnusedInput { index: usize },
    #[error("input {index} does not require grad")]
    InputNoGrad { index: usize },
    #[error(
        "materialize_grads cannot make zeros for a GradientEdge (input {index}): its shape may not be known; pass the tensor"
    )]
    EdgeMaterialize { index: usize },
    #[error("get_gradient_edge needs a tensor that requires grad")]
    EdgeNoGrad,
    #[error("materialize_grads needs unused inputs to be allowed; leave allow_unused unset or true")]
    MaterializeNeedsUnused,
    #[error("queue_callback can only be called while a backward pass runs")]
    CallbackOutsideBackward,
    #[error("this is only available while a backward pass runs")]
    NotInBackward,
    #[error(
        "the node of a leaf does not run in a grad() call: its gradient is captured, not accumulated; use backward with inputs"
    )]
    LeafInGradCall,
    #[error(
        "the execution order is only fixed with multithreading off; call it under set_multithreading_enabled(false)"
    )]
    MultithreadingMustBeOff,
    #[error("node {node} returned nan values in its output {output}")]
    NanGradient { node: String, output: usize },
    #[error("node {node} returned {found} gradients, expected {expected}")]
    NodeGradCount { node: String, expected: usize, found: usize },
    #[error("backward() cannot be called inside a function transform; use the transform's own gradient")]
    BackwardInTransform,
    #[error("the engine failed on another thread: {message}")]
    EngineThread { message: String },

    // ---- hooks (D)
    #[error("hook{} returned shape {found:?}, expected {expected:?}", named(.hook))]
    HookShape { hook: Option<String>, expected: Vec<usize>, found: Vec<usize> },
    #[error("hook{} returned dtype {found}, expected {expected}", named(.hook))]
    HookDtype { hook: Option<String>, expected: DType, found: DType },
    #[error("hook{} returned a gradient on {found}, expected one on {expected}", named(.hook))]
    HookDevice { hook: Option<String>, expected: Device, found: Device },
    #[error("hook{} returned {found} gradients, expected {expected}", named(.hook))]
    HookCount { hook: Option<String>, expected: usize, found: usize },
    #[error("hook{}: can't replace a None gradient with a non-None value", named(.hook))]
    HookUndefined { hook: Option<String> },
    #[error("{hook} of module {module} returned {found} tensors, expected {expected}")]
    ModuleHookCount { module: &'static str, hook: &'static str, expected: usize, found: usize },
    #[error("{hook} of module {module} was written for {expected}, but the module was called with {found}")]
    ModuleHookType { module: &'static str, hook: &'static str, expected: &'static str, found: &'static str },
    #[error(
        "module {module} has backward hooks of the other kind: legacy and full backward hooks do not mix on one module"
    )]
    MixedModuleHooks { module: &'static str },
    #[error(
        "a full backward hook of module {module} replaced gradients of inputs, but no input requires grad; return None"
    )]
    ModuleHookNoInput { module: &'static str },
    #[error("the state dictionary does not match module {module}: {message}")]
    StateDict { module: &'static str, message: String },

    // ---- saved tensors (E)
    #[error("{message}")]
    SavedHooksDisabled { message: String },
    #[error(
        "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not supported, please \
         use out-of-place `.detach()` instead"
    )]
    SavedDetached,
    #[error("hooks for this saved tensor were already set")]
    SavedHooksTwice,
    #[error("hooks cannot be set on a saved tensor whose graph was freed")]
    SavedHooksAfterFree,
    #[error("hooks cannot be set on a saved value that is None")]
    SavedHooksOnNone,
    #[error("the pack hook modified its input in place, which is not allowed")]
    PackMutatesInput,
    #[error("allow_mutation_on_saved_tensors does not nest")]
    MutationCtxNested,
    #[error("a tensor saved under allow_mutation_on_saved_tensors is read outside that scope, or after it was cleared")]
    MutationCtxOutside,
    #[error("checkpoint: {message}")]
    CheckpointMismatch { message: String },
    #[error("checkpoint: a recomputed value was read twice in one backward run; it is dropped after the first")]
    CheckpointDoubleUnpack,
    #[error(
        "checkpoint: this recomputation has everything backward needs and stops here. Propagate the error: the checkpoint that \
         recomputes treats it as success"
    )]
    CheckpointEarlyStop,
    #[error("none of output has requires_grad=True, this checkpoint() is not necessary")]
    CheckpointNoGradOutput,
    #[error("a reentrant checkpoint cannot run under grad() or backward(inputs=..); use the non-reentrant variant")]
    CheckpointReentrantInputs,
    #[error("a node was created inside a node creation hook; creation hooks must not record operations")]
    NodeCreatedInCreationHook,

    // ---- custom functions (G)
    #[error("{function}: backward returned {found} gradients, expected {expected}: one for each argument of forward")]
    FnGradCount { function: String, expected: usize, found: usize },
    #[error(
        "{function}: the gradient for input {position} has shape {found:?}, which cannot be reduced to the input's shape {expected:?}"
    )]
    FnGradShape { function: String, position: usize, expected: Vec<usize>, found: Vec<usize> },
    #[error("{function}: the gradient for input {position} is complex, the input is real")]
    FnGradComplex { function: String, position: usize },
    #[error("{function}: jvp returned {found} tangents, expected {expected}: one for each output of forward")]
    JvpCount { function: String, expected: usize, found: usize },
    #[error(
        "{function}: jvp returned a tangent for output {position}, which is not differentiable; return None for it"
    )]
    JvpNotDifferentiable { function: String, position: usize },
    #[error("{function}: the tangent of output {position} has shape {found:?}, the output has shape {expected:?}")]
    JvpShape { function: String, position: usize, expected: Vec<usize>, found: Vec<usize> },
    #[error("{function}: output {position}: {}", jvp_rule(.rule))]
    JvpRule { function: String, position: usize, rule: JvpRule },
    #[error("{function}: a leaf that requires grad was marked dirty")]
    DirtyLeaf { function: String },
    #[error("{function}: a tensor was marked dirty and not returned")]
    DirtyNotReturned { function: String },
    #[error("{function}: a view was marked dirty by a function with several outputs")]
    DirtyViewMultiOut { function: String },
    #[error("{function} was marked once_differentiable and cannot be differentiated twice")]
    OnceDifferentiable { function: String },
    #[error("{function}: saved tensors are cleared when they are first read, and they were already read")]
    SavedTensorsOnce { function: String },
    #[error(
        "{function}: under a function transform, a custom function must save its tensors in setup_context, so that forward can run at every level; define setup_context and return true from has_setup_context"
    )]
    NeedsSetupContext { function: String },
    #[error("{function}: set_output_grad_dtype: {message}")]
    OutputGradDtype { function: String, message: String },
    #[error("{function}: input_grad_buffers: {message}")]
    InputGradBuffers { function: String, message: &'static str },
    #[error("{function} does not define {what}")]
    FunctionNotImplemented { function: String, what: &'static str },

    // ---- modes (F)
    #[error(
        "inference tensors cannot be saved for backward; call clone_tensor() outside inference mode to get a normal tensor"
    )]
    InferenceSaved,
    #[error("{op}: cannot write in place to an inference tensor outside inference mode; call clone_tensor() first")]
    InferenceInplace { op: &'static str },
    #[error("an inference tensor cannot require grad outside inference mode; call clone_tensor() first")]
    InferenceRequiresGrad,
    #[error("inference tensors do not track versions")]
    InferenceVersion,
    #[error("no dual level is active; enter one with dual_level(..)")]
    NoDualLevel,
    #[error("dual levels do not nest")]
    NestedDualLevel,
    #[error("cannot exit dual level {found}: the active level is {expected:?}")]
    DualLevelOrder { expected: Option<u32>, found: u32 },
    #[error("the tangent has shape {found:?}; expected the primal's shape, {expected:?}")]
    DualShape { expected: Vec<usize>, found: Vec<usize> },
    #[error("the tensor already carries a tangent at this level")]
    DualTwice,
    #[error("forward mode needs floating point or complex tensors, found {dtype}")]
    DualDtype { dtype: DType },
    #[error(
        "{op}: cannot read the values of a batched tensor inside vmap, which differ between samples. Use tensor operations (where_self instead of a branch)"
    )]
    BatchedData { op: &'static str },
    #[error(
        "a tensor made inside vmap was used outside of it, where it has no values of its own: it stands for one sample of a batch. Return it from the mapped function instead of keeping it"
    )]
    EscapedTensor,
    #[error(
        "{op}: a function under a grad, vjp or jvp transform writes in place into a tensor it captured; pass the tensor as an argument and return its new value"
    )]
    CapturedMutation { op: &'static str },
    #[error(
        "{op}: inside vmap, a batched value is written in place into a tensor that is not batched; create the target from a batched tensor (zeros_like, new_zeros), or use the out-of-place form"
    )]
    UnbatchedWrite { op: String },
    #[error(
        "{op}: inside vmap with Randomness::Different, a tensor that is not batched would get the same values for all samples; create it from a batched tensor (zeros_like, new_zeros), or use Randomness::Same"
    )]
    UnbatchedDraw { op: &'static str },
    #[error("vmap: {message}")]
    Vmap { message: String },
    #[error(
        "{op}: vmap was called with randomness=\"error\" (the default), but the function uses a random operation; choose Randomness::Same or Randomness::Different"
    )]
    VmapRandomness { op: String },
    #[error("{transform}: expected a function that returns {expected}, found {found}")]
    TransformOutput { transform: &'static str, expected: &'static str, found: String },
    #[error("{function}: {message}")]
    Functional { function: &'static str, message: String },
    #[error("{function}: {message}; strict requires every output to depend on every input")]
    StrictIndependent { function: &'static str, message: String },
    #[error("{function}: the vector v must be given unless the function has one output of one element")]
    MissingV { function: &'static str },
    #[error("{function}: v has size {found:?}, expected {expected:?}")]
    VSize { function: &'static str, expected: Vec<usize>, found: Vec<usize> },
    #[error("region_activation_memory_budget works in compiled code only")]
    EagerBudget,
    #[error("the memory budget must be between 0 and 1, found {value}")]
    BudgetRange { value: f64 },

    // ---- checking (H)
    #[error("{message}")]
    Gradcheck { message: String },
    #[error("gradcheck: {message}")]
    GradcheckUsage { message: String },
    #[error("gradcheck: {message}")]
    GradcheckAssertion { message: &'static str },
    #[error("gradcheck: input {index} has elements that share memory (a zero stride); call clone_tensor() first")]
    OverlappingInput { index: usize },

    // ---- replacing data
    #[error("data set to a tensor that requires gradients must be floating point or complex dtype, found {dtype}")]
    SetDataDtype { dtype: DType },
    #[error(
        "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type: one is on \
         {expected}, the other on {found}"
    )]
    SetDataDevice { expected: crate::Device, found: crate::Device },

    // ---- the user's own
    #[error("{0}")]
    User(Box<dyn std::error::Error + Send + Sync>),
}

/// A requirement on the tangent of an output that shares memory with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JvpRule {
    /// The output is a view, so its tangent must be one.
    View,
    /// The tangent is a view of the input's tangent.
    ViewOfTangent,
    /// It views the same elements of it.
    SameRegion,
    /// The input was written in place, so its tangent must be too.
    WrittenInPlace,
    /// The tangent that was written must be returned itself.
    ReturnedAsIs,
}

fn jvp_rule(rule: &JvpRule) -> &'static str {
    match rule {
        JvpRule::View => {
            "forward returns a view (or an input as it is), but jvp does not return a view. Return a view of the \
             input's tangent, made by the same view operation"
        }
        JvpRule::ViewOfTangent => {
            "forward returns a view, but jvp does not return a view of the tangent of the input it shows"
        }
        JvpRule::SameRegion => "forward returns a view, but jvp returns a view of different elements of the tangent",
        JvpRule::WrittenInPlace => {
            "forward writes an input in place, but jvp does not write its tangent in place. Write the tangent that jvp \
             receives, and return it"
        }
        JvpRule::ReturnedAsIs => {
            "forward writes an input in place, but jvp does not return the tangent it wrote. Return the same tensor that \
             jvp received"
        }
    }
}

fn batch_element(batch: &Option<usize>) -> String {
    batch.map_or(String::new(), |n| format!(" (batch element {n}):"))
}

fn named(hook: &Option<String>) -> String {
    hook.as_ref().map_or(String::new(), |n| format!(" '{n}'"))
}

fn view_inplace(why: &str, indirect: bool) -> String {
    if indirect {
        format!(
            "the base of a view, or a sibling view, was modified in place, and the view used here {why}: its history cannot \
             be rebuilt. Clone the view, or modify the base before you create the view"
        )
    } else {
        format!("a view that {why} is modified in place, and its history cannot be rebased. Clone it first")
    }
}

impl ErrorKind {
    /// PyTorch's class of this kind.
    pub fn class(&self) -> Class {
        use ErrorKind::*;
        match self {
            DualDtype { .. } | GradcheckUsage { .. } | MaterializeNeedsUnused | BudgetRange { .. } | Vmap { .. } => {
                Class::Value
            }
            ArgumentType { .. } => Class::Type,
            GradcheckAssertion { .. } | MutationCtxOutside => Class::Assertion,
            NotImplemented { .. } | FunctionNotImplemented { .. } | ForwardNotImplemented { .. } => {
                Class::NotImplemented
            }
            IndexOutOfRange { .. } | DimOutOfRange { .. } => Class::Index,
            _ => Class::Runtime,
        }
    }
}

/// The value, or a panic with the error's message at the caller's line, as the methods of tensors do.
#[track_caller]
#[inline]
pub(crate) fn expect_ok<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => e.raise(),
    }
}

impl From<firebrand_kernels::OutOfMemory> for Error {
    fn from(e: firebrand_kernels::OutOfMemory) -> Error {
        ErrorKind::OutOfMemory { bytes: e.bytes }.into()
    }
}

/// What an op does with an operand's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads only.
    Reads,
    /// Writes elements.
    Writes,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Reads => "reads",
            Role::Writes => "writes",
        })
    }
}
