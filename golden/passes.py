"""Answers of PyTorch for the graphs in crates/graph/tests/cases: writes NAME.torch beside each PASS/NAME.fb.

A case marked `ours` is about behaviour that is firebrand's own and gets no answer here.
"""

import operator
import pathlib
import re
import sys
import warnings

import torch
from torch._export.passes.replace_autocast_with_hop_pass import replace_autocast_with_hop_pass
from torch._export.passes.replace_set_grad_with_hop_pass import replace_set_grad_with_hop_pass
from torch.export import graph_signature as gs
from torch.fx import Graph, GraphModule, Node

warnings.filterwarnings("ignore")
FUNCTIONS = {
    "torch._set_grad_enabled": torch._C._set_grad_enabled,
    "torch._enter_autocast": torch.amp.autocast_mode._enter_autocast,
    "torch._exit_autocast": torch.amp.autocast_mode._exit_autocast,
}
PASSES = {f.__name__: f for f in (replace_set_grad_with_hop_pass, replace_autocast_with_hop_pass)}
PASSES |= {"set_grad": replace_set_grad_with_hop_pass, "autocast": replace_autocast_with_hop_pass}
DTYPES = {d: getattr(torch, d) for d in ("float16", "bfloat16", "float32", "float64", "int64", "bool")}


def target_of(text):
    if text in FUNCTIONS:
        return FUNCTIONS[text]
    parts = text.split(".")
    if parts[0] == "operator":
        return getattr(operator, parts[1])
    if parts[0] == "hop":
        return getattr(torch.ops.higher_order, parts[1])
    return getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])


def text_of(target):
    for text, function in FUNCTIONS.items():
        if target is function:
            return text
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"hop.{target.__name__}"
    return f"operator.{target.__name__}"


def read_block(lines, at, indent):
    """Reads a block and its children; returns the module and the next line."""
    at += 1
    graph, nodes, reads = Graph(), {}, []
    value = lambda text: eval(re.sub(r"%(\w+)", r"N['\1']", text), {"N": nodes, **DTYPES, "C": lambda *a, **k: (a, k)})
    while (line := lines[at].strip()) != "}":
        if line.startswith("return "):
            text = re.sub(r"(\w+): ", r"'\1': ", line[7:])
            graph.output(value(text))
        else:
            name, rest = re.match(r"%(\w+) = (.*)", line).groups()
            if rest == "placeholder":
                node = graph.create_node("placeholder", name, name=name)
            elif rest.startswith("get_attr "):
                reads.append(rest[9:])
                node = graph.create_node("get_attr", rest[9:], name=name)
            else:
                target, arguments = re.match(r"([\w.]+)\((.*)\)$", rest).groups()
                args, kwargs = value(f"C({arguments})")
                node = graph.create_node("call_function", target_of(target), args, kwargs, name=name)
            node.meta["val"] = 0
            nodes[name] = node
        at += 1
    at += 1
    children = {}
    while at < len(lines) and lines[at].endswith(" {") and len(lines[at]) - len(lines[at].lstrip()) == indent + 2:
        name = lines[at].strip()[:-2]
        children[name], at = read_block(lines, at, indent + 2)
    for path in reads:
        children.setdefault(path, torch.zeros(1))
    return GraphModule(children, graph), at


def read_signature(lines, module):
    if not lines:
        return None
    split = lines.index("# outputs")
    returned = next(iter(reversed(module.graph.nodes))).args[0]
    inputs, outputs = [], []
    pattern = r"(\w*): (\w+)(?: target='([^']*)')?(?: persistent=(\w+))?"
    for line in lines[1:split]:
        if line:
            name, kind, target, persistent = re.match(pattern, line).groups()
            keep = None if persistent is None else persistent == "True"
            inputs.append(gs.InputSpec(gs.InputKind[kind], gs.TensorArgument(name), target, keep))
    for i, line in enumerate(lines[split + 1 :]):
        name, kind, target, _ = re.match(pattern, line).groups()
        arg = gs.TensorArgument(name) if name else gs.ConstantArgument("", returned[i])
        outputs.append(gs.OutputSpec(gs.OutputKind[kind], arg, target))
    return gs.ExportGraphSignature(inputs, outputs)


def show(value):
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + (",)" if len(value) == 1 else ")")
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {show(v)}" for k, v in value.items()) + "}"
    return repr(value)


def print_block(module, name, indent, out):
    pad = " " * indent
    out.append(f"{pad}{name} {{")
    for node in module.graph.nodes:
        if node.op == "output":
            out.append(f"{pad}  return {show(node.args[0])}")
        elif node.op == "placeholder":
            out.append(f"{pad}  %{node.name} = placeholder")
        elif node.op == "get_attr":
            out.append(f"{pad}  %{node.name} = get_attr {node.target}")
        else:
            arguments = [show(a) for a in node.args] + [f"{k}={show(v)}" for k, v in node.kwargs.items()]
            out.append(f"{pad}  %{node.name} = {text_of(node.target)}({', '.join(arguments)})")
    out.append(f"{pad}}}")
    for child, inner in module._modules.items():
        if isinstance(inner, GraphModule):
            print_block(inner, child, indent + 2, out)


def print_signature(signature, out):
    target = lambda spec: f" target='{spec.target}'" if spec.target is not None else ""
    out.append("# inputs")
    for spec in signature.input_specs:
        persistent = "" if spec.persistent is None else f" persistent={spec.persistent}"
        out.append(f"{spec.arg.name}: {spec.kind.name}{target(spec)}{persistent}")
    out += ["", "# outputs"]
    out += [f"{spec.arg.name}: {spec.kind.name}{target(spec)}" for spec in signature.output_specs]


def answer(body, options, default):
    lines = body.rstrip("\n").split("\n")
    module, at = read_block(lines, 0, 0)
    signature = read_signature(lines[at:], module)
    passes = options.get("passes", default).split(",")
    try:
        with torch.set_grad_enabled(options.get("ambient", "on") == "on"):
            for name in passes:
                module, signature = PASSES[name](module, signature)
    except AssertionError as e:
        return "error"
    out = []
    print_block(module, "graph", 0, out)
    if signature is not None:
        print_signature(signature, out)
    return "\n".join(out)


def main():
    folder = pathlib.Path(__file__).resolve().parent.parent / "crates/graph/tests/cases"
    for file in sorted(folder.glob("*/*.fb")):
        name = file.parent.name
        if name not in PASSES:
            continue
        out = []
        for case in file.read_text().split("=== ")[1:]:
            header, body = case.split("\n", 1)
            title, _, flags = header.partition(" | ")
            options = dict(f.partition("=")[::2] for f in flags.split())
            if "ours" not in options:
                out.append(f"=== {header}\n{answer(body, options, name)}\n")
        file.with_suffix(".torch").write_text("".join(out))


if __name__ == "__main__":
    sys.exit(main())
