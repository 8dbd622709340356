"""`firebrand.func` under the name that PyTorch's tests import it by."""

from torch._absent import fallback

from firebrand.func import *  # noqa: F403
from firebrand.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: F401

__path__ = [__path__[0]] if "__path__" in globals() else []
__getattr__ = fallback("functorch")
