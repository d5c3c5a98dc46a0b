"""Training and encoding of more than memory holds: batches, memory maps, moments from several places."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import learned

from faiss_prh import PRHTransform
from faiss_prh.learning.moments import CovarianceMoments
from faiss_prh.learning.sampling import DistinctSample, Sample
from faiss_prh.learning.train import Gathered, sample_of


def vectors(m, d, seed=0):
    """Correlated, of very unequal variances, and far from the origin."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(m, d)) * np.geomspace(1, 30, d) @ rng.normal(size=(d, d))
    return (mixed + 100 * rng.normal(size=d)).astype(np.float32)


def cuts(m):
    return st.lists(st.integers(0, m), max_size=5).map(sorted)


@given(st.integers(2, 40), st.data())
@settings(max_examples=30, deadline=None)
def test_moments_in_parts_learn_the_rotation_of_all_the_data(d, data):
    """Fewer bits are learned from the covariance either way: the same to the last bit."""
    m = data.draw(st.integers(4 * d, 400))
    d_out = data.draw(st.integers(1, d - 1))
    x = vectors(m, d, seed=data.draw(st.integers(0, 5)))
    x[data.draw(st.integers(1, m)) :] = x[0]  # many that are equal
    parts = np.split(x, data.draw(cuts(m)))
    order = data.draw(st.permutations(range(len(parts))))
    at_once, first, second = (PRHTransform(d, d_out) for _ in range(3))
    at_once.train(x)
    first.partial_train(x[:0])
    second.partial_train(x[:0])
    for number in order:
        (first if number % 2 else second).partial_train(parts[number])
    first.merge(pickle.loads(pickle.dumps(second)))
    first.finish_training()
    assert learned(first) == learned(at_once)
    np.testing.assert_allclose(first.mean, at_once.mean, rtol=1e-6)
    probe = vectors(200, d, seed=9)
    differ = np.unpackbits(first.encode(probe) ^ at_once.encode(probe)).mean()
    assert differ < 1e-3  # the means may differ by rounding


@pytest.mark.parametrize(("d", "d_out"), [(30, 30), (64, 64), (30, 50), (300, 300)])
@pytest.mark.parametrize("tune", [False, None])
def test_moments_in_parts_at_full_dimension(d, d_out, tune):
    """Where `train` keeps a small sample in single precision: the same pairs, and angles up to rounding."""
    x = vectors(3000, d)
    at_once, in_parts = (PRHTransform(d, d_out, tune=tune) for _ in range(2))
    at_once.train(x)
    for part in np.array_split(x, 7):
        in_parts.partial_train(part)
    in_parts.finish_training()
    if at_once.parameters.tune or d == 300:
        assert in_parts.rotation == at_once.rotation
    for one, other in zip(in_parts.rotation.layers, at_once.rotation.layers, strict=True):
        assert np.array_equal(one.i, other.i) and np.array_equal(one.j, other.j)
        np.testing.assert_allclose(one.theta, other.theta, atol=2e-3)
    np.testing.assert_allclose(in_parts.to_dense(), at_once.to_dense(), atol=1e-3)
    assert in_parts.describe().variance_kept == pytest.approx(at_once.describe().variance_kept, abs=1e-4)


def test_gathering_changes_nothing_until_it_is_finished():
    x = vectors(500, 16)
    prh = PRHTransform(16, 8)
    prh.partial_train(x)
    assert not prh.is_trained
    copied, pickled = copy.copy(prh), pickle.loads(pickle.dumps(prh))
    for each in (prh, copied, pickled):
        each.finish_training()
    assert learned(prh) == learned(copied) == learned(pickled)
    with pytest.raises(RuntimeError, match="nothing to learn from"):
        prh.finish_training()


