"""Other numbers of bits than dimensions: reduction and expansion."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import samples, seeds

import faiss_prh
from faiss_prh import PRHTransform
from faiss_prh._common.arrays import whole_numbers
from faiss_prh.learning import joint_angles as tuning
from faiss_prh.learning import layers as learning
from faiss_prh.learning import moments
from faiss_prh.learning.model import Model
from faiss_prh.learning.moments import CovarianceMoments, SampleMoments
from faiss_prh.learning.pairing import candidates, greedy, matching, mutual_best
from faiss_prh.learning.tiles import tiled, untiled
from faiss_prh.rotation import PairwiseRotation


@st.composite
def transforms(draw):
    x = draw(samples(max_d=40, min_m=2))
    d = x.shape[1]
    d_out = draw(st.integers(1, 60))
    n_pca = draw(st.integers(0, 3)) if d_out <= d else None
    prh = PRHTransform(d, d_out, n_pca=n_pca, seed=draw(st.integers(0, 99)))
    prh.train(x)
    return prh, x


@given(transforms())
def test_rows_or_columns_are_orthonormal(drawn):
    prh, _ = drawn
    dense = prh.to_dense()
    assert dense.shape == (prh.d_out, prh.d_in)
    small = dense @ dense.T if prh.d_out <= prh.d_in else dense.T @ dense
    np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-6)


@given(transforms(), st.integers(0, 40), seeds)
def test_native_code_does_what_the_matrix_says(drawn, n, seed):
    prh, x = drawn
    scale = max(1.0, np.abs(x).max())
    batch = (np.random.default_rng(seed).normal(size=(n, prh.d_in)) * scale).astype(np.float32)
    expected = (batch - prh.mean) @ prh.to_dense().T
    y = prh.apply(batch)
    np.testing.assert_allclose(y, expected, atol=1e-4 * scale)
    np.testing.assert_array_equal(prh.encode(batch), np.packbits(y >= 0, axis=1, bitorder="little"))
    back = y @ prh.to_dense() + prh.mean
    np.testing.assert_allclose(prh.reverse_transform(y), back, atol=1e-4 * scale)
    if prh.d_out >= prh.d_in:
        np.testing.assert_allclose(prh.reverse_transform(y), batch, atol=1e-3 * scale)


@pytest.mark.parametrize(("d", "d_out"), [(100, 33), (33, 100), (784, 128), (300, 299), (64, 256)])
def test_every_simd_level_and_batch(d, d_out, simd_level):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(400, d)) @ rng.normal(size=(d, d)) / np.sqrt(d)).astype(np.float32)
    prh = PRHTransform(d, d_out)
    prh.train(x)
    expected = (x - prh.mean) @ prh.to_dense().T
    whole = prh.apply(x[:50])
    np.testing.assert_allclose(whole, expected[:50], atol=1e-4)
    for n in (1, 2, 3, 8, 9, 16, 17, 33):
        np.testing.assert_array_equal(prh.apply(x[:n]), whole[:n])
        np.testing.assert_array_equal(prh.encode(x[:n]), prh.encode(x[:50])[:n])


def correlated(d, rank, m, seed=0):
    rng = np.random.default_rng(seed)
    spectrum = np.exp(-np.arange(d) / rank)
    return (rng.normal(size=(m, d)) * spectrum @ np.linalg.qr(rng.normal(size=(d, d)))[0]).astype(np.float32)


@pytest.mark.parametrize(("d", "d_out"), [(64, 8), (200, 32), (300, 100)])
def test_most_of_the_variance_is_kept(d, d_out):
    x = correlated(d, d_out / 2, 3000)
    prh = PRHTransform(d, d_out)
    prh.train(x)
    best = np.linalg.eigvalsh(np.cov(x, rowvar=False))[::-1][:d_out].sum()
    assert prh.apply(x).var(axis=0).sum() > 0.85 * best


def test_what_is_kept_is_isotropic():
    x = correlated(128, 20, 3000)
    prh = PRHTransform(128, 32, n_pca=0)
    prh.train(x)
    variances = prh.apply(x).var(axis=0)
    np.testing.assert_allclose(variances, variances.mean(), rtol=1e-2)


def test_expansion_spreads_the_variance():
    x = correlated(32, 8, 2000)
    prh = PRHTransform(32, 128)
    prh.train(x)
    y = prh.apply(x)
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), np.linalg.norm(x - prh.mean, axis=1), rtol=1e-4)
    assert (y.var(axis=0) > 0).all()


def test_rotations_that_no_output_depends_on_cost_nothing():
    """Dropping them changes nothing: the rotation alone, all of it, gives the same values."""
    x = correlated(200, 20, 1000)
    prh = PRHTransform(200, 24, tune=False)
    prh.train(x)
    whole = PRHTransform(200)
    whole._set(Model(prh.rotation, prh.mean.copy(), np.arange(200, dtype=np.int32)))
    np.testing.assert_allclose(prh.apply(x), whole.apply(x)[:, prh.kept], atol=1e-5)


def test_in_indexes_and_files(tmp_path):
    x = correlated(96, 20, 3000)
    for description in ("PRH32,BFlat", "PRH32,BIVF16,RAsym", "PRH200,BFlat,RFlat", "PRH40(6,2),LSH", "PRH32,PQ8x4"):
        index = faiss_prh.index_factory(96, description)
        index.train(x)
        index.add(x)
        faiss_prh.write_index(index, tmp_path / "i")
        again = faiss_prh.read_index(tmp_path / "i", trusted=True)
        for mine, theirs in zip(again.search(x[:5], 3), index.search(x[:5], 3), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    stock = faiss_prh.to_faiss(index.chain.at(0))
    assert type(stock) is faiss.LinearTransform
    assert (stock.d_in, stock.d_out) == (96, 32)


def test_copies_keep_what_is_kept():
    prh = PRHTransform(50, 20)
    prh.train(correlated(50, 10, 500))
    again = PRHTransform.from_bytes(prh.to_bytes())
    assert (again.d_in, again.d_out, again.rotation) == (50, 20, prh.rotation)
    np.testing.assert_array_equal(again.kept, prh.kept)
    again.check_identical(prh)
    other = PRHTransform(50, 21)
    other.train(correlated(50, 10, 500))
    with pytest.raises(RuntimeError, match="another rotation"):
        other.check_identical(prh)


@given(st.integers(1, 30), st.integers(1, 30), seeds)
def test_mutual_best_is_a_matching(rows, columns, seed):
    gain = np.random.default_rng(seed).normal(size=(rows, columns))
    i, j = mutual_best(gain.copy())
    assert len(np.unique(i)) == len(i)
    assert len(np.unique(j)) == len(j)
    assert (gain[i, j] > 0).all()
    if (gain > 0).any():
        assert gain.max() in gain[i, j]


@given(st.integers(1, 40), seeds)
def test_matching_is_one(n, seed):
    gain = np.random.default_rng(seed).normal(size=(n, n)) ** 2
    gain += gain.T
    i, j = matching(gain.copy())
    both = np.concatenate([i, j])
    assert len(np.unique(both)) == len(both)


def test_so_many_layers_as_stay_in_single_precision(monkeypatch):
    monkeypatch.setattr(learning, "BUDGET", 1000.0)
    x = correlated(100, 30, 1000)
    prh = PRHTransform(100, 4)
    prh.train(x)
    np.testing.assert_allclose(prh.apply(x), (x - prh.mean) @ prh.to_dense().T, atol=1e-4)


@pytest.mark.parametrize("d_out", [0, -1, 2.5, True, 1 << 21])
def test_bad_numbers_of_bits(d_out):
    with pytest.raises((ValueError, TypeError), match="d_out"):
        PRHTransform(16, d_out)


# Learning the angles together


@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 9), seeds)
def test_ascend_follows_the_derivative(n, n_layers, m, seed):
    """For a linear objective the best single rotation is known; the value must not fall, and the slopes be right."""
    rng = np.random.default_rng(seed)
    layers = [tuple(layer) for layer in PairwiseRotation.random(n, n_layers, seed).layers]
    rows, weights = (rng.normal(size=(n, m)).astype(np.float32) for _ in range(2))
    seen = []

    def objective(turned):
        value = float(np.vdot(weights, untiled(turned, m)))
        seen.append(value)
        return value, tiled(weights)

    tuned = tuning.ascend(layers, tiled(rows), objective, steps=10)

    def value(layers):
        turned = PairwiseRotation(n, layers).to_dense() @ rows
        return float(np.vdot(weights, turned))

    np.testing.assert_allclose(seen[0], value(layers), atol=1e-3)
    assert value(tuned) >= value(layers) - 1e-3
    for (i, j, _), (tuned_i, tuned_j, _) in zip(layers, tuned, strict=True):
        np.testing.assert_array_equal(i, tuned_i)
        np.testing.assert_array_equal(j, tuned_j)


def test_one_angle_is_found():
    x = np.array([[3.0], [4.0]], np.float32)
    layer = (np.array([0], np.int32), np.array([1], np.int32), np.array([0.3], np.float32))
    first = np.array([[1.0], [0.0]], np.float32)
    objective = lambda tiles: (float(tiles[0, 0, 0]), tiled(first))  # noqa: E731
    ((_, _, theta),) = tuning.ascend([layer], tiled(x), objective, steps=30)
    np.testing.assert_allclose(theta, [-np.arctan2(4, 3)], atol=1e-3)


def test_turning_jointly_keeps_more_variance(monkeypatch):
    x = correlated(100, 30, 2000, seed=3)
    shares = []
    for most in (0, 2048):
        monkeypatch.setattr(learning, "MAX_JOINT", most)
        prh = PRHTransform(100, 20, n_iso=5, n_pca=0)
        prh.train(x)
        shares.append(prh.apply(x).var(axis=0).sum())
        np.testing.assert_allclose(prh.apply(x).var(axis=0), shares[-1] / 20, rtol=1e-2)  # and stays isotropic
    assert shares[1] > shares[0]


@pytest.mark.parametrize(
    ("arguments", "tune"),
    [((64,), True), ((2048,), True), ((2049,), False), ((2049, 64), True), ((64, 128), False), ((512, 600), False)],
)
def test_where_tuning_is_the_default(arguments, tune):
    assert PRHTransform(*arguments).parameters.tune is tune
    assert PRHTransform(*arguments, n_iso=3).parameters.tune is False  # who names the paper's settings gets them
    assert PRHTransform(*arguments, tilt=0.5).parameters.tune is False
    assert PRHTransform(*arguments, n_pca=0).parameters.tune is False


def test_tune_must_make_sense():
    prh = PRHTransform(8, 8, n_iso=3, tune=np.bool_(True))
    assert prh.parameters.tune is True
    assert PRHTransform.from_bytes(prh.to_bytes()).parameters == prh.parameters
    for more in ({"tune": True}, {"n_pca": 2}):
        with pytest.raises(
            ValueError, match=f"{next(iter(more))} needs at most as many bits as dimensions, not 9 of 8"
        ):
            PRHTransform(8, 9, **more)
    with pytest.raises(TypeError, match="tune must be True or False"):
        PRHTransform(8, tune="yes")


@pytest.mark.parametrize("x", [np.ones((300, 16)), np.zeros((300, 16)), np.eye(16)[np.arange(300) % 2]])
def test_refining_vectors_that_are_all_alike(x):
    for d_out in (1, 4, 16):
        prh = PRHTransform(16, d_out, tune=True)
        prh.train(x)
        assert np.isfinite(prh.apply(x)).all()


def test_refining_the_smallest_values(recwarn):
    x = correlated(32, 10, 500) * np.float32(1e-38)
    PRHTransform(32, 8).train(x)
    assert not recwarn.list


def test_refining_does_not_depend_on_the_number_of_threads(thread_count):
    x = correlated(80, 20, 3000)
    rotations = []
    for n_threads in (1, 2, 7):
        thread_count(n_threads)
        prh = PRHTransform(80, 24)
        prh.train(x)
        rotations.append(prh.rotation)
    assert rotations[1] == rotations[0]
    assert rotations[2] == rotations[0]


# Many dimensions: pairs from a sketch


def kept_variance(moments, x, d_out):
    parameters = learning.Parameters(n_iso=0, n_pca=0, tilt=0.0, seed=0, tune=False, center=True)
    rotation, kept = learning.learn(moments, parameters, d_out)
    y = (x - x.mean(axis=0)) @ rotation.to_dense()[kept].T
    return y.var(axis=0).sum()


def test_pairs_from_a_sketch_keep_almost_what_the_covariance_does(monkeypatch):
    monkeypatch.setattr(learning, "SAMPLE_BUDGET", learning.BUDGET * 100 * 8)
    monkeypatch.setattr(learning, "MAX_JOINT", 0)
    x = correlated(200, 30, 1500)
    covariance = CovarianceMoments(200)
    covariance.update(x)
    assert kept_variance(SampleMoments(x), x, 40) > 0.97 * kept_variance(covariance, x, 40)


def test_many_dimensions(monkeypatch):
    monkeypatch.setattr(moments, "MAX_COVARIANCE", 500)
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(250, 20)) @ rng.normal(size=(20, 1000)) + rng.normal(size=(250, 1000))).astype(np.float32)
    prh = PRHTransform(1000, 64)
    prh.train(x)
    assert prh.describe().variance_kept > 5 * 64 / 1000  # what a random choice would keep
    np.testing.assert_allclose(prh.apply(x), (x - prh.mean) @ prh.to_dense().T, atol=1e-2)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 5), seeds)
def test_candidates_have_the_largest_products(rows, columns, terms, seed):
    rng = np.random.default_rng(seed)
    first, second = (rng.integers(-9, 9, (n, terms)).astype(np.float32) for n in (rows, columns))
    i, j = candidates(first, second)
    products = np.abs(first @ second.T)
    for row in range(rows):
        assert products[row].max() in products[row, j[i == row]]


@given(st.integers(1, 12), st.integers(0, 60), seeds)
def test_greedy_is_a_matching(n, n_pairs, seed):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, n_pairs)).astype(np.int32)
    gain = rng.normal(size=n_pairs)
    first, second = greedy(i, j, gain)
    both = np.concatenate([first, second])
    assert len(np.unique(both)) == len(both)
    wanted = (i != j) & (gain > 0)
    if wanted.any():
        best = np.argmax(np.where(wanted, gain, -np.inf))
        assert (int(i[best]), int(j[best])) in zip(first.tolist(), second.tolist(), strict=True)


@given(samples(max_d=30, min_m=2))
def test_whole_numbers_add_up_exactly(x):
    x = np.ascontiguousarray(x - x.mean(axis=0), dtype=np.float32)
    whole = whole_numbers(x, over=0)
    np.testing.assert_array_equal(whole, np.rint(whole))
    assert (2 * np.square(whole, dtype=np.float64).sum(axis=1)).max() <= 2**24


# What it is and costs


@pytest.mark.parametrize(("d", "d_out", "n_layers"), [(12, 3, 2), (20, 1, 4), (7, 7, 3), (3, 24, 2)])
def test_a_description_counts_the_rotations_that_matter(d, d_out, n_layers):
    """Those are the ones whose angle changes the matrix."""
    rotation, kept = PairwiseRotation.random(max(d, d_out), n_layers, 0), np.arange(d_out, dtype=np.int32)
    prh = PRHTransform(d, d_out)
    prh._set(Model.learned(rotation, np.zeros(d, np.float32), kept, np.ones(d_out), d))
    dense = rotation.to_dense()[kept, :d]
    np.testing.assert_allclose(prh.to_dense(), dense, atol=1e-12)
    layers = [tuple(layer) for layer in rotation.layers]
    matter = 0
    for number, (i, j, theta) in enumerate(layers):
        for pair in np.flatnonzero(theta):
            turned = theta.copy()
            turned[pair] += 0.5
            changed = PairwiseRotation(rotation.d, [*layers[:number], (i, j, turned), *layers[number + 1 :]])
            matter += bool(np.abs(changed.to_dense()[kept, :d] - dense).max() > 1e-9)
    assert prh.describe().rotations == prh.rotation.n_rotations == matter
    assert (matter < rotation.n_rotations) == (d != d_out)


@given(transforms())
def test_a_description_says_what_was_learned(drawn):
    prh, x = drawn
    described = prh.describe()
    assert described.n_bytes == len(prh.to_bytes())
    again = PRHTransform.from_bytes(prh.to_bytes()).describe()
    assert str(again) == str(described)
    if np.ptp(x) > 0:
        centred = (x - x.mean(axis=0)).astype(np.float64)
        outputs = centred @ prh.to_dense().T
        total = centred.var(axis=0).sum()
        np.testing.assert_allclose(described.variance_kept, outputs.var(axis=0).sum() / total, rtol=1e-3, atol=1e-3)


def test_an_untrained_transform_has_nothing_to_describe():
    with pytest.raises(RuntimeError, match="not trained"):
        PRHTransform(8).describe()
    assert np.isnan(PRHTransform.random(8).describe().variance_kept)
    assert "variance: unknown" in str(PRHTransform.random(8).describe())
