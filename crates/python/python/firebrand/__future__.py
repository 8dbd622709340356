"""How modules convert their parameters, chosen by the program."""

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value):
    """Whether `module.to(...)` and its kind put new parameters in the place of old ones, instead of changing their data."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion():
    """Whether conversions of modules put new parameters in the place of old ones."""
    return _overwrite


def set_swap_module_params_on_conversion(value):
    """Whether conversions and `load_state_dict` exchange parameters with new tensors by `utils.swap_tensors`."""
    global _swap
    _swap = value


def get_swap_module_params_on_conversion():
    """Whether conversions and `load_state_dict` exchange parameters with new tensors."""
    return _swap
