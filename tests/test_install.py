"""install: stock Faiss's functions with the strings and indexes of this package, and untouched for all else."""

import copy
import gc
import io
import os
import pickle
import re
import threading

import faiss
import numpy as np
import pytest

import faiss_prh
from faiss_prh import IndexBinaryPreTransform, IndexBinaryRefine, PRHTransform

D = 32
PATCHED = ("index_factory", "write_index", "read_index", "clone_index")
CLASSES = ("Index", "IndexPreTransform", "IndexIDMap", "IndexIDMap2", "IndexRefine", "IndexRefineFlat")

# As in Faiss's wiki and tests.
STOCK_STRINGS = [
    "Flat", "LSH", "LSHr", "LSH16rt", "ITQ,LSH", "ITQ16,LSH", "PQ4", "PQ8x4", "PQ8x4fs", "SQ8", "SQ4", "SQfp16",
    "HNSW16", "HNSW16,Flat", "HNSW16_SQ8", "NSG16", "NSG16,Flat", "IVF4,Flat", "IVF4,PQ4", "IVF4,SQ8", "IVF4,PQ4np",
    "IVF4,PQ8x4fs", "IVF4_HNSW8,Flat", "IVF16(IVF4,Flat),Flat", "IMI2x2,Flat", "IDMap,Flat", "IDMap2,Flat",
    "Flat,IDMap", "PCA16,Flat", "PCAR16,IVF4,Flat", "PCAW16,Flat", "L2norm,Flat", "RR16,Flat", "OPQ4_16,PQ4",
    "OPQ4,IVF4,PQ4", "Pad64,Flat", "PCA16,L2norm,IVF4,Flat", "IVF4,PQ4,RFlat", "IVF4,PQ4,Refine(SQ8)",
    "IDMap2,PCA16,IVF4,Flat", "ITQ,IVF4,Flat", "RQ2x4", "LSQ2x4", "IVF4,RQ2x4", "Residual2x4,Flat", "HR,Flat",
]  # fmt: skip
WRONG_STRINGS = [
    "",
    "Flatt",
    "IVF,Flat",
    "PQ",
    "PCA16",
    "BFlat",
    "BIVF4",
    "BHash2x3",
    ",",
    "IVF4(Flat",
    "Flat)",
    "Flat,",
]

OUR_FLOATS = [
    "SRR,LSH",
    "PRH,LSH",
    "PRH,Flat",
    "PRH16,IVF4,Flat",
    "IDMap,PRH,Flat",
    "IDMap2,PRH,LSH",
    "PRH,LSH,RFlat",
    "PRH,LSH,Refine(SQ8)",
]
OUR_BINARIES = [
    "PRH,BFlat",
    "RR,BFlat",
    "PRH,BIVF4",
    "PRH,BFlat,RFlat",
    "PRH,BFlat,RAsym",
    "IDMap2,PRH,BHNSW8",
    "PCA16,PRH,BHash4",
    "PRH,IVF4,Signs",
    "PRH,IVF4_HNSW8,Signs,RFlat",
]


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    n = 190  # too few to tune, which would take its time in every test
    return (rng.normal(size=(n, 8)) @ rng.normal(size=(8, D)) + rng.normal(size=(n, D)) / 2 + 1).astype("float32")


@pytest.fixture
def installed():
    faiss_prh.install(trusted=True)
    yield
    faiss_prh.uninstall()


def filled(index, x):
    index.train(x)
    if isinstance(index, faiss.IndexIDMap) or "IDMap" in type(getattr(index, "index", None)).__name__:
        index.add_with_ids(x, np.arange(len(x)) + 1000)
    else:
        index.add(x)
    return index


def replaced():
    return [getattr(faiss, name) for name in PATCHED] + [getattr(faiss, name).__setstate__ for name in CLASSES]


