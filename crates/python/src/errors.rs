//! Errors in both directions: kinds of core become PyTorch's exception classes and, where its tests assert one, its text;
//! Python's exceptions pass through core unchanged and come out as the very same objects, traceback included.

use firebrand::{Class, DType, Error, ErrorKind, Result};
use pyo3::create_exception;
use pyo3::exceptions::{
    PyAssertionError, PyIndexError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;

create_exception!(
    firebrand,
    StopRecomputation,
    PyRuntimeError,
    "Ends the recomputation of a checkpoint that has all it needs."
);
create_exception!(firebrand, GradcheckError, PyRuntimeError, "Numerical and analytical gradients differ.");

create_exception!(
    firebrand,
    LinAlgError,
    PyRuntimeError,
    "A decomposition failed: a singular matrix, or one that is not positive-definite."
);
create_exception!(firebrand, CheckpointError, PyRuntimeError, "The rerun of a checkpoint differs from its first run.");

/// A result of core as a result of Python.
pub(crate) trait Raise<T> {
    /// The value, or the exception.
    fn raise(self) -> PyResult<T>;
}

impl<T> Raise<T> for Result<T> {
    #[inline]
    fn raise(self) -> PyResult<T> {
        self.map_err(exception)
    }
}

/// An exception that passes through core.
#[cold]
pub(crate) fn passed(e: PyErr) -> Error {
    let early_stop = Python::attach(|py| e.is_instance_of::<StopRecomputation>(py));
    if early_stop { ErrorKind::CheckpointEarlyStop.into() } else { Error::user(e) }
}

/// The exception of an error; one that came from Python is itself.
#[cold]
pub(crate) fn exception(e: Error) -> PyErr {
    exception_of(&e)
}

/// The exception of an error that goes on.
pub(crate) fn exception_of(e: &Error) -> PyErr {
    if let ErrorKind::User(user) = e.kind()
        && let Some(own) = user.downcast_ref::<PyErr>()
    {
        return Python::attach(|py| own.clone_ref(py));
    }
    let text = text(e.kind()).unwrap_or_else(|| e.to_string());
    match e.kind() {
        ErrorKind::CheckpointEarlyStop => StopRecomputation::new_err(text),
        ErrorKind::CheckpointMismatch { .. } => CheckpointError::new_err(text),
        ErrorKind::Gradcheck { .. } => GradcheckError::new_err(text),
        // Arguments of vmap itself are looked at in Python; what is left are ops that it cannot map.
        ErrorKind::Vmap { .. } if !text.contains("out_dim is None") => PyRuntimeError::new_err(text),
        ErrorKind::IndexOutOfRange { op, .. } if *op == "embedding_bag" || is_gather_or_scatter(op) => {
            PyRuntimeError::new_err(text)
        }
        ErrorKind::Linalg { .. } => LinAlgError::new_err(text),
        ErrorKind::DTypeUnsupported { .. } => PyNotImplementedError::new_err(text),
        ErrorKind::Argument { op: "index", message } if message.starts_with("the mask has") => {
            PyIndexError::new_err(text)
        }
        ErrorKind::Argument { op: "cat", message } if message.contains("list of tensors is empty") => {
            PyValueError::new_err(text)
        }
        kind => match kind.class() {
            Class::Runtime => PyRuntimeError::new_err(text),
            Class::Value => PyValueError::new_err(text),
            Class::Type => PyTypeError::new_err(text),
            Class::Assertion => PyAssertionError::new_err(text),
            Class::NotImplemented => PyNotImplementedError::new_err(text),
            Class::Index => PyIndexError::new_err(text),
        },
    }
}

/// Ops whose index out of range is a RuntimeError in PyTorch; that of others is an IndexError.
fn is_gather_or_scatter(op: &str) -> bool {
    op.starts_with("gather") || op.starts_with("scatter") || op.starts_with("index_add")
}

/// The errors of the crates above core, which have one class.
#[cold]
pub(crate) fn runtime(e: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(e.to_string())
}

fn size(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("firebrand.Size([{}])", sizes.join(", "))
}

fn hook_name(name: &Option<String>) -> String {
    name.as_ref().map_or_else(|| "hook".to_string(), |name| format!("hook '{name}'"))
}

/// `Mul`, of the node `MulBackward0`.
fn operation(node: &str) -> &str {
    let name = node.trim_end_matches(|c: char| c.is_ascii_digit());
    name.strip_suffix("Backward").unwrap_or(node)
}

/// `FloatTensor`: how PyTorch's messages call a tensor of this dtype.
fn tensor_name(dtype: DType) -> String {
    format!("firebrand.{}Tensor", dtype.class())
}

/// PyTorch's text for a kind, where programs are known to look for it; others keep their own.
fn text(kind: &ErrorKind) -> Option<String> {
    use ErrorKind::*;
    Some(match kind {
        NoGradFn { index } => {
            format!("element {index} of tensors does not require grad and does not have a grad_fn")
        }
        ImplicitGradNonScalar { .. } => "grad can be implicitly created only for scalar outputs".into(),
        ImplicitGradNotReal { dtype } => {
            format!("grad can be implicitly created only for real scalar outputs but got {}", convert_name(*dtype))
        }
        GraphFreed { .. } => "Trying to backward through the graph a second time (or directly access saved tensors after \
                              they have already been freed). Saved intermediate values of the graph are freed when you call \
                              .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the \
                              graph a second time or if you need to access saved tensors after calling backward."
            .into(),
        LeafInplace { .. } | DirtyLeaf { .. } => {
            "a leaf Variable that requires grad is being used in an in-place operation.".into()
        }
        LeafViewInplace { .. } => {
            "a view of a leaf Variable that requires grad is being used in an in-place operation.".into()
        }
        SavedVersionMismatch { dtype, shape, producer, expected, found } => {
            let made = producer.as_ref().map_or(String::new(), |(node, k)| format!(", which is output {k} of {}", operation(node)));
            format!(
                "one of the variables needed for gradient computation has been modified by an inplace operation: \
                 [{} {shape:?}]{made}, is at version {found}; expected version {expected} instead. Hint: enable anomaly \
                 detection to find the operation that failed to compute its gradient, with \
                 firebrand.autograd.set_detect_anomaly(True, check_nan=False).",
                tensor_name(*dtype)
            )
        }
        UnusedInput { index } => format!(
            "The differentiated Tensor at index {index} appears to not have been used in the graph. Set allow_unused=True if this \
             is the desired behavior."
        ),
        InputNoGrad { .. } => "One of the differentiated Tensors does not require grad".into(),
        HookCount { hook, expected, found } => {
            let hook = hook_name(hook);
            format!("{hook} has returned an incorrect number of values (got {found}, but expected {expected})")
        }
        HookShape { hook, expected, found } => {
            format!("{} has changed the size of value (was {expected:?} got {found:?})", hook_name(hook))
        }
        HookDtype { hook, expected, found } => {
            let (before, after) = (tensor_name(*expected), tensor_name(*found));
            format!("{} has changed the type of value (was {before} got {after})", hook_name(hook))
        }
        HookNoGrad => "cannot register a hook on a tensor that doesn't require gradient".into(),
        PostAccNonLeaf => "post accumulate grad hooks cannot be registered on non-leaf tensors".into(),
        NonLeafFlag => "you can only change requires_grad flags of leaf variables. If you want to use a computed variable \
                        in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            .into(),
        NotDifferentiableDtype { .. } => {
            "only Tensors of floating point and complex dtype can require gradients".into()
        }
        DeepCopyNonLeaf => {
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.".into()
        }
        RetainGradNoGrad => "can't retain_grad on Tensor that has requires_grad=False".into(),
        GradShapeMismatch { index, expected, found } => format!(
            "Mismatch in shape: grad_output[{index}] has a shape of {} and output[{index}] has a shape of {}.",
            size(found),
            size(expected)
        ),
        Broadcast { dim, a, b, .. } => format!(
            "The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}"
        ),
        DimOutOfRange { dim, ndim, .. } => {
            let n = *(ndim.max(&1)) as i64;
            format!("Dimension out of range (expected to be in range of [{}, {}], but got {dim})", -n, n - 1)
        }
        IndexOutOfRange { op: "embedding_bag", index, .. } => {
            format!("embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {index}")
        }
        IndexOutOfRange { index, dim, size, .. } => {
            format!("index {index} is out of bounds for dimension {dim} with size {size}")
        }
        OnceDifferentiable { .. } => {
            "trying to differentiate twice a function that was marked with @once_differentiable".into()
        }
        InferenceSaved => "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference \
                           mode in computation tracked by autograd. To work around this, you can make a clone to get a \
                           normal tensor and use it in autograd, or use `firebrand.no_grad()` instead of \
                           `firebrand.inference_mode()`."
            .into(),
        InferenceInplace { .. } => "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a \
                                    clone to get a normal tensor before doing inplace update."
            .into(),
        InferenceRequiresGrad => {
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.".into()
        }
        InferenceVersion => "Inference tensors do not track version counter.".into(),
        NanGradient { node, output } => format!("Function '{node}' returned nan values in its {output}th output."),
        GradAssignSelf => "can't assign Variable as its own grad".into(),
        GradAssignShape { expected, found } => format!(
            "attempting to assign a gradient of size '{found:?}' to a tensor of size '{expected:?}'. Please ensure that the \
             gradient and the tensor are the same size"
        ),
        MultiOutputViewInplace { indirect, of } => format!(
            "{} This view is the output of a function that returns multiple views. Such functions do not allow the output views \
             to be modified inplace. You should replace the inplace operation by an out-of-place one.",
            view_head(*indirect, of, "no_grad", false)
        ),
        CustomFnViewInplace { indirect, of } => format!(
            "{} This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to \
             handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect \
             gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.",
            view_head(*indirect, of, "no_grad", false)
        ),
        CompiledViewInplace { indirect, of } => format!(
            "{} This view was returned by a compiled function and shows a value that the function keeps. Such views cannot be \
             modified inplace. You can fix this by cloning the output of the compiled function.",
            view_head(*indirect, of, "no_grad", false)
        ),
        NoGradViewInplace { indirect, of } => {
            format!("{} {}", view_head(*indirect, of, "no_grad", true), both_inside("no_grad"))
        }
        InferenceViewInplace { indirect, of } => {
            format!("{} {}", view_head(*indirect, of, "inference", true), both_inside("inference_mode"))
        }
        ForwardNotImplemented { op } => format!(
            "Trying to use forward AD with {op} that does not support it because it has not been implemented yet."
        ),
        DerivativeNotImplemented { op, .. } => format!("the derivative for '{op}' is not implemented."),
        PackMutatesInput => "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook \
                             can not be modified by in-place operations as this can lead to unexpected side-effects."
            .into(),
        SavedHooksTwice => "Calling register_hooks on a saved tensor whose hooks have already been set.".into(),
        SavedHooksOnNone => "Calling register_hooks on a saved tensor with value None is forbidden".into(),
        MutationCtxNested => "allow_mutation_on_saved_tensors contexts cannot be nested".into(),
        MutationCtxOutside => "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph \
                               was originally recorded."
            .into(),
        CheckpointMismatch { message } if message.contains("\nops of both runs:") => format!(
            "firebrand.utils.checkpoint: {message}\n\nYou are seeing this error because you passed `debug=True` to checkpoint and \
             tensors to be saved during the original forward and differ between those saved during recomputation."
        ),
        CheckpointMismatch { message } => format!("firebrand.utils.checkpoint: {message}"),
        CheckpointReentrantInputs => "firebrand.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter \
                                      to .backward(). Set use_reentrant=False, or call .backward() without `inputs`."
            .into(),
        CheckpointDoubleUnpack => "firebrand.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked \
                                   once. If you are calling ctx.saved_tensors in backward, make sure to do so only once."
            .into(),
        EdgeMaterialize { .. } => "materialize_grads cannot be used when the given input is a GradientEdge".into(),
        LeafInGradCall => "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This \
                           is currently not supported."
            .into(),
        NotInBackward => "the running graph should only be called during the backward pass: at other times there is none".into(),
        FnGradShape { function, position, expected, found } => format!(
            "Function {function} returned an invalid gradient at index {position} - got {found:?} but expected shape compatible \
             with {expected:?}"
        ),
        JvpRule { rule, .. } => match rule {
            firebrand::JvpRule::View => "A custom Function's forward is returning a view (or an input as-is) but the jvp is not \
                                         returning a view."
                .into(),
            firebrand::JvpRule::ViewOfTangent => "A custom Function's forward is returning a view but the jvp is not returning a \
                                                  view of the given grad input; if that is a view, the jvp is not returning a view \
                                                  of the same base"
                .into(),
            firebrand::JvpRule::SameRegion => "A custom Function's forward is returning a view but the jvp is returning a view of \
                                               different elements of the grad input."
                .into(),
            firebrand::JvpRule::WrittenInPlace | firebrand::JvpRule::ReturnedAsIs => {
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an \
                 input inplace, then the jvp function must modify the corresponding gradient inplace."
                    .into()
            }
        },
        JvpNotDifferentiable { position, .. } => format!(
            "A custom Function's jvp is returning a non-None gradient at position {position}, but the output at that position is not \
             differentiable. You should return None at that position instead."
        ),
        DirtyNotReturned { .. } => {
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace \
             must all be outputs of the Function."
                .into()
        }
        DirtyViewMultiOut { .. } => "If your Function modifies inplace an input that is a view of another Tensor, your Function \
                                     cannot return more than one Tensor. This is not supported by the current autograd engine. \
                                     You should either make sure the input is not a view (using .clone() for example) or make \
                                     your Function only return one Tensor."
            .into(),
        BatchedGradShape { index, expected, found } => format!(
            "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of the \
             remaining dimensions are expected to match the shape of corresponding output, but a mismatch was detected: \
             grad_output[{index}] has a shape of {} and output[{index}] has a shape of {}.",
            size(found),
            size(expected)
        ),
        GradComplexMismatch { index, expected, found } => format!(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: \
             grad_output[{index}] has a dtype of {} and output[{index}] has a dtype of {}.",
            convert_name(*found),
            convert_name(*expected)
        ),
        CapturedMutation { op } => format!(
            "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation ({op}) that \
             would mutate a captured Tensor. This is not supported; please rewrite the function being transformed to explicitly \
             accept the mutated Tensor(s) as inputs."
        ),
        NeedsSetupContext { .. } => "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), \
                                     it must override the setup_context staticmethod."
            .into(),
        Vmap { message } if message.starts_with("a result that differs between samples") => {
            "vmap can not return a BatchedTensor when out_dim is None".into()
        }
        Vmap { message } if message.contains("cannot draw the same for all") => {
            format!("Vmap does not currently support same randomness with a batched tensor input: {message}")
        }
        Argument { op: "convolution", message } if message.starts_with("Calculated padded input size") => message.clone(),
        Argument { op: "convolution", message } if message.starts_with("expected stride to be") => {
            format!("non-positive stride is not supported: {message}")
        }
        Argument { op, message } if message.contains("none of them 0") => {
            let n = if message.contains("1 sizes") { 1 } else if message.contains("2 sizes") { 2 } else { 3 };
            let found = message.split("found ").last().unwrap_or_default();
            format!(
                "{op}: Expected {}D or {}D (batch mode) tensor with optional 0 dim batch size for input, but got:{found}",
                n + 1,
                n + 2
            )
        }
        Argument { op, message } if op.contains("pool") && message.starts_with("expected stride to be") => {
            format!("{op}: stride should not be zero: {message}")
        }
        Argument { op, message } if message.contains("does not fit the padded input") => {
            format!("{op}: Output size is too small: {message}")
        }
        DTypeUnsupported { op, found, expected } => {
            let name = tensor_name(*found);
            let name = name.trim_start_matches("firebrand.").trim_end_matches("Tensor");
            format!("\"{op}\" not implemented for '{name}': expected {expected}")
        }
        Argument { op: "view_as_complex", message } if message.contains("adjacent in memory") => {
            format!("Tensor must have a last dimension with stride 1: {message}")
        }
        Argument { op: "view_as_complex", message } if message.contains("shape []") => {
            "Input tensor must have one or more dimensions".into()
        }
        Argument { op: "view_as_complex", message } if message.contains("size 2") => {
            format!("Tensor must have a last dimension of size 2: {message}")
        }
        Vmap { message } if message.contains("out= variants of random ops") => {
            "vmap: We do not support calling out variants of random operations inside of vmap. Please use non-out variants as a workaround"
                .into()
        }
        Vmap { message } if message.starts_with("clone: the memory format") => {
            "NYI: Tensor.clone(memory_format) inside vmap is only supported with memory_format firebrand.preserve_format or \
             firebrand.contiguous_format"
                .into()
        }
        Vmap { message } if message.starts_with("contiguous: the memory format") => {
            "NYI: querying is_contiguous inside of vmap for memory_format other than firebrand.contiguous_format".into()
        }
        UnbatchedWrite { op } => format!(
            "vmap: {op}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements \
             than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please try to use \
             out-of-place operators instead of {op}, or create `self` from a batched tensor (zeros_like, new_zeros)."
        ),
        UnbatchedDraw { .. } => "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same \
                                 randomness. Create the tensor from a batched one, or use randomness='same'"
            .into(),
        Vmap { message } if message.contains("its result depends on the values of each sample") => {
            let op = message.split(": ").next().unwrap_or_default();
            format!(
                "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over {op}: use where, masks \
                 of fixed size, or loop over the samples."
            )
        }
        VmapRandomness { .. } => "vmap: called random operation while in randomness error mode. Please either use the 'same' or \
                                  'different' randomness flags on vmap or perform the randomness operation out of vmap"
            .into(),
        Argument { op, message } if message.starts_with("out= variants do not record") => format!(
            "{op}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        ),
        Argument { op, message } if message.contains("reach outside a storage") => {
            format!("{op}: {message}: it can access memory outside of `tensor`")
        }
        GradcheckUsage { message } => message.clone(),
        GradcheckAssertion { message } => (*message).into(),
        OverlappingInput { index } => format!(
            "The {index}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to \
             compute the numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
        ),
        DualTwice => "Cannot set a forward gradient on or with a Tensor that already has a forward gradient at the same level".into(),
        NestedDualLevel => "Nested forward mode AD is not supported at the moment".into(),
        NoDualLevel => "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
            .into(),
        DualShape { expected, found } => format!(
            "Expected tangent to have the same size as primal: Trying to set a forward gradient that has a different size than that \
             of the original Tensor, this is not supported. Tensor is of size {expected:?} while the given forward gradient is of \
             size {found:?}."
        ),
        DualDtype { dtype } => {
            format!("Expected primal to be floating point or complex, but got: {}", convert_name(*dtype))
        }
        FnGradCount { function, expected, found } => {
            format!("function {function}Backward returned an incorrect number of gradients (expected {expected}, got {found})")
        }
        _ => return None,
    })
}

/// Which view, and what happens to it.
fn view_head(indirect: bool, of: &Option<(String, usize)>, mode: &str, by_mode: bool) -> String {
    let what = if indirect { "its base or another view of its base has been" } else { "is being" };
    let when = if mode == "inference" { "in normal mode" } else { "with grad mode enabled" };
    let mode = if mode == "inference" { "inference mode" } else { "no_grad mode" };
    match of {
        Some((node, k)) if by_mode => {
            format!(
                "Output {k} of {node} is a view of a view which was created in {mode} and {what} modified inplace {when}."
            )
        }
        Some((node, k)) => format!("Output {k} of {node} is a view and {what} modified inplace."),
        None => format!("A view was created in {mode} and {what} modified inplace {when}."),
    }
}

fn both_inside(block: &str) -> String {
    format!(
        "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view \
         and the inplace either both inside the {block} block (if you don't want the inplace to be tracked) or both outside (if \
         you want the inplace to be tracked)."
    )
}

/// A dtype as the package spells it.
fn convert_name(dtype: DType) -> String {
    format!("firebrand.{}", dtype.name())
}
