"""Writes golden/opinfo/<family>.json from golden/opinfo/<family>.py, with PyTorch.

    python golden/make_opinfo.py [FAMILY...] [--no-check] [--verbose]

`--no-check` skips gradcheck on PyTorch's side, so the tags it would add are missing: for trying out samples only.
The exit status is 1 when a sample did not do what its family file says.
"""

import argparse
import importlib
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

from opinfo.base import Table, dump  # noqa: E402

FAMILIES = sorted(p.stem for p in (HERE / "opinfo").glob("*.py") if p.stem not in ("__init__", "base"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("families", nargs="*", default=[])
    p.add_argument("--no-check", action="store_true")
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    bad = 0
    for family in a.families or FAMILIES:
        t = Table(family, check=not a.no_check)
        importlib.import_module(f"opinfo.{family}").samples(t)
        path = HERE / "opinfo" / f"{family}.json"
        path.write_text('{"rows":[\n' + ",\n".join(map(dump, t.rows)) + "\n]}\n")
        ops = {r["op"] for r in t.rows}
        print(f"{family}: {len(t.rows)} rows, {len(ops)} ops, {path.stat().st_size / 1e3:.0f} kB")
        for tag, rows in t.auto_tags.items():
            print(f"  {tag}: {len(rows)}")
            for r in rows if a.verbose else []:
                print(f"    {r}")
        for line in t.problems:
            print("  PROBLEM", line)
        bad += len(t.problems)
    sys.exit(1 if bad else 0)


main()
