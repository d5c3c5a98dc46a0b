"""Every example in the docstrings and in the README is run."""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import faiss_prh

README = Path(__file__).parents[1] / "README.md"
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


def test_readme_python_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)


def shell_blocks():
    return re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)


def test_readme_commands_are_those_of_ci():
    main_job, tests = shell_blocks()[:2]
    assert main_job.strip() == "pip install . && faiss-prh demo"
    assert tests.strip() == 'pip install ".[test]" && pytest'


def test_readme_shell_examples(tmp_path):
    blocks = shell_blocks()[2:]
    assert blocks
    rng = np.random.default_rng(0)
    for name, n in {"t": 2000, "b": 3000, "more": 50, "q": 20}.items():
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(n, 64)).astype("float32"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in blocks:
        subprocess.run(["bash", "-euxc", block], cwd=tmp_path, env=environment, check=True)
    assert faiss_prh.read_index(tmp_path / "i.prh").ntotal == 3050
    assert np.load(tmp_path / "r.npz")["ids"].shape == (20, 10)
    assert np.load(tmp_path / "codes.npy").shape == (3000, 32)
