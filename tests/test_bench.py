"""The benchmarks' own parts: data sets from files, and made-up ones; the command line; tables and plots."""

import json
import re
import sys
import time
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import faiss
import numpy as np
import pytest
from faiss.contrib.vecs_io import fvecs_write

from bench import datasets
from bench.report import Options

RNG = np.random.default_rng(0)
SIZES = {"train": 30, "base": 50, "query": 7}
PARTS = {name: RNG.integers(0, 200, (n, 12)).astype(np.float32) for name, n in SIZES.items()}


def assert_is_parts(dataset, name):
    assert dataset.name == name
    assert dataset.d == 12
    for part, expected in PARTS.items():
        found = getattr(dataset, part)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


def write_bvecs(path, x):
    rows = [np.int32(x.shape[1]).tobytes() + row.astype(np.uint8).tobytes() for row in x]
    path.write_bytes(b"".join(rows))


def write_triple(folder, kind, parts=PARTS):
    for part, x in parts.items():
        path = folder / f"some_{'learn' if part == 'train' else part}.{kind}"
        if kind == "npy":
            np.save(path, x)
        elif kind == "fvecs":
            fvecs_write(str(path), x)
        else:
            write_bvecs(path, x)


def write_hdf5(path, parts, **attributes):
    h5py = pytest.importorskip("h5py", reason="an extra")
    with h5py.File(path, "w") as file:
        for name, x in parts.items():
            file[name] = x
        file.attrs.update(attributes)


@pytest.mark.parametrize("kind", ["npz", "npy", "fvecs", "bvecs"])
def test_files(kind, tmp_path):
    if kind == "npz":
        np.savez(tmp_path / "some.npz", **{name: x.astype(np.float16) for name, x in PARTS.items()})
    else:
        write_triple(tmp_path, kind)
    (tmp_path / "README.md").write_text("not data")
    (dataset,) = datasets.load(tmp_path)
    assert_is_parts(dataset, "some")


def test_names_in_any_case(tmp_path):
    for part, x in PARTS.items():
        with (tmp_path / f"SIFT_{part.title()}.NPY").open("wb") as file:
            np.save(file, x)
    with (tmp_path / "Other.NPZ").open("wb") as file:
        np.savez(file, **PARTS)
    other, sift = datasets.load(tmp_path)
    assert_is_parts(other, "Other")
    assert_is_parts(sift, "SIFT")


def test_hdf5(tmp_path):
    write_hdf5(tmp_path / "ann.HDF5", {"train": PARTS["base"], "test": PARTS["query"]}, distance="euclidean")
    (dataset,) = datasets.load(tmp_path / "ann.HDF5")
    np.testing.assert_array_equal(dataset.base, PARTS["base"])
    np.testing.assert_array_equal(dataset.query, PARTS["query"])
    assert dataset.train.shape[1] == 12


def test_angular_hdf5(tmp_path):
    write_hdf5(tmp_path / "ann.hdf5", {"train": PARTS["base"], "test": PARTS["query"]}, distance="angular")
    (dataset,) = datasets.load(tmp_path)
    for part in (dataset.train, dataset.base, dataset.query):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, rtol=1e-6)


def refusal(path):
    with pytest.raises(SystemExit) as error:
        datasets.load(path)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_no_data(tmp_path):
    assert "no data set" in refusal(tmp_path)
    assert refusal(tmp_path / "missing.npz") == f"{tmp_path / 'missing.npz'}: no such file or folder"


@pytest.mark.parametrize("content", ["empty", "garbage", "truncated"])
@pytest.mark.parametrize("kind", ["npz", "hdf5", "npy", "fvecs", "bvecs"])
def test_damaged_files(kind, content, tmp_path):
    if kind == "npz":
        path = tmp_path / "some.npz"
        np.savez(path, **PARTS)
    elif kind == "hdf5":
        path = tmp_path / "some.hdf5"
        write_hdf5(path, {"train": PARTS["base"], "test": PARTS["query"]})
    else:
        path = tmp_path / f"some_query.{kind}"
        write_triple(tmp_path, kind)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "garbage": RNG.bytes(len(whole)), "truncated": whole[:-3]}[content])
    assert refusal(tmp_path) == f"{path}: damaged, or no .{kind} file of numbers"


