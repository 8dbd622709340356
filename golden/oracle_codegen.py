#!/usr/bin/env python3
"""Oracle for the derivative code generator.

Loads operator declarations and derivative formulas with the reference
generator that ships in an installed torch wheel and prints canonical JSON
(the JSON format of docs/behaviour/codegen.md).

  oracle_codegen.py --wheel --out dump.json          the wheel's own files
  oracle_codegen.py --native N.yaml --derivatives D.yaml   any small pair
  ... --plan         also run the emission stage and add "nodes"/"wrappers"
  ... --counts       print only the counts and the time
  ... --check DIR    every case folder in DIR: compare with expected.json
  ... --bless DIR    every case folder in DIR: (re)write expected.json

Run it with the interpreter of the environment that has torch installed
(or set ORACLE_SITE to that environment's site-packages folder).
"""
from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

if os.environ.get("ORACLE_SITE"):
    sys.path.insert(0, os.environ["ORACLE_SITE"])

import importlib
import importlib.util


def _torchgen_root() -> Path:
    spec = importlib.util.find_spec("torchgen")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("torchgen is not importable; use the oracle environment")
    return Path(list(spec.submodule_search_locations)[0])


ROOT = _torchgen_root()

from torchgen.api import cpp
from torchgen.api.autograd import (
    dispatch_strategy,
    gen_differentiable_outputs,
    is_foreach_func,
    match_differentiability_info,
)
from torchgen.api.types import SpecialArgName
from torchgen.context import native_function_manager
from torchgen.gen import parse_native_yaml
from torchgen.model import SchemaKind


def _autograd_module(name: str):
    return importlib.import_module(f"torchgen.packaged.autograd.{name}")


# ------------------------------------------------------------------ errors