def test_an_interrupted_batch_is_not_gathered(monkeypatch):
    x = vectors(500, 16)
    good, tried = PRHTransform(16, 8), PRHTransform(16, 8)
    good.partial_train(x)
    tried.partial_train(x)
    shared = copy.copy(tried)
    for name in (
        "faiss_prh.learning.moments.CovarianceMoments._add",
        "faiss_prh.learning.sampling.DistinctSample._add",
    ):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            tried.partial_train(vectors(500, 16, seed=1))
    shared.partial_train(vectors(500, 16, seed=1))
    good.finish_training()
    tried.finish_training()
    shared.finish_training()
    assert learned(tried) == learned(good) != learned(shared)


def test_several_threads_gather_all_vectors():
    x = vectors(6400, 24)
    at_once, together = PRHTransform(24, 8), PRHTransform(24, 8)
    at_once.train(x)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(together.partial_train, np.array_split(x, 64)))
    together.finish_training()
    assert learned(together) == learned(at_once)


def test_what_another_thread_gathers_while_training_finishes_is_not_lost(monkeypatch):
    x = vectors(2000, 16)
    prh, all_of_it = PRHTransform(16), PRHTransform(16)
    learn = Gathered.learn

    def learn_meanwhile(gathered):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(prh.partial_train, x[1000:]).result()
        return learn(gathered)

    prh.partial_train(x[:1000])
    with monkeypatch.context() as patched:
        patched.setattr(Gathered, "learn", learn_meanwhile)
        prh.finish_training()
    prh.finish_training()  # once more, from all that there is
    all_of_it.partial_train(x)
    all_of_it.finish_training()
    assert prh.rotation == all_of_it.rotation


def test_bad_batches_are_not_gathered():
    x = vectors(500, 16)
    good, tried = PRHTransform(16, 8), PRHTransform(16, 8)
    good.partial_train(x)
    tried.partial_train(x)
    damaged = x.copy()
    damaged[7, 3] = np.nan
    with pytest.raises(ValueError, match="training vector 7 has a non-finite value"):
        tried.partial_train(damaged)
    with pytest.raises(ValueError, match="16 columns"):
        tried.partial_train(x[:, :5])
    other = PRHTransform(16, 8, seed=5)
    other.partial_train(x)
    with pytest.raises(ValueError, match="cannot be merged"):
        tried.merge(other)
    with pytest.raises(ValueError, match="into itself"):
        tried.merge(tried)
    with pytest.raises(ValueError, match="gathered nothing"):
        tried.merge(PRHTransform(16, 8))
    with pytest.raises(TypeError, match="a PRHTransform"):
        tried.merge(x)
    good.finish_training()
    tried.finish_training()
    assert learned(tried) == learned(good)


def test_exact_moments_of_too_many_dimensions_are_refused():
    prh = PRHTransform(5000)
    with pytest.raises(ValueError, match=r"train\(batches\)"):
        prh.partial_train(np.zeros((1, 5000), np.float32))


def test_nothing_gathered_is_nothing_learned():
    prh = PRHTransform(16)
    prh.partial_train(np.empty((0, 16)))
    with pytest.raises(ValueError, match="at least one vector"):
        prh.finish_training()


@pytest.mark.parametrize("d_out", [8, 24, 40])
def test_batches_that_fit_are_all_learned_from(d_out):
    x = vectors(2000, 24)
    at_once, in_batches, of_a_list = (PRHTransform(24, d_out) for _ in range(3))
    at_once.train(x)
    in_batches.train(part for part in np.array_split(x, 9))
    of_a_list.train([x[:10], x[10:]])
    assert at_once.to_bytes() == in_batches.to_bytes() == of_a_list.to_bytes()


def test_batches_beyond_the_limit_are_sampled(monkeypatch):
    x = vectors(5000, 24)
    seen = []
    monkeypatch.setattr("faiss_prh.transform.learn_from_array", lambda v, *_: seen.append(v) or pytest.skip("seen"))
    for given_as in (x, iter(np.array_split(x, 9))):
        with pytest.raises(pytest.skip.Exception):
            PRHTransform(24).train(given_as, max_train_bytes=100 * 24 * 4)
    for sample in seen:
        assert sample.shape == (100, 24)
        assert len(np.unique(sample, axis=0)) == 100
        assert len(np.unique(np.concatenate([sample, x]), axis=0)) == 5000


