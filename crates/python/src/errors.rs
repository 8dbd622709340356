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

/// The errors of the crates above core, which have one class.
#[cold]
pub(crate) fn runtime(e: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(e.to_string())
}

fn size(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("firebrand.Size([{}])", sizes.join(", "))
}

/// `Mul`, of the node `MulBackward0`.
fn operation(node: &str) -> &str {
    let name = node.trim_end_matches(|c: char| c.is_ascii_digit());
    name.strip_suffix("Backward").unwrap_or(node)
}

/// `FloatTensor`: how PyTorch's messages call a tensor of this dtype.
fn tensor_name(dtype: DType) -> String {
    let word = match dtype {
        DType::Bool => "Bool",
        DType::U8 => "Byte",
        DType::I8 => "Char",
        DType::I16 => "Short",
        DType::I32 => "Int",
        DType::I64 => "Long",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::F32 => "Float",
        DType::F64 => "Double",
        DType::C64 => "ComplexFloat",
        DType::C128 => "ComplexDouble",
    };
    format!("firebrand.{word}Tensor")
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
        FnGradCount { function, expected, found } => {
            format!("function {function}Backward returned an incorrect number of gradients (expected {expected}, got {found})")
        }
        _ => return None,
    })
}

/// A dtype as the package spells it.
fn convert_name(dtype: DType) -> String {
    format!("firebrand.{}", dtype.name())
}