# message pattern -> our error kind.  First hit wins.  The kinds are the
# contract; the texts on the left belong to the reference.
ERROR_KINDS: list[tuple[str, str]] = [
    # native stage: yaml and schema
    (r"Found a duplicate key in the yaml", "yaml_duplicate_key"),
    (r"Invalid function schema", "schema_syntax"),
    (r"illegal argument with default value", "arg_two_equals"),
    (r"illegal argument '", "arg_no_space"),
    (r"unrecognized type", "type_unknown"),
    (r"unrecognized alias annotation", "alias_syntax"),
    (r"alias set larger than 1 is not mutable", "alias_mutable_set"),
    (r"before alias set and after alias set cannot", "alias_both_sets"),
    (r"unrecognized alias analysis form", "alias_position"),
    (r"kwarg-only specifier \* can only occur once", "star_twice"),
    (r"cannot follow mutable out arguments", "arg_after_out"),
    (r"_out suffix is reserved", "name_out_suffix"),
    (r"unexpected dunder method starting with 'i'", "name_dunder_i"),
    (r"functional overload cannot be", "name_functional_suffix"),
    (r"operator name cannot be empty", "name_empty"),
    (r"bool ListType must have a size", "bool_list_needs_size"),
    (r"Out arguments must have matching return", "out_alias_mismatch"),
    (r"mutable positional args, we expect them to not be returned", "mutable_arg_returned"),
    (r"either only mutable returns, or only immutable", "returns_mixed_mutability"),
    (r"All mutable returns must be aliased", "return_alias_unbound"),
    (r"out= ops that accept tensor lists", "out_list_returns"),
    (r"Must return as many arguments", "out_return_count"),
    (r"must have a self argument with a mutable annotation", "inplace_self_not_mutable"),
    (r"with Tensor self must return self", "inplace_must_return_self"),
    (r"with non-Tensor self must have no returns", "inplace_list_returns"),
    (r"has tensor options arguments", "options_not_functional"),
    (r"its overload contains the string 'functional'", "overload_says_functional"),
    (r"mutable pre_self_positional", "mutable_before_self"),
    (r"cannot be both out= and inplace", "out_and_inplace"),
    (r"illegal variant", "variant_unknown"),
    (r"MUST be declared with only function variant", "out_variant_method"),
    (r"functions in modules cannot be methods", "module_method"),
    (r"illegal tag", "tag_unknown"),
    (r"leftover entries", "field_unknown"),
    (r"unknown dispatch key", "dispatch_key_unknown"),
    (r"is not a supported dispatch key", "dispatch_key_unsupported"),
    (r"unnecessary dispatch table", "dispatch_redundant"),
    (r"unexpected name for singleton CompositeImplicitAutograd", "dispatch_singleton_name"),
    (r"cannot specify more than one of CompositeExplicitAutograd", "dispatch_two_composites"),
    (r"cannot specify both manual_kernel_registration and dispatch", "dispatch_manual"),
    (r"CompositeExplicitAutograd dispatch entry, but there was no dispatch", "factory_needs_dispatch"),
    (r"nondeterministic_seeded tag missing", "tag_seeded_missing"),
    (r"foreach kernels fall back", "foreach_device_check"),
    (r"is marked as a structured_delegate pointing", "delegate_bad"),
    (r"Put structured field on the out=", "structured_not_out"),
    (r"structured_delegate field not allowed", "delegate_on_out"),
    (r"if structured_delegate, then must not have", "delegate_has_kernel"),
    (r"is a reserved Python keyword", "arg_reserved_word"),
    (r"is marked with tag: inplace_view", "inplace_view_bad"),
    (r"inplace_view tag missing", "inplace_view_tag_missing"),
    (r"Duplicate schema kind", "duplicate_variant"),
    (r"already in dict_keys|already in .*ViewSchemaKind", "duplicate_variant"),
    (r"duplicate operator", "duplicate_operator"),
    (r"Found an out= operator that we could not find", "out_without_base"),
    (r"could not generate an out= variant", "no_out_variant"),
    (r"appears to be a new operator that aliases", "view_copy_missing"),
    (r"appears to be a view_copy operator", "view_copy_tag_missing"),
    (r"view and view_copy signatures don't match", "view_copy_signature"),
    (r"both have CompositeImplicitAutograd(NestedTensor)? kernels", "view_composite_mismatch"),
    # derivatives stage
    (r"Duplicate function schema", "duplicate_schema"),
    (r"Unsupported function schema", "entry_name_syntax"),
    (r"could not find ATen function for schema", "entry_schema_unknown"),
    (r"Expected inplace function name", "entry_no_canonical"),
    (r"has an argument named grad_input_mask", "arg_named_grad_input_mask"),
    (r"has an argument named result", "arg_named_result"),
    (r"Invalid dispatch key", "entry_dispatch_key"),
    (r"we only support single-output functions", "condition_multi_output"),
    (r"to not be both an input arg and named return", "name_input_and_return"),
    (r"have overlapped non_differentiable", "nondiff_overlap"),
    (r"\.sizes\(\) is not supported", "formula_sizes"),
    (r"\.size\(int\) is not supported", "formula_size_int"),
    (r'Replacement for "\.strides\(\)"', "formula_strides_scope"),
    (r"\.strides\(\) is not supported", "formula_strides"),
    (r"Out of bounds grads access", "grads_out_of_bounds"),
    (r"mixes use of 'grad' and 'grads'", "grad_and_grads"),
    (r"solely refers to 'grads\[0\]'", "grads0_only"),
    (r'mixes use of "grad_RETURN_NAME"', "named_and_plain_grads"),
    (r"num_grads_uses \(", "grads_count"),
    (r"Expected 1 return for 'result'", "fw_result_multi_return"),
    (r"No matching output for forward derivative", "fw_no_output"),
    (r"argument which is ambiguous", "fw_base_name"),
    (r"Cannot use auto_element_wise with", "auto_elem_inplace"),
    (r"element_wise but this only works", "auto_elem_arity"),
    (r"element_wise but it does not defines", "auto_elem_no_backward"),
    (r"linear but this only works", "auto_linear_outputs"),
    (r"Expected at least one differentiable argument", "auto_linear_no_input"),
    # match stage
    (r"Attempted to convert a derivative formula for a mutable", "mutable_formula_self"),
    (r"Only single output inplace should exist", "inplace_many_forward"),
    (r"is using the original value of self", "inplace_self_primal"),
    (r"Calling '\.strides\(\)' in the 'self'", "inplace_strides"),
    # outputs stage
    (r"The length of output_differentiability", "outdiff_length"),
    (r"output_differentiability=False for inplace", "outdiff_inplace"),
    (r"fixed size list returns not supported", "return_sized_list"),
    # emit stage
    (r"derivative ignored for", "emit_derivative_ignored"),
    (r"Missing arguments for derivatives", "emit_missing_args"),
    (r"Expected the number of forward derivatives implemented", "emit_forward_count"),
    (r"There's a formula for", "emit_needs_dispatch"),
    (r"No differentiable input to", "emit_no_tangent"),
    (r"looks like it contains a non-owning reference", "emit_borrowed_field"),
    (r"should have a differentiability info", "emit_foreach_no_info"),
    (r"args but the reference has", "emit_foreach_arity"),
    (r"Function that return multiple differentiable output", "emit_view_outputs"),
    (r"requires foreach function and is_output", "emit_list_result"),
    (r"Unsupported output type for forward derivative", "emit_forward_type"),
    (r"wrap_opt_if_match is None", "emit_wrap_opt_if"),
    # last: the generic print/parse disagreement of the schema parsers
    (r"^.* != .*$", "roundtrip"),
]


