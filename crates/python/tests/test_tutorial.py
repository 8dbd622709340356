"""The tutorial runs, and every check in it holds."""

import pathlib
import runpy


def test_the_tutorial_runs():
    runpy.run_path(str(pathlib.Path(__file__).parents[1] / "examples/tutorial.py"), run_name="__main__")