def test_rows_of_different_lengths(tmp_path):
    write_triple(tmp_path, "bvecs")
    path = tmp_path / "some_base.bvecs"
    content = bytearray(path.read_bytes())
    content[16] += 1  # the length of the second row
    path.write_bytes(content)
    assert str(path) in refusal(tmp_path)


def test_missing_parts(tmp_path):
    np.savez(tmp_path / "some.npz", base=PARTS["base"], query=PARTS["query"])
    assert refusal(tmp_path) == f"{tmp_path / 'some.npz'}: no train; expected train, base, query"
    (tmp_path / "some.npz").unlink()
    write_triple(tmp_path, "npy", {"train": PARTS["train"], "base": PARTS["base"]})
    assert f"{tmp_path / 'some_base.npy'}: found without some_query.npy; expected" in refusal(tmp_path)


def test_hdf5_without_its_parts(tmp_path, monkeypatch):
    path = tmp_path / "ann.hdf5"
    write_hdf5(path, {"neighbors": PARTS["query"]})
    assert refusal(path) == f"{path}: no train and no test; expected train, test"
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert refusal(path) == f"{path}: h5py is needed to read it"


def with_nan(x):
    x = x.copy()
    x[3, 4] = np.nan
    return x


@pytest.mark.parametrize(
    ("part", "change", "reason"),
    [
        ("train", lambda x: x.astype(complex), "expected real numbers in two dimensions"),
        ("train", lambda x: x.astype(str), "expected real numbers in two dimensions"),
        ("query", lambda x: x[0], "expected real numbers in two dimensions"),
        ("query", lambda x: x[:, :-1], "vectors of 11 dimensions; expected 12"),
        ("train", lambda x: x[:0], "0 vectors of 12 dimensions; expected at least 1"),
        ("query", lambda x: x[:0], "0 vectors of 12 dimensions; expected at least 1"),
        ("query", lambda x: x[:, :0], "7 vectors of 0 dimensions"),
        ("base", lambda x: x[:9], "9 vectors of 12 dimensions; expected at least 10"),
        ("base", with_nan, "expected finite numbers"),
        ("base", lambda x: x.astype(float) * 1e300, "expected finite numbers"),
    ],
)
def test_unusable_vectors(part, change, reason, tmp_path):
    np.savez(tmp_path / "some.npz", **{**PARTS, part: change(PARTS[part])})
    message = refusal(tmp_path)
    assert message.startswith(f"{tmp_path / 'some.npz'}, {part}: ")
    assert reason in message


def test_two_of_one_name(tmp_path):
    np.savez(tmp_path / "Some.npz", **PARTS)
    write_triple(tmp_path, "npy")
    assert refusal(tmp_path) == f"{tmp_path}: 2 data sets are called some; expected different names"


def test_made_up_data():
    made = datasets.synthetic(16, 100, 200, 10).first(50, 60, 5)
    assert [len(part) for part in (made.train, made.base, made.query)] == [50, 60, 5]
    distances = ((made.query[:, None] - made.base) ** 2).sum(axis=2)
    np.testing.assert_array_equal(made.neighbours(3), np.argsort(distances, axis=1)[:, :3])
    words = datasets.words(100, 2000, 0, 0).train
    spectrum = np.linalg.eigvalsh(np.cov(words, rowvar=False))
    assert spectrum[-32:].sum() < 0.6 * spectrum.sum()  # it is flat
    counts = np.bincount(faiss.knn(words, words, 11)[1][:, 1:].ravel(), minlength=len(words))
    assert counts.max() > 200  # hubs, where 10 is the mean
    vlad = datasets.vlad_like(4, 10, 20, 5)
    assert vlad.d == 4 * 128
    np.testing.assert_allclose(np.linalg.norm(vlad.base, axis=1), 1, atol=1e-5)


