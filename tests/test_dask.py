"""On a real cluster of two worker processes, one of which dies."""

import doctest
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

import cloudpickle
import dask
import dask.array as da
import faiss
from distributed import Client, LocalCluster
from strategies import learned

import faiss_prh.dask
from faiss_prh import PRHTransform, index_factory
from faiss_prh.dask import ShardedIndex

D = 32
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests
pytestmark = pytest.mark.filterwarnings("default")  # Dask's own are not ours to judge


def vectors(n, d=D, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 5).astype(np.float32)


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "5s"}),  # to one that is dead
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def two_workers(client):
    try:
        client.wait_for_workers(2, timeout=30)
    except TimeoutError:  # on a busy machine, what was to replace a worker that died may have missed its 5 seconds
        client.restart(timeout=60)


@pytest.fixture(scope="module")
def x():
    return vectors(6000)


def blocks(x, rows=500):
    return da.from_array(x, chunks=(rows, -1))


def die_once(note):
    """Kill this process, without warning, unless one has died so before."""
    if not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("module", [faiss_prh.dask.arrays, faiss_prh.dask.shards])
def test_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_the_page_on_clusters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[1] / "docs" / "cluster.md"
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), namespace := {})
    assert namespace["index"].ntotal == 20_000
    assert namespace["I"].min() >= 0


def test_training_is_that_of_all_the_data(client, x):
    here, there = PRHTransform(D, 16), PRHTransform(D, 16)
    here.train(x)
    faiss_prh.dask.train(there, blocks(x))
    assert learned(there) == learned(here)
    np.testing.assert_allclose(there.mean, here.mean, rtol=1e-6)


def test_training_in_high_dimension_takes_a_sample(client, monkeypatch):
    x = vectors(300, 64)
    monkeypatch.setattr(faiss_prh.dask.arrays, "MAX_COVARIANCE", 32)
    seen = PRHTransform(64)
    faiss_prh.dask.train(seen, blocks(x, 70), max_train_bytes=100 * 64 * 4)
    sampled = faiss_prh.dask.sample(blocks(x, 70), 100 * 64 * 4, seed=seen.parameters.seed)
    assert sampled.shape == (100, 64)
    alone = PRHTransform(64)
    alone.train(sampled)
    assert seen.rotation == alone.rotation
    assert len(np.unique(np.concatenate([sampled, x]), axis=0)) == 300


def test_codes_are_lazy_and_those_of_one_process(client, x):
    prh = PRHTransform(D, 20)
    prh.train(x)
    codes = faiss_prh.dask.encode(prh, da.from_array(x, chunks=(700, 10)))
    assert isinstance(codes, da.Array) and codes.shape == (6000, 3) and codes.dtype == np.uint8
    assert np.array_equal(codes.compute(), prh.encode(x))


def test_a_worker_killed_while_it_encodes(client, x, tmp_path):
    prh = PRHTransform(D, tune=False)
    prh.train(x)
    note = tmp_path / "died"

    def deadly(block, block_info=None):
        if block_info[0]["chunk-location"][0] == 7:
            die_once(note)
        return block

    codes = faiss_prh.dask.encode(prh, blocks(x).map_blocks(deadly, dtype=x.dtype, meta=x[:0])).compute()
    assert note.exists()
    assert np.array_equal(codes, prh.encode(x))


@pytest.mark.parametrize(
    "description",
    ["PRH(5),BFlat", "PRH16(4),BFlat", "IDMap2,PRH(5),BFlat", "PRH(5),BFlat,RFlat", "IDMap,PCA16,PRH(4),Flat",
     "PRH(5),IVF16,Signs", "PRH(5),IVF16_HNSW8,Signs", "PRH(5),IVF16,Signs,RFlat"],
)  # fmt: skip
def test_shards_find_what_one_index_finds(client, x, description, tmp_path):
    queries = vectors(20, seed=1)
    alone = index_factory(D, description)
    alone.train(x)
    if "IDMap" in description:
        alone.add_with_ids(x, np.arange(len(x)))
    else:
        alone.add(x)
    sharded = ShardedIndex.build(description, blocks(x), client=client)
    assert sharded.ntotal == 6000 and len(sharded._shards) == 2
    settings = {"k_factor": 1000.0} if "RFlat" in description else {}  # all, or shortlists differ
    settings |= {"margin": 1e9} if "Signs" in description else {}
    for name, value in settings.items():
        setattr(alone, name, value)
    for index in (sharded, saved_and_loaded(sharded, tmp_path, client)):
        assert_same_results(index.search(queries, 10, **settings), alone.search(queries, 10))


