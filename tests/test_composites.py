"""Indexes of indexes, taken apart and put together again."""

import faiss
import numpy as np
import pytest

from faiss_prh import PRHTransform, index_factory
from faiss_prh.index.composites import put_together, refined, taken_apart, with_ids
from faiss_prh.index.parts_of import nested, transforms_of

X = np.random.default_rng(0).normal(size=(400, 16)).astype(np.float32)


def filled(description):
    index = index_factory(16, description)
    index.train(X)
    if "IDMap" in description:
        index.add_with_ids(X, np.arange(len(X)) * 3 + 7)
    else:
        index.add(X)
    return index


@pytest.mark.parametrize(
    ("description", "kinds"),
    [
        ("PRH,Flat", ["IndexPreTransform"]),
        ("PCA8,PRH,IVF4,Flat", ["IndexPreTransform"]),
        ("IDMap,PRH,Flat", ["IndexIDMap", "IndexPreTransform"]),
        ("IDMap2,PRH,LSH,RFlat", ["IndexIDMap2", "IndexRefine", "IndexPreTransform"]),
        ("PRH,PQ4x4,Refine(SQ8)", ["IndexRefine", "IndexPreTransform"]),
    ],
)
def test_an_index_of_the_same_parts_finds_the_same(description, kinds):
    index = filled(description)

    def again(part):
        composite = taken_apart(part)
        if composite is None:
            return part
        seen.append(composite.kind)
        return put_together(composite._replace(inside=again(composite.inside)))

    seen = []
    copy = again(index)
    assert seen == kinds
    for mine, theirs in zip(copy.search(X[:9], 5), index.search(X[:9], 5), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_parts_are_what_they_are():
    index = filled("IDMap2,PCA8,PRH,LSH,Refine(SQ8)")
    ids = taken_apart(index)
    refine = taken_apart(ids.inside)
    chain = taken_apart(refine.inside)
    np.testing.assert_array_equal(ids.ids, np.arange(len(X)) * 3 + 7)
    assert type(refine.store) is faiss.IndexScalarQuantizer
    assert [type(transform) for transform in chain.transforms] == [faiss.PCAMatrix, PRHTransform]
    assert taken_apart(chain.inside) is None
    new = faiss.IndexIDMap(faiss.IndexFlatL2(4))
    empty = taken_apart(new)
    assert empty.ids.shape == (0,)
    assert put_together(empty).ntotal == 0


@pytest.mark.parametrize("description", ["IDMap2,PCA8,PRH,LSH,RFlat", "IDMap2,PCA8,PRH,BIVF4,RAsym"])
def test_transforms_are_found_wherever_they_stand(description):
    assert [type(transform) for transform in transforms_of(filled(description))] == [faiss.PCAMatrix, PRHTransform]


def test_nested_indexes_are_downcast():
    kinds = [type(part).__name__ for part in nested(filled("IDMap2,PRH,IVF4,Flat,RFlat"))]
    assert kinds == ["IndexIDMap2", "IndexRefineFlat", "IndexPreTransform", "IndexIVFFlat"]


@pytest.mark.parametrize("kind", ["IndexIDMap", "IndexIDMap2", "IndexBinaryIDMap", "IndexBinaryIDMap2"])
def test_python_goes_on_owning_what_gets_ids(kind):
    """SWIG takes from Python what is put into a field, and then nobody would delete it."""
    inside = faiss.IndexBinaryFlat(16) if "Binary" in kind else faiss.IndexFlatL2(16)
    index = with_ids(kind, inside, np.empty(0, np.int64))
    assert inside.this.own()
    assert not index.own_fields


def test_python_goes_on_owning_what_is_refined():
    base, store = faiss.IndexFlatL2(16), faiss.IndexFlatL2(16)
    index = refined(base, store, k_factor=2)
    assert base.this.own()
    assert store.this.own()
    assert not index.own_fields
    assert not index.own_refine_index