def assert_finds_the_same(index, other, x):
    """But for ties, and for rounding where Faiss has made a dense matrix of the transform."""
    assert type(other) is type(index)
    assert other.ntotal == index.ntotal
    gc.collect()
    (distances, ids), (others, found) = index.search(x[:50], 10), other.search(x[:50], 10)
    are_counts_of_bits = np.array_equal(distances, np.rint(distances))  # of which one may differ
    np.testing.assert_allclose(others, distances, rtol=1e-3, atol=1 if are_counts_of_bits else 0.01)
    without_ties = distances < distances[:, -1:]
    assert (
        np.isin(ids + 10_000 * np.arange(50)[:, None], found + 10_000 * np.arange(50)[:, None])[without_ties].mean()
        > 0.98
    )


# Putting in and taking out


def test_uninstall_restores_the_very_same_functions():
    before = replaced()
    for _ in range(2):
        faiss_prh.install()
        during = replaced()
        assert not any(a is b for a, b in zip(before, during, strict=True))
        faiss_prh.install(trusted=True)
        assert all(a is b for a, b in zip(during, replaced(), strict=True))
        faiss_prh.uninstall()
        faiss_prh.uninstall()
        assert all(a is b for a, b in zip(before, replaced(), strict=True))


def test_a_later_patch_of_someone_else_is_left_alone(monkeypatch):
    faiss_prh.install()
    ours = faiss.read_index
    monkeypatch.setattr(faiss, "read_index", theirs := lambda *args: ours(*args))
    faiss_prh.uninstall()
    assert faiss.read_index is theirs
    monkeypatch.undo()
    faiss_prh.install()
    faiss_prh.uninstall()
    assert faiss.read_index is not ours


def test_a_function_taken_out_of_faiss_still_works_after_uninstall(tmp_path, x):
    faiss_prh.install()
    taken = faiss.write_index, faiss.read_index
    faiss_prh.uninstall()
    index = filled(faiss_prh.index_factory(D, "PRH,BFlat"), x)
    write, read = taken
    write(index, str(tmp_path / "i"))
    assert_finds_the_same(index, read(str(tmp_path / "i")), x)


# What is Faiss's own


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
@pytest.mark.parametrize("description", STOCK_STRINGS)
def test_stock_strings_make_what_they_made(description, metric):
    def made():
        try:
            return faiss.index_factory(D, description, metric)
        except RuntimeError as error:  # not every version knows every string
            return str(error)

    expected = made()
    faiss_prh.install()
    try:
        index = made()
        if isinstance(expected, str):
            assert index == expected
        else:
            assert type(index) is type(expected)
            assert index.metric_type == expected.metric_type
            if "NSG" not in description:  # of an empty graph Faiss writes what is in memory by chance
                np.testing.assert_array_equal(faiss.serialize_index(index), faiss.serialize_index(expected))
    finally:
        faiss_prh.uninstall()


@pytest.mark.parametrize(
    "args",
    [
        (),
        (D,),
        *((D, string) for string in WRONG_STRINGS),
        (D, "Flat", "L2"),
        ("x", "Flat"),
        (D, None),
        (D, "Flat", 1, True, 1),
    ],
    ids=repr,
)
def test_stock_errors_of_the_factory_are_untouched(args):
    def error():
        with pytest.raises((RuntimeError, TypeError, ValueError, OverflowError)) as caught:
            faiss.index_factory(*args)
        return caught.type, str(caught.value)

    expected = error()
    faiss_prh.install()
    try:
        assert error() == expected
    finally:
        faiss_prh.uninstall()