def saved_and_loaded(index, folder, client):
    index.save(folder)
    return ShardedIndex.load(folder, client=client, trusted=True)


def test_no_worker_just_now(client, x, monkeypatch):
    monkeypatch.setattr(client, "scheduler_info", lambda n_workers: {"workers": {}})
    assert ShardedIndex.build("PRH(5),BFlat", blocks(x), client=client).ntotal == len(x)


def test_settings_of_the_index_inside(client, x):
    ivf = ShardedIndex.build("PRH(5),BIVF16", blocks(x), client=client)
    few, _ = ivf.search(x[:50], 5, nprobe=1)
    all_lists, ids = ivf.search(x[:50], 5, nprobe=16)
    assert all_lists.sum() < few.sum()
    assert np.array_equal(ivf.search(x[:50], 5)[0], few)  # the default again
    assert (ids[:, 0] == np.arange(50)).mean() > 0.5


def test_settings_of_lists_of_signs(client, x):
    index = ShardedIndex.build("PRH(5),IVF16,Signs", blocks(x), client=client)
    few, _ = index.search(x[:50], 5, nprobe=1)
    all_lists, ids = index.search(x[:50], 5, nprobe=16, margin=1e9)
    assert all_lists.sum() < few.sum()
    assert (all_lists <= index.search(x[:50], 5, nprobe=16, margin=0)[0]).all()
    assert np.array_equal(index.search(x[:50], 5)[0], few)  # the default again
    assert (ids == np.arange(50)[:, None]).any(axis=1).mean() > 0.9


def test_lists_of_signs_rank_products_largest_first(client, x):
    alone = index_factory(D, "PRH(5),IVF16,Signs", faiss.METRIC_INNER_PRODUCT)
    alone.train(x)
    alone.add(x)
    index = ShardedIndex.build("PRH(5),IVF16,Signs", blocks(x), metric=faiss.METRIC_INNER_PRODUCT, client=client)
    alone.margin = 1e9  # or thresholds, which are others in each shard, make a difference
    (products, ids), (expected, expected_ids) = index.search(x[:20], 10, margin=1e9), alone.search(x[:20], 10)
    assert_same_results((-products, ids), (-expected, expected_ids))


def test_fewer_vectors_than_asked_for(client):
    x = vectors(300)
    index = ShardedIndex.build("PRH(5),BFlat", blocks(x, 100), client=client, n_shards=3)
    distances, ids = index.search(x[:4], 400)
    assert (np.sort(ids, axis=1)[:, 100:] == np.arange(300)).all()
    assert (ids[:, 300:] == -1).all() and distances.shape == (4, 400)


def test_a_worker_killed_while_it_searches(client, x, tmp_path):
    note = tmp_path / "died"

    def deadly(shard):
        class Deadly:
            metric_type = shard.index.metric_type

            def search(self, queries, k):
                die_once(note)
                return shard.index.search(queries, k)

        return faiss_prh.dask.shards._Shard(Deadly(), shard.first)

    index = ShardedIndex.build("PRH(5),BFlat", blocks(x), client=client)
    alone = index_factory(D, "PRH(5),BFlat")
    alone.train(x)
    alone.add(x)
    queries = vectors(20, seed=1)
    index._shards = client.map(deadly, index._shards)
    assert_same_results(index.search(queries, 10), alone.search(queries, 10))
    assert note.exists()


def assert_same_results(found, expected):
    (distances, ids), (expected_distances, expected_ids) = found, expected
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-5, atol=1e-5)
    clear = distances < distances[:, -1:]  # the last may be any of several equal ones
    assert np.array_equal(np.where(clear, ids, -1), np.where(clear, expected_ids, -1))


