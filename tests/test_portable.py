"""What is in NumPy does the same as native code: to the last bit where that is promised, else but for rounding."""

import inspect
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faiss_prh import PairwiseRotation
from faiss_prh._native import kernels as native
from faiss_prh._native import search as native_search
from faiss_prh._native import transforms as native_transforms
from faiss_prh._portable import candidates
from faiss_prh._portable import kernels as portable
from faiss_prh._portable import search as portable_search
from faiss_prh._portable import transforms as portable_transforms
from faiss_prh.learning.tiles import tiled

SEEDS = st.integers(0, 1000)


def functions_of(module):
    return {
        name: list(inspect.signature(function).parameters)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__.startswith("faiss_prh._native") and function.__module__ != "faiss_prh._native.library"
    }


@pytest.mark.parametrize(
    ("there", "here"), [(native, portable), (native_search, portable_search)], ids=["kernels", "search"]
)
def test_both_have_the_same_functions(there, here):
    for name, parameters in functions_of(there).items():
        if not name.startswith("_") and name not in ("check_layout", "does_not_fit"):
            assert list(inspect.signature(getattr(here, name)).parameters) == parameters, name


def test_scans_have_the_same_fields():
    fields = {name for name, _ in native_search.Scan._fields_} - {"transform", "computers"}
    assert fields <= set(dir(portable_search.Scan()))


def pairs_of(rng, n):
    """Disjoint pairs of some of n rows, and angles."""
    order = rng.permutation(n)[: 2 * int(rng.integers(1, n // 2 + 1))].astype(np.int32)
    half = len(order) // 2
    return order[:half].copy(), order[half:].copy(), rng.uniform(-4, 4, half).astype(np.float32)


def rows_of(rng, n, m):
    return (rng.normal(size=(n, m)) * np.exp(rng.normal(size=(n, 1)) * 3)).astype(np.float32)


def assert_same_bits(call, *arrays):
    """Compare what both return, and what they leave in copies of arrays."""
    outcomes = []
    for module in (native, portable):
        own = [array.copy() for array in arrays]
        found = call(module, *own)
        outcomes.append([*own, *(found if isinstance(found, tuple) else (found,))])
    for one, other in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(one, other)


@given(SEEDS, st.integers(2, 30), st.integers(1, 100))
def test_rows(seed, n, m):
    rng = np.random.default_rng(seed)
    rows, (i, j, theta) = rows_of(rng, n, m), pairs_of(rng, n)
    assert_same_bits(lambda module, r: module.rows_centre(r), rows)
    assert_same_bits(lambda module, r: module.rows_covariances(r, i, j), rows)
    assert_same_bits(lambda module, r: module.rows_rotate(r, i, j, theta), rows)
    x = rows_of(rng, 3, n)
    assert_same_bits(lambda module, r: module.rows_fill(r, m - 1, x[:1]), rows)


def test_rows_longer_than_a_cache():
    rng = np.random.default_rng(0)
    rows, (i, j, theta) = rows_of(rng, 6, 70_003), pairs_of(rng, 6)
    assert_same_bits(lambda module, r: module.rows_centre(r), rows)
    assert_same_bits(lambda module, r: (module.rows_rotate(r, i, j, theta), module.rows_covariances(r, i, j)), rows)


@given(SEEDS, st.integers(2, 40))
def test_matrices(seed, n):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, n))
    i, j, theta = pairs_of(rng, n)
    assert_same_bits(lambda module, a: module.matrix_rotate(a, i, j, theta), matrix + matrix.T)


@given(SEEDS, st.integers(1, 30), st.integers(1, 30), st.booleans(), st.integers(1, 12))
def test_matching(seed, n_rows, n_columns, is_symmetric, n_rounds):
    gain = np.random.default_rng(seed).integers(-3, 9, (n_rows, n_columns)).astype(float)  # with many ties
    if is_symmetric:
        gain = gain @ gain.T
        np.fill_diagonal(gain, 0)
    assert_same_bits(lambda module, g: module.match(g, is_symmetric, n_rounds), gain)


@given(SEEDS, st.integers(1, 40), st.integers(1, 60) | st.integers(300, 500), st.integers(1, 30))
def test_least_distances(seed, n, m, k):
    rng = np.random.default_rng(seed)
    own, norms = rng.integers(50, 60, n).astype(np.float32), rng.integers(50, 60, m).astype(np.float32)
    products = rng.integers(-20, 25, (n, m)).astype(np.float32)
    assert_same_bits(lambda module: module.nearer(products, own, norms, min(k, m)))


@given(SEEDS, st.integers(1, 40), st.integers(1, 60) | st.integers(300, 500), st.integers(1, 20), st.integers(1, 30))
def test_nearest(seed, n, m, d, k):
    """Many are equally near."""
    rng = np.random.default_rng(seed)
    x, others = (rng.integers(-3, 4, (count, d)).astype(np.float32) for count in (n, m))
    assert_same_bits(lambda module: module.nearest(x, others, min(k, m)))
    assert_same_bits(lambda module: module.nearest(others, others, min(k, m)))


@given(SEEDS, st.integers(1, 40) | st.integers(250, 600), st.integers(1, 60), st.integers(1, 60))
def test_products_of_columns(seed, m, n, k):
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(m, n)), rng.normal(size=(m, k))
    np.testing.assert_allclose(native.column_products(left, right), portable.column_products(left, right), atol=1e-11)
    np.testing.assert_allclose(native.column_products(left, left), portable.column_products(left, left), atol=1e-11)
    left, right = np.rint(1000 * left), np.rint(1000 * right)
    assert_same_bits(lambda module: module.column_products(left, right))
    assert_same_bits(lambda module: module.column_products(left, left))