def error_kind(exc: BaseException, stage: str) -> str:
    msg = str(exc)
    flat = " ".join(msg.split())
    for pat, kind in ERROR_KINDS:
        if re.search(pat, flat):
            return kind
    name = type(exc).__name__
    if stage == "match" and name == "RuntimeError" and msg == "":
        return "foreach_saved_output"
    if stage == "match" and name == "AssertionError" and msg.startswith("_foreach_"):
        return "foreach_tensor_arg"
    if stage == "match" and name == "KeyError":
        return "foreach_no_default_key" if "Default" in msg else "foreach_unmapped_arg"
    if stage == "emit" and name == "KeyError":
        return "emit_unknown_var"
    if stage == "derivatives" and name == "IndexError":
        return "fw_result_index"
    if stage == "derivatives" and name == "KeyError" and "name" in msg:
        return "entry_no_name"
    if stage == "derivatives" and name in ("AttributeError", "TypeError"):
        return "formula_not_string"
    return f"other:{name}"


class Stop(Exception):
    def __init__(self, stage: str, exc: BaseException):
        self.stage, self.exc = stage, exc

    def json(self) -> dict:
        return {"error": {"stage": self.stage, "kind": error_kind(self.exc, self.stage)}}


def staged(stage: str, fn, *a, **k):
    try:
        return fn(*a, **k)
    except Exception as e:  # noqa: BLE001 - every failure is data here
        raise Stop(stage, e) from e


# -------------------------------------------------------------------- dump

def saved_json(s) -> dict:
    n = s.nctype.name
    return {
        "name": n.name if isinstance(n, SpecialArgName) else n,
        "type": s.nctype.type.cpp_type(),
        "expr": s.expr,
    }


def derivative_json(d) -> dict:
    return {
        "formula": d.formula,
        "original_formula": d.original_formula,
        "var_names": list(d.var_names),
        "saved_inputs": [saved_json(s) for s in d.saved_inputs],
        "saved_outputs": [saved_json(s) for s in d.saved_outputs],
        "named_gradients": sorted(d.named_gradients),
    }


def fw_json(d) -> dict:
    def opt(x):
        return None if x is None else sorted(x)

    return {
        "formula": d.formula,
        "var_names": list(d.var_names),
        "var_types": [str(t) for t in d.var_types],
        "required_inputs_fw_grad": opt(d.required_inputs_fw_grad),
        "required_inputs_primal": opt(d.required_inputs_primal),
        "required_original_self_value": d.required_original_self_value,
        "is_reusing_outplace_formula": d.is_reusing_outplace_formula,
    }


def info_json(i, unordered: bool) -> dict:
    def union(xs):
        js = [saved_json(s) for s in xs]
        if unordered:  # the reference goes through a set here
            js.sort(key=lambda j: (j["name"], j["type"], j["expr"]))
        return js

    return {
        "name": i.name,
        "func": str(i.func.func),
        "op": i.op,
        "derivatives": [derivative_json(d) for d in i.derivatives],
        "forward_derivatives": [fw_json(d) for d in i.forward_derivatives],
        "all_saved_inputs": union(i.all_saved_inputs),
        "all_saved_outputs": union(i.all_saved_outputs),
        "available_named_gradients": list(i.available_named_gradients),
        "used_named_gradients": sorted(i.used_named_gradients),
        "args_with_derivatives": [a.name for a in i.args_with_derivatives],
        "args_with_derivatives_types": [a.type for a in i.args_with_derivatives],
        "non_differentiable_arg_names": list(i.non_differentiable_arg_names),
        "output_differentiability": i.output_differentiability,
        "output_differentiability_conditions": i.output_differentiability_conditions,
    }


