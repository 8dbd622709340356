"""Programs that PyTorch exported: loading, training, saving `.pt2` archives."""

import os

from . import _firebrand as _C
from ._firebrand import Tensor
from .nn.modules.module import Module


class ProgramModule(Module):
    """An exported program as a module: its parameters and buffers have the names of the original model.

    Paths contain dots; `named_parameters` and `state_dict` give them as they were.
    """

    def __init__(self, runner):
        super().__init__()
        object.__setattr__(self, "_runner", runner)
        self._parameters.update(runner.parameters())
        self.training = runner.is_training()

    @property
    def _buffers(self):
        # Running the program replaces buffers that it writes.
        return dict(self._runner.buffers()) if "_runner" in self.__dict__ else {}

    def forward(self, *inputs):
        """Runs on tensors in the order of the signature; one output is given as it is, several as a tuple."""
        for value in inputs:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"a program takes its tensors by position ({', '.join(self._runner.inputs())}), found a {type(value).__name__}"
                )
        outputs = self._runner.run(list(inputs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def train(self, mode=True):
        """Turns the flags of dropout, batch norm and recurrent layers over."""
        self._runner.set_training(mode)
        self.__dict__["training"] = mode
        return self

    def extra_repr(self):
        return f"inputs: {', '.join(self._runner.inputs())}; outputs: {', '.join(self._runner.outputs())}"


def load(path):
    """The program in a `.pt2` archive as a module that can be trained. Nothing in the archive is executed."""
    if not os.fspath(path).endswith(".pt2"):
        raise NotImplementedError("load reads .pt2 archives; tensors and state dictionaries are pickled with the pickle module")
    return ProgramModule(_C.load_program(os.fspath(path)).module())


def save(module, path):
    """Writes a loaded program with its present state to a `.pt2` archive, which `torch.export.load` reads."""
    if not isinstance(module, ProgramModule):
        raise NotImplementedError(f"save writes modules that load gave, found a {type(module).__name__}; export from Python is not supported")
    module._runner.program().save(os.fspath(path))


def compile(*args, **kwargs):
    """Not there yet: compiling functions written in Python."""
    raise NotImplementedError("firebrand.compile is not supported from Python yet; the command line compiles programs (--compile)")