@given(SEEDS, st.integers(1, 40) | st.integers(250, 600), st.integers(1, 60), st.integers(0, 50))
def test_moments(seed, m, n, count):
    rng = np.random.default_rng(seed)
    x, found = rng.normal(size=(m, n), loc=4).astype(np.float32), []
    for module in native, portable:
        mean, scatter = np.full(n, 3.0 if count else 0.0), np.eye(n) * count
        module.moments_add(x, count, mean, scatter)
        found.append((mean, scatter))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9)


@given(SEEDS, st.integers(1, 40))
def test_inverse_factors(seed, n):
    columns = np.random.default_rng(seed).normal(size=(2 * n, n))
    gram = columns.T @ columns
    assert_same_bits(lambda module: module.inverse_factor(gram.copy()))
    np.testing.assert_allclose(native.inverse_factor(gram.copy()) @ np.linalg.cholesky(gram), np.eye(n), atol=1e-6)


@given(SEEDS, st.integers(1, 20), st.integers(1, 9))
def test_gathering(seed, n, size):
    rng = np.random.default_rng(seed)
    memory = rng.integers(0, 256, (50, size), np.uint8)
    addresses = np.where(rng.random(n) < 0.3, 0, memory.ctypes.data + size * rng.integers(0, 50, n))
    np.testing.assert_array_equal(native.gather(addresses, size), portable.gather(addresses, size))


@given(SEEDS, st.integers(2, 40), st.integers(1, 1300), st.integers(1, 5))
def test_tiles(seed, n, m, n_layers):
    rng = np.random.default_rng(seed)
    i, j, theta = (np.concatenate(part) for part in zip(*(pairs_of(rng, n) for _ in range(n_layers)), strict=True))
    x, g = tiled(rows_of(rng, n, m)), tiled(rows_of(rng, n, m))
    assert_same_bits(lambda module, y: module.tiles_turn(x, i, j, theta, y), np.empty_like(x))
    assert_same_bits(lambda module, y, g: module.tiles_slopes(y, g, i, j, theta), x, g)
    matrix = rows_of(rng, n, n)
    assert_same_bits(lambda module, y: module.tiles_multiply(matrix, x, y), np.empty_like(x))
    assert_same_bits(lambda module: module.tiles_outer(g, x))
    assert_same_bits(lambda module, y: module.tiles_signs(x, 0.25, y), np.empty_like(x))


