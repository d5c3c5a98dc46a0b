"""Learning angles from neighbours: the objective, the partners it compares, and the vectors kept aside to judge by."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from faiss_prh import PRHTransform
from faiss_prh._backend import kernels
from faiss_prh._common.arrays import whole_numbers
from faiss_prh.learning import neighbours as tuning
from faiss_prh.learning.tiles import tiled
from faiss_prh.rotation import PairwiseRotation


def clustered(d, m, seed=0):
    """Points around centres, so that who is near is not only a matter of variance."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(m // 40, d)) * np.exp(-np.arange(d) / (d / 2))
    return (centres[rng.integers(len(centres), size=m)] + 0.2 * rng.normal(size=(m, d))).astype(np.float32)


def few_clusters(m):
    """Five clusters far apart, around surfaces of 30 dimensions."""
    rng = np.random.default_rng(1)
    low_rank = rng.normal(size=(m, 30)) @ rng.normal(size=(30, 64)) + 0.1 * rng.normal(size=(m, 64))
    x = (6 * rng.normal(size=(5, 64)) * np.sqrt(30))[rng.integers(5, size=m)] + low_rank
    return (x - x.mean(axis=0)).astype(np.float32)


def whole(x):
    return whole_numbers(np.ascontiguousarray(x - x.mean(axis=0)), over=0)


@given(st.integers(200, 500), st.integers(1, 20), seeds)
def test_partners(m, d, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-50, 50, size=(m, d)).astype(np.float32)
    found = tuning.partners(vectors, rng)
    assert found.shape == (m, tuning.N_NEAR + tuning.N_FAR + tuning.N_ANY)
    assert ((found >= 0) & (found < m)).all()
    distances = ((vectors[:, None].astype(np.int64) - vectors.astype(np.int64)) ** 2).sum(axis=2)
    blocks = np.repeat(np.arange(8), np.diff(np.arange(9) * m // 8))
    is_same = blocks[:, None] == blocks
    near, far, others = np.split(found, [tuning.N_NEAR, tuning.N_NEAR + tuning.N_FAR], axis=1)
    assert np.take_along_axis(is_same, far, axis=1).all()
    for part, ranks, among in (
        (near, tuning.NEAR, distances),
        (far, tuning.FAR, np.where(is_same, distances, 1 << 40)),
    ):
        chosen, ordered = np.take_along_axis(among, part, axis=1), np.sort(among, axis=1)  # first comes itself
        assert (chosen >= ordered[:, [ranks[0]]]).all()
        assert (chosen <= ordered[:, [ranks[1]]]).all()
    assert (others != np.arange(m)[:, None]).all()
    assert len(np.unique(others)) > m // 2


@pytest.mark.parametrize("weight", [0.0, 6.0])
def test_the_objective_has_the_slopes_it_says(weight):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 300)).astype(np.float32)
    objective = tuning.neighbours_alike(20, tuning.partners(whole(rows.T), rng), weight)
    y, direction = tiled(rows), tiled(rng.normal(size=rows.shape).astype(np.float32))
    _, slopes = objective(y)
    slope, step = np.vdot(slopes.astype(np.float64), direction), np.float32(2**-9)
    ahead, behind = (objective(y + sign * step * direction)[0] for sign in (1, -1))
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=0.05)  # |values| have kinks


def test_the_objective_is_what_it_says():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 300)).astype(np.float32)
    partners = tuning.partners(whole(rows.T), rng)
    signs = np.tanh(rows.T.astype(np.float64) / tuning._SOFTNESS)
    products = np.einsum("mb,mkb->mk", signs, signs[partners])
    margins = products[:, : tuning.N_NEAR] - products[:, tuning.N_NEAR :]
    expected = margins.mean() / margins.std() + 6 * np.abs(rows).mean()
    np.testing.assert_allclose(tuning.neighbours_alike(20, partners, 6.0)(tiled(rows))[0], expected, rtol=1e-5)


def test_the_judge_counts_neighbours_of_vectors_kept_aside():
    x, n_learned = clustered(40, 1200), 1000
    layers = [tuple(layer) for layer in PairwiseRotation.random(40, 3, 0).layers]
    neighbours = kernels.nearest(whole(x)[n_learned:], whole(x)[:n_learned], 10)
    signs = x @ PairwiseRotation(40, layers).to_dense().T >= 0
    shares = []
    for query, true in zip(signs[n_learned:], neighbours, strict=True):
        distances = (query != signs[:n_learned]).sum(axis=1)
        order = np.argsort(distances, kind="stable")
        shares += [np.isin(true, order[:k]).mean() for k in (10, 100)]
    judge = tuning.Judge(x.T.copy(), n_learned, neighbours)
    np.testing.assert_allclose(judge.found(layers), np.mean(shares), atol=0.02)  # ties are broken otherwise


