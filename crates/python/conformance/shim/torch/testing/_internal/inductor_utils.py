"""What hardware tests of the compiler may ask for: a CPU."""

from torch._absent import fallback

__getattr__ = fallback(__name__)
GPU_TYPE = "cuda"
HAS_CPU = True
HAS_CUDA = HAS_GPU = HAS_XPU = HAS_TRITON = HAS_MULTIGPU = False