def dump(native: str, derivatives: str, tags: str, plan: bool = False) -> dict:
    ld = _autograd_module("load_derivatives")
    parsed = staged("native", parse_native_yaml, native, tags)
    # Watch the one call that adds the copy variants of views.
    before_copies: set = set()
    inner = ld.add_view_copy_derivatives

    def watched(infos, view_groups):
        before_copies.update(infos)
        return inner(infos, view_groups)

    ld.add_view_copy_derivatives = watched
    try:
        infos, used_keys = staged("derivatives", ld.load_derivatives, derivatives, native, tags)
    finally:
        ld.add_view_copy_derivatives = inner
    pre = set(infos)
    view_copies = pre - before_copies
    fns = sorted(parsed.native_functions, key=lambda f: cpp.name(f.func))
    matched = staged("match", match_differentiability_info, fns, infos)

    out_infos = []
    for schema, by_key in infos.items():
        if schema not in pre:
            origin = "foreach"
        elif schema in view_copies:
            origin = "view_copy"
        else:
            origin = "entry"
        out_infos.append({
            "schema": str(schema),
            "kind": schema.kind().name,
            "origin": origin,
            "by_key": {k: info_json(i, origin == "foreach") for k, i in by_key.items()},
        })

    out_fns = []
    for fn in matched:
        f = fn.func
        exact = fn.info is not None and f.func in infos
        if fn.info is None:
            rule = "none"
        elif f.func in pre:
            rule = "exact"
        elif is_foreach_func(f):
            rule = "foreach_generated" if exact else "foreach_reuse"
        elif next(iter(fn.info.values())).func.func.kind() == SchemaKind.functional:
            rule = "functional_signature"
        else:
            rule = "mutable_for_generated"
        strategy = dispatch_strategy(fn)
        outs = None
        if strategy == "use_derived":
            outs = {}
            for key in (fn.info or {"Default": None}):
                def go(fn=fn, key=key):
                    with native_function_manager(fn.func):
                        return gen_differentiable_outputs(fn, key)
                outs[key] = [
                    {"name": o.name, "type": str(o.type), "cpp_type": o.cpp_type}
                    for o in staged("outputs", go)
                ]
        out_fns.append({
            "schema": str(f.func),
            "kind": f.func.kind().name,
            "generated": "generated" in f.tags,
            "is_abstract": f.is_abstract,
            "info": None if fn.info is None else {
                k: {"name": i.name, "op": i.op, "func": str(i.func.func)} for k, i in fn.info.items()
            },
            "match_rule": rule,
            "is_exact": exact,
            "fw_derivatives": None if fn.fw_derivatives is None else {
                k: [fw_json(d) for d in ds] for k, ds in fn.fw_derivatives.items()
            },
            "dispatch_strategy": strategy,
            "differentiable_outputs": outs,
        })

    res = {
        "format": 1,
        "used_dispatch_keys": sorted(used_keys),
        "infos": out_infos,
        "functions": out_fns,
    }
    if plan:
        res["nodes"] = [
            staged("emit", node_json, i)
            for by_key in infos.values() for i in by_key.values() if i.args_with_derivatives
        ]
        res["wrappers"] = [staged("emit", wrapper_json, fn) for fn in matched if _use_derived(fn)]
    return res


# -------------------------------------------------------------------- plan

class _Capture:
    """Stands in for a template: hands the keyword values back."""

    def substitute(self, **kw):
        return kw


def node_json(info) -> dict:
    kw = _autograd_module("gen_autograd_functions").process_function(info, _Capture())
    fields = []
    for decl in kw["saved_variables"]:
        if re.search(r"_released_ = false;$", decl):
            continue
        m = re.match(r"^(.*?) (\w+)( = 0)?;$", decl)
        fields.append({"storage": m.group(1), "field": m.group(2)})
    outs = {saved_json(s)["name"] for s in info.all_saved_outputs}
    ins = {saved_json(s)["name"] for s in info.all_saved_inputs}
    n_in = len({n for n in ins})
    for k, fl in enumerate(fields):
        fl["is_output"] = k >= n_in if n_in + len(outs) == len(fields) else fl["field"].rstrip("_") in outs
    body = kw["body"]
    return {
        "op": info.op,
        "superclass": kw["superclass"],
        "fields": fields,
        "list_sizes": [re.match(r"size_t (\w+)_size_;", s).group(1) for s in kw["saved_list_sizes"]],
        "ranges": [re.match(r"auto (\w+)_ix = gen.range\((\w+)\);", s).groups() for s in kw["compute_index_ranges"]],
        "release": list(kw["release_variables"]),
        "released_checks": [re.search(r"!(\w+)_released_", s).group(1) for s in kw["asserts"]],
        "locks": bool(kw["thread_lock"]),
        "retain_variables": bool(kw["will_release_variables"]),
        "grad_aliases": [m.groups() for s in body for m in [re.match(r"const auto& (\w+) = grads\[(\d+)\];", s)] if m],
        "any_grad_defined": any(s.startswith("bool any_grad_defined") for s in body),
        "steps": [_step(s) for s in body if s.lstrip().startswith("if (needs_input_grad")],
    }


