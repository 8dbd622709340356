"""Tests of exported programs: PyTorch captures them, as firebrand has no fx graphs, and what is under test is done by firebrand.

    test_serialize   whatever PyTorch serializes is read by firebrand, checked and written anew before PyTorch looks at it

The test compares firebrand's archive with the program in memory: its nodes, metadata, signature and results."""

import contextlib
import io
import os
import tempfile


def rewritten(archive):
    """The bytes of an archive after firebrand read and wrote it."""
    from firebrand import _firebrand

    with tempfile.TemporaryDirectory() as folder:
        before, after = os.path.join(folder, "before.pt2"), os.path.join(folder, "after.pt2")
        with open(before, "wb") as file:
            file.write(archive)
        _firebrand.load_program(before, runnable=False).save(after, True)
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


FILES = {"test/export/test_serialize.py": serialize}
