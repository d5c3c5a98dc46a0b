"""Inputs that the fuzzer found, or could have found; and that it finds what there is to find."""

import io
import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from test_serialization import signed

from bench.mutation import Mutator
from faiss_prh import PRHTransform, deserialize_index, index_factory, read_index, serialize_index

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def test_a_pipe_has_no_length_and_is_read_all_the_same():
    class Pipe(io.RawIOBase):
        def __init__(self, data):
            self._data = io.BytesIO(data)

        def readable(self):
            return True

        def read(self, size=-1):
            return self._data.read(size)

    assert read_index(Pipe(serialize_index(index_factory(16, "PRH,BFlat")))).d == 16


def test_a_signalling_nan_is_refused_without_a_warning():
    prh = PRHTransform.random(4)
    angle = prh.rotation.layers[0].theta[:1].tobytes()
    data = signed(prh.to_bytes()[:-4].replace(angle, struct.pack("<I", 0x7F800001), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="finite"):
            PRHTransform.from_bytes(data)


@pytest.mark.parametrize(
    "description",
    ["PRH,BFlat\0", "PRH,BIVF٣", "PRH\udc80,BFlat", "IVF1000000000000,Flat", "PRH,BIVF1000000000", "PRH,BIVF99999M"],
)
def test_factory_strings_that_are_refused(description):
    with pytest.raises(ValueError, match=r"."):
        index_factory(16, description)


@pytest.mark.parametrize("d", [0, -1, 1 << 21, 1 << 40])
def test_dimensions_that_are_refused(d):
    for description in ("Flat", "BFlat", "PRH,BFlat"):
        with pytest.raises(ValueError, match="d must be from 1"):
            index_factory(d, description)


# As `python -m bench` does, but that imports what draws the plots of other commands.
RUN = "import argparse; parser = argparse.ArgumentParser(); {0}.add_arguments(parser); {0}.run(parser.parse_args())"


def fuzz(*arguments, prelude=""):
    program = f"from bench import fuzz\n{prelude}\n{RUN.format('fuzz')}"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_short_run_finds_nothing(tmp_path):
    run = fuzz("--inputs", "3000", "--seed", "1", "--failure", str(tmp_path / "failure"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[0]) >= 3000
    assert not (tmp_path / "failure").exists()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise KeyError(3)", "an error other than ValueError"),
        ("import os; os.kill(os.getpid(), 11)", "ended with -11"),
        ("import time; time.sleep(60)", "no end after"),
    ],
)
def test_the_fuzzer_finds_faults(fault, message, tmp_path):
    prelude = f"""
fuzz.LONGEST_SECONDS = 1
def broken(data):
    if b"x" in data:
        {fault}
fuzz.KINDS = tuple(kind._replace(use=broken) for kind in fuzz.KINDS)
"""
    run = fuzz("--failure", str(tmp_path / "failure"), prelude=prelude)
    assert run.returncode == 1
    assert message in run.stdout
    assert b"x" in (tmp_path / "failure").read_bytes()


def test_the_inputs_reach_what_is_behind_the_checksums():
    """Most refusals must come from the readers behind, not from a checksum, and some inputs must be accepted."""
    mutator, messages = Mutator(), []
    mutator.begin(3)
    for _ in range(200):
        try:
            deserialize_index(mutator.index_file())
            messages.append("accepted")
        except ValueError as error:
            messages.append(str(error))
    assert sum("checksum" in message for message in messages) < 40
    assert messages.count("accepted") > 5
    assert len(set(messages)) > 30
