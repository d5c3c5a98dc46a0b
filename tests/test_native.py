import os
import shutil
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

from faiss_prh._native import library, transforms

HEADERS = Path(__file__).parents[1] / "faiss_prh" / "native"


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.mark.parametrize("level", library.simd_levels())
def test_the_environment_forces_a_simd_level(level):
    done = run_python("from faiss_prh import _backend; print(_backend.active_simd_level())", FAISS_PRH_SIMD=level)
    assert done.stdout.strip() == level, done.stderr


def test_the_best_simd_level_is_the_default():
    done = run_python(
        "import os; os.environ.pop('FAISS_PRH_SIMD', None)\n"
        "from faiss_prh import _backend; print(_backend.active_simd_level())"
    )
    assert done.stdout.strip() == library.simd_levels()[-1], done.stderr


def test_an_empty_simd_level_is_none():
    done = run_python("from faiss_prh import _backend; print(_backend.active_simd_level())", FAISS_PRH_SIMD="")
    assert done.stdout.strip() == library.simd_levels()[-1], done.stderr


def test_children_forked_while_others_encode_do_not_hang():
    done = run_python(
        """
import os, signal, threading, warnings
import numpy as np, faiss_prh
warnings.simplefilter("ignore")
prh, x = faiss_prh.PRHTransform.random(64), np.ones((1, 64), np.float32)
going = True
def encode():
    while going:
        prh.encode(x)
threads = [threading.Thread(target=encode) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(100):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        prh.encode(x)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
going = False
for thread in threads: thread.join()
"""
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("build", ["generic", "AVX2", "AVX512"])
def test_every_build_in_a_wheel_of_faiss_fits(build):
    """Up to 1.13 or so there are extension modules for several SIMD levels, as in conda's packages."""
    if build.lower() not in ("generic", *library.simd_levels()):
        pytest.skip(f"this CPU has no {build}")
    done = run_python(
        """
import ctypes, sys, types, faiss, numpy as np, faiss_prh
from faiss_prh._native import library
module = faiss.VectorTransform.__module__.rpartition(".")[2]
others = [name for name in sys.modules if "_swigfaiss" in name and not name.endswith("_" + module)]
assert not others, others
index = faiss.IndexPreTransform(faiss_prh.PRHTransform.random(16, seed=1), faiss.IndexFlatL2(16))
x = np.eye(16, dtype=np.float32)
index.add(x)
assert (index.search(x, 1)[1].ravel() == np.arange(16)).all()
sources = []
library.library = types.SimpleNamespace(prh_set_thread_source=sources.append)
library._follow_faiss_threads()
faiss.omp_set_num_threads(3)
assert ctypes.CFUNCTYPE(ctypes.c_int)(sources[0].value)() == 3
print(module)
""",
        FAISS_OPT_LEVEL=build,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("swigfaiss", f"swigfaiss_{build.lower()}")


def test_an_unknown_simd_level_is_an_import_error():
    done = run_python("from faiss_prh import PRHTransform", FAISS_PRH_SIMD="avx9000")
    assert done.returncode != 0
    assert "ImportError: FAISS_PRH_SIMD: no SIMD level 'avx9000' on this CPU; there are baseline" in done.stderr


def test_scipy_is_imported_only_where_it_is_needed():
    done = run_python(
        "import sys, numpy as np, faiss_prh\n"
        "faiss_prh.PRHTransform(8, tune=False).train(np.eye(8))\n"
        "assert 'scipy' not in sys.modules\n"
        "faiss_prh.PairwiseRotation.random(8, 2, 0).to_sparse()\n"
        "assert 'scipy' in sys.modules\n"
    )
    assert done.returncode == 0, done.stderr


class Doctored:
    """A Faiss proxy of another layout: it reads its fields from other places, or loses what it is given."""

    def __init__(self, proxy, **wrong):
        self._proxy, self._wrong = proxy, wrong

    def __getattr__(self, name):
        return self._wrong[name] if name in self._wrong else getattr(self._proxy, name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"d_in": 0},
        {"d_out": 7},
        {"is_trained": True},
        {"apply": lambda x: x},
        {"reverse_transform": lambda y: y},
        {"train": lambda x: None},
        {"check_identical": lambda other: other.no_such_slot},
    ],
)
def test_a_faiss_of_another_layout_is_refused(wrong):
    with pytest.raises(ImportError, match=f"Faiss {faiss.__version__} has another layout"):
        transforms.check_layout(
            lambda is_linear, train: Doctored(transforms.new_transform(2, 2, is_linear, train)[0], **wrong)
        )


@pytest.mark.parametrize(
    "doctoring",
    [
        "faiss.VectorTransform.d_out = property(lambda self: 7)",
        "faiss.VectorTransform.apply = lambda self, x: x",
        "faiss.VectorTransform.train = lambda self, x: None",
    ],
)
def test_a_faiss_of_another_layout_is_left_alone(doctoring):
    """Without a stock transform that works, `PRHTransform` would not either; what is asked is what was chosen."""
    done = run_python(
        f"import faiss\n{doctoring}\nfrom faiss_prh import _backend; print(_backend.BACKEND, _backend.REASON)"
    )
    assert done.stdout.startswith(f"kernels Faiss {faiss.__version__} has another layout"), done.stderr
    assert "than faiss-cpu 1.8 to 1.15 of VectorTr" in done.stdout


def test_another_versions_library_is_refused():
    with pytest.raises(ImportError, match=r"native library is of version 0\.0\.0"):
        library._check_version("0.0.0")


def test_native_errors_become_exceptions():
    proxy, _, untrained = transforms.new_transform(3, 3, False, library.TrainCallback())
    x = np.zeros((1, proxy.d_in), np.float32)
    with pytest.raises(RuntimeError, match="not trained"):
        transforms.apply(untrained, x, x.copy())
    with pytest.raises(ValueError, match="no SIMD level 'none'"):
        library.use_simd_level("none")


@pytest.mark.skipif(not shutil.which("g++") or not HEADERS.is_dir(), reason="no g++, or no sources beside the tests")
def test_the_library_does_what_plain_loops_do(tmp_path):
    """The program that .ci/sanitize and .ci/aarch64 run, with the library as it is installed."""
    sources, program = sorted(Path(__file__).with_name("native").glob("*.cpp")), tmp_path / "check"
    compiling = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}", *sources]
    compiled = Path(library.library._name)
    linking = [compiled, f"-Wl,-rpath,{compiled.parent}", "-pthread", "-o", program]
    subprocess.run([*compiling, *linking], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == library.simd_levels()