@given(SEEDS, st.integers(1, 200), st.integers(2, 70), st.integers(1, 9))
def test_soft_signs(seed, n, m, k):
    rng = np.random.default_rng(seed)
    y = tiled((rng.normal(size=(n, m)) * rng.integers(0, 2, (n, m))).astype(np.float32))
    partners = rng.integers(0, m, (m, k)).astype(np.int32)
    incident = np.argsort(partners, axis=None, kind="stable").astype(np.int32)
    ends, weights = np.cumsum(np.bincount(partners.ravel(), minlength=m)), rng.normal(size=(m, k)).astype(np.float32)

    def products_and_slopes(module, g):
        signs = np.zeros(m * -(-n // 16) * 16, np.float32)
        magnitudes = module.soft_signs(y, m, 0.4, signs)
        products = module.sign_products(n, signs, partners)
        module.sign_slopes(y, signs, partners, ends, incident, incident // np.int32(k), weights, 0.4, -0.01, g)
        return magnitudes, products

    assert_same_bits(products_and_slopes, np.empty_like(y))


@given(SEEDS, st.integers(1, 70), st.integers(1, 90), st.integers(1, 40), st.booleans())
def test_transforms(seed, d, d_out, n, has_tail):
    rng = np.random.default_rng(seed)
    n_dimensions = max(d, d_out)
    rotation, mean = PairwiseRotation.random(n_dimensions, 5, seed), rng.normal(size=d).astype(np.float32)
    kept = rng.permutation(n_dimensions)[:d_out].astype(np.int32)
    tail = np.linalg.qr(rng.normal(size=(d_out, d_out)))[0].astype(np.float32) if has_tail else None
    i, j, theta = (np.concatenate([layer[part] for layer in rotation.layers]) for part in range(3))
    ends = np.cumsum([len(layer.theta) for layer in rotation.layers], dtype=np.int64)
    x, found = rng.normal(size=(n, d)).astype(np.float32), []
    for kind in (native_transforms.Rotating, portable_transforms.Rotating):
        rotating = kind(d, d_out)
        rotating.set(n_dimensions, ends, i, j, theta, mean, kept, tail)
        y, back = np.empty((n, d_out), np.float32), np.empty_like(x)
        codes, norms = np.zeros((n, -(-d_out // 8)), np.uint8), np.empty(n, np.float32)
        assert rotating.apply(x, y) is rotating.reverse(y, back) is rotating.encode(x, codes, norms) is None
        bad = np.vstack([x, np.full((1, d), np.nan, np.float32)])
        assert rotating.encode(bad, np.zeros((n + 1, codes.shape[1]), np.uint8), None) == n
        found.append((y, back, norms, np.unpackbits(codes, axis=1, bitorder="little")[:, :d_out]))
    (y, back, norms, bits), (other_y, other_back, other_norms, other_bits) = found
    np.testing.assert_allclose(other_y, y, atol=2e-5)
    np.testing.assert_allclose(other_back, back, atol=2e-5)
    np.testing.assert_allclose(other_norms, norms, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(bits[np.abs(y) > 1e-4], other_bits[np.abs(y) > 1e-4])


@given(SEEDS, st.integers(1, 30), st.integers(1, 20), st.booleans())
def test_hamming_distances(seed, n, n_bytes, by_table):
    rng = np.random.default_rng(seed)
    codes, query = rng.integers(0, 256, (n, n_bytes), np.uint8), rng.integers(0, 256, (1, n_bytes), np.uint8)
    counted = candidates._counts_by_table if by_table else candidates._bit_counts  # the former with NumPy 1
    with mock.patch.object(candidates, "_bit_counts", counted):
        words, others = candidates.as_words(codes, n_bytes), candidates.as_words(query, n_bytes)
        found = candidates.hamming(words, others[0])
    np.testing.assert_array_equal(found, np.unpackbits(codes ^ query, axis=1).sum(axis=1))
    least = candidates.least(found, 5)
    np.testing.assert_array_equal(least, np.sort(np.argsort(found, kind="stable")[:5]))


# Whole programs, in all states


def run(code, state, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code, *arguments],
        env={**os.environ, "FAISS_PRH_NATIVE": state, "PYTHONPATH": os.path.dirname(__file__), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


LEARNED = """
import sys
import numpy as np
from faiss_prh import PRHTransform, _backend
from formula import formula_vectors
found = {"backend": _backend.BACKEND}
for d, d_out, options in [(40, 40, {}), (40, 40, {"tune": False}), (40, 60, {}), (60, 24, {}), (1100, 1100, {})]:
    x = formula_vectors(700, d) * np.linspace(1, 3, d, dtype=np.float32)
    prh = PRHTransform(d, d_out, **options)
    prh.train(x)
    found[f"bytes{len(found)}"] = np.frombuffer(prh.to_bytes(), np.uint8)
    found[f"codes{len(found)}"] = prh.encode(x)
few = PRHTransform(5000, 100)
few.train(formula_vectors(250, 5000))
found["bytes"], found["codes"] = np.frombuffer(few.to_bytes(), np.uint8), few.encode(formula_vectors(250, 5000))
np.savez(sys.argv[1], **found)
"""


def outcomes(tmp_path, code, *states):
    for state in states:
        path = tmp_path / f"{state}.npz"
        done = run(code, state, str(path))
        assert done.returncode == 0, done.stderr
        yield dict(np.load(path))


def test_what_is_learned_is_the_same_to_the_last_bit(tmp_path):
    native_found, *others = outcomes(tmp_path, LEARNED, "1", "kernels", "0")
    assert native_found.pop("backend") == "native"
    for other, backend in zip(others, ("kernels", "portable"), strict=True):
        assert other.pop("backend") == backend
        differing = total = 0
        for name, found in native_found.items():
            if name.startswith("bytes"):
                np.testing.assert_array_equal(other[name], found)
            else:
                differing += np.unpackbits(other[name] ^ found).sum()
                total += 8 * found.size
        assert differing <= 1e-4 * total


SEARCHED = """
import sys
import faiss, numpy as np, faiss_prh
rng = np.random.default_rng(0)
x = (rng.normal(size=(1500, 8)) @ rng.normal(size=(8, 40)) + rng.normal(size=(1500, 40))).astype(np.float32)
xq, found = x[:30] * np.float32(1.1), {}
keep = faiss.IDSelectorBatch(np.arange(0, 1500, 3))
for description in ["PRH,BFlat,RFlat", "PRH,BFlat,RAsym", "PRH,BIVF16,RFlat", "PRH,BIVF16,RAsym", "PRH24,BFlat,RAsym",
                    "PRH,BHNSW8,RAsym", "PRH,BFlat,Refine(SQ8)", "PRH,IVF16,Signs", "PRH,IVF16_HNSW8,Signs",
                    "PRH,IVF16,Signs,RFlat", "PRH,IVF16,Flat"]:
    for metric in (faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT):
        index = faiss_prh.index_factory(40, description, metric)
        index.train(x)
        index.add(x)
        lists = "IVF" in description
        if lists and "Flat" not in description.split(",")[-1:]:
            index.nprobe = 5
        if "Signs" in description:
            index.margin = 1e9
        name = f"{description} {metric}"
        found[f"{name} D"], found[f"{name} I"] = index.search(xq, 7)
        if description.startswith("PRH,B") and "HNSW" not in description or "Signs" in description:
            params = faiss.SearchParametersIVF(sel=keep, nprobe=3) if lists else faiss.SearchParameters(sel=keep)
            found[f"{name} filtered D"], found[f"{name} filtered I"] = index.search(xq, 7, params=params)
        if lists and description.startswith("PRH,B"):
            params = faiss.SearchParametersIVF(nprobe=9, max_codes=200)
            found[f"{name} few D"], found[f"{name} few I"] = index.search(xq, 7, params=params)
        if "Signs" in description:
            limits, D, I = index.range_search(xq, 30 if metric == faiss.METRIC_L2 else 60)
            order = np.lexsort((I, np.repeat(np.arange(len(xq)), np.diff(limits.astype(int)))))
            found[f"{name} range D"], found[f"{name} range I"] = D[order], I[order]
np.savez(sys.argv[1], **found)
"""


def test_searches_find_the_same(tmp_path):
    native_found, *others = outcomes(tmp_path, SEARCHED, "1", "kernels", "0")
    for other in others:
        assert other.keys() == native_found.keys()
        for name, found in native_found.items():
            if name.endswith("D"):
                np.testing.assert_allclose(other[name], found, rtol=1e-3, atol=1e-2, err_msg=name)
            else:
                assert (other[name] == found).mean() > 0.98, name  # but for ties


# What is chosen

TRAINED = """
import faiss, numpy as np, faiss_prh
x = np.random.default_rng(0).normal(size=(300, 16)).astype("f4")
"""


def test_an_unknown_choice_is_an_import_error():
    done = run("from faiss_prh import PRHTransform", "yes")
    assert "ImportError: FAISS_PRH_NATIVE must be 1 (the default), kernels or 0, not 'yes'" in done.stderr


WITHOUT_LIBRARY = """
import pathlib
exists = pathlib.Path.exists
pathlib.Path.exists = lambda self: not self.name.startswith("libfaiss_prh") and exists(self)
"""


def test_without_the_library_there_is_one_warning():
    code = f"""
import warnings
{WITHOUT_LIBRARY}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import faiss_prh
    faiss_prh.PRHTransform.random(8).encode([[0.0] * 8])
    faiss_prh.index_factory(8, "PRH,BFlat")
print([(one.category.__name__, str(one.message)[:40]) for one in caught], faiss_prh.show_config("dicts")["backend"])
"""
    done = run(code, "")
    assert done.stdout == "[('RuntimeWarning', 'faiss-prh runs without native code, whic')] portable\n", done.stderr
    assert run(code, "0").stdout == "[] portable\n"


def test_windows_is_given_no_native_transform():
    done = run("import sys, faiss; sys.platform = 'win32'\nfrom faiss_prh import _backend", "1")
    assert "ImportError" in done.stderr or "missing" in done.stderr  # there, the library is a .dll
    code = "import sys, faiss\nfrom faiss_prh._native import library\nsys.platform = 'win32'\n"
    done = run(code + "from faiss_prh import _backend; print(_backend.BACKEND, _backend.REASON)", "1")
    assert done.stdout == "kernels Faiss has another binary interface on Windows\n", done.stderr


@pytest.mark.parametrize("state", ["kernels", "0"])
def test_beyond_the_limit_there_is_no_matrix(state):
    code = (
        TRAINED
        + """
prh = faiss_prh.PRHTransform(16, max_dense_bytes=1000)
index = faiss_prh.IndexBinaryPreTransform(prh, faiss.IndexBinaryFlat(16))
index.train(x)
index.add(x)
assert index.search(x[:3], 1)[1].ravel().tolist() == [0, 1, 2]
other = faiss_prh.PRHTransform.from_bytes(prh.to_bytes(), max_dense_bytes=0)
prh.check_identical(other)
seen = faiss.downcast_VectorTransform(prh)
assert seen.A.size() == 0
for use in (seen.apply, seen.reverse_transform):
    try: use(x)
    except RuntimeError: pass
    else: raise AssertionError
stock = faiss.IndexPreTransform(faiss.IndexFlatL2(16))
new = faiss.PyCallbackIOWriter(print)
for transform in (prh, faiss_prh.PRHTransform(16, max_dense_bytes=1000)):
    for use in (
        lambda: faiss.IndexPreTransform(transform, faiss.IndexFlatL2(16)),
        lambda: stock.prepend_transform(transform),
        lambda: faiss.write_VectorTransform(transform, new),
    ):
        try: use()
        except RuntimeError as error: print(error)
assert stock.chain.size() == 0
"""
    )
    done = run(code, state)
    assert done.stdout.splitlines() == 6 * [
        "without native code, Faiss needs the dense matrix of PRHTransform(16, 16): make it with max_dense_bytes=1024 "
        "or more, or use it in front of a binary index"
    ], done.stderr
