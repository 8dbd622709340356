"""Programs: exporting functions, passes, loading, training, saving `.pt2` archives."""

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


def load(path, map_location=None, *, weights_only=True):
    """What a file has: the program of a `.pt2` archive as a module that can be trained, or plain data (tensors, numbers, text and
    containers of them) that `torch.save` or `save` wrote. Nothing in a file is executed, whatever `weights_only` says.

    `path` may be an open binary file, for plain data.
    """
    if map_location is not None and str(map_location) != "cpu":
        raise NotImplementedError(f"load puts tensors into the memory of the CPU; found map_location={map_location!r}")
    if hasattr(path, "read"):
        return _C.load_plain_bytes(path.read())
    path = os.fspath(path)
    with open(path, "rb"):
        pass  # what Python raises for files that cannot be read
    return ProgramModule(_C.load_program(path).module()) if path.endswith(".pt2") else _C.load_plain(path)


def save(obj, path):
    """Writes a program, or a loaded one with its present state, to a `.pt2` archive, which `torch.export.load` reads; plain data to
    a file that `torch.load` reads. For plain data `path` may be an open binary file."""
    program = obj._program if isinstance(obj, ExportedProgram) else None
    if isinstance(obj, ProgramModule):
        program = obj._runner.program()
    if program is not None:
        program.save(os.fspath(path))
    elif hasattr(path, "write"):
        path.write(_C.save_plain(obj))
    else:
        _C.save_plain(obj, os.fspath(path))


class Dim:
    """A size that may vary, by name, between bounds."""

    def __init__(self, name, *, min=None, max=None):
        self.name, self.min, self.max = name, min, max

    def __repr__(self):
        return f"Dim({self.name!r}, min={self.min}, max={self.max})"


class ExportedProgram:
    """A function as a graph with a signature and a state."""

    def __init__(self, program):
        self._program = program

    def module(self):
        """A module with a state of its own that starts as the program's."""
        return ProgramModule(self._program.module())

    def run_passes(self, *names):
        """The program after passes, by name (`list_passes`)."""
        return ExportedProgram(self._program.run_passes(list(names)))

    def run_decompositions(self):
        """The program with its ops decomposed into the core ones."""
        return self.run_passes("run_decompositions")

    def text(self, long=False):
        """The program as text; with types and attributes if `long`."""
        return self._program.text(long)

    __str__ = text


def export(module, args, *, dynamic_shapes=None, names=None):
    """Runs a module or function of tensors on meta tensors and records it as a program.

    `dynamic_shapes` has, for each argument, none or a dictionary from dimensions to `Dim`.
    """
    args = tuple(args)
    for value in args:
        if not isinstance(value, Tensor):
            raise TypeError(f"export takes tensors as arguments, found a {type(value).__name__}; bind others in a function")
    state = []
    if isinstance(module, Module):
        state += [(name, p, True) for name, p in module.named_parameters()]
        kept = {n for n, _ in module.named_buffers()}
        state += [(name, b, False) for name, b in module.named_buffers() if name in kept]
    sizes = []
    for k, dims in enumerate(dynamic_shapes or ()):
        for dim, size in (dims or {}).items():
            if size is not None:
                sizes.append((k, dim, size.name, size.min, size.max))

    def flat(tensors):
        found = module(*tensors)
        outputs = list(found) if isinstance(found, (tuple, list)) else [found]
        for value in outputs:
            if not isinstance(value, Tensor):
                raise TypeError(f"an exported function returns tensors, found a {type(value).__name__}")
        return outputs

    return ExportedProgram(_C.export_function(flat, list(args), list(names or ()), state, sizes))


def list_passes():
    """The names of passes, and what they do."""
    return dict(_C.list_passes())
