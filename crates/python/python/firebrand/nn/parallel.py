"""Modules over several devices."""

from .modules.module import Module


class DataParallel(Module):
    """Runs a module on every device there is: on the one there is. For replicas over processes, see the Rust library."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        if device_ids:
            raise ValueError("DataParallel: there is one device; device_ids must be empty")
        self.module = module
        self.device_ids = []
        self.dim = dim

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)
