"""Faiss's own tools on indexes with PRH inside: what they do, against plain arithmetic or an index without PRH."""

import json
import subprocess
import sys

import faiss
import numpy as np
import pytest
from faiss.contrib import inspect_tools, ivf_tools
from faiss.contrib.evaluation import knn_intersection_measure
from faiss.contrib.ondisk import merge_ondisk

from faiss_prh import index_factory

D, N, K = 64, 1900, 10


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N + 100, 12)) @ rng.normal(size=(12, D)) + rng.normal(size=(N + 100, D)) / 2 + 1
    return np.split(x.astype("float32"), [N])


@pytest.fixture(scope="module")
def exact(data):
    return faiss.knn(data[1], data[0], K)


@pytest.fixture(scope="module")
def trained(data):
    """Return copies of a trained index with 16 lists, made once."""
    index = index_factory(D, "PRH,IVF16,Flat")
    index.train(data[0])
    return lambda: faiss.clone_index(index)


def filled(index, x):
    if not index.is_trained:
        index.train(x)
    if isinstance(index, faiss.IndexIDMap):
        index.add_with_ids(x, np.arange(len(x)) + 5000)
    else:
        index.add(x)
    return index


# Without this package


@pytest.mark.parametrize(
    "description",
    ["PRH,LSH", "PRH,Flat", "PRH64,IVF16,Flat", "PRH,IVF16,RaBitQ", "PRH,LSH,RFlat", "IDMap2,PRH,LSH", "SRR,LSH"],
)
def test_another_process_without_this_package_finds_the_same(description, data, tmp_path):
    if "RaBitQ" in description and not hasattr(faiss, "IndexRaBitQ"):
        pytest.skip("this Faiss has no IndexRaBitQ")
    xb, xq = data
    index = filled(index_factory(D, description), xb)
    if ivf := faiss.try_extract_index_ivf(index):
        ivf.nprobe = 4
    if hasattr(index, "k_factor"):
        index.k_factor = 10
    np.save(tmp_path / "xq.npy", xq)
    faiss.write_index(index, str(tmp_path / "index"))
    program = f"""
import json, sys
import faiss, numpy as np
index = faiss.read_index({str(tmp_path / "index")!r})
D, I = index.search(np.load({str(tmp_path / "xq.npy")!r}), {K})
assert not any(name.startswith("faiss_prh") for name in sys.modules)
print(json.dumps(I.tolist()))
"""
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same_but_for_ties(index, xq, np.array(json.loads(done.stdout)))


def assert_same_but_for_ties(index, xq, found):
    """At least 99 % of the ids are the same, not counting those that are as far as the last."""
    distances, ids = index.search(xq, K)
    nearer = distances < distances[:, -1:]
    same = (ids[:, :, None] == found[:, None, :]).any(axis=2)
    assert same[nearer].mean() >= 0.99
    assert same.mean() >= 0.95


# Parameters


def test_parameter_space_reaches_the_index_behind_the_transform(trained, data, exact):
    index = filled(trained(), data[0])
    space = faiss.ParameterSpace()
    space.initialize(index)
    ranges = {space.parameter_ranges.at(i).name for i in range(space.parameter_ranges.size())}
    assert "nprobe" in ranges
    space.set_index_parameters(index, "nprobe=16")
    assert faiss.extract_index_ivf(index).nprobe == 16
    assert knn_intersection_measure(index.search(data[1], K)[1], exact[1]) > 0.999
    space.set_index_parameter(index, "nprobe", 1)
    assert faiss.extract_index_ivf(index).nprobe == 1


def test_parameter_space_knows_refinement(data):
    index = filled(index_factory(D, "PRH,IVF16,Flat,RFlat"), data[0])
    faiss.ParameterSpace().set_index_parameters(index, "nprobe=8,k_factor_rf=4")
    assert index.k_factor == 4
    assert faiss.extract_index_ivf(index).nprobe == 8


def test_parameter_space_explores(trained, data, exact):
    index = filled(trained(), data[0])
    criterion = faiss.IntersectionCriterion(len(data[1]), K)
    criterion.set_groundtruth(None, exact[1])
    space = faiss.ParameterSpace()
    space.initialize(index)
    points = space.explore(index, data[1], criterion)
    best = max(points.all_pts.at(i).perf for i in range(points.all_pts.size()))
    assert best > 0.95


