"""Every example in the docstrings and in the README is run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import faiss_prh

README = Path(__file__).parents[1] / "README.md"
MODULES = [f"faiss_prh.{path.stem}" for path in Path(faiss_prh.__file__).parent.glob("[!_]*.py")]


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


def test_readme_commands_are_those_of_ci():
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    main_job, tests = blocks[:2]
    assert main_job.strip() == "pip install . && faiss-prh demo"
    assert tests.strip() == 'pip install ".[test]" && pytest'
