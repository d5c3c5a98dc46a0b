"""Every example in the docstrings, in the README and in docs/ is run, and prints what is shown."""

import contextlib
import doctest
import importlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import faiss_prh

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [
    README,
    *(
        path
        for path in sorted((ROOT / "docs").glob("[!_]*.md"))
        if "```python" in path.read_text() and path.name != "cluster.md"  # as below
    ),
]
PACKAGE = Path(faiss_prh.__file__).parent
MODULES = [
    ".".join(("faiss_prh", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent.name != "dask"  # whose tests have the cluster that its examples need
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_public_names_have_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in faiss_prh.__all__:
        public = getattr(faiss_prh, name)
        examples = [test for test in finder.find(public, name) if test.examples]
        assert examples or name == "Parameters", name


def blocks(page, language):
    """Return the blocks of code in a language, each with what it prints: the block of text right behind it, if any."""
    pattern = rf"^```{language}\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?"
    return re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)


def assert_prints(code, expected, printed):
    checker, options = doctest.OutputChecker(), doctest.ELLIPSIS
    example = doctest.Example(code, expected)
    assert checker.check_output(example.want, printed, options), checker.output_difference(example, printed, options)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    assert blocks(page, "python")
    for code, expected in blocks(page, "python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), namespace)
        assert_prints(code, expected, printed.getvalue())


def test_readme_commands_are_those_of_ci():
    (main_job, _), (tests, _) = blocks(README, "sh")[:2]
    assert main_job.strip() == "pip install . && faiss-prh demo"
    assert tests.strip() == 'pip install ".[test]" && pytest'


def test_readme_shell_examples(tmp_path):
    examples = blocks(README, "sh")[2:]
    assert examples
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for code, expected in examples:
        run = ["bash", "-euo", "pipefail", "-c", code]
        done = subprocess.run(run, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        if expected:
            assert_prints(code, expected, done.stdout)
    assert faiss_prh.read_index(tmp_path / "i.prh").ntotal == 3050
    assert np.load(tmp_path / "r.npz")["ids"].shape == (20, 10)
    assert np.load(tmp_path / "codes.npy").shape == (3000, 32)