def test_tuning_finds_more_neighbours_of_other_vectors():
    x = clustered(64, 6000)
    plain, tuned = (PRHTransform(64, 24, seed=1, tune=tune) for tune in (False, True))
    shares = []
    neighbours = kernels.nearest(whole(x)[5000:], whole(x)[3000:5000], 10)
    for prh in (plain, tuned):
        prh.train(x[:3000])
        shares.append(tuning.Judge(prh.apply(x[3000:]).T.copy(), 2000, neighbours).found([]))
    assert shares[1] > shares[0] + 0.005


def test_tuning_at_full_dimension_costs_the_encoder_nothing():
    plain, tuned = (PRHTransform(64, n_iso=6, n_pca=4, seed=1, tune=tune) for tune in (False, True))
    for prh in (plain, tuned):
        prh.train(clustered(64, 3000))
    assert plain.rotation != tuned.rotation
    assert len(plain.rotation.layers) == len(tuned.rotation.layers)
    assert tuned.rotation.n_rotations < 1.05 * plain.rotation.n_rotations  # of which some were by nothing


def start(rows):
    return [tuple(layer) for layer in PairwiseRotation.random(len(rows), 4, 0).layers]


@pytest.mark.parametrize(("gain", "n_ascents"), [(1.05, 1), (1.1, 2)])
def test_more_steps_are_made_where_the_first_helped_much(gain, n_ascents, monkeypatch):
    x, judged = clustered(32, 1000), []
    monkeypatch.setattr(tuning.Judge, "found", lambda *_: judged.append(None) or gain ** len(judged))
    monkeypatch.setattr(tuning, "ascend", lambda layers, *_: [*layers, len(layers)])
    assert len(tuning.tuned([], x.T.copy(), whole(x), seed=0, steps_away=0, steps_alike=tuning.STEPS)) == n_ascents
    assert len(judged) == n_ascents + 1


@pytest.mark.parametrize("fails_at", [0, 1])
def test_angles_that_do_harm_are_not_taken(fails_at, monkeypatch):
    x = clustered(32, 1000)
    rows, ascend, tried = x.T.copy(), tuning.ascend, []

    def sometimes_harmful(layers, *arguments):
        better = ascend(layers, *arguments)
        if len(tried) == fails_at:  # what one would get who learned the sample by heart: no vector as before
            better = [(i, j, np.zeros_like(theta)) for i, j, theta in better[:1]]
            monkeypatch.setattr(tuning.Judge, "found", lambda *_: -1.0)
        tried.append(better)
        return better

    monkeypatch.setattr(tuning, "ascend", sometimes_harmful)
    monkeypatch.setattr(tuning, "_WORTH", 0.0)  # more steps are always worth it
    layers = start(rows)
    after = tuning.tuned(layers, rows, whole(x), seed=0, steps_away=0, steps_alike=tuning.STEPS)
    assert len(tried) == fails_at + 1  # and no further steps are spent
    assert after is (layers if fails_at == 0 else tried[0])


def test_vectors_kept_aside_are_not_learned_from():
    x = clustered(32, 1000)
    seen = []

    class Spy(Exception):
        pass

    def ascend(layers, tiles, objective, steps):
        seen.append(tiles)
        raise Spy

    before = tuning.ascend
    tuning.ascend = ascend
    try:
        with pytest.raises(Spy):
            tuning.tuned(start(x.T), x.T.copy(), whole(x), seed=0, steps_away=0, steps_alike=tuning.STEPS)
    finally:
        tuning.ascend = before
    np.testing.assert_array_equal(seen[0], tiled(x[:875].T))


def recalls(x, n_train, d_out):
    """Without tuning and with it: neighbours found of vectors that nothing was learned from."""
    neighbours = faiss.knn(x[7000:], x[5000:7000], 10)[1]
    for tune in (False, True):
        prh = PRHTransform(x.shape[1], d_out, tune=tune)
        prh.train(x[:n_train])
        yield tuning.Judge(prh.apply(x[5000:]).T.copy(), 2000, neighbours).found([])


@pytest.mark.parametrize(("d", "d_out"), [(128, 64), (64, 16)])
def test_codes_tell_vectors_of_a_cluster_apart(d, d_out):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, d))[rng.integers(10, size=8000)] + 0.3 * rng.normal(size=(8000, d))
    untuned, tuned = recalls(x.astype(np.float32), 5000, d_out)
    assert tuned > untuned - 0.03


def test_one_vector_far_off_spoils_nothing():
    x = np.random.default_rng(0).normal(size=(8000, 64)).astype(np.float32)
    x[0] *= 1e5
    untuned, tuned = recalls(x, 3000, 64)
    assert tuned > untuned - 0.05


def test_tuning_does_no_harm_where_there_are_few_clusters():
    untuned, tuned = recalls(few_clusters(8000), 5000, 64)
    assert tuned > untuned - 0.01
