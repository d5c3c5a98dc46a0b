import numpy as np

from faiss_prh import PRHTransform, index_factory
from faiss_prh.learning import progress

VECTORS = np.random.default_rng(0).normal(size=(300, 24)).astype(np.float32)


def test_training_tells_how_far_it_is(monkeypatch):
    monkeypatch.setattr("faiss_prh.learning.tail.DENSE_PRODUCTS", 0)  # which would leave nothing to reduce
    told = []
    with progress.telling(lambda doing, share: told.append((doing, share))):
        PRHTransform(24, 8).train(VECTORS)
    stages = list(dict.fromkeys(doing for doing, _ in told))
    assert stages == ["reducing dimensions", "turning all angles together", "making variances equal"]
    assert all(0 <= share <= 1 for _, share in told)
    count = len(told)
    PRHTransform(24, 8).train(VECTORS)
    assert len(told) == count  # nobody listens any more


def test_a_verbose_transform_prints_and_learns_the_same(capsys, monkeypatch):
    quiet, verbose = PRHTransform(24, 8), PRHTransform(24, 8)
    verbose.verbose = True
    monkeypatch.setattr("faiss_prh.transform.printing", lambda: progress.printing(interval=0))
    quiet.train(VECTORS)
    assert capsys.readouterr().out == ""
    verbose.train(VECTORS)
    assert "PRHTransform: turning all angles together, " in capsys.readouterr().out
    assert verbose.to_bytes() == quiet.to_bytes()


def test_a_verbose_index_tells_how_far_its_transform_is(capsys, monkeypatch):
    monkeypatch.setattr("faiss_prh.index.pretransform.printing", lambda: progress.printing(interval=0))
    for is_verbose in (False, True):
        index = index_factory(24, "PRH8,BFlat")
        index.verbose = is_verbose
        index.train(VECTORS)
        assert ("PRHTransform: turning all angles together, " in capsys.readouterr().out) == is_verbose


def test_what_takes_no_time_prints_nothing(capsys):
    progress.printing()("matching", 0.5)
    assert capsys.readouterr().out == ""
