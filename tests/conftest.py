import signal
import sys
from pathlib import Path

import faiss
import pytest
from hypothesis import settings

from faiss_prh import _native

# For `bench`, which is not installed. Last, so that the installed package is what is tested.
sys.path.append(str(Path(__file__).parents[1]))

# A shared machine is slow now and then; a failure must mean a bug.
settings.register_profile("faiss-prh", deadline=None, derandomize=True)
settings.load_profile("faiss-prh")

# In the background of a script interrupts are ignored, and so would be those of processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=_native.simd_levels())
def simd_level(request):
    before = _native.active_simd_level()
    _native.use_simd_level(request.param)
    yield request.param
    _native.use_simd_level(before)


@pytest.fixture
def thread_count():
    before = faiss.omp_get_max_threads()
    yield faiss.omp_set_num_threads
    faiss.omp_set_num_threads(before)