def test_search_parameters_go_through_the_transform(trained, data):
    index = filled(trained(), data[0])
    inside = faiss.SearchParametersIVF(nprobe=16, sel=faiss.IDSelectorRange(0, N // 2))
    _, ids = index.search(data[1], K, params=faiss.SearchParametersPreTransform(index_params=inside))
    np.testing.assert_array_equal(ids, faiss.knn(data[1], data[0][: N // 2], K)[1])


# Inverted lists


def test_extract_index_ivf(trained):
    index = trained()
    ivf = faiss.downcast_index(faiss.extract_index_ivf(index))
    assert isinstance(ivf, faiss.IndexIVFFlat)
    assert ivf.nlist == 16


def test_lists_are_filled_and_searched_by_given_assignments(trained, data):
    whole, index = filled(trained(), data[0]), trained()
    transformed = index.chain.at(0).apply(data[0])
    quantizer = faiss.extract_index_ivf(index).quantizer
    _, lists = quantizer.search(transformed, 1)
    ivf_tools.add_preassigned(faiss.extract_index_ivf(index), transformed, lists.ravel())
    index.ntotal = N
    _, lists = quantizer.search(index.chain.at(0).apply(data[1]), 3)
    faiss.extract_index_ivf(whole).nprobe = faiss.extract_index_ivf(index).nprobe = 3
    expected = whole.search(data[1], K)
    found = ivf_tools.search_preassigned(index, data[1], K, lists)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)


def test_lists_are_sorted(trained, data):
    index = filled(trained(), data[0])
    faiss.extract_index_ivf(index).nprobe = 4
    expected = index.search(data[1], K)[1]
    ivf_tools.sort_invlists_by_size(faiss.extract_index_ivf(index))
    sizes = inspect_tools.get_invlist_sizes(faiss.extract_index_ivf(index).invlists)
    assert (np.diff(sizes) >= 0).all()
    np.testing.assert_array_equal(index.search(data[1], K)[1], expected)


def test_the_matrix_that_faiss_inspects_is_the_transform(trained, data):
    index = trained()
    A, b = inspect_tools.get_LinearTransform_matrix(faiss.downcast_VectorTransform(index.chain.at(0)))
    np.testing.assert_allclose(data[0] @ A.T + b, index.chain.at(0).apply(data[0]), atol=1e-4)


def test_lists_on_disk_are_merged_from_shards(trained, data, tmp_path, exact):
    names = []
    for number, part in enumerate(np.array_split(np.arange(N), 3)):
        shard = trained()
        shard.add_with_ids(data[0][part], part)
        names.append(str(tmp_path / f"shard{number}"))
        faiss.write_index(shard, names[-1])
    index = trained()
    merge_ondisk(index, names, str(tmp_path / "lists"))
    faiss.write_index(index, str(tmp_path / "merged"))
    merged = faiss.read_index(str(tmp_path / "merged"))
    faiss.extract_index_ivf(merged).nprobe = 16
    assert merged.ntotal == N
    assert knn_intersection_measure(merged.search(data[1], K)[1], exact[1]) > 0.999


def test_range_searches_agree(trained, data):
    index, flat = filled(trained(), data[0]), filled(faiss.IndexFlatL2(D), data[0])
    faiss.extract_index_ivf(index).nprobe = 16
    radius = float(np.median(flat.search(data[1], K)[0][:, -1]))
    pairs = []
    for searched in flat, index:
        limits, _, ids = searched.range_search(data[1], radius)
        pairs.append(set(zip(np.repeat(np.arange(len(data[1])), np.diff(limits.astype(int))), ids, strict=True)))
    assert len(pairs[0]) > 100
    assert len(pairs[0] & pairs[1]) > 0.99 * len(pairs[0] | pairs[1])  # rounding may move some over the edge


# Many indexes as one


@pytest.mark.parametrize("other", ["clone", "read"])
def test_merge_into(other, trained, data, exact):
    first = trained()
    second = trained() if other == "clone" else faiss.deserialize_index(faiss.serialize_index(first))
    first.add(data[0][:1000])
    second.add(data[0][1000:])
    faiss.merge_into(first, second, True)
    faiss.extract_index_ivf(first).nprobe = 16
    assert (first.ntotal, second.ntotal) == (N, 0)
    assert knn_intersection_measure(first.search(data[1], K)[1], exact[1]) > 0.999


@pytest.mark.parametrize("threaded", [False, True])
def test_shards(threaded, data, exact):
    parts = np.array_split(np.arange(N), 3)
    first = index_factory(D, "PRH,Flat")
    first.train(data[0])
    shards = faiss.IndexShards(D, threaded, True)
    indexes = [first, faiss.clone_index(first), faiss.clone_index(first)]
    for index, part in zip(indexes, parts, strict=True):
        index.add(data[0][part])
        shards.add_shard(index)
    assert shards.ntotal == N
    np.testing.assert_array_equal(shards.search(data[1], K)[1], exact[1])


def test_shards_train_and_add(data, exact):
    shards = faiss.IndexShards(D, False, True)
    for _ in range(2):
        shards.add_shard(index_factory(D, "PRH,Flat"))
    shards.train(data[0])
    shards.add(data[0])
    np.testing.assert_array_equal(shards.search(data[1], K)[1], exact[1])


@pytest.mark.parametrize("threaded", [False, True])
def test_replicas(threaded, data, exact):
    index = filled(index_factory(D, "PRH,Flat"), data[0])
    replicas = faiss.IndexReplicas(D, threaded)
    replicas.addIndex(index)
    replicas.addIndex(faiss.clone_index(index))
    np.testing.assert_array_equal(replicas.search(data[1], K)[1], exact[1])


def test_faiss_writes_neither_shards_nor_replicas(data):
    for many in faiss.IndexShards(D), faiss.IndexReplicas(D):
        add = many.add_shard if hasattr(many, "add_shard") else many.addIndex
        add(faiss.IndexFlatL2(D))
        with pytest.raises(RuntimeError, match="don't know how to serialize"):
            faiss.serialize_index(many)
