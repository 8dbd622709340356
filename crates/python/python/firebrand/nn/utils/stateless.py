"""Calls of modules with other parameters."""


def functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls a module with other tensors in the place of its parameters and buffers."""
    from ...func import functional_call

    return functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
