"""PyTorch's tests of its code generator, on firebrand's: modules called `torchgen` and `tools.autograd` whose every answer comes from
`firebrand codegen`.

Nothing is read or decided here. A test's declarations and formulas are written to files as they are, the command says how it
understands them, and its JSON is handed back in the shape that torchgen's Python has. Refusals are firebrand's too: `WORDS` only says
them in PyTorch's words. What the command does not generate (registrations, static dispatch, C++ declarations, ufuncs) is absent,
and a test that uses it is skipped by name.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest

import yaml

# How PyTorch says what firebrand refused, by the kind of the refusal; `{0}` is what firebrand's message names first.
WORDS = {
    "named_and_plain_grads": (RuntimeError, 'illegally mixes use of "grad_RETURN_NAME" and "grad" or "grads[x]" gradient names'),
    "entry_dispatch_key": (RuntimeError, "Invalid dispatch key {0} in derivatives.yaml for {1}"),
    "alias_mutable_set": (AssertionError, "alias set larger than 1 is not mutable"),
    "alias_both_sets": (AssertionError, "before alias set and after alias set cannot be larger than 1 at the same time"),
}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data):
        return True


def _ask(command, schema, *flags, **files):
    """What the generator says to these files."""
    program = os.environ.get("FIREBRAND_CODEGEN") or sys.exit("FIREBRAND_CODEGEN: expected the path of the firebrand command")
    with tempfile.TemporaryDirectory() as folder:
        words = [program, "codegen", command, *flags]
        for name, content in files.items():
            path = os.path.join(folder, name + ".yaml")
            with open(path, "w") as file:
                yaml.dump(content, file, Dumper=_Dumper, sort_keys=False, width=10000)
            words += ["--" + name, path]
        ran = subprocess.run(words, capture_output=True, text=True)
    try:
        answer = json.loads(ran.stdout)
    except ValueError:
        raise RuntimeError(f"firebrand codegen: {ran.stderr}") from None
    if "error" not in answer:
        return answer
    kind = answer["error"]["kind"]
    error, words = WORDS.get(kind, (RuntimeError, ran.stderr))
    named = ran.stderr.split("`")
    raise error(words.format(named[1] if len(named) > 1 else "", schema) + f" [firebrand: {kind}: {ran.stderr.strip()}]")


def _declared(entries, tags=()):
    """The declarations, with what is generated from them."""
    plain = [{k: v for k, v in entry.items() if k != "__line__"} for entry in entries]
    files = {"native": plain}
    if tags:
        files["tags"] = [{"tag": tag} for tag in sorted(tags)]
    return _ask("declarations", plain[0]["func"], **files)["functions"]


def _absent(name):
    def skip(*_args, **_kwargs):
        raise unittest.SkipTest(f"{name} is not in firebrand, whose generator writes Rust")

    return skip


class _Keys(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class DispatchKey(metaclass=_Keys):
    """Keys are their names."""


@dataclasses.dataclass(frozen=True)
class Annotation:
    alias_set: tuple
    is_write: bool
    alias_set_after: tuple

    @staticmethod
    def parse(text):
        found = _declared([{"func": f"annotated(Tensor({text}) self) -> ()"}])[0]["arguments"][0]["annotation"]
        return Annotation(tuple(found["alias_set"]), found["is_write"], tuple(found["alias_set_after"]))


@dataclasses.dataclass(frozen=True)
class Type:
    text: str

    def __str__(self):
        return self.text

    @staticmethod
    def parse(text):
        found = _declared([{"func": f"typed({text} x) -> ()"}])[0]["arguments"][0]["type"]
        return Type(found["text"]) if found["custom_class"] is None else CustomClassType(found["text"], found["custom_class"])


@dataclasses.dataclass(frozen=True)
class CustomClassType(Type):
    class_name: str


@dataclasses.dataclass(frozen=True)
class OperatorName:
    text: str

    def __str__(self):
        return self.text


@dataclasses.dataclass(frozen=True)
class FunctionSchema:
    """A schema that firebrand read."""

    record: str  # JSON, so that schemas can be keys

    @staticmethod
    def parse(text):
        return FunctionSchema._of(_declared([{"func": text}])[0])

    @staticmethod
    def _of(record):
        return FunctionSchema(json.dumps(record, sort_keys=True))

    def _content(self):
        return json.loads(self.record)

    @property
    def name(self):
        return OperatorName(self._content()["name"])

    def tensors(self):
        return [a["name"] for a in self._content()["arguments"] if a["type"]["text"].startswith("Tensor")]

    def signature(self):
        return self

    def __str__(self):
        return self._content()["schema"]


@dataclasses.dataclass(frozen=True)
class BackendMetadata:
    kernel: str


class BackendIndex:
    def __init__(self, **fields):
        self.__dict__.update(fields)

    @staticmethod
    def grow_index(parent, child):
        for key, index in child.items():
            parent.setdefault(key, {}).update(index)


@dataclasses.dataclass(frozen=True)
class NativeFunction:
    func: FunctionSchema
    entry: dict
    tags: tuple = ()
    manual_cpp_binding: bool = False

    @staticmethod
    def from_yaml(entry, loc=None, valid_tags=(), ignore_keys=None):
        found = _declared([entry], valid_tags)[0]
        return NativeFunction(FunctionSchema._of(found), entry, tuple(valid_tags)), _index(found)


def _index(record):
    name = OperatorName(record["name"])
    return {key: {name: BackendMetadata(kernel)} for key, kernel in record["dispatch"].items()}


def add_generated_native_functions(functions, indices):
    """Appends what firebrand generates from these declarations."""
    tags = {tag for f in functions for tag in f.tags}
    for record in _declared([f.entry for f in functions], tags):
        if record["generated"]:
            functions.append(NativeFunction(FunctionSchema._of(record), {"func": record["schema"]}))
            BackendIndex.grow_index(indices, _index(record))


@dataclasses.dataclass(frozen=True)
class Derivative:
    formula: str
    named_gradients: set


class DifferentiabilityInfo:
    """What firebrand understood of one key of an entry."""

    def __init__(self, found, nodes):
        self.available_named_gradients = found["available_named_gradients"]
        self.used_named_gradients = set(found["used_named_gradients"])
        self.name, self.op = found["name"], found["op"]
        self._node = next(node for node in nodes if node["op"] == found["op"])


def _model(schema, entry):
    native = [{"func": str(schema), "dispatch": {"CPU": str(schema.name).replace(".", "_")}}]
    return _ask("dump", str(schema), "--json", "--plan", native=native, derivatives=[entry])


def create_derivative(function, formula, var_names, available_named_gradients):
    schema = function.func
    names = ", ".join(var_names) or ", ".join(schema.tensors())
    by_key = _model(schema, {"name": str(schema), names: formula})["infos"][0]["by_key"]
    if by_key["Default"]["available_named_gradients"] != list(available_named_gradients):
        raise AssertionError("firebrand finds other gradients by name than the test gives")
    (found,) = by_key["Default"]["derivatives"]
    return Derivative(found["formula"], set(found["named_gradients"]))


def create_differentiability_info(defn_dict, functions_by_signature, functions_by_schema, op_counter, used_dispatch_keys):
    schema = functions_by_schema[defn_dict["name"]].func
    answer = _model(schema, defn_dict)
    used_dispatch_keys.update(answer["used_dispatch_keys"])
    by_key = answer["infos"][0]["by_key"]
    return schema, {key: DifferentiabilityInfo(found, answer["nodes"]) for key, found in by_key.items()}


def process_function(info, _template):
    """Which incoming gradient each name stands for, as firebrand planned the node."""
    return "\n".join(f"const auto& {name} = grads[{k}];" for name, k in info._node["grad_aliases"])


def _module(name, **content):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(content)
    module.__getattr__ = lambda key: _absent(f"{name}.{key}") if not key.startswith("__") else _missing(name, key)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def _missing(name, key):
    raise AttributeError(f"module {name!r} has no attribute {key!r}")


class Location:
    def __init__(self, file, line):
        self.file, self.line = file, line


class LineLoader(yaml.SafeLoader):
    """Firebrand counts lines itself."""


class SelectiveBuilder:
    @staticmethod
    def get_nop_selector():
        return None


def install():
    """Puts the modules where the tests find them."""
    _module("torchgen")
    _module("torchgen.dest")
    _module("torchgen.api")
    _module("torchgen.api.types", CppSignatureGroup=None, DispatcherSignature=None)
    _module("torchgen.context")
    _module("torchgen.gen", LineLoader=LineLoader)
    model = (BackendIndex, BackendMetadata, DispatchKey, FunctionSchema, Location, NativeFunction, OperatorName, Annotation)
    model += (CustomClassType, Type)
    _module("torchgen.model", NativeFunctionsGroup=None, **{c.__name__: c for c in model})
    _module("torchgen.native_function_generation", add_generated_native_functions=add_generated_native_functions)
    _module("torchgen.selective_build")
    _module("torchgen.selective_build.selector", SelectiveBuilder=SelectiveBuilder)
    _module("tools")
    _module("tools.autograd")
    _module(
        "tools.autograd.load_derivatives",
        create_derivative=create_derivative,
        create_differentiability_info=create_differentiability_info,
    )
    _module("tools.autograd.gen_autograd_functions", process_function=process_function, FUNCTION_DEFINITION=None)