def test_stock_indexes_are_written_read_and_cloned_as_ever(tmp_path, x):
    index = filled(faiss.index_factory(D, "PCA16,IVF4,Flat"), x)
    expected = faiss.serialize_index(index)
    faiss.write_index(index, str(tmp_path / "before"))
    faiss_prh.install()
    try:
        np.testing.assert_array_equal(faiss.serialize_index(index), expected)
        faiss.write_index(index, str(tmp_path / "during"))
        assert (tmp_path / "during").read_bytes() == (tmp_path / "before").read_bytes()
        copies = [
            faiss.read_index(str(tmp_path / "before")),
            faiss.read_index(faiss.FileIOReader(str(tmp_path / "before"))),
            faiss.read_index(faiss.PyCallbackIOReader(io.BytesIO(expected.tobytes()).read)),
            faiss.read_index(faiss.BufferedIOReader(faiss.FileIOReader(str(tmp_path / "before")))),
            faiss.deserialize_index(expected),
            faiss.clone_index(index),
            pickle.loads(pickle.dumps(index)),
        ]
        mapped = faiss.read_index(str(tmp_path / "before"), faiss.IO_FLAG_MMAP)
        assert isinstance(
            faiss.downcast_InvertedLists(faiss.extract_index_ivf(mapped).invlists), faiss.OnDiskInvertedLists
        )
    finally:
        faiss_prh.uninstall()
    for other in copies:
        np.testing.assert_array_equal(faiss.serialize_index(other), expected)


def test_stock_errors_of_files_are_untouched(tmp_path):
    (tmp_path / "short").write_bytes(b"PRH")
    calls = [
        lambda: faiss.read_index(str(tmp_path / "missing")),
        lambda: faiss.read_index(str(tmp_path)),
        lambda: faiss.read_index(str(tmp_path / "short")),
        lambda: faiss.read_index("nul\0"),
        lambda: faiss.read_index(),
        lambda: faiss.read_index(3),
        lambda: faiss.write_index(),
        lambda: faiss.write_index(faiss.IndexFlatL2(4)),
        lambda: faiss.write_index(faiss.IndexFlatL2(4), str(tmp_path / "no" / "such" / "folder")),
        lambda: faiss.write_index(3, str(tmp_path / "i")),
        lambda: faiss.clone_index(),
        lambda: faiss.clone_index(None),
        lambda: faiss.deserialize_index(np.zeros(3, np.uint8)),
    ]

    def errors():
        for call in calls:
            with pytest.raises(Exception) as caught:
                call()
            yield caught.type, re.sub(r" \([A-Z][a-z ]*\)$", "", str(caught.value))  # C's last error, also a former one

    expected = list(errors())
    faiss_prh.install()
    try:
        assert list(errors()) == expected
    finally:
        faiss_prh.uninstall()


def test_a_pipe_is_read_once(tmp_path, installed):
    """Looking at its first bytes would take them away."""
    os.mkfifo(tmp_path / "pipe")
    data = faiss.serialize_index(faiss.IndexFlatL2(4)).tobytes()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[data], daemon=True)
    writer.start()
    assert faiss.read_index(str(tmp_path / "pipe")).d == 4
    writer.join()


# What is ours


@pytest.mark.parametrize("description", [*OUR_FLOATS, *OUR_BINARIES])
def test_strings_make_what_our_factory_makes(description, installed):
    expected = faiss_prh.index_factory(D, description)
    index = faiss.index_factory(D, description)
    assert type(index) is type(expected)
    assert index.d == D


def test_arguments_reach_our_factory(installed):
    index = faiss.index_factory(D, "PRH,Flat", faiss.METRIC_INNER_PRODUCT)
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    with pytest.raises(ValueError, match="names no index"):
        faiss.index_factory(D, "PRH")
    with pytest.raises(ValueError, match="without lists"):
        faiss.index_factory(D, "PRH,IVF0,Flat")
    with pytest.raises(ValueError, match="PRH is written"):
        faiss.index_factory(D, "PRHx,Flat")


