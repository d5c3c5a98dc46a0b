import signal
import sys
from pathlib import Path

import faiss
import pytest
from hypothesis import settings

from faiss_prh import _backend

# For `bench`, which is not installed. Last, so that the installed package is what is tested.
sys.path.append(str(Path(__file__).parents[1]))

# A shared machine is slow now and then; a failure must mean a bug.
settings.register_profile("faiss-prh", deadline=None, derandomize=True)
settings.load_profile("faiss-prh")

# In the background of a script interrupts are ignored, and so would be those of processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


# What only concerns native code, by name, and why. All else runs without it as well (.ci/portable).
BEHIND_PRH = "test_interop.py::test_index_behind_prh_gives_what_it_gives_on_transformed_vectors"
ONLY_NATIVE = {
    "test_native.py": "the library itself",
    "test_portable.py": "compares the two",
    "test_documentation.py::test_docstrings[faiss_prh._native.kernels]": "it loads the library",
    "test_documentation.py::test_docstrings[faiss_prh._native.library]": "the same",
    "test_documentation.py::test_docstrings[faiss_prh._native.search]": "the same",
    "test_documentation.py::test_docstrings[faiss_prh._native.transforms]": "the same",
    f"{BEHIND_PRH}[RaBitQ]": "it shows the rounding of the matrix",
    f"{BEHIND_PRH}[IVFRaBitQ]": "the same",
    "test_bench.py::test_time_in_native_code": "that time",
    "test_interop.py::test_faiss_refuses_vectors_too_large_to_compute_with": "Faiss does not look",
    "test_interop.py::test_training_without_the_python_object_is_an_error": "a stock transform stays untrained",
    "test_interop.py::test_threads_are_as_many_as_faiss_allows": "NumPy has one thread",
    "test_install.py::test_copies_of_what_faiss_cannot_write": "Faiss has a transform without a matrix",
    "test_install.py::test_files_of_what_faiss_cannot_write": "the same",
    "test_linear.py::test_the_sparse_kernel_runs_all_the_same": "Faiss multiplies with the matrix",
    "test_linear.py::test_beyond_the_limit_it_is_a_plain_transform": "Faiss has a transform without a matrix",
    "test_linear.py::test_the_default_limit_is_the_matrix_of_4096_dimensions": "the same",
    "test_linear.py::test_copies_keep_the_limit": "the same",
    "test_linear.py::test_files_of_strangers_get_no_matrix": "the same",
    "test_reconstruct.py::test_signs_come_back_as_from_stock_faiss": "the matrix lacks the mean of what is dropped",
    "test_signs.py::test_a_margin_of_zero_finds_k_and_less_of_what_is_near": "all codes are looked at closely",
    "test_signs.py::test_a_margin_in_range_search": "the same",
}

collect_ignore = [] if _backend.BACKEND == "native" else [name for name in ONLY_NATIVE if name.endswith(".py")]


def pytest_collection_modifyitems(items):
    if _backend.BACKEND == "native":
        return
    for item in items:
        for name in (f"{item.path.name}::{item.originalname}", f"{item.path.name}::{item.name}"):
            if name in ONLY_NATIVE:
                item.add_marker(pytest.mark.skip(reason=f"only for native code: {ONLY_NATIVE[name]}"))


@pytest.fixture(params=_backend.simd_levels())
def simd_level(request):
    before = _backend.active_simd_level()
    _backend.use_simd_level(request.param)
    yield request.param
    _backend.use_simd_level(before)


@pytest.fixture
def thread_count():
    before = faiss.omp_get_max_threads()
    yield faiss.omp_set_num_threads
    faiss.omp_set_num_threads(before)