def test_saving_replaces_what_was_there(client, x, tmp_path):
    mine = tmp_path / "mine.prh"
    mine.touch()
    for n in (2000, 3000):
        ShardedIndex.build("PRH(5),BFlat", blocks(x[:n]), client=client).save(tmp_path)
        assert ShardedIndex.load(tmp_path, client=client).ntotal == n
    assert len(list(tmp_path.iterdir())) == 4 and mine.exists()


def test_saving_does_not_lose_shards_that_were_loaded(client, saved, x, tmp_path):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    index = ShardedIndex.load(tmp_path, client=client)
    expected = index.search(x[:20], 5)
    index.save(tmp_path)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    assert_same_results(index.search(x[:20], 5), expected)


@pytest.fixture(scope="module")
def saved(client, x, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    ShardedIndex.build("PRH(5),BFlat", blocks(x), client=client).save(folder)
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: "no json",
        lambda m: "[]",
        lambda m: "[" * 100_000,
        lambda m: json.dumps(m | {"format": 9}),
        lambda m: json.dumps(m | {"sizes": [-1, 5]}),
        lambda m: json.dumps(m | {"sizes": [1, 5]}),
        lambda m: json.dumps(m | {"token": "../../../../etc"}),
        lambda m: json.dumps(m | {"d": "32"}),
        lambda m: json.dumps(m | {"d": 31}),
    ],
)
def test_a_damaged_folder_is_refused(client, saved, tmp_path, damage):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    manifest = tmp_path / "shards.json"
    manifest.write_text(damage(json.loads(manifest.read_text())))
    with pytest.raises(ValueError, match="shards"):
        ShardedIndex.load(tmp_path, client=client)


def test_bad_input(client, x):
    prh = PRHTransform(D)
    with pytest.raises(TypeError, match=r"dask\.array\.Array"):
        faiss_prh.dask.train(prh, x)
    with pytest.raises(ValueError, match=r"shape \(m, 32\)"):
        faiss_prh.dask.train(prh, blocks(x[:, :5]))
    with pytest.raises(RuntimeError, match="not trained"):
        faiss_prh.dask.encode(prh, blocks(x))
    damaged = x.copy()
    damaged[4000, 3] = np.inf
    with pytest.raises(ValueError, match="non-finite"):
        faiss_prh.dask.train(prh, blocks(damaged))
    assert not prh.is_trained
    with pytest.raises(ValueError, match=r"vector 0 .*begins with row 4000"):
        faiss_prh.dask.train(prh, blocks(damaged))
    faiss_prh.dask.train(prh, blocks(x))  # nothing of the others is left
    alone = PRHTransform(D)
    alone.train(x)
    assert prh.rotation == alone.rotation
    with pytest.raises(ValueError, match=r"shape \(m, d\)"):
        ShardedIndex.build("PRH,BFlat", da.zeros(5), client=client)
    with pytest.raises(ValueError, match="takes codes"):
        ShardedIndex.build("BFlat", blocks(x), client=client)
    with pytest.raises(ValueError, match="no index"):
        ShardedIndex.build("PRH", blocks(x), client=client)
    with pytest.raises(ValueError, match="n_shards"):
        ShardedIndex.build("PRH(5),BFlat", blocks(x), client=client, n_shards=0)
    index = ShardedIndex.build("PRH(5),BFlat", blocks(x), client=client)
    with pytest.raises(ValueError, match="k must be"):
        index.search(x[:1], 0)
    with pytest.raises(ValueError, match="32 columns"):
        index.search(x[:1, :5], 1)
    with pytest.raises(AttributeError, match="no nprobe"):
        index.search(x[:1], 1, nprobe=3)
    with pytest.raises(FileNotFoundError):
        ShardedIndex.load("/nowhere", client=client)


def test_inner_products_are_largest_first(client, x):
    alone = index_factory(D, "PRH(5),Flat", faiss.METRIC_INNER_PRODUCT)
    alone.train(x)
    alone.add(x)
    index = ShardedIndex.build("PRH(5),Flat", blocks(x), metric=faiss.METRIC_INNER_PRODUCT, client=client)
    expected, expected_ids = alone.search(x[:20], 10)
    products, ids = index.search(x[:20], 10)
    np.testing.assert_allclose(products, expected, rtol=1e-4)
    assert np.array_equal(ids, expected_ids)