def _step(text: str) -> dict:
    multi = "std::get<" in text and "copy_range" in text and re.search(r"copy_range\(grad_inputs, \w+_ix, std::get<", text)
    foreach = "std::vector<Tensor> grad_result;" in text
    names = re.findall(r"copy_range\(grad_inputs, (\w+)_ix", text)
    if foreach:
        formula = re.search(r"grad_result\.emplace_back\((.*)\);\n    \} else", text, re.S).group(1)
    else:
        formula = re.search(r"auto grad_result = (.*?);\n", text, re.S).group(1)
    return {
        "mode": "multi" if multi else "foreach" if foreach else "single",
        "vars": names,
        "inputs": [int(x) for x in re.findall(r"needs_input_grad\[(\d+)\]", text.split("{")[0])]
        or [int(x) for x in re.findall(r"needs_input_grad\[/\*\w+\*/(\d+)\]", text.split("{")[0])],
        "mask": "auto grad_input_mask" in text,
        "undefined_guard": "any_grad_defined ?" in formula,
        "formula": formula,
    }


def _use_derived(fn) -> bool:
    return _autograd_module("gen_inplace_or_view_type").use_derived(fn)


def wrapper_json(fn) -> dict:
    gvt = _autograd_module("gen_variable_type")
    env = gvt.gen_variable_type_func(fn)
    by_key = {}
    for k, v in env.items():
        if not k.startswith("type_derived_method_definitions_"):
            continue
        key = k[len("type_derived_method_definitions_"):]
        text = v[0]
        if text == "":
            by_key[key] = {"style": "not_implemented_fallback"}
            continue
        fw = (
            "forbidden" if "Trying to use forward AD with" in text
            else "decomposition" if "run_jit_decomposition_with_args_for_jvp" in text
            else "formula" if "_new_fw_grad_opt" in text else "none"
        )
        saves = []
        lines = text.split("\n")
        for n, ln in enumerate(lines):
            m = re.match(r"\s*grad_fn->(\w+) = (.*);$", ln)
            if not m or m.group(1).endswith("_size_"):
                continue
            g = None
            # the guard is the line above, or two above when self is cloned first
            back = 2 if "original_self" in lines[n - 1] else 1
            mm = re.match(r"\s*if \((.*)\) \{$", lines[n - back])
            if mm and mm.group(1) not in ("_any_requires_grad", "grad_fn", "grad_fn != nullptr"):
                g = mm.group(1)
            saves.append({"field": m.group(1), "expr": m.group(2), "guard": g})
        by_key[key] = {
            "style": "generated",
            "forward_ad": fw,
            "history": "rebase" if "rebase_history(" in text else "set" if "set_history(" in text else "none",
            "check_inplace": re.findall(r"check_inplace\((\w+), _any_requires_grad\)", text),
            "requires_grad_of": (lambda m: m.group(1).split(", ") if m and m.group(1) else [])(
                re.search(r"_any_requires_grad = compute_requires_grad\( (.*?) \)", text)),
            "extra_condition": (lambda m: m.group(1) if m else None)(
                re.search(r"_any_requires_grad &= \((.*)\);", text)),
            "must_not_require_grad": re.findall(r'check_no_requires_grad\((\w+), "', text),
            "clone_self_for_forward": bool(re.search(r"^\s*original_selfs?(\[i\])? = self(\[i\])?\.clone\(\);", text, re.M)),
            "clone_self_for_save": "has_value()) original_self" in text,
            "saves": saves,
            "out_checks": re.findall(r"throw_error_out_requires_grad\(\"(\w+)\"\)", text),
            "resets_accumulator": "reset_grad_accumulator(self)" in text,
        }
    return {"schema": str(fn.func.func), "by_key": by_key}


# ----------------------------------------------------------------- driving

