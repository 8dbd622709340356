"""PyTorch's autograd stack in Rust, for Python.

Tensors, ops and gradients have PyTorch's names and rules; what differs is listed in the package's README.
"""

from . import _firebrand as _C
from ._size import Size
from ._firebrand import (
    Tensor,
    __version__,
    channels_last,
    contiguous_format,
    device,
    dtype,
    from_numpy,
    get_default_dtype,
    get_num_threads,
    Generator,
    get_rng_state,
    initial_seed,
    is_autocast_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    layout,
    manual_seed,
    memory_format,
    preserve_format,
    set_default_dtype,
    set_num_threads,
    set_rng_state,
    sparse_coo,
    strided,
    tensor,
)
from ._firebrand import (
    bfloat16,
    bool,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)

half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
cfloat, cdouble = complex64, complex128

from . import _tensor
from ._tensor import set_printoptions
from ._names import install as _install

_install(globals(), Tensor)

from . import _functions
from ._functions import *  # noqa: F403
from ._interop import as_tensor, from_dlpack
from .autograd.grad_mode import autocast, enable_grad, inference_mode, no_grad, set_grad_enabled
from . import autograd, fft, func, library, linalg, nn, ops, optim, return_types, special, utils
from ._compile import compile, compiled_backward, plain_backward
from .export import load, save
from . import export
from .func import vmap

inf = _functions.inf
nan = _functions.nan
pi = _functions.pi
e = _functions.e
