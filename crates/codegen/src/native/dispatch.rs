//! Dispatch keys that declarations and derivative entries may use.
//!
//! A key is a name from a closed list; this file knows the lists and nothing of what a key does.

use crate::error::{Kind, Refusal};

/// A dispatch key, one of [`SUPPORTED`].
pub type DispatchKey = &'static str;

/// Kernel made of differentiable operators: no wrapper, no derivative.
pub const COMPOSITE_IMPLICIT: DispatchKey = "CompositeImplicitAutograd";
/// The same for nested tensors.
pub const COMPOSITE_IMPLICIT_NESTED: DispatchKey = "CompositeImplicitAutogradNestedTensor";
/// One kernel for every backend, with a derivative of its own.
pub const COMPOSITE_EXPLICIT: DispatchKey = "CompositeExplicitAutograd";
/// The same for kernels that alias or mutate.
pub const COMPOSITE_EXPLICIT_NON_FUNCTIONAL: DispatchKey = "CompositeExplicitAutogradNonFunctional";

/// Keys a declaration may list.
#[rustfmt::skip]
pub const SUPPORTED: &[DispatchKey] = &[
    "CPU", "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "CUDA", "MPS", "XPU", "SparseXPU", "SparseCsrXPU", "SparseCUDA",
    "SparseCsrCUDA", "SparseMPS", "SparseCsrMPS", "QuantizedCPU", "QuantizedCUDA", COMPOSITE_IMPLICIT,
    COMPOSITE_IMPLICIT_NESTED, COMPOSITE_EXPLICIT, COMPOSITE_EXPLICIT_NON_FUNCTIONAL, "NestedTensorCPU",
    "NestedTensorCUDA", "NestedTensorXPU", "NestedTensorHPU", "Meta", "SparseMeta", "SparseCsrMeta", "QuantizedMeta",
    "NestedTensorMeta", "ZeroTensor", "MTIA",
];

/// Keys for which a structured operator has kernels.
pub const STRUCTURED: &[DispatchKey] = &["MPS", "CUDA", "CPU", "XPU", "MTIA"];

/// Keys that exist but that no declaration may list, apart from functionality × backend.
#[rustfmt::skip]
const UNSUPPORTED: &[&str] = &[
    "Undefined", "FPGA", "MAIA", "Vulkan", "Metal", "MKLDNN", "OpenGL", "OpenCL", "IDEEP", "CustomRNGKeyId", "Sparse",
    "SparseCsr", "NestedTensor", "Dense", "PythonTLSSnapshot", "PreDispatch", "PythonDispatcher", "Python",
    "FuncTorchDynamicLayerBackMode", "Conjugate", "Negative", "BackendSelect", "Named", "AutogradOther",
    "AutogradFunctionality", "AutogradNestedTensor", "Tracer", "Autocast", "AutocastCPU", "AutocastCUDA",
    "AutocastXPU", "Batched", "VmapMode", "FuncTorchGradWrapper", "FuncTorchBatched", "BatchedNestedTensor",
    "FuncTorchVmapMode", "FuncTorchDynamicLayerFrontMode", "Functionalize", "TESTING_ONLY_GenericWrapper",
    "TESTING_ONLY_GenericMode", "ADInplaceOrView", "Autograd", "FuncTorchBatchedDecomposition",
];

/// Per-backend functionalities; the empty one is the backend itself.
const FUNCTIONALITIES: &[&str] = &["", "Quantized", "SparseCsr", "Sparse", "NestedTensor", "Autograd"];

/// Backends that have per-backend keys.
#[rustfmt::skip]
const BACKENDS: &[&str] = &[
    "CPU", "CUDA", "HIP", "XLA", "MTIA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "Meta", "PrivateUse1",
    "PrivateUse2", "PrivateUse3",
];

/// Reads a key of a declaration's dispatch section.
pub fn parse_key(name: &str) -> Result<DispatchKey, Refusal> {
    if let Some(key) = SUPPORTED.iter().find(|key| **key == name) {
        return Ok(key);
    }
    let per_backend = |f: &str| name.strip_prefix(f).is_some_and(|backend| BACKENDS.contains(&backend));
    if UNSUPPORTED.contains(&name) || FUNCTIONALITIES.iter().any(|f| per_backend(f)) {
        return Err(Refusal::new(Kind::DispatchKeyUnsupported, format!("`{name}` is not a key for declarations")));
    }
    Err(Refusal::new(Kind::DispatchKeyUnknown, format!("unknown dispatch key `{name}`")))
}

/// Whether derivative entries may have formulas for this autograd key.
pub fn is_autograd_key(name: &str) -> bool {
    let per_backend = name.strip_prefix("Autograd").is_some_and(|backend| BACKENDS.contains(&backend));
    per_backend || matches!(name, "Default" | "AutogradNestedTensor")
}