def canonical(obj: dict) -> str:
    return json.dumps(obj, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def counts(d: dict, derivatives: str) -> dict:
    import yaml

    with open(derivatives) as f:
        entries = yaml.load(f, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    flat = [(o["origin"], i) for o in d["infos"] for i in o["by_key"].values()]
    fns = d["functions"]
    return {
        "entries": len(entries),
        "info_schemas": len(d["infos"]),
        "infos": len(flat),
        "infos_entry": sum(o == "entry" for o, _ in flat),
        "infos_view_copy": sum(o == "view_copy" for o, _ in flat),
        "infos_foreach": sum(o == "foreach" for o, _ in flat),
        "infos_with_op": sum(i["op"] is not None for _, i in flat),
        "infos_with_forward": sum(bool(i["forward_derivatives"]) for _, i in flat),
        "infos_with_conditions": sum(bool(i["output_differentiability_conditions"]) for _, i in flat),
        "derivatives": sum(len(i["derivatives"]) for _, i in flat),
        "saved_inputs": sum(len(i["all_saved_inputs"]) for _, i in flat),
        "saved_outputs": sum(len(i["all_saved_outputs"]) for _, i in flat),
        "functions": len(fns),
        "functions_generated": sum(f["generated"] for f in fns),
        "functions_with_info": sum(f["info"] is not None for f in fns),
        "functions_with_forward": sum(bool(f["fw_derivatives"]) and any(f["fw_derivatives"].values()) for f in fns),
        "use_derived": sum(f["dispatch_strategy"] == "use_derived" for f in fns),
        "match_rules": {
            r: sum(f["match_rule"] == r for f in fns)
            for r in sorted({f["match_rule"] for f in fns})
        },
        "used_dispatch_keys": d["used_dispatch_keys"],
    }


def run_case(folder: Path, tags: str) -> str:
    # The reference caches by path, and a case may be run twice: start clean.
    import torchgen.gen as g

    g._GLOBAL_PARSE_NATIVE_YAML_CACHE.clear()
    _autograd_module("load_derivatives")._GLOBAL_LOAD_DERIVATIVE_CACHE.clear()
    plan = (folder / "PLAN").exists()
    try:
        return canonical(dump(str(folder / "native.yaml"), str(folder / "derivatives.yaml"), tags, plan))
    except Stop as s:
        return canonical(s.json())


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--wheel", action="store_true")
    p.add_argument("--native")
    p.add_argument("--derivatives")
    p.add_argument("--tags", default=str(ROOT / "packaged/ATen/native/tags.yaml"))
    p.add_argument("--plan", action="store_true")
    p.add_argument("--json", action="store_true", help="accepted for symmetry with the Rust tool")
    p.add_argument("--counts", action="store_true")
    p.add_argument("--verbose", action="store_true", help="print the reference's message on error (stderr)")
    p.add_argument("--out")
    p.add_argument("--check")
    p.add_argument("--bless")
    a = p.parse_args()

    if a.check or a.bless:
        bad = 0
        folders = sorted(d for d in Path(a.check or a.bless).iterdir() if (d / "native.yaml").exists())
        for d in folders:
            got = run_case(d, a.tags)
            exp = d / "expected.json"
            if a.bless:
                exp.write_text(got)
                print("wrote", d.name, got.split('"kind": ')[1].split("\n")[0] if '"error"' in got else "ok")
            elif not exp.exists() or exp.read_text() != got:
                bad += 1
                print("DIFFERS", d.name)
        print(f"{len(folders)} cases, {bad} differ")
        return 1 if bad else 0

    if a.wheel:
        a.native = str(ROOT / "packaged/ATen/native/native_functions.yaml")
        a.derivatives = str(ROOT / "packaged/autograd/derivatives.yaml")
    if not (a.native and a.derivatives):
        p.error("give --wheel, or --native and --derivatives, or --check/--bless")
    t0 = time.time()
    try:
        d = dump(a.native, a.derivatives, a.tags, a.plan)
    except Stop as s:
        if a.verbose:
            print(f"{type(s.exc).__name__}: {s.exc}", file=sys.stderr)
        sys.stdout.write(canonical(s.json()))
        return 3
    dt = time.time() - t0
    if a.counts:
        print(json.dumps({**counts(d, a.derivatives), "seconds": round(dt, 2)}, indent=1))
    text = canonical(d)
    if a.out:
        Path(a.out).write_text(text)
    elif not a.counts:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
