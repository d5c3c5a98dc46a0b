"""What defines each rival of the benchmarks."""

import faiss
import numpy as np
import pytest

from bench import recall
from bench.baselines import (
    BPBC,
    ISO,
    ITQ,
    KMH,
    PCAH,
    FaissITQ,
    hadamard,
    has_hadamard,
    layers,
    possible,
    prh_makers,
    rival_makers,
    rr,
    srr,
)
from bench.baselines.encoder import random_orthogonal

RNG = np.random.default_rng(0)
D = 32
MIXING = RNG.normal(size=(D, D)) * np.exp(RNG.normal(size=D) / 2)
X = (RNG.normal(size=(2000, D)) @ MIXING + 3).astype(np.float32)


def test_itq_never_falls():
    itq = ITQ(16, seed=1)
    itq.train(X)
    assert (np.diff(itq.objective) >= -1e-5 * itq.objective[0]).all()
    assert itq.objective[-1] > 1.02 * itq.objective[0]
    np.testing.assert_allclose(itq.matrix.T @ itq.matrix, np.eye(16), atol=1e-5)


def test_itq_computes_in_float32(monkeypatch):
    svd, found = np.linalg.svd, set()
    monkeypatch.setattr(np.linalg, "svd", lambda matrix: found.add(matrix.dtype) or svd(matrix))
    ITQ(16).train(X)
    assert found == {np.dtype(np.float32)}


def test_itq_keeps_the_principal_components():
    itq, pcah = ITQ(8), PCAH(8)
    itq.train(X)
    pcah.train(X)
    projector = pcah.matrix @ pcah.matrix.T
    np.testing.assert_allclose(itq.matrix @ itq.matrix.T, projector, atol=1e-5)


def test_faiss_itq_is_faiss():
    itq = FaissITQ(16)
    itq.train(X)
    stock = faiss.index_factory(D, "ITQ16,LSH")
    stock.train(X)
    stock.add(X[:50])
    codes = faiss.vector_to_array(faiss.downcast_index(stock.index).codes).reshape(50, 2)
    np.testing.assert_array_equal(itq.encode(X[:50]), codes)


@pytest.mark.parametrize("bits", [D, 12])
def test_iso_is_isotropic_and_orthogonal(bits):
    iso = ISO(bits, seed=2)
    iso.train(X)
    variances = iso.project(X).var(axis=0)
    np.testing.assert_allclose(variances, variances.mean(), rtol=1e-3)
    np.testing.assert_allclose(iso.matrix.T @ iso.matrix, np.eye(bits), atol=1e-5)


def test_pcah_is_uncorrelated():
    pcah = PCAH(10)
    pcah.train(X)
    covariance = np.cov(pcah.project(X), rowvar=False)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-3 * covariance[0, 0])
    assert (np.diff(np.diag(covariance)) <= 0).all()


def test_kmh_falls_and_its_indices_are_its_codes():
    kmh = KMH(16, iterations=8)
    kmh.train(X)
    assert (np.diff(kmh.objective) <= 1e-2 * kmh.objective[0]).all()
    assert kmh.objective[-1] < kmh.objective[0]
    codes = np.unpackbits(kmh.encode(X[:100]), axis=1, bitorder="little")
    part = ((X[:100] - kmh.mean) @ kmh.axes)[:, :8]  # the first of four subspaces of eight dimensions
    codewords = kmh.subspaces[0].codewords
    nearest = np.linalg.norm(part[:, None] - codewords, axis=2).argmin(axis=1)
    np.testing.assert_array_equal(codes[:, :4] @ (1 << np.arange(4)), nearest)


def test_kmh_codewords_at_larger_hamming_distance_are_farther():
    kmh = KMH(D, iterations=8)
    kmh.train(X)
    index = np.arange(16)
    hamming = np.bitwise_count(index[:, None] ^ index) if hasattr(np, "bitwise_count") else None
    if hamming is None:
        hamming = np.unpackbits((index[:, None] ^ index).astype(np.uint8)[..., None], axis=2).sum(axis=2)
    for subspace in kmh.subspaces:
        distances = np.linalg.norm(subspace.codewords[:, None] - subspace.codewords, axis=2)
        means = [distances[hamming == h].mean() for h in range(5)]
        assert (np.diff(means) > 0).all()