COPIES = {
    "clone_index": lambda index: faiss.clone_index(index),
    "serialize_index": lambda index: faiss.deserialize_index(faiss.serialize_index(index)),
    "pickle": lambda index: pickle.loads(pickle.dumps(index)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("description", [*OUR_FLOATS, *OUR_BINARIES])
def test_copies(description, copied, x, installed):
    index = filled(faiss.index_factory(D, description), x)
    other = copied(index)
    assert_finds_the_same(index, other, x)


@pytest.mark.parametrize("description", [*OUR_FLOATS, *OUR_BINARIES])
def test_files(description, x, tmp_path, installed):
    index = filled(faiss.index_factory(D, description), x)
    path = str(tmp_path / "index")
    faiss.write_index(index, path)
    assert_finds_the_same(index, faiss.read_index(path), x)
    assert_finds_the_same(index, faiss.read_index(path, faiss.IO_FLAG_MMAP), x)
    file = io.BytesIO()
    faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
    assert_finds_the_same(index, faiss.read_index(faiss.PyCallbackIOReader(io.BytesIO(file.getvalue()).read)), x)
    faiss.write_index(index, faiss.FileIOWriter(path))
    assert_finds_the_same(index, faiss.read_index(path), x)
    assert_finds_the_same(index, faiss.read_index(faiss.BufferedIOReader(faiss.FileIOReader(path))), x)


@pytest.mark.parametrize("description", OUR_FLOATS)
def test_what_faiss_can_write_faiss_writes(description, x, tmp_path, installed):
    index = filled(faiss.index_factory(D, description), x)
    faiss.write_index(index, str(tmp_path / "index"))
    faiss_prh.uninstall()
    assert_finds_the_same(index, faiss.read_index(str(tmp_path / "index")), x)


def too_large_for_faiss(x):
    """Return an index whose transform has no dense matrix, so that Faiss does not know it."""
    prh = PRHTransform(D, max_dense_bytes=0)
    return filled(faiss.IndexIDMap2(faiss.IndexPreTransform(prh, faiss.IndexFlatL2(D))), x)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_of_what_faiss_cannot_write(copied, x):
    index = too_large_for_faiss(x)
    with pytest.raises(RuntimeError):
        copied(index)
    faiss_prh.install(trusted=True)
    try:
        other = copied(index)
    finally:
        faiss_prh.uninstall()
    assert_finds_the_same(index, other, x)


def test_files_of_what_faiss_cannot_write(x, tmp_path, installed):
    path = tmp_path / "index"
    index = too_large_for_faiss(x)
    for _ in range(2):
        faiss.write_index(index, str(path))
        assert path.read_bytes().startswith(b"PRHINDEX")
        assert_finds_the_same(index, faiss.read_index(str(path)), x)
    assert os.listdir(tmp_path) == ["index"]


@pytest.mark.parametrize("description", ["PRH,BFlat", "PRH,BFlat,RFlat", "PRH,BIVF4"])
def test_our_classes_are_written_in_our_format(description, x, tmp_path, installed):
    index = filled(faiss.index_factory(D, description), x)
    faiss.write_index(index, str(tmp_path / "index"))
    assert (tmp_path / "index").read_bytes() == faiss_prh.serialize_index(index)


def test_several_indexes_in_one_stream(x, installed):
    indexes = [filled(faiss.index_factory(D, string), x) for string in ("PRH,BFlat", "Flat", "PRH,BIVF4", "PRH,LSH")]
    writer = faiss.VectorIOWriter()
    for index in indexes:
        faiss.write_index(index, writer)
    reader = faiss.VectorIOReader()
    faiss.copy_array_to_vector(faiss.vector_to_array(writer.data), reader.data)
    for index in indexes:
        other = faiss.read_index(reader)
        assert other.ntotal == len(x)
        np.testing.assert_allclose(other.search(x[:5], 3)[0], index.search(x[:5], 3)[0], atol=1)


def test_a_clone_keeps_the_sparse_form(x, installed):
    index = filled(faiss.index_factory(D, "PRH,Flat"), x)
    clone = faiss.clone_index(index)
    assert isinstance(faiss_prh.index.composites.taken_apart(clone).transforms[0], PRHTransform)


# Trust, refusals and lifetimes


def test_reading_follows_the_rules_of_trust(x, tmp_path):
    path = str(tmp_path / "i")
    faiss_prh.write_index(filled(faiss_prh.index_factory(D, "PRH,Flat"), x), path)
    data = np.fromfile(path, np.uint8)
    pickled = None
    faiss_prh.install()
    try:
        for read in (
            lambda: faiss.read_index(path),
            lambda: faiss.deserialize_index(data),
            lambda: faiss.read_index(faiss.PyCallbackIOReader(io.BytesIO(data.tobytes()).read)),
        ):
            with pytest.raises(ValueError, match="trusted"):
                read()
        faiss_prh.install(trusted=True)
        assert faiss.read_index(path).ntotal == len(x)
        assert faiss.deserialize_index(data).ntotal == len(x)
        faiss_prh.install()
        with pytest.raises(ValueError, match="trusted"):
            faiss.read_index(path)
        untrained = faiss.index_factory(D, "PRH,Flat")  # which Faiss cannot write
        pickled = pickle.dumps(untrained)
        assert pickle.loads(pickled).d == D
        assert faiss.clone_index(untrained).d == D
    finally:
        faiss_prh.uninstall()


@pytest.mark.parametrize("description", [string for string in OUR_FLOATS if "SRR" not in string])
def test_what_comes_out_of_a_pickle_lives_and_learns(description, x, installed):
    """Faiss keeps only the pointer of what it unpickles; the parts of what we read are Python's."""
    untrained = faiss.index_factory(D, description)
    data = pickle.dumps(untrained)
    assert b"PRHINDEX" in data
    indexes = [pickle.loads(data) for _ in range(20)]
    del untrained
    gc.collect()
    churn = [np.random.default_rng(i).bytes(500) for i in range(2000)]
    expected = filled(faiss_prh.index_factory(D, description), x).search(x[:20], 5)[1]
    for index in indexes[::7]:
        np.testing.assert_array_equal(filled(index, x).search(x[:20], 5)[1], expected)
    del indexes[1:], churn
    gc.collect()
    np.testing.assert_array_equal(indexes[0].search(x[:20], 5)[1], expected)


def test_the_old_file_survives_a_refusal(x, tmp_path, installed):
    path = tmp_path / "i"
    path.write_bytes(b"the old file")
    index = faiss.index_factory(D, "PRH,BHNSW8")
    filled(index, x)
    index.index.hnsw.efSearch = 1 << 20  # which no file may ask for
    with pytest.raises(ValueError, match="cannot be written"):
        faiss.write_index(index, str(path))
    with pytest.raises(TypeError):
        faiss.write_index(object(), str(path))
    assert path.read_bytes() == b"the old file"
    assert os.listdir(tmp_path) == ["i"]


def test_untrained_float_index_is_a_file_of_ours(x, tmp_path, installed):
    """Faiss would open the file, and then find that it cannot write it."""
    path = tmp_path / "i"
    faiss.write_index(faiss.index_factory(D, "PRH,Flat"), str(path))
    assert path.read_bytes().startswith(b"PRHINDEX")
    index = filled(faiss.read_index(str(path)), x)
    assert index.search(x[:5], 1)[1].ravel().tolist() == [0, 1, 2, 3, 4]


def test_classes(installed):
    assert type(faiss.index_factory(D, "PRH,BFlat")) is IndexBinaryPreTransform
    assert type(faiss.index_factory(D, "PRH,BFlat,RFlat")) is IndexBinaryRefine


def test_the_fourth_argument_of_the_factory(installed):
    assert faiss.index_factory(D, "PRH,IVF4,Flat", faiss.METRIC_L2, True).index.ntotal == 0
    with pytest.raises(TypeError):
        faiss.index_factory(D, "PRH,IVF4,Flat", faiss.METRIC_L2, False)
