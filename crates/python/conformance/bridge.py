"""Tests of exported programs: PyTorch captures them, as firebrand has no fx graphs, and what is under test is done by firebrand.

    test_serialize   whatever PyTorch serializes is read by firebrand, checked and written anew before PyTorch looks at it; the test
                     compares firebrand's archive with the program in memory: its nodes, metadata, signature and results
    test_passes      exported programs run in firebrand, with its checks at run time, and passes over them are firebrand's
    test_codegen     declarations and formulas are read by firebrand's generator, without PyTorch (torchgen_bridge)
"""

import contextlib
import io
import math
import os
import tempfile
import unittest


def rewritten(archive, passes=()):
    """The bytes of an archive after firebrand read it, ran passes and wrote it."""
    from firebrand import _firebrand

    with tempfile.TemporaryDirectory() as folder:
        before, after = os.path.join(folder, "before.pt2"), os.path.join(folder, "after.pt2")
        with open(before, "wb") as file:
            file.write(archive)
        program = _firebrand.load_program(before, runnable=False)
        if passes:
            program = program.run_passes(list(passes))
        program.save(after, True)
        with open(after, "rb") as file:
            return file.read()


@contextlib.contextmanager
def _plain(module, names):
    """PyTorch's own functions for as long as it writes and reads archives itself."""
    changed = {name: getattr(module, name) for name in names}
    for name, value in names.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in changed.items():
            setattr(module, name, value)


def serialize():
    """Puts firebrand between PyTorch's writer and its readers."""
    import torch
    from torch._export.serde import serialize as serde

    own = {"serialize": serde.serialize, "deserialize": serde.deserialize}
    own_save, own_load = torch.export.save, torch.export.load
    serializer = serde.ExportedProgramSerializer
    own_method = serializer.serialize

    def archive(program, opset_version=None, extra_files=None):
        buffer = io.BytesIO()
        with _plain(serde, own), _plain(serializer, {"serialize": own_method}):
            own_save(program, buffer, extra_files=extra_files, opset_version=opset_version)
        return rewritten(buffer.getvalue())

    def save(program, f, *, extra_files=None, opset_version=None, **_kwargs):
        data = archive(program, opset_version, extra_files)
        if hasattr(f, "write"):
            f.write(data)
            f.seek(0)  # as PyTorch's leaves it
        else:
            with open(f, "wb") as file:
                file.write(data)

    class Artifact(bytes):
        """The archive, in the place of PyTorch's parts of one."""

    def serialized(program, opset_version=None, *_args, **_kwargs):
        return Artifact(archive(program, opset_version))

    def deserialized(artifact, expected_opset_version=None, **kwargs):
        if not isinstance(artifact, Artifact):
            return own["deserialize"](artifact, expected_opset_version, **kwargs)
        with _plain(serde, own), _plain(serializer, {"serialize": own_method}):
            return own_load(io.BytesIO(artifact), expected_opset_version=expected_opset_version)

    def method(self, program):
        """What firebrand wrote, as the structure that PyTorch writes from."""
        import json
        import zipfile

        found = own_method(self, program)
        with zipfile.ZipFile(io.BytesIO(archive(program))) as file:
            name = next(n for n in file.namelist() if n.endswith("models/model.json"))
            content = json.loads(file.read(name))
        return type(found)(serde._dict_to_dataclass(serde.ExportedProgram, content), *_rest(found))

    def _rest(artifact):
        return [getattr(artifact, name) for name in artifact.__dataclass_fields__ if name != "exported_program"]

    serde.serialize, serde.deserialize = serialized, deserialized
    serializer.serialize = method
    torch.export.save = save


def passes():
    """Programs that PyTorch exports run in firebrand, and its passes are firebrand's."""
    import torch
    from torch._export import pass_base, utils
    from torch._export.serde import serialize as serde
    from torch._export.passes import replace_autocast_with_hop_pass, replace_set_grad_with_hop_pass  # noqa: F401  (they use `utils`)
    from torch._export.passes import replace_view_ops_with_view_copy_ops_pass as views

    program = torch.export.ExportedProgram
    own_export, own_module, own_transform = torch.export.export, program.module, program._transform_do_not_use
    exported = {}

    def written(ep):
        buffer = io.BytesIO()
        torch.export.save(ep, buffer)
        return buffer.getvalue()

    def export(*args, **kwargs):
        ep = own_export(*args, **kwargs)
        exported[id(ep.graph_module)] = ep
        return ep

    def module(self, *args, **kwargs):
        known = exported.get(id(self.graph_module)) is self
        return Runs(written(self)) if known else own_module(self, *args, **kwargs)

    def transform(self, *passes):
        if not all(isinstance(p, views.ReplaceViewOpsWithViewCopyOpsPass) for p in passes):
            return own_transform(self, *passes)
        return torch.export.load(io.BytesIO(rewritten(written(self), ["replace_view_ops_with_view_copy_ops_pass"])))

    def unchanged(self, graph_module):
        """The pass that changes nothing."""
        rewritten(written(exported[id(graph_module)]), ["eliminate_dead_code"])

    def absent(*_args, **_kwargs):
        raise unittest.SkipTest("tools for editing fx graphs are not in firebrand, which has graphs of its own")

    # Functions of numbers that its writer does not know, and firebrand's reader does.
    serde._SYM_OPS.update((math.ceil, math.floor))
    utils.sequential_split = utils.node_inline_ = absent
    torch.export.export, program.module, program._transform_do_not_use = export, module, transform
    pass_base._ExportPassBaseDeprecatedDoNotUse.__call__ = unchanged


class Runs:
    """A program of PyTorch's that firebrand runs, on PyTorch's tensors."""

    def __init__(self, archive):
        self._archive = archive

    def __call__(self, *inputs):
        import firebrand
        import torch
        from firebrand import _firebrand

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.pt2")
            with open(path, "wb") as file:
                file.write(self._archive)
            runner = _firebrand.load_program(path).module()
        outputs = runner.run([firebrand.from_dlpack(t) for t in inputs])
        outputs = [torch.from_dlpack(t) if isinstance(t, firebrand.Tensor) else t for t in outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def codegen():
    """The tests of PyTorch's generator ask firebrand's."""
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location("torchgen_bridge", os.path.join(here, "torchgen_bridge.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install()


codegen.without_pytorch = True

FILES = {
    "test/export/test_passes.py": passes,
    "test/export/test_serialize.py": serialize,
    "tools/test/test_codegen.py": codegen,
    "tools/test/test_codegen_model.py": codegen,
}