def test_bpbc_never_falls_and_is_bilinear():
    bpbc = BPBC(D, d1=8, seed=3, iterations=15)
    bpbc.train(X)
    assert (np.diff(bpbc.objective) >= -1e-5 * bpbc.objective[0]).all()
    assert bpbc.objective[-1] > 1.01 * bpbc.objective[0]
    dense = np.kron(bpbc.left.T, bpbc.right.T)
    np.testing.assert_allclose(bpbc.project(X), (X - bpbc.mean) @ dense.T, atol=1e-3)
    np.testing.assert_allclose(dense @ dense.T, np.eye(D), atol=1e-5)


@pytest.mark.parametrize("make", [srr, rr, *([hadamard] if has_hadamard() else [])])
@pytest.mark.parametrize("d", [D, 20])
def test_rotations_keep_distances(make, d):
    encoder = make(d, seed=4)
    encoder.train(X[:, :d])
    y = encoder.transform.apply(X[:50, :d] - encoder.mean)
    before, after = (np.linalg.norm(x[:, None] - x, axis=2) for x in (X[:50, :d], y))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-3)
    assert encoder.bits == (32 if make is hadamard else d)


@pytest.mark.parametrize("bits", [D, 16])
def test_all_have_one_interface(bits):
    makers = {**prh_makers(D, [(layers(bits), 2, 0.3)], bits), **rival_makers(D, bits)}
    assert {"ITQ, Faiss's", "ITQ, published", "ISO", "PCAH", "KMH", "SRR", "RR"} < set(makers)
    for name, make in makers.items():
        encoder = make(5)
        encoder.train(X)
        codes = encoder.encode(X[:10])
        assert encoder.bits == bits, name
        assert codes.shape == (10, bits // 8), name
        assert codes.dtype == np.uint8, name


def test_wrong_sizes():
    with pytest.raises(ValueError, match="multiple of 4"):
        KMH(10)
    with pytest.raises(ValueError, match="multiple of 128"):
        BPBC(100)


def test_rivals_that_cannot_be_made_are_left_out(capsys):
    assert "KMH" not in rival_makers(D, 10)
    assert "KMH is left out. KMH makes 4 bits a subspace: 10 is no multiple of 4." in capsys.readouterr().out
    assert possible("BPBC", lambda seed: BPBC(100)) == {}
    assert "BPBC is left out" in capsys.readouterr().out
    assert set(possible("BPBC", lambda seed: BPBC(256))) == {"BPBC"}
    assert not capsys.readouterr().out


def test_quick_rivals(capsys):
    assert rival_makers(512).keys() - rival_makers(512, quick=True).keys() == {"KMH"}
    slow = {"KMH", "ISO", "ITQ, Faiss's", "ITQ, published"}
    assert rival_makers(784).keys() - rival_makers(784, quick=True).keys() == slow
    assert "at 784 bits: ISO; ITQ, Faiss's; ITQ, published; KMH." in capsys.readouterr().out
    assert rival_makers(784, 64).keys() - rival_makers(784, 64, quick=True).keys() == {"KMH"}


def test_faiss_without_hadamard(monkeypatch):
    monkeypatch.delattr(faiss, "HadamardRotation", raising=False)
    assert "Hadamard" not in rival_makers(D)


def test_random_orthogonal():
    q = random_orthogonal(10, np.random.default_rng(0))
    np.testing.assert_allclose(q @ q.T, np.eye(10), atol=1e-12)


def test_cuts():
    assert {10, 100, 1000} <= set(recall.CUTS.tolist())
    assert len(recall.CUTS) == 21


def test_recall_is_the_mean_over_all_orders_of_ties(monkeypatch):
    rng = np.random.default_rng(1)
    base, queries = (rng.integers(0, 256, (n, 1), dtype=np.uint8) for n in (300, 7))
    truth = rng.permuted(np.tile(np.arange(300), (7, 1)), axis=1)[:, :10]
    cuts = np.array([10, 50, 200, 300])
    distances = np.unpackbits(queries[:, None] ^ base[None], axis=2).sum(axis=2)
    total = np.zeros(len(cuts))
    for _ in range(400):
        ranks = np.lexsort((rng.random(distances.shape), distances), axis=1).argsort(axis=1)
        total += [(np.take_along_axis(ranks, truth, 1) < cut).mean() for cut in cuts]
    monkeypatch.setattr(recall, "_BLOCK_DISTANCES", 1000)
    found = recall.recall_curve(queries, base, truth, cuts)
    np.testing.assert_allclose(found, total / 400, atol=0.01)
    assert found[-1] == 1