@pytest.fixture
def extras():
    pytest.importorskip("threadpoolctl", reason="an extra")
    pytest.importorskip("tqdm", reason="an extra")
    pytest.importorskip("matplotlib", reason="an extra")


def run_main(monkeypatch, *arguments):
    from bench import __main__

    monkeypatch.setattr(sys, "argv", ["bench", *map(str, arguments)])
    __main__.main()


@pytest.mark.usefixtures("extras")
def test_output_is_tried_before_the_run(monkeypatch, tmp_path, capsys):
    from bench import tradeoff

    seen = []
    monkeypatch.setattr(tradeoff, "run", seen.append)
    (tmp_path / "file").write_text("")
    for unusable in (tmp_path / "file", tmp_path / "file" / "below", "/proc"):
        with pytest.raises(SystemExit):
            run_main(monkeypatch, "tradeoff", "--output", unusable)
        assert f"error: --output {unusable}: " in capsys.readouterr().err
    assert not seen
    run_main(monkeypatch, "tradeoff", "--output", tmp_path / "new" / "folder")
    assert seen == [Options(False, None, tmp_path / "new" / "folder")]
    assert list((tmp_path / "new" / "folder").iterdir()) == []


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize("name", ["encode", "train", "tradeoff", "gaussian", "cost", "portable"])
def test_data_is_not_offered_where_it_is_made(name, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run_main(monkeypatch, name, "--data", "somewhere")
    assert "unrecognized arguments: --data" in capsys.readouterr().err


def save_sets(folder, **dimensions):
    for name, d in dimensions.items():
        np.savez(folder / f"{name}.npz", **{part: RNG.normal(size=(n, d)) for part, n in SIZES.items()})


@pytest.mark.usefixtures("extras")
def test_only_data_of_fitting_dimension(tmp_path):
    from bench.highdim import high_dimensional
    from bench.reduction import BITS
    from bench.sift import low_dimensional

    options = Options(True, tmp_path, None)
    save_sets(tmp_path, a=2000, b=64, c=1999)
    assert [dataset.name for dataset in low_dimensional(options)] == ["b"]
    assert [dataset.name for dataset in low_dimensional(options, least=max(BITS) + 1)] == ["c"]
    assert [dataset.name for dataset in high_dimensional(options)] == ["a"]


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize(
    ("name", "d", "wanted"),
    [
        ("sift", 2000, "of 1 to 1999 dimensions"),
        ("reduction", 64, "of 65 to 1999 dimensions"),
        ("highdim", 1999, "of at least 2000 dimensions"),
        ("search", 16, "with at least 10000 base vectors"),
    ],
)
def test_no_suitable_data(name, d, wanted, monkeypatch, tmp_path):
    save_sets(tmp_path, some=d)
    with pytest.raises(SystemExit, match=f"{tmp_path}: no data set {wanted}$"):
        run_main(monkeypatch, name, "--quick", "--data", tmp_path)


@pytest.mark.usefixtures("extras")
def test_other_bits_and_trivial_recalls_are_marked(capsys):
    from bench.curves import CUTS, Curve, as_json, plot, print_curves

    recalls = np.full((2, len(CUTS)), 0.5)
    curves = {name: Curve(bits, recalls, 100, wanted_bits=24) for name, bits in (("RR", 24), ("Hadamard", 32))}
    print_curves("title", curves)
    rr = next(line.split() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("RR"))
    assert rr == ["RR", "24", "0.500", "±", "0.000", "\N{EN DASH}", "\N{EN DASH}"]
    (panel,) = plot(as_json({"title": curves})).axes
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["RR", "Hadamard, 32 bits"]


@pytest.mark.usefixtures("extras")
def test_cost_of_high_dimension(monkeypatch, tmp_path, capsys):
    from bench import highdim
    from faiss_prh.cli import evaluation

    def slow_to_make(d, seed):
        time.sleep(0.05)
        return srr(d, seed)

    srr = highdim.srr
    monkeypatch.setattr(highdim, "srr", slow_to_make)
    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    monkeypatch.setattr(highdim, "high_dimensional", lambda options: [datasets.synthetic(200, 50, 60, 5)])
    run_main(monkeypatch, "highdim", "--quick", "--output", tmp_path)
    printed = capsys.readouterr().out
    assert "BPBC is left out" in printed
    results = json.loads((tmp_path / "highdim.json").read_text())
    cost = results["cost"]["synthetic 200 (200 dimensions)"]
    assert cost["SRR"]["train_seconds"] > 0.05
    assert cost["SRR"]["encode_microseconds"] > 0
    assert cost.keys() == results["recall"]["synthetic 200 (200 dimensions), against BPBC"].keys()
    if highdim.has_hadamard():
        assert "Hadamard, 256 bits" in printed


@pytest.mark.usefixtures("extras")
def test_faiss_without_hadamard(monkeypatch):
    from bench import encode, highdim

    monkeypatch.delattr(faiss, "HadamardRotation", raising=False)
    assert "Hadamard" not in highdim.against_bpbc(256)
    assert "Hadamard" not in encode.batch_rivals(np.zeros((2, 16), np.float32), np.random.default_rng(0))


@pytest.mark.usefixtures("extras")
def test_rerank(monkeypatch, capsys):
    from bench import rerank
    from faiss_prh.cli import evaluation

    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    monkeypatch.setattr(rerank, "datasets_of", lambda options: [datasets.synthetic(32, 1300, 1000, 50)])
    run_main(monkeypatch, "rerank", "--quick")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    of_flat = {line[0]: float(line[3].rstrip(",")) for line in lines if len(line) == 5 and line[1].endswith(",")}
    assert of_flat["1"] < of_flat["5"] < of_flat["50"]


@pytest.fixture
def stand_in(extras, monkeypatch):
    """Let another index of this Faiss stand for that of sign codes, and return its string."""
    from bench import rivals, scan
    from faiss_prh.cli import evaluation

    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    for module in (rivals, scan):
        monkeypatch.setattr(module, "SIGNS", "SQ8")
    return "PRH,IVF16,SQ8"


def cells_in(printed):
    """Return the cells of the lines that were printed."""
    return [re.split(r"  +", line.strip()) for line in printed.splitlines()]


def test_scan(stand_in, monkeypatch, capsys):
    from bench import scan

    monkeypatch.setattr(scan, "datasets_of", lambda *_: [datasets.clustered(32, 1300, 1500, 20)])
    run_main(monkeypatch, "scan", "--quick")
    printed = capsys.readouterr().out
    assert printed.startswith("1 thread. faiss-prh's SIMD level: ")
    assert "MISSED" not in printed  # which a quick run cannot tell
    cells = cells_in(printed)
    for name in ("PRH,BFlat,RFlat", "PRH,BFlat,RAsym", "PRH,BIVF16,RFlat", "PRH,BIVF16,RAsym"):
        assert any(line[0] == name and line[-1].endswith("x") and len(line) == 4 for line in cells), name
        alone = [line for line in cells if line[0] == name and not line[-1].endswith("x")]
        assert any(float(raw) > 0 and float(python) > 0 for _, _, raw, python in alone), name
    best = {
        (line[0], line[1]): float(line[3]) for line in cells if line[0] in ("0.94", "0.98") and line[3] != "\N{EN DASH}"
    }
    assert best.keys() == set(product(("0.94", "0.98"), (f"{stand_in},RFlat", "IVF16,PQ8x4fs,RFlat")))
    assert all(found >= float(wanted) for (wanted, _), found in best.items())
    rows = {(line[0], line[1]): line for line in cells if len(line) in (5, 7) and line[0] in ("4", "16")}
    for nprobe in ("4", "16"):
        ours, pq = rows[nprobe, stand_in], rows[nprobe, "IVF16,PQ8x4fs"]
        assert float(pq[6]) == pytest.approx(float(ours[3]) - float(pq[3]), abs=0.0011)
        assert float(pq[5].rstrip("x")) == pytest.approx(float(ours[4]) / float(pq[4]), rel=0.1)
        assert (nprobe, "PRH64,IVF16,SQ8") in rows


@pytest.mark.usefixtures("extras")
def test_targets():
    from bench.report import ahead, versus

    assert versus(1.5, 1.5) == "1.50x (≥1.5)"
    assert versus(1.4, 1.5) == "1.40x (≥1.5 MISSED)"
    assert versus(0.61, 0.6, at_most=True) == "0.61x (≤0.6 MISSED)"
    assert versus(12.34, 15, at_most=True, unit="") == "12.3 (≤15)"
    assert ahead(0.1234) == "+0.123"
    assert ahead(-0.004, -0.005) == "-0.004 (≥-0.005)"
    assert ahead(0.01, 0.02) == "+0.010 (≥0.02 MISSED)"


def test_an_index_with_the_centroids_of_another(stand_in):
    from bench.rivals import Shelf, part_with, with_centroids_of

    def lists_of(found):
        lists = part_with(found.index, "invlists").invlists
        return [faiss.rev_swig_ptr(lists.get_ids(k), lists.list_size(k)).tolist() for k in range(lists.nlist)]

    shelf = Shelf(datasets.clustered(16, 700, 300, 5))
    ours = shelf.get(stand_in)
    shelf.dataset.train = shelf.dataset.train[::-1].copy()  # from which an index would learn other centroids
    found = shelf.get("RR,IVF16,Flat")
    with_ours = with_centroids_of(ours, "RR,IVF16,Flat", shelf.dataset)
    assert lists_of(with_ours) == lists_of(ours) != lists_of(found)


@pytest.mark.usefixtures("extras")
def test_unknown_indexes_are_left_out(capsys):
    from bench.rivals import Shelf

    shelf = Shelf(datasets.clustered(16, 700, 300, 5))
    (found,) = shelf.those_of(["IVF16,Unheard", "PRH,BFlat", "IVF16,Unheard"])
    assert found.name == "PRH,BFlat"
    assert found.bytes_per_vector == pytest.approx(2, abs=0.1)
    printed = capsys.readouterr().out
    assert printed == "IVF16,Unheard is left out: this Faiss or faiss-prh has no such index.\n"


@pytest.mark.usefixtures("extras")
def test_opq_is_learned_once():
    from bench.rivals import Shelf
    from faiss_prh.index.parts_of import transforms_of

    shelf = Shelf(datasets.clustered(16, 700, 300, 5))
    one, other = (shelf.make(f"OPQ4,IVF4,PQ4x4fs{end}") for end in ("", ",RFlat"))
    matrices = [faiss.vector_to_array(transforms_of(found.index)[0].A).reshape(16, 16) for found in (one, other)]
    np.testing.assert_array_equal(*matrices)
    np.testing.assert_allclose(matrices[0] @ matrices[0].T, np.eye(16), atol=1e-5)
    assert abs(matrices[0] - np.eye(16)).max() > 0.1


@pytest.mark.usefixtures("extras")
def test_settings_to_try():
    from types import SimpleNamespace

    from bench import scan
    from bench.rivals import Filled

    without, with_margin = (
        scan.grid(Filled("", SimpleNamespace(**attributes), 1), 16, quick=False)
        for attributes in ({"nprobe": 1, "k_factor": 1}, {"nprobe": 1, "k_factor": 1, "margin": 3.0})
    )
    assert {setting["nprobe"] for setting in without} == {4, 8, 12, 16}
    assert len(with_margin) == len(scan.GRID_MARGINS) * len(without)
    assert {setting["margin"] for setting in with_margin} == {1.5, 3, 6}
    assert scan.finalists([(0.9, 1), (0.95, 5), (0.99, 3), (0.97, 4), (0.96, 6)], 0.94) == [2, 3, 1]


@pytest.mark.usefixtures("extras")
def test_one_query_at_a_time(monkeypatch):
    from bench.timing import one_by_one
    from faiss_prh.cli import evaluation

    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    seen = []
    times = one_by_one(
        {"a": lambda query: seen.append(query.tolist()), "b": lambda query: time.sleep(0.01)}, RNG.random((3, 2)), 2
    )
    assert all(len(query) == 1 for query in seen)
    assert times["b"] >= 0.01


@pytest.mark.usefixtures("extras")
def test_states(monkeypatch, capsys):
    from bench import portable
    from bench.report import Options

    monkeypatch.setattr(portable, "STATES", {"native": "", "kernels": "kernels", "portable": "0"})
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setattr(
        portable.subprocess,
        "run",
        lambda *_, env, **__: SimpleNamespace(stdout=json.dumps({"work": 6.0 if env["FAISS_PRH_NATIVE"] else 2.0})),
    )
    portable.run(Options(True, None, None))
    assert "work       2        6         6               3.0x" in capsys.readouterr().out


@pytest.mark.usefixtures("extras")
def test_what_a_state_takes(monkeypatch):
    from bench import portable

    monkeypatch.setattr(portable, "INDEXES", ("PRH,BFlat,RFlat", "PRH,IVF16,Flat"))
    found = portable.measured(quick=True)
    assert len(found) == 7
    assert min(found.values()) > 0


@pytest.mark.usefixtures("extras")
def test_time_in_native_code(monkeypatch):
    import faiss_prh
    from bench.timing import NativeClock, outside_native
    from faiss_prh._native.library import library
    from faiss_prh.cli import evaluation

    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    monkeypatch.setattr(library, "prh_transform_encode", lambda *_: time.sleep(0.01) or -1)
    index, x = faiss_prh.index_factory(8, "PRH,BFlat"), RNG.random((9, 8))
    index.chain[0] = prh = faiss_prh.PRHTransform.random(8)
    before = faiss.IndexBinaryFlat.search_c
    with NativeClock() as clock:
        prh.encode(x)
    assert clock.seconds >= 0.01
    assert faiss.IndexBinaryFlat.search_c is before
    searches = {"both": lambda query: (time.sleep(0.01), index.search(query, 1)), "none": lambda query: None}
    times = outside_native(searches, x, 1)
    assert times["both"] >= 0.01
    assert times["none"] >= 0


IMAGES = Path(__file__).parent.parent / "docs" / "images"
PICTURES = ("encode", "bits", "search")


def test_pictures(stand_in, monkeypatch, tmp_path):
    from bench import bits, encode, search

    monkeypatch.setattr(encode, "TARGETS", {128: {}, 256: {}})
    monkeypatch.setattr(bits, "datasets_of", lambda options: [datasets.synthetic(40, 300, 200, 5)])
    monkeypatch.setattr(search, "datasets_of", lambda options: [datasets.synthetic(16, 1300, 1000, 5)])
    run_main(monkeypatch, "pictures", "--quick", "--output", tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in PICTURES for kind in ("json", "svg")
    }
    written = {name: (tmp_path / f"{name}.svg").read_bytes() for name in PICTURES}
    for name, picture in written.items():
        assert texts_in(picture.decode()) & {"PRH", "PRH,IVF32,SQ8"}, name
        (tmp_path / f"{name}.svg").unlink()
    (points,) = json.loads((tmp_path / "search.json").read_text()).values()
    assert all(point["queries_per_second"] > 0 < point["queries_per_second_alone"] for point in points)
    assert [point["bytes_per_vector"] for point in points] == sorted(point["bytes_per_vector"] for point in points)
    (tmp_path / "other.json").write_text("not of an experiment")
    run_main(monkeypatch, "redraw", tmp_path)
    assert {name: (tmp_path / f"{name}.svg").read_bytes() for name in PICTURES} == written


@pytest.mark.usefixtures("extras")
def test_nothing_to_redraw(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_main(monkeypatch, "redraw", tmp_path)
    assert f"error: {tmp_path}: no figures of an experiment; expected" in capsys.readouterr().err


def texts_in(svg):
    """Return the lines of text in a picture, which Matplotlib writes as comments beside their outlines."""
    ElementTree.fromstring(svg)
    return {line for text in re.findall(r"<!-- (.*?) -->", svg, re.DOTALL) for line in text.splitlines()}


def legends_of(figure):
    return [*figure.legends, *(panel.get_legend() for panel in figure.axes if panel.get_legend())]


def names_of(figure):
    """Return the texts of titles, axes and legends."""
    texts = [text for legend in legends_of(figure) for text in legend.get_texts()]
    for panel in figure.axes:
        texts += [panel.title, panel.xaxis.label, panel.yaxis.label]
    return [text for text in texts if text.get_text()]


def tick_labels_of(figure):
    """Return the texts at the ticks that are in view."""
    found = []
    for panel in figure.axes:
        area = panel.get_window_extent().padded(1)
        for label in (*panel.get_xticklabels(), *panel.get_yticklabels()):
            x, y = label.get_transform().transform(label.get_position())
            if label.get_text() and (area.x0 <= x <= area.x1 or area.y0 <= y <= area.y1):
                found.append(label)
    return found


def results_of(name):
    if name in PICTURES:
        return json.loads((IMAGES / f"{name}.json").read_text())
    if name == "cost":
        from bench.cost import DIMENSIONS

        names = ("n", "prh", "kernel", "bpbc", "prh_us", "bpbc_us")
        return {"encoding": {name: [n * factor for n in DIMENSIONS] for factor, name in enumerate(names, 1)}}
    names = [*(f"PRH(7,0,{tilt})" for tilt in (0, 0.4, 1)), *(f"rival {k}" for k in range(8)), "Hadamard, 1024 bits"]
    curves = {name: {"label": name, "cuts": [10, 100, 1000], "recalls": [[0.1, 0.5, 1]]} for name in names}
    return {f"synthetic {k} (128 dimensions), random sparse PCA": curves for k in range(6)}


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize("name", [*PICTURES, "cost", "sift"])
def test_nothing_in_a_picture_overlaps(name):
    from bench.__main__ import PLOTS
    from bench.plots import drawn

    figure = drawn(PLOTS[name], results_of(name))
    figure.draw_without_rendering()
    ticks = tick_labels_of(figure)
    assert len(ticks) > 6
    extents = [(text.get_text(), text.get_window_extent()) for text in (*ticks, *names_of(figure))]
    for (one, extent), (other, its_extent) in combinations(extents, 2):
        assert not extent.overlaps(its_extent), (one, other)
    assert all(extent.x0 >= 0 and extent.x1 <= figure.bbox.x1 for _, extent in extents)
    for legend, panel in product(legends_of(figure), figure.axes):
        assert not legend.get_window_extent().overlaps(panel.get_window_extent())


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize("name", PICTURES)
def test_committed_pictures_show_the_committed_figures(name):
    # Not byte for byte: outlines and roundings differ between versions of Matplotlib.
    from bench.__main__ import PLOTS
    from bench.plots import drawn

    expected = {
        line for text in names_of(drawn(PLOTS[name], results_of(name))) for line in text.get_text().splitlines()
    }
    assert len(expected) > 5
    assert expected <= texts_in((IMAGES / f"{name}.svg").read_text())


@pytest.mark.usefixtures("extras")
def test_ours_differ_from_rivals_also_in_grey():
    from matplotlib.colors import to_rgb

    from bench.plots import styles

    ours = styles(["PRH", "PCA + PRH", *(f"PRH({k},0,0)" for k in range(9))]).values()
    rivals = styles(["ITQ", *(f"rival {k}" for k in range(9))]).values()
    assert all(np.dot(to_rgb(look["color"]), (0.299, 0.587, 0.114)) < 0.3 for look in ours)
    assert all(len(set(to_rgb(look["color"]))) == 1 and look["markerfacecolor"] == "white" for look in rivals)
    assert not any("linestyle" in look or "markerfacecolor" in look for look in ours)
    assert all("linestyle" in look for look in rivals)
    assert min(look["linewidth"] for look in ours) > 1.5 * max(look["linewidth"] for look in rivals)