def test_bad_training_batches():
    prh = PRHTransform(4)
    with pytest.raises(ValueError, match="batch 1 must have 4 columns"):
        prh.train(iter([np.ones((2, 4)), np.ones((2, 5))]))
    with pytest.raises(ValueError, match="training vector 1 of batch 2"):
        prh.train(iter([np.ones((2, 4)), np.ones((2, 4)), np.array([[1.0] * 4, [np.inf] * 4])]))
    with pytest.raises(ValueError, match="at least one vector"):
        prh.train(iter([]))
    with pytest.raises(ValueError, match="max_train_bytes must be at least 16"):
        prh.train(np.ones((2, 4)), max_train_bytes=15)
    with pytest.raises(TypeError, match="max_train_bytes must be an integer"):
        prh.train(np.ones((2, 4)), max_train_bytes=1e9)
    assert not prh.is_trained


@given(st.integers(1, 60), st.integers(1, 30), st.data())
@settings(deadline=None)
def test_a_sample_does_not_depend_on_batches(m, size, data):
    x = np.random.default_rng(m).integers(0, 3, size=(m, 2)).astype(np.float32)  # with many that are equal
    whole, merged = Sample(2, size, seed=1), Sample(2, size, seed=1)
    whole.update(x)
    first = 0
    for part in np.split(x, data.draw(cuts(m))):
        sample = Sample(2, size, 1, first)
        sample.update(part)
        merged.merge(sample)
        first += len(part)
    assert np.array_equal(merged.in_random_order(), whole.in_random_order())
    assert len(whole.vectors()) == min(m, size)
    if m <= size:
        assert np.array_equal(merged.vectors(), x)


@given(st.integers(1, 60), st.integers(1, 30), st.integers(2, 50), st.data())
@settings(deadline=None)
def test_a_sample_of_different_vectors_depends_on_these_only(m, size, values, data):
    x = np.random.default_rng(m).integers(0, values, size=(m, 2)).astype(np.float32)
    whole = DistinctSample(2, size, seed=1)
    whole.update(x)
    parts = [DistinctSample(2, size, seed=1) for _ in range(3)]
    for number, part in enumerate(np.split(x[data.draw(st.permutations(range(m)))], data.draw(cuts(m)))):
        parts[number % 3].update(part)
    parts[0].merge(parts[1])
    parts[0].merge(parts[2])
    different = np.unique(x, axis=0)
    assert np.array_equal(parts[0].in_random_order(), whole.in_random_order())
    assert len(np.unique(whole.vectors(), axis=0)) == len(whole.vectors()) == min(len(different), size)
    assert len(np.unique(np.concatenate([different, whole.vectors()]), axis=0)) == len(different)


@pytest.mark.parametrize("kind", [Sample, DistinctSample])
def test_samples_are_uniform(kind):
    """Each of 20 vectors is in a sample of 5 as often as the others, within five deviations."""
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    counts = np.zeros(20)
    for seed in range(4000):
        sample = kind(2, 5, seed)
        sample.update(x)
        counts[(sample.vectors()[:, 0] / 2).astype(int)] += 1
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000 * 0.75)


def test_equal_vectors_are_sampled_as_often_as_they_come():
    """A tenth of the vectors are zero, and so about a tenth of the sample, in whatever batches they come."""
    x = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float32)
    x[::10] = 0
    for batches in (1, 2000):
        sample = sample_of(np.array_split(x, batches), 4, 2000 * 16, seed=3)
        assert len(sample) == 2000
        assert 0.07 < (sample == 0).all(axis=1).mean() < 0.13


def test_rounded_covariances_are_close_and_do_not_depend_on_the_order():
    x = vectors(3000, 20)
    forward, backward = CovarianceMoments(20), CovarianceMoments(20)
    forward.update(x)
    backward.update(x[:100][::-1])
    backward.update(x[100:][::-1])
    assert np.array_equal(forward.rounded().matrix(), backward.rounded().matrix())
    expected = np.cov(x.astype(np.float64).T, bias=True)
    deviations = np.sqrt(np.diagonal(expected))
    assert (np.abs(forward.rounded().matrix() - expected) < 4e-6 * np.outer(deviations, deviations)).all()
    padded = forward.rounded(25)
    assert np.array_equal(padded.matrix()[:20, :20], forward.rounded().matrix())
    assert not padded.matrix()[20:].any()


@pytest.mark.parametrize("d_out", [8, 13, 16])
def test_bit_order(d_out):
    x = vectors(300, 16)
    prh = PRHTransform(16, d_out)
    prh.train(x)
    expected = np.packbits(prh.apply(x) >= 0, axis=1, bitorder="big")
    assert np.array_equal(prh.encode(x, bitorder="big"), expected)
    with pytest.raises(ValueError, match="bitorder"):
        prh.encode(x, bitorder="middle")


def test_codes_go_where_they_are_told(tmp_path):
    x = vectors(300, 16)
    prh = PRHTransform(16, 13)
    prh.train(x)
    mapped = np.lib.format.open_memmap(tmp_path / "codes.npy", mode="w+", dtype=np.uint8, shape=(300, 2))
    assert prh.encode(x, out=mapped) is mapped
    mapped.flush()
    assert np.array_equal(np.load(tmp_path / "codes.npy"), prh.encode(x))
    for wrong in (np.empty((300, 3), np.uint8), np.empty((300, 2), np.int8), np.empty((2, 300), np.uint8).T, [1]):
        with pytest.raises(ValueError, match="out must be"):
            prh.encode(x, out=wrong)
    buffer = np.zeros((300, 16), np.uint8)
    with pytest.raises(ValueError, match="share memory"):
        prh.encode(buffer, out=buffer.reshape(-1, 2)[:300])
    damaged, out = x.copy(), np.full((300, 2), 7, np.uint8)
    damaged[50, 2] = np.nan
    with pytest.raises(ValueError, match="vector 50"):
        prh.encode(damaged, out=out, bitorder="big")
    assert (out[60:] == 7).all()
    frozen = np.empty((300, 2), np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        prh.encode(x, out=frozen)


STREAM = """
import sys, threading
import numpy as np
from faiss_prh import PRHTransform

def own_memory():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) << 10

folder, n, d = sys.argv[1], 400_000, 256
x = np.lib.format.open_memmap(folder + "/x.npy", mode="w+", dtype=np.float16, shape=(n, d))
rng = np.random.default_rng(0)
for first in range(0, n, 10_000):
    x[first : first + 10_000] = rng.normal(size=(10_000, d))
prh = PRHTransform(d)
prh.train(x, max_train_bytes=8 << 20)
before = own_memory()
codes = np.lib.format.open_memmap(folder + "/codes.npy", mode="w+", dtype=np.uint8, shape=(n, d // 8))
peaks, done = [], threading.Event()

def watch():
    while not done.wait(0.005):
        peaks.append(own_memory())

threading.Thread(target=watch).start()
prh.encode(x, out=codes)
assert (codes[-5:] == prh.encode(x[-5:])).all()
done.set()
print(before, max(peaks))
"""


@pytest.mark.slow
def test_encoding_a_memory_map_takes_flat_memory(tmp_path):
    """The vectors would take 400 MB in single precision; blocks of 64 MB and the like are what is held."""
    run = subprocess.run([sys.executable, "-c", STREAM, tmp_path], capture_output=True, text=True, check=True)
    before, most = map(int, run.stdout.split())
    assert most - before < 150 << 20
